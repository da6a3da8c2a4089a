"""DTensor: a tensor of which every rank of a mesh has a part; distribute_tensor, distribute_module and factories."""
from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as collectives
from mindtorch_v2.distributed._world import get_global_rank
from mindtorch_v2.distributed.device_mesh import DeviceMesh, _mesh_resources
from mindtorch_v2.distributed.tensor import _op_dispatch
from mindtorch_v2.distributed.tensor._op_dispatch import local_shape
from mindtorch_v2.distributed.tensor._redistribute import moved
from mindtorch_v2.distributed.tensor.placement_types import (
    DTensorSpec,
    Partial,
    Placement,
    Replicate,
    Shard,
    TensorMeta,
)

__all__ = ["DTensor", "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"]

Tensor = Any


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


def _normalized(placements: Sequence[Placement], rank: int) -> tuple[Placement, ...]:
    """Dimensions count from the beginning."""
    made = []
    for placement in placements:
        if isinstance(placement, Shard) and placement.dim < 0:
            placement = copy.copy(placement)
            object.__setattr__(placement, "dim", placement.dim + rank)
        made.append(placement)
    return tuple(made)


class DTensor(torch.Tensor):
    """A tensor of a mesh. It says the shape of the whole; _local_tensor is this rank's part."""

    _local_tensor: Tensor
    _spec: DTensorSpec
    __torch_function__: Any = torch._C._disabled_torch_function_impl
    _takes_parts = True        # of composites: there are rules for those

    @staticmethod
    def __new__(cls: type, local_tensor: Tensor, spec: DTensorSpec, *, requires_grad: bool = False) -> Any:
        meta = spec._meta()
        made = torch.Tensor._make_wrapper_subclass(cls, meta.shape, meta.stride, 0, None, local_tensor.dtype,
                                                   device=local_tensor.device, requires_grad=requires_grad)
        made._local_tensor = local_tensor.detach() if local_tensor.requires_grad else local_tensor
        made._spec = spec
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _op_dispatch.dispatch(func, args, kwargs or {}, DTensor, DTensor)

    # ---- from parts and to parts
    @staticmethod
    def from_local(local_tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                   run_check: bool = False, shape: Any = None, stride: tuple[int, ...] | None = None,
                   grad_placements: Sequence[Placement] | None = None) -> DTensor:
        """The tensor of which every rank gives its part; parts of several sizes need the whole shape."""
        mesh = device_mesh or _mesh_resources.get_current_mesh()
        if local_tensor.device.type != mesh.device_type and not local_tensor.is_meta:
            local_tensor = local_tensor.to(mesh.device_type)
        if placements is None:
            placements = [Replicate()] * mesh.ndim
        if len(placements) != mesh.ndim:
            raise RuntimeError(f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
                               f"{len(placements)}, and device_mesh.ndim: {mesh.ndim}.")
        for i, placement in enumerate(placements):
            if isinstance(placement, Shard) and not -local_tensor.dim() <= placement.dim < local_tensor.dim():
                raise RuntimeError(f"Sharding dim {placement.dim} greater than tensor ndim {local_tensor.dim()} for placement "
                                   f"number {i}")
        if (shape is None) != (stride is None):
            raise RuntimeError(f"Found shape:{shape}, stride:{stride}.", "Please pass both shape and stride at the same time.")
        grads = _normalized(grad_placements, local_tensor.dim()) if grad_placements is not None else None
        return _FromLocal.apply(local_tensor, mesh, _normalized(placements, local_tensor.dim()), run_check, shape, stride, grads)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This rank's part; a gradient of it lies as the part does, unless grad_placements say otherwise."""
        if not torch.is_grad_enabled():
            return self._local_tensor
        grads = _normalized(grad_placements, self.dim()) if grad_placements is not None else None
        return _ToLocal.apply(self, grads)

    def redistribute(self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                     async_op: bool = False, forward_dtype: Any = None, backward_dtype: Any = None) -> DTensor:
        """The same tensor under other placements."""
        mesh = device_mesh or self._spec.mesh
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        if mesh != self._spec.mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        wanted = _normalized(placements, self.dim())
        for placement, now in zip(wanted, self._spec.placements, strict=True):
            if placement.is_partial() and placement != now:
                raise RuntimeError(f"Can not redistribute from {now} to {placement}, redistributing to Partial is for internal "
                                   "use only!")
            if isinstance(placement, Shard) and placement.dim >= self.dim():
                raise ValueError(f"placement {placement} is out of range for a tensor of {self.dim()} dimensions")
        return _Redistribute.apply(self, wanted, forward_dtype, backward_dtype)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole, on every rank."""
        whole = self.redistribute(placements=[Replicate()] * self._spec.mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    @property
    def device_mesh(self) -> DeviceMesh:
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self._spec.placements

    # ---- values: as in PyTorch those of this rank's part, a summand where the tensor is Partial
    @property
    def _readable(self) -> bool:
        return False

    def item(self) -> Any:
        return self._local_tensor.item()

    def __bool__(self) -> bool:
        return bool(self._local_tensor)

    def __float__(self) -> float:
        return float(self._local_tensor)

    def __int__(self) -> int:
        return int(self._local_tensor)

    def __index__(self) -> int:
        return self._local_tensor.__index__()

    def tolist(self) -> Any:
        raise RuntimeError(".tolist() is not supported for tensor subclasses, got DTensor")

    def numpy(self, *, force: bool = False) -> Any:
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy()

    # ---- of no part of it: whole
    def _new(self, name: str, *args: Any, **kwargs: Any) -> DTensor:
        made = getattr(self._local_tensor, name)(*args, **kwargs)
        spec = DTensorSpec(self._spec.mesh, (Replicate(),) * self._spec.mesh.ndim,
                           TensorMeta(made.shape, tuple(made.stride()), made.dtype))
        return DTensor(made, spec, requires_grad=made.requires_grad)

    def new_zeros(self, *args: Any, **kwargs: Any) -> DTensor:
        return self._new("new_zeros", *args, **kwargs)

    def new_ones(self, *args: Any, **kwargs: Any) -> DTensor:
        return self._new("new_ones", *args, **kwargs)

    def new_empty(self, *args: Any, **kwargs: Any) -> DTensor:
        return self._new("new_empty", *args, **kwargs)

    def new_full(self, *args: Any, **kwargs: Any) -> DTensor:
        return self._new("new_full", *args, **kwargs)

    def __repr__(self, **kwargs: Any) -> str:   # type: ignore[override]
        return f"DTensor(local_tensor={self._local_tensor}, device_mesh={self._spec.mesh}, placements={self._spec.placements})"

    def _fresh(self) -> Tensor:
        return self.detach()

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) not in memo:
            made = DTensor(self._local_tensor.clone(), self._spec, requires_grad=self.requires_grad)
            memo[id(self)] = made
            for name, value in vars(self).items():
                if name not in ("_local_tensor", "_spec"):
                    made.__dict__[name] = copy.deepcopy(value, memo)
        return memo[id(self)]

    def __reduce_ex__(self, proto: Any) -> Any:
        return _rebuild, (self._local_tensor, self._spec.mesh, self._spec.placements, tuple(self.shape), tuple(self.stride()),
                          self.requires_grad)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_local_tensor"], (self._spec, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner_tensors: dict[str, Tensor], flatten_spec: Any, outer_size: Any, outer_stride: Any) -> DTensor:
        spec, requires_grad = flatten_spec
        return DTensor(inner_tensors["_local_tensor"], spec, requires_grad=requires_grad)


def _rebuild(local: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...], shape: tuple[int, ...],
             stride: tuple[int, ...], requires_grad: bool) -> DTensor:
    """Unpickle one. A file that is not trusted may call it, with anything."""
    if not (isinstance(local, torch.Tensor) and isinstance(mesh, DeviceMesh) and isinstance(requires_grad, bool)):
        raise TypeError("a DTensor is of a tensor, a DeviceMesh, placements, shape, strides and a bool")
    if len(placements) != mesh.ndim or not all(isinstance(one, Placement) for one in placements):
        raise ValueError(f"a DTensor has a placement for each of the {mesh.ndim} dimensions of its mesh, got {len(placements)}")
    if len(shape) != local.dim() or len(stride) != local.dim() or \
            not all(isinstance(n, int) and n >= 0 for n in (*shape, *stride)):
        raise ValueError("a DTensor has as many sizes and strides as its part has dimensions")
    return DTensor(local, DTensorSpec(mesh, placements, TensorMeta(torch.Size(shape), stride, local.dtype)),
                   requires_grad=requires_grad)


def _grad_placements(forward: tuple[Placement, ...], grad: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """How a gradient lies, of a tensor that lay so: that of a sum is the same for all summands."""
    return tuple(Replicate() if there.is_partial() and not here.is_partial() else there
                 for there, here in zip(forward, grad, strict=True))


def _of_mesh(grad: Tensor, mesh: DeviceMesh) -> Any:
    """A gradient as a distributed tensor: what the engine makes itself is of the whole."""
    if isinstance(grad, DTensor):
        return grad
    return DTensor(grad, DTensorSpec(mesh, (Replicate(),) * mesh.ndim, TensorMeta(grad.shape, tuple(grad.stride()), grad.dtype)))


class _FromLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...], check: bool, shape: Any,
                stride: Any, grads: Any) -> DTensor:
        ctx.placements, ctx.grads, ctx.mesh = placements, grads, mesh
        if check and shape is None:
            for i, placement in enumerate(placements):
                if placement.is_replicate():
                    local = local.contiguous()
                    group = mesh.get_group(i)
                    collectives.broadcast(local, src=get_global_rank(group, 0), group=group)
        if shape is None:
            sizes = list(local.shape)
            for i, placement in enumerate(placements):
                if isinstance(placement, Shard):
                    sizes[placement.dim] *= mesh.size(i)
            shape, stride = torch.Size(sizes), _strides_like(local, sizes)
        meta = TensorMeta(torch.Size(shape), tuple(stride), local.dtype)
        return DTensor(local.view_as(local), DTensorSpec(mesh, placements, meta))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad = _of_mesh(grad, ctx.mesh)
        wanted = ctx.grads or _grad_placements(ctx.placements, grad._spec.placements)
        if grad._spec.placements != wanted:
            grad = _Redistribute.apply(grad, wanted, None, None)
        return grad.to_local(), None, None, None, None, None, None


def _strides_like(local: Tensor, sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of the whole, in the order of those of the part."""
    order = sorted(range(local.dim()), key=lambda d: (local.stride(d), local.shape[d]))
    strides, step = [0] * local.dim(), 1
    for d in order:
        strides[d] = step
        step *= max(sizes[d], 1)
    return tuple(strides) if not local.is_contiguous() else _row_major(sizes)


