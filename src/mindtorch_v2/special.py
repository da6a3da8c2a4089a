"""torch.special: special functions; the rows are in _ops/special.py and _ops/pointwise.py."""
from mindtorch_v2._ops import namespaces

__all__ = sorted(namespaces["special"])
globals().update(namespaces["special"])
