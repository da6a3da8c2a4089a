"""Every op: the table and the rows by family."""
from mindtorch_v2._ops import (
    create, einsum, index, index_arrange, index_mask, linalg, nn, pointwise, random, reduce, scan, shape,
    sort, statistics, view,
)
from mindtorch_v2._ops import nn_conv, nn_norm, nn_pool
from mindtorch_v2._ops import composite, composite_foreach
from mindtorch_v2._ops.table import functions, methods, namespaces, ops
