"""An overload that a program defined: its kernels by dispatch key, and the one that a call comes to."""
from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._library.fake_impl import FakeImplHolder

_pytree = torch.utils._pytree
_C = torch._C
_KINDS = _C._core.KINDS
_BACKENDS = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "meta": "Meta", "npu": "PrivateUse1"}
# Every key that a kernel may be registered for.
KEYS: list[str] = (
    "CPU CUDA XPU Meta PrivateUse1 NPU MPS HPU MTIA SparseCPU QuantizedCPU BackendSelect Python Functionalize ADInplaceOrView "
    "Autograd AutogradOther AutogradCPU AutogradCUDA AutogradXPU AutogradPrivateUse1 AutogradMeta AutocastCPU AutocastCUDA "
    "AutocastXPU AutocastPrivateUse1 FuncTorchBatched Batched CompositeImplicitAutograd CompositeExplicitAutograd "
    "CompositeExplicitAutogradNonFunctional CompositeImplicitAutogradNestedTensor Conjugate Negative ZeroTensor").split()
_SAME_KEY = {"": "CompositeImplicitAutograd", "NPU": "PrivateUse1", "AutogradNPU": "AutogradPrivateUse1"}


class _State(threading.local):
    """What a thread leaves out: kernels of autograd, kernels of autocast."""

    below_autograd = False
    below_autocast = False


state = _State()


@contextlib.contextmanager
def below(name: str) -> Iterator[None]:
    """A with block in which the kernels of a layer (`below_autograd`, `below_autocast`) are left out."""
    before = getattr(state, name)
    setattr(state, name, True)
    try:
        yield
    finally:
        setattr(state, name, before)


class _AutoDispatchBelowAutograd:
    """A with block in which ops are not recorded, and no kernel of autograd is called."""

    def __enter__(self) -> None:
        self.before = state.below_autograd, _C._is_grad_enabled()
        state.below_autograd = True
        _C._set_grad_enabled(False)

    def __exit__(self, *exc: Any) -> None:
        state.below_autograd = self.before[0]
        _C._set_grad_enabled(self.before[1])


_AutoDispatchBelowADInplaceOrView = _AutoDispatchBelowAutograd     # views and versions are the core's own business


class _Modes:
    """What an op without a kernel of autograd does where it is differentiated: nothing, or a warning."""

    fallback = "warn"


modes = _Modes()


def set_autograd_fallback_mode(mode: str) -> None:
    """torch._C._set_autograd_fallback_mode."""
    if mode == "error":
        raise RuntimeError("NYI: mode='error'")
    if mode not in ("nothing", "warn"):
        raise RuntimeError("Unsupported AutogradFallbackMode, please use one of {\"nothing\", \"warn\", \"error\"}")
    modes.fallback = mode


def key_name(key: Any) -> str:
    """A dispatch key by its one name."""
    name = getattr(key, "name", key)
    name = _SAME_KEY.get(name, name)
    if name not in KEYS:
        raise RuntimeError(f"could not parse dispatch key: {name}")
    return name


class _Description(_C.OpDescription):
    """What the ops of programs show of themselves: their schemas and tags."""

    def overloads(self, op: Any) -> dict[str, Any]:
        found = [o for o in operators.values() if o.op is op]
        return {o.overload: (o.overload, _ROUND.sub(r"\1.", o.schema_text), o.tags) for o in found}

    def overload_of_call(self, op: Any, row: Any, args: tuple, kwargs: dict[str, Any]) -> str | None:
        return row.overload_name or "default"

    def function_schema(self, text: str) -> Any:
        return torch._function_schema.FunctionSchema(text)

    def call_error(self, op: Any, args: tuple, kwargs: dict[str, Any], method: bool) -> Exception:
        """What is said of a call that fits no overload, in the words of schemas."""
        found = next((o for o in operators.values() if o.op is op), None)
        return super().call_error(op, args, kwargs, method) if found is None else found.call_error(args, kwargs)


_ROUND = re.compile(r"(=-?\d+)\.0(?=[,)])")       # a schema shows 2.0 as 2.
_DESCRIPTION = _Description()
operators: dict[str, Any] = {}              # "ns::name.overload" -> the overload; "default" is left out


