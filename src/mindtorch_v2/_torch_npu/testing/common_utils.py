"""torch_npu.testing.common_utils: tensors for tests, made on both devices, and tests that need a certain SoC or CANN."""
from __future__ import annotations

import contextlib
import functools
import itertools
import os
import unittest
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import mindtorch_v2 as torch

# numpy's dtype that random items of a dtype are drawn in; all others are drawn as int32
_DRAWN = {torch.bool: np.bool_, torch.half: np.float16, torch.float: np.float32}


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """Leaves the generator of the host as it was."""
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


def iter_indices(tensor: torch.Tensor) -> Iterable[Any]:
    """Every index of a tensor: numbers where it has one dim, else tuples."""
    if tensor.dim() <= 1:
        return range(tensor.size(0) if tensor.dim() else 0)
    return itertools.product(*(range(size) for size in tensor.size()))


def is_iterable(obj: Any) -> bool:
    try:
        iter(obj)
    except TypeError:
        return False
    return True


def get_npu_device() -> str:
    """The device that tests use: number SET_NPU_DEVICE of the environment, or the first."""
    return f"npu:{os.environ.get('SET_NPU_DEVICE', '0')}"


def set_npu_device() -> str:
    device = get_npu_device()
    torch.npu.set_device(device)
    return device


def _on_both(items: np.ndarray, npu_format: int, device: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    on_npu = torch.from_numpy(items.copy()).to(device or get_npu_device())
    return torch.from_numpy(items), on_npu if npu_format == -1 else torch.ops.npu.npu_format_cast(on_npu, npu_format)


def create_common_tensor(item: Sequence[Any], minValue: float, maxValue: float,
                         device: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The same random items on the host and on an npu; item: NumPy's dtype, a format of CANN or -1, the shape."""
    dtype, npu_format, shape = item
    return _on_both(np.asarray(np.random.uniform(minValue, maxValue, shape)).astype(dtype), npu_format, device)


def create_dtype_tensor(shape: Sequence[int], dtype: torch.dtype, npu_format: int = -1, min_value: int = -5, max_value: int = 5,
                        no_zero: bool = False, device: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by torch's dtype: bool, half, float, or integers; no_zero: ones in their place."""
    drawn = _DRAWN.get(dtype, np.int32)
    items: Any
    if drawn in (np.float16, np.float32):
        items = np.random.uniform(min_value, max_value, shape)
    else:
        items = np.random.randint(0 if drawn is np.bool_ else min_value, 2 if drawn is np.bool_ else max_value + 1, size=shape)
    items = np.asarray(items).astype(drawn)
    return _on_both(np.where(items == 0, np.ones_like(items), items) if no_zero else items, npu_format, device)


def test_2args_broadcast(fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> list[list[np.ndarray]]:
    """What a function of two tensors gives on the host and on an npu, where the second one is broadcast."""
    found = []
    for shape in ((1, 1, 1), (4, 5)):
        x, y = (create_common_tensor([np.float32, -1, sizes], 0, 1) for sizes in ((2, 3, 4, 5), shape))
        found.append([fn(x[0], y[0]).numpy(), fn(x[1], y[1]).cpu().numpy()])
    return found


test_2args_broadcast.__test__ = False            # type: ignore[attr-defined]  # a name of torch_npu's that pytest would collect


def check_operators_in_prof(expected_operators: Iterable[str], prof: Any, unexpected_operators: Iterable[str] = ()) -> bool:
    """Whether a profile has all of the first names and none of the others, each as a part of an event's name."""
    names = [event.name for event in prof.events()]
    return (all(any(wanted in name for name in names) for wanted in expected_operators)
            and not any(refused in name for refused in unexpected_operators or () for name in names))


class SupportedDevices:
    """Skips a test on other SoCs than these, by the beginnings of their names: "Ascend910B", "Ascend910_93", "Ascend950"."""

    def __init__(self, supported_devices: list[str]) -> None:
        self.supported_devices = supported_devices

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            name = torch.npu.get_device_name(0)
            short = name[:{"Ascend910_": 12, "Ascend950": 9}.get(name[:10].rstrip("ABCDEFPR"), 10)]
            if short not in self.supported_devices:
                raise unittest.SkipTest(f"Only run on {self.supported_devices!r}, current device is {short}.")
            return fn(*args, **kwargs)
        return run


class SkipIfNotGteCANNVersion:
    """Skips a test where CANN, or a package of it, is older."""

    def __init__(self, base_version: str, module: str = "CANN") -> None:
        self.base_version, self.module = base_version, module

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not torch.npu.utils._is_gte_cann_version(self.base_version, module=self.module):
                raise unittest.SkipTest(f"Only run on {self.base_version} or greater, current cann version is "
                                        f"{torch.npu.utils.get_cann_version(self.module)}.")
            return fn(*args, **kwargs)
        return run
