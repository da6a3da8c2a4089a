"""Tensors of a module by their dotted names."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

_MISSING = object()


def swap_tensor(module: Any, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put another tensor in the place of a parameter, buffer or attribute; gives the one that was there."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not _MISSING and not isinstance(tensor, torch.Tensor) and tensor is not None:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')
    tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
    for table in tables:
        if name in table:
            before = table[name]
            if tensor is _MISSING:
                del table[name]
            else:
                table[name] = tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and not isinstance(before, torch.Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is _MISSING:
        delattr(module, name)
    else:
        setattr(module, name, tensor)
    return before


class NamedMemberAccessor:
    """Tensors and modules below a module by name."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def get_submodule(self, name: str) -> Any:
        """The module of a dotted name."""
        return self.module.get_submodule(name)

    def _place(self, name: str) -> tuple[Any, str]:
        prefix, _, last = name.rpartition(".")
        return self.get_submodule(prefix), last

    def get_tensor(self, name: str) -> Any:
        """The tensor of a dotted name."""
        owner, last = self._place(name)
        return getattr(owner, last)

    def set_tensor(self, name: str, value: Any) -> None:
        """Put a tensor under a dotted name."""
        swap_tensor(*self._place(name), value, allow_missing=True)

    def del_tensor(self, name: str) -> None:
        """Take the tensor of a dotted name away."""
        swap_tensor(*self._place(name), _MISSING)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Put a tensor under a dotted name; gives the one that was there."""
        return swap_tensor(*self._place(name), value, allow_missing)
