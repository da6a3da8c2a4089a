"""make_fx by functorch's name."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

make_fx = torch.fx.experimental.proxy_tensor.make_fx


def pythonkey_decompose(decomposition_table: Any) -> Any:
    """A with block in which make_fx takes ops apart by a table."""
    raise NotImplementedError("[torch._functorch.python_key.pythonkey_decompose] give the table to make_fx")
