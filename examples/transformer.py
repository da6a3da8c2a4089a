"""Trains a small transformer to continue a text, letter by letter, on an npu (or on the cpu, or with PyTorch).

The same script runs on mindtorch_v2 and on PyTorch; with one seed the losses agree on every device.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING or not {"torch", "--backend=torch"} & set(sys.argv):
    import mindtorch_v2 as torch
else:
    import torch  # --backend torch: the same program on PyTorch

TEXT = Path(__file__).resolve().parent.parent / "LICENSE"


class Block(torch.nn.Module):
    """Causal attention and a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        nn = torch.nn
        self.width, self.heads = width, heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, self.width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, self.width))
        fed: torch.Tensor = self.feed(self.norm2(x))
        return x + fed


class Model(torch.nn.Module):
    """A decoder: embeddings, blocks, a head over the letters."""

    def __init__(self, letters: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        nn = torch.nn
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        logits: torch.Tensor = self.head(self.norm(self.blocks(self.letter(tokens) + self.place(places))))
        return logits


def train(device: str, steps: int, seed: int, batch: int = 8, length: int = 64, width: int = 128,
          layers: int = 2) -> list[float]:  # fmt: skip
    """Train with AdamW and return the loss of every step."""
    torch.manual_seed(seed)
    text = TEXT.read_text()
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(c) for c in text])
    model = Model(len(letters), width, 4, layers, length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    begin = time.perf_counter()
    for step in range(steps):
        starts = torch.randint(0, len(tokens) - length - 1, (batch,)).tolist()
        given = torch.stack([tokens[s : s + length] for s in starts]).to(device)
        wanted = torch.stack([tokens[s + 1 : s + 1 + length] for s in starts]).to(device)
        loss = torch.nn.functional.cross_entropy(model(given).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        speed = (step + 1) * batch * length / (time.perf_counter() - begin)
        show_progress(step + 1, steps, losses[-1], speed)
    return losses


def show_progress(step: int, steps: int, loss: float, speed: float) -> None:
    """One line that is written over on a terminal, and only its last state elsewhere."""
    if sys.stderr.isatty() or step == steps:
        bar = "=" * (30 * step // steps)
        end = "\n" if step == steps else ""
        text = f"\r[{bar:<30}] step {step}/{steps}  loss {loss:.4f}  {speed:,.0f} tokens/s"
        print(text, end=end, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["mindtorch_v2", "torch"], default="mindtorch_v2")
    parser.add_argument("--device", default="npu")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--curve", action="store_true", help="print the loss of every step")
    args = parser.parse_args()
    on_npu = args.device.startswith("npu")
    name = torch.npu.get_device_name(args.device) if on_npu else "the host's processor"
    print(f"{args.backend} {torch.__version__} on {args.device}: {name}")
    losses = train(args.device, args.steps, args.seed)
    if args.curve:
        print(*(f"{loss:.8f}" for loss in losses), sep="\n")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    if on_npu:
        print(torch.npu.memory_summary(args.device, abbreviated=True))


if __name__ == "__main__":
    main()
