"""Names of nodes and of the globals of generated code: each is a legal Python name and given out once."""
from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.fx import _pytree as fx_pytree

_SUFFIX = re.compile(r"(.*)_(\d+)$")
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")


class _CustomBuiltin(NamedTuple):
    """A global that all generated code has, and the line that imports it."""
    import_str: str
    obj: Any


_custom_builtins: dict[str, _CustomBuiltin] = {}


def _register_custom_builtin(name: str, import_str: str, obj: object) -> None:
    """Gives generated code one more global."""
    _custom_builtins[name] = _CustomBuiltin(import_str, obj)


_register_custom_builtin("inf", "from math import inf", math.inf)
_register_custom_builtin("nan", "from math import nan", math.nan)
_register_custom_builtin("NoneType", "NoneType = type(None)", type(None))
_register_custom_builtin("torch", "import torch", torch)
_register_custom_builtin("device", "from torch import device", torch.device)
_register_custom_builtin("fx_pytree", "import torch.fx._pytree as fx_pytree", fx_pytree)
_register_custom_builtin("pytree", "import torch.utils._pytree as pytree", torch.utils._pytree)


def _is_magic(x: str) -> bool:
    return x.startswith("__") and x.endswith("__")


def _snake_case(s: str) -> str:
    """FooBar as foo_bar."""
    return _CAPITAL.sub(r"_\1", s).lower()


class _Namespace:
    """Gives out names: x, x_1, x_2 …"""

    def __init__(self) -> None:
        self._obj_to_name: dict[Any, str] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}

    def create_name(self, candidate: str, obj: object | None) -> str:
        """An unused name with the candidate as its prefix; the one that obj has already."""
        if obj is not None and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        found = _SUFFIX.match(candidate)
        base, number = (found[1], int(found[2])) if found else (candidate, 0)
        number = max(number, self._base_count.get(base, 0))
        while candidate in self._used_names or self._is_illegal_name(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used_names.add(candidate)
        self._base_count[base] = number
        if obj is not None:
            self._obj_to_name[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: object) -> None:
        """Notes the name of an object."""
        kept = self._obj_to_name.setdefault(obj, name)
        assert kept is name, "obj is already associated"

    def _is_illegal_name(self, name: str, obj: object | None) -> bool:
        if name in vars(builtins):               # None, True and False too
            return obj is not vars(builtins)[name]
        if keyword.iskeyword(name):
            return True
        return name in _custom_builtins and obj is not _custom_builtins[name].obj

    def _rename_object(self, obj: object, name: str) -> None:
        assert obj in self._obj_to_name
        self._obj_to_name[obj] = name
        self._used_names.add(name)


def _identity(x: str) -> str:
    return x


_color_codes = {"yellow": "\033[33m", "cyan": "\033[36m", "green": "\033[32m", "red": "\033[31m", "blue": "\033[34m",
                "dim": "\033[2m", "dim_blue": "\033[2m\033[34m", "dim_green": "\033[2m\033[32m", "reset": "\033[0m"}


def _make_color_fn(code: str) -> Callable[[str], str]:
    def paint(s: str) -> str:
        return f"{_color_codes[code]}{s}{_color_codes['reset']}"
    return paint


_color_fns = {name: _make_color_fn(name) for name in _color_codes if name != "reset"}
