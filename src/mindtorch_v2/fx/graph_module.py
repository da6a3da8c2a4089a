"""GraphModule: a module whose forward is the code that a graph gives."""
from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._namespace import _custom_builtins
from mindtorch_v2.fx.graph import Graph, PythonCode, _BoxedCodeGen, _is_from_torch, _PyTreeCodeGen  # noqa: F401

__all__ = ["GraphModule", "reduce_graph_module", "reduce_package_graph_module"]

FX_GRAPH_MODULE_FILE_PREFIX = "fx_generated_"
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"      # in meta: attributes that a copy keeps
_Module: Any = torch.nn.Module
_serial = itertools.count()
_HOOKS = ("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks")
# What Module keeps beside parameters, buffers and submodules, and what a copy keeps.
_MODULE_HOOKS = ("_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def _exec_with_source(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> str:
    """Runs source under a name by which tracebacks find its lines; gives that name."""
    key = f"<eval_with_key>.{next(_serial)}"
    if co_fields:
        key += f" from {co_fields['co_filename']}:{co_fields['co_firstlineno']} in {co_fields['co_name']}"
    linecache.cache[key] = (len(src), None, src.splitlines(keepends=True), key)   # no time: it is never looked up again
    exec(compile(src, key, "exec", dont_inherit=True), globals)
    return key


def _method_from_src(method_name: str, src: str, globals: dict[str, Any],
                     co_fields: dict[str, Any] | None = None) -> Callable[..., Any]:
    """The function of a name that source defines. Its lines are forgotten with it."""
    scope = {**globals}
    key = _exec_with_source(src, scope, co_fields)
    function = scope.pop(method_name)
    weakref.finalize(function, linecache.cache.pop, key, None).atexit = False
    return function


def _forward_from_src(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> Callable[..., Any]:
    return _method_from_src("forward", src, globals, co_fields)


def _format_import_statement(name: str, obj: object, importer: Any = None) -> str:
    """The line that gives generated code one of its globals."""
    if name in _custom_builtins:
        return _custom_builtins[name].import_str
    if _is_from_torch(obj):
        return "import torch"
    if isinstance(obj, str):                     # an annotation that was not evaluated
        return f"{name} = {obj!r}"
    module, attr = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if attr is None and getattr(obj, "_name", None):     # typing.List and its like
        attr = obj._name   # type: ignore[attr-defined]
    if module is None or attr is None or "<" in attr or "." in attr:
        raise RuntimeError(f"{obj!r} is no name of a module, so that code which uses it cannot be written to a file")
    return f"from {module} import {attr} as {name}"


def _format_import_block(globals: dict[str, Any], importer: Any = None) -> str:
    """The lines that give generated code its globals."""
    return "\n".join(dict.fromkeys(_format_import_statement(name, obj, importer) for name, obj in globals.items()))


@compatibility(is_backward_compatible=True)
def reduce_graph_module(body: dict[str, Any], import_block: str) -> torch.nn.Module:
    """A graph module from its pickle: its code is traced anew."""
    source = body.get("_code") or body["code"]
    known = {name: builtin.obj for name, builtin in _custom_builtins.items()}
    given = {builtin.import_str for builtin in _custom_builtins.values()}
    lines = [line for line in import_block.splitlines() if line not in given]
    return _deserialize_graph_module(_forward_from_src("\n".join(lines) + source, known), body)


@compatibility(is_backward_compatible=True)
def reduce_package_graph_module(importer: Any, body: dict[str, Any], generated_module_name: str) -> torch.nn.Module:
    """A graph module from a package of torch.package."""
    forward = importer.import_module(generated_module_name).forward
    return _deserialize_graph_module(forward, body)


class _CodeOnlyModule(_Module):
    """The state of a graph module without its graph."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _deserialize_graph_module(forward: Callable[..., Any], body: dict[str, Any],
                              graph_module_cls: type | None = None) -> torch.nn.Module:
    """A graph module of its state and its function; every submodule stays a call."""
    tracer_cls = body.get("_tracer_cls") or torch.fx._symbolic_trace.Tracer
    holder = type(body.get("_graphmodule_cls_name", "GraphModule"), (_CodeOnlyModule,), {"forward": forward})
    state = holder(body)

    class KeepModules(tracer_cls):   # type: ignore[valid-type,misc]
        def is_leaf_module(self, _: torch.nn.Module, __: str) -> bool:
            return True
    graph = KeepModules().trace(state, **(body.get("_tracer_extras") or {}))
    graph._tracer_cls = tracer_cls
    made = (graph_module_cls or GraphModule)(state, graph, class_name=holder.__name__)
    for key, value in body.items():              # the constructor takes what the graph names only
        if not hasattr(made, key):
            setattr(made, key, value)
    for table in ("_modules", "_parameters", "_buffers"):
        for key, value in body.get(table, {}).items():
            getattr(made, table).setdefault(key, value)
    return made


def _copy_attr(from_module: torch.nn.Module, to_module: torch.nn.Module, target: str) -> None:
    """Takes an attribute over, with the modules on the way to it."""
    *prefix, field = target.split(".")
    for item in prefix:
        there, here = getattr(from_module, item), getattr(to_module, item, None)
        if there is here:                        # the whole module was taken over before
            return
        if here is None:
            here = torch.nn.Module()
            setattr(to_module, item, here)
        from_module, to_module = there, here
    _put(getattr(from_module, field), to_module, field)


def _put(value: Any, module: torch.nn.Module, field: str) -> None:
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        module.register_buffer(field, value)
    else:
        setattr(module, field, value)


def _assign_attr(from_obj: object, to_module: torch.nn.Module, target: str) -> None:
    """Sets an attribute by its path; modules on the way come into being."""
    *prefix, field = target.split(".")
    for item in prefix:
        here = getattr(to_module, item, None)
        if here is None:
            here = torch.nn.Module()
            setattr(to_module, item, here)
        to_module = here
    _put(from_obj, to_module, field)


def _get_attr(model: torch.nn.Module, attr_name: str) -> Any:
    """An attribute by its path."""
    for part in attr_name.split("."):
        model = getattr(model, part)
    return model


def _has_attr(model: torch.nn.Module, attr_name: str) -> bool:
    """Whether there is an attribute at a path."""
    for part in attr_name.split("."):
        if not hasattr(model, part):
            return False
        model = getattr(model, part)
    return True


def _del_attr(model: torch.nn.Module, attr_name: str) -> None:
    """Takes an attribute away by its path."""
    *prefix, field = attr_name.split(".")
    delattr(_get_attr(model, ".".join(prefix)) if prefix else model, field)


class _WrappedCall:
    """The call of a graph module; for an error in generated code it shows the code."""

    def __init__(self, cls: type, cls_call: Callable[..., Any] | None) -> None:
        self.cls, self.cls_call = cls, cls_call

    @staticmethod
    def _generate_error_message(frame_summary: traceback.FrameSummary) -> str:
        number = frame_summary.lineno or 0
        lines = linecache.getlines(frame_summary.filename)
        marker = "~" * len(frame_summary.line or "") + "~~~ <--- HERE"
        return "\n".join([traceback.format_exc(), f"Call using an FX-traced Module, line {number} of the traced Module's "
                          "generated forward function:", "".join(lines[number - 2:number]), marker,
                          "\n".join(lines[number:number + 2])])

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(obj, *args, **kwargs)
            return super(self.cls, obj).__call__(*args, **kwargs)   # type: ignore[arg-type]
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            while frames[-1].filename.endswith((".pxi", ".pyx")):    # the op that was called
                frames.pop()
            if "eval_with_key" not in frames[-1].filename:
                raise
            print(self._generate_error_message(frames[-1]), file=sys.stderr)
            raise error.with_traceback(None)   # noqa: B904  (it is the same error)


@compatibility(is_backward_compatible=True)
class GraphModule(_Module):
    """A module with a graph; change the graph, then call recompile()."""

    __jit_unused_properties__ = ["graph", "_boxed_call"]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Each module has a class of its own, for forward is a function of the class.
        base = next(t for t in cls.__mro__ if t.__qualname__.rpartition(".")[2] != "GraphModuleImpl")

        class GraphModuleImpl(base):   # type: ignore[valid-type,misc]
            pass
        return super().__new__(GraphModuleImpl)

    @compatibility(is_backward_compatible=True)
    def __init__(self, root: torch.nn.Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        self.__class__.__name__ = class_name
        wanted = [node for node in graph.nodes if node.op in ("get_attr", "call_module")]
        if isinstance(root, torch.nn.Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in wanted:
                _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            for node in wanted:
                if node.target not in root:
                    raise RuntimeError(f"Node {node} referenced target {node.target} but that target was not provided in "
                                       "``root``!")
            # A module comes before what lies in it.
            for target in sorted(dict.fromkeys(node.target for node in wanted), key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        local = graph._tracer_cls is not None and "<locals>" in graph._tracer_cls.__qualname__
        self._tracer_cls = None if local else graph._tracer_cls
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}
        self.shape_env = None
        for name in _HOOKS:
            setattr(self, name, [])

    @property
    def _boxed_call(self) -> bool:
        return isinstance(self._graph._codegen, _BoxedCodeGen)

    @property
    def graph(self) -> Graph:
        """The graph; a new one is compiled at once."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        assert isinstance(g, Graph), f"Expected a Graph instance, but got {type(g)}"
        self._graph = g
        g.owning_module = self
        self.recompile()

    @compatibility(is_backward_compatible=False)
    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Writes the module as a Python package with its weights."""
        place = Path(folder)
        place.mkdir(exist_ok=True)
        torch.save(self.state_dict(), place / "state_dict.pt")
        code = self._graph.python_code(root_module="self")
        lines = [f"class {module_name}(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
        unprintable = []
        for name, module in self.named_children():
            shown = repr(module)
            if getattr(torch.nn, type(module).__name__, None) is not type(module) or "\n" in shown:
                unprintable.append(name)
                torch.save(module, place / f"{name}.pt")
                shown = f"torch.load(r'{place / f'{name}.pt'}', weights_only=False)) # {shown.replace(chr(10), ' ')}"
            lines.append(f"        setattr(self, '{name}', {shown}" + ("" if name in unprintable else ")"))
        for name, buffer in self._buffers.items():
            if buffer is not None:
                lines.append(f"        self.register_buffer('{name}', torch.empty({list(buffer.shape)}, "
                             f"dtype={buffer.dtype}))")
        for name, parameter in self._parameters.items():
            if parameter is not None:
                lines.append(f"        setattr(self, '{name}', torch.nn.Parameter(torch.empty({list(parameter.shape)}, "
                             f"dtype={parameter.dtype})))")
        lines.append(f"        self.load_state_dict(torch.load(r'{folder}/state_dict.pt'))")
        body = "\n".join("    " + line if line.strip() else line for line in code.src.splitlines())
        text = f"\nimport torch\n{_format_import_block(code.globals)}\n\nfrom torch.nn import *\n" + "\n".join(lines) + \
            f"\n{body}\n"
        (place / "module.py").write_text(text)
        (place / "__init__.py").write_text("from .module import *")
        if unprintable:
            warnings.warn("Was not able to save the following children modules as reprs -saved as pickled files instead: "
                          f"{unprintable}", stacklevel=2)

    @compatibility(is_backward_compatible=True)
    def add_submodule(self, target: str, m: torch.nn.Module) -> bool:
        """Adds a submodule at a path; False where something else lies on the way."""
        *prefix, field = target.split(".")
        module: Any = self
        for item in prefix:
            found = getattr(module, item, None)
            if found is None:
                found = torch.nn.Module()
                setattr(module, item, found)
            if not isinstance(found, torch.nn.Module):
                return False
            module = found
        module.add_module(field, m)
        return True

    @compatibility(is_backward_compatible=True)
    def delete_submodule(self, target: str) -> bool:
        """Takes out the submodule at a path; False where there is none."""
        *prefix, field = target.split(".")
        module: Any = self
        for item in prefix:
            module = getattr(module, item, None)
            if not isinstance(module, torch.nn.Module):
                return False
        if not isinstance(getattr(module, field, None), torch.nn.Module):
            return False
        delattr(module, field)
        return True

    @compatibility(is_backward_compatible=True)
    def delete_all_unused_submodules(self) -> None:
        """Takes out the submodules that the graph does not call and that hold nothing it reads."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used.update(".".join(parts[:n]) for n in range(1, len(parts) + 1))
            if node.op == "call_module":
                try:
                    called = self.get_submodule(node.target)
                except AttributeError:           # taken out before the call was
                    continue
                used.update(f"{node.target}.{name}" for name, _ in called.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    @property
    def code(self) -> str:
        """The source of forward."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    @compatibility(is_backward_compatible=True)
    def recompile(self) -> PythonCode:
        """Makes forward anew of the graph; call it after a change."""
        if isinstance(self._graph._codegen, _PyTreeCodeGen):
            self._in_spec = self._graph._codegen.pytree_info.in_spec
            self._out_spec = self._graph._codegen.pytree_info.out_spec
        made = self._graph.python_code(root_module="self")
        self._code, self._lineno_map, self._prologue_start = made.src, made._lineno_map, made._prologue_start
        cls: Any = type(self)
        cls.forward = _forward_from_src(self._code, made.globals, getattr(self._graph, "_co_fields", None))
        if "_wrapped_call" not in vars(cls):
            cls._wrapped_call = _WrappedCall(cls, vars(cls).get("__call__"))

            def call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
                return self._wrapped_call(self, *args, **kwargs)
            cls.__call__ = call_wrapped
        return made

    def _recompile_submodules(self) -> list[tuple[str, PythonCode]]:
        return [(name, module.recompile()) for name, module in self.named_modules() if isinstance(module, GraphModule)]

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.__dict__.copy()
        code = self.recompile()
        del state["_graph"]
        state["_graphmodule_cls_name"] = type(self).__name__
        return reduce_graph_module, (state, _format_import_block(code.globals))

    def __reduce_package__(self, exporter: Any) -> tuple[Any, ...]:
        raise NotImplementedError("[GraphModule] mindtorch_v2 has no torch.package; pickle the module, or save it with "
                                  "torch.save")

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        # The hooks and meta data may name this module; they are copied after there is something to name.
        late = {key: self.__dict__[key] for key in (*_MODULE_HOOKS, *_HOOKS, "meta") if key in self.__dict__}
        state = copy.deepcopy({k: v for k, v in self.__dict__.items() if k not in late and k != "_graph"}, memo)
        graph = copy.deepcopy(self._graph, memo)
        self._deepcopy_init()(made, _CodeOnlyModule(state), graph)
        for table in ("_modules", "_parameters", "_buffers"):
            for key, value in state[table].items():
                getattr(made, table).setdefault(key, value)
        for key, value in late.items():
            made.__dict__[key] = copy.deepcopy(value, memo)
        for key, value in made.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(made, key, value)
        for hook in made._deepcopy_hooks:
            hook(made)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph)
        made.meta = getattr(self, "meta", {})
        return made

    @compatibility(is_backward_compatible=False)
    def print_readable(self, print_output: bool = True, include_stride: bool = False, include_device: bool = False,
                       colored: bool = False, *, fast_sympy_print: bool = False, expanded_def: bool = False,
                       additional_meta: list[str] | None = None) -> str:
        """The code of this module and of the graph modules in it, with shapes and the places in the user's code."""
        return _print_readable(self, type(self).__name__, print_output, include_stride, include_device, colored,
                               expanded_def)

    def __str__(self) -> str:
        plain = super().__str__()
        return "\n".join([plain, self._code, "# To see more debug info, please use `graph_module.print_readable()`"])

    def _replicate_for_data_parallel(self) -> GraphModule:
        made = self.__copy__()
        made._is_replica = True
        return made

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., object]) -> Iterator[None]:
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)


