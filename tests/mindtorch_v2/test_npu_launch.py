"""How ops run on the npu: asynchronously, through prepared calls, on any thread and device; and how they fail.

What each op computes is tested in test_npu_ops.py."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu import ops as npu_ops
from mindtorch_v2._ops import table

pytestmark = pytest.mark.usefixtures("npu")


def run(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A program of its own with settings for CANN, which are read once a process."""
    return subprocess.run([sys.executable, "-c", "import mindtorch_v2 as torch\n" + textwrap.dedent(code)],
                          env={**os.environ, **settings}, capture_output=True, text=True, timeout=600, check=False)


def output(code: str, **settings: str) -> list[str]:
    done = run(code, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


# ---- asynchronous execution ------------------------------------------------------------------------------------------
def test_ops_return_before_they_ran() -> None:
    code = """
        import os
        x, gate = torch.ones(512, 512, device="npu"), torch.npu.ExternalEvent()
        if os.environ["ACL_LAUNCH_BLOCKING"] == "0":
            gate.wait()                                  # nothing of it runs before the host has looked
        for _ in range(20):
            x = x @ x / 512
        busy = not torch.npu.current_stream().query()
        with torch.npu.stream(torch.npu.Stream()):
            gate.record()
        torch.npu.synchronize()
        print(busy, torch.npu.current_stream().query(), x[0, 0].item())
    """
    assert output(code, ACL_LAUNCH_BLOCKING="0") == ["True True 1.0"]
    assert output(code, ACL_LAUNCH_BLOCKING="1") == ["False True 1.0"]


@pytest.mark.parametrize("read", [
    lambda x: x.sum().item(), lambda x: float(x.sum()), lambda x: sum(x.tolist()), lambda x: x.cpu().sum().item(),
    lambda x: x.cpu().numpy().sum(), lambda x: x.to("cpu").sum().item(), lambda x: int(str(x).count("2.")),
    lambda x: 8 if bool((x == 2).all()) else 0, lambda x: len(x.nonzero()) * 2, lambda x: sum(2 for i in x if i > 1),
])
def test_reading_waits(npu: ModuleType, read: Any) -> None:
    slow = torch.ones(512, 512, device="npu")
    for _ in range(10):
        slow = slow @ slow / 512
    assert read(slow[0, :4] + 1) in (8, 4)               # str counts its four items


def test_a_copy_that_does_not_wait_is_there_after_a_synchronisation(npu: ModuleType) -> None:
    x = torch.arange(1000., device="npu")
    host = (x * 2).to("cpu", non_blocking=True)
    npu.synchronize()
    assert torch.equal(host, torch.arange(1000.) * 2)


def test_temporaries_are_reused_in_stream_order(npu: ModuleType) -> None:
    x = torch.ones(1 << 20, device="npu")
    npu.synchronize()
    before = npu.memory_reserved()
    for _ in range(200):
        x = x + 1
    assert npu.memory_reserved() <= before + 4 * x.nbytes, "memory does not grow between synchronisations"
    assert x[0].item() == 201


# ---- in place, out=, views, operands ---------------------------------------------------------------------------------
def test_in_place_keeps_memory_and_counts_versions() -> None:
    x = torch.arange(6., device="npu")
    address, version = x.data_ptr(), x._version
    x.add_(1).mul_(2).relu_()
    assert x.data_ptr() == address and x._version == version + 3
    assert x.tolist() == [2, 4, 6, 8, 10, 12]


def test_out_is_filled_resized_and_returned() -> None:
    x = torch.arange(4., device="npu")
    out = torch.empty(4, device="npu")
    assert torch.add(x, 1, out=out) is out and out.tolist() == [1, 2, 3, 4]
    grown = torch.empty(0, device="npu")
    assert torch.mul(x, x, out=grown).tolist() == [0, 1, 4, 9]
    strided = torch.zeros(4, 2, device="npu")[:, 0]
    torch.exp(x * 0, out=strided)
    assert strided.tolist() == [1, 1, 1, 1]


def test_views_share_memory_and_may_be_written_through() -> None:
    x = torch.arange(12., device="npu").reshape(3, 4)
    x.t()[1] += 100
    x[:, ::2].mul_(-1)
    x.diagonal().fill_(7)
    expected = torch.arange(12.).reshape(3, 4)
    expected.t()[1] += 100
    expected[:, ::2].mul_(-1)
    expected.diagonal().fill_(7)
    assert torch.equal(x.cpu(), expected)


def test_strided_operands() -> None:
    a = torch.randn(4, 6, 5)
    b = a.npu()
    for look in (lambda t: t.transpose(0, 2), lambda t: t[:, 1::2], lambda t: t.permute(2, 0, 1)[1:],
                 lambda t: t[:1].expand(4, 6, 5), lambda t: t.as_strided((3, 3), (1, 2), 4)):
        assert torch.allclose(look(b).exp().sum(-1).cpu(), look(a).exp().sum(-1), rtol=1e-5)


def test_numbers_and_cpu_scalars_beside_tensors_of_the_npu() -> None:
    x = torch.tensor([1., 2.], device="npu")
    one = torch.tensor(3.)                               # 0-dim on the CPU: a number
    for made, expected in ((x + one, [4, 5]), (one * x, [3, 6]), (x / 2, [0.5, 1]), (2 - x, [1, 0]), (x ** 2, [1, 4]),
                           (2 ** x, [2, 4]), (x > one, [False, False]), (torch.where(x > 1, x, 0.5), [0.5, 2]),
                           (x.clamp(max=torch.tensor(1.5)), [1, 1.5])):
        assert made.is_npu and made.tolist() == expected
    assert (x.to(torch.int64) + 1.5).dtype is torch.float32


def test_gradients_flow_between_devices() -> None:
    x = torch.ones(3, requires_grad=True)
    (x.npu() * 2).sum().cpu().backward()
    assert x.grad.tolist() == [2, 2, 2] and not x.grad.is_npu


# ---- errors that come at once ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("wrong, exception, words", [
    (lambda x: x + torch.ones(3), RuntimeError, "two devices"),
    (lambda x: torch.matmul(x, torch.ones(3, 3)), RuntimeError, "two devices"),
    (lambda x: x + torch.ones(4, device="npu"), RuntimeError, "size"),
    (lambda x: x @ torch.ones(4, device="npu"), RuntimeError, "size|shape"),
    (lambda x: x.view(7), RuntimeError, "shape"),
    (lambda x: x[5], IndexError, "out of bounds"),
    (lambda x: x.sum(4), IndexError, "Dimension out of range"),
    (lambda x: torch.cat([x, torch.ones(2, 2, device="npu")]), RuntimeError, "dimension"),
    (lambda x: x.to(torch.int64) & 1.5, (RuntimeError, NotImplementedError), "[Bb]itwise"),
    (lambda x: torch.linalg.eigvals(torch.diag(x)), NotImplementedError, r"\[_linalg_eigvals\] no kernel for npu"),
    (lambda x: torch.add(x, x, out=torch.empty(3, dtype=torch.int64, device="npu")), RuntimeError, "can't be cast"),
    (lambda x: x.double().erfinv(), RuntimeError, r"\[aclnnErfinv\] failed with ACLNN_ERR_PARAM_INVALID \(161002\)"),
    (lambda x: x.add_("a"), TypeError, "add_"),
    (lambda x: x.numpy(), TypeError, "npu"),
])
def test_wrong_calls_raise_torchs_exceptions(wrong: Any, exception: Any, words: str) -> None:
    x = torch.ones(3, device="npu")
    with pytest.raises(exception, match=words):
        wrong(x)
    assert (x + 1).tolist() == [2, 2, 2], "the device goes on"


