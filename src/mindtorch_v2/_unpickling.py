"""How pickles become objects: an unpickler of our own for untrusted files, Python's for trusted ones.

WeightsUnpickler runs a closed list of opcodes and calls a closed list of constructors (_rebuilding.py). It has no getattr
and no import: what a file names is found in a table or refused. Memory and time are bounded by the size of the file.
"""

from __future__ import annotations

import pickle
import warnings
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pickle import UnpicklingError
from struct import unpack
from typing import IO, Any, NamedTuple

import mindtorch_v2 as torch

from ._rebuilding import (
    Listed,
    Misfit,
    check_names,
    expect,
    listed_globals,
    set_listed_state,
    shown,
    state_parts,
    torch_globals,
)

_BLOCKED_MODULES = ("sys", "os", "posix", "nt")  # not even add_safe_globals allows them
_REBUILD_FROM_TYPE = "torch._tensor._rebuild_from_type_v2"
_PLAIN_KEYS = frozenset((str, bytes, float, bool, type(None)))
_FREE_KEY_NODES = 64  # what a key may cost without being counted: parts of a tuple
_FREE_KEY_LENGTH = 4096  # and characters, which are compared when two keys are equal
_MAX_COLLISIONS = 1000  # keys of one hash make a dict quadratic; strings are hashed at random, other keys are not
_FREE_WORK = 1 << 16  # items that may be copied in any pickle
_safe_globals: dict[str, Any] = {}


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow classes and functions, or (object, "module.name") pairs, in weights_only loads."""
    for item in safe_globals:
        pair = item if isinstance(item, tuple) or not hasattr(item, "__module__") else (item, _full_name(item))
        if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], str):
            _safe_globals[pair[1]] = pair[0]
        else:
            _safe_globals[f"<{id(item)}>"] = _NoGlobal(item)


class _NoGlobal(NamedTuple):
    """What was given to add_safe_globals and names nothing: as in torch, the first load that asks refuses it."""
    item: Any

    def refuse(self) -> None:
        """Says what is wrong."""
        if not isinstance(self.item, tuple):
            raise AttributeError(f"'{type(self.item).__name__}' object has no attribute '__module__'")
        if len(self.item) != 2:
            raise ValueError("Expected tuple of length 2 (global, str of callable full path), but got tuple of length: "
                             f"{len(self.item)}")
        raise TypeError(f"Expected second item in tuple to be str of callable full path, but got: {type(self.item[1])}")


def get_safe_globals() -> list[Any]:
    """What add_safe_globals has allowed."""
    return [v.item if isinstance(v, _NoGlobal) else v if _full_name(v) == name else (v, name)
            for name, v in _safe_globals.items()]


def clear_safe_globals() -> None:
    """Forget what add_safe_globals has allowed."""
    _safe_globals.clear()


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """Allow globals for the length of a with block."""
    before = dict(_safe_globals)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe_globals.clear()
        _safe_globals.update(before)


def _full_name(value: Any) -> str:
    """The name in files, where this library goes by PyTorch's name."""
    top, dot, rest = value.__module__.partition(".")
    return f"{'torch' if top == 'mindtorch_v2' else top}{dot}{rest}.{value.__qualname__}"


def name_today(module: str, name: str) -> tuple[str, str]:
    """A global's module and name; up to protocol 2 files have those of Python 2."""
    return NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))


@cache
def _listed_by_id() -> dict[int, Listed]:
    return {id(entry.value): entry for entry in listed_globals().values()}


def is_known(full: str) -> bool:
    """Whether weights_only takes a global of this name."""
    return full.rpartition(".")[0] not in _BLOCKED_MODULES and (full in _safe_globals or full in listed_globals())


def _is_allowed(value: Any) -> bool:
    return any(value is known for known in _safe_globals.values())


