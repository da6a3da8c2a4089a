"""Pruning, orthogonal weights, attention by functions, and wrappers that refuse: against torch, and on the npu."""

from __future__ import annotations

from typing import Any

import pytest
import torch.nn.attention.flex_attention
import torch.nn.utils.prune  # noqa: F401  torch does not load these by itself
from twin import error, same, twin

import mindtorch_v2 as mt


def layer(t: Any, device: str = "cpu") -> Any:
    t.manual_seed(3)
    return t.nn.Conv2d(2, 4, 3).to(device)


PRUNINGS = {
    "l1": lambda p, m: p.l1_unstructured(m, "weight", 0.4),
    "number": lambda p, m: p.l1_unstructured(m, "bias", 2),
    "channels": lambda p, m: p.ln_structured(m, "weight", 2, n=2, dim=0),
    "random": lambda p, m: p.random_unstructured(m, "weight", 0.3),
    "random channels": lambda p, m: p.random_structured(m, "weight", 1, dim=1),
    "twice": lambda p, m: p.ln_structured(p.l1_unstructured(m, "weight", 0.3), "weight", 0.5, n=1, dim=0),
    "three times": lambda p, m: p.l1_unstructured(
        p.random_unstructured(p.identity(m, "weight"), "weight", 5), "weight", 9),
    "mask": lambda p, m: p.custom_from_mask(m, "bias", m.bias > 0),
}


@pytest.mark.parametrize("name", PRUNINGS)
@twin
def test_pruning(t: Any, name: str) -> Any:
    p, m = t.nn.utils.prune, layer(t)
    PRUNINGS[name](p, m)
    m(t.ones(1, 2, 5, 5)).sum().backward()
    grads = {n: q.grad for n, q in m.named_parameters()}
    before = [m.weight, m.bias, p.is_pruned(m), list(m.state_dict()), dict(m.named_buffers())]
    p.remove(m, "bias" if name in ("number", "mask") else "weight")
    return grads, before, m.weight, list(m.state_dict()), p.is_pruned(m), [n for n, _ in m.named_parameters()]


@twin
def test_pruning_of_several_parameters_together_and_errors(t: Any) -> Any:
    p, a, b = t.nn.utils.prune, t.nn.Linear(3, 4), t.nn.Linear(4, 2)
    p.global_unstructured([(a, "weight"), (b, "weight"), (b, "bias")], pruning_method=p.L1Unstructured, amount=0.5)
    calls = [lambda: p.l1_unstructured(a, "weight", 1.5), lambda: p.l1_unstructured(a, "bias", 9),
             lambda: p.remove(a, "bias"), lambda: p.l1_unstructured(a, "bias", "many")]  # fmt: skip
    return a.weight, b.weight, b.bias, [error(call, 40) for call in calls]


@pytest.mark.parametrize("shape, how", [((4, 4), None), ((4, 4), "cayley"), ((3, 5), "cayley"), ((5, 3), "matrix_exp"),
                                        ((6, 3), None), ((2, 5), None)])  # fmt: skip
@twin
def test_orthogonal(t: Any, shape: tuple[int, int], how: str | None) -> Any:
    m = t.nn.utils.parametrizations.orthogonal(t.nn.Linear(*shape), orthogonal_map=how)
    weight = m.weight
    (weight * t.arange(weight.numel()).view_as(weight)).sum().backward()
    short = min(shape)
    product = weight.mT @ weight if weight.shape[0] >= weight.shape[1] else weight @ weight.mT
    assert t.allclose(product, t.eye(short), atol=1e-5)
    return weight, m.parametrizations.weight.original.grad, m.state_dict()


@pytest.mark.parametrize("change", ["", "train", "grad", "odd heads", "norm first", "mask", "not aligned", "relu"])
@twin
def test_padding_of_an_encoder_that_only_infers(t: Any, change: str) -> Any:
    activation = t.nn.ReLU() if change == "relu" else "gelu"
    layer = t.nn.TransformerEncoderLayer(8, 1 if change == "odd heads" else 2, 16, 0.0, activation, batch_first=True,
                                         norm_first=change == "norm first")  # fmt: skip
    model, x = t.nn.TransformerEncoder(layer, 2, t.nn.LayerNorm(8)), t.randn(2, 4, 8)
    model.train(change == "train")
    hidden = t.tensor([[False] * 4, [False, False, True, True]])
    hidden = hidden.flip(1) if change == "not aligned" else hidden
    mask = t.zeros(4, 4, dtype=t.bool) if change == "mask" else None
    with t.set_grad_enabled(change == "grad"):
        return model(x, mask=mask, src_key_padding_mask=hidden)


