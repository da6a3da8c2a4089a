"""Writes, at build time, the C++ that follows from the tables of CANN: declarations, exports, refusals, the aclnn ops.

Usage: generate.py OUT, with the package cann_tables on the path. Nothing it writes is kept in the tree.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cann_tables
from cann_tables import Function, Op

HEADER = "// Made by generate.py from the tables of CANN.\n"
OPAPI_FILES = 4  # the exports are spread over this many files, to compile in parallel

PLAIN = {
    "void", "char", "bool", "int", "float", "double", "size_t", "const", "unsigned", "int8_t", "int16_t", "int32_t",
    "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "struct", "union", "long",
}  # fmt: skip
BODY = "cann_sim_body_"  # what the symbols of the sources' functions begin with; exports.map keeps them inside
# Of every library with functions of the tables; constructors run when it is loaded, after that of libascendcl.
HIDE = ("namespace {\n__attribute__((constructor)) void hide() { cann_sim::hide_absent(reinterpret_cast<const void*>(&hide)); }\n"
        "}  // namespace")
INTEGERS = {"int", "bool", "size_t", "int8_t", "int32_t", "uint32_t", "int64_t", "uint64_t"}
FAILURES = {"aclError": "acl_code", "aclnnStatus": "aclnn_code", "HcclResult": "hccl_code"}
# kind of an aclnn argument: its C type, the field of Raw that takes it
C_TYPES = {
    "tensor": ("const aclTensor*", "p"), "out": ("const aclTensor*", "p"), "inout": ("const aclTensor*", "p"),
    "tensors": ("const aclTensorList*", "p"), "outs": ("const aclTensorList*", "p"), "inouts": ("const aclTensorList*", "p"),
    "scalar": ("const aclScalar*", "p"), "scalars": ("const aclScalarList*", "p"), "ints": ("const aclIntArray*", "p"),
    "floats": ("const aclFloatArray*", "p"), "bools": ("const aclBoolArray*", "p"), "string": ("const char*", "p"),
    "int64": ("int64_t", "i"), "int32": ("int32_t", "i"), "int8": ("int8_t", "i"), "uint64": ("uint64_t", "i"),
    "bool": ("bool", "i"), "dtype": ("aclDataType", "i"), "double": ("double", "d"), "float": ("float", "d"),
}  # fmt: skip


def write_abi(functions: list[Function]) -> str:
    """What the simulator's sources include: the headers' types with enums as plain integers, and where each body is."""
    enums, types = cann_tables.enums(), cann_tables.types()
    out = [HEADER, "#pragma once\n#include <cstddef>\n#include <cstdint>\n"]
    plain = set(enums) - {t.name for t in types} - {"flags", "hccl"}
    out += [f"typedef int32_t {name};" for name in enums if name in plain]
    for name, value in cann_tables.numbers().items():
        large = value >= 1 << 63
        out.append(f"constexpr {'uint64_t' if large else 'int64_t'} {name} = {value}{'u' * large};")
    used: dict[str, bool] = {}  # type: whether it is passed by value somewhere
    for f in functions:
        nameless = (re.sub(r"\w+((?:\[.*\])?)$", r"\1", a) for a in f.arguments.split(", "))
        for text in (f.result, *nameless):
            words = [w for w in re.findall(r"[A-Za-z_]\w*", text) if w not in PLAIN]
            if words and words[0] not in enums:
                by_value = "*" not in text and "[" not in text
                used[words[0]] = used.get(words[0], False) or by_value
    for t in types:  # those that only fields and callbacks name
        used |= {name: False for name in re.findall(r"\b((?:acl|Hccl)\w*)\b[*]", t.text) if name not in used}
    meta = {"aclTensor", "aclScalar", "aclIntArray", "aclFloatArray", "aclBoolArray", "aclTensorList", "aclScalarList"}
    for name in sorted((set(used) | meta) - plain - {t.name for t in types}):
        out.append(f"typedef void* {name};" if used.get(name) else f"struct {name};")
    out += [f"{t.kind} {t.name};" for t in types if t.kind != "typedef"]
    out += [t.text for t in types if t.kind == "typedef"]
    out.append('#define CANN_ABI extern "C" __attribute__((visibility("default")))')
    for library in sorted({short(f.library) for f in functions}):
        out.append(f"#ifdef BUILDS_{library}\n#define BODY_{library}(name) __asm__(\"{BODY}\" name)\n"
                   f"#else\n#define BODY_{library}(name)\n#endif")
    for f in functions:
        if f.result:
            body = f' BODY_{short(f.library)}("{f.name}")' if is_guarded(f) else ""
            out.append(f"CANN_ABI {f.result} {f.name}({f.arguments}){body};")
    return "\n".join(out) + "\n"


def write_structs() -> str:
    """The structs with their fields; the compiler compares their sizes with the table."""
    out = [HEADER, '#pragma once\n#include "acl_abi.h"']
    for t in cann_tables.types():
        if t.kind != "typedef":
            out.append(f"{t.kind} {t.name} {{ {t.text} }};\nstatic_assert(sizeof({t.name}) == {t.size}, \"ABI\");")
    return "\n".join(out) + "\n"


def short(library: str) -> str:
    return library[3:-3]


def is_guarded(f: Function) -> bool:
    """Whether the function is exported by write_guards(); those whose arguments cannot be passed on by name are not."""
    return bool(f.result) and not re.search(r"\(|\.\.\.", f.arguments)


def is_number(argument: str) -> bool:
    """Whether a C argument is an integer or an enum, which the record of calls shows; not what a pointer holds."""
    kind, _, name = argument.partition(" ")
    return bool(re.fullmatch(r"\w+", name)) and (kind in INTEGERS or kind in cann_tables.enums())


def write_guards(library: str, functions: list[Function]) -> str:
    """The exports: each calls the function of that name in the library's sources, whose symbol is another one (BODY), and
    answers what it throws with a code, a null pointer or a zero. The client may be C, where an exception ends the process."""
    out = [HEADER, '#include "runtime/guard.h"', HIDE]
    for f in functions:
        if f.library != library or not is_guarded(f):
            continue
        names = ", ".join(re.sub(r".*?(\w+)(?:\[.*\])?$", r"\1", a) for a in f.arguments.split(", "))
        numbers = "".join(f', {{"{a.split()[1]}", int64_t({a.split()[1]})}}' for a in f.arguments.split(", ") if is_number(a))
        note = f'if (cann_sim::recording()) cann_sim::note_values("{f.name}", {{{numbers[2:]}}}); ' if numbers else ""
        kind = FAILURES.get(f.result, "nothing" if f.result == "void" else "value")
        out.append(f'CANN_ABI {f.result} exported_{f.name}({f.arguments}) __asm__("{f.name}");\n'
                   f"{f.result} exported_{f.name}({f.arguments}) {{\n  try {{ {note}return {f.name}({names}); }} "
                   f'catch (...) {{ return cann_sim::{kind}_for_exception<{f.result}>("{f.name}"); }}\n}}')
    return "\n".join(out) + "\n"


def write_refusals(library: str, functions: list[Function]) -> str:
    """Weak definitions: what the library implements takes their place, the rest says that it is not supported."""
    out = [HEADER, "#include <cstdint>\n#include <cstddef>", "namespace cann_sim { int refuse_function(const char*); }"]
    for f in functions:
        if f.library != library:
            continue
        is_status = f.result in ("", "aclError", "aclnnStatus", "HcclResult", "int", "int32_t", "uint32_t")
        body = f'return cann_sim::refuse_function("{f.name}");' if is_status else f'cann_sim::refuse_function("{f.name}");'
        result = "int" if is_status else "void" if f.result == "void" else "int64_t"
        if result == "int64_t":
            body += " return 0;"
        symbol = BODY + f.name if is_guarded(f) else f.name
        out.append(f'extern "C" __attribute__((weak, visibility("default"))) {result} {symbol}() {{ {body} }}')
    return "\n".join(out) + "\n"


def write_since(functions: list[Function], ops: list[Op]) -> str:
    """{"name", 801} of what the oldest CANN does not have, in the order that strcmp has."""
    firsts = {name: cann_tables.since(name) for name in [f.name for f in functions] + [op.name for op in ops]}
    rows = (f'{{"{name}", {major * 100 + minor}}}' for name, (major, minor) in sorted(firsts.items())
            if (major, minor) != cann_tables.OLDEST)
    return HEADER + ",\n".join(rows) + "\n"


def names(values: list[str]) -> str:
    """A null-terminated array of C strings."""
    return "{" + ", ".join([*(f'"{v}"' for v in values), "nullptr"]) + "}"


def write_rows(ops: list[Op]) -> str:
    families = sorted({row[1] for row in cann_tables.socs()})
    out = [HEADER, '#include "aclnn/rows.h"\nnamespace cann_sim {',
           f"const char* const family_names[] = {names(families)};",
           f"const char* const families_without_bfloat16[] = {names(cann_tables.without_bfloat16())};"]
    for i, op in enumerate(ops):
        if op.arguments:
            cells = ", ".join(
                f'{{"{a.name}", Kind::k_{a.kind}, {str(a.optional).lower()}, {str(a.dense).lower()}, {a.ranks[0]}, {a.ranks[1]}, '
                f"{sum(1 << cann_tables.DTYPES[d] for d in a.dtypes):#x}ull}}" for a in op.arguments
            )
            out.append(f"static const ArgRow args_{i}[] = {{{cells}}};")
    out.append(f"const int op_count = {len(ops)};\nOpRow op_rows[] = {{")
    for i, op in enumerate(ops):
        known = f"args_{i}, {len(op.arguments)}" if op.arguments else f"nullptr, {0 if op.arguments == () else -1}"
        flags = ", ".join(str(x).lower() for x in ("dynamic_output" in op.facts, "may_be_unrepeatable" in op.facts))
        bits = sum(1 << families.index(family) for family in op.families or ())
        out.append(f'  {{"{op.name}", {known}, {flags}, {bits:#x}, nullptr}},')
    return "\n".join([*out, "};\n}  // namespace cann_sim"]) + "\n"


def write_exports(ops: list[tuple[int, Op]]) -> str:
    out = [HEADER, '#include "aclnn/rows.h"\nusing namespace cann_sim;']
    for i, op in ops:
        if op.arguments is None:
            out += [f"CANN_ABI aclnnStatus {first}() {{ return refuse_op(op_rows[{i}]); }}" for first in op.first_phases]
        else:
            called = [a.name if a.name not in ("ws", "ex") else a.name + "_" for a in op.arguments]
            typed = "".join(f"{C_TYPES[a.kind][0]} {n}, " for a, n in zip(op.arguments, called))
            cells = "".join(f"Raw::{C_TYPES[a.kind][1]}_({n}), " for a, n in zip(op.arguments, called)) or "Raw{}"
            out += [
                f"CANN_ABI aclnnStatus {first}({typed}uint64_t* ws, aclOpExecutor** ex) {{\n"
                f"  const Raw raw[] = {{{cells}}};\n  return first_phase(op_rows[{i}], raw, ws, ex);\n}}"
                for first in op.first_phases
            ]
        out.append(
            f"CANN_ABI aclnnStatus {op.name}(void* ws, uint64_t n, aclOpExecutor* ex, aclrtStream s) "
            f"{{ return second_phase(op_rows[{i}], ws, n, ex, s); }}"
        )
    return "\n".join(out) + "\n"


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:  # an unchanged file keeps its time, and is not compiled again
        path.write_text(text)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    functions, ops = cann_tables.functions(), cann_tables.ops()
    write(out / "acl_abi.h", write_abi(functions))
    write(out / "structs.h", write_structs())
    for library in {f.library for f in functions}:
        write(out / f"refuse_{short(library)}.cpp", write_refusals(library, functions))
        write(out / f"guard_{short(library)}.cpp", write_guards(library, functions))
    write(out / "op_rows.cpp", write_rows(ops))
    for k in range(OPAPI_FILES):
        write(out / f"op_exports_{k}.cpp", write_exports(list(enumerate(ops))[k::OPAPI_FILES]))
    socs = ",\n".join("  {" + ", ".join(f'"{c}"' if i < 2 else c.replace("-", "0") for i, c in enumerate(row)) + "}"
                      for row in cann_tables.socs())
    write(out / "soc_rows.inc", HEADER + socs + "\n")
    peaks = ",\n".join(f'  {{"{soc}", ' + ", ".join(map(str, row)) + "}" for soc, row in cann_tables.peaks().items())
    write(out / "peak_rows.inc", HEADER + peaks + "\n")
    short_names = ",\n".join(f'  {{"{short}", "{soc}"}}' for short, soc in cann_tables.short_names().items())
    write(out / "short_names.inc", HEADER + short_names + "\n")
    write(out / "since_rows.inc", write_since(functions, ops))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
