"""Dicts whose keys are tensors: compared by identity, and gone when the tensor is."""
from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import mindtorch_v2 as torch


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to another of the same object, also when that is gone."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)   # type: ignore[call-arg]
        self._id = id(key)

    def __call__(self) -> Any:
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: Any) -> bool:
        mine, its = self(), other() if isinstance(other, weakref.ref) else None
        return mine is its if mine is not None and its is not None else self is other


WeakTensorRefKey = WeakIdRef


class WeakIdKeyDictionary(MutableMapping):
    """A dict by identity that drops a key whose object is gone."""

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        mine = weakref.ref(self)

        def forget(key: Any) -> None:
            found = mine()
            if found is not None:
                found.data.pop(key, None)
        self._forget = forget
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._forget)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: Any) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:       # nothing of that type can be referred to weakly
            return False

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        for reference in list(self.data):
            found = reference()
            if found is not None:
                yield found

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()}

    def copy(self) -> WeakIdKeyDictionary:
        """Another with the same items."""
        made = WeakIdKeyDictionary(ref_type=self.ref_type)
        made.update(self)
        return made


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Any) -> None:
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Any:
        return self.ref()

torch._named.complete(__name__)
