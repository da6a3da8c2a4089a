"""What PyTorch's own test files import and call beside the public API: the names are there, and do what they do in torch."""
from __future__ import annotations

import io
import linecache
import mmap
import os
import pickle
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torchgen
from twin import error, twin

import mindtorch_v2 as mt

# Modules that test files of PyTorch import at their top: without one of them no test of the file runs.
IMPORTS = """
import torch.autograd._functions, torch.backends.quantized, torch.testing._internal.data, torch.utils.serialization.config
from torch.autograd import _calculate_shape, kineto_available
from torch.autograd.function import InplaceFunction, _nested_map, once_differentiable
from torch.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg, _format_time
from torch._dispatch.python import enable_crossref_functionalize, enable_pre_dispatch, enable_python_dispatcher, no_python_dispatcher
from torch.nested._internal.nested_tensor import NestedTensor, ViewNestedFromBuffer, buffer_from_jagged, get_tensor_symint
from torch.nested._internal.nested_tensor import jagged_from_list, nested_from_padded, nested_view_from_values_offsets
from torch._prims.context import TorchRefsMode
from torch._prims_common.wrappers import _maybe_remove_out_wrapper
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode
from torch._subclasses.fake_utils import CrossRefFakeMode, outputs_alias_inputs
from torch._ops import DispatchKey, HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._C import _ExcludeDispatchKeyGuard, DispatchKeySet
from torch._C._functorch import reshape_dim_into, reshape_dim_outof
from torch._functorch.make_functional import functional_init, functional_init_with_buffers
from torch._functorch.eager_transforms import _slice_argnums
from torch._functorch.utils import enable_single_level_autograd_function
from torch._utils import _rebuild_tensor
from torch._utils_internal import get_file_path_2
from torch.serialization import LoadEndianness, SourceChangeWarning, check_module_version_greater_or_equal, skip_data
from torch.testing import FileCheck
import torch._linalg_utils, torch._vmap_internals, torch._subclasses.schema_check_mode, torch.testing._internal.optests
from torch.testing._internal import composite_compliance, opinfo
from torch.testing._internal.common_methods_invocations import op_db, python_ref_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.inductor_utils import maybe_skip_size_asserts
from torch.testing._internal.jit_utils import JitTestCase
from torch.testing._internal.logging_tensor import LoggingTensor, capture_logs
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._import_utils import import_dill
from torch.utils._mode_utils import no_dispatch
import torch.cuda.memory, torch.xpu.memory, torch.autograd.profiler_legacy, torch._custom_op.impl
from torch import ScriptObject
from torch._C import _get_graph_executor_optimize, _set_print_stack_traces_on_fatal_signal
from torch._C._autograd import DeviceType
from torch._dynamo.utils import LazyString
from torch._logging._internal import LogState, _get_log_state, _init_logs, _set_log_state, log_registry, trace_log
from torch.fx.experimental._config import translation_validation
from torch.nn.functional import ScalingType, SwizzleType
from torch.onnx import producer_version
from torch.testing._internal import logging_utils, dynamo_pytree_test_utils
import functorch
from functorch import combine_state_for_ensemble, make_functional, make_functional_with_buffers, make_fx, vmap
from functorch.experimental import chunk_vmap, functionalize, replace_all_batch_norm_modules_
import functorch.dim, torch.testing._internal.common_pruning, torch.testing._internal.hop_db
from functorch.compile import config
from torch._C import _dispatch_keys, _dispatch_tls_local_exclude_set, _dispatch_tls_set_dispatch_key_excluded, _DisableTorchDispatch
from torch._C._autograd import _KinetoEvent, _ProfilerResult
from torch._C._dynamo import compiled_autograd, eval_frame, guards
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._C._functorch import CInterpreter, _unwrap_functional_tensor, get_interpreter_stack, peek_interpreter_stack
from torch._C._profiler import _EventType, _ExtraFields_PyCall, _ExtraFields_TorchOp, _TensorMetadata
import torch._C._lazy, torch._C._monitor, torch._C._distributed_c10d, torch._lazy.ts_backend, torch._numpy.testing
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import ExplainWithBackend
from torch._dynamo.debug_utils import same_two_models
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend, EagerAndRecordGraphs, expectedFailureDynamic
from torch._dynamo.utils import detect_fake_mode, dynamo_timed, same
from torch._dynamo.variables.base import VariableTracker
from torch._export.passes.replace_view_ops_with_view_copy_ops_pass import is_view_op
from torch._export.utils import get_buffer, get_param, is_buffer, is_param
from torch._export.verifier import SpecViolationError, Verifier
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
from torch._functorch.compile_utils import fx_graph_cse
from torch._guards import CompileContext, CompileId, TracingContext, tracing
from torch._higher_order_ops.flex_attention import flex_attention
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._higher_order_ops.out_dtype import out_dtype
from torch._inductor.test_case import TestCase, run_tests
from torch._inductor.codecache import FxGraphCache, PyCodeCache
from torch._inductor.pattern_matcher import PatternMatcherPass
from torch._jit_internal import _Await, _qualified_name, get_callable_argument_names
from torch._library.effects import EffectType
from torch._library.fake_class_registry import FakeScriptObject, register_fake_class
from torch._library.fake_profile import MissingOpProfile, OpProfile
from torch._library.opaque_object import OpaqueBase, register_opaque_type
from torch._library.simple_registry import SimpleLibraryRegistry
from torch._ops import OperatorBase, _OpNamespace, dl_open_guard, resolve_key
from torch._prims.rng_prims import register_rng_prims
from torch._python_dispatcher import PythonDispatcher
from torch._subclasses.fake_impls import get_fast_op_impls
from torch._subclasses.fake_tensor import _CacheKeyState, extract_tensor_metadata
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.ao.nn.quantized.modules.utils import _quantize_weight
from torch.ao.pruning import BaseSparsifier, FakeSparsity, WeightNormSparsifier
from torch.autograd._functions.utils import maybe_unexpand, maybe_view
from torch.backends._nnapi.prepare import convert_model_to_nnapi
from torch.cuda._memory_viz import profile_plot
from torch.cuda._sanitizer import StreamId
from torch.export.unflatten import InterpreterModule
from torch.fx._graph_pickler import GraphPickler
from torch.fx.experimental.proxy_tensor import selective_decompose
from torch.jit._recursive import wrap_cpp_module
from torch.jit.frontend import UnsupportedNodeError
from torch.nn.attention.varlen import varlen_attn
from torch.nn.intrinsic.quantized import ConvReLU2d
from torch.nn.quantized.dynamic.modules import Linear
from torch.nn.utils._expanded_weights.expanded_weights_utils import forward_helper, unpack_expanded_weight_or_tensor
from torch.onnx.utils import unconvertible_ops
from torch.overrides import _get_overloaded_args
from torch.package._mangling import PackageMangler
from torch.package.package_exporter import PackagingErrorReason
from torch.profiler._pattern_matcher import NamePattern, report_all_anti_patterns
from torch.quantization.quantize_fx import prepare_fx
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass
from torch.utils._content_store import ContentStoreReader, ContentStoreWriter, hash_storage
from torch.utils._cpp_extension_versioner import ExtensionVersioner
from torch.utils._debug_mode import DebugMode
from torch.utils._filelock import FileLock
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.value_ranges import ValueRanges
from torch.utils.benchmark.utils.fuzzer import FuzzedParameter, FuzzedTensor, Fuzzer
from torch.utils.bundled_inputs import augment_model_with_bundled_inputs
from torch.utils.hipify import hipify_python
from torch.utils.mobile_optimizer import LintCode, MobileOptimizerType
from torch.utils.throughput_benchmark import format_time
from torch.utils.viz._cycles import observe_tensor_cycles
"""
# What those names do together with torch.testing._internal, over the drop-in.
USES = """
import unittest
a = TwoTensor(torch.ones(2), torch.zeros(2))
assert (a + 1).b.tolist() == [1, 1]

class Case(JitTestCase):
    def test(self):
        FileCheck().check("add").run(torch.fx.symbolic_trace(lambda x: x + 1).code)
assert unittest.TextTestRunner(stream=open(os.devnull, "w")).run(Case("test")).wasSuccessful()

torch.backends.mkldnn.matmul.fp32_precision = "bf16"
assert torch.backends.mkldnn.matmul.fp32_precision == "bf16" and torch.backends.cudnn.conv.fp32_precision == "tf32"
assert str(LazyString(lambda word: word + "!", "hey")) == "hey!" and not log_registry.get_log_qnames()
from torch._dynamo.test_case import TestCase as DynamoCase, run_tests
assert issubclass(DynamoCase, torch.testing._internal.common_utils.TestCase) and callable(run_tests)
torch._C._set_torch_function_state(torch._C._TorchFunctionState.SUBCLASSES_DISABLED)
assert not torch._C._is_torch_function_enabled()
torch._C._set_torch_function_state(torch._C._TorchFunctionState.ENABLED)

def equal(x, y, equal_nan=False):
    torch.testing.assert_close(x, y, equal_nan=equal_nan)
for name in ("add", "transpose", "chunk", "movedim", "cumsum"):
    op = next(op for op in op_db if op.name == name)
    sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=True)))
    args = [sample.input, *sample.args]
    composite_compliance.check_with_mode(op, args, sample.kwargs, equal)
    composite_compliance.check_all_permutations(op, args, sample.kwargs, equal)
    composite_compliance.check_backward_formula(op.get_op(), args, sample.kwargs, sample.output_process_fn_grad,
                                                op.gradcheck_wrapper, equal)
for op in custom_op_db[:3]:
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    op(sample.input, *sample.args, **sample.kwargs)
for op in [op for op in python_ref_db if op.name in ("_refs.add", "_refs.T", "_refs.nn.functional.relu", "_refs.cauchy",
                                                     "_refs._conversions.half", "_refs.linalg.norm", "_refs.fft.fft")]:
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    with TorchRefsMode(strict=True):
        got = op(sample.input, *sample.args, **sample.kwargs)
    if op.name != "_refs.cauchy":
        equal(got, op.torch_opinfo(sample.input, *sample.args, **sample.kwargs))
    assert got.shape == op.torch_opinfo(sample.input, *sample.args, **sample.kwargs).shape if hasattr(got, "shape") else True
"""


