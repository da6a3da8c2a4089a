"""torch.utils.backcompat: the switches of warnings about programs of the first releases. Nothing of theirs is left to warn of."""
from typing import Any


class Warning:
    """Whether a warning is given."""
    enabled = False


broadcast_warning: Any = Warning()
keepdim_warning: Any = Warning()
