"""torch_npu's own ops (torch.ops.npu): values and gradients on cpu and npu against a plain reference in PyTorch."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from npu_op_case import Case, all_cases, tensor

import mindtorch_v2 as mt
from mindtorch_v2._ops import table

CASES = all_cases()


def tensors(lib: Any, values: Any, grads: tuple[int, ...] = (), device: str = "cpu") -> Any:
    """The arguments with arrays as tensors, those of `grads` as leaves."""
    def one(x: Any, leaf: bool = False) -> Any:
        if isinstance(x, np.ndarray):
            t = tensor(lib, x, device)
            return t.requires_grad_() if leaf else t
        return [one(v) for v in x] if isinstance(x, list) and x and isinstance(x[0], np.ndarray) else x
    if isinstance(values, dict):
        return {k: one(v) for k, v in values.items()}
    return [one(v, i in grads) for i, v in enumerate(values)]


def flat(result: Any) -> list[Any]:
    """Results one after another; what is no tensor as it is."""
    if isinstance(result, (tuple, list)):
        return [y for x in result for y in flat(x)]
    return [result]


def gradients(lib: Any, results: list[Any], leaves: list[Any], counted: list[bool]) -> list[Any]:
    """Of the sum of each result times a pattern: what comes to the leaves."""
    total = 0
    for r, used in zip(results, counted, strict=True):
        if used and r is not None and hasattr(r, "requires_grad") and r.requires_grad:
            total = total + (r * (lib.arange(r.numel(), device=r.device).reshape(r.shape) % 5 - 1.5)).sum()
    return list(lib.autograd.grad(total, leaves))


def run(lib: Any, function: Any, case: Case, device: str = "cpu", counted: list[bool] | None = None) -> tuple[Any, Any]:
    args = tensors(lib, case.args, case.grads, device)
    made = flat(function(*args, **tensors(lib, case.kwargs, (), device)))
    used = [x is not None for x in made] if counted is None else counted
    return made, gradients(lib, made, [args[i] for i in case.grads], used) if case.grads else []


def expect_close(got: Any, expected: Any, atol: float) -> None:
    if not isinstance(expected, torch.Tensor):
        assert got == expected
        return
    assert list(got.shape) == list(expected.shape)
    a, b = (x.detach().cpu().float().numpy() if not x.is_complex() else x.detach().cpu().numpy() for x in (got, expected))
    # Integers that were rounded from floats may fall on either side of a half.
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1.0 if not expected.is_floating_point() and atol > 1e-3 else atol)


@pytest.mark.usefixtures("npu")
@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("at", range(len(CASES)), ids=[f"{c.op}-{i}" for i, c in enumerate(CASES)])
def test_an_op_gives_what_its_reference_gives(at: int, device: str) -> None:
    case = CASES[at]
    op = getattr(mt.ops.npu, case.op)
    expected, slopes = run(torch, lambda *a, **k: case.reference(torch, *a, **k), case)
    counted = [x is not None for x in expected]
    got, own = run(mt, op, case, device, counted)
    assert len(got) == len(expected)
    for mine, right in zip([*got, *own], [*expected, *slopes], strict=True):
        if right is not None:
            expect_close(mine, right, case.atol)
            assert not isinstance(mine, mt.Tensor) or mine.device.type == device


# ---- names ----------------------------------------------------------------------------------------------------------------
def test_how_many_names_compute() -> None:
    rows = mt._ops.npu
    names = {name.partition(".")[0] for name in rows.schemas}
    assert len(names) == 403 and len(rows.schemas) == 425
    assert names >= rows.functions.keys() and rows.refused_names() == names - rows.functions.keys()
    assert len(rows.functions) >= 322
    tested = {c.op for c in CASES}
    assert tested <= rows.functions.keys() and len(tested) >= 300


def test_a_name_without_a_row_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="npu_hans_encode.*not offered"):
        _ = mt.ops.npu.npu_hans_encode
    with pytest.raises(AttributeError, match="no_such_op"):
        _ = mt.ops.npu.no_such_op


def test_calls_of_cann_that_bodies_make_are_no_ops_of_torch() -> None:
    assert "flash_packed" in {schema.name for schema, _ in table.npu_rows} and "flash_packed" not in mt._ops.npu.functions
    assert not {schema.name for schema, _ in table.rows} & {"flash_packed", "anti_quant", "rotary_grad"}
    assert not hasattr(mt.ops.aten, "flash_packed") and not hasattr(table.ops, "npu_rms_norm")


def test_packets_say_npu() -> None:
    packet = mt.ops.npu.npu_rms_norm
    assert str(packet) == "npu.npu_rms_norm" and packet.default.name() == "npu::npu_rms_norm"
    assert packet.default.namespace == "npu" and str(mt.ops.aten.add) == "aten.add"
    assert mt.ops.npu.npu_max.overloads() == ["dim"]


def test_nothing_is_loaded_before_the_namespace_is_used() -> None:
    code = "import sys, mindtorch_v2; sys.exit('mindtorch_v2._ops.npu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- formats, storage, saving ---------------------------------------------------------------------------------------------------
def test_private_formats_leave_a_tensor_as_it_is() -> None:
    x = mt.arange(12.0).reshape(3, 4)
    with pytest.warns(UserWarning, match="allow_internal_format=False, tensor will be created with base format"):
        cast = mt.ops.npu.npu_format_cast(x, 29)
    assert mt.ops.npu.get_npu_format(cast) == 2 and cast.tolist() == x.tolist()
    mt.npu.config.allow_internal_format = True
    try:
        with pytest.warns(UserWarning, match="not used here"):
            assert mt.ops.npu.get_npu_format(mt.ops.npu.npu_format_cast(x, 29)) == 2
    finally:
        mt.npu.config.allow_internal_format = False
    kept = io.BytesIO()
    mt.save({"w": cast}, kept)
    kept.seek(0)
    assert torch.load(kept)["w"].tolist() == x.tolist()      # a file that any torch reads


# ---- random ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("npu")
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_dropout_keeps_what_its_bits_say(device: str) -> None:
    npu = mt.ops.npu
    x = mt.ones(1000, device=device)
    y, mask = npu._npu_dropout(x, 0.25)
    assert mask.dtype == mt.uint8 and mask.numel() == 128
    kept = [byte >> k & 1 for byte in mask.tolist() for k in range(8)][:1000]
    assert 650 < sum(kept) < 850 and y.tolist() == pytest.approx([k / 0.75 for k in kept])
    assert npu.npu_dropout_backward(x, mask, 0.25).tolist() == y.tolist()
    assert npu.npu_dropout_do_mask(x, npu.npu_dropout_gen_mask([1000], 1.0, device=device), 1.0)[0].sum() == 0
    byte, own = npu._dropout_with_byte_mask(x, 0.5)
    assert byte.tolist() == [2.0 * k for k in own.tolist()]


@pytest.mark.usefixtures("npu")
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_attention_with_dropout_has_the_gradient_of_the_same_bits(device: str) -> None:
    npu = mt.ops.npu
    q, k, v = (mt.randn(1, 2, 8, 16, device=device, requires_grad=True) for _ in range(3))
    out, top, total, _, seed, offset, count = npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.25, keep_prob=0.5)
    assert seed > 0 and count == 128
    again = npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.25, keep_prob=0.5, seed=seed)[0]
    assert mt.equal(out, again)
    grads = mt.autograd.grad(out.sum(), (q, k, v))
    own = npu.npu_fusion_attention_grad(q, k, v, mt.ones_like(out), 2, "BNSD", softmax_max=top, softmax_sum=total, attention_in=out,
                                        scale_value=0.25, keep_prob=0.5, seed=seed, numels=count)
    for a, b in zip(grads, own, strict=False):
        assert mt.allclose(a, b, atol=1e-5)


@pytest.mark.usefixtures("npu")
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_what_is_written_in_place(device: str) -> None:
    npu = mt.ops.npu
    tokens, lengths, slots = (mt.tensor(v, device=device) for v in ([1, 2], [4, 5], [0, 0]))
    places, tables = mt.tensor([3, 4], device=device), mt.tensor([[0, 1, 2, 3], [4, 5, 6, 7]], device=device)
    npu.npu_advance_step_flashattn(tokens, mt.tensor([[7], [8]], device=device), places, lengths, slots, tables, 2, 2, 2)
    assert [x.tolist() for x in (tokens, places, lengths, slots)] == [[7, 8], [4, 5], [5, 6], [4, 13]]
    key, cache = mt.arange(6.0, device=device).reshape(3, 1, 2), mt.zeros(2, 2, 1, 2, device=device)
    other = cache.clone()
    assert npu.npu_scatter_pa_kv_cache(key, -key, cache, other, mt.tensor([3, -1, 0], device=device), cache_mode="Norm") is None
    assert cache.flatten().tolist() == [4, 5, 0, 0, 0, 0, 0, 1] and mt.equal(other, -cache)
    rows, more = mt.zeros(3, 1, 2, device=device), mt.zeros(3, 1, 2, device=device)
    npu.npu_gather_pa_kv_cache(cache, other, mt.tensor([[1, 0]], device=device), mt.tensor([3], device=device), rows, more)
    assert rows.flatten().tolist() == [0, 0, 0, 1, 4, 5] and mt.equal(more, -rows)
    nz = mt.zeros(2, 1, 2, 16, device=device)
    npu.npu_scatter_pa_kv_cache(mt.ones(1, 1, 16, device=device), mt.ones(1, 1, 16, device=device), nz, nz.clone(),
                                mt.tensor([3], device=device))
    assert nz[1, 0, 1].sum() == 16 and nz.sum() == 16
    tensors = [mt.zeros(3, 2, device=device), mt.zeros(3, 2, device=device)]
    npu.npu_scatter_list_(tensors, mt.tensor([0, 2], device=device), mt.ones(2, 1, 2, device=device), mt.tensor([1, 0], device=device))
    assert tensors[0].tolist() == [[1, 1], [0, 0], [0, 0]] and tensors[1].sum() == 0
    drawn = mt.ones(4000, device=device)
    npu.npu_sim_exponential_(drawn, 2.0)
    assert abs(float(drawn.mean()) - 0.5) < 0.05


def test_room_and_hints(capsys: pytest.CaptureFixture[str]) -> None:
    npu, q, k = mt.ops.npu, mt.zeros(2, 3, 8), mt.zeros(2, 5, 8)
    out, top, total = npu._npu_fusion_attention_v3_infer_output(q, k, k, 2, "BSH")
    assert out.shape == q.shape and top.shape == total.shape == (2, 2, 3, 8) and top.dtype == mt.float32
    assert [x.shape for x in npu._npu_fusion_attention_grad_v3_infer_output(q, k, k)[:3]] == [q.shape, k.shape, k.shape]
    for made in (npu._npu_fused_infer_attention_score_infer_output(q, k, num_heads=2, softmax_lse_flag=True),
                 npu._npu_fused_infer_attention_score_v2_infer_output(q, k, num_query_heads=2, return_softmax_lse=True)):
        assert made[0].shape == q.shape and made[1].shape == (2, 2, 3, 1)
    assert npu._npu_fusion_attention_v3_get_max_workspace(q, k, k, 2, "BSH").numel() == 0
    assert npu._npu_fused_infer_attention_score_v2_get_max_workspace(q, k, k).dtype == mt.uint8
    assert npu.empty_with_format([2, 3], dtype=mt.float16, device="cpu").shape == (2, 3)
    assert npu.unsafe_empty_with_format([2], device="cpu").dtype == mt.float32
    with pytest.raises(ValueError, match="max_size"):
        npu.npu_prefetch(q, None, 0)
    npu.print_npugraph_tensor(mt.ones(1), tensor_name="w")
    assert capsys.readouterr().out == "w: tensor([1.])\n"


# ---- torch_npu ------------------------------------------------------------------------------------------------------------------------
PROGRAM = """
import torch, torch_npu
x, g = torch.randn(2, 8), torch.ones(8)
assert torch_npu.npu_rms_norm is torch.ops.npu.npu_rms_norm
assert torch.allclose(torch_npu.npu_rms_norm(x, g, 1e-6)[0], torch.nn.functional.rms_norm(x, (8,), g, 1e-6))
try:
    torch.npu_rms_norm(x, g)
