"""ProcessGroup: some ranks, and the engine that each kind of device has among them; Backend, the names of engines."""
from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _mpi_world
from mindtorch_v2.distributed._engine import Engine
from mindtorch_v2.distributed._errors import DistError
from mindtorch_v2.distributed._hccl_engine import HcclEngine
from mindtorch_v2.distributed._mpi_engine import MpiEngine
from mindtorch_v2.distributed._stores import PrefixStore, Store
from mindtorch_v2.distributed._work import ReduceOp, Work


class Backend(str):
    """The name of an engine, in lower case."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, HCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "hccl", "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, HCCL]
    default_device_backend_map = {"cpu": GLOO, "npu": HCCL}
    backend_capability = {GLOO: ["cpu"], MPI: ["cpu"], HCCL: ["npu"], UNDEFINED: ["cpu", "npu"]}
    _plugins: dict[str, Callable[..., Any]] = {}

    def __new__(cls, name: str) -> Any:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return getattr(Backend, name.upper(), name.lower())

    @classmethod
    def register_backend(cls, name: str, func: Callable[..., Any], extended_api: bool = False,
                         devices: str | list[str] | None = None) -> None:
        """Adds an engine of the user's: func(store, rank, size, timeout) makes it."""
        if name.upper() in vars(cls) and name.lower() != "ucc":
            raise AssertionError(f"{name.upper()} c10d backend already exist")
        setattr(cls, name.upper(), name.lower())
        cls.backend_list.append(name.lower())
        cls._plugins[name.lower()] = func
        cls.backend_capability[name.lower()] = [devices] if isinstance(devices, str) else list(devices or ["cpu", "npu"])


class BackendConfig:
    """Which engine serves which device: of a name ("gloo") or of pairs ("cpu:gloo,npu:hccl")."""

    def __init__(self, backend: str) -> None:
        self.device_backend_map: dict[str, str] = {}
        if ":" in backend:
            for pair in backend.lower().split(","):
                device, colon, name = pair.partition(":")
                if not colon or not name or ":" in name:
                    raise ValueError(f"Invalid device:backend pairing: {pair}. Expected format is \"device:backend\"")
                if device in self.device_backend_map:
                    raise ValueError(f"Duplicate device type {device} in backend string: {backend}")
                self.device_backend_map[device] = Backend(name)
        elif backend == Backend.UNDEFINED:
            self.device_backend_map = dict(Backend.default_device_backend_map)
        else:
            name = Backend(backend)
            self.device_backend_map = dict.fromkeys(Backend.backend_capability.get(name, ["cpu", "npu"]), name)

    def get_device_backend_map(self) -> dict[str, str]:
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())


