"""Distributed tensors and the ways of dividing a model, as cases for mindtorch_v2 and PyTorch: placements, numbers, losses."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import dist_cases
from dist_cases import World, case

dist_cases.CASES.clear()
os.environ.setdefault("OMP_NUM_THREADS", "1")     # many processes on few cores: PyTorch's threads would wait for each other
VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 16, 16, 4, 6, 4


def part(w: World, name: str) -> Any:
    """A module below torch.distributed."""
    return importlib.import_module(f"{w.torch.__name__}.distributed.{name}")


def mesh_of(w: World) -> Any:
    return w.dist.init_device_mesh(w.device.partition(":")[0], (w.size,))


def transformer(w: World) -> Any:
    """Embeddings, two blocks of attention and MLP, and logits: a model that tensor parallelism can divide by its names."""
    torch, nn = w.torch, w.torch.nn

    class Attention(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x: Any) -> Any:
            heads = [f(x).view(x.shape[0], x.shape[1], -1, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v)]
            out = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            return self.o(out.transpose(1, 2).flatten(2))

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.norm, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x)
            return self.logits(self.norm(x))

    torch.manual_seed(11)
    return Transformer().to(w.device)


def text(w: World, step: int, divided: bool = False) -> tuple[Any, Any]:
    """Tokens and the next ones: the whole batch, or this rank's share of it."""
    generator = w.torch.Generator().manual_seed(50 + step)
    tokens = w.torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    if divided:
        tokens = tokens.chunk(w.size)[w.rank]
    return tokens[:, :-1].to(w.device), tokens[:, 1:].to(w.device)


def whole(x: Any) -> Any:
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def train(w: World, model: Any, optimizer: Any = None, divided: bool = False, clip: bool = True, steps: int = 3) -> list[Any]:
    """Losses of some steps with clipped gradients, averaged over ranks where they share a batch."""
    torch = w.torch
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        tokens, wanted = text(w, step, divided)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(whole(model(tokens)).flatten(0, 1), wanted.flatten())
        loss.backward()
        if clip:                                  # PyTorch cannot where only some parameters are distributed
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        if divided and w.size > 1:
            w.dist.all_reduce(mean)
            mean /= w.size
        losses.append(mean)
    return losses


# ---- distributed tensors --------------------------------------------------------------------------------------------------
OPS = (
    "x.sum()", "x.mean(0)", "x.sum(1)", "x.max()", "x.norm()", "x.softmax(-1)", "x.view(2, 2, 6)", "x.reshape(4, 2, 3)", "x.t()",
    "x * 2 + 1", "x.unsqueeze(0)", "x[1:3]", "torch.cat([x, x])", "torch.chunk(x, 2, -1)[0]", "x.var(0)", "torch.zeros_like(x)",
    "x.pow(2).mean(-1, keepdim=True)", "torch.stack([x, x])", "x.argmax(-1)", "x.cumsum(0)", "x.tril()", "x.double()",
    "x.expand(3, 4, 6)", "x.masked_fill(x > 0, 0.0)", "torch.where(x > 0, x, x * 2)", "x @ x.t()", "x.t() @ x", "x.new_zeros(3)",
    "x.sum() + x.sum()", "x.sum() * 2", "x.sum() + 1", "x.clone().add_(1)", "x.sum(0) * x", "torch.log_softmax(x, 0)",
    "torch.nn.functional.layer_norm(x, (6,))", "x.topk(2)[0]", "x.movedim(0, 1)", "x.squeeze(0)", "x.repeat(2, 1)",
)  # fmt: skip


@case
def tensor_ops(w: World) -> Any:
    """Each op on each placement: where PyTorch has the result, and its values."""
    t, mesh = part(w, "tensor"), mesh_of(w)
    values = w.torch.arange(24.0).view(4, 6).sin().to(w.device)
    found: dict[str, Any] = {}
    for placement in (t.Shard(0), t.Shard(1), t.Replicate()):
        x = t.distribute_tensor(values, mesh, [placement])
        for text in OPS:
            result = eval(text, {"x": x, "torch": w.torch})
            found[f"{placement} {text}"] = str(result.placements), list(result.shape), result.full_tensor()
    return found


