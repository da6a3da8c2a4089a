"""What calls of the tensor library give beside values: orders of memory, warnings, sharing; and torch._prims_common, packed weights."""
from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from twin import check_lines

import mindtorch_v2 as mt

_LAYOUTS = {"last": "torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)",
            "turned": "torch.randn(2, 3, 4, 5).permute(0, 2, 3, 1)", "matrix": "torch.randn(3, 4).t()",
            "expanded": "torch.randn(3, 4).t().expand(2, 4, 3)"}


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("call", [
    "x.scatter(0, i, 1.)", "x.scatter(0, i, x[:1])", "x.scatter_add(0, i, x[:1])", "x.scatter_reduce(0, i, x[:1], 'sum')",
    "x.index_add(0, i.flatten()[:1], x[:1])", "x.index_copy(0, i.flatten()[:1], x[:1])", "x.index_fill(0, i.flatten()[:1], 1.)",
    "x.masked_fill(x > 0, 1.)", "x.masked_scatter(x > 0, x)", "x.put(i.flatten()[:1], x.flatten()[:1])", "x.roll(1, 0)",
    "torch.unique(x, dim=1)", "torch.unique_consecutive(x, dim=1)", "torch.complex(x, x)", "torch.polar(x, x)", "x.clone()",
    "torch.zeros_like(x)", "x.double()"])
def test_order_of_memory(layout: str, call: str) -> None:
    check_lines(f"x = {_LAYOUTS[layout]}\ni = torch.zeros((1,) + x.shape[1:], dtype=torch.long)\n({call}).stride()")


@pytest.mark.parametrize("line", [
    "torch.randn(2, 1, 4).expand(2, 3, 4).dim_order()", "torch.randn(2, 1, 4).expand(2, 3, 4).dim_order(ambiguity_check=True)",
    "torch.empty(1, 3, 4, 5, memory_format=torch.channels_last).dim_order()", "torch.ones(2).contiguous(memory_format=torch.preserve_format)",
    "torch.ones(4).as_strided((-2,), (1,))", "torch.empty_strided((2, 2), (-1, 1))", "torch.empty_strided((-2, 2), (1, 1))",
    "torch.cov(torch.ones(2, 3), fweights=torch.zeros(3, dtype=torch.int64))", "torch.quantile(torch.zeros(1).expand(2**24 + 1), .5)",
    "torch.cdist(torch.ones(2, 3).double(), torch.ones(2, 3))", "torch.histogram(torch.ones(2), 3, range=(1., float('nan')))",
    "torch.randperm(3, dtype=torch.complex64)", "torch.ones(1, dtype=torch.int32).cauchy_()", "torch.empty(2).bernoulli_(torch.tensor([1, 0]))",
    "torch.nn.functional.embedding(torch.tensor([True]), torch.ones(2, 2))", "torch.lerp(torch.ones(2).byte(), torch.ones(2).byte(), .5)",
    "torch.lerp(torch.ones(2).long(), torch.ones(2), .5)", "torch.softmax(torch.ones(2, 2).long(), 0)",
    "torch.log_softmax(torch.ones(2, 2).long(), 1)", "torch.tensor([complex(float('nan'), 1), complex(2, -float('inf'))]).nan_to_num()",
    "torch.tensor([1j], requires_grad=True).nan_to_num()", "torch.result_type(torch.ones(1, dtype=torch.int8), np.float32(1))",
    "torch.result_type(np.int8(1), np.float64(1))", "torch.arange(12).reshape(3, 4)[[np.array([0, 1])]]",
    "torch.asarray(1.5, copy=False)", "torch.asarray(np.float32(1), copy=False)", "torch.set_default_dtype('a')",
    "torch.set_default_tensor_type(torch.Tensor)"])
def test_words_and_rules(line: str) -> None:
    check_lines(line, message=True)


@pytest.mark.parametrize("line", [
    "torch.Tensor([1.], device='meta')", "torch.Tensor(other=torch.ones(1))", "torch.Tensor({})", "torch.Tensor(1, 2.5)",
    "torch.Tensor(torch.tensor(2), 3).shape", "torch.Tensor(object())", "torch.ones(2).new([1], device='meta')",
    "torch.ones(2).new(other=torch.ones(1))", "torch.ones(2).new({})"])
def test_legacy_constructors(line: str) -> None:
    check_lines(line, message=True)


