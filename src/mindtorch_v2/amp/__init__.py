"""torch.amp: autocast, which computes in lower precision where that is safe, and GradScaler for float16's narrow range.
Which op runs in which precision is in its row (_ops)."""
from mindtorch_v2.amp import autocast_mode, grad_scaler
from mindtorch_v2.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from mindtorch_v2.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "autocast_mode", "custom_bwd", "custom_fwd", "grad_scaler",
           "is_autocast_available"]
