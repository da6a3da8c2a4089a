"""torch.library and torch.ops: ops that a program defines itself, by name, and torch's own under torch.ops.aten."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, overload

import mindtorch_v2 as torch

Tensor = torch.Tensor

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "impl", "ops", "register_autograd", "register_fake",
           "register_kernel"]

# torch's dispatch keys, as the device types whose tensors they mean; None is every device.
_DEVICES = {"CPU": "cpu", "PrivateUse1": "npu", "NPU": "npu", "Meta": "meta", "CUDA": "cuda", "XPU": "xpu",
            "CompositeImplicitAutograd": None, "CompositeExplicitAutograd": None, "default": None}


class _VmapInfo(NamedTuple):
    """The info argument of a function given to register_vmap."""
    batch_size: int
    randomness: str


class CustomOpDef:
    """One op: a function for each device, what its results look like, and its gradient."""

    def __init__(self, name: str, fn: Callable[..., Any] | None = None, *, devices: Any = None,
                 mutates_args: Any = ()) -> None:
        self._qualname, self.__name__, self._mutates = name, name.rpartition("::")[2], mutates_args
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._fake: Callable[..., Any] | None = None
        self._function: Any = None
        self._vmap: Callable[..., Any] | None = None
        self._signature: inspect.Signature | None = None
        if fn is not None:
            self._add(fn, devices)
            self.__doc__ = fn.__doc__

    def _add(self, fn: Callable[..., Any], devices: Any) -> None:
        self._signature = self._signature or inspect.signature(fn)
        for device in [devices] if devices is None or isinstance(devices, str) else devices:
            self._kernels[device] = fn

    @property
    def _keywords(self) -> list[str]:
        """The arguments that are given by name only; they are the last."""
        parameters = self._signature.parameters.values() if self._signature is not None else ()
        return [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]

    def _named(self, args: Sequence[Any]) -> dict[str, Any]:
        names = self._keywords
        return dict(zip(names, args[len(args) - len(names):], strict=True))

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """The function for a device type, or several; without one, a decorator."""
        def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
            self._add(kernel, device_types)
            return kernel
        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """What gives results of the right shape and dtype for tensors on the meta device."""
        self._fake = fn
        return fn

    def register_autograd(self, backward: Callable[..., Any], /, *,
                          setup_context: Callable[..., Any] | None = None) -> None:
        """The gradient: backward(ctx, *grads), after setup_context(ctx, inputs, output)."""
        def forward(ctx: Any, *args: Any) -> Any:
            output = self._run(args)
            if setup_context is not None and self._keywords:
                setup_context(ctx, args[:len(args) - len(self._keywords)], self._named(args), output)
            elif setup_context is not None:
                setup_context(ctx, args, output)
            return output

        def back(ctx: Any, *grads: Any) -> Any:
            found = backward(ctx, *grads)
            return (*(found if isinstance(found, tuple) else (found,)), *(None for _ in self._keywords))
        methods = {"forward": staticmethod(forward), "backward": staticmethod(back)}
        self._function = type(self.__name__, (torch.autograd.Function,), methods)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """How vmap runs it: func(info, in_dims, *args) -> (output, out_dims); without one, a decorator."""
        if func is None:
            return self.register_vmap
        self._vmap = func
        return func

    def _batched(self, level: Any, args: Sequence[Any]) -> Any:
        """The op for all samples of a level of vmap, by the function that was registered."""
        named = self._named(args)
        pairs = [level.unwrap(x) for x in args[:len(args) - len(named)]]
        info = _VmapInfo(level.size, level.randomness)
        output, dims = self._vmap(info, tuple(0 if batched else None for _, batched in pairs),   # type: ignore[misc]
                                  *(value for value, _ in pairs), **named)
        several = isinstance(output, (tuple, list))
        places = dims if several and isinstance(dims, (tuple, list)) else [dims] * (len(output) if several else 1)
        made = [x if d is None else level.wrap(x.movedim(d, 0))
                for x, d in zip(output if several else [output], places, strict=True)]
        return tuple(made) if several else made[0]

    def _run(self, args: Sequence[Any]) -> Any:
        leaves = torch.utils._pytree.tree_leaves(args)
        device = next((x.device.type for x in leaves if isinstance(x, torch.Tensor)), None)
        kernel = self._kernels.get(device) or self._kernels.get(None)
        if device == "meta" and self._fake is not None:
            kernel = self._fake
        if kernel is None:
            have = ", ".join(sorted(str(key) for key in self._kernels)) or "no device"
            raise NotImplementedError(f"[{self._qualname}] no kernel for {device}; it has one for {have}; add one with "
                                      "register_kernel")
        with torch.no_grad():
            return kernel(*args[:len(args) - len(self._keywords)], **self._named(args))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or self._signature is not None:
            if self._signature is None:
                raise NotImplementedError(f"[{self._qualname}] it was defined, but has no kernel yet")
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = tuple(bound.arguments[name] for name in self._signature.parameters)
        level = torch._transforms.innermost() if self._vmap is not None else None
        if level is not None and any(level.unwrap(x)[1] for x in args):
            return self._batched(level, args)
        needed = torch.is_grad_enabled() and any(
            isinstance(x, torch.Tensor) and x.requires_grad for x in torch.utils._pytree.tree_leaves(args))
        return self._function.apply(*args) if needed and self._function is not None else self._run(args)

    def __getattr__(self, name: str) -> Any:
        # torch.ops.ns.op.default is the op's one overload; names with an underscore are Python's own questions, asked also of
        # an object that is not made yet.
        if name in ("default", "_opoverload"):
            return self
        raise AttributeError(f"{vars(self).get('_qualname', 'CustomOpDef')!r} has no overload {name!r}")

    def __deepcopy__(self, memo: Any) -> CustomOpDef:
        return self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


class _Namespace:
    """The ops of one namespace, as attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> CustomOpDef:
        raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")


