"""Pages that hold everything they show: one HTML file of a style, two scripts, and the data as compressed columns.

Nothing of the data becomes markup: a script reads it and sets text, and the page may load nothing and connect nowhere.
"""
from __future__ import annotations

import base64
import gzip
import html
import json
import os
import sys
import zlib
from array import array
from typing import IO, Any

FOLDER = os.path.join(os.path.dirname(__file__), "pages")
TYPES = {"d": "Float64Array", "I": "Uint32Array", "H": "Uint16Array", "B": "Uint8Array"}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


class Texts:
    """Each text once; what refers to it has its number."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, text: Any) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Any:
        return iter(self.numbers)


def packed(meta: dict[str, Any], columns: dict[str, array]) -> bytes:
    """One blob: the length of the JSON, the JSON, then the columns, each at a multiple of eight bytes."""
    places, parts, offset = {}, [], 0
    for name, values in columns.items():
        raw = values.tobytes()                    # little-endian, as every host here and every browser
        places[name] = [TYPES[values.typecode], offset, len(values)]
        parts.append(raw + bytes(-len(raw) % 8))
        offset += len(parts[-1])
    text = json.dumps({**meta, "columns": places}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 8)
    return zlib.compress(b"".join([len(text).to_bytes(8, "little"), text, *parts]), 6)


def source(name: str) -> str:
    """A file of the page."""
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def page(kind: str, title: str, meta: dict[str, Any], columns: dict[str, array]) -> str:
    """The whole page of a kind: "memory" or "trace"."""
    data = base64.b64encode(packed({**meta, "title": title}, columns)).decode()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title><style>{source("page.css")}</style></head>
<body class="{kind}">{source(kind + ".html")}
<script type="text/plain" id="data">{data}</script>
<script>{source("page.js")}{source(kind + ".js")}</script></body></html>
"""


def write(path: str, text: str | bytes) -> None:
    """Writes a file atomically and prints its path."""
    raw = text.encode() if isinstance(text, str) else text
    if path.endswith(".gz"):
        raw = gzip.compress(raw, 6)
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(raw)
    os.replace(part, path)
    print(f"{path}: {len(raw):,} bytes")


def step(text: str) -> None:
    """Says what is done next; files of a million events take seconds."""
    print(text, file=sys.stderr, flush=True)


def opened(path: str) -> IO[bytes]:
    """A file to read, unpacked where it is a gzip file."""
    file = open(path, "rb")
    if file.read(2) == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")              # type: ignore[return-value]
    file.seek(0)
    return file
