"""How a row of torch_npu's own ops is written: its schema stands in schemas.txt under its name, its body beside this file."""
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import npu_functions as functions
from mindtorch_v2._ops.table import op
from mindtorch_v2.autograd.engine import grad

__all__ = ["BFLOAT16", "BOOL", "FLOAT16", "FLOAT32", "INT8", "INT32", "INT64", "UINT8", "acl_number", "call",
           "dtype_of", "functions", "grad_of", "is_int4", "refused_names", "row", "schemas", "wide"]

BOOL, UINT8, INT8, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32 = (
    _C._dtype_named(name) for name in "bool uint8 int8 int32 int64 float16 bfloat16 float32".split())
# torch's number of a dtype (its ScalarType) and CANN's; torch_npu takes a dtype, the first, or the second plus 256.
_TORCH_NUMBERS = dict(enumerate("uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool".split()))
_TORCH_NUMBERS |= {12: "int8", 13: "uint8", 14: "int32", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"}
_CANN_NUMBERS = {256: "float32", 257: "float16", 258: "int8", 259: "int32", 260: "uint8", 262: "int16", 265: "int64",
                 267: "float64", 268: "bool", 272: "complex64", 283: "bfloat16", 291: "float8_e5m2", 292: "float8_e4m3fn"}
_QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
# Every parameter that names a dtype takes it in any of those forms.
_DTYPE = re.compile(r"\b(?:int|ScalarType)(\??) (\w*(?:dtype|dst_type|src_type))\b")


def _read() -> dict[str, str]:
    lines = (Path(__file__).parent / "schemas.txt").read_text().splitlines()
    return {line.partition("(")[0]: line for line in lines if not line.startswith("#")}


schemas = _read()                      # "npu_max.dim" -> its schema


def row(name: str | None = None, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
    """A row of an op of torch_npu; the decorated function is its body, and has its name where none is given."""
    def made(body: Callable[..., Any]) -> Any:
        full = name or body.__name__
        stem = full.partition(".")[0]
        # out= follows from the row, so that the overload for it needs none; "-> ()" gives None.
        return op(_DTYPE.sub(r"any\1 \2", schemas[full]), body=body, namespace="npu", variants="", inplace=False,
                  out=f"{stem}.out" in schemas, **facts)
    return made


def call(schema: str, **facts: Any) -> Callable[[Callable[..., Any]], Any]:
    """A row that has no name of its own: one call of CANN that a body makes, and what serves where there is none."""
    return lambda body: op(schema, body=body, namespace="npu_calls", variants="", inplace=False, out=False, **facts)


def refused_names() -> set[str]:
    """The names of torch_npu that have no row."""
    return {full.partition(".")[0] for full in schemas} - functions.keys()


def acl_number(dtype: Any) -> int:
    """CANN's number of a dtype (its aclDataType), for ops that take it as a plain number."""
    return next(number - 256 for number, name in _CANN_NUMBERS.items() if name == dtype._name)


def dtype_of(value: Any, otherwise: Any = None) -> Any:
    """The dtype that an argument names: a dtype, torch's number of one or torch_npu's; `otherwise` for None."""
    if value is None:
        return otherwise
    if not isinstance(value, int):
        return _C._dtype_named(_QUANTIZED.get(value._name, value._name))
    name = _TORCH_NUMBERS.get(value) or _CANN_NUMBERS.get(value)
    if name is None:
        raise NotImplementedError(f"[torch_npu] dtype {value} is not offered: those of less than 8 bits, hifloat8, float8_e8m0fnu "
                                  "have no kernels here")
    return _C._dtype_named(name)


def is_int4(value: Any) -> bool:
    """Whether an argument names the integers of four bits, of which eight lie in an int32, the first in the lowest bits."""
    return value in (16, 285) if isinstance(value, int) else value is not None and value._name == "quint4x2"


def wide(x: Any) -> Any:
    """In the dtype that CANN computes in: float32 for the 16-bit floats and integers."""
    return x if x.dtype.itemsize > 2 and x.is_floating_point() else x.to(FLOAT32)


def grad_of(function: Callable[..., Any], inputs: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of `function(*inputs)` by autograd, for the ops whose name is a backward; None for None."""
    before = _C._is_grad_enabled()
    _C._set_grad_enabled(True)
    try:
        leaves = [None if x is None else x.detach()._requires_grad_() for x in inputs]
        made = function(*leaves)
    finally:
        _C._set_grad_enabled(before)
    results = made if isinstance(made, (tuple, list)) else (made,)
    pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
    rest = iter(grad([r for r, _ in pairs], [x for x in leaves if x is not None], [g.to(r.dtype) for r, g in pairs],
                     allow_unused=True, materialize_grads=True))
    return tuple(None if x is None else next(rest) for x in leaves)