@twin
def test_flex_attention(t: Any) -> Any:
    flex = t.nn.attention.flex_attention
    q, k = t.randn(2, 4, 6, 8), t.randn(2, 2, 5, 8)
    near = flex.create_block_mask(lambda b, h, i, j: (i - j).abs() < 2, None, None, 6, 5, device="cpu")
    bias = t.randn(4)
    return [flex.flex_attention(q, q, q), flex.flex_attention(q, k, k, block_mask=near, enable_gqa=True),
            flex.flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[h] * (i - j), scale=0.3),
            flex.create_mask(flex.and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i < 4), 1, 1, 5, 5, "cpu"),
            near.shape]  # fmt: skip


@twin
def test_the_flags_of_attention_come_back(t: Any) -> Any:
    attention, flags = t.nn.attention, t.backends.cuda
    with attention.sdpa_kernel([attention.SDPBackend.MATH, attention.SDPBackend.FLASH_ATTENTION]):
        inside = [flags.math_sdp_enabled(), flags.flash_sdp_enabled(), flags.mem_efficient_sdp_enabled()]
    refused = error(lambda: attention.sdpa_kernel("math").__enter__())
    return inside, flags.mem_efficient_sdp_enabled(), int(attention.SDPBackend.EFFICIENT_ATTENTION), refused


@pytest.mark.parametrize("options", ["", "need_weights=False", "average_attn_weights=False", "is_causal=True",
                                     "key_padding_mask=hidden", "attn_mask=later", "attn_mask=later, key_padding_mask=hidden"])
@pytest.mark.parametrize("layer", ["", ", bias=False", ", add_zero_attn=True", ", kdim=4, vdim=4, dropout=0.5"])
@twin
def test_attention_that_only_infers(t: Any, layer: str, options: str) -> Any:
    m, x = eval(f"t.nn.MultiheadAttention(4, 2, batch_first=True{layer})", {"t": t}).eval(), t.randn(2, 3, 4)
    hidden, later = t.tensor([[False] * 3, [False, True, True]]), t.ones(3, 3, dtype=t.bool).triu(1)
    if "is_causal" in options and ("bias" in layer or "zero" in layer):
        return "not served by one op: a mask is needed"
    with t.no_grad():
        return eval(f"m(x, x, x, {options})", {"m": m, "x": x, "hidden": hidden, "later": later})


def test_one_op_serves_attention_that_only_infers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = mt._native_multi_head_attention
    monkeypatch.setattr(mt, "_native_multi_head_attention", lambda *given: calls.append(1) or real(*given))
    m, x = mt.nn.MultiheadAttention(4, 2, batch_first=True).eval(), mt.randn(2, 3, 4)
    m(x, x, x)                                               # grad mode
    with mt.no_grad():
        m(x, x, x.clone())
        m(x, x, x, attn_mask=mt.zeros(3, 3))
        m.train()(x, x, x)
        assert not calls
        m.eval()(x, x, x)
    assert calls == [1]


@twin
def test_states_of_spectral_norm(t: Any) -> Any:
    """Its version stands in the metadata; a state from before there were versions has the weight and no v."""
    norm = t.nn.utils.spectral_norm
    m, other = norm(t.nn.Linear(3, 4)), norm(t.nn.Linear(3, 4))
    for _ in range(5):
        m(t.randn(2, 3))
    state = m.state_dict()
    versions, state._metadata[""]["spectral_norm"] = state._metadata[""]["spectral_norm"], {}
    del state["weight_v"]
    without = error(lambda: other.load_state_dict(dict(state)), 60)
    state["weight"] = m.weight.detach()
    other.load_state_dict(state)
    x = t.ones(2, 3)
    old = [list(state), other.eval()(x), m.eval()(x), other.weight_v]
    t.nn.utils.remove_spectral_norm(m)
    return versions, without, old, len(m._state_dict_hooks)


