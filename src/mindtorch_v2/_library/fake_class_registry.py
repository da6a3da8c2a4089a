"""torch._library.fake_class_registry: classes that stand for script objects while a program is recorded."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

log = logging.getLogger(__name__)


class FakeScriptObject:
    """An object of such a class, with the name of the class that it stands for."""

    def __init__(self, wrapped_obj: Any, script_class_name: str, x: Any) -> None:
        self.wrapped_obj, self.script_class_name, self.real_obj = wrapped_obj, script_class_name, x


class FakeClassRegistry:
    """The classes by the full names of what they stand for: __torch__.torch.classes.namespace.name."""

    def __init__(self) -> None:
        self._registered_class: dict[str, Any] = {}

    def has_impl(self, full_qualname: str) -> bool:
        """Whether there is one."""
        return full_qualname in self._registered_class

    def get_impl(self, full_qualname: str) -> Any:
        """The one that there is."""
        if full_qualname not in self._registered_class:
            raise RuntimeError(f"{full_qualname} is not registered")
        return self._registered_class[full_qualname]

    def register(self, full_qualname: str, fake_class: Any = None) -> None:
        """Add or replace one."""
        if self.has_impl(full_qualname):
            log.warning("%s is already registered. Previous fake class is overridden with %s.", full_qualname, fake_class)
        self._registered_class[full_qualname] = fake_class

    def deregister(self, full_qualname: str) -> Any:
        """Take one out."""
        if not self.has_impl(full_qualname):
            log.warning("Cannot deregister %s. Please use register_fake_class to register it first.", full_qualname)
            return None
        return self._registered_class.pop(full_qualname)

    def clear(self) -> None:
        """Take all out."""
        self._registered_class.clear()


global_fake_class_registry = FakeClassRegistry()


def _parts(qualname: str) -> tuple[str, str]:
    parts = qualname.split("::")
    if len(parts) != 2:
        raise RuntimeError(f"The qualname passed in is invalid: expected 'namespace::name', got {qualname}")
    return parts[0], parts[1]


def _full_qual_class_name(qualname: str) -> str:
    """namespace::name as TorchScript names the class."""
    namespace, name = _parts(qualname)
    return f"__torch__.torch.classes.{namespace}.{name}"


def register_fake_class(qualname: str, fake_class: Any = None) -> Callable[[Any], Any] | Any:
    """A class, or a decorator of one, that stands for the script class namespace::name; it makes itself of a real object."""
    def register(cls: Any) -> Any:
        _parts(qualname)
        made = vars(cls).get("from_real", getattr(cls, "from_real", None))
        if made is None:
            raise RuntimeError(f"{cls} doesn't define a classmethod from_real.")
        if not isinstance(vars(cls).get("from_real"), classmethod):
            raise RuntimeError(f"from_real method is not a classmethod, in {cls}")
        global_fake_class_registry.register(_full_qual_class_name(qualname), cls)
        return cls
    return register if fake_class is None else register(fake_class)


def deregister_fake_class(qualname: str) -> Any:
    """Take one out."""
    return global_fake_class_registry.deregister(_full_qual_class_name(qualname))


def has_fake_class(full_qualname: str) -> bool:
    """Whether there is one."""
    return global_fake_class_registry.has_impl(full_qualname)


def find_fake_class(full_qualname: str) -> Any:
    """The one that there is, or None."""
    return global_fake_class_registry.get_impl(full_qualname) if has_fake_class(full_qualname) else None


maybe_to_fake_obj = torch._facade.refusal("torch._library.fake_class_registry.maybe_to_fake_obj",
                                          "mindtorch_v2 has no script objects")


def maybe_unwrap_fake_script_object(obj: Any) -> Any:
    """What such an object stands for; another one itself."""
    return obj.real_obj if isinstance(obj, FakeScriptObject) else obj
