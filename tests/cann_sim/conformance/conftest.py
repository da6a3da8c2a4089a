"""torch_npu, unmodified, as a client: these tests run under `make conformance` only, in a venv that has torch_npu."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("torch_npu") is None:
    collect_ignore_glob = ["test_*.py"]  # the ordinary test run: its torch has no npu
else:
    import torch  # torch loads torch_npu by itself


@pytest.fixture(autouse=True)
def in_order() -> Iterator[None]:
    """A failure that is still queued belongs to the test that caused it."""
    yield
    torch.npu.synchronize()


@pytest.fixture
def check() -> Callable[..., None]:
    """check(function, *args): the same on npu as on cpu, for values and, where args ask for them, gradients."""

    def run(function: Callable[..., Any], *args: Any, rtol: float = 1e-4, atol: float = 1e-5, **kwargs: Any) -> None:
        results, gradients = [], []
        for device in ("cpu", "npu"):
            moved = [a.detach().to(device).requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in args]
            out = function(*moved, **kwargs)
            outs = [o for o in (out if isinstance(out, tuple | list) else (out,)) if torch.is_tensor(o)]
            needy = [a for a in moved if torch.is_tensor(a) and a.requires_grad]
            if needy:
                torch.autograd.backward(
                    [o for o in outs if o.requires_grad], [torch.ones_like(o) for o in outs if o.requires_grad]
                )
            assert device == "cpu" or all(o.device.type == "npu" for o in outs)
            results.append([o.detach().cpu() for o in outs])
            gradients.append([a.grad.cpu() for a in needy])
        for cpu, npu in zip(results[0] + gradients[0], results[1] + gradients[1], strict=True):
            torch.testing.assert_close(npu, cpu, rtol=rtol, atol=atol)

    return run
