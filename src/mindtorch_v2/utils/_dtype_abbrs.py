"""Short names of dtypes, as PyTorch prints them in tables."""
import mindtorch_v2 as torch

_NAMES = ("bfloat16 float64 float32 float16 complex32 complex64 complex128 int8 int16 int32 int64 bool uint8 uint16 uint32 "
          "uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2")
dtype_abbrs = {dtype: dtype.abbr for dtype in (getattr(torch, name) for name in _NAMES.split())}
dtype_abbrs_parsing = {short: dtype for dtype, short in dtype_abbrs.items()}