class _Aten(_Namespace):
    """torch's own ops."""

    def __getattr__(self, name: str) -> Any:
        try:
            op = getattr(torch._ops.ops, name)
        except AttributeError:
            return torch._absent.ATEN[name] if name in torch._absent.ATEN else super().__getattr__(name)
        self.__dict__[name] = found = torch._C._op_packet(op) if isinstance(op, torch._C.Op) else op
        return found


class _Npu(_Namespace):
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

    def __getattr__(self, name: str) -> _Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = made = _Namespace(name)
        return made


ops: Any = _Ops()


def _found(name: str, make: bool = False) -> CustomOpDef:
    space, separator, op = name.partition("::")
    if not separator:
        raise ValueError(f"[torch.library] expected a name such as mylib::{name}, got {name!r}")
    known = getattr(ops, space).__dict__
    if op not in known:
        if not make:
            raise RuntimeError(f"[{name}] no such op; define it with torch.library.custom_op or torch.library.define")
        known[op] = CustomOpDef(name)
    return known[op]


@overload
def custom_op(name: str, fn: None = None, /, *, mutates_args: str | Iterable[str], device_types: Any = None,
              schema: str | None = None, tags: Any = None) -> Callable[[Callable[..., Any]], CustomOpDef]: ...


@overload
def custom_op(name: str, fn: Callable[..., Any], /, *, mutates_args: str | Iterable[str], device_types: Any = None,
              schema: str | None = None, tags: Any = None) -> CustomOpDef: ...


def custom_op(name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str],
              device_types: Any = None, schema: str | None = None, tags: Any = None) -> Any:
    """Makes a function an op: torch.ops.namespace.name, with gradients and devices of its own; a decorator."""
    def made(function: Callable[..., Any]) -> CustomOpDef:
        space, separator, op = name.partition("::")
        if not separator:
            raise ValueError(f"[custom_op] expected a name such as mylib::{name}, got {name!r}")
        definition = CustomOpDef(name, function, devices=device_types, mutates_args=mutates_args)
        getattr(ops, space).__dict__[op] = definition
        return definition
    return made if fn is None else made(fn)


def define(qualname: str, schema: str = "", *, lib: Any = None, tags: Any = ()) -> None:
    """Names an op; impl gives it its functions."""
    _found(qualname, make=True)


