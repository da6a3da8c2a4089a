"""The ops that bodies of this backend are made of. The rows stand a floor above: they are fetched from the core by name,
here alone and once, so that a name which is no op fails when the backend is loaded."""
from __future__ import annotations

import types

from mindtorch_v2 import _C

_NAMES = """_convolution_backward arange atan2 cat complex convolution diag_embed empty empty_like eye floor_divide full gcd hypot
kthvalue linalg_qr linalg_svd linspace logaddexp matmul maximum median minimum mm mul ones ones_like pow prod
searchsorted sort stack view_as_complex view_as_real where zeros zeros_like"""
ops = types.SimpleNamespace(**{name: _C._op_named(name) for name in _NAMES.split()})
