"""Styles of tensor parallelism: how the parameters of a module are divided, and what happens to its inputs and outputs."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.tensor._api import DTensor, distribute_module, distribute_tensor
from mindtorch_v2.distributed.tensor.placement_types import Placement, Replicate, Shard

Tensor = Any
Layouts = Placement | Sequence[Placement | None] | None


class ParallelStyle:
    """What parallelize_module does to one module."""
    src_data_rank: int | None = 0

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        raise NotImplementedError


def _as_dtensor(x: Tensor, mesh: DeviceMesh, layouts: tuple[Placement, ...]) -> Tensor:
    return x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, layouts, run_check=False)


def _brought(x: Tensor, wanted: tuple[Placement, ...]) -> Tensor:
    return x if x.placements == _positive(wanted, x.dim()) else x.redistribute(placements=wanted)


def _positive(placements: tuple[Placement, ...], rank: int) -> tuple[Placement, ...]:
    return tuple(Shard(p.dim + rank) if isinstance(p, Shard) and p.dim < 0 else p for p in placements)


def _divide(module: Any, mesh: DeviceMesh, placements: dict[str, Placement], source: int | None) -> None:
    """The parameters of one module, each by its placement."""
    for name, param in list(module.named_parameters(recurse=False)):
        made = distribute_tensor(param.detach(), mesh, [placements[name]], src_data_rank=source)
        module.register_parameter(name, torch.nn.Parameter(made, requires_grad=param.requires_grad))


class _OneInputParallel(ParallelStyle):
    """A style of a Linear or an Embedding, which have one input and one output."""
    input_layouts: tuple[Placement, ...]
    output_layouts: tuple[Placement, ...]
    desired_input_layouts: tuple[Placement, ...]
    use_local_output: bool
    linear: dict[str, Placement]
    embedding: dict[str, Placement]

    def _prepare_input(self, module: Any, inputs: tuple, mesh: DeviceMesh) -> Any:
        x = _as_dtensor(inputs[0], mesh, self.input_layouts)
        return (_brought(x, self.desired_input_layouts), *inputs[1:])

    def _prepare_output(self, module: Any, output: Tensor, mesh: DeviceMesh) -> Tensor:
        output = _brought(output, self.output_layouts)
        return output.to_local() if self.use_local_output else output

    def _partition(self, name: str, module: Any, mesh: DeviceMesh) -> None:
        _divide(module, mesh, self.embedding if isinstance(module, torch.nn.Embedding) else self.linear, self.src_data_rank)

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if not isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!")
        return distribute_module(module, device_mesh, self._partition, self._prepare_input, self._prepare_output)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts={self.output_layouts}, " \
               f"use_local_output={self.use_local_output})"


class ColwiseParallel(_OneInputParallel):
    """Each rank has some of the outputs of a Linear, or of the columns of an Embedding."""

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True) -> None:
        self.input_layouts, self.output_layouts = (input_layouts or Replicate(),), (output_layouts or Shard(-1),)
        self.desired_input_layouts, self.use_local_output = (Replicate(),), use_local_output
        self.linear, self.embedding = {"weight": Shard(0), "bias": Shard(0)}, {"weight": Shard(1)}


class RowwiseParallel(_OneInputParallel):
    """Each rank has some of the inputs of a Linear, or of the rows of an Embedding; outputs are sums."""

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
                 use_local_output: bool = True) -> None:
        self.input_layouts, self.output_layouts = (input_layouts or Shard(-1),), (output_layouts or Replicate(),)
        self.desired_input_layouts, self.use_local_output = (Shard(-1),), use_local_output
        self.linear, self.embedding = {"weight": Shard(1), "bias": Replicate()}, {"weight": Shard(0)}

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.desired_input_layouts = (Replicate(),) if isinstance(module, torch.nn.Embedding) else (Shard(-1),)
        return super()._apply(module, device_mesh)


class SequenceParallel(ParallelStyle):
    """A LayerNorm, RMSNorm or Dropout on parts of a sequence."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding, self.use_local_output = (Shard(sequence_dim),), use_local_output

    def _replicate(self, name: str, module: Any, mesh: DeviceMesh) -> None:
        """Every rank has made the same parameters."""
        for key, param in list(module.named_parameters(recurse=False)):
            made = DTensor.from_local(param.detach(), mesh, [Replicate()], run_check=False)
            module.register_parameter(key, torch.nn.Parameter(made, requires_grad=param.requires_grad))

    def _prepare_input(self, module: Any, inputs: tuple, mesh: DeviceMesh) -> Any:
        x = inputs[0]
        if not isinstance(x, torch.Tensor):
            raise ValueError(f"expecting input of {module} to be a torch.Tensor or DTensor, but got {x}")
        return _brought(_as_dtensor(x, mesh, self.sequence_sharding), self.sequence_sharding)

    def _prepare_output(self, module: Any, output: Tensor, mesh: DeviceMesh) -> Tensor:
        return output.to_local() if self.use_local_output else output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        return distribute_module(module, device_mesh, self._replicate, self._prepare_input, self._prepare_output)

    def __repr__(self) -> str:
        return f"SequenceParallel(sequence_dim={self.sequence_sharding[0].dim}, use_local_output={self.use_local_output})"