def test_tensors_of_two_npus(npu: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="npu:[01]"):
        torch.ones(3, device="npu:0") + torch.ones(3, device="npu:1")
    assert (torch.ones(3, device="npu:0").to("npu:1") + torch.ones(3, device="npu:1")).tolist() == [2, 2, 2]


# ---- aclnn ops by name -----------------------------------------------------------------------------------------------
def _npu(*values: float, dtype: Any = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device="npu")


def _call(name: str, *arguments: Any) -> list[Any]:
    aclnn.call(name, *arguments)
    return [(a.tolist() if isinstance(a, torch.Tensor) else [t.tolist() for t in a]) for a in arguments
            if isinstance(a, torch.Tensor) or (isinstance(a, list) and a and isinstance(a[0], torch.Tensor))]


def test_calls_by_name_take_every_kind_of_argument() -> None:
    kinds = {
        "aclnnAdd": lambda: _call("aclnnAdd", _npu(1, 2), _npu(3, 4), 2, _npu(0, 0).float())[-1] == [7, 10],
        "aclnnInplaceAdds": lambda: _call("aclnnInplaceAdds", _npu(1., 2.), 1.5, 2)[0] == [4, 5],
        "aclnnCat": lambda: _call("aclnnCat", [_npu(1.), _npu(2., 3.)], 0, _npu(0., 0., 0.))[-1] == [1, 2, 3],
        "aclnnForeachAbs": lambda: _call("aclnnForeachAbs", [_npu(-1.)], [_npu(0.)])[-1] == [[1]],
        "aclnnForeachZeroInplace": lambda: _call("aclnnForeachZeroInplace", [_npu(5.)])[0] == [[0]],
        "aclnnForeachAddScalarList":
            lambda: _call("aclnnForeachAddScalarList", [_npu(1.)], [2], [_npu(0.)])[-1] == [[3]],
        "aclnnReduceSum": lambda: _call("aclnnReduceSum", _npu(1., 2.), [0], True, torch.float32, _npu(0.))[-1] == [3],
        "aclnnUpsampleNearest1d": lambda: _call("aclnnUpsampleNearest1d", _npu(1., 2.).reshape(1, 1, 2), [4],
                                                torch.zeros(1, 1, 4, device="npu"))[-1] == [[[1, 1, 2, 2]]],
        "aclnnDivMod": lambda: _call("aclnnDivMod", _npu(7.), _npu(2.), 2, _npu(0.))[-1] == [3],
        "aclnnMatmul":
            lambda: _call("aclnnMatmul", _npu(1., 2.), _npu(3., 4.), torch.zeros((), device="npu"), 0)[-1] == 11,
        "aclnnGeluV2": lambda: abs(_call("aclnnGeluV2", _npu(1.), 0, _npu(0.))[-1][0] - 0.8413447) < 1e-6,
        "aclnnInplaceUniform": lambda: 2 <= _call("aclnnInplaceUniform", _npu(0.), 2.0, 3.0, 1, 0)[0][0] <= 3,
        "aclnnSWhere":
            lambda: _call("aclnnSWhere", _npu(1, 0).bool(), _npu(1., 1.), _npu(2., 2.), _npu(0., 0.))[-1] == [1, 2],
    }
    met = {argument.kind for name in kinds for argument in aclnn.signature(name)}
    assert {"tensor", "out", "inout", "tensors", "outs", "inouts", "scalar", "scalars", "ints", "int64", "int8", "bool",
            "dtype", "double", "uint64"} <= met
    for name, works in kinds.items():
        assert works(), name


