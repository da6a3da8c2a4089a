"""torch._library: ops that a program defines, under torch.library."""
from mindtorch_v2._library import autograd as autograd
from mindtorch_v2._library import checks as checks
from mindtorch_v2._library import custom_ops as custom_ops
from mindtorch_v2._library import fake_impl as fake_impl
from mindtorch_v2._library import higher_order as higher_order
from mindtorch_v2._library import infer_schema as infer_schema
from mindtorch_v2._library import operator as operator
from mindtorch_v2._library import utils as utils
