"""Replacements of functions and methods while a program is traced, and which functions are to be recorded whole."""
from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.node import map_aggregate
from mindtorch_v2.fx.proxy import Proxy

# (id of a module's globals, name) -> those globals: functions that calls are recorded of.
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []


class _PatchedFn(NamedTuple):
    """A name that has another value for a while: in globals, or of a class."""
    holder: Any
    name: str
    orig: Any
    new: Any
    existed: bool

    def _set(self, value: Any) -> None:
        if isinstance(self.holder, dict):
            self.holder[self.name] = value
        else:
            setattr(self.holder, self.name, value)

    def revert(self) -> None:
        if self.existed:
            self._set(self.orig)
        elif isinstance(self.holder, dict):
            del self.holder[self.name]
        else:
            delattr(self.holder, self.name)

    def patch(self) -> None:
        self._set(self.new)


class _Patcher:
    """A with block whose replacements are taken back at its end."""

    def __init__(self) -> None:
        self.patches_made: list[_PatchedFn] = []
        self.visited: set[int] = set()

    def patch(self, frame_dict: dict[str, Any], name: str, new_fn: Callable[..., Any], deduplicate: bool = True) -> None:
        """Replaces a global."""
        new_fn.__fx_already_patched = deduplicate   # type: ignore[attr-defined]
        existed = name in frame_dict
        orig = frame_dict[name] if existed else getattr(builtins, name)
        if getattr(orig, "__fx_already_patched", False):
            return
        self.patches_made.append(_PatchedFn(frame_dict, name, orig, new_fn, existed))
        frame_dict[name] = new_fn

    def patch_method(self, cls: type, name: str, new_fn: Callable[..., Any], deduplicate: bool = True) -> None:
        """Replaces a method."""
        new_fn.__fx_already_patched = deduplicate   # type: ignore[attr-defined]
        orig = getattr(cls, name)
        if getattr(orig, "__fx_already_patched", False):
            return
        self.patches_made.append(_PatchedFn(cls, name, orig, new_fn, name in vars(cls)))
        setattr(cls, name, new_fn)

    def visit_once(self, thing: object) -> bool:
        """Whether the thing comes here for the first time."""
        first = id(thing) not in self.visited
        self.visited.add(id(thing))
        return first

    def revert_all_patches(self) -> list[_PatchedFn]:
        """Takes all replacements back."""
        for patch in self.patches_made:
            patch.revert()
        return self.patches_made

    def reapply_all_patches(self) -> list[_PatchedFn]:
        """Makes the replacements again."""
        for patch in self.patches_made:
            patch.patch()
        return self.patches_made

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *exc: Any) -> None:
        while self.patches_made:                 # in reverse order, for a name may be replaced twice
            self.patches_made.pop().revert()
        self.visited.clear()


CURRENT_PATCHER: _Patcher | None = None


@contextlib.contextmanager
def _new_patcher() -> Iterator[_Patcher]:
    global CURRENT_PATCHER
    before = CURRENT_PATCHER
    try:
        CURRENT_PATCHER = _Patcher()
        with CURRENT_PATCHER as patcher:
            yield patcher
    finally:
        CURRENT_PATCHER = before


@contextlib.contextmanager
def _maybe_revert_all_patches() -> Iterator[None]:
    """A with block in which functions are what they are outside of tracing."""
    patcher = CURRENT_PATCHER
    if patcher is None:
        yield
        return
    patcher.revert_all_patches()
    try:
        yield
    finally:
        patcher.reapply_all_patches()


def _find_proxy(*objects_to_search: Any) -> Proxy | None:
    """A proxy somewhere in nested containers."""
    found: list[Proxy] = []

    def look(x: Any) -> Any:
        if isinstance(x, Proxy):
            found.append(x)
        return x
    map_aggregate(objects_to_search, look)
    return found[0] if found else None


def _create_wrapped_func(orig_fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, recorded as one call where a proxy is among its arguments."""
    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        recorded = proxy.tracer.create_proxy("call_function", orig_fn, args, kwargs)
        recorded.node.meta["is_wrapped"] = True
        return recorded
    return wrapped


def _create_wrapped_method(cls: type, name: str) -> Callable[..., Any]:
    """The method, recorded as one call where a proxy is among its arguments."""
    orig_fn = getattr(cls, name)

    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        return orig_fn(*args, **kwargs) if proxy is None else proxy.tracer.create_proxy("call_method", name, args, kwargs)
    return wrapped


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    for (_, name), frame_dict in _wrapped_fns_to_patch.copy().items():
        if name not in frame_dict and not hasattr(builtins, name):
            continue                             # named before it is defined, or never
        orig = frame_dict[name] if name in frame_dict else getattr(builtins, name)
        patcher.patch(frame_dict, name, _create_wrapped_func(orig))
    for cls, name in _wrapped_methods_to_patch:
        patcher.patch_method(cls, name, _create_wrapped_method(cls, name))


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: set[int]) -> None:
    """Replaces the functions of the given ids in globals, once for each globals."""
    if not patcher.visit_once(frame_dict):
        return
    for name, value in list(frame_dict.items()):
        if not name.startswith("_") and callable(value) and id(value) in function_ids:
            patcher.patch(frame_dict, name, _create_wrapped_func(value))


@compatibility(is_backward_compatible=True)
def wrap(fn_or_name: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """Records calls of a global function as they are; called at the top of a module, with a name, or as a decorator."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name.__name__ if callable(fn_or_name) else fn_or_name
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[(id(caller.f_globals), name)] = caller.f_globals
    return fn_or_name
