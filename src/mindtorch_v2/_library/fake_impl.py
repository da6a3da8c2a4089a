"""What results of an op look like, as the program says it: functions for tensors without memory, and their context."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch

__all__ = ["FakeImplCtx", "FakeImplHolder", "global_ctx_getter", "set_ctx_getter"]


class _Getter(threading.local):
    get: Callable[[], Any] = staticmethod(lambda: None)


_getter = _Getter()


def global_ctx_getter() -> Any:
    """The context of the function that runs; None outside of one."""
    return _getter.get()


@contextlib.contextmanager
def set_ctx_getter(ctx_getter: Callable[[], Any]) -> Iterator[None]:
    """A with block in which get_ctx() asks a function."""
    before = _getter.get
    _getter.get = ctx_getter
    try:
        yield
    finally:
        _getter.get = before


class FakeImplHolder:
    """Where the function of an op is kept."""

    def __init__(self, qualname: str) -> None:
        self.qualname = qualname
        self.kernels: list[Callable[..., Any]] = []

    @property
    def kernel(self) -> Any:
        """The function that serves: the one that was registered last."""
        return self.kernels[-1] if self.kernels else None

    def register(self, func: Callable[..., Any], allow_override: bool = True) -> Callable[[], None]:
        """Takes a function; what it returns takes the function away again."""
        if self.kernels and not allow_override:
            code = getattr(self.kernels[-1], "__code__", None)
            where = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
            raise RuntimeError(f"register_fake(...): the operator {self.qualname} already has a fake impl "
                               f"registered{where}.")
        run = _with_context(self.qualname, func)
        self.kernels.append(run)
        return lambda: self.kernels.remove(run) if run in self.kernels else None


def _with_context(qualname: str, func: Callable[..., Any]) -> Callable[..., Any]:
    def refuse() -> Any:
        raise RuntimeError(
            f"{qualname}: You're trying to run this operator with meta Tensors (as opposed to FakeTensors), but this "
            "operator may return an output Tensor with data-dependent shape. Meta Tensors don't support operators "
            "with outputs that have data-dependent shapes but FakeTensors do. If your operator does not return an "
            "output with data-dependent shape, make sure the FakeTensor and/or meta kernel does not call "
            "torch.library.get_ctx(). Otherwise, please use FakeTensors.")

    def run(*args: Any, **kwargs: Any) -> Any:
        if _getter.get() is not None:            # a mode of fake tensors has said what it allows
            return func(*args, **kwargs)
        with set_ctx_getter(refuse):
            return func(*args, **kwargs)
    run.__wrapped__ = func                       # type: ignore[attr-defined]
    return run


class FakeImplCtx:
    """What get_ctx() gives while an op runs on fake tensors."""

    def __init__(self, fake_mode: Any, op: Any) -> None:
        self._fake_mode, self._op = fake_mode, op

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that only the data can say: no mode of fake tensors here knows such sizes."""
        raise torch._subclasses.fake_tensor.DynamicOutputShapeException(self._op)

    create_unbacked_symint = new_dynamic_size
