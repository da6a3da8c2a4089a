"""torch.library.custom_op: a function that is an op, with what else it may be told of itself."""
from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, overload

import mindtorch_v2 as torch
from mindtorch_v2._library.autograd import make_autograd_impl
from mindtorch_v2._library.infer_schema import infer_schema
from mindtorch_v2._library.operator import _AutoDispatchBelowAutograd, operators
from mindtorch_v2._library.utils import device_key, has_kwarg_only_tensors, is_functional_schema

__all__ = ["OPDEFS", "CustomOpDef", "custom_op"]

OPDEFS: weakref.WeakValueDictionary[str, CustomOpDef] = weakref.WeakValueDictionary()
_libraries: dict[str, Any] = {}                  # "ns::name" -> the library that defines it
_kept: dict[str, CustomOpDef] = {}               # an op lives as long as its name


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
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        space, opname = name.split("::")
        definition = CustomOpDef(space, opname, text, function, tags)
        if schema is not None:                   # it says what is changed, and so does mutates_args
            written = {a.name for a in definition._schema_of_op.arguments if a.is_write}
            expected = set() if mutates_args == "unknown" else set(mutates_args)
            if mutates_args != "unknown" and written != expected:
                definition._lib._destroy()
                raise ValueError(f"Attempted to create a custom op with `mutates_args={mutates_args}` and "
                                 f"`schema={schema}. The "
                                 "schema suggests that the op mutates {written}which is different from what was "
                                 "provided to us in "
                                 "`mutates_args`. Please make these consistent.")
        definition.register_kernel(device_types)(function)
        return definition
    return made if fn is None else made(fn)


