"""torch.optim: the optimizers, their learning rate schedules and weight averaging."""

from __future__ import annotations

from mindtorch_v2.optim import lr_scheduler, swa_utils
from mindtorch_v2.optim._adaptive import Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop
from mindtorch_v2.optim._classic import ASGD, Adafactor, Muon, Rprop
from mindtorch_v2.optim.adam import Adam
from mindtorch_v2.optim.adamw import AdamW
from mindtorch_v2.optim.lbfgs import LBFGS
from mindtorch_v2.optim.optimizer import Optimizer
from mindtorch_v2.optim.sgd import SGD
from mindtorch_v2.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
