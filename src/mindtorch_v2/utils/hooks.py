"""torch.utils.hooks: handles that take hooks out again."""
import mindtorch_v2 as torch

RemovableHandle = torch.nn.modules._hooks.RemovableHandle
