"""torch.nn, linear algebra and Fourier transforms on an npu: modules, functions, training against cpu and PyTorch."""
from __future__ import annotations

import copy
import importlib.util
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from oracle import flat, to_torch
from oracle import run as run_samples
from test_modules import ours_from, ours_of
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

import mindtorch_v2 as mt

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Modules whose training draws random numbers: the npu has its own, so they are compared in eval mode.
RANDOM = {"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU",
          "Transformer", "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoderLayer",
          "MultiheadAttention"}
DRAWN = {"FractionalMaxPool2d", "FractionalMaxPool3d"}                   # in eval mode too


def moved(value: Any, device: str, met: dict[int, Any]) -> Any:
    """Arguments with their tensors on a device, as leaves; one given twice stays one."""
    if isinstance(value, mt.Tensor):
        return met.setdefault(id(value), value.detach().to(device).requires_grad_(value.requires_grad))
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, device, met) for v in value)
    if isinstance(value, dict):
        return {k: moved(v, device, met) for k, v in value.items()}
    return value


def close(npu: Any, cpu: Any, what: str, tolerance: float = 1e-4) -> None:
    """Whether all tensors agree, one by one."""
    ours, judge = flat(npu), flat(cpu)
    assert len(ours) == len(judge), what
    for a, b in zip(ours, judge, strict=True):
        if isinstance(b, mt.Tensor):
            assert a.is_npu and a.dtype is b.dtype, what
            torch.testing.assert_close(to_torch(a), to_torch(b), atol=tolerance, rtol=tolerance, equal_nan=True,
                                       msg=lambda m: f"{what}: {m}")


def gradients(outputs: Any, inputs: list[Any]) -> list[Any]:
    """Of the sum of all outputs, each item with a weight of its own, to the inputs."""
    outputs = [o for o in flat(outputs) if isinstance(o, mt.Tensor) and o.requires_grad]
    if not outputs or not inputs:
        return []
    starts = [(mt.arange(o.numel(), dtype=mt.float32) % 7 - 3).reshape(o.shape).to(o.device) for o in outputs]
    found = mt.autograd.grad(outputs, inputs, starts, allow_unused=True)
    return [mt.zeros_like(i) if g is None else g for g, i in zip(found, inputs, strict=True)]


def leaves(module: Any, args: Any) -> list[Any]:
    given = [a for a in flat([args]) if isinstance(a, mt.Tensor) and a.requires_grad]
    return [*module.parameters(), *given]


def check_module(info: Any, training: bool) -> int:
    ran = 0
    for item in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training):
        made, given = item.constructor_input, item.forward_input
        args, kwargs = ours_from((list(made.args), dict(made.kwargs)), {})
        mt.manual_seed(0)
        here = ours_of(info)(*args, **kwargs).train(training).float()
        here_args = ours_from((list(given.args), dict(given.kwargs)), {})
        if any(isinstance(p, mt.nn.UninitializedParameter) for p in here.parameters()):
            here(*here_args[0], **here_args[1])              # lazy modules take their shapes from the first call
        there, there_args = copy.deepcopy(here).to("npu"), moved(here_args, "npu", {})
        what = f"{info.name} {item.desc or ran}"
        expected, result = here(*here_args[0], **here_args[1]), there(*there_args[0], **there_args[1])
        close(result, expected, what)
        close(gradients(result, leaves(there, there_args)), gradients(expected, leaves(here, here_args)),
              what + ": gradients", 1e-3)
        close(list(there.buffers()), list(here.buffers()), what + ": buffers")
        ran += 1
    return ran


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name.removeprefix("nn."))
def test_module(npu: ModuleType, info: Any, training: bool) -> None:
    name = info.name.removeprefix("nn.")
    warnings.simplefilter("ignore")
    if name in DRAWN:
        check_drawn(info)
    else:
        assert check_module(info, training and name not in RANDOM)


def check_drawn(info: Any) -> None:
    """Windows at random places: what is found is the input at the indices that are given with it."""
    items = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    item = next(iter(items))
    args, kwargs = ours_from((list(item.constructor_input.args), dict(item.constructor_input.kwargs)), {})
    image = ours_from(item.forward_input.args[0], {}).to("npu")
    kwargs = {name: value for name, value in kwargs.items() if name != "_random_samples"}
    out, indices = ours_of(info)(*args, **{**kwargs, "return_indices": True})(image)
    n = 2 if "2d" in info.name else 3
    assert bool((image.flatten(-n).gather(-1, indices.flatten(-n)) == out.flatten(-n)).all())


