"""Proxy: stands for a value while a function is traced, and records what is done with it."""
from __future__ import annotations

import copy
import dataclasses
import dis
import enum
import functools
import operator
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import mindtorch_v2 as torch
from mindtorch_v2.fx import traceback as fx_traceback
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._qualified import torch_path
from mindtorch_v2.fx.graph import Graph, magic_methods, reflectable_magic_methods
from mindtorch_v2.fx.immutable_collections import immutable_dict, immutable_list  # noqa: F401  (torch has them here)
from mindtorch_v2.fx.node import Argument, Node, Target, base_types, map_aggregate, map_arg
from mindtorch_v2.fx.operator_schemas import check_for_mutable_operation

__all__ = ["TracerBase", "GraphAppendingTracer", "TraceError", "Proxy", "MetaProxy", "Attribute", "ParameterProxy", "Scope",
           "ScopeContextManager"]

# What a node that is made while another one runs takes over from it.
_COPY_META_FIELDS = ["nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id",
                     "has_backward_hook", "from_node", "quantization_tag", "_numeric_debug_handle", "custom",
                     "partitioner_tag"]
_HERE = __file__.rpartition("/")[0]


@compatibility(is_backward_compatible=False)
class Scope:
    """The module that is traced: its path and its class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


@compatibility(is_backward_compatible=False)
class ScopeContextManager:
    """A with block in which another module is the one that is traced."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._before = copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: object) -> None:
        self._scope.module_path, self._scope.module_type = self._before.module_path, self._before.module_type


@compatibility(is_backward_compatible=True)
class TracerBase:
    """Makes nodes and proxies, and says what proxies may be used for."""

    graph: Graph
    record_stack_traces: bool = False
    _record_forward_stack_traces_only: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, type]]

    @compatibility(is_backward_compatible=True)
    def create_node(self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument],
                    name: str | None = None, type_expr: Any | None = None) -> Node:
        """Puts a node into the graph."""
        if kind == "call_function" and self.check_mutable_operations:
            assert callable(target)
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        self._fill_meta(node)
        return node

    def _fill_meta(self, node: Node) -> None:
        current = fx_traceback.get_current_meta()
        if fx_traceback.has_preserved_node_meta():
            if current.get("stack_trace"):
                node.stack_trace = current["stack_trace"]
            node.meta.update({key: copy.copy(current[key]) for key in _COPY_META_FIELDS if key in current})
        else:
            if self.module_stack:
                node.meta["nn_module_stack"] = copy.copy(self.module_stack)
            if "custom" in current:
                node.meta["custom"] = copy.copy(current["custom"])
        if self.record_stack_traces and not node.stack_trace:
            frames = self._filter_traceback_frames(traceback.extract_stack())
            if frames:
                node.stack_trace = "".join(frames.format()).strip()

    def _filter_traceback_frames(self, user_stack_summary: traceback.StackSummary) -> traceback.StackSummary:
        """The frames of the traced code: what lies between the tracer's own frames."""
        frames = list(user_stack_summary)
        begin = max((i + 1 for i, frame in enumerate(frames) if frame.filename.startswith(_HERE) and
                     frame.name in ("_record", "flatten_fn")), default=0)
        frames = frames[begin:]
        while frames and frames[-1].filename.startswith(_HERE):
            frames.pop()
        return traceback.StackSummary.from_list(frames)

    @compatibility(is_backward_compatible=True)
    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)

    @compatibility(is_backward_compatible=True)
    def create_proxy(self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any],
                     name: str | None = None, type_expr: Any | None = None,
                     proxy_factory_fn: Callable[[Node], Proxy] | None = None) -> Proxy:
        """Records a call whose arguments are values of the traced program; the proxy of its result."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        assert isinstance(args_, tuple), f"args_ must be a tuple, got {type(args_)}"
        assert isinstance(kwargs_, dict), f"kwargs_ must be a dict, got {type(kwargs_)}"
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    @compatibility(is_backward_compatible=True)
    def create_arg(self, a: Any) -> Argument:
        """A value of the traced program as the argument of a node."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            if hasattr(a, "_fields"):            # a named tuple is made by a call, so that its class comes back
                return self.create_node("call_function", type(a), tuple(self.create_arg(x) for x in a), {})
            return tuple(self.create_arg(x) for x in a)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return self._create_dict(a)
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))   # type: ignore
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if isinstance(a, (*base_types, enum.Enum, Node, torch._C.OpOverloadPacket)) or a is None or a is ...:
            return a   # type: ignore[return-value]
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _create_dict(self, a: dict[Any, Any]) -> dict[Any, Any]:
        made = {}
        for key, value in a.items():
            if not isinstance(key, str):
                key = self.create_arg(key)

                def refuse(node: Node, key: Any = key) -> Node:
                    raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}")
                map_arg(key, refuse)
            made[key] = self.create_arg(value)
        return made

    @compatibility(is_backward_compatible=True)
    def to_bool(self, obj: Proxy) -> bool:
        """What `if proxy` gives: nothing, for the way that the program takes would not be in the graph."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    @compatibility(is_backward_compatible=True)
    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What a loop over a proxy gives: nothing, for its length is not known."""
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a "
                         "*args or **kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed "
                         "explanation of what types of control flow can be traced, and check out the Proxy docstring for "
                         "help troubleshooting Proxy iteration errors")

    @compatibility(is_backward_compatible=True)
    def keys(self, obj: Proxy) -> Any:
        """What proxy.keys() gives: the recorded call."""
        return Attribute(obj, "keys")()


