"""checkpoint: saves memory by running a part of forward again in backward."""
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import mindtorch_v2 as torch


class _Replay:
    """Runs fn again with the random state and the autocast state it had the first time."""

    def __init__(self, preserve_rng_state: bool, context: Any) -> None:
        self.state = (torch.get_rng_state(), torch._C._npu_rng_states()) if preserve_rng_state else None
        self.autocast = [torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
                         for kind in ("cpu", "npu")]
        self.context = context

    @contextlib.contextmanager
    def again(self) -> Any:
        with contextlib.ExitStack() as stack:
            for block in self.autocast:
                stack.enter_context(block)
            if self.state is not None:
                stack.enter_context(torch.random.fork_rng())
                torch.set_rng_state(self.state[0])
                torch._C._npu_set_rng_states(self.state[1])
            stack.enter_context(self.context)
            yield


class _Reentrant(torch.autograd.Function):
    """Forward without recording; backward records forward again and differentiates it."""

    @staticmethod
    def forward(ctx: Any, fn: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        ctx.fn, ctx.replay = fn, _Replay(preserve, contextlib.nullcontext())
        ctx.args = [None if isinstance(a, torch.Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with torch.no_grad():
            return fn(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
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


class _Frame:
    """One checkpointed call: saved tensors are numbered in forward and found again by number in the replay."""

    def __init__(self, run: Callable[[], Any], replay: _Replay) -> None:
        self.run, self.replay, self.count = run, replay, 0
        self.found: list[Any] | None = None

    def pack(self, x: Any) -> int:
        self.count += 1
        return self.count - 1

    def unpack(self, number: int) -> Any:
        if self.found is None:
            found: list[Any] = []

            def keep(x: Any) -> int:
                found.append(x.detach())
                return len(found) - 1
            with self.replay.again(), torch.enable_grad(), \
                    torch.autograd.graph.saved_tensors_hooks(keep, lambda i: found[i]):
                self.run()
            self.found = found
        if number >= len(self.found):
            raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the original "
                                  f"forward and recomputation.\nNumber of tensors saved during forward: {self.count}\n"
                                  f"Number of tensors saved during recomputation: {len(self.found)}.")
        return self.found[number]


class CheckpointError(RuntimeError):
    """The replay did not do what forward had done."""


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], tuple[Any, ...]] | None = None, determinism_check: str = "default",
               debug: bool = False, preserve_rng_state: bool = True, early_stop: bool = True, **kwargs: Any) -> Any:
    """function(*args), its intermediate results not kept but computed again in backward."""
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. The default is "
                      "use_reentrant=False.", stacklevel=2)
        use_reentrant = False
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        return _Reentrant.apply(function, preserve_rng_state, *args)
    first, second = context_fn() if context_fn else (contextlib.nullcontext(), contextlib.nullcontext())
    frame = _Frame(lambda: function(*args, **kwargs), _Replay(preserve_rng_state, second))
    with torch.autograd.graph.saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None,
                          **kwargs: Any) -> Any:
    """A Sequential in checkpointed segments."""
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
