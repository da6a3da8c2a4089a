"""One place of the fault sweep: the call that fails, with which code, and what has to hold afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import acl_loader, errors

SILENT = "passed in silence"  # a fault that was not reported
# A code that the function can really give, by the first pattern that matches the name of a place.
_CODES = (
    (r"open |lookup ", (0,)),  # by Loading
    (r"op |lost", (507015,)),  # a core's exception; lost:… has its own
    (r"launch aclnn", (361001,)),
    (r"aclnn(Init|Finalize)", (561000,)),
    (r"aclnn", (561103,)),
    (r"acl(Create|Destroy|Set|GetView)[A-Z]\w*", (561000,)),
    (r"aclrtMalloc|aclrtMapMem", (207001, 507899)),
    (r"aclrtReserveMemAddress", (207001,)),
    (r"aclrt(Synchronize|StreamSynchronize)", (507015, 507046)),
    (r"aclrtCreateEvent", (207007,)),
    (r"aclrtCreateStream", (207008,)),
    (r"aclrt(Record|StreamWait|Reset|Query)\w*Event|aclrtEvent|aclrtQueryEvent", (107003,)),
    (r"aclmdlRICaptureBegin", (107030,)),
    (r"aclmdlRICaptureEnd", (107025, 507903)),
    (r"aclmdlRIExecute", (507011,)),
    (r"aclmdlRI", (107000,)),
    (r"acl(Init|rtSetDevice|rtGetDeviceCount)", (507033,)),
    (r".*", (507899,)),
)  # fmt: skip
# Returning NULL is all that these do: there is no code to name.
_POINTERS = re.compile(r"aclCreate\w+$|aclrtGetSocName$")
# No exception, and numbers that are right, are right for these: why.
_ABSORBED = {
    r"lookup ": "an op that CANN lacks is served by another, or by several",
    r"aclSetAclOpExecutorRepeatable": "CANN allows it for some calls only: such a call is prepared each time",
    r"aclSet(Dynamic)?(Input|Output)TensorAddr": "CANN may refuse it: the call is prepared again",
    r"aclrtMalloc(Align32|Physical)?=207001": "cached memory is freed, and the allocation retried",
    r"aclrt(CreateEvent\w*|RecordEvent)": "of a freed block: its stream is waited for instead",
}
# What a call that failed was to end stays alive, by the simulator's rule.
_LEFT_ALIVE = {
    "aclrtFree": {"allocations of device memory"},
    "aclrtFreeHost": {"allocations or registrations of pinned host memory"},
    "aclrtDestroyStream": {"streams"},
    "aclrtDestroyEvent": {"events"},
    "aclrtDestroyContext": {"contexts"},
    "aclrtUnmapMem": {"mappings of device memory", "handles of physical memory", "reservations of addresses"},
    "aclrtFreePhysical": {"handles of physical memory"},
    "aclrtReleaseMemAddress": {"reservations of addresses"},
    "aclmdlRIDestroy": {"graphs"},
    "aclDestroyTensorList": {"aclTensorList", "aclTensor"},
    "aclDestroyScalarList": {"aclScalarList", "aclScalar"},
    "aclDestroyAclOpExecutor": {"aclOpExecutor"},
    "aclDestroyTensor": {"aclTensor"},
    "aclDestroyScalar": {"aclScalar"},
    "aclDestroyIntArray": {"aclIntArray"},
    "aclDestroyFloatArray": {"aclFloatArray"},
    "aclDestroyBoolArray": {"aclBoolArray"},
}
_LOST = 507010
Alive = dict[str, tuple[int, int]]  # how many of a kind, and their bytes


class Place(NamedTuple):
    name: str  # of a function, "launch aclnnAdd", "op aclnnAdd", or "lost:0"
    n: int
    code: int

    @property
    def plan(self) -> str:
        return f"{self.name}@{self.n}" if self.name.startswith("lost:") else f"{self.name}:{self.n}={self.code}"

    @property
    def on_device(self) -> bool:
        return self.name.startswith(("op ", "lost:"))

    @property
    def function(self) -> str:
        return self.name.rpartition(" ")[2]


TYPES = (torch.AcceleratorError, torch.OutOfMemoryError, errors.CannNotFoundError, errors.MissingSymbolError)


class Loading:
    """Faults of the loader, which CANN's functions have no part in: the first "open" of a library, "lookup" of a name."""

    def __init__(self, plan: str) -> None:
        self.counts: dict[str, int] = {}
        self._wanted = plan.partition(":")[0]
        self.is_named = self._wanted.startswith(("open ", "lookup "))
        real_open, real_address = ctypes.CDLL, acl_loader._address

        def open_library(path: str, *args: Any, **kwargs: Any) -> Any:
            if self._fails(f"open {os.path.basename(path)}"):
                raise OSError(f"{path}: file too short")
            return real_open(path, *args, **kwargs)

        def address(name: str) -> int:
            if self._fails(f"lookup {name}"):
                raise errors.MissingSymbolError(f"{name} is not in CANN")
            return real_address(name)

        ctypes.CDLL, acl_loader._address = open_library, address  # type: ignore[assignment,misc]

    def _fails(self, key: str) -> bool:
        self.counts[key] = self.counts.get(key, 0) + 1
        return key == self._wanted and self.counts[key] == 1


