"""torch.library and torch.ops: ops that a program defines itself, by name, and torch's own under torch.ops.aten."""
from __future__ import annotations

import contextlib
import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch

_library = torch._library
_operators, _utils = _library.operator, _library.utils
Operator: Any = _operators.Operator
KEYS: list[str] = _operators.KEYS
operators, key_name = _operators.operators, _operators.key_name
CustomOpDef, custom_op, OPDEFS = _library.custom_ops.CustomOpDef, _library.custom_ops.custom_op, _library.custom_ops.OPDEFS
infer_schema, opcheck = _library.infer_schema.infer_schema, _library.checks.opcheck
fallthrough_kernel = _operators.fallthrough_kernel
HigherOrderOperator = _library.higher_order.HigherOrderOperator
Info, make_autograd_impl, global_ctx_getter = (_library.autograd.Info, _library.autograd.make_autograd_impl,
                                               _library.fake_impl.global_ctx_getter)
RegistrationHandle, device_key, parse_namespace = _utils.RegistrationHandle, _utils.device_key, _utils.parse_namespace
has_kwarg_only_tensors, is_functional_schema = _utils.has_kwarg_only_tensors, _utils.is_functional_schema
Tensor = torch.Tensor

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "impl_abstract",
           "infer_schema", "opcheck", "ops", "register_autocast", "register_autograd", "register_fake", "register_kernel",
           "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton"]

_RESERVED = {"prim"}
_definers: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()     # the one DEF of a namespace
_SCHEMA = re.compile(r"\(.*\) -> .*", re.S)


class _OpNamespace:
    """The ops of one namespace, as attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = next((o for o in operators.values() if o.space == self._name and o.name == name), None)
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        return found.packet

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(o.name for o in operators.values() if o.space == self._name)})


class _Aten(_OpNamespace):
    """torch's own ops."""

    def __getattr__(self, name: str) -> Any:
        try:
            op = getattr(torch._ops.ops, name)
        except AttributeError:
            return torch._absent.ATEN[name] if name in torch._absent.ATEN else super().__getattr__(name)
        self.__dict__[name] = found = torch._C._op_packet(op) if isinstance(op, torch._C.Op) else op
        return found


class _Npu(_OpNamespace):
    """torch_npu's own ops; the rows are read at the first look, and a name without one is refused by that name."""

    def __getattr__(self, name: str) -> Any:
        rows = torch._ops.npu
        if name in rows.functions:
            self.__dict__[name] = found = torch._C._op_packet(rows.functions[name])
            return found
        if name in rows.refused_names():
            raise AttributeError(f"[torch.ops.npu.{name}] this operator of torch_npu is not offered")
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *torch._ops.npu.functions})


class _Ops:
    """torch.ops: a namespace comes into being when an op is defined in it, or when it is first looked at."""

    def __init__(self) -> None:
        self.aten = _Aten("aten")
        self.npu = _Npu("npu")

    def load_library(self, path: Any) -> None:
        """Refuses: such a library holds ops for PyTorch's C++ core."""
        raise OSError(f"[torch.ops.load_library] {path}: mindtorch_v2 has no C++ core of PyTorch that could load it")

    def __getattr__(self, name: str) -> _OpNamespace:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = made = _OpNamespace(name)
        return made


ops: Any = _Ops()