def test_a_call_with_a_wrong_name_or_number_of_arguments() -> None:
    with pytest.raises(NotImplementedError, match="aclnnNoSuchOp"):
        aclnn.call("aclnnNoSuchOp")
    with pytest.raises(TypeError, match=r"takes 4 arguments \(self, other, alpha, out\), got 2"):
        aclnn.call("aclnnAdd", _npu(1.), _npu(1.))
    with pytest.raises(RuntimeError, match=r"\[aclnnAdd\].*\(161001\)"):
        aclnn.call("aclnnAdd", None, _npu(1.), 1, _npu(1.))


def _words(name: str, *arguments: Any) -> str:
    """The call as an error would show it."""
    aclnn.call(name, *arguments)
    found, words = _C._npu_last_launches(0)[0]
    assert found == name
    return words


def test_calls_in_words() -> None:
    x, out = torch.ones(3, 4, device="npu"), torch.ones(3, 4, device="npu")
    assert _words("aclnnAdd", x, x[0], 2, out) == "aclnnAdd(float32[3, 4], float32[4], 2, float32[3, 4])"
    assert _words("aclnnInplaceAdds", x, 1.5, 2) == "aclnnInplaceAdds(float32[3, 4], 1.5, 2)"
    half = torch.ones(2, device="npu", dtype=torch.float16)
    assert _words("aclnnCat", [half] * 12, 0, torch.ones(24, device="npu", dtype=torch.float16)) == \
        f"aclnnCat([{'float16[2], ' * 8}and 4 more], 0, float16[24])"
    assert _words("aclnnForeachAddScalarList", [x], [2], [out]) == \
        "aclnnForeachAddScalarList([float32[3, 4]], [2], [float32[3, 4]])"
    assert _words("aclnnReduceSum", x, [0, 1], True, torch.float32, out[:1, :1]) == \
        "aclnnReduceSum(float32[3, 4], [0, 1], 1, 0, float32[1, 1])"
    assert _words("aclnnInplaceUniform", x, 2.0, 3.5, 1, 2**64 - 1) == "aclnnInplaceUniform(float32[3, 4], 2.0, 3.5, 1, -1)"
    assert _words("aclnnClamp", x, None, 1, out) == "aclnnClamp(float32[3, 4], None, 1, float32[3, 4])"
    with pytest.raises(RuntimeError, match=r"The call: aclnnAdd\(float32\[3, 4\], float32\[5\], 1, float32\[3, 4\]\)"):
        aclnn.call("aclnnAdd", x, torch.ones(5, device="npu"), 1, out)


