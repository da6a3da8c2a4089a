"""torch.ao.nn: layers over quantised numbers, of which there are none; MaxPool2d is the plain one, as in PyTorch."""
import mindtorch_v2 as torch
from mindtorch_v2.ao.nn import intrinsic, qat, quantizable, quantized  # type: ignore[attr-defined]  # by name: _named.txt
from mindtorch_v2.ao.nn.intrinsic import modules


class _FusedModule(torch.nn.Sequential):
    """What a module made of several would be; none is made."""


quantized.MaxPool2d = torch.nn.MaxPool2d
intrinsic._FusedModule = modules._FusedModule = _FusedModule
__all__ = ["intrinsic", "qat", "quantizable", "quantized"]
del modules
