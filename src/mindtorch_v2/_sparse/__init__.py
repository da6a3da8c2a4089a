"""Sparse tensors: COO and the compressed layouts, made of dense parts, with the ops that torch has for them."""
from mindtorch_v2._sparse import arithmetic, compressed, construct, convert, masked, matmul, printing, reduce, shapes
from mindtorch_v2._sparse.construct import Invariants
from mindtorch_v2._sparse.tensor import SparseTensor, is_sparse, refusal

__all__ = ["Invariants", "SparseTensor", "arithmetic", "compressed", "construct", "convert", "is_sparse", "masked",
           "matmul", "printing", "reduce", "refusal", "shapes"]
