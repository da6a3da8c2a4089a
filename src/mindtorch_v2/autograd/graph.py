"""The recorded graph: hooks on saved tensors, on nodes and on gradients of several tensors at once."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import Node, RemovableHandle  # noqa: F401


class saved_tensors_hooks:
    """Inside the block, pack(x) is kept in place of each tensor saved for backward, and unpack gives it back."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
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


def get_gradient_edge(tensor: Any) -> tuple[Any, int]:
    """The node and output number where a gradient of the tensor goes."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return tensor.grad_fn, tensor.output_nr


def register_multi_grad_hook(tensors: Sequence[Any], fn: Callable[..., None], *, mode: str = "all") -> Any:
    """Calls fn once per backward: with all the tensors' gradients ('all') or with the first that comes ('any')."""
    lock, pending = threading.Lock(), {}
    handles: list[Any] = []

    def seen(i: int, grad: Any) -> None:
        with lock:
            if mode == "any":
                if pending:
                    return
                pending[i] = grad
            else:
                pending[i] = grad
                if len(pending) < len(tensors):
                    return
                grads = [pending[k] for k in range(len(tensors))]
                pending.clear()
        fn(grad) if mode == "any" else fn(grads)

    for i, tensor in enumerate(tensors):
        handles.append(tensor.register_hook(lambda grad, i=i: seen(i, grad)))
    return _Handles(handles)


class _Handles:
    """Removes several hooks at once."""

    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def increment_version(tensor: Any) -> None:
    """Tells autograd that the tensor's memory was changed behind its back."""
    for t in (tensor,) if isinstance(tensor, _C.TensorBase) else tensor:
        _C._core._bump(t)
