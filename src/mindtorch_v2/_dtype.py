"""finfo and iinfo: the limits of dtypes."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._C import DTYPE_NAMES, _dtype_named, dtype, get_default_dtype

# bits, the largest value, the smallest normal one, eps, decimal digits. The eps of float8_e5m2fnuz is half of what it should
# be, as in torch.
_FLOATS = {"float16": (16, 65504.0, 2.0**-14, 2.0**-10, 3), "bfloat16": (16, (2 - 2**-7) * 2.0**127, 2.0**-126, 2.0**-7, 2),
           "float32": (32, (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-23, 6),
           "float64": (64, (2 - 2**-52) * 2.0**1023, 2.0**-1022, 2.0**-52, 15),
           "float8_e4m3fn": (8, 448.0, 2.0**-6, 0.125, 0), "float8_e5m2": (8, 57344.0, 2.0**-14, 0.25, 0),
           "float8_e4m3fnuz": (8, 240.0, 2.0**-7, 0.125, 0), "float8_e5m2fnuz": (8, 57344.0, 2.0**-15, 0.125, 0),
           "float8_e8m0fnu": (8, 2.0**127, 2.0**-127, 1.0, 0)}
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


# Python's types of numbers, which stand for these dtypes.
_PYTHON: Any = {float: _dtype_named("float64"), complex: _dtype_named("complex128"), int: _dtype_named("int64"),
                bool: _dtype_named("bool")}


class finfo:
    """The limits of a floating-point dtype."""

    def __init__(self, type: dtype | None = None) -> None:
        type = type or get_default_dtype()
        type = _PYTHON.get(type, type)
        if not isinstance(type, dtype):
            raise TypeError(f"finfo(): argument 'type' (position 1) must be torch.dtype, not {type.__class__.__name__}")
        type = type.to_real() if type.is_complex else type
        name = type._name
        if name not in _FLOATS:
            raise TypeError("torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'")
        self.dtype = name
        self.bits, self.max, self.tiny, self.eps, decimals = _FLOATS[name]
        self.min = -self.max if name != "float8_e8m0fnu" else self.tiny      # which has no sign
        self.smallest_normal = self.tiny
        self.resolution = 10.0 ** -decimals

    def __repr__(self) -> str:
        def short(v: float) -> str:
            return f"{v:.6g}"
        return (f"finfo(resolution={short(self.resolution)}, min={short(self.min)}, max={short(self.max)}, "
                f"eps={short(self.eps)}, smallest_normal={short(self.smallest_normal)}, "
                f"tiny={short(self.tiny)}, dtype={self.dtype})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, type: dtype) -> None:
        type = _PYTHON.get(type, type)
        if not isinstance(type, dtype):
            raise TypeError(f"iinfo(): argument 'type' (position 1) must be torch.dtype, not {type.__class__.__name__}")
        if type._name == "bool":
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if type._name not in _INTEGERS:
            raise TypeError("torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'")
        self.dtype = type._name
        self.bits = type.itemsize * 8
        self.min = -(1 << (self.bits - 1)) if type.is_signed else 0
        self.max = (1 << (self.bits - type.is_signed)) - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"   # as torch writes them

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)


names = DTYPE_NAMES
aliases = {"half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32",
           "long": "int64", "chalf": "complex32", "bit": "uint1", "cfloat": "complex64", "cdouble": "complex128"}
by_name = {name: _dtype_named(name) for name in names} | \
          {name: _dtype_named(target) for name, target in aliases.items()}
