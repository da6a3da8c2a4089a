"""torch.distributed.launch: the old name of the launcher. Programs read LOCAL_RANK from the environment."""
from __future__ import annotations

from mindtorch_v2.distributed.run import main

if __name__ == "__main__":
    main()
