"""torch.utils: checkpointing and small services."""
from mindtorch_v2.utils import checkpoint
