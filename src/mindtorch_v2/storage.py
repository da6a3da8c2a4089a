"""torch.storage: the classes of storages under the name torch has for them."""
from mindtorch_v2._storage import TypedStorage, UntypedStorage  # noqa: F401
