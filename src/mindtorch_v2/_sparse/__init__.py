"""Sparse tensors: COO and the compressed layouts, made of dense parts, with the ops that torch has for them."""
from mindtorch_v2._sparse import arithmetic, construct, convert, matmul, printing, reduce, shapes
from mindtorch_v2._sparse.construct import Invariants
from mindtorch_v2._sparse.tensor import SparseTensor, is_sparse

__all__ = ["Invariants", "SparseTensor", "arithmetic", "construct", "convert", "is_sparse", "matmul", "printing", "reduce",
           "shapes"]
