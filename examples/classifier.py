"""Trains a small convolutional network on pictures that the script draws: circles, squares, triangles and crosses."""

from __future__ import annotations

import argparse

import mindtorch_v2 as torch

SIZE = 24
SHAPES = ("circle", "square", "triangle", "cross")


def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures [count, 1, 24, 24] with noise, and which shape each shows."""
    labels = torch.randint(0, len(SHAPES), (count,))
    radius = torch.rand(count, 1, 1) * 4 + 4
    centre = torch.rand(2, count, 1, 1) * 8 + 8
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    dx, dy = x - centre[0], y - centre[1]
    drawn = torch.stack((
        dx * dx + dy * dy <= radius * radius,
        (dx.abs() <= radius * 0.9) & (dy.abs() <= radius * 0.9),
        (dy <= radius * 0.8) & (dy - 2 * dx.abs() >= -radius),
        ((dx.abs() < 2) & (dy.abs() <= radius)) | ((dy.abs() < 2) & (dx.abs() <= radius)),
    ))  # fmt: skip
    pictures = drawn[labels, torch.arange(count)].float() + 0.15 * torch.randn(count, SIZE, SIZE)
    return pictures[:, None], labels


def network() -> torch.nn.Module:
    """Two convolutions with batch norm, and a linear layer."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 6 * 6, len(SHAPES)),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="npu")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    pictures, labels = draw(768)
    data = torch.utils.data.TensorDataset(pictures[:640], labels[:640])
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
    model = network().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros((), device=args.device)  # summed on the device: item() would make the host wait every step
        for batch, wanted in loader:
            loss = torch.nn.functional.cross_entropy(model(batch.to(args.device)), wanted.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        model.eval()
        with torch.no_grad():
            found = model(pictures[640:].to(args.device)).argmax(1).cpu()
        right = (found == labels[640:]).float().mean().item()
        print(f"epoch {epoch + 1}  loss {total.item() / len(loader):.3f}  accuracy on new pictures {right:.1%}")


if __name__ == "__main__":
    main()
