"""torch.mtia without such accelerators: no device is found."""
from mindtorch_v2 import _facade

globals().update(_facade.no_devices("MTIA"))

__path__: list[str] = []       # modules that torch has below it are found by name
