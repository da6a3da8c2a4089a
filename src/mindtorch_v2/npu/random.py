"""torch.npu, random numbers: one generator a device, a seed and an offset. Drawing is the ops' work."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import runtime
from mindtorch_v2.npu.devices import _device_index, device_count


def get_default_generator(device_index: int) -> Any:
    """The generator that a device uses where none is given."""
    runtime.check_ordinal(device_index)
    return _C._npu_default_generator(device_index)


def _default_generators() -> tuple[Any, ...]:
    return tuple(get_default_generator(index) for index in range(device_count()))


def next_seed_offset(generator: Any, increment: int) -> tuple[int, int]:
    """(seed, offset) for one op that draws at most increment numbers a lane; None: the current device's generator."""
    if generator is None:
        generator = get_default_generator(runtime.current_device())
    return generator._next_seed_offset(increment)


def get_rng_state(device: Any = "npu") -> Any:
    """The state of a device's generator, a uint8 tensor on the CPU."""
    return get_default_generator(_device_index(device)).get_state()


def set_rng_state(new_state: Any, device: Any = "npu") -> None:
    """Sets the state of a device's generator."""
    get_default_generator(_device_index(device)).set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The states of all devices."""
    return [generator.get_state() for generator in _default_generators()]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Sets the states of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device."""
    get_default_generator(runtime.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices."""
    _C._npu_manual_seed_all(int(seed))


def seed() -> None:
    """Seeds the generator of the current device from the system."""
    get_default_generator(runtime.current_device()).seed()


def seed_all() -> None:
    """Seeds the generators of all devices from the system, all alike."""
    _C._npu_manual_seed_all(get_default_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return get_default_generator(runtime.current_device()).initial_seed()
