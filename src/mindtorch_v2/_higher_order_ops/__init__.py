"""torch._higher_order_ops: functions of functions, run as the Python that they describe."""
import mindtorch_v2 as torch
from mindtorch_v2._higher_order_ops import associative_scan, cond, map, while_loop
from mindtorch_v2._higher_order_ops._invoke_quant import InvokeQuant as InvokeQuant

torch._named.complete(__name__)
