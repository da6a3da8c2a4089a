"""What the package functorch offers: torch.func's functions and make_functional, each with a warning to use torch.func."""
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._functorch import make_functional as _nn

_GUIDE = "https://pytorch.org/docs/main/func.migrating.html"
_HEAD = ("We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{name}` is deprecated as of "
         "PyTorch 2.0 and will be deleted in a future version of PyTorch >= 2.3. Please use `{new}` instead; see the PyTorch 2.0 "
         "release notes and/or the `torch.func` migration guide for more details " + _GUIDE)


def _old(function: Callable[..., Any], name: str, new: str) -> Any:
    @functools.wraps(function)
    def warned(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(_HEAD.format(name=name, new=new), FutureWarning, stacklevel=2)
        return function(*args, **kwargs)
    return warned


for _name in ("vmap", "grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "functionalize"):
    globals()[_name] = _old(getattr(torch.func, _name), _name, "torch.vmap" if _name == "vmap" else f"torch.func.{_name}")
make_functional = _old(_nn.make_functional, "make_functional", "torch.func.functional_call")
make_functional_with_buffers = _old(_nn.make_functional_with_buffers, "make_functional", "torch.func.functional_call")
combine_state_for_ensemble = _old(_nn.combine_state_for_ensemble, "combine_state_for_ensemble", "torch.func.stack_module_state")
