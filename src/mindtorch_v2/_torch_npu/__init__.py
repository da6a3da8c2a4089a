"""torch_npu: what programs for Ascend import beside torch. Its ops are those of torch.ops.npu, its devices torch.npu's."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mindtorch_v2 as torch

npu = torch.npu
__version__ = torch.version.__version__
# torch_npu's numbers of dtypes: CANN's plus 256. Some have no dtype of torch.
float32, float16, int8, int32, uint8, int16, uint16, uint32, int64, uint64, float64 = (
    256 + n for n in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11))
bool, string, complex64, complex128, bfloat16, int4, uint1, complex32 = (256 + n for n in (12, 13, 16, 17, 27, 29, 30, 33))
hifloat8, float8_e5m2, float8_e4m3fn, float8_e8m0fnu, float6_e3m2, float6_e2m3, float4_e2m1fn_x2, float4_e1m2fn_x2 = range(290, 298)
# The names of torch_npu's ops, read without their rows, which are loaded at the first use of an op.
_NAMES = frozenset(re.findall(r"^(\w+)", (Path(torch._ops.__path__[0]) / "npu" / "schemas.txt").read_text(), re.MULTILINE))


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute '{name}'")
    try:
        found = getattr(torch.ops.npu, name)
    except AttributeError:
        raise AttributeError(f"[torch_npu.{name}] this operator of torch_npu is not offered") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *torch._ops.npu.functions})


def _moved(name: str) -> Any:
    """torch.npu_x as torch_npu leaves it: a function that says where the op is."""
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"torch.{name} is deprecated and will be removed in future version. Use torch_npu.{name} instead.")
    refuse.__name__, refuse.__doc__ = name, f"Refuses: the op is torch_npu.{name}."
    return refuse


if __name__ == "torch_npu":      # not where tools read this file by its place
    for _name in _NAMES - vars(torch).keys():
        setattr(torch, _name, _moved(_name))

from . import optim, profiler, utils  # noqa: E402  they use what is defined above; testing is imported by its name
