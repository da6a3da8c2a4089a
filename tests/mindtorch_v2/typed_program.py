"""A program that asserts the types of expressions. It is not run: mypy and pyright check it against the stubs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import mindtorch_v2 as torch
from mindtorch_v2 import nn, optim
from mindtorch_v2.nn import functional as F
from mindtorch_v2.utils.data import DataLoader, TensorDataset

x = torch.randn(2, 3, requires_grad=True, device="cpu", dtype=torch.float32)
assert_type(x, torch.Tensor)
assert_type(torch.add(x, 1, alpha=2), torch.Tensor)
assert_type(1 - x * x @ x.T / 2, torch.Tensor)
assert_type(x == x, torch.Tensor)
assert_type(x[0, :, None], torch.Tensor)
assert_type(x.view(3, 2), torch.Tensor)
assert_type(x.view((3, 2)), torch.Tensor)
assert_type(x.view(torch.int32), torch.Tensor)
assert_type(x.to("npu", torch.float16), torch.Tensor)
assert_type(x.float().add_(1).detach(), torch.Tensor)
assert_type(torch.max(x), torch.Tensor)
assert_type(torch.max(x, 1).values, torch.Tensor)
values, indices = x.sort(descending=True)
assert_type(values, torch.Tensor)
assert_type(torch.zeros(2, 3), torch.Tensor)
assert_type(torch.tensor([[1.0]], device="npu"), torch.Tensor)
assert_type(torch.einsum("ij,jk->ik", x, x), torch.Tensor)
assert_type(torch.zeros((2, 3), dtype=torch.bool), torch.Tensor)
assert_type(x.chunk(2), tuple[torch.Tensor, ...])
assert_type(x.shape, torch.Size)
assert_type(x.size(0), int)
assert_type(x.dim(), int)
assert_type(x.dtype, torch.dtype)
assert_type(x.device, torch.device)
assert_type(x.device.index, int | None)
assert_type(x.grad, torch.Tensor | None)
assert_type(x.requires_grad, bool)
assert_type(x.sum().item(), int | float | bool)
assert_type(torch.linalg.inv(x), torch.Tensor)
assert_type(torch.linalg.svd(x).S, torch.Tensor)
assert_type(torch.fft.rfft(x, n=4), torch.Tensor)
assert_type(torch.special.expit(x), torch.Tensor)
assert_type(F.gelu(x, approximate="tanh"), torch.Tensor)
assert_type(F.cross_entropy(x, x), torch.Tensor)
assert_type(F.conv2d(x, x, padding=(1, 1)), torch.Tensor)
assert_type(torch.npu.is_available(), bool)
assert_type(torch.npu.current_stream().query(), bool)
assert_type(torch.__version__, torch.torch_version.TorchVersion)
assert_type(torch.inf, float)
assert_type(torch.manual_seed(0), torch.Generator)


class Net(nn.Module):
    """A subclass keeps its own types."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layer(x))


net = Net()
assert_type(net.layer, nn.Linear)
assert_type(net.layer.weight, nn.Parameter)
assert_type(net.parameters(), Iterator[nn.Parameter])
assert_type(net.state_dict()["layer.weight"], Any)
adam = optim.AdamW(net.parameters(), lr=1e-3)
adam.zero_grad(set_to_none=True)
with torch.no_grad(), torch.autocast("cpu"):
    net(x).sum().backward()
for batch in DataLoader(TensorDataset(x, x), batch_size=2):
    assert_type(batch, Any)

torch.no_such_function(x)  # type: ignore[attr-defined]  # pyright: ignore
x.no_such_method()  # type: ignore[attr-defined]  # pyright: ignore
torch.add(x, "1")  # type: ignore[call-overload]  # pyright: ignore
x.view("1")  # type: ignore[arg-type]  # pyright: ignore
torch.zeros(2, dtype="float32")  # type: ignore[call-overload]  # pyright: ignore