@case
def tensor_moves(w: World) -> Any:
    """Every placement to every other, of lengths that divide and of such that do not; gradients go the way back."""
    t, mesh = part(w, "tensor"), mesh_of(w)
    places = {"S0": t.Shard(0), "S1": t.Shard(1), "R": t.Replicate()}
    found: dict[str, Any] = {}
    for shape in ((4, 6), (5, 3), (1, 2)):
        x = w.torch.arange(float(shape[0] * shape[1])).view(shape).to(w.device)
        for a in places:
            for b in places:
                moved = t.distribute_tensor(x, mesh, [places[a]]).redistribute(placements=[places[b]])
                found[f"{shape} {a} {b}"] = moved.to_local(), moved.full_tensor()
    local = (w.mine(3, 4) + 0.5).requires_grad_()
    total = t.DTensor.from_local(local, mesh, [t.Partial()])
    shards = total.redistribute(placements=[t.Shard(1)])
    (shards * shards).sum().full_tensor().backward()
    largest = t.DTensor.from_local(local.detach(), mesh, [t.Partial("max")]).full_tensor()
    return found, shards.to_local(), local.grad, largest


@case
def tensor_refusals(w: World) -> Any:
    t, mesh = part(w, "tensor"), mesh_of(w)
    x = t.distribute_tensor(w.torch.ones(4, device=w.device), mesh, [t.Shard(0)])

    def refused(call: Any) -> Any:
        try:
            return str(call())
        except Exception as error:
            return type(error).__name__, str(error).partition(" ")[2]

    return [refused(call) for call in (
        lambda: x + w.torch.ones(4, device=w.device), lambda: x.redistribute(placements=[t.Partial()]), lambda: x.tolist(),
        lambda: t.distribute_tensor(w.torch.ones(4), mesh, [t.Shard(3)]), lambda: x.numpy(),
        lambda: t.DTensor.from_local(w.torch.ones(2, 3), mesh, [t.Shard(5)]), lambda: t.distribute_tensor(x, mesh, [t.Replicate()]),
    )]  # fmt: skip


@case
def tensor_copies(w: World) -> Any:
    """A distributed tensor in a file and as a copy."""
    import copy
    import io

    t, mesh = part(w, "tensor"), mesh_of(w)
    x = t.distribute_tensor(w.torch.arange(6.0).to(w.device), mesh, [t.Shard(0)])
    file = io.BytesIO()
    w.torch.save({"x": x}, file)
    file.seek(0)
    again = w.torch.load(file, weights_only=False)["x"]
    return [(str(y.placements), y.to_local(), y.full_tensor()) for y in (copy.deepcopy(x), again)]


# ---- tensor parallelism ---------------------------------------------------------------------------------------------------
def divide(w: World, model: Any, sequence: bool, mesh: Any = None) -> Any:
    """The plan of a transformer, with the parts between on parts of the sequence or on the whole of it."""
    t, p = part(w, "tensor"), part(w, "tensor.parallel")
    shard, all_of_it = t.Shard(1), t.Replicate()
    between = shard if sequence else all_of_it
    plan: dict[str, Any] = {
        "tokens": p.RowwiseParallel(input_layouts=all_of_it, output_layouts=between, use_local_output=not sequence),
        "blocks.*.attention": p.PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(all_of_it,)),
        "blocks.*.attention.q": p.ColwiseParallel(), "blocks.*.attention.k": p.ColwiseParallel(),
        "blocks.*.attention.v": p.ColwiseParallel(),
        "blocks.*.attention.o": p.RowwiseParallel(output_layouts=between, use_local_output=not sequence),
        "blocks.*.up": p.ColwiseParallel(input_layouts=between),
        "blocks.*.down": p.RowwiseParallel(output_layouts=between, use_local_output=not sequence),
        "logits": p.ColwiseParallel(input_layouts=between, output_layouts=all_of_it),
    }  # fmt: skip
    if sequence:
        plan |= {"norm": p.SequenceParallel(), "blocks.*.norm1": p.SequenceParallel(), "blocks.*.norm2": p.SequenceParallel()}
    return p.parallelize_module(model, mesh or mesh_of(w), plan)


