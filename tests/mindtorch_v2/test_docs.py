"""Documentation of an op: help(), inspect.signature() and docstrings, made from the rows."""

from __future__ import annotations

import inspect
import pydoc
from types import ModuleType
from typing import Any

import pytest
import torch as judge

import mindtorch_v2 as torch
from mindtorch_v2._ops import describe, table

HOLDERS = {
    "torch": torch, "Tensor": torch.Tensor, "nn.functional": torch.nn.functional, "linalg": torch.linalg,
    "fft": torch.fft, "special": torch.special, "npu": torch.npu,
}  # fmt: skip
NO_TEXT = {"newaxis", "name", "volatile", "annotations"}  # None, and `from __future__ import annotations`
Op = type(torch.add)
OPS = {op.name: op for op in vars(table.ops).values() if isinstance(op, Op)}


def public(holder: Any) -> dict[str, Any]:
    names = [name for name in dir(holder) if not name.startswith("_") and name not in NO_TEXT]
    return {name: getattr(holder, name) for name in names}


@pytest.mark.parametrize("where", HOLDERS)
def test_every_public_name_has_text_and_pydoc_shows_it(where: str) -> None:
    for name, value in public(HOLDERS[where]).items():
        assert isinstance(value.__doc__, str) and value.__doc__.strip(), name
        if not isinstance(value, ModuleType):
            assert pydoc.render_doc(value), name


@pytest.mark.parametrize("where", HOLDERS)
def test_every_function_has_a_signature(where: str) -> None:
    """Compiled classes and exceptions have none, as torch's have none: inspect raises ValueError."""
    for name, value in public(HOLDERS[where]).items():
        if isinstance(value, type):
            try:
                inspect.signature(value)
            except ValueError:
                continue
        elif callable(value):
            assert inspect.signature(value), name


def test_signatures_follow_the_schema() -> None:
    shown = {name: str(inspect.signature(getattr(torch, name))) for name in ("add", "softmax", "max", "zeros")}
    assert shown["add"] == ("(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1, "
                            "out: Tensor | None = None) -> Tensor")  # fmt: skip
    assert shown["softmax"].startswith("(input: Tensor, dim: int")
    assert shown["max"] == "(input: Tensor, *, out: Tensor | None = None) -> Tensor"
    assert shown["zeros"].startswith("(size: Sequence[int], *, dtype: dtype | None = None")
    assert str(inspect.signature(torch.ones(2).add_)) == "(other: Tensor | Number, *, alpha: Number = 1) -> Tensor"


def test_every_form_of_every_op_is_a_signature() -> None:
    assert len(OPS) > 700
    for name, op in OPS.items():
        forms = describe.signatures(op)
        assert len(forms) >= len(op.overloads), name
        assert op.__text_signature__.startswith("("), name


def test_the_forms_bind_what_the_op_takes() -> None:
    x = torch.ones(2, 3)
    for op, args, kwargs in (
        (torch.Tensor.view, (x, 3, 2), {}), (torch.Tensor.view, (x, (3, 2)), {}), (torch.zeros, (2, 3), {"dtype": torch.int32}),
        (torch.max, (x, 1), {"keepdim": True}), (torch.Tensor.random_, (x, 0, 5), {}), (torch.add, (x, x), {"out": x}),
    ):  # fmt: skip
        op(*args, **kwargs)
        bound = 0
        for form in describe.signatures(op):
            try:
                form.bind(*args, **kwargs)
            except TypeError:
                continue
            bound += 1
        assert bound, (op, args)


def test_help_says_what_it_does_and_who_serves_it() -> None:
    text = pydoc.render_doc(torch.max, renderer=pydoc.plaintext)
    for part in ("max(input: Tensor, dim: int, keepdim: bool = False", "The largest item", "torch.Tensor.max",
                 "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
                 "npu: aclnnMax, aclnnMaxDim", "?q=torch.max"):  # fmt: skip
        assert part in text, part
    assert "npu: the core" in torch.Tensor.view.__doc__
    assert "composed of other ops" in torch.linalg.inv.__doc__
    assert "npu: a kernel" in torch.linalg.qr.__doc__
    assert "add(), in place." in torch.Tensor.add_.__doc__
    assert "npu: aclnnForeachAddScalar" in torch._foreach_add_.__doc__


@pytest.mark.parametrize("where", ["torch", "Tensor", "linalg"])
def test_help_of_a_namespace_lists_its_ops(where: str) -> None:
    text = pydoc.render_doc(HOLDERS[where], renderer=pydoc.plaintext)
    shown = {"torch": "\n    add(input", "Tensor": "\n |  add(input", "linalg": "\n    inv = linalg_inv(A"}[where]
    assert shown in text


def test_every_public_op_has_a_sentence() -> None:
    missing = [name for name, op in OPS.items() if not name.startswith("_") and not describe.sentence(op) and describe.places(op)]
    assert not missing, missing


def test_sentences_are_of_ops_that_need_one() -> None:
    known = set(describe._sentences())
    assert not known - set(OPS), "no such op"
    assert not [name for name in known if OPS[name].doc], "the row says it"


def test_names_are_torchs() -> None:
    for ours, theirs in ((torch.add, judge.add), (torch.linalg.inv, judge.linalg.inv), (torch.fft.fft, judge.fft.fft)):
        assert ours.__name__ == theirs.__name__
    assert (torch.add.__module__, torch.linalg.inv.__module__) == ("mindtorch_v2", "mindtorch_v2._C._linalg")
    assert inspect.isroutine(torch.add) and torch.add.__qualname__ == "add"


def test_an_op_without_a_description_shows_its_rows() -> None:
    op = torch._C.Op("undescribed")
    assert op.__doc__ == "" and op.__text_signature__ == "(*args, **kwargs)" and op.__signature__ is None
    assert str(inspect.signature(op)) == "(*args, **kwargs)"
