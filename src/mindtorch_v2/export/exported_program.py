"""ExportedProgram: a graph of aten ops with the tensors that it needs."""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.export.graph_signature import ExportGraphSignature, InputKind

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]

pytree = torch.utils._pytree


@dataclasses.dataclass
class CallSpec:
    """The structures of the arguments and of the result."""

    in_spec: Any
    out_spec: Any


@dataclasses.dataclass
class ModuleCallSignature:
    """How a module is called."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """One module of the program."""

    fqn: str
    signature: ModuleCallSignature | None = None


def default_decompositions() -> dict[Any, Any]:
    """Empty: the graph consists of what has a kernel."""
    return {}


class ExportedProgram:
    """What torch.export.export gives; module() is the program as a module again."""

    def __init__(self, graph_module: Any, graph_signature: ExportGraphSignature, state_dict: dict[str, Any],
                 constants: dict[str, Any], call_spec: CallSpec, example_inputs: tuple[Any, dict[str, Any]],
                 module_call_graph: list[ModuleCallEntry]) -> None:
        self._graph_module, self._graph_signature = graph_module, graph_signature
        self._state_dict, self._constants, self._call_spec = state_dict, constants, call_spec
        self._example_inputs, self._module_call_graph = example_inputs, module_call_graph
        self._range_constraints: dict[Any, Any] = {}

    graph_module = property(lambda self: self._graph_module, doc="The graph module, whose inputs begin with the state.")
    graph = property(lambda self: self._graph_module.graph, doc="The graph.")
    graph_signature = property(lambda self: self._graph_signature, doc="What the inputs and outputs are.")
    state_dict = property(lambda self: self._state_dict, doc="Parameters and buffers by path.")
    constants = property(lambda self: self._constants, doc="Tensors that are neither, by path.")
    tensor_constants = constants
    call_spec = property(lambda self: self._call_spec, doc="The structures of arguments and result.")
    example_inputs = property(lambda self: self._example_inputs, doc="The arguments it was exported with.")
    range_constraints = property(lambda self: self._range_constraints, doc="Empty: sizes are what they were.")
    module_call_graph = property(lambda self: self._module_call_graph, doc="The modules of the program.")
    dialect = "ATEN"

    def parameters(self) -> Iterator[Any]:
        """The parameters."""
        return (self._state_dict[name] for name in self._graph_signature.parameters)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """The parameters with their paths."""
        return ((name, self._state_dict[name]) for name in self._graph_signature.parameters)

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """The buffers with their paths."""
        everything = {**self._state_dict, **self._constants}
        return ((name, everything[name]) for name in self._graph_signature.buffers)

    def buffers(self) -> Iterator[Any]:
        """The buffers."""
        return (buffer for _, buffer in self.named_buffers())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def module(self, check_guards: bool = True) -> Any:
        """The program as a module: it takes the user's arguments and has the parameters and buffers."""
        graph = torch.fx.Graph()
        known: dict[Any, Any] = {}
        specs = {s.arg.name: s for s in self._graph_signature.input_specs}
        held = {**self._state_dict, **self._constants}
        for node in self.graph.nodes:
            spec = specs.get(node.name)
            if node.op == "placeholder" and spec is not None and spec.kind is not InputKind.USER_INPUT:
                known[node] = graph.create_node("get_attr", spec.target, name=spec.target.replace(".", "_"))   # type: ignore
            elif node.op == "output":
                graph.output(torch.fx.node.map_arg(node.args[0], lambda n: known[n]))
            else:
                known[node] = graph.node_copy(node, lambda n: known[n])
        names = self._module_call_graph[0].signature.forward_arg_names or []   # type: ignore[union-attr]
        info = torch.fx.graph._PyTreeInfo(["self", *names], self._call_spec.in_spec, self._call_spec.out_spec)
        graph.set_codegen(torch.fx.graph._PyTreeCodeGen(info))
        wanted = {s.target: held[s.target] for s in self._graph_signature.input_specs if s.target is not None}
        made = torch.fx.GraphModule({k: v for k, v in wanted.items() if any(n.target == k for n in graph.nodes)}, graph)
        made.train = made.eval = _refuse_mode
        if check_guards:
            made.register_forward_pre_hook(_SizesCheck(self), with_kwargs=True)
        return made

    def run_decompositions(self, decomp_table: dict[Any, Any] | None = None) -> ExportedProgram:
        """The program with the ops of a table replaced by what they are made of."""
        made = copy.copy(self)
        if decomp_table:
            values = [n.meta["val"] for n in self.graph.nodes if n.op == "placeholder"]
            traced = torch.fx.experimental.proxy_tensor.make_fx(
                self._graph_module.forward, decomposition_table=decomp_table)(*[
                    torch.empty_strided(v.shape, v.stride(), dtype=v.dtype) for v in values])
            for node, spec in zip(traced.graph.nodes, self._graph_signature.input_specs):
                node._rename(spec.arg.name)
                node.target = node.name
            traced.recompile()
            made._graph_module = traced
        return made

    def __str__(self) -> str:
        code = self._graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self._graph_signature).replace("\n", "\n    ")
        return f"ExportedProgram:\n    {code}\nGraph signature: {signature}\nRange constraints: {self._range_constraints}\n"


def _refuse_mode(mode: bool = True) -> Any:
    raise NotImplementedError("Calling train() or eval() is not supported for exported modules. The graph has the mode that "
                              "the module was exported in")


class _SizesCheck:
    """Refuses arguments of other structures or sizes than the graph was made for."""

    def __init__(self, program: ExportedProgram) -> None:
        self.spec = program.call_spec.in_spec
        specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
        nodes = {n.name: n for n in program.graph.nodes}
        self.names = [s.arg.name for s in specs]
        self.values = [nodes[s.arg.name].meta.get("val", s.arg) for s in specs]

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.spec:
            raise ValueError(f"Trying to flatten user inputs with exported input tree spec: \n{self.spec}\nbut actually got "
                             f"inputs with tree spec of: \n{spec}")
        for name, wanted, given in zip(self.names, self.values, leaves):
            if isinstance(wanted, torch.Tensor):
                for i, (size, got) in enumerate(zip(wanted.shape, given.shape)):
                    if size != got:
                        raise AssertionError(f"Guard failed: {name}.size()[{i}] == {size}")
                if wanted.dim() != given.dim() or wanted.dtype != given.dtype:
                    raise AssertionError(f"Guard failed: {name} is {wanted.dtype} of {wanted.dim()} dims")
            elif hasattr(wanted, "value") and given != wanted.value:
                raise AssertionError(f"Guard failed: {name} == {wanted.value!r}")

torch._named.complete(__name__)