class CustomOpDef:
    """One op: a function for each device, what its results look like, and its gradient."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable[..., Any], tags: Any = None) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self._backend_fns: dict[str | None, Callable[..., Any]] = {}
        self._disabled_kernel: set[str] = set()
        self._backward_fn: Callable[..., Any] | None = None
        self._setup_context_fn: Callable[..., Any] | None = None
        self._vmap_fn: Callable[..., Any] | None = None
        self._abstract_fn: Callable[..., Any] | None = None
        self.__doc__ = fn.__doc__
        known = _libraries.pop(self._qualname, None)
        if known is not None:
            known._destroy()
        self._lib = _libraries[self._qualname] = torch.library.Library(namespace, "FRAGMENT")
        given = () if tags is None else tuple(tags) if isinstance(tags, (tuple, list)) else (tags,)
        self._tags = given if torch.Tag.pt2_compliant_tag in given else (*given, torch.Tag.pt2_compliant_tag)
        self._lib.define(name + schema, tags=self._tags)
        self._operator = self._lib._defined[-1]
        parsed = self._schema_of_op
        if has_kwarg_only_tensors(parsed):
            self._lib._destroy()
            raise NotImplementedError("custom_op with kwarg-only Tensor args. Please make your tensors not "
                                      f"kwarg-only. Got: {schema}")
        self._schema = self._schema if known is None else schema
        self._lib._register_fake(name, self._fake)
        self._autograd_kernel = make_autograd_impl(self._operator, self)
        self._lib.impl(name, self._autograd_impl, "Autograd")
        OPDEFS[self._qualname] = _kept[self._qualname] = self

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    @property
    def _opoverload(self) -> Any:
        return operators.get(self._qualname, self._operator).face        # the one that has the name now

    @property
    def _schema_of_op(self) -> Any:
        return self._operator.schema

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> CustomOpDef:
        return self

    # ---- kernels
    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """The function for a device type, or several; without one, a decorator."""
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            types = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)
            for kind in types:
                key = "CompositeExplicitAutograd" if kind is None else device_key(kind)
                if key not in self._operator.kernels:
                    self._lib.impl(self._name, self._kernel(kind), key)
                self._backend_fns[kind] = function
            if device_types is not None and not any(_is_tensor(a) for a in self._schema_of_op.arguments):
                self._lib.impl(self._name, self._select_backend(), "BackendSelect")
            return function
        if device_types is not None and not any(_is_tensor(a) for a in self._schema_of_op.arguments):
            self._device_argument()
        return register if fn is None else register(fn)

    def _device_argument(self) -> int:
        found = [i for i, a in enumerate(self._schema_of_op.arguments) if a.name == "device" and a.type.str() == "Device"]
        if not found:
            raise ValueError("Functions without tensor inputs are required to have a `device: torch.device` argument")
        return found[0]

    def _select_backend(self) -> Callable[..., Any]:
        """The kernel of an op without tensors: that of the device that it is told."""
        at = self._device_argument()

        def chosen(*args: Any, **kwargs: Any) -> Any:
            kind = torch.device(args[at] if at < len(args) else kwargs["device"]).type
            if kind not in self._backend_fns and None not in self._backend_fns:
                raise RuntimeError(f"{self._name} does not have a kernel registered for {kind}. Please use "
                                   "register_kernel to do so.")
            return self._kernel(kind if kind in self._backend_fns else None)(*args, **kwargs)
        return chosen

    def _kernel(self, kind: str | None) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            function = self._init_fn if kind in self._disabled_kernel else self._backend_fns[kind]
            result = function(*args, **kwargs)
            self._check_aliases(function, args, kwargs, result)
            return result
        return kernel

    def _check_aliases(self, function: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        """Refuses results that share memory with an argument or with one another."""
        leaves = torch.utils._pytree.tree_leaves
        seen = {_memory(x) for x in leaves((args, kwargs))} - {None}
        for x in leaves(result):
            place = _memory(x)
            if place in seen:
                raise RuntimeError(
                    f"{self._name} (with implementation in {getattr(function, '__module__', '???')}): The output of "
                    "this custom operator (1) must not also be an input to this custom operator and (2) may not "
                    "alias any inputs to this custom operator or other returns. The most common way to trigger this "
                    "error is if we have y = custom_op(x) and y and x are the same Tensor. Please instead return a "
                    "clone of the offending output tensor(s) (e.g. return x.clone()) or refactor the custom "
                    "operator to not return y.")
            seen |= {place} - {None}

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """A with block in which the function of a device serves, or that with which the op was made."""
        before = device_type not in self._disabled_kernel
        if device_type not in self._backend_fns:
            warnings.warn(f"Attempted to {'enable' if enabled else 'disable'} kernel for {device_type} but no kernel "
                          "was registered for this device type.", stacklevel=3)
        self._switch(device_type, enabled)
        try:
            yield
        finally:
            self._switch(device_type, before)

    def _switch(self, device_type: str, enabled: bool) -> None:
        (self._disabled_kernel.discard if enabled else self._disabled_kernel.add)(device_type)

    # ---- shapes
    def _fake(self, *args: Any, **kwargs: Any) -> Any:
        if self._abstract_fn is not None:
            return self._abstract_fn(*args, **kwargs)
        if not self._schema_of_op.returns:       # nothing to say
            return None
        raise RuntimeError(f"There was no fake impl registered for {self}. This is necessary for "
                           "torch.compile/export/fx tracing to "
                           f"work. Please use `{self._init_fn.__name__}.register_fake` to add an fake impl.")

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """What gives results of the right shape and dtype for tensors without memory."""
        self._abstract_fn = fn
        return fn

    # ---- layers
    def _autograd_impl(self, *args: Any, **kwargs: Any) -> Any:
        writes = self._operator.writes
        if not writes:
            return self._autograd_kernel(*args, **kwargs)
        with _AutoDispatchBelowAutograd():        # the op changes tensors, and says no gradient
            whole = [*args, *(kwargs[p.name] for p in self._operator.params[self._operator.positional:])]
            result = self._operator.run_below(whole)
        changed = [x for i in writes for x in torch.utils._pytree.tree_leaves(whole[i]) if isinstance(x, torch.Tensor)]
        torch.autograd.graph.increment_version(changed)
        return result

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """The gradient: backward(ctx, *grads), after setup_context(ctx, inputs, output)."""
        if not is_functional_schema(self._schema_of_op):
            raise RuntimeError(f"Cannot register autograd formula for non-functional operator {self} with schema "
                               f"{self._schema_of_op}. Please create a functional operator and register an autograd "
                               "formula for that.")
        self._backward_fn, self._setup_context_fn = backward, setup_context

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """How vmap runs it: func(info, in_dims, *args) -> (output, out_dims); without one, a decorator."""
        if func is None:
            return self.register_vmap
        self._vmap_fn = self._operator.vmap = func
        return func

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """In autocast for a device type, floats are cast to a dtype before the op runs."""
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        torch.library._register_autocast(self._operator, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """The function that answers for the op where a class of tensors or a mode would."""
        return torch.library.register_torch_dispatch(self._opoverload, torch_dispatch_class, fn)


def _is_tensor(argument: Any) -> bool:
    return "Tensor" in argument.type.str()


def _memory(x: Any) -> int | None:
    """What names the memory of a tensor; None for all else, and for tensors without memory."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or type(x) not in (torch.Tensor, torch.nn.Parameter):
        return None
    return x.untyped_storage()._cdata if x.device.type != "meta" and x.numel() else None
