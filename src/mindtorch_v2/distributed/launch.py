"""torch.distributed.launch: the old name of the launcher. Programs read LOCAL_RANK from the environment."""
from __future__ import annotations

from mindtorch_v2.distributed.run import main, parse_args  # noqa: F401
from mindtorch_v2.distributed.run import run as launch  # noqa: F401

if __name__ == "__main__":
    main()
