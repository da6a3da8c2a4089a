"""The groups of this process: starting, asking, dividing and ending them."""
from __future__ import annotations

import os
import warnings
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _mpi_world
from mindtorch_v2.distributed._process_group import Backend, BackendConfig, ProcessGroup
from mindtorch_v2.distributed._stores import PrefixStore, Store
from mindtorch_v2.distributed.constants import default_pg_timeout
from mindtorch_v2.distributed.rendezvous import rendezvous

_NOT_STARTED = "Default process group has not been initialized, please make sure to call init_process_group."


class GroupMember:
    """What new_group() gives to a rank that is not in the group."""
    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


class _WorldMeta(type):
    """Lets group.WORLD be the default group of the moment."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return GroupMember.WORLD

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        GroupMember.WORLD = group


class group(metaclass=_WorldMeta):
    """group.WORLD is the default group."""


class _World:
    """Every group of the process."""

    def __init__(self) -> None:
        self.groups: dict[str, ProcessGroup] = {}
        self.count = 0
        self.store: Store | None = None

    @property
    def default_pg(self) -> ProcessGroup | None:
        return GroupMember.WORLD

    @property
    def pg_map(self) -> dict[ProcessGroup, tuple[str, Store]]:
        return {pg: (pg._backend, pg._store) for pg in self.groups.values()}

    @property
    def pg_names(self) -> dict[ProcessGroup, str]:
        return {pg: name for name, pg in self.groups.items()}

    @property
    def pg_group_ranks(self) -> dict[ProcessGroup, dict[int, int]]:
        return {pg: {rank: i for i, rank in enumerate(pg._ranks)} for pg in self.groups.values()}


_world = _World()


def is_available() -> bool:
    """torch.distributed is a part of this build."""
    return True


def is_initialized() -> bool:
    """Whether there is a default group."""
    return GroupMember.WORLD is not None


def is_gloo_available() -> bool:
    """Whether "gloo" can be used: MPI serves it."""
    return _mpi_world.is_available()


is_mpi_available = is_gloo_available


def is_nccl_available() -> bool:
    return False


is_ucc_available = is_xccl_available = is_nccl_available


def is_hccl_available() -> bool:
    """Whether "hccl" can be used: there is an npu."""
    return torch.npu.is_available()


def is_backend_available(backend: str) -> bool:
    known = {"gloo": is_gloo_available, "mpi": is_gloo_available, "hccl": is_hccl_available}
    return known[backend.lower()]() if backend.lower() in known else backend.lower() in Backend._plugins


def is_torchelastic_launched() -> bool:
    """Whether the launcher has started this process."""
    return os.getenv("TORCHELASTIC_RUN_ID") is not None


def _get_default_group() -> ProcessGroup:
    if GroupMember.WORLD is None:
        raise ValueError(_NOT_STARTED)
    return GroupMember.WORLD


def _get_default_store() -> Store:
    _get_default_group()
    assert _world.store is not None
    return _world.store


def _resolve(pg: Any) -> ProcessGroup:
    """The group that a user means; None is the default one."""
    return _get_default_group() if pg is None or pg is group.WORLD else pg


def _rank_not_in_group(pg: Any) -> bool:
    return pg is not None and pg == GroupMember.NON_GROUP_MEMBER


def _warn_not_in_group(name: str, stacklevel: int = 3) -> None:
    rank = -1 if GroupMember.WORLD is None else GroupMember.WORLD.rank()
    warnings.warn(f"Running {name} on global rank {rank} which does not belong to the given group.", stacklevel=stacklevel)


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None,
                       world_size: int = -1, rank: int = -1, store: Store | None = None, group_name: str = "",
                       pg_options: Any = None, device_id: Any = None, _ranks: Any = None) -> None:
    """Makes the default group; every process of the job calls it."""
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    limit = timeout or default_pg_timeout
    name = Backend.UNDEFINED if backend is None else Backend(backend)
    if isinstance(device_id, int):
        device_id = torch.device("npu", device_id)
    if store is not None:
        if world_size <= 0:
            raise AssertionError("world_size must be positive if using store")
        if rank < 0:
            raise AssertionError("rank must be non-negative if using store")
    else:
        if init_method is None:
            rank, world_size = _from_manager(name, rank, world_size)
        store, rank, world_size = next(iter(rendezvous(init_method or "env://", rank, world_size, timeout=limit)))
    store.set_timeout(limit)
    root = PrefixStore("default_pg", store)
    made = ProcessGroup(root, list(range(world_size)), rank, name, limit, group_name or "0", "default_pg", device_id)
    _check_rank(rank, world_size)
    made._open(root, rank, world_size)
    GroupMember.WORLD, _world.store = made, root
    _world.groups = {made.group_name: made}
    _world.count = 1


def _check_rank(rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ValueError(f"expected a rank from 0 to {size - 1} (world size {size}), got {rank}")


def _from_manager(backend: str, rank: int, size: int) -> tuple[int, int]:
    """Under mpiexec, rank and size are what MPI says, and its first host keeps the store."""
    if backend != Backend.MPI or "RANK" in os.environ or rank >= 0 or not _mpi_world.under_manager():
        return rank, size
    rank, size = _mpi_world.rank_and_size_of_manager()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    return rank, size


def destroy_process_group(group: Any = None) -> None:
    """Ends a group, or all of them."""
    pg = GroupMember.WORLD if group is None else group
    if _rank_not_in_group(pg):
        return
    if pg is None:
        raise AssertionError("Process group cannot be None")
    if pg.group_name not in _world.groups:
        raise ValueError("Invalid process group specified")
    if pg is GroupMember.WORLD:
        for other in reversed(list(_world.groups.values())):
            other.shutdown()
        _world.groups, _world.store, GroupMember.WORLD = {}, None, None
        return
    pg.shutdown()
    del _world.groups[pg.group_name]


def new_group(ranks: list[int] | None = None, timeout: timedelta | None = None, backend: str | None = None,
              pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
              device_id: Any = None) -> Any:
    """A group of some ranks; every process of the job calls it, in the same order."""
    default = _get_default_group()
    size = default.size()
    members = list(range(size)) if ranks is None else [int(rank) for rank in ranks]
    if ranks is not None:
        members = sorted(members)
        if len(members) > size:
            raise ValueError("the new group's world size should be less or equal to the world size set by init_process_group")
        for rank in members:
            if not 0 <= rank < size:
                raise ValueError(f"Rank {rank} is out of range. Valid ranks are 0 to {size - 1} (world_size={size})")
        if len(set(members)) != len(members):
            raise ValueError("the new group's ranks must not repeat")
    _world.count += 1
    if default.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    name = Backend(backend) if backend else default._backend
    made = ProcessGroup(_get_default_store(), members, members.index(default.rank()), name, timeout or default._timeout,
                        _name_of_new(members, use_local_synchronization), group_desc or "undefined",
                        device_id or default.bound_device_id)
    made._open(_get_default_store(), default.rank(), size)
    _world.groups[made.group_name] = made
    return made


def _name_of_new(members: list[int], local: bool) -> str:
    """All members must get the same; with local synchronization other ranks have not counted along."""
    if not local:
        return str(_world.count - 1)
    stem = "local-" + "_".join(map(str, members))
    return f"{stem}-{sum(name.startswith(stem) for name in _world.groups)}"


def new_subgroups(group_size: int | None = None, group: Any = None, timeout: timedelta | None = None,
                  backend: str | None = None, pg_options: Any = None, group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """(the group of this rank, all groups) of group_size neighbours each."""
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or max(torch.npu.device_count(), 1)
    size = get_world_size(group)
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    ranks = get_process_group_ranks(group)
    return new_subgroups_by_enumeration([ranks[i:i + group_size] for i in range(0, size, group_size)], timeout, backend,
                                        pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list: list[list[int]], timeout: timedelta | None = None,
                                 backend: str | None = None, pg_options: Any = None,
                                 group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """(the group of this rank, all groups) of lists of ranks."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    flat = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(flat)) != len(flat):
        raise ValueError("a rank is in more than one subgroup")
    current, made = None, []
    for ranks in ranks_per_subgroup_list:
        one = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        made.append(one)
        if get_rank() in ranks:
            current = one
    return current, made


