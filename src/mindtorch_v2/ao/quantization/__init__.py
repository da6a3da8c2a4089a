"""torch.ao.quantization: stubs that mark where numbers would be quantised pass them on; whatever quantises refuses."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

_WHY = "mindtorch_v2 does not quantise models"
globals().update(torch._facade.refusals(
    "prepare prepare_qat convert quantize quantize_dynamic quantize_qat fuse_modules fuse_modules_qat get_default_qconfig "
    "get_default_qat_qconfig propagate_qconfig_ swap_module", _WHY, "torch.ao.quantization."))
globals().update(torch._facade.absents("QConfig FakeQuantize Observer MinMaxObserver QConfigMapping", _WHY,
                                       "torch.ao.quantization."))


class QuantStub(torch.nn.Module):   # type: ignore[name-defined]
    """Passes its input on: before a model is prepared, torch's does so too."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Passes its input on."""


class QuantWrapper(torch.nn.Module):   # type: ignore[name-defined]
    """A module between two stubs."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module

    def forward(self, X: Any) -> Any:
        return self.dequant(self.module(self.quant(X)))
