"""How CANN may round the factors of float32 products (cubeMathType): as torch.npu.matmul and torch.npu.conv allow it."""
from __future__ import annotations

from mindtorch_v2._backends.npu import soc

KEEP, DOWN, FLOAT16, HF32 = 0, 1, 2, 3
ARGUMENT = "cubeMathType"

allows_hf32 = {"matmul": False, "conv": True}    # torch_npu's defaults
forced: int | None = None                        # torch.npu.matmul.cube_math_type: what products of matrices ask for instead


def _kind(op: str) -> str:
    """The setting that an aclnn op follows; "": none, its cube units only add up."""
    return "" if op.startswith("aclnnAvgPool") else "conv" if op.startswith("aclnnConv") else "matmul"


def math_type(op: str) -> int:
    """What an aclnn op is asked for, as torch_npu asks: cores before Atlas A2 cannot multiply float32 as such."""
    kind = _kind(op)
    if kind == "matmul" and forced is not None:
        return forced
    narrow, hf32 = bool(soc.family()) and not soc.has_cube_and_vector_cores(), allows_hf32.get(kind, False)
    return {(False, False): KEEP, (False, True): HF32, (True, False): FLOAT16, (True, True): DOWN}[narrow, hf32]
