"""Holds the rules of ARCHITECTURE.md: imports go down, files stay small, named paths exist."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import mindtorch_v2
from mindtorch_v2._ops import table

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mindtorch_v2"
MAX_LINES = 600  # the habit is 500; above this a file has to be split

# What stands directly under src/mindtorch_v2/, by floor. A new file or folder is added here.
FLOORS: dict[int, str] = {
    0: "_C _deferred _dlpack _facade _named _dtype _device _shape _row _schema _function_schema _errors _config _progress",
    1: "_storage _typed_storage _legacy_new _tensor _tensor_pickling _printing _numpy _offered_members",
    2: "autograd _backends",
    3: "_ops amp _legacy",
    4: "npu cpu linalg fft special random types version torch_version return_types backends compiler cuda jit overrides storage "
       "__config__ _asserts _construct _symbolic _transforms _sparse xpu mtia _compile _native _logging "
       "_vendor _tensor_str _absent mps",
    5: "nn optim utils distributed serialization _pickling _unpickling _rebuilding _archive testing accelerator multiprocessing signal _dynamo "
       "distributions func profiler library hub _subclasses futures _torch_npu __main__ _commands functional ao "
       "_prims _prims_common _utils _utils_internal _jit_internal _higher_order_ops masked quasirandom _lowrank _lobpcg _custom_ops onnx "
       "_VF",
}
FLOORS[5] += " _custom_op fx export monitor sparse __future__"
FLOORS[4] += " _nested"
FLOORS[3] += " _nested_int"
FLOORS[5] += " _library nested _dispatch _functorch _guards _inductor _refs _export _file_options _weights_only_unpickler _decomp package _core_names _linalg_utils _vmap_internals _file_streams _file_records _record_writer"
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names.split()}
# Files that count as one package although they lie side by side.
ONE_PACKAGE = dict.fromkeys(("_pickling", "_unpickling", "_rebuilding", "_archive", "_file_options", "_file_records", "_file_streams", "_record_writer", "_utils"),
                            "serialization")
ONE_PACKAGE |= {"_vendor": "torch_version"}
ONE_PACKAGE |= {"_storage": "_tensor", "_typed_storage": "_tensor", "_printing": "_tensor", "_offered_members": "_tensor",
                "_legacy_new": "_tensor", "_tensor_pickling": "_tensor"}
# The only imports by name: a backend; floor 5, at its first use; NumPy, at the first array; torch._utils.try_import.
LOADERS = ("_backends/registry.py", "_deferred.py", "_named.py", "_tensor.py", "_utils.py")
NUMPY_DOORS = ("_numpy.py", "_tensor.py", "_C/", "_torch_npu/testing/")
SOURCES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def package_of(parts: tuple[str, ...]) -> str:
    """The package of a module below mindtorch_v2; every backend is one of its own."""
    if parts[0] == "_backends" and len(parts) > 1 and (PACKAGE / "_backends" / parts[1]).is_dir():
        return "/".join(parts[:2])
    return ONE_PACKAGE.get(parts[0], parts[0])


def parts_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def is_module(parts: tuple[str, ...]) -> bool:
    path = PACKAGE.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").exists() or parts[:1] == ("_C",)


def imports_of(path: Path, tree: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(line, top-level package, parts below it) of every import that runs."""
    package = parts_of(path) if path.name == "__init__.py" else parts_of(path)[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top, *rest = alias.name.split(".")
                yield node.lineno, top, tuple(rest)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = ("mindtorch_v2", *package[: len(package) - node.level + 1])
                base += tuple((node.module or "").split(".")) if node.module else ()
            else:
                base = tuple((node.module or "").split("."))
            for alias in node.names:
                below = (*base[1:], alias.name)
                yield node.lineno, base[0], below if is_module(below) else base[1:]


def without_type_checking(tree: ast.Module) -> ast.Module:
    keep = [
        n for n in tree.body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test))
    ]
    return ast.Module(keep, [])


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: without_type_checking(ast.parse(path.read_text())) for path in SOURCES}


def test_every_package_has_a_floor() -> None:
    names = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or p.is_dir()}
    unknown = names - set(FLOOR_OF) - {"__init__", "__pycache__"}
    unknown = {name for name in unknown if not name.startswith(".")}
    assert not unknown, f"name the floor of {sorted(unknown)} in FLOORS"


