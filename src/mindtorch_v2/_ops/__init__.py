"""Every op: the table and the rows by family."""
from mindtorch_v2._ops import create, einsum, index, linalg, nn, pointwise, random, reduce, shape, view
from mindtorch_v2._ops.table import functions, methods, namespaces, ops
