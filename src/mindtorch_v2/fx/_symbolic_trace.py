"""Tracer and symbolic_trace: a module or a function is run on proxies, and what it does becomes a graph."""
from __future__ import annotations

import collections
import copy
import functools
import inspect
import itertools
import math
import typing
import warnings
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx import _lazy_graph_module
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._patching import (  # noqa: F401  (torch has them here)
    _autowrap_check,
    _create_wrapped_func,
    _create_wrapped_method,
    _find_proxy,
    _maybe_revert_all_patches,
    _new_patcher,
    _patch_wrapped_functions,
    _PatchedFn,
    _Patcher,
    _wrapped_fns_to_patch,
    _wrapped_methods_to_patch,
    wrap,
)
from mindtorch_v2.fx._qualified import public_module
from mindtorch_v2.fx.graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Argument, base_types
from mindtorch_v2.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase

pytree = torch.utils._pytree
_make_graph_module = _lazy_graph_module._make_graph_module
HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_orig_module_call: Callable[..., Any] = torch.nn.Module.__call__
_orig_module_getattr: Callable[..., Any] = torch.nn.Module.__getattr__
_proxyable_classes: dict[type, None] = {}
_is_fx_tracing_flag = False


def is_fx_tracing() -> bool:
    """Whether a program is traced now."""
    return _is_fx_tracing_flag


def is_fx_symbolic_tracing() -> bool:
    """Whether a program is traced now, and not compiled."""
    return _is_fx_tracing_flag and not torch.compiler.is_compiling()


@compatibility(is_backward_compatible=True)
class ProxyableClassMeta(type):
    """The metaclass of classes whose construction of proxies is recorded as a call."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def _patch_function(fn: FunctionType, nargs: int) -> FunctionType:
    """The function with its *args and **kwargs as plain parameters, so that each can be a proxy."""
    code: CodeType = fn.__code__
    changed = code.replace(co_argcount=nargs, co_posonlyargcount=0, co_kwonlyargcount=0,
                           co_flags=code.co_flags & ~HAS_VARSTUFF)
    # no defaults: every argument is given
    return FunctionType(changed, fn.__globals__, fn.__name__, None, fn.__closure__)


@compatibility(is_backward_compatible=False)
class PHBase:
    """An input of the traced function inside concrete_args."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


