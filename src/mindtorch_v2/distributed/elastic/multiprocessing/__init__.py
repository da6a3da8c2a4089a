"""torch.distributed.elastic.multiprocessing: how a worker tells the launcher why it failed."""
from __future__ import annotations

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed._agent import SignalException
from mindtorch_v2.distributed.elastic.multiprocessing import errors

start_processes = _names.refusal("elastic.multiprocessing.start_processes")
to_map = _names.refusal("elastic.multiprocessing.to_map")
DefaultLogsSpecs = _names.absent("elastic.multiprocessing.DefaultLogsSpecs")
LogsDest = _names.absent("elastic.multiprocessing.LogsDest")
LogsSpecs = _names.absent("elastic.multiprocessing.LogsSpecs")
MultiprocessContext = _names.absent("elastic.multiprocessing.MultiprocessContext")
PContext = _names.absent("elastic.multiprocessing.PContext")
ProcessFailure = _names.absent("elastic.multiprocessing.ProcessFailure")
RunProcsResult = _names.absent("elastic.multiprocessing.RunProcsResult")
Std = _names.absent("elastic.multiprocessing.Std")
SubprocessContext = _names.absent("elastic.multiprocessing.SubprocessContext")
_names.add_to(__name__)
