"""Modules that PyTorch's own test files and packages import: what they do here, or that a use refuses by name."""
from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from twin import check_lines, twin

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
    for name, layer in (("ao.nn.intrinsic.quantized.dynamic", "LinearReLU"), ("ao.nn.quantized.dynamic", "Linear"),
                        ("ao.quantization.quantize_fx", "prepare_fx")):
        module = importlib.import_module(f"mindtorch_v2.{name}")
        with pytest.raises(NotImplementedError, match=rf"\[torch\.{name}\.{layer}\]"):
            getattr(module, layer)()


@pytest.mark.parametrize("use", [
    "package.PackageExporter('x')", "package.PackageImporter('x')", "nn.utils._expanded_weights.ExpandedWeight()",
    "nn.utils._per_sample_grad.call_for_per_sample_grads(None)", "utils.mkldnn.to_mkldnn(None)",
    "_functorch.aot_autograd.aot_function(None)", "_functorch.partitioners.default_partition()", "cuda.nccl.broadcast()"])
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


# Modules and what programs take from them.
PLACES = {
    "optim.rmsprop": "RMSprop rmsprop", "optim.nadam": "NAdam", "optim._functional": "adam sparse_adam", "optim._multi_tensor": "Adam",
    "cuda.memory": "memory_allocated MemPool host_memory_stats", "cuda.streams": "Stream Event ExternalStream", "cuda.comm": "gather",
    "cuda.nvtx": "range_push range", "cuda.graphs": "CUDAGraph graph", "cuda.nccl": "is_available", "cuda.amp.common":
    "amp_definitely_not_available", "cuda.amp.autocast_mode": "autocast custom_fwd", "cuda.amp.grad_scaler": "GradScaler OptState",
    "cpu.amp.autocast_mode": "autocast", "cpu.amp.grad_scaler": "GradScaler", "xpu.memory": "memory_allocated", "xpu.random":
    "get_rng_state_all", "xpu.streams": "Stream", "multiprocessing.spawn": "spawn ProcessRaisedException", "multiprocessing.pool":
    "Pool", "multiprocessing.queue": "Queue SimpleQueue", "multiprocessing._atfork": "register_after_fork", "profiler.profiler":
    "profile schedule ProfilerAction", "accelerator.memory": "memory_allocated", "nn.common_types": "_size_2_t _ratio_any_t"}


@pytest.mark.parametrize("place", PLACES)
def test_places_of_names(place: str) -> None:
    """The module can be imported, and has what PyTorch has there."""
    ours, theirs = (importlib.import_module(f"{side}.{place}") for side in ("mindtorch_v2", "torch"))
    for name in PLACES[place].split():
        assert hasattr(ours, name) and hasattr(theirs, name), name
        kinds = [isinstance(getattr(side, name), type) for side in (ours, theirs)]
        assert kinds[0] == kinds[1] or place == "optim._multi_tensor", name


@pytest.mark.parametrize("line", [
    "torch.cuda.host_memory_stats()", "torch.cuda.memory_stats_as_nested_dict()", "torch.cuda.caching_allocator_enable()",
    "torch.cuda.get_per_process_memory_fraction()", "torch.cuda.current_solver_handle()", "torch.cuda._lazy_init()",
    "torch.cuda._is_compiled()", "torch.xpu.memory_stats_as_nested_dict()", "torch.xpu.init()", "torch.xpu.default_generators",
    "torch.xpu.Stream()", "torch.cpu.Event().query()", "torch.cpu.current_stream() is torch.cpu.current_stream()",
    "torch.compiler.get_default_backend()", "torch.compiler.set_default_backend('eager'), torch.compiler.get_default_backend(), "
    "torch.compiler.set_default_backend(None)", "torch.compiler.set_default_backend(3)", "torch.compiler.save_cache_artifacts()",
    "torch.compiler.nested_compile_region(lambda x: x + 1)(1)", "torch._utils_internal.justknobs_check('x', False)",
    "torch._utils_internal.is_fb_unit_test()"])
def test_answers_without_such_devices_and_compilers(line: str) -> None:
    check_lines(line)


def test_a_pickle_of_pytorch_is_read() -> None:
    """Its storages are files of torch.save inside the pickle; in a process of its own, where the name torch is this package."""
    whole = torch.arange(6.0)
    data = pickle.dumps({"x": whole[1:].view(5, 1), "p": torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)),
                         "o": torch.optim.RMSprop([torch.ones(1, requires_grad=True)])})
    code = ("import pickle, sys, mindtorch_v2; mindtorch_v2.install(); d = pickle.load(sys.stdin.buffer); import torch; "
            "print(d['x'].flatten().tolist(), d['x'].stride(), d['p'].dtype, type(d['o']).__name__)")
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=120)
    assert done.stdout == b"[1.0, 2.0, 3.0, 4.0, 5.0] (1, 1) torch.bfloat16 RMSprop\n", done.stderr[-2000:]


def test_hooks_that_a_pickle_loses() -> None:
    def body(side: Any) -> Any:
        hooks = importlib.import_module(side.__name__ + ".utils.hooks")
        x = side.ones(1, requires_grad=True)
        x.register_hook(hooks.unserializable_hook(lambda grad: None))
        with warnings.catch_warnings(record=True) as none:
            warnings.simplefilter("always")
            hooks.warn_if_has_hooks(x)
        x.register_hook(len)
        with warnings.catch_warnings(record=True) as one:
            warnings.simplefilter("always")
            hooks.warn_if_has_hooks(x)
        return len(none), [str(warning.message) for warning in one]
    twin(body)
