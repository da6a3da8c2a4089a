"""torch.ao.quantization: stubs that mark where numbers would be quantised pass them on; whatever quantises refuses."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.ao.quantization.quant_type import QuantType as QuantType

_WHY = "mindtorch_v2 does not quantise models"
_NAME = "torch.ao.quantization"
globals().update(torch._facade.refusals(
    "prepare prepare_qat convert quantize quantize_dynamic quantize_qat fuse_modules fuse_modules_qat get_default_qconfig "
    "get_default_qat_qconfig get_default_qconfig_mapping get_default_qat_qconfig_mapping propagate_qconfig_ swap_module "
    "quantize_jit quantize_dynamic_jit prepare_jit convert_jit "
    "default_observer default_weight_observer default_dynamic_quant_observer", _WHY, f"{_NAME}."))
globals().update(torch._facade.absents(
    "QConfig FakeQuantize Observer MinMaxObserver PerChannelMinMaxObserver QConfigMapping", _WHY, f"{_NAME}."))
# how layers would be quantised: names to compare with and to hand on
globals().update(dict.fromkeys((
    "default_qconfig", "default_dynamic_qconfig", "default_dynamic_qat_qconfig", "default_embedding_qat_qconfig",
    "default_per_channel_qconfig", "default_symmetric_qnnpack_qat_qconfig", "float_qparams_weight_only_qconfig")))
globals().update({name: torch._facade.module(__name__, name, f"{_NAME}.{name}: whatever is called refuses.",
                                             __getattr__=torch._facade.refuse_all(f"{_NAME}.{name}", _WHY))
                  for name in ("observer", "fake_quantize", "qconfig", "qconfig_mapping", "quantize_fx", "quantization_mappings",
                               "fx", "pt2e", "quantizer", "backend_config", "utils")})


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

torch._named.complete(__name__)
