"""Reads what an ELF64 library exports, needs and calls itself; no tool beyond Python is wanted for it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

DYNAMIC, DYNSYM = 6, 11  # sh_type
NEEDED, SONAME = 1, 14  # d_tag
EH_FRAME = 0x6474E550  # p_type: where unwinders find the frames


class Library(NamedTuple):
    soname: str
    needed: list[str]
    exported: set[str]
    undefined: set[str]
    segments: set[int]  # p_type


def read(path: Path) -> Library:
    data = path.read_bytes()
    assert data[:5] == b"\x7fELF\x02", f"{path} is no 64-bit ELF file"
    offset, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]

    def text(strings: int, at: int) -> str:
        begin = sections[strings][4] + at
        return data[begin : data.index(b"\0", begin)].decode()

    soname, needed, exported, undefined = "", [], set(), set()
    for _, kind, _, _, at, length, link, *_ in sections:
        if kind == DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", data[at : at + length]):
                if tag == NEEDED:
                    needed.append(text(link, value))
                elif tag == SONAME:
                    soname = text(link, value)
        elif kind == DYNSYM:
            for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[at : at + length]):
                if name and info >> 4 in (1, 2):  # global, weak
                    (exported if section else undefined).add(text(link, name))
    at, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    segments = {struct.unpack_from("<I", data, at + i * size)[0] for i in range(count)}
    return Library(soname, needed, exported, undefined, segments)
