"""Graph: the operations of a function as a linked list of nodes, and the ways to change it."""
from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._codegen import (  # noqa: F401  (torch has them here)
    CodeGen,
    PythonCode,
    TransformCodeFunc,
    _BoxedCodeGen,
    _format_target,
    _is_from_torch,
    _PyTreeCodeGen,
    _PyTreeInfo,
    dtype_abbrs,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._namespace import (  # noqa: F401  (torch has them here)
    _color_codes,
    _color_fns,
    _custom_builtins,
    _CustomBuiltin,
    _identity,
    _is_magic,
    _make_color_fn,
    _Namespace,
    _register_custom_builtin,
    _snake_case,
)
from mindtorch_v2.fx.node import Argument, Node, Target, _get_qualified_name, _legal_ops, _type_repr, map_arg  # noqa: F401
from mindtorch_v2.fx.traceback import _parse_stack_trace, _ParsedStackTrace  # noqa: F401

try:
    from tabulate import tabulate
except ImportError:
    tabulate = None

if TYPE_CHECKING:
    from mindtorch_v2.fx._symbolic_trace import Tracer
    from mindtorch_v2.fx.graph_module import GraphModule

__all__ = ["PythonCode", "CodeGen", "Graph"]


class _node_list:
    """The nodes of a graph in their order; the graph may change while one walks over them."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        assert direction in ("_next", "_prev"), f"direction must be '_next' or '_prev', got {direction}"
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Any]:
        root = self.graph._root
        node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:                 # one that was erased meanwhile still has its links
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> Iterator[Any]:
        return iter(_node_list(self.graph, "_next" if self.direction == "_prev" else "_prev"))


class _InsertPoint:
    """A with block in which new nodes come to another place."""

    def __init__(self, graph: Graph, new_insert: Callable[..., None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        self.graph._insert = self.orig_insert


@compatibility(is_backward_compatible=True)
class Graph:
    """What a function does, as nodes: placeholders, calls and an output."""

    @compatibility(is_backward_compatible=True)
    def __init__(self, owning_module: GraphModule | None = None, tracer_cls: type[Tracer] | None = None,
                 tracer_extras: dict[str, Any] | None = None) -> None:
        self._in_order = True
        self._root: Node = Node(self, "", "root", "", (), {})
        self._used_names: dict[str, int] = {}
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    def _count_places(self) -> None:
        self._in_order = True
        for place, node in enumerate(self.nodes, 1):
            node._order = place

    @property
    def owning_module(self) -> GraphModule | None:
        """The module whose forward this graph is."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: GraphModule | None) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """The nodes, in the order in which they run."""
        return _node_list(self)

    @compatibility(is_backward_compatible=False)
    def output_node(self) -> Node:
        """The output node."""
        last = next(iter(reversed(self.nodes)))
        assert last.op == "output", f"Expected output node, got {last.op}"
        return last

    @compatibility(is_backward_compatible=False)
    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Any]:
        """The nodes of a kind, in their order; of a target, where one is given."""
        assert op != "call_function" or target is not None, "target must not be None for call_function op"
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    @compatibility(is_backward_compatible=True)
    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Argument | None:
        """Copies the nodes of another graph to where nodes are inserted; gives what its output was, in this graph."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return result if not return_output_node else (result, node)
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls)
        memo[id(self)] = made
        known: dict[Node, Node] = {}
        copied = made.graph_copy(self, known, return_output_node=True)
        made._codegen = copy.deepcopy(self._codegen)
        made._co_fields = dict(self._co_fields)
        if copied is not None:
            assert isinstance(copied, tuple)
            value, old = copied
            output = made.output(value, type_expr=getattr(old, "type", None))
            output.meta = copy.copy(old.meta)
        memo.update({id(old): new for old, new in known.items()})
        return made

    @compatibility(is_backward_compatible=True)
    def create_node(self, op: str, target: Target, args: tuple[Argument, ...] | None = None,
                    kwargs: dict[str, Argument] | None = None, name: str | None = None,
                    type_expr: Any | None = None) -> Node:
        """Makes a node where nodes are inserted."""
        assert op in _legal_ops, f"op '{op}' is not in _legal_ops"
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        assert isinstance(args, tuple), f"args must be a tuple, got {type(args)}"
        assert isinstance(kwargs, dict), f"kwargs must be a dict, got {type(kwargs)}"
        name = self._graph_namespace.create_name(name if name is not None else self._target_to_str(target), None)
        node = Node(self, name, op, target, args, kwargs, type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", None) or ():
            hook(node)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._len += 1
        return node

    @compatibility(is_backward_compatible=False)
    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders for the arguments of a call."""
        return self._codegen.process_inputs(*args)

    @compatibility(is_backward_compatible=False)
    def process_outputs(self, out: Any) -> Any:
        """What a call returns, of the value of the output node."""
        return self._codegen.process_outputs(out)

    @compatibility(is_backward_compatible=True)
    def erase_node(self, to_erase: Node) -> None:
        """Removes a node that is not used."""
        if len(to_erase.users) > 0:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                               f"{to_erase.users}!")
        if to_erase.graph != self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        after, before = to_erase._next, to_erase._prev
        to_erase._remove_from_list()
        # A loop over the list may be at this node: it keeps its neighbours, but is in no list.
        to_erase._next, to_erase._prev, to_erase._erased = after, before, True
        self._len -= 1
        to_erase._update_args_kwargs(map_arg(to_erase.args, lambda n: None), map_arg(to_erase.kwargs, lambda n: None))

    @compatibility(is_backward_compatible=True)
    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """New nodes come before a node, or to the beginning; in a with block, or from now on."""
        if n is None:
            return self.inserting_after(self._root)
        assert n.graph == self, "Node to insert before is not in graph."
        return _InsertPoint(self, n.prepend)

    @compatibility(is_backward_compatible=True)
    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """New nodes come after a node, or to the end; in a with block, or from now on."""
        if n is None:
            return self.inserting_before(self._root)
        assert n.graph == self, "Node to insert after is not in graph."
        return _InsertPoint(self, n.append)

    @compatibility(is_backward_compatible=True)
    def placeholder(self, name: str, type_expr: Any | None = None,
                    default_value: Any = inspect.Signature.empty) -> Node:
        """A parameter of the function."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """The reading of an attribute of the module."""
        if self.owning_module and not self._refers_to_state(qualified_name):
            warnings.warn("Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! "
                          "Call GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add "
                          "the necessary Parameter, or nn.Module.register_buffer to add the necessary buffer", stacklevel=2)
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def _refers_to_state(self, qualified_name: str) -> bool:
        path, _, name = qualified_name.rpartition(".")
        try:
            submodule = self.owning_module.get_submodule(path)   # type: ignore[union-attr]
        except AttributeError:
            warnings.warn(f"Failed to fetch module {path}!", stacklevel=3)
            return False
        found = getattr(submodule, name, None)
        return isinstance(found, (torch.nn.Module, torch.nn.Parameter)) or name in submodule._buffers

    @compatibility(is_backward_compatible=True)
    def call_module(self, module_name: str, args: tuple[Argument, ...] | None = None,
                    kwargs: dict[str, Argument] | None = None, type_expr: Any | None = None) -> Node:
        """A call of a submodule."""
        if self.owning_module and self.owning_module.get_submodule(module_name) is None:
            warnings.warn("Attempted to insert a call_module Node with no underlying reference in the owning GraphModule! "
                          "Call GraphModule.add_submodule to add the necessary submodule", stacklevel=2)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def call_method(self, method_name: str, args: tuple[Argument, ...] | None = None,
                    kwargs: dict[str, Argument] | None = None, type_expr: Any | None = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def call_function(self, the_function: Callable[..., Any], args: tuple[Argument, ...] | None = None,
                      kwargs: dict[str, Argument] | None = None, type_expr: Any | None = None,
                      name: str | None = None) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A copy of a node, also of another graph; arg_transform gives this graph's node for one of the other."""
        made = self.create_node(node.op, node.target, map_arg(node.args, arg_transform),
                                map_arg(node.kwargs, arg_transform), node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    @compatibility(is_backward_compatible=True)
    def output(self, result: Argument, type_expr: Any | None = None) -> Any:
        """What the function returns."""
        return self.create_node(op="output", target="output", args=(result,), type_expr=type_expr)

    def _target_to_str(self, target: Target | None) -> str:
        """The name that a node of a target gets."""
        name = target.__name__ if callable(target) else str(target)
        if _is_magic(name):
            name = name[2:-2]
        return _snake_case(name)

    @compatibility(is_backward_compatible=True)
    def python_code(self, root_module: str, *, verbose: bool = False, include_stride: bool = False,
                    include_device: bool = False, colored: bool = False, expanded_def: bool = False,
                    record_func: bool = False, additional_meta: list[str] | None = None) -> PythonCode:
        """The source of the function, and the globals that it needs."""
        namespace = _Namespace()
        before = {node: node._repr_fn for node in self.nodes}

        def unique(n: Node) -> str:              # a node may be called like a global
            return namespace.create_name(n.name, n)
        try:
            for node in before:
                node._repr_fn = unique
            return self._python_code(root_module, namespace, verbose=verbose, include_stride=include_stride,
                                     include_device=include_device, colored=colored, expanded_def=expanded_def,
                                     record_func=record_func, additional_meta=additional_meta)
        finally:
            for node, shown in before.items():
                node._repr_fn = shown

    def _python_code(self, root_module: str, namespace: _Namespace, **options: Any) -> PythonCode:
        return self._codegen._gen_python_code(self.nodes, root_module, namespace, **options)

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "graph():" + "".join(f"\n    {line}" for line in lines if line)

    @compatibility(is_backward_compatible=True)
    def print_tabular(self) -> None:
        """Prints the nodes as a table."""
        if tabulate is None:
            print("`print_tabular` relies on the library `tabulate`, which could not be found on this machine. "
                  "Run `pip install tabulate` to install the library.")
            raise ImportError("print_tabular needs the library tabulate; run pip install tabulate")
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    @compatibility(is_backward_compatible=True)
    def lint(self) -> None:
        """Raises where the graph is not whole: nodes of other graphs, wrong order, targets that are not there."""
        defined: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.op not in _legal_ops:
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for arg in node._input_nodes:
                self._check_argument(node, arg, defined)
            defined.add(node)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
            wanted = ("a Callable", callable(node.target)) if node.op == "call_function" else \
                ("a str", isinstance(node.target, str))
            if not wanted[1]:
                raise RuntimeError(f"Node {node} target {node.target} has type {torch.typename(node.target)} but "
                                   f"{wanted[0]} is expected")
            if self.owning_module and node.op in ("get_attr", "call_module"):
                self._check_target(node)

    def _check_argument(self, node: Node, arg: Node, defined: set[Node]) -> None:
        if arg.graph is not self:
            raise RuntimeError(f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an "
                               "argument! If you are copying nodes from another graph, make sure to use ``arg_transform`` "
                               f"on node_copy() to remap values\n{self}")
        if arg not in defined:
            raise RuntimeError(f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check that "
                               f"Nodes in the graph are topologically ordered\n{self}")

    def _check_target(self, node: Node) -> None:
        found: Any = self.owning_module
        parts = node.target.split(".")   # type: ignore[union-attr]
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part} of "
                                   f"{'.'.join(parts[:i])}")
            found = getattr(found, part)
            if i < len(parts) - 1:
                continue
            where = f"Node {node} target {node.target} {part} of {'.'.join(parts[:i])} does not reference an nn.Module"
            if node.op == "call_module" and not isinstance(found, torch.nn.Module):
                raise RuntimeError(where)
            if node.op == "get_attr" and not isinstance(found, (torch.nn.Module, torch.Tensor)):
                warnings.warn(f"{where}, nn.Parameter, or buffer, which is what 'get_attr' Nodes typically target",
                              stacklevel=3)

    @compatibility(is_backward_compatible=True)
    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes that are not used and change nothing; whether there were any."""
        self.lint()
        impure = is_impure_node or (lambda node: node.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    @compatibility(is_backward_compatible=False)
    def set_codegen(self, codegen: CodeGen) -> None:
        """Chooses how the graph becomes source."""
        self._codegen = codegen

    @compatibility(is_backward_compatible=False)
    def on_generate_code(self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
                         ) -> contextlib.AbstractContextManager[None]:
        """Sets a function that changes the lines of the source; what is returned takes it away again."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def restore() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before
        return restore()

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            node.meta.clear()
            self.erase_node(node)
