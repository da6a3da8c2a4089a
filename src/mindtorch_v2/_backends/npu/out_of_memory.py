"""Why an npu has no memory left, and what helps; with the processes that hold it, as `npu-smi info` lists them."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import NamedTuple

from mindtorch_v2 import _config
from mindtorch_v2._backends.npu.memory_stats import size_text

_MB = 1 << 20
_FOLDERS = ("/usr/local/bin", "/usr/local/sbin")  # where the driver's installer puts npu-smi
_SECONDS = 10                                     # npu-smi needs about one; a driver that hangs must not hide the error
_MOST = 8                                         # processes that a message names


class Holder(NamedTuple):
    """A process that holds memory of a device."""
    process: int
    name: str                                     # "" where npu-smi gives none, as in a container
    nbytes: int


class Books(NamedTuple):
    """Bytes of a device and of this process when memory ended."""
    requested: int
    free: int
    total: int
    reserved: int                                 # by this process
    active: int
    largest: int                                  # free block of the reserved memory
    fraction: float | None                        # of the device that this process may take


def reason(device: int, books: Books) -> str:
    """Which of the reasons it is: a limit, the device's size, fragmentation, other processes, this one."""
    cached, others = books.reserved - books.active, max(books.total - books.free - books.reserved, 0)
    if books.fraction is not None and books.reserved + books.requested > books.fraction * books.total:
        return (f"This process may take {books.fraction:g} of the device: torch.npu.set_per_process_memory_fraction and "
                "per_process_memory_fraction of PYTORCH_NPU_ALLOC_CONF set that limit.")
    if books.requested > books.total:
        return "That is more than the device has."
    if cached >= books.requested:
        return (f"{size_text(cached)} of the reserved memory are free, in pieces of at most {size_text(books.largest)}: that is "
                "fragmentation, and PYTORCH_NPU_ALLOC_CONF=expandable_segments:True avoids it.")
    if books.free + cached + others >= books.requested and others * 20 > books.total:
        return f"Other processes and the driver hold {size_text(others)}: {_named(holders_on(device), books.reserved > 0)}."
    return ("This process itself holds the rest: torch.npu.memory._dump_snapshot(FILE) and `python -m mindtorch_v2 memory "
            "FILE` show what for.")


def _named(holders: list[Holder], holds: bool) -> str:
    """Text that lists the processes, without this one; holds: whether this one has memory of the device too."""
    others = [each for each in holders if each.process != os.getpid()]
    if not others:
        return "`npu-smi info` lists the processes on the device"
    named = [f"process {each.process}{f' ({each.name})' if each.name else ''} {size_text(each.nbytes)}" for each in others[:_MOST]]
    text = ", ".join(named) + (f" and {len(others) - _MOST} more processes" if len(others) > _MOST else "")
    # Where a process that holds memory is not in the list, it runs in a container and npu-smi counts processes as the host does.
    unknown = holds and len(others) == len(holders)
    return text + " (as the host numbers processes; one of them may be this process)" * unknown


def holders_on(device: int) -> list[Holder]:
    """The processes on a device, the largest first; none where npu-smi does not tell."""
    command = shutil.which("npu-smi") or shutil.which("npu-smi", path=os.pathsep.join(_FOLDERS))
    if command is None:
        return []
    try:
        ended = subprocess.run([command, "info"], capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    chips = by_chip(ended.stdout)
    visible = _config.npu_visible_devices()
    at = device if visible is None else visible[device] if device < len(visible) else -1
    return sorted(chips[at], key=lambda each: -each.nbytes) if 0 <= at < len(chips) else []


def by_chip(text: str) -> list[list[Holder]]:
    """The processes on each chip, in the order of the devices, of what `npu-smi info` prints.

    A device is two rows, "NPU Name" and "Chip [Phy-ID]"; cards of several chips repeat both. A process is a row of NPU and
    chip (or NPU alone), process id, name and MB.
    """
    chips: dict[tuple[int, int], list[Holder]] = {}
    npu: int | None = None
    in_processes = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        in_processes = in_processes or "Process id" in line
        numbers = re.match(r"(\d+)(?:\s+(\S+))?$", cells[0])
        if numbers is None or not line.lstrip().startswith("|") or len(cells) < 3:
            continue
        if in_processes:
            if len(cells) > 3 and cells[1].isdigit() and cells[3].isdigit():
                place = int(numbers[1]), int(numbers[2] or 0)
                chips.setdefault(place, []).append(Holder(int(cells[1]), cells[2], int(cells[3]) * _MB))
        elif npu is None:
            npu = int(numbers[1])
        else:
            chips.setdefault((npu, int(numbers[1])), [])
            npu = None
    return list(chips.values())
