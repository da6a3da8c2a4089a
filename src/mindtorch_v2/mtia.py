"""torch.mtia without such accelerators: no device is found."""
from mindtorch_v2 import _facade

globals().update(_facade.no_devices("MTIA"))
