"""torch.ops.aten by overload: the names, schemas and tags of torch's own, and which overload a call is."""
from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch

import mindtorch_v2
from mindtorch_v2._ops import overloads
from mindtorch_v2.utils._python_dispatch import TorchDispatchMode


def _argument(x: Any) -> tuple[Any, ...]:
    alias = None if x.alias_info is None else (x.alias_info.is_write, x.alias_info.before_set, x.alias_info.after_set)
    return (x.name, str(x.type), x.type.str(), x.type.kind(), x.N, x.kwarg_only, x.is_out, alias, x.has_default_value(),
            x.default_value)


def test_every_overload_has_torch_s_schema_and_tags() -> None:
    wrong = []
    for op in overloads._table():
        ours, theirs = getattr(mindtorch_v2.ops.aten, op), getattr(torch.ops.aten, op)
        for name in ours.overloads():
            mine, judge = getattr(ours, name), getattr(theirs, name)
            if str(mine._schema) != str(judge._schema) or {t.name for t in mine.tags} != {t.name for t in judge.tags}:
                wrong.append(str(mine))
            assert (mine.name(), str(mine), mine._overloadname, mine.__name__) == \
                (judge.name(), str(judge), judge._overloadname, judge.__name__)
    assert not wrong


@pytest.mark.parametrize("name", ["add.Tensor", "add.out", "sum.dim_IntList", "split.Tensor", "cat.default", "index.Tensor",
                                  "max_pool2d.default", "transpose_.default", "var.correction", "norm.ScalarOpt_dim_dtype"])
