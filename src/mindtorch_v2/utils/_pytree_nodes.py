"""The kinds of containers that trees are made of: how each is taken apart, put together, walked by keys and written down."""
from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

PyTree = Context = DumpableContext = KeyEntry = Any
KeyPath = tuple[Any, ...]
FlattenFunc = FlattenFn = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = UnflattenFn = Callable[[Iterable[Any], Any], Any]
FlattenWithKeysFunc = FlattenWithKeysFn = Callable[[Any], tuple[list[tuple[Any, Any]], Any]]
ToDumpableContextFn = FromDumpableContextFn = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """The step from a mapping to its item."""
    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The item."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """The step from a sequence to its item."""
    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The item."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """The step from an object to its attribute."""
    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The attribute."""
        return getattr(obj, self.name)


class NodeDef(NamedTuple):
    """How one kind of container is taken apart and put together."""
    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Any]]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None


class ConstantNode(NamedTuple):
    """What the context of a constant is: the object itself."""
    value: Any


class _Written(NamedTuple):
    """How a kind stands in the text of a structure."""
    typ: Any
    serialized_type_name: str | None
    to_dumpable_context: Callable[[Any], Any] | None
    from_dumpable_context: Callable[[Any], Any] | None


SUPPORTED_NODES: dict[Any, NodeDef] = {}
SUPPORTED_SERIALIZED_TYPES: dict[Any, _Written] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, Any] = {}
CONSTANT_NODES: set[type] = set()
BUILTIN_TYPES: frozenset[Any] = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
STANDARD_DICT_TYPES: frozenset[type] = frozenset({dict, OrderedDict, defaultdict})


def register_pytree_node(
        cls: Any, flatten_fn: Callable[[Any], tuple[Any, Any]], unflatten_fn: Callable[[Any, Any], Any], *,
        serialized_type_name: str | None = None, to_dumpable_context: Callable[[Any], Any] | None = None,
        from_dumpable_context: Callable[[Any], Any] | None = None,
        flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None) -> None:
    """Makes a class a container of trees."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) ^ (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    SUPPORTED_SERIALIZED_TYPES[cls] = _Written(cls, serialized_type_name, to_dumpable_context, from_dumpable_context)
    if serialized_type_name is not None:
        SERIALIZED_TYPE_TO_PYTHON_TYPE[serialized_type_name] = cls


_private_register_pytree_node = register_pytree_node


def _register_pytree_node(cls: Any, flatten_fn: Any, unflatten_fn: Any, to_str_fn: Any = None, maybe_from_str_fn: Any = None,
                          **more: Any) -> None:
    """The older name; its functions for text are not used, as in torch."""
    warnings.warn("`torch.utils._pytree._register_pytree_node` is deprecated. Please use "
                  "`torch.utils._pytree.register_pytree_node` instead.", FutureWarning, stacklevel=2)
    if cls in SUPPORTED_NODES:
        warnings.warn(f"{cls} is already registered as pytree node. Overwriting the previous registration.", stacklevel=2)
        del SUPPORTED_NODES[cls]
    register_pytree_node(cls, flatten_fn, unflatten_fn, **more)


def _deregister_pytree_node(cls: Any) -> None:
    """Makes a class a leaf again."""
    del SUPPORTED_NODES[cls]
    name = SUPPORTED_SERIALIZED_TYPES.pop(cls).serialized_type_name
    SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(name or "", None)
    CONSTANT_NODES.discard(cls)


def register_dataclass(cls: Any, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
                       serialized_type_name: str | None = None) -> None:
    """Makes a dataclass a container of its fields; those that are None are left out, as in torch."""
    if field_names is None and not dataclasses.is_dataclass(cls):
        raise ValueError(f"field_names must be specified with a list of all fields used to initialize {cls}, as it is not "
                         "a dataclass.")
    given = [field.name for field in dataclasses.fields(cls)] if field_names is None else list(field_names)
    names = [name for name in given if name not in (drop_field_names or ())]

    def flatten_with_keys(obj: Any) -> tuple[list[tuple[Any, Any]], Any]:
        present = [(name, getattr(obj, name)) for name in names]
        kept = [(GetAttrKey(name), value) for name, value in present if value is not None]
        return kept, [[key.name for key, _ in kept], [name for name, value in present if value is None]]

    def flatten(obj: Any) -> tuple[list[Any], Any]:
        pairs, context = flatten_with_keys(obj)
        return [value for _, value in pairs], context

    def unflatten(values: Any, context: Any) -> Any:
        return cls(**dict(zip(context[0], values)), **dict.fromkeys(context[1]))

    register_pytree_node(cls, flatten, unflatten, serialized_type_name=serialized_type_name,
                         flatten_with_keys_fn=flatten_with_keys)


def register_constant(cls: Any) -> None:
    """Makes a class a node without leaves: its objects are part of the structure."""
    if cls.__eq__ is object.__eq__ or cls.__hash__ is object.__hash__ or not issubclass(cls, Hashable):
        raise TypeError(f"register_constant(cls) expects `cls` to have a non-default `__eq__` and `__hash__`, got {cls}")
    register_pytree_node(cls, lambda obj: ([], ConstantNode(obj)), lambda _, context: context.value,
                         flatten_with_keys_fn=lambda obj: ([], ConstantNode(obj)))
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: Any) -> bool:
    """Whether register_constant was called for a class."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


