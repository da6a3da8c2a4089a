"""Every torch.nn module of PyTorch's module_db, forward and backward, against PyTorch with the same parameters."""
from __future__ import annotations

import warnings

import pytest
import torch
from oracle import compare, flat, to_ours
from torch.testing._internal.common_modules import module_db

import mindtorch_v2 as mt


def ours_of(info):
    """Our class for an entry such as torch.nn.Linear."""
    found = mt
    for part in info.name.split("."):
        found = getattr(found, part, None)
    return found


def ours_from(value, met):
    """An argument as ours: tensors (one given twice stays one), torch functions and modules by their name."""
    if isinstance(value, torch.Tensor):
        return met.setdefault(id(value), to_ours(value))
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return mt.nn.TransformerEncoderLayer(
            value.self_attn.embed_dim, value.self_attn.num_heads, value.linear1.out_features, value.dropout.p,
            ours_from(value.activation, met), batch_first=value.self_attn.batch_first, norm_first=value.norm_first,
            bias=value.linear1.bias is not None, dtype=mt.float64)
    if isinstance(value, torch.nn.Module):
        return getattr(mt.nn, type(value).__name__)()
    if callable(value) and getattr(mt.nn.functional, getattr(value, "__name__", ""), None) is not None:
        return getattr(mt.nn.functional, value.__name__)
    if isinstance(value, (list, tuple)):
        return type(value)(ours_from(v, met) for v in value)
    if isinstance(value, dict):
        return {k: ours_from(v, met) for k, v in value.items()}
    return to_ours(value)


def copy_state(theirs, ours):
    """Parameters and buffers by name; the names must agree."""
    state = theirs.state_dict()
    assert set(state) == set(ours.state_dict())
    ours.load_state_dict({name: to_ours(value.detach()) for name, value in state.items()})


def gradients(outputs, inputs, lib, starts):
    outputs = [o for o in flat(outputs) if isinstance(o, lib.Tensor) and o.requires_grad]
    if not outputs or not inputs:
        return []
    return lib.autograd.grad(outputs, inputs, starts[:len(outputs)], allow_unused=True)


def check(info, training, dtype=torch.float64):
    ran = 0
    for item in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training):
        made, given = item.constructor_input, item.forward_input
        torch.manual_seed(0)
        keywords = {"device": "cpu", "dtype": dtype}
        try:
            theirs = info.module_cls(*made.args, **made.kwargs, **keywords)
        except TypeError:
            keywords = {}
            theirs = info.module_cls(*made.args, **made.kwargs)
        args, kwargs = ours_from((list(made.args), dict(made.kwargs)), {})
        ours = ours_of(info)(*args, **kwargs, **({"dtype": mt.float64} if keywords else {}))
        theirs.train(training)
        ours.train(training)
        forward_args, forward_kwargs = ours_from((list(given.args), dict(given.kwargs)), {})
        if any(isinstance(p, torch.nn.UninitializedParameter) for p in theirs.parameters()):
            theirs(*given.args, **given.kwargs)      # lazy modules take their shapes from the first call
            ours(*forward_args, **forward_kwargs)
        copy_state(theirs, ours)
        what = f"{info.name} {item.desc or ran}"
        torch.manual_seed(1)
        mt.manual_seed(1)
        expected = theirs(*given.args, **given.kwargs)
        result = ours(*forward_args, **forward_kwargs)
        compare(result, expected, what)
        pairs = zip(flat([forward_args, forward_kwargs]), flat([list(given.args), dict(given.kwargs)]))
        inputs = [(x, y) for x, y in pairs if isinstance(y, torch.Tensor) and y.requires_grad]
        names = [n for n, p in theirs.named_parameters() if p.requires_grad]
        inputs += [(dict(ours.named_parameters())[n], dict(theirs.named_parameters())[n]) for n in names]
        starts = [torch.randn_like(o) for o in flat(expected) if isinstance(o, torch.Tensor) and o.requires_grad]
        want = gradients(expected, [y for _, y in inputs], torch, starts)
        got = gradients(result, [x for x, _ in inputs], mt, [to_ours(s) for s in starts])
        for i, (x, y) in enumerate(zip(got, want)):
            if y is None or x is None or y.layout != torch.strided:
                absent = y is None or y.layout != torch.strided or not bool((y != 0).any())
                assert absent, f"{what}: gradient {i} missing"
                continue
            compare(x, y, f"{what}: gradient {i}")
        for name, buffer in theirs.named_buffers():
            compare(dict(ours.named_buffers())[name], buffer, f"{what}: buffer {name}")
        ran += 1
    return ran


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name.removeprefix("nn."))
def test_module(info, training):
    if info.train_and_eval_differ is False and not training:
        pytest.skip("train and eval agree")
    if torch.float64 not in info.dtypes:
        pytest.skip("PyTorch has no float64 here")
    if ours_of(info) is None:
        pytest.fail(f"mindtorch_v2.{info.name} is missing")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(info, training)
