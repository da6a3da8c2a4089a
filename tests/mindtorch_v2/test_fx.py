"""torch.fx against PyTorch's: graphs and code as text, values, errors, copies, pickles."""
from __future__ import annotations

import copy
import inspect
import operator
import pickle
import re
import subprocess
import sys
import types
import typing
from typing import Any

import fx_programs
import pytest
import torch
from torch.fx.passes.split_module import split_module as torch_split
from twin import error, twin

import mindtorch_v2

fx = mindtorch_v2.fx
FUNCTIONS = {lib.__name__: fx_programs.functions(lib) for lib in (torch, mindtorch_v2)}
MODULES = {lib.__name__: fx_programs.modules(lib) for lib in (torch, mindtorch_v2)}
fx.wrap("leaf")
leaf = fx_programs.leaf


def shown(module: Any) -> list[str]:
    """Everything that a graph module prints."""
    readable = module.print_readable(print_output=False)
    listed = [str((n.op, n.name, n.type if isinstance(n.type, type) else "", len(n.users))) for n in module.graph.nodes]
    text = [str(module.graph), module.code, readable, str(module), *listed, str(module._lineno_map)]
    return [public(t) for t in text]


def public(text: str) -> str:
    """Text with torch's names: what is a module of torch's own has another home here."""
    text = text.replace("mindtorch_v2._tensor.Tensor", "torch.Tensor").replace("mindtorch_v2", "torch")
    # Python functions of torch.functional are ops here; a method of a constant is the op.
    return re.sub(r"torch\.functional\.", "torch.", text)


@pytest.mark.parametrize("name", list(FUNCTIONS["torch"]))
def test_functions_print_as_in_torch(name: str) -> None:
    theirs = torch.fx.symbolic_trace(FUNCTIONS["torch"][name])
    ours = fx.symbolic_trace(FUNCTIONS["mindtorch_v2"][name])
    for mine, its in zip(shown(ours), shown(theirs)):
        assert mine == its
    assert [list(n.meta) for n in ours.graph.nodes] == [list(n.meta) for n in theirs.graph.nodes]


@pytest.mark.parametrize("name", list(MODULES["torch"]))
def test_modules_print_as_in_torch(name: str) -> None:
    theirs = torch.fx.symbolic_trace(MODULES["torch"][name])
    ours = fx.symbolic_trace(MODULES["mindtorch_v2"][name])
    for mine, its in zip(shown(ours), shown(theirs)):
        assert mine == its
    assert public(str([n.meta for n in ours.graph.nodes])) == public(str([n.meta for n in theirs.graph.nodes]))
    assert list(ours.state_dict()) == list(theirs.state_dict())


