"""torch.ao.nn: layers over quantised numbers, of which there are none; MaxPool2d is the plain one, as in PyTorch."""
from typing import Any

import mindtorch_v2 as torch


def _family(name: str) -> Any:
    """A module without layers, and the `modules` that torch keeps them in."""
    full = f"{__name__}.{name}"
    made = torch._facade.module(__name__, name, f"torch.ao.nn.{name}: no layers.", __all__=[])
    made.modules = torch._facade.module(full, "modules", f"Layers of torch.ao.nn.{name}: none.", __all__=[])
    return made


qat: Any
quantizable: Any
quantized: Any
qat, quantizable, quantized = (_family(name) for name in ("qat", "quantizable", "quantized"))
quantized.MaxPool2d = torch.nn.MaxPool2d
