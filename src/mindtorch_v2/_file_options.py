"""What torch.serialization lets a program choose and ask: byte order, mapping, places of storages, names in a file."""
from __future__ import annotations

import contextlib
import difflib
import inspect
import io
import mmap
import pickletools
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import mindtorch_v2 as torch

from ._unpickling import is_known, name_today


class SourceChangeWarning(Warning):
    """What torch.load warns with where the source of a saved module's class has changed."""


class LoadEndianness(Enum):
    """The byte order of a file that does not say it."""
    NATIVE, LITTLE, BIG = 1, 2, 3


def _config() -> Any:
    return torch.utils.serialization.config


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order that torch.load takes for a file without one; None: this host's."""
    return _config().load.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets it."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _config().load.endianness = endianness


def get_crc32_options() -> bool:
    """Whether torch.save was told to write checksums; it always does."""
    return _config().save.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Says whether torch.save should write checksums."""
    _config().save.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int | None:
    """The flags with which torch.load(mmap=True) maps a file."""
    return _config().load.mmap_flags


class set_default_mmap_options:
    """Sets those flags, MAP_PRIVATE or MAP_SHARED; as a with block for its length."""

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError("Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                             f"mmap.MAP_SHARED, but got {flags}")
        self.prev = _config().load.mmap_flags
        _config().load.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        _config().load.mmap_flags = self.prev


class _Skipping(threading.local):
    skip, materialize = False, False


skipping = _Skipping()


class skip_data:
    """A with block in which torch.save leaves room for the bytes of storages, and torch.load does not read them."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = skipping.skip, skipping.materialize
        skipping.skip, skipping.materialize = True, self.materialize_fake_tensors

    def __exit__(self, *exc: Any) -> None:
        skipping.skip, skipping.materialize = self._before


# ---- places of storages -------------------------------------------------------------------------------------------------
_BUILT_IN = 10      # the priority of the places that this package knows
_package_registry: list[tuple[int, Callable[..., Any], Callable[..., Any]]] = []


def register_package(priority: int, tagger: Callable[[Any], str | None], deserializer: Callable[[Any, str], Any]) -> None:
    """Functions that name the place of a storage in a file, and bring one there; those of a low number are asked first."""
    _package_registry.append((priority, tagger, deserializer))
    _package_registry.sort(key=lambda entry: entry[0])


def registered_tag(storage: Any, first: bool) -> str | None:
    """The name that a registered function has for the place of a storage; first: those before the built-in places."""
    for priority, tagger, _ in _package_registry:
        tag = tagger(storage) if (priority < _BUILT_IN) == first else None
        if tag is not None:
            return tag
    return None


def registered_place(storage: Any, location: str, first: bool) -> Any:
    """A storage where a registered function brings it, or None."""
    for priority, _, deserializer in _package_registry:
        found = deserializer(storage, location) if (priority < _BUILT_IN) == first else None
        if found is not None:
            return found
    return None


# ---- sources of modules, in the format from before 1.6 --------------------------------------------------------------------
def source_of(kind: type) -> tuple[str | None, str | None]:
    """The file and the text in which a class of modules is written; None where that is not to be found, and of those of this
    package, which are written otherwise in PyTorch."""
    if kind.__module__.partition(".")[0] == torch.__name__:
        return None, None
    try:
        return inspect.getsourcefile(kind), "".join(inspect.getsourcelines(kind)[0])
    except (OSError, TypeError):
        warnings.warn(f"Couldn't retrieve source code for container of type {kind.__name__}. It won't be checked for correctness "
                      "upon loading.", stacklevel=2)
        return None, None


def compare_source(kind: type, file: str, source: str) -> None:
    """Warns where a class is not written as it was when its module was saved; with Module.dump_patches the difference is kept."""
    if kind.__module__.partition(".")[0] == torch.__name__:
        return
    try:
        now = "".join(inspect.getsourcelines(kind)[0])
    except (OSError, TypeError):
        return
    if now == source:
        return
    what = ("you can retrieve the original source code by accessing the object's source attribute or set "
            "`torch.nn.Module.dump_patches = True` and use the patch tool to revert the changes.")
    if torch.nn.Module.dump_patches:
        name = kind.__name__ + ".patch"
        lines = difflib.unified_diff(now.split("\n"), source.split("\n"), file, file, lineterm="")
        with open(name, "a+", encoding="utf-8") as patch:
            patch.write("\n".join(lines))
        what = f"Saved a reverse patch to {name}. Run `patch -p0 < {name}` to revert your changes."
    full = f"{kind.__module__}.{kind.__qualname__}"
    warnings.warn(f"source code of class '{full}' has changed. {what}", SourceChangeWarning, stacklevel=2)


# ---- questions ------------------------------------------------------------------------------------------------------------
def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple, error_if_malformed: bool = True) -> bool:
    """Whether a module has a version or a newer one; one that cannot be read counts as new where that is no error."""
    try:
        found = tuple(type(wanted)(part) for part, wanted in zip(module.__version__.split("."), req_version_tuple))
        return found >= req_version_tuple
    except Exception as error:      # a version may be any text, of any type
        message = f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be compared with " \
                  f"tuple {str(req_version_tuple)}"
        if error_if_malformed:
            raise RuntimeError(message) from error
        warnings.warn(message + ", but continuing assuming that requirement is met", stacklevel=2)
        return True


@contextlib.contextmanager
def mkdtemp() -> Iterator[str]:
    """A with block with a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as path:
        yield path


def storage_to_tensor_type(storage: Any) -> Any:
    """The class of tensors that torch has for a class of storages."""
    return getattr(torch, type(storage).__name__.replace("Storage", "Tensor"))


def normalize_storage_type(storage_type: type) -> type:
    """The class of storages that torch has under the name of one."""
    return getattr(torch, storage_type.__name__)


def _is_zipfile(f: Any) -> bool:
    """Whether a file begins as a zip archive does; its place stays."""
    begin = f.tell()
    head = f.read(4)
    f.seek(begin)
    return head == b"PK\x03\x04"


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file that torch.load(weights_only=True) refuses."""
    opened: Any = open(f, "rb") if not hasattr(f, "read") else f
    try:
        if not _is_zipfile(opened):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        with zipfile.ZipFile(opened) as archive:
            names = archive.namelist()
            if any(name.endswith("/constants.pkl") for name in names):
                raise ValueError("Expected input to be a checkpoint returned by torch.save but got a torchscript checkpoint")
            body = archive.read(next(name for name in names if name.endswith("/data.pkl")))
    finally:
        if opened is not f:
            opened.close()
    return sorted({name for name in _globals(body) if not is_known(name)})


def _globals(body: bytes) -> list[str]:
    """The full names of what a pickle looks up."""
    found: list[str] = []
    texts: list[str] = []
    for opcode, value, _ in pickletools.genops(io.BytesIO(body)):
        if opcode.name == "GLOBAL":
            module, _, name = value.partition(" ")       # type: ignore[union-attr]
            found.append(".".join(name_today(module, name)))
        elif opcode.name == "STACK_GLOBAL":
            found.append(".".join(name_today(*texts[-2:])))
        elif isinstance(value, str):
            texts.append(value)
    return found
