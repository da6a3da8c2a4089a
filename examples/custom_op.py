"""Adds an op of one's own, torch.ops.mine.scaled_tanh, with a gradient and a rule for shapes, and uses it on cpu and npu."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


@torch.library.custom_op("mine::scaled_tanh", mutates_args=())
def scaled_tanh(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.tanh(x * scale)


@scaled_tanh.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def keep(ctx: Any, inputs: tuple[torch.Tensor, float], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.scale = inputs[1]


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    (output,) = ctx.saved_tensors
    return grad * ctx.scale * (1 - output * output), None


scaled_tanh.register_autograd(backward, setup_context=keep)


def main() -> None:
    for device in ("cpu", "npu"):
        x = torch.tensor([-1.0, 0.0, 0.5], device=device, requires_grad=True)
        y = torch.ops.mine.scaled_tanh(x, 2.0)
        y.sum().backward()
        print(f"{device}: y = {y.detach().cpu()}, gradient = {x.grad.cpu() if x.grad is not None else None}")
    x64 = torch.randn(4, dtype=torch.float64, requires_grad=True)
    print("gradcheck:", torch.autograd.gradcheck(scaled_tanh, (x64, 2.0)))
    print("on meta:", scaled_tanh(torch.empty(2, 3, device="meta"), 2.0).shape)


if __name__ == "__main__":
    main()
