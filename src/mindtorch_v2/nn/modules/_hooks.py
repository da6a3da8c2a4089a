"""Hooks of modules: removable handles, the registries shared by all modules, backward hooks."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import OrderedDict
from typing import Any, Callable

import mindtorch_v2 as torch

_next_id = itertools.count()


class RemovableHandle:
    """Takes one entry out of a hook dictionary, once, on `remove()` or on leaving a `with`."""

    id: int
    hooks_dict_ref: Any
    extra_dict_ref: tuple[Any, ...]

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = next(_next_id)
        extra = [] if extra_dict is None else extra_dict
        extra = extra if isinstance(extra, list) else [extra]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra)

    def remove(self) -> None:
        """Forget the hook; a second call does nothing."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id, extra = state
        empty: OrderedDict[Any, Any] = OrderedDict()
        self.hooks_dict_ref = weakref.ref(empty if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(empty if d is None else d) for d in extra)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


class _WrappedHook:
    """A hook bound weakly to its module, so that the module can still be collected."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        self.hook = hook
        self.module = None if module is None else weakref.ref(module)
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            if hasattr(hook, name):
                setattr(self, name, getattr(hook, name))

    @property
    def with_module(self) -> bool:
        return self.module is not None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.module is None:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[Any, Any]:
        return {"hook": self.hook, "module": None if self.module is None else self.module()}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        type(self).__init__(self, state["hook"], state["module"])

    def __deepcopy__(self, memo: dict[Any, Any]) -> _WrappedHook:
        target = None if self.module is None else self.module()
        return _WrappedHook(self.hook, memo.get(id(target), target))


_global_buffer_registration_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_module_registration_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_parameter_registration_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_backward_pre_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_backward_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_forward_pre_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_forward_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[Any, Any] = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[Any, Any] = OrderedDict()

# Filled by the first global call hook ever registered: one test on the way of every call.
global_call_hooks_seen: list[Any] = []


class _GlobalKind:
    """Whether the global backward hooks are full ones (True), old ones (False) or none yet."""

    is_full: bool | None = None


def add_hook(
    hooks: OrderedDict[Any, Any], hook: Callable[..., Any], *, extra: list[Any] | None = None, prepend: bool = False
) -> RemovableHandle:
    """Put `hook` into `hooks` and return the handle that takes it out again."""
    handle = RemovableHandle(hooks, extra_dict=extra)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` for every buffer registered from now on."""
    return add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` for every submodule registered from now on."""
    return add_hook(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, parameter)` for every parameter registered from now on."""
    return add_hook(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of every module."""
    global_call_hooks_seen.append(True)
    return add_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of every module."""
    global_call_hooks_seen.append(True)
    extra = [_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called]
    handle = add_hook(_global_forward_hooks, hook, extra=extra)
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the backward of every module."""
    global_call_hooks_seen.append(True)
    return add_hook(_global_backward_pre_hooks, hook)


