"""The recorded graph: hooks on saved tensors, on nodes and on gradients of several tensors at once."""
from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mindtorch_v2 import _C, _named
from mindtorch_v2._C import Node, RemovableHandle  # noqa: F401

__all__ = ["saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks", "register_multi_grad_hook",
           "allow_mutation_on_saved_tensors", "Node", "GradientEdge", "get_gradient_edge", "increment_version",
           "set_warn_on_accumulate_grad_stream_mismatch"]


class saved_tensors_hooks:
    """Inside the block, pack(x) is kept in place of each tensor saved for backward, and unpack gives it back."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if not callable(self.pack_hook) or not callable(self.unpack_hook):
            raise TypeError("_push_saved_tensors_default_hooks(): incompatible function arguments. The following argument types "
                            "are supported:\n    1. (arg0: collections.abc.Callable, arg1: collections.abc.Callable) -> None\n\n"
                            f"Invoked with: {self.pack_hook!r}, {self.unpack_hook!r}")
        _C._push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: Any) -> None:
        _C._pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Keeps saved tensors in host memory between forward and backward."""

    def __init__(self, pin_memory: bool = False, device_type: str = "npu") -> None:
        def pack(x: Any) -> tuple:
            host = x.cpu() if x.device.type != "cpu" else x.clone()
            return x.device, host.pin_memory() if pin_memory else host

        def unpack(packed: tuple) -> Any:
            return packed[1].to(packed[0], non_blocking=pin_memory)
        super().__init__(pack, unpack)


class _Handle:
    """Stands for a saved tensor in the graph."""


class _AllowMutationOnSavedContext:
    """The saved tensors of a with block, and copies of those that were changed since: a mode that sees every op."""

    def __init__(self) -> None:
        self.original: Any = weakref.WeakKeyDictionary()     # handle -> tensor
        self.cloned: Any = weakref.WeakKeyDictionary()       # handle -> the tensor as it was saved
        self._handles: dict[tuple[int, int], Any] = {}       # storage and version -> the handles of what was saved of it

    def pack(self, tensor: Any) -> _Handle:
        handle = _Handle()
        self.original[handle] = tensor
        self._handles.setdefault(_state(tensor), weakref.WeakSet()).add(handle)
        return handle

    def unpack(self, handle: _Handle) -> Any:
        found = self.cloned.get(handle)
        found = self.original.get(handle) if found is None else found
        assert found is not None, ("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"
                                   "in which the graph was originally recorded.")
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for i, param in enumerate(func._schema.arguments):
            value = kwargs.get(param.name, args[i] if i < len(args) else None) if param.is_write else None
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(item, _C.TensorBase):
                    self._keep(item)
        return func(*args, **kwargs)

    def _keep(self, changed: Any) -> None:
        """Copies what was saved of a tensor that is about to change."""
        for handle in self._handles.pop(_state(changed), ()):
            if handle in self.original:
                self.cloned[handle] = self.original.pop(handle).clone()

    def clear(self) -> None:
        """Forgets all tensors."""
        self.original.clear()
        self.cloned.clear()
        self._handles.clear()


def _state(tensor: Any) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, 0 if tensor.is_inference() else tensor._version


_allowing_mutation = threading.local()


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[Any]:
    """Inside the block, tensors that were saved for backward may be changed: what is changed is copied first."""
    if getattr(_allowing_mutation, "on", False):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    saved = _AllowMutationOnSavedContext()
    with saved_tensors_hooks(saved.pack, saved.unpack):
        _C._push_dispatch_mode(saved)
        _allowing_mutation.on = True
        try:
            yield saved
        finally:
            _allowing_mutation.on = False
            _C._pop_dispatch_mode()
            saved.clear()


class GradientEdge(NamedTuple):
    """Where a gradient goes: a node and the number of its output. Stands for the tensor in grad()."""
    node: Any
    output_nr: int
    ownership_token: Any = None


def _get_grad_fn_or_grad_acc(tensor: Any) -> Any:
    """The node that a tensor's gradient goes to."""
    if isinstance(tensor, GradientEdge):
        return tensor.node
    if not tensor.requires_grad:
        raise AssertionError("Expected gradient function to be set")
    node = tensor.grad_fn
    return _C._core._accumulator(tensor) if node is None else node


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The edge of a tensor, which keeps the graph alive but not the tensor."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(_get_grad_fn_or_grad_acc(tensor), tensor.output_nr)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside the block, saved_tensors_hooks are an error with this message."""
    previous = _C._forbid_saved_hooks(error_message)
    try:
        yield
    finally:
        _C._forbid_saved_hooks(previous)


def register_multi_grad_hook(tensors: Sequence[Any], fn: Callable[..., None], *, mode: str = "all") -> Any:
    """Calls fn once per backward: with the gradients of all tensors that take part in it (None for the others) when
    the last of them is computed ('all'), or with the first that comes ('any')."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    pending: dict[int, tuple[int, list[Any]]] = {}   # run of backward -> gradients still to come, those that came
    fired: set[int] = set()

    def all_of(i: int, grad: Any) -> None:
        with lock:
            run = _C._current_run()
            left, grads = pending.get(run) or (sum(_C._will_run(t) for t in tensors), [None] * len(tensors))
            grads[i] = grad
            pending[run] = left - 1, grads
            if left > 1:
                return
            del pending[run]
        fn(grads)

    def any_of(i: int, grad: Any) -> None:
        with lock:
            run = _C._current_run()
            if grad is None or run in fired:
                return
            fired.clear()
            fired.add(run)
        fn(grad)

    if not all(t.requires_grad for t in tensors):
        raise AssertionError("Expected gradient function to be set")
    seen = all_of if mode == "all" else any_of
    return _MultiHandle([t.register_hook(lambda grad, i=i: seen(i, grad)) for i, t in enumerate(tensors)])


class _MultiHandle:
    """Removes several hooks at once."""

    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Whether to warn where a gradient comes from another stream than .grad is added to on: nothing warns here."""


def increment_version(tensor: Any) -> None:
    """Tells autograd that the tensor's memory was changed behind its back."""
    if not isinstance(tensor, (_C.TensorBase, Iterable)):
        raise RuntimeError("increment_version expect a Iterable[Tensor] as input")
    for t in (tensor,) if isinstance(tensor, _C.TensorBase) else tensor:
        _C._core._bump(t)

_named.complete(__name__)
