"""torch.special: special functions; the rows are in _ops/special.py and _ops/pointwise.py."""
from mindtorch_v2._ops import namespaces as _namespaces

__all__ = sorted(_namespaces["special"])
globals().update(_namespaces["special"])
