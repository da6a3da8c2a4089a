"""The updates of all optimizers as functions over lists of parameters, gradients and state."""

from __future__ import annotations

import mindtorch_v2 as torch
from mindtorch_v2.optim.adadelta import adadelta as adadelta
from mindtorch_v2.optim.adagrad import adagrad as adagrad
from mindtorch_v2.optim.adam import adam as adam
from mindtorch_v2.optim.adamax import adamax as adamax
from mindtorch_v2.optim.adamw import adamw as adamw
from mindtorch_v2.optim.asgd import asgd as asgd
from mindtorch_v2.optim.nadam import nadam as nadam
from mindtorch_v2.optim.radam import radam as radam
from mindtorch_v2.optim.rmsprop import rmsprop as rmsprop
from mindtorch_v2.optim.rprop import rprop as rprop
from mindtorch_v2.optim.sgd import sgd as sgd
from mindtorch_v2.optim.sparse_adam import SparseAdam

Tensor = torch.Tensor


def sparse_adam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    state_steps: list[int], *, eps: float, beta1: float, beta2: float, lr: float | Tensor, maximize: bool,
) -> None:  # fmt: skip
    """SparseAdam's update by sparse gradients; a step is the number of this one."""
    made = SparseAdam.__new__(SparseAdam)
    made.state = {  # type: ignore[assignment]
        param: {"step": step - 1, "exp_avg": average, "exp_avg_sq": square}
        for param, average, square, step in zip(params, exp_avgs, exp_avg_sqs, state_steps)
    }
    for param, grad in zip(params, grads):
        made._update(param, grad, {"lr": lr, "betas": (beta1, beta2), "eps": eps, "maximize": maximize})