def test_imports_go_down(trees: dict[Path, ast.Module]) -> None:
    wrong = []
    for path, tree in trees.items():
        here = parts_of(path)
        if not here:  # the front door sees everything
            continue
        floor = FLOOR_OF.get(here[0], 5)
        for line, top, there in imports_of(path, tree):
            if top != "mindtorch_v2" or (there and package_of(there) == package_of(here)):
                continue
            where = f"{name_of(path)}:{line} imports {'.'.join(('mindtorch_v2', *there))}"
            if not there and floor < 5:
                wrong.append(f"{where}: only floor 5 uses the front door")
            elif there and floor == 5:
                wrong.append(f"{where}: floor 5 uses the front door only")
            elif there and not allowed(here, there):
                wrong.append(f"{where}: not below it")
    assert not wrong, "\n".join(wrong)


def allowed(here: tuple[str, ...], there: tuple[str, ...]) -> bool:
    if here[0] == there[0] == "_backends":  # a backend knows no other
        return package_of(there) == "_backends" or here[1:] == ("registry",)
    up, down = FLOOR_OF.get(here[0], 5), FLOOR_OF.get(there[0], 5)
    return down < up or up == down == 0


def test_no_import_hides_in_a_function(trees: dict[Path, ast.Module]) -> None:
    wrong = []
    for path, tree in trees.items():
        if name_of(path) in LOADERS:
            continue
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            for node in ast.walk(function):
                by_name = isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "__import__", "importlib.import_module", "import_module")  # fmt: skip
                if by_name or isinstance(node, ast.Import | ast.ImportFrom):
                    wrong.append(f"{name_of(path)}:{node.lineno}")
    assert not wrong, "imports inside functions: " + ", ".join(sorted(set(wrong)))


def test_foreign_packages_have_their_doors(trees: dict[Path, ast.Module]) -> None:
    doors = {"ctypes": ("_backends/npu/",), "numpy": NUMPY_DOORS, "torch": (), "mindspore": ()}
    wrong = [
        f"{name_of(path)}:{line} imports {top}"
        for path, tree in trees.items()
        for line, top, _ in imports_of(path, tree)
        if top in doors and not name_of(path).startswith(doors[top])
    ]
    assert not wrong, "\n".join(wrong)


def native_files() -> list[Path]:
    native = [p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".h", ".cpp")]
    return native + [p for p in PACKAGE.rglob("*") if p.suffix in (".pyx", ".pxi", ".pxd", ".h", ".cpp")]


def test_the_library_does_not_know_where_cann_comes_from() -> None:
    word = re.compile(r"(?<![a-z])sim(?![a-z])|simulat", re.IGNORECASE)
    files = [p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".pyx", ".pxi", ".pxd", ".h")]
    wrong = [name_of(p) for p in files if word.search(p.read_text())]
    assert not wrong, f"the word is in {wrong}"


def test_kernels_know_nothing_of_python_or_acl() -> None:
    include = re.compile(r"#include\s+[<\"](Python\.h|acl|aclnn|torch|ATen)")
    files = (ROOT / "csrc" / "kernels").iterdir()
    wrong = [p.name for p in files if p.suffix in (".h", ".cpp") and include.search(p.read_text())]
    assert not wrong, wrong


def test_files_are_small() -> None:
    python = SOURCES + [
        p for d in ("tests", "benchmarks", "examples") for p in (ROOT / d).rglob("*.py")
    ]
    wrong = []
    for path in python + native_files():
        lines = path.read_text().count("\n")
        if lines > MAX_LINES:
            wrong.append(f"{path.relative_to(ROOT)}: {lines} lines")
    assert not wrong, "\n".join(wrong)


