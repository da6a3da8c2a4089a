"""torch.storage: the classes of storages under the name torch has for them."""
from mindtorch_v2._legacy import _LegacyStorage  # noqa: F401
from mindtorch_v2._storage import UntypedStorage
from mindtorch_v2._typed_storage import TypedStorage  # noqa: F401

_StorageBase = UntypedStorage
