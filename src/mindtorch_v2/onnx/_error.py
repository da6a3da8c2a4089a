"""The error of torch.onnx.export."""


class OnnxExporterError(RuntimeError):
    """What cannot be said in ONNX."""
