"""The parameters of one fully_shard: gathered by one collective, their gradients reduced by one."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as collectives
from mindtorch_v2.distributed._work import ReduceOp
from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.fsdp._param import ShardedParam

Tensor = Any


class ParamGroup:
    """What is whole and divided together."""

    def __init__(self, params: list[ShardedParam], mesh: DeviceMesh, policy: Any, device: Any) -> None:
        self.params, self.mesh, self.policy, self.device = params, mesh, policy, device
        self.pg = mesh.get_group(mesh.ndim - 1)
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None
        self.divide_by: float | None = None
        self.reduces = self.all_reduces = True
        self.hook: Any = None                     # of set_all_reduce_hook
        self.is_whole = False
        self.gathering: Any = None                # (work, rows, dtypes) while the parts are under way
        self.reducing: Any = None                 # (work, flat, widths) while gradients are under way
        self.kept: Any = None                     # parts of gradients that have not been reduced between replicas yet

    def _dtype(self, param: ShardedParam) -> Any:
        return self.policy.param_dtype if self.policy.param_dtype is not None and param.dtype.is_floating_point else param.dtype

    # ---- gathering
    def start_unshard(self) -> None:
        """Sends the parts; unshard() waits for them."""
        if self.is_whole or self.gathering is not None or not self.params:
            return
        for param in self.params:
            param.take_changes()
        dtypes = [self._dtype(param) for param in self.params]
        works = []
        for dtype in dict.fromkeys(dtypes):
            mine = [param for param, one in zip(self.params, dtypes, strict=True) if one is dtype]
            flat = torch.cat([param.packed(dtype, self.device) for param in mine])
            rows = torch.empty(self.pg.size(), flat.numel(), dtype=dtype, device=flat.device)
            work = collectives.all_gather_into_tensor(rows, flat, self.pg, async_op=True)
            works.append((work, rows, flat, mine, dtype))
        self.gathering = works

    def unshard(self) -> None:
        """All parameters whole, in the places of the parts."""
        with torch.no_grad():
            self.start_unshard()
            for work, rows, _, mine, dtype in self.gathering or ():
                work.wait()
                begin = 0
                for param in mine:
                    width = param.full * param.memory_row()
                    param.unpack(rows[:, begin:begin + width], dtype)
                    begin += width
            if self.gathering is not None:
                self.gathering, self.is_whole = None, True

    def reshard(self) -> None:
        if self.gathering is not None:            # an all-gather that was not waited for
            self.unshard()
        if self.is_whole:
            for param in self.params:
                param.drop()
            self.is_whole = False

    # ---- reducing
    def has_grads(self) -> bool:
        return any(param.whole is not None and param.whole.grad is not None for param in self.params)

    def start_reduce(self) -> None:
        """Sends the gradients of the whole; finish_reduce() waits for the parts."""
        if not self.reduces or self.reducing is not None or not self.has_grads():
            return
        with torch.no_grad():
            mine = [param for param in self.params if param.sharded.requires_grad]
            dtype = self.policy.reduce_dtype or self._dtype(mine[0])
            rows = torch.cat([param.packed_grad(dtype) for param in mine], dim=1)
            flat = torch.empty(rows.shape[1], dtype=dtype, device=rows.device)
            work = collectives.reduce_scatter_tensor(flat, rows.reshape(-1), ReduceOp.SUM, self.pg, async_op=True)
            for param in mine:
                param.whole.grad = None           # its memory is in the rows
        self.reducing = (work, flat, rows, mine)

    def finish_reduce(self) -> None:
        if self.reducing is None:
            return
        work, flat, rows, mine = self.reducing
        with torch.no_grad():
            work.wait()
            if self.kept is not None:
                flat, self.kept = flat + self.kept, None
            if self.replicas is not None and not self.all_reduces:
                self.kept, self.reducing = flat, None
                return
            if self.replicas is not None:
                collectives.all_reduce(flat, ReduceOp.SUM, self.replicas)
            flat.div_(self.divide_by or self.pg.size() * (1 if self.replicas is None else self.replicas.size()))
            if self.hook is not None:
                self.hook(flat)
            begin = 0
            for param in mine:
                width = param.full * param.memory_row()
                param.take_grad(flat[begin:begin + width])
                begin += width
        self.reducing = None
