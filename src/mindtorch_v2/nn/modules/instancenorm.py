"""Instance normalisation."""

from __future__ import annotations

import warnings
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn.modules.batchnorm import _dims_check, _LazyNormBase, _NormBase

Tensor = torch.Tensor

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    """Normalises each channel of each sample."""

    _unbatched: int = 0

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def _get_no_batch_dim(self) -> int:
        return self._unbatched

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[Any, Any],
        strict: bool,
        missing_keys: list[Any],
        unexpected_keys: list[Any],
        error_msgs: list[Any],
    ) -> None:
        version = local_metadata.get("version")
        if version is None and not self.track_running_stats:
            keys = [prefix + name for name in ("running_mean", "running_var")]
            keys = [key for key in keys if key in state_dict]
            if keys:
                name = type(self).__name__
                listed = " and ".join(f'"{key}"' for key in keys)
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {listed} for {name} with "
                    "track_running_stats=False. If state_dict is a checkpoint saved before 0.4.0, "
                    "this may be expected because "
                    f"{name} does not track running stats by default since 0.4.0. Please remove "
                    "these keys from state_dict. If the running stats are actually needed, "
                    "instead set track_running_stats=True in "
                    f"{name} to enable them. See the documentation of {name} for details."
                )
                for key in keys:
                    state_dict.pop(key)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        dim = input.dim() - self._unbatched
        if input.size(dim) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={dim} to match num_features "
                    f"({self.num_features}), but got: {input.size(dim)}."
                )
            warnings.warn(
                f"input's size at dim={dim} does not match num_features. "
                "You can silence this warning by not passing in num_features, "
                "which is not used because affine=False",
                stacklevel=2,
            )
        if dim == 0:
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L)."""

    _unbatched = 2
    _check_input_dim = _dims_check(2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W)."""

    _unbatched = 3
    _check_input_dim = _dims_check(3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W)."""

    _unbatched = 4
    _check_input_dim = _dims_check(4, 5)


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm1d that takes num_features from its first input."""

    cls_to_become = InstanceNorm1d
    _unbatched = 2
    _check_input_dim = _dims_check(2, 3)


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm2d that takes num_features from its first input."""

    cls_to_become = InstanceNorm2d
    _unbatched = 3
    _check_input_dim = _dims_check(3, 4)


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm3d that takes num_features from its first input."""

    cls_to_become = InstanceNorm3d
    _unbatched = 4
    _check_input_dim = _dims_check(4, 5)
