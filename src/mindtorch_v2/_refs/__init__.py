"""torch._refs: PyTorch's second definition of its ops, for its compiler. The names are there and refuse."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _facade

_WHY = "PyTorch's reference implementations are not offered; use the op of the same name in torch"
__getattr__ = _facade.refuse_all("torch._refs", _WHY)


def _family(parent: str, name: str) -> Any:
    full = f"torch._refs{parent.removeprefix(__name__)}.{name}"
    return _facade.module(parent, name, f"References of torch.{name}.", __getattr__=_facade.refuse_all(full, _WHY))


linalg: Any
special: Any
fft: Any
_conversions: Any
linalg, special, fft, _conversions = (_family(__name__, name) for name in ("linalg", "special", "fft", "_conversions"))
nn: Any = _facade.module(__name__, "nn", "References of torch.nn.", functional=_family(__name__ + ".nn", "functional"))
