"""What is built on torch.fx: make_fx, torch.export, folding, fusing, rewriting; against PyTorch where it gives the same."""
from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import mindtorch_v2

fx = mindtorch_v2.fx
make_fx = fx.experimental.proxy_tensor.make_fx
nn = mindtorch_v2.nn
close = mindtorch_v2.testing.assert_close


class Net(nn.Module):   # type: ignore[name-defined,misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.lin = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.register_buffer("shift", mindtorch_v2.ones(2))
        self.register_buffer("temporary", mindtorch_v2.ones(2), persistent=False)
        self.constant = mindtorch_v2.full((2,), 3.0)

    def forward(self, x: Any, scale: Any = 2, *, extra: Any = None) -> Any:
        y = mindtorch_v2.relu(self.norm(self.conv(x))).mean((2, 3))
        y = self.lin(y) * scale + self.shift * self.constant - self.temporary
        return {"out": y, "extra": y if extra is None else y + extra}


def test_make_fx_records_ops_below_autograd() -> None:
    w = nn.Parameter(mindtorch_v2.randn(3, 3))

    def program(x: Any, d: dict[str, Any]) -> Any:
        y = (x @ w).relu() + d["a"]
        (grad,) = mindtorch_v2.autograd.grad((y * y).sum(), x)
        return grad, y
    x, d = mindtorch_v2.randn(2, 3, requires_grad=True), {"a": mindtorch_v2.randn(3)}
    traced = make_fx(program)(x, d)
    assert all(isinstance(n.target, mindtorch_v2._C.OpOverload) for n in traced.graph.nodes if n.op == "call_function"
               if "getitem" not in n.name)
    assert [n.name for n in traced.graph.nodes if n.op == "placeholder"] == ["x_1", "d_1"]
    other = mindtorch_v2.randn(2, 3, requires_grad=True)
    for mine, wanted in zip(traced(other, d), program(other, d)):
        close(mine, wanted)


def test_make_fx_prints_as_in_torch() -> None:
    codes = []
    for lib, trace in ((torch, __import__("torch.fx.experimental.proxy_tensor", fromlist=["x"]).make_fx), (mindtorch_v2, make_fx)):
        def program(a: Any, b: Any, lib: Any = lib) -> Any:
            return lib.relu(a + b) * 2, lib.cat([a, b]).sum()
        code = trace(lambda a, b: program(a, b))(lib.ones(2), lib.ones(2)).code   # noqa: B023
        codes.append(re.sub(r"\.(Tensor|default)\(", "(", code))
    assert codes[0] == codes[1]


def test_make_fx_refuses_values() -> None:
    for mode in ("real", "fake"):
        with pytest.raises(RuntimeError):
            make_fx(lambda x: x + x.sum().item(), tracing_mode=mode)(mindtorch_v2.ones(2))
    assert mindtorch_v2.ones(1).item() == 1 and "item" not in vars(mindtorch_v2.Tensor)


def _grad_of_expanded(x: Any) -> Any:
    y = x.detach().requires_grad_()
    with mindtorch_v2.enable_grad():
        return mindtorch_v2.autograd.grad((y.expand(3, *y.shape).sum(0) * y.mean()).sum(), y)[0]


