"""make_fx: a function is run, and every op below autograd that runs becomes a node."""
from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx import traceback as fx_traceback
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._lazy_graph_module import _make_graph_module
from mindtorch_v2.fx._symbolic_trace import PH, Tracer
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.interpreter import Interpreter
from mindtorch_v2.fx.passes.shape_prop import _extract_tensor_metadata
from mindtorch_v2.fx.proxy import Proxy

__all__ = ["PythonKeyTracer", "dispatch_trace", "make_fx", "DecompositionInterpreter", "get_proxy_mode",
           "maybe_disable_fake_tensor_mode", "ProxyTorchDispatchMode", "get_isolated_graphmodule", "is_sym_node"]

pytree = torch.utils._pytree
_python_dispatch = torch.utils._python_dispatch
_Mode: Any = _python_dispatch.TorchDispatchMode
_aten, _END = torch.ops.aten, 2 ** 63 - 1
# Rows of this library, and the overload of torch that takes the same arguments.
_TORCHS: dict[str, Any] = {
    "_index_put_list_": _aten.index_put_.default, "_zeta": _aten.special_zeta.default}
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
CURRENT_DECOMPOSITION_TABLE: Mapping[Any, Callable[..., Any]] = {}


def is_sym_node(node: Any) -> bool:
    """Whether a node gives a number that follows from sizes."""
    return isinstance(node.meta.get("val"), _SYMBOLIC)