# ---- what a node is ------------------------------------------------------------------------------------------------
def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class is one of collections.namedtuple or typing.NamedTuple, or derived from one."""
    fields = getattr(cls, "_fields", None)
    return (isinstance(cls, type) and issubclass(cls, tuple) and isinstance(fields, tuple) and
            all(isinstance(name, str) for name in fields) and callable(getattr(cls, "_make", None)) and
            callable(getattr(cls, "_asdict", None)))


def is_namedtuple_instance(obj: object) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Whether a class is a struct sequence of C, such as time.struct_time."""
    return (isinstance(cls, type) and cls.__bases__ == (tuple,) and
            all(isinstance(vars(cls).get(name), int) for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields")))


def is_structseq_instance(obj: object) -> bool:
    """Whether an object is a struct sequence."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether an object is a struct sequence, or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def _get_node_type(tree: Any) -> Any:
    """The key under which a node's kind is found; unregistered named tuples share one."""
    kind = type(tree)
    if kind in SUPPORTED_NODES or not isinstance(tree, tuple):
        return kind
    return namedtuple if hasattr(kind, "_fields") or kind.__module__ == "torch.return_types" else kind


# ---- Python's own containers ----------------------------------------------------------------------------------------
def _sequence_pairs(x: Any) -> list[tuple[Any, Any]]:
    return [(SequenceKey(i), value) for i, value in enumerate(x)]


def _list_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), None


def _list_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return _sequence_pairs(d), None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


_tuple_flatten, _tuple_flatten_with_keys = _list_flatten, _list_flatten_with_keys


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values))


_ordereddict_flatten, _ordereddict_flatten_with_keys = _dict_flatten, _dict_flatten_with_keys


def _ordereddict_unflatten(values: Iterable[Any], context: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values))


_odict_flatten, _odict_unflatten = _ordereddict_flatten, _ordereddict_unflatten


def _defaultdict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return _dict_flatten_with_keys(d)[0], [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> defaultdict[Any, Any]:
    return defaultdict(context[0], zip(context[1], values))


def _defaultdict_serialize(context: Any) -> dict[str, Any]:
    return {"default_factory_module": context[0].__module__, "default_factory_name": context[0].__qualname__,
            "dict_context": context[1]}


def _defaultdict_deserialize(written: Any) -> list[Any]:
    factory = getattr(sys.modules[written["default_factory_module"]], written["default_factory_name"])
    return [factory, written["dict_context"]]


def _deque_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return _sequence_pairs(d), d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> deque[Any]:
    return deque(values, maxlen=context)


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    if not hasattr(d, "_fields"):
        return _sequence_pairs(d), type(d)
    return [(GetAttrKey(name), value) for name, value in zip(type(d)._fields, d)], type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values) if hasattr(context, "_make") else context(tuple(values))     # torch.return_types take a sequence


def _namedtuple_serialize(context: Any) -> str:
    written = SUPPORTED_SERIALIZED_TYPES.get(context)
    if written is None or written.serialized_type_name is None:
        raise NotImplementedError(f"Can't serialize TreeSpec of namedtuple class {context} because we didn't register a "
                                  "serializated_type_name. Please register using `_register_namedtuple`.")
    return written.serialized_type_name


def _namedtuple_deserialize(written: str) -> Any:
    if written not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Can't deserialize TreeSpec of namedtuple class {written} because we couldn't find a "
                                  "serializated name.")
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[written]


def _register_namedtuple(cls: Any, *, serialized_type_name: str) -> None:
    """The name by which the text of a structure calls a class of named tuples."""
    SUPPORTED_SERIALIZED_TYPES[cls] = _Written(cls, serialized_type_name, None, None)
    SERIALIZED_TYPE_TO_PYTHON_TYPE[serialized_type_name] = cls


for _kind, _flatten, _unflatten, _keys, _place in (
        (tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys, "builtins.tuple"),
        (list, _list_flatten, _list_unflatten, _list_flatten_with_keys, "builtins.list"),
        (dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys, "builtins.dict"),
        (OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys, "collections.OrderedDict"),
        (deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys, "collections.deque")):
    register_pytree_node(_kind, _flatten, _unflatten, serialized_type_name=_place, flatten_with_keys_fn=_keys)
register_pytree_node(namedtuple, _namedtuple_flatten, _namedtuple_unflatten, serialized_type_name="collections.namedtuple",
                     to_dumpable_context=_namedtuple_serialize, from_dumpable_context=_namedtuple_deserialize,
                     flatten_with_keys_fn=_namedtuple_flatten_with_keys)
register_pytree_node(defaultdict, _defaultdict_flatten, _defaultdict_unflatten, serialized_type_name="collections.defaultdict",
                     to_dumpable_context=_defaultdict_serialize, from_dumpable_context=_defaultdict_deserialize,
                     flatten_with_keys_fn=_defaultdict_flatten_with_keys)


# ---- a structure's node as text ---------------------------------------------------------------------------------------
def written_node(kind: Any, context: Any) -> tuple[str, Any]:
    """(name of the kind, context) as they stand in JSON."""
    written = SUPPORTED_SERIALIZED_TYPES.get(kind)
    if written is None:
        raise NotImplementedError(f"Serializing {kind} in pytree is not registered.")
    if written.serialized_type_name is None:
        raise NotImplementedError(f"No registered serialization name for {kind} found. Please update your "
                                  "_register_pytree_node call with a `serialized_type_name` kwarg.")
    if written.to_dumpable_context is not None:
        return written.serialized_type_name, written.to_dumpable_context(context)
    try:
        return written.serialized_type_name, json.dumps(context)
    except TypeError as error:
        raise TypeError("Unable to serialize context. Please make the context json dump-able, or register a custom "
                        "serializer using _register_pytree_node.") from error


def read_node(name: str, text: Any) -> tuple[Any, Any]:
    """(kind, context) of what written_node gave."""
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Deserializing {name} in pytree is not registered.")
    kind = SERIALIZED_TYPE_TO_PYTHON_TYPE[name]
    read = SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context
    return kind, read(text) if read is not None else json.loads(text)
