"""Every function of torch.npu with integers that no device, stream or count can be: an error of torch's kinds."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch

INTEGERS = (-(2**64), -(2**63), -2, -1, 17, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64)
# AttributeError: an int where a stream, event or tensor belongs, as in torch.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)
# What is an address or a number of bytes: as C's conversions in torch.
WORDS = {"size", "mem_ptr", "stream_ptr"}


def devices_taken() -> list[tuple[str, Callable[..., Any]]]:
    """Where a device may be given outside of torch.npu."""
    return [("ones", lambda device: torch.ones(1, device=device)), ("Tensor.npu", lambda device: torch.ones(1).npu(device)),
            ("Tensor.to", lambda device: torch.ones(1).to(device)), ("device", lambda device: torch.device("npu", device)),
            ("Module.npu", lambda device: torch.nn.Linear(1, 1).npu(device)), ("Stream", lambda device: torch.Stream(device)),
            ("Event", lambda device: torch.Event(device)), ("accelerator", lambda d: torch.accelerator.synchronize(d)),
            ("text", lambda device: torch.ones(1, device=f"npu:{device}"))]


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:                            # of a class of C that says nothing
        return []
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def called(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    made = function(**arguments)
    if hasattr(made, "__enter__") and not isinstance(made, torch.Tensor):
        with made:
            pass


def sweep() -> None:
    """Prints every call that raised something else, and how many calls there were."""
    npu, tried = torch.npu, 0
    others = {"stream": npu.current_stream(), "tensor": torch.ones(1)}
    functions = [(name, getattr(npu, name)) for name in dir(npu) if not name.startswith("_")]
    for name, function in [f for f in functions if callable(f[1])] + devices_taken():
        known = parameters(function)
        for p in known:
            for number in INTEGERS:
                arguments = {q.name: others.get(q.name, 0) for q in known if q.default is q.empty} | {p.name: number}
                try:
                    called(function, arguments)
                except REFUSALS:
                    pass
                except OverflowError as error:
                    if p.name not in WORDS:
                        print(f"{name}({p.name}={number}): {error}")
                tried += 1
        npu.set_device(0)
    print(tried, "calls")


def test_integers_that_nothing_has_are_refused_as_torch_refuses(npu: ModuleType) -> None:
    """In a process of its own: some of the integers are taken, as time limits and settings of the device."""
    program = "import test_npu_integers\ntest_npu_integers.sweep()"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=Path(__file__).parent, capture_output=True,
                          text=True, timeout=600)
    found = [line for line in done.stdout.splitlines() if not line.startswith("CANN ")]   # is_available(verbose=2**31)
    assert done.returncode == 0 and len(found) == 1, done.stdout[-3000:] + done.stderr[-3000:]
    assert int(found[0].split()[0]) > 1000


@pytest.mark.parametrize("number", [17, 2**31, 2**63, 2**64])
def test_the_index_is_named(npu: ModuleType, number: int) -> None:
    for function in (npu.synchronize, npu.set_device, npu.memory_allocated, npu.Stream, npu.current_stream):
        with pytest.raises(RuntimeError, match=f"invalid device ordinal: npu:{number}"):
            function(number)
