"""torch.distributed.device_mesh: the ranks of a job as a table with named dimensions, and the groups along each."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._world import (
    _get_default_group,
    _world,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)

__all__ = ["DeviceMesh", "init_device_mesh"]

_entered: list[DeviceMesh] = []


class DeviceMesh:
    """Ranks in a table; along each dimension, every row of it is a group."""

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None,
                 backend_override: Any = None, _init_backend: bool = True, _groups: list[Any] | None = None) -> None:
        self.device_type = device_type
        self.mesh = (mesh.detach() if isinstance(mesh, torch.Tensor) else torch.tensor(mesh)).to("cpu", torch.int64)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names is not None else None
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.dim():
            raise RuntimeError("The mesh_shape and mesh_dim_names should have same length!")
        self._root: DeviceMesh = self
        self._hash: int | None = None
        self._coordinate: list[int] | None
        self._groups: list[Any]
        self._flat: dict[str, DeviceMesh] = {}
        if _groups is None and not is_initialized():
            init_process_group("hccl" if device_type == "npu" else None)
        elif not is_initialized():                # one of a file, in a process without a job
            self._coordinate, self._groups = None, _groups or []
            return
        if self.mesh.numel() > get_world_size():
            raise RuntimeError(f"Mesh should not be bigger than default world size {get_world_size()}, but found "
                               f"{self.mesh.numel()} ranks!")
        places = (self.mesh == get_rank()).nonzero()
        if places.shape[0] > 1:
            raise AssertionError(f"rank {get_rank()} is more than once in {self.mesh}")
        self._coordinate = places[0].tolist() if places.shape[0] else None
        self._groups = self._make_groups() if _groups is None else _groups

    def _make_groups(self) -> list[Any]:
        """Every rank of the job makes all groups, in one order."""
        mine: list[Any] = []
        for dim in range(self.mesh.dim()):
            rows = self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist()
            found = None
            if len(rows) == 1 and rows[0] == list(range(get_world_size())):
                found = _get_default_group()
            else:
                for ranks in rows:
                    made = new_group(ranks, group_desc=f"mesh_{self.mesh_dim_names[dim] if self.mesh_dim_names else dim}")
                    if get_rank() in ranks:
                        found = made
            mine.append(found)
        return mine

    def _dim(self, name: str | int) -> int:
        if isinstance(name, int):
            return name
        if self.mesh_dim_names is None or name not in self.mesh_dim_names:
            raise KeyError(f"Invalid mesh_dim_name '{name}' specified. Valid mesh_dim_names are {self.mesh_dim_names}.")
        return self.mesh_dim_names.index(name)

    @property
    def ndim(self) -> int:
        return self.mesh.dim()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | str | None = None) -> int:
        return self.mesh.numel() if mesh_dim is None else self.mesh.shape[self._dim(mesh_dim)]

    def get_coordinate(self) -> list[int] | None:
        """Where this rank is, or None."""
        return self._coordinate

    def get_rank(self) -> int:
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's number along a dimension."""
        if self.ndim > 1 and mesh_dim is None:
            raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions",
                               "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.")
        if self._coordinate is None:
            raise RuntimeError("this rank is not in the mesh")
        return self._coordinate[self._dim(mesh_dim or 0)]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group along a dimension that this rank is in."""
        if self.ndim > 1 and mesh_dim is None:
            raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions",
                               "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                               "If you want to get the list of all the ProcessGroups in the "
                               "DeviceMesh,please use `get_all_groups()` instead.")
        return self._groups[self._dim(mesh_dim or 0)]

    def get_all_groups(self) -> list[Any]:
        return list(self._groups)

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh along some dimensions that this rank is in."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if len(wanted) == 1 and wanted[0] in self._flat:
            return self._flat[wanted[0]]
        dims = [self._dim(name) for name in wanted]
        if self.mesh_dim_names == wanted:
            return self
        rest = [d for d in range(self.ndim) if d not in dims]
        table = self.mesh.permute(*rest, *dims).reshape(-1, *(self.mesh.shape[d] for d in dims))
        inside = next((part for part in table if get_rank() in part.flatten().tolist()), table[0])
        part = DeviceMesh(self.device_type, inside, mesh_dim_names=wanted, _groups=[self._groups[d] for d in dims])
        part._root = self._root
        return part

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """All dimensions as one."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ("flat",))
        root = self._root
        if name not in root._flat:
            dims = [root._dim(one) for one in self.mesh_dim_names or ()]
            rest = [d for d in range(root.ndim) if d not in dims]
            mine, group = None, None
            for row in root.mesh.permute(*rest, *dims).reshape(-1, self.mesh.numel()).tolist():
                made = _get_default_group() if row == list(range(get_world_size())) else new_group(row)
                if get_rank() in row:
                    mine, group = row, made
            root._flat[name] = DeviceMesh(self.device_type, mine or self.mesh.flatten(), mesh_dim_names=(name,), _groups=[group])
        return root._flat[name]

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *,
                   mesh_dim_names: tuple[str, ...] | None = None) -> DeviceMesh:
        """A mesh over groups that exist."""
        groups = group if isinstance(group, list) else [group]
        table = get_process_group_ranks(groups[0]) if mesh is None else mesh
        return DeviceMesh(device_type, table, mesh_dim_names=mesh_dim_names, _groups=groups)

    def __enter__(self) -> DeviceMesh:
        _entered.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _entered.pop()

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, DeviceMesh):
            return self is other
        return self.device_type == other.device_type and self.shape == other.shape and \
            self.mesh_dim_names == other.mesh_dim_names and self.mesh.tolist() == other.mesh.tolist()

    def __hash__(self) -> int:
        if self._hash is None:                    # every op on a DTensor hashes its mesh
            self._hash = hash((self.device_type, self.shape, self.mesh_dim_names, tuple(self.mesh.flatten().tolist())))
        return self._hash

    def __reduce__(self) -> Any:
        return _rebuild, (self.device_type, self.mesh.tolist(), self.mesh_dim_names)

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceMesh:
        return self                               # the mesh is the processes, as a group is

    def __repr__(self) -> str:
        if self.mesh_dim_names:
            shape = ", ".join(f"{name}={size}" for name, size in zip(self.mesh_dim_names, self.shape, strict=True))
            return f"DeviceMesh(({shape}), '{self.device_type}', stride={tuple(self.mesh.stride())})"
        return f"DeviceMesh({self.shape}, '{self.device_type}', stride={tuple(self.mesh.stride())})"


