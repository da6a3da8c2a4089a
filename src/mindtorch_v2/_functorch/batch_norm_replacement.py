"""torch.func.replace_all_batch_norm_modules_ by its name in torch._functorch."""
import mindtorch_v2 as torch

replace_all_batch_norm_modules_ = torch.func.replace_all_batch_norm_modules_