@compatibility(is_backward_compatible=True)
class GraphAppendingTracer(TracerBase):
    """The tracer of proxies outside a trace: what is done with them goes into their graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph, self.scope = graph, Scope("", None)
        self.module_stack, self.node_name_to_scope = OrderedDict(), {}


@compatibility(is_backward_compatible=False)
def assert_fn(x: object) -> None:
    """assert, as a function that a graph can call."""
    assert x


@compatibility(is_backward_compatible=True)
class TraceError(ValueError):
    """What cannot be traced."""


@compatibility(is_backward_compatible=True)
class Proxy:
    """A value of a traced program; operators, methods and torch's functions of it are recorded."""

    if TYPE_CHECKING:                            # the operators are set below
        def __getitem__(self, key: Any) -> Proxy: ...

    @compatibility(is_backward_compatible=True)
    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = Proxy.__new__(Proxy)
        memo[id(self)] = made
        made.__dict__.update({key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()})
        return made

    def __setstate__(self, d: dict[str, Any]) -> None:
        self.__dict__ = d

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Proxy]:
        count = _unpacked_count(sys._getframe(1))
        if count is not None:                    # a, b = proxy
            return (self[i] for i in range(count))
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_asserted(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    @compatibility(is_backward_compatible=True)
    def keys(self) -> Any:
        """The recorded call of keys(), which Python calls for f(**proxy)."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, "
                           "please call torch.fx.wrap('len') at module scope")

    @classmethod
    def __torch_function__(cls, orig_method: Callable[..., Any], types: tuple[type, ...],
                           args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None) -> Proxy:
        args, kwargs = args or (), kwargs or {}
        tracers: dict[Any, None] = {}

        def note(a: Any) -> None:
            if isinstance(a, cls):
                tracers[a.tracer] = None
        map_aggregate(args, note)
        map_aggregate(kwargs, note)
        if len(tracers) > 1:
            raise RuntimeError(f"Found multiple different tracers {list(tracers)} while trying to trace operations "
                               f"{orig_method}")
        tracer = next(iter(tracers))
        if _is_method(orig_method, sys._getframe(1)):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


def _is_method(func: Any, caller: Any) -> bool:
    """Whether a call was one of a tensor's methods or operators. An op is one object as a function and as a method, so
    what torch offers as a function counts as one, unless an operator stands at the place of the call."""
    if not isinstance(func, torch._C.Op):
        return torch.overrides.is_tensor_method_or_property(func)
    code = caller.f_code.co_code
    at_operator = 0 <= caller.f_lasti < len(code) and dis.opname[code[caller.f_lasti]] in ("BINARY_OP", "COMPARE_OP")
    return at_operator or _is_only_method(func)


@functools.cache
def _is_only_method(op: Any) -> bool:
    """Whether torch has an op as a method only: so it is with what changes self and takes more than self."""
    if (torch_path(op) or "torch.Tensor.").startswith("torch.Tensor."):
        return True
    return op.__name__.endswith("_") and sum(p.required for p in torch._schema.parse(op.overloads[0].schema).params) > 1


def _instruction(frame: Any) -> tuple[list[Any], int]:
    """The instructions of a frame, and the index of the one that runs."""
    listed = list(dis.get_instructions(frame.f_code))
    return listed, next((i for i, one in enumerate(listed) if one.offset == frame.f_lasti), len(listed))


def _unpacked_count(frame: Any) -> int | None:
    """How many values the running instruction takes out of an iterable; None where it is not an unpacking."""
    listed, at = _instruction(frame)
    if at < len(listed) and listed[at].opname == "UNPACK_SEQUENCE":
        return listed[at].argval
    return None


def _is_asserted(frame: Any) -> bool:
    """Whether the value that is tested decides about an assertion."""
    listed, at = _instruction(frame)
    names = [one.opname for one in listed[at:at + 3]]
    return len(names) == 3 and "JUMP" in names[0] and "IF_TRUE" in names[0] and \
        names[1] in ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT")


@compatibility(is_backward_compatible=False)
class MetaProxy(Proxy):
    """A proxy whose node gets the value that the call has for fake tensors."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: Any = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"

    @classmethod
    def __torch_function__(cls, orig_method: Callable[..., Any], types: tuple[type, ...],
                           args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None) -> MetaProxy:
        args, kwargs = args or (), kwargs or {}
        first = next((a for a in args if isinstance(a, cls)), None)
        if first is None:
            raise AssertionError("No MetaProxy found in arguments, but one is expected.")
        proxy = super().__torch_function__(orig_method, types, args, kwargs)
        with first.fake_mode:
            proxy.node.meta["val"] = orig_method(*[a.node.meta["val"] if isinstance(a, Proxy) else a for a in args],
                                                 **kwargs)
        return MetaProxy(proxy.node, proxy.tracer, first.fake_mode)


@compatibility(is_backward_compatible=True)
class Attribute(Proxy):
    """proxy.name: becomes a node only where it is not called at once."""

    @compatibility(is_backward_compatible=True)
    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:   # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


@compatibility(is_backward_compatible=False)
class ParameterProxy(Proxy):
    """A proxy of a parameter whose shape the program may ask for."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: torch.nn.Parameter) -> None:
        super().__init__(node, tracer)
        assert isinstance(param, torch.nn.Parameter), f"expected Parameter, got {type(param)}"
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> torch.Size:
        return self.param.shape

    def size(self) -> torch.Size:
        return self.param.size()

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _define_operator(method: str) -> None:
    target = getattr(operator, method, None) or operator.truediv

    def recorded(*args: Any, **kwargs: Any) -> Proxy:
        return args[0].tracer.create_proxy("call_function", target, args, kwargs)
    recorded.__name__ = f"__{method.strip('_')}__"
    setattr(Proxy, recorded.__name__, recorded)


def _define_reflectable(orig_method_name: str) -> None:
    target = getattr(operator, orig_method_name, None) or operator.truediv

    def recorded(self: Proxy, rhs: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (rhs, self), {})
    recorded.__name__ = recorded.__qualname__ = f"__r{orig_method_name.strip('_')}__"
    setattr(Proxy, recorded.__name__, recorded)


for _method in magic_methods:
    _define_operator(_method)
for _method in reflectable_magic_methods:
    _define_reflectable(_method)
