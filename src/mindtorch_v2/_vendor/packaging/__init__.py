"""torch._vendor.packaging: versions."""
from mindtorch_v2._vendor.packaging import version
