"""torch._functorch: torch.func's parts under the names that packages import and replace."""
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._functorch import einops as einops
from mindtorch_v2._functorch import pyfunctorch as pyfunctorch
from mindtorch_v2._functorch import vmap as vmap

config: Any = torch._facade.settings(
    __name__, "config", "Settings of the compiler: stored, and not read.", functionalize_rng_ops=False, fake_tensor_allow_meta=True,
    fake_tensor_crossref=False, debug_assert=False, debug_partitioner=False, donated_buffer=False, enable_autograd_cache=False,
    activation_memory_budget=1.0, recompute_views=False, unlift_effect_tokens=False, cse=True,
    treat_parameters_as_free_to_save=True, check_custom_op_aliasing=True)