def test_a_device_context_leaves_the_legacy_constructor_alone() -> None:
    with mt.device("meta"):
        assert mt.Tensor(2).device.type == "cpu"


@pytest.mark.parametrize("dtype, bounds", [("float16", (0, 2**11 + 2)), ("bfloat16", (-2**8 - 1, 5)), ("float32", (0, 2**24 + 2)),
                                           ("float64", (0, 2**53 + 2))])
def test_random_warns_of_numbers_that_a_dtype_leaves_out(dtype: str, bounds: tuple[int, int]) -> None:
    said = []
    for library in (torch, mt):
        with pytest.warns(UserWarning) as found:
            library.empty(2, dtype=getattr(library, dtype)).random_(*bounds)
        said.append([str(w.message).partition(" (Triggered")[0] for w in found])
    assert said[0] == said[1]


def test_asarray_marks_the_tensor_itself() -> None:
    x = mt.ones(2)
    assert mt.asarray(x, requires_grad=True) is x and x.requires_grad
    copied = mt.asarray(x, copy=True, requires_grad=True)
    assert copied.grad_fn is not None and not mt.asarray(x, requires_grad=False).requires_grad


def test_broadcast_tensors_gives_what_fits_as_it_is() -> None:
    x, row = mt.ones(2, 3), mt.ones(3)
    same, wide = mt.broadcast_tensors(x, row)
    assert same is x and wide.shape == x.shape and wide._base is row


# ---- numbers with an infinite part: the plain formulas make NaN of the other part -------------------------------------------------
_EXTREME = "x = torch.tensor([complex(a, b) for a in (0., -0., 1., -2.5, inf, -inf, nan) for b in (0., -0., 1., -2.5, inf, -inf, nan)])"


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("call", [
    "x + x.flip(0)", "x - x.flip(0)", "x - 2.5", "2.5 - x", "torch.add(2.5, x)", "torch.rsub(x, x.flip(0))", "x.clone().sub_(1j)",
    "torch.add(x, x.flip(0), alpha=2)", "x.diff()", "x.reshape(7, 7).mean(0)", "x.reshape(7, 7).mean(1)", "x.mean()", "x[:1].prod()",
    "x.reshape(7, 7).prod(0)", "x[4:7].cumprod(0)", "x.reciprocal()", "x.rsqrt()", "x.sigmoid()", "torch.nn.functional.silu(x)"])
def test_infinite_parts_of_complex_numbers(dtype: str, call: str) -> None:
    check_lines(f"inf, nan = float('inf'), float('nan')\n{_EXTREME}.to(torch.{dtype})\ny = {call}\ny.isnan(), "
                "torch.nan_to_num(torch.view_as_real(y)) + 0.")


@pytest.mark.parametrize("line", [
    "torch.ones(2).set_(torch.ones(2), 1, (2,))", "torch.ones(2).set_(torch.ones(2).untyped_storage(), 1, (2,), (1,))",
    "torch.ones(2).set_(torch.ones(2).untyped_storage(), 0, (3,)).shape", "torch.ones(2).set_(torch.ones(2, device='meta').untyped_storage())",
    "torch.ones(2).set_(torch.ones(2, device='meta').storage(), 0, (2,))", "torch.ones(2, 3).t().view(torch.float64)",
    "torch.ones(2, 5)[:, 1:].view(torch.float64)", "torch.view_as_complex(torch.tensor(1.))",
    "torch.view_as_complex(torch.ones(10).as_strided((2, 2), (4, 1), 1))", "torch.view_as_complex(torch.ones(10).as_strided((2, 2), (3, 1)))",
    "torch.ones(2).as_subclass(int)", "torch.ones(2).as_subclass(3)", "torch.Tensor._make_subclass(int, torch.ones(2))",
    "torch.Tensor._make_subclass(torch.Tensor, 3)", "torch.Size([1]) + 'a'", "torch.Size([1]) + [1]", "torch.Size([1]) + (2,)",
    "torch.ones(2)._grad_fn", "torch.Generator().graphsafe_get_state()", "torch.Generator().graphsafe_set_state(torch.Generator())",
    "torch.Generator(device='meta')", "torch.Generator().set_state(1)", "torch.TypedStorage(dtype=1)",
    "torch.zeros(1, device='meta').untyped_storage()._share_fd_cpu_()", "torch.zeros(1, device='meta').storage()._share_filename_cpu_()",
    "torch.ones(2).storage()._share_cuda_()", "torch.ones(2).untyped_storage().hpu()", "torch.ones(2).storage()._dtype",
    "torch.ones(2).storage()._get_legacy_storage_class().__name__"])
