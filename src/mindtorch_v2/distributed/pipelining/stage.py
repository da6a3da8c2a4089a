"""PipelineStage: a part of a model on one rank, what it receives of the part before it and sends to the one after it."""
from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as collectives
from mindtorch_v2.distributed._world import _resolve, get_global_rank
from mindtorch_v2.distributed.fsdp import FSDPModule
from mindtorch_v2.distributed.pipelining._halves import input_half, weight_half
from mindtorch_v2.distributed.pipelining._orders import looped

__all__ = ["PipelineStage"]

Tensor = Any
Ops = list[Any]
_LOOKS = 4096                                     # bytes of what a stage tells the next one of its outputs


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
        self.dw_builder = dw_builder
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group = torch.device(device), _resolve(group)
        if self.group.size() > num_stages:
            raise ValueError(f"Pipeline group size {self.group.size()} cannot be larger than number of stages {num_stages}")
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        self.stage_index_to_group_rank = dict(enumerate(looped(num_stages, self.group_size)))
        # Shapes of inputs and outputs; sent by the stage before at the first microbatch, unless the program gave them.
        self._given = None if input_args is None else [(s, d, d.is_floating_point) for s, d, _ in _looks(_tensors(input_args))]
        self.received, self._given_out, self.shapes_sent = self._given, output_args is not None, output_args is not None
        self._sent_with_backward: bool | None = None
        self._message: Tensor = None              # shapes of the inputs, while being received
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
        self.kept: dict[int, Any] = {}            # what the second half of a backward needs

    def begin(self, backward: bool) -> None:
        """Before a step. Without a backward no tensor requires a gradient: shapes sent then are not valid for one with it."""
        self.clear()
        self._has_backward = backward
        if self._sent_with_backward is not backward:
            self._sent_with_backward, self.shapes_sent, self.received = backward, self._given_out, self._given

    def _rank_of(self, stage: int) -> int:
        return get_global_rank(self.group, self.stage_index_to_group_rank[stage])

    # ---- what travels
    def get_fwd_recv_ops(self, number: int) -> Ops:
        """What forward of a microbatch waits for."""
        if self.is_first:
            return []
        source = self._rank_of(self.stage_index - 1)
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
        if self.sent_looks and [one[:2] for one in looks] != [one[:2] for one in self.sent_looks]:
            raise RuntimeError(f"[PipelineStage] microbatches must be of one shape: stage {self.stage_index} gave {looks} after "
                               f"{self.sent_looks}")
        self.sent_looks = looks
        if self.is_last:
            self.whole_outputs.append(output)
        return output

    # ---- shapes of what is sent: exchanged once, because a rank allocates memory before it receives
    def send_shape_ops(self) -> Ops:
        """The shapes of the outputs, for the rank that has the next stage."""
        if self.shapes_sent or self.is_last:
            return []
        self.shapes_sent = True
        text = pickle.dumps(self.sent_looks)
        if len(text) + 8 > _LOOKS:
            raise RuntimeError(f"[PipelineStage] stage {self.stage_index} gives {len(self.sent_looks)} tensors, too many for "
                               "the message with their shapes")
        data = len(text).to_bytes(8, "little") + text.ljust(_LOOKS - 8, b"\0")
        message = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        return [collectives.P2POp(collectives.isend, message, self._rank_of(self.stage_index + 1), self.group)]

    def receive_shape_ops(self) -> Ops:
        """Starts to receive the shapes of the inputs; read_shapes() reads them when they have arrived."""
        if self.received is not None or self.is_first:
            return []
        self._message = torch.empty(_LOOKS, dtype=torch.uint8, device=self.device)
        return [collectives.P2POp(collectives.irecv, self._message, self._rank_of(self.stage_index - 1), self.group)]

    def read_shapes(self) -> None:
        if self.received is None and not self.is_first:
            data = bytes(self._message.cpu().numpy())
            self.received = pickle.loads(data[8:8 + int.from_bytes(data[:8], "little")])

    # ---- between two stages of one rank
    def take_inputs(self, number: int, outputs: tuple[Tensor, ...]) -> None:
        self.inputs[number] = tuple(x.detach().requires_grad_(x.requires_grad and self._has_backward) for x in outputs)

    def take_grads(self, number: int, grads: list[Tensor | None]) -> None:
        self.grads[number] = grads

    def backward_one_chunk(self, number: int, loss: Tensor | None, last: bool) -> None:
        """Gradients of parameters and inputs of a microbatch; what wraps the module reduces them with the last one."""
        outputs, grads, inputs = self._ends_of(number, loss)
        with self._without_sync(last):
            torch.autograd.backward(outputs, grads)
        self._put_input_grads(number, inputs)

    def _ends_of(self, number: int, loss: Tensor | None) -> tuple[list[Tensor], list[Tensor], tuple[Tensor, ...]]:
        """(the tensors that a backward begins at, their gradients, the inputs that it ends at) of a microbatch."""
        outputs, inputs = self.outputs.pop(number), self.inputs.pop(number, ())
        if self.is_last:
            assert loss is not None
            return [loss], [torch.ones_like(loss)], inputs
        pairs = [(x, grad) for x, grad in zip(outputs, self.grads.pop(number), strict=True) if grad is not None]
        return [x for x, _ in pairs], [grad for _, grad in pairs], inputs

    def _put_input_grads(self, number: int, inputs: tuple[Tensor, ...]) -> None:
        self.input_grads[number] = [None if not x.requires_grad else torch.zeros_like(x) if x.grad is None else
                                    x.grad.contiguous() for x in inputs]

    def backward_input_one_chunk(self, number: int, loss: Tensor | None, last: bool) -> None:
        """Gradients of the inputs of a microbatch; those of the weights come with backward_weight_one_chunk. On the
        first stage no rank waits for them, so all is computed then; where backward cannot be split, all is computed now."""
        outputs, grads, inputs = self._ends_of(number, loss)
        wanted = [x for x in inputs if x.requires_grad]
        if not wanted and self.dw_builder is None:
            self.kept[number] = (outputs, grads)
        elif self.dw_builder is not None or self._is_wrapped() or (kept := input_half(outputs, grads, wanted)) is None:
            with self._without_sync(last):
                torch.autograd.backward(outputs, grads)
            self.kept[number] = None if self.dw_builder is None else self.dw_builder()
        else:
            self.kept[number] = kept
        self._put_input_grads(number, inputs)

    def backward_weight_one_chunk(self, number: int, last: bool) -> None:
        """What backward_input_one_chunk has left."""
        kept = self.kept.pop(number)
        if isinstance(kept, tuple):
            with self._without_sync(last):
                torch.autograd.backward(*kept)
        elif callable(kept):
            kept()
        elif kept is not None:
            weight_half(kept)

    def _is_wrapped(self) -> bool:
        """Whether gradients of parameters are reduced as backward makes them."""
        return isinstance(self.submod, torch.nn.parallel.DistributedDataParallel | FSDPModule)

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


def build_stage(stage_module: Any, stage_index: int, pipe_info: Any, device: Any, group: Any = None) -> PipelineStage:
    """A PipelineStage of a module that pipeline() made."""
    return PipelineStage(stage_module.to(device), stage_index, pipe_info.num_stages, device, group=group)
