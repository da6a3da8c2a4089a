"""torch.ao.nn: layers over quantised numbers, of which there are none; MaxPool2d is the plain one, as in PyTorch."""
from typing import Any

import mindtorch_v2 as torch

_WHY = "mindtorch_v2 does not quantise models"


def _family(parent: str, name: str, *below: str) -> Any:
    """A module without layers, the `modules` that torch keeps them in, and families below it. What is asked for refuses."""
    full = f"{parent}.{name}"
    official = full.replace(__name__, "torch.ao.nn")
    refuse = torch._facade.refuse_all(official, _WHY)
    made = torch._facade.module(parent, name, f"{official}: no layers.", __all__=[], __getattr__=refuse)
    made.modules = torch._facade.module(full, "modules", f"Layers of {official}: none.", __all__=[], __getattr__=refuse)
    for one in below:
        setattr(made, one, _family(full, one))
    return made


class _FusedModule(torch.nn.Sequential):
    """What a module made of several would be; none is made."""


qat: Any = _family(__name__, "qat", "dynamic")
quantizable: Any = _family(__name__, "quantizable")
quantized: Any = _family(__name__, "quantized", "dynamic", "reference")
quantized.MaxPool2d = torch.nn.MaxPool2d
intrinsic: Any = _family(__name__, "intrinsic", "qat")
intrinsic.quantized = _family(intrinsic.__name__, "quantized", "dynamic")
intrinsic._FusedModule = _FusedModule
