"""Batch normalisation; the base of instance normalisation is here too."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn import init
from mindtorch_v2.nn.modules.lazy import LazyModuleMixin
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

Tensor = torch.Tensor

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d",
    "LazyBatchNorm3d",
]  # fmt: skip


class _NormBase(Module):
    """Parameters and running statistics of a normalisation of channels."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kw = {"device": device, "dtype": dtype}
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.register_parameter(
            "weight", Parameter(torch.empty(num_features, **kw)) if affine else None
        )
        has_bias = affine and bias
        self.register_parameter(
            "bias", Parameter(torch.empty(num_features, **kw)) if has_bias else None
        )
        mean = var = count = None
        if track_running_stats:
            mean, var = torch.zeros(num_features, **kw), torch.ones(num_features, **kw)
            count = torch.tensor(0, dtype=torch.long, device=device)
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", var)
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Forget the statistics and make the affine map the identity."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

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
        if (version is None or version < 2) and self.track_running_stats:
            # Checkpoints of version 1 have no num_batches_tracked.
            key = prefix + "num_batches_tracked"
            if key not in state_dict:
                count = self.num_batches_tracked
                known = count is not None and not count.is_meta
                state_dict[key] = count if known else torch.tensor(0, dtype=torch.long)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    """Normalises each channel over the batch."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        training, track = self.training, self.track_running_stats
        if training and track and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        mean, var = self.running_mean, self.running_var
        use_batch = training or (mean is None and var is None)
        keep = not training or track
        return F.batch_norm(
            input, mean if keep else None, var if keep else None, self.weight, self.bias,
            use_batch, momentum, self.eps,
        )  # fmt: skip


def _dims_check(*allowed: int) -> Any:
    """Make the _check_input_dim of a layer that takes these numbers of dimensions."""
    words = " or ".join(f"{d}D" for d in allowed)

    def _check_input_dim(self: Any, input: Tensor) -> None:
        if input.dim() not in allowed:
            raise ValueError(f"expected {words} input (got {input.dim()}D input)")

    return _check_input_dim


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L)."""

    _check_input_dim = _dims_check(2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W)."""

    _check_input_dim = _dims_check(4)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    _check_input_dim = _dims_check(5)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Takes num_features from the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        kw = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**kw)
            if bias:
                self.bias = UninitializedParameter(**kw)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**kw)
            self.running_var = UninitializedBuffer(**kw)
            self.num_batches_tracked = torch.tensor(0, dtype=torch.long, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the shape from the first input."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for name in ("weight", "bias"):
            if self.affine and getattr(self, name) is not None:
                getattr(self, name).materialize((self.num_features,))
        if self.track_running_stats:
            self.running_mean.materialize((self.num_features,))
            self.running_var.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A BatchNorm1d that takes num_features from its first input."""

    cls_to_become = BatchNorm1d
    _check_input_dim = _dims_check(2, 3)


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A BatchNorm2d that takes num_features from its first input."""

    cls_to_become = BatchNorm2d
    _check_input_dim = _dims_check(4)


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A BatchNorm3d that takes num_features from its first input."""

    cls_to_become = BatchNorm3d
    _check_input_dim = _dims_check(5)