def _rebuild(device_type: str, ranks: Any, names: tuple[str, ...] | None) -> DeviceMesh:
    """Unpickle one: the groups are those of this process that have the same ranks, as far as there are any. A file that is not
    trusted may call it, with anything."""
    if not (isinstance(device_type, str) and isinstance(ranks, list)):
        raise TypeError("a DeviceMesh is of the name of a device and lists of ranks")
    if names is not None and not (isinstance(names, tuple) and all(isinstance(name, str) for name in names)):
        raise TypeError("the names of a DeviceMesh are a tuple of str")
    made = DeviceMesh(device_type, ranks, mesh_dim_names=names, _groups=[])
    for dim in range(made.ndim):
        rows = made.mesh.movedim(dim, -1).reshape(-1, made.mesh.shape[dim]).tolist()
        mine = next((row for row in rows if is_initialized() and get_rank() in row), None)
        made._groups.append(next((pg for pg in _world.groups.values() if pg._ranks == mine), None))
    return made


class _MeshResources:
    """Asks for the mesh of the with block that runs, and for the mesh that a part was taken from."""

    def get_current_mesh(self) -> DeviceMesh:
        if not _entered:
            raise RuntimeError("No device mesh is currently active!")
        return _entered[-1]

    def get_root_mesh(self, device_mesh: DeviceMesh) -> DeviceMesh:
        return device_mesh._root


_mesh_resources = _MeshResources()


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None,
                     backend_override: Any = None) -> DeviceMesh:
    """A mesh of the first ranks of the job, in order; every process calls it."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError("Each mesh_dim_name must be unique.",
                               f"Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length!",
                               f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}.")
    if not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}. ",
                           "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.")
    return DeviceMesh(device_type, torch.arange(math.prod(mesh_shape)).view(tuple(mesh_shape)), mesh_dim_names=mesh_dim_names)