@case
def plain_transformer(w: World) -> Any:
    return train(w, transformer(w)), train(w, transformer(w), clip=False)


@case
def tensor_parallel(w: World) -> Any:
    return train(w, divide(w, transformer(w), sequence=False), clip=False)


@case
def sequence_parallel(w: World) -> Any:
    model = divide(w, transformer(w), sequence=True)
    losses = train(w, model)
    return losses, {name: str(p.placements) for name, p in model.named_parameters()}


@case
def sharded_loss(w: World) -> Any:
    t, p = part(w, "tensor"), part(w, "tensor.parallel")
    values = w.torch.randn(5, 8, generator=w.torch.Generator().manual_seed(1)).to(w.device)
    logits = t.distribute_tensor(values, mesh_of(w), [t.Shard(1)]).requires_grad_()
    target = w.torch.tensor([0, 7, 3, -100, 4], device=w.device)
    with p.loss_parallel():
        loss = w.torch.nn.functional.cross_entropy(logits, target)
        loss.backward()
    return str(loss.placements), loss.to_local(), str(logits.grad.placements), logits.grad.full_tensor()


# ---- fully_shard ----------------------------------------------------------------------------------------------------------
def shard(w: World, model: Any, **settings: Any) -> Any:
    f = part(w, "fsdp")
    settings.setdefault("mesh", mesh_of(w))
    for block in model.blocks:
        f.fully_shard(block, **settings)
    return f.fully_shard(model, **settings)


@case
def fully_sharded(w: World) -> Any:
    model = shard(w, transformer(w))
    before = {name: (str(p.placements), list(p.to_local().shape)) for name, p in model.named_parameters()}
    losses = train(w, model, divided=True)
    return losses, before, type(model).__name__, [whole(p.grad).sum() for n, p in model.named_parameters() if "k.bias" not in n]


@case
def fully_sharded_settings(w: World) -> Any:
    """Every way of keeping and gathering gives the same losses."""
    f = part(w, "fsdp")
    found = []
    for after_forward in (True, False):
        model = shard(w, transformer(w), reshard_after_forward=after_forward)
        model.set_modules_to_forward_prefetch([model.blocks[0]])
        model.blocks[1].set_modules_to_backward_prefetch([model.blocks[0]])
        found.append(train(w, model, divided=True))
    by_columns = shard(w, transformer(w), shard_placement_fn=lambda p: part(w, "tensor").Shard(p.dim() - 1))
    found.append(train(w, by_columns, divided=True))
    return found, isinstance(model.blocks[0], f.FSDPModule), str(by_columns.logits.weight.placements)


@case
def fully_sharded_accumulation(w: World) -> Any:
    model = shard(w, transformer(w))
    optimizer = w.torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model.set_requires_gradient_sync(step % 2 == 1)
        tokens, wanted = text(w, step, True)
        w.torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten()).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    return [whole(p).sum() for p in model.parameters()]