# ---- functions -------------------------------------------------------------------------------------------------------
# CANN has no op for these, and none that make them up: they refuse by name.
REFUSED = {"linalg.eig", "linalg.eigvals"}
DIFFER = {                                                   # random numbers, or absent here on every device
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.multi_head_attention_forward",
    "nn.functional.scaled_dot_product_attention", "nn.functional.triplet_margin_with_distance_loss",
    "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"}
FUNCTIONS = [info for info in op_db
             if info.name.startswith(("nn.functional.", "linalg.", "fft.")) and info.name not in DIFFER
             and torch.float32 in info.supported_dtypes("cpu")]


def full_name(info: Any) -> str:
    return info.name + ("." + info.variant_test_name if info.variant_test_name else "")


@pytest.mark.parametrize("info", [i for i in FUNCTIONS if i.name not in REFUSED], ids=full_name)
def test_function(npu: ModuleType, info: Any) -> None:
    grad = info.supports_autograd and info.variant_test_name != "with_dtype"    # that one needs float64's gradient
    warnings.simplefilter("ignore")
    assert run_samples(info, torch.float32, grad, seed=0, limit=4, tolerance=30, device="npu")


@pytest.mark.parametrize("info", [i for i in FUNCTIONS if i.name in REFUSED], ids=full_name)
def test_refusal(npu: ModuleType, info: Any) -> None:
    with pytest.raises(NotImplementedError, match="no kernel for npu"):
        run_samples(info, torch.float32, False, seed=0, limit=1, device="npu")


