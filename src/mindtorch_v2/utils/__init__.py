"""torch.utils: checkpointing, data loading, trees of containers and small services."""
from mindtorch_v2.utils import _ordered_set, _python_dispatch, _pytree, checkpoint, data, dlpack, hooks, weak
