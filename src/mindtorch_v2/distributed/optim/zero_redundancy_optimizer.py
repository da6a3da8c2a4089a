"""ZeroRedundancyOptimizer: each process keeps the state of a part of the parameters, steps them and sends them to the others."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._collectives import broadcast
from mindtorch_v2.distributed._objects import broadcast_object_list
from mindtorch_v2.distributed._world import _get_default_group

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Any optimizer, over the parameters of this process; after a step every process has all of them."""

    def __init__(self, params: Any, optimizer_class: type, process_group: Any = None, parameters_as_bucket_view: bool = False,
                 overlap_with_ddp: bool = False, **defaults: Any) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("[ZeroRedundancyOptimizer] overlap_with_ddp is not offered here")
        super().__init__(params, defaults)
        self.process_group = _get_default_group() if process_group is None else process_group
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self._optim_cls, self._defaults = optimizer_class, defaults
        self._all_state_dicts: list[dict[str, Any]] = []
        self._build()

    def _build(self) -> None:
        """Gives each parameter to the process that has least so far, the largest first: the same on all."""
        sizes = [0] * self.world_size
        self._owner: dict[int, int] = {}
        for group in self.param_groups:
            for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
                owner = sizes.index(min(sizes))
                sizes[owner] += p.numel()
                self._owner[id(p)] = owner
        groups = [{**group, "params": [p for p in group["params"] if self._owner[id(p)] == self.rank]}
                  for group in self.param_groups]
        self._places = [i for i, group in enumerate(groups) if group["params"]]
        mine = [groups[i] for i in self._places]
        self.optim = self._optim_cls(mine, **self._defaults) if mine else None
        for place, group in zip(self._places, self.optim.param_groups if self.optim else (), strict=False):
            for key, value in group.items():      # the defaults of the class, which a scheduler changes here
                if key != "params":
                    self.param_groups[place].setdefault(key, value)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if hasattr(self, "optim"):
            self._build()

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self.optim is not None:
            for place, group in zip(self._places, self.optim.param_groups, strict=True):
                group.update({key: value for key, value in self.param_groups[place].items() if key != "params"})
            self.optim.step(**kwargs)
        self._share()
        return loss

    def _share(self) -> None:
        with torch.no_grad():
            works: list[Any] = []
            for group in self.param_groups:
                for p in group["params"]:
                    works.append(broadcast(p.detach(), group=self.process_group, group_src=self._owner[id(p)], async_op=True))
            for work in works:
                work.wait()

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the states of all processes; rank `to` can then give the whole state_dict()."""
        every: list[Any] = []
        for rank in range(self.world_size):
            part = [self._local_state() if rank == self.rank else None]
            broadcast_object_list(part, group=self.process_group, group_src=rank)
            every.append(part[0])
        self._all_state_dicts = every if self.rank == to else []

    def _local_state(self) -> dict[int, Any]:
        """State by the number of a parameter among all."""
        state = self.optim.state if self.optim is not None else {}
        return {index: state[p] for index, p in enumerate(self._params()) if p in state}

    def _params(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as the optimizer of one process would give it."""
        if not self._all_state_dicts:
            raise RuntimeError(f"Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                               f"{self.rank})` on all ranks beforehand if you meant to save the global state.")
        numbers = {id(p): index for index, p in enumerate(self._params())}
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        state = {index: value for part in self._all_state_dicts for index, value in part.items()}
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        params = self._params()
        for place, group in enumerate(state_dict["param_groups"]):
            self.param_groups[place].update({key: value for key, value in group.items() if key != "params"})
        if self.optim is None:
            return
        for index, value in state_dict["state"].items():
            p = params[index]
            if self._owner[id(p)] == self.rank:
                self.optim.state[p] = {key: item.to(p.device).clone() if isinstance(item, torch.Tensor) and item.dim() else item
                                       for key, item in value.items()}
