"""The advice where no Ascend card is usable: how programs run on the libraries of cann_sim instead."""
from __future__ import annotations

WITHOUT_A_CARD = ("Without a card, programs run on a simulated one: `cann-sim run python program.py`, or "
                  '`eval "$(cann-sim env)"` for a whole shell')
# Variables that change what CANN's libraries or their clients do, by their beginnings.
VARIABLES = ("ASCEND_", "ACL_", "HCCL_", "RANK_TABLE", "TASK_QUEUE_", "PYTORCH_", "MINDTORCH_", "CANN_SIM_", "OOM_SNAPSHOT_")
