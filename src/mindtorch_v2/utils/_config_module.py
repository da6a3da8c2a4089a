"""torch.utils._config_module: modules whose attributes are settings with a type, that can be patched, saved and compared."""
from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import io
import os
import pickle
import pkgutil
import tokenize
import types
import unittest
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

COMPILE_IGNORED_MARKER = "@compile_ignored"
CONFIG_TYPES = (int, float, bool, type(None), str, list, set, tuple, dict)
_UNSET_SENTINEL = object()


@dataclass(kw_only=True)
class _Config:
    """A setting that does not only have a value: see Config."""
    default: Any = _UNSET_SENTINEL
    justknob: str | None = None
    env_name_default: Any = None
    env_name_force: Any = None
    value_type: Any = None
    alias: str | None = None
    deprecated: bool = False
    deprecation_message: str | None = None

    def __post_init__(self) -> None:
        self.env_name_default = self.string_or_list_of_string_to_list(self.env_name_default)
        self.env_name_force = self.string_or_list_of_string_to_list(self.env_name_force)
        if self.alias is not None and not (self.default is _UNSET_SENTINEL and self.justknob is None
                                           and self.env_name_default is None and self.env_name_force is None):
            raise AssertionError("if alias is set, none of {default, justknob, env_name_default and env_name_force} can be set")

    @staticmethod
    def string_or_list_of_string_to_list(val: str | list[str] | None) -> list[str] | None:
        """Names of variables as a list."""
        if val is None or isinstance(val, list):
            return val
        if not isinstance(val, str):
            raise AssertionError(f"expected str or list of str, got {type(val)}")
        return [val]


def Config(default: Any = _UNSET_SENTINEL, justknob: str | None = None, env_name_default: str | list[str] | None = None,
           env_name_force: str | list[str] | None = None, value_type: type | None = None, alias: str | None = None,
           deprecated: bool = False, deprecation_message: str | None = None) -> Any:
    """A setting with a default that the environment can replace, or force, or that is another name for a setting elsewhere.

    justknob names a switch of PyTorch's makers; there is none here, and the default holds.
    """
    return _Config(default=default, justknob=justknob, env_name_default=env_name_default, env_name_force=env_name_force,
                   value_type=value_type, alias=alias, deprecated=deprecated, deprecation_message=deprecation_message)


def _read_env_variable(name: str) -> bool | str | None:
    """A variable of the environment; 1 and 0 are True and False."""
    value = os.environ.get(name)
    return {"1": True, "0": False}.get(value, value) if value is not None else None


def get_tristate_env(name: str, default: Any = None) -> bool | None:
    """Whether a variable is 1 or 0, or the default."""
    return {"1": True, "0": False}.get(os.environ.get(name, ""), default)


def _first_of(names: list[str] | None) -> Any:
    for name in names or ():
        value = _read_env_variable(name)
        if value is not None:
            return value
    return _UNSET_SENTINEL


class _ConfigEntry:
    """The state of one setting."""

    def __init__(self, config: _Config, name: str) -> None:
        self.name, self.alias, self.justknob, self.hide = name, config.alias, config.justknob, False
        self.warned = False
        self.deprecated, self.deprecation_message = config.deprecated, config.deprecation_message
        self.value_type = type(config.default) if config.value_type is None else config.value_type
        self.default = config.default
        self.user_override: ContextVar[Any] = ContextVar(name, default=_UNSET_SENTINEL)
        self.env_value_default = _first_of(config.env_name_default)
        self.env_value_force = _first_of(config.env_name_force)

    @property
    def preset(self) -> Any:
        """What holds where the program set nothing."""
        return self.default if self.env_value_default is _UNSET_SENTINEL else self.env_value_default


