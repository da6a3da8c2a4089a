"""Trains a 2-layer network on synthetic data; the same script runs on mindtorch_v2 and on PyTorch.

With the same seed both start from the same weights and see the same batches, so the losses agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING or not {"torch", "--backend=torch"} & set(sys.argv):
    import mindtorch_v2 as torch
else:
    import torch  # --backend torch: the same program on PyTorch


def make_data(count: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around four centres, and the centre each belongs to."""
    centres = torch.randn(4, features) * 0.5
    labels = torch.randint(0, 4, (count,))
    return centres[labels] + torch.randn(count, features), labels


def train(steps: int, seed: int, hidden: int = 64) -> list[float]:
    """Train with SGD and return the loss of every step."""
    torch.manual_seed(seed)
    points, labels = make_data(1024, 16)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses: list[float] = []
    for step in range(steps):
        chosen = torch.randint(0, len(points), (32,))
        loss = nn.functional.cross_entropy(model(points[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        show_progress(step + 1, steps, losses[-1])
    return losses


def show_progress(step: int, steps: int, loss: float) -> None:
    """One line that is written over on a terminal, and only its last state elsewhere."""
    if sys.stderr.isatty() or step == steps:
        bar = "=" * (30 * step // steps)
        end = "\n" if step == steps else ""
        text = f"\r[{bar:<30}] step {step}/{steps}  loss {loss:.6f}"
        print(text, end=end, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["mindtorch_v2", "torch"], default="mindtorch_v2")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--curve", action="store_true", help="print the loss of every step")
    args = parser.parse_args()
    begin = time.perf_counter()
    losses = train(args.steps, args.seed)
    seconds = time.perf_counter() - begin
    if args.curve:
        print(*(f"{loss:.8f}" for loss in losses), sep="\n")
    print(f"{args.backend}: loss {losses[0]:.6f} -> {losses[-1]:.6f} "
          f"in {args.steps} steps, {seconds:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
