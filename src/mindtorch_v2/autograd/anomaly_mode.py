"""torch.autograd.anomaly_mode: anomaly detection under torch's name for its module."""
from mindtorch_v2.autograd.modes import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