def _listed(layouts: Layouts) -> tuple[Placement | None, ...] | None:
    return (layouts,) if isinstance(layouts, Placement) else None if layouts is None else tuple(layouts)


class PrepareModuleInput(ParallelStyle):
    """The inputs of a module as distributed tensors with its desired placements."""

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
                 input_kwarg_layouts: dict[str, Placement] | None = None,
                 desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_output: bool = False) -> None:
        self.input_layouts, self.desired_input_layouts = _listed(input_layouts), _listed(desired_input_layouts)
        self.use_local_output = use_local_output
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.with_kwargs = input_kwarg_layouts is not None
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        if len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have same length!")

    def _one(self, x: Any, mesh: DeviceMesh, layout: Placement | None, wanted: Placement | None) -> Any:
        if layout is None:
            return x
        if not isinstance(x, torch.Tensor):
            raise AssertionError(f"expecting input to be a torch.Tensor, got {type(x)}")
        x = _as_dtensor(x, mesh, (layout,))
        if wanted is not None:
            x = _brought(x, (wanted,))
        return x.to_local() if self.use_local_output else x

    def _prepare_input_fn(self, inputs: Any, device_mesh: DeviceMesh) -> Any:
        if self.input_layouts is None:
            return inputs
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(inputs) != len(self.input_layouts):
            raise ValueError("module inputs and input_layouts should have same length!")
        return tuple(self._one(x, device_mesh, *layouts) for x, *layouts in
                     zip(inputs, self.input_layouts, self.desired_input_layouts or (), strict=True))

    def _prepare_input_kwarg_fn(self, inputs: Any, kwarg_inputs: dict[str, Any], device_mesh: DeviceMesh) -> Any:
        made = {name: self._one(x, device_mesh, self.input_kwarg_layouts.get(name), self.desired_input_kwarg_layouts.get(name))
                for name, x in kwarg_inputs.items()}
        return self._prepare_input_fn(inputs, device_mesh), made

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if self.with_kwargs:
            module.register_forward_pre_hook(
                lambda _, args, kwargs: self._prepare_input_kwarg_fn(args, kwargs, device_mesh), with_kwargs=True)
        else:
            module.register_forward_pre_hook(lambda _, args: self._prepare_input_fn(args, device_mesh))
        return module

    def __repr__(self) -> str:
        return f"PrepareModuleInput(input_layouts={self.input_layouts}, desired_input_layouts={self.desired_input_layouts}, " \
               f"input_kwarg_layouts={self.input_kwarg_layouts}, desired_input_kwarg_layouts=" \
               f"{self.desired_input_kwarg_layouts}, use_local_output={self.use_local_output})"


class PrepareModuleOutput(ParallelStyle):
    """The outputs of a module as distributed tensors with the placements that its caller needs."""

    def __init__(self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _listed(output_layouts) or (), _listed(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _prepare_out_fn(self, outputs: Any, device_mesh: DeviceMesh) -> Any:
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(given) != len(self.output_layouts):
            raise ValueError("module outputs and output_layouts should have same length!")
        made = []
        for x, layout, wanted in zip(given, self.output_layouts, self.desired_output_layouts, strict=True):
            if layout is not None:
                x = _as_dtensor(x, device_mesh, (layout,))
                x = x if wanted is None else _brought(x, (wanted,))
                x = x.to_local() if self.use_local_output else x
            made.append(x)
        return made[0] if len(made) == 1 else tuple(made)

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        module.register_forward_hook(lambda _, inputs, outputs: self._prepare_out_fn(outputs, device_mesh))
        return module

    def __repr__(self) -> str:
        return f"PrepareModuleOutput(output_layouts={self.output_layouts}, desired_output_layouts=" \
               f"{self.desired_output_layouts}, use_local_output={self.use_local_output})"


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput of one module."""

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
                 input_kwarg_layouts: dict[str, Placement] | None = None,
                 desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_input: bool = False,
                 output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts, use_local_output=use_local_output)

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
