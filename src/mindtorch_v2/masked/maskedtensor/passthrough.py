"""Ops that move items: they go over data and mask alike."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.masked.maskedtensor.core import DISPATCH, _map_mt_args_kwargs, _wrap_result

__all__: list[str] = []

_NAMES = ("select transpose split t slice slice_backward select_backward index expand view _unsafe_view _reshape_alias cat "
          "unsqueeze unfold unfold_backward im2col col2im stack").split()
PASSTHROUGH_FNS = [getattr(torch.ops.aten, name) for name in _NAMES if hasattr(torch.ops.aten, name)]


def _is_pass_through_fn(fn: Any) -> bool:
    return fn in PASSTHROUGH_FNS


def _apply_pass_through_fn(fn: Any, *args: Any, **kwargs: Any) -> Any:
    data_args, data_kwargs = _map_mt_args_kwargs(args, kwargs, lambda x: x.get_data())
    mask_args, mask_kwargs = _map_mt_args_kwargs(args, kwargs, lambda x: x.get_mask())
    return _wrap_result(fn(*data_args, **data_kwargs), fn(*mask_args, **mask_kwargs))


DISPATCH.update(dict.fromkeys(_NAMES, _apply_pass_through_fn))
