"""Node: one operation of a graph, a member of the graph's linked list."""
from __future__ import annotations

import builtins
import math
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Union

import mindtorch_v2 as torch
from mindtorch_v2.fx import _qualified
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.immutable_collections import immutable_dict, immutable_list
from mindtorch_v2.fx.operator_schemas import ArgsKwargsPair, normalize_function, normalize_module

if TYPE_CHECKING:
    from mindtorch_v2.fx.graph import Graph

__all__ = ["Node", "map_arg", "map_aggregate", "has_side_effect"]

BaseArgumentTypes = Union[str, int, float, bool, complex, torch.dtype, torch.Tensor, torch.device, torch.memory_format,
                          torch.layout, torch._C.OpOverload, torch.SymInt, torch.SymBool, torch.SymFloat]
base_types = typing.get_args(BaseArgumentTypes)
Target = Union[Callable[..., Any], str]
Argument = Union[tuple["Argument", ...], Sequence["Argument"], Mapping[str, "Argument"], slice, range, "Node",
                 BaseArgumentTypes, None]
ArgumentT = TypeVar("ArgumentT", bound=Argument)

_legal_ops: dict[str, None] = dict.fromkeys(
    ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root"))

# Functions whose calls stay although their results are not used.
_side_effectful_functions: set[Callable[..., Any]] = {torch._assert, operator.setitem, torch._C._set_grad_enabled}
_side_effectful_functions.update(getattr(torch.ops.profiler, name) for name in (
    "_record_function_enter", "_record_function_enter_new", "_record_function_exit"))


@compatibility(is_backward_compatible=False)
def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function whose calls no dead code elimination takes out; also a decorator."""
    _side_effectful_functions.add(fn)
    return fn


_find_module_of_method = _qualified.find_module_of_method
_get_qualified_name = _qualified.qualified_name


def _type_repr(obj: object) -> str:
    """A type as the text of an annotation."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        if obj is torch.Tensor or obj in (torch.dtype, torch.device, torch.layout, torch.memory_format):
            return f"torch.{obj.__name__}"
        return f"{_qualified.public_module(obj.__module__)}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    text = repr(obj)
    return _public_text(text)


def _public_text(text: str) -> str:
    """The text of a type with torch's names for the types of this package."""
    text = text.replace(f"{torch.Tensor.__module__}.Tensor", "torch.Tensor")
    for known in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        text = text.replace(f"{known.__module__}.{known.__qualname__}", f"torch.{known.__name__}")
    return text.replace(f"{torch.__name__}.", "torch.")


def _format_arg(arg: object, max_list_len: float = math.inf) -> str:
    """An argument as print(graph) shows it: nodes with a %, strings without quotes."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return arg._custom_fx_repr_fn()
    if isinstance(arg, (list, tuple)):
        items = ", ".join(_format_arg(a) for n, a in enumerate(arg) if n < max_list_len)
        if len(arg) >= max_list_len + 1:
            items += f", ...[total_len={len(arg)}]"
        if isinstance(arg, list):
            return f"[{items}]"
        return f"({items},)" if len(arg) == 1 else f"({items})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_format_arg(v)}" for k, v in arg.items()) + "}"
    return "%" + str(arg) if isinstance(arg, Node) else str(arg)


class _NodeBase:
    """What a node is made of: its fields, its place in the list, its arguments and its users."""

    graph: Graph
    name: str
    op: str
    target: Target
    type: Any | None
    meta: dict[str, Any]
    users: dict[Node, None]
    _input_nodes: dict[Node, None]
    _args: tuple[Any, ...]
    _kwargs: dict[str, Any]
    _prev: Any
    _next: Any
    _erased: bool
    _order: int

    def __init__(self, graph: Any, name: str, op: str, target: Any, return_type: Any) -> None:
        assign = super().__setattr__
        for key, value in (("graph", graph), ("name", name), ("op", op), ("target", target), ("type", return_type),
                           ("_input_nodes", {}), ("users", {}), ("_repr_fn", None), ("_prev", self), ("_next", self),
                           ("_erased", False), ("_order", 0), ("meta", {}), ("_args", ()),
                           ("_kwargs", immutable_dict())):
            assign(key, value)

    def _update_args_kwargs(self, new_args: tuple[Any, ...], new_kwargs: dict[str, Any]) -> None:
        """Takes new arguments, and keeps users of the nodes among them right."""
        node = typing.cast("Node", self)          # a base is never there by itself
        for used in self._input_nodes:
            used.users.pop(node, None)
        inputs: dict[Any, None] = {}

        def note(x: Any) -> Any:
            if isinstance(x, _NodeBase):
                inputs.setdefault(x)
                x.users.setdefault(node)
            return x
        self._args = map_aggregate(new_args, note)
        self._kwargs = map_aggregate(new_kwargs, note)
        self._input_nodes = inputs

    def _remove_from_list(self) -> None:
        before, after = self._prev, self._next
        before._next, after._prev = after, before
        self._prev = self._next = self

    def _prepend(self, x: Any) -> None:
        """Puts x before this node."""
        if x is self:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x
        if self.op == "root" and before.op != "root":
            x._order = before._order + 1         # at the end, which is the common case
        else:
            self.graph._in_order = False

    @property
    def _sort_key(self) -> int:
        """The place in the graph; places are counted anew after a node was put between others."""
        if not self.graph._in_order:
            self.graph._count_places()
        return self._order

    def __lt__(self, other: Any) -> bool:
        return self._sort_key < other._sort_key

    def __gt__(self, other: Any) -> bool:
        return self._sort_key > other._sort_key

    def __le__(self, other: Any) -> bool:
        return self is other or self._sort_key < other._sort_key

    def __ge__(self, other: Any) -> bool:
        return self is other or self._sort_key > other._sort_key


@compatibility(is_backward_compatible=True)
class Node(_NodeBase):
    """One operation: a placeholder, a call, the reading of an attribute, or the output of a graph."""

    @compatibility(is_backward_compatible=True)
    def __init__(self, graph: Graph, name: str, op: str, target: Target, args: tuple[Argument, ...],
                 kwargs: dict[str, Argument], return_type: Any | None = None) -> None:
        if op == "call_function":
            if not callable(target):
                raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                                 f"{torch.typename(target)} but a Callable is expected")
        else:
            assert op in _legal_ops, f"op '{op}' is not in _legal_ops"
            if not isinstance(target, str):
                raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                                 f"{torch.typename(target)} but a str is expected")
        super().__init__(graph, name, op, target, return_type)
        self._update_args_kwargs(args, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_erased": self._erased}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for key, value in state.items():
            object.__setattr__(self, key, value)

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    @compatibility(is_backward_compatible=True)
    def prepend(self, x: Node) -> None:
        """Moves x, of the same graph, to the place before this node."""
        assert self.graph == x.graph, "Attempting to move a Node into a different Graph"
        self._prepend(x)

    @compatibility(is_backward_compatible=True)
    def append(self, x: Node) -> None:
        """Moves x to the place after this node."""
        assert self.graph == x.graph, "Attempting to move a Node into a different Graph"
        self._next._prepend(x)

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments; assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._update_args_kwargs(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The keyword arguments; assign a new dict to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._update_args_kwargs(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    @compatibility(is_backward_compatible=True)
    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replaces one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    @compatibility(is_backward_compatible=True)
    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Puts a positional argument before the one at an index."""
        assert 0 <= idx <= len(self.args), "insert_args index must be between 0 and len(self.args)"
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    @compatibility(is_backward_compatible=True)
    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replaces one keyword argument."""
        self.kwargs = {**self.kwargs, key: arg}

    @property
    def stack_trace(self) -> str | None:
        """The Python stack that recorded this node, where the tracer kept it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name   # type: ignore[attr-defined]

    @staticmethod
    def _pretty_print_target(target: object) -> str:
        """A target as print(graph) shows it."""
        if isinstance(target, str):
            return target
        for module, shown in (("builtins", builtins), ("_operator", operator)):
            if getattr(target, "__module__", None) == module and hasattr(shown, getattr(target, "__name__", "")):
                return f"{shown.__name__}.{target.__name__}"   # type: ignore[attr-defined]
        return _get_qualified_name(target)   # type: ignore[arg-type]

    @compatibility(is_backward_compatible=True)
    def format_node(self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None, *,
                    include_tensor_metadata: bool = False) -> str | None:
        """The line of print(graph) for this node; an output may give the graph's return type instead."""
        kind = f"{_type_repr(self.type)} " if self.type else ""
        if self.op == "placeholder":
            assert isinstance(self.target, str)
            shown = self.target + (f" : {_type_repr(self.type)}" if self.type else "")
            if placeholder_names:
                placeholder_names.append(shown)
                return None
            default = "(default=" + str(self.args[0]) + ")" if self.args else ""
            return f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : {kind}[num_users={len(self.users)}] = " \
                   f"{self.op}[target={self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        extra = ""
        if include_tensor_metadata and self.meta.get("tensor_meta") is not None:
            extra = f"  # tensor_meta: {self.meta['tensor_meta']}"
        return f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}" \
               f"[target={self._pretty_print_target(self.target)}](args = {_format_arg(self.args)}, " \
               f"kwargs = {_format_arg(self.kwargs)}){extra}"

    @compatibility(is_backward_compatible=True)
    def replace_all_uses_with(self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Makes the users of this node, or those that a function chooses, use another one; gives those users."""
        if propagate_meta:
            assert not replace_with.meta, \
                "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has .meta keys"
            replace_with.meta.update(self.meta)
        replaced = []
        hooks = getattr(self.graph.owning_module, "_replace_hooks", None)
        for user in list(self.users):
            if delete_user_cb is not None and not delete_user_cb(user):
                continue
            replaced.append(user)
            for hook in hooks or ():
                hook(old=self, new=replace_with.name, user=user)
            user._replace(self, replace_with)
        return replaced

    def _replace(self, old: Node, new: Node) -> None:
        def swap(n: Any) -> Any:
            return new if n is old else n
        self._update_args_kwargs(map_arg(self.args, swap), map_arg(self.kwargs, swap))

    @compatibility(is_backward_compatible=False)
    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether dead code elimination must leave this node: it changes something, or draws random numbers."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            if _mutates(self.target) or self.target in _side_effectful_functions:
                return True
            return impure_random and _draws(self.target)
        if self.op == "call_module":
            owner = self.graph.owning_module
            assert owner is not None, "self.graph.owning_module not set for purity check"
            target = owner.get_submodule(self.target)
            assert target is not None, f"Did not find expected submodule target {self.target}"
            return getattr(target, "_is_impure", False)
        return False

    @compatibility(is_backward_compatible=False)
    def normalized_arguments(self, root: torch.nn.Module, arg_types: tuple[Any] | None = None,
                             kwarg_types: dict[str, Any] | None = None,
                             normalize_to_only_use_kwargs: bool = False) -> ArgsKwargsPair | None:
        """The arguments with every parameter named as the target names it, defaults filled in."""
        if self.op == "call_function":
            return normalize_function(self.target, self.args, self.kwargs, arg_types, kwarg_types,   # type: ignore
                                      normalize_to_only_use_kwargs)
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs,   # type: ignore[arg-type]
                                    normalize_to_only_use_kwargs)
        return None

    @compatibility(is_backward_compatible=True)
    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Replaces a node among the arguments by another one."""
        for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
            hook(old=old_input, new=new_input.name, user=self)
        self._replace(old_input, new_input)

    def _replace_input_with(self, old_input: Node, new_input: Node) -> None:
        self._replace(old_input, new_input)

    def _rename(self, candidate: str) -> None:
        if candidate == self.name:
            return
        self.name = self.graph._graph_namespace.create_name(candidate, None)
        self.graph._graph_namespace._rename_object(self, self.name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "name" and "name" in self.__dict__:
            for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
                for user in self.users:
                    hook(old=self, new=value, user=user)
        object.__setattr__(self, name, value)


def _mutates(target: Any) -> bool:
    """Whether an overload of torch.ops, or a custom op, changes an argument."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return "(a!" in str(schema) or "!)" in str(schema) or target.overloadpacket.__name__.endswith("_")
    return bool(getattr(target, "_mutates", ()))


def _draws(target: Any) -> bool:
    """Whether an op draws random numbers."""
    op = getattr(getattr(target, "overloadpacket", None), "_op", target)
    return isinstance(op, torch._C.Op) and any("Generator? generator" in row.schema for row in op.overloads)


@compatibility(is_backward_compatible=True)
def map_arg(a: ArgumentT, fn: Callable[[Node], Argument]) -> ArgumentT:
    """The argument with fn(node) in the place of every node in it."""
    assert callable(fn), "torch.fx.map_arg(a, fn): fn must be a callable"
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


@compatibility(is_backward_compatible=True)
def map_aggregate(a: ArgumentT, fn: Callable[[Argument], Argument]) -> ArgumentT:
    """The argument with fn(item) in the place of every item; lists and dicts become immutable ones."""
    result: Any
    if isinstance(a, tuple):
        items: list[Any] = [map_aggregate(item, fn) for item in a]
        kind: Any = type(a)
        result = kind(*items) if hasattr(a, "_fields") else tuple(items)
    elif isinstance(a, list):
        result = immutable_list([map_aggregate(item, fn) for item in a])
    elif isinstance(a, dict):
        result = immutable_dict([(key, map_aggregate(value, fn)) for key, value in a.items()])
    elif isinstance(a, slice):
        result = slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    else:
        result = fn(a)
    return result


