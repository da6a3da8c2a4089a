"""torch.utils.hooks: handles that take hooks out again, and hooks that a pickle leaves out."""
import warnings
from typing import Any

import mindtorch_v2 as torch

RemovableHandle = torch.nn.modules._hooks.RemovableHandle
RemovableHandle.__module__ = __name__


def unserializable_hook(f: Any) -> Any:
    """A decorator for a hook that a pickle leaves out without a warning."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn of each hook of a tensor that a pickle would lose."""
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                          "function with @torch.utils.hooks.unserializable_hook to suppress this warning", stacklevel=2)

torch._named.complete(__name__)
