"""How a case of torch_npu's own ops is written: arguments, and what the op should give, in plain ops of the library that runs it.

The table (npu_op_cases_*.py) is run over mindtorch_v2 (test_npu_own_ops.py) and over torch_npu itself (the conformance tests),
so that both agree with one reference. Arrays become tensors; `grads` names the arguments whose gradients are compared.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

R = np.random.RandomState(7)


class Case(NamedTuple):
    """A call of an op, and a function (torch, *args, **kwargs) that gives the same; None for a result that is not compared."""

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reference: Callable[..., Any] | None
    grads: tuple[int, ...] = ()
    atol: float = 2e-5


CASES: list[Case] = []
PARTS = ("layers", "tensors", "experts", "models", "rest", "later", "low", "turned", "sparse")


def all_cases() -> list[Case]:
    """The cases of every file."""
    for part in PARTS:
        importlib.import_module(f"npu_op_cases_{part}")
    return CASES


class BFloat16(np.ndarray):
    """Float32 numbers that become a tensor of a dtype that NumPy does not have."""

    stored_as = "bfloat16"


class E4M3(BFloat16):
    stored_as = "float8_e4m3fn"


class Nz(np.ndarray):
    """A weight that torch_npu takes in the format FRACTAL_NZ alone."""


def case(op: str, *args: Any, ref: Callable[..., Any] | None = None, grads: tuple[int, ...] = (), atol: float = 2e-5,
         **kwargs: Any) -> None:
    CASES.append(Case(op, args, kwargs, ref, grads, atol))


def f(*shape: int) -> np.ndarray:
    """Random float32 numbers."""
    return R.randn(*shape).astype(np.float32)


def u(*shape: int) -> np.ndarray:
    """Random float32 numbers between 0.1 and 1."""
    return (R.rand(*shape) * 0.9 + 0.1).astype(np.float32)


def h(*shape: int) -> np.ndarray:
    """Random float16 numbers."""
    return f(*shape).astype(np.float16)


def b(values: np.ndarray) -> np.ndarray:
    """These numbers as bfloat16."""
    return values.view(BFloat16)


def e4m3(values: np.ndarray) -> np.ndarray:
    """These numbers as float8_e4m3fn."""
    return values.view(E4M3)


def nz(values: np.ndarray) -> np.ndarray:
    """These numbers in the format FRACTAL_NZ, where there is one."""
    return values.view(Nz)


def tensor(lib: Any, value: np.ndarray, device: str) -> Any:
    """An array of a case as a tensor of the library."""
    made = lib.from_numpy(np.array(value, copy=True, subok=False))
    return (made.to(getattr(lib, value.stored_as)) if isinstance(value, BFloat16) else made).to(device)


def i8(*shape: int) -> np.ndarray:
    return R.randint(-128, 128, shape).astype(np.int8)


def i32(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def i64(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def grads_of(torch: Any, function: Callable[..., Any], inputs: tuple[Any, ...], grad: Any) -> Any:
    """The gradients of one result, by the library's own autograd."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves), leaves, grad)


def pair_grad(function: Callable[..., Any], grad_at: int, at: tuple[int, ...]) -> Callable[..., Any]:
    """The reference of a backward op: gradients of function(torch, args at those places), for the grad at another."""
    def run(torch: Any, *args: Any, **kwargs: Any) -> Any:
        made = grads_of(torch, lambda *x: function(torch, *x), tuple(args[i] for i in at), args[grad_at])
        return made if len(made) > 1 else made[0]
    return run
