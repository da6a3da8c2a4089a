"""export: a module is run on fake tensors, and the ops below autograd become a graph."""
from __future__ import annotations

import inspect
import re
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.export.dynamic_shapes import _varying
from mindtorch_v2.export.exported_program import CallSpec, ExportedProgram, ModuleCallEntry, ModuleCallSignature
from mindtorch_v2.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

pytree = torch.utils._pytree
_proxy_tensor = torch.fx.experimental.proxy_tensor
_PREFIX = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_", InputKind.CONSTANT_TENSOR: "c_"}


def _state(mod: Any) -> list[tuple[InputKind, str, Any]]:
    """Parameters, buffers and other tensors of a module, with their paths."""
    found = [(InputKind.PARAMETER, name, p) for name, p in mod.named_parameters(remove_duplicate=False)]
    found += [(InputKind.BUFFER, name, b) for name, b in mod.named_buffers(remove_duplicate=False)]
    for path, module in mod.named_modules():
        found += [(InputKind.CONSTANT_TENSOR, f"{path}.{name}".lstrip("."), value) for name, value in vars(module).items()
                  if isinstance(value, torch.Tensor)]
    return found


class _Swapped:
    """A with block in which the tensors of a module are others."""

    def __init__(self, mod: Any, values: dict[str, Any]) -> None:
        self.mod, self.values = mod, values
        self.before: list[tuple[dict[str, Any], str, Any]] = []

    def __enter__(self) -> None:
        for path, value in self.values.items():
            owner, _, name = path.rpartition(".")
            module = self.mod.get_submodule(owner)
            for table in (module._parameters, module._buffers, vars(module)):
                if name in table:
                    self.before.append((table, name, table[name]))
                    table[name] = value
                    break

    def __exit__(self, *exc: Any) -> None:
        for table, name, value in reversed(self.before):
            table[name] = value


def _argument_names(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    bound = inspect.signature(mod.forward).bind(*args, **kwargs)
    names: list[str] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}_{i}" for i in range(len(value))]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            names += list(value)
        else:
            names.append(name)
    return names


def _name_of(step: Any) -> Any:
    """The key, place or attribute that a step of a path goes to."""
    return next(getattr(step, word) for word in ("key", "idx", "name") if hasattr(step, word))


