"""The core's interface to an npu: memory, copies, kernels. Importing it loads no CANN; the first use starts the device."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._backends.npu import aclnn, allocator, convert, errors, graph_random, ops, ops_foreach, pinned


class Ascend(_C.NpuBackend):
    """The backend of Huawei Ascend. What runs on every op is native: _C/npu_backend.pxi."""

    def attach(self, index: int) -> None:
        """Starts a device, and gives tensors there its allocator."""
        allocator.attach(index)

    def move(self, index: int, to: int, source: int, nbytes: int) -> None:
        pinned.move(index, to, source, nbytes)

    def copy(self, dst: Any, src: Any, non_blocking: bool) -> None:
        """From or to the host, or between two npus."""
        convert.copy(dst, src, non_blocking)

    def kernel(self, row: Any, optional: bool) -> Any:
        return ops.resolve(row, optional)

    def list_kernel(self, schema: str, calls: Any) -> Any:
        found = ops_foreach.resolve(schema, calls)
        return None if found is None else _C.NpuLists(*found)

    def make_constant(self, name: str, size: Any, dtype: Any, index: int) -> Any:
        """A tensor that plans read and that is never written to."""
        return ops.make_constant(name, size, dtype, index)

    def pinned(self, nbytes: int) -> Any:
        return pinned.take(nbytes)

    def aclnn_available(self) -> bool:
        return aclnn.available()

    def symbols_ok(self) -> bool:
        return aclnn.symbols_ok()


if _config.launch_lines():
    _C._npu_keep_launch_lines(errors.line_of_program)
ascend = Ascend()
ascend.captures = graph_random.active
_C._register_backend("npu", ascend)