class WeightsUnpickler:
    """Builds tensors and plain containers, and what add_safe_globals allows; nothing else."""

    def __init__(self, file: IO[bytes], nbytes: int, encoding: str = "utf-8") -> None:
        self.file, self.encoding = file, encoding
        self.begin, self.worked = file.tell(), 0
        self.bytes_left = 2 * nbytes + _FREE_WORK  # of tensors that are copied
        self.memo: dict[int, Any] = {}
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []  # the stacks below each MARK
        self.hashes: dict[int, Any] = {}  # the first key of each hash
        self.collisions = 0

    def persistent_load(self, pid: Any) -> Any:
        raise UnpicklingError("a persistent id where no storage belongs")

    def load(self) -> Any:
        """Run the pickle to its STOP and return what it built."""
        read, handlers = self.file.read, _HANDLERS
        try:
            while (code := read(1)) != b".":
                handler = handlers.get(code)
                if handler is None:
                    raise UnpicklingError(
                        f"Unsupported operand {code[0]}" if code else "the pickle ends before its STOP"
                    )
                handler(self)
            return self.stack.pop()
        except IndexError as error:  # of a stack: constructors are called apart
            raise UnpicklingError("a pickle that takes more from its stack than it put there") from error

    def protocol(self) -> None:
        """The protocol; torch's own reader knows most of the opcodes of 2."""
        version = self.take(1)[0]
        expect(version <= pickle.HIGHEST_PROTOCOL, "a protocol of pickle that is known")
        if version != 2:
            warnings.warn(f"Detected pickle protocol {version} in the checkpoint, which was not the default pickle protocol used "
                          "by `torch.load` (2). The weights_only Unpickler might not support all instructions implemented by "
                          "this protocol, please file an issue for adding support if you encounter this.", stacklevel=2)

    # ---- reading ----

    def take(self, n: int) -> bytes:
        data = self.file.read(n) if n >= 0 else b""
        if len(data) != n:
            raise UnpicklingError(f"the pickle ends inside an item of {n} bytes")
        return data

    def number(self, form: str, n: int) -> Any:
        return unpack(form, self.take(n))[0]

    def sized(self, form: str, n: int) -> bytes:
        return self.take(self.number(form, n))

    def text(self, data: bytes, encoding: str = "utf-8", errors: str = "surrogatepass") -> str:
        try:
            return data.decode(encoding, errors)
        except UnicodeDecodeError as error:
            raise UnpicklingError(f"a text that is not {encoding}") from error

    def line(self) -> str:
        data = self.file.readline(1024)
        expect(data.endswith(b"\n"), "the name of a global on a line of its own")
        return self.text(data[:-1], errors="strict")

    def string(self, data: bytes) -> None:
        """A str of Python 2."""
        self.stack.append(data if self.encoding == "bytes" else self.text(data, self.encoding, "strict"))

    def integer(self, data: bytes) -> None:
        self.stack.append(int.from_bytes(data, "little", signed=True))

    # ---- the stack ----

    def mark(self) -> None:
        self.outer.append(self.stack)
        self.stack = []

    def items(self) -> list[Any]:
        """What was put on the stack since the last MARK."""
        found, self.stack = self.stack, self.outer.pop()
        return found

    def make_tuple(self) -> None:
        items = self.items()
        self.stack.append(tuple(items))

    def collapse(self, n: int) -> None:
        expect(len(self.stack) >= n, "as many items on the stack as a tuple has")
        self.stack[-n:] = [tuple(self.stack[-n:])]

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise UnpicklingError(f"expected an item {index} in the memo")
        self.stack.append(self.memo[index])

    def memoize(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def work(self, amount: int) -> None:
        """Count items that are copied or looked at again: each came from a byte of the pickle, so there are not more."""
        self.worked += amount
        if self.worked > _FREE_WORK and self.worked > self.file.tell() - self.begin + _FREE_WORK:
            raise UnpicklingError("expected a pickle that does not copy the same data again and again")

    # ---- containers ----

    def check_key(self, key: Any) -> None:
        """A key must be hashable, cheap to hash (C recurses without a limit) and not made to collide."""
        kind = type(key)
        if kind in _PLAIN_KEYS:
            if (kind is str or kind is bytes) and len(key) > _FREE_KEY_LENGTH:
                self.work(len(key))
            return
        if kind is int and -(1 << 60) < key < 1 << 60:
            return
        if kind is tuple or kind is frozenset:
            self.check_nested_key(key)
        try:
            first = self.hashes.setdefault(hash(key), key)
        except TypeError as error:
            raise UnpicklingError(f"a key that has a hash, got a {kind.__name__}") from error
        if first is not key and not (type(first) is kind and kind is not torch.Tensor and first == key):
            self.collisions += 1  # also of keys of two types: one int must not cover for many tuples of its hash
            expect(self.collisions <= _MAX_COLLISIONS, "keys that do not all have the same hash")

    def check_nested_key(self, key: Any) -> None:
        level, count = [key], 0
        for _ in range(32):
            count += sum(map(len, level))
            if count > _FREE_KEY_NODES:
                self.work(count)  # before the next level is listed: parts can stand for themselves many times
            texts = sum(len(part) for item in level for part in item if type(part) in (str, bytes))
            if texts > _FREE_KEY_LENGTH:
                self.work(texts)
            level = [part for item in level for part in item if type(part) in (tuple, frozenset)]
            if not level:
                return
        raise UnpicklingError("expected a key that is not nested more than 32 deep")

    def want_list(self, verb: str) -> None:
        if type(self.stack[-1]) is not list:
            raise UnpicklingError(f"Can only {verb} lists, but got {type(self.stack[-1])}")

    def append(self) -> None:
        item = self.stack.pop()
        self.want_list("append to")
        self.stack[-1].append(item)

    def append_all(self) -> None:
        items = self.items()
        self.want_list("extend")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any], word: str = "SETITEMS") -> None:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, Counter):
            raise UnpicklingError(f"Can only {word} for dict, collections.OrderedDict, collections.Counter, but got {type(target)}")
        expect(len(items) % 2 == 0, "pairs of keys and values")
        for i in range(0, len(items), 2):
            self.check_key(items[i])
            target[items[i]] = items[i + 1]

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value], "SETITEM")

    def add_items(self) -> None:
        items = self.items()
        expect(type(self.stack[-1]) is set, "a set to add to")
        for item in items:
            self.check_key(item)
        self.stack[-1].update(items)

    def frozen_set(self) -> None:
        items = self.items()
        for item in items:
            self.check_key(item)
        self.stack.append(frozenset(items))

    # ---- globals, calls, states ----

    def find_global(self, module: Any, name: Any) -> Any:
        expect(type(module) is str and type(name) is str, "the name of a global as text")
        module, name = name_today(module, name)
        full = f"{module}.{name}"
        if module in _BLOCKED_MODULES:
            raise UnpicklingError(
                f"Trying to load unsupported GLOBAL {shown(full)} whose module {module} is blocked."
            )
        if full in _safe_globals:
            return _safe_globals[full]
        if full in listed_globals():
            return listed_globals()[full].value
        for known in _safe_globals.values():
            if isinstance(known, _NoGlobal):
                known.refuse()
        full = shown(full)
        raise UnpicklingError(
            f"Unsupported global: GLOBAL {full.removeprefix('builtins.')} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{full.removeprefix('builtins.')}])` or the "
            f"`torch.serialization.safe_globals([{full.removeprefix('builtins.')}])` context manager to allowlist this global if "
            "you trust this class/function."
        )

    def call(self, function: Any, args: Any) -> Any:
        """Call a listed constructor with checked arguments, or what the user has allowed."""
        if _is_allowed(function):
            expect(type(args) is tuple and callable(function), "something to call, and a tuple")
            return self.of_user(function, *args)
        entry = _listed_by_id().get(id(function))
        if entry is None:
            raise UnpicklingError(f"Trying to call reduce for unrecognized function of type {type(function).__name__}")
        if entry is listed_globals()[_REBUILD_FROM_TYPE]:
            return self.rebuild_from_type(args)
        entry.check(args)
        if entry.cost is not None:
            self.work(entry.cost(args))
        if entry.nbytes is not None:
            self.bytes_left -= entry.nbytes(args)
            expect(self.bytes_left >= 0, "tensors that are not larger than the file")
        if entry.keys is not None:
            for key in entry.keys(args):
                self.check_key(key)
        return entry.make(*args)  # type: ignore[misc]

    def of_user(self, function: Callable[..., Any], *args: Any) -> Any:
        """Code that the user has allowed, which may raise anything when the file is damaged."""
        try:
            return function(*args)
        except (UnpicklingError, RuntimeError, MemoryError):
            raise
        except Exception as error:
            name = getattr(function, "__qualname__", type(function).__name__)
            raise UnpicklingError(f"{shown(name)} raised {type(error).__name__}: {error}") from error

    def rebuild_from_type(self, args: Any) -> Any:
        """_rebuild_from_type_v2(func, class, args, state): a tensor of a class, with attributes."""
        expect(type(args) is tuple and len(args) == 4, "four arguments of _rebuild_from_type_v2")
        function, kind, inner, state = args
        known = kind is torch.Tensor or kind is torch.nn.Parameter or _is_allowed(kind)
        expect(known and isinstance(kind, type) and issubclass(kind, torch.Tensor),
               "Tensor, Parameter or a subclass that add_safe_globals allows")
        expect(function is not listed_globals()[_REBUILD_FROM_TYPE].value, "a function that rebuilds a plain tensor")
        tensor = self.call(function, inner)
        expect(isinstance(tensor, torch.Tensor), "a function that rebuilds a tensor")
        if type(tensor) is not kind:
            tensor = tensor.as_subclass(kind)
        own = getattr(kind, "__setstate__", None)
        if own is not None and own is not getattr(torch.Tensor, "__setstate__", None):
            self.of_user(tensor.__setstate__, state)
            return tensor
        self.set_state(tensor, state, torch.nn.Parameter)
        return tensor

    def set_state(self, target: Any, state: Any, owner: type) -> None:
        self.work(sum(map(len, state_parts(state))))
        self.of_user(set_listed_state, target, state, owner)

    def reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self.call(self.stack[-1], args)

    def new_object(self) -> None:
        args = self.stack.pop()
        kind = self.stack[-1]
        if _is_allowed(kind):
            expect(isinstance(kind, type) and type(args) is tuple, "a class and a tuple")
            self.stack[-1] = self.of_user(kind.__new__, kind, *args)
        else:
            self.stack[-1] = self.call(kind, args)

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        kind = type(target)
        if kind is OrderedDict:  # a state_dict has an attribute _metadata
            expect(type(state) is dict, "attributes as a dict")
            self.work(len(state))
            check_names(state, OrderedDict)
            target.__dict__.update(state)
        elif _is_allowed(kind) and hasattr(target, "__setstate__"):
            self.of_user(target.__setstate__, state)
        elif _is_allowed(kind):
            self.set_state(target, state, torch.nn.Parameter if issubclass(kind, torch.Tensor) else object)
        else:
            raise UnpicklingError("Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, "
                                  f"but got {kind}")

    def persistent(self) -> None:
        self.stack[-1] = self.persistent_load(self.stack[-1])

    def global_of_stack(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self.find_global(module, name))


