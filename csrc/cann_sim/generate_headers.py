"""Writes, at build time, the C headers of CANN from its tables: names, types and values, in the files where clients include them.

Usage: generate_headers.py OUT, with the package cann_tables on the path. It writes OUT/include, and OUT/forwards: the headers
that are not of one op, for other folders beside `include`. Nothing it writes is kept in the tree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from generate import C_TYPES, PLAIN, write

import cann_tables
from cann_tables import Function, Op

FIRST = "/* Written from the tables of cann_sim, a simulator of CANN. */\n"
# The headers that are not of one op, and what each includes.
INCLUDES: dict[str, tuple[str, ...]] = {
    "acl/acl_base.h": (),
    "acl/acl_rt.h": ("acl/acl_base.h",),
    "acl/acl_rt_allocator.h": ("acl/acl_base.h",),
    "acl/acl_rt_memory.h": ("acl/acl_rt.h",),
    "acl/acl_rt_memory_soma.h": ("acl/acl_rt_memory.h",),
    "acl/acl_op.h": ("acl/acl_base.h", "acl/acl_rt.h"),
    "acl/acl_mdl.h": ("acl/acl_base.h", "acl/acl_rt.h"),
    "acl/acl.h": ("acl/acl_rt.h", "acl/acl_op.h", "acl/acl_mdl.h", "acl/acl_rt_allocator.h"),
    "acl/acl_op_compiler.h": ("acl/acl_base.h", "acl/acl_op.h"),
    "acl/acl_prof.h": ("acl/acl_base.h", "acl/acl_rt.h", "acl/acl_mdl.h"),
    "acl/acl_tdt.h": ("acl/acl_base.h",),
    "acl/acl_tdt_queue.h": ("acl/acl_base.h", "acl/acl_tdt.h"),
    "acl/acl_dump.h": ("acl/acl_base.h", "acl/acl_rt.h"),
    "acl/acl_platform.h": ("acl/acl_base.h",),
    "aclnn/acl_meta.h": ("acl/acl_base.h",),
    "aclnn/aclnn_base.h": ("aclnn/acl_meta.h", "acl/acl_rt.h"),
    "aclnn/opdev/common_types.h": ("aclnn/aclnn_base.h",),
    "hccl/hccl_types.h": ("acl/acl_base.h",),
    "hccl/hccl.h": ("hccl/hccl_types.h", "acl/acl.h"),
}
# CANN has more than one path to these.
FORWARDS = {"hccl/hccl_comm.h": "hccl/hccl.h", "aclnn/aclnn_util.h": "aclnn/aclnn_base.h"}
UNSIGNED = re.compile(r"ACL_(EVENT|STREAM|NOTIFY|RT|HOST|CONTINUE|STOP)_")  # flags that CANN writes with a suffix u
WIDE = re.compile(r"ACL_PROF_")  # and with ull
TAIL = "uint64_t* workspaceSize, aclOpExecutor** executor"
SECOND = "void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream"


def words(text: str) -> list[str]:
    return [w for w in re.findall(r"[A-Za-z_]\w*", text) if w not in PLAIN]


def argument_types(f: Function) -> Iterator[str]:
    """The C types of a function, without the names of arguments."""
    yield f.result
    if "(*" in f.arguments:  # a callback that has no name of its own
        yield re.sub(r"\(\*\w+\)", "(*)", f.arguments)
        return
    for argument in f.arguments.split(", "):
        yield re.sub(r"\w+((?:\[.*\])?)$", r"\1", argument)


class Known:
    """Which types have facts, and which are opaque: taken by pointer wherever they appear."""

    def __init__(self, functions: list[Function]) -> None:
        self.rows = {t.name: t for t in cann_tables.types()}
        self.enums = {n for n in cann_tables.enums() if n not in self.rows and n not in ("flags", "hccl")}
        used = [(word, text) for f in functions for text in argument_types(f) for word in words(text)]
        used += [(word, "*") for t in self.rows.values() for word in re.findall(r"\b([A-Za-z_]\w*)\*", t.text) if word not in PLAIN]
        by_value = {word for word, text in used if not re.search(r"[*\[]", text)}
        self.opaque = {word for word, _ in used if re.match(r"acl|Hccl", word)} - by_value - self.enums - set(self.rows)
        self.all = self.opaque | self.enums | set(self.rows) | {"GetWorkspaceSize"}

    def covers(self, f: Function) -> bool:
        named = re.findall(r"\(\*(\w+)\)", f.arguments)
        return all(word in self.all or word in named for text in argument_types(f) for word in words(text))


def guard(path: str, lines: list[str], includes: tuple[str, ...] = ()) -> str:
    name = "CANN_SIM_" + re.sub(r"\W", "_", path).upper()
    out = [FIRST + f"#ifndef {name}\n#define {name}"]
    if not includes:
        out.append("#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>")
    out += [f"#include <{include}>" for include in includes]
    if lines:
        out += ['#ifdef __cplusplus\nextern "C" {\n#endif', *lines, "#ifdef __cplusplus\n}\n#endif"]
    return "\n".join([*out, f"#endif /* {name} */"]) + "\n"


def write_enum(name: str, members: dict[str, int]) -> str:
    return f"typedef enum {name} {{\n" + ",\n".join(f"  {m} = {v}" for m, v in members.items()) + f"\n}} {name};"


def write_flag(name: str, value: int) -> str:
    suffix = "ull" if value >= 1 << 32 or WIDE.match(name) else "u" if value >= 1 << 31 or UNSIGNED.match(name) else ""
    return f"#define {name} {value}{suffix}"


def write_fields(text: str) -> str:
    """A struct's fields; an array without a length at the end is C99's, and an extension in C++."""
    return re.sub(r"(\w+ \w+\[\];)", r"__extension__ \1", text)


def type_lines(path: str, known: Known) -> list[str]:
    """The types and numbers that a header defines, each after what it is made of."""
    here = lambda name: cann_tables.header(name) == path
    enums = cann_tables.enums()
    out = [write_flag(n, v) for n, v in enums["flags"].items() if here(n)]
    if path == "hccl/hccl_types.h":
        out += [f"static const uint32_t {n} = {v}u;" for n, v in enums["hccl"].items()]
    for name, codes in {"acl/acl_base.h": "aclError", "aclnn/acl_meta.h": "aclnnStatus"}.items():
        if path == name:
            kind = "int" if codes == "aclError" else "int32_t"
            members = {m for e in known.enums for m in enums[e]}
            out += [f"static const {kind} {n} = {v};" for n, v in enums[codes].items() if n not in members]
    out += [write_enum(n, enums[n]) for n in enums if n in known.enums and here(n)]
    rows = [t for t in known.rows.values() if here(t.name)]
    structs = [t for t in rows if t.kind != "typedef"]
    out += [f"typedef struct {n} {n};" for n in sorted(known.opaque) if here(n)]
    out += [f"typedef {t.kind} {t.name} {t.name};" for t in structs]
    out += [t.text for t in rows if t.kind == "typedef"]
    out += [f"{t.kind} {t.name} {{ {write_fields(t.text)} }};" for t in structs]
    return out


def declaration(f: Function) -> str:
    return f"{f.result} {f.name}({f.arguments or 'void'});"


def op_lines(ops: list[Op]) -> list[str]:
    out = []
    for op in ops:
        if op.arguments is None:
            out.append(f"/* {op.name}: the library refuses it, and its arguments are in no table. */")
            continue
        typed = "".join(f"{C_TYPES[a.kind][0]} {a.name}, " for a in op.arguments)
        out += [f"aclnnStatus {first}({typed}{TAIL});" for first in op.first_phases]
        out.append(f"aclnnStatus {op.name}({SECOND});")
    return out


def headers() -> dict[str, str]:
    """path -> text, of all headers."""
    functions = [f for f in cann_tables.functions() if f.result]
    known = Known(functions)
    declared: dict[str, list[str]] = {}
    for f in functions:
        path = cann_tables.header(f.name)
        if path and known.covers(f):
            declared.setdefault(path, []).append(declaration(f))
    made = {path: guard(path, type_lines(path, known) + declared.pop(path, []), includes) for path, includes in INCLUDES.items()}
    by_header: dict[str, list[Op]] = {}
    for op in cann_tables.ops():
        by_header.setdefault(cann_tables.header(op.name), []).append(op)
    for path in sorted(by_header | declared):
        lines = op_lines(by_header.get(path, [])) + declared.pop(path, [])
        made[path] = guard(path, lines, ("aclnn/aclnn_base.h",))
    forwards = FORWARDS | {p.replace("aclnnop/", "aclnnop/level2/"): p for p in by_header if "/level2/" not in p}
    forwards |= {p.replace("/level2/", "/"): p for p in by_header if "/level2/" in p}
    for path, target in forwards.items():
        made.setdefault(path, FIRST + f"#include <{target}>\n")
    return made


def write_all(folder: Path, made: dict[str, str]) -> None:
    for path, text in made.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write(folder / path, text)
    for path in folder.rglob("*.h"):
        if str(path.relative_to(folder)) not in made:  # of a table that had another row
            path.unlink()


def main(out: Path) -> None:
    write_all(out / "include", headers())
    forwards = {p: FIRST + f'#include "{"../" * (p.count("/") + 2)}include/{p}"\n' for p in (*INCLUDES, *FORWARDS)}
    write_all(out / "forwards", forwards)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
