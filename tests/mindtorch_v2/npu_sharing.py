"""Two processes with one tensor of an npu: a program that prints what each of them has seen."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import mindtorch_v2 as torch

mp = torch.multiprocessing


def receiver(inbox: Any, outbox: Any) -> None:
    whole, part, param = inbox.get()
    outbox.put([whole.tolist(), part.tolist(), type(param).__name__, param.requires_grad, part.stride()])
    whole += 10  # queued only: to release has to wait for it
    try:
        torch.multiprocessing.reductions.reduce_tensor(whole)
    except RuntimeError as error:
        outbox.put(str(error))
    del whole, part, param
    outbox.put(inbox.get().item())
    kept = inbox.get()
    outbox.put(kept.sum().item())
    inbox.get()  # until this process is killed


def left() -> int:
    torch.npu.ipc_collect()
    return len(torch.npu._ipc._sent)


def main() -> None:
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=receiver, args=(inbox, outbox))
    process.start()
    found: dict[str, Any] = {}
    whole = torch.arange(600_000.0, device="npu").view(3, -1)[:, :4]
    inbox.put((whole, whole[:, 1:3].t(), torch.nn.Parameter(torch.ones(3, device="npu"))))
    found["received"], found["sent on"] = outbox.get(), outbox.get()
    inbox.put(torch.tensor(7.0, device="npu"))
    found["last"] = outbox.get()
    found["written"], found["released"] = whole.tolist(), left()
    inbox.put(torch.ones(5, device="npu"))
    found["held"] = [outbox.get(), left()]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    found["after its end"] = left()
    back = context.Queue()
    back.put(whole)
    returned = back.get()
    returned.zero_()
    found["came back"] = [whole.sum().item(), left()]
    with torch.npu.use_mem_pool(torch.npu.MemPool()):
        found["pool"] = torch.npu._ipc.export(0, torch.ones(3, device="npu").data_ptr()) is not None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
