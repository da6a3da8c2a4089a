"""The type stubs that the build makes say the same as the package at run time, name by name."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch
from mindtorch_v2._ops import describe

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(torch.__file__).parent
STUBS = {
    ".".join(("mindtorch_v2", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.pyi")
}
Op = type(torch.add)


def names_of(body: list[ast.stmt]) -> dict[str, int]:
    """What a stub declares, and in how many forms; `import x as y` re-exports nothing unless both are the same."""
    found: dict[str, int] = {}
    for node in body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            module = importlib.import_module(str(node.module))
            names = list(getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]))
        elif isinstance(node, ast.ImportFrom):
            names = [a.name for a in node.names if a.asname == a.name]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        elif isinstance(node, ast.Assign):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        for name in names:
            found[name] = found.get(name, 0) + 1
    return found


def public(holder: Any) -> set[str]:
    names = {name for name in dir(holder) if not name.startswith("_")}
    foreign = {name for name in names if isinstance(value := getattr(holder, name), ModuleType)
               and not value.__name__.startswith("mindtorch_v2")}  # fmt: skip
    return names - foreign - {"annotations", "torch"}  # floor 5 imports the front door by that name, as torch does


def test_stubs_are_installed_with_the_typed_marker() -> None:
    assert (PACKAGE / "py.typed").exists()
    expected = {"", "._C", "._C._core", ".linalg", ".fft", ".special", ".nn.functional", ".return_types", ".npu"}
    assert {"mindtorch_v2" + name for name in expected} <= set(STUBS)


@pytest.mark.parametrize("name", sorted(name for name in STUBS if not name.startswith("mindtorch_v2._")))
def test_stub_and_module_have_the_same_names(name: str) -> None:
    module = importlib.import_module(name)
    declared = {n for n in names_of(ast.parse(STUBS[name].read_text()).body) if not n.startswith("_")}
    typing_only = {"Any", "Callable", "Iterator", "Sequence", "TypeAlias", "overload", "Iterable"}
    submodules = {n for n in public(module) if isinstance(getattr(module, n), ModuleType)
                  and getattr(module, n).__name__ == f"{name}.{n}"}  # fmt: skip
    imported = {n for n in public(module) if n in typing_only or getattr(getattr(module, n), "__module__", "") == "typing"}
    missing = public(module) - declared - imported - submodules
    assert not missing, f"not in the stub: {sorted(missing)}"
    unknown = {n for n in declared - typing_only if not hasattr(module, n)}
    assert not unknown, f"only in the stub: {sorted(unknown)}"


def test_every_module_without_a_stub_defines_its_names_in_source() -> None:
    """A checker reads such a module's source: what is put into it at run time would be unknown."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.with_suffix(".pyi").exists():
            continue
        name = ".".join(("mindtorch_v2", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        module = importlib.import_module(name)
        source = path.read_text()
        unknown = [n for n in vars(module) if not n.startswith("__") and n not in source
                   and not isinstance(vars(module)[n], ModuleType)]  # fmt: skip
        stars = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
        assert not unknown or stars, f"{name}: {unknown}"


def test_tensor_has_in_its_stub_what_it_has_at_run_time() -> None:
    tree = ast.parse(STUBS["mindtorch_v2._C._core"].read_text())
    stub = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TensorBase")
    source = ast.parse((PACKAGE / "_tensor.py").read_text())
    written = next(n for n in source.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    declared = set(names_of(stub.body)) | set(names_of(written.body))
    missing = public(torch.Tensor) - declared
    assert not missing, f"not in the stub: {sorted(missing)}"
    unknown = {n for n in declared if not hasattr(torch.Tensor, n)} - {"__buffer__"}
    assert not unknown, f"only in the stub: {sorted(unknown)}"


@pytest.mark.parametrize("name", ["mindtorch_v2", "mindtorch_v2.linalg", "mindtorch_v2.fft", "mindtorch_v2.special"])
def test_every_form_of_an_op_is_in_the_stub(name: str) -> None:
    module = importlib.import_module(name)
    declared = names_of(ast.parse(STUBS[name].read_text()).body)
    ops = {n: value for n, value in vars(module).items() if isinstance(value, Op)}
    assert len(ops) > 20
    for n, op in ops.items():
        forms = {str(form) for form in describe.signatures(op)}
        assert declared[n] == len(forms), n


def parameters_of(body: list[ast.stmt], name: str) -> list[str]:
    function = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    given = function.args
    stars = [arg for arg in (given.vararg, given.kwarg) if arg is not None]
    return sorted(arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs, *stars))


def test_plain_functions_and_methods_take_what_the_stubs_say() -> None:
    """Functions with a Python signature of their own, and what is put into Tensor by name at import."""
    core = ast.parse(STUBS["mindtorch_v2._C._core"].read_text())
    tensor = next(n for n in core.body if isinstance(n, ast.ClassDef) and n.name == "TensorBase").body
    front = ast.parse(STUBS["mindtorch_v2"].read_text()).body
    written = {n.name for n in front if isinstance(n, ast.FunctionDef)}
    functions = {n: f for n, f in vars(torch).items() if n in written and inspect.isfunction(f)}
    assert {"einsum", "meshgrid", "stft"} <= set(functions)
    for name, function in functions.items():
        assert parameters_of(front, name) == sorted(inspect.signature(function).parameters), name
    methods = {n: f for n, f in vars(torch.Tensor).items() if n in names_of(tensor) and inspect.isfunction(f)}
    methods = {n: f for n, f in methods.items() if not n.startswith("_") and n != "to"}
    assert {"lu", "stft", "float", "int"} <= set(methods)
    for name, method in methods.items():
        own = "self" if "self" in inspect.signature(method).parameters else next(iter(inspect.signature(method).parameters))
        expected = {*inspect.signature(method).parameters} - {own} | {"self"}
        assert parameters_of(tensor, name) == sorted(expected), name


def test_the_stubs_are_python_and_say_types_for_everything() -> None:
    for name, path in STUBS.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert node.returns is not None, f"{name}.{node.name}"


def test_nothing_generated_is_in_the_tree() -> None:
    assert not list((ROOT / "src").rglob("*.pyi"))


def test_the_api_release_is_written_once() -> None:
    """pyproject.toml cannot read it from version.py, so this holds them together."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = f"torch=={torch.version.__version__}"
    for group in ("test", "conformance"):
        assert wanted in project["optional-dependencies"][group], group
    assert torch.__version__ == torch.version.__version__ != project["version"]
    assert project["version"] in (ROOT / "README.md").read_text()