class PythonKeyTracer(Tracer):
    """Knows the proxy of every tensor that an op gave; parameters and constants become attributes of the root."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=())   # type: ignore[arg-type]
        self.tensor_tracker: dict[int, tuple[Any, Proxy]] = {}   # id -> the tensor, which keeps the id taken, and its proxy
        self.places: dict[int, Any] = {}         # where it lay when it was noted
        self.by_place: dict[Any, Proxy] = {}     # the same by memory: autograd keeps a tensor as another object
        self.numbers: dict[int, tuple[Any, Any]] = {}            # id -> a symbolic number's node, and its proxy or value
        self.expressions: dict[tuple[int, str], Any] = {}        # the same by expression: numbers that are always equal

    def call_module(self, m: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        return attr_val

    def number(self, a: Any) -> Any:
        """The proxy of a symbolic number, which is computed where it is first used; of what the graph does not know, the value."""
        known = self.numbers.get(id(a.node))
        if known is None:
            alike = (id(a.node.shape_env), str(a.node.expr))
            if alike not in self.expressions:
                self.expressions[alike] = self._number_of(a.node, a)
            known = self.numbers[id(a.node)] = (a.node, self.expressions[alike])
        return known[1]

    def _number_of(self, node: Any, a: Any) -> Any:
        if node.origin is None:
            return node.hint
        fn, given = node.origin
        if any(isinstance(x, torch.Tensor) and self.proxy_of(x) is None for x in given):
            return node.hint
        shown = tuple(self.number(x) if isinstance(x, _SYMBOLIC) else x for x in given)
        if not any(isinstance(x, (torch.Tensor, Proxy)) for x in shown):
            return node.hint
        name = "sym_size_int" if fn is _aten.sym_size.int else None
        proxy = self.create_proxy("call_function", fn, shown, {}, name=name)
        proxy.node.meta["val"] = a
        return proxy

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, _SYMBOLIC):
            found = self.number(a)
            return found.node if isinstance(found, Proxy) else found
        if isinstance(a, torch.Tensor):
            proxy = self.proxy_of(a)
            if proxy is not None:
                return proxy.node
        if isinstance(a, torch.nn.Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            name = self.get_fresh_qualname("_param_constant")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def proxy_of(self, tensor: Any) -> Proxy | None:
        """The proxy of a tensor, or of one that is the same memory; of one that reads its memory in another way by now (t_,
        resize_ and set_ run no op), of what it has become."""
        found, place = self.tensor_tracker.get(id(tensor)), _place(tensor)
        if found is None or place is None or self.places[id(tensor)] in (None, place):
            return found[1] if found else self.by_place.get(place)
        if place in self.by_place:
            return self.by_place[place]
        if place[0] != self.places[id(tensor)][0]:
            raise NotImplementedError("[make_fx] a tensor took other memory (resize_ or set_), which is not recorded")
        proxy = self.create_proxy("call_function", _aten.as_strided.default, (
            found[1], list(tensor.shape), list(tensor.stride()), tensor.storage_offset()), {}, name="as_strided")
        self.track(tensor, proxy)
        return proxy

    def track(self, tensor: Any, proxy: Proxy) -> None:
        """Notes the proxy of a tensor, and what is known of the tensor."""
        self.tensor_tracker[id(tensor)] = (tensor, proxy)
        place = self.places[id(tensor)] = _place(tensor)
        if place is not None:
            self.by_place[place] = proxy
        proxy.node.meta["val"] = tensor if isinstance(tensor, torch._subclasses.FakeTensor) else _meta_copy(tensor)
        proxy.node.meta["tensor_meta"] = _extract_tensor_metadata(tensor)

    def track_all(self, result: Any, proxy: Any) -> None:
        """Notes the proxies of the tensors in a result."""
        if isinstance(result, torch.Tensor):
            self.track(result, proxy)
        elif isinstance(result, (tuple, list)):
            for i, item in enumerate(result):
                if isinstance(item, (torch.Tensor, tuple, list)):
                    self.track_all(item, proxy[i])


def _place(tensor: Any) -> Any:
    """The memory that a tensor is, and how it reads it; None for one without."""
    if isinstance(tensor, torch._subclasses.FakeTensor):
        tensor = tensor.elem
        memory: Any = id(tensor)
    else:
        memory = tensor.data_ptr() if tensor.numel() else 0
    return (memory, tensor.shape, tensor.stride(), tensor.dtype) if memory else None


def _meta_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without memory that looks like another one."""
    with _python_dispatch._disable_current_modes(), torch.no_grad():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _as_the_schema_says(func: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments as torch's calls have them below autograd: lists where the schema has lists, and where new memory would lie."""
    parameters = func._schema.arguments
    shown = tuple(list(a) if isinstance(a, tuple) else [a] if isinstance(a, int) and type(a) is not bool and _takes_list(p) else
                  int(a) if isinstance(a, torch.SymInt) and str(p.real_type) == "int" else a
                  for a, p in zip(args, parameters)) + args[len(parameters):]
    if func is _aten.slice.Tensor and len(shown) > 2:
        end = shown[3] if len(shown) > 3 else None
        shown = (*shown[:2], shown[2] or 0, _END if end is None else end, *shown[4:])
    names = [p.name for p in parameters]
    if "pin_memory" not in names or func._opname in ("_to_copy", "to") or kwargs.get("layout") not in (None, torch.strided):
        return shown, kwargs
    named = {**kwargs, "pin_memory": kwargs.get("pin_memory") or False}
    if not any(isinstance(a, torch.Tensor) for a in args):
        named["device"] = torch.device(named.get("device") or torch.get_default_device())
    return shown, {name: named[name] for name in names if name in named}


def _takes_list(parameter: Any) -> bool:
    return str(parameter.type).startswith("List[")


class ProxyTorchDispatchMode(_Mode):
    """Runs every op and records it."""

    def __init__(self, tracer: PythonKeyTracer, tracing_mode: str = "real", pre_dispatch: bool = False,
                 _allow_fake_constant: bool = False, _error_on_data_dependent_ops: bool = True) -> None:
        self.tracer, self.tracing_mode = tracer, tracing_mode
        self.enable_tracing = True
        self.decomposition_table: Mapping[Any, Callable[..., Any]] = {}
        self._decomposing: list[Any] = []       # ops whose decompositions run: what they call of themselves is recorded

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not self.enable_tracing:
            return func(*args, **kwargs)
        if func in self.decomposition_table and func not in self._decomposing:
            self._decomposing.append(func)
            try:
                with self:
                    result = self.decomposition_table[func](*args, **kwargs)
            finally:
                self._decomposing.pop()
            if result is not NotImplemented:
                return result
        called = _TORCHS.get(func._opname, func)
        name = self.tracer.graph._target_to_str(called.overloadpacket.__name__)
        shown, named = _as_the_schema_says(func, args, kwargs)
        proxy = self.tracer.create_proxy("call_function", called, shown, named, name=name)
        result = func(*args, **kwargs)
        self.tracer.track_all(result, proxy)
        return result


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The mode that records now, or None."""
    return next((m for m in reversed(torch._C._dispatch_mode_stack()) if isinstance(m, ProxyTorchDispatchMode)), None)


def get_innermost_proxy_mode() -> ProxyTorchDispatchMode | None:
    """get_proxy_mode."""
    return get_proxy_mode()


@contextlib.contextmanager
def disable_proxy_modes_tracing() -> Iterator[Any]:
    """A with block in which nothing is recorded."""
    mode = get_proxy_mode()
    before = mode.enable_tracing if mode else False
    if mode:
        mode.enable_tracing = False
    try:
        yield mode
    finally:
        if mode:
            mode.enable_tracing = before


def maybe_disable_fake_tensor_mode() -> Any:
    """A with block in which ops are real."""
    return _python_dispatch._disable_current_modes()


@contextlib.contextmanager
def decompose(decomposition_table: Mapping[Any, Callable[..., Any]] | None) -> Iterator[Mapping[Any, Callable[..., Any]]]:
    """A with block in which a table of decompositions is the current one."""
    global CURRENT_DECOMPOSITION_TABLE
    before = CURRENT_DECOMPOSITION_TABLE
    try:
        CURRENT_DECOMPOSITION_TABLE = decomposition_table or {}
        yield CURRENT_DECOMPOSITION_TABLE
    finally:
        CURRENT_DECOMPOSITION_TABLE = before


@contextlib.contextmanager
def _no_values(tracer: PythonKeyTracer) -> Iterator[None]:
    """A with block in which Python cannot read values that the program computes: the graph would hold for these only."""
    names = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "__complex__", "numpy")

    def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            if tracer.proxy_of(self) is None:
                return method(self, *args, **kwargs)
            raise RuntimeError("It appears that you're trying to get value out of a tracing tensor with "
                               "aten._local_scalar_dense.default - erroring out! It's likely that this is caused by "
                               "data-dependent control flow or similar.  It may be possible to trace this with dynamic shapes; "
                               "try setting tracing_mode='symbolic' in your make_fx call.")
        return read
    before = {name: vars(torch.Tensor).get(name) for name in names}
    try:
        for name in names:
            setattr(torch.Tensor, name, guarded(getattr(torch.Tensor, name)))
        yield
    finally:
        for name, method in before.items():
            if method is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)


@compatibility(is_backward_compatible=False)
def dispatch_trace(root: Any, tracer: Tracer, concrete_args: tuple[Any, ...] | None = None) -> GraphModule:
    """The graph module of a function that itself tells the tracer what it does."""
    graph = tracer.trace(root, concrete_args)   # type: ignore[arg-type]
    name = type(root).__name__ if isinstance(root, torch.nn.Module) else root.__name__
    for node in reversed(graph.nodes):           # items of tuples and attributes that are not used
        if not node.users and node.op == "get_attr":
            graph.erase_node(node)
    return _make_graph_module(tracer.root, graph, name)


def _signature_of(f: Any, count: int) -> Any:
    """The function with parameters that have names: arg0, arg1 … where it has none of its own."""
    plain = inspect.unwrap(f)
    if not isinstance(f, torch.nn.Module) and hasattr(plain, "__code__") and \
            not plain.__code__.co_flags & inspect.CO_VARARGS and not inspect.ismethod(f):
        return f
    names = ", ".join(f"arg{i}" for i in range(count))
    return eval(f"lambda {names}: fn({names})", {"fn": f})


@compatibility(is_backward_compatible=False)
def make_fx(f: Callable[..., Any], decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
            tracing_mode: str = "real", _allow_non_fake_inputs: bool = False, *, pre_dispatch: bool = False,
            record_module_stack: bool = False, _allow_fake_constant: bool = False,
            _error_on_data_dependent_ops: bool = True, record_stack_traces: bool = False,
            proxy_module_inputs: bool = False, _disable_torch_fn_metadata_mode: bool = False) -> Callable[..., GraphModule]:
    """A function of example arguments that gives the graph module of what f does with them, below autograd."""
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"Unexpected tracing type: {tracing_mode}")

    @functools.wraps(f, assigned=("__name__", "__doc__"), updated=())
    def wrapped(*args: Any) -> GraphModule:
        tracer = PythonKeyTracer()
        tracer.record_stack_traces = record_stack_traces
        mode = ProxyTorchDispatchMode(tracer, tracing_mode)
        mode.decomposition_table = {**CURRENT_DECOMPOSITION_TABLE, **(decomposition_table or {})}
        env = torch.fx.experimental.symbolic_shapes.ShapeEnv() if tracing_mode == "symbolic" else None
        if tracing_mode != "real":
            given = next((x.fake_mode for x in pytree.tree_leaves(args) if isinstance(x, torch._subclasses.FakeTensor)), None)
            fake = given or torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True, shape_env=env)
            values = pytree.tree_map(lambda x: _stand_in(fake, x), args)
            outside: Any = fake
        else:
            values, outside = args, contextlib.nullcontext()
        function = _signature_of(f, len(args))

        @functools.wraps(function)
        def recorded(*proxies: Any) -> Any:
            for value, proxy in zip(pytree.tree_leaves(values), pytree.tree_leaves(proxies)):
                if isinstance(value, torch.Tensor):
                    tracer.track(value, proxy)
                elif isinstance(value, _SYMBOLIC):
                    proxy.node.meta["val"] = value
                    tracer.numbers[id(value.node)] = (value.node, proxy)
            with outside, _no_values(tracer), fx_traceback.preserve_node_meta(False), mode:
                return function(*values)
        holders = pytree.tree_map(lambda _: PH, args)
        made = dispatch_trace(recorded, tracer, tuple(holders))
        if env is not None:
            made.shape_env = fake.shape_env
        return made
    return wrapped


def _stand_in(fake: Any, value: Any) -> Any:
    """What the function is run with in the place of an argument: of a tensor, one without items; of an int, a symbol."""
    if isinstance(value, torch.Tensor):
        return fake.from_tensor(value)
    if type(value) is not int or fake.shape_env is None:
        return value
    return value if value in (0, 1) else fake.shape_env.create_symintnode(fake.shape_env.fresh_name(value), hint=value)


class DecompositionInterpreter(Interpreter):
    """Runs a graph into another one, with a table of decompositions."""

    def __init__(self, module: GraphModule, new_graph: Graph,
                 decomposition_table: Mapping[Any, Callable[..., Any]] | None = None, **kwargs: Any) -> None:
        super().__init__(module, **kwargs)
        self.new_graph = new_graph
        self.tracer = PythonKeyTracer()
        self.tracer.graph, self.tracer.root, self.tracer.tensor_attrs = new_graph, module, {}
        self.mode = ProxyTorchDispatchMode(self.tracer)
        self.mode.decomposition_table = decomposition_table or {}

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = super().placeholder(target, args, kwargs)
        if isinstance(value, torch.Tensor):
            self.tracer.track(value, Proxy(self.new_graph.placeholder(target), self.tracer))
        return value

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.new_graph.output(self.tracer.create_arg(args[0]))
        return args[0]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with self.mode:
            return super().run(*args, **kwargs)


def wrapper_and_args_for_make_fx(func: Callable[..., Any], args: tuple[Any, ...],
                                 kwargs: dict[str, Any]) -> tuple[Callable[[list[Any]], Any], list[Any]]:
    """func as a function of one list, and that list: make_fx takes no keywords."""
    everything, spec = pytree.tree_flatten((args, kwargs))

    def call(flat: list[Any]) -> Any:
        positional, named = pytree.tree_unflatten(flat, spec)
        return func(*positional, **named)
    return call, everything


def get_isolated_graphmodule(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                             tracing_mode: str = "real", decomposition_table: Any = None) -> GraphModule:
    """make_fx of a call, with no other mode open."""
    leaves, spec = pytree.tree_flatten((args, kwargs))

    def flat(*leaves: Any) -> Any:
        given, named = pytree.tree_unflatten(list(leaves), spec)
        return func(*given, **named)
    with _python_dispatch._disable_current_modes():
        return make_fx(flat, decomposition_table, tracing_mode)(*leaves)


def selective_decompose(joint_gm: GraphModule, *args: Any, decomposition: Mapping[Any, Callable[..., Any]] | None,
                        should_decompose: Callable[..., bool], trace_joint_graph: bool) -> GraphModule:
    """A graph recorded anew, in which the ops of those nodes that a function chooses are replaced by decompositions."""
    class Chosen(Interpreter):
        """Decomposes what is chosen."""

        def run_node(self, n: Any) -> Any:
            with decompose(decomposition if should_decompose(n) else {}):
                return super().run_node(n)

    return make_fx(lambda *inputs: Chosen(joint_gm).run(*inputs))(*args)


py_sym_types = (torch.SymInt, torch.SymFloat, torch.SymBool)
torch._named.complete(__name__)