class _ToLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: DTensor, grads: Any) -> Tensor:
        ctx.spec, ctx.grads = tensor._spec, grads
        return tensor._local_tensor.view_as(tensor._local_tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        spec = ctx.spec
        placements = ctx.grads or tuple(Replicate() if p.is_partial() else p for p in spec.placements)
        meta = TensorMeta(spec.shape, spec.stride, grad.dtype)
        return DTensor(grad, DTensorSpec(spec.mesh, placements, meta)), None


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: DTensor, placements: tuple[Placement, ...], forward_dtype: Any, backward_dtype: Any) -> DTensor:
        spec = tensor._spec
        ctx.mesh = spec.mesh
        ctx.placements, ctx.backward_dtype, ctx.dtype = spec.placements, backward_dtype, tensor.dtype
        local = tensor._local_tensor if forward_dtype is None else tensor._local_tensor.to(forward_dtype)
        made = moved(local, spec.mesh, tuple(spec.shape), spec.placements, placements)
        if made is local:
            made = local.view_as(local)
        return DTensor(made, DTensorSpec(spec.mesh, placements, TensorMeta(spec.shape, spec.stride, made.dtype)))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        grad = _of_mesh(grad, ctx.mesh)
        if ctx.backward_dtype is not None:
            grad = grad.to(ctx.backward_dtype)
        wanted = _grad_placements(ctx.placements, grad._spec.placements)
        if grad._spec.placements != wanted:
            grad = _Redistribute.apply(grad, wanted, None, None)
        return grad.to(ctx.dtype), None, None, None