class Seen(NamedTuple):
    """What a program saw of a fault: its exception, and other output."""

    numbers: list[float] | None
    error: BaseException | None
    said: str  # warnings, exceptions that could not be raised, lines on stderr

    @property
    def text(self) -> str:
        return f"{self.error or ''}\n{self.said}"


def places_of(counts: dict[str, int], devices: int) -> list[Place]:
    """Every place that a run with these counts has, in a fixed order."""
    found = []
    for name, count in sorted(counts.items()):
        codes = next(codes for pattern, codes in _CODES if re.match(pattern, name))
        most = 1 if codes == (0,) else count  # a name that was found is not looked for again
        found += [Place(name, n, code) for n in range(1, most + 1) for code in codes]
    tasks = sum(count for name, count in counts.items() if name.startswith("op "))
    return found + [Place(f"lost:{device}", n, _LOST) for device in range(devices) for n in range(1, tasks // devices + 1)]


@contextlib.contextmanager
def _listening(said: list[str]) -> Iterator[None]:
    hook, stderr = sys.unraisablehook, io.StringIO()
    sys.unraisablehook = lambda args: said.append(f"{type(args.exc_value).__name__}: {args.exc_value}")
    try:
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stderr(stderr):
            warnings.simplefilter("always")
            yield
    finally:
        sys.unraisablehook = hook
        said += [str(w.message) for w in warned] + [stderr.getvalue()]


def watched(run: Callable[[], Any]) -> Seen:
    """Runs a program and keeps what it says."""
    said: list[str] = []
    numbers = error = None
    with _listening(said):
        try:
            numbers = run()
        except Exception as failure:
            error = failure
            traceback.clear_frames(failure.__traceback__)  # or its tensors would seem to be leaked
    return Seen(numbers, error, "\n".join(said))


def reached(place: Place, counts: dict[str, int]) -> bool:
    """Whether a run with these counts came to a place."""
    if place.name.startswith("lost:"):
        return sum(count for name, count in counts.items() if name.startswith("op ")) >= place.n
    return counts.get(place.name, 0) >= place.n


def is_well(seen: Seen, right: list[float] | None) -> bool:
    """Whether a run gave the right numbers and reported nothing."""
    return seen.error is None and not seen.text.strip() and seen.numbers == right


def told_problems(place: Place, seen: Seen, right: list[float]) -> list[str]:
    """What is wrong with the report of a fault."""
    if seen.error is None and seen.numbers != right:
        return [f"no exception, and {seen.numbers} for {right}"]
    if seen.error is not None and not isinstance(seen.error, TYPES if place.code == 0 else TYPES[:2]):
        return [f"{type(seen.error).__name__}: {seen.error}"]
    if isinstance(seen.error, torch.OutOfMemoryError) and place.code in errors.OUT_OF_MEMORY:
        return []
    text = seen.text
    if not place.on_device:  # CANN's own words name the call anyhow; ours have to
        text = re.sub(r"CANN says: .*", "", text)
    if not text.strip():
        silent = f"{place.name}={place.code}"
        return [] if any(re.match(pattern, silent) for pattern in _ABSORBED) else [SILENT]
    problems = []
    if place.function not in text and not place.name.startswith("lost:"):
        problems.append(f"{place.function} is not named: {text!r}")
    if f"{errors.code_name(place.code)} ({place.code})" not in text and not _POINTERS.match(place.name) and place.code:
        problems.append(f"{place.code} is not named: {text!r}")
    if re.match(r"aclCreate|aclDestroy|aclSet|aclGetView", place.name) and "aclnn" not in text:
        problems.append(f"the op is not named: {text!r}")
    return problems


def added(some: Alive, more: Alive, sign: int = 1) -> Alive:
    """Two counts in one; sign -1: their difference."""
    none = (0, 0)
    return {kind: (some.get(kind, none)[0] + sign * more.get(kind, none)[0],
                   some.get(kind, none)[1] + sign * more.get(kind, none)[1]) for kind in some | more}  # fmt: skip


def leaked(place: Place, before: Alive, after: Alive) -> list[str]:
    """What is alive now and was not before, less what the fault itself left alive. Executors are listed with their ops."""
    allowed = _LEFT_ALIVE.get(place.name, set())
    return [f"{now} {kind}, {before.get(kind, (0, 0))} before" for kind, now in after.items()
            if kind.partition(" of aclnn")[0] not in allowed and any(n > b for n, b in zip(now, before.get(kind, (0, 0))))]  # fmt: skip
