"""Decorators of torch._refs: a function that also takes out=, and the function below them."""
from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch


def out_wrapper(*out_names: str, exact_dtype: bool = False, pass_is_out: bool = False,
                preserve_memory_format: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function takes out= (of several results by these names) and copies what it gives there."""
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapped(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            result = fn(*args, **(kwargs | ({"is_out": out is not None} if pass_is_out else {})))
            if out is None:
                return result
            several = isinstance(result, (tuple, list))
            for into, value in zip(out, result, strict=True) if several else ((out, result),):
                _safe_copy_out(copy_from=value, copy_to=_maybe_resize_out(into, value.shape), exact_dtype=exact_dtype)
            return out
        signature = inspect.signature(fn)
        kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD and p.name != "is_out"]
        wrapped.__signature__ = signature.replace(     # type: ignore[attr-defined]
            parameters=[*kept, inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)])
        wrapped._torch_decompositions_out_wrapper = True     # type: ignore[attr-defined]
        return wrapped
    return decorate


def _maybe_remove_out_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function below out_wrapper, or the function itself."""
    return inspect.unwrap(fn, stop=lambda f: not hasattr(f, "_torch_decompositions_out_wrapper"))


def _maybe_resize_out(out: Any, shape: Any, memory_format: Any = None) -> Any:
    """out in a shape; a warning where it has items that are lost."""
    if out.shape == tuple(shape):
        return out
    if out.numel():
        warnings.warn(f"An output with one or more elements was resized since it had shape {tuple(out.shape)} which does not "
                      f"match the required output shape {tuple(shape)}. This behavior is deprecated, and in a future PyTorch "
                      "release outputs will not be resized unless they have zero elements. You can explicitly reuse an out "
                      "tensor t by resizing it, inplace, to zero elements with t.resize_(0).", stacklevel=2)
    return out.resize_(shape)


def _safe_copy_out(*, copy_from: Any, copy_to: Any, exact_dtype: bool = False) -> Any:
    """copy_to with the values of copy_from, where dtype and device allow it."""
    if copy_from.device != copy_to.device:
        raise RuntimeError(f"Attempting to copy from device {copy_from.device} to device {copy_to.device}, but cross-device "
                           f"copies are not allowed!")
    if exact_dtype and copy_from.dtype != copy_to.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {copy_from.dtype} but got {copy_to.dtype} instead")
    if not torch.can_cast(copy_from.dtype, copy_to.dtype):
        raise RuntimeError(f"Attempting to cast from {copy_from.dtype} to out tensor with dtype {copy_to.dtype}, but this can't "
                           f"be cast because it is not safe!")
    return copy_to.copy_(copy_from)


def _maybe_convert_to_dtype(a: Any, dtype: Any) -> Any:
    """A tensor, a number, or a sequence of them, in a dtype."""
    if isinstance(a, torch.Tensor):
        return a if a.dtype == dtype else a.to(dtype)
    if isinstance(a, (bool, int, float, complex)):
        return torch._prims_common.dtype_to_type(dtype)(a)
    if isinstance(a, (list, tuple)):
        return tuple(_maybe_convert_to_dtype(x, dtype) for x in a)
    if a is None:
        return None
    raise ValueError(f"Received unsupported type {type(a)}. Expected TensorLike, Number, or Sequence.")


class elementwise_type_promotion_wrapper:
    """A decorator: the named arguments are brought to the dtype to compute in, the result to the one to return."""

    def __init__(self, *, type_promotion_kind: Any, type_promoting_args: Any = None) -> None:
        self.kind, self.names = type_promotion_kind, type_promoting_args or ()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(fn)

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            promoted = [bound.arguments[name] for name in self.names if name in bound.arguments]
            leaves = torch.utils._pytree.tree_leaves(promoted)
            computed, returned = torch._prims_common.elementwise_dtypes(*leaves, type_promotion_kind=self.kind)
            for name in self.names:
                if name in bound.arguments:
                    bound.arguments[name] = _maybe_convert_to_dtype(bound.arguments[name], computed)
            result = fn(**bound.arguments)
            if isinstance(result, torch.Tensor):
                return _maybe_convert_to_dtype(result, returned)
            return type(result)(_maybe_convert_to_dtype(x, returned) for x in result)
        wrapped.__signature__ = signature     # type: ignore[attr-defined]
        return wrapped
