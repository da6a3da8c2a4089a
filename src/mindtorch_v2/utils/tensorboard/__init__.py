"""torch.utils.tensorboard: SummaryWriter writes what TensorBoard shows, through the tensorboard package."""
from typing import Any

from mindtorch_v2.utils.tensorboard import writer

if writer.Event is not None:
    FileWriter, SummaryWriter = writer.FileWriter, writer.SummaryWriter


def __getattr__(name: str) -> Any:
    if name in ("FileWriter", "SummaryWriter"):  # importing them is how programs test for the package
        raise ImportError("torch.utils.tensorboard needs the package tensorboard; run pip install tensorboard")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
