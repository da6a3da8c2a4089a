"""Hooks that send gradients as they are, or in 16 bits."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._collectives import all_reduce
from mindtorch_v2.distributed._world import _get_default_group

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]


def _group(process_group: Any) -> Any:
    return _get_default_group() if process_group is None else process_group


def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    """The mean, as without a hook."""
    group = _group(process_group)
    row = bucket.buffer().div_(group.size())
    return all_reduce(row, group=group, async_op=True).get_future().then(lambda future: future.value()[0])   # type: ignore[union-attr]


def _compressed(process_group: Any, bucket: Any, dtype: Any) -> Any:
    group = _group(process_group)
    small = bucket.buffer().to(dtype).div_(group.size())
    row = bucket.buffer()

    def widen(future: Any) -> Any:
        row.copy_(future.value()[0])
        return row
    return all_reduce(small, group=group, async_op=True).get_future().then(widen)   # type: ignore[union-attr]


def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """The mean of gradients in float16."""
    return _compressed(process_group, bucket, torch.float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """The mean of gradients in bfloat16."""
    return _compressed(process_group, bucket, torch.bfloat16)


def _wrapper(hook: Callable[[Any, Any], Any], dtype: Any) -> Callable[[Any, Any], Any]:
    def wrapped(state: Any, bucket: Any) -> Any:
        wide = bucket.buffer()
        bucket.set_buffer(wide.to(dtype))

        def widen(future: Any) -> Any:
            value = future.value()
            wide.copy_(value[0] if isinstance(value, list | tuple) else value)
            bucket.set_buffer(wide)
            return wide
        return hook(state, bucket).then(widen)
    return wrapped


def fp16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Another hook, on gradients in float16."""
    return _wrapper(hook, torch.float16)


def bf16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Another hook, on gradients in bfloat16."""
    return _wrapper(hook, torch.bfloat16)
