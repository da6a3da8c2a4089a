"""Finds CANN, opens its libraries and its `acl` module: once, at the first npu use. No device is started here."""
from __future__ import annotations

import ctypes
import glob
import os
import platform
import re
import sys
import threading
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

from cann_tables import advice
from mindtorch_v2 import _config
from mindtorch_v2._backends.npu import acl_binding, acl_trust
from mindtorch_v2._backends.npu.errors import CannNotFoundError, MissingSymbolError, UntrustedCannError

# Where toolkits are, in the order of the search. {NAME} is a setting; a pattern's newest version comes first.
_HOMES = (
    "{ASCEND_HOME_PATH}", "{ASCEND_TOOLKIT_HOME}",
    *(f"{root}/{place}" for root in ("/usr/local/Ascend", "~/Ascend") for place in (
        "ascend-toolkit/latest", "cann", "latest", "nnae/latest", "ascend-toolkit/[0-9]*", "cann-[0-9]*", "[0-9]*")),
)
_DRIVER_LIB_DIRS = ("/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64/common",
                    "/usr/local/Ascend/driver/lib64")
_CANDIDATE_LIB_DIRS = (
    *(f"{home}/{folder}" for home in _HOMES for folder in ("lib64", f"{platform.machine()}-linux/lib64")),
    *_DRIVER_LIB_DIRS,
)

# In dependency order. CANN until 8.3 has its ops in libopapi and the libaclnn_ libraries, from 8.5 on in the libopapi_
# ones; a process that opens both sets has every op twice, which CANN does not support.
_UNTIL_8_3 = ("libopapi.so", "libaclnn_math.so", "libaclnn_ops_infer.so", "libaclnn_ops_train.so", "libaclnn_rand.so",
              "libaclnn_fft.so", "libaclnn_sparse.so")
_FROM_8_5 = ("libopapi_math.so", "libopapi_nn.so", "libopapi_cv.so", "libopapi_transformer.so")
_RUNTIME_LIBS = ("libacl_rt.so", "libascendcl.so")
_PRELOAD_LIBS = (*_RUNTIME_LIBS, "libnnopbase.so", *_FROM_8_5, *_UNTIL_8_3)
_SYMBOL_ORDER = ("libnnopbase", "libopapi", "libaclnn_", "libascendcl", "libacl_rt")

# Variables that set_env.sh sets, and the folders of the toolkit that they name.
_EXPORTED = {"ASCEND_HOME_PATH": "", "ASCEND_TOOLKIT_HOME": "", "ASCEND_AICPU_PATH": "", "ASCEND_OPP_PATH": "opp",
             "TOOLCHAIN_HOME": "toolkit"}

INSTALL = ("Install the Ascend driver and the CANN toolkit (https://www.hiascend.com/cann), or set ASCEND_HOME_PATH to the "
           f"folder of the toolkit that holds lib64. {advice.WITHOUT_A_CARD}")

_ACL_READY = False
_ACL_MODULE: Any = None
_ACL_LOCK = threading.Lock()
_LIBRARIES: dict[str, ctypes.CDLL] = {}
_FURTHER: dict[str, ctypes.CDLL] = {}             # those that ops do not need, opened by who needs them
_home = ""                                        # of the toolkit whose libraries are open
_symbols: dict[str, int] = {}

_MISSING_LIBRARY = re.compile(r"([^\s:/]+\.so[.\d]*): cannot open shared object file")


def ensure_acl() -> Any:
    """The `acl` module, loaded with CANN's libraries by the first call that succeeds."""
    global _ACL_READY, _ACL_MODULE
    if _ACL_READY:
        return _ACL_MODULE
    with _ACL_LOCK:
        if not _ACL_READY:
            _ACL_MODULE = _load()
            _ACL_READY = True
    return _ACL_MODULE


def _load() -> Any:
    """All steps or, whatever ends them (a missing library, Ctrl-C), none: the next call begins from nothing."""
    global _home
    before = {name: os.environ.get(name) for name in ("LD_LIBRARY_PATH", *_EXPORTED)}
    _LIBRARIES.clear()                            # what a call left that was interrupted twice
    try:
        folders = _of_one_home(_existing_dirs())
        if any(_find(name, folders) for name in _RUNTIME_LIBS):
            _prepend_ld_library_path(folders)
        _preload_libs(folders)
        return _import_acl()
    except BaseException:
        _LIBRARIES.clear()
        _home = ""
        _restore(before)
        raise