def _handlers() -> dict[bytes, Callable[[WeightsUnpickler], Any]]:
    """What each opcode does. Not here, as nothing writes them since protocol 2 or they only help an attack: INST, OBJ,
    EXT*, NEWOBJ_EX, PERSID, DUP, GET, PUT, LONG4 and the numbers and strings as text."""

    def push(make: Callable[[WeightsUnpickler], Any]) -> Callable[[WeightsUnpickler], Any]:
        return lambda m: m.stack.append(make(m))

    def constant(value: Any) -> Callable[[WeightsUnpickler], Any]:
        return lambda m: m.stack.append(value)

    u = WeightsUnpickler
    table: dict[str, Callable[[WeightsUnpickler], Any]] = {
        "PROTO": u.protocol,
        "FRAME": lambda m: m.take(8), "MARK": u.mark, "POP": lambda m: m.stack.pop(), "POP_MARK": u.items,
        "NONE": constant(None), "NEWTRUE": constant(True), "NEWFALSE": constant(False), "EMPTY_TUPLE": constant(()),
        "BININT": push(lambda m: m.number("<i", 4)), "BININT1": push(lambda m: m.take(1)[0]),
        "BININT2": push(lambda m: m.number("<H", 2)), "BINFLOAT": push(lambda m: m.number(">d", 8)),
        "LONG1": lambda m: m.integer(m.sized("B", 1)),
        "SHORT_BINSTRING": lambda m: m.string(m.sized("B", 1)), "BINSTRING": lambda m: m.string(m.sized("<I", 4)),
        "SHORT_BINUNICODE": push(lambda m: m.text(m.sized("B", 1))),
        "BINUNICODE": push(lambda m: m.text(m.sized("<I", 4))), "BINUNICODE8": push(lambda m: m.text(m.sized("<q", 8))),
        "SHORT_BINBYTES": push(lambda m: m.sized("B", 1)), "BINBYTES": push(lambda m: m.sized("<I", 4)),
        "BINBYTES8": push(lambda m: m.sized("<q", 8)), "BYTEARRAY8": push(lambda m: bytearray(m.sized("<q", 8))),
        "EMPTY_LIST": push(lambda m: []), "EMPTY_DICT": push(lambda m: {}), "EMPTY_SET": push(lambda m: set()),
        "TUPLE": u.make_tuple, "TUPLE1": lambda m: m.collapse(1), "TUPLE2": lambda m: m.collapse(2),
        "TUPLE3": lambda m: m.collapse(3),
        "APPEND": u.append, "APPENDS": u.append_all, "SETITEM": u.set_item, "SETITEMS": lambda m: m.set_items(m.items()),
        "ADDITEMS": u.add_items, "FROZENSET": u.frozen_set,
        "BINGET": lambda m: m.recall(m.take(1)[0]), "LONG_BINGET": lambda m: m.recall(m.number("<I", 4)),
        "BINPUT": lambda m: m.memoize(m.take(1)[0]), "LONG_BINPUT": lambda m: m.memoize(m.number("<I", 4)),
        "MEMOIZE": lambda m: m.memoize(len(m.memo)), "BINPERSID": u.persistent,
        "GLOBAL": push(lambda m: m.find_global(m.line(), m.line())), "STACK_GLOBAL": u.global_of_stack,
        "REDUCE": u.reduce, "NEWOBJ": u.new_object, "BUILD": u.build,
    }  # fmt: skip
    return {getattr(pickle, name): handler for name, handler in table.items()}


