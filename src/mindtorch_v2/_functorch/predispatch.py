"""torch._functorch.predispatch: levels of vmap and dual numbers, by their names there."""
from __future__ import annotations

import mindtorch_v2 as torch

_level = torch._transforms.levels
_add_batch_dim, _remove_batch_dim = _level._add_batch_dim, _level._remove_batch_dim
_vmap_increment_nesting, _vmap_decrement_nesting = _level._vmap_increment_nesting, _level._vmap_decrement_nesting
_make_dual, _unpack_dual = torch.autograd.forward_ad.make_dual, torch.autograd.forward_ad.unpack_dual


def lazy_load_decompositions() -> None:
    """Nothing to load: rules for batches are there from the start."""
