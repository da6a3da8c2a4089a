"""torch.load and files made to attack it: nothing runs, nothing is set, memory and time are bounded by the file."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import resource
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_files import Corpus, legacy_file, named, number, object_to_save, text, zipped, zipped64

import mindtorch_v2 as mt

REFUSED = (pickle.UnpicklingError, RuntimeError)


def archive(body: bytes, **records: bytes) -> io.BytesIO:
    """A file with a pickle and storages "a", "b" …"""
    return io.BytesIO(zipped({"data.pkl": b"\x80\2" + body + b".", **{f"data/{k}": v for k, v in records.items()}}))


def load(body: bytes, **records: bytes) -> Any:
    return mt.load(archive(body, **records))


def tup(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def call(name: str, *args: bytes) -> bytes:
    return named(name) + tup(*args) + b"R"


def pairs(**items: bytes) -> bytes:
    return b"}(" + b"".join(text(k) + v for k, v in items.items()) + b"u"


def stored(key: str = "a", kind: str = "Float", count: int = 2, location: str = "cpu") -> bytes:
    return tup(text("storage"), named(f"torch {kind}Storage"), text(key), text(location), number(count)) + b"Q"


def sizes(*ns: int) -> bytes:
    return tup(*map(number, ns))


def tensor(offset: int = 0, size: bytes = sizes(2), stride: bytes = sizes(1), storage: bytes = b"", grad: bytes = b"\x89") -> bytes:
    return call("torch._utils _rebuild_tensor_v2", storage or stored(), number(offset), size, stride, grad, b"N")


# ---- code ----------------------------------------------------------------------------------------

LAYOUT = "torch.serialization _get_layout"
FROM_TYPE = "torch._tensor _rebuild_from_type_v2"
ATTACKS = {
    "import_module by layout": call(LAYOUT, text("torch.import_module")),
    "a module by layout": call(LAYOUT, text("nn")),
    "ModuleType by layout": call(LAYOUT, text("torch._ModuleType")),
    "layout of a number": call(LAYOUT, number(1)),
    "os.system": call("os system", text("true")),
    "posix.system": call("posix system", text("true")),
    "getattr": call("builtins getattr", b"N", text("x")),
    "a call of what a call gave": call(LAYOUT, text("torch.strided")) + b")R",
    "from type: layout as function": call(FROM_TYPE, named(LAYOUT), named("torch Tensor"), tup(text("nn")), pairs(x=b"N")),
    "from type: itself": call(FROM_TYPE, named(FROM_TYPE), named("torch Tensor"), tup(b"N", b"N", b")", b"N"), b"N"),
    "from type: a class as kind": call(FROM_TYPE, named("torch._utils _rebuild_tensor"), named("collections OrderedDict"),
                                       tup(stored(), number(0), sizes(2), sizes(1)), b"N"),
    "from type: a set": call(FROM_TYPE, named("builtins set"), named("torch Tensor"), b")", b"N"),
    "state of a class": named("torch Tensor") + pairs(x=b"K\1") + b"b",
    "state of a function": named("torch._utils _rebuild_tensor") + pairs(__code__=b"N") + b"b",
    "state of a dtype": named("torch float32") + pairs(itemsize=b"K\1") + b"b",
    "state of a Size": call("torch Size", sizes(1)) + pairs(x=b"K\1") + b"b",
    "state of a tensor": tensor() + pairs(data=b"N") + b"b",
    "slots of a class": named("torch Tensor") + tup(b"N", pairs(x=b"K\1")) + b"b",
    "methods of a dict": call("collections OrderedDict") + pairs(items=named("builtins set")) + b"b",
    "class of a dict": call("collections OrderedDict") + pairs(__class__=named("torch Tensor")) + b"b",
    "a new Tensor": named("torch Tensor") + b")\x81",
    "Tensor of a size": call("torch Tensor", number(10**12)),
    "a storage called": call("torch FloatStorage", number(10**12)),
    "a dtype called": call("torch float32"),
    "a name with a dot": named("torch Tensor.__class__"),
    "a name from the stack": text("os") + text("system") + b"\x93",
    "items of a class": named("torch Tensor") + b"(K\1K\2u",
    "INST": b"(ios\nsystem\n", "OBJ": b"(" + named("builtins set") + b"o", "EXT": b"\x82\1", "PERSID": b"Pabc\n",
}  # fmt: skip


@pytest.mark.parametrize("body", ATTACKS.values(), ids=ATTACKS)
def test_nothing_runs_and_nothing_is_set(body: bytes) -> None:
    before = {owner: set(vars(owner)) for owner in (mt.Tensor, mt.nn.Parameter, OrderedDict)}
    with pytest.raises(pickle.UnpicklingError, match="data.pkl, byte"):
        load(body, a=bytes(8))
    assert before == {owner: set(vars(owner)) for owner in before}


WRONG_ARGUMENTS = {
    "bytearray of a size": call("builtins bytearray", number(10**12)),
    "bytearray of numbers": call("builtins bytearray", b"](K\1e"),
    "bytearray in another codec": call("builtins bytearray", text("abc"), text("rot13")),
    "set of a text": call("builtins set", text("abc")),
    "set of lists": call("builtins set", b"](]e"),
    "OrderedDict of a dict's class": call("collections OrderedDict", named("collections OrderedDict")),
    "OrderedDict of triples": call("collections OrderedDict", b"](" + sizes(1, 2, 3) + b"e"),
    "OrderedDict of lists as keys": call("collections OrderedDict", b"](" + tup(b"]", b"N") + b"e"),
    "Counter of an OrderedDict": call("collections Counter", call("collections OrderedDict")),
    "encode with a codec": call("_codecs encode", text("abc"), text("zlib")),
    "encode beyond latin-1": call("_codecs encode", text("€"), text("latin1")),
    "complex of texts": call("builtins complex", text("1"), text("2")),
    "complex of a huge number": call("builtins complex", number(2**1000), number(0)),
    "Size of floats": call("torch Size", tup(b"G" + bytes(8))),
    "Size beyond 64 bits": call("torch Size", sizes(2**63)),
    "device of a number": call("torch device", number(3)),
    "device with a huge index": call("torch device", text("npu"), number(2**70)),
    "device with a strange name": call("torch device", text("\ud800")),
    "Parameter of a list": call("torch.nn.parameter Parameter", b"]"),
    "too many arguments": call("torch.nn.parameter Parameter", tensor(), b"\x88", b"N", b"N", b"N"),
    "arguments that are no tuple": named("builtins set") + b"]R",
    "negative size": tensor(size=sizes(-1)),
    "negative stride": tensor(stride=sizes(-1), offset=1),
    "negative offset": tensor(offset=-1),
    "offset beyond 64 bits": tensor(offset=2**64),
    "sizes that overflow": tensor(size=sizes(2**62, 2**62), stride=sizes(0, 0)),
    "bytes that overflow": tensor(size=sizes(2**62), stride=sizes(0)),
    "more than the storage has": tensor(size=sizes(3)),
    "behind the storage": tensor(offset=1),
    "65 dimensions": tensor(size=sizes(*[1] * 65), stride=sizes(*[1] * 65)),
    "strides for other sizes": tensor(stride=sizes(1, 1)),
    "sizes as a text": tensor(size=text("ab")),
    "a gradient of integers": tensor(storage=stored(kind="Long", count=1), size=sizes(1), grad=b"\x88"),
    "requires_grad as a list": tensor(grad=b"]"),
    "a storage that is none": tensor(storage=b"N"),
    "meta of huge sizes": call("torch._utils _rebuild_meta_tensor_no_storage", named("torch float32"), sizes(2**62, 8), sizes(8, 1), b"\x89"),
    "a parameter's data replaced": call("torch._utils _rebuild_parameter_with_state", tensor(), b"\x88", b"N", pairs(data=b"N")),
    "a parameter's class replaced": call("torch._utils _rebuild_parameter_with_state", tensor(), b"\x88", b"N",
                                         pairs(__class__=named("torch Tensor"))),
    "a method replaced": call(FROM_TYPE, named("torch._utils _rebuild_tensor"), named("torch Tensor"),
                              tup(stored(), number(0), sizes(2), sizes(1)), pairs(add=b"N")),
    "attributes with numbers as names": call("torch._utils _rebuild_parameter_with_state", tensor(), b"\x88", b"N", b"}(K\1K\2u"),
    "attributes as a list": call("torch._utils _rebuild_parameter_with_state", tensor(), b"\x88", b"N", b"](K\1e"),
    "more bytes than the record": stored(count=3),
    "a number of items that overflows": stored(count=2**62),
    "a negative number of items": stored(count=-1),
    "a key that is a path": stored(key="../data.pkl"),
    "a key that is not there": stored(key="zz"),
    "a place that is none": stored(location="nowhere:7"),
    "a place as long as a book": stored(location="c" * 10_000),
    "one storage as two types": tup(stored(), stored(kind="Double", count=1)),
    "a place beyond 32 bits": stored(location="cpu:99999999999"),
    "a place of 60 digits": stored(location="cpu:" + "9" * 60),
    "a device beyond 32 bits": call("torch device", text("cpu:99999999999")),
    "a persistent id of a number": number(1) + b"Q",
    "a persistent id of a module": tup(text("module"), b"N", b"N", b"N", b"N") + b"Q",
    "a storage type that is a dtype": tup(text("storage"), named("torch float32"), text("a"), text("cpu"), number(1)) + b"Q",
    "nothing on the stack": b"R", "a tuple of nothing": b"\x86", "no mark": b"t", "memo that is empty": b"h\7",
    "a text that ends early": b"X\xff\xff\xff\xff", "a text of negative length": b"\x8d" + b"\xff" * 8,
    "a text that is no UTF-8": b"X\1\0\0\0\xff", "a number of megabytes": b"\x8b\xff\xff\xff\x7f", "append to a tuple": b")Na",
    "odd items": b"}(K\1u", "a list as a key": b"}]Ns", "protocol 200": b"\x80\xc8N",
}  # fmt: skip


@pytest.mark.parametrize("body", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_wrong_arguments_are_refused(body: bytes) -> None:
    with pytest.raises(REFUSED, match="<BytesIO>"):
        load(body, a=bytes(8))


def test_what_is_right_loads() -> None:
    """The same words with sound arguments: the refusals above are not for a slip of the pen."""
    assert load(tensor(), a=struct.pack("<ff", 1, 2)).tolist() == [1, 2]
    assert load(tensor(size=sizes(2, 0), stride=sizes(1, 1), offset=9), a=bytes(8)).shape == (2, 0)
    assert load(tensor(size=sizes(2**40), stride=sizes(0)), a=bytes(8)).shape == (2**40,)
    assert load(call(LAYOUT, text("torch.strided"))) is mt.strided
    assert load(call("builtins bytearray", text("abc"), text("latin-1"))) == b"abc"
    assert load(call("collections OrderedDict", b"](" + sizes(1, 2) + b"e")) == {1: 2}
    made = load(call("torch._utils _rebuild_parameter_with_state", tensor(), b"\x88", b"N", pairs(note=b"K\1")), a=bytes(8))
    assert type(made) is mt.nn.Parameter and made.note == 1
    made = load(call(FROM_TYPE, named("torch._utils _rebuild_tensor"), named("torch Tensor"),
                     tup(stored(), number(0), sizes(2), sizes(1)), pairs(note=b"K\2")), a=bytes(8))  # fmt: skip
    assert type(made) is mt.Tensor and made.note == 2


class Kind(mt.Tensor):
    """A subclass that a user may allow."""


class Fragile:
    """A class whose state a damaged file lacks."""

    def __setstate__(self, state: dict) -> None:
        self.value = state["value"]


def test_what_the_user_allows() -> None:
    file = io.BytesIO()
    made = mt.ones(2).as_subclass(Kind)
    made.note = "x"
    mt.save(made, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        mt.load(file)
    file.seek(0)
    with mt.serialization.safe_globals([Kind]):
        assert type(loaded := mt.load(file)) is Kind and loaded.note == "x"
    file = io.BytesIO()
    mt.save([mt.nn.Linear(2, 3), frozenset([1])], file)
    file.seek(0)
    with mt.serialization.safe_globals([mt.nn.Linear, frozenset]):  # named as torch's and as Python 2's in the file
        model, plain = mt.load(file)
        assert model(mt.ones(1, 2)).shape == (1, 3) and plain == {1}
    name = f"{Fragile.__module__} Fragile"
    with mt.serialization.safe_globals([Fragile, (os.getpid, "os.getpid")]):
        assert load(named(name) + b")\x81" + pairs(value=b"K\7") + b"b").value == 7
        with pytest.raises(pickle.UnpicklingError, match="KeyError"):
            load(named(name) + b")\x81" + pairs(x=b"K\7") + b"b")
        with pytest.raises(pickle.UnpicklingError, match="blocked"):
            load(call("os getpid"))


# ---- memory and time -----------------------------------------------------------------------------

LIMIT = 200 << 20


def deflated(inflated: str) -> bytes:
    """A file of some 65 kB with a record that inflates to 64 MB."""
    records = {"data.pkl": b"\x80\2" + tensor() + b".", "data/a": bytes(8), inflated: b"0" * (64 << 20)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, data in records.items():
            made.writestr(f"archive/{name}", data, zipfile.ZIP_DEFLATED if name == inflated else zipfile.ZIP_STORED)
    return file.getvalue()


def tuples_of_hash(wanted: int, n: int) -> list[tuple[int, int]]:
    """Pairs of ints with the same hash: CPython's hash of tuples (xxHash without a key) can be computed backwards."""
    whole, first, second, fifth = 1 << 64, 11400714785074694791, 14029467366897019727, 2870177450012600261
    rotated = lambda x, by: ((x << by) | (x >> (64 - by))) % whole
    end = (wanted - (2 ^ (fifth ^ 3527539))) * pow(first, -1, whole) % whole
    found: list[tuple[int, int]] = []
    a = 0
    while len(found) < n:
        a += 1
        lane = (rotated(end, 33) - rotated((fifth + a * second) % whole, 31) * first) * pow(second, -1, whole) % whole
        if lane < (1 << 61) - 1:
            found.append((a, lane))
    assert {hash(pair) for pair in found} == {wanted}
    return found


