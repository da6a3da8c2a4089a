"""`python -m mindtorch_v2 [-m MODULE | -c CODE | FILE] …` runs a program whose `import torch` finds this library.

The program is started anew by the same Python with the variable that its children read, so everything about it (argv,
__main__, tracebacks, exit code, spawned workers) is as without this command. `as-torch` is the choice for a whole
environment.
"""
from __future__ import annotations

import os
import subprocess
import sys

import mindtorch_dropin
import mindtorch_v2 as torch
from mindtorch_dropin import environment

USAGE = f"""usage: python -m mindtorch_v2 [-m MODULE | -c CODE | FILE] [ARGUMENT ...]
       python -m mindtorch_v2 as-torch [--install | --remove]
       python -m mindtorch_v2 info [--json]
       python -m mindtorch_v2 selftest [--device npu:0] [--quick] [--part NAME] [--output FILE]
       python -m mindtorch_v2 memory SNAPSHOT [-o PAGE.html | COUNTERS.json | SNAPSHOT.pickle]
       python -m mindtorch_v2 trace TRACE ... [-o PAGE.html | TRACE.json]

Runs a program whose `import torch` finds mindtorch_v2. as-torch makes it so for this environment, always:
writes (or removes) a .pth file and an entry that tells pip that torch is there. {mindtorch_dropin.VARIABLE}=1
in the environment does the same for entry points that start Python themselves. info says which CANN, driver and
devices are found, and what helps where something is wrong. selftest tries the device against the CPU and writes a report.
memory and trace make a page of a memory snapshot and of profiler traces."""


def run(arguments: list[str]) -> None:
    """Become the program; interpreter options such as -W and -X go with it."""
    if not os.path.exists(os.path.join(os.path.dirname(mindtorch_dropin.PACKAGE_FOLDER), "mindtorch_v2.pth")):
        raise RuntimeError("[mindtorch_v2] expected mindtorch_v2.pth beside the package, which makes `import torch` find "
                           "it: install the package with pip, or call mindtorch_v2.install() in the program")
    environ = {**os.environ, mindtorch_dropin.VARIABLE: "1"}
    flags = subprocess._args_from_interpreter_flags()     # type: ignore[attr-defined]  # what multiprocessing uses too
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *flags, *arguments], environ)


def as_torch(options: list[str]) -> int:
    """The choice for a whole environment; without an option, says whether it was made."""
    folder = environment.site_packages()
    if options == ["--install"]:
        changed = environment.add(folder)
    elif options == ["--remove"]:
        changed = environment.remove(folder)
    elif not options:
        chosen = (folder / environment.PTH).exists()
        print(f"torch is {'' if chosen else 'not '}mindtorch_v2 in {folder}")
        return 0
    else:
        print(USAGE, file=sys.stderr)
        return 2
    print(*changed, sep="\n")
    return 0


def main(arguments: list[str]) -> int:
    """What the command line says."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] == "as-torch":
        return as_torch(arguments[1:])
    if arguments[0] in ("info", "selftest", "memory", "trace"):
        return getattr(torch._commands, arguments[0]).main(arguments[1:])
    run(arguments)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (RuntimeError, OSError) as error:      # expected failures print one line, no traceback
        sys.exit(str(error))