@compatibility(is_backward_compatible=False)
class PHWithMeta(PHBase):
    """An input with attributes that its node gets."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


def _annotation(fn: Any, name: str) -> Any:
    """The annotation of a parameter. This package writes its own as text and says Any where torch says nothing."""
    found = getattr(fn, "__annotations__", {}).get(name, None)
    if isinstance(found, str) and public_module(fn.__module__ or "").startswith("torch."):
        found = typing.get_type_hints(fn).get(name)
        return None if found is typing.Any else found
    return found


def _transfer_attrs(fr: object, to: object) -> None:
    for name in dir(fr):
        value = getattr(fr, name)
        if not callable(value) and not name.startswith("__") and not hasattr(to, name):
            setattr(to, name, value)


@wrap
def _assert_is_none(value: object, msg: str) -> None:
    assert value is None, msg


@compatibility(is_backward_compatible=True)
class Tracer(TracerBase):
    """Runs a module or function on proxies; a subclass may choose what is traced into and what is recorded how."""

    @compatibility(is_backward_compatible=True)
    def __init__(self, autowrap_modules: tuple[ModuleType] = (math,), autowrap_functions: tuple[Callable[..., Any], ...] = (),
                 param_shapes_constant: bool = False) -> None:
        super().__init__()
        functions = [value for module in autowrap_modules for name, value in vars(module).items()
                     if not name.startswith("_") and callable(value)]
        self._autowrap_function_ids: set[int] = {id(f) for f in itertools.chain(functions, autowrap_functions)}
        self._autowrap_search: list[ModuleType] = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[torch.nn.Module, str] | None = None
        self.root_module_name: str = ""
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, tuple[str, type]] = {}
        self._qualname_counter: dict[str, int] = collections.defaultdict(int)

    @compatibility(is_backward_compatible=True)
    def get_fresh_qualname(self, prefix: str) -> str:
        """A name with a prefix that the root has not."""
        while True:
            name = f"{prefix}{self._qualname_counter[prefix]}"
            self._qualname_counter[prefix] += 1
            if not hasattr(self.root, name):
                return name

    @compatibility(is_backward_compatible=True)
    def create_arg(self, a: Any) -> Argument:
        """A value as the argument of a node; tensors become attributes of the root."""
        if isinstance(a, torch.nn.Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, torch.Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
            return self._constant(a, "_tensor_constant")
        if isinstance(a, torch.nn.Module):
            for name, module in self.root.named_modules():
                if a is module:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, pytree.TreeSpec):
            return self._constant(a, "_tree_spec_constant")
        if type(a) in _proxyable_classes:
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _constant(self, a: Any, prefix: str) -> Argument:
        name = self.tensor_attrs.get(a)
        if name is None:
            name = self.get_fresh_qualname(prefix)
            self.tensor_attrs[a] = name
            setattr(self.root, name, a)
        return self.create_node("get_attr", name, (), {})

    @compatibility(is_backward_compatible=True)
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is recorded as one call; torch's own are, but for Sequential."""
        return public_module(m.__module__).startswith(("torch.nn", "torch.ao.nn")) and not \
            isinstance(m, torch.nn.Sequential)

    @compatibility(is_backward_compatible=True)
    def path_of_module(self, mod: torch.nn.Module) -> str:
        """The path of a submodule of the root."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
        else:
            path = next((name for name, module in self.root.named_modules() if module is mod), None)
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    @compatibility(is_backward_compatible=True)
    def call_module(self, m: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...],
                    kwargs: dict[str, Any]) -> Any:
        """What a call of a submodule gives: the proxy of a recorded call, or what tracing into it gives."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            count = self.num_calls.get(path, 0)
            self.num_calls[path] = count + 1
            key = f"{path}@{count}" if count else path
            self.module_stack[key] = (path, scope.module_type)
            try:
                if not self.is_leaf_module(m, path):
                    return forward(*args, **kwargs)
                return self.create_proxy("call_module", path, args, kwargs)
            finally:
                self.module_stack.popitem()

    @compatibility(is_backward_compatible=False)
    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What the reading of a module's attribute gives: the proxy of a parameter, else the value."""
        members: Any = ()
        if isinstance(attr_val, torch.nn.Parameter):
            members = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor):
            members = self.root.named_buffers()
        for name, member in members:
            if attr_val is member:
                if name not in parameter_proxy_cache:
                    named: dict[str, Any] = {}
                    if self.param_shapes_constant and isinstance(attr_val, torch.nn.Parameter):
                        named["proxy_factory_fn"] = lambda node: ParameterProxy(self, node, name, attr_val)
                    parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, **named)
                return parameter_proxy_cache[name]
        return attr_val

    @compatibility(is_backward_compatible=False)
    def create_args_for_root(self, root_fn: Callable[..., Any], is_module: bool,
                             concrete_args: dict[str, Any] | tuple[Any, ...] | None = None) -> tuple[Any, list[Any]]:
        """The arguments of the root: itself, proxies of its placeholders, and the values of concrete_args."""
        analysed: Any = inspect.unwrap(root_fn)
        code = analysed.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        if is_module and total == 0:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        names = list(code.co_varnames)
        skip, args = (1, [self.root]) if is_module else (0, [])
        orig_args = names[:total]
        signature = inspect.signature(analysed)
        rest = bool(code.co_kwonlyargcount or code.co_flags & HAS_VARSTUFF)
        wanted = names[skip:total]
        if isinstance(concrete_args, tuple):
            if rest and code.co_flags & inspect.CO_VARARGS:      # the rest is given one by one
                wanted, rest = [f"input_{i}" for i in range(len(concrete_args))], False
                values = [self._varied(name, value) for name, value in zip(wanted, concrete_args)]
                return self._flattened(root_fn, [*args, *values], [*names[:skip], *wanted])
            if len(concrete_args) != len(wanted):
                raise RuntimeError(f"Tracing expected {len(wanted)} arguments but got {len(concrete_args)} concrete "
                                   "arguments")
            concrete_args = dict(zip(wanted, concrete_args))
        args.extend(self._proxy_placeholder(name, concrete_args, signature, analysed) for name in wanted)
        if rest:
            stars = [(inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")]
            for star in [star for flag, star in stars if code.co_flags & flag]:
                name = names[total]
                total += 1
                args.append(self._proxy_placeholder(star + name, concrete_args, signature, analysed))
                orig_args.append(star + name)
            root_fn = _patch_function(analysed if root_fn is analysed else root_fn, len(args))   # type: ignore[arg-type]
        return self._flattened(root_fn, args, orig_args)

    def _varied(self, name: str, value: Any) -> Any:
        """One of the values that a tuple of concrete arguments gives to *args."""
        return self.create_proxy("placeholder", name, (), {}) if isinstance(value, PHBase) else value

    def _flattened(self, root_fn: Any, args: list[Any], orig_args: list[str]) -> tuple[Any, list[Any]]:
        """The function and its arguments; where one is a container, both with containers taken apart."""
        flat_args, in_spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in in_spec.children_specs):
            return root_fn, args
        codegen = _PyTreeCodeGen(_PyTreeInfo(orig_args, in_spec, None))
        self.graph._codegen = codegen

        def flatten_fn(*args: Any) -> Any:
            out_args, out_spec = pytree.tree_flatten(root_fn(*pytree.tree_unflatten(list(args), in_spec)))
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return out_args
        return flatten_fn, flat_args

    def _proxy_placeholder(self, name: str, concrete_args: dict[str, Any] | None, sig: inspect.Signature,
                           fn_for_analysis: Callable[..., Any]) -> Any:
        default: tuple[Any, ...] = ()
        if not name.startswith("*"):
            parameter = sig.parameters[name]
            default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
        if concrete_args is not None and name in concrete_args:
            number = itertools.count(1)
            return pytree.tree_map(lambda x: self._specialized(name, f"{name}_{next(number)}", x, default), concrete_args[name])
        return self.create_proxy("placeholder", name, default, {},
                                 type_expr=_annotation(fn_for_analysis, name))

    def _specialized(self, name: str, placeholder: str, x: Any, default: tuple[Any, ...]) -> Any:
        """One value of concrete_args: an input, or a constant that the graph asserts the input to be."""
        out = self.create_proxy("placeholder", placeholder, default, {})
        if isinstance(x, PHBase):
            if x is not PH:
                _transfer_attrs(fr=x, to=out.node)
            return out
        said = f"{name} has been specialized to have value {x} but got another value"
        if type(x) in base_types and type(x) is not torch.Tensor:
            torch._assert(out == x, said)
        elif x is None:
            self.create_proxy("call_function", _assert_is_none, (out, said), {})
        else:
            warnings.warn(f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is "
                          "up to the user to make sure that your inputs match the inputs you specialized the function with.",
                          stacklevel=2)
        return x

    def _collect_tensors(self, module: torch.nn.Module, prefix: tuple[str, ...]) -> None:
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                self.tensor_attrs[value] = ".".join((*prefix, name))
        for name, child in module.named_children():
            self._collect_tensors(child, (*prefix, name))

    @compatibility(is_backward_compatible=True)
    def trace(self, root: torch.nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or function; concrete_args are values for which it is specialised."""
        global _is_fx_tracing_flag
        before, _is_fx_tracing_flag = _is_fx_tracing_flag, True
        try:
            fn: Any
            if isinstance(root, torch.nn.Module):
                self.root = root
                assert hasattr(type(root), self.traced_func_name), \
                    f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}"
                fn = getattr(type(root), self.traced_func_name)
                self.root_module_name = root._get_name()
                self.submodule_paths = {module: name for name, module in root.named_modules()}
            else:
                self.root, fn = torch.nn.Module(), root
            self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
            if hasattr(fn, "__code__"):
                self.graph._co_fields = {name: getattr(fn.__code__, name)
                                         for name in ("co_name", "co_filename", "co_firstlineno")}
            self.tensor_attrs: dict[Any, str] = {}
            self._collect_tensors(self.root, ())
            assert isinstance(fn, FunctionType), f"Expected FunctionType, got {type(fn)}"
            self._record(fn, isinstance(root, torch.nn.Module), concrete_args)
            self.submodule_paths = None
        finally:
            _is_fx_tracing_flag = before
        return self.graph

    def _record(self, root_fn: FunctionType, is_module: bool, concrete_args: Any) -> None:
        """Runs the function on proxies, with calls and attributes of modules taken over."""
        fn, args = self.create_args_for_root(root_fn, is_module, concrete_args)
        cache: dict[str, Proxy] = {}

        @functools.wraps(_orig_module_getattr)
        def module_getattr(mod: Any, attr: str) -> Any:
            return self.getattr(attr, _orig_module_getattr(mod, attr), cache)

        @functools.wraps(_orig_module_call)
        def module_call(mod: Any, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return _orig_module_call(mod, *args, **kwargs)
            _autowrap_check(patcher, getattr(getattr(mod, "forward", mod), "__globals__", {}), self._autowrap_function_ids)
            return self.call_module(mod, forward, args, kwargs)
        with _new_patcher() as patcher:
            patcher.patch_method(torch.nn.Module, "__getattr__", module_getattr, deduplicate=False)
            patcher.patch_method(torch.nn.Module, "__call__", module_call, deduplicate=False)
            _patch_wrapped_functions(patcher)
            _autowrap_check(patcher, root_fn.__globals__, self._autowrap_function_ids)
            for module in self._autowrap_search:
                _autowrap_check(patcher, vars(module), self._autowrap_function_ids)
            self.create_node("output", "output", (self.create_arg(fn(*args)),), {},
                             type_expr=_annotation(fn, "return"))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        # The set of ids holds for this process, and modules are not copied.
        made = Tracer.__new__(type(self))
        memo[id(self)] = made
        for key, value in self.__dict__.items():
            made.__dict__[key] = copy.copy(value) if key == "_autowrap_search" else copy.deepcopy(value, memo)
        return made


@compatibility(is_backward_compatible=True)
def symbolic_trace(root: torch.nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """The module or function as a GraphModule."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, torch.nn.Module) else root.__name__
    return _make_graph_module(tracer.root, graph, name)


__all__ = ["is_fx_tracing", "is_fx_symbolic_tracing", "ProxyableClassMeta", "Tracer", "PHBase", "PH", "PHWithMeta", "wrap",
           "symbolic_trace"]
