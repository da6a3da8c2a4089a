"""Whole programs, as users port them: the same lines give the same numbers on torch, on our cpu and on the npu."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import mindtorch_v2 as mt

PROGRAMS: dict[str, Callable[[Any, str], Any]] = {}


def program(body: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Enters body(t, device) into the table. Random numbers are drawn on the cpu: there all libraries agree."""
    PROGRAMS[body.__name__] = body
    return body


def train(t: Any, optimizer: Any, steps: int, loss_of: Callable[[], Any], clip: float | None = None) -> list[float]:
    """The usual loop; the loss of every step."""
    losses = []
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            t.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def residual_network(t: Any, device: str) -> Any:
    """Convolutions, batch norm, a shortcut, label smoothing, Nesterov momentum and a schedule; then evaluation."""
    nn, F = t.nn, t.nn.functional

    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.shortcut = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

        def forward(self, x: Any) -> Any:
            out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
            out += self.shortcut(x)
            return F.relu(out)

    model = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.MaxPool2d(3, 2, 1), Block(8, 8, 1), Block(8, 16, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)).to(device)  # fmt: skip
    optimizer = t.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = t.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    x, y = t.randn(6, 3, 16, 16), t.randint(5, (6,)).to(device)
    x = x.to(device, non_blocking=True)
    losses = []
    for _ in range(3):
        losses += train(t, optimizer, 1, lambda: F.cross_entropy(model(x), y, label_smoothing=0.1))
        schedule.step()
    model.eval()
    with t.no_grad():
        top = model(x).topk(2, 1).indices.t().eq(y.expand(2, 6)).float().sum(1)
    return losses, top, model[2].bn1.running_mean, repr(model), schedule.get_last_lr()