def _leaf_names(names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for each leaf of the arguments: that of the argument, and the way to the leaf."""
    values = [*args, *kwargs.values()]
    found = []
    for name, value in zip(names, values):
        for path, _ in pytree.tree_leaves_with_path(value):
            found.append("_".join([name, *(re.sub(r"\W+", "_", str(_name_of(step))) for step in path)]))
    return found


def export(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None,
           strict: bool = False, preserve_module_call_signature: tuple[str, ...] = (),
           prefer_deferred_runtime_asserts_over_guards: bool = False) -> ExportedProgram:
    """The program of a module for arguments like these; it does not depend on values of tensors, and changes none."""
    if not isinstance(mod, torch.nn.Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise TypeError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    varying = _varying(dynamic_shapes)
    if varying:
        raise NotImplementedError(f"[torch.export] sizes that vary ({varying[0]}) need symbolic shapes, which mindtorch_v2 has "
                                  "not; export once for each size, without dynamic_shapes")
    kwargs = kwargs or {}
    state = _state(mod)
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    graph_module, out_spec, outputs = _recorded(mod, state, leaves, in_spec)
    names = _argument_names(mod, args, kwargs)
    specs = _named(graph_module, state, leaves, _leaf_names(names, args, kwargs), mod)
    _refuse_changes(graph_module, specs)
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    signature = ExportGraphSignature(specs, _output_specs(graph_module, outputs))
    held = mod.state_dict(keep_vars=True)
    used = {s.target for s in specs}
    entries = [ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec, names)),
               *(ModuleCallEntry(path) for path, _ in mod.named_modules() if path)]
    return ExportedProgram(graph_module, signature, {k: v for k, v in held.items() if k in used},
                           {path: value for _, path, value in state if path not in held}, CallSpec(in_spec, out_spec),
                           (args, kwargs), entries)


def _recorded(mod: Any, state: list[Any], leaves: list[Any], in_spec: Any) -> tuple[Any, Any, list[Any]]:
    """The graph of a call of the module; its inputs are the state and the leaves of the arguments."""
    kept: dict[str, Any] = {}
    count = len(state)

    def flat(*values: Any) -> Any:
        given, named = pytree.tree_unflatten(list(values[count:]), in_spec)
        with _Swapped(mod, {path: value for (_, path, _), value in zip(state, values)}):
            result = mod(*given, **named)
        found, kept["spec"] = pytree.tree_flatten(result)
        kept["outputs"] = found
        return tuple(found)
    try:
        with torch.no_grad():
            made = _proxy_tensor.make_fx(flat, tracing_mode="fake", record_stack_traces=True)(
                *(value.detach() if isinstance(value, torch.nn.Parameter) else value for _, _, value in state), *leaves)
    except torch._subclasses.fake_tensor.DataDependentOutputException as error:
        raise RuntimeError(f"[torch.export] the program reads the value of a tensor ({error}), for control flow perhaps; a "
                           "graph would hold for that value only. Write it with torch.where, or export the parts") from error
    type(made).__name__ = "GraphModule"
    return made, kept["spec"], kept["outputs"]


def _named(graph_module: Any, state: list[Any], leaves: list[Any], leaf_names: list[str], mod: Any) -> list[InputSpec]:
    """Gives the inputs torch's names, and says what each is."""
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    persistent = set(mod.state_dict())
    specs: list[InputSpec] = []
    for node, (kind, path, _) in zip(placeholders, state):
        node._rename(_PREFIX[kind] + path.replace(".", "_").lower())
        specs.append(InputSpec(kind, TensorArgument(node.name), path,
                               path in persistent if kind is InputKind.BUFFER else None))
    for node, value, name in zip(placeholders[len(state):], leaves, leaf_names):
        node._rename(name)
        arg: Any = TensorArgument(node.name) if isinstance(value, torch.Tensor) else ConstantArgument(node.name, value)
        specs.append(InputSpec(InputKind.USER_INPUT, arg, None))
    for node in placeholders:
        node.target = node.name
    graph_module.recompile()
    return specs


def _refuse_changes(graph_module: Any, specs: list[InputSpec]) -> None:
    """Raises where the program changes an input or a buffer: the graph has no place to give the new value to."""
    what = {s.arg.name: s for s in specs}
    roots: dict[Any, Any] = {n: n for n in graph_module.graph.nodes if n.op == "placeholder"}
    for node in graph_module.graph.nodes:
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._C.OpOverload) or not node.all_input_nodes:
            continue
        first = node.args[0]
        if target.is_view and first in roots:
            roots[node] = roots[first]
        if target.overloadpacket.__name__.endswith("_") and first in roots:
            changed = what[roots[first].name]
            named = f"buffer {changed.target!r}" if changed.target else f"input {changed.arg.name!r}"
            raise NotImplementedError(f"[torch.export] the program changes its {named} in place ({target}); call eval() "
                                      "before the export, or write it without")


def _output_specs(graph_module: Any, outputs: list[Any]) -> list[OutputSpec]:
    nodes = graph_module.graph.output_node().args[0]
    return [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name) if isinstance(node, torch.fx.Node) else
                       ConstantArgument("", value), None) for node, value in zip(nodes, outputs)]


def draft_export(*args: Any, **kwargs: Any) -> ExportedProgram:
    """Refuses: there is no export that goes on after what it cannot do."""
    raise NotImplementedError("[torch.export.draft_export] mindtorch_v2 has torch.export.export only")


def save(ep: ExportedProgram, f: Any, **kwargs: Any) -> None:
    """Refuses: PyTorch's archive of exported programs is not written."""
    raise NotImplementedError("[torch.export.save] mindtorch_v2 does not write PyTorch's .pt2 archives; save "
                              "exported_program.module() with torch.save")


def load(f: Any, **kwargs: Any) -> ExportedProgram:
    """Refuses: PyTorch's archive of exported programs is not read."""
    raise NotImplementedError("[torch.export.load] mindtorch_v2 does not read PyTorch's .pt2 archives; load a module that "
                              "torch.save wrote, with torch.load(f, weights_only=False)")

torch._named.complete(__name__)
