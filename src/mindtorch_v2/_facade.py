"""Names that PyTorch has and this library does not: modules made by hand, and classes and functions that refuse by name.

A facade does the thing, says truthfully that it is not there, or raises an error that names what is missing.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def module(parent: str, name: str, doc: str, **contents: Any) -> Any:
    """A module below `parent` that no file holds; it is found by `import` once its parent is imported."""
    full = f"{parent}.{name}"
    made = ModuleType(full, doc)
    made.__spec__ = ModuleSpec(full, None, is_package=True)
    made.__path__ = []
    made.__dict__.update(contents)
    sys.modules[full] = made
    return made


def refusal(name: str, why: str, error: type[Exception] = NotImplementedError) -> Callable[..., Any]:
    """A function that refuses: `[name] why`; the name is the full one."""
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise error(f"[{name}] {why}")
    refuse.__module__, _, refuse.__name__ = name.rpartition(".")
    refuse.__qualname__ = refuse.__name__
    refuse.__doc__ = f"Refuses: {why}."
    return refuse


def refusals(names: str, why: str, prefix: str = "", error: type[Exception] = NotImplementedError) -> dict[str, Any]:
    """Such functions, by name."""
    return {name: refusal(prefix + name, why, error) for name in names.split()}


def absent(name: str, why: str, *bases: type, error: type[Exception] = NotImplementedError) -> Any:
    """A class for isinstance and annotations, of which no object can be made."""
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise error(f"[{name}] {why}")
    place, _, short = name.rpartition(".")
    return type(short, bases, {"__init__": refuse, "__doc__": f"No object is one: {why}.", "__module__": place})


def absents(names: str, why: str, prefix: str = "") -> dict[str, Any]:
    """Such classes, by name."""
    return {name: absent(prefix + name, why) for name in names.split()}


def refuse_all(package: str, why: str) -> Callable[[str], Any]:
    """A module's __getattr__ that has a refusal for every public name."""
    def find(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return refusal(f"{package}.{name}", why)
    return find


def _none_counted(device: Any = None) -> int:
    """0."""
    return 0


def no_devices(word: str) -> dict[str, Any]:
    """What a module of devices of a kind that is not here has: it finds none, and what needs one refuses."""
    def is_available() -> bool:
        """False."""
        return False

    def device_count() -> int:
        """0."""
        return 0

    def manual_seed_all(seed: int) -> None:
        """Nothing to seed."""

    def empty_cache() -> None:
        """Nothing is cached."""

    def synchronize(device: Any = None) -> None:
        """Refuses: there is no such device."""
        raise AssertionError(f"Torch not compiled with {word} enabled: the devices are cpu and npu")

    def memory_stats(device: Any = None) -> dict[str, Any]:
        """Empty."""
        return {}

    def get_rng_state_all() -> list[Any]:
        """Empty: there is no device that could have a state."""
        return []

    def set_rng_state_all(new_states: Any) -> None:
        """Sets the state of each device: of none."""

    class device:
        """A with block on a device, which changes nothing."""

        def __init__(self, device: Any) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *exc: Any) -> None:
            pass

    why = f"Torch not compiled with {word} enabled: the devices are cpu and npu"
    return {**{name: absent(f"torch.{word.lower()}.{name}", why, error=RuntimeError) for name in ("Stream", "Event")},
            "default_generators": (), "seed": empty_cache, "seed_all": empty_cache, "memory_stats_as_nested_dict": memory_stats,
            **dict.fromkeys(("init", "_lazy_init", "initial_seed", "default_stream", "set_stream"), synchronize),
            **dict.fromkeys(("_is_compiled", "_is_in_bad_fork"), is_available),
            "is_available": is_available, "device_count": device_count, "empty_cache": empty_cache, "device": device,
            "memory_stats": memory_stats, "get_rng_state_all": get_rng_state_all, "set_rng_state_all": set_rng_state_all,
            "reset_peak_memory_stats": empty_cache, "get_rng_state": synchronize, "set_rng_state": manual_seed_all,
            **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), _none_counted),
            **dict.fromkeys(("get_device_name", "get_device_properties", "get_device_capability", "mem_get_info"), synchronize),
            **dict.fromkeys(("is_initialized", "is_bf16_supported", "is_current_stream_capturing"), is_available),
            **dict.fromkeys(("manual_seed", "manual_seed_all"), manual_seed_all),
            **dict.fromkeys(("synchronize", "current_device", "current_stream", "set_device"), synchronize)}


def settings(parent: str, name: str, doc: str, **values: Any) -> Any:
    """A module of settings that are stored and not read here, with torch's `patch`."""
    made = module(parent, name, doc, **values)

    @contextmanager
    def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
        """Set values for the length of a with block."""
        given = {**(arg1 if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}), **changes}
        before = {key: getattr(made, key) for key in given if hasattr(made, key)}
        made.__dict__.update(given)
        try:
            yield
        finally:
            for key in given:
                made.__dict__.pop(key, None)
            made.__dict__.update(before)

    made.patch = patch
    return made
