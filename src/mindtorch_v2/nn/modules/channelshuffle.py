"""ChannelShuffle."""

from __future__ import annotations

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Interleaves groups of channels."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
