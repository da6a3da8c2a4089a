"""Streams of files: their names, the open files, their bytes, what they hold."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from mindtorch_v2.utils.data.datapipes._decorator import functional_datapipe
from mindtorch_v2.utils.data.datapipes.datapipe import IterDataPipe
from mindtorch_v2.utils.data.datapipes.utils import common, decoder


class FileLister(IterDataPipe):
    """The files of folders whose names fit a pattern."""

    def __init__(self, root: Any = ".", masks: str | list[str] = "", *, recursive: bool = False, abspath: bool = False,
                 non_deterministic: bool = False, length: int = -1) -> None:
        self.datapipe = root if isinstance(root, IterDataPipe) else [root] if isinstance(root, str) else list(root)
        self.masks, self.recursive, self.abspath, self.non_deterministic = masks, recursive, abspath, non_deterministic
        self.length = length

    def __iter__(self) -> Iterator[str]:
        for folder in self.datapipe:
            yield from common.get_file_pathnames_from_root(folder, self.masks, self.recursive, self.abspath, self.non_deterministic)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


class FileOpener(IterDataPipe):
    """Paths with their open files."""

    def __init__(self, datapipe: Any, mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe, self.mode, self.encoding, self.length = datapipe, mode, encoding, length

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield from common.get_file_binaries_from_pathnames(self.datapipe, self.mode, self.encoding)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("read_from_stream")
class StreamReader(IterDataPipe):
    """Paths with the bytes of their files, in pieces of a length or whole."""

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path, stream in self.datapipe:
            while piece := stream.read(self.chunk):
                yield path, piece


@functional_datapipe("routed_decode")
class RoutedDecoder(IterDataPipe):
    """Paths with what their files hold, by the first handler that knows the extension."""

    def __init__(self, datapipe: Any, *handlers: Callable[..., Any],
                 key_fn: Callable[[str], str] = decoder.extension_extract_fn) -> None:
        self.datapipe = datapipe
        self.decoder = decoder.Decoder(*(handlers or (decoder.basichandlers, decoder.imagehandler("torch"))), key_fn=key_fn)
        warnings.warn("`RoutedDecoderIterDataPipe()` and its functional API `.routed_decode()` are deprecated since 1.12 and will "
                      "be removed in 1.13.\nSee https://github.com/pytorch/data/issues/163 for details.", FutureWarning,
                      stacklevel=2)

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Handlers that are asked after those there are."""
        self.decoder.add_handler(*handler)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for data in self.datapipe:
            common.validate_pathname_binary_tuple(data)
            path = data[0]
            yield path, self.decoder({path: data[1]})[path]

    def __len__(self) -> int:
        return len(self.datapipe)


IterDataPipe.register_datapipe_as_function("list_files", FileLister)
IterDataPipe.register_datapipe_as_function("open_files", FileOpener)
