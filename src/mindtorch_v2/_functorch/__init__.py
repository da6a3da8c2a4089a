"""torch._functorch: torch.func's parts under the names that packages import and replace."""
from mindtorch_v2._functorch import vmap as vmap
