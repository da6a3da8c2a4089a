"""Runs the same lines under PyTorch and under mindtorch_v2 and compares what comes out, errors included."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

import mindtorch_v2 as mt


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


def run(lines: str, lib: Any) -> tuple[Any, str | None]:
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


def check(lines: str, message: bool = False) -> None:
    """Asserts that both libraries give the same; message: the error's text too."""
    theirs, their_text = run(lines, torch)
    ours, our_text = run(lines, mt)
    assert ours == theirs, f"{lines}\n  torch: {theirs} {their_text or ''}\n  ours:  {ours} {our_text or ''}"
    if message:
        assert our_text == their_text, lines