SIZED = {
    "view": lambda x: x.view(x.shape[0] * x.shape[1]), "reshape": lambda x: x.reshape(-1, x.shape[0]),
    "flatten": lambda x: x.t().contiguous().flatten(), "factory": lambda x: mindtorch_v2.zeros(x.shape[0]) + x.sum(1),
    "expand": lambda x: x.sum(1, keepdim=True).expand(x.shape), "slice": lambda x: x[1:x.shape[0] // 2, :-1],
    "norm": lambda x: nn.functional.layer_norm(x, (x.shape[-1],)), "unflatten": lambda x: x.unflatten(1, (2, -1)),
    "einsum": lambda x: mindtorch_v2.einsum("ij,kj->ik", x, x), "numel": lambda x: x.sum() / x.numel() + len(x.shape),
    "scale": lambda x: x * x.size(0) ** 0.5 + (x.shape[1] - 1) % 3, "gradient": _grad_of_expanded,
    "out": lambda x: mindtorch_v2.inner(x, x, out=x.new_empty(x.shape[0], x.shape[0])),
    "split": lambda x: x.split(x.shape[0] // 2)[1] - x.chunk(2, 1)[1].sum(),
    "pad": lambda x: nn.functional.pad(x, (x.shape[0], 1)), "conv": lambda x: nn.functional.conv1d(x[None], x[:, :2][None], None, 1, 1)}


@pytest.mark.parametrize("name", SIZED)
def test_a_graph_with_symbolic_sizes_serves_other_sizes(name: str) -> None:
    program = SIZED[name]
    traced = make_fx(program, tracing_mode="symbolic")(mindtorch_v2.randn(4, 6))
    for shape in ((4, 6), (8, 10), (6, 12)):
        x = mindtorch_v2.randn(*shape)
        close(traced(x), program(x))


def test_symbolic_sizes_are_numbers_with_guards() -> None:
    seen: list[Any] = []

    def program(x: Any, n: int) -> Any:
        seen.extend([x.shape, x.size(1), x.stride(), x.numel(), n, x.shape[0] == x.shape[1]])
        return x * 2 if x.shape[0] > 3 else x
    traced = make_fx(program, tracing_mode="symbolic")(mindtorch_v2.randn(4, 6), 5)
    shape, size, stride, numel, n, equal = seen
    assert type(shape) is mindtorch_v2.Size and isinstance(size, mindtorch_v2.SymInt) and isinstance(equal, mindtorch_v2.SymBool)
    assert (str(shape), str(stride), str(numel), int(numel)) == ("torch.Size([s0, s1])", "(s1, 1)", "s0*s1", 24)
    assert str(n) == "s2" and mindtorch_v2.sym_max(n, 3) == 5 and str(n * 2 - n) == "s2"
    assert "s0 > 3" in [guard.expr for guard in traced.shape_env.guards]
    assert fx.experimental.symbolic_shapes.free_symbols(shape) == {"s0", "s1"}
    ones = make_fx(lambda x: x.expand(3, -1), tracing_mode="symbolic")(mindtorch_v2.randn(1, 4))      # 0 and 1 are no symbols
    assert not ones.shape_env.guards and ones(mindtorch_v2.ones(1, 7)).shape == (3, 7)
    with mindtorch_v2._subclasses.FakeTensorMode() as mode:
        assert type(mode.from_tensor(mindtorch_v2.ones(3)).shape[0]) is int


@pytest.mark.parametrize("program, guard", [
    (lambda x: x[x.shape[0] - 1], "Eq(s0 - 1, 3)"),
    (lambda x: x.split(x.shape[0] // 2)[0], "Eq(-(-s0//(s0//2)), 2)")])
def test_a_size_that_became_a_number_leaves_a_guard(program: Any, guard: str) -> None:
    traced = make_fx(program, tracing_mode="symbolic")(mindtorch_v2.randn(4, 6))
    assert guard in [noted.expr for noted in traced.shape_env.guards]


def test_what_out_takes_is_recorded() -> None:
    for mode in ("real", "fake", "symbolic"):
        traced = make_fx(lambda x, o: mindtorch_v2.linalg.inv(x, out=o) + 1, tracing_mode=mode)(
            mindtorch_v2.eye(2), mindtorch_v2.empty(2, 2))
        x, o = mindtorch_v2.eye(2) * 4, mindtorch_v2.zeros(2, 2)
        close(traced(x, o), x.inverse() + 1)
        close(o, x.inverse())


def _turned(y: Any) -> Any:
    y.t_()
    return y[0].add_(1), y


def _squeezed(y: Any) -> Any:
    y.unsqueeze_(0).squeeze_(0).transpose_(0, 1).mul_(2)
    return y


def _resized(y: Any) -> Any:
    y.resize_(2, 8)
    return y.add_(1).sum(0), y[1:]


@pytest.mark.parametrize("change", [_turned, _squeezed, _resized])
def test_make_fx_follows_tensors_that_change_their_shape(change: Any) -> None:
    x = mindtorch_v2.arange(16.0).view(4, 4)
    graph = make_fx(lambda x: change(x + x))(x)
    close(graph(x * 3), change(x * 6))


def test_make_fx_refuses_other_memory() -> None:
    with pytest.raises(NotImplementedError, match="took other memory"):
        make_fx(lambda x: (x + x).resize_(100).add_(1))(mindtorch_v2.ones(2))


@pytest.mark.parametrize("line", [
    "x[:, :2] + x[1:, 0].sum()", "x[::2]", "x.clamp(0, 1)", "x.clamp(x - 1, x)", "torch.masked_select(x, x > 3)", "x.narrow(0, 1, 2)",
    "x.clone().index_put_((torch.arange(2),), torch.ones(2, 4))", "setitem(x.clone(), torch.arange(2), x[:2])",
    "setitem(x.clone(), (slice(None), torch.arange(2)), torch.ones(4, 2))"])
def test_make_fx_records_ops_by_torchs_names(line: str) -> None:
    def code(lib: Any) -> str:
        trace = __import__(lib.__name__ + ".fx.experimental.proxy_tensor", fromlist=["x"]).make_fx
        space = {"torch": lib, "setitem": lambda x, at, value: (x.__setitem__(at, value), x)[1]}
        return trace(lambda x: eval(line, {**space, "x": x}))(lib.arange(16.0).view(4, 4)).code
    assert code(mindtorch_v2) == code(torch)


def test_decompositions_take_the_place_of_ops() -> None:
    table = {mindtorch_v2.ops.aten.relu.default: lambda x: x * (x > 0)}
    traced = make_fx(lambda x: mindtorch_v2.relu(x), table)(mindtorch_v2.ones(2))
    assert "relu" not in traced.code and "gt" in traced.code
    x = mindtorch_v2.randn(4)
    close(traced(x), x.relu())


def test_export() -> None:
    net = Net().eval()
    x = mindtorch_v2.randn(2, 3, 6, 6)
    program = mindtorch_v2.export.export(net, (x,), {"extra": mindtorch_v2.ones(2)})
    kinds = [(s.kind.name, s.arg.name, s.target) for s in program.graph_signature.input_specs]
    assert ("PARAMETER", "p_conv_weight", "conv.weight") in kinds and ("USER_INPUT", "x", None) in kinds
    assert ("CONSTANT_TENSOR", "c_constant", "constant") in kinds
    assert program.graph_signature.non_persistent_buffers == ("temporary",)
    assert set(program.state_dict) == set(net.state_dict()) and set(program.constants) == {"temporary", "constant"}
    module = program.module()
    other = mindtorch_v2.randn(2, 3, 6, 6)
    for key, value in net(other, extra=mindtorch_v2.ones(2)).items():
        close(module(other, extra=mindtorch_v2.ones(2))[key], value)
    assert set(module.state_dict()) >= {"conv.weight", "norm.running_mean"}
    assert "p_conv_weight: PARAMETER target='conv.weight'" in str(program)
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] == 2"):
        module(mindtorch_v2.randn(3, 3, 6, 6), extra=mindtorch_v2.ones(2))
    with pytest.raises(RuntimeError, match=r"exported_program.module\(\)"):
        program(x)
    net(x)                                       # the module is what it was


def test_export_prints_as_in_torch() -> None:
    shown = []
    for lib in (torch, mindtorch_v2):
        class Small(lib.nn.Module):   # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.lin = lib.nn.Linear(3, 2)   # noqa: B023
                self.register_buffer("buf", lib.ones(2))   # noqa: B023

            def forward(self, x: Any, y: Any) -> Any:
                return lib.relu(self.lin(x["a"])) + self.buf * y[0]   # noqa: B023
        program = lib.export.export(Small(), ({"a": lib.ones(4, 3)}, [lib.ones(2)]))
        text = "\n".join([program.graph_module.code, str(program.graph_signature), str(program.graph)])
        shown.append(re.sub(r"\.(Tensor|default)\b", "", text))
    assert shown[0] == shown[1]


def test_export_refuses_what_it_cannot_hold() -> None:
    class Branch(nn.Module):   # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x
    export = mindtorch_v2.export.export
    with pytest.raises(RuntimeError, match="reads the value of a tensor"):
        export(Branch(), (mindtorch_v2.ones(2),))
    with pytest.raises(NotImplementedError, match=r"changes its buffer 'norm.*call eval\(\)"):
        export(Net().train(), (mindtorch_v2.randn(2, 3, 6, 6),))
    with pytest.raises(NotImplementedError, match="export once for each size"):
        export(Net().eval(), (mindtorch_v2.randn(2, 3, 6, 6),), dynamic_shapes={"x": {0: mindtorch_v2.export.Dim("n")}})
    with pytest.raises(ValueError, match="Expected `mod` to be an instance of"):
        export(lambda x: x, (mindtorch_v2.ones(2),))
    with pytest.raises(NotImplementedError, match="pt2"):
        mindtorch_v2.export.save(None, "x")


def test_batch_norm_is_fused_into_the_convolution() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout()).eval()
    net[1].running_mean.uniform_()
    net[1].running_var.uniform_(1, 2)
    fused = fx.experimental.optimization.fuse(net)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in fused.modules())
    x = mindtorch_v2.randn(1, 3, 5, 5)
    close(fused(x), net(x))
    assert "dropout" not in fx.experimental.optimization.remove_dropout(net).code


def test_constants_are_folded() -> None:
    class Const(nn.Module):   # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(mindtorch_v2.randn(3)), nn.Parameter(mindtorch_v2.randn(3))

        def forward(self, x: Any) -> Any:
            return x * (self.a + self.b).relu() - self.a
    module = Const()
    folded = fx.experimental.const_fold.split_const_subgraphs(module)
    x = mindtorch_v2.randn(3)
    close(folded(x), module(x))
    assert "self.b" not in folded.code and "self.a" in folded.code          # what only the constant part reads is gone
    assert folded.has_folding_been_run and "relu" not in folded.code and "relu" in folded.const_subgraph_module.code


def test_assertions_are_rewritten() -> None:
    class Checked(nn.Module):   # type: ignore[name-defined,misc]
        def forward(self, x: Any, y: int) -> Any:
            assert y == 2, "two"
            return x + y
    tracer = fx.experimental.rewriter.RewritingTracer()
    traced = fx.GraphModule(tracer.trace(Checked()) and tracer.root, tracer.graph, "gm")
    assert any(n.target is mindtorch_v2._assert for n in traced.graph.nodes) and traced(1, 2) == 3
    with pytest.raises(AssertionError, match="two"):
        traced(1, 3)


def test_equal_calls_are_made_once() -> None:
    traced = make_fx(lambda x: x.sin() + x.sin() * x.cos())(mindtorch_v2.ones(2))
    result = fx.passes.dialect.common.cse_pass.CSEPass()(traced)
    assert result.modified and result.graph_module.code.count("aten.sin") == 1
    x = mindtorch_v2.randn(2)
    close(result.graph_module(x), x.sin() + x.sin() * x.cos())


def test_partitions_are_fused() -> None:
    traced = fx.symbolic_trace(lambda a, b: (a + b).relu() - (a * b).sum())
    support = fx.passes.operator_support.create_op_support(lambda modules, node: node.op == "call_function")
    partitioner = fx.passes.infra.partitioner.CapabilityBasedPartitioner(traced, support, allows_single_node_partition=True)
    a, b = mindtorch_v2.randn(3), mindtorch_v2.randn(3)
    wanted = (a + b).relu() - (a * b).sum()
    fused = partitioner.partition_and_fuse()
    assert any(n.op == "call_module" and n.target.startswith("fused_") for n in fused.graph.nodes)
    fused.recompile()
    close(fused(a, b), wanted)


def test_passes_run_in_the_order_of_their_constraints() -> None:
    infra = fx.passes.infra
    order: list[str] = []

    def made(name: str) -> Any:
        def run(gm: Any) -> Any:
            order.append(name)
            return infra.pass_base.PassResult(gm, False)
        return run
    first, second = made("first"), made("second")
    manager = infra.pass_manager.PassManager([second, first])
    manager.add_constraint(infra.pass_manager.this_before_that_pass_constraint(first, second))
    manager(fx.symbolic_trace(lambda x: x))
    assert order == ["first", "second"]


def test_make_fx_with_fake_tensors_follows_gradients() -> None:
    w = nn.Parameter(mindtorch_v2.randn(3, 3))

    def program(x: Any) -> Any:
        y = (x @ w).relu()
        return mindtorch_v2.autograd.grad((y * y).sum(), x)[0]
    traced = make_fx(program, tracing_mode="fake")(mindtorch_v2.randn(2, 3, requires_grad=True))
    x = mindtorch_v2.randn(2, 3, requires_grad=True)
    close(traced(x), program(x))


def test_a_fake_of_a_tensor_is_made_once() -> None:
    mode, x = mindtorch_v2._subclasses.FakeTensorMode(), mindtorch_v2.randn(3)
    assert mode.from_tensor(x) is mode.from_tensor(x)


@pytest.mark.parametrize("name", ["reshape", "contiguous", "flatten", "ravel"])
def test_gradients_go_through_reshape_under_a_dispatch_mode(name: str) -> None:
    class Through(mindtorch_v2.utils._python_dispatch.TorchDispatchMode):   # type: ignore[name-defined,misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))
    for turned in (False, True):
        seen: list[str] = []
        x = mindtorch_v2.randn(4, 3, requires_grad=True)
        with Through():
            y = x.t() if turned else x
            z = y.reshape(2, 6) if name == "reshape" else getattr(y, name)()
            (z * z).sum().backward()
        close(x.grad, 2 * x.detach())
        assert ("clone" in seen) == turned and "reshape" not in seen and "contiguous" not in seen


def test_onnx_is_there_or_says_what_to_do(tmp_path: Any) -> None:
    try:
        import onnx
        import onnx.reference
    except ImportError:
        with pytest.raises(ImportError, match="pip install onnx"):
            mindtorch_v2.onnx.export(Net(), (mindtorch_v2.randn(1, 3, 6, 6),))
        return
    net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 5),
                           nn.Softmax(-1)).eval(), mindtorch_v2.randn(1, 3, 6, 6)
    mindtorch_v2.onnx.export(net, (x,), str(tmp_path / "net.onnx"), input_names=["image"], output_names=["classes"])
    model = onnx.load(str(tmp_path / "net.onnx"))
    (result,) = onnx.reference.ReferenceEvaluator(model).run(["classes"], {"image": x.numpy()})
    close(mindtorch_v2.tensor(result), net(x).detach())
    with pytest.raises(mindtorch_v2.onnx.OnnxExporterError, match="has no translation to ONNX"):
        mindtorch_v2.onnx.export(nn.Sequential(nn.LogSigmoid()), (x,))


def test_types_of_tensors_are_compared_as_in_torch() -> None:
    theirs = __import__("torch.fx.tensor_type", fromlist=["x"])
    checker = __import__("torch.fx.experimental.graph_gradual_typechecker", fromlist=["x"])
    mine = __import__("mindtorch_v2.fx.experimental.graph_gradual_typechecker", fromlist=["x"])
    shapes: list[Any] = [(1, 2), (1, None), (None, None), (1, 2, 3), (2, 1), None]

    def answers(kinds: Any, broadcast: Any) -> list[str]:
        made = [kinds.Dyn if s is None else kinds.TensorType(tuple(kinds.Dyn if d is None else d for d in s)) for s in shapes]
        found = []
        for a in made:
            for b in made:
                try:
                    wide = str(broadcast(a, b))
                except TypeError:
                    wide = "TypeError"
                found.append(f"{a} {b} {kinds.is_consistent(a, b)} {kinds.is_more_precise(a, b)} {wide}")
        return found
    assert answers(fx.tensor_type, mine.broadcast_types) == answers(theirs, checker.broadcast_types)
    with pytest.raises(NotImplementedError, match="not solved for"):
        mine.Refine(None)


def test_a_map_over_the_first_dim_records_its_ops_only() -> None:
    from mindtorch_v2.fx.experimental.proxy_tensor import make_fx
    made = make_fx(mindtorch_v2.vmap(lambda x: x.sin()))(mindtorch_v2.ones(3))
    assert [node.name for node in made.graph.nodes] == ["x_1", "sin", "output"]