# ---- distributing ---------------------------------------------------------------------------------------------------------
def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                      src_data_rank: int | None = 0) -> DTensor:
    """A tensor divided over a mesh, as the first rank of each mesh dimension has it."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if placements is None:
        placements = [Replicate()] * mesh.ndim
    if len(placements) != mesh.ndim:
        raise ValueError(f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
                         f"{len(placements)}, and device_mesh.ndim: {mesh.ndim}.")
    wanted = _normalized(placements, tensor.dim())
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh "
                             f"{mesh}.")
        if tensor.placements != wanted:
            raise ValueError(f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements "
                             f"{placements}. do you want to call `redistribute` instead?")
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    local = tensor.detach()
    if local.device.type != mesh.device_type and not local.is_meta:
        local = local.to(mesh.device_type)
    for i, placement in enumerate(wanted):
        if isinstance(placement, Shard) and placement.dim >= tensor.dim():
            raise AssertionError(f"Sharding dim {placement.dim} greater than tensor ndim {tensor.dim()}")
        if src_data_rank is not None and mesh.get_coordinate() is not None and not local.is_meta:
            local = _first_ranks(local, mesh, i, src_data_rank)
        if isinstance(placement, Shard) and mesh.get_coordinate() is not None:
            local = placement._local_part(local, mesh.size(i), mesh.get_local_rank(i))
        elif isinstance(placement, Partial) and mesh.get_coordinate() is not None:
            local = placement._partition_value(local, mesh, i)
    if mesh.get_coordinate() is None:
        local = local.new_empty(0)
    meta = TensorMeta(tensor.shape, _row_major(tensor.shape) if tensor.is_contiguous() else tuple(tensor.stride()), tensor.dtype)
    made: Any = DTensor(local, DTensorSpec(mesh, wanted, meta), requires_grad=tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


def _first_ranks(local: Tensor, mesh: DeviceMesh, mesh_dim: int, source: int) -> Tensor:
    """What a rank of the group along a mesh dimension has."""
    group = mesh.get_group(mesh_dim)
    local = local.clone(memory_format=torch.contiguous_format)
    collectives.broadcast(local, src=get_global_rank(group, source), group=group)
    return local


def distribute_module(module: Any, device_mesh: DeviceMesh | None = None,
                      partition_fn: Callable[[str, Any, DeviceMesh], None] | None = None,
                      input_fn: Callable[..., Any] | None = None, output_fn: Callable[..., Any] | None = None) -> Any:
    """The module with distributed parameters and buffers, and functions on its inputs and outputs."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError("distribute_module should only be called once on a module, but it has already been called on this "
                           "module!")
    for name, child in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, child, mesh)
        _replicate(child, mesh)
    if input_fn is not None:
        _add_hook(module, input_fn, mesh, before=True)
    if output_fn is not None:
        _add_hook(module, output_fn, mesh, before=False)
    module._distribute_module_applied = True
    return module


