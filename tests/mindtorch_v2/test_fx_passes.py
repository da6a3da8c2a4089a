"""torch.fx passes that regroup a graph (partitioner, fuser, merge_matmul) and type it, against PyTorch's."""
from __future__ import annotations

import importlib
import inspect
import operator
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import mindtorch_v2


def program(T: Any, seed: int) -> Callable[..., Any]:
    """Sums among other ops, wired at random."""
    draw = random.Random(seed)
    steps = [(draw.choice(["add", "add", "neg", "add", "relu"]), draw.random(), draw.random()) for _ in range(draw.randint(4, 12))]
    results = draw.randint(1, 3)

    def run(a: Any, b: Any, c: Any) -> Any:
        known = [a, b, c]
        for op, i, j in steps:
            x, y = known[int(i * len(known))], known[-1 - int(j * min(3, len(known)))]
            known.append(x + y if op == "add" else x.neg() if op == "neg" else T.relu(x))
        return tuple(known[-results:])
    return run


def partitioned(T: Any, seed: int, single: bool) -> tuple[Any, ...]:
    passes = f"{T.__name__}.fx.passes"
    module = importlib.import_module(f"{passes}.infra.partitioner")
    support = importlib.import_module(f"{passes}.operator_support").create_op_support(
        lambda submodules, node: node.op == "call_function" and node.target is operator.add)
    gm = T.fx.symbolic_trace(program(T, seed))
    partitioner = module.CapabilityBasedPartitioner(gm, support, allows_single_node_partition=single)
    groups = partitioner.propose_partitions()
    names = [sorted(node.name for node in group.nodes) for group in groups]
    fused = partitioner.fuse_partitions(groups)
    fused.graph.lint()
    given = [T.tensor(float(k)) for k in (1, 2, 3)]
    values = [x.item() for x in fused(*given)]
    assert values == [x.item() for x in program(T, seed)(*given)]
    return names, fused.code, [(name, part.code) for name, part in fused.named_children()], values


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 7, 11, 29])
def test_partitions(seed: int, single: bool) -> None:
    assert partitioned(mindtorch_v2, seed, single) == partitioned(torch, seed, single)


@pytest.mark.parametrize("kept", [False, True])
def test_partition_whose_results_are_not_used(kept: bool) -> None:
    T = mindtorch_v2
    fuser = importlib.import_module("mindtorch_v2.fx.passes.utils.fuser_utils")

    def run(a: Any, b: Any) -> Any:
        return b.neg(), (a + b) * 2 if kept else (a + b, a)[1]
    gm = T.fx.symbolic_trace(run)
    fuser.fuse_by_partitions(gm, [{n: None for n in gm.graph.nodes if n.target is operator.add}])
    assert [x.item() for x in gm(T.tensor(1.0), T.tensor(2.0))] == [-2.0, 6.0 if kept else 1.0]


def test_merge_matmul() -> None:
    T = mindtorch_v2
    merge = importlib.import_module("mindtorch_v2.fx.experimental.merge_matmul").merge_matmul
    w = T.arange(4.0).reshape(2, 2)
    for run, count in ((lambda x, y, w: (x @ w, T.matmul(x, w), T.matmul(y, w)), 1),
                       (lambda x, y, w: T.matmul(T.matmul(x, w), w) + y.sum(), 2)):
        gm = merge(run)
        assert sum(n.target is T.matmul for n in gm.graph.nodes) == count
        found, wanted = gm(T.ones(1, 2), T.ones(3, 2), w), run(T.ones(1, 2), T.ones(3, 2), w)
        assert all(T.equal(a, b) for a, b in zip(found, wanted))


