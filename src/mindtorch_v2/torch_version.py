"""torch.torch_version: torch.__version__ is a text that compares as a version, with texts and with tuples of numbers."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

_PARTS = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>a|alpha|b|beta|c|rc|pre|preview)[-_.]?(?P<pre_n>\d*))?"
    r"(?:-(?P<post_bare>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_n>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_n>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?", re.IGNORECASE)
_PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_LAST = (3, 0)        # after every pre-release


class InvalidVersion(ValueError):
    """A text that is no version."""


def version_key(version: Any) -> tuple[Any, ...]:
    """What orders versions as PEP 440 says."""
    if not isinstance(version, str) and isinstance(version, Iterable):
        version = ".".join(str(item) for item in version)
    found = _PARTS.fullmatch(version.strip()) if isinstance(version, str) else None
    if found is None:
        raise InvalidVersion(f"Invalid version: '{version}'")
    release = [int(part) for part in found["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    dev = (0, int(found["dev_n"] or 0)) if found["dev"] else (1, 0)
    post = (1, int(found["post_bare"] or found["post_n"] or 0)) if found["post"] or found["post_bare"] else (0, 0)
    pre = (_PRE[found["pre"].lower()], int(found["pre_n"] or 0)) if found["pre"] else _LAST
    if not found["pre"] and dev[0] == 0 and post[0] == 0:
        pre = (-1, 0)      # 1.0.dev1 comes before 1.0a1
    local = tuple((1, int(part), "") if part.isdigit() else (0, 0, part.lower())
                  for part in re.split("[-_.]", found["local"] or "") if part)
    return int(found["epoch"] or 0), release, pre, post, dev, local


def _compared(name: str) -> Callable[[TorchVersion, Any], Any]:
    of_tuples: Any = getattr(tuple, name)
    of_texts: Any = getattr(str, name)

    def compare(self: TorchVersion, other: Any) -> Any:
        try:
            return of_tuples(version_key(str(self)), version_key(other))
        except InvalidVersion:         # torch compares such texts as texts
            return of_texts(self, other)
    compare.__name__ = name
    return compare


class TorchVersion(str):
    """A version that is a text: `torch.__version__ >= (2, 1)`, `torch.__version__ < "2.10"`; != compares texts."""

    __lt__ = _compared("__lt__")
    __le__ = _compared("__le__")
    __gt__ = _compared("__gt__")
    __ge__ = _compared("__ge__")
    __eq__ = _compared("__eq__")
    __hash__ = str.__hash__
