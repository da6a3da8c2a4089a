"""finfo and iinfo: the limits of dtypes."""
from __future__ import annotations

from mindtorch_v2._C import DTYPE_NAMES, _dtype_named, dtype, get_default_dtype

# bits, exponent of the largest value + 1, digits of the significand, decimal digits
_FLOATS = {"float16": (16, 16, 11, 3), "bfloat16": (16, 128, 8, 2), "float32": (32, 128, 24, 6),
           "float64": (64, 1024, 53, 15)}


class finfo:
    """The limits of a floating-point dtype."""

    def __init__(self, type: dtype | None = None) -> None:
        type = type or get_default_dtype()
        if not isinstance(type, dtype):
            raise TypeError(f"finfo() takes a torch.dtype, got {type!r}")
        type = type.to_real() if type.is_complex else type
        name = type._name
        if name not in _FLOATS:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        self.dtype = name
        self.bits, top, digits, decimals = _FLOATS[name]
        self.eps = 2.0 ** (1 - digits)
        self.max = (2.0 - self.eps) * 2.0 ** (top - 1)
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (2 - top)
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
        if not isinstance(type, dtype) or type.is_floating_point or type.is_complex or type._name == "bool":
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
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
           "long": "int64", "cfloat": "complex64", "cdouble": "complex128"}
by_name = {name: _dtype_named(name) for name in names} | \
          {name: _dtype_named(target) for name, target in aliases.items()}