def impl(qualname: str, types: Any, func: Callable[..., Any] | None = None, *, lib: Any = None) -> Any:
    """The function of a defined op for device types or dispatch keys; without one, a decorator."""
    if isinstance(qualname, Library):       # the older order: impl(library, "name", "CPU")
        return lambda function: qualname.impl(types, function, func)     # type: ignore[arg-type]
    keys = [types] if isinstance(types, str) else list(types)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _found(qualname)._add(function, [_DEVICES.get(key, key) for key in keys])
        return function
    return register if func is None else register(func)


def _definition(op: Any) -> CustomOpDef:
    return op if isinstance(op, CustomOpDef) else _found(op)


def register_kernel(op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, *, lib: Any = None) -> Any:
    """CustomOpDef.register_kernel, by name."""
    return _definition(op).register_kernel(device_types, func)


def register_fake(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Any = None, **kwargs: Any) -> Any:
    """CustomOpDef.register_fake, by name; without a function, a decorator.

    The op need not be defined: a package may say shapes of ops whose library could not be loaded.
    """
    definition = op if isinstance(op, CustomOpDef) else _found(op, make=True)
    return definition.register_fake if func is None else definition.register_fake(func)


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
                      lib: Any = None) -> None:
    """CustomOpDef.register_autograd, by name."""
    _definition(op).register_autograd(backward, setup_context=setup_context)


impl_abstract = register_fake


class Library:
    """The ops of a namespace, defined and implemented one by one."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Names an op by its schema."""
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}", schema)
        return name

    def impl(self, op_name: str, fn: Callable[..., Any], dispatch_key: str = "", **kwargs: Any) -> None:
        """The function of an op for a dispatch key."""
        impl(f"{self.ns}::{op_name.rpartition('::')[2]}", dispatch_key or self.dispatch_key or "default", fn)


class HigherOrderOperator:
    """An op over functions: a body for each dispatch key, found by the arguments when it is called."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name
        self._bodies: dict[Any, Callable[..., Any]] = {}

    def py_impl(self, k: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: the body for a key, a transform or a class of tensors or modes."""
        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            if k in self._bodies:
                raise RuntimeError(f"Trying to override a python impl for {k} on operator {self._name}")
            self._bodies[k] = fn
            return fn
        return register

    def name(self) -> str:
        """Its name."""
        return self._name

    def namespace(self) -> str:
        """The namespace of such ops."""
        return "higher_order"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        keys, leaves = torch._absent.DispatchKey, torch.utils._pytree.tree_leaves((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        wanted: list[Any] = [type(mode) for mode in reversed(torch._C._dispatch_mode_stack())]
        wanted += [type(x) for x in tensors]
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            wanted.append(keys.Autograd)
        wanted += [keys.CPU] if all(x.device.type == "cpu" for x in tensors) else []
        body = next((self._bodies[key] for key in (*wanted, keys.CompositeExplicitAutograd) if key in self._bodies), None)
        if body is None:
            raise NotImplementedError(f"could not find kernel for HigherOrderOperator {self._name}")
        return body(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<HigherOrderOperator({self._name})>"


OpOverload, OpOverloadPacket = torch._C._core.OpOverload, torch._C._core.OpOverloadPacket


# ---- torch.ops.aten: what Tensor.item() is in torch -----------------------------------------------------------------------
def _local_scalar_dense(self: Tensor) -> Any:
    """The number in a tensor of one item."""
    return self.item()


_local_scalar_dense.default = _local_scalar_dense     # type: ignore[attr-defined]
ops.aten.__dict__["_local_scalar_dense"] = _local_scalar_dense


# ---- torch.ops.profiler: the ends of a range, as ops that a graph can call ---------------------------------------------
def _record_function_enter(name: str, args: str | None = None) -> Any:
    """Begins a range of the profiler; what it gives ends it."""
    handle = torch.autograd.profiler.record_function(name, args)
    handle.__enter__()
    return handle


def _record_function_exit(handle: Any) -> None:
    """Ends a range of the profiler."""
    handle.__exit__(None, None, None)


for _name, _function in (("_record_function_enter", _record_function_enter),
                         ("_record_function_enter_new", _record_function_enter),
                         ("_record_function_exit", _record_function_exit)):
    custom_op(f"profiler::{_name}", _function, mutates_args=())
