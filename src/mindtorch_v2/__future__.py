"""torch.__future__: how modules convert and load their parameters."""
from __future__ import annotations

_overwrite = _swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether a conversion puts new parameters in the place of the old ones rather than new data into them."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What set_overwrite_module_params_on_conversion was given."""
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions and load_state_dict swap parameters with what takes their place: see torch.utils.swap_tensors."""
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """What set_swap_module_params_on_conversion was given."""
    return _swap
