"""What the distributions share: broadcasting of parameters, lazy attributes, and probabilities as logits and back."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

Tensor = torch.Tensor
euler_constant = 0.57721566490153286060

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take dtype and device of the tensors."""
    for value in values:
        if not isinstance(value, (torch.Tensor, int, float)):
            raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                             "__torch_function__.")
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    like = tensors[0] if tensors else torch.empty((), dtype=torch.get_default_dtype())
    whole = [value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=like.dtype, device=like.device)
             for value in values]
    return tuple(torch.broadcast_tensors(*whole))


def standard_normal(shape: Any, like: Tensor) -> Tensor:
    """Standard normal numbers, drawn as torch's distributions draw them."""
    return torch.normal(torch.zeros(shape, dtype=like.dtype, device=like.device),
                        torch.ones(shape, dtype=like.dtype, device=like.device))


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """The sum over the last `dims` dimensions."""
    return value.sum(tuple(range(-dims, 0))) if dims else value


_standard_normal, _sum_rightmost = (lambda shape, dtype, device: standard_normal(
    shape, torch.empty((), dtype=dtype, device=device))), sum_rightmost      # torch's names, which packages import


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1, so that their logarithms are finite."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log probabilities; for a binary variable the log odds."""
    clamped = clamp_probs(probs)
    return torch.log(clamped) - torch.log1p(-clamped) if is_binary else torch.log(clamped)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The inverse of probs_to_logits."""
    return torch.sigmoid(logits) if is_binary else torch.softmax(logits, dim=-1)


class lazy_property:
    """An attribute that a method computes at its first use, with gradients; from then on it is stored."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped, self.__doc__, self.__name__ = wrapped, wrapped.__doc__, wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.__name__, value)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The entries on and below a diagonal, row by row."""
    n = mat.shape[-1]
    rows, cols = torch.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, cols]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The matrix whose entries on and below a diagonal are given, row by row."""
    n = round((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    rows, cols = torch.tril_indices(n, n, diag, device=vec.device)
    mat = torch.zeros((*vec.shape[:-1], n, n), dtype=vec.dtype, device=vec.device)
    mat[..., rows, cols] = vec
    return mat
