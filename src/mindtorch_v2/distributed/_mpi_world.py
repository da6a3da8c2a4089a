"""MPI in this process: finds the library, starts it through the store or a process manager, tracks its peers."""
from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _mpi
from mindtorch_v2.distributed._peers import Peers
from mindtorch_v2.distributed._pmi import PmiServer
from mindtorch_v2.distributed._stores import PrefixStore, Store

_LIBRARY = "libmpi_abi.so.1"                      # MPI 5's standard ABI: handles and constants are the same in every MPI
_MISSING = ("the gloo and mpi backends need MPI, and none was found: pip install mpich (or mindtorch_v2[mpi]), or set "
            f"MINDTORCH_MPI_LIBRARY to an MPI library with the standard ABI ({_LIBRARY})")


def library_path() -> str | None:
    """Where the MPI library is: what the setting names, or the file of the mpich wheel."""
    named = torch._config.mpi_library()
    if named:
        return named
    try:
        files = importlib.metadata.files("mpich") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == _LIBRARY:
            path = Path(str(file.locate())).resolve()
            return str(path) if path.exists() else None
    return None


def is_available() -> bool:
    """Whether MPI can be used here."""
    return library_path() is not None


class MpiWorld:
    """MPI as it was started: once in a process, with these ranks."""

    def __init__(self, rank: int, size: int, peers: Peers, managed: bool) -> None:
        self.rank, self.size, self.peers, self.managed = rank, size, peers, managed
        self.broken: str = ""                     # why nothing more can be exchanged
        self.half_ops: dict[tuple[bool, int], int] = {}

    def half_op(self, bfloat: bool, op: int) -> int:
        """The MPI operation for 16-bit floats."""
        made = self.half_ops.get((bfloat, op))
        if made is None:
            made = self.half_ops[bfloat, op] = _mpi.make_half_op(bfloat, op)
        return made


_world: MpiWorld | None = None


def open_library() -> None:
    path = library_path()
    if path is None:
        raise RuntimeError(_MISSING)
    _mpi.open_library(path)


def start(store: Store, rank: int, size: int, timeout: timedelta) -> MpiWorld:
    """Starts MPI with the ranks of a store. A second start in one process must have the same ranks."""
    global _world
    if _world is not None:
        if (_world.rank, _world.size) != (rank, size) or _world.broken:
            raise RuntimeError(f"MPI runs in this process as rank {_world.rank} of {_world.size}"
                               f"{' and has failed: ' + _world.broken if _world.broken else ''}; it cannot be started again as "
                               f"rank {rank} of {size}. Start a new process")
        return _world
    open_library()
    peers = Peers(rank)                           # MPI would wait for a missing one without end
    peers.wait_for(PrefixStore("mpi", store), "peer", list(range(size)), timeout, "[init_process_group]")
    managed = under_manager()
    if not managed:
        server = PmiServer(PrefixStore("pmi", store.clone()), rank, size, [peers.known[r][0] for r in range(size)])
        peers.before_exit = functools.partial(unlink_shared_memory, server.job)
        before = {name: os.environ.pop(name, None) for name in _MANAGER}
        os.environ.update(PMI_PORT=server.address, PMI_ID=str(rank))
        try:
            with peers.or_exit(list(range(size)), timeout, "MPI_Init"):
                _mpi.init()
        finally:                                  # a child that starts MPI must not find a server that is ours
            for name in ("PMI_PORT", "PMI_ID"):
                del os.environ[name]
            os.environ.update({name: value for name, value in before.items() if value is not None})
    else:
        _mpi.init()
    _world = MpiWorld(rank, size, peers, managed)
    if not managed:
        store.barrier("mpi/mapped", size, timeout)
        peers.before_exit()
    return _world


def unlink_shared_memory(job: str) -> None:
    """Takes the names of MPICH's shared memory away, which MPI_Finalize would: a rank that is killed cannot, and the memory
    would stay. What is mapped stays mapped. MPICH makes the names of the job's: its FNV-1a hash, and a number."""
    hashed = 2166136261
    for byte in job.encode():
        hashed = (hashed ^ byte) * 16777619 & 0xffffffff
    for path in Path("/dev/shm").glob(f"mpich_shm_{hashed:x}_*"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


# What mpiexec (hydra), Slurm and PMIx launchers set for their processes.
_MANAGER = ("PMI_FD", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMI_PORT", "PMI_ID")


def under_manager() -> bool:
    """Whether a process manager that MPI supports has started this process."""
    return any(name in os.environ for name in ("PMI_FD", "PMIX_RANK", "PMI_PORT"))


def rank_and_size_of_manager() -> tuple[int, int]:
    """(rank, size) as mpiexec or Slurm gave them."""
    open_library()
    _mpi.init()
    world = _mpi.Communicator.world()
    return world.rank, world.size


def flush(communicator: Any, seconds: float) -> None:
    """Lets what was sent arrive, if all ranks of a group come here; else leaves after a while."""
    request, deadline = communicator.barrier(), time.monotonic() + seconds
    while not request.wait(0.1) and time.monotonic() < deadline:
        pass


def finalize(wait: bool) -> None:
    """At exit. A process manager calls it a crash when a rank leaves without MPI_Finalize; our own server does not care, and a
    rank that ends early must not wait for the others."""
    if _world is not None:
        _world.peers.before_exit()
    if _world is not None and _world.managed and wait and not _world.broken and not _mpi.is_finalized():
        _mpi.finalize()