_HANDLERS = _handlers()


# ---- a file that is trusted ----------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    """Finds PyTorch's globals in this library; trusts the file."""

    def find_class(self, module: str, name: str) -> Any:
        known = torch_globals().get(f"{module}.{name}")
        if known is None and module.split(".")[0] == "torch":
            module = "mindtorch_v2" + module[len("torch") :]
        return known if known is not None else super().find_class(module, name)


def _trusting(file: IO[bytes], module: Any, options: dict[Any, Any]) -> Any:
    if module is None or module is pickle:
        return _Unpickler(file, **options)

    class Unpickler(module.Unpickler):
        """The program's own, with PyTorch's globals."""

        def find_class(self, module: str, name: str) -> Any:
            known = torch_globals().get(f"{module}.{name}")
            return super().find_class(module, name) if known is None else known

    return Unpickler(file, **options)


def _load_trusting(reader: Any) -> Any:
    """Run Python's unpickler; what the C code itself raises for a damaged pickle becomes an UnpicklingError."""
    try:
        return reader.load()
    except (EOFError, LookupError, ValueError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        here = error.__traceback__
        if here is not None and here.tb_next is not None:  # raised by code that the pickle called
            raise
        raise UnpicklingError(f"{type(error).__name__}: {error}") from error


class Source:
    """Where a pickle comes from, for messages, and how much data there is."""

    def __init__(self, name: str, record: str, nbytes: int) -> None:
        self.name, self.record, self.nbytes = name, record, nbytes


def unpickle(
    file: IO[bytes], source: Source, restore: Callable[[Any], Any], weights_only: bool, module: Any, options: dict[Any, Any]
) -> Any:
    """The next object of a file; errors name the file and the byte."""
    begin = file.tell()
    try:
        if weights_only:
            for name in options.keys() - {"encoding"}:
                raise TypeError(f"Unpickler.__init__() got an unexpected keyword argument '{name}'")
            machine = WeightsUnpickler(file, source.nbytes, options.get("encoding", "utf-8"))
            machine.persistent_load = restore  # type: ignore[method-assign, assignment]
            return machine.load()
        reader = _trusting(file, module, options)
        reader.persistent_load = restore
        return _load_trusting(reader)
    except UnpicklingError as error:
        place = f"{source.name}: {source.record}, byte {file.tell() - begin}"
        restricted = weights_only and restore is not _no_storage
        kind = Misfit if isinstance(error, Misfit) else UnpicklingError
        raise kind(f"{_why_refused(str(error)) if restricted else error} ({place})") from error.__cause__
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise RuntimeError(f"{error} ({source.name}: {source.record}, byte {file.tell() - begin})") from error


def _why_refused(reason: str) -> str:
    """What torch says of a file that weights_only does not take: what can be done depends on the reason."""
    if "was not an allowed global by default" in reason:
        return ("Weights only load failed. This file can still be loaded, to do so you have two options, \033[1mdo those steps "
                "only if you trust the source of the checkpoint\033[0m. \n\t(1) In PyTorch 2.6, we changed the default value of "
                "the `weights_only` argument in `torch.load` from `False` to `True`. Re-running `torch.load` with `weights_only` "
                f"set to `False` will likely succeed, but {_DANGER}\n\t(2) Alternatively, to load with `weights_only=True` please "
                f"check the recommended steps in the following error message.\n\tWeightsUnpickler error: {reason}\n\n{_DOCS}")
    asked = "\n\n" if "is blocked" in reason else (
        "Please file an issue with the following so that we can make `weights_only=True` compatible with your use case: "
        "WeightsUnpickler error: \n\n")
    return ("Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` argument in "
            "`torch.load` from `False` to `True`. Re-running `torch.load` with `weights_only` set to `False` will likely "
            f"succeed, but {_DANGER}\n{asked}{reason}\n\n{_DOCS}")


_DANGER = "it can result in arbitrary code execution. Do it only if you got the file from a trusted source."
_DOCS = ("Check the documentation of torch.load to learn more about types accepted by default with weights_only "
         "https://pytorch.org/docs/stable/generated/torch.load.html.")


def unpickle_plain(file: IO[bytes], source: Source, weights_only: bool = True) -> Any:
    """The next object of a file, without tensors: numbers, texts and containers."""
    return unpickle(file, source, _no_storage, weights_only, None, {})


def _no_storage(pid: Any) -> Any:
    raise UnpicklingError("a persistent id where no storage belongs")
