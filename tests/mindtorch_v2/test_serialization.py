"""torch.save and torch.load: files go between this library and PyTorch; code is refused."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import mindtorch_v2

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
LIBRARIES = {"mindtorch_v2": mindtorch_v2, "torch": torch}
both_ways = pytest.mark.parametrize(
    ("writer", "reader"),
    [("mindtorch_v2", "mindtorch_v2"), ("mindtorch_v2", "torch"), ("torch", "mindtorch_v2")],
)


def contents(xp: ModuleType) -> dict[str, Any]:
    base = xp.arange(24.0).reshape(4, 6)
    return {
        "dtypes": [xp.ones(3).to(getattr(xp, name)) for name in DTYPES.split()],
        "views": (base, base.t(), base[1:, 2], base[0, 0]),
        "parameter": xp.nn.Parameter(xp.ones(2, 3)),
        "frozen": xp.nn.Parameter(xp.ones(2), requires_grad=False),
        "leaf": xp.ones(2, requires_grad=True),
        "empty": xp.empty(0, 3),
        "expanded": xp.ones(1).expand(5),
        "dtype": xp.float16,
        "size": xp.Size([2, 3]),
        "device": xp.device("cpu"),
        "layout": xp.strided,
        "plain": [
            OrderedDict(a=1),
            {1, 2},
            b"xyz",
            bytearray(b"q"),
            1 + 2j,
            None,
            10**20,
            1.5,
            "é",
        ],
    }


def as_text(value: Any) -> Any:
    """Everything that has to survive, in words that both libraries share."""
    if hasattr(value, "untyped_storage"):
        facts = (str(value.dtype), tuple(value.shape), value.stride(), value.storage_offset())
        return type(value).__name__, facts, value.requires_grad, value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(k, as_text(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [as_text(v) for v in value]
    return repr(value)


def stored(obj: Any, xp: ModuleType, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    xp.save(obj, file, **options)
    file.seek(0)
    return file


@both_ways
@pytest.mark.parametrize("weights_only", [True, False])
def test_files_go_both_ways(writer: str, reader: str, weights_only: bool) -> None:
    obj = contents(LIBRARIES[writer])
    loaded = LIBRARIES[reader].load(stored(obj, LIBRARIES[writer]), weights_only=weights_only)
    assert as_text(loaded) == as_text(obj)
    loaded["views"][0][1, 2] = 77.0  # the views still share their memory
    assert loaded["views"][1][2, 1].item() == loaded["views"][2][0].item() == 77.0


@both_ways
def test_state_dict(writer: str, reader: str) -> None:
    xp, other = LIBRARIES[writer], LIBRARIES[reader]
    state = xp.nn.Sequential(xp.nn.Linear(3, 4), xp.nn.BatchNorm2d(4)).state_dict()
    loaded = other.load(stored(state, xp))
    assert as_text(loaded) == as_text(state)
    assert loaded._metadata == state._metadata


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols(protocol: int) -> None:
    obj = contents(mindtorch_v2)
    loaded = mindtorch_v2.load(stored(obj, mindtorch_v2, pickle_protocol=protocol))
    assert as_text(loaded) == as_text(obj)


@pytest.mark.parametrize("writer", LIBRARIES)
@pytest.mark.parametrize("mmap", [False, True])
def test_paths(tmp_path: Path, writer: str, mmap: bool) -> None:
    obj, path = contents(LIBRARIES[writer]), tmp_path / "model.v1.pt"
    LIBRARIES[writer].save(obj, path)
    assert as_text(mindtorch_v2.load(path, mmap=mmap)) == as_text(obj)
    assert as_text(torch.load(str(path), mmap=mmap)) == as_text(obj)


def test_format_before_the_zip() -> None:
    obj = contents(torch)
    file = stored(obj, torch, _use_new_zipfile_serialization=False)
    assert as_text(mindtorch_v2.load(file)) == as_text(obj)


def test_records_are_aligned() -> None:
    file = stored(contents(mindtorch_v2), mindtorch_v2)
    raw = file.getvalue()
    for info in zipfile.ZipFile(file).infolist():
        sizes = raw[info.header_offset + 26 : info.header_offset + 30]
        lengths = int.from_bytes(sizes[:2], "little") + int.from_bytes(sizes[2:], "little")
        assert (info.header_offset + 30 + lengths) % 64 == 0, info.filename


class Foreign:
    """A class that no weights file may hold unasked."""


class Command:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple:
        return os.system, ("exit 1",)


def test_a_foreign_global_is_named_and_refused() -> None:
    file = stored(Foreign(), mindtorch_v2)
    with pytest.raises(pickle.UnpicklingError, match=r"Unsupported global: GLOBAL .*\.Foreign"):
        mindtorch_v2.load(file)
    file.seek(0)
    before = set(mindtorch_v2.serialization.get_safe_globals())      # those of DTensor, where another test imported it
    with mindtorch_v2.serialization.safe_globals([Foreign]):
        assert set(mindtorch_v2.serialization.get_safe_globals()) == before | {Foreign}
        assert isinstance(mindtorch_v2.load(file), Foreign)
    assert set(mindtorch_v2.serialization.get_safe_globals()) == before
    with pytest.raises(pickle.UnpicklingError, match="posix.system"):
        mindtorch_v2.load(stored(Command(), mindtorch_v2))


@pytest.mark.parametrize(
    "code",
    [
        b"\x80\x02ctorch\nTensor\n}X\x01\x00\x00\x00xK\x01sb.",  # state for a class
        b"\x80\x02ctorch\nTensor\nN}X\x01\x00\x00\x00xK\x01s\x86b.",  # slots of a class
        b"\x80\x02(ios\nsystem\n.",  # INST
        b"\x80\x02cos\nsystem\n.",
    ],
)
def test_crafted_pickles_are_refused(code: bytes) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", code)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        mindtorch_v2.load(file)
    assert not hasattr(mindtorch_v2.Tensor, "x")


@pytest.mark.parametrize(
    "place",
    ["cpu", mindtorch_v2.device("cpu"), {"cpu": "cpu"}, lambda s, loc: s, lambda s, loc: None],
    ids=["str", "device", "dict", "callable", "callable-none"],
)
def test_map_location(place: Any) -> None:
    loaded = mindtorch_v2.load(stored(mindtorch_v2.ones(3), mindtorch_v2), map_location=place)
    assert loaded.tolist() == [1, 1, 1]


def test_unknown_place_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="map_location='cpu'"):
        mindtorch_v2.load(stored(mindtorch_v2.ones(3), mindtorch_v2), map_location="nowhere:0")


def test_one_storage_as_two_types_is_refused() -> None:
    x = mindtorch_v2.ones(4)
    with pytest.raises(RuntimeError, match="different types"):
        mindtorch_v2.save([x, x.view(mindtorch_v2.int32)], io.BytesIO())


def test_whole_module() -> None:
    model = mindtorch_v2.nn.Linear(2, 3)
    loaded = mindtorch_v2.load(stored(model, mindtorch_v2), weights_only=False)
    assert as_text(loaded.state_dict()) == as_text(model.state_dict())


def test_not_a_saved_file() -> None:
    with pytest.raises(EOFError):
        mindtorch_v2.load(io.BytesIO(b""))
    with pytest.raises(ValueError, match="file path"):
        mindtorch_v2.load(io.BytesIO(b"PK\x03\x04"), mmap=True)


class _Numbering(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return (int, (42,)) if obj is _Numbering else NotImplemented


@pytest.mark.parametrize("zipped", [True, False])
def test_another_module_pickles(zipped: bool) -> None:
    module = ModuleType("other_pickle")
    module.__dict__.update(vars(pickle), Pickler=_Numbering, Unpickler=pickle._Unpickler)   # type: ignore[attr-defined]
    file = io.BytesIO()
    value = [mindtorch_v2.arange(3), mindtorch_v2.nn.Parameter(mindtorch_v2.ones(2)), _Numbering]
    mindtorch_v2.save(value, file, pickle_module=module, _use_new_zipfile_serialization=zipped)
    for load, options in ((mindtorch_v2.load, {"pickle_module": module}), (mindtorch_v2.load, {}), (torch.load, {})):
        file.seek(0)
        tensor, parameter, number = load(file, weights_only=False, **options)   # type: ignore[operator]
        assert tensor.tolist() == [0, 1, 2] and parameter.requires_grad and number == 42


def test_an_untyped_storage_comes_back_as_bytes() -> None:
    file = io.BytesIO()
    mindtorch_v2.save(mindtorch_v2.arange(4, dtype=mindtorch_v2.uint8).untyped_storage(), file)
    for library in (mindtorch_v2, torch):
        file.seek(0)
        found = library.load(file)
        assert type(found).__name__ == "TypedStorage" and found.dtype is library.uint8 and list(found) == [0, 1, 2, 3]


class _Lines:
    """A file whose readline takes no limit, written and read by few methods."""

    def __init__(self) -> None:
        self.data = io.BytesIO()
        for name in ("read", "seek", "tell", "write", "flush"):
            setattr(self, name, getattr(self.data, name))

    def readline(self) -> bytes:
        return self.data.readline()


def test_files_of_few_methods_and_what_the_first_format_says() -> None:
    for zipped in (True, False):
        file = _Lines()
        mindtorch_v2.save([mindtorch_v2.ones(2), "a"], file, _use_new_zipfile_serialization=zipped)
        file.data.seek(0)
        assert mindtorch_v2.load(file)[0].tolist() == [1, 1]
    wrong = io.BytesIO(pickle.dumps(mindtorch_v2.serialization.MAGIC_NUMBER, 2) + pickle.dumps(3, 2))
    with pytest.raises(RuntimeError, match="Invalid protocol version: 3"):
        mindtorch_v2.load(wrong)


def test_archives_differ_in_their_number_by_what_they_hold() -> None:
    def number(value: Any) -> str:
        file = io.BytesIO()
        mindtorch_v2.save(value, file)
        file.seek(0)
        return mindtorch_v2._C.PyTorchFileReader(file).serialization_id()

    assert number({"a": mindtorch_v2.ones(2)}) == number({"a": mindtorch_v2.ones(2)}) != number({"a": mindtorch_v2.zeros(2)})
    with pytest.raises(RuntimeError, match="Parent directory /no/such does not exist."):
        mindtorch_v2._C.PyTorchFileWriter("/no/such/file.pt")
