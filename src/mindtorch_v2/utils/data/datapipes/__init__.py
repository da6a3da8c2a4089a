"""torch.utils.data.datapipes: datasets that are chained by methods, as streams (iter) and by index (map)."""
from mindtorch_v2.utils.data.datapipes import iter, map
