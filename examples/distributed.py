"""Trains the small transformer with DistributedDataParallel, one process a device; start it with the launcher.

    python -m mindtorch_v2.distributed.run --standalone --nproc-per-node 2 examples/distributed.py
"""

from __future__ import annotations

import argparse
import os
import time

from transformer import TEXT, Model, show_progress

import mindtorch_v2 as torch


def train(device: torch.device, steps: int, seed: int, batch: int = 8, length: int = 64, width: int = 128) -> list[float]:
    """Train on this process's share of every batch and return the loss of every step, the mean over all processes."""
    dist = torch.distributed
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)  # one model and one sequence of batches for all
    text = TEXT.read_text()
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(c) for c in text])
    model = torch.nn.parallel.DistributedDataParallel(Model(len(letters), width, 4, 2, length).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    begin = time.perf_counter()
    for step in range(steps):
        starts = torch.randint(0, len(tokens) - length - 1, (batch,)).tolist()[rank::size]
        given = torch.stack([tokens[s : s + length] for s in starts]).to(device)
        wanted = torch.stack([tokens[s + 1 : s + 1 + length] for s in starts]).to(device)
        loss = torch.nn.functional.cross_entropy(model(given).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        if rank == 0:
            show_progress(step + 1, steps, losses[-1], (step + 1) * batch * length / (time.perf_counter() - begin))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["npu", "cpu"], default="npu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    device = torch.device("cpu")
    if args.device == "npu":
        device = torch.device("npu", int(os.environ["LOCAL_RANK"]))
        torch.npu.set_device(device)
    torch.distributed.init_process_group("hccl" if args.device == "npu" else "gloo")
    losses = train(device, args.steps, args.seed)
    if torch.distributed.get_rank() == 0:
        print(f"{torch.distributed.get_world_size()} processes on {args.device}: loss {losses[0]:.4f} -> loss {losses[-1]:.4f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
