"""torch._dispatch.python: contexts around PyTorch's dispatcher. Ops are Python rows here, so there is nothing to turn on."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mindtorch_v2 as torch

__all__ = ["enable_pre_dispatch", "enable_python_dispatcher", "no_python_dispatcher"]

CROSSREF_FUNCTIONALIZE = False


class _Unchanged:
    """A context in which ops run as they do outside it."""

    def __enter__(self) -> _Unchanged:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


class enable_python_dispatcher(_Unchanged):
    """Kernels written in Python are asked for: they always are."""


class no_python_dispatcher(_Unchanged):
    """The context of code that must not meet such kernels."""


class enable_pre_dispatch(_Unchanged):
    """The context of a recording above autograd."""


def all_py_loaded_overloads() -> Iterator[Any]:
    """The overloads that programs have asked for by torch.ops."""
    for namespace in torch.ops:
        packets = getattr(torch.ops, namespace)
        for name in packets:
            packet = getattr(packets, name)
            for overload in packet.overloads():
                yield getattr(packet, overload)


@contextmanager
def suspend_functionalization() -> Iterator[None]:
    """A block in which writes are not recorded as results; functionalize has no state outside torch.func."""
    yield


@contextmanager
def enable_crossref_functionalize() -> Iterator[None]:
    """A block in which PyTorch compares functionalized ops with plain ones."""
    yield


def check_tensor_metadata_matches(nv: Any, rv: Any, desc: Callable[[], str]) -> None:
    """Compares sizes, dtypes, strides and offsets of two tensors."""
    if not callable(desc):
        raise AssertionError(f"desc must be callable, got {type(desc)}")
    for what in ("size", "dtype", "stride", "storage_offset"):
        a, b = (getattr(v, what) for v in (nv, rv))
        a, b = (a(), b()) if callable(a) else (a, b)
        if a != b:
            raise AssertionError(f"{desc()}: {what.replace('_', ' ')} mismatch: {a} != {b}")


def check_metadata_matches(n: Any, r: Any, desc: Callable[[], str]) -> None:
    """Compares the tensors of two trees, one by one."""
    if not callable(desc):
        raise AssertionError(f"desc must be callable, got {type(desc)}")
    found, expected = (torch.utils._pytree.tree_leaves(tree) for tree in (n, r))
    if len(found) != len(expected):
        raise AssertionError(f"vals length mismatch: {len(found)} != {len(expected)}")
    for i, (nv, rv) in enumerate(zip(found, expected)):
        if isinstance(rv, torch.Tensor):
            check_tensor_metadata_matches(nv, rv, functools.partial("{} output {}".format, desc(), i))