def split_group(parent_pg: Any = None, split_ranks: list[list[int]] | None = None, timeout: timedelta | None = None,
                pg_options: Any = None, group_desc: str | None = None, backend: str | None = None) -> Any:
    """The group of this rank, of a parent's ranks divided into lists (of the parent's ranks); None if it is in none."""
    parent = _resolve(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    mine = None
    for ranks in split_ranks:
        if not ranks or any(not 0 <= rank < parent.size() for rank in ranks):
            raise ValueError(f"split_group: ranks must be from 0 to {parent.size() - 1}, got {ranks}")
        if parent.rank() in ranks:
            mine = sorted(parent._ranks[rank] for rank in ranks)
    if mine is None:
        return None
    return new_group(mine, timeout, backend or parent._backend, pg_options, use_local_synchronization=True,
                     group_desc=group_desc)


def get_rank(group: Any = None) -> int:
    """This process's rank in a group; -1 where it is not in it."""
    return -1 if _rank_not_in_group(group) else _resolve(group).rank()


def get_world_size(group: Any = None) -> int:
    return -1 if _rank_not_in_group(group) else _resolve(group).size()


def get_backend(group: Any = None) -> str:
    """The name of the engine, as it was given."""
    if _rank_not_in_group(group):
        raise ValueError("Invalid process group specified")
    return _resolve(group)._backend


def get_backend_config(group: Any = None) -> str:
    return str(BackendConfig(get_backend(group)))


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in a group of a rank of the world."""
    if group is GroupMember.WORLD:
        return global_rank
    if getattr(group, "group_name", None) not in _world.groups:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    if global_rank not in group._ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group._ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the world of a rank of a group."""
    if group is GroupMember.WORLD:
        return group_rank
    if getattr(group, "group_name", None) not in _world.groups:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    if not 0 <= group_rank < len(group._ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group._ranks[group_rank]


def get_process_group_ranks(group: Any) -> list[int]:
    """The ranks in the world of a group's members, in the group's order."""
    return list(_resolve(group)._ranks)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The rank among the processes of this host, as the launcher said it."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to "
                       "work, assuming you are not running in a multi-device context and want the code to run locally instead.")


def get_pg_count() -> int:
    return len(_world.groups)


def _resolve_process_group(group_name: str) -> ProcessGroup:
    if group_name not in _world.groups:
        raise ValueError(f"Could not resolve the process group registered under the name {group_name}")
    return _world.groups[group_name]


def _get_process_group_name(pg: ProcessGroup) -> str:
    return pg.group_name