def test_memory_and_classes(line: str) -> None:
    check_lines(line, message=True)


@pytest.mark.parametrize("line", [
    "torch.tensordot(torch.ones(2, 3), torch.ones(2, 3), 1)", "torch.tensordot(torch.ones(2, 3), torch.ones(2, 3), ([0, 0], [0, 0]))",
    "torch.tensordot(torch.ones(2, 3), torch.ones(2, 3), ([0, 1], [0, -1]))", "torch.tensordot(torch.ones(2), torch.ones(2), dims='a')",
    "torch.addr(torch.ones(2, 2).int(), torch.ones(2).int(), torch.ones(2).int(), beta=2.)",
    "torch.addr(torch.ones(2, 2).int(), torch.ones(2).int(), torch.ones(2).int(), alpha=1j)",
    "torch.addr(torch.ones(2, 2), torch.ones(2), torch.ones(2), alpha=True)", "torch.addr(torch.ones(2, 2), torch.ones(2), torch.ones(2), beta=2.5)",
    "torch.linalg.eigvals(torch.tensor([[float('inf'), 1], [1, 1]])).isnan()", "torch.linalg.eig(torch.tensor([[float('inf'), 1], [1, 1]]))",
    "made = torch.lu(torch.eye(2), get_infos=True)\ntype(made).__name__, made.LU, made.pivots, made.info",
    "torch.normal(1, 2)", "torch.unique(torch.tensor(1), dim=0)", "torch.unique_consecutive(torch.tensor(1), dim=0)",
    "torch.lu_unpack(torch.ones(2), torch.tensor([1, 2], dtype=torch.int))", "torch.addmv(torch.ones(2, 2), torch.ones(2, 3), torch.ones(3))",
    "torch.addmv(torch.ones(2, 3), torch.ones(3), torch.ones(3))", "torch.gradient(torch.ones(3), spacing=(torch.ones(3, 3),))",
    "torch.linalg.vector_norm(torch.ones(2, 3), 1j)", "torch.linalg.norm(torch.ones(2, 3), out=torch.empty(()).double())",
    "torch.linalg.norm(torch.ones(2, 3), 'fro', out=torch.empty(()).half())", "torch.istft(torch.ones(3, 4), 4)", "torch.stft(torch.ones(10), 4, window=torch.ones(4).cfloat(), onesided=True)"])
def test_products_and_factors(line: str) -> None:
    check_lines(line, message=True)


@pytest.mark.parametrize("line", [
    "torch.stft(torch.ones(10), 4, return_complex=True)", "torch.stft(torch.ones(10), 4, window=torch.ones(4), return_complex=False)",
    "torch.istft(torch.ones(3, 4, dtype=torch.complex64), 4)", "torch.lu(torch.eye(2))", "torch.ones(2, 3, 4).T",
    "torch.chain_matmul(torch.eye(2), torch.eye(2))", "torch.addcmul(torch.ones(2), 2, torch.ones(2), torch.ones(2))",
    "torch.addcdiv(torch.ones(2), 2, torch.ones(2), torch.ones(2))", "torch.ones(2).copy_(torch.tensor([1j, 2]))",
    "torch.ones(2).__setitem__(0, torch.tensor(1j))"])
def test_what_is_warned_of(line: str) -> None:
    said = []
    for library in (torch, mt):
        library.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                exec(line, {"torch": library})
        finally:
            library.set_warn_always(False)
        said.append([(w.category, str(w.message).partition(" (Triggered")[0]) for w in found])
    assert said[0] == said[1] and said[0]


def test_only_the_first_old_overload_is_warned_of() -> None:
    """In a process of its own, which has given none yet."""
    code = "import mindtorch_v2 as torch\nx = torch.ones(2)\ntorch.addcmul(x, 2, x, x), torch.add(x, 2, x), torch.addcmul(x, 2, x, x)"
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr.count("This overload of") == 1, done.stderr


def test_storages_write_themselves(tmp_path: Path) -> None:
    for save_size in (True, False):
        written = []
        for library in (torch, mt):
            with (tmp_path / library.__name__).open("wb+") as file:
                library.arange(3).storage()._write_file(file, True, save_size, 8)
                file.flush()
                file.seek(0)
                written.append(file.read())
        assert written[0] == written[1]


