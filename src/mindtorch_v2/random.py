"""torch.random: the state of the random generators."""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import GeneratorBase
from mindtorch_v2._tensor import Tensor


class Generator(GeneratorBase):
    """A stream of random numbers."""
    __module__ = f"{__package__}._C"

    @property
    def _cdata(self) -> int:
        return id(self)

    def graphsafe_set_state(self, state: Any) -> Generator:
        """Refused: a generator of a graph shares its state with others, which these do not."""
        raise NotImplementedError("graphsafe_set_state is not supported in this Generator")

    def graphsafe_get_state(self) -> Generator:
        """Refused, as graphsafe_set_state."""
        raise NotImplementedError("graphsafe_get_state is not supported in this Generator")


_C._register_class("Generator", Generator)
default_generator: Generator = _C._default_generator()


def manual_seed(seed: int) -> Generator:
    """Seeds the default generators of all devices; returns the CPU's."""
    default_generator.manual_seed(int(seed))
    _C._npu_manual_seed_all(int(seed))
    return default_generator


def seed() -> int:
    """Seeds the default generators of all devices from the system; returns the seed."""
    fresh = default_generator.seed()
    _C._npu_manual_seed_all(fresh)
    return fresh


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator, a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Sets the state of the default generator."""
    default_generator.set_state(new_state)


def thread_safe_generator() -> Generator | None:
    """None: threads share the default generator."""
    return None


@contextlib.contextmanager
def fork_rng(devices: Iterable[Any] | None = None, enabled: bool = True, _caller: str = "fork_rng",
             _devices_kw: str = "devices", device_type: str = "cpu") -> Iterator[None]:
    """Random numbers drawn in the with block, on the CPU and on the given npus, leave the states as they were.

    None stands for all npus; no device is started to find out how many there are."""
    if not enabled:
        yield
        return
    state, npus = get_rng_state(), _C._npu_rng_states()
    chosen = {} if devices is None else {g: g.get_state() for g in map(_npu_generator, devices)}
    try:
        yield
    finally:
        set_rng_state(state)
        if devices is None:
            _C._npu_set_rng_states(npus)
        for generator, before in chosen.items():
            generator.set_state(before)


def _npu_generator(device: Any) -> Generator:
    index = device if isinstance(device, int) else Generator(device).device.index
    return _C._npu_default_generator(index)