def install_config_module(module: ModuleType) -> None:
    """Make a module one of settings: its plain values, and those of classes in it, become attributes that are looked after."""
    config: dict[str, _ConfigEntry] = {}
    ignored = get_assignments_with_compile_ignored_comments(module)

    def visit(source: Any, target: Any, prefix: str) -> None:
        kinds = inspect.get_annotations(source)
        for key, value in list(source.__dict__.items()):
            foreign = isinstance(value, type) and value.__module__ != module.__name__ or isinstance(
                value, (ModuleType, types.FunctionType)) or getattr(value, "__module__", None) == "typing"
            if foreign or (key.startswith("__") and key.endswith("__")):
                continue
            name = prefix + key
            if isinstance(value, (*CONFIG_TYPES, _Config)):
                made = value if isinstance(value, _Config) else _Config(default=value, value_type=kinds.get(key, type(value)))
                if made.value_type is None:
                    made.value_type = kinds.get(key)
                config[name] = _ConfigEntry(made, name)
                if source is module:
                    delattr(module, key)
            elif isinstance(value, type):
                proxy = SubConfigProxy(module, f"{name}.")
                visit(value, proxy, f"{name}.")
                if source is module:
                    setattr(module, key, proxy)
                else:
                    object.__setattr__(target, key, proxy)

    visit(module, module, "")
    module._config = config                                # type: ignore[attr-defined]
    module._compile_ignored_keys = ignored                 # type: ignore[attr-defined]
    module._hash_digest, module._is_dirty = None, True     # type: ignore[attr-defined]
    module.__class__ = ConfigModule


def get_assignments_with_compile_ignored_comments(module: ModuleType) -> set[str]:
    """The names whose assignments a comment `# @compile_ignored` stands before or behind."""
    found: set[str] = set()
    marked = False
    line = ""
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return found
    for token in tokenize.tokenize(io.BytesIO(source.encode()).readline):
        if token.type == tokenize.COMMENT:
            same_line = token.line.strip() != token.string.strip()
            if COMPILE_IGNORED_MARKER in token.string:
                if same_line:
                    found.add(token.line.partition("=")[0].partition(":")[0].strip())
                else:
                    marked = True
        elif token.type == tokenize.NAME and marked and token.line.strip() != line:
            line, marked = token.line.strip(), False
            found.add(token.line.partition("=")[0].partition(":")[0].strip())
    return found


def _qualified(function: Any) -> str:
    place = function.__module__
    return function.__name__ if place == "builtins" else f"{place}.{function.__name__}"


