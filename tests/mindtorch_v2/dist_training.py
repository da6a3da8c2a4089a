"""Training with DistributedDataParallel and its friends, as cases for mindtorch_v2 and PyTorch: losses and parameters."""

from __future__ import annotations

import sys
from typing import Any

import dist_cases
from dist_cases import World, case

dist_cases.CASES.clear()


def model(w: World, kind: str = "mlp") -> Any:
    nn = w.torch.nn
    w.torch.manual_seed(7)
    if kind == "norm":
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).to(w.device)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 3)).to(w.device)


def data(w: World, step: int, rows: int = 8) -> tuple[Any, Any]:
    """The rows of this rank of a batch that is the same for any number of ranks."""
    generator = w.torch.Generator().manual_seed(100 + step)
    x, y = w.torch.randn(rows, 6, generator=generator), w.torch.randint(0, 3, (rows,), generator=generator)
    part = slice(w.rank * rows // w.size, (w.rank + 1) * rows // w.size)
    return x[part].to(w.device), y[part].to(w.device)


def train(w: World, net: Any, steps: int = 4, plain: Any = None) -> Any:
    """Losses averaged over ranks, and a sum over the parameters at the end."""
    optimizer = w.torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = data(w, step)
        optimizer.zero_grad()
        loss = w.torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if w.size > 1:
            w.dist.all_reduce(mean, w.dist.ReduceOp.SUM)
        losses.append(mean / w.size)
    return losses, [p.detach().sum() for p in net.parameters()]


def ddp(w: World, net: Any, **kwargs: Any) -> Any:
    return w.torch.nn.parallel.DistributedDataParallel(net, **kwargs) if w.size > 1 else net


@case
def plain(w: World) -> Any:
    return train(w, ddp(w, model(w)))


@case
def small_buckets(w: World) -> Any:
    return train(w, ddp(w, model(w), bucket_cap_mb=0.0005))


@case
def bucket_views(w: World) -> Any:
    return train(w, ddp(w, model(w), gradient_as_bucket_view=True))


@case
def static_graph(w: World) -> Any:
    return train(w, ddp(w, model(w), static_graph=True))


@case
def synced_norm(w: World) -> Any:
    net = w.torch.nn.SyncBatchNorm.convert_sync_batchnorm(model(w, "norm")) if w.size > 1 else model(w, "norm")
    result = train(w, ddp(w, net))
    return result, [b.float() for b in net.buffers()]


@case
def norm_with_buffers(w: World) -> Any:
    """Statistics are broadcast from rank 0: not those of one process."""
    net = model(w, "norm")
    return train(w, ddp(w, net)), net[1].running_mean


@case
def accumulation(w: World) -> Any:
    net = ddp(w, model(w))
    optimizer = w.torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(0, 4, 2):
        with net.no_sync():
            x, y = data(w, step)
            w.torch.nn.functional.cross_entropy(net(x), y).backward()
        x, y = data(w, step + 1)
        w.torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().sum() for p in net.parameters()]


@case
def unused_parameters(w: World) -> Any:
    class Branches(w.torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            nn = w.torch.nn
            self.first, self.left, self.right, self.never = nn.Linear(6, 4), nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 4)

        def forward(self, x: Any, step: int) -> Any:
            side = self.left if (step + w.rank) % 3 else self.right
            return side(self.first(x))

    w.torch.manual_seed(3)
    net = ddp(w, Branches().to(w.device), find_unused_parameters=True)
    seen = []
    for step in range(4):
        x, y = data(w, step)
        net.zero_grad()
        w.torch.nn.functional.cross_entropy(net(x, step), y).backward()
        seen.append([None if p.grad is None else p.grad.sum() for p in net.parameters()])
    return seen


@case
def forgotten_parameters(w: World) -> Any:
    nn = w.torch.nn
    net = ddp(w, nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)]).to(w.device))
    net.module.forward = lambda x: net.module[0](x)
    net(data(w, 0)[0]).sum().backward()
    try:
        net(data(w, 1)[0])
    except RuntimeError as error:
        return str(error)[:90]


@case
def float16_hook(w: World) -> Any:
    net = ddp(w, model(w))
    net.register_comm_hook(None, hooks(w).fp16_compress_hook)
    return train(w, net)


@case
def bfloat16_hook(w: World) -> Any:
    net = ddp(w, model(w))
    net.register_comm_hook(None, hooks(w).bf16_compress_hook)
    return train(w, net)


@case
def own_hook(w: World) -> Any:
    def halves(state, bucket):  # PyTorch reads the annotations
        state.append((bucket.index(), bucket.is_last(), bucket.buffer().numel(), len(bucket.parameters())))
        return w.dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 4)

    net, state = ddp(w, model(w)), []
    net.register_comm_hook(state, halves)
    return train(w, net, steps=2), sorted(state)


def hooks(w: World) -> Any:
    import importlib

    return importlib.import_module(f"{w.torch.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")


@case
def uneven_inputs(w: World) -> Any:
    net = ddp(w, model(w))
    optimizer = w.torch.optim.SGD(net.parameters(), lr=0.1)
    steps = 0
    with net.join():
        for step in range(2 + w.rank):
            x, y = data(w, step)
            optimizer.zero_grad()
            w.torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            steps += 1
    return steps, [p.detach().sum() for p in net.parameters()]


@case
def sampler(w: World) -> Any:
    data_set = list(range(11))
    from_group = w.torch.utils.data.distributed.DistributedSampler(data_set, shuffle=True, seed=5)
    from_group.set_epoch(2)
    return list(from_group), len(from_group)


@case
def power_sgd(w: World) -> Any:
    """A rank as high as the matrices loses nothing, so that it trains as the mean does."""
    import importlib

    power = importlib.import_module(f"{w.torch.__name__}.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")
    net = ddp(w, model(w))
    state = power.PowerSGDState(None, matrix_approximation_rank=6, start_powerSGD_iter=2, min_compression_rate=0.1)
    net.register_comm_hook(state, power.powerSGD_hook)
    return train(w, net)[0]


@case
def sharded_optimizer(w: World) -> Any:
    """The state is divided; what is trained and saved is as without."""
    zero = w.torch.distributed.optim.ZeroRedundancyOptimizer if w.torch.__name__ != "torch" else None
    if zero is None:
        from torch.distributed.optim import ZeroRedundancyOptimizer as zero
    net = ddp(w, model(w))
    optimizer = zero(net.parameters(), w.torch.optim.Adam, lr=0.05)
    for step in range(3):
        x, y = data(w, step)
        optimizer.zero_grad()
        w.torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    saved = optimizer.state_dict() if w.rank == 0 else None
    kept = saved and {str(k): sorted((n, v.sum()) for n, v in state.items()) for k, state in saved["state"].items()}
    return [p.detach().sum() for p in net.parameters()], kept


if __name__ == "__main__":
    dist_cases.run(sys.argv[1:])
