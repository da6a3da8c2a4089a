"""torch.onnx: no model is exported to ONNX; what asks whether one is being exported is told no."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

_WHY = "mindtorch_v2 does not export models to ONNX"
_facade = torch._facade
globals().update(_facade.refusals("export dynamo_export register_custom_op_symbolic unregister_custom_op_symbolic", _WHY,
                                  "torch.onnx."))
ONNXProgram: Any = _facade.absent("torch.onnx.ONNXProgram", _WHY)


class OnnxExporterError(RuntimeError):
    """What an export raises."""


def is_in_onnx_export() -> bool:
    """False: nothing is exported."""
    return False


def is_onnxrt_backend_supported() -> bool:
    """False."""
    return False


symbolic_helper: Any = _facade.module(__name__, "symbolic_helper", "Helpers of an export.", **_facade.refusals(
    "parse_args quantized_args _get_tensor_sizes _unimplemented", _WHY, "torch.onnx.symbolic_helper."))
symbolic_opset9: Any = _facade.module(__name__, "symbolic_opset9", "Ops of an export.", **_facade.refusals(
    "_prepare_onnx_paddings", _WHY, "torch.onnx.symbolic_opset9."))
symbolic_opset11: Any = _facade.module(__name__, "symbolic_opset11", "Ops of an export.",
                                       __getattr__=_facade.refuse_all("torch.onnx.symbolic_opset11", _WHY))
errors: Any = _facade.module(__name__, "errors", "Errors of an export.", OnnxExporterError=OnnxExporterError)
