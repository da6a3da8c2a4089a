"""Parametrizations: parameters that are computed from others on every access."""

from __future__ import annotations

import collections.abc
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Iterator

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.container import ModuleDict, ModuleList
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.parameter import Parameter

Tensor = torch.Tensor

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]  # fmt: skip


# Computed parameters, kept while at least one `cached()` block is open: by module and name.
_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once within the block."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _check_same(what: str, old: Any, new: Any) -> None:
    if old != new:
        raise ValueError(
            f"Registering a parametrization may not change the {what} of the tensor, unless "
            f"`unsafe` flag is enabled.\nunparametrized {what}: {old}\nparametrized {what}: {new}"
        )


class ParametrizationList(ModuleList):
    """The maps of one tensor, in order, and the originals that they start from."""

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype, device = original.shape, original.dtype, original.device
        new: Any = original
        with torch.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass
        if not isinstance(new, (torch.Tensor, collections.abc.Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, torch.Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if isinstance(new, torch.Tensor):
            for what, old, got in (("dtype", dtype, new.dtype), ("device", device, new.device)):
                if old != got:
                    raise ValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                        f"original.{what}: {old}\nright_inverse(original).{what}: {got}"
                    )
            original.data = new.data
            _register(self, "original", original)
        else:
            for i, value in enumerate(new):
                if not isinstance(value, torch.Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                        f"tuple...). Got element {i} of the sequence with type "
                        f"{type(value).__name__}."
                    )
                if isinstance(original, Parameter):
                    value = Parameter(value, original.requires_grad)
                value.requires_grad_(original.requires_grad)
                _register(self, f"original{i}", value)
        if not unsafe:
            result = self()
            if not isinstance(result, torch.Tensor):
                raise ValueError(
                    f"A parametrization must return a tensor. Got {type(result).__name__}."
                )
            _check_same("dtype", dtype, result.dtype)
            _check_same("shape", shape, result.shape)

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrized tensor becomes `value`."""
        with torch.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement "
                        "right_inverse."
                    )
                value = module.right_inverse(value)
            if self.is_tensor:
                self._set(self.original, value, "The tensor", "`original`")
                return
            if not isinstance(value, collections.abc.Sequence):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors. "
                    f"Got {type(value).__name__}."
                )
            if len(value) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(value)}."
                )
            for i, tensor in enumerate(value):
                target = getattr(self, f"original{i}")
                self._set(target, tensor, f"Tensor {i}", f"`original{i}`")

    @staticmethod
    def _set(target: Tensor, value: Any, who: str, name: str) -> None:
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
        if value.dtype != target.dtype:
            raise ValueError(
                f"{who} returned by `right_inverse` has dtype {value.dtype} "
                f"while {name} has dtype {target.dtype}"
            )
        target.data = value.detach()

    def forward(self) -> Tensor:
        maps = list(self)
        if self.is_tensor:
            x = maps[0](self.original)
        else:
            x = maps[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in maps[1:]:
            x = module(x)
        return x


def _deepcopy(self: Module, memo: dict[Any, Any]) -> Module:
    if id(self) not in memo:
        replica = memo[id(self)] = self.__new__(type(self))
        replica.__dict__ = deepcopy(self.__dict__, memo)
    return memo[id(self)]


def _getstate(self: Module) -> None:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _inject_new_class(module: Module) -> None:
    """Give a module a class of its own, to hang properties on."""
    cls = type(module)
    members: dict[str, Any] = {"__getstate__": _getstate}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, name: str) -> None:
    def get(self: Module) -> Tensor:
        maps = self.parametrizations[name]
        if not _cache_enabled:
            return maps()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = maps()
        return _cache[key]

    def set_(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, set_))


def _check_added(before: Tensor, parametrization: Any, name: str) -> None:
    """Refuse one more map that changes the shape or dtype of what it is given, there or back."""
    after = parametrization(before)
    if not isinstance(after, torch.Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for what in ("dtype", "shape"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless the "
                f"`unsafe` flag is enabled.\n{name}.{what}: {old}\nparametrization({name}).{what}: {new}"
            )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, torch.Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    for what in ("dtype", "shape"):
        old, new = getattr(before, what), getattr(back, what)
        if old != new:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as {name}, "
                f"unless the `unsafe` flag is enabled.\n{name}.{what}: {old}\nreturned {what}: {new}"
            )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute a parameter or buffer through one more map."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        maps = module.parametrizations[tensor_name]
        if not unsafe:
            _check_added(getattr(module, tensor_name), parametrization, f"module.{tensor_name}")
        maps.append(parametrization)
        maps.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        maps = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = maps
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Say whether a module has (this) parametrized tensor."""
    table = getattr(module, "parametrizations", None)
    if table is None or not isinstance(table, ModuleDict):
        return False
    return len(table) > 0 if tensor_name is None else tensor_name in table


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Put a plain tensor back: the parametrized value, or the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    maps = module.parametrizations[tensor_name]
    if not maps.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    if leave_parametrized:
        with torch.no_grad():
            value = getattr(module, tensor_name)
    if maps.is_tensor:
        original = maps.original
        if leave_parametrized:
            original.data = value.detach()
    else:
        trained = maps.original0.requires_grad
        original = Parameter(value) if isinstance(maps.original0, Parameter) else value
        original.requires_grad_(trained)
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of a module before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Copy parametrizations and the values of their originals to another module."""
    if not is_parametrized(from_module):
        return to_module
    names = from_module.parametrizations if tensor_name is None else [tensor_name]
    for name in list(names):
        maps = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for module in maps:
            register_parametrization(to_module, name, module, unsafe=maps.unsafe)
        target = to_module.parametrizations[name]
        if maps.is_tensor:
            target.original.data = maps.original.data
        else:
            for i in range(maps.ntensors):
                getattr(target, f"original{i}").data = getattr(maps, f"original{i}").data
    return to_module