@case
def fully_sharded_uneven(w: World) -> Any:
    """Lengths that do not divide, a parameter in two places, one that is frozen and one that is not used."""
    torch, nn = w.torch, w.torch.nn

    class Odd(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.frozen, self.unused = nn.Linear(3, 5), nn.Linear(5, 3), nn.Linear(3, 3), nn.Linear(1, 1)
            self.c = nn.Linear(3, 5)
            self.c.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.c(self.frozen(self.b(self.a(x).tanh())))

    torch.manual_seed(5)
    model = Odd().to(w.device)
    model.frozen.requires_grad_(False)
    part(w, "fsdp").fully_shard(model, mesh=mesh_of(w))
    x = torch.linspace(0, 1, 12).view(4, 3)[w.rank * 2:w.rank * 2 + 2].to(w.device)
    model(x).pow(2).mean().backward()
    shapes = [list(p.to_local().shape) for p in model.parameters()]
    used = [whole(p.grad) for name, p in model.named_parameters() if p.grad is not None and "unused" not in name]
    return shapes, used, len(list(model.parameters())), sorted(model.state_dict())


@case
def fully_sharded_precision(w: World) -> Any:
    f, torch = part(w, "fsdp"), w.torch
    policy = f.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model, mesh = transformer(w), mesh_of(w)
    for block in model.blocks:
        f.fully_shard(block, mesh=mesh, mp_policy=policy)
    f.fully_shard(model, mesh=mesh, mp_policy=f.MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32))
    seen = []
    model.blocks[0].up.register_forward_pre_hook(lambda m, args: seen.append((str(args[0].dtype), str(m.weight.dtype))))
    losses = train(w, model, divided=True, steps=2)
    kinds = {str(p.dtype) for p in model.parameters()} | {str(p.grad.dtype) for p in model.parameters()}
    return seen[0], sorted(kinds), [round(float(loss), 1) for loss in losses]


@case
def fully_sharded_checkpoint(w: World) -> Any:
    """What fully_shard has divided, loaded into a plain model and back."""
    c, d = part(w, "checkpoint"), part(w, "checkpoint.state_dict")
    model = shard(w, transformer(w))
    optimizer = w.torch.optim.AdamW(model.parameters(), lr=0.02)
    train(w, model, optimizer, divided=True, steps=1)
    folder = sys.argv[6] + ".sharded"
    c.save(dict(zip(("model", "optimizer"), d.get_state_dict(model, optimizer))), checkpoint_id=folder)
    goes_on = train(w, model, optimizer, divided=True, steps=2)
    other = shard(w, transformer(w), reshard_after_forward=False)
    again = w.torch.optim.AdamW(other.parameters(), lr=0.5)
    loaded = dict(zip(("model", "optimizer"), d.get_state_dict(other, again)))
    c.load(loaded, checkpoint_id=folder)
    d.set_state_dict(other, again, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    return goes_on, train(w, other, again, divided=True, steps=2)


def by_rows(w: World, model: Any, row: int, rows: int, steps: int = 3) -> Any:
    """Losses where rows of a mesh share a batch, each all of its row's ranks."""
    optimizer = w.torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        tokens, wanted = (x.chunk(rows)[row] for x in text(w, step))
        optimizer.zero_grad()
        loss = w.torch.nn.functional.cross_entropy(whole(model(tokens)).flatten(0, 1), wanted.flatten())
        loss.backward()
        w.torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        w.dist.all_reduce(mean)
        losses.append(mean / w.size)
    return losses


@case
def four_ranks(w: World) -> Any:
    """Two replicas of two shards; and shards of what tensor parallelism has divided."""
    kind = w.device.partition(":")[0]
    replicas = w.dist.init_device_mesh(kind, (2, 2), mesh_dim_names=("replicate", "shard"))
    first = train(w, shard(w, transformer(w), mesh=replicas), divided=True)
    mesh = w.dist.init_device_mesh(kind, (2, 2), mesh_dim_names=("dp", "tp"))
    model = shard(w, divide(w, transformer(w), sequence=True, mesh=mesh["tp"]), mesh=mesh["dp"])
    second = by_rows(w, model, w.rank // 2, 2)
    return first, second, [str(p.placements) for p in (model.blocks[0].up.weight, model.blocks[0].down.weight)]


@case
def wrapped(w: World) -> Any:
    """FullyShardedDataParallel: parts below, whole tensors in its state dict."""
    f, wrap = part(w, "fsdp"), part(w, "fsdp.wrap")
    plain = transformer(w)
    policy = wrap.ModuleWrapPolicy({type(plain.blocks[0])})
    device = w.torch.device(w.device)
    model = f.FullyShardedDataParallel(plain, auto_wrap_policy=policy, device_id=device, use_orig_params=True)
    optimizer = w.torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for step in range(3):
        tokens, wanted = text(w, step, True)
        optimizer.zero_grad()
        loss = w.torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        mean = loss.detach().clone()
        w.dist.all_reduce(mean)
        losses.append(mean / w.size)
    state = model.state_dict()
    saved = {name: value.double().sum() for name, value in state.items() if "k.bias" not in name}
    other = f.FullyShardedDataParallel(transformer(w), auto_wrap_policy=policy, device_id=device, use_orig_params=True)
    told = str(other.load_state_dict(state))
    with w.torch.no_grad():
        same = bool((other(text(w, 9)[0]) == model(text(w, 9)[0])).all())
    return losses, norm, saved, told, same, len(f.FullyShardedDataParallel.fsdp_modules(model))


@case
def wrapped_local(w: World) -> Any:
    """LOCAL_STATE_DICT: the parts of a rank without their places, and back."""
    f, nn = part(w, "fsdp").FullyShardedDataParallel, w.torch.nn
    policy, kind = part(w, "fsdp.wrap").ModuleWrapPolicy({nn.Linear}), part(w, "fsdp").StateDictType.LOCAL_STATE_DICT
    one, two = (f(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)).to(w.device), auto_wrap_policy=policy,
                  device_id=w.torch.device(w.device)) for _ in range(2))
    with f.state_dict_type(one, kind):
        state = one.state_dict()
    with f.state_dict_type(two, kind):
        settings = type(f.get_state_dict_type(two).state_dict_config).__name__
        two.load_state_dict({name: value.clone() for name, value in state.items()})
        try:
            two.load_state_dict({name: value[:0] for name, value in state.items()})
        except RuntimeError as error:
            settings += " is loaded by the number of ranks that saved it" * ("the number of ranks" in str(error))
    same = [bool((whole(a) == whole(b)).all()) for a, b in zip(one.parameters(), two.parameters())]
    return {name: (type(value).__name__, list(value.shape)) for name, value in state.items()}, settings, same