def bombs() -> dict[str, bytes]:
    """Small files that want much memory, much time or a deep stack."""
    again = lambda what, n: b"(" + what * n + b"t"
    bytearrays = text("x" * 100_000) + b"q\0" + b"0" + again(call("builtins bytearray", b"h\0", text("latin-1")), 20_000)
    names = b"}(" + b"".join(text(str(k)) + b"N" for k in range(3_000)) + b"u" + b"q\0" + b"0"
    colliding = [number(k * ((1 << 61) - 1)) for k in range(1, 30_000)]
    covered = b"".join(number(a) + number(b) + b"\x86N" for a, b in tuples_of_hash(1 << 40, 28_000))
    equal = b"".join(text("x" * 400_000) + b"\x85q" + bytes([i]) + b"0" for i in range(2))
    parameter = call("torch._utils _rebuild_parameter_with_state", tensor(), b"\x89", b"N", tup(b"h\0", b"N"))
    pickles = {
        "the same bytes again": bytearrays,
        "the same attributes again": names + again(call("collections OrderedDict") + b"h\0b", 30_000),
        "a key of 2^60 parts": b"}Nq\0" + b"0" + (b"h\0h\0\x86q\0" + b"0") * 60 + b"h\0Ns",
        "a key 200,000 deep": b"}N" + b"\x85" * 200_000 + b"Ns",
        "keys of one hash": b"}(" + b"".join(key + b"N" for key in colliding) + b"u",
        "tuples of one hash, which is an int's as well":
            b"}(" + number((1 << 40) + 4 * ((1 << 61) - 1)) + b"N" + covered + b"u",
        "equal long texts in tuples": equal + b"}(h\0N" + b"h\1N" * 50_000 + b"u",
        "the same attributes of a parameter again": names + again(parameter, 3_000),
        "a set of keys of one hash": call("builtins set", b"](" + b"".join(colliding) + b"e"),
    }
    files = {name: archive(body, a=bytes(8)).getvalue() for name, body in pickles.items()}
    files |= {"an inflated storage": deflated("data/a"), "an inflated pickle": deflated("data.pkl")}
    files["legacy storage"] = legacy_file(b"\x80\2" + stored(key="0", count=2**60) + b".", [(2**60, b"")])
    files["legacy text"] = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"\x80\2X\xff\xff\xff\xff"
    return files


