"""Records a training step as a graph once and replays it: one call for the host instead of one for every op."""

from __future__ import annotations

import argparse
import time

import mindtorch_v2 as torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    given, wanted = torch.zeros(16, 32, device="npu"), torch.zeros(16, 1, device="npu")  # a graph reads these addresses

    def step() -> torch.Tensor:
        loss = nn.functional.mse_loss(model(given), wanted)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss

    step()  # once as usual: gradients and constants are made before the capture
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        loss = step()

    last = loss
    for name in ("op by op", "replayed"):
        torch.manual_seed(1)
        begin = time.perf_counter()
        for _ in range(args.steps):
            batch = torch.randn(16, 32)
            given.copy_(batch)
            wanted.copy_(batch.sum(1, keepdim=True))
            if name == "replayed":
                graph.replay()  # writes the loss where it was at the capture
                last = loss
            else:
                last = step()
        torch.npu.synchronize()
        took = (time.perf_counter() - begin) / args.steps
        print(f"{name}: loss {last.item():.4f}, {took * 1e6:.0f} us a step")


if __name__ == "__main__":
    main()
