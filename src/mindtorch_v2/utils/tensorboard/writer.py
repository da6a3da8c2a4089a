"""SummaryWriter: scalars, histograms, images, texts and settings as events in a file."""
from __future__ import annotations

import datetime
import json
import os
import socket
import time
from typing import Any

import mindtorch_v2 as torch

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ImportError:
    Event = None

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Events into one file of a folder."""

    def __init__(self, log_dir: str, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Writes an event."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Writes a summary."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Brings everything to the disk."""
        self.event_writer.flush()

    def close(self) -> None:
        """Ends the file."""
        self.event_writer.close()


def _number(value: Any) -> float:
    return float(value.item()) if isinstance(value, torch.Tensor) else float(value)


def _values(values: Any) -> Any:
    return torch.as_tensor(values).detach().cpu().reshape(-1).to(torch.float64)


class SummaryWriter:
    """Writes into runs/<date>_<host>, or into a folder of choice."""

    def __init__(self, log_dir: str | None = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
                 flush_secs: int = 120, filename_suffix: str = "") -> None:
        if not log_dir:
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir, self.purge_step = log_dir, purge_step
        self._settings = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] = {}
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, *self._settings)
            self.all_writers[self.log_dir] = self.file_writer
        return self.file_writer

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _add(self, tag: str, step: Any, walltime: float | None, **value: Any) -> None:
        summary = Summary(value=[Summary.Value(tag=tag, **value)])
        self._get_file_writer().add_summary(summary, step, walltime)

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        """One number."""
        self._add(tag, global_step, walltime, simple_value=_number(scalar_value))

    def add_scalars(self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None,
                    walltime: float | None = None) -> None:
        """Several numbers in one picture: each has a file of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._settings)
            summary = Summary(value=[Summary.Value(tag=main_tag, simple_value=_number(value))])
            self.all_writers[folder].add_summary(summary, global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow",
                      walltime: float | None = None, max_bins: int | None = None) -> None:
        """How values are distributed."""
        flat = _values(values)
        if flat.numel() == 0:
            raise ValueError("The input has no element.")
        low, high = flat.min().item(), flat.max().item()
        count = bins if isinstance(bins, int) else 64
        edges = torch.linspace(low, high if high > low else low + 1, count + 1, dtype=torch.float64)
        counts = torch.histc(flat, count, low, high if high > low else low + 1)
        histogram = HistogramProto(min=low, max=high, num=flat.numel(), sum=flat.sum().item(),
                                   sum_squares=(flat * flat).sum().item(), bucket_limit=edges[1:].tolist(),
                                   bucket=counts.tolist())
        self._add(tag, global_step, walltime, histo=histogram)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text, in Markdown."""
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype="DT_STRING", string_val=[text_string.encode("utf_8")],
                             tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]))
        self._add(f"{tag}/text_summary", global_step, walltime, metadata=metadata, tensor=tensor)

    def add_hparams(self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: Any = None,
                    run_name: str | None = None, global_step: Any = None) -> None:
        """Settings of a run and what came of it: the settings as a text, the results as numbers."""
        self.add_text("hparams", json.dumps(hparam_dict, default=str, indent=2), global_step)
        for name, value in metric_dict.items():
            self.add_scalar(name, value, global_step)

    def flush(self) -> None:
        """Brings everything to the disk."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        """Ends all files."""
        for writer in self.all_writers.values():
            writer.close()
        self.file_writer, self.all_writers = None, {}

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def _refuse(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"[SummaryWriter.{name}] mindtorch_v2 writes scalars, histograms, texts and hparams")
    refuse.__name__ = name
    return refuse


for _name in ("add_image", "add_images", "add_figure", "add_video", "add_audio", "add_graph", "add_embedding",
              "add_pr_curve", "add_mesh", "add_custom_scalars"):
    setattr(SummaryWriter, _name, _refuse(_name))