def test_files_say_what_lives_in_them() -> None:
    texts = {name_of(p): p.read_text() for p in SOURCES}
    texts = {name: text for name, text in texts.items() if text.strip()}
    wrong = [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    for path in native_files():
        opening = "//" if path.suffix in (".h", ".cpp") else ("#", '"""')
        if not path.read_text().lstrip().startswith(opening):
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong, f"no opening sentence: {wrong}"


def untyped(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """The functions with a parameter or a result without a type; the first parameter of a method needs none."""
    methods = {id(node) for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef) for node in ast.walk(cls)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            args = node.args
            named = [*args.posonlyargs, *args.args]
            named = named[1:] if id(node) in methods and named and named[0].arg in ("self", "cls") else named
            named += [*args.kwonlyargs, *(arg for arg in (args.vararg, args.kwarg) if arg)]
            if node.returns is None or not all(arg.annotation for arg in named):
                yield node


def test_every_signature_has_types(trees: dict[Path, ast.Module]) -> None:
    """Bodies, rules and formulas of rows included, whose parameters are often called self."""
    wrong = [f"{name_of(path)}:{node.lineno} {node.name}" for path, tree in trees.items() for node in untyped(tree)]
    assert not wrong, "\n".join(wrong)


def test_the_front_door_shows_nothing_of_pythons_own() -> None:
    """What the package imports for itself must not be torch.<name>: a lookup by name would hand it out."""
    foreign = []
    for name, value in vars(mindtorch_v2).items():
        value = value.func if isinstance(value, partial) else value
        origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        by_python = re.fullmatch("__.*__", name) or name in ("e", "inf", "nan", "pi")
        if origin and origin.split(".")[0] not in ("mindtorch_v2", "mindtorch_dropin", "torch") and not by_python:
            foreign.append(f"{name} from {origin}")
    assert not foreign, foreign
    assert not hasattr(mindtorch_v2, "import_module") and mindtorch_v2.e == math.e


# ---- one op is one row ------------------------------------------------------------------------------------------------
MAX_NAMING = 5  # the row, its kernel, its body on an npu, its function in torch.nn, and one more
# Names of ops that are words of English, of Python, of torch's options ("mean", "linear") or of the core's rules too.
WORDS = """copy_ add alias all any clone complex detach empty equal expand fill full gather index indices linear matmul max mean min mm mode norm
positive range real relu scatter sum t take tanh unique threshold unfold values view where"""
WORDS += " copy div floor mul round slice sub trace zero"


def strings_of(tree: ast.AST) -> Iterator[str]:
    """The strings of a file that are neither its documentation nor the name of an op that is called."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("_op_named"):
            skipped.update(map(id, node.args))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def names_in(strings: Iterable[str]) -> set[str]:
    """What strings name: one word, a list of them, or a schema ("max.dim(Tensor self, …") by its beginning."""
    found = set()
    for text in strings:
        if re.fullmatch(r"\s*[\w.]+(\s+[\w.]+)*\s*", text):
            found |= {word.partition(".")[0] for word in text.split()}
        elif schema := re.match(r"(\w+)(\.\w+)?\(", text):
            found.add(schema[1])
    return found


def files_by_name(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Words -> the files that say them as a string, or define a function of that name."""
    found: dict[str, list[str]] = {}
    for path, tree in trees.items():
        # Calls of ops by name, as imports are; collectives, which are called gather and scatter too; torch.masked; samples.
        if path.name == "torch_ops.py" or name_of(path).startswith(("distributed/", "masked/", "_commands/")):
            continue
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for word in names_in(strings_of(tree)) | defined:
            found.setdefault(word, []).append(name_of(path))
    for path in native_files():
        if "cann_sim" not in path.parts and "distributed" not in path.parts:
            text = re.sub(r'_op_named\("\w+"\)', "", path.read_text())
            words = names_in(re.findall(r'"([^"\n]*)"', text)) | set(re.findall(r"\bdef (\w+)\(", text))
            for word in words:
                found.setdefault(word, []).append(path.name)
    return found


def test_few_files_name_an_op(trees: dict[Path, ast.Module]) -> None:
    found = files_by_name(trees)
    ops = {schema.name for schema, _ in table.rows}
    assert {"hardswish", "layer_norm", "cumsum", "scatter_add"} <= ops & found.keys() and len(ops) > 800
    crowded = {name: found[name] for name in ops & found.keys() if len(found[name]) > MAX_NAMING}
    wrong = [f"{name}: {', '.join(crowded[name])}" for name in sorted(crowded.keys() - set(WORDS.split()))]
    assert not wrong, "make it an argument of the row:\n" + "\n".join(wrong)


def test_architecture_names_only_paths_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    quoted = re.findall(r"`([^`\s]+)`", text)
    paths = [t for t in quoted if "/" in t or t.endswith((".py", ".md", ".toml"))]
    assert paths
    gone = [p for p in paths if not any(d.joinpath(p).exists() for d in (ROOT, PACKAGE))]
    native = {path.name for path in native_files()}
    gone += [name for name in re.findall(r"\b\w+\.(?:pxi|pxd|pyx|h|cpp)\b", text) if name not in native]
    assert not gone, f"ARCHITECTURE.md names {gone}"


# ---- the parts of the compiled core ------------------------------------------------------------------------------------
CORE = PACKAGE / "_C"
LEAVES = {"python", "library", "geometry"}  # what C and the kernel library declare; every part takes from them


def core_parts() -> list[str]:
    """The parts from the lowest up, as they are loaded."""
    named = re.search(r"^for _part in \((.*)\):$", (CORE / "_core.py").read_text(), re.M)
    assert named is not None
    return named[1].split(", ")


def included(part: str) -> list[str]:
    return re.findall(r'^include "(.*)"$', (CORE / f"{part}.pyx").read_text(), re.M)


def files_of(part: str) -> list[Path]:
    own = [CORE / f"{part}.pyx", CORE / f"{part}.pxd"]
    return [path for path in own if path.exists()] + [CORE / name for name in included(part)]


def test_every_native_file_belongs_to_one_part() -> None:
    parts = core_parts()
    built = re.search(r"set\(CORE_PARTS (.*?)\)", (ROOT / "CMakeLists.txt").read_text())
    assert built is not None and built[1].split() == parts
    assert {path.stem for path in CORE.glob("*.pyx")} == set(parts)
    found = [name for part in parts for name in included(part)]
    assert sorted(found) == sorted(path.name for path in CORE.glob("*.pxi"))
    assert {path.stem for path in CORE.glob("*.pxd")} <= set(parts) | LEAVES


def test_architecture_shows_the_parts_of_the_core() -> None:
    lines = re.findall(r"^(_\w+) +((?:\w+ )+)", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert [part for part, _ in lines] == core_parts()[::-1]
    wrong = [f"{name}.pxi is not of {part}" for part, names in lines for name in names.split()
             if f"{name}.pxi" not in included(part)]
    assert not wrong, wrong


def test_parts_of_the_core_use_those_below_only() -> None:
    parts = core_parts()
    use = re.compile(r"^\s*(?:from|import|cimport)\s+mindtorch_v2\._C(?:\.(\w+))?\s", re.M)
    wrong = []
    for place, part in enumerate(parts):
        for path in files_of(part):
            wrong += [f"{path.name} of {part} uses {name or '_C'}" for name in use.findall(path.read_text())
                      if name not in LEAVES and name not in parts[:place]]  # fmt: skip
    for name in LEAVES:
        wrong += [f"{name}.pxd uses {used}" for used in use.findall((CORE / f"{name}.pxd").read_text())]
    assert not wrong, "\n".join(wrong)


def test_no_cycle_among_the_headers_of_the_core() -> None:
    """A header of the core includes those of the kernels and others of the core, in no circle."""
    headers = {path.name: path for path in CORE.glob("*.h")}
    uses = {name: [other for other in re.findall(r'#include "(.*?)"', path.read_text()) if other in headers]
            for name, path in headers.items()}  # fmt: skip
    kernels = {path.name for path in (ROOT / "csrc" / "kernels").glob("*.h")}
    assert not kernels & headers.keys()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"{' -> '.join((*above, name))}"
        for other in uses[name]:
            walk(other, (*above, name))

    for name in headers:
        walk(name, ())


def without_strings(text: str) -> str:
    """Cython's text without comments and strings, but for what f-strings compute."""
    text = re.sub(r'"""(?:.|\n)*?"""', "", text)
    text = re.sub(r"#.*", "", text)
    return re.sub(r'(f?)"((?:[^"\\\n]|\\.)*)"', lambda m: " ".join(re.findall(r"\{([^}]*)\}", m[2])) if m[1] else "", text)


def defined_in(text: str) -> set[str]:
    """The functions and Python names of a file of the core; classes and variables of a part are declared in its .pxd."""
    functions = re.findall(r"^cdef [^=\n]*?(\w+)\(", text, re.M)
    return {*functions, *re.findall(r"^(?:def|class) (\w+)", text, re.M), *re.findall(r"^([A-Za-z_]\w*) = ", text, re.M)}


def test_files_of_a_part_use_those_included_before() -> None:
    wrong = []
    for part in core_parts():
        texts = {name: without_strings((CORE / name).read_text()) for name in included(part)}
        names = list(texts)
        for place, name in enumerate(names):
            words = set(re.findall(r"(?<![\w.])(\w+)\(", texts[name])) - defined_in(texts[name])
            for other in names[place + 1:]:
                wrong += [f"{name} calls {word} of {other}" for word in sorted(words & defined_in(texts[other]))]
    assert not wrong, "\n".join(wrong)
