"""Names of torch._C that torch's own tests and packages read: what they answer, records of an archive, views of another base."""
from __future__ import annotations

import pytest
from twin import check_lines

import mindtorch_v2 as mt

ARCHIVE = """
import io
file = io.BytesIO()
writer = torch.PyTorchFileWriter(file)
writer.write_record("a", b"hello, world", 5)
writer.write_record("data/0", torch.arange(4.0).untyped_storage(), 16)
writer.write_end_of_file()
file.seek(0)
reader = torch._C.PyTorchFileReader(file)
"""


@pytest.mark.parametrize("line", [
    "torch._C._get_deterministic_algorithms()", "torch._C._get_float32_matmul_precision()", "torch._C._get_warnAlways()",
    "torch._C._get_flash_sdp_enabled()", "torch._C._get_cudnn_enabled()", "torch._C._is_autocast_available('cpu')",
    "torch._C._is_any_autocast_enabled()", "torch._C._get_default_device()", "[torch._C._has_cuda, torch._C._has_mps]",
    "list(torch._C._infer_size(torch.Size((2, 1)), torch.Size((1, 3))))", "torch._C._infer_size((2, 1), (1, 3))",
    "x = torch.ones(2); torch._C._is_alias_of(x, x.view(2, 1))", "torch._C._is_alias_of(torch.ones(2), torch.ones(2))",
    "x = torch.ones(2); torch._C._increment_version([x]); x._version", "torch._C._get_tensor_metadata(torch.ones(1, dtype=torch.cfloat).conj())",
    "torch._C._get_graph_executor_optimize(True)", "torch._C._get_graph_executor_optimize()",
    "torch._C._is_torch_function_enabled()", "torch._C._is_torch_function_mode_enabled()", "torch._C._is_fwd_grad_enabled()",
    "[str(s) for s in torch._C._jit_get_schemas_for_operator('aten::relu')]", "torch._C._dispatch_has_kernel('aten::add.Tensor')",
    "torch._C._dispatch_has_kernel('aten::nothing')", "torch._C._VariableFunctions.add(torch.ones(2), 1)",
    "[torch._C._enter_dual_level(), torch._C._exit_dual_level(level=0)]", "torch._C._autograd._saved_tensors_hooks_is_enabled()",
    "torch._C._autograd.CreationMeta.NO_GRAD_MODE.value", "x = torch.ones(2); torch._C._autograd._unsafe_set_version_counter((x,), (5,)); x._version",
    "torch.ones(2)._view_func(torch.ones(2))", "torch.ones(2, 3)[1]._view_func(torch.arange(6.0).reshape(2, 3))",
    "torch.ones(2, 3)[1]._view_func(torch.arange(8.0).reshape(2, 4))", "torch.ones(2, 3).t()._view_func_unsafe(torch.arange(6.0).reshape(2, 3))",
    "torch.view_as_real(torch.ones(2, dtype=torch.cfloat))[1]._view_func(torch.zeros(2, dtype=torch.cfloat))",
    "[getattr(torch, n).abbr for n in 'float32 bfloat16 int8 int64 bool complex32 uint16 uint1 int4 qint8 quint4x2 bits8 bits1x8 "
    "float8_e4m3fn float4_e2m1fn_x2'.split()]",
    "x = torch.ones(2); [x._use_count(), torch._C._WeakTensorRef(x).expired(), torch._C._WeakTensorRef(x.clone()).expired()]",
    "x = torch.ones(2, requires_grad=True); x._grad = x.detach(); x.grad", "isinstance(torch.ones(1), torch._C._TensorBase)",
    "[torch.linalg.LinAlgError.__name__, torch._sym_log2(8), torch.sym_fresh_size(3), torch.sym_sqrt is torch._sym_sqrt]",
    "torch.ones(2, 2).solve()", "torch.ones(2, 2).eig(1, 2)", "torch.lstsq(torch.ones(2))", "torch.symeig(torch.ones(2), a=1)",
    "torch.ones(2, dtype=torch.cfloat).conj()[:1]._view_func(torch.tensor([1j, 2j])).resolve_conj()"])
def test_answers(line: str) -> None:
    check_lines(line.replace("; ", "\n"), message=True)


@pytest.mark.parametrize("line", [
    "sorted(reader.get_all_records())", "reader.get_record('a').decode()", "reader.get_record_size('data/0')", "reader.get_record_offset('data/0') % 64",
    "[reader.has_record('a'), reader.has_record('b')]", "reader.get_storage_from_record('data/0', 4, torch.float32).untyped_storage().tolist()",
    "len(reader.serialization_id())", "writer.archive_name()", "sorted(writer.get_all_written_records())", "reader.get_record('b')",
    "torch.PyTorchFileReader('/nowhere/at/all')", "torch.PyTorchFileReader(io.BytesIO(b'nothing'))"])
def test_records_of_an_archive(line: str) -> None:
    check_lines(ARCHIVE + line)


@pytest.mark.parametrize("warn_only", [True, False])
def test_put_is_not_deterministic(warn_only: bool) -> None:
    check_lines(f"""
import warnings
torch.use_deterministic_algorithms(True, warn_only={warn_only})
told = []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for accumulate in (False, True):
        try:
            torch.ones(3).put_(torch.tensor([0]), torch.ones(1), accumulate=accumulate)
        except RuntimeError as error:
            told.append(str(error))
torch.use_deterministic_algorithms(False)
told + [str(w.message).partition(" (Triggered")[0] for w in caught]""")


@pytest.mark.parametrize("name", ["eig", "symeig", "solve", "lstsq"])
def test_removed_methods(name: str) -> None:
    x = mt.ones(2, 2)
    given = (x,) if name in ("solve", "lstsq") else ()
    for called in (getattr(x, name), lambda *rest: getattr(mt, name)(x, *rest)):
        with pytest.raises(RuntimeError, match="This function was deprecated since version 1.9 and is now removed"):
            called(*given)


CHECKED = """
import importlib
SchemaCheckMode = importlib.import_module(torch.__name__ + "._subclasses.schema_check_mode").SchemaCheckMode
def seen(function, *args, **kwargs):
    with SchemaCheckMode() as mode:
        function(*args, **kwargs)
    return mode.ops, mode.mutated, mode.aliasing
def changes(x):
    return x.add_(1).clone()
def doubled(x):
    y = x.clone()
    return y, y.view(-1)
def made(schema, body):
    library = torch.library.Library("checked", "FRAGMENT")
    try:
        library.define("op" + schema)
        library.impl("op", body, "CPU")
        return seen(torch.ops.checked.op, torch.ones(2, 2))
    finally:
        library._destroy()
x, y = torch.ones(2, 2), torch.zeros(2, 2)
"""


@pytest.mark.parametrize("line", [
    "seen(x.add, y)", "seen(x.add_, y)", "seen(x.mul_, x)", "seen(x.view, 4)", "seen(torch.add, x, y, out=torch.empty(2, 2))",
    "seen(lambda: x.t().add_(1))", "seen(x.expand, 2, 2, 2)", "seen(torch.ones, 3)",
    "made('(Tensor x) -> Tensor', changes)", "made('(Tensor(a!) x) -> Tensor', changes)",
    "made('(Tensor x) -> Tensor', lambda x: x)", "made('(Tensor x) -> Tensor', lambda x: x.view(-1))",
    "made('(Tensor(a) x) -> Tensor(a)', lambda x: x.view(-1))", "made('(Tensor x) -> (Tensor, Tensor)', doubled)"])
def test_schemas_are_checked(line: str) -> None:
    check_lines(CHECKED + line, message=True)