ERRORS: dict[str, Any] = {
    "control flow": lambda lib, x: 1 if x.sum() > 0 else 2,
    "loop": lambda lib, x: [item + 1 for item in x],
    "len": lambda lib, x: len(x),
    "int": lambda lib, x: int(x),
    "range": lambda lib, x: list(range(x)),
    "keywords": lambda lib, x: dict(**x),
    "rest": lambda lib, x: operator.add(*x),
    "contains": lambda lib, x: 3 in x,
    "an object": lambda lib, x: x + object(),
    "a set": lambda lib, x: x.f({1}),
    "a proxy as a key": lambda lib, x: x.f({x: x}),
    "a foreign parameter": lambda lib, x: lib.nn.Linear(2, 2).weight + x,
    "a foreign module": lambda lib, x: lib.nn.Linear(2, 2)(x),
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_what_cannot_be_traced_raises_as_in_torch(name: str) -> None:
    said = []
    for lib in (torch, mindtorch_v2):
        with pytest.raises(Exception) as error:   # noqa: B017, PT011  (compared below)
            lib.fx.symbolic_trace(lambda x: ERRORS[name](lib, x))   # noqa: B023
        said.append((type(error.value).__name__, str(error.value)))
    assert said[0] == said[1]


CONCRETE: dict[str, Any] = {
    "a number": (lambda x, y: x + y if y else x, lambda PH: {"y": 2.5}),
    "none": (lambda x, y: x if y is None else y, lambda PH: {"y": None}),
    "one with a default": (lambda x, y=3: x + y, lambda PH: {"y": 5}),
    "a dict": (lambda x, y: x["a"] + x["b"][0] + y, lambda PH: {"x": {"a": PH, "b": [PH, 2]}}),
    "a tuple of all": (lambda x, y: x + y, lambda PH: (PH, 1)),
    "result as a tree": (lambda x: {"k": x["a"], "l": [x["a"], 1]}, lambda PH: {"x": {"a": PH}}),
}


@pytest.mark.parametrize("name", list(CONCRETE))
def test_concrete_arguments(name: str) -> None:
    program, arguments = CONCRETE[name]
    ours = fx.symbolic_trace(program, concrete_args=arguments(fx.PH))
    theirs = torch.fx.symbolic_trace(program, concrete_args=arguments(torch.fx.PH))
    for mine, its in zip(shown(ours), shown(theirs)):
        assert mine == its
    assert pickle.loads(pickle.dumps(ours)).code.count("placeholder") == 0


def test_traced_values_are_the_programs() -> None:
    x = mindtorch_v2.randn(2, 4)
    for module in (MODULES["mindtorch_v2"][name].eval() for name in ("block", "net")):
        traced = fx.symbolic_trace(module)
        wanted = module(x)
        for run in (traced, copy.deepcopy(traced), fx.Transformer(traced).transform(), pickle.loads(pickle.dumps(traced)),
                    fx.Interpreter(traced).run, fx.symbolic_trace(traced)):
            mindtorch_v2.testing.assert_close(run(x), wanted)
        traced.graph.lint()


def test_wrap_records_a_call() -> None:
    traced = fx.symbolic_trace(lambda x: leaf(x, 2) + leaf(1, 2))
    assert [n.op for n in traced.graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
    assert 'torch.fx._symbolic_trace.wrap("fx_programs_leaf")' in traced.code and traced(3) == 8
    assert fx.symbolic_trace(traced)(3) == 8 and leaf is fx_programs.leaf
    with pytest.raises(NotImplementedError, match="top level of a module"):
        fx.wrap("leaf")


def test_graphs_are_edited() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(mindtorch_v2.relu, (x,))
    out = graph.output(y)
    with graph.inserting_before(y):
        z = graph.call_method("neg", (x,))
    y.args = (z,)
    assert [n.name for n in graph.nodes] == ["x", "neg", "relu", "output"] and x.users == {z: None} and x < z < y
    assert fx.GraphModule({}, graph)(mindtorch_v2.tensor(-2.0)) == 2
    with pytest.raises(RuntimeError, match="still had 1 users in the graph"):
        graph.erase_node(z)
    y.replace_all_uses_with(z)
    graph.erase_node(y)
    assert out.args == (z,) and len(graph.nodes) == 3 and y._erased
    unused = graph.call_function(mindtorch_v2.sin, (x,))
    out.prepend(unused)
    assert graph.eliminate_dead_code() and unused not in list(graph.nodes)
    with pytest.raises(TypeError, match="new_args"):
        fx.immutable_collections.immutable_list([1])[0] = 2


def test_names_are_given_as_in_torch() -> None:
    names = ["x", "x", "x_1", "x1", "3a", "foo.bar", "len", "getattr", "foo_3", "foo_5", "foo", "foo", "inf", "torch",
             "lambda", "True", "a-b", "", "_0", "add_", "relu_1_1", "abs", "x_01", "Tensor"]
    spaces = [torch.fx.graph._Namespace(), fx.graph._Namespace()]
    assert [spaces[1].create_name(n, None) for n in names] == [spaces[0].create_name(n, None) for n in names]


def test_replace_pattern() -> None:
    def program(x: Any, w: Any) -> Any:
        a = mindtorch_v2.relu(x + w)
        return mindtorch_v2.relu(a + w) * mindtorch_v2.sigmoid(a)
    traced = fx.symbolic_trace(program)
    found = fx.replace_pattern(traced, lambda a, b: mindtorch_v2.relu(a + b), lambda a, b: mindtorch_v2.maximum(a, b))
    assert len(found) == 2 and all(isinstance(m, fx.subgraph_rewriter.Match) for m in found)
    x, w = mindtorch_v2.randn(3), mindtorch_v2.randn(3)
    a = mindtorch_v2.maximum(x, w)
    mindtorch_v2.testing.assert_close(traced(x, w), mindtorch_v2.maximum(a, w) * mindtorch_v2.sigmoid(a))
    assert "relu" not in traced.code


def test_shapes_are_propagated() -> None:
    results = []
    for lib in (torch, mindtorch_v2):
        traced = lib.fx.symbolic_trace(MODULES[lib.__name__]["block"])
        prop = lib.fx.passes.shape_prop if lib is mindtorch_v2 else __import__("torch.fx.passes.shape_prop", fromlist=["x"])
        prop.ShapeProp(traced).propagate(lib.ones(2, 4))
        results.append([public(str(n.meta.get("tensor_meta"))) for n in traced.graph.nodes])
        results.append([public(traced.print_readable(print_output=False, include_stride=True, include_device=True))])
    assert results[0] == results[2] and results[1] == results[3]


def test_modules_are_split() -> None:
    traced = fx.symbolic_trace(MODULES["mindtorch_v2"]["block"])
    order = {n: i for i, n in enumerate(traced.graph.nodes)}
    split = fx.passes.split_module.split_module(traced, traced, lambda n: 0 if order[n] < 4 else 1)
    x = mindtorch_v2.randn(2, 4)
    mindtorch_v2.testing.assert_close(split(x), traced(x))
    assert [n.target for n in split.graph.nodes if n.op == "call_module"] == ["submod_0", "submod_1"]


def test_attributes_are_passed_to_the_parts() -> None:
    shown = []
    for lib, split_module in ((torch, torch_split), (mindtorch_v2, fx.passes.split_module.split_module)):
        class Scaled(lib.nn.Module):   # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.w = lib.nn.Parameter(lib.ones(3))

            def forward(self, x: Any) -> Any:
                return (x.relu() * self.w).sin() + self.w
        traced = lib.fx.symbolic_trace(Scaled())
        split = split_module(traced, traced, lambda n: int(n.name == "add"))
        shown.append([split.code, [(name, m.code) for name, m in split.named_children()]])
    assert shown[0] == shown[1]


def test_code_generation_is_open() -> None:
    class ListCodeGen(fx.CodeGen):
        def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
            return f"\ndef forward(self, args_list: List[torch.Tensor]):\n    {', '.join(free_vars)} = args_list"

        def additional_globals(self) -> list[tuple[str, Any]]:
            return [("List", typing.List)]   # noqa: UP006

        def process_inputs(self, *inputs: Any) -> Any:
            return inputs[0]
    traced = fx.symbolic_trace(lambda a, b: a - b)
    traced.graph.set_codegen(ListCodeGen())
    traced.recompile()
    assert traced([5, 3]) == 2 and fx.Interpreter(traced).run([5, 3]) == 2
    assert fx.Transformer(traced).transform()([5, 3]) == 2


def test_an_error_in_generated_code_shows_the_code(capsys: Any) -> None:
    traced = fx.symbolic_trace(lambda x: mindtorch_v2.dot(x, 2))
    with pytest.raises(TypeError):
        traced(5)
    assert re.search(r"Call using an FX-traced Module, line 5 of the traced Module's generated forward function:",
                     capsys.readouterr().err)


def test_stacks_name_the_users_code() -> None:
    def program(a: Any, b: Any) -> Any:
        c = a + b
        return c * 2
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    graph = tracer.trace(program)
    traces = [n.stack_trace for n in graph.nodes]
    assert traces[0] is None and "c = a + b" in traces[2] and "return c * 2" in traces[3]
    assert "c = a + b" in fx.GraphModule(tracer.root, graph).print_readable(print_output=False)


def test_a_class_takes_over_functions_of_nn() -> None:
    seen = []

    class Own(mindtorch_v2.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs)
    F = mindtorch_v2.nn.functional
    x = mindtorch_v2.ones(2, 2).as_subclass(Own)
    F.relu(x)
    F.softmax(x, 1)
    mindtorch_v2.einsum("ij->i", x)
    mindtorch_v2.ops.aten.relu.default(x)
    assert seen[0] is F.relu and F.softmax in seen and mindtorch_v2.einsum in seen
    assert mindtorch_v2.ops.aten.relu.default in seen


def test_a_graph_is_written_to_a_folder(tmp_path: Any) -> None:
    nn = mindtorch_v2.nn
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2))))
    with pytest.warns(UserWarning, match="saved as pickled files"):
        traced.to_folder(tmp_path / "net", "Net")
    script = "import sys, mindtorch_v2 as torch; sys.modules['torch'] = torch; sys.modules['torch.nn'] = torch.nn; " \
             "sys.modules['torch.fx'] = torch.fx; sys.modules['torch.fx._pytree'] = torch.fx._pytree; " \
             "sys.modules['torch.utils'] = torch.utils; sys.modules['torch.utils._pytree'] = torch.utils._pytree; " \
             "from net import Net; print(tuple(Net()(torch.ones(1, 2)).shape))"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1, 2)"


