"""torch.storage: the classes of storages under the name torch has for them, and what is said of those that will go."""
from mindtorch_v2 import _deferred
from mindtorch_v2._legacy import _LegacyStorage as _LegacyStorage
from mindtorch_v2._legacy import storage_types
from mindtorch_v2._storage import UntypedStorage
from mindtorch_v2._typed_storage import TypedStorage  # noqa: F401
from mindtorch_v2._typed_storage import always_warns as _get_always_warn_typed_storage_removal  # noqa: F401
from mindtorch_v2._typed_storage import reset_removal as _reset_warn_typed_storage_removal  # noqa: F401
from mindtorch_v2._typed_storage import set_always_warns as _set_always_warn_typed_storage_removal  # noqa: F401
from mindtorch_v2._typed_storage import warn_of_removal as _warn_typed_storage_removal  # noqa: F401

_StorageBase = UntypedStorage


def _dtype_to_storage_type_map() -> dict[object, str]:
    """The name of the class of storages that each dtype had."""
    return {kind.dtype: name for name, kind in storage_types.items()}   # type: ignore[attr-defined]


def _storage_type_to_dtype_map() -> dict[str, object]:
    """The dtype of each class of storages, by its name."""
    return {name: kind.dtype for name, kind in storage_types.items()}   # type: ignore[attr-defined]


_deferred.defer(__name__, {"_load_from_bytes": "serialization"})