def _replicate(module: Any, mesh: DeviceMesh) -> None:
    """Parameters and buffers that are not DTensors yet are replicated."""
    whole = [Replicate()] * mesh.ndim
    for name, param in module._parameters.items():
        if param is not None and not isinstance(param, DTensor):
            module.register_parameter(name, torch.nn.Parameter(distribute_tensor(param.data, mesh, whole), param.requires_grad))
    for name, buffer in module._buffers.items():
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh, whole)


def _add_hook(module: Any, function: Callable[..., Any], mesh: DeviceMesh, before: bool) -> None:
    number = function.__code__.co_argcount if hasattr(function, "__code__") else 3
    if number == 2:
        warnings.warn(f"Deprecating {'input_fn' if before else 'output_fn'} that takes two arguments (inputs, device_mesh), "
                      f"please use {'input_fn' if before else 'output_fn'} that takes in (module, "
                      f"{'inputs' if before else 'outputs'}, device_mesh) instead!", FutureWarning, stacklevel=3)
    elif number < 2:
        raise ValueError(f"{'input_fn' if before else 'output_fn'} should take in 3 arguments, but got {number} arguments!")
    if before:
        module.register_forward_pre_hook(
            (lambda _, inputs: function(inputs, mesh)) if number == 2 else lambda mod, inputs: function(mod, inputs, mesh))
    else:
        module.register_forward_hook(
            (lambda _, inputs, outputs: function(outputs, mesh)) if number == 2 else
            lambda mod, inputs, outputs: function(mod, outputs, mesh))


# ---- factories ------------------------------------------------------------------------------------------------------------
def _made(make: Callable[..., Tensor], size: tuple[Any, ...], dtype: Any, requires_grad: bool, device_mesh: DeviceMesh | None,
          placements: Sequence[Placement] | None) -> DTensor:
    """Every rank makes its part."""
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    wanted = _normalized(placements or [Replicate()] * mesh.ndim, len(shape))
    if len(wanted) != mesh.ndim:
        raise AssertionError("mesh dimension does not match the length of placements")
    sizes = local_shape(shape, mesh, wanted) if mesh.get_coordinate() is not None else [0]
    local = make(sizes, dtype=dtype, device=mesh.device_type)
    return DTensor(local, DTensorSpec(mesh, wanted, TensorMeta(torch.Size(shape), _row_major(shape), local.dtype)),
                   requires_grad=requires_grad)


def _factory(name: str) -> Callable[..., DTensor]:
    def make(*size: Any, dtype: Any = None, layout: Any = None, requires_grad: bool = False,
             device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None) -> DTensor:
        return _made(getattr(torch, name), size, dtype, requires_grad, device_mesh, placements)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"torch.{name} of which every rank makes its part."
    return make


ones, zeros, empty, rand, randn = (_factory(name) for name in ("ones", "zeros", "empty", "rand", "randn"))


def full(size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, requires_grad: bool = False,
         device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None) -> DTensor:
    """torch.full of which every rank makes its part."""
    def make(sizes: Any, dtype: Any, device: Any) -> Tensor:
        return torch.full(sizes, fill_value, dtype=dtype, device=device)
    return _made(make, (size,), dtype, requires_grad, device_mesh, placements)


