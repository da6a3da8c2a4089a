"""Hostile files for torch.load, made from a random generator: damaged real ones, and pickles made to attack."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections import OrderedDict
from random import Random
from typing import Any

import mindtorch_v2 as mt

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
INTS = [0, 1, 2, 3, 4, 7, 24, 64, 255, 256, 65535, 10**6, 2**31 - 1, 2**31, 2**32, 10**12, 2**40, 2**60, 2**62]
INTS += [2**63 - 1, 2**63, 2**64, 2**64 - 1, -1, -2, -8, -(2**31), -(2**63), -(2**64), 2**1000, -(2**900)]
TEXTS = ["", "a", "0", "1", "storage", "cpu", "npu:0", "npu:99", "cuda:0", "meta", "latin1", "latin-1", "utf-8", "rot13",
         "zlib", "unicode_escape", "torch.strided", "torch.sparse_coo", "torch.sparse_csr", "torch.import_module", "import_module", "__class__", "__dict__", "data",
         "grad", "shape", "_metadata", "items", "__reduce__", "__setstate__", "x.y", "../../etc/passwd", "data.pkl", "version",
         "\ud800", "\x00", "é", "a" * 300, "requires_grad", "conj", "neg", "_backward_hooks"]  # fmt: skip
STORAGES = ["FloatStorage", "DoubleStorage", "LongStorage", "ByteStorage", "BoolStorage", "ComplexFloatStorage", "HalfStorage",
            "UntypedStorage"]  # fmt: skip
FUNCTIONS = [
    "torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state",
    "torch._utils _rebuild_meta_tensor_no_storage", "torch._utils _rebuild_sparse_tensor", "torch._tensor _rebuild_from_type_v2",
    "torch._utils _rebuild_wrapper_subclass",
    "torch.serialization _get_layout", "torch.nn.parameter Parameter", "torch Size", "torch Tensor", "torch device",
    "collections OrderedDict", "collections Counter", "_codecs encode", "__builtin__ bytearray", "__builtin__ set",
    "__builtin__ complex", "builtins bytearray", "builtins set", "builtins complex", "torch float32", "torch int64",
]  # fmt: skip
FORBIDDEN = [
    "os system", "posix system", "subprocess Popen", "builtins eval", "builtins exec", "builtins getattr", "builtins open",
    "importlib import_module", "torch import_module", "torch load", "torch.serialization load", "torch nn", "sys modules",
    "torch._utils __builtins__", "torch ops", "torch.hub load", "operator attrgetter", "functools partial", "nt system",
    "torch.nn.parameter Parameter.__init__", "torch Tensor.__class__", "collections OrderedDict.__dict__", "torch  ", " ",
    "torch.jit load", "torch.storage _load_from_bytes", "torch._utils _import_dotted_name", "runpy run_path",
]  # fmt: skip
ALLOWED = ["hostile_files Plain", "hostile_files Stateful"]
OPCODES = [op.code.encode("latin-1") for op in pickletools.opcodes]


class Plain:
    """A class that the user has allowed."""


class Stateful:
    """Another, which reads its own state."""

    def __setstate__(self, state: dict) -> None:
        if type(state) is not dict:
            raise TypeError("expected a dict")
        self.items = [state["a"], *state["items"]]


# ---- files that are well formed ------------------------------------------------------------------


def zipped(records: dict[str, bytes], root: str = "archive") -> bytes:
    """A zip file of uncompressed records, as torch.save writes it but for the alignment."""
    out, directory = [], []
    at = 0
    for name, data in records.items():
        raw = f"{root}/{name}".encode()
        sizes = struct.pack("<III", zlib.crc32(data), len(data), len(data))
        out += [b"PK\3\4\x14\0\0\0\0\0\0\0\0\0", sizes, struct.pack("<HH", len(raw), 0), raw, data]
        directory.append(b"PK\1\2\x14\0\x14\0\0\0\0\0\0\0\0\0" + sizes + struct.pack("<HHHHHII", len(raw), 0, 0, 0, 0, 0, at)
                         + raw)
        at += 30 + len(raw) + len(data)
    rows = b"".join(directory)
    end = b"PK\5\6\0\0\0\0" + struct.pack("<HHIIH", len(records), len(records), len(rows), at, 0)
    return b"".join(out) + rows + end


def zipped64(records: dict[str, bytes]) -> bytes:
    """The same with every number in the fields of zip64."""
    out, directory, at = [], [], 0
    for name, data in records.items():
        raw = f"archive/{name}".encode()
        head = struct.pack("<III", zlib.crc32(data), 2**32 - 1, 2**32 - 1)
        local = struct.pack("<HHQQ", 1, 16, len(data), len(data))
        out += [b"PK\3\4\x2d\0\0\0\0\0\0\0\0\0", head, struct.pack("<HH", len(raw), 20), raw, local, data]
        extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), at)
        row = struct.pack("<HHHHHII", len(raw), 28, 0, 0, 0, 0, 2**32 - 1)
        directory.append(b"PK\1\2\x2d\0\x2d\0\0\0\0\0\0\0\0\0" + head + row + raw + extra)
        at += 50 + len(raw) + len(data)
    rows, n = b"".join(directory), len(records)
    end = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n, n, len(rows), at)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, at + len(rows), 1)
    return b"".join(out) + rows + end + locator + b"PK\5\6\0\0\0\0" + struct.pack("<HHIIH", 65535, 65535, 2**32 - 1, 2**32 - 1, 0)


def object_to_save() -> dict[str, Any]:
    """Everything that a weights file can hold, small."""
    base = mt.arange(6.0).reshape(2, 3)
    odd = mt.ones(2)
    odd.note = "attribute"
    state = OrderedDict(weight=base, view=base.t()[1:], parameter=mt.nn.Parameter(mt.ones(2)))
    state._metadata = OrderedDict({"": {"version": 1}})  # type: ignore[attr-defined]
    return {
        "state": state,
        "many": [mt.ones(1).to(getattr(mt, d)) for d in ("bool", "int64", "float16", "complex64", "bfloat16")],
        "plain": [{1, 2}, b"xyz", bytearray(b"q"), 1 + 2j, None, 10**20, 1.5, "é", (1, (2, 3)), True],
        "sparse": [base.to_sparse(), base.to_sparse_csr()],
        "torch": [mt.float32, mt.Size([2]), mt.device("cpu"), mt.strided, mt.empty(2, device="meta"), odd],
    }


def legacy_file(body: bytes, storages: list[tuple[int, bytes]]) -> bytes:
    """A file from before PyTorch 1.6 with a pickle and its storages (number of items, bytes)."""
    parts = [pickle.dumps(value, 2) for value in (LEGACY_MAGIC, 1001, {"little_endian": True})]
    parts += [body, pickle.dumps([str(i) for i in range(len(storages))], 2)]
    return b"".join(parts + [struct.pack("<q", count) + data for count, data in storages])


class Corpus:
    """Real files, and the pickle in them as opcodes."""

    def __init__(self) -> None:
        self.zips, self.pickles = [], []
        for protocol in (2, 4):
            file = io.BytesIO()
            mt.save(object_to_save(), file, pickle_protocol=protocol)
            self.zips.append(file.getvalue())
            with zipfile.ZipFile(file) as archive:
                self.records = {n.split("/", 1)[1]: archive.read(n) for n in archive.namelist()}
            self.pickles.append(self.records["data.pkl"])
        file = io.BytesIO()
        mt.save({"a": mt.arange(6.0).reshape(2, 3).t(), "b": mt.ones(3)}, file)
        with zipfile.ZipFile(file) as archive:
            body = archive.read("archive/data.pkl")
        self.zips.append(zipped64(self.records))
        self.storages = [(6, bytes(24)), (3, bytes(12))]
        self.legacy = legacy_file(body, self.storages)
        self.legacy_body = body
        self.opcodes = [opcodes_of(data) for data in (*self.pickles, body)]


def opcodes_of(data: bytes) -> list[bytes]:
    starts = [at for _, _, at in pickletools.genops(data)] + [len(data)]
    return [data[a:b] for a, b in zip(starts, starts[1:])]


# ---- damage --------------------------------------------------------------------------------------


def damaged(data: bytes, r: Random) -> bytes:
    """Bits flipped, numbers overwritten, pieces cut, repeated or moved."""
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 1, 2, 4, 16))):
        if not out:
            break
        at = r.randrange(len(out))
        how = r.randrange(8)
        if how == 0:
            out[at] ^= 1 << r.randrange(8)
        elif how == 1:
            out[at] = r.choice((0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)))
        elif how == 2:
            width = r.choice((2, 4, 8))
            out[at : at + width] = (r.choice(INTS) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif how == 3:
            del out[at:]
        elif how == 4:
            del out[at : at + r.randrange(1, 40)]
        elif how == 5:
            piece = out[at : at + r.randrange(1, 60)]
            out[r.randrange(len(out)) :][:0] = piece
            out[at:at] = piece
        elif how == 6:
            out[at : at + 1] = r.choice(OPCODES)
        else:
            # The end of an archive is where it is described.
            near = max(len(out) - r.randrange(1, 700), 0)
            out[near] = r.randrange(256)
    return bytes(out)


def damaged_opcodes(opcodes: list[bytes], r: Random) -> bytes:
    """Opcodes of a real pickle, some missing, doubled, swapped or others among them."""
    out = list(opcodes)
    for _ in range(r.choice((1, 1, 2, 3, 8))):
        at = r.randrange(len(out))
        how = r.randrange(5)
        if how == 0:
            del out[at]
        elif how == 1:
            out.insert(at, out[r.randrange(len(out))])
        elif how == 2:
            other = r.randrange(len(out))
            out[at], out[other] = out[other], out[at]
        elif how == 3:
            out[at] = value(r, 2)
        else:
            out.insert(at, value(r, 2))
        if not out:
            return b"."
    return b"".join(out)


# ---- pickles made from the grammar ---------------------------------------------------------------


def number(n: int) -> bytes:
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    data = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data if len(data) < 256 else b"\x8b" + struct.pack("<I", len(data)) + data


def text(s: str) -> bytes:
    data = s.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def named(name: str) -> bytes:
    module, _, word = name.partition(" ")
    return b"c" + module.encode() + b"\n" + word.encode() + b"\n"


def several(r: Random, depth: int, limit: int = 5) -> bytes:
    return b"".join(value(r, depth - 1) for _ in range(r.randrange(limit)))


def shape(r: Random) -> bytes:
    return b"(" + b"".join(number(r.choice(INTS if r.random() < 0.3 else (0, 1, 2, 3))) for _ in range(r.randrange(4))) + b"t"


def storage(r: Random) -> bytes:
    """The persistent id of a storage, mostly sound."""
    parts = [text("storage"), named("torch " + r.choice(STORAGES)), text(str(r.randrange(9))), text("cpu"), number(r.randrange(8))]
    if r.random() < 0.3:
        parts[r.randrange(5)] = value(r, 1)
    if r.random() < 0.05:
        parts.append(value(r, 1))
    return b"(" + b"".join(parts) + b"tQ"


ARGUMENTS: dict[str, str] = {  # s storage, n number, g sizes, b bool, o anything, d dtype, t text, v tensor, p pairs
    "torch._utils _rebuild_tensor": "sngg", "torch._utils _rebuild_tensor_v2": "snggbo",
    "torch._utils _rebuild_tensor_v3": "snggbod", "torch._utils _rebuild_parameter": "vbo",
    "torch._utils _rebuild_parameter_with_state": "vboD", "torch._utils _rebuild_meta_tensor_no_storage": "dggb",
    "torch._utils _rebuild_wrapper_subclass": "kdggnoob", "torch._tensor _rebuild_from_type_v2": "fkAD", "torch.serialization _get_layout": "t",
    "torch.nn.parameter Parameter": "vb", "torch Size": "g", "torch device": "tn", "collections OrderedDict": "l",
    "collections Counter": "D", "_codecs encode": "tt", "builtins bytearray": "tt", "builtins set": "l",
    "builtins complex": "oo",
}  # fmt: skip


def argument(kind: str, r: Random, depth: int) -> bytes:
    if r.random() < 0.15:
        return value(r, depth - 1)
    simple = {"s": storage, "g": shape, "n": lambda r: number(r.choice((0, 0, 1, 2, *INTS))),
              "b": lambda r: r.choice((b"\x88", b"\x89")), "t": lambda r: text(r.choice(TEXTS)),
              "d": lambda r: named("torch " + r.choice(("float32", "int64", "complex64")))}  # fmt: skip
    if kind in simple:
        return simple[kind](r)
    if kind == "v":
        return call("torch._utils _rebuild_tensor_v2", r, depth - 1)
    if kind == "f":
        return named(r.choice(FUNCTIONS))
    if kind == "k":
        return named(r.choice(("torch Tensor", "torch.nn.parameter Parameter", "collections OrderedDict", "torch Size")))
    if kind == "A":
        return b"(" + b"".join(argument(k, r, depth - 1) for k in "snggbo") + b"t"
    if kind == "D":
        pairs = b"".join(text(r.choice(TEXTS)) + value(r, depth - 1) for _ in range(r.randrange(3)))
        return b"}(" + pairs + b"u"
    return b"](" + several(r, depth) + b"e" if kind == "l" else value(r, depth - 1)


def call(name: str, r: Random, depth: int) -> bytes:
    if depth <= 0:
        return named(name)
    kinds = ARGUMENTS.get(name, "oo")
    args = b"".join(argument(kind, r, depth) for kind in kinds[: r.choice((len(kinds), len(kinds), r.randrange(8)))])
    return named(name) + b"(" + args + b"t" + r.choice((b"R", b"R", b"R", b"\x81"))


def value(r: Random, depth: int) -> bytes:
    """Opcodes that push something, or mean to."""
    how = r.randrange(20 if depth > 0 else 8)
    if how < 2:
        return number(r.choice(INTS))
    if how == 2:
        return text(r.choice(TEXTS))
    if how == 3:
        return r.choice((b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f", b"G" + r.randbytes(8), b"U\1\xff", b"C\2ab"))
    if how == 4:
        return r.choice((b"h", b"q")) + bytes([r.randrange(8)])
    if how == 5:
        return named(r.choice(FUNCTIONS if r.random() < 0.9 else FORBIDDEN + ALLOWED))
    if how == 6:
        return r.choice(OPCODES) + r.randbytes(r.randrange(5))
    if how == 7:
        return storage(r)
    if how < 12:
        return call(r.choice(FUNCTIONS), r, depth)
    if how == 12:
        return b"(" + several(r, depth) + r.choice((b"t", b"l", b"d", b"\x91", b"1", b"0"))
    if how == 13:
        return b"](" + several(r, depth) + b"e"
    if how == 14:
        return b"}(" + several(r, depth) + r.choice((b"u", b"s", b"e"))
    if how == 15:
        return b"\x8f(" + several(r, depth) + b"\x90"
    if how == 16:  # a state for something
        target = value(r, depth - 1) if r.random() < 0.6 else named(r.choice(ALLOWED)) + b")" + r.choice((b"R", b"\x81"))
        return target + r.choice((argument("D", r, depth), value(r, depth - 1))) + b"b"
    if how == 17:
        return value(r, depth - 1) + b"q" + bytes([r.randrange(8)]) + value(r, depth - 1) + r.choice((b"a", b"s", b"b", b"R", b"Q"))
    if how == 18:  # the same thing again and again
        return value(r, depth - 1) + b"q\0" + (b"h\0" + r.choice((b"\x85", b"\x86", b"a", b"0", b"R"))) * r.choice((2, 5, 40))
    return value(r, depth - 1) + value(r, depth - 1) + r.choice((b"\x86", b"\x93", b"\x81", b"R"))


def generated(r: Random) -> bytes:
    return r.choice((b"\x80\2", b"\x80\4", b"")) + value(r, r.choice((2, 3, 4))) + b"."


# ---- one of all ----------------------------------------------------------------------------------


def hostile_file(corpus: Corpus, seed: int, index: int) -> bytes:
    """File number `index` of a seed."""
    r = Random(seed * 1_000_003 + index)
    how = r.randrange(16)
    if how < 4:
        return damaged(r.choice(corpus.zips), r)
    if how < 6:
        return zipped({**corpus.records, "data.pkl": damaged(r.choice(corpus.pickles), r)})
    if how < 8:
        return zipped({**corpus.records, "data.pkl": damaged_opcodes(r.choice(corpus.opcodes), r)})
    if how < 12:
        return zipped({**corpus.records, "data.pkl": generated(r)})
    if how == 12:
        record = r.choice(("byteorder", "version", ".format_version", "data/0", "constants.pkl", ".data/version"))
        return zipped({**corpus.records, record: r.choice((b"", b"big", b"little", b"3\n", b"99", b"\xff", r.randbytes(9)))})
    if how == 13:
        return damaged(corpus.legacy, r)
    body = generated(r) if how == 14 else damaged_opcodes(corpus.opcodes[-1], r)
    storages = [(r.choice((count, *INTS)) % 2**62, data) if r.random() < 0.2 else (count, data) for count, data in corpus.storages]
    return legacy_file(body, storages)
