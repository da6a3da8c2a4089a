"""torch.utils.show_pickle: prints what a pickle holds without making any of its objects; `file.pt@*/data.pkl` is a record."""
from __future__ import annotations

import argparse
import fnmatch
import io
import pickle
import pprint
import struct
import sys
import zipfile
from typing import Any, TextIO

_PythonUnpickler: Any = pickle._Unpickler       # what it calls can be replaced


class FakeObject:
    """An object by the name of its class, the arguments and the state that it would get."""

    def __init__(self, module: str, name: str, args: tuple[Any, ...]) -> None:
        self.module, self.name, self.args, self.state = module, name, args, None

    def __repr__(self) -> str:
        state = "" if self.state is None else f"(state={self.state!r})"
        return f"{self.module}.{self.name}{self.args!r}{state}"

    def __setstate__(self, state: Any) -> None:
        self.state = state


class FakeClass:
    """A class or a function by its name."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name, self.__new__ = module, name, self.fake_new     # type: ignore[method-assign, assignment]

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}"

    def __call__(self, *args: Any) -> FakeObject:
        return FakeObject(self.module, self.name, args)

    def fake_new(self, *args: Any) -> FakeObject:
        """What __new__ of the class would make."""
        return FakeObject(self.module, self.name, args[1:])


class _Filled(dict[Any, Any]):
    """A dict that a state can be given to, as an OrderedDict has one."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)


class DumpUnpickler(_PythonUnpickler):
    """Reads a pickle into fake objects."""

    def __init__(self, file: Any, *, catch_invalid_utf8: bool = False, **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self.catch_invalid_utf8 = catch_invalid_utf8

    def find_class(self, module: str, name: str) -> Any:
        return _Filled if (module, name) == ("collections", "OrderedDict") else FakeClass(module, name)

    def persistent_load(self, pid: Any) -> FakeObject:
        return FakeObject("pers", "obj", (pid,))

    dispatch = dict(_PythonUnpickler.dispatch)

    def load_binunicode(self) -> None:
        """A text; with catch_invalid_utf8 one that is not UTF-8 is shown as bytes."""
        (size,) = struct.unpack("<I", self.read(4))
        data = self.read(size)
        try:
            self.append(str(data, "utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            if not self.catch_invalid_utf8:
                raise
            self.append(f"(bytes {data!r})")

    dispatch[pickle.BINUNICODE[0]] = load_binunicode

    @classmethod
    def dump(cls, in_stream: Any, out_stream: TextIO) -> Any:
        """Print a pickle."""
        value = cls(in_stream).load()
        pprint.pprint(value, stream=out_stream)
        return value


def _opened(path: str) -> Any:
    """A file, or after @ the record of an archive that a pattern names."""
    archive, separator, pattern = path.partition("@")
    if path == "-":
        return sys.stdin.buffer
    if not separator:
        return open(path, "rb")
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            if fnmatch.fnmatch(name, pattern):
                return io.BytesIO(file.read(name))
    raise FileNotFoundError(f"Didn't find member of {archive} matching pattern '{pattern}'.")


def main(argv: list[str], output_stream: TextIO | None = None) -> int | None:
    """What the command line says; argv[0] is the program."""
    parser = argparse.ArgumentParser(description="Pretty-print the contents of a pickle.")
    parser.add_argument("file", help="a file, or the records of an archive: file.pt@*/data.pkl")
    with _opened(parser.parse_args(argv[1:]).file) as stream:
        DumpUnpickler.dump(stream, sys.stdout if output_stream is None else output_stream)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv))
