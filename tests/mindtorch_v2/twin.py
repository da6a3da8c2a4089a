"""Runs one test body, or lines of text, under torch and under mindtorch_v2 and compares what comes out: torch is the judge."""
from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import torch

import mindtorch_v2 as mt

SEED = 7


def error(fn: Callable[[], Any], chars: int = 0) -> str:
    """The type of the exception that fn raises, with the first characters of its message."""
    try:
        fn()
    except Exception as raised:
        message = str(raised)[:chars]
        return f"{type(raised).__name__}: {message}" if chars else type(raised).__name__
    return "no error"


def outcome(side: Any, body: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the body returns for one side, from the same random state."""
    side.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return body(side, *args, **kwargs)


def same(ours: Any, theirs: Any, what: str = "result") -> None:
    """Raises AssertionError where the two outcomes differ: in structure, type, dtype, shape or value."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, mt.Tensor), f"{what}: {ours!r}, expected {theirs!r}"
        oracle.compare(ours, theirs, what)
        assert ours.requires_grad == theirs.requires_grad, f"{what}: requires_grad {ours.requires_grad}"
    elif isinstance(theirs, (tuple, list)):
        assert isinstance(ours, (tuple, list)) and len(ours) == len(theirs), f"{what}: {ours!r}, expected {theirs!r}"
        for i, (x, y) in enumerate(zip(ours, theirs)):
            same(x, y, f"{what}[{i}]")
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{what}: {list(ours)}, expected {list(theirs)}"
        for key in theirs:
            same(ours[key], theirs[key], f"{what}[{key!r}]")
    elif isinstance(theirs, torch.dtype):
        assert oracle.DTYPES[theirs] is ours, f"{what}: {ours}, expected {theirs}"
    elif isinstance(theirs, float):
        assert ours == theirs or (ours != ours and theirs != theirs) or abs(ours - theirs) <= 1e-6 * abs(theirs), \
            f"{what}: {ours!r}, expected {theirs!r}"
    else:
        assert theirs is None or isinstance(theirs, (str, int, bool, complex)), f"{what}: cannot compare {theirs!r}"
        assert ours == theirs, f"{what}: {ours!r}, expected {theirs!r}"


def twin(body: Callable[..., Any]) -> Callable[..., None]:
    """Makes body(t, …) a test: t is torch, then mindtorch_v2, and both must return the same."""
    @functools.wraps(body)
    def test(*args: Any, **kwargs: Any) -> None:
        theirs = outcome(torch, body, *args, **kwargs)
        assert theirs is not None, "the body returned nothing to compare"
        same(outcome(mt, body, *args, **kwargs), theirs)
    signature = functools.partial(body, None)
    del test.__wrapped__
    test.__signature__ = inspect.signature(signature)
    return test


def plain(x: Any, lib: Any) -> Any:
    """A value without its library: tensors as dtype, shape, strides, grad flag and numbers."""
    if isinstance(x, lib.Tensor):
        numbers = "meta" if x.device.type == "meta" else repr(x.detach().tolist())
        return "tensor", str(x.dtype), tuple(x.shape), tuple(x.stride()), x.requires_grad, numbers
    if isinstance(x, (tuple, list)):
        return type(x).__name__, [plain(i, lib) for i in x]
    if isinstance(x, dict):
        return {k: plain(v, lib) for k, v in x.items()}
    if isinstance(x, np.ndarray):
        return "array", str(x.dtype), x.shape, x.strides, x.tolist()
    return repr(x).replace("mindtorch_v2", "torch")


def run_lines(lines: str, lib: Any) -> tuple[Any, str | None]:
    """The value of the last line, or the exception's type and the first line of its message."""
    *before, last = lines.strip().split("\n")
    space: dict[str, Any] = {"torch": lib, "np": np}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec("\n".join(before), space)
            return plain(eval(last, space), lib), None
        except Exception as error:
            return ("raises", type(error).__name__), str(error).split("\n")[0]


def check_lines(lines: str, message: bool = False) -> None:
    """Asserts that both libraries give the same; message: the error's text too."""
    theirs, their_text = run_lines(lines, torch)
    ours, our_text = run_lines(lines, mt)
    assert ours == theirs, f"{lines}\n  torch: {theirs} {their_text or ''}\n  ours:  {ours} {our_text or ''}"
    if message:
        assert our_text == their_text, lines