@pytest.mark.parametrize("off", ["", "annotate_functionals", "annotate_modules", "annotate_get_attrs"])
def test_types_of_nodes(off: str) -> None:
    def types(T: Any) -> list[str]:
        class Model(T.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer, self.weight = T.nn.Linear(3, 4), T.nn.Parameter(T.ones(4))

            def forward(self, x: Any) -> Any:
                return T.nn.functional.relu(T.relu(self.layer(x).clamp(min=0.0) + self.weight)), T.cat([x, x])
        module = importlib.import_module(f"{T.__name__}.fx.experimental.schema_type_annotation")
        options = {off: False} if off else {}
        gm = module.AnnotateTypesWithSchema(T.fx.symbolic_trace(Model()), **options).transform()
        return [f"{node.name} {node.type.__name__ if node.type else None}" for node in gm.graph.nodes]
    assert types(mindtorch_v2) == types(torch)


def test_functionals_say_which_parameters_are_tensors() -> None:
    def tensors(T: Any, name: str) -> list[str]:
        parameters = inspect.signature(getattr(T.nn.functional, name)).parameters.values()
        return [p.name for p in parameters if p.annotation is T.Tensor]
    for name in ("relu", "layer_norm", "cross_entropy", "batch_norm", "interpolate", "mse_loss", "dropout", "pad"):
        assert tensors(mindtorch_v2, name) == tensors(torch, name) != [], name


MODULES = {"bn": "BatchNorm2d(3)", "conv": "Conv2d(3, 6, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2))", "relu": "ReLU()",
           "pool": "MaxPool2d((3, 2), 1, padding=1)", "mean": "AdaptiveAvgPool2d((None, 5))", "linear": "Linear(10, 7)",
           "other": "Sigmoid()"}


@pytest.mark.parametrize("sizes", [(2, 3, 10, 10), (2, 4, 10, 10), ("Dyn", 3, "Dyn", 10), (2, 3, 12), (1, 6), (5,), None])
@pytest.mark.parametrize("expression", [
    *(f"self.{name}(x)" for name in MODULES), "torch.flatten(self.relu(x), 1)", "torch.flatten(x, 1, 0)", "torch.flatten(x, 0, 1)",
    "torch.reshape(x, [1, 6])", "torch.reshape(x, [7, -1])", "torch.transpose(x, 0, 1)", "torch.transpose(x, -1, 0)", "x + x",
    "torch.add(x, self.weight)", "x + 1", "x.neg()", "(x, self.relu(x))", "getattr(x, 'shape')"])
def test_gradual_types(expression: str, sizes: Any) -> None:
    def types(T: Any) -> tuple[Any, ...]:
        kinds = importlib.import_module(f"{T.__name__}.fx.tensor_type")
        kind = kinds.TensorType(tuple(kinds.Dyn if n == "Dyn" else n for n in sizes)) if sizes else None
        space: dict[str, Any] = {"torch": T}
        exec(f"def forward(self, x): return {expression}", space)
        space["forward"].__annotations__ = {"x": kind} if kind else {}
        model = type("Model", (T.nn.Module,), {"forward": space["forward"]})()
        model.weight = T.nn.Parameter(T.ones(1))
        for name, text in MODULES.items():
            setattr(model, name, eval(f"torch.nn.{text}", space))
        gm = T.fx.symbolic_trace(model)
        checker = importlib.import_module(f"{T.__name__}.fx.experimental.graph_gradual_typechecker").GraphTypeChecker({}, gm)
        try:
            found = str(checker.type_check())
        except (TypeError, RuntimeError, AssertionError) as error:
            found = f"{type(error).__name__}: {error}".replace("mindtorch_v2", "torch")
        return found, [str(node.type).replace("mindtorch_v2", "torch") for node in gm.graph.nodes]
    assert types(mindtorch_v2) == types(torch)


@pytest.mark.parametrize("kind", ["Tensor", "Tensor?[]", "Scalar", "float?", "str", "Device?", "ScalarType?", "int[2]", "complex", "Any", "Storage"])
def test_types_of_schemas_as_python_writes_them(kind: str) -> None:
    def told(T: Any) -> str:
        schemas = importlib.import_module(f"{T.__name__}.fx.operator_schemas")
        made = schemas._torchscript_type_to_python_type(T._C.parse_schema(f"x({kind} a) -> ()").arguments[0].type)
        return re.sub(r"\b(mindtorch_v2|torch)\b[\w.]*\.", "", str(made))
    assert told(mindtorch_v2) == told(torch)


@pytest.mark.parametrize("use", [
    "passes.net_min_base._MinimizerBase", "passes.splitter_base._SplitterBase", "passes.reinplace.reinplace",
    "passes.runtime_assert.insert_deferred_runtime_asserts", "experimental.accelerator_partitioner.Partitioner",
    "experimental.partitioner_utils.PartitionerConfig", "experimental.meta_tracer.MetaTracer", "experimental.sym_node.SymNode",
    "experimental.meta_tracer.symbolic_trace", "experimental.validator.bisect", "experimental.unification.unify"])
def test_passes_that_refuse_by_name(use: str) -> None:
    place, _, name = use.rpartition(".")
    module = importlib.import_module(f"mindtorch_v2.fx.{place}")
    with pytest.raises(NotImplementedError, match=rf"\[torch\.fx\.{use}\]"):
        getattr(module, name)()


NORMALIZED: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "sum": lambda T: (T.sum, (T.ones(2, 3), 1), {}), "sort": lambda T: (T.sort, (T.ones(3),), {"dim": 0}),
    "any": lambda T: (T.any, (T.ones(2, 3), 1), {}), "var": lambda T: (T.var, (T.ones(3),), {"unbiased": True}),
    "view_copy": lambda T: (T.view_copy, (T.ones(4), (2, 2)), {}), "tril_indices": lambda T: (T.tril_indices, (2, 3), {"dtype": T.int32}),
    "max_pool2d": lambda T: (T.nn.functional.max_pool2d, (T.ones(1, 4, 4), 2), {}), "zeta": lambda T: (T.special.zeta, (T.ones(2), 3.0), {}),
    "adaptive_max_pool1d": lambda T: (T.nn.functional.adaptive_max_pool1d, (T.ones(1, 1, 4), 2), {}),
    "hann": lambda T: (T.signal.windows.hann, (5,), {"sym": False}), "kaiser": lambda T: (T.signal.windows.kaiser, (5,), {"beta": 2.0}),
}


