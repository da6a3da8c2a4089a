"""torch_npu's own ops, torch.ops.npu: rows by family. Nothing of it is loaded before the namespace is first used."""
from mindtorch_v2._ops.npu import (
    activation,
    attention,
    blocks,
    boxes,
    conv,
    dropout,
    format,
    infer,
    loss,
    low,
    matmul,
    moe,
    norm,
    optim,
    quant,
    recurrent,
    rope,
    shape,
    sparse,
    turned,
)
from mindtorch_v2._ops.npu.rows import functions, refused_names, schemas
from mindtorch_v2._ops.table import npu_rows as written

__all__ = ["activation", "attention", "blocks", "boxes", "conv", "dropout", "format", "functions", "infer", "loss", "low", "matmul",
           "moe", "norm", "optim", "quant", "recurrent", "refused_names", "rope", "schemas", "shape", "sparse", "turned", "written"]