@twin
def test_amounts_and_shapes_of_pruning_are_checked(t: Any) -> Any:
    p, m = t.nn.utils.prune, t.nn.Linear(4, 3)
    calls = [lambda: p._validate_pruning_amount_init("a"), lambda: p._validate_pruning_amount_init(1.5),
             lambda: p._validate_pruning_amount_init(-1), lambda: p._validate_pruning_amount(9, 3), lambda: p._validate_pruning_amount(3, 9),
             lambda: p._validate_structured_pruning(t.ones(3)), lambda: p._validate_pruning_dim(t.ones(2, 2), 2),
             lambda: p.random_structured(m, "bias", 1, 0), lambda: p.custom_from_mask(m, "weight", t.ones(2)),
             lambda: p.global_unstructured(5, p.L1Unstructured), lambda: p.global_unstructured([(m, "bias")], p.L1Unstructured, 5, amount=1),
             lambda: p.L1Unstructured(0.5).prune(t.ones(4), importance_scores=t.ones(3))]
    counts = [p._compute_nparams_toprune(amount, 15) for amount in (0.5, 3, 0.1)]
    return [error(call, 200) for call in calls], counts, p._compute_norm(t.arange(24.0).view(2, 3, 4), 2, -2)


@twin
def test_layers_and_losses_beside_the_usual_arguments(t: Any) -> Any:
    nn, F, x, targets = t.nn, t.nn.functional, t.randn(3), t.tensor([1])
    bags = [F.embedding_bag(t.tensor([1, 2, 0]), t.randn(3, 2), t.tensor([0, end]), include_last_offset=True, mode="sum",
                            per_sample_weights=t.rand(3)) for end in (0, 1, 3)]
    image = t.randn(2, 3, 4, 4, requires_grad=True)
    convert = nn.utils.convert_conv2d_weight_memory_format
    means = [F.adaptive_avg_pool2d(y, 1) for y in (t.randn(4, 5), t.ones(2, 3, 0, 2), image)]
    t.manual_seed(3)
    pooled = [F.fractional_max_pool3d(t.randn(1, 2, 6, 5, 7), 2, output_ratio=ratio, return_indices=True) for ratio in (0.5, (0.5, 0.6, 0.4))]
    old = nn.LSTM(2, 3)
    state = {k: v for k, v in old.__dict__.items() if k != "proj_size"}
    old.__dict__.clear()
    old.__setstate__(state)
    return [F.multi_margin_loss(x, targets, reduction="none"), F.multi_margin_loss(x, targets[0], reduction="none"), bags, means, pooled,
            t.autograd.grad(means[2].sum(), image), F.dropout3d(t.ones(4, 3, 2), 0.5), old(t.ones(1, 1, 2))[0].shape,
            convert(nn.Sequential(nn.Conv2d(2, 3, 2)), t.channels_last)[0].weight.stride(), repr(nn.TripletMarginWithDistanceLoss())]


@twin
def test_hooks_see_what_was_passed(t: Any) -> Any:
    """Hooks of step() see the optimizer among the arguments; results that need no gradient leave a module as they came."""
    p, seen = t.nn.Parameter(t.ones(2)), []
    optim = t.optim.SGD([p], 0.5)
    optim.register_step_pre_hook(lambda o, args, kwargs: seen.append((args[0] is o, len(args))))
    optim.register_step_post_hook(lambda o, args, kwargs: seen.append((args[0] is o, len(args))))
    optim.register_step_pre_hook(lambda o, args, kwargs: (args, {"closure": lambda: 7}))
    given = optim.step()
    m = t.nn.Module()
    m.forward = lambda a, b: (a * 2, b)
    m.register_full_backward_hook(lambda *_: None)
    out = m(t.ones(2, requires_grad=True), t.ones(2))
    m.register_full_backward_hook(lambda module, ins, outs: t.ones(2, 2, 2)[:, 0])
    many = t.nn.Linear(2, 2)
    many.register_full_backward_hook(lambda module, ins, outs: t.ones(2))
    return given, seen, [o.requires_grad for o in out], error(lambda: many(t.ones(1, 2, requires_grad=True)).sum().backward(), 90)


