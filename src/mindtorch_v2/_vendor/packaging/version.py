"""Versions that compare as PEP 440 says: `parse("2.13") > parse("2.9")`."""
from __future__ import annotations

from functools import total_ordering

from mindtorch_v2.torch_version import InvalidVersion, version_key

__all__ = ["InvalidVersion", "Version", "parse"]


@total_ordering
class Version:
    """A version with its release numbers."""

    def __init__(self, version: str) -> None:
        self._text, self._key = version.strip(), version_key(version)

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers, as they were written."""
        text = self._text.lower().lstrip("v").rpartition("!")[2]
        digits = ""
        for character in text:
            if not (character.isdigit() or character == "."):
                break
            digits += character
        return tuple(int(part) for part in digits.strip(".").split("."))

    major = property(lambda self: self.release[0])
    minor = property(lambda self: (*self.release, 0)[1])
    micro = property(lambda self: (*self.release, 0, 0)[2])
    is_devrelease = property(lambda self: self._key[4][0] == 0)
    is_prerelease = property(lambda self: self._key[4][0] == 0 or self._key[2][0] < 3)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key if isinstance(other, Version) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self._key))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Version('{self}')>"


def parse(version: str) -> Version:
    """The version of a text."""
    return Version(version)
