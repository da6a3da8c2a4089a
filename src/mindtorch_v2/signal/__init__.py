"""torch.signal: window functions."""
from mindtorch_v2.signal import windows
