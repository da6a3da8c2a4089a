"""PipelineStage: a part of a model on one rank, what it receives of the part before it and sends to the one after it."""
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as collectives
from mindtorch_v2.distributed import _objects as objects
from mindtorch_v2.distributed._world import _resolve, get_global_rank
from mindtorch_v2.distributed.fsdp import FSDPModule

__all__ = ["PipelineStage"]

Tensor = Any
Ops = list[Any]


def _tensors(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _looks(values: Any) -> list[tuple[Any, ...]]:
    """Shape, dtype and whether a gradient comes back, of each tensor."""
    return [(tuple(x.shape), x.dtype, x.requires_grad) for x in values]


class PipelineStage:
    """One part of a model that is divided by its depth."""

    def __init__(self, submodule: Any, stage_index: int, num_stages: int, device: Any, input_args: Any = None,
                 output_args: Any = None, output_grads: Any = None, input_grads: Any = None, group: Any = None,
                 dw_builder: Any = None, get_mesh: Any = None) -> None:
        if stage_index >= num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        if dw_builder is not None:
            raise NotImplementedError("[PipelineStage] dw_builder: backward is not divided into that of inputs and weights")
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group = torch.device(device), _resolve(group)
        if self.group.size() > num_stages:
            raise ValueError(f"Pipeline group size {self.group.size()} cannot be larger than number of stages {num_stages}")
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if stage_index % self.group_size != self.group_rank:
            raise ValueError(f"stage {stage_index} of {num_stages} belongs to rank {stage_index % self.group_size} of the group, "
                             f"and this is rank {self.group_rank}")
        # What arrives and what leaves; told by the stage before at the first microbatch, where the program does not say it.
        self.received = None if input_args is None else [(s, d, d.is_floating_point) for s, d, _ in _looks(_tensors(input_args))]
        self.told = output_args is not None
        self.sent_looks: list[tuple[Any, ...]] = []
        self.clear()

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    @property
    def has_backward(self) -> bool:
        return self._has_backward

    def clear(self) -> None:
        """Forgets the microbatches of a step."""
        self._has_backward = False
        self.inputs: dict[int, tuple[Tensor, ...]] = {}
        self.outputs: dict[int, tuple[Tensor, ...]] = {}
        self.whole_outputs: list[Any] = []
        self.grads: dict[int, list[Tensor | None]] = {}
        self.input_grads: dict[int, list[Tensor | None]] = {}

    def _rank_of(self, stage: int) -> int:
        return get_global_rank(self.group, stage % self.group_size)

    # ---- what travels
    def get_fwd_recv_ops(self, number: int) -> Ops:
        """What forward of a microbatch waits for."""
        if self.is_first:
            return []
        source = self._rank_of(self.stage_index - 1)
        if self.received is None:
            box = [None]
            objects.recv_object_list(box, src=source, group=self.group)
            self.received = box[0]
        made = tuple(torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype, _ in self.received or ())
        for x, (_, _, grad) in zip(made, self.received or (), strict=True):
            x.requires_grad_(grad and self._has_backward)
        self.inputs[number] = made
        return [collectives.P2POp(collectives.irecv, x.detach(), source, self.group) for x in made]

    def get_fwd_send_ops(self, number: int) -> Ops:
        """What the next stage waits for."""
        if self.is_last:
            return []
        target = self._rank_of(self.stage_index + 1)
        return [collectives.P2POp(collectives.isend, x.detach().contiguous(), target, self.group) for x in self.outputs[number]]

    def get_bwd_recv_ops(self, number: int) -> Ops:
        """What backward of a microbatch waits for."""
        if self.is_last:
            return []
        source = self._rank_of(self.stage_index + 1)
        self.grads[number] = [torch.empty(x.shape, dtype=x.dtype, device=self.device) if x.requires_grad else None
                              for x in self.outputs[number]]
        return [collectives.P2POp(collectives.irecv, x, source, self.group) for x in self.grads[number] if x is not None]

    def get_bwd_send_ops(self, number: int) -> Ops:
        """What backward of the stage before waits for."""
        if self.is_first:
            return []
        target = self._rank_of(self.stage_index - 1)
        grads = self.input_grads.pop(number)
        return [collectives.P2POp(collectives.isend, x, target, self.group) for x in grads if x is not None]

    # ---- computing
    def forward_one_chunk(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The output of a microbatch."""
        given = args if self.is_first else self.inputs[number]
        with nullcontext() if self._has_backward else torch.no_grad():
            output = self.submod(*given, **kwargs)
        self.outputs[number] = _tensors(output)
        for x in self.outputs[number]:
            if not isinstance(x, torch.Tensor):
                raise TypeError(f"[PipelineStage] a stage gives tensors, got {type(x).__name__}")
        looks = _looks(self.outputs[number])
        if not self.is_last:
            if not self.told:
                objects.send_object_list([looks], dst=self._rank_of(self.stage_index + 1), group=self.group)
                self.told, self.sent_looks = True, looks
            elif self.sent_looks and [one[:2] for one in looks] != [one[:2] for one in self.sent_looks]:
                raise RuntimeError(f"[PipelineStage] microbatches must be of one shape: stage {self.stage_index} gave {looks} "
                                   f"after {self.sent_looks}")
        if self.is_last:
            self.whole_outputs.append(output)
        return output

    def backward_one_chunk(self, number: int, loss: Tensor | None, last: bool) -> None:
        """Gradients of parameters and inputs of a microbatch; what wraps the module reduces them with the last one."""
        outputs = self.outputs.pop(number)
        inputs = self.inputs.pop(number, ())
        with self._without_sync(last):
            if self.is_last:
                assert loss is not None
                loss.backward()
            else:
                grads = self.grads.pop(number)
                pairs = [(x, grad) for x, grad in zip(outputs, grads, strict=True) if grad is not None]
                torch.autograd.backward([x for x, _ in pairs], [grad for _, grad in pairs])
        self.input_grads[number] = [None if not x.requires_grad else torch.zeros_like(x) if x.grad is None else
                                    x.grad.contiguous() for x in inputs]

    def _without_sync(self, last: bool) -> Any:
        if isinstance(self.submod, torch.nn.parallel.DistributedDataParallel):
            return nullcontext() if last else self.submod.no_sync()
        if isinstance(self.submod, FSDPModule):
            self.submod.set_requires_gradient_sync(last)
        return nullcontext()

    def scale_grads(self, factor: int) -> None:
        """Gradients of microbatches are added up; the loss is their mean."""
        if factor != 1:
            for param in self.submod.parameters():
                if param.grad is not None:
                    param.grad.div_(factor)


_PipelineStageBase = PipelineStage