@program
def language_model(t: Any, device: str) -> Any:
    """Causal attention, tied weights, accumulated gradients, AdamW with groups, and greedy generation."""
    nn, F = t.nn, t.nn.functional
    length, width, letters = 12, 32, 20

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.feed = nn.Sequential(nn.Linear(width, 64), nn.GELU(approximate="tanh"), nn.Linear(64, width))

        def forward(self, x: Any) -> Any:
            b, n, c = x.size()
            q, k, v = (p.view(b, n, 4, c // 4).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(b, n, c))
            return x + self.feed(self.norm2(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(letters, width), nn.Embedding(length, width)
            self.blocks, self.head = nn.ModuleList([Block() for _ in range(2)]), nn.Linear(width, letters, bias=False)
            self.head.weight = self.wte.weight
            nn.init.normal_(self.wte.weight, std=0.02)

        def forward(self, tokens: Any) -> Any:
            x = self.wte(tokens) + self.wpe(t.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    model = t.compile(Model().to(device)) if device == "npu" else Model()
    tensors = list(model.parameters())
    groups = [{"params": [p for p in tensors if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in tensors if p.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
    optimizer = t.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    text, losses = t.randint(letters, (200,)), []
    for _ in range(3):
        for _ in range(2):
            starts = t.randint(len(text) - length - 1, (4,))
            x, y = (t.stack([text[i + s : i + s + length] for i in starts]).to(device) for s in (0, 1))
            loss = F.cross_entropy(model(x).view(-1, letters), y.view(-1), ignore_index=-1) / 2
            loss.backward()
        norm = t.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses += [loss.item(), norm.item()]
    tokens = t.zeros(1, 1, dtype=t.long, device=device)
    with t.no_grad():
        for _ in range(8):
            logits = model(tokens)[:, -1, :]
            logits[logits < logits.topk(5).values[:, [-1]]] = -float("inf")
            tokens = t.cat((tokens, F.softmax(logits, -1).argmax(-1, keepdim=True)), 1)
    drawn = t.multinomial(F.softmax(logits, -1), 4, replacement=True)
    return losses, tokens, bool(t.isfinite(logits.gather(1, drawn)).all()), len(tensors)


@program
def rotary_attention(t: Any, device: str) -> Any:
    """Llama's attention: complex rotation, shared heads, a cache written in place that agrees with the full pass."""
    nn, F = t.nn, t.nn.functional
    heads, shared, dim = 4, 2, 8
    q, k, v, out = (nn.Linear(32, n, bias=False).to(device) for n in (32, 16, 16, 32))
    norm = nn.RMSNorm(32, eps=1e-6).to(device)
    angles = t.outer(t.arange(16).float(), 1.0 / (10000.0 ** (t.arange(0, dim, 2).float() / dim)))
    turns = t.polar(t.ones_like(angles), angles).to(device)
    keys, values = (t.zeros(2, 16, shared, dim, device=device) for _ in range(2))

    def rotated(x: Any, at: Any) -> Any:
        turned = t.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * at[None, :, None]
        return t.view_as_real(turned).flatten(3).type_as(x)

    def attend(x: Any, start: int, cached: bool) -> Any:
        b, n, _ = x.shape
        at, h = turns[start : start + n], norm(x)
        a, c = rotated(q(h).view(b, n, heads, dim), at), rotated(k(h).view(b, n, shared, dim), at)
        d = v(h).view(b, n, shared, dim)
        if cached:
            keys[:b, start : start + n], values[:b, start : start + n] = c, d
            c, d = keys[:b, : start + n], values[:b, : start + n]
        mask = t.full((n, start + n), float("-inf"), device=device).triu(1 + start)
        y = F.scaled_dot_product_attention(a.transpose(1, 2), c.transpose(1, 2), d.transpose(1, 2), mask,
                                           enable_gqa=True)  # fmt: skip
        return x + out(y.transpose(1, 2).reshape(b, n, -1))

    x = t.randn(2, 10, 32).to(device)
    optimizer = t.optim.Adam([p for m in (q, k, v, out, norm) for p in m.parameters()], 1e-2)
    losses = train(t, optimizer, 2, lambda: attend(x, 0, False).pow(2).mean())
    with t.inference_mode():
        full = attend(x, 0, False)
        steps = t.cat([attend(x[:, :6], 0, True)] + [attend(x[:, i : i + 1], i, True) for i in range(6, 10)], 1)
    return losses, full, steps, bool(t.allclose(full, steps, atol=1e-5))


@program
def recurrent_network(t: Any, device: str) -> Any:
    """A packed bidirectional LSTM over sequences of different lengths, then CTC."""
    nn, F = t.nn, t.nn.functional
    lengths = t.tensor([5, 9, 7])
    x = nn.utils.rnn.pad_sequence([t.randn(n, 4) for n in lengths.tolist()], batch_first=True).to(device)
    net, head = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True).to(device), nn.Linear(12, 5).to(device)
    targets, target_lengths = t.randint(1, 5, (3, 3)).to(device), t.tensor([3, 2, 3])

    def loss() -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
        return F.ctc_loss(F.log_softmax(head(y), 2).transpose(0, 1), targets, lengths, target_lengths,
                          zero_infinity=True)  # fmt: skip

    optimizer = t.optim.RMSprop([*net.parameters(), *head.parameters()], 1e-2)
    return train(t, optimizer, 3, loss, clip=0.5), net.weight_ih_l0.grad


@program
def denoising_network(t: Any, device: str) -> Any:
    """A tiny U-Net with group norm, both ways to upsample and linear attention; averaged weights draw a sample."""
    nn, F = t.nn, t.nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time, self.into = nn.Sequential(nn.Linear(8, 16), nn.SiLU()), nn.Conv2d(1, 8, 3, padding=1)
            self.norm, self.down = nn.GroupNorm(4, 8), nn.Conv2d(8, 16, 4, 2, 1)
            self.qkv, self.up = nn.Conv2d(16, 48, 1), nn.ConvTranspose2d(16, 8, 4, 2, 1)
            self.smooth, self.out = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(24, 1, 1)

        def forward(self, x: Any, when: Any) -> Any:
            rate = t.exp(t.arange(4, device=x.device) * -(math.log(10000) / 3))
            wave = when[:, None] * rate
            scale, shift = self.time(t.cat((wave.sin(), wave.cos()), -1))[:, :, None, None].chunk(2, 1)
            h = F.silu(self.norm(self.into(x)) * (scale + 1) + shift)
            low = self.down(h)
            q, k, v = (p.flatten(2) for p in self.qkv(low).chunk(3, 1))
            context = t.einsum("bdn,ben->bde", k.softmax(-1), v)
            low = low + t.einsum("bde,bdn->ben", context, q.softmax(-2)).view_as(low)
            wide = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
            return self.out(t.cat((self.up(low), self.smooth(wide), h), 1))

    model = Net().to(device)
    average = t.optim.swa_utils.AveragedModel(model, multi_avg_fn=t.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    noise, kept = t.linspace(1e-2, 0.2, 6), t.cumprod(1 - t.linspace(1e-2, 0.2, 6), 0)
    x, when, eps = t.rand(4, 1, 8, 8).to(device), t.randint(6, (4,)), t.randn(4, 1, 8, 8).to(device)
    part = kept.gather(0, when).view(-1, 1, 1, 1).to(device)
    blurred, when = part.sqrt() * x + (1 - part).sqrt() * eps, when.to(device)

    def loss() -> Any:
        average.update_parameters(model)
        return F.smooth_l1_loss(model(blurred, when), eps)

    losses = train(t, t.optim.Adam(model.parameters(), 1e-3), 3, loss)
    image = t.randn(2, 1, 8, 8).to(device)
    with t.no_grad():
        for i in reversed(range(6)):
            guess = average(image, t.full((2,), i, device=device, dtype=t.long))
            image = (image - noise[i].item() / math.sqrt(1 - kept[i]) * guess) / math.sqrt(1 - noise[i])
    return losses, image, average.n_averaged


@program
def mixture_of_experts(t: Any, device: str) -> Any:
    """Routing by topk, one_hot, where and index_add; the counts by bincount; a balance loss."""
    nn, F = t.nn, t.nn.functional
    gate, experts = nn.Linear(8, 4, bias=False), nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
    gate, experts = gate.to(device), experts.to(device)
    x = t.randn(12, 8).to(device)

    def routed() -> Any:
        logits = gate(x)
        weights, chosen = t.topk(F.softmax(logits, dim=1, dtype=t.float), 2, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        out, mask = t.zeros_like(x), F.one_hot(chosen, num_classes=4).permute(2, 1, 0)
        for expert in t.greater(mask.sum(dim=(-1, -2)), 0).nonzero().flatten().tolist():
            slot, token = t.where(mask[expert])
            out.index_add_(0, token, experts[expert](x[token]) * weights[token, slot, None])
        return out, logits, chosen

    def loss() -> Any:
        out, logits, chosen = routed()
        share = F.one_hot(chosen, 4).float().mean((0, 1)) * F.softmax(logits, -1).mean(0)
        return F.mse_loss(out, x) + 0.1 * share.sum() + 1e-3 * t.logsumexp(logits, -1).pow(2).mean()

    losses = train(t, t.optim.Adam([*gate.parameters(), *experts.parameters()], 1e-2), 3, loss)
    chosen = routed()[2]
    order = chosen.view(-1).argsort(stable=True)
    return losses, chosen, t.bincount(chosen.flatten(), minlength=4), order, t.unique(chosen, return_counts=True)


@program
def graph_network(t: Any, device: str) -> Any:
    """Attention over edges: a softmax per node by scatter_reduce, sums by index_add, a mean by scatter_add."""
    nn, F = t.nn, t.nn.functional
    n, edges = 10, t.unique(t.cat([t.randint(10, (2, 30)), t.arange(10).repeat(2, 1)], 1), dim=1).to(device)
    (start, end), x, y = edges, t.randn(n, 5).to(device), t.randint(3, (n,)).to(device)
    lin, score = nn.Linear(5, 3, bias=False).to(device), nn.Linear(6, 1).to(device)
    known = (t.arange(n) < 6).to(device)

    def logits() -> Any:
        h = lin(x)
        e = F.leaky_relu(score(t.cat((h[start], h[end]), -1)), 0.2).squeeze(-1)
        peak = t.full((n,), float("-inf"), device=device).scatter_reduce(0, end, e, "amax", include_self=False)
        e = (e - peak[end]).exp()
        e = e / t.zeros(n, device=device).index_add(0, end, e)[end]
        return t.zeros_like(h).index_add(0, end, h[start] * e.unsqueeze(-1))

    optimizer = t.optim.Adam([*lin.parameters(), *score.parameters()], 0.05, weight_decay=5e-4)
    losses = train(t, optimizer, 3, lambda: F.nll_loss(F.log_softmax(logits(), 1)[known], y[known]))
    degree = t.zeros(n, device=device).scatter_add_(0, end, t.ones_like(end, dtype=x.dtype)).clamp_(min=1)
    return losses, degree, logits().argmax(1)[~known]


@program
def policy_gradient(t: Any, device: str) -> Any:
    """PPO's loss over a Categorical and a Normal, advantages computed in place, a divergence as penalty."""
    nn, D = t.nn, t.distributions
    body, pi, mu = (nn.Linear(i, o).to(device) for i, o in ((4, 16), (16, 3), (16, 2)))
    log_std = nn.Parameter(t.zeros(2, device=device))
    seen, done, paid = t.randn(12, 4).to(device), t.randint(3, (12,)).to(device), t.randn(12).to(device)
    gained, last = t.zeros_like(paid), 0.0
    for i in reversed(range(12)):
        gained[i] = last = paid[i] + 0.95 * last
    gained = (gained - gained.mean()) / (gained.std() + 1e-8)
    with t.no_grad():
        before = D.Categorical(logits=pi(t.tanh(body(seen)))).log_prob(done)

    def loss() -> Any:
        h = t.tanh(body(seen))
        choice, aim = D.Categorical(logits=pi(h)), D.Independent(D.Normal(mu(h), log_std.exp()), 1)
        ratio = (choice.log_prob(done) - before).exp()
        clipped = t.max(-gained * ratio, -gained * ratio.clamp(0.8, 1.2)).mean()
        prior = D.Independent(D.Normal(t.zeros_like(mu(h)), 1.0), 1)
        return clipped - 0.01 * choice.entropy().mean() + 0.1 * D.kl_divergence(aim, prior).mean()

    optimizer = t.optim.Adam([*body.parameters(), *pi.parameters(), *mu.parameters(), log_std], 1e-2)
    losses = train(t, optimizer, 3, loss, clip=0.5)
    drawn = D.Normal(mu(t.tanh(body(seen))), log_std.exp()).rsample((5,))
    return losses, tuple(drawn.shape), drawn.requires_grad, drawn.device.type == device


@program
def gradient_penalty(t: Any, device: str) -> Any:
    """A critic with spectral norm whose loss holds a gradient (double backward), and a custom Function."""
    nn = t.nn

    class Swish(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * t.sigmoid(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, = ctx.saved_tensors
            s = t.sigmoid(x)
            return g * s * (1 + x * (1 - s))

    first, last = nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 4, 4, 2, 1)), nn.Linear(64, 1)
    first, last = first.to(device), last.to(device)
    real, fake, mix = (t.rand(4, 1, 8, 8).to(device), t.rand(4, 1, 8, 8).to(device), t.rand(4, 1, 1, 1).to(device))

    def critic(x: Any) -> Any:
        return last(Swish.apply(first(x)).flatten(1))

    def loss() -> Any:
        x = (mix * real + (1 - mix) * fake).requires_grad_(True)
        score = critic(x)
        g, = t.autograd.grad(score, x, t.ones_like(score), create_graph=True)
        return critic(fake).mean() - critic(real).mean() + 10 * (g.flatten(1).norm(2, dim=1) - 1).pow(2).mean()

    optimizer = t.optim.RMSprop([*first.parameters(), *last.parameters()], 1e-3)
    return train(t, optimizer, 3, loss), sorted(first.state_dict())


@program
def resumed_training(t: Any, device: str) -> Any:
    """A checkpoint with model, optimizer, schedule and scaler continues as if nothing had happened; a copy is apart."""
    nn, F = t.nn, t.nn.functional
    x, y = t.randn(8, 6).to(device), t.randint(3, (8,)).to(device)

    def fresh() -> tuple[Any, Any, Any]:
        net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).to(device)
        optimizer = t.optim.AdamW(net.parameters(), 1e-2, amsgrad=True)
        return net, optimizer, t.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)

    def step(net: Any, optimizer: Any, schedule: Any) -> float:
        loss = train(t, optimizer, 1, lambda: F.cross_entropy(net(x), y))[0]
        schedule.step()
        return loss

    parts = fresh()
    losses, file = [step(*parts) for _ in range(3)], io.BytesIO()
    t.save({name: part.state_dict() for name, part in zip("nos", parts)} | {"x": x}, file)
    file.seek(0)
    stored, again, twin = t.load(file, map_location=device), fresh(), copy.deepcopy(parts[0])
    for name, part in zip("nos", again):
        part.load_state_dict(stored[name])
    losses += [step(*parts), step(*again)]
    file.seek(0)
    on_cpu = t.load(file, map_location="cpu")["n"]["0.weight"]
    changed = bool((twin[0].weight != parts[0][0].weight).any())
    return losses, losses[-1] == losses[-2], on_cpu.device.type, on_cpu, changed, stored["x"].device.type == device


@program
def spectral_filter(t: Any, device: str) -> Any:
    """High frequencies set to zero through a mask, a window's spectrogram and back, quantiles of what is left."""
    wave = (t.sin(t.arange(64) * 0.5) + 0.3 * t.randn(64)).to(device)
    spectrum = t.fft.rfft(wave)
    spectrum[t.fft.rfftfreq(64).to(device) > 0.2] = 0
    spectrum[t.tensor([0, 1], device=device)] = 1 + 2j
    smooth = t.fft.irfft(spectrum, n=64)
    window = t.hann_window(16).to(device)
    frames = t.stft(smooth, 16, 4, window=window, return_complex=True)
    loud = frames.abs().pow(2).clamp(min=1e-10).log10()
    back = t.istft(frames, 16, 4, window=window, length=64)
    return smooth, loud, back, t.quantile(loud, t.tensor([0.1, 0.9], device=device), dim=1), t.angle(spectrum)[:4]


@program
def per_sample_gradients(t: Any, device: str) -> Any:
    """torch.func: gradients of every sample by vmap, clipped and summed; a Hessian; a checkpointed block."""
    nn, F = t.nn, t.nn.functional
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    x, y = t.randn(6, 5).to(device), t.randint(3, (6,)).to(device)

    def loss(p: Any, sample: Any, target: Any) -> Any:
        return F.cross_entropy(t.func.functional_call(model, p, (sample.unsqueeze(0),)), target.unsqueeze(0))

    every = t.vmap(t.func.grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    norms = t.stack([g.flatten(1).norm(dim=1) for g in every.values()]).norm(dim=0)
    private = {name: t.einsum("i,i...->...", (1 / norms).clamp(max=1), g) for name, g in every.items()}
    point = x[0].clone().requires_grad_()
    t.utils.checkpoint.checkpoint(model, point, use_reentrant=False).sum().backward()
    return private, t.func.hessian(lambda z: model(z).pow(2).sum())(x[1]), point.grad


def plain(x: Any) -> Any:
    """Tensors of either library as torch tensors on the cpu."""
    if isinstance(x, (torch.Tensor, mt.Tensor)):
        return torch.from_numpy(x.detach().cpu().numpy())
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    return [plain(value) for value in x] if isinstance(x, (list, tuple)) else x


def check(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, (torch.Tensor, float)):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-4)
    elif isinstance(theirs, (dict, list)):
        assert len(ours) == len(theirs)
        for key in theirs if isinstance(theirs, dict) else range(len(theirs)):
            check(ours[key], theirs[key])
    else:
        assert ours == theirs


_torch_says: dict[str, Any] = {}


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(npu: Any, name: str, device: str) -> None:
    if name not in _torch_says:
        torch.manual_seed(1)
        _torch_says[name] = plain(PROGRAMS[name](torch, "cpu"))
    mt.manual_seed(1)
    check(plain(PROGRAMS[name](mt, device)), _torch_says[name])
