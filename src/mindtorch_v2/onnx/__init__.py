"""torch.onnx: modules as ONNX models, through torch.export and the onnx package; symbolic functions are not called."""
from __future__ import annotations

import enum
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.onnx._error import OnnxExporterError

__all__ = ["ONNXProgram", "OnnxExporterError", "export", "is_in_onnx_export", "is_onnxrt_backend_supported"]  # noqa: F822

# torchvision imports torch.onnx, and the export brings torch.export and torch.fx.
torch._deferred.defer(__name__, dict.fromkeys(("ONNXProgram", "export"), "onnx._export"))
producer_version = str(torch.__version__)
_WHY = "the export of mindtorch_v2 translates aten ops and calls no symbolic functions; use torch.onnx.export"
_facade = torch._facade


# What the old exporter did with ops that ONNX does not have (the exporter here refuses them), and for which mode it exported.
OperatorExportTypes: Any = enum.Enum("OperatorExportTypes", "ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH")
TrainingMode: Any = enum.Enum("TrainingMode", "EVAL PRESERVE TRAINING")


globals().update(_facade.refusals("dynamo_export", _WHY,
                                  "torch.onnx."))


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Forgotten: the old exporter, which would ask how an op is written, is not here."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Nothing was kept."""


def _decorator(*args: Any, **kwargs: Any) -> Any:
    """A decorator that gives the function itself: only the old exporter would call it."""
    return lambda fn: fn


def is_in_onnx_export() -> bool:
    """False: modules are recorded as they are."""
    return False


def is_onnxrt_backend_supported() -> bool:
    """False."""
    return False


symbolic_helper: Any = _facade.module(__name__, "symbolic_helper", "Helpers of an export.",
                                      parse_args=_decorator, quantized_args=_decorator, **_facade.refusals(
    "_get_tensor_sizes _unimplemented", _WHY, "torch.onnx.symbolic_helper."))
symbolic_opset9: Any = _facade.module(__name__, "symbolic_opset9", "Ops of an export.", **_facade.refusals(
    "_prepare_onnx_paddings", _WHY, "torch.onnx.symbolic_opset9."))
symbolic_opset11: Any = _facade.module(__name__, "symbolic_opset11", "Ops of an export.",
                                       __getattr__=_facade.refuse_all("torch.onnx.symbolic_opset11", _WHY))
errors: Any = _facade.module(__name__, "errors", "Errors of an export.", OnnxExporterError=OnnxExporterError)