def test_an_op_without_a_kernel_for_this_soc_is_an_error() -> None:
    done = run("""
        from mindtorch_v2._backends.npu import aclnn
        x = torch.ones(2, device="npu")
        try:
            aclnn.call("aclnnExp", x, x)
        except RuntimeError as error:
            print(error)
    """, CANN_SIM_FAULTS="aclnnExp:1=561003")
    assert "[aclnnExp] failed with" in done.stdout and "the op has no kernel for this SoC or dtype" in done.stdout


# ---- rows as data: what a mapping may say ----------------------------------------------------------------------------
@pytest.mark.parametrize("name", """linear addmm baddbmm gelu nll_loss_forward nll_loss_backward nll_loss2d_forward
    nll_loss2d_backward _fused_rms_norm _fused_rms_norm_backward _convolution_backward index _index_put_list_ embedding
    _flash_attention _flash_attention_backward _dropout _bernoulli_scalar_ uniform_ normal_ cat native_layer_norm""".split())
def test_no_python_runs_between_a_row_and_cann(name: str) -> None:
    mapped = [row for row in getattr(table.ops, name).overloads if row.npu is not None]
    assert mapped
    for row in mapped:
        assert type(npu_ops.resolve(row)) is _C.NpuPlan


def _same_on_both(function: Any, *shapes: tuple[int, ...]) -> None:
    """The values and gradients of a function of random tensors on cpu and npu."""
    torch.manual_seed(3)
    given = [torch.randn(shape, requires_grad=True) for shape in shapes]
    twins = [t.detach().npu().requires_grad_() for t in given]
    here, there = function(*given), function(*twins)
    assert there.is_npu and torch.allclose(there.cpu(), here, rtol=1e-4, atol=1e-5, equal_nan=True)
    here.sum().backward()
    there.sum().backward()
    for t, twin in zip(given, twins, strict=True):
        assert torch.allclose(twin.grad.cpu(), t.grad, rtol=1e-4, atol=1e-5, equal_nan=True)