def _define_hook_registration(name: str, table: str) -> None:
    """gm._register_<name>_hook(f) and its counterpart: f is called when a node is replaced, made or erased."""
    def register(self: Any, f: Callable[..., object]) -> None:
        assert callable(f), f"{name} hook must be a callable."
        getattr(self, table).append(f)

    def unregister(self: Any, f: Callable[..., object]) -> None:
        getattr(self, table).remove(f)
    setattr(GraphModule, f"_register_{name}_hook", register)
    setattr(GraphModule, f"_unregister_{name}_hook", unregister)


for _name in ("replace_node", "create_node", "erase_node", "deepcopy"):
    _define_hook_registration(_name, f"_{_name.replace('replace_node', 'replace')}_hooks")


def _print_readable(module: Any, module_name: str, print_output: bool = True, include_stride: bool = False,
                    include_device: bool = False, colored: bool = False, expanded_def: bool = False) -> str:
    graph = getattr(module, "_graph", None) or getattr(module, "graph", None)
    assert isinstance(graph, Graph), "print_readable must be used on a module with a graph"
    code = graph.python_code(root_module="self", verbose=True, include_stride=include_stride,
                             include_device=include_device, colored=colored, expanded_def=expanded_def)
    parts = [f"class {module_name}(torch.nn.Module):", _indented(code.src.lstrip("\n"))]
    for name, child in module.named_children():
        if hasattr(child, "graph") and isinstance(child.graph, Graph):
            inner = _print_readable(child, name, False, include_stride, include_device, colored, expanded_def)
            parts.append(_indented(inner))
    text = "\n".join(line.rstrip() for line in "\n".join(parts).rstrip().split("\n")) + "\n"
    if print_output:
        print(text)
    return text


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))
