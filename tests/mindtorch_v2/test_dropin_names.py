"""Modules that PyTorch's own test files and packages import: what they do here, or that a use refuses by name."""
from __future__ import annotations

import importlib

import pytest
from twin import check_lines

import mindtorch_v2 as mt


@pytest.mark.parametrize("line", [
    "repr(b.causal_upper_left(2, 3))", "repr(b.causal_lower_right(2, 3))", "b.causal_lower_right(2, 3, 4)", "list(b.CausalVariant)",
    "F.scaled_dot_product_attention(q, k, k, b.causal_lower_right(2, 3))",
    "F.scaled_dot_product_attention(q, k, k, attn_mask=b.causal_upper_left(2, 3))",
    "F.scaled_dot_product_attention(q, k, k, b.causal_upper_left(2, 3), is_causal=True)", "b.CausalBias(1, 2, 3)"])
def test_causal_biases(line: str) -> None:
    setup = ("import importlib\nb = importlib.import_module(torch.__name__ + '.nn.attention.bias')\nF = torch.nn.functional\n"
             "q, k = torch.full((1, 1, 2, 4), 0.5), torch.arange(12.0).reshape(1, 1, 3, 4).fmod(2)\n")
    check_lines(setup + line)


def test_decompositions_are_those_of_the_rows() -> None:
    found = mt._decomp.get_decompositions([mt.ops.aten.select_backward, mt.ops.aten.mm])
    assert list(found) == [mt.ops.aten.select_backward.default]
    x = mt.arange(3.0)
    whole = found[mt.ops.aten.select_backward.default](x, [2, 3], 0, 1)
    assert whole.tolist() == [[0, 0, 0], [0, 1, 2]]
    registry: dict = {}

    @mt._decomp.register_decomposition(mt.ops.aten.relu, registry)
    def relu(x: mt.Tensor) -> mt.Tensor:
        return x.clamp(0)
    assert registry[mt.ops.aten.relu.default] is relu
    make_fx = mt.fx.experimental.proxy_tensor.make_fx
    graph = make_fx(lambda x: mt.relu(x) + 1, decomposition_table=registry)(x)
    assert "relu" not in graph.code and graph(-x).tolist() == [1, 1, 1]
    table = mt._decomp.decomposition_table                  # the reference of an op with a kernel is that op
    assert table[mt.ops.aten.sin.default] is mt._refs.sin and mt.ops.aten.sin.default not in mt._decomp.core_aten_decompositions()
    graph = make_fx(lambda x: mt.ops.aten.select_backward(x.sin(), [2, 3], 0, 1), decomposition_table=table)(x)
    assert graph(x).tolist()[1] == x.sin().tolist()


@pytest.mark.parametrize("line", [
    "m._canonical_dim((-1, 0), 3)", "m._canonical_dim((0, 0), 1)", "m._canonical_dim(3, 3)", "m._reduction_identity('amax', x.int())",
    "m._reduction_identity('mean', x)", "m._reduction_identity('softmax', x)", "m._combine_input_and_mask(m.sum, x, k)",
    "m._combine_input_and_mask(m.amax, x.to_sparse(), k.to_sparse())", "m._where(k, x, torch.tensor(9.0))",
    "m._where(k.to_sparse(), x, torch.tensor(9.0))", "m._input_mask(x.to_sparse_csr(), mask=k.to_sparse_csr())",
    "m._input_mask(x.to_sparse(), mask=k)", "m.amax(torch.tensor(1.0).to_sparse(), 0)"])
def test_masks(line: str) -> None:
    check_lines("m = torch.masked\nx = torch.arange(4.0).reshape(2, 2)\nk = x > 1\n" + line, message=True)


def test_names_of_quantisation_can_be_imported() -> None:
    for name in ("ao.nn.intrinsic.quantized.dynamic", "ao.nn.quantized.dynamic", "ao.quantization.quantize_fx"):
        module = importlib.import_module(f"mindtorch_v2.{name}")
        with pytest.raises(NotImplementedError, match=rf"\[torch\.{name}\.Linear\]"):
            module.Linear()


@pytest.mark.parametrize("use", [
    "package.PackageExporter('x')", "package.PackageImporter('x')", "nn.utils._expanded_weights.ExpandedWeight()",
    "nn.utils._per_sample_grad.call_for_per_sample_grads(None)", "utils.mkldnn.to_mkldnn(None)",
    "_functorch.aot_autograd.aot_function(None)", "_functorch.partitioners.default_partition()", "cuda.comms.broadcast()"])
def test_refusals_name_what_is_missing(use: str) -> None:
    module, _, call = use.rpartition(".")
    __import__(f"mindtorch_v2.{module}")
    with pytest.raises((NotImplementedError, RuntimeError), match=rf"torch\.{module}\.{call.partition('(')[0]}"):
        eval(f"mt.{use}", {"mt": mt})


@pytest.mark.parametrize("line", [
    "[torch.{d}.is_available(), torch.{d}.device_count(), torch.{d}.is_initialized()]", "torch.{d}.manual_seed_all(0)"])
@pytest.mark.parametrize("kind", ["xpu", "mtia"])
def test_devices_that_are_not_here(kind: str, line: str) -> None:
    check_lines(line.format(d=kind))


def test_functions_that_a_class_may_take_over() -> None:
    """Each has a stand-in with its signature; what makes tensors of numbers alone has none."""
    found = mt.overrides.get_testing_overrides()
    assert {mt.add, mt.nn.functional.linear, mt.linalg.norm, mt.fft.fft} <= set(found)
    assert mt.zeros not in found and mt.zeros in mt.overrides.get_ignored_functions()
    assert found[mt.add](1, 2) == -1
