"""What a row may say beside schema, rule and gradient: guards, autocast, out=, a kernel in Python; and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mindtorch_v2 as mt
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import ops as npu_ops
from mindtorch_v2._backends.npu import soc
from mindtorch_v2._ops import table
from mindtorch_v2._row import Npu
from mindtorch_v2._schema import parse


def define(schema: str, **row: Any) -> Any:
    """A row in a namespace of the tests."""
    parsed = parse(schema)
    return _C._define(parsed.name, parsed.overload, schema, [tuple(p) for p in parsed.params], parsed.returns,
                      namespace="test_rows", **({"family": "kernel", "rule": "like"} | row))


@pytest.mark.parametrize("row", [{"guard": "beta"}, {"autocast": {"cpu": "float16"}}])
def test_words_that_mean_nothing_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="_words: .* is none of"):
        define("_words(Tensor self) -> Tensor", **row)


def test_the_first_row_says_what_autocast_does() -> None:
    define("_cast(Tensor self) -> Tensor", autocast={"cpu": "float32"})
    with pytest.raises(ValueError, match="_cast: the first row says"):
        define("_cast.again(Tensor self, int n) -> Tensor", autocast={"cpu": "lower"})


@pytest.mark.usefixtures("npu")
def test_a_kernel_in_python_serves_every_device() -> None:
    def double(outs: Any, args: Any) -> None:
        outs[0].copy_(args[0].detach() * 2)

    op = define("_double(Tensor self) -> Tensor", kernel=double)
    for device in ("cpu", "npu"):
        assert op(mt.ones(2, device=device)).tolist() == [2.0, 2.0]
    assert op(mt.ones(2, device="meta")).shape == (2,)


def test_what_a_row_became_does_not_change() -> None:
    row = table.ops.add.overloads[0]
    for name in ("takes_out", "npu", "body", "schema", "name"):
        with pytest.raises(AttributeError):
            setattr(row, name, None)
    assert not hasattr(row, "kernels")                       # a list could be written into
    with pytest.raises(AttributeError):
        row.npu.call = "aclnnSub(self, other, alpha, out)"
    with pytest.raises(TypeError):
        Npu("aclnnAbs(self, out)").number["self"] = "aclnnAbs(self, out)"


@pytest.mark.parametrize("name", "relu clone trace var_mean std_mean isnan isposinf var roll cat rsub sub layer_norm".split())
def test_out_is_offered_where_torch_offers_it(name: str) -> None:
    rest = {"layer_norm": ([3],), "roll": (1,), "rsub": (1.0,), "sub": (1.0,)}.get(name, ())

    def offers(lib: Any) -> bool:
        x = lib.ones(3, 3)
        out = lib.ones(3, 3) if name not in ("isposinf", "isnan") else lib.ones(3, 3, dtype=lib.bool)
        try:
            getattr(lib, name)([x] if name == "cat" else x, *rest, out=out.new_empty(0))
        except TypeError:
            return False
        return True

    assert offers(mt) == offers(torch)


# ---- guards: each as torch words it -----------------------------------------------------------------------------------
GUARDED = {
    "alpha": lambda lib: lib.ones(2, dtype=lib.int32).add(1, alpha=0.5),
    "minus": lambda lib: lib.ones(2, dtype=lib.bool) - lib.ones(2, dtype=lib.bool),
    "minus from a number": lambda lib: True - lib.ones(2, dtype=lib.bool),
    "negative": lambda lib: -lib.ones(2, dtype=lib.bool),
    "power": lambda lib: lib.ones(2, dtype=lib.int32) ** -1,
    "fits": lambda lib: lib.ones(2, dtype=lib.uint8).fill_(300),
    "fits a clamp": lambda lib: lib.ones(2, dtype=lib.uint8).clamp(0, 300),
}


@pytest.mark.parametrize("what", GUARDED)
def test_guards_refuse_as_torch_does(what: str) -> None:
    with pytest.raises(RuntimeError) as theirs:
        GUARDED[what](torch)
    with pytest.raises(RuntimeError) as ours:
        GUARDED[what](mt)
    assert str(ours.value).split("\n")[0] == str(theirs.value).split("\n")[0]


def test_guards_of_dtypes_that_have_to_agree() -> None:
    for lib in (torch, mt):
        with pytest.raises(RuntimeError, match="dtype"):
            lib.heaviside(lib.ones(2), lib.ones(2, dtype=lib.float64))


def test_a_mask_may_be_what_it_fills_but_not_a_part_of_it() -> None:
    for lib in (torch, mt):
        x = lib.tensor([True, False, True, True])
        assert x.masked_fill_(x, False).tolist() == [False] * 4
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x[:3].masked_fill_(x[1:], True)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x.view(2, 2).masked_fill_(x.view(2, 2).t(), True)


# ---- calls of CANN ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("npu")
def test_a_call_has_kernels_on_some_socs(monkeypatch: pytest.MonkeyPatch) -> None:
    row = table.ops._thnn_fused_lstm_cell.overloads[0]
    for family, served in (("Ascend910B", True), ("Ascend910_93", True), ("Ascend950", False), ("Ascend910", False), ("", False)):
        monkeypatch.setattr(soc, "family", lambda family=family: family)
        assert (npu_ops.resolve(row, optional=True) is not None) == served, family


def last_launch(call: Any) -> str:
    call()
    return _C._npu_last_launches(0)[0][0]


@pytest.mark.usefixtures("npu")
def test_numbers_and_missing_tensors_have_calls_of_their_own() -> None:
    x, w = mt.ones(2, 2, device="npu"), mt.ones(2, 2, device="npu")
    linear = mt.nn.functional.linear
    calls = {"aclnnAdd": lambda: x + w, "aclnnAdds": lambda: x + 1.5, "aclnnPowScalarTensor": lambda: 2 ** x,
             "aclnnPowTensorScalar": lambda: x ** 3, "aclnnInplaceMuls": lambda: x.mul_(1.0),
             "aclnnGtScalar": lambda: x > 0, "aclnnMatmul": lambda: linear(x, w), "aclnnAddmm": lambda: linear(x, w, w[0])}
    assert {name: last_launch(call) for name, call in calls.items()} == {name: name for name in calls}
