"""One checkpointed call without reentrant backward: what forward saved, and the replay that makes it again."""
from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils._checkpoint_debug import OpLog, report


class CheckpointError(RuntimeError):
    """The replay did not do what forward had done."""


class _Stop(Exception):
    """Stops a recomputation that has produced all tensors that backward needs."""


DESCRIBE: dict[str, Callable[[Any], Any]] = {
    "default": lambda x: {"shape": x.shape, "dtype": x.dtype, "device": x.device}, "none": lambda x: None}

_HINT = """

Tip: To see a more detailed error message, either pass `debug=True` to
`torch.utils.checkpoint.checkpoint(...)` or wrap the code block
with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to
enable checkpoint‑debug mode globally.
"""


class GraphExecGroup:
    """Several calls of backward inside the block share what the first replays."""
    _current: GraphExecGroup | None = None

    def __enter__(self) -> None:
        if GraphExecGroup._current is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested. "
                               f"Already inside group {GraphExecGroup._current}")
        GraphExecGroup._current = self

    def __exit__(self, *exc: Any) -> None:
        GraphExecGroup._current = None

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        return cls._current


class Replay:
    """Runs a function again with the random state and the autocast state it had the first time."""

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


class _SavedInputs(torch.autograd.Function):
    """Keeps the tensors among the arguments as autograd keeps tensors: watched for changes, seen by outer hooks."""

    @staticmethod
    def forward(ctx: Any, anchor: Any, *args: Any) -> Any:
        ctx.save_for_backward(*(a if isinstance(a, torch.Tensor) else None for a in args))
        ctx.others = [None if isinstance(a, torch.Tensor) else a for a in args]
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("Did not expect to backward on this graph")


class _Saved:
    """Stands in the graph for a tensor that forward saved."""
    found: Any = None                            # of the run of backward that replayed last: the tensor; then None
    run: Any = None


class Frame:
    """Saved tensors are numbered in forward and found again by number in the replay, once for each run of backward."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], replay: Replay,
                 describe: Callable[[Any], Any], early_stop: bool, debug: bool) -> None:
        self.function, self.kwargs, self.replay, self.describe = function, kwargs, replay, describe
        self.early_stop = early_stop
        self.logs = (OpLog(), OpLog()) if debug else None
        self.saved: list[tuple[weakref.ref[_Saved], Any]] = []       # what forward saved, and its description
        self.runs: set[Any] = set()                                  # the runs of backward that have replayed
        self.inputs: Any = _SavedInputs.apply(torch.empty(0, requires_grad=True), *args).grad_fn

    def forward(self, args: tuple[Any, ...], context: Any) -> Any:
        if self.inputs is None:                  # nothing is recorded
            with context:
                return self.function(*args, **self.kwargs)
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack), context, \
                self.logs[0] if self.logs else contextlib.nullcontext():
            return self.function(*args, **self.kwargs)

    def _arguments(self) -> list[Any]:
        tensors = self.inputs.saved_tensors
        return [other if t is None else t for t, other in zip(tensors, self.inputs.others)]

    def pack(self, x: Any) -> _Saved:
        made = _Saved()
        self.saved.append((weakref.ref(made), self.describe(x)))
        return made

    def unpack(self, saved: _Saved) -> Any:
        group = GraphExecGroup._get_current_group()
        run = group or torch._C._current_run()
        if run == -1:                            # no backward runs: somebody looks at a saved tensor
            run = object()
        if run not in self.runs:
            try:
                self.recompute(run)
            except CheckpointError as e:
                if self.logs is None:
                    raise CheckpointError(f"{e}{_HINT}") from None
                raise CheckpointError(report(*self.logs)) from e
        if saved.found is None or saved.run is not run and saved.run != run:
            overlapping = ("Performing two backward calls that overlap (i.e. require the same saved activation in order to "
                           "compute gradients) is not allowed while under the torch.utils.checkpoint.GraphExecGroup context. "
                           if group is not None else "")
            raise CheckpointError("torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked "
                                  f"once. {overlapping}If you are calling ctx.saved_tensors in backward, make sure to do so "
                                  "only once. Otherwise please open an issue with details on your use case.")
        found, saved.found = saved.found, None
        return found

    def recompute(self, run: Any) -> None:
        """Runs the function again and gives what it saves to those that stand in the graph."""
        found: list[Any] = []                    # descriptions

        def keep(x: Any) -> Any:
            if len(found) == len(self.saved):
                raise CheckpointError("torch.utils.checkpoint: trying to save more tensors during recomputation than during "
                                      "the original forward pass.")
            plain, saved = x.detach(), self.saved[len(found)][0]()
            found.append(self.describe(x))
            if saved is not None:                # else backward inside forward has used it up
                saved.found, saved.run = plain, run
            if self.early_stop and len(found) == len(self.saved):
                raise _Stop
            return plain
        with contextlib.suppress(_Stop), self.replay.again(), torch.enable_grad(), \
                self.logs[1] if self.logs else contextlib.nullcontext(), \
                torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            self.function(*self._arguments(), **self.kwargs)
        self.check(found)
        self.runs.add(run)

    def check(self, found: list[Any]) -> None:
        if len(found) != len(self.saved):
            raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the original "
                                  f"forward and recomputation.\nNumber of tensors saved during forward: {len(self.saved)}\n"
                                  f"Number of tensors saved during recomputation: {len(found)}.")
        wrong = [(i, was, now) for i, ((_, was), now) in enumerate(zip(self.saved, found)) if was != now]
        if wrong:
            shown = "".join(f"tensor at position {i}:\nsaved metadata: {was}\nrecomputed metadata: {now}\n"
                            for i, was, now in wrong)
            raise CheckpointError("torch.utils.checkpoint: Recomputed values for the following tensors have different "
                                  f"metadata than during the forward pass.\n{shown}.")