@case
def summoned(w: World) -> Any:
    """Whole parameters and gradients of a wrapped module, looked at and written to."""
    f, nn = part(w, "fsdp"), w.torch.nn
    device = w.torch.device(w.device)
    w.torch.manual_seed(4)
    model = f.FullyShardedDataParallel(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).to(w.device), device_id=device,
                                       use_orig_params=True)
    model(w.mine(4, 3)).sum().backward()
    whole = f.FullyShardedDataParallel.summon_full_params
    with whole(model, with_grads=True):
        seen = [(list(p.shape), p.detach().double().sum(), p.grad.double().sum()) for p in model.parameters()]
        with w.torch.no_grad():
            for p in model.parameters():
                p.fill_(w.torch.arange(p.numel(), dtype=p.dtype)[0].item() + 2)
                p.grad.mul_(2)
    with whole(model, writeback=False, with_grads=True), w.torch.no_grad():
        after = [(p.detach().double().sum(), p.grad.double().sum()) for p in model.parameters()]
        for p in model.parameters():
            p.zero_()
    try:
        with whole(model, rank0_only=True):
            pass
        refused = None
    except NotImplementedError:
        refused = True
    return seen, after, refused


@case
def summoned_on_one(w: World) -> Any:
    """Whole parameters in the host's memory of the first rank; PyTorch's process crashes here, without an npu or a GPU."""
    f, nn = part(w, "fsdp"), w.torch.nn
    model = f.FullyShardedDataParallel(nn.Linear(3, 5).to(w.device), device_id=w.torch.device(w.device))
    with w.torch.no_grad():
        for p in model.parameters():
            p.fill_(2)
    with f.FullyShardedDataParallel.summon_full_params(model, rank0_only=True, writeback=False, offload_to_cpu=True):
        return [(p.device.type, list(p.shape), float(p.detach().sum())) for p in model.parameters()] if w.rank == 0 else None


