"""Addresses reserved on a device, and the physical memory mapped into them: what expandable segments are made of."""
from __future__ import annotations

import warnings
from typing import Any

from mindtorch_v2._backends.npu import errors, runtime

_HUGE_PAGES, _HUGE_PAGES_1G = 4, 10               # ACL_HBM_MEM_HUGE, ACL_HBM_MEM_HUGE1G
_DEVICE = 1                                       # ACL_MEM_LOCATION_TYPE_DEVICE
_RESERVE_FLAGS = 1                                # huge pages, as torch_npu requests them


class VirtualMemory:
    """The mappings of one device. A piece is one physical allocation, mapped whole."""

    def __init__(self, device_id: int) -> None:
        self.pages_1g = False
        self._location = {"id": device_id, "type": _DEVICE}
        self._pieces: dict[int, tuple[int, int]] = {}   # address: (handle, size)
        self._reservations: dict[int, int] = {}         # address: size

    def reserve(self, size: int) -> int:
        """Reserves addresses; 0 where CANN or the device cannot."""
        ask = getattr(runtime.acl.rt, "reserve_mem_address", None)
        address, code = ask(size, 0, 0, _RESERVE_FLAGS) if ask else (0, errors.NOT_SUPPORTED)
        if code:
            reason = errors.describe(code, "aclrtReserveMemAddress")
            warnings.warn(f"expandable_segments setting failure, now change to `False`. {reason}", stacklevel=2)
            return 0
        self._reservations[address] = size
        return address

    def release(self, address: int) -> None:
        end = address + self._reservations[address]
        for place in [place for place in self._pieces if address <= place < end]:
            self._unmap_piece(place)              # one that could not be unmapped when its turn was
        errors.check(runtime.acl.rt.release_mem_address(address), "aclrtReleaseMemAddress")
        del self._reservations[address]

    def map(self, address: int, size: int, piece: int) -> bool:
        """Maps pieces from address on; False where the device has no memory left. All of them, or none."""
        done = 0
        try:
            while done < size and self._map_piece(address + done, piece):
                done += piece
        finally:
            if done < size:
                self.unmap(address, done)
        return done >= size

    def _map_piece(self, address: int, piece: int) -> bool:
        if address in self._pieces:               # could not be unmapped: it serves again
            return True
        rt: Any = runtime.acl.rt
        wanted = {"handleType": 0, "allocationType": 0, "memAttr": _HUGE_PAGES_1G if self.pages_1g else _HUGE_PAGES,
                  "location": self._location, "reserve": 0}
        handle, code = rt.malloc_physical(piece, wanted, 0)
        if code in errors.OUT_OF_MEMORY:
            return False
        errors.check(code, "aclrtMallocPhysical")
        code = rt.map_mem(address, piece, 0, handle, 0)
        if code:
            rt.free_physical(handle)
        errors.check(code, "aclrtMapMem")
        self._pieces[address] = (handle, piece)
        return True

    def unmap(self, address: int, size: int) -> None:
        end, failure = address + size, None
        while address < end:
            piece = self._pieces[address][1]
            try:
                self._unmap_piece(address)
            except RuntimeError as error:         # the others go all the same
                failure = failure or error
            address += piece
        if failure:
            raise failure

    def _unmap_piece(self, address: int) -> None:
        errors.check(runtime.acl.rt.unmap_mem(address), "aclrtUnmapMem")
        handle, _ = self._pieces.pop(address)
        errors.check(runtime.acl.rt.free_physical(handle), "aclrtFreePhysical")

    def close(self) -> None:
        """Gives back everything."""
        for address, (_, piece) in list(self._pieces.items()):
            self.unmap(address, piece)
        for address in list(self._reservations):
            self.release(address)
