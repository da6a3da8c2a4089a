"""The command cann-sim: run a program on this CANN, print its environment or compiler flags, say what it computes."""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import shutil
import signal
import sys
import textwrap
from typing import Any, NamedTuple

from . import compile_flags, env, home, link_flags

GIB = 1 << 30
HBM_MEM = 1  # aclrtMemAttr ACL_HBM_MEM


class Info(NamedTuple):
    """What the libraries say of themselves."""

    soc: str
    version: str
    devices: int
    memory: int  # bytes of one device
    computed: list[str]
    refused: list[str]
    absent: list[str]  # what the version asked for does not have


def read_info() -> Info:
    """Asks the libraries in this process; settings (CANN_SIM_*) take part."""
    lib64 = f"{home()}/lib64"
    acl, opapi = ctypes.CDLL(f"{lib64}/libascendcl.so"), ctypes.CDLL(f"{lib64}/libopapi.so")

    def ask(function: Any, *args: Any) -> None:
        if code := function(*args):
            raise RuntimeError(f"{function.__name__} returned {code}: {(acl.aclGetRecentErrMsg() or b'').decode()}")

    acl.aclGetRecentErrMsg.restype = acl.aclrtGetSocName.restype = opapi.cannSimOpName.restype = ctypes.c_char_p
    count, free, total = ctypes.c_uint32(), ctypes.c_size_t(), ctypes.c_size_t()
    version = ctypes.create_string_buffer(512)  # aclCANNPackageVersion; its first field is the text
    ask(acl.aclInit, None)
    ask(acl.aclrtGetDeviceCount, ctypes.byref(count))
    ask(acl.aclsysGetCANNVersion, 0, version)
    ask(acl.aclrtSetDevice, 0)
    ask(acl.aclrtGetMemInfo, HBM_MEM, ctypes.byref(free), ctypes.byref(total))
    names: list[list[str]] = [[], [], []]
    for i in range(opapi.cannSimOpCount()):
        kind = 2 if opapi.cannSimOpAbsent(i) else opapi.cannSimOpComputed(i)
        names[kind].append(opapi.cannSimOpName(i).decode())
    refused, computed, absent = names
    soc = acl.aclrtGetSocName().decode()
    ask(acl.aclrtResetDevice, 0)
    ask(acl.aclFinalize)
    return Info(soc, version.value.decode(), count.value, total.value, sorted(computed), sorted(refused), sorted(absent))


def print_info() -> None:
    info = read_info()
    print(f"home      {home()}")
    print(f"version   CANN {info.version}")
    print(f"devices   {info.devices} x {info.soc}, {info.memory / GIB:.1f} GiB each")
    print(f"ops       {len(info.computed)} computed, {len(info.refused)} refused with 561003, {len(info.absent)} absent")
    width = max(shutil.get_terminal_size((120, 24)).columns, 60)
    for title, names in (("computed", info.computed), ("refused", info.refused), ("absent", info.absent)):
        print(f"\n{title} ({len(names)}):")
        print(
            textwrap.fill(" ".join(names), width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        )


def print_env() -> None:
    for name, value in env().items():
        print(f"export {name}={shlex.quote(value)}")


def print_flags(compiling: bool, linking: bool) -> None:
    """Without a choice both, as one compiler call takes them."""
    both = not compiling and not linking
    print(shlex.join((compile_flags() if compiling or both else []) + (link_flags() if linking or both else [])))


def run(command: list[str]) -> int:
    os.environ.update(env())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cann-sim: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


def main(argv: list[str] | None = None) -> int:
    # Python ignores SIGPIPE, and a program started by exec would inherit that; `cann-sim info | head` is no error either.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    parser = argparse.ArgumentParser(prog="cann-sim", description="CANN's libraries on any host.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    runner = commands.add_parser("run", help="run a program that finds this CANN", usage="cann-sim run CMD [ARG ...]")
    runner.add_argument("program", metavar="CMD")
    runner.add_argument("arguments", metavar="ARG", nargs=argparse.REMAINDER)
    commands.add_parser("env", help='print shell exports; use as: eval "$(cann-sim env)"')
    commands.add_parser("info", help="print devices, memory, version, and which ops compute")
    compiler = commands.add_parser("cc", help="print compiler flags; use as: c++ a.cpp $(cann-sim cc)")
    compiler.add_argument("--cflags", action="store_true", help="only those that compile")
    compiler.add_argument("--libs", action="store_true", help="only those that link")
    chosen = parser.parse_args(argv)
    if chosen.command == "run":
        return run([chosen.program, *chosen.arguments])
    if chosen.command == "cc":
        print_flags(chosen.cflags, chosen.libs)
        return 0
    (print_env if chosen.command == "env" else print_info)()
    return 0
