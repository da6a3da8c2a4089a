"""torch._higher_order_ops: functions of functions, run as the Python that they describe."""
from mindtorch_v2._higher_order_ops import associative_scan, cond, map, while_loop