def test_what_test_files_of_pytorch_import_and_use() -> None:
    """In a process of its own: this one has PyTorch under the name torch."""
    wheel = Path(torchgen.__file__).parents[1]
    code = f"import os, warnings\nwarnings.simplefilter('ignore')\nimport mindtorch_v2\n" \
           f"mindtorch_v2.install(testing_internal={str(wheel)!r})\nimport torch\n{IMPORTS}{USES}print('done')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr[-3000:]


# ---- in-place operators -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", ["//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>="])
@twin
def test_operators_with_assignment_change_the_tensor(t, operator):
    x = y = t.tensor([5, 6, 7])
    scope: dict[str, Any] = {"x": x, "y": y, "t": t}
    exec(f"x {operator} t.tensor([1, 2, 3])", scope)
    f = t.ones(2)

    def wrong() -> None:
        exec(f"f {operator} 'a'", {"f": f})
    return scope["x"] is y, y, y._version, error(wrong, 70)


@twin
def test_reversed_and_bool_questions(t):
    return (reversed(t.arange(3)), reversed(t.tensor(1.0)), reversed(t.ones(2, 3)), t.tensor([True, False])._is_all_true(),
            t.tensor([True, False])._is_any_true(), error(lambda: t.ones(2)._is_all_true()), t.ones(2)._is_zerotensor())


