"""Allocators that a user brings in a shared library, and what makes one of them serve a pool or the whole process."""
from __future__ import annotations

import ctypes


class PluggableAllocator:
    """void* malloc(ssize_t size, int device, aclrtStream stream) and
    void free(void* ptr, ssize_t size, int device, aclrtStream stream) of a shared library."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(path_to_so_file)
        self._malloc = getattr(library, alloc_fn_name)
        self._malloc.restype = ctypes.c_void_p
        self._malloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        self._free = getattr(library, free_fn_name)
        self._free.restype = None
        self._free.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)

    def malloc(self, size: int, device_id: int, stream: int) -> int:
        """Memory, or 0."""
        return self._malloc(size, device_id, stream) or 0

    def free(self, address: int, size: int, device_id: int, stream: int) -> None:
        self._free(address, size, device_id, stream)
