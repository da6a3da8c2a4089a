"""Pruning: parameters as `name_orig` times a `name_mask`, computed before every forward pass."""

from __future__ import annotations

import abc
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.parameter import Parameter

Tensor = torch.Tensor

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip


def _validate_pruning_dim(t: Tensor, dim: int) -> None:
    """Refuses a dim that the tensor does not have."""
    if not -t.dim() <= dim < t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _validate_structured_pruning(t: Tensor) -> None:
    """Refuses tensors without channels."""
    if t.dim() <= 1:
        raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                         f"{t.shape} with {t.dim()} dims")


def _validate_pruning_amount_init(amount: Any) -> None:
    """Refuses what is neither a number of units nor a fraction."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or not isinstance(amount, numbers.Integral) and float(amount) > 1:
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    """Refuses more units than there are."""
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """How many of so many units an amount means."""
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    """The norm of each channel along a dim."""
    return torch.norm(t, p=n, dim=[d for d in range(t.dim()) if d != dim % t.dim()])


class BasePruningMethod(abc.ABC):
    """A forward pre-hook that multiplies a parameter with a mask; a subclass says how the mask is made."""

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abc.abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask, given what earlier methods have left."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter with zeros where it is pruned."""
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None,
              **kwargs: Any) -> BasePruningMethod:
        """Prunes a parameter; one that is pruned already is pruned further."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = [(key, hook) for key, hook in module._forward_pre_hooks.items()
                   if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]  # fmt: skip
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}, got "
                                 f"{scores.shape} vs {original.shape}")
        if earlier:
            key, hook = earlier[0]
            del module._forward_pre_hooks[key]
            method = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            method.add_pruning_method(_named(cls(*args, **kwargs), name))
            default = getattr(module, name + "_mask").detach().clone()
        else:
            default = torch.ones_like(original)
        mask = method.compute_mask(scores.detach(), default_mask=default)
        if not earlier:
            module.register_parameter(name + "_orig", Parameter(original.detach(), original.requires_grad))
            del module._parameters[name]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor with zeros where this method would prune it."""
        default = torch.ones_like(t) if default_mask is None else default_mask
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}")
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module: Module) -> None:
        """Makes the pruned values the parameter for good."""
        name = self._tensor_name
        value = self.apply_mask(module)
        del module.__dict__[name]
        original = module._parameters.pop(name + "_orig")
        del module._buffers[name + "_mask"]
        original.data = value.data     # type: ignore[union-attr]
        setattr(module, name, original)


def _named(method: BasePruningMethod, name: str) -> BasePruningMethod:
    method._tensor_name = name
    return method


class PruningContainer(BasePruningMethod):
    """Several methods one after another on one parameter; each sees what the ones before have left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        methods = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        for method in methods:
            self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Adds a method for the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                             f"PruningContainer {self}. Found '{method._tensor_name}'")  # fmt: skip
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """What the last method makes of the part that is still there."""
        method = self._pruning_methods[-1]
        if method.PRUNING_TYPE == "global":
            part: Any = slice(None)
        elif method.PRUNING_TYPE == "unstructured":
            part = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim     # type: ignore[attr-defined]
            left = default_mask.transpose(0, dim).flatten(1).ne(0).any(1)
            part = (slice(None),) * (dim % t.dim()) + (left,)
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.clone()
        mask[part] = method.compute_mask(t[part], default_mask=mask[part]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing: the parameter only gets its mask of ones."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _ByAmount(BasePruningMethod):
    """Methods that prune a number or a fraction of the units."""

    def __init__(self, amount: int | float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _without(self, scores: Tensor, shape: Any, dim: int | None = None) -> Tensor:
        """Ones, but for the units with the lowest scores."""
        keep = torch.ones_like(scores)
        count = _compute_nparams_toprune(self.amount, scores.numel())
        _validate_pruning_amount(count, scores.numel())
        if count:
            keep[scores.topk(count, largest=False).indices] = 0
        return keep.view(shape) if dim is None else keep.view([-1 if d == dim else 1 for d in range(len(shape))])


class RandomUnstructured(_ByAmount):
    """Prunes elements by chance."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        chance = torch.rand_like(t).view(-1)      # torch prunes the largest
        return default_mask * self._without(-chance, t.shape).to(default_mask.dtype)


class L1Unstructured(_ByAmount):
    """Prunes the elements of the smallest size."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self._without(t.abs().reshape(-1), t.shape).to(default_mask.dtype)


class RandomStructured(_ByAmount):
    """Prunes whole channels by chance."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: int | float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        chance = torch.rand(t.shape[self.dim], device=t.device)
        return default_mask * self._without(chance, t.shape, self.dim % t.dim()).to(default_mask.dtype)


class LnStructured(_ByAmount):
    """Prunes the channels of the smallest norm."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: int | float, n: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        norms = _compute_norm(t, self.n, self.dim)
        return default_mask * self._without(norms, t.shape, self.dim % t.dim()).to(default_mask.dtype)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Gives a parameter a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Prunes a number or a fraction of the elements by chance."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None) -> Module:
    """Prunes the elements of the smallest size."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Prunes channels along a dimension by chance."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: int | float, n: Any, dim: int,
                  importance_scores: Tensor | None = None) -> Module:  # fmt: skip
    """Prunes the channels along a dimension that have the smallest norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prunes by a mask that is given."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Sequence[tuple[Module, str]], pruning_method: type[BasePruningMethod],
                        importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any) -> None:
    """Prunes several parameters as if they were one long vector."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    tensors = [getattr(module, name) for module, name in parameters]
    values = [scores.get((module, name), tensor) for (module, name), tensor in zip(parameters, tensors)]
    masks = [getattr(module, name + "_mask", torch.ones_like(tensor))
             for (module, name), tensor in zip(parameters, tensors)]  # fmt: skip
    container = PruningContainer(_named(pruning_method(**kwargs), "together"))
    together = container.compute_mask(torch.nn.utils.parameters_to_vector(values).detach(),
                                      torch.nn.utils.parameters_to_vector(masks))  # fmt: skip
    for (module, name), mask in zip(parameters, together.split([t.numel() for t in tensors])):
        custom_from_mask(module, name, mask.view_as(getattr(module, name)))


def remove(module: Module, name: str) -> Module:
    """Makes the pruned values the parameter for good."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one inside it, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())