# ---- FileCheck --------------------------------------------------------------------------------------------------------------
TEXT = "a = add(b)\nc = mul(a)\nreturn c\n"
CHECKS = ["check('add').check('mul')", "check('mul').check('add')", "check_next('add')", "check('add').check_next('mul')",
          "check('add').check_next('return')", "check('a').check_same('add')", "check('a').check_same('mul')",
          "check_not('div')", "check('add').check_not('mul').check('return')", "check('add').check_not('div').check('return')",
          "check_count('c', 2)", "check_count('c', 3)", "check_count('a', 3, exactly=True)", "check_dag('mul').check_dag('add')",
          "check_dag('mul').check_dag('div')", "check_regex('m.l')", "check_regex('m..l')"]


@pytest.mark.parametrize("checks", CHECKS)
def test_file_check(checks: str) -> None:
    def ran(side: Any) -> str:
        said = error(lambda: eval(f"side.testing.FileCheck().{checks}.run(text)", {"side": side, "text": TEXT}), 99)
        return said.partition("\n")[0]
    assert ran(mt) == ran(torch)


# ---- torch.save and torch.load ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("writer, reader", [(mt, torch), (torch, mt), (mt, mt)])
def test_the_format_from_before_1_6_is_written(writer: Any, reader: Any) -> None:
    base = writer.arange(6.0)
    module = writer.nn.Linear(2, 1)
    file = io.BytesIO()
    writer.save({"a": base, "b": base[2:].view(2, 2), "w": module.state_dict(), "n": [1, "x"], "h": base.half()}, file,
                _use_new_zipfile_serialization=False)
    file.seek(0)
    back = reader.load(file)
    assert back["a"].tolist() == [0, 1, 2, 3, 4, 5] and back["b"].tolist() == [[2, 3], [4, 5]] and back["n"] == [1, "x"]
    assert back["h"].dtype == reader.float16 and back["w"]["weight"].tolist() == module.weight.tolist()
    back["a"][2] = 9
    assert back["b"][0, 0] == 9          # views of one storage still


