"""torch.utils.data.datapipes.utils.common: checks of functions that pipes call, files by pattern, streams with an owner."""
from __future__ import annotations

import fnmatch
import functools
import importlib.util
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from io import IOBase
from typing import Any

DILL_AVAILABLE = importlib.util.find_spec("dill") is not None


def validate_input_col(fn: Callable[..., Any], input_col: int | tuple[Any, ...] | list[Any] | None) -> None:
    """Whether a function takes as many items as columns are chosen."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:        # a builtin that does not tell
        return
    count = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    name = fn.__name__ if inspect.isfunction(fn) or inspect.ismethod(fn) else str(getattr(fn, "__name__", type(fn).__name__))
    only_by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if only_by_name:
        raise ValueError(f"The function {name} takes {len(only_by_name)} non-default keyword-only parameters, which is not "
                         "allowed.")
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    if len(positional) < count and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ValueError(f"The function {name} takes {len(positional)} parameters, but {count} are required.")
    if len(needed) > count:
        raise ValueError(f"The function {name} takes {len(needed)} positional parameters, but {count} are required.")


def _is_local_fn(fn: Any) -> bool:
    """Whether a function was made inside another one."""
    if hasattr(fn, "__code__"):
        return "<locals>" in fn.__qualname__
    kind = type(fn)
    return hasattr(kind, "__qualname__") and "<locals>" in kind.__qualname__


def _check_unpickable_fn(fn: Callable[..., Any]) -> None:
    """Warns of a function that pickle does not take."""
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    if isinstance(fn, functools.partial):
        fn = fn.func
    kind = "Local" if _is_local_fn(fn) else "Lambda" if getattr(fn, "__name__", "") == "<lambda>" else None
    if kind and not DILL_AVAILABLE:
        warnings.warn(f"{kind} function is not supported by pickle, please use regular python function or functools.partial "
                      "instead.", stacklevel=3)


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Whether a name fits one of some patterns, or there are none."""
    return not masks or any(fnmatch.fnmatch(name, mask) for mask in ([masks] if isinstance(masks, str) else masks))


def get_file_pathnames_from_root(root: str, masks: str | list[str], recursive: bool = False, abspath: bool = False,
                                 non_deterministic: bool = False) -> Iterator[str]:
    """The files of a folder whose names fit, or the file itself."""
    def fail(error: OSError) -> None:
        warnings.warn(str(error), stacklevel=3)
        raise error
    if os.path.isfile(root):
        if match_masks(root, masks):
            yield os.path.abspath(root) if abspath else root
        return
    for folder, folders, files in os.walk(os.path.abspath(root) if abspath else root, onerror=fail):
        folders.sort()
        names = files if non_deterministic else sorted(files)
        yield from (os.path.join(folder, name) for name in names if match_masks(name, masks))
        if not recursive:
            break


def get_file_binaries_from_pathnames(pathnames: Iterable[str], mode: str, encoding: str | None = None) -> Iterator[tuple[str, Any]]:
    """Paths with their open files."""
    paths = (pathnames,) if isinstance(pathnames, str) else pathnames
    if mode in ("b", "t"):
        mode = "r" + mode
    for path in paths:
        if not isinstance(path, str):
            raise TypeError(f"Expected string type for pathname, but got {type(path)}")
        yield path, StreamWrapper(open(path, mode, encoding=encoding))


def validate_pathname_binary_tuple(data: tuple[str, IOBase]) -> None:
    """Whether an item is a path with a stream."""
    if not isinstance(data, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(data)}")
    if len(data) != 2:
        raise TypeError(f"pathname binary stream tuple length should be 2, but got {len(data)}")
    if not isinstance(data[0], str):
        raise TypeError(f"pathname within the tuple should have string type pathname, but it is type {type(data[0])}")
    if not isinstance(data[1], (IOBase, StreamWrapper)):
        raise TypeError("binary stream within the tuple should have IOBase orits subclasses as type, but it is type "
                        f"{type(data[1])}")


class StreamWrapper:
    """A file that is closed when nobody refers to it any more; an archive that it lies in goes after its last file."""

    session_streams: dict[Any, int] = {}
    debug_unclosed_streams = False

    def __init__(self, file_obj: Any, parent_stream: Any = None, name: str | None = None) -> None:
        self.file_obj, self.parent_stream, self.name = file_obj, parent_stream, name
        self.child_counter, self.closed, self.close_on_last_child = 0, False, False
        if parent_stream is not None:
            if not isinstance(parent_stream, StreamWrapper):
                raise RuntimeError(f"Parent stream should be StreamWrapper, {type(parent_stream)} was given")
            parent_stream.child_counter += 1
        if StreamWrapper.debug_unclosed_streams:
            StreamWrapper.session_streams[self] = 1

    @classmethod
    def close_streams(cls, v: Any, depth: int = 0) -> None:
        """Close all that a container holds."""
        if depth > 10:
            return
        if isinstance(v, StreamWrapper):
            v.close()
        elif isinstance(v, (dict, list, tuple)):
            for item in v.values() if isinstance(v, dict) else v:
                cls.close_streams(item, depth + 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["file_obj"], name)

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Close the file, and the archive if this was its last one."""
        if self.closed:
            return
        StreamWrapper.session_streams.pop(self, None)
        parent = self.parent_stream
        if parent is not None:
            parent.child_counter -= 1
            if not parent.child_counter and parent.close_on_last_child:
                parent.close()
        try:
            self.file_obj.close(*args, **kwargs)
        except AttributeError:        # not every object that is read has it
            pass
        self.closed = True

    def autoclose(self) -> None:
        """Close at once, or after the last file inside."""
        self.close_on_last_child = True
        if not self.child_counter:
            self.close()

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True):
            self.close()

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(type(self)), *dir(self.file_obj)})

    def __iter__(self) -> Iterator[Any]:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __repr__(self) -> str:
        return f"StreamWrapper<{'' if self.name is None else self.name + ','}{self.file_obj!r}>" if self.name \
            else f"StreamWrapper<{self.file_obj!r}>"

    def __getstate__(self) -> Any:
        return self.file_obj

    def __setstate__(self, state: Any) -> None:
        self.__init__(state)      # type: ignore[misc]
