"""torch.nn.functional: every function by its public name, from the modules of _functional."""

from __future__ import annotations

import types as _types
from typing import Any as _Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import _reduction as _Reduction  # noqa: F401  (torch has it here)
from mindtorch_v2.nn._functional.activation import *  # noqa: F403
from mindtorch_v2.nn._functional.attention import *  # noqa: F403
from mindtorch_v2.nn._functional.dropout import *  # noqa: F403
from mindtorch_v2.nn._functional.embedding import *  # noqa: F403
from mindtorch_v2.nn._functional.loss import *  # noqa: F403
from mindtorch_v2.nn._functional.loss_distance import *  # noqa: F403
from mindtorch_v2.nn._functional.norm import *  # noqa: F403
from mindtorch_v2.nn._functional.norm import _verify_batch_size, _verify_spatial_size  # noqa: F401
from mindtorch_v2.nn._functional.pooling import *  # noqa: F403
from mindtorch_v2.nn._functional.scaling import ScalingType as ScalingType
from mindtorch_v2.nn._functional.scaling import SwizzleType as SwizzleType
from mindtorch_v2.nn._functional.vision import *  # noqa: F403

# Whether a class or a mode takes over: torch has these here, and its functions ask them by these names.
has_torch_function = torch.overrides.has_torch_function
has_torch_function_unary = torch.overrides.has_torch_function_unary
has_torch_function_variadic = torch.overrides.has_torch_function_variadic
handle_torch_function = torch.overrides.handle_torch_function

# Names that are an op itself.
_TORCH_OPS = (
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc "
    "avg_pool1d adaptive_avg_pool1d relu_ celu_ selu_ rrelu_ threshold_ hardshrink prelu "
    "bilinear cosine_similarity pairwise_distance pdist pixel_shuffle pixel_unshuffle "
    "channel_shuffle native_channel_shuffle"
).split()
_NN_OPS = (
    "linear gelu softplus softshrink leaky_relu_ hardtanh_ elu_ avg_pool2d avg_pool3d one_hot "
    "scaled_dot_product_attention"
).split()

globals().update({name: getattr(torch, name) for name in _TORCH_OPS})
globals().update({name: getattr(torch._C._nn, name) for name in _NN_OPS})
logsigmoid = torch._C._nn.log_sigmoid


def grouped_mm(mat_a: torch.Tensor, mat_b: torch.Tensor, *, offs: torch.Tensor | None = None,
               bias: torch.Tensor | None = None, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """Products of groups of rows with a matrix each; the groups end where offs says."""
    return torch._grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


def _finish(functions: list[_Any]) -> None:
    """Makes what the annotations say a type, as it is in torch: tools ask which parameters are tensors. Pickles name the
    functions here."""
    said = {"Tensor": torch.Tensor, "torch.Tensor": torch.Tensor, "bool": bool, "int": int, "float": float, "str": str}
    said.update({f"{word} | None": kind | None for word, kind in list(said.items())})
    for function in functions:
        if isinstance(function, _types.FunctionType):
            function.__annotations__ = {name: said.get(word, word) for name, word in function.__annotations__.items()}
            if function.__module__.startswith(f"{__name__.rpartition('.')[0]}._functional."):
                function.__module__ = __name__


_finish(list(globals().values()))
