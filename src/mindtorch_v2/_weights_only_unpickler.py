"""torch._weights_only_unpickler: which globals torch.load takes from a file, by the names of that module."""
import mindtorch_v2 as torch

_add_safe_globals, _clear_safe_globals = torch.serialization.add_safe_globals, torch.serialization.clear_safe_globals
_get_safe_globals, _safe_globals = torch.serialization.get_safe_globals, torch.serialization.safe_globals