F = torch.nn.functional


@pytest.mark.parametrize("function, shapes", [
    (F.linear, ((5, 4), (3, 4), (3,))), (F.linear, ((2, 5, 4), (3, 4), (3,))), (F.linear, ((2, 5, 4), (3, 4))),
    (F.linear, ((4,), (3, 4), (3,))), (F.linear, ((5, 4), (4,))), (F.linear, ((0, 4), (3, 4), (3,))),
    (lambda x, w, b: F.linear(x.transpose(0, 1), w, b), ((5, 2, 4), (3, 4), (3,))),
    (lambda x, w, b: F.linear(x[1:, :, ::2], w.t(), b), ((3, 2, 8), (4, 3), (3,))),
    (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), ((), (2, 3), (3, 4))),
    (lambda c, a, b: torch.addmm(c, a, b), ((4,), (2, 3), (3, 4))), (torch.baddbmm, ((1, 1, 4), (2, 2, 3), (2, 3, 4))),
    (lambda x: F.gelu(x, approximate="tanh"), ((7,),)), (F.gelu, ((7,),)),
    (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2], device=x.device)), ((3, 4),)),
    (lambda x: F.cross_entropy(x, torch.empty(0, dtype=torch.int64, device=x.device)), ((0, 4),)),
    (lambda x: F.nll_loss(x, torch.ones(2, 5, 5, dtype=torch.int64, device=x.device)), ((2, 3, 5, 5),)),
    (lambda x: F.rms_norm(x, (4,)), ((3, 4),)), (lambda x, w: F.rms_norm(x, (4,), w), ((3, 4), (4,))),
    (lambda x, w: F.rms_norm(x.detach(), (4,), w) + x, ((3, 4), (4,))), (lambda x, w: F.rms_norm(x, (4,), w), ((0, 4), (4,))),
    (F.conv2d, ((2, 3, 5, 5), (4, 3, 3, 3), (4,))), (lambda x, w: F.conv2d(x.detach(), w) + x.sum(), ((2, 3, 5, 5), (4, 3, 3, 3))),
    (lambda x: x[:, torch.tensor([1, 0], device=x.device)], ((3, 4),)),
    (lambda x: x.index_put((None, torch.tensor([1], device=x.device)), x.new_ones(3, 1)), ((3, 4),)),
    (F.scaled_dot_product_attention, ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8))),
    (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ((4, 6, 8), (4, 6, 8), (4, 6, 8))),
    (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), ((2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8))),
])
def test_words_of_a_mapping(function: Any, shapes: Any) -> None:
    _same_on_both(function, *shapes)


@pytest.mark.parametrize("source", [(3, 0, 0, None, None), (0, -1, 0, None, None), (0, 64, 0, None, None),
                                    (0, 0, 11, None, None), (2, None, 8, None, None)])
def test_a_plan_that_reads_what_is_not_there_is_refused(source: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="aclnnExp cannot read"):
        _C.NpuPlan("aclnnExp", 1, 1, [(0, source, False, 0, 0)])


def test_a_word_that_the_op_does_not_know() -> None:
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        F.gelu(torch.ones(3, device="npu"), approximate="cos")


def test_attention_is_composed_on_a_soc_without_the_fused_op() -> None:
    code = """
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
        made = torch.nn.functional.scaled_dot_product_attention(*(t.npu() for t in (q, k, v)), is_causal=True)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        made.sum().backward()
        print(torch.allclose(made.cpu(), expected, atol=1e-2), q.grad is not None)   # products are in float16 there
    """
    assert output(code, CANN_SIM_SOC="Ascend910A", CANN_SIM_FAULTS="aclnnFlashAttentionScore:1=561003") == ["True True"]


