"""Stubs of the compiled core: classes and functions as the Cython sources declare them, Tensor's ops as its rows do."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from words import ALIASES, HEADER, IMPORTS, indent, op_text, plain_text, word

# What a C declaration is in Python.
C_TYPES = {"bint": "_bool", "str": "str", "object": "Any", "tuple": "tuple[Any, ...]", "list": "list[Any]",
           "dict": "dict[Any, Any]", "bytes": "bytes", "double": "_float", "float": "_float", "type": "type[Any]",
           **dict.fromkeys(("int", "int64_t", "uint64_t", "size_t", "long", "uint32_t", "Py_ssize_t", "Count",
                           "intptr_t", "uintptr_t"), "_int")}
# Slots of the interpreter that are no methods in Python.
SLOTS = ("__dealloc__", "__releasebuffer__", "__get__", "__richcmp__", "__module__", "__doc__", "__class__")
# Every tensor is a TensorBase; that one class of the core adds methods to another is nothing that Python can tell.
MERGED = ("TensorMethods", "TensorBase")
# Members whose result follows from their arguments.
BY_ARGUMENT = {
    "size": ["(self, dim: None = None) -> Size", "(self, dim: _int) -> _int"],
    "stride": ["(self, dim: None = None) -> tuple[_int, ...]", "(self, dim: _int) -> _int"],
}
# What Python expects of the slots of the core; all other operators return a tensor.
SLOT_RESULTS = {"__bool__": "_bool", "__int__": "_int", "__float__": "_float", "__complex__": "_complex", "__index__": "_int",
                "__len__": "_int", "__hash__": "_int", "__setitem__": "None", "__delitem__": "None", "__init__": "None",
                "__iter__": "Iterator[Tensor]", "__repr__": "str", "__dict__": "dict[str, Any]", "__reduce__": "Any",
                "__setstate__": "None", "__getstate__": "Any", "__call__": "Any"}
COMPARED = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")


class Def(NamedTuple):
    name: str
    arguments: str
    returns: str
    decorator: str


class Declared(NamedTuple):
    base: str
    fields: dict[str, str]
    members: list[Def]
    aliases: dict[str, str]


def _statements(text: str) -> Iterator[str]:
    """Lines, with those joined that a bracket keeps open."""
    joined, depth = "", 0
    for line in text.split("\n"):
        joined += (" " + line.strip()) if joined else line
        depth = joined.count("(") - joined.count(")")
        if not re.match(r"\s*(def|cdef (public|readonly)|cdef class) ", joined) or depth <= 0:
            yield joined
            joined = ""


def _argument(text: str, classes: set[str]) -> str:
    """`TensorBase view not None` and `dim=None` as a stub has them."""
    declared, equals, default = text.partition("=")
    declared = declared.strip().removesuffix(" not None")
    missing = " | None" if declared.endswith(" or None") or default.strip() == "None" else ""
    declared = declared.removesuffix(" or None")
    if ": " in declared:
        name, _, kind = declared.partition(": ")
        return f"{name}: {word(kind)}{missing}" + (" = ..." if equals else "")
    kind, _, name = declared.rpartition(" ")
    if declared.startswith("*") or declared in ("self", "cls", "/"):
        return declared if declared in ("*", "/", "self", "cls") else f"{declared}: Any"
    kind = C_TYPES.get(kind, kind if kind in classes else "Any")
    kind = word(kind) if kind in ("dtype", "device", "layout", "memory_format") else kind
    return f"{name}: {kind}{missing if kind != 'Any' else ''}" + (" = ..." if equals else "")


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def read(*parts: Path) -> tuple[dict[str, Declared], list[Def]]:
    """The classes and the functions of all parts of a compiled module."""
    text = "\n".join(path.read_text() for path in parts)
    classes: dict[str, Declared] = {}
    functions: list[Def] = []
    names = set(re.findall(r"^cdef class (\w+)", text, re.M)) | set(re.findall(r"^class (\w+)", text, re.M))
    inside: Declared | None = None
    decorator = ""
    for line in _statements(text):
        opened = re.match(r"(?:cdef )?class (\w+)(?:\((\w+)\))?:", line)
        if opened:
            inside = classes.setdefault(opened[1], Declared(opened[2] or "", {}, [], {}))
        elif line and not line[0].isspace() and not line.startswith(("#", "@")):
            inside = None
        field = re.match(r"    cdef (?:public|readonly) (\w+) ([\w, ]+?)\s*(?:#.*)?$", line)
        alias = re.match(r"    (\w+) = (\w+)$", line)
        made = re.match(r"(    )?def (\w+)\((.*)\)(?: -> (.*?))?:(?:\s.*)?$", line)
        if inside is not None and field:
            kind = C_TYPES.get(field[1], field[1] if field[1] in names else "Any")
            inside.fields.update((name, kind) for name in field[2].split(", "))
        elif inside is not None and alias:
            inside.aliases[alias[1]] = alias[2]
        elif made and made[2] not in SLOTS and (made[1] is None or inside is not None):
            arguments = ", ".join(_argument(part, names) for part in _split(made[3]))
            if made[1] is None:
                arguments = re.sub(r"\b(self|cls)\b(?!:)", r"\1: Any", arguments)
            operator = inside is not None and inside is classes.get("TensorMethods") and made[2].startswith("__")
            slot = SLOT_RESULTS.get(made[2], "Tensor" if operator else "Any")
            returns = word(made[4].strip('"')) if made[4] else slot
            found = Def(made[2], arguments, returns, decorator)
            (functions if made[1] is None else inside.members if inside else functions).append(found)
        decorator = line.strip() if line.strip().startswith("@") else ""
    return classes, functions


def _member(made: Def) -> str:
    if made.name == "__getbuffer__":
        return "def __buffer__(self, flags: _int, /) -> memoryview: ..."
    if made.name in BY_ARGUMENT:
        return "\n".join(f"@overload\ndef {made.name}{form}: ..." for form in BY_ARGUMENT[made.name])
    arguments = made.arguments.replace(", modulo: Any", "") if made.name in ("__pow__", "__rpow__", "__ipow__") else made.arguments
    head = made.decorator + "\n" if made.decorator and not made.decorator.startswith("@cython") else ""
    return f"{head}def {made.name}({arguments}) -> {made.returns}: ..."


def _class(name: str, declared: Declared, extra: str) -> str:
    body = [f"{field}: {kind}" for field, kind in declared.fields.items()]
    has_init = any(made.name == "__init__" for made in declared.members)
    members = [made._replace(name="__init__", returns="None") if made.name == "__cinit__" else made
               for made in declared.members if made.name != "__cinit__" or not has_init]
    body += [_member(made) for made in members]
    byname = {made.name: made for made in declared.members}
    body += [_member(byname[target]._replace(name=alias)) for alias, target in declared.aliases.items() if target in byname]
    if extra:
        body.append(extra)
    return f"class {name}{f'({declared.base})' if declared.base else ''}:\n{indent(chr(10).join(body) or '...')}\n"


def tensor_members(torch: Any, source: Path) -> str:
    """What Tensor is given by name at import: the ops of the table, casts, flags."""
    tree = ast.parse(source.read_text())
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor").body
    written = {n.name for n in body if isinstance(n, ast.FunctionDef)}
    written |= {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    made = [f"def {name}(self, other: Any) -> Tensor: ..." + "  # type: ignore[override]" * (name in ("__eq__", "__ne__"))
            for name in COMPARED]
    made.append("def to(self, *args: Any, **kwargs: Any) -> Tensor: ...")      # Tensor's own, which kernels call as well
    made.append("__array_interface__: dict[str, Any]" if hasattr(torch.Tensor, "__array_interface__") else "")
    for name, value in sorted(vars(torch.Tensor).items()):
        if name in written or name in ("__module__", "__doc__", "__slots__", "__firstlineno__", "__static_attributes__"):
            continue
        if isinstance(value, type(torch.add)):
            made.append(op_text(name, value, method=True))
        elif getattr(value, "__module__", "").startswith(("mindtorch_v2._ops.", "mindtorch_v2._sparse.", "mindtorch_v2._legacy",
                                                            "torch.Tensor")):
            made.append(plain_text(name, value, method=True))
        elif callable(value):
            argument = "other: Any" if name.startswith("__") else "memory_format: _memory_format | None = None"
            made.append(f"def {name}(self, {argument}) -> Tensor: ...")
        else:
            made.append(f"{name}: {'_bool' if isinstance(value, bool) else 'Any'}")
    return "\n".join(filter(None, made))


def constants(core: Any, known: set[str]) -> list[str]:
    """Names of the core that are neither classes nor functions, and the exceptions."""
    made = []
    for name, value in sorted(vars(core).items()):
        if name in known or name.startswith("__") or isinstance(value, type(ast)):
            continue
        if isinstance(value, type) and issubclass(value, Exception):
            fields = "".join(f"\n    {field}: _{type(item).__name__}" for field, item in vars(value).items()
                             if isinstance(item, int) and not field.startswith("__"))
            made.append(f"class {name}({value.__bases__[0].__name__}):{fields or ' ...'}")
        elif isinstance(value, (str, int, tuple, dict, list)):
            kind = type(value).__name__
            inner = {"tuple": "tuple[Any, ...]", "dict": "dict[Any, Any]", "list": "list[Any]", "int": "_int"}.get(kind, kind)
            if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
                inner = "tuple[str, ...]"
            made.append(f"{name}: {inner}")
        else:
            made.append(f"{name}: Any")
    return made


def write(torch: Any, package: Path) -> str:
    """The text of _C/_core.pyi."""
    folder = package / "_C"
    classes, functions = read(*sorted(folder.glob("*.pxd")), *sorted(folder.glob("*.pxi")))    # fields: in the former
    here = {name: declared for name, declared in classes.items() if hasattr(torch._C._core, name)}
    texts = [HEADER, IMPORTS, *ALIASES,
             "from mindtorch_v2 import return_types\nfrom mindtorch_v2._shape import Size\n"
             "from mindtorch_v2._storage import UntypedStorage\nfrom mindtorch_v2._tensor import Tensor\n"
             "from mindtorch_v2.random import Generator\nfrom inspect import Signature\n"]
    derived, base = MERGED
    here[base] = Declared("", here[base].fields, here[base].members + here[derived].members, here[derived].aliases)
    here[derived] = Declared(base, {}, [], {})
    extra = {base: tensor_members(torch, package / "_tensor.py"),
             "Op": "def __get__(self, instance: object, owner: Any = None) -> Any: ..."}
    texts += [_class(name, declared, extra.get(name, "")) for name, declared in here.items()]
    public = [made for made in functions if hasattr(torch._C._core, made.name)]
    texts += constants(torch._C._core, {*here, *(made.name for made in public)})
    texts += [f"def {made.name}({made.arguments}) -> {made.returns}: ..." for made in public]
    return "\n".join(texts) + "\n"


def write_alone(source: Path) -> str:
    """The stub of a compiled module of one file."""
    classes, functions = read(source)
    texts = [HEADER, IMPORTS, *(_class(name, declared, "") for name, declared in classes.items())]
    texts += [f"def {made.name}({made.arguments}) -> {made.returns}: ..." for made in functions]
    return "\n".join(texts) + "\n"
