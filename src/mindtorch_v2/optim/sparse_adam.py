"""SparseAdam: Adam for dense parameters whose gradients are sparse."""

from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import OneByOneOptimizer, check_betas, like, number

Tensor = torch.Tensor

__all__ = ["SparseAdam"]


class SparseAdam(OneByOneOptimizer):
    """Adam that moves only the moments and the parameters at the indices of a gradient."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not number(lr) > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        for kind, why in (("sparse", "SparseAdam requires dense parameter tensors"),
                          ("complex", "SparseAdam does not support complex parameters")):
            places = [
                [i, k]
                for i, group in enumerate(self.param_groups)
                for k, param in enumerate(group["params"])
                if (param.is_sparse if kind == "sparse" else param.is_complex())
            ]
            if places:
                raise ValueError(f"{kind.capitalize()} params at indices {places}: {why}")

    def _update(self, param: Tensor, grad: Any, group: dict[Any, Any]) -> None:
        if not grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        state = self.state[param]
        if not state:
            state.update(step=0, exp_avg=like(param), exp_avg_sq=like(param))
        state["step"] += 1
        grad = (-grad if group.get("maximize") else grad).coalesce()  # the update is not linear
        values = grad._values()
        if values.numel() == 0:
            return
        beta1, beta2 = group["betas"]
        average = self._moved(state["exp_avg"], grad, values, beta1)
        square = self._moved(state["exp_avg_sq"], grad, values.pow(2), beta2)
        count = state["step"]
        size = number(group["lr"]) * math.sqrt(1 - beta2**count) / (1 - beta1**count)
        change = average.div_(square.sqrt_().add_(group["eps"])).mul_(-size)
        param.add_(torch.sparse_coo_tensor(grad._indices(), change, grad.shape))

    @staticmethod
    def _moved(moment: Tensor, grad: Any, values: Tensor, beta: float) -> Tensor:
        """The moment at the indices of grad, moved by 1 - beta towards values; also in the moment itself."""
        old = moment.sparse_mask(grad)._values()
        change = values.sub(old).mul_(1 - beta)
        moment.add_(torch.sparse_coo_tensor(grad._indices(), change, grad.shape))
        return change.add_(old)