def test_dropout_is_one_op_each_way() -> None:
    code = """
        x = torch.ones(64, 33, device="npu", requires_grad=True)
        y = torch.nn.functional.dropout(x, 0.25)
        y.sum().backward()
        print(torch.equal(x.grad, y), sorted(set((y * 3).flatten().tolist())), 0.6 < (y > 0).float().mean().item() < 0.9)
        print(torch.equal(y, torch.nn.functional.dropout(x, 0.25)), torch.nn.functional.dropout(x, 1.0).sum().item())
    """
    assert output(code, CANN_SIM_FAULTS="aclnnInplaceBernoulli:1=561103") == ["True [0.0, 4.0] True", "False 0.0"]


# ---- prepared calls --------------------------------------------------------------------------------------------------
def test_a_repeated_call_is_prepared_once() -> None:
    x = torch.ones(37, 41, device="npu")
    (x * 1.25).sum()
    count = _C._npu_prepared_count(0)
    for _ in range(50):
        (x * 1.25).sum()
    assert _C._npu_prepared_count(0) == count


def test_a_prepared_call_serves_other_addresses() -> None:
    kept = [torch.full((5, 3), float(i), device="npu") for i in range(40)]
    for i, x in enumerate(kept):
        assert (x + kept[-1 - i]).sum().item() == 39 * 15


def test_what_differs_is_prepared_apart() -> None:
    x = torch.arange(12., device="npu")
    assert (x.reshape(3, 4) + 1)[1].tolist() == [5, 6, 7, 8]
    assert (x.reshape(4, 3).t() + 1)[1].tolist() == [2, 5, 8, 11]        # same sizes, other strides
    assert (x[1:7] + 1).tolist() == [2, 3, 4, 5, 6, 7]
    assert (x[2:8] + 1).tolist() == [3, 4, 5, 6, 7, 8]                   # same shape, other offset
    assert (x[2:8] + 2).tolist() == [4, 5, 6, 7, 8, 9]                   # another number
    assert (x.to(torch.int64)[2:8] + 2).tolist() == [4, 5, 6, 7, 8, 9]


def test_a_call_that_writes_over_its_argument_is_prepared_apart() -> None:
    code = """
        x, y = torch.arange(43., device="npu"), torch.ones(43, device="npu")
        out = torch.empty(43, device="npu")
        torch.atan2(x, y, out=out)
        count = torch._C._npu_prepared_count(0)
        torch.atan2(x, y, out=y)
        print(torch._C._npu_prepared_count(0) - count, torch.equal(out, y))
    """
    assert output(code) == ["1 True"]


def test_prepared_calls_keep_no_room_of_longer_ones_before_them() -> None:
    used = output("""
        import ctypes
        class Info(ctypes.Structure):
            _fields_ = [("of", ctypes.c_size_t * 10)]
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = Info
        x, many = torch.ones(3, device="npu"), [torch.ones(3, device="npu")] * 40
        def fill(function, count, begin):
            for i in range(count):
                function(begin + i)
                if i % 100 == 99:
                    torch.npu.synchronize()      # a long queue is more calls, not longer ones
            print(libc.mallinfo2().of[7])        # uordblks: bytes that malloc has handed out
        fill(lambda i: x + i, 20000, 0)
        fill(lambda i: torch._foreach_add(many, i), 8000, 0)
        fill(lambda i: x + i, 20000, 20000)
    """)
    before, longer, after = map(int, used)
    assert longer - before > 4 << 20, "the longer calls were kept"
    assert after - before < 1 << 20


def test_prepared_calls_do_not_grow_without_end() -> None:
    x = torch.ones(5000, device="npu")
    for n in range(1, 5000):
        x[:n].neg()
    assert _C._npu_prepared_count(0) < 4999, "old ones make room"
    assert x[:5].neg().tolist() == [-1] * 5, "and are prepared again"