def _restore(before: dict[str, str | None]) -> None:
    """Takes back what was set, and sets nothing else: a file that names an npu must not touch the environment."""
    for name, value in before.items():
        if os.environ.get(name) == value:
            continue
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def _existing_dirs() -> list[str]:
    """The candidate folders that exist, in order."""
    given = _config.ascend_homes()
    for name, path in given.items():
        if path and not os.path.isabs(path):
            raise UntrustedCannError(f"{name}={path!r} is a relative path, which would make the current directory a place to "
                                     "load code from; set it to the full path of the toolkit")
    homes = {name: glob.escape(path) for name, path in given.items()}
    found: dict[str, str] = {}
    for candidate in _CANDIDATE_LIB_DIRS:
        if any(f"{{{name}}}" in candidate and not path for name, path in homes.items()):
            continue
        pattern = os.path.expanduser(candidate.format_map(homes))
        for folder in sorted(glob.glob(pattern), key=_version, reverse=True):
            if os.path.isdir(folder):
                found.setdefault(os.path.realpath(folder), folder)
    return list(found.values())


def places() -> tuple[Any, ...]:
    """What says where CANN is looked for; while it is the same, so is what is found, unless files change."""
    return (_CANDIDATE_LIB_DIRS, tuple(_config.ascend_homes().values()), _config.user_home(), _config.allow_writable_cann())


def _version(path: str) -> list[tuple[int, str]]:
    """Orders 8.10 behind 8.9, and 8.1.RC1 before 8.1.RC2."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.findall(r"\d+|\D+", path)]


def _home_of(folder: str) -> str:
    """The toolkit that a library folder belongs to, links resolved."""
    parent = os.path.dirname(folder)
    return os.path.realpath(os.path.dirname(parent) if parent.endswith("-linux") else parent)


def _of_one_home(folders: list[str]) -> list[str]:
    """The folders of the first toolkit that has libraries, and the driver's: two toolkits are never mixed."""
    for folder in folders:
        if any(os.path.exists(os.path.join(folder, name)) for name in _PRELOAD_LIBS):
            home = _home_of(folder)
            return [other for other in folders if other in _DRIVER_LIB_DIRS or _home_of(other) == home]
    return folders                                # there is nothing to mix


def _prepend_ld_library_path(folders: list[str]) -> None:
    """Lets child processes find the same CANN, in the same order of folders: one that the path has already must not come
    behind those that it lacks, which may hold only what a linker reads. This process opens its libraries by full path."""
    known = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    if not set(folders) <= set(known):
        os.environ["LD_LIBRARY_PATH"] = ":".join(folders + [path for path in known if path not in folders])


def _preload_libs(folders: list[str]) -> None:
    """Opens CANN's libraries for the whole process, each after what it needs; nothing where there are none."""
    global _home
    present = {name: path for name in _PRELOAD_LIBS if (path := _find(name, folders))}
    other = _UNTIL_8_3 if any(name in present for name in _FROM_8_5) else _FROM_8_5
    for name, path in present.items():
        if name not in other:
            _LIBRARIES[name] = _open(path, folders)
    runtimes = [path for name, path in present.items() if name in _RUNTIME_LIBS]
    if runtimes:
        _home = _home_of(os.path.dirname(runtimes[0]))
        _export_home(_home)


def _find(name: str, folders: list[str]) -> str | None:
    return next((path for folder in folders if os.path.exists(path := os.path.join(folder, name))), None)


def _open(path: str, folders: list[str]) -> ctypes.CDLL:
    """Opens a library; one that it needs and the linker cannot find is taken from the same folders first."""
    acl_trust.refuse_untrusted(path, _home_of(os.path.dirname(path)))
    tried: set[str] = set()
    while True:
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            missing = _MISSING_LIBRARY.search(str(error))
            found = _find(missing[1], folders) if missing else None
            if found is None or found in tried or found == path:
                raise CannNotFoundError(
                    f"{path} cannot be loaded: {error}. Looked in {', '.join(folders)}. If the missing file belongs to "
                    "the driver, install the Ascend driver; else install the CANN toolkit again") from error
            tried.add(found)
            _open(found, folders)


def _export_home(home: str) -> None:
    """Sets what CANN's libraries read from the environment and `set_env.sh` would have set."""
    for name, folder in _EXPORTED.items():
        path = os.path.join(home, folder) if folder else home
        if os.path.isdir(path):
            os.environ.setdefault(name, path)


