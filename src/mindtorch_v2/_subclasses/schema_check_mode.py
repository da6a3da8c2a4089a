"""SchemaCheckMode: whether ops change and alias only what their schemas say."""
from __future__ import annotations

from typing import Any, NamedTuple

import mindtorch_v2 as torch

_Mode: Any = torch.utils._python_dispatch.TorchDispatchMode
_pytree = torch.utils._pytree

_STATISTICS = ("running_mean", "running_var")     # changed in training, which a schema cannot say


class Mutation(NamedTuple):
    """An argument that an op changed."""
    op_name: str
    arg_name: str


class Aliasing(NamedTuple):
    """An argument and a result that share memory."""
    op_name: str
    arg_name: str
    output_number: str


class _Given(NamedTuple):
    """An argument as it was before the op."""
    name: str
    tensors: list[Any]
    copies: list[Any]
    writes: bool
    aliases: bool


def _tensors(tree: Any) -> list[Any]:
    return [x for x in _pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _share(first: list[Any], second: list[Any]) -> bool:
    places = {x.untyped_storage()._cdata for x in first if x.layout == torch.strided}
    return any(x.untyped_storage()._cdata in places for x in second if x.layout == torch.strided)


def _same(x: Any, copy: Any) -> bool:
    if x.shape != copy.shape or x.stride() != copy.stride() or x.dtype != copy.dtype:
        return False
    return x.is_meta or bool(((x == copy) | (x != x) & (copy != copy)).all())


class SchemaCheckMode(_Mode):
    """A with block in which every op is checked: what it changes and what its results alias stands in its schema, or an
    error names the argument. `ops`, `mutated` and `aliasing` say what was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []
        self.mutated: list[Mutation] = []
        self.aliasing: list[Aliasing] = []

    def reset_cache(self) -> None:
        """Forgets what was seen."""
        self.ops.clear()
        self.mutated.clear()
        self.aliasing.clear()

    def display_ops(self) -> None:
        """Prints the ops that were called."""
        print(*self.ops, sep=",")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        self.ops.append(schema.name)
        given = _arguments(schema, args, kwargs)
        result = func(*args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        for one in given:
            self._check(schema, one, outputs, given)
        _check_outputs(outputs, schema.returns)
        return result

    def _check(self, schema: Any, one: _Given, outputs: Any, given: list[_Given]) -> None:
        """What the op did with an argument."""
        others = [other for other in given if _share(one.tensors, other.tensors)]
        if any(not _same(x, copy) for x, copy in zip(one.tensors, one.copies)):
            if not any(other.writes for other in others):
                raise RuntimeError(f"Argument {one.name} is not defined as mutable but was mutated")
            self.mutated.append(Mutation(schema.name, one.name))
        for number, output in enumerate(outputs):
            if _share(one.tensors, _tensors(output)):
                if not any(other.aliases for other in others):
                    raise RuntimeError(f"Argument {one.name} is not defined to alias output but was aliasing")
                self.aliasing.append(Aliasing(schema.name, one.name, f"output_{number}"))


def _arguments(schema: Any, args: Any, kwargs: Any) -> list[_Given]:
    """The tensors of a call by the schema's names; the first of PyTorch's own ops is `input`."""
    found = []
    for number, argument in enumerate(schema.arguments):
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        tensors = _tensors(value)
        if tensors:
            info = argument.alias_info
            found.append(_Given("input" if argument.name == "self" else argument.name, tensors,
                                [x.detach().clone() for x in tensors],
                                info is not None and info.is_write or argument.name in _STATISTICS, info is not None))
    return found


def _check_outputs(outputs: Any, returns: Any) -> None:
    """Two results may share memory only where the schema says that they alias something."""
    for i, first in enumerate(outputs):
        for j in range(i + 1, len(outputs)):
            if _share(_tensors(first), _tensors(outputs[j])) and (returns[i].alias_info is None or returns[j].alias_info is None):
                raise RuntimeError(f"Outputs {i} and {j} alias unexpectedly")
