"""Plain pickles between PyTorch and this library: each reads what the other wrote, and both say the same of it."""
from __future__ import annotations

import copy
import io
import operator
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from twin import twin

import mindtorch_v2 as mt

# Run under either library: `write FILE` or `read FILE`, which prints what came back.
PROGRAM = '''
import pickle, sys, warnings
warnings.simplefilter("ignore")
import torch

def objects():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.LSTM(3, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    base = torch.arange(6.0)
    marked = base.clone()
    marked.note = "x"
    shared = torch.nn.Parameter(torch.ones(2, requires_grad=True))
    shared.note = "y"
    return [base[1:].view(5, 1), torch.ones(3, dtype=torch.bfloat16), torch.ones(2, dtype=torch.complex64).conj(), marked, shared,
            torch.ones(2, 3, device="meta"), torch.ones(2, requires_grad=True), torch.tensor([1, 2])[::2], torch.tensor(True),
            torch.ones(0, 3), torch.float32, torch.bool, torch.device("cpu"), torch.Size([1, 2]), torch.contiguous_format,
            torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csc(), base.storage(), net, optimizer,
            torch.nn.TransformerEncoderLayer(4, 2, 8), torch.optim.lr_scheduler.StepLR(optimizer, 2), torch.nn.functional.silu,
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5), torch.distributions.Normal(0.0, 1.0)]

def shown(value):
    if isinstance(value, torch.Tensor):
        items = value.to_dense() if value.layout is not torch.strided else value
        return (type(value).__name__, value.dtype, tuple(value.shape), value.requires_grad, value.layout, value.is_conj(),
                *((value.stride(), dict(value.__dict__)) if value.layout is torch.strided else (value._nnz(),)),
                "meta" if value.is_meta else items.detach().tolist())
    if isinstance(value, torch.nn.Module):
        size = 4 if isinstance(value, torch.nn.TransformerEncoderLayer) else 2
        return repr(value), list(value.state_dict()), tuple(value(torch.ones(2, size))[0].shape)
    if isinstance(value, torch.optim.Optimizer):
        value.step()
        return repr(value), sorted(value.state_dict()["state"][0])
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        value.step()
        return type(value).__name__, value.get_last_lr(), sorted(value.state_dict())
    return str(value).partition(" at 0x")[0]

if sys.argv[1] == "write":
    with open(sys.argv[2], "wb") as file:
        pickle.dump(objects(), file)
else:
    with open(sys.argv[2], "rb") as file:
        for value in pickle.load(file):
            print(shown(value))
'''


def run(side: str, *args: str) -> str:
    start = [sys.executable, *(["-m", "mindtorch_v2"] if side == "ours" else [])]
    done = subprocess.run([*start, *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_pickles_go_both_ways(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = {}
    for writer in ("torch", "ours"):
        file = str(tmp_path / writer)
        run(writer, str(program), "write", file)
        for reader in ("torch", "ours"):
            said[writer, reader] = run(reader, str(program), "read", file)
    assert said["torch", "torch"].count("\n") > 20
    for pair, text in said.items():
        assert text == said["torch", "torch"], pair


class Marked(mt.Tensor):
    """A subclass with slots and a state of its own."""
    __slots__ = ("place",)


class Stated(mt.Tensor):
    """A subclass that says what its state is."""

    def __getstate__(self) -> dict[str, int]:
        return {"kept": 3}

    def __setstate__(self, state: dict[str, int]) -> None:
        self.kept = state["kept"] + 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_subclasses_come_back(protocol: int) -> None:
    marked: Any = mt.ones(2).as_subclass(Marked)
    marked.place, marked.note = 5, "x"
    got = pickle.loads(pickle.dumps(marked, protocol))
    assert type(got) is Marked and (got.place, got.note, got.tolist()) == (5, "x", [1, 1])
    stated: Any = pickle.loads(pickle.dumps(mt.ones(2).as_subclass(Stated), protocol))
    assert type(stated) is Stated and stated.kept == 4


@pytest.mark.parametrize("name", ["uint16", "uint64", "float8_e5m2", "complex32", "float16", "int8"])
def test_every_dtype_comes_back(name: str) -> None:
    dtype = getattr(mt, name)
    for value in (mt.ones(3).to(dtype), mt.ones(3).to(dtype).untyped_storage(), mt.ones(3).to(dtype).storage()):
        got = pickle.loads(pickle.dumps(value))
        assert type(got) is type(value) and getattr(got, "dtype", None) == getattr(value, "dtype", None)
        assert pickle.dumps(got) == pickle.dumps(value)      # nothing of addresses or time is in a pickle
    assert pickle.loads(pickle.dumps(dtype)) is dtype and pickle.loads(pickle.dumps(mt.channels_last)) is mt.channels_last


def test_a_shallow_copy_shares_memory() -> None:
    def body(side: Any) -> Any:
        x = side.arange(4.0)[1:]
        y = copy.copy(x)
        y[0] = 9
        return x, y, x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    twin(body)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-30] + b"\xff" * 30])
