"""Settings of torch.save and torch.load, and a with block that changes them."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from mmap import MAP_PRIVATE
from typing import Any


class load:
    """What torch.load does where its caller says nothing."""
    mmap: bool = False
    endianness: Any = None                     # of a file that does not say it: a LoadEndianness, or None for this host's
    mmap_flags: int | None = MAP_PRIVATE
    calculate_storage_offsets: bool = False    # stored: places of records are read from the file's directory


class save:
    """What torch.save does."""
    compute_crc32: bool = True                 # stored: checksums are always written, so that any reader of zip files is content
    use_pinned_memory_for_d2h: bool = False    # stored
    storage_alignment: int = 64                # of every record's data in the file, so that it can be mapped


@contextlib.contextmanager
def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
    """Set values for the length of a with block: patch("load.mmap", True), or a dict of such names."""
    given = {**(arg1 if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}), **changes}
    places = {}
    for name in given:
        part, _, word = name.partition(".")
        owner = {"load": load, "save": save}.get(part)
        if owner is None or not hasattr(owner, word):
            raise AttributeError(f"torch.utils.serialization.config.{name} does not exist")
        places[name] = owner, word
    before = {name: getattr(*places[name]) for name in given}
    try:
        for name, value in given.items():
            setattr(*places[name], value)
        yield
    finally:
        for name, value in before.items():
            setattr(*places[name], value)