def test_numbers_that_never_come_again_push_out_nothing_that_does() -> None:
    code = """
        x = torch.ones(4, device="npu")
        for step in range(6000):
            x * 1.25
            x + 1e-6 * step
        print((x * 1.25).tolist())
    """
    assert output(code, CANN_SIM_FAULTS="aclnnMuls:2=561103") == ["[1.25, 1.25, 1.25, 1.25]"], "prepared a second time"


def test_calls_with_lists_are_prepared_too() -> None:
    code = """
        for i in range(20):
            kept = [torch.full((2,), float(i + j), device="npu") for j in range(3)]
            assert torch.cat(kept).tolist() == [i, i, i + 1, i + 1, i + 2, i + 2]
            rows = torch.arange(6., device="npu").reshape(3, 2)[:, [1, i % 2]]
            assert rows.tolist() == [[1, i % 2], [3, 2 + i % 2], [5, 4 + i % 2]]
        print("right")
    """
    assert output(code, CANN_SIM_FAULTS="aclnnCat:2=561103,aclnnIndex:2=561103") == ["right"]


def test_more_dims_than_cann_supports() -> None:
    wide = torch.ones(1, device="npu").reshape((1,) * 9)
    with pytest.raises(RuntimeError, match="at most 8 dims, got 9"):
        wide.exp()
    assert wide.reshape(-1).exp().shape == (1,)


def test_broadcast_operands_and_tensors_without_items() -> None:
    x = torch.arange(6., device="npu")[2:3].expand(4, 1)                 # strides 0, an offset
    assert (x + torch.arange(3., device="npu")).tolist() == [[2, 3, 4]] * 4
    assert (x[:0] + 1).shape == (0, 1) and x[:0].sum().item() == 0


def test_draws_are_never_prepared() -> None:
    torch.manual_seed(0)
    draws = [torch.rand(4, device="npu").tolist() for _ in range(3)]
    assert draws[0] != draws[1] != draws[2]


def test_results_of_unknown_size_are_not_prepared() -> None:
    for n in (3, 1, 5, 0):
        x = torch.zeros(6, device="npu")
        x[:n] = 1
        assert x.nonzero().reshape(-1).tolist() == list(range(n))
        assert len(torch.masked_select(x, x > 0)) == n


def test_threads_launch_the_same_op_at_once() -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        x = torch.full((64,), float(number), device="npu")
        for i in range(200):
            if (x + i).sum().item() != 64 * (number + i):
                wrong.append((number, i))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_every_device_has_its_own(npu: ModuleType) -> None:
    results = []
    for index in range(npu.device_count()):
        x = torch.arange(4., device=f"npu:{index}")
        y = (x * 2).softmax(0)
        assert y.device.index == index
        results.append(y.cpu())
    assert all(torch.equal(r, results[0]) for r in results)


# ---- errors of the device --------------------------------------------------------------------------------------------
LATE = """
    x = torch.ones(3, device="npu")
    torch.npu.synchronize()
    try:
        y = x.exp()
        print("launched")
        torch.npu.synchronize()
    except RuntimeError as error:
        print(type(error).__name__, error)
"""


def test_an_error_of_the_device_comes_at_the_next_synchronisation() -> None:
    first, *rest = output(LATE, CANN_SIM_FAULTS="op aclnnExp:1=507015", ACL_LAUNCH_BLOCKING="0")
    assert first == "launched"
    assert "(507015)" in rest[0] and "AcceleratorError" in rest[0]
    assert rest[-1].startswith("Launched last of it: aclnnExp(float32[")


def test_blocking_launches_report_an_error_at_its_own_line() -> None:
    first, *rest = output(LATE, CANN_SIM_FAULTS="op aclnnExp:1=507015", ACL_LAUNCH_BLOCKING="1")
    assert first.startswith("AcceleratorError [aclrtSynchronizeStream of aclnnExp] failed with") and "(507015)" in first
    assert "launched" not in rest


