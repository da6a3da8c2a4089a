"""torch._functorch.pyfunctorch: the open levels of torch.func as objects that bodies of higher-order ops are given."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch

_transforms = torch._transforms
TransformType = _transforms.TransformType


class FuncTorchInterpreter:
    """A level: its kind, its number, and a with block outside of it."""

    def __init__(self, layer: Any, number: int) -> None:
        self._layer, self._number = layer, number

    def level(self) -> int:
        """Its number; the outermost is 1."""
        return self._number

    def key(self) -> Any:
        """Its kind."""
        return TransformType.Functionalize

    @contextlib.contextmanager
    def lower(self) -> Iterator[None]:
        """A with block in which only the levels outside of this one are open."""
        layers = torch._C._transforms()
        torch._C._pop_transform((layers, layers.index(self._layer)))
        try:
            yield
        finally:
            torch._C._pop_transform((layers, len(layers)))


class VmapInterpreter(FuncTorchInterpreter):
    """A level of vmap."""

    def key(self) -> Any:
        """TransformType.Vmap"""
        return TransformType.Vmap

    def batch_size(self) -> int:
        """How many samples there are."""
        return self._layer.size

    def randomness(self) -> str:
        """What was asked for: 'error', 'same' or 'different'."""
        return self._layer.randomness


class FunctionalizeInterpreter(FuncTorchInterpreter):
    """A level of functionalize."""


class GradInterpreter(FuncTorchInterpreter):
    """A level that differentiates backwards. Nothing computes in it: what is recorded is part of the tensors."""

    def key(self) -> Any:
        """TransformType.Grad"""
        return TransformType.Grad

    @contextlib.contextmanager
    def lower(self) -> Iterator[None]:
        """Refuses: tensors are not wrapped by such a level, so they have no value outside of it."""
        raise NotImplementedError("[torch._functorch.pyfunctorch.GradInterpreter.lower] a level of grad wraps no tensors")
        yield


def retrieve_all_functorch_interpreters() -> list[FuncTorchInterpreter]:
    """The open levels, the outermost first."""
    layers = {layer.depth: layer for layer in torch._C._transforms() if layer.is_level}
    kinds = {_transforms.Vmap: VmapInterpreter, _transforms.functional.Functionalize: FunctionalizeInterpreter}
    return [kinds[type(layers[n])](layers[n], n) if n in layers else GradInterpreter(None, n)
            for n in range(1, _transforms._depth() + 1)]


def retrieve_current_functorch_interpreter() -> FuncTorchInterpreter:
    """The innermost level."""
    found = retrieve_all_functorch_interpreters()
    if not found:
        raise AssertionError("interpreter_stack must not be None or empty")
    return found[-1]


@contextlib.contextmanager
def temporarily_clear_interpreter_stack() -> Iterator[list[Any]]:
    """A with block in which no level is open; gives those that were."""
    layers = torch._C._transforms()
    torch._C._pop_transform((layers, 0))
    try:
        yield list(layers)
    finally:
        torch._C._pop_transform((layers, len(layers)))

torch._named.complete(__name__)