def test_a_damaged_storage_is_refused(damage: Any) -> None:
    data = mt.arange(3.0).storage().__reduce__()[1][0]
    with pytest.raises((RuntimeError, ValueError, EOFError, pickle.UnpicklingError)):
        if mt.storage._load_from_bytes(damage(data)).tolist() != [0, 1, 2]:
            raise RuntimeError("other items")


def test_functions_that_pickles_name() -> None:
    names = """_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter _rebuild_parameter_with_state
               _rebuild_sparse_tensor _rebuild_meta_tensor_no_storage _rebuild_wrapper_subclass""".split()
    for name in names:
        assert getattr(mt._utils, name).__module__ == "mindtorch_v2._utils" and hasattr(torch._utils, name)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("text", [
    "[torch.float16, torch.contiguous_format, torch.Size([2]), torch.strided, torch.device('cpu')]",
    "[torch.nn.Linear, torch.nn.functional.relu, torch.optim.SGD]", "torch.nn.Linear(1, 1)",
    "'cmindtorch_v2.nn.functional\\nrelu\\n', torch.nn.functional.relu", "b'ctorch\\nSize\\n', torch.Size([1])"])
def test_files_name_what_pytorch_calls_it(text: str, protocol: int, tmp_path: Path) -> None:
    """Also where the text of such a name stands in the data."""
    path = tmp_path / "file.pt"
    mt.save(eval(text, {"torch": mt}), path, pickle_protocol=protocol)
    got, wanted = torch.load(path, weights_only=False), eval(text, {"torch": torch})
    assert repr(got).partition(" at 0x")[0] == repr(wanted).partition(" at 0x")[0]


def test_functions_of_layers_are_read(tmp_path: Path) -> None:
    """What PyTorch's pickles name torch._C._nn.gelu."""
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, activation="gelu")
    path = tmp_path / "layer"
    path.write_bytes(pickle.dumps([layer, torch.linalg.inv, torch.special.erf]))
    code = ("import pickle, sys, torch; layer, inv, erf = pickle.load(open(sys.argv[1], 'rb')); "
            "print(layer.activation is torch.nn.functional.gelu, inv is torch.linalg.inv, erf is torch.special.erf)")
    assert run("ours", "-c", code, str(path)) == "True True True\n"


@pytest.mark.parametrize("protocol", [2, 4])
def test_methods_of_builtin_objects_are_saved(protocol: int) -> None:
    """They have no module."""
    file = io.BytesIO()
    mt.save([[1, 1].count, mt.ones(2)], file, pickle_protocol=protocol)
    file.seek(0)
    count, ones = mt.load(file, weights_only=False)
    assert count(1) == 2 and ones.tolist() == [1, 1]


def test_small_files_take_the_compiled_pickler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every global of an ordinary file is one that it notes; the other pickler is not needed."""
    monkeypatch.setattr(mt._pickling, "_NamingPickler", None)
    net = mt.nn.Linear(2, 3)
    for value in (net.state_dict(), net, [mt.float16, mt.channels_last, mt.Size([1]), mt.strided, mt.device("cpu")],
                  mt.optim.SGD(net.parameters(), 0.1), mt.eye(2).to_sparse(), mt.ones(2).to(mt.uint16)):
        mt.save(value, io.BytesIO())


@pytest.mark.parametrize("name", ["sum", "nn.functional.gelu", "conv2d", "nn.functional.relu", "linalg.det", "fft.fft", "special.erf"])
def test_functions_are_saved_under_pytorchs_names(name: str) -> None:
    files = {}
    for lib in (torch, mt):
        function, file = operator.attrgetter(name)(lib), io.BytesIO()
        lib.save(function, file)
        files[lib] = zipfile.ZipFile(file).read("archive/data.pkl")
        for other in (torch, mt):
            file.seek(0)
            assert other.load(file, weights_only=False) is operator.attrgetter(name)(other)
    assert files[mt] == files[torch]


@pytest.mark.parametrize("name", ["add", "add_", "sum"])
def test_methods_are_saved_as_attributes_of_tensor(name: str) -> None:
    file = io.BytesIO()
    mt.save(getattr(mt.Tensor, name), file)
    for library in (torch, mt):
        file.seek(0)
        assert library.load(file, weights_only=False) is getattr(library.Tensor, name)