@pytest.mark.parametrize("read", ["y.item()", "y.tolist()", "print(y)", "y.cpu()", "bool(y)", "torch.npu.synchronize()",
                                  "torch.npu.current_stream().synchronize()"])
def test_every_way_to_read_finds_the_error(read: str) -> None:
    code = f"""
        x = torch.ones((), device="npu")
        y = x.exp()
        try:
            {read}
        except RuntimeError as error:
            print("found", "507015" in str(error))
    """
    assert output(code, CANN_SIM_FAULTS="op aclnnExp:1=507015", ACL_LAUNCH_BLOCKING="0")[0] == "found True"


def test_a_failed_allocation_is_tried_again_and_then_an_error() -> None:
    code = """
        x = torch.ones(1000, device="npu")
        print(x.sum().item())
        try:
            torch.empty(1 << 40, device="npu")
        except torch.OutOfMemoryError as error:
            print("out of memory", "Tried to allocate" in str(error))
        print((x + 1).sum().item())
    """
    assert output(code) == ["1000.0", "out of memory True", "2000.0"]
    assert output(code, CANN_SIM_FAULTS="oom:1") == ["1000.0", "out of memory True", "2000.0"]


def test_a_launch_that_fails_is_an_error_of_its_own_and_the_next_works() -> None:
    code = """
        x = torch.ones(3, device="npu")
        try:
            x.exp()
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        print(x.exp().sum().item() > 8)
    """
    first, second = output(code, CANN_SIM_FAULTS="aclnnExp:1=561103")
    assert first.startswith("[aclnnExp] failed with") and "(561103)" in first and second == "True"


def test_a_lost_device_leaves_the_other() -> None:
    code = """
        a, b = torch.ones(3, device="npu:0"), torch.ones(3, device="npu:1")
        torch.npu.synchronize(0)
        try:
            for _ in range(100):
                b = b + 1
            torch.npu.synchronize(1)
        except RuntimeError as error:
            print("lost")
        print((a + 1).tolist())
    """
    assert output(code, CANN_SIM_FAULTS="lost:1@20") == ["lost", "[2.0, 2.0, 2.0]"]


# ---- delays: a missing wait fails for some seed ----------------------------------------------------------------------
STEPS = """
    import threading
    torch.manual_seed(0)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    x, y = a.npu(), b.npu()
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        side.wait_stream(torch.npu.default_stream())
        z = (x @ y).relu()
        z.record_stream(side)
    torch.npu.current_stream().wait_stream(side)
    w = torch.nn.Linear(64, 8).npu()
    loss = w(z).square().mean()
    loss.backward()
    parts = [t.to("cpu", non_blocking=True) for t in z.split(16)]
    torch.npu.synchronize()
    print(torch.allclose(torch.cat(parts), (a @ b).relu(), atol=1e-4))
    v = torch.nn.Linear(64, 8)
    v.load_state_dict({k: t.cpu() for k, t in w.state_dict().items()})
    v((a @ b).relu()).square().mean().backward()
    print(torch.allclose(w.weight.grad.cpu(), v.weight.grad, rtol=1e-3, atol=1e-4))
    print(z[z > 0.5].cpu().equal((lambda t: t[t > 0.5])(z.cpu())), z.unique().numel() == z.cpu().unique().numel())
"""


@pytest.mark.parametrize("settings", [{"CANN_SIM_MODE": "delay", "CANN_SIM_SEED": "1"}, {"ACL_LAUNCH_BLOCKING": "1"},
                                      {"CANN_SIM_STRICT": "1"}])
def test_work_is_right_however_late_it_is_done(settings: dict[str, str]) -> None:
    assert output(STEPS, **settings) == ["True", "True", "True True"]
