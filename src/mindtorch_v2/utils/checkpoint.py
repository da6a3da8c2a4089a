"""checkpoint: saves memory by running a part of forward again in backward."""
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils._checkpoint_frame import DESCRIBE, CheckpointError, Frame, GraphExecGroup, Replay  # noqa: F401
from mindtorch_v2.utils._selective_checkpoint import (  # noqa: F401
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = ["checkpoint", "checkpoint_sequential", "CheckpointError", "CheckpointFunction", "check_backward_validity",
           "detach_variable", "get_device_states", "set_device_states", "noop_context_fn", "set_checkpoint_early_stop",
           "DefaultDeviceType", "set_checkpoint_debug_enabled", "CheckpointPolicy", "SelectiveCheckpointContext",
           "create_selective_checkpoint_contexts", "SAC_IGNORED_OPS", "GraphExecGroup"]

_early_stop: bool | None = None                  # what the innermost set_checkpoint_early_stop says
_debug: bool | None = None


class CheckpointFunction(torch.autograd.Function):
    """Forward without recording; backward records forward again and differentiates it."""

    @staticmethod
    def forward(ctx: Any, fn: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        ctx.fn, ctx.replay = fn, Replay(preserve, contextlib.nullcontext())
        ctx.args = [None if isinstance(a, torch.Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        check_backward_validity(args)
        with torch.no_grad():
            return fn(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an "
                               "`inputs` parameter to .backward(). To resolve this error, you can either set "
                               "use_reentrant=False, or call .backward() without passing the `inputs` argument.")
        args = list(ctx.args)
        for i, t in zip(ctx.places, ctx.saved_tensors):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with ctx.replay.again(), torch.enable_grad():
            outputs = ctx.fn(*args)
        outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        pairs = [(o, g) for o, g in zip(outputs, grads) if isinstance(o, torch.Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None) + tuple(a.grad if isinstance(a, torch.Tensor) else None for a in args)


def noop_context_fn() -> tuple[Any, Any]:
    """The contexts of forward and replay where none are given."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], tuple[Any, ...]] = noop_context_fn, determinism_check: str = "default",
               debug: bool = False, preserve_rng_state: bool = True, early_stop: bool = True, **kwargs: Any) -> Any:
    """function(*args), its intermediate results not kept but computed again in backward."""
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, "
                      "calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, but "
                      "if you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for "
                      "more details on the differences between the two variants.", stacklevel=2)
        use_reentrant = True
    debug = debug if _debug is None else _debug
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    if determinism_check not in DESCRIBE:
        raise ValueError(f"determinism_check should be one of {list(DESCRIBE)}, but got {determinism_check}")
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    first, second = context_fn()
    frame = Frame(function, args, kwargs, Replay(preserve_rng_state, second), DESCRIBE[determinism_check],
                  early_stop if _early_stop is None else _early_stop, debug)
    return frame.forward(args, first)


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether checkpoints made inside stop their replay once all that was saved is there."""
    global _early_stop
    previous, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = previous


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """debug= of every checkpoint made inside; None: as each says itself."""
    global _debug
    previous, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = previous


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no input requires a gradient: the reentrant variant would give none."""
    if not any(x.requires_grad for x in inputs if isinstance(x, torch.Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors of a tuple without their history; whether they require a gradient stays."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in inputs)


class DefaultDeviceType:
    """The kind of device whose random state a checkpoint keeps where no argument tells."""
    _default_device_type = "npu"

    @staticmethod
    def set_device_type(device: str = "npu") -> None:
        """Sets it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """It."""
        return DefaultDeviceType._default_device_type


def _infer_device_type(*args: Any) -> str:
    """The kind of the first device other than the cpu among the tensors; the default's where there is none."""
    kinds = [x.device.type for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
    return next((kind for kind in kinds if kind != "cpu"), DefaultDeviceType.get_device_type())


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """The devices of the tensors among the arguments, other than the cpu, and their random states."""
    found = sorted({x.get_device() for x in torch.utils._pytree.tree_leaves(args)
                    if isinstance(x, torch.Tensor) and x.device.type == "npu"})
    return found, [torch.npu.get_rng_state(index) for index in found]


def set_device_states(devices: Sequence[int], states: Sequence[Any], *, device_type: str | None = None) -> None:
    """Gives devices the random states that get_device_states found."""
    kind = device_type or DefaultDeviceType.get_device_type()
    if kind == "meta":
        return
    module = torch.get_device_module(kind)
    for device, state in zip(devices, states, strict=True):
        module.set_rng_state(state, device)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None,
                          **kwargs: Any) -> Any:
    """A Sequential in checkpointed segments."""
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. "
                      "In version 2.9 we will raise an exception if use_reentrant is not passed. use_reentrant=False is "
                      "recommended, but if you need to preserve the current default behavior, you can pass "
                      "use_reentrant=True. Refer to docs for more details on the differences between the two variants.",
                      stacklevel=2)
        use_reentrant = True
    unknown = [name for name in kwargs if name != "preserve_rng_state"]
    if unknown:
        raise ValueError("Unexpected keyword arguments: " + ",".join(unknown))
    parts: Sequence[Any] = list(functions.children()) if isinstance(functions, torch.nn.Sequential) else list(functions)

    def segment(start: int, end: int) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for part in parts[start:end]:
                x = part(x)
            return x
        return forward

    size, end = len(parts) // segments, 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(segment(start, end), input, use_reentrant=use_reentrant, **kwargs)
    return segment(end, len(parts))(input)

torch._named.complete(__name__)
