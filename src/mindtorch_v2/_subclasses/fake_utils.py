"""Fake tensors beside real ones: whether ops give the same shapes, strides and aliases with both."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    MetadataMismatchError,
    UnsupportedFakeTensorException,
)

_Mode: Any = torch.utils._python_dispatch.TorchDispatchMode
_pytree = torch.utils._pytree


def _tensors(tree: Any) -> list[Any]:
    return [x for x in _pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _storage(x: Any) -> int:
    return x.elem.untyped_storage()._cdata if isinstance(x, FakeTensor) else x.untyped_storage()._cdata


def _strided(tree: Any) -> list[Any]:
    return [x for x in _tensors(tree) if x.layout == torch.strided]


def outputs_alias_inputs(outputs: Any, inputs: Any) -> bool:
    """Whether a result shares memory with an argument."""
    given = {_storage(x) for x in _strided(inputs)}
    return any(_storage(x) in given for x in _strided(outputs))


def outputs_are_inputs(outputs: Any, inputs: Any) -> bool:
    """Whether a result is an argument itself."""
    given = {id(x) for x in _tensors(inputs)}
    return any(id(x) in given for x in _tensors(outputs))


def output_alias_each_other(outputs: Any) -> bool:
    """Whether two results share memory."""
    places = [_storage(x) for x in _strided(outputs)]
    return len(set(places)) < len(places)


def is_sdpa_error(func: Any, idx: int, e: Exception) -> bool:
    """False: attention has no result here whose metadata depends on the device."""
    return False


def _check_fake_real_tensors(real_out: Any, fake_out: Any, context: str = "", sizes: bool = True, strides: bool = False,
                             storage_offset: bool = True, requires_grad: bool = True) -> None:
    """Raises MetadataMismatchError where a real tensor looks other than the fake one that stands for it."""
    def differ(what: str, real: Any, fake: Any) -> None:
        if real != fake:
            raise MetadataMismatchError(f"{context} {what}: {real} of the real tensor, {fake} of the fake one")
    differ("dtype", real_out.dtype, fake_out.dtype)
    differ("device", real_out.device, fake_out.device)
    if requires_grad:
        differ("requires_grad", real_out.requires_grad, fake_out.requires_grad)
    if sizes:
        differ("shape", tuple(real_out.shape), tuple(fake_out.shape))
    if strides:
        sizes_, ours, theirs = real_out.shape, real_out.stride(), fake_out.stride()
        if real_out.numel():     # what a dim of one item, or no item, has as its stride says nothing
            differ("strides", [s for n, s in zip(sizes_, ours) if n > 1], [s for n, s in zip(sizes_, theirs) if n > 1])
    if storage_offset:
        differ("storage offset", real_out.storage_offset(), fake_out.storage_offset())


class CrossRefFakeMode(_Mode):
    """A with block in which every op runs with fake tensors too, and what both give is compared."""

    def __init__(self, ignore_op_fn: Callable[[Any], bool] | None = None, *, check_strides: bool = True,
                 check_aliasing: bool = True, only_check_ops_with_meta: bool = True) -> None:
        super().__init__()
        self.ignore_op_fn = ignore_op_fn if ignore_op_fn is not None else lambda fn: False
        self.check_strides, self.check_aliasing = check_strides, check_aliasing
        self.only_check_ops_with_meta = only_check_ops_with_meta

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        fakes = None
        if all(x.layout == torch.strided and not x.is_nested for x in given) and not self.ignore_op_fn(func):
            fakes = self._run_fake(func, args, kwargs)
        result = func(*args, **kwargs)
        if fakes is not None:
            self._compare(func, result, fakes[0], (args, kwargs), fakes[1])
        return result

    @staticmethod
    def _run_fake(func: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        """What the op gives with fake tensors, and those; None where they cannot stand for these."""
        mode = FakeTensorMode()
        fake_args, fake_kwargs = _pytree.tree_map_only(torch.Tensor, lambda x: mode.from_tensor(x, static_shapes=True),
                                                       (args, kwargs))
        try:
            with mode:
                return func(*fake_args, **fake_kwargs), (fake_args, fake_kwargs)
        except (DynamicOutputShapeException, UnsupportedFakeTensorException):
            return None

    def _compare(self, func: Any, real: Any, fake: Any, given: Any, fake_given: Any) -> None:
        context = f"When comparing the output of {func} on FakeTensor and concrete Tensors, found"
        reals, fakes = _pytree.tree_leaves(real), _pytree.tree_leaves(fake)
        if len(reals) != len(fakes) or any(isinstance(x, torch.Tensor) != isinstance(y, torch.Tensor)
                                           for x, y in zip(reals, fakes)):
            raise AssertionError(f"{context} mismatch in number of returns or in their types")
        if self.check_aliasing:
            for what, of_real, of_fake in (
                    ("outputs alias inputs", outputs_alias_inputs(real, given), outputs_alias_inputs(fake, fake_given)),
                    ("outputs are inputs", outputs_are_inputs(real, given), outputs_are_inputs(fake, fake_given)),
                    ("outputs alias each other", output_alias_each_other(real), output_alias_each_other(fake))):
                if of_real != of_fake:
                    raise AssertionError(f"{context} mismatch in {what} check {of_fake} != {of_real}")
        for x, y in zip(reals, fakes):
            if isinstance(x, torch.Tensor):
                _check_fake_real_tensors(x, y, context, strides=self.check_strides, storage_offset=False, requires_grad=False)