@pytest.mark.parametrize("name", NORMALIZED)
def test_calls_are_normalized_by_the_types_of_their_arguments(name: str) -> None:
    def normalized(T: Any) -> tuple[list[Any], list[str]]:
        schemas = importlib.import_module(f"{T.__name__}.fx.operator_schemas")
        function, args, kwargs = NORMALIZED[name](T)

        def kind(x: Any) -> Any:
            return schemas.create_type_hint([type(i) for i in x] if isinstance(x, list) else
                                            tuple(type(i) for i in x) if isinstance(x, tuple) else type(x))
        found = schemas.normalize_function(function, args, kwargs, tuple(map(kind, args)), {k: kind(v) for k, v in kwargs.items()},
                                           normalize_to_only_use_kwargs=True)
        assert found.args == ()
        result = function(**found.kwargs)
        first = result[0] if isinstance(result, tuple) else result
        return first.flatten().tolist(), sorted(found.kwargs)
    (values, names), (expected, expected_names) = normalized(mindtorch_v2), normalized(torch)
    assert values == pytest.approx(expected) and names == expected_names


def test_arguments_of_nodes_are_normalized_by_what_the_graph_knows_of_them() -> None:
    def code(T: Any) -> str:
        graph = T.fx.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        graph.output(graph.call_function(T.mul, (graph.call_function(T.add, (x, y), {"alpha": 2}), 3)))
        module = T.fx.GraphModule({}, graph)
        importlib.import_module(f"{T.__name__}.fx.passes.shape_prop").ShapeProp(module).propagate(T.ones(2), T.ones(2))
        return importlib.import_module(f"{T.__name__}.fx.experimental.normalize").NormalizeArgs(module).transform().code
    assert code(mindtorch_v2) == code(torch)


scale = lambda x: x * 2  # noqa: E731


def test_a_lambda_has_the_name_that_it_was_given() -> None:
    assert [T.fx.node._get_qualified_name(scale) for T in (mindtorch_v2, torch)] == [f"{__name__}.scale"] * 2