NET = """class Net(base):
    def __init__(self):
        super().__init__()
        self.inner = linear(1, 1)
"""


@pytest.mark.parametrize("writer, reader", [(mt, torch), (torch, mt), (mt, mt)])
def test_modules_of_that_format_bring_their_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Any, reader: Any) -> None:
    place = tmp_path / "net_of_before.py"

    def define(t: Any, text: str) -> Any:
        place.write_text(text)
        linecache.clearcache()
        module = types.ModuleType("net_of_before")
        module.__dict__.update(base=t.nn.Module, linear=t.nn.Linear, __file__=str(place))
        exec(compile(text, str(place), "exec"), vars(module))
        monkeypatch.setitem(sys.modules, "net_of_before", module)
        return module.Net
    file = io.BytesIO()
    writer.save(define(writer, NET)(), file, _use_new_zipfile_serialization=False)

    def load(text: str) -> list[str]:
        kind = define(reader, text)
        file.seek(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert isinstance(reader.load(file, weights_only=False), kind)
        return [str(w.message) for w in caught if w.category is reader.serialization.SourceChangeWarning and "Net" in str(w.message)]
    assert load(NET) == []
    assert len(load(NET + "        self.more = 1\n")) == 1
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        reader.load(file)


def test_options_of_files(tmp_path: Path) -> None:
    ser, config = mt.serialization, mt.utils.serialization.config
    path = str(tmp_path / "x.pt")
    mt.save(mt.ones(3), path)
    with ser.skip_data():
        mt.save(mt.ones(3), str(tmp_path / "skipped.pt"))
        assert mt.load(path).shape == (3,)
    assert mt.load(str(tmp_path / "skipped.pt")).tolist() == [0, 0, 0]
    with config.patch("load.mmap", True), ser.set_default_mmap_options(mmap.MAP_SHARED):
        mt.load(path)[0] = 7
    assert mt.load(path).tolist() == [7, 1, 1] and ser.get_default_mmap_options() == mmap.MAP_PRIVATE
    with config.patch({"save.storage_alignment": 4096}):
        mt.save(mt.ones(3), str(tmp_path / "aligned.pt"))
    assert torch.load(tmp_path / "aligned.pt").tolist() == [1, 1, 1]
    assert os.path.getsize(tmp_path / "aligned.pt") > 4096
    mt.save(mt.ones(3), path, _disable_byteorder_record=True)
    ser.set_default_load_endianness(ser.LoadEndianness.BIG)
    try:
        assert mt.load(path)[0] != 1
    finally:
        ser.set_default_load_endianness(None)
    with pytest.raises(AttributeError, match="does not exist"), config.patch("load.none", 1):
        pass


class Own:
    """What no file may name by default."""


@twin
def test_names_in_a_file_that_are_not_allowed(t):
    file = io.BytesIO()
    t.save({"a": Own(), "b": print, "c": t.ones(1)}, file)
    file.seek(0)
    found = sorted(t.serialization.get_unsafe_globals_in_checkpoint(file))
    with t.serialization.safe_globals([Own]):
        file.seek(0)
        fewer = t.serialization.get_unsafe_globals_in_checkpoint(file)
    old = io.BytesIO()
    t.save(1, old, _use_new_zipfile_serialization=False)
    old.seek(0)
    return found, fewer, error(lambda: t.serialization.get_unsafe_globals_in_checkpoint(old), 60), \
        error(lambda: t.save(1, 5), 60), error(lambda: t.serialization.set_default_mmap_options(3), 60)


class Versioned:
    """A module with a version."""
    __version__ = "1.2.3"


@twin
def test_versions_of_modules(t):
    ask = t.serialization.check_module_version_greater_or_equal
    bad = type("bad", (), {"__version__": "a.b"})
    return ask(Versioned, (1, 2, 3)), ask(Versioned, (1, 3)), ask(bad, (1, 0), error_if_malformed=False), \
        error(lambda: ask(bad, (1, 0)), 60)


def test_a_registered_place_of_storages() -> None:
    seen = []
    ser = mt.serialization
    entry = (5, lambda storage: "somewhere" if storage.nbytes() == 12 else None,
             lambda storage, location: seen.append(location) or storage if location == "somewhere" else None)
    ser.register_package(*entry)
    try:
        file = io.BytesIO()
        mt.save([mt.ones(3), mt.ones(4)], file)
        file.seek(0)
        assert [x.tolist() for x in mt.load(file)] == [[1] * 3, [1] * 4] and seen == ["somewhere"]
    finally:
        ser._package_registry.remove(entry)


# ---- functorch ------------------------------------------------------------------------------------------------------------------
def net(t: Any) -> Any:
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Linear(2, 3), t.nn.BatchNorm1d(3))