class ProcessGroup:
    """Ranks that work together. Ranks of its methods are those of the group."""

    def __init__(self, store: Store, ranks: list[int], rank: int, backend: str, timeout: timedelta, name: str, desc: str,
                 device_id: Any = None) -> None:
        self._ranks, self._rank = ranks, rank
        self._backend, self._timeout = backend, timeout
        self._store = PrefixStore(name, store)
        self.group_name, self.group_desc, self.bound_device_id = name, desc, device_id
        self._engines: dict[str, Engine] = {}
        self._unserved: dict[str, str] = {}       # devices whose engine cannot be had, and why
        self._coalesced: list[Work] | None = None
        self._config = BackendConfig(backend)

    def _open(self, world_store: Store, world_rank: int, world_size: int) -> None:
        """Makes the engines. MPI's communicator is made now, because two ranks that send could not make it alone; HCCL's at the
        first use of a device."""
        for device, name in self._config.device_backend_map.items():
            if name in (Backend.GLOO, Backend.MPI):
                if not _mpi_world.is_available() and (self._backend == Backend.UNDEFINED or ":" in self._backend):
                    self._unserved[device] = _mpi_world._MISSING
                    continue
                world = _mpi_world.start(world_store, world_rank, world_size, self._timeout)
                self._engines[device] = MpiEngine(self, world, self._ranks, self._timeout)
                self._engines[device].name = name
            elif name == Backend.HCCL:
                if self._backend == Backend.UNDEFINED and not torch.npu.is_available():
                    self._unserved[device] = "hccl needs an npu, and none is available"
                    continue
                self._engines[device] = HcclEngine(self, self._store, self._timeout)
            elif name in Backend._plugins:
                self._engines[device] = Backend._plugins[name](self._store, self._rank, len(self._ranks), self._timeout)
            elif name == Backend.NCCL:
                raise RuntimeError("Distributed package doesn't have NCCL built in")
            else:
                raise RuntimeError(f"Unsupported backend type: {name}")

    def _engine(self, device_type: str) -> Engine:
        engine = self._engines.get(device_type)
        if engine is None:
            why = self._unserved.get(device_type)
            raise RuntimeError(f"No backend type associated with device type {device_type}{': ' + why if why else ''}")
        return engine

    def _engine_of(self, tensor: Any) -> Engine:
        """The engine of a tensor's device."""
        return self._engine(tensor.device.type)

    def _get_backend(self, device: Any) -> Engine:
        """The engine of a device."""
        return self._engine(torch.device(device).type)

    def _any_engine(self) -> Engine:
        """For what has no tensor (barrier): the npu's, where that one is in use, else the first."""
        npu = self._engines.get("npu")
        if isinstance(npu, HcclEngine) and (npu.comms or len(self._engines) == 1 or self.bound_device_id is not None):
            return npu
        return self._engines.get("cpu") or next(iter(self._engines.values()))

    @property
    def _device_types(self) -> list[Any]:
        return [torch.device(name) for name in self._engines]

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return len(self._ranks)

    def name(self) -> str:
        return self._backend

    def get_group_store(self) -> Store:
        return self._store

    def _get_sequence_number_for_group(self) -> int:
        return sum(engine.sequence for engine in self._engines.values())

    def abort(self) -> None:
        """Gives up what is under way."""
        for engine in self._engines.values():
            engine.abort()

    def shutdown(self) -> None:
        """Gives back what the engines have for the group."""
        for engine in self._engines.values():
            engine.close()
        self._engines = {}

    def _describe(self, name: str, sequence: int, shape: tuple[int, ...] | None, dtype: Any) -> str:
        """A collective in words."""
        what = "" if shape is None else f" of {tuple(shape)} {dtype}"
        return f"{name}{what}, sequence number {sequence} of group {self.group_name}, rank {self._rank}"

    def _where_others_are(self, call: Any) -> str:
        """For the message of a timeout: what the ranks that also gave up were waiting for."""
        try:
            self._store.set(f"stuck/{self._rank}", str(call))
            time.sleep(0.5)                       # they give up at about the same time
            states = []
            for rank in range(self.size()):
                if rank != self._rank:
                    key = f"stuck/{rank}"
                    states.append(self._store.get(key).decode() if self._store.check([key]) else f"rank {rank} does not wait")
        except DistError:                         # the process with the store has gone
            return "The store is gone, so nothing is known of the other ranks"
        return "Elsewhere: " + "; ".join(states) if states else ""

    # ---- c10d's own methods, with lists of tensors ----
    def allreduce(self, tensors: Any, opts: Any = ReduceOp.SUM) -> Work:
        tensor, op = _one(tensors), getattr(opts, "reduceOp", opts)
        return self._engine_of(tensor).all_reduce(tensor, op, True)

    def broadcast(self, tensors: Any, opts: Any = 0) -> Work:
        tensor = _one(tensors)
        return self._engine_of(tensor).broadcast(tensor, getattr(opts, "rootRank", opts), True)

    def reduce(self, tensors: Any, root: Any = 0, op: Any = ReduceOp.SUM) -> Work:
        tensor = _one(tensors)
        return self._engine_of(tensor).reduce(tensor, root, op, True)

    def allgather(self, outputs: Any, inputs: Any) -> Work:
        tensor = _one(inputs)
        outs = outputs[0] if isinstance(outputs[0], list | tuple) else outputs
        return self._engine_of(tensor).all_gather(list(outs), tensor, True)

    def _allgather_base(self, output: Any, tensor: Any) -> Work:
        return self._engine_of(tensor).all_gather_into_tensor(output, tensor, True)

    def _reduce_scatter_base(self, output: Any, tensor: Any, op: Any = ReduceOp.SUM) -> Work:
        return self._engine_of(tensor).reduce_scatter_tensor(output, tensor, getattr(op, "reduceOp", op), True)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Work:
        tensor = _one(tensors)
        return self._engine_of(tensor).send(tensor, dst, tag, True)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Work:
        tensor = _one(tensors)
        return self._engine_of(tensor).recv(tensor, src, tag, True)

    def barrier(self, *opts: Any, **kwargs: Any) -> Work:
        return self._any_engine().barrier(True)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessGroup:
        return self                               # the group is the processes: a copy of the object is no other group


def _one(tensors: Any) -> Any:
    return tensors[0] if isinstance(tensors, list | tuple) else tensors
