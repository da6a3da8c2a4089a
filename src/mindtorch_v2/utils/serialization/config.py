"""Settings of torch.save and torch.load; patch() is a with block that changes them."""
from __future__ import annotations

import sys
from mmap import MAP_PRIVATE
from typing import Any

from mindtorch_v2.utils._config_module import install_config_module


class load:
    """What torch.load does where its caller says nothing."""
    mmap: bool = False
    endianness: Any = None                     # of a file that does not say it: a LoadEndianness, or None for this host's
    mmap_flags: int | None = MAP_PRIVATE
    calculate_storage_offsets: bool = False    # stored: places of records are read from the file's directory


class save:
    """What torch.save does."""
    compute_crc32: bool = True                 # without checksums other readers of zip files refuse what is saved
    use_pinned_memory_for_d2h: bool = False    # stored
    storage_alignment: int = 64                # of every record's data in the file, so that it can be mapped


install_config_module(sys.modules[__name__])
