"""A backend from outside the package (second_device.py) runs the device-generic part of the suite: OpInfo entries, whole
programs, copies, views, autograd, random numbers, files. PyTorch on the CPU is the judge."""
from __future__ import annotations

import ctypes
import faulthandler
import io
import os
import signal
from collections.abc import Iterator
from typing import Any

import oracle
import pytest
import second_device
import test_npu_programs
import torch
from test_ops import KNOWN, KNOWN_GRAD, OFFERED, SEED, quiet  # noqa: F401

import mindtorch_v2 as mt
from mindtorch_v2 import _C

# One entry of each kind of row: pointwise, reductions, views, indexing, sorting, matrices, layers, losses, creation.
ENTRIES = """add mul div.no_rounding_mode pow exp where clamp lerp addcmul logical_and eq isnan
sum mean amax argmax cumsum std norm logsumexp count_nonzero all
view permute expand squeeze select narrow diagonal unfold as_strided reshape cat stack split chunk roll flip
__getitem__ index_select gather scatter_add index_put masked_fill masked_select take_along_dim nonzero
sort topk unique searchsorted mm bmm addmm einsum linalg.solve linalg.cholesky linalg.qr
nn.functional.linear nn.functional.conv2d nn.functional.max_pool2d nn.functional.batch_norm nn.functional.layer_norm
nn.functional.embedding nn.functional.softmin.with_dtype nn.functional.gelu nn.functional.cross_entropy
nn.functional.mse_loss nn.functional.interpolate.bilinear nn.functional.pad.constant
zeros_like full_like new_empty arange linspace tril clone contiguous to""".split()
PROGRAMS = ("residual_network", "rotary_attention")
DEVICE = second_device.NAME


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[second_device.Remote]:
    with second_device.registered() as made:
        yield made


def host(x: Any) -> Any:
    assert x.device.type == DEVICE
    return x.cpu()


# ---- the suite's own generic parts -------------------------------------------------------------------------------------
def offered(names: list[str]) -> list[Any]:
    return [pytest.param(OFFERED[name], id=name) for name in names if name in OFFERED and name not in KNOWN]


def test_the_list_names_entries() -> None:
    assert len(offered(ENTRIES)) > 75


@pytest.mark.parametrize("info", offered(ENTRIES))
def test_values(info: Any) -> None:
    assert oracle.run(info, torch.float32, False, SEED, 2, device=DEVICE) > 0


@pytest.mark.parametrize("info", offered([name for name in ENTRIES if name not in KNOWN_GRAD]))
def test_gradients(info: Any) -> None:
    if info.supports_autograd and info.name != "nn.functional.embedding":
        assert oracle.run(info, torch.float32, True, SEED, 1, tolerance=10.0, device=DEVICE) > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    body = test_npu_programs.PROGRAMS[name]
    torch.manual_seed(1)
    theirs = test_npu_programs.plain(body(torch, "cpu"))
    mt.manual_seed(1)
    test_npu_programs.check(test_npu_programs.plain(body(mt, DEVICE)), theirs)


# ---- the device itself -------------------------------------------------------------------------------------------------
def test_names_are_those_of_torch() -> None:
    assert _C._get_privateuse1_backend_name() == DEVICE
    assert str(mt.device(DEVICE, 1)) == "remote:1" and mt.device("remote").index is None
    x = mt.ones(2, device="remote")
    assert x.device == mt.device("remote:0") and x.is_remote and not x.is_cpu and not x.is_npu and x.get_device() == 0
    assert mt.ones(2).remote(1).device.index == 1 and mt.ones(2).remote("remote:1").get_device() == 1
    assert mt.get_device_module("remote") is mt.remote and mt.remote.device_count() == 2
    with pytest.raises(RuntimeError, match="already"):
        mt.utils.rename_privateuse1_backend("other")
    with pytest.raises(RuntimeError, match="already been registered"):
        mt._register_device_module("remote", mt.remote)
    with pytest.raises(RuntimeError, match="must be remote device"):
        mt.ones(1).remote("npu:0")
    mt.utils.rename_privateuse1_backend("remote")      # the same name again is no error


def test_the_host_cannot_read_its_memory() -> None:
    x = mt.arange(4, device="remote")
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        ctypes.string_at(x.data_ptr(), 1)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV
    with pytest.raises(TypeError, match="can't convert remote:0 device type tensor to numpy"):
        x.numpy()
    assert host(x).tolist() == x.tolist() == [0, 1, 2, 3]


def test_memory_goes_back() -> None:
    before = len(second_device.Block.live)
    x = mt.ones(1000, device="remote")
    assert len(second_device.Block.live) == before + 1
    view = x[10:]
    del x
    assert len(second_device.Block.live) == before + 1
    del view
    assert len(second_device.Block.live) == before