def test_shared_memory_has_a_descriptor() -> None:
    storage = mt.arange(3).untyped_storage()
    descriptor, size = storage._share_fd_cpu_()
    with open(descriptor, "rb", buffering=0) as file:
        assert size == 24 and storage.is_shared() and file.read(24) == bytes(storage)


@pytest.mark.parametrize("line", [
    "p.suggest_memory_format(torch.empty(2, 3, 4, 5, memory_format=torch.channels_last))", "p.suggest_memory_format(torch.ones(2, 3))",
    "p.is_channels_last_contiguous(torch.ones(2, 3, 4, 5))", "p.make_contiguous_strides_for((2, 0, 3))",
    "p.make_contiguous_strides_for((2, 4, 3), row_major=False)", "p.make_channels_last_strides_for((2, 3, 4, 5, 6))",
    "p.make_channels_last_2d_strides_for((2, 3))", "p.compute_elementwise_output_strides(torch.ones(3, 4).t(), torch.ones(4, 3))",
    "p.compute_elementwise_output_logical_to_physical_perm(torch.ones(2, 3, 4).permute(2, 0, 1))", "p.canonicalize_dims(3, (0, -1))",
    "p.canonicalize_dim(3, 3)", "p.canonicalize_dim(0, 0, False)", "p.infer_size((2, -1), 6)", "p.infer_size((2, -1), 5)",
    "p.infer_size((-1, -1), 6)", "p.reduction_dims((2, 3), None)", "p.invert_perm((2, 0, 1))", "p.is_valid_permutation(3, (2, 0, 0))",
    "p.compute_reduction_output_shape((2, 3, 4), (1,))", "p.apply_perm((5, 6, 7), (2, 0, 1))",
    "p.compute_required_storage_length((2, 3), (3, 1), 2)", "p.check_same_dtype(torch.ones(1), torch.ones(1).double())",
    "p.check_same_shape(torch.ones(1), torch.ones(2), allow_cpu_scalar_tensors=True)"])
def test_prims_common(line: str) -> None:
    check_lines(f"p = __import__(torch.__name__ + '._prims_common', fromlist=['x'])\n{line}", message=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_with_packed_weights(dtype: str) -> None:
    torch.manual_seed(0)
    four, eight = torch.randint(0, 16, (32, 64), dtype=torch.int32), torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    x, groups, scales = (torch.rand(*shape).to(getattr(torch, dtype)) for shape in ((3, 64), (2, 32, 2), (32,)))
    expected = (torch._weight_int4pack_mm_for_cpu(x, torch._convert_weight_to_int4pack_for_cpu(four, 2), 32, groups),
                torch._weight_int8pack_mm(x, eight, scales))
    mine = [mt.asarray(t.float().numpy()).to(getattr(mt, str(t.dtype)[6:])) for t in (four, eight, x, groups, scales)]
    found = (mt._weight_int4pack_mm_for_cpu(mine[2], mt._convert_weight_to_int4pack_for_cpu(mine[0], 2), 32, mine[3]),
             mt._weight_int8pack_mm(mine[2], mine[1], mine[4]))
    for a, b in zip(expected, found):
        torch.testing.assert_close(torch.from_numpy(b.float().numpy()), a.float(), rtol=2e-2, atol=1e-1 * float(a.abs().max()) / 16)


def test_product_with_a_weight_packed_with_its_scales() -> None:
    mt.manual_seed(0)
    weight, scales, bias, x = mt.randint(0, 256, (8, 16), dtype=mt.uint8), mt.rand(8, 2), mt.rand(8), mt.randn(3, 32)
    packed = mt.ops.aten._dyn_quant_pack_4bit_weight(weight, scales, bias, 16, 32, 8)
    numbers = mt.stack([weight & 15, weight >> 4], -1).reshape(8, 32).float() - 8
    expected = x @ (numbers * scales.repeat_interleave(16, 1)).t() + bias
    mt.testing.assert_close(mt.ops.aten._dyn_quant_matmul_4bit(x, packed, 16, 32, 8), expected)


def test_ops_that_records_of_programs_name() -> None:
    x, aten = mt.arange(6.), mt.ops.aten
    assert aten.is_same_size(x, x) and aten.lift_fresh(x) is x
    assert aten._unsafe_view(x, [2, 3]).shape == aten._reshape_alias(x, [2, 3], [3, 1]).shape == (2, 3)
