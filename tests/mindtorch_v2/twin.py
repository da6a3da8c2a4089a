"""Runs one test body under torch and under mindtorch_v2 and compares what comes out; torch is the judge."""
from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

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
