"""Trains one network in float32 and in mixed precision (autocast and GradScaler) and compares losses and memory."""

from __future__ import annotations

import argparse

import mindtorch_v2 as torch


def train(device: str, dtype: torch.dtype | None, steps: int) -> tuple[float, float, int]:
    """First and last loss, and the most memory; dtype None: float32."""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("npu", enabled=dtype is torch.float16)  # float16 gradients are small: scale the loss
    x, y = torch.randn(512, 64).to(device), torch.randint(0, 8, (512,)).to(device)
    torch.npu.reset_peak_memory_stats(device)
    first = last = 0.0
    for step in range(steps):
        with torch.autocast("npu", dtype=dtype or torch.float16, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        last = loss.item()
        first = first if step else last
    return first, last, torch.npu.max_memory_allocated(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="npu:0")
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    for dtype in (None, torch.float16, torch.bfloat16):
        first, last, most = train(args.device, dtype, args.steps)
        name = "float32" if dtype is None else f"autocast {str(dtype).removeprefix('torch.')}"
        print(f"{name:18}  loss {first:.4f} -> {last:.4f}  peak memory {most / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
