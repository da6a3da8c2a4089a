"""torch.optim: the optimizers, their learning rate schedules and weight averaging."""

from __future__ import annotations

import functools

import mindtorch_v2 as torch
from mindtorch_v2.optim import lr_scheduler, swa_utils
from mindtorch_v2.optim._adafactor import Adafactor
from mindtorch_v2.optim._muon import Muon
from mindtorch_v2.optim.adadelta import Adadelta
from mindtorch_v2.optim.adagrad import Adagrad
from mindtorch_v2.optim.adam import Adam
from mindtorch_v2.optim.adamax import Adamax
from mindtorch_v2.optim.adamw import AdamW
from mindtorch_v2.optim.asgd import ASGD
from mindtorch_v2.optim.lbfgs import LBFGS
from mindtorch_v2.optim.nadam import NAdam
from mindtorch_v2.optim.optimizer import Optimizer
from mindtorch_v2.optim.radam import RAdam
from mindtorch_v2.optim.rmsprop import RMSprop
from mindtorch_v2.optim.rprop import Rprop
from mindtorch_v2.optim.sgd import SGD
from mindtorch_v2.optim.sparse_adam import SparseAdam

Adafactor.__module__ = Muon.__module__ = __name__
torch._facade.module(__name__, "_multi_tensor", "The optimizers with foreach=True.", **{
    made.__name__: functools.partial(made, foreach=True)
    for made in (ASGD, Adadelta, Adagrad, Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, Rprop, SGD)})

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
