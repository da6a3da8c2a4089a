"""Programs without a judge, for a processor that PyTorch is slow to start on: values are known, or agree between devices."""
from __future__ import annotations

import io
import subprocess
import sys

import pytest

import cann_sim
import mindtorch_v2 as torch

F = torch.nn.functional


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_random_numbers_are_torchs_bit_for_bit() -> None:
    assert torch.rand(4).tolist() == [0.49625658988952637, 0.7682217955589294, 0.08847743272781372, 0.13203048706054688]
    torch.manual_seed(0)
    assert torch.randn(3).tolist() == [1.5409960746765137, -0.293428897857666, -2.1787893772125244]
    torch.manual_seed(0)
    assert torch.randperm(8).tolist() == [4, 0, 7, 3, 2, 5, 1, 6]
    torch.manual_seed(0)
    assert torch.randint(0, 1000, (4,)).tolist() == [44, 239, 933, 760]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (64, 64, 64), (65, 130, 33), (200, 17, 256)])
def test_products_are_those_of_plain_sums(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    a, b = (torch.randint(-3, 4, size).to(dtype) for size in ((m, k), (k, n)))
    expected = (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)                 # whole numbers: exact in any order
    for left, right in ((a, b), (a.T.contiguous().T, b), (a, b.T.contiguous().T), (a.T.contiguous().T, b.T.contiguous().T)):
        assert torch.equal(left @ right, expected)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (64, 64, 64), (65, 130, 33), (200, 1100, 256)])
def test_products_of_bfloat16_are_those_of_float_rounded_once(m: int, n: int, k: int) -> None:
    a, b = torch.randint(-3, 4, (m, k)).float(), torch.randint(-3, 4, (k, n)).float()      # whole numbers: exact in any order
    assert torch.equal(a.bfloat16() @ b.bfloat16(), (a @ b).bfloat16())
    assert torch.equal(a.bfloat16() @ b.T.contiguous().bfloat16().T, (a @ b).bfloat16())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.arange(-4, 4).to(dtype)
    assert x.to(torch.float64).to(dtype).tolist() == x.tolist() and (x == x).all()
    assert torch.equal(x.npu().cpu(), x) and torch.equal((x.npu() | x.npu() if dtype is torch.bool else x.npu() + x.npu()).cpu(),
                                                        x | x if dtype is torch.bool else x + x)


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_training(device: str) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LayerNorm(144),
                                torch.nn.Linear(144, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, target = torch.randn(16, 1, 8, 8).to(device), torch.arange(16).remainder(3).to(device)
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_devices_agree() -> None:
    """Ops with many arguments of all kinds: integers and floats beyond the registers go to the stack, each in its width."""
    q, k, v = (torch.randn(1, 2, 16, 16) for _ in range(3))
    x, w, b = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3), torch.randn(6)
    grid = torch.rand(2, 5, 5, 2) * 2 - 1
    for f, args in ((lambda *a: F.scaled_dot_product_attention(*a, is_causal=True, scale=0.3), (q, k, v)),
                    (lambda *a: F.conv2d(*a, stride=2, padding=1, dilation=1, groups=2), (x, w, b)),
                    (lambda a: F.avg_pool2d(a, (3, 2), (2, 1), (1, 0), True, False, 5), (x,)),
                    (lambda a, g: F.grid_sample(a, g, "bilinear", "border", True), (x, grid)),
                    (lambda a: torch.addcdiv(a, a, a.abs() + 1, value=-0.7), (x,)), (lambda a: F.layer_norm(a, [9, 9], eps=1e-3), (x,)),
                    (lambda a: torch.clamp(a, -0.3, 0.4).cumsum(-1).topk(3, -1, False).values, (x,))):
        assert torch.allclose(f(*(t.npu() for t in args)).cpu(), f(*args), atol=1e-4)


def test_gradients_agree_with_differences() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: (t.tanh() @ t.T).softmax(-1).logsumexp(0), (x,))


def test_saving() -> None:
    held = io.BytesIO()
    sent = {"x": torch.randn(3, 4), "half": torch.ones(5).half(), "npu": torch.arange(6, device="npu")}
    torch.save(sent, held)
    held.seek(0)
    read = torch.load(held)
    assert all(torch.equal(read[name], t) and read[name].device == t.device for name, t in sent.items())


PYACL = """
import sys, cann_sim
sys.path.append(cann_sim.home() + "/python/site-packages")
import acl
assert acl.init() == 0 and acl.rt.set_device(0) == 0
stream, code = acl.rt.create_stream(); assert code == 0
memory, code = acl.rt.malloc(4096, 0); assert code == 0
assert acl.rt.memset_async(memory, 4096, 7, 4096, stream) == 0 and acl.rt.synchronize_stream(stream) == 0
host = bytearray(4096)
target = acl.util.bytes_to_ptr(bytes(host))
assert acl.rt.memcpy(target, 4096, memory, 4096, 2) == 0 and acl.util.ptr_to_bytes(target, 4096)[:3] == b"\\x07\\x07\\x07"
print(acl.get_soc_name(), acl.finalize())
"""
RANKS = """
import sys, mindtorch_v2 as torch, mindtorch_v2.distributed as dist
rank = int(sys.argv[1])
torch.npu.set_device(rank)
dist.init_process_group("hccl", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=2)
x = torch.full((5,), rank + 1.0, device="npu")
dist.all_reduce(x)
print(x.tolist())
dist.destroy_process_group()
"""


def test_pyacl() -> None:
    done = subprocess.run([sys.executable, "-c", PYACL], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["Ascend910B2", "0"], done.stderr


def test_hccl_between_two_processes() -> None:
    ranks = [subprocess.Popen([sys.executable, "-c", RANKS, str(rank), "29641"], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    assert [rank.communicate(timeout=900)[0].strip() for rank in ranks] == ["[3.0, 3.0, 3.0, 3.0, 3.0]"] * 2


def test_the_simulator_is_for_this_processor() -> None:
    assert cann_sim.home() and torch.npu.get_device_name(0) == "Ascend910B2"