class Library:
    """The ops of a namespace, defined and implemented one by one; what it registered goes with it."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind != "IMPL":
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        if kind == "DEF":
            if ns in _definers:
                raise RuntimeError(f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please "
                                   "put all of your definitions in a single TORCH_LIBRARY block.  If you were "
                                   "trying to specify implementations, consider using TORCH_LIBRARY_IMPL (which can "
                                   "be duplicated).  If you really intended to define operators for a single "
                                   "namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to "
                                   "explicitly indicate this.")
            _definers[ns] = self
        self.ns, self.kind, self.dispatch_key, self.alive = ns, kind, dispatch_key, True
        self._defined: list[Any] = []
        self._registration_handles: list[Any] = []
        self._finalizer = weakref.finalize(self, _take_away, self._defined, self._registration_handles)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def _check_alive(self) -> None:
        if not self.alive:
            raise AssertionError("Library object has been destroyed")

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Names an op by its schema."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        self._check_alive()
        if self.ns == "aten":
            raise NotImplementedError(f"[Library.define] {schema}: torch's own namespace takes no further ops")
        operator = Operator(self.ns, schema, tags)
        self._defined.append(operator)
        return operator.name + ("" if operator.overload == "default" else f".{operator.overload}")

    def _find(self, op_name: Any) -> Any:
        name = op_name.name() if isinstance(op_name, torch._ops.OpOverload) else op_name
        if not isinstance(name, str):
            raise RuntimeError("impl should be passed either a name or an OpOverload object as the first argument, "
                               f"got {type(op_name)}")
        space, _, bare = name.rpartition("::")
        space = space or self.ns
        if f"{space}::{bare}" not in operators:
            if space in ("aten", "npu"):
                raise NotImplementedError(f"[Library.impl] {space}::{bare}: kernels of torch's own ops are not "
                                          "replaced; a TorchDispatchMode sees their calls")
            raise RuntimeError(f"operator {space}::{bare} does not exist")
        return operators[f"{space}::{bare}"]

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False,
             allow_override: bool = True) -> None:
        """The function of an op for a dispatch key."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        self._check_alive()
        key = key_name(dispatch_key or self.dispatch_key)
        operator = self._find(op_name)
        if key in operator.kernels:
            if not allow_override:
                raise RuntimeError("This is not allowed since there's already a kernel registered from python "
                                   "overriding "
                                   f"{operator.name}'s behavior for {key} dispatch key and {self.ns} namespace.")
            warnings.warn("Warning only once for all operators,  other operators may also be overridden.\n  "
                          "Overriding a previously registered kernel for the same operator and the same dispatch "
                          f"key\n  operator: {operator.space}::{operator.schema_text}\n  dispatch key: "
                          f"{key}", UserWarning, stacklevel=2)
        kernel = (lambda *a, **k: fn(torch._C.DispatchKeySet(), *a, **k)) if with_keyset else fn
        before, operator.kernels[key] = operator.kernels.get(key), kernel

        def undo() -> None:
            if operator.kernels.get(key) is kernel:
                if before is None:
                    del operator.kernels[key]
                else:
                    operator.kernels[key] = before
        self._registration_handles.append(RegistrationHandle(undo))

    def _register_fake(self, op_name: Any, fn: Callable[..., Any], _stacklevel: int = 1, *, allow_override: bool = True) -> None:
        self._check_alive()
        self._registration_handles.append(RegistrationHandle(self._find(op_name).fake.register(fn, allow_override)))

    def _register_torch_dispatch_rule(self, op_name: Any, torch_dispatch_class: Any, fn: Callable[..., Any]) -> None:
        rules, operator = self._find(op_name).dispatch_rules, self._find(op_name)
        if torch_dispatch_class in rules:
            raise RuntimeError(f"{torch_dispatch_class} already has a `__torch_dispatch__` rule registered for "
                               f"{operator.qualname}")
        rules[torch_dispatch_class] = fn
        self._registration_handles.append(RegistrationHandle(lambda: rules.pop(torch_dispatch_class, None) and None))

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Refuses: a function for all ops of a key is not offered."""
        if self.ns != "_":
            raise RuntimeError("Fallback can only be registered using library fragment on the global namespace "
                               f"\"_\" but it is {self.ns}")
        raise NotImplementedError("[Library.fallback] a function for all ops is not offered; a TorchDispatchMode "
                                  "sees every op")

    def _destroy(self) -> None:
        self.alive = False
        if _definers.get(self.ns) is self:
            del _definers[self.ns]
        self._finalizer()


def _take_away(defined: list[Any], handles: list[Any]) -> None:
    """What a library registered, the newest first."""
    for handle in reversed(handles):
        handle.destroy()
    handles.clear()
    for operator in defined:
        operator.destroy()
        vars(getattr(ops, operator.space)).pop(operator.name, None)


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A library for a with block."""
    lib = Library(*args, **kwargs)
    try:
        yield lib
    finally:
        lib._destroy()


_kept: list[Library] = []                        # those of definitions without a library of their own


