"""Names that PyTorch has: what is behind them works as PyTorch's, says truthfully that it is not there, or refuses."""
from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.utils.fusion as fusion
from twin import error, twin

import mindtorch_v2 as mt


def same(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(torch.from_numpy(ours.detach().numpy()), theirs.detach())


def both(shape: tuple[int, ...], seed: int = 0) -> tuple[Any, Any]:
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return mt.from_numpy(value.numpy()), value


# ---- parts of torch.distributed that are not there ---------------------------------------------------------------------
def test_distributed_names_refuse_or_say_no() -> None:
    import mindtorch_v2.distributed as dist
    from mindtorch_v2.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
    from mindtorch_v2.distributed.tensor import DTensor, Shard
    from mindtorch_v2.distributed.tensor.placement_types import Shard as same_shard
    assert dist.is_initialized() is dist.rpc.is_available() is dist.is_nccl_available() is False
    assert not isinstance(mt.ones(1), DTensor) and Shard is same_shard
    assert not isinstance(mt.nn.Linear(1, 1), FullyShardedDataParallel)
    for call in (dist.fsdp.FlatParameter, dist.rpc.init_rpc):
        with pytest.raises(NotImplementedError, match=r"\[torch.distributed"):
            call()


def test_sync_batch_norm_of_one_process_is_batch_norm() -> None:
    ours, theirs = (api.nn.Sequential(api.nn.Conv2d(3, 4, 1), api.nn.BatchNorm2d(4)) for api in (mt, torch))
    ours.load_state_dict({name: mt.from_numpy(value.numpy()) for name, value in theirs.state_dict().items()})
    ours, theirs = (api.nn.SyncBatchNorm.convert_sync_batchnorm(layers) for api, layers in ((mt, ours), (torch, theirs)))
    assert type(ours[1]).__name__ == type(theirs[1]).__name__ == "SyncBatchNorm" and repr(ours) == repr(theirs)
    x, y = both((2, 3, 5, 5))
    for _ in range(2):
        same(ours(x), theirs(y))
    same(ours[1].running_var, theirs[1].running_var)
    same(ours.eval()(x), theirs.eval()(y))
    for api in (mt, torch):
        with pytest.raises(ValueError, match="expected at least 2D input"):
            api.nn.SyncBatchNorm(4)(api.ones(4))


def test_scatter_and_gather_keep_structure_and_gradients() -> None:
    x = mt.arange(10.0, requires_grad=True)
    parts = mt.nn.parallel.scatter({"a": x, "b": (x, 1)}, [-1, -1])
    assert [part["a"].tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] and parts[0]["b"][1] == 1
    whole = mt.nn.parallel.gather([{"a": part["a"] * 2} for part in parts], -1)
    whole["a"].sum().backward()
    assert x.grad.tolist() == [2.0] * 10
    with pytest.raises(NotImplementedError, match="several devices"):
        mt.nn.parallel.replicate(mt.nn.Linear(1, 1), [0, 1])


# ---- compilers -----------------------------------------------------------------------------------------------------
def test_compile_says_once_that_it_runs_eagerly() -> None:
    code = ("import mindtorch_v2 as torch, warnings; warnings.simplefilter('always')\n"
            "f = torch.compile(lambda x: x + 1); g = torch.compile(lambda x: x * 2, mode='max-autotune')\n"
            "assert f(torch.ones(1)).item() == g(torch.ones(1)).item() == 2\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stderr.count("compiles nothing") == 1


def test_script_runs_the_python_and_does_not_save() -> None:
    class Twice(mt.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = mt.nn.Parameter(mt.ones(2))

        @mt.jit.script_method
        def forward(self, x: Any) -> Any:
            return 2 * x * self.weight

    made = mt.jit.script(Twice())
    assert isinstance(made, mt.jit.ScriptModule) and isinstance(made, mt.nn.Module) and mt.ScriptModule is mt.jit.ScriptModule
    assert made(mt.ones(2)).tolist() == [2.0, 2.0] and mt.jit.annotations.List is list
    with pytest.raises(NotImplementedError, match="torch.jit.save"):
        made.save("nowhere")
    assert mt.jit._script.script(made) is made and mt.jit._trace.TopLevelTracedModule is mt.jit.TopLevelTracedModule
    future = mt.jit.fork(lambda x: x + 1, 2)
    assert isinstance(future, mt.futures.Future) and mt.jit.wait(future) == 3
    with pytest.raises(ZeroDivisionError):
        mt.jit.wait(mt.jit.fork(lambda: 1 / 0))


@pytest.mark.parametrize(("value", "kind"), [
    ([1], list[int]), ([1, "a"], list[int]), ({1: "a"}, dict[int, str]), ({1: 2}, dict[int, str]), ((1, "a"), tuple[int, str]),
    ((1,), tuple[int, str]), (None, int | None), ("a", int | None), ([[1]], list[list[int]]), (3, (int, str)), ([], list[int]),
    ([1], list)], ids=str)
def test_isinstance_of_containers(value: Any, kind: Any) -> None:
    def body(torch: Any) -> Any:
        return error(lambda: torch.jit.isinstance(value, kind), 99) if kind is list else torch.jit.isinstance(value, kind)
    twin(body)()
    assert mt._dynamo.config.suppress_errors is False
    with mt._dynamo.config.patch(suppress_errors=True, new=1):
        assert mt._dynamo.config.suppress_errors and mt._dynamo.config.new == 1
    assert not mt._dynamo.config.suppress_errors and not hasattr(mt._dynamo.config, "new")


@pytest.mark.parametrize("name", ["_prims.add", "_inductor.compile",
                                  "utils.cpp_extension.load_inline", "ao.quantization.prepare", "_scaled_mm",
                                  "ops.aten._flash_attention_forward"])
def test_what_is_not_there_refuses_by_name(name: str) -> None:
    importlib.import_module("mindtorch_v2.utils.cpp_extension")
    found: Any = mt
    for part in name.split("."):
        found = getattr(found, part)
    with pytest.raises(NotImplementedError, match=name.split(".")[-1]):
        found(mt.ones(1))


# ---- differences that broke packages ---------------------------------------------------------------------------------
def test_cuda_answers_that_there_is_none() -> None:
    assert mt.cuda.get_rng_state_all() == torch.cuda.get_rng_state_all() == []
    mt.cuda.set_rng_state_all([])
    with mt.cuda.StreamContext(None), mt.cuda.stream(None):
        pass
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        mt.cuda.set_rng_state_all([mt.get_rng_state()])


def test_an_optimizer_may_wrap_another_and_skip_init() -> None:
    for api in (torch, mt):
        class Wrapped(api.optim.Optimizer):
            def __init__(self, inner: Any) -> None:
                self.inner = inner

            def step(self, closure: Any = None) -> Any:
                return self.inner.step(closure)

        weight = api.nn.Parameter(api.ones(1))
        weight.grad = api.ones(1)
        Wrapped(api.optim.SGD([weight], lr=0.5)).step()
        assert weight.item() == 0.5


def test_flex_attention_returns_the_requested_values() -> None:
    from torch.nn.attention import flex_attention as judge

    from mindtorch_v2.nn.attention import flex_attention as ours
    (q, a), (k, b), (v, c) = (both((1, 2, 16, 16), seed) for seed in range(3))
    out, aux = ours.flex_attention(q, k, v, return_aux=ours.AuxRequest(lse=True))
    expected, theirs = judge.flex_attention(a, b, c, return_aux=judge.AuxRequest(lse=True))
    same(out, expected)
    same(aux.lse, theirs.lse)
    assert aux.max_scores is theirs.max_scores is None


# ---- small services --------------------------------------------------------------------------------------------------
def test_fused_layers_do_what_both_did() -> None:
    for transpose, kind in ((False, "Conv2d"), (True, "ConvTranspose2d")):
        ours, theirs = (getattr(api.nn, kind)(3, 4, 3).eval() for api in (mt, torch))
        norm, judge = (api.nn.BatchNorm2d(4).eval() for api in (mt, torch))
        judge.running_mean.normal_()
        judge.running_var.uniform_(1, 2)
        for mine, its in ((ours, theirs), (norm, judge)):
            mine.load_state_dict({name: mt.from_numpy(value.numpy()) for name, value in its.state_dict().items()})
        x, y = both((2, 3, 6, 6))
        fused = mt.nn.utils.fusion.fuse_conv_bn_eval(ours, norm, transpose)
        same(fused(x), fusion.fuse_conv_bn_eval(theirs, judge, transpose)(y))
        assert fused.weight.requires_grad and copy.deepcopy(fused).bias.shape == (4,)


def test_weak_dicts_compare_tensors_by_identity() -> None:
    from mindtorch_v2.utils.weak import WeakTensorKeyDictionary
    kept, gone = mt.ones(2), mt.ones(2)
    table = WeakTensorKeyDictionary({kept: 1, gone: 2})
    assert len(table) == 2 and table[kept] == 1 and mt.ones(2) not in table
    del gone
    assert len(table) == 1 and list(table.values()) == [1]


def test_exceptions_travel() -> None:
    from mindtorch_v2._utils import ExceptionWrapper
    try:
        raise KeyError("lost")
    except KeyError:
        carried = pickle.loads(pickle.dumps(ExceptionWrapper(where="in worker 3")))
    with pytest.raises(KeyError, match="Caught KeyError in worker 3"):
        carried.reraise()


def test_promotion_as_the_compiler_sees_it() -> None:
    from torch import _prims_common as judge

    from mindtorch_v2 import _prims_common as ours
    values = [(lambda api: api.ones(2, dtype=api.int32)), (lambda api: api.ones((), dtype=api.float64)), lambda api: 2.5,
              (lambda api: api.ones(2, dtype=api.float16)), lambda api: 1, (lambda api: api.ones(2, dtype=api.complex64)),
              (lambda api: api.ones(2, dtype=api.bool)), lambda api: True]
    for kind in ("DEFAULT", "NO_OPMATH", "INT_TO_FLOAT", "ALWAYS_BOOL", "COMPLEX_TO_FLOAT", "BOOL_TO_LONG"):
        for a in values:
            for b in values:
                mine, its = (lib.elementwise_dtypes(a(api), b(api), type_promotion_kind=getattr(
                    lib.ELEMENTWISE_TYPE_PROMOTION_KIND, kind)) for lib, api in ((ours, mt), (judge, torch)))
                assert list(map(str, mine)) == list(map(str, its)), (kind, a(torch), b(torch))


# ---- torch.testing ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "int64", "uint8", "int8", "bool"])
def test_make_tensor_draws_what_torch_draws(dtype: str) -> None:
    for options in ({}, {"noncontiguous": True}, {"exclude_zero": True}, {"low": 0, "high": 1.5}):
        drawn = []
        for api in (mt, torch):
            api.manual_seed(3)
            drawn.append(api.testing.make_tensor((3, 4), dtype=getattr(api, dtype), device="cpu", **options))
        mine, its = drawn
        assert mine.stride() == its.stride() and mine.storage_offset() == its.storage_offset()
        assert mine.tolist() == its.tolist(), options


def test_pairs_fail_as_torchs() -> None:
    values = [1, 1.5, True, None, "a", [1, 2], [1, 2.5], {"a": 1}, {"b": 1}, (1, [2, (3,)]), (1, [2, (4,)]), float("nan"),
              lambda api: api.ones(2), lambda api: api.ones(2, dtype=api.float64), lambda api: api.zeros(2),
              lambda api: api.ones(1, 2), lambda api: [api.ones(2), api.zeros(2)], lambda api: api.tensor(3.0)]
    outcomes = []
    for a in values:
        for b in values:
            if {type(a), type(b)} == {bool, int} or {type(a), type(b)} == {bool, float}:
                continue       # torch fails here with an error of its own making
            said = []
            for api in (mt, torch):
                try:
                    api.testing.assert_close(*(x(api) if callable(x) else x for x in (a, b)))
                    said.append(None)
                except Exception as error:
                    said.append((type(error), str(error).replace("mindtorch_v2._tensor", "torch")))
            outcomes.append(said)
    wrong = [pair for pair in outcomes if pair[0] != pair[1]]
    assert not wrong, wrong[:3]


def test_small_differences_that_broke_packages() -> None:
    for api in (torch, mt):
        assert repr(api.distributions.constraints.greater_than(lower_bound=1)) == "GreaterThan(lower_bound=1)"
        with pytest.raises(TypeError):
            api.distributions.constraints.greater_than(upper_bound=1)
        assert api.addcmul(api.ones(2), 2, api.ones(2), api.full((2,), 3.0)).tolist() == [7.0, 7.0]
        assert api.ones(2).addcdiv_(2, api.ones(2), api.full((2,), 4.0)).tolist() == [1.5, 1.5]
        layer = api.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        for mask in (None, api.zeros(3, 3)):
            assert layer.eval()(api.ones(0, 3, 8), src_mask=mask).shape == layer.train()(api.ones(0, 3, 8)).shape == (0, 3, 8)
        with pytest.raises(AssertionError, match="not compiled with CUDA"):
            api.nn.Linear(1, 1).cuda()
        assert api.nn.ReLU().cuda() is not None and api.utils.data.dataloader.default_collate([1, 2]).tolist() == [1, 2]
        assert not isinstance(api.ones(1), api.PyTorchFileReader) if api is mt else True


# ---- modules that are here by name only -----------------------------------------------------------------------------------
def test_modules_by_name_refuse_with_a_reason_and_lack_what_torch_lacks() -> None:
    ir = importlib.import_module("mindtorch_v2._dynamo.backends.common")
    with pytest.raises(NotImplementedError, match=r"\[torch._dynamo.backends.common.aot_autograd\] mindtorch_v2 captures no graphs"):
        ir.aot_autograd()
    assert "aot_autograd" in dir(ir) and not hasattr(ir, "no_such_name")
    layers = importlib.import_module("mindtorch_v2.nn.quantized.dynamic.modules")
    assert not isinstance(mt.nn.Linear(1, 1), layers.Linear)
    with pytest.raises(NotImplementedError, match="does not quantise"):
        layers.Linear(1, 1)
    for absent in ("mindtorch_v2._dynamo.no_such_module", "mindtorch_v2.nn.quantized.no_such_module"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(absent)
    assert issubclass(importlib.import_module("mindtorch_v2.jit.frontend").UnsupportedNodeError, Exception)
    assert importlib.import_module("mindtorch_v2._dynamo.utils").__spec__.origin is None      # made by hand: the table adds to it
    with pytest.raises(ImportError):
        exec("from mindtorch_v2._C import _no_such_name")
    with pytest.raises(NotImplementedError, match=r"\[torch._C._dispatch_keys\]"):
        mt._C._dispatch_keys(mt.ones(1))


def test_every_name_of_the_table_is_one_of_pytorch() -> None:
    """A sample of its modules, each with all its names."""
    named = importlib.import_module("mindtorch_v2._named")
    for path in sorted(named._table())[::23]:
        try:
            theirs = importlib.import_module(f"torch.{path}")
        except ImportError:                # needs a package that is not installed
            continue
        assert not [name for name in named._names(path) if not hasattr(theirs, name)], path


@twin
def test_helpers_of_tests_of_graph_capture(t):
    testing = importlib.import_module(f"{t.__name__}._dynamo.testing")
    counter = testing.CompileCounter()
    graph = importlib.import_module(f"{t.__name__}.fx").symbolic_trace(lambda x: x.sin() + 1)
    run = counter(graph, [t.ones(2)])
    made = testing.rand_strided((2, 3), (1, 4), dtype=t.float64)
    settings = type("Settings", (), {"a": 1})

    class Base:
        """Two tests."""

        def test_one(self):
            return settings.a

        def helper(self):
            return "helped"
    changed = testing.make_test_cls_with_patches(Base, "Changed", "_two", (settings, "a", 2))
    case = changed()
    return (counter.frame_count, counter.op_count, run(t.zeros(2)), made.stride(), made.dtype, made.untyped_storage().nbytes(),
            changed.__name__, case.test_one_two(), hasattr(case, "test_one"), case.helper(), settings.a,
            testing.requires_bwd_pass([t.ones(2), t.ones(2, requires_grad=True)]), testing.reduce_to_scalar_loss([t.arange(4.0), t.ones(2)]),
            testing.same([t.ones(2), {"a": t.zeros(1)}], [t.ones(2), {"a": t.zeros(1)}]), testing.same(t.ones(2), t.zeros(2)),
            testing.format_speedup(1.5, 0.01), testing.format_speedup(1.5, 0.5),
            error(lambda: testing.reduce_to_scalar_loss("x")))


@twin
def test_content_store_and_versioner(t, tmp_path):
    store = importlib.import_module(f"{t.__name__}.utils._content_store")
    versioner = importlib.import_module(f"{t.__name__}.utils._cpp_extension_versioner").ExtensionVersioner()
    place = str(tmp_path / t.__name__)
    base = t.arange(6.0)
    writer = store.ContentStoreWriter(place, stable_hash=True)
    writer.write_tensor("all", base)
    writer.write_tensor("rows", base.view(2, 3).t())
    reader = store.ContentStoreReader(place)
    whole, rows = reader.read_tensor("all"), reader.read_tensor("rows")
    whole[1] = 9
    source = tmp_path / "source.cpp"
    source.write_text(t.__name__)
    versions = [versioner.bump_version_if_changed("x", [str(source)], [["-O2"]], "", False, False, True, False) for _ in range(2)]
    source.write_text(t.__name__ + " ")
    versions.append(versioner.bump_version_if_changed("x", [str(source)], [["-O2"]], "", False, False, True, False))
    return (store.hash_storage(base.untyped_storage(), stable_hash=True), writer.compute_tensor_metadata(base)[1:], rows, rows.stride(),
            versions, versioner.get_version("x"), versioner.get_version("y"), error(lambda: reader.read_tensor("none"), 17))


@twin
def test_file_lock_keeps_others_out(t, tmp_path):
    lock = importlib.import_module(f"{t.__name__}.utils._filelock").FileLock
    first, second = lock(str(tmp_path / "lock")), lock(str(tmp_path / "lock"), timeout=0.01)
    with first:
        refused = error(second.acquire, 12)
        with first:
            inner = first.is_locked
        still = first.is_locked
    with second:
        return refused, inner, still, first.is_locked, second.is_locked


@twin
def test_records_of_tensors_and_helpers_of_lists(t):
    fake = importlib.import_module(f"{t.__name__}._subclasses.fake_tensor")
    utils, autograd = (importlib.import_module(f"{t.__name__}.{name}") for name in ("_utils", "autograd._functions.utils"))
    x = t.empty_strided((2, 3, 4, 5), (60, 1, 15, 3), requires_grad=True)
    coo = t.eye(3).to_sparse().coalesce()
    records = [fake.extract_tensor_metadata(value) for value in (x, t.ones(2, dtype=t.complex64).conj(), coo)]
    mode = fake.FakeTensorMode()
    tensors = [t.ones(3), t.ones(2, dtype=t.int64), t.zeros(4)]

    class Sub(t.Tensor):
        """Overrides nothing."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs)

    class Below(Sub):
        """A subclass of it."""
    ones = t.ones(2)
    sub, below = ones.as_subclass(Sub), ones.as_subclass(Below)
    chosen = t.overrides._get_overloaded_args((ones, sub, below, sub))
    return ([[str(getattr(r, f)).replace("mindtorch_v2", "torch") for f in ("shape", "stride", "memory_format", "storage_bytes", "is_conj",
                                                                            "is_coalesced", "sparse_dim", "requires_grad")] for r in records],
            fake.maybe_get_fake_mode(mode.from_tensor(ones)) is mode, fake.maybe_get_fake_mode(ones),
            list(utils._take_tensors(tensors, 20)), utils._reorder_tensors_as([tensors[0], tensors[2], tensors[1]], tensors),
            utils._maybe_view_chunk_cat(t.arange(12).view(4, 3), 2, 1), utils._import_dotted_name("os.path.join").__name__,
            utils.try_import("no_such_module_at_all"), autograd.maybe_unexpand(t.ones(2, 3, 4), t.Size([3, 1])),
            [type(arg).__name__ for arg in chosen], int(t.tensor(3.7).__long__()))


def test_throughput_is_measured_over_threads() -> None:
    bench = mt.utils.ThroughputBenchmark(mt.nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="Please provide benchmark inputs"):
        bench.benchmark()
    bench.add_input(mt.ones(1, 2))
    stats = bench.benchmark(num_calling_threads=2, num_warmup_iters=1, num_iters=9)
    assert stats.num_iters == 9 and str(stats).splitlines()[1] == "Total number of iterations: 9" and stats.latency_avg_ms > 0
    assert bench.run_once(mt.ones(1, 2)).shape == (1, 2)