@twin
def test_modules_as_functions(t):
    from importlib import import_module
    make = import_module(t.__name__ + "._functorch.make_functional")
    module, x = net(t), t.ones(4, 2)
    f, params, buffers = make.make_functional_with_buffers(module)
    g, weights = make.make_functional(module[0])
    ensemble, stacked, _ = make.combine_state_for_ensemble([t.nn.Linear(2, 3) for _ in range(3)])
    return f(params, buffers, x), g(weights, x), len(params), len(buffers), error(lambda: make.make_functional(module), 60), \
        [s.shape[0] for s in stacked], t.vmap(ensemble, (0, None, None))(stacked, (), x).shape == (3, 4, 3)


@twin
def test_small_parts_of_functorch(t):
    from importlib import import_module
    core, apis = t._C._functorch, import_module(t.__name__ + "._functorch.apis")
    slices = import_module(t.__name__ + "._functorch.eager_transforms")._slice_argnums
    x = t.arange(24).view(2, 3, 4)
    replaced = import_module(t.__name__ + "._functorch.batch_norm_replacement").replace_all_batch_norm_modules_(net(t))
    return (core.reshape_dim_into(0, 0, x), core.reshape_dim_into(0, 1, x), core.reshape_dim_into(2, 0, x),
            core.reshape_dim_outof(2, 2, x), apis.chunk_vmap(lambda y: y.sum(0), chunks=2)(x.float()),
            slices((1, 2, 3), (0, 2)), slices((1, 2), 1), error(lambda: slices((1, 2), "a"), 40),
            replaced[1].running_mean, t.func.functionalize(lambda y: y.clone().add_(1))(x),
            error(lambda: t.func.functionalize(lambda y: y, remove="x"), 60))


def test_the_fallback_of_vmap_can_be_forbidden() -> None:
    core = mt._C._functorch
    assert core._is_vmap_fallback_enabled()
    core._set_vmap_fallback_enabled(False)
    try:
        with pytest.raises(RuntimeError, match="hit the vmap fallback which is currently disabled"):
            mt.vmap(lambda x: mt.histc(x, 3))(mt.rand(2, 5))
    finally:
        core._set_vmap_fallback_enabled(True)
    with pytest.warns(UserWarning, match="performance drop"):
        mt._C._debug_only_display_vmap_fallback_warnings(True)
        try:
            mt.vmap(lambda x: mt.histc(x, 3))(mt.rand(2, 5))
        finally:
            mt._C._debug_only_display_vmap_fallback_warnings(False)


# ---- fake tensors beside real ones ------------------------------------------------------------------------------------------------
def test_ops_run_with_fake_tensors_too_and_are_compared() -> None:
    from mindtorch_v2._subclasses.fake_utils import (
        CrossRefFakeMode,
        MetadataMismatchError,
        output_alias_each_other,
        outputs_alias_inputs,
    )
    x = mt.ones(2, 3, requires_grad=True)
    with CrossRefFakeMode():
        (x.t() @ x).relu().sum().backward()
    assert x.grad.shape == (2, 3)
    assert outputs_alias_inputs(x.view(6), x) and not outputs_alias_inputs(x + 1, x) and output_alias_each_other([x[0], x[1]])

    @mt.library.custom_op("test_internal_names::wrong", mutates_args=())
    def wrong(y: mt.Tensor) -> mt.Tensor:
        return y.sum(0)
    with pytest.raises(MetadataMismatchError, match="shape"):
        CrossRefFakeMode()._compare("wrong", mt.ones(2), mt.ones(3), (), ())