class ConfigModule(ModuleType):
    """A module whose attributes are settings."""
    _config: dict[str, _ConfigEntry]
    _bypass_keys = {"_is_dirty", "_hash_digest", "__annotations__"}
    _compile_ignored_keys: set[str]
    _is_dirty: bool
    _hash_digest: bytes | None

    def __init__(self) -> None:
        raise NotImplementedError(f"use {__name__}.install_config_module(sys.modules[__name__])")

    def _entry(self, name: str) -> _ConfigEntry:
        if name not in self._config:
            raise AttributeError(f"{self.__name__}.{name} does not exist")
        return self._config[name]

    def _warn_if_deprecated(self, name: str, config: _ConfigEntry) -> None:
        if config.deprecated and not config.warned:
            config.warned = True
            why = f" and {config.deprecation_message}" if config.deprecation_message else ""
            warnings.warn(f"{self.__name__}.{name} is deprecated{why}. It will be removed in a future version of PyTorch.",
                          FutureWarning, stacklevel=3)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._bypass_keys:
            super().__setattr__(name, value)
            return
        entry = self._entry(name)
        self._warn_if_deprecated(name, entry)
        if entry.alias is not None:
            self._set_alias_val(entry, value)
            return
        entry.user_override.set(value)
        entry.hide, self._is_dirty = False, True

    def __getattr__(self, name: str) -> Any:
        entry = self.__dict__["_config"].get(name) if "_config" in self.__dict__ else None
        if entry is None or entry.hide:
            raise AttributeError(f"{self.__name__}.{name} does not exist")
        self._warn_if_deprecated(name, entry)
        if entry.alias is not None:
            return self._get_alias_val(entry)
        if entry.env_value_force is not _UNSET_SENTINEL:
            return entry.env_value_force
        value = entry.user_override.get()
        if value is not _UNSET_SENTINEL:
            return value
        value = entry.preset
        if isinstance(value, (list, set, dict)):      # what the program changes in place is its own
            value = copy.deepcopy(value)
            entry.user_override.set(value)
        return value

    def __delattr__(self, name: str) -> None:
        entry = self._entry(name)
        entry.user_override.set(_UNSET_SENTINEL)
        entry.hide, self._is_dirty = True, True

    @staticmethod
    def _get_alias_module_and_name(entry: _ConfigEntry) -> tuple[ModuleType, str] | None:
        if entry.alias is None:
            return None
        place, _, name = entry.alias.rpartition(".")
        return pkgutil.resolve_name(place), name

    def _get_alias_val(self, entry: _ConfigEntry) -> Any:
        found = self._get_alias_module_and_name(entry)
        if found is None:
            raise AssertionError(f"{entry.name} has no alias")
        return getattr(*found)

    def _set_alias_val(self, entry: _ConfigEntry, val: Any) -> None:
        found = self._get_alias_module_and_name(entry)
        if found is None:
            raise AssertionError(f"{entry.name} has no alias")
        setattr(*found, val)

    def _is_default(self, name: str) -> bool:
        """Whether a setting has the value that it began with."""
        entry = self._entry(name)
        if entry.alias is not None:
            place, word = self._get_alias_module_and_name(entry) or (self, name)
            return place._is_default(word) if isinstance(place, ConfigModule) else False
        value = entry.user_override.get()
        unset = value is _UNSET_SENTINEL or value == entry.preset and isinstance(value, (list, set, dict))
        return unset and entry.env_value_force is _UNSET_SENTINEL and entry.env_value_default is _UNSET_SENTINEL

    def _get_dict(self, ignored_keys: list[str] | None = None, ignored_prefixes: list[str] | None = None,
                  skip_default: bool = False, readonly_values: bool = False) -> dict[str, Any]:
        """The settings and their values; not those that are names of others or hidden."""
        found: dict[str, Any] = {}
        for key, entry in self._config.items():
            if key in (ignored_keys or ()) or key.startswith(tuple(ignored_prefixes or ())) or entry.alias is not None or \
                    entry.hide or skip_default and self._is_default(key):
                continue
            value = getattr(self, key)
            found[key] = value if readonly_values else copy.deepcopy(value)
        return found

    def get_type(self, config_name: str) -> Any:
        """The type of a setting."""
        return self._entry(config_name).value_type

    def save_config(self) -> bytes:
        """The settings as a pickle, without those of _save_config_ignore."""
        ignored = self.__dict__["_config"].get("_save_config_ignore")
        return pickle.dumps(self._get_dict(ignored_keys=ignored.default if ignored else None), protocol=2)

    def save_config_portable(self, *, ignore_private_configs: bool = True, readonly_values: bool = False) -> dict[str, Any]:
        """The settings that differ from their defaults and do not belong to this machine."""
        prefixes = ["_"] if ignore_private_configs else []
        listed = self._config.get("_cache_config_ignore_prefix")
        return self._get_dict(ignored_prefixes=prefixes + (listed.default if listed else []), readonly_values=readonly_values)

    def codegen_config(self) -> str:
        """The settings that differ from their defaults as assignments."""
        ignored = self._config.get("_save_config_ignore")
        found = self._get_dict(ignored_keys=ignored.default if ignored else None, skip_default=True)
        lines: list[str] = []
        imported: set[str] = {"builtins"}

        def need(functions: Any) -> None:
            for place in dict.fromkeys(function.__module__ for function in functions):
                if place not in imported:
                    imported.add(place)
                    lines.append(f"import {place}")

        for name, value in found.items():
            written = repr(value)
            if callable(value):
                need([value])
                written = _qualified(value)
            elif isinstance(value, (list, set)) and value and all(map(callable, value)):
                need(value)
                names = [_qualified(function) for function in value]
                written = repr(names) if isinstance(value, list) else f"{{ {', '.join(names)} }}"
            lines.append(f"{self.__name__}.{name} = {written}")
        return "\n".join(lines)

    def get_hash(self) -> bytes:
        """A number of the settings that compiled code depends on."""
        if self._hash_digest is None or self._is_dirty:
            state = self._get_dict(ignored_keys=list(self._compile_ignored_keys))
            self._hash_digest = hashlib.md5(repr(sorted(state.items())).encode(), usedforsecurity=False).digest()
            self._is_dirty = False
        return self._hash_digest

    def to_dict(self) -> dict[str, Any]:
        """As get_config_copy, under an old name."""
        warnings.warn("config.to_dict() has been deprecated. It no longer changes the underlying config. use "
                      "config.get_config_copy() instead if you just want a copy of the config, or config.load_config if you need "
                      "mutable access", FutureWarning, stacklevel=2)
        return self.get_config_copy()

    def shallow_copy_dict(self) -> dict[str, Any]:
        """As get_config_copy, under an old name."""
        warnings.warn("`config.shallow_copy_dict()` has been deprecated. It no longer changes the underlying config. use "
                      "`config.get_config_copy()` instead if you just want a copy of the config, or config.load_config if you need "
                      "mutable access", FutureWarning, stacklevel=2)
        return self.get_config_copy()

    def load_config(self, maybe_pickled_config: bytes | dict[str, Any]) -> None:
        """Set what save_config gave, or a dict."""
        given = maybe_pickled_config if isinstance(maybe_pickled_config, dict) else pickle.loads(maybe_pickled_config)
        for name, value in given.items():
            if name in self._config:
                setattr(self, name, value)
            else:
                warnings.warn(f"key {name} with value {value} is not understood by this config", stacklevel=2)

    def get_config_copy(self) -> dict[str, Any]:
        """The settings and copies of their values."""
        return self._get_dict()

    get_serializable_config_copy = get_config_copy

    def patch(self, arg1: str | dict[str, Any] | None = None, arg2: Any = None, **kwargs: Any) -> ContextDecorator:
        """A with block, or a decorator, that sets settings: patch("a.b", 1), patch({"a.b": 1}), patch(a=1)."""
        if arg1 is None:
            changes: dict[str, Any] = kwargs
        elif kwargs:
            raise AssertionError("cannot pass both a name or dict and keyword arguments")
        elif isinstance(arg1, (str, dict)):
            changes = arg1 if isinstance(arg1, dict) else {arg1: arg2}
        else:
            raise AssertionError(f"expected a name or a dict, got {type(arg1)}")
        config = self

        class ConfigPatch(ContextDecorator):
            """Settings for a while."""

            def __init__(self) -> None:
                self.changes, self.prior = changes, dict[str, Any]()

            def __enter__(self) -> None:
                if self.prior:
                    raise AssertionError("prior should be empty when entering ConfigPatch")
                self.prior = {key: _value_now(config, key) for key in self.changes}
                for key, value in self.changes.items():
                    setattr(config, key, value)

            def __exit__(self, *exc: Any) -> None:
                for key, value in self.prior.items():
                    setattr(config, key, value)
                self.prior = {}
        return ConfigPatch()

    def _make_closure_patcher(self, **changes: Any) -> Any:
        """A function that sets settings and gives one that sets them back."""
        def change() -> Callable[[], None]:
            prior = {key: _value_now(self, key) for key in changes}
            for key, value in changes.items():
                setattr(self, key, value)

            def revert() -> None:
                for key, value in prior.items():
                    setattr(self, key, value)
            return revert
        return change


