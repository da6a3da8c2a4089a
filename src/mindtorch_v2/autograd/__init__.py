"""Automatic differentiation: backward, grad, modes, custom functions, checks."""
from mindtorch_v2._C import Node, _core
from mindtorch_v2.autograd import anomaly_mode, forward_ad, functional, grad_mode, graph
from mindtorch_v2.autograd.engine import _calculate_shape, _is_checkpoint_valid, backward, grad
from mindtorch_v2.autograd.function import Function
from mindtorch_v2.autograd.grad_mode import (
    _force_original_view_tracking,
    _unsafe_preserve_version_counter,
    enforce_grad_layout_policy,
    is_view_replay_enabled,
    set_multithreading_enabled,
)
from mindtorch_v2.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from mindtorch_v2.autograd.modes import (
    _profiler_enabled,
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
)
from mindtorch_v2.autograd.variable import Variable

__all__ = ["Variable", "Function", "backward", "grad_mode", "detect_anomaly", "enable_grad", "grad", "gradcheck",
           "gradgradcheck", "inference_mode", "no_grad", "set_detect_anomaly", "set_grad_enabled",
           "set_multithreading_enabled", "enforce_grad_layout_policy", "variable"]
SavedTensor = _core.SavedTensor