def test_copies_between_devices() -> None:
    x = mt.arange(6.0).view(2, 3)
    there = x.to("remote:1")
    back = there.to("remote:0").t()
    assert back.device.index == 0 and back.cpu().tolist() == x.t().tolist()
    assert mt.zeros(2, 3, device="remote").copy_(x[0]).cpu().tolist() == [[0, 1, 2]] * 2
    assert there.to(mt.int32).dtype == mt.int32 and there.half().cpu().dtype == mt.float16
    with pytest.raises(RuntimeError, match="same device"):
        there + x
    assert (there + mt.tensor(1.0)).sum().item() == 21.0      # a 0-dim tensor of the CPU goes anywhere
    with pytest.raises(RuntimeError, match="none of the 2 devices"):
        mt.ones(1, device="remote:7")


def test_storages() -> None:
    x = mt.arange(4.0, device="remote")
    x.untyped_storage().resize_(32)
    x.resize_(8)
    x[4:] = 9
    assert host(x).tolist() == [0, 1, 2, 3, 9, 9, 9, 9]
    moved = mt.arange(4.0).untyped_storage().remote()
    assert moved.is_remote and moved.cpu().tolist() == mt.arange(4.0).untyped_storage().tolist()


def test_default_device_and_current_device() -> None:
    mt.remote.set_device(1)
    try:
        with mt.device("remote"):
            assert mt.zeros(1).device.index == 1 and mt.randn(2, requires_grad=True).is_leaf
    finally:
        mt.remote.set_device(0)


def test_random_numbers_follow_the_device_s_state() -> None:
    mt.remote.manual_seed_all(3)
    state = mt.remote.get_rng_state()
    first = mt.rand(100, device="remote")
    second = mt.rand(100, device="remote")
    mt.remote.set_rng_state(state)
    assert mt.equal(first, mt.rand(100, device="remote")) and not mt.equal(first, second)
    own = mt.Generator(device="remote").manual_seed(5)
    drawn = mt.randn(1000, device="remote", generator=own)
    assert abs(drawn.mean().item()) < 0.2 and abs(drawn.std().item() - 1) < 0.2
    with pytest.raises(RuntimeError, match="Expected a 'remote' device type for generator"):
        mt.rand(2, device="remote", generator=mt.Generator())


def test_training_and_files() -> None:
    mt.manual_seed(0)
    model = mt.nn.Sequential(mt.nn.Linear(4, 8), mt.nn.Tanh(), mt.nn.Linear(8, 1)).remote()
    optimizer = mt.optim.AdamW(model.parameters(), lr=0.05)
    x = mt.randn(64, 4).remote()
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = mt.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
    file = io.BytesIO()
    mt.save(model.state_dict(), file)
    file.seek(0)
    there = mt.load(file)
    assert all(mt.equal(host(t), host(there[name])) for name, t in model.state_dict().items())
    file.seek(0)
    assert all(t.is_cpu for t in mt.load(file, map_location="cpu").values())


def test_autocast_and_graph_features() -> None:
    with mt.autocast("remote", dtype=mt.bfloat16):
        assert (mt.ones(2, 2, device="remote") @ mt.ones(2, 2, device="remote")).dtype == mt.bfloat16
    with mt.autocast("remote"):
        assert (mt.ones(2, 2, device="remote") @ mt.ones(2, 2, device="remote")).dtype == mt.float16
    x = mt.ones(3, device="remote", requires_grad=True)
    hooked = []
    y = x * 2
    y.register_hook(lambda grad: hooked.append(grad.device.type))
    view = y.view(3, 1)
    view.mul_(3)
    y.sum().backward()
    assert host(x.grad).tolist() == [6, 6, 6] and hooked == ["remote"]
    batched = mt.vmap(lambda row: row.sum() * 2)(mt.ones(4, 3, device="remote"))
    assert host(batched).tolist() == [6.0] * 4


def test_what_was_never_made_is_refused() -> None:
    """Devices whose __init__ did not run, unregistered backends, undefined ops."""
    unmade = mt.device.__new__(mt.device)
    for call in (lambda: mt.empty(2, device=unmade), lambda: mt.ones(2).to(unmade), lambda: mt.Generator(unmade),
                 lambda: mt.UntypedStorage(2, device=unmade), lambda: _C.Backend().default_generator(0)):
        with pytest.raises(RuntimeError, match="never made|not registered"):
            call()
    with pytest.raises(NotImplementedError, match="not in the op table"):
        _C._core.Op("made_here")(mt.ones(2))
