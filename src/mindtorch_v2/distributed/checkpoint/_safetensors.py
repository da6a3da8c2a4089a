"""The safetensors format: a file of tensors behind a header of JSON, read and written without the package of that name."""
from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import mindtorch_v2 as torch

_serialization = torch.serialization              # brings the modules beside it
SUFFIX = ".safetensors"
EXTRA = "__metadata__"                            # the key of a header that names no tensor
_MOST_HEADER = 100_000_000                        # bytes, as the format's own library takes
_DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16",
           "I32": "int32", "U32": "uint32", "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64",
           "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64"}
DTYPES = {code: getattr(torch, name) for code, name in _DTYPES.items()}
CODES = {dtype: code for code, dtype in DTYPES.items()}


class Entry(NamedTuple):
    """A tensor of a file."""
    dtype: Any
    shape: tuple[int, ...]
    begin: int                                    # in the file


class Header(NamedTuple):
    """What a file says of itself."""
    path: Path
    tensors: dict[str, Entry]
    extra: dict[str, str]


def read_header(path: Path) -> Header:
    """Checked: every tensor lies within the file."""
    with open(path, "rb") as file:
        total = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if total < 8 or length > min(_MOST_HEADER, total - 8):
            raise ValueError(f"{path} is no file of safetensors: a header of {length} bytes in a file of {total}")
        try:
            said = json.loads(file.read(length))
        except ValueError as error:
            raise ValueError(f"{path} is no file of safetensors: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"{path} is no file of safetensors: its header is no JSON object")
    tensors = {name: _entry(path, name, entry, 8 + length, total) for name, entry in said.items() if name != EXTRA}
    return Header(path, tensors, said.get(EXTRA) or {})


def _entry(path: Path, name: str, said: Any, data: int, total: int) -> Entry:
    try:
        dtype, shape, (begin, end) = DTYPES[said["dtype"]], tuple(map(int, said["shape"])), said["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {name!r} has a header entry that this library does not read: {said}") from error
    wrong = min((*shape, 0)) < 0 or end - begin != math.prod(shape) * dtype.itemsize or not 0 <= begin <= end <= total - data
    if wrong:
        raise ValueError(f"{path}: {name!r} does not lie in the file: {said}")
    return Entry(dtype, shape, data + begin)


def read_box(file: Any, entry: Entry, offsets: Any, lengths: Any) -> Any:
    """A box of a tensor. Of the rows only those that it needs are read."""
    shape, first = entry.shape, 0
    if shape:
        first, shape = offsets[0], (lengths[0], *entry.shape[1:])
    row = math.prod(entry.shape[1:]) * entry.dtype.itemsize
    file.seek(entry.begin + first * row)
    size = math.prod(shape) * entry.dtype.itemsize
    data = bytearray(file.read(size))
    if len(data) != size:
        raise EOFError(f"{file.name} ends within a tensor: {size} bytes at {entry.begin + first * row}")
    whole = torch.frombuffer(data, dtype=entry.dtype).view(shape) if size else torch.empty(shape, dtype=entry.dtype)
    for dim in range(1, len(shape)):
        whole = whole.narrow(dim, offsets[dim], lengths[dim])
    return whole


def write(path: Path, tensors: dict[str, Any], extra: dict[str, str] | None = None, sync: bool = False) -> None:
    """A file that is there with all its bytes, or as it was. Tensors with wide items come first, so that all are aligned."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {EXTRA: extra} if extra else {}
    at = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in CODES:
            raise TypeError(f"{name!r} has dtype {tensor.dtype}, which safetensors does not have")
        end = at + tensor.numel() * tensor.dtype.itemsize
        header[name] = {"dtype": CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    said = json.dumps(header, separators=(",", ":")).encode()
    said += b" " * (-len(said) % 8)
    with _serialization.replacing(path) as file:
        file.write(len(said).to_bytes(8, "little") + said)
        for name in names:
            if tensors[name].numel():
                file.write(memoryview(tensors[name].detach().cpu().clone(
                    memory_format=torch.contiguous_format).untyped_storage()))
        if sync:
            file.flush()
            os.fsync(file.fileno())
