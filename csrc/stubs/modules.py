"""Stubs of the modules whose names are made by running them: the front door, linalg, nn.functional, npu and their like."""
from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from words import BORROWED, HEADER, IMPORTS, indent, op_text, plain_text

IGNORED = {"annotations", "TYPE_CHECKING"}


def _star(node: ast.ImportFrom) -> list[str]:
    module = sys.modules[str(node.module)]
    return list(getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]))


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module binds, as a type checker sees them."""
    if isinstance(node, ast.ImportFrom):
        return _star(node) if node.names[0].name == "*" else [a.asname or a.name for a in node.names]
    if isinstance(node, ast.Import):
        return [a.asname or a.name.partition(".")[0] for a in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        targets = [t for target in node.targets for t in ast.walk(target)]
        return [t.id for t in targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.If | ast.Try | ast.With | ast.For):
        targets = [t.id for t in ast.walk(node.target) if isinstance(t, ast.Name)] if isinstance(node, ast.For) else []
        return targets + [name for inner in (*node.body, *getattr(node, "orelse", ())) for name in _bound(inner)]
    return []


def dynamic_names(module: ModuleType, tree: ast.Module) -> list[str]:
    """Names of a module that no checker finds in its source; submodules are found by their files."""
    known = {name for node in tree.body for name in _bound(node)} | IGNORED
    found = []
    for name, value in vars(module).items():
        is_submodule = isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{name}"
        if name not in known and not name.startswith("__") and not is_submodule:
            found.append(name)
    return found


def reexport(module: str, name: str, here: str) -> str:
    """A name of another module under a name of this one: only `x as x` is handed on by a stub."""
    return f"from {module} import {name} as {name}" if name == here else \
        f"from {module} import {name} as _{here}_\n{here} = _{here}_"


def _origin(value: Any, here: str) -> tuple[str, str] | None:
    """(module, name) where a checker finds this function or class."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not module or module == here or not module.startswith("mindtorch_v2") or "." in name:
        return None
    holder = sys.modules.get(module)
    return (module, name) if holder is not None and getattr(holder, name, None) is value else None


def _kind(value: Any) -> str:
    """The type of a constant."""
    kind = type(value)
    if kind.__name__ in ("dtype", "layout", "memory_format", "device"):
        return "_" + kind.__name__
    if kind in (bool, int, float, complex):
        return "_" + kind.__name__
    return {"str": "str", "NoneType": "None", "Generator": "Generator"}.get(kind.__name__, "Any")


def name_text(name: str, value: Any, here: str) -> str:
    """One name that is made at run time."""
    op = type(sys.modules["mindtorch_v2"].add)
    if isinstance(value, op):
        return op_text(name, value)
    if isinstance(value, ModuleType):
        package, _, last = value.__name__.rpartition(".")
        return reexport(package, last, name) if package.startswith("mindtorch_v2") else ""
    if type(value).__name__ == "_TensorType":
        return f"class {name}(Tensor): ..."
    if type(value).__name__ == "_StorageType":
        return f"class {name}(TypedStorage): ..."
    if inspect.isfunction(value) and value.__module__.startswith(("mindtorch_v2._ops.", "mindtorch_v2._sparse.")):
        return plain_text(name, value)
    origin = _origin(value, here)
    if origin is not None:
        return reexport(*origin, name)
    return f"def {name}(*args: Any, **kwargs: Any) -> Any: ..." if callable(value) else f"{name}: {_kind(value)}"


def _skeleton(node: ast.stmt, module: ModuleType) -> str:
    """A statement of the source as its stub: imports again, definitions without bodies, constants by their types."""
    if isinstance(node, ast.ImportFrom) and node.names[0].name != "*":
        if node.module == "__future__" or node.module == "mindtorch_v2._ops" and module.__name__ != "mindtorch_v2":
            return ""
        if not str(node.module).startswith(("mindtorch_", "math")):
            return ast.unparse(node)
        return "\n".join(reexport(str(node.module), a.name, a.asname or a.name) for a in node.names)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return ast.unparse(node)
    if isinstance(node, ast.FunctionDef):
        heads = "".join(f"@{ast.unparse(d)}\n" for d in node.decorator_list)
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{heads}def {node.name}({ast.unparse(node.args)}){returns}: ..."
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(b) for b in (*node.bases, *node.keywords))
        body = "\n".join(filter(None, (_skeleton(inner, module) for inner in node.body)))
        return f"class {node.name}{f'({bases})' if bases else ''}:\n{indent(body or '...')}"
    if isinstance(node, ast.AnnAssign):
        return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    if isinstance(node, ast.Assign) and _bound(node)[:1] == ["__all__"]:
        return f"__all__ = {list(module.__all__)!r}"
    names = _bound(node) if isinstance(node, ast.Assign) else []
    return "\n".join(name_text(name, getattr(module, name), module.__name__) for name in names if hasattr(module, name))


