"""torch.fft: Fourier transforms; the rows are in _ops/fft.py."""
from mindtorch_v2._ops import namespaces

__all__ = sorted(namespaces["fft"])
globals().update(namespaces["fft"])