@case
def context_parallel(w: World) -> Any:
    """Attention over a divided sequence: outputs and gradients, against those of one process."""
    t, F = w.torch, w.torch.nn.functional
    mesh = w.dist.init_device_mesh(w.torch.device(w.device).type, (w.size,))
    attention, told = w.dist.tensor.experimental._attention, []
    ways = ((True, True, 2), (True, False, 4), (False, True, 4))
    for method, (causal, balanced, heads) in ((method, way) for method in ("allgather", "alltoall") for way in ways):
        attention.set_rotate_method(method)
        t.manual_seed(7)
        sizes = ((2, 4, 8, 6), (2, heads, 8, 6), (2, heads, 8, 6))
        q, k, v, weight = (t.randn(*size).to(w.device) for size in (*sizes, sizes[0]))
        wholes = [x.clone().requires_grad_() for x in (q, k, v)]
        F.scaled_dot_product_attention(*wholes, is_causal=causal, enable_gqa=heads != 4).mul(weight).sum().backward()
        want = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != 4)
        attention._cp_options.enable_load_balance = balanced
        with attention.context_parallel(mesh, buffers=[q, k, v, weight], buffer_seq_dims=[2] * 4, no_restore_buffers={weight}):
            parts = [x.clone().requires_grad_() for x in (q, k, v)]
            got = F.scaled_dot_product_attention(*parts, is_causal=causal, enable_gqa=heads != 4)
            got.mul(weight).sum().backward()
            found = attention.context_parallel_unshard(mesh, [got.detach(), *(x.grad for x in parts)], [2] * 4)
        right = [bool(t.allclose(a, b, atol=1e-5)) for a, b in zip(found, [want, *(x.grad for x in wholes)])]
        told.append([right, list(q.shape), list(weight.shape), bool((q == wholes[0]).all())])
    attention._cp_options.enable_load_balance = True
    attention.set_rotate_method("allgather")
    return told


@case
def saved_parts(w: World) -> Any:
    """DTensors in a file that is loaded with weights_only."""
    d, t = part(w, "tensor"), w.torch
    mesh = w.dist.init_device_mesh(w.torch.device(w.device).type, (w.size,))
    one = d.distribute_tensor(w.mine(4, 3), mesh, [d.Shard(1)])
    path = f"{sys.argv[6]}.part.{w.rank}"
    t.save({"one": one, "param": t.nn.Parameter(d.distribute_tensor(w.mine(3), mesh, [d.Replicate()]))}, path)
    got = t.load(path, weights_only=True)
    return got["one"].full_tensor(), str(got["one"].placements), got["param"].to_local(), bool(got["param"].requires_grad)


# ---- checkpoints ----------------------------------------------------------------------------------------------------------
def trained(w: World) -> tuple[Any, Any]:
    model = divide(w, transformer(w), sequence=True)
    optimizer = w.torch.optim.AdamW(model.parameters(), lr=0.02)
    train(w, model, optimizer, steps=2)
    return model, optimizer


