"""torch.nn.utils: gradients, parameters as vectors, weight and spectral norm, sequences."""

from __future__ import annotations

from mindtorch_v2.nn.utils import rnn