except RuntimeError as error:
    assert str(error) == ("torch.npu_rms_norm is deprecated and will be removed in future version. "
                          "Use torch_npu.npu_rms_norm instead.")
else:
    raise SystemExit("torch.npu_rms_norm")
try:
    torch_npu.npu_hans_encode
except AttributeError as error:
    assert "npu_hans_encode" in str(error)
else:
    raise SystemExit("npu_hans_encode")
assert torch_npu.int4 == 285 and torch_npu.float8_e4m3fn == 292 and "npu_swiglu" in dir(torch_npu)
q = torch_npu.npu_quantize(x, torch.ones(1), None, torch.qint8, -1, False)
assert q.dtype == torch.int8 and torch.equal(q, torch_npu.npu_quantize(x, torch.ones(1), None, torch_npu.int8, -1, False))

w = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
ours = [torch.nn.Parameter(p.detach().clone()) for p in w]
for params, kind in ((w, torch.optim.AdamW), (ours, torch_npu.optim.NpuFusedAdamW)):
    optimizer = kind(params, lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        sum((p * p).sum() for p in params).backward()
        optimizer.step()
assert all(torch.equal(a, b) for a, b in zip(w, ours))
combined = torch_npu.utils.npu_combine_tensors([p.data for p in ours])
assert combined.numel() == 17
for kind in ("Lamb", "AdamP", "RMSpropTF", "SGD", "Adam", "Adadelta", "RMSprop"):
    p = torch.nn.Parameter(torch.full((3, 4), 2.0))
    optimizer = getattr(torch_npu.optim, "NpuFused" + kind)([p], lr=0.1)
    for step in range(20):
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.clip_grad_norm_fused_(1.0)
        optimizer.step()
    assert p.abs().max() < 2.0, kind
with torch_npu.profiler.profile(activities=[torch_npu.profiler.ProfilerActivity.CPU]) as prof:
    x + x
assert any(e.key == "aten::add" for e in prof.key_averages())
"""


def test_torch_npu_under_the_drop_in() -> None:
    environment = os.environ | {"MINDTORCH_AS_TORCH": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CONTRIB = """
import torch, torch_npu
import torch_npu.contrib as contrib
from torch_npu.contrib.module import LinearQuant, LinearWeightQuant, QuantConv2d
from torch_npu.contrib.function import npu_giou, roll

torch.manual_seed(0)
a, b = torch.randn(1, 4, 2, 2), torch.randn(1, 4, 2, 2)
halves = contrib.ChannelShuffle(8)(a, b)
assert torch.equal(torch.cat(halves, 1), torch.nn.functional.channel_shuffle(torch.cat([a, b], 1), 2))
x, target = torch.randn(3, 5), torch.tensor([0, 4, 2])
loss = contrib.LabelSmoothingCrossEntropy(5, 0.1)(x, target)
soft = torch.nn.functional.one_hot(target, 5) * (0.9 - 0.025) + 0.025
assert torch.allclose(loss, -(soft * torch.log_softmax(x, 1)).sum(1).mean(), atol=1e-5)
assert contrib.Focus(3, 8)(torch.randn(2, 3, 4, 4)).shape == (2, 8, 2, 2)
assert contrib.BiLSTM(3, 4)(torch.randn(5, 2, 3)).shape == (5, 2, 8)
conv = contrib.ModulatedDeformConv(2, 3, 3, padding=1)
y = conv(torch.randn(1, 2, 4, 4))
y.sum().backward()
assert y.shape == (1, 3, 4, 4) and conv.weight.grad is not None and conv.conv_offset.weight.grad is not None
boxes = torch.rand(4, 4)
assert torch.allclose(npu_giou(boxes, boxes), torch.ones(4, 1), atol=1e-4)
assert torch.equal(roll(torch.arange(16.0).reshape(1, 4, 4, 1), (1, 1), (1, 2)), torch.arange(16.0).reshape(1, 4, 4, 1).roll((1, 1), (1, 2)))
layer = LinearQuant(8, 4, bias=False, output_dtype=torch.float16)
layer.weight.data.copy_(torch.randint(-9, 9, (4, 8)))
layer.scale.data.fill_(0.5)
q = torch.randint(-9, 9, (3, 8), dtype=torch.int8)
assert torch.equal(layer(q), (q.float() @ layer.weight.float().t() * 0.5).half())
layer = LinearWeightQuant(8, 4, antiquant_group_size=4)
assert layer.antiquant_scale.shape == (4, 2) and layer(torch.randn(3, 8)).shape == (3, 4)
assert QuantConv2d(2, 3, 3, torch.float16, bias=False)(torch.ones(1, 2, 5, 5, dtype=torch.int8)).shape == (1, 3, 3, 3)
path = contrib.NpuDropPath(0.5)
assert path.eval()(x) is x and set(path.train()(torch.ones(64, 2)).unique().tolist()) == {0.0, 2.0}
"""
TRANSFER = """
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu

assert torch.cuda.is_available() and torch.cuda.device_count() == torch.npu.device_count()
x = torch.ones(3, device="cuda")
assert x.device.type == "npu" and x.is_cuda and torch.device("cuda:0") == torch.device("npu:0")
assert torch.ones(2).cuda().device.type == "npu" and torch.ones(2).to("cuda:0").is_npu
model = torch.nn.Linear(3, 2).cuda()
assert next(model.parameters()).is_npu
with torch.autocast("cuda", dtype=torch.float16):
    assert model(x).dtype == torch.float16
torch.cuda.synchronize()
with torch.cuda.stream(torch.cuda.Stream()):
    y = x + 1
torch.cuda.current_stream().synchronize()
assert torch.cuda.memory_allocated() > 0 and torch.cuda.get_device_name() == torch.npu.get_device_name()
assert torch.cuda.CUDAGraph is torch.npu.NPUGraph and torch.distributed.is_nccl_available() == torch.distributed.is_hccl_available()
import torch.cuda.amp
assert torch.cuda.amp.GradScaler is torch.npu.amp.GradScaler
"""


@pytest.mark.usefixtures("npu")
@pytest.mark.parametrize("program", [CONTRIB, TRANSFER], ids=["contrib", "transfer"])
def test_programs_that_use_torch_npu(program: str) -> None:
    environment = os.environ | {"MINDTORCH_AS_TORCH": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
