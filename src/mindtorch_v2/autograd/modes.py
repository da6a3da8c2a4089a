"""What is recorded: no_grad, enable_grad, set_grad_enabled, inference_mode, anomaly detection."""
from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

from mindtorch_v2 import _C


class _Mode:
    """A with block that is a decorator too, for functions and generators."""

    def __call__(self, fn: Any) -> Any:
        if inspect.isclass(fn):
            warnings.warn("Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                          "functions or methods. To preserve the current behavior of class decoration, you can directly "
                          "decorate the `__init__` method and nothing else.", FutureWarning, stacklevel=2)
            setattr(fn, "__init__", self(fn.__init__))   # noqa: B010
            return fn
        if inspect.isgeneratorfunction(fn):
            @functools.wraps(fn)
            def steps(*args: Any, **kwargs: Any) -> Any:
                generator = fn(*args, **kwargs)
                resume, sent = generator.send, None
                while True:
                    try:
                        with self.clone():
                            value = resume(sent)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        resume, sent = generator.send, (yield value)
                    except GeneratorExit:
                        with self.clone():
                            generator.close()
                        raise
                    except BaseException as error:
                        resume, sent = generator.throw, error
            return steps

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return fn(*args, **kwargs)
        return call

    def clone(self) -> Any:
        """The same mode once more, for another block."""
        return type(self)()


class _GradMode(_Mode):
    enabled: bool
    prev: bool

    def __new__(cls, orig_func: Any = None) -> Any:
        made = object.__new__(cls)
        made.prev = False
        return made if orig_func is None else made(orig_func)

    def __enter__(self) -> None:
        self.prev = _C._is_grad_enabled()
        _C._set_grad_enabled(self.enabled)

    def __exit__(self, *exc: Any) -> None:
        _C._set_grad_enabled(self.prev)


class no_grad(_GradMode):
    """Inside, nothing is recorded."""
    enabled = False


class enable_grad(_GradMode):
    """Inside, ops are recorded."""
    enabled = True


class set_grad_enabled(_Mode):
    """Switches recording on or off, at once and until the with block ends."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}")
        self.prev, self.mode = _C._is_grad_enabled(), mode
        _C._set_grad_enabled(mode)

    def __call__(self, fn: Any) -> Any:
        _C._set_grad_enabled(self.prev)
        return super().__call__(fn)

    def __enter__(self) -> None:
        _C._set_grad_enabled(self.mode)

    def __exit__(self, *exc: Any) -> None:
        _C._set_grad_enabled(self.prev)

    def clone(self) -> Any:
        """The same switch once more."""
        return set_grad_enabled(self.mode)

    def __str__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    __repr__ = __str__


class inference_mode(_Mode):
    """Inside, nothing is recorded and new tensors can never be."""

    mode: bool

    def __new__(cls, mode: Any = True) -> Any:
        made = object.__new__(cls)
        made.mode = mode if isinstance(mode, bool) else True
        return made if isinstance(mode, bool) else made(mode)

    def __init__(self, mode: Any = True) -> None:
        pass

    def __enter__(self) -> None:
        self.previous = _C._is_inference_mode(), _C._is_grad_enabled()
        _C._set_inference_mode(self.mode)
        _C._set_grad_enabled(not self.mode)

    def __exit__(self, *exc: Any) -> None:
        _C._set_inference_mode(self.previous[0])
        _C._set_grad_enabled(self.previous[1])

    def clone(self) -> Any:
        """The same mode once more."""
        return inference_mode(self.mode)


class set_detect_anomaly:
    """Backward errors show where in forward the failing op was recorded; NaN gradients are errors."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.prev, self.prev_check_nan = _C._is_anomaly(), _C._is_anomaly_nan()
        for i, (name, value) in enumerate((("enabled", mode), ("check_nan", check_nan)), 1):
            if not isinstance(value, bool):
                raise TypeError(f"set_anomaly_enabled(): argument '{name}' (position {i}) must be bool, not {type(value).__name__}")
        _C._set_anomaly(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        _C._set_anomaly(self.prev, self.prev_check_nan)


class detect_anomaly:
    """Anomaly detection for a with block."""

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be "
                      "enabled for debugging.", stacklevel=2)
        self.prev, self.check_nan, self.prev_check_nan = _C._is_anomaly(), check_nan, _C._is_anomaly_nan()

    def __enter__(self) -> None:
        _C._set_anomaly(True, self.check_nan)

    def __exit__(self, *exc: Any) -> None:
        _C._set_anomaly(self.prev, self.prev_check_nan)


for _mode, _place in ((no_grad, "grad_mode"), (enable_grad, "grad_mode"), (set_grad_enabled, "grad_mode"),
                      (inference_mode, "grad_mode"), (set_detect_anomaly, "anomaly_mode"), (detect_anomaly, "anomaly_mode")):
    _mode.__module__ = __name__.replace("modes", _place)       # where torch has them


def is_anomaly_enabled() -> bool:
    """Whether backward looks for the op that a bad gradient comes from."""
    return _C._is_anomaly()


def is_anomaly_check_nan_enabled() -> bool:
    """Whether it looks for NaN as well."""
    return _C._is_anomaly_nan()


profilers: list[Any] = []           # those that run, the newest last


def _profiler_enabled() -> bool:
    """Whether a profiler of torch.autograd.profiler runs."""
    return bool(profilers)
