"""torch.autograd._functions: two custom functions that torch keeps under their own names."""
from mindtorch_v2.autograd._functions.tensor import Resize, Type
