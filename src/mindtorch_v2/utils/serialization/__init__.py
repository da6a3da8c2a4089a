"""torch.utils.serialization: settings of torch.save and torch.load."""
from mindtorch_v2.utils.serialization import config as config