def load_bombs(files: dict[str, bytes]) -> None:
    """In a child: every file is refused in little memory and some seconds of CPU; never returns."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT, used + LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    for name, data in files.items():
        try:
            mt.load(io.BytesIO(data))
            print("loaded", name, flush=True)
        except Exception as error:
            if type(error) not in REFUSED:
                print(name, type(error), error, flush=True)
    mt.load(archive(b"]" * 100_000 + b"a" * 99_999))  # deep, but neither large nor slow
    print("done", flush=True)
    os._exit(0)


def test_memory_and_time_are_bounded_by_the_file(capfd: pytest.CaptureFixture) -> None:
    files = bombs()
    assert max(map(len, files.values())) < 3 << 20
    child = os.fork()
    if not child:
        try:
            load_bombs(files)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert (capfd.readouterr().out, status) == ("done\n", 0)


# ---- damaged archives ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus()


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_a_file_cut_anywhere_is_refused_by_name(corpus: Corpus, kind: str, weights_only: bool, tmp_path: Path) -> None:
    whole = zipped(corpus.records) if kind == "zip" else corpus.legacy
    assert mt.load(io.BytesIO(whole), weights_only=weights_only)
    for n in range(1, len(whole), 7):
        with pytest.raises(REFUSED, match="<BytesIO>") as caught:
            mt.load(io.BytesIO(whole[:n]), weights_only=weights_only)
        assert caught.type in REFUSED
    path = tmp_path / "cut.pt"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(REFUSED, match="cut.pt"):
        mt.load(path, weights_only=weights_only)


def test_a_damaged_pickle_of_a_trusted_file(corpus: Corpus) -> None:
    for n in range(0, len(corpus.pickles[0]), 11):
        file = io.BytesIO(zipped({**corpus.records, "data.pkl": corpus.pickles[0][:n]}))
        with pytest.raises(pickle.UnpicklingError, match="data.pkl, byte"):
            mt.load(file, weights_only=False)

    with pytest.raises(ModuleNotFoundError):  # not damage: the module is missing here
        mt.load(archive(named("no_such_module f")), weights_only=False)


def patched(data: bytes, at: int, form: str, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, *values)
    return bytes(out)


def test_archives_that_lie(tmp_path: Path) -> None:
    body = b"\x80\2" + tensor() + b"."
    good = zipped({"data.pkl": body, "data/a": bytes(8)})
    first = good.index(b"PK\1\2")
    second = good.index(b"PK\1\2", first + 4)
    end = good.index(b"PK\5\6")
    assert mt.load(io.BytesIO(good)).shape == (2,)
    lies = {
        "size beyond the file": patched(good, second + 20, "<II", 10**9, 10**9),
        "compressed": patched(good, second + 10, "<H", 8),
        "other sizes packed": patched(good, second + 20, "<I", 3),
        "encrypted": patched(good, second + 8, "<H", 1),
        "both records in one place": patched(good, second + 42, "<I", 0),
        "header outside": patched(good, second + 42, "<I", 2**31),
        "header inside of data": patched(good, second + 42, "<I", 40),
        "zip64 without a field": patched(good, second + 20, "<II", 2**32 - 1, 2**32 - 1),
        "zip64 without a locator": patched(good, end + 8, "<HH", 65535, 65535),
        "more records": patched(good, end + 8, "<HH", 9, 9),
        "directory outside": patched(good, end + 16, "<I", 2**31),
        "directory too large": patched(good, end + 12, "<I", 2**31),
        "a comment that is not there": patched(good, end + 20, "<H", 9),
        "another name in the record": good.replace(b"archive/data/a", b"archive/data/b", 1),
        "a record twice": zipped({"data.pkl": body, "data/a": bytes(8), "data/b": bytes(8)}).replace(b"data/b", b"data/a"),
        "no records": b"PK\3\4" + zipped({}),
        "an unknown version": zipped({"data.pkl": body, "data/a": bytes(8), "version": b"99\n"}),
        "an unknown byte order": zipped({"data.pkl": body, "data/a": bytes(8), "byteorder": b"middle"}),
        "TorchScript": zipped({"data.pkl": body, "constants.pkl": body}),
        "no pickle": zipped({"data/a": bytes(8)}),
    }
    path = tmp_path / "lie.pt"
    for name, data in lies.items():
        with pytest.raises(RuntimeError, match="BytesIO") as caught:
            mt.load(io.BytesIO(data))
        assert caught.type is RuntimeError, name
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match="lie.pt"):
            mt.load(path, mmap=True)


def test_another_byte_order_and_zip64() -> None:
    swapped = {"data.pkl": b"\x80\2" + tensor() + b".", "data/a": struct.pack(">ff", 1, 2), "byteorder": b"big"}
    assert mt.load(io.BytesIO(zipped(swapped))).tolist() == [1, 2]
    records = {"data.pkl": b"\x80\2" + tensor() + b".", "data/a": struct.pack("<ff", 1, 2), "version": b"3\n", "byteorder": b"little"}
    for xp in (mt, torch):
        assert xp.load(io.BytesIO(zipped64(records))).tolist() == [1, 2]


# ---- what must go on working ---------------------------------------------------------------------


def test_map_location_is_called_with_a_storage_and_its_place(corpus: Corpus) -> None:
    for data in (corpus.zips[0], corpus.legacy):
        seen = []
        mt.load(io.BytesIO(data), map_location=lambda s, place: seen.append((type(s), place)))
        assert seen and set(seen) == {(mt.UntypedStorage, "cpu")}


@pytest.mark.parametrize("weights_only", [True, False])
def test_legacy_files_of_pytorch(weights_only: bool) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    file = io.BytesIO()
    torch.save({"a": base, "b": base.t(), "i": torch.arange(3)}, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    loaded = mt.load(file, weights_only=weights_only)
    assert loaded["a"].tolist() == base.tolist() and loaded["i"].tolist() == [0, 1, 2]
    loaded["a"][0, 1] = 7.0
    assert loaded["b"][1, 0].item() == 7.0
    with gzip.open(io.BytesIO(gzip.compress(file.getvalue()))) as packed:
        assert mt.load(packed, weights_only=weights_only)["i"].tolist() == [0, 1, 2]
    file.seek(0)
    broken = file.read()[:-24] + bytes(range(1, 25))  # storages are not what the object says
    with pytest.raises(REFUSED):
        mt.load(io.BytesIO(broken[:-8]), weights_only=weights_only)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("reader", [mt, torch], ids=["here", "torch"])
def test_storages_alone(reader: Any) -> None:
    file = io.BytesIO()
    mt.save([mt.arange(3.0).storage(), mt.arange(2).untyped_storage()], file)
    file.seek(0)
    typed, untyped = reader.load(file)
    assert typed.tolist() == [0, 1, 2] and typed.dtype is reader.float32 and untyped.nbytes() == 16


def test_environment_forces_weights_only(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    mt.save(Fragile, file)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        mt.load(file, weights_only=False)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="Only one of"):
        mt.load(file)
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    file.seek(0)
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert mt.load(file) is Fragile


def test_everything_that_can_be_saved_loads_again() -> None:
    file = io.BytesIO()
    mt.save(object_to_save(), file)
    file.seek(0)
    loaded = mt.load(file)
    assert loaded["state"]._metadata == {"": {"version": 1}} and loaded["torch"][-1].note == "attribute"


@pytest.mark.parametrize("count", [-5, 10**9])
def test_a_file_object_that_counts_wrongly(count: int) -> None:
    class Lying(io.BytesIO):
        def readinto(self, view: Any) -> int:
            return count

    saved = io.BytesIO()
    mt.save(mt.ones(1000), saved)
    with pytest.raises(RuntimeError, match="the file gave"):
        mt.load(Lying(saved.getvalue()))
