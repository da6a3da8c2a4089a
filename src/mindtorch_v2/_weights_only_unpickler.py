"""torch._weights_only_unpickler: which globals torch.load takes from a file, by the names of that module."""
from __future__ import annotations

import os
import pickle
from typing import IO, Any

import mindtorch_v2 as torch

_add_safe_globals, _clear_safe_globals = torch.serialization.add_safe_globals, torch.serialization.clear_safe_globals
_get_safe_globals = torch.serialization.get_safe_globals
_safe_globals: Any = vars(torch.serialization)["safe_globals"]      # a checker cannot tell its type in this cycle


class Unpickler:
    """Reads one pickle of plain containers, numbers and texts, and of what add_safe_globals allows."""

    def __init__(self, file: IO[bytes], *, encoding: str = "bytes") -> None:
        at = file.tell()
        size = file.seek(0, os.SEEK_END)
        file.seek(at)
        self._machine = torch.serialization.WeightsUnpickler(file, size - at, encoding)

    def load(self) -> Any:
        """The object of the pickle."""
        self._machine.persistent_load = self.persistent_load  # type: ignore[method-assign]
        return self._machine.load()

    def persistent_load(self, pid: Any) -> Any:
        """What stands for a persistent id: a subclass or the program says."""
        raise pickle.UnpicklingError("unsupported persistent id encountered")


def load(file: IO[bytes], *, encoding: str = "ASCII") -> Any:
    """The object of a pickle."""
    return Unpickler(file, encoding=encoding).load()
