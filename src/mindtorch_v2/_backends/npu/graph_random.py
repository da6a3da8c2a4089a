"""Random numbers inside captured graphs: they read seed and offset from device memory, which every replay sets anew."""
from __future__ import annotations

import threading
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.torch_ops import ops

_STEP = 4                                         # a philox counter gives four numbers
active: dict[int, GraphRandom] = {}              # by id of the generator, while a graph is captured


class GraphRandom:
    """One generator in one graph: where its kernels read seed and offset, and how many numbers a replay draws."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        int64 = _C._dtype_named("int64")
        self._seed, self._offset = (ops.empty((1,), dtype=int64, device=generator.device) for _ in "so")
        self._drawn = 0
        self._thread = 0

    def begin(self) -> None:
        """From now on the calling thread's draws go into the graph."""
        self._drawn, self._thread = 0, threading.get_ident()
        active[id(self.generator)] = self

    def end(self) -> None:
        active.pop(id(self.generator), None)

    def draw(self, count: int) -> tuple[Any, Any, int]:
        """(seed, offset, what is added to the offset) for a kernel that draws count numbers."""
        begin = self._drawn
        self._drawn += -(-count // _STEP) * _STEP
        return self._seed, self._offset, begin

    def before_replay(self) -> None:
        """Gives the replay that follows on the current stream numbers of its own."""
        if self._drawn:
            seed, offset = self.generator._next_seed_offset(self._drawn)
            self._seed.fill_(seed - (1 << 64) if seed >= 1 << 63 else seed)   # the same bits in an int64
            self._offset.fill_(offset)


def captured(generator: Any) -> GraphRandom | None:
    """Where the calling thread's draws from a generator go; None: to the device, as ever."""
    found = active.get(id(generator)) if active else None
    return found if found is not None and found._thread == threading.get_ident() else None
