"""torch.utils._cpp_extension_versioner: how often the sources of an extension have changed in a process."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """The version of an extension, and a hash of what it was built from."""

    version: int
    hash: int


def update_hash(seed: int, value: Any) -> int:
    """A hash of one more value; a program that runs again gets the same only for values that hash alike."""
    return hash((seed, value))


def hash_source_files(hash_value: int, source_files: Iterable[str]) -> int:
    """The contents of files."""
    for name in source_files:
        with open(name) as file:
            hash_value = update_hash(hash_value, file.read())
    return hash_value


def hash_build_arguments(hash_value: int, build_arguments: Iterable[Iterable[Any]]) -> int:
    """Arguments of a compiler."""
    for group in build_arguments:
        for argument in group or ():
            hash_value = update_hash(hash_value, argument)
    return hash_value


class ExtensionVersioner:
    """Versions by name: 0 at first, one more at each change."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def get_version(self, name: str) -> int | None:
        """The version, None of what was never built."""
        entry = self.entries.get(name)
        return None if entry is None else entry.version

    def bump_version_if_changed(self, name: str, source_files: Iterable[str], build_arguments: Any, build_directory: Any,
                                with_cuda: Any, with_sycl: Any, is_python_module: Any, is_standalone: Any) -> int:
        """The version for these sources and arguments."""
        found = hash_build_arguments(hash_source_files(0, source_files), build_arguments)
        for value in (build_directory, with_cuda, with_sycl, is_python_module, is_standalone):
            found = update_hash(found, value)
        entry = self.entries.get(name)
        if entry is None or entry.hash != found:
            self.entries[name] = entry = Entry(0 if entry is None else entry.version + 1, found)
        return entry.version
