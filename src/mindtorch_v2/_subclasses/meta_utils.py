"""torch._subclasses.meta_utils: tensors of the same kind without memory."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch


class MetaConverter:
    """Gives tensors of the meta device for tensors: the same one for the same tensor, views of one storage for views."""

    def __init__(self, *, copy_data: bool = False) -> None:
        if copy_data:
            raise NotImplementedError("[torch._subclasses.meta_utils.MetaConverter] copy_data is not offered")
        self._made: dict[int, tuple[Any, Any]] = {}          # by id, beside the tensor itself, which must stay
        self._storages: dict[int, tuple[Any, Any]] = {}

    def __call__(self, t: Any, shape_env: Any = None, **options: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"expected a Tensor, got {type(t).__name__}")
        found = self._made.get(id(t))
        if found is None:
            found = self._made[id(t)] = t, self.meta_tensor(t)
        return found[1]

    def meta_tensor(self, t: Any) -> Any:
        """A tensor without memory of the shape, strides, dtype and offset of one that has some."""
        key = t.untyped_storage().data_ptr() if t.device.type != "meta" else id(t.untyped_storage())
        if key not in self._storages:
            whole = torch.empty(t.untyped_storage().nbytes(), dtype=torch.uint8, device="meta")
            self._storages[key] = t, whole.untyped_storage()
        made = torch.empty(0, dtype=t.dtype, device="meta")
        made.set_(self._storages[key][1], t.storage_offset(), t.size(), t.stride())
        if isinstance(t, torch.nn.Parameter):
            return torch.nn.Parameter(made, t.requires_grad)
        return made.requires_grad_(t.requires_grad)


def assert_metadata_eq(assert_eq: Callable[[object, object], None], m1: Any, m2: Any, *, skip_symbolic: bool = False,
                       skip_leaf: bool = False) -> None:
    """Whether two tensors look alike, by a function that compares values."""
    assert_eq(m1.dtype, m2.dtype)
    if not skip_symbolic:
        assert_eq(m1.shape, m2.shape)
        assert_eq(m1.stride(), m2.stride())
        assert_eq(m1.storage_offset(), m2.storage_offset())
    assert_eq(m1.requires_grad, m2.requires_grad)
    if not skip_leaf:
        assert_eq(m1.is_leaf, m2.is_leaf)


def assert_eq(a: Any, b: Any) -> None:
    """Fails where two values differ, with both."""
    if a != b:
        raise AssertionError(f"{a} != {b}")


def is_sparse_compressed(t: Any) -> bool:
    """Whether a tensor's layout is one of the four compressed ones."""
    return isinstance(t, torch.Tensor) and t.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def is_sparse_any(t: Any) -> bool:
    """Whether a tensor's layout is a sparse one."""
    return isinstance(t, torch.Tensor) and t.layout is torch.sparse_coo or is_sparse_compressed(t)


def safe_is_leaf(t: Any) -> bool:
    """Whether a tensor is a leaf; no where it cannot say so, as one of inference mode."""
    try:
        return bool(t.is_leaf)
    except RuntimeError:
        return False
