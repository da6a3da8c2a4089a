"""torch.fft: Fourier transforms; the rows are in _ops/fft.py."""
from mindtorch_v2._ops import namespaces as _namespaces

__all__ = sorted(_namespaces["fft"])
globals().update(_namespaces["fft"])