def test_arguments_of_a_schema_say_what_torch_s_say(name: str) -> None:
    op, _, overload = name.partition(".")
    mine, judge = (getattr(getattr(t.ops.aten, op), overload)._schema for t in (mindtorch_v2, torch))
    assert [_argument(x) for x in mine.arguments] == [_argument(x) for x in judge.arguments]
    assert [_argument(x) for x in mine.returns] == [_argument(x) for x in judge.returns]
    assert (mine.name, mine.overload_name, mine.is_mutable) == (judge.name, judge.overload_name, judge.is_mutable)


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is getattr(func.overloadpacket, func._overloadname)
        self.seen.append(str(func).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


CALLS = {
    "x + 2": "add.Tensor", "x + x": "add.Tensor", "x == 1": "eq.Scalar", "x == x": "eq.Tensor", "x ** 2": "pow.Tensor_Scalar",
    "2 ** x": "pow.Scalar", "x ** x": "pow.Tensor_Tensor", "x // 2": "floor_divide.default", "x % 2": "remainder.Scalar",
    "x.sum()": "sum.default", "x.sum(0)": "sum.dim_IntList", "x.mean(1, keepdim=True)": "mean.dim", "x.max()": "max.default",
    "torch.max(x, 0)": "max.dim", "torch.max(x, x)": "maximum.default", "1 - x": "rsub.Scalar", "x.add_(2)": "add_.Tensor",
    "x.fill_(2)": "fill_.Scalar", "torch.add(x, x, out=torch.empty_like(x))": "add.out", "x[0]": "select.int",
    "x.any(0)": "any.dim", "torch.where(x > 0, x, x)": "where.self", "x.scatter(1, i, 2.)": "scatter.value",
    "x.scatter(1, i, x)": "scatter.src", "x.index_fill(0, i[0], 2.)": "index_fill.int_Scalar", "x.lerp(x, 0.5)": "lerp.Scalar",
    "x.squeeze(0)": "squeeze.dim", "x.to(torch.float64)": "_to_copy.default", "torch.empty(2)": "empty.memory_format"}


@pytest.mark.parametrize("call", CALLS)
def test_a_mode_sees_the_overload_that_torch_would_call(call: str) -> None:
    names = {"torch": mindtorch_v2, "x": mindtorch_v2.ones(2, 2), "i": mindtorch_v2.tensor([[0, 1]])}
    with _Names() as mode:
        eval(call, names)
    assert mode.seen[-1] == CALLS[call]


SINGLE = ["x.clamp(0, 1)", "x.clamp(min=x)", "x.clamp_(0)", "torch.clip(x, x, x + 1)", "x.clamp_max(x)", "x.div(x, rounding_mode='floor')",
          "x.softmax(0)", "torch.special.log_softmax(x, 0)", "x.masked_fill(m, 2)", "x.masked_fill_(m, 2)", "x.masked_select(m)",
          "x.median()", "x.logsumexp((0,))", "m.nonzero()", "torch.cross(c, c)", "torch.linalg.inv_ex(x)",
          "torch.diag_embed(x)", "torch.nn.functional.mse_loss(x, x)", "torch.nn.functional.binary_cross_entropy_with_logits(x, x)",
          "torch.nn.functional.softshrink(x)", "x.unbind(1)", "x.split([1, 1])", "torch.stack([x, x])", "x.square()",
          "torch.searchsorted(x, x)", "torch.isin(x, x[0])", "torch.absolute(x)", "x.multiply_(2)", "torch.concat([x, x])",
          "torch.special.expit(x)", "torch.swapaxes(x, axis0=0, axis1=1)", "x.true_divide(2)", "x.greater(1)"]


@pytest.mark.parametrize("call", SINGLE)
def test_a_mode_sees_the_calls_that_torch_s_modes_see(call: str) -> None:
    """Names and arguments, of calls that are several ops here, or another one."""
    def shown(lib: Any, a: Any) -> str:
        if isinstance(a, (tuple, list)):
            return f"[{', '.join(shown(lib, item) for item in a)}]"
        return str(tuple(a.shape)) if isinstance(a, lib.Tensor) else str(a)

    def seen(lib: Any) -> list[str]:
        class Calls(lib.utils._python_dispatch.TorchDispatchMode):   # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                calls.append(f"{func} {shown(lib, args)} {sorted(kwargs or {})}")
                return func(*args, **(kwargs or {}))
        calls: list[str] = []
        x = lib.tensor([[0.5, 0.25], [0.125, 0.75]])
        names = {"torch": lib, "x": x, "m": x > 0.3, "c": lib.ones(2, 3)}
        with Calls():
            eval(call, names)
        return calls
    assert seen(mindtorch_v2) == seen(torch)


@pytest.mark.parametrize("name", ["absolute", "multiply", "clip_", "concat", "row_stack", "true_divide", "matrix_power", "greater"])
def test_aliases_are_functions_of_their_own(name: str) -> None:
    mine, judge = getattr(mindtorch_v2, name), getattr(torch, name)
    assert mine.__name__ == judge.__name__ == name and pickle.loads(pickle.dumps(mine)) is mine
    assert re.sub("0x.*>", "", repr(mine)) == re.sub("0x.*>", "", repr(judge))
    packet, theirs = getattr(mindtorch_v2.ops.aten, name), getattr(torch.ops.aten, name)
    assert [str(s) for s in packet._schemas.values()] == [str(s) for s in theirs._schemas.values()]
    seen: list[Any] = []

    class Taker:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
            seen.append(func)
    mine(Taker())
    assert seen == [mine]
    if hasattr(torch.Tensor, name):
        method = getattr(mindtorch_v2.Tensor, name)
        assert (method.__name__, method.__qualname__) == (name, f"TensorBase.{name}") and method is not mine


def test_a_graph_of_aliases_names_them() -> None:
    def code(T: Any) -> str:
        return str(T.fx.symbolic_trace(lambda x: T.absolute(x).multiply(2) + T.clip(x, 0, 1)).code)
    assert code(mindtorch_v2).replace("mindtorch_v2", "torch") == code(torch)


def test_overloads_are_found_copied_and_pickled_by_name() -> None:
    add = mindtorch_v2.ops.aten.add
    assert add.Tensor is add.Tensor and add.Tensor is not add.Scalar and add.Tensor.overloadpacket is add
    assert add.overloads() == [x for x in torch.ops.aten.add.overloads() if x in add.overloads()]
    with pytest.raises(AttributeError, match="The underlying op of 'aten.add' has no overload name 'nope'"):
        add.nope
    assert copy.deepcopy(add.Tensor) is add.Tensor and pickle.loads(pickle.dumps(add.Tensor)) is add.Tensor
    assert mindtorch_v2.Tag.pointwise in add.Tensor.tags and mindtorch_v2.Tag.core.value == 0


def test_a_traced_graph_names_overloads() -> None:
    make_fx = mindtorch_v2.fx.experimental.proxy_tensor.make_fx
    graph = make_fx(lambda x: (x + 1).sum(0))(mindtorch_v2.ones(2)).graph
    assert [n.target for n in graph.nodes if n.op == "call_function"] == [
        mindtorch_v2.ops.aten.add.Tensor, mindtorch_v2.ops.aten.sum.dim_IntList]


def test_a_schema_is_read_from_its_text() -> None:
    text = "ns::f.x(Tensor(a!) x, int[2] y=[1, 2], *, str s=\"q\", float? f=0.5) -> (Tensor(a!), int)"
    mine, judge = mindtorch_v2._C.parse_schema(text), torch._C.parse_schema(text)
    assert [_argument(x) for x in mine.arguments + mine.returns] == [_argument(x) for x in judge.arguments + judge.returns]
    assert str(mine) == str(judge) and mine == mindtorch_v2._C.parse_schema(text)