def _library_for(space: str, lib: Library | None) -> Library:
    if lib is None:
        lib = Library(space, "FRAGMENT")
        _kept.append(lib)
    return lib


def define(qualname: Any, schema: Any = "", *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Names an op; impl gives it its functions."""
    if isinstance(qualname, Library):            # the older order: define(library, schema), a decorator
        name = qualname.define(schema)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(name, function, "")
            return function
        return register
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    space, name = parse_namespace(qualname)
    if not _SCHEMA.fullmatch(schema):
        raise ValueError("define(qualname, schema, ...): expected schema to look like e.g. \"(Tensor x) -> Tensor\" "
                         f"but got \"{schema}\"")
    _library_for(space, lib).define(name + schema, tags=tags)
    return None


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """The function of a defined op for device types; without one, a decorator."""
    if isinstance(qualname, Library):            # the older order: impl(library, "name", "CPU")
        def older(function: Callable[..., Any]) -> Callable[..., Any]:
            qualname.impl(types, function, func or "")
            return function
        return older
    kinds = (types,) if isinstance(types, str) else tuple(types)
    keys = {_device_or_key(kind) for kind in kinds}

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        space, _ = parse_namespace(qualname)
        for key in keys:
            _library_for(space, lib).impl(qualname, function, key)
        return function
    return register if func is None else register(func)


def _device_or_key(kind: str) -> str:
    """The dispatch key that a device type or the name of a key means."""
    return kind if kind in KEYS else device_key(kind)


def _known(op: Any, of: str) -> tuple[str, Any]:
    """(qualified name, the op's own definition where custom_op made it)"""
    if not isinstance(op, (str, torch._ops.OpOverload, CustomOpDef)):
        raise ValueError(f"{of}({op}): got unexpected type for op: {type(op)}")
    name = op.name() if isinstance(op, torch._ops.OpOverload) else op._qualname if isinstance(op, CustomOpDef) else op
    return name, OPDEFS.get(name) if name in operators else None


def register_kernel(op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None) -> Any:
    """The function of an op for device types; without one, a decorator."""
    name, definition = _known(op, "register_kernel")
    if definition is not None:
        return definition.register_kernel(device_types, func)
    return impl(name, "default" if device_types is None else device_types, func, lib=lib)


def register_fake(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None, _stacklevel: int = 1,
                  allow_override: bool = True) -> Any:
    """What results of an op look like, for tensors without memory; without a function, a decorator.

    The op need not be defined: a package may say shapes of ops whose library could not be loaded.
    """
    name, definition = _known(op, "register_fake")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if definition is not None:
            return definition.register_fake(function)
        if name in operators:
            space, _ = parse_namespace(name)
            _library_for(space, lib)._register_fake(name, function, allow_override=allow_override)
        return function
    return register if func is None else register(func)


def impl_abstract(qualname: Any, func: Callable[..., Any] | None = None, *, lib: Library | None = None,
                  _stacklevel: int = 1) -> Any:
    """The older name of register_fake."""
    return register_fake(qualname, func, lib=lib)


def _operator(name: str) -> Any:
    if name not in operators:
        torch._library.utils.lookup_op(name)     # says that there is no such op
        raise NotImplementedError(f"[torch.library] {name}: torch's own ops keep their gradients and rules")
    return operators[name]


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
                      lib: Library | None = None) -> None:
    """The gradient of an op: backward(ctx, *grads), after setup_context(ctx, inputs, output)."""
    name, definition = _known(op, "register_autograd")
    if definition is not None:
        definition.register_autograd(backward, setup_context=setup_context)
        return
    operator = _operator(name)
    if not is_functional_schema(operator.schema):
        raise RuntimeError(f"Cannot register autograd formula for non-functional operator {operator.face} with schema "
                           f"{operator.schema}. Please create a functional operator and register an autograd "
                           "formula for that.")
    if has_kwarg_only_tensors(operator.schema):
        raise NotImplementedError("register_autograd with kwarg-only Tensor args. In the original definition of the "
                                  f"op, please make your tensors not kwarg-only. Got: {operator.schema}")
    kernel = make_autograd_impl(operator, Info(backward, setup_context))
    _library_for(operator.space, lib).impl(name, kernel, "Autograd")


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Library | None = None) -> Any:
    """How vmap runs an op: func(info, in_dims, *args) -> (output, out_dims); without one, a decorator."""
    name, definition = _known(op, "register_vmap")
    if definition is not None:
        return definition.register_vmap(func)
    operator = _operator(name)
    if has_kwarg_only_tensors(operator.schema):
        raise NotImplementedError("register_vmap with kwarg-only Tensor args. In the original definition of the op, "
                                  f"please make your tensors not kwarg-only. Got: {operator.schema}")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        operator.vmap = function
        return function
    return register if func is None else register(func)


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Callable[..., Any] | None = None, /, *,
                            lib: Library | None = None) -> Any:
    """What answers for an op in place of a mode's or a class's __torch_dispatch__; without a function, a decorator."""
    name, _ = _known(op, "register_torch_dispatch")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _library_for(_operator(name).space, lib)._register_torch_dispatch_rule(name, torch_dispatch_class, function)
        return function
    return register if func is None else register(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> None:
    """In autocast for a device type, floats are cast to a dtype before the op runs."""
    _register_autocast(_operator(_known(op, "register_autocast")[0]), device_type, cast_inputs)


def _register_autocast(operator: Any, device_type: str, cast_inputs: Any) -> None:
    kind = torch.device(device_type).type
    if not torch.amp.is_autocast_available(kind):
        raise ValueError(f"Device type '{device_type}' does not support autocast.")

    def cast(x: Any) -> Any:
        wanted = isinstance(x, torch.Tensor) and x.is_floating_point() and x.device.type == kind and x.dtype != torch.float64
        return x.to(cast_inputs) if wanted else x

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given, named = torch.utils._pytree.tree_map(cast, (args, kwargs))
        with torch.autocast(kind, enabled=False), _operators.below("below_autocast"):
            return operator.face(*given, **named)
    operator.kernels[f"Autocast{device_key(kind)}"] = kernel


def get_ctx() -> Any:
    """The context of the fake implementation that runs."""
    found = global_ctx_getter()
    return found() if callable(found) else found


def get_kernel(op: Any, dispatch_key: Any) -> Callable[..., Any]:
    """The kernel that an op has for a dispatch key."""
    if not isinstance(op, (str, torch._ops.OpOverload)):
        raise ValueError(f"get_kernel({op}): got unexpected type for op: {type(op)}")
    name = op if isinstance(op, str) else op.name()
    try:
        key = key_name(dispatch_key)
    except RuntimeError:
        raise ValueError(f"Invalid dispatch key: {dispatch_key}") from None
    return _operator(name).kernel_for(key)


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: Any = None) -> Any:
    """Refuses: there is no Triton here."""
    raise NotImplementedError(f"[torch.library.triton_op] {name}: there is no Triton; define the op with "
                              "torch.library.custom_op")


def wrap_triton(triton_kernel: Any, /) -> Any:
    """Refuses: there is no Triton here."""
    raise NotImplementedError("[torch.library.wrap_triton] there is no Triton")


OpOverload, OpOverloadPacket = torch._C._core.OpOverload, torch._C._core.OpOverloadPacket


def _plain(space: str, name: str, function: Any) -> None:
    """A function as an op of one overload, whose arguments no schema knows."""
    function.default = function
    vars(getattr(ops, space))[name] = function


# ---- torch.ops.profiler: the ends of a range, as ops that a graph can call ---------------------------------------------
def _record_function_enter(name: str, args: str | None = None) -> Any:
    """Begins a range of the profiler; what it gives ends it."""
    handle = torch.autograd.profiler.record_function(name, args)
    handle.__enter__()
    return handle


def _record_function_exit(handle: Any) -> None:
    """Ends a range of the profiler."""
    handle.__exit__(None, None, None)


_plain("profiler", "_record_function_enter", _record_function_enter)
vars(ops.profiler)["_record_function_enter_new"] = _record_function_enter
_plain("profiler", "_record_function_exit", _record_function_exit)
_record_function_exit._RecordFunction = _record_function_exit        # type: ignore[attr-defined]