def deferred(module: ModuleType) -> dict[str, str]:
    """name -> module below mindtorch_v2, of the names that are imported at their first use."""
    members = vars(type(module)) if type(module) is not ModuleType else {}
    return {name: made.source for name, made in members.items() if hasattr(made, "source")}


def _deferred_text(name: str, source: str) -> str:
    package, _, last = f"mindtorch_v2.{source}".rpartition(".")
    return f"from {package} import {last} as {name}" if last == name else f"from mindtorch_v2.{source} import {name} as {name}"


def only_reexports(tree: ast.Module) -> bool:
    """Whether a module only re-exports names implicitly: a strict checker would not see them."""
    says = any("__all__" in _bound(node) for node in tree.body)
    defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
    hands_on = any(isinstance(node, ast.ImportFrom) and str(node.module).startswith("mindtorch_v2") for node in tree.body)
    return hands_on and not says and not defines


def write(module: ModuleType, file: Path) -> str | None:
    """The stub of a module; None where its source says everything."""
    tree = ast.parse(file.read_text())
    made, later = dynamic_names(module, tree), deferred(module)
    made = [name for name in made if name not in later]
    private = any(part.startswith("_") for part in module.__name__.split("."))
    if not made and not later and (private or not only_reexports(tree)):
        return None
    bound = {name for node in tree.body for name in _bound(node)} | set(later)
    borrowed = [f"from mindtorch_v2{source} import {name}" for name, source in
                (("Tensor", "._tensor"), ("TypedStorage", "._typed_storage"), ("Generator", ".random"), ("return_types", ""))
                if name not in bound]
    texts = [HEADER, IMPORTS, BORROWED, *borrowed, *(_skeleton(node, module) for node in tree.body)]
    texts += [_deferred_text(name, source) for name, source in sorted(later.items())]
    texts += [name_text(name, vars(module)[name], module.__name__) for name in sorted(made)]
    return "\n".join(text for text in texts if text) + "\n"


def write_return_types(module: ModuleType) -> str:
    """torch.return_types: tuples with names, made from one sequence."""
    texts = [HEADER, "from collections.abc import Iterable\nfrom typing import Any\n",
             "from mindtorch_v2._tensor import Tensor\n", "all_return_types: list[type[tuple[Tensor, ...]]]"]
    for name, kind in sorted(vars(module).items()):
        if isinstance(kind, type) and issubclass(kind, tuple):
            fields = kind.__match_args__  # type: ignore[attr-defined]
            properties = "\n".join(f"@property\ndef {field}(self) -> Tensor: ..." for field in fields)
            texts.append(f"class {name}(tuple[{', '.join('Tensor' for _ in fields)}]):\n"
                         + indent(f"n_fields: int\nn_sequence_fields: int\nn_unnamed_fields: int\n"
                                  f"def __new__(cls, sequence: Iterable[Any]) -> {name}: ...\n{properties}"))
    return "\n".join(texts) + "\n"


def write_core_package(module: ModuleType) -> str:
    """_C/__init__.pyi: the core again, and torch._C._nn."""
    core = module._core
    names = [name for name, value in vars(module).items()
             if not name.startswith("__") and getattr(core, name, module) is value and not isinstance(value, ModuleType)]
    others = [name for name in vars(module) if name not in names and not name.startswith("__")
              and not isinstance(vars(module)[name], ModuleType) and name != "_nn"]
    ops = "\n".join(op_text(name, value, static=True) if isinstance(value, core.Op) else
                    f"@staticmethod\ndef {name}(*args: Any, **kwargs: Any) -> Any: ..."
                    for name, value in sorted(vars(module._nn).items()) if not name.startswith("__"))
    return "\n".join([HEADER, IMPORTS, BORROWED, "from mindtorch_v2 import return_types",
                      "from mindtorch_v2._tensor import Tensor", "from mindtorch_v2.random import Generator",
                      "from mindtorch_v2._C import _core as _core",
                      *(f"from mindtorch_v2._C._core import {name} as {name}" for name in names),
                      *(name_text(name, vars(module)[name], module.__name__) for name in others),
                      f"class _NN:\n{indent(ops)}", "_nn: _NN"]) + "\n"