def test_marks_and_classes_can_be_set_aside() -> None:
    from mindtorch_v2.utils._mode_utils import no_dispatch
    calls = []

    class Seen(mt.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            with no_dispatch():
                return func(*args, **(kwargs or {}))
    x = mt.ones(2).as_subclass(Seen)
    assert (x + 1).tolist() == [2, 2] and len(calls) == 1
    z = mt.tensor([1 + 2j])
    mt._C._set_conj(z, True)
    assert z.is_conj() and z.resolve_conj().tolist() == [1 - 2j]
    with pytest.raises(RuntimeError, match="complex"):
        mt._C._set_conj(mt.ones(1), True)


# ---- torch.serialization, as its tests use it ---------------------------------------------------------------------------------
class Plain:
    """A file with no more methods than torch.load needs; `seekable` is not one."""

    def __init__(self, data: bytes) -> None:
        self.inner = io.BytesIO(data)
        self.read, self.seek, self.tell, self.readline = self.inner.read, self.inner.seek, self.inner.tell, self.inner.readline


@twin
def test_what_saving_and_loading_refuse(t):
    file = io.BytesIO()
    t.save({"a": t.ones(2)}, file)

    def load(**options: Any) -> Any:
        return t.load(io.BytesIO(file.getvalue()), **options)
    with pytest.warns(UserWarning, match="pickle_load_args only works if"):
        unknown = error(lambda: load(foo=1), 99)
    t.serialization.add_safe_globals([("a", "b", "c")])
    try:
        spoiled = load()                           # names no global that the entry could stand for
    finally:
        t.serialization.clear_safe_globals()
    kept = t.ones(2, requires_grad=True)
    kept.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="backward hook .* on tensor will not be serialized"):
        t.save(kept, io.BytesIO())
    return t.load(Plain(file.getvalue())), unknown, spoiled, error(lambda: t.serialization.validate_cuda_device("cuda:0"), 60), t.serialization.LONG_SIZE, \
        error(lambda: t.save(1, io.BytesIO(), pickle_module=3)), sorted(set(t.serialization.__all__) - {"validate_hpu_device"})


@twin
def test_fake_tensors_are_saved_as_blank_ones(t):
    from importlib import import_module
    mode = import_module(t.__name__ + "._subclasses.fake_tensor").FakeTensorMode
    with mode():
        fakes = [t.ones(3), t.nn.Linear(2, 2).state_dict(), t.nn.Parameter(t.ones(2, 3))]
    file = io.BytesIO()
    with t.serialization.skip_data(materialize_fake_tensors=True):
        t.save(fakes, file)
    file.seek(0)
    first, state, last = t.load(file)
    return first, dict(state), last.requires_grad, last.shape == (2, 3)


FOREIGN = """import subprocess, sys
import torch
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor(index)


class TestForeign(TestCase):
    def test_workers_import_this_file_anew(self):
        self.assertEqual(next(iter(DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context="spawn"))), torch.arange(4))

    def test_children_find_the_helpers(self):
        code = "from torch.testing._internal import common_utils; print(common_utils.torch.__name__)"
        self.assertEqual(subprocess.check_output([sys.executable, "-c", code], text=True), "torch\\n")


if __name__ == "__main__":
    run_tests()
"""


@pytest.mark.parametrize("named", [True, False])
def test_a_test_file_runs_as_a_program_and_its_children_find_the_helpers(tmp_path: Path, named: bool) -> None:
    (tmp_path / "foreign.py").write_text(FOREIGN)
    # Where CI is set, PyTorch's run_tests() writes reports by a package of its own.
    environ = {name: value for name, value in os.environ.items() if name not in ("CI", "MINDTORCH_TESTING_INTERNAL")}
    if named:
        environ["MINDTORCH_TESTING_INTERNAL"] = str(Path(torchgen.__file__).parents[1])
    done = subprocess.run([sys.executable, "-m", "mindtorch_v2", "foreign.py"], cwd=tmp_path, env=environ, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0 and "Ran 2 tests" in done.stderr, done.stderr[-3000:]


def test_a_folder_without_the_helpers_is_no_reason_to_look_elsewhere(tmp_path: Path) -> None:
    environ = {**os.environ, "MINDTORCH_TESTING_INTERNAL": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "mindtorch_v2", "-c", "import torch.testing._internal"], env=environ,
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "No module named 'torch.testing._internal'" in done.stderr, done.stderr[-3000:]


def test_modules_by_name_only_have_those_below_them() -> None:
    """PyTorch's list of modules for tests asks for torch.ao.nn.qat.modules, which it does not import."""
    code = ("import torch\nassert torch.ao.nn.qat.modules.__name__ == 'torch.ao.nn.qat.modules'\n"
            "from torch.testing._internal.common_modules import module_db\nassert len(module_db) > 100")
    done = subprocess.run([sys.executable, "-m", "mindtorch_v2", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