@twin
def test_what_a_match_takes_and_symbolic_numbers(t):
    def f(x, w):
        return t.cat([w, w]).sum() + t.cat([w, x]).sum() + t.sym_max(t.sym_int(x), 1)
    traced = t.fx.symbolic_trace(f)
    t.fx.replace_pattern(traced, lambda a, b: t.cat([a, b]).sum(), lambda a, b: t.stack([a, b]))
    node = traced.graph.find_nodes(op="placeholder")[0]
    return public(traced.code), error(lambda: node.append(t.fx.Graph().placeholder("x")), 100), \
        error(lambda: traced.graph.find_nodes(op="call_function"), 100)


@twin
def test_types_of_placeholders_and_of_items(t):
    from importlib import import_module
    annotate = import_module(t.__name__ + ".fx.passes.annotate_getitem_nodes").annotate_getitem_nodes
    graph = t.fx.Graph()
    x = graph.placeholder("x", type_expr=t.Tensor)
    pair = graph.call_function(divmod, (x, 1), type_expr=tuple[t.Tensor, int])
    items = [graph.call_function(operator.getitem, (pair, i)) for i in range(2)]
    graph.output(tuple(items))
    annotate(graph)
    return graph.python_code("self").src, items[0].type is t.Tensor, items[1].type is int


def test_functions_are_built_in_as_torchs_are() -> None:
    """PyTorch's tests and packages ask for the type before they read a function's schemas."""
    assert isinstance(mindtorch_v2.add, types.BuiltinFunctionType) and inspect.isbuiltin(mindtorch_v2.conv2d) and type(mindtorch_v2.add) is mindtorch_v2._C.Op
    assert pickle.loads(pickle.dumps(mindtorch_v2.add)) is mindtorch_v2.add is copy.deepcopy(mindtorch_v2.add)
    x = mindtorch_v2.ones(2, 3)
    signatures = mindtorch_v2.fx.operator_schemas.get_signature_for_torch_op(mindtorch_v2.sum)
    assert any(isinstance(s.parameters.get("dim"), inspect.Parameter) and s.bind(x, 0) for s in signatures)