def _import_acl() -> Any:
    """The toolkit's own `acl` module, or the binding of this package where the toolkit has none for this Python."""
    runtime = _LIBRARIES.get("libascendcl.so") or _LIBRARIES.get("libacl_rt.so")
    if runtime is None:
        raise CannNotFoundError(not_found())
    spec = PathFinder.find_spec("acl", [os.path.join(_home, "python", "site-packages")])
    if spec is None or spec.loader is None:
        return acl_binding.load(runtime)
    already = sys.modules.get("acl")
    if already is not None:
        # Another package of this name, or another toolkit's module, must not be called with our handles.
        return already if getattr(already, "__file__", None) == spec.origin else acl_binding.load(runtime)
    for file in filter(None, (spec.origin, spec.cached)):
        if os.path.exists(file):
            acl_trust.refuse_untrusted(file, _home)
    try:
        module = module_from_spec(spec)
        sys.modules["acl"] = module
        spec.loader.exec_module(module)
    except BaseException as error:                # a half of it must not be found by the next import
        for name in [name for name in sys.modules if name == "acl" or name.startswith("acl.")]:
            del sys.modules[name]
        if isinstance(error, ImportError):        # built for another Python
            return acl_binding.load(runtime)
        raise
    return module


def not_found() -> str:
    """What was looked for, where, and what to install."""
    homes = _config.ascend_homes()
    places = [f"{name}={homes[name] or '(not set)'}" for name in homes]
    places += [home for home in _HOMES if not home.startswith("{")]
    looked = "\n  ".join(places)
    folders = f"lib64 or {platform.machine()}-linux/lib64"
    return f"CANN was not found: neither {' nor '.join(_RUNTIME_LIBS)} is in {folders} of\n  {looked}\n{INSTALL}"


def home() -> str:
    """The folder of the toolkit whose libraries are open; "" where none is."""
    return _home


def libraries() -> dict[str, str]:
    """The open libraries of CANN with their files."""
    return {name: library._name for name, library in _LIBRARIES.items()}


def symbol(name: str) -> int:
    """The address of a C function of CANN."""
    address = _symbols.get(name)
    if address is None:
        ensure_acl()
        address = _symbols[name] = _address(name)
    return address


def has_symbol(name: str) -> bool:
    """Whether an open library of CANN has a C function of this name."""
    return any(getattr(library, name, None) is not None for library in _LIBRARIES.values())


def _address(name: str) -> int:
    for prefix in _SYMBOL_ORDER:
        for library_name, library in _LIBRARIES.items():
            function = getattr(library, name, None) if library_name.startswith(prefix) else None
            if function is not None:
                return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise MissingSymbolError(f"{name} is not in CANN {cann_version()}: looked in {', '.join(_LIBRARIES) or 'nothing'} "
                             f"of {_home or 'no toolkit'}. Install a CANN that has it")


def further_library(name: str) -> ctypes.CDLL:
    """A library of the loaded CANN that no op needs (libhccl.so), opened at its first use."""
    ensure_acl()
    with _ACL_LOCK:
        if name not in _FURTHER:
            folders = _of_one_home(_existing_dirs())
            path = _find(name, folders)
            if path is None:
                raise CannNotFoundError(f"{name} is not in {', '.join(folders)}: install a CANN toolkit that has it")
            _FURTHER[name] = _open(path, folders)
    return _FURTHER[name]


def cann_version() -> str:
    """The version of the CANN that is loaded, as it says or else its files; "of unknown version" where neither does."""
    for library in _LIBRARIES.values():
        ask, answer = getattr(library, "aclsysGetCANNVersion", None), ctypes.create_string_buffer(512)   # begins with the text
        if ask is not None and ask(0, answer) == 0 and answer.value:
            return answer.value.decode(errors="replace")
    for file in ("version.info", "version.cfg", "*/ascend_toolkit_install.info", "ascend_toolkit_install.info",
                 "runtime/version.info"):
        for path in glob.glob(os.path.join(_home, file)) if _home else ():
            with open(path, encoding="utf-8", errors="replace") as text:
                found = re.search(r"^\s*version\s*=\s*\[?([^\]\s]+)", text.read(), re.IGNORECASE | re.MULTILINE)
            if found:
                return found[1].rpartition(":")[2]
    return "of unknown version"
