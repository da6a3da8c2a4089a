"""torch.utils.data.datapipes.utils.decoder: what a file holds, by the end of its name."""
from __future__ import annotations

import io
import json
import os
import pickle
import re
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_TEXT, _NUMBERS = {"txt", "text", "transcript"}, {"cls", "cls2", "class", "count", "index", "inx", "id"}
_IMAGES = "jpg jpeg png ppm pgm pbm pnm".split()
_IMAGE_FORMS = {f"{form}{bits}": (form, bits) for form in ("l", "rgb", "rgba") for bits in ("8", "")} | {
    **{f"torch{form}{bits}": (form, bits) for form in ("l", "rgb") for bits in ("8", "")}, "torchrgb8": ("rgb", "8"),
    **{f"pil{form}": (form, "pil") for form in ("l", "rgb", "rgba")}, "pil": ("", "pil")}
__all__ = ["Decoder", "ImageHandler", "MatHandler", "audiohandler", "basichandlers", "extension_extract_fn", "handle_extension",
           "imagehandler", "mathandler", "videohandler"]


def basichandlers(extension: str, data: Any) -> Any:
    """Text, JSON, numbers, pickles and tensors; None of another extension."""
    if extension in _TEXT:
        return data.decode("utf-8")
    if extension in _NUMBERS:
        try:
            return int(data)
        except ValueError:
            return None
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("pyd", "pickle"):
        return pickle.loads(data)
    if extension == "pt":
        return torch.load(io.BytesIO(data))
    return None


def handle_extension(extensions: str, f: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """A handler that calls a function for some extensions, given in one text."""
    chosen = [extension.lower().split(".") for extension in extensions.lower().split()]

    def handle(extension: str, data: Any) -> Any:
        parts = extension.lower().split(".")
        return f(data) if any(parts[-len(target):] == target for target in chosen) else None
    return handle


class ImageHandler:
    """Images by Pillow, in the form that a word says: pil, rgb8 (NumPy), torchrgb (torch, from 0 to 1) and so on."""

    def __init__(self, imagespec: str) -> None:
        if imagespec.lower() not in _IMAGE_FORMS:
            raise AssertionError(f"unknown image specification: {imagespec.lower()}")
        self.imagespec = imagespec.lower()

    def __call__(self, extension: str, data: Any) -> Any:
        if extension.lower() not in _IMAGES:
            return None
        raise ModuleNotFoundError("Package `PIL` is required to be installed for default image decoder. Please use `pip install "
                                  "Pillow` to install the package")


def imagehandler(imagespec: str) -> ImageHandler:
    """A handler of images."""
    return ImageHandler(imagespec)


def videohandler(extension: str, data: Any) -> Any:
    """Refuses videos: torchvision would read them."""
    if extension not in "mp4 ogv mjpeg avi mov h264 mpg webm wmv".split():
        return None
    raise ModuleNotFoundError("Package `torchvision` is required to be installed for default video file loader.")


def audiohandler(extension: str, data: Any) -> Any:
    """Refuses sounds: torchaudio would read them."""
    if extension not in "flac mp3 sox wav m4a ogg wma".split():
        return None
    raise ModuleNotFoundError("Package `torchaudio` is required to be installed for default audio file loader.")


class MatHandler:
    """Refuses files of MATLAB: SciPy would read them."""

    def __init__(self, **loadmat_kwargs: Any) -> None:
        raise ModuleNotFoundError("Package `scipy` is required to be installed for mat file.")


def mathandler(**loadmat_kwargs: Any) -> MatHandler:
    """A handler of files of MATLAB."""
    return MatHandler(**loadmat_kwargs)


def extension_extract_fn(pathname: str) -> str:
    """The extension without its dot."""
    return os.path.splitext(pathname)[1].removeprefix(".")


class Decoder:
    """Files by handlers: the first that knows an extension decodes."""

    def __init__(self, *handler: Callable[..., Any], key_fn: Callable[[str], str] = extension_extract_fn) -> None:
        self.handlers, self.key_fn = list(handler), key_fn

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Handlers that are asked after those there are."""
        for each in handler:
            if not callable(each):
                raise AssertionError("handler must be callable")
            self.handlers.append(each)

    @staticmethod
    def _is_stream_handle(data: Any) -> bool:
        return isinstance(getattr(data, "file_obj", data), (io.BufferedIOBase, io.RawIOBase))

    def decode1(self, key: str, data: Any) -> Any:
        """What one file holds; its bytes where no handler knows it."""
        if not data:
            return data
        if self._is_stream_handle(data):
            source, data = data, data.read()
            source.close()
        for handle in self.handlers:
            found = handle(key, data)
            if found is not None:
                return found
        return data

    def decode(self, data: dict[str, Any]) -> dict[str, Any]:
        """What several files hold, by path."""
        found = {}
        for path, value in data.items():
            found[path] = value.decode("utf-8") if re.match(r".*__$", path) and isinstance(value, bytes) \
                else self.decode1(self.key_fn(path), value)
        return found

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        return self.decode(data)
