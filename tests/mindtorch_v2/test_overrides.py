"""torch.overrides: which functions classes may take over, what their handlers are given, and the tables of them."""
from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from twin import check_lines, twin

import mindtorch_v2 as mt

ARGUMENTS = Path(torch.__file__).parent / "testing" / "_internal" / "generated" / "annotated_fn_args.py"


def test_torch_test_tables_find_every_function() -> None:
    missing = []
    for name in re.findall(r"^    torch\.([\w.]+):", ARGUMENTS.read_text(), re.MULTILINE):
        found: Any = mt
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    assert not missing


def test_functions_are_handed_to_a_class_as_themselves() -> None:
    seen: list[Any] = []

    class Taker:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> int:
            seen.append(func)
            return -1
    wrong = []
    others = {mt.functional.einsum, mt.lstm, mt.gru, mt.rnn_relu, mt.rnn_tanh, mt._assert_async, mt.is_nonzero, mt.is_same_size}
    for space, functions in mt.overrides.get_overridable_functions().items():
        if space in (mt, mt.linalg, mt.fft, mt.special, mt.nn.init):
            for function in functions:
                if function in others or function.__name__.startswith("sym_") or function.__name__.endswith("_cell"):
                    continue
                needs = inspect.getfullargspec(mt.overrides.get_testing_overrides()[function])
                given = [Taker() for _ in range(len(needs.args) - len(needs.defaults or ()))] or [Taker()]
                seen.clear()
                try:
                    result = function(*given)
                except (TypeError, AttributeError) as error:
                    result = error
                if result != -1 or seen != [function]:
                    wrong.append(f"{function.__module__}.{function.__name__}: {result!r}")
    assert not wrong


@twin
def test_a_method_is_not_its_function(t: Any) -> Any:
    handled: list[str] = []

    class Mine(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for name in ("add", "sum", "matmul"):
                for place, space in (("function", t), ("method", t.Tensor)):
                    if func is getattr(space, name):
                        handled.append(f"{place} {name}")
            return super().__torch_function__(func, types, args, kwargs)
    x = t.ones(2, 2).as_subclass(Mine)
    x.add(1), t.add(x, 1), x.sum(), t.sum(x), t.matmul(x, x), x.matmul(x)
    names = [t.overrides.resolve_name(f).partition(".")[2] for f in (t.add, t.Tensor.add, t.linalg.det, t.Tensor.T.__get__)]
    return handled, names, t.add is t.Tensor.add, t.overrides.is_tensor_method_or_property(t.add)


@twin
def test_properties_and_plain_methods_are_offered(t: Any) -> Any:
    names: list[Any] = []

    class Mine(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append((t.overrides.resolve_name(func) or "").partition("Tensor.")[2])
            return super().__torch_function__(func, types, args, kwargs)
    x = t.ones(2, 2).as_subclass(Mine)
    shape, dtype, number, lots, whole = x.shape, x.dtype, x[0, 0].item(), x.dim(), len(x)
    kinds = [type(i).__name__ for i in (x.T, x.data, x.detach(), x.numpy(), shape)]
    x.requires_grad = True
    return [n for n in names if n], tuple(shape), dtype, number, lots, whole, kinds


@pytest.mark.parametrize("lines", [
    "x = torch.ones(2, 3)\nx.index_select(0, [1])", "torch.ones(2).add_('a')", "torch.ones(2).add(1, foo=2)",
    "torch.ones(2).unflatten('a', (2,))", "torch.ones(2).sum(0, 1)",
    "torch.sum(torch.ones(2), dim=[0, 'a'])", "torch.zeros((2, 'a'))",
    "torch.ones(2).index_put((0,), torch.tensor(1.))",
])
def test_refusals_count_arguments_as_torch_does(lines: str) -> None:
    check_lines(lines, message=True)
