"""Nested containers as trees of leaves: flatten, unflatten, map."""
from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class _Kind(NamedTuple):
    """How one container type is taken apart and put together."""
    flatten: Callable[[Any], tuple[list[Any], Any]]
    unflatten: Callable[[Iterable[Any], Any], Any]


class MappingKey(NamedTuple):
    """The step from a mapping to its item."""
    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class SequenceKey(NamedTuple):
    """The step from a sequence to its item."""
    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


class GetAttrKey(NamedTuple):
    """The step from an object to its attribute."""
    name: str

    def __str__(self) -> str:
        return f".{self.name}"


_Mapping = (dict, OrderedDict, defaultdict)
SUPPORTED_NODES: dict[type, _Kind] = {
    dict: _Kind(lambda d: (list(d.values()), list(d)), lambda v, keys: dict(zip(keys, v))),
    OrderedDict: _Kind(lambda d: (list(d.values()), list(d)), lambda v, keys: OrderedDict(zip(keys, v))),
    defaultdict: _Kind(lambda d: (list(d.values()), [d.default_factory, list(d)]),
                       lambda v, c: defaultdict(c[0], zip(c[1], v))),
    list: _Kind(lambda x: (list(x), None), lambda v, _: list(v)),
    tuple: _Kind(lambda x: (list(x), None), lambda v, _: tuple(v)),
    deque: _Kind(lambda x: (list(x), x.maxlen), lambda v, n: deque(v, maxlen=n)),
    namedtuple: _Kind(lambda x: (list(x), type(x)),
                      lambda v, cls: cls(*v) if hasattr(cls, "_make") else cls(tuple(v))),   # type: ignore[dict-item]
}


def register_pytree_node(cls: type, flatten_fn: Callable[[Any], tuple[Any, Any]],
                         unflatten_fn: Callable[[Any, Any], Any], **kwargs: Any) -> None:
    """Makes a class a container of trees."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = _Kind(flatten_fn, unflatten_fn)


_register_pytree_node = _private_register_pytree_node = register_pytree_node


def register_dataclass(cls: type, **kwargs: Any) -> None:
    """Makes a dataclass a container of its fields."""
    names = list(cls.__dataclass_fields__)   # type: ignore[attr-defined]
    register_pytree_node(cls, lambda x: ([getattr(x, n) for n in names], None),
                         lambda values, _: cls(**dict(zip(names, values))))


def _kind_of(tree: Any) -> Any:
    """The key of the node's kind, or None for a leaf."""
    kind = type(tree)
    if kind in SUPPORTED_NODES:
        return kind
    return namedtuple if isinstance(tree, tuple) and hasattr(kind, "_fields") else None


class TreeSpec:
    """The structure of a tree without its leaves."""

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves: int = sum(c.num_leaves for c in children_specs) if type is not None else 1
        self.num_nodes: int = 1 + sum(c.num_nodes for c in children_specs)
        self.num_children = len(children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """A tree of this structure with the given leaves."""
        items = list(leaves)
        if len(items) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(items)} but the spec refers to a "
                             f"pytree that holds {self.num_leaves} items ({self}).")
        return self._build(iter(items))

    def _build(self, items: Any) -> Any:
        if self.type is None:
            return next(items)
        return SUPPORTED_NODES[self.type].unflatten([c._build(items) for c in self.children_specs], self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of tree at this structure's leaves."""
        if self.type is None:
            return [tree]
        if _kind_of(tree) is not self.type:
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        children, context = SUPPORTED_NODES[self.type].flatten(tree)
        if len(children) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        if self.type in _Mapping and context != self.context:
            keys = self.context[1] if self.type is defaultdict else self.context
            if set(keys) != set(tree):
                raise ValueError(f"Node keys mismatch; expected {keys!r}, but got {list(tree)!r}.")
            children = [tree[k] for k in keys]
        return [leaf for spec, child in zip(self.children_specs, children) for leaf in spec.flatten_up_to(child)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == \
            (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, str(self.context), len(self.children_specs)))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inside = (",\n" + " " * (indent + 2)).join(child.__repr__(indent + 2) for child in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inside}])"


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def treespec_leaf() -> TreeSpec:
    """The structure of a single leaf."""
    return LeafSpec()


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, and its structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: Any) -> TreeSpec:
    kind = _kind_of(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return LeafSpec()
    children, context = SUPPORTED_NODES[kind].flatten(tree)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """A tree from leaves and structure."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item "
                        f"of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments."""
    return tree_leaves((args, kwargs))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree with func of each leaf (and of the leaves of the others at the same place)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*items) for items in zip(leaves, *others)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Calls func for each leaf and returns the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for items in zip(leaves, *(spec.flatten_up_to(r) for r in rests)):
        func(*items)
    return tree


def _wanted(type_or_types: Any) -> Callable[[Any], bool]:
    if isinstance(type_or_types, (type, tuple)):
        return lambda x: isinstance(x, type_or_types)
    if callable(type_or_types):
        return type_or_types
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(type_or_types: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function for objects of those types, others as they are."""
    wanted = _wanted(type_or_types)

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(func)
        def mapped(x: Any) -> Any:
            return func(x) if wanted(x) else x
        return mapped
    return decorate


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None) -> Any:
    """tree_map over the leaves of those types only."""
    return tree_map(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None) -> Any:
    """tree_map_ over the leaves of those types only."""
    return tree_map_(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for every leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for every leaf of those types."""
    wanted = _wanted(type_or_types)
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if wanted(x))


def tree_any_only(type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for a leaf of those types."""
    wanted = _wanted(type_or_types)
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if wanted(x))


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether the object is a leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _kind_of(tree) is None


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Any = None) -> list[Any] | None:
    """The leaves of tree repeated to fill treespec, or None where the two do not fit."""
    kind = _kind_of(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        return [tree] * treespec.num_leaves
    if treespec.type is not kind:
        return None
    children, context = SUPPORTED_NODES[kind].flatten(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for child, spec in zip(children, treespec.children_specs):
        part = _broadcast_to_and_flatten(child, spec, is_leaf)
        if part is None:
            return None
        found += part
    return found


def tree_flatten_with_path(tree: Any, is_leaf: Any = None) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """(path, leaf) pairs, and the structure."""
    found: list[tuple[tuple[Any, ...], Any]] = []
    _paths(tree, (), found, is_leaf)
    return found, tree_structure(tree, is_leaf)


def _paths(tree: Any, path: tuple[Any, ...], found: list[Any], is_leaf: Any) -> None:
    kind = _kind_of(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        found.append((path, tree))
        return
    children, context = SUPPORTED_NODES[kind].flatten(tree)
    if kind in _Mapping:
        steps: list[Any] = [MappingKey(k) for k in tree]
    elif kind is namedtuple:
        steps = [GetAttrKey(n) for n in type(tree)._fields]
    else:
        steps = [SequenceKey(i) for i in range(len(children))]
    for step, child in zip(steps, children):
        _paths(child, (*path, step), found, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Any = None) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) pairs."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """tree_map whose func gets the path first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(path, leaf, *rest) for (path, leaf), *rest in zip(pairs, *others)])


def keystr(kp: tuple[Any, ...]) -> str:
    """A path as text."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: tuple[Any, ...]) -> Any:
    """What lies at a path."""
    for step in kp:
        obj = getattr(obj, step.name) if isinstance(step, GetAttrKey) else obj[step[0]]
    return obj