def _value_now(config: ConfigModule, name: str) -> Any:
    config._entry(name)
    return getattr(config, name)


class ContextDecorator:
    """A with block that also decorates functions and test cases."""

    def __enter__(self) -> None:
        raise NotImplementedError("NYI")

    def __exit__(self, *exc: Any) -> Any:
        raise NotImplementedError("NYI")

    def __call__(self, func: Any) -> Any:
        if isinstance(func, type) and issubclass(func, unittest.TestCase):
            patcher = self

            class Patched(func):
                @classmethod
                def setUpClass(cls) -> None:
                    patcher.__enter__()
                    try:
                        super().setUpClass()
                    except BaseException:
                        patcher.__exit__(None, None, None)
                        raise

                @classmethod
                def tearDownClass(cls) -> None:
                    try:
                        super().tearDownClass()
                    finally:
                        patcher.__exit__(None, None, None)

            Patched.__name__, Patched.__qualname__, Patched.__module__ = func.__name__, func.__qualname__, func.__module__
            return Patched

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)
        return wrapper


class SubConfigProxy:
    """The settings of a class in a module of settings: config.load.mmap is the setting "load.mmap"."""

    def __init__(self, config: Any, prefix: str) -> None:
        object.__setattr__(self, "_config", config)
        object.__setattr__(self, "_prefix", prefix)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._config, self._prefix + name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, self._prefix + name)

    def __delattr__(self, name: str) -> None:
        delattr(self._config, self._prefix + name)
