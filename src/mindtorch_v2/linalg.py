"""torch.linalg: linear algebra; the rows are in _ops/decompose.py, solve.py, spectral.py and matrix.py."""
from mindtorch_v2._ops import namespaces as _namespaces
from mindtorch_v2._ops.decompose import LinAlgError  # noqa: F401

__all__ = sorted(_namespaces["linalg"])
globals().update(_namespaces["linalg"])
