"""torch._subclasses: tensors that are more, or less, than memory."""
from mindtorch_v2._subclasses import meta_utils as meta_utils
from mindtorch_v2._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from mindtorch_v2._subclasses.fake_utils import CrossRefFakeMode

__all__ = ["CrossRefFakeMode", "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
           "UnsupportedFakeTensorException"]