def _register_global_backward(hook: Callable[..., Any], full: bool) -> RemovableHandle:
    if _GlobalKind.is_full is (not full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a "
            "global Module hook. Please use only one of them."
        )
    _GlobalKind.is_full = full
    global_call_hooks_seen.append(True)
    return add_hook(_global_backward_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` in the backward of every module."""
    return _register_global_backward(hook, True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Attach the old kind of backward hook to every module; prefer the full one."""
    return _register_global_backward(hook, False)


def global_backward_hooks(full: bool) -> list[Callable[..., Any]]:
    """The global backward hooks of one kind."""
    return list(_global_backward_hooks.values()) if _GlobalKind.is_full is full else []


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _spread(index: list[int], values: Any, size: int) -> tuple[Any, ...]:
    """Put `values` at the places `index` of a tuple of `size` otherwise None."""
    result: list[Any] = [None] * size
    for i, value in zip(index, values):
        result[i] = value
    return tuple(result)


def warn_of_old_hooks(inputs: Any, result: Any, node: Any) -> None:
    """What the hooks from before the full ones do not see of a module's gradients."""
    full = "Please use register_full_backward_hook to get the documented behavior."
    soon = "is deprecated and will be removed in future versions."
    results, given = _as_tuple(result), _as_tuple(inputs)
    text = None
    if not all(isinstance(r, torch.Tensor) for r in results):
        text = (f"Using non-full backward hooks on a Module that does not return a single Tensor or a tuple of Tensors {soon} This "
                f"hook will be missing some of the grad_output. {full}")
    elif not all(isinstance(x, torch.Tensor) for x in given):
        text = ("Using non-full backward hooks on a Module that does not take as input a single Tensor or a tuple of Tensors "
                f"{soon} This hook will be missing some of the grad_input. {full}")
    else:
        nodes = {r.grad_fn for r in results if r.grad_fn is not None}
        if len(nodes) > 1:
            text = (f"Using a non-full backward hook when outputs are generated by different autograd Nodes {soon} This hook will "
                    f"be missing some grad_output. {full}")
        elif nodes != {node}:
            text = (f"Using a non-full backward hook when outputs are nested in python data structure {soon} This hook will be "
                    "missing some grad_output.")
        elif {x.grad_fn for x in given if x.grad_fn is not None} != {following for following, _ in node.next_functions}:
            text = (f"Using a non-full backward hook when the forward contains multiple autograd Nodes {soon} This hook will be "
                    f"missing some grad_input. {full}")
    if text is not None:
        warnings.warn(text, FutureWarning, stacklevel=4)


class BackwardHookFunction(torch.autograd.Function):
    """Identity whose backward shows the gradients to a callback, which may replace them."""

    @staticmethod
    def forward(ctx: Any, tap: Callable[..., Any], *tensors: Any) -> Any:
        ctx.tap = tap
        ctx.set_materialize_grads(False)
        views = tuple(t.view_as(t) for t in tensors)
        ctx.mark_non_differentiable(*[view for view, t in zip(views, tensors) if not t.requires_grad])
        return views

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.tap(grads))


class BackwardHook:
    """Wraps the inputs and outputs of one call so that its full backward hooks run."""

    def __init__(self, module: Any, hooks: list[Any], pre_hooks: list) -> None:
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.input_index: list[int] | None = None
        self.output_index: list[int] = []
        self.n_inputs = self.n_outputs = 0

    def _wrap(self, args: tuple[Any, ...], tap: Callable[..., Any]) -> tuple[tuple, list[int] | None]:
        index = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        tensors = [args[i] for i in index]
        if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            return args, None
        wrapped = list(args)
        for i, new in zip(index, _as_tuple(BackwardHookFunction.apply(tap, *tensors))):
            wrapped[i] = new
        # A namedtuple is rebuilt from fields, a plain tuple from one iterable.
        kind = type(args)
        rebuilt = kind(*wrapped) if hasattr(args, "_fields") else kind(wrapped)
        return rebuilt, index

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple:
        """Tap the inputs: their gradients are what the hooks see as grad_input."""
        args, self.input_index = self._wrap(args, self._on_grad_inputs)
        self.n_inputs = len(args)
        return args

    def setup_output_hook(self, result: Any) -> Any:
        """Tap the outputs: their gradients are what the hooks see as grad_output."""
        single = not isinstance(result, tuple)
        outputs = (result,) if single else result
        self.n_outputs = len(outputs)
        self.output_index = [i for i, o in enumerate(outputs) if isinstance(o, torch.Tensor)]
        outputs, _ = self._wrap(outputs, self._on_grad_outputs)
        return outputs[0] if single else outputs

    def _on_grad_outputs(self, grads: tuple[Any, ...]) -> tuple:
        self.grad_outputs = _spread(self.output_index, grads, self.n_outputs)
        for hook in self.pre_hooks:
            result = hook(self.module, self.grad_outputs)
            if result is None:
                continue
            self._check_count("Backward pre hook", "grad_output", result, self.n_outputs)
            self.grad_outputs = _as_tuple(result)
        grads = tuple(self.grad_outputs[i] for i in self.output_index)
        if self.input_index is None:
            self._run_without_inputs()
        return grads

    def _run_without_inputs(self) -> None:
        none = (None,) * self.n_inputs
        warnings.warn("Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
                      "require gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#"
                      "torch.nn.Module.register_full_backward_hook for more details.", stacklevel=5)
        for hook in self.hooks:
            result = hook(self.module, none, self.grad_outputs)
            if result is not None and not all(r is None for r in _as_tuple(result)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires "
                    "gradient should always return None or None for all gradients."
                )
        self.grad_outputs = None

    def _on_grad_inputs(self, grads: tuple[Any, ...]) -> tuple:
        index: Any = self.input_index  # known: only tapped inputs call this
        grad_inputs = _spread(index, grads, self.n_inputs)
        if self.grad_outputs is None:
            return grads
        for hook in self.hooks:
            result = hook(self.module, grad_inputs, self.grad_outputs)
            if result is None:
                continue
            self._check_count("Backward hook", "grad_input", result, self.n_inputs)
            grad_inputs = _as_tuple(result)
        self.grad_outputs = None
        return tuple(grad_inputs[i] for i in index)

    @staticmethod
    def _check_count(who: str, what: str, result: Any, expected: int) -> None:
        got = len(result)
        if got != expected:
            raise RuntimeError(
                f"{who} returned an invalid number of {what}, got {got}, but expected {expected}"
            )