def fallthrough_kernel() -> None:
    """Stands for the kernels below: registered for a key, it takes the key out of the way. It is never called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Operator:
    """One overload. The core calls it as the body of a composite, with a value for every parameter."""

    def __init__(self, space: str, schema: str, tags: Any) -> None:
        try:
            parsed = torch._schema.parse(schema)
        except ValueError as error:
            raise RuntimeError("Tried to parse a function schema but only the operator name was given" if "(" not in schema
                               else f"{error}") from None
        self.space, self.schema_text = space, schema
        self.name, self.overload = parsed.name, parsed.overload or "default"
        self.qualname = f"{space}::{parsed.name}" + (f".{parsed.overload}" if parsed.overload else "")
        if self.qualname in operators:
            raise RuntimeError(f"Tried to register an operator ({space}::{schema}) with the same name and overload "
                               "name multiple "
                               "times. Each overload's schema should only be registered with a single call to def().")
        self.params = parsed.params
        self.tags = tuple(tags) if isinstance(tags, (tuple, list)) else (tags,)
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.fake = FakeImplHolder(self.qualname)
        self.vmap: Callable[..., Any] | None = None
        self.dispatch_rules: dict[Any, Callable[..., Any]] = {}     # class of tensors or modes -> what answers for it
        params = [tuple(p._replace(kind=p.kind if p.kind in _KINDS else "any", mutable=False)) for p in parsed.params]
        self.op = _C._define(parsed.name, parsed.overload, schema, params, parsed.returns, family="composite", body=self,
                             out=False, namespace=space, description=_DESCRIPTION)
        self.row = self.op.overloads[-1]
        self.several = len(parsed.returns) != 1
        operators[self.qualname] = self
        _C._core._forget_packet(self.op)
        self.schema = self.face._schema
        self.positional = sum(not p.keyword_only for p in self.params)
        self.writes = tuple(i for i, a in enumerate(self.schema.arguments) if a.is_write)

    def destroy(self) -> None:
        """The name is free again."""
        operators.pop(self.qualname, None)
        if any(o.op is self.op for o in operators.values()):
            _C._core._forget_packet(self.op)
        else:
            _C._core._undefine(self.op)

    @property
    def packet(self) -> Any:
        """torch.ops.ns.name"""
        return _C._op_packet(self.op)

    @property
    def face(self) -> Any:
        """torch.ops.ns.name.overload"""
        return getattr(self.packet, self.overload)

    @property
    def __name__(self) -> str:
        return self.name

    def call_error(self, args: tuple, kwargs: dict[str, Any]) -> Exception:
        """Why arguments do not fit the schema."""
        declared = f"Declaration: {self.schema}"
        names = [p.name for p in self.params]
        for name in kwargs:
            if name not in names:
                return RuntimeError(f"Unknown keyword argument '{name}' for operator '{self.qualname}'. Schema: "
                                    f"{self.schema}")
        if len(args) > self.positional:
            return RuntimeError(f"{self.qualname}() expected at most {self.positional} argument(s) but received "
                                f"{len(args)} argument(s). {declared}")
        for i, (param, argument) in enumerate(zip(self.params, self.schema.arguments)):
            if i >= len(args) and param.name not in kwargs:
                if param.required:
                    return RuntimeError(f"{self.qualname}() is missing value for argument '{param.name}'. {declared}")
                continue
            value = args[i] if i < len(args) else kwargs[param.name]
            if not _suits(param, value):
                shown = repr(value) if isinstance(value, str) else value
                return RuntimeError(f"{self.qualname}() Expected a value of type '{argument.type.annotation_str}' "
                                    f"for argument '{param.name}' but instead found type "
                                    f"'{type(value).__name__}'.\nPosition: {i}\nValue: {shown}\n{declared}\nCast "
                                    f"error details: Unable to cast {value} to {argument.type.annotation_str}")
        return RuntimeError(f"{self.qualname}() cannot be called with these arguments. {declared}")

    # ---- the call
    def __call__(self, *slots: Any) -> Any:
        args = tuple(self._given(p.kind, x) for p, x in zip(self.params, slots))
        tensors = [x for x in _pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        device, backend = self._place(tensors)
        cast = self.kernels.get(f"Autocast{backend}")
        if cast is not None and not state.below_autocast and torch.is_autocast_enabled(device):
            with below("below_autocast"):
                return self._run(cast, args)
        if state.below_autograd:
            return self._below(args, backend)
        own = self.kernels.get(f"Autograd{backend}") or self.kernels.get("Autograd")
        if own is fallthrough_kernel:
            return self._below(args, backend)
        if own is not None:
            return self._run(own, args)
        if "CompositeImplicitAutograd" in self.kernels and backend not in self.kernels:
            return self._below(args, backend)
        if modes.fallback == "nothing" or not torch.is_grad_enabled() or not any(x.requires_grad for x in tensors):
            return self._below(args, backend)
        return self._warned(args, tensors, backend)

    @staticmethod
    def _place(tensors: list[Any]) -> tuple[str, str]:
        """The device type of a call and its dispatch key: meta, where one of the tensors is there."""
        device = tensors[0].device.type if tensors else "cpu"
        if any(x.device.type == "meta" for x in tensors):
            device = "meta"
        return device, _BACKENDS.get(device, "PrivateUse1")

    def run_below(self, args: Any) -> Any:
        """The result for all arguments in order, without the kernels of autograd."""
        tensors = [x for x in _pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        return self._below(tuple(args), self._place(tensors)[1])

    @staticmethod
    def _given(kind: str, value: Any) -> Any:
        """An argument as a kernel gets it: lists as lists."""
        if value is None:
            return None
        if kind == "float" and isinstance(value, int):
            return float(value)
        return list(value) if isinstance(value, tuple) and kind.endswith("[]") else value

    def _run(self, kernel: Callable[..., Any], args: tuple) -> Any:
        named = {p.name: x for p, x in zip(self.params[self.positional:], args[self.positional:])}
        return kernel(*args[:self.positional], **named)

    def _below(self, args: tuple, backend: str) -> Any:
        """Dispatch modes and classes of tensors, levels of vmap, then the kernel of the device."""
        answer = self._ruled(args) if self.dispatch_rules else NotImplemented
        if answer is NotImplemented:
            answer = _C._core._ask_dispatch(self.op, self.row, args)
        if answer is not NotImplemented:
            return answer
        level = torch._transforms.innermost()
        if level is not None and (self.vmap is not None or "FuncTorchBatched" in self.kernels) and any(
                level.unwrap(x)[1] for x in _pytree.tree_leaves(args)):
            return self._batched(level, args)
        return self._returned(self._run(self.kernel_for(backend), args))

    def _returned(self, result: Any) -> Any:
        """A kernel's result, refused where it is not what the schema says."""
        kinds = self.schema.returns
        if len(kinds) > 1 and not isinstance(result, (tuple, list)):
            raise TypeError(f"Object of type '{type(result).__name__}' is not an instance of 'sequence'")
        if len(kinds) == 1 and kinds[0].type.str() == "Tensor" and result is not None and not isinstance(result, torch.Tensor):
            raise RuntimeError(f"Unable to cast {result} to Tensor")
        return tuple(result) if len(kinds) > 1 else result

    def _ruled(self, args: tuple) -> Any:
        """What a function answers that was registered for an open mode, or for the class of an argument."""
        named = {p.name: x for p, x in zip(self.params[self.positional:], args[self.positional:])}
        tensors = [x for x in _pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        call = (self.face, tuple({type(x) for x in tensors}), args[:self.positional], named)
        stack = _C._dispatch_mode_stack()
        if stack and type(stack[-1]) in self.dispatch_rules:
            mode = _C._pop_dispatch_mode()
            try:
                return self.dispatch_rules[type(mode)](mode, *call)
            finally:
                _C._push_dispatch_mode(mode)
        found = next((self.dispatch_rules[type(x)] for x in tensors if type(x) in self.dispatch_rules), None)
        return NotImplemented if found is None or stack else found(None, *call)

    def kernel_for(self, backend: str) -> Callable[..., Any]:
        """The kernel of a device."""
        if backend == "Meta" and self.fake.kernel is not None:
            return self.fake.kernel
        for key in ("BackendSelect", backend, "CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd",
                    "CompositeImplicitAutograd"):
            if key in self.kernels and self.kernels[key] is not fallthrough_kernel:
                return self.kernels[key]
        if backend == "Meta":
            raise NotImplementedError(
                f"{self.qualname}: attempted to run this operator with Meta tensors, but there was no fake impl or "
                "Meta kernel registered. You may have run into this message while using an operator with PT2 "
                "compilation APIs (torch.compile/torch.export); in order to use this operator with those APIs "
                "you'll need to add a fake impl. Please see the following for next steps:  "
                "https://pytorch.org/tutorials/advanced/custom_ops_landing_page.html")
        raise NotImplementedError(f"Could not run '{self.qualname}' with arguments from the '{backend}' backend. "
                                  "This could be because the operator doesn't exist for this backend, or was "
                                  "omitted during the selective/custom build process (if using custom build). "
                                  f"'{self.qualname}' is only available for these backends: "
                                  f"[{', '.join(self.kernels)}].")

    def _batched(self, level: Any, args: tuple) -> Any:
        """The op for all samples of a level, by the function that was registered for it."""
        pairs = [self._unwrapped(level, x) for x in args]
        layers = _C._transforms()
        before = (layers, layers.index(level))
        _C._pop_transform(before)                # the function's ops are seen by what is outside the level
        try:
            info = _VmapInfo(level.size, level.randomness)
            dims = tuple(d for _, d in pairs[:self.positional])
            named = {p.name: v for p, (v, _) in zip(self.params[self.positional:], pairs[self.positional:])}
            rule = self.vmap or self.kernels["FuncTorchBatched"]
            answer = rule(info, dims, *(v for v, _ in pairs[:self.positional]), **named)
        finally:
            _C._pop_transform((layers, len(layers)))
        return level.wrap_output(answer, {})

    @staticmethod
    def _unwrapped(level: Any, x: Any) -> tuple[Any, Any]:
        """(an argument with the batch, its dim)"""
        if isinstance(x, list):
            pairs = [level.unwrap(t) for t in x]
            return [v for v, _ in pairs], [0 if b else None for _, b in pairs] if any(b for _, b in pairs) else None
        value, batched = level.unwrap(x)
        return value, 0 if batched else None

    def _warned(self, args: tuple, tensors: list[Any], backend: str) -> Any:
        """The result of an op without a registered gradient: differentiating it warns."""
        result = self._below(args, backend)
        message = (f"{self.qualname}: an autograd kernel was not registered to the Autograd key(s) but we are trying "
                   "to backprop through it. This may lead to silently incorrect behavior. This behavior is "
                   "deprecated and will be removed in a future version of PyTorch. If your operator is "
                   "differentiable, please ensure you have registered an autograd kernel to the correct Autograd "
                   "key (e.g. DispatchKey::Autograd, DispatchKey::CompositeImplicitAutograd). If your operator is "
                   "not differentiable, or to squash this warning and use the previous behavior, please register "
                   "torch::CppFunction::makeFallthrough() to DispatchKey::Autograd.")

        def watched(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or not (x.is_floating_point() or x.is_complex()):
                return x
            if not x.requires_grad:
                return WarnNotImplemented.apply(message, x, *tensors)
            if x.grad_fn is not None:
                x.register_hook(lambda g: warnings.warn(message, UserWarning, stacklevel=2))
            return x
        return type(result)(map(watched, result)) if isinstance(result, (tuple, list)) else watched(result)


_SUITS: dict[str, Any] = {"Tensor": torch.Tensor, "int": int, "float": (int, float), "bool": bool, "str": str,
                          "Scalar": (int, float, complex, bool), "ScalarType": (torch.dtype, int),
                          "Device": (torch.device, str, int)}


def _suits(param: Any, value: Any) -> bool:
    """Whether a value is of a parameter's kind."""
    if value is None:
        return param.optional
    base = param.kind.removesuffix("[]")
    kinds = _SUITS.get(base, object)
    if not param.kind.endswith("[]"):
        return isinstance(value, kinds)
    return isinstance(value, (list, tuple)) and all(isinstance(x, kinds) or x is None for x in value)


class _VmapInfo(torch._transforms.batched.VmapInfo):
    """What a rule for vmap is told: batch_size and randomness."""


class WarnNotImplemented(torch.autograd.Function):
    """An identity whose backward warns that no gradient is registered, and gives none."""

    @staticmethod
    def forward(ctx: Any, message: str, x: Any, *inputs: Any) -> Any:
        ctx.message, ctx.count = message, len(inputs)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        warnings.warn(ctx.message, UserWarning, stacklevel=2)
        return (None,) * (2 + ctx.count)


vars(WarnNotImplemented)["_backward_cls"].__name__ = "torch::autograd::WarnNotImplemented"
