"""What every NpuFused optimizer has beside torch's: clipping of all gradients at once, and gradients that are zeroed in place."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


class NpuFusedOptimizerBase(torch.optim.Optimizer):
    """The base of torch_npu's optimizers."""

    is_fused_optimizer = True

    def npu_clip_grad_norm_fused_(self, combined_grads: Any = None, combined_grads_masks: Any = None, max_norm: float = 1.0,
                                  norm_type: float = 2.0) -> torch.Tensor:
        """Scales all gradients so that their norm together is at most max_norm; gives what it was."""
        return self.clip_grad_norm_fused_(max_norm, norm_type)

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scales all gradients so that their norm together is at most max_norm; gives what it was."""
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        return torch.nn.utils.clip_grad_norm_(params, float(max_norm), float(norm_type))

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zeroes the gradients in place: torch_npu keeps their memory."""
        if set_to_none:
            raise ValueError("set_to_none is not supported in fused optimizers")
        torch.optim.Optimizer.zero_grad(self, set_to_none=False)

    def _with_grads(self, group: dict[str, Any]) -> list[Any]:
        return [p for p in group["params"] if p.grad is not None]