@pytest.mark.parametrize("n", [257, 512, 1000, 1009])         # longer than one product: prime, even and odd parts
def test_long_transform(npu: ModuleType, n: int) -> None:
    row = mt.randn(2, n)
    there = mt.fft.fft(row.to("npu"))
    torch.testing.assert_close(to_torch(there), torch.fft.fft(to_torch(row)), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(to_torch(mt.fft.ifft(there).real.contiguous()), to_torch(row), atol=1e-4, rtol=1e-4)
    back = mt.fft.irfft(mt.fft.rfft(row.to("npu")), n=n)
    torch.testing.assert_close(to_torch(back), to_torch(row), atol=1e-4, rtol=1e-4)


HALVES = ("linear", "conv2d", "layer_norm", "rms_norm", "batch_norm", "group_norm", "gelu", "silu", "softmax",
          "embedding", "max_pool2d", "avg_pool2d", "nll_loss", "mse_loss", "interpolate")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", HALVES)
def test_half(npu: ModuleType, name: str, dtype: Any) -> None:
    infos = [i for i in op_db if i.name in (f"nn.functional.{name}", name) and dtype in i.supported_dtypes("cpu")]
    warnings.simplefilter("ignore")
    assert infos and all(run_samples(info, dtype, False, seed=0, limit=3, tolerance=3, device="npu") for info in infos)


# ---- attention -------------------------------------------------------------------------------------------------------
def attended(device: str, shapes: list[tuple[int, ...]], dtype: Any = mt.float32, **options: Any) -> list[Any]:
    """Attention and its gradients, of the same numbers on every device."""
    mt.manual_seed(3)
    parts = [mt.randn(*s).to(dtype).to(device).requires_grad_() for s in shapes]
    options = moved(options, device, {})
    out = mt.nn.functional.scaled_dot_product_attention(*parts, **options)
    return [out, *gradients(out.float(), parts)]


HEADS = (2, 4, 5, 8)
ATTENTION = {
    "plain": ([HEADS] * 3, {}),
    "causal": ([HEADS] * 3, {"is_causal": True}),
    "causal, more keys": ([HEADS, (2, 4, 7, 8), (2, 4, 7, 8)], {"is_causal": True}),
    "scale": ([HEADS] * 3, {"scale": 0.3}),
    "groups": ([HEADS, (2, 2, 5, 8), (2, 2, 5, 8)], {"enable_gqa": True}),
    "no batch": ([(4, 5, 8)] * 3, {}),
    "one head": ([(5, 8)] * 3, {"is_causal": True}),
    "five dims": ([(2, 1, 4, 5, 8)] * 3, {}),
    "wider values": ([HEADS, HEADS, (2, 4, 5, 6)], {}),
    "bool mask": ([HEADS] * 3, {"attn_mask": mt.arange(25).reshape(5, 5) % 3 != 0}),
    "masked row": ([HEADS] * 3, {"attn_mask": (mt.arange(5) != 2).unsqueeze(1).expand(5, 5)}),
    "float mask": ([HEADS] * 3, {"attn_mask": mt.arange(25, dtype=mt.float32).reshape(5, 5) / 10}),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(npu: ModuleType, case: str) -> None:
    shapes, options = ATTENTION[case]
    close(attended("npu", shapes, **options), attended("cpu", shapes, **options), case)


@pytest.mark.parametrize("dtype", [mt.float16, mt.bfloat16], ids=str)
def test_attention_in_halves(npu: ModuleType, dtype: Any) -> None:
    shapes, options = ATTENTION["causal"]
    close(attended("npu", shapes, dtype, **options), attended("cpu", shapes, dtype, **options), "halves", 5e-2)


def test_attention_twice_differentiated(npu: ModuleType) -> None:
    def curve(device: str) -> Any:
        mt.manual_seed(5)
        q, k, v = (mt.randn(1, 2, 3, 4).to(device).requires_grad_() for _ in range(3))
        out = mt.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        (slope,) = mt.autograd.grad(out.square().sum(), q, create_graph=True)
        return list(mt.autograd.grad(slope.square().sum(), (q, k, v)))
    close(curve("npu"), curve("cpu"), "second derivative", 1e-3)


# ---- losses ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(npu: ModuleType, reduction: str, smoothing: float, weighted: bool) -> None:
    def loss(device: str) -> list[Any]:
        mt.manual_seed(7)
        logits = mt.randn(6, 5).to(device).requires_grad_()
        target = mt.tensor([0, 4, 2, -100, 1, 1]).to(device)
        weight = mt.linspace(0.5, 2, 5).to(device) if weighted else None
        out = mt.nn.functional.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)
        return [out, *gradients(out, [logits])]
    close(loss("npu"), loss("cpu"), "cross entropy", 1e-5)


# ---- training --------------------------------------------------------------------------------------------------------
def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_transformer_trains_alike(npu: ModuleType) -> None:
    train = example("transformer").train
    cpu, there = (train(device, 12, 0, batch=2, length=32, width=64) for device in ("cpu", "npu"))
    assert there == pytest.approx(cpu, rel=1e-4)
    assert there[-1] < there[0]


def train_mlp(device: str, dtype: Any = mt.float32) -> list[float]:
    """The network of examples/mlp.py."""
    mt.manual_seed(0)
    points, labels = example("mlp").make_data(256, 16)
    model = mt.nn.Sequential(mt.nn.Linear(16, 32), mt.nn.ReLU(), mt.nn.Linear(32, 4)).to(device, dtype)
    optimizer = mt.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(30):
        chosen = slice(step * 8, step * 8 + 32)
        loss = mt.nn.functional.cross_entropy(model(points[chosen].to(device, dtype)), labels[chosen].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("dtype", "tolerance"), [(mt.float32, 1e-4), (mt.bfloat16, 5e-2)], ids=["float32", "bfloat16"])
def test_mlp_trains_alike(npu: ModuleType, dtype: Any, tolerance: float) -> None:
    cpu, there = train_mlp("cpu", dtype), train_mlp("npu", dtype)
    assert there == pytest.approx(cpu, rel=tolerance, abs=tolerance)
    assert there[-1] < there[0]


def test_a_scaler_that_is_not_dynamic_keeps_its_scale(npu: ModuleType) -> None:
    for dynamic, expected in ((False, 8.0), (True, 4.0)):
        scaler = npu.amp.GradScaler(init_scale=8.0, dynamic=dynamic)
        weight = mt.ones(2, device="npu", requires_grad=True)
        optimizer = mt.optim.SGD([weight], lr=1.0)
        scaler.scale((weight * float("inf")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == expected
        assert weight.tolist() == [1.0, 1.0]