@case
def checkpoint_moves(w: World) -> Any:
    """Saved divided, loaded into a model that is divided otherwise: it goes on as the first does."""
    c, d = part(w, "checkpoint"), part(w, "checkpoint.state_dict")
    folder = sys.argv[6] + ".checkpoint"
    model, optimizer = trained(w)
    states = dict(zip(("model", "optimizer"), d.get_state_dict(model, optimizer)))
    c.save(states | {"step": 2, "names": ["a", {"b": 1.5}]}, checkpoint_id=folder)
    goes_on = train(w, model, optimizer, steps=2)

    other = transformer(w)
    w.torch.nn.init.zeros_(other.logits.weight)
    again = w.torch.optim.AdamW(other.parameters(), lr=0.5)
    loaded = dict(zip(("model", "optimizer"), d.get_state_dict(other, again))) | {"step": 0, "names": ["", {"b": 0}]}
    c.load(loaded, checkpoint_id=folder)
    d.set_state_dict(other, again, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    return goes_on, train(w, other, again, steps=2), loaded["step"], loaded["names"], sorted(loaded["optimizer"])


@case
def checkpoint_whole(w: World) -> Any:
    """Whole tensors out of divided ones, and into them, from rank 0 alone too."""
    d = part(w, "checkpoint.state_dict")
    model, optimizer = trained(w)
    options = d.StateDictOptions(full_state_dict=True)
    states = d.get_state_dict(model, optimizer, options=options)
    # Softmax does not see the bias of the keys: its gradient is noise, of which AdamW makes whole steps.
    told = [{name: value.double().sum() for name, value in states[0].items() if "k.bias" not in name}, sorted(states[1]["state"])]
    on_cpu = d.get_model_state_dict(model, options=d.StateDictOptions(full_state_dict=True, cpu_offload=True))
    other = divide(w, transformer(w), sequence=False)
    given = states[0] if w.rank == 0 else {}
    d.set_model_state_dict(other, given, options=d.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    flat = d.get_optimizer_state_dict(model, optimizer, options=d.StateDictOptions(flatten_optimizer_state_dict=True))
    return told, sorted(on_cpu), sorted(flat), [
        whole(p).double().sum() for name, p in other.named_parameters() if "k.bias" not in name]


@case
def checkpoint_safetensors(w: World) -> Any:
    """Shards of two ranks as files of safetensors, put together, and read divided otherwise."""
    t, c, folder = part(w, "tensor"), part(w, "checkpoint"), sys.argv[6] + ".safetensors"
    full = w.torch.arange(24.0).reshape(6, 4)
    rows, columns = (t.distribute_tensor(full.to(w.device, dtype), mesh_of(w), [t.Shard(dim)])
                     for dim, dtype in enumerate((w.torch.float32, w.torch.bfloat16)))
    writer = c.HuggingFaceStorageWriter(folder, {"rows": 1, "columns": 2}, save_distributed=True, enable_consolidation=True)
    c.save({"rows": rows, "columns": columns}, storage_writer=writer)
    w.dist.barrier()
    turned = [{"rows": rows.redistribute(placements=[t.Shard(1)]) * 0, "columns": columns * 0} for _ in range(2)]
    for into, place in zip(turned, (folder, folder + "/sharded")):
        c.load(into, storage_reader=c.HuggingFaceStorageReader(place))
    found = [[bool((whole(x).cpu() == full).all()) for x in into.values()] for into in turned]
    return found, sorted(os.listdir(folder)), sorted(os.listdir(folder + "/sharded"))


@case
def checkpoint_later(w: World) -> Any:
    """async_save: what the program changes afterwards is not in it."""
    t, c = part(w, "tensor"), part(w, "checkpoint")
    folder = sys.argv[6] + ".later"
    x = t.distribute_tensor(w.torch.arange(6.0).to(w.device), mesh_of(w), [t.Shard(0)])
    group = w.dist.new_group(backend="gloo") if w.torch.__name__ == "torch" else None  # it saves with collectives, in its thread
    future = c.async_save({"x": x, "n": 1}, checkpoint_id=folder, process_group=group)
    x.mul_(0)
    w.dist.all_reduce(w.mine(3))
    future.result()
    w.dist.barrier()
    c.load({"x": x}, checkpoint_id=folder)
    return x.full_tensor()


@case
def checkpoint_fails(w: World) -> Any:
    """A rank whose disk is full: the error on every rank names it, and the previous checkpoint stays."""
    import errno

    c, t, folder = part(w, "checkpoint"), part(w, "tensor"), sys.argv[6] + ".fails"
    x = t.DTensor.from_local(w.mine(4), mesh_of(w), [t.Shard(0)])

    class Full(c.DefaultSavePlanner):  # type: ignore[name-defined, misc]
        def resolve_data(self, item: Any) -> Any:
            if w.rank == w.size - 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().resolve_data(item)

    c.save({"x": x}, checkpoint_id=folder)
    before = sorted(os.listdir(folder))
    try:
        c.save({"x": x * 2}, checkpoint_id=folder, planner=Full())
        told: Any = None
    except c.CheckpointException as error:
        told = {str(rank): str(one[0]) for rank, one in error.failures.items()}
    w.dist.barrier()
    y = {"x": x * 0}
    c.load(y, checkpoint_id=folder)
    return told, before == sorted(os.listdir(folder)), bool((whole(y["x"]) == whole(x)).all())


if __name__ == "__main__":
    dist_cases.run(sys.argv[1:])
