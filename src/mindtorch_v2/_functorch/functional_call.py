"""torch.func.functional_call and stack_module_state by their names in torch._functorch."""
import mindtorch_v2 as torch

functional_call, stack_module_state = torch.func.functional_call, torch.func.stack_module_state