def test_a_module_on_one_device_needs_no_wrapper_and_several_are_refused(npu: Any) -> None:
    model = mt.nn.Linear(2, 2).npu()
    x = mt.ones(1, 2, device="npu")
    same(mt.nn.DataParallel(model, device_ids=[0])(x).tolist(), model(x).tolist())
    assert list(mt.nn.DataParallel(model, [0]).state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(NotImplementedError, match="several devices"):
        mt.nn.DataParallel(model, device_ids=[0, 1])
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        mt.nn.parallel.DistributedDataParallel(model)


def test_what_needs_the_npu_runs_there(npu: Any) -> None:
    on_cpu, on_npu = (mt.nn.utils.prune.l1_unstructured(layer(mt, d), "weight", 0.4) for d in ("cpu", "npu"))
    same(on_npu.weight_mask.cpu().tolist(), on_cpu.weight_mask.tolist())
    turned = mt.nn.utils.parametrizations.orthogonal(mt.nn.Linear(4, 4)).to("npu").weight
    assert mt.allclose(turned @ turned.mT, mt.eye(4, device="npu"), atol=1e-5)


@twin
def test_the_arguments_of_to_are_read_as_those_of_a_tensors_to(t: Any) -> Any:
    parse, like = t._C._nn._parse_to, t.ones(1, dtype=t.float64)
    found = [parse(*given) for given in ((float,), ("cpu", t.float64), (like,), (t.float64, True), ("cpu", None, True), (None, t.half))]
    refused = [error(lambda given=given: parse(*given), 40) for given in (("cpu", t.float64, True, True), (t.float64, "cpu"))]
    kept = [t.nn.Linear(2, 2).to(*given).weight.dtype for given in ((float,), (like, True), ("cpu", t.bfloat16))]
    return [(str(device), dtype, wait, str(format)) for device, dtype, wait, format in found], refused, kept


@twin
def test_functional_call_sets_what_a_parametrization_computes(t):
    class Twice(t.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

        def right_inverse(self, x: Any) -> Any:
            return x / 2
    layer = t.nn.Linear(2, 2)
    with t.no_grad():
        layer.weight.fill_(1)
        layer.bias.fill_(0)
    t.nn.utils.parametrize.register_parametrization(layer, "weight", Twice())
    x = t.ones(1, 2)
    found = t.func.functional_call(layer, {"weight": t.full((2, 2), 5.0)}, x)
    return found, layer(x), t.func.functional_call(layer, {"nothing": t.ones(1)}, x)


# ---- small rules -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dim", [0, 1, -1, -2, None])
@twin
def test_weight_norm_counts_dims_from_the_end(t: Any, dim: int | None) -> Any:
    t.manual_seed(0)
    m = t.nn.utils.parametrizations.weight_norm(t.nn.Linear(2, 3), dim=dim)
    return [v.shape for v in m.state_dict().values()], m.weight


@twin
def test_recurrent_layers_refuse_states_of_another_kind(t: Any) -> Any:
    x = t.ones(2, 3, 4)
    return (error(lambda: t.nn.GRU(4, 3)(x, (t.ones(1, 3, 3),) * 2)), error(lambda: t.nn.LSTM(4, 3)(x, t.ones(2, 3, 3))),
            error(lambda: t.nn.GRU(4, 3)(t.ones(2))), error(lambda: t.nn.RNN(4, 3)(t.ones(2))))


@twin
def test_an_unpickled_optimizer_can_go_on(t: Any) -> Any:
    made = t.optim.Adam([t.nn.Parameter(t.ones(2))])
    state = made.__getstate__()
    fresh = t.optim.Adam.__new__(t.optim.Adam)
    fresh.__setstate__(state)
    fresh.zero_grad()
    fresh.step()
    return list(state), sorted(set(vars(made)) - set(vars(fresh))), fresh._zero_grad_profile_name


@twin
def test_parametrizations_tell_whether_they_are_cached(t: Any) -> Any:
    parametrize = t.nn.utils.parametrize
    m = t.nn.Linear(2, 2)
    parametrize.register_parametrization(m, "weight", t.nn.Tanh())
    with parametrize.cached():
        inside = parametrize._cache_enabled, m.weight is m.weight, len(parametrize._cache)
    return inside, parametrize._cache_enabled, m.weight is m.weight, len(parametrize._cache)


@twin
def test_pools_norms_and_losses_of_odd_input(t: Any) -> Any:
    functional = t.nn.functional
    return (error(lambda: functional.adaptive_avg_pool3d(t.ones(1, 0, 4, 4, 4), 2)),
            error(lambda: t.nn.CrossMapLRN2d(2)(t.ones(1, 3, 4))), t.nn.CrossMapLRN2d(2)(t.ones(1, 3, 2, 2).half()).dtype,
            error(lambda: functional.multilabel_soft_margin_loss(t.ones(2, 3), t.ones(2, 3), reduction="x")),
            error(lambda: t.autograd.Variable(t.ones(1), requires_grad=True, volatile=True)),
            [t.nn.TransformerEncoderLayer(4, 2, activation=a).activation_relu_or_gelu
             for a in ("relu", "gelu", t.tanh, t.nn.GELU())],
            type(t.nn.Linear(1, 1).load_state_dict(t.nn.Linear(1, 1).state_dict())).__module__.partition(".")[2])
