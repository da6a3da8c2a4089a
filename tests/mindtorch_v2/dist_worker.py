"""A worker under the launcher: joins the group, reduces, and does what its first argument says."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import mindtorch_v2 as torch
from mindtorch_v2.distributed.elastic.multiprocessing.errors import record

KEYS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")


@record
def main(what: str, folder: str) -> None:
    rank = int(os.environ["RANK"])
    if what == "wait":
        open(f"{folder}/pid.{rank}", "w").write(str(os.getpid()))
        time.sleep(3600)
    torch.distributed.init_process_group("gloo")
    total = torch.tensor([rank + 1.0])
    torch.distributed.all_reduce(total)
    if what == "fail" and rank == 1:
        raise ValueError(f"rank {rank} had enough")
    if what == "once" and rank == 0 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    if what != "ok":
        torch.distributed.barrier()
    with open(f"{folder}/seen.{rank}", "w") as file:
        json.dump({key: os.environ[key] for key in KEYS} | {"total": total.item(), "args": sys.argv[3:]}, file)
    print(f"printed by {rank}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
