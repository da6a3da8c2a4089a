"""torch.utils._content_store: tensors in a folder, each storage once, under a hash of its bytes."""
from __future__ import annotations

import hashlib
import os
from typing import Any

import mindtorch_v2 as torch


def hash_storage(storage: Any, *, stable_hash: bool = False) -> str:
    """A hash of the bytes of a storage: 40 digits, SHA-1."""
    if storage.device.type == "meta":
        raise NotImplementedError("a storage on the meta device has no bytes")
    content = storage.cpu()
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(torch.tensor([], dtype=torch.uint8).set_(content).numpy().tobytes())
    return digest.hexdigest()


class ContentStoreWriter:
    """Writes into a folder."""

    def __init__(self, loc: str, stable_hash: bool = False) -> None:
        self.loc, self.stable_hash = loc, stable_hash
        self.seen_storage_hashes: set[str] = set()

    def write_storage(self, storage: Any) -> str:
        """The hash of a storage, whose bytes are in the folder now."""
        name = hash_storage(storage, stable_hash=self.stable_hash)
        if name in self.seen_storage_hashes:
            return name
        place = os.path.join(self.loc, "storages", name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.exists(place):
            torch.save(storage, place)
        self.seen_storage_hashes.add(name)
        return name

    def compute_tensor_metadata(self, t: Any, h: str | None = None) -> tuple[Any, ...]:
        """What a tensor is beside its bytes."""
        if h is None:
            h = hash_storage(t.untyped_storage(), stable_hash=self.stable_hash)
        return t.dtype, h, t.storage_offset(), tuple(t.shape), t.stride(), torch._C._get_tensor_metadata(t)  # type: ignore[attr-defined]

    def write_tensor(self, name: str, t: Any) -> None:
        """A tensor under a name."""
        metadata = self.compute_tensor_metadata(t, h=self.write_storage(t.untyped_storage()))
        place = os.path.join(self.loc, "tensors", name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        torch.save(metadata, place)


class ContentStoreReader:
    """Reads from such a folder; tensors of one storage share it."""

    def __init__(self, loc: str, *, cache: bool = True) -> None:
        self.loc = loc
        self.storage_cache: dict[Any, dict[str, Any]] | None = {} if cache else None

    def read_storage(self, h: str, *, device: Any = None) -> Any:
        """The storage with a hash, on a device."""
        where = torch.device(device) if device is not None else None
        cached = self.storage_cache.setdefault(where, {}) if self.storage_cache is not None else {}
        if h not in cached:
            cached[h] = torch.load(os.path.join(self.loc, "storages", h), weights_only=True,
                                   map_location=where)._untyped_storage
        return cached[h]

    def read_tensor_metadata(self, name: str) -> tuple[Any, ...]:
        """What a tensor is beside its bytes."""
        place = os.path.join(self.loc, "tensors", name)
        if not os.path.exists(place):
            raise FileNotFoundError(place)
        metadata: tuple[Any, ...] = torch.load(place, weights_only=True)
        return metadata

    def read_tensor(self, name: str, *, device: Any = None) -> Any:
        """The tensor under a name."""
        dtype, h, storage_offset, shape, stride, marks = self.read_tensor_metadata(name)
        storage = self.read_storage(h, device=device)
        t = torch.tensor([], dtype=dtype, device=storage.device)
        t.set_(storage, storage_offset, shape, stride)
        for mark, value in marks.items():        # that it stands for its conjugate, or its negative
            getattr(torch._C, f"_set_{mark}")(t, value)
        return t
