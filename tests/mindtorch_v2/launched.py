"""A pytest plugin: the simulator's op tests with their calls made by mindtorch_v2's launcher, the first few of each op."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch as judge

import cann_tables
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import aclnn

sys.path.insert(0, str(Path(__file__).parents[1] / "cann_sim"))
import client  # noqa: E402 - found there
import older  # noqa: E402

CALLS = 2                                                    # of each op: the second may find the first's executor
KNOWN = {dtype: getattr(torch, str(dtype).partition(".")[2]) for dtype in client.COMPUTED.values()}
calls: Counter[str] = Counter()
launched: set[str] = set()


def to_npu(source: Any) -> torch.Tensor:
    """The same bytes, strides and offset on the npu."""
    source = judge.as_tensor(source)
    if source.dtype not in KNOWN:
        pytest.skip(f"mindtorch_v2 has no {source.dtype}")
    storage = judge.empty(0, dtype=judge.uint8).set_(source.untyped_storage())
    whole = torch.from_numpy(storage.numpy().copy()).view(KNOWN[source.dtype])
    return whole.npu().as_strided(source.shape, source.stride(), source.storage_offset())


def to_judge(result: torch.Tensor) -> judge.Tensor:
    dtype = next(d for d, ours in KNOWN.items() if ours == result.dtype)
    if not result.numel():
        return judge.empty(result.shape, dtype=dtype)
    whole = result.cpu().contiguous().reshape(-1).view(torch.uint8)
    return judge.from_numpy(whole.numpy()).view(dtype).reshape(result.shape)


def convert(kind: str, argument: Any, outs: list[torch.Tensor]) -> Any:
    """An argument of the simulator's client as aclnn.call takes it; tensors that the op writes go to outs."""
    if argument is None:
        return None
    if kind in ("tensors", "outs", "inouts"):
        return [convert(kind.removesuffix("s"), item, outs) for item in argument]
    if kind in aclnn.TENSOR_KINDS:
        if isinstance(argument, client.DeviceTensor):
            pytest.skip("the test describes a tensor in a way of its own")
        made = to_npu(argument)
        if kind != "tensor":
            outs.append(made)
        return made
    if kind == "scalars":
        return [convert("scalar", item, outs) for item in argument]
    if isinstance(argument, client.Scalar):
        return argument.value
    return KNOWN.get(argument, argument) if kind == "dtype" else argument


def call(_client: Any, name: str, *arguments: Any) -> Any:
    """Client.call through aclnn.call."""
    calls[name] += 1
    if calls[name] > CALLS:
        pytest.skip(f"{name} was launched")
    row, outs = client.rows()[name], []
    given = [convert(kind, argument, outs) for kind, argument in zip(row.kinds, arguments, strict=True)]
    try:
        if row.dynamic_output:
            shapes = torch._C._npu_call_dynamic(aclnn.plan_of(name, False), 0, tuple(given), ())
            outs = [out.flatten()[: judge.Size(shape).numel()].view(shape) for out, shape in zip(outs, shapes, strict=True)]
        else:
            aclnn.call(name, *given)
            torch.npu.synchronize()                          # an op without results is waited for too
        made = [to_judge(out) for out in outs]
    except RuntimeError as error:
        code = re.search(r"\((\d{6})\)", str(error))
        raise client.CannError(int(code[1]) if code else 0, name, str(error)) from error
    launched.add(name)
    return made[0] if len(made) == 1 else tuple(made)


def call_older(_older: Any, _function: str, op: str, *_arguments: Any) -> None:
    """Older.run: its stream is of the simulator's client, not of the context that mindtorch_v2 has set."""
    pytest.skip(f"{op} of the older interface has no aclnn call")


client.client()                                              # it sets a device: before mindtorch_v2 sets its context
client.Client.call = call
older.Older.run = call_older
torch.ones(1, device="npu")


def pytest_sessionfinish() -> None:
    print(f"\nlaunched {len(launched)} of {sum(op.arguments is not None for op in cann_tables.ops())}")
