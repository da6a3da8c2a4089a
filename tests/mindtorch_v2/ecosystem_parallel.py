"""transformers' tensor-parallel plan and accelerate's DDP and FSDP2 over the drop-in: two processes train as one does.

    python tests/mindtorch_v2/ecosystem_parallel.py [cpu|npu]     # with transformers, accelerate and mindtorch_v2 installed

A tiny Llama is made, and trained by one process and by two in each way; the losses are printed and compared.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

STEPS = 3
WAYS = ("tp", "ddp", "fsdp2")  # accelerate takes FSDP2 on an npu only


def batches(torch: Any, size: int) -> list[Any]:
    return [torch.stack([(torch.arange(12) + 5 * step + row) % 64 for row in range(4)]).chunk(size) for step in range(STEPS)]


def trained_by_plan(torch: Any, device: str, folder: str) -> list[float]:
    """from_pretrained(tp_plan="auto") where there are several processes; all have the same batch."""
    from transformers import LlamaForCausalLM

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if device == "npu":  # transformers starts no group of its own there
            torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
            torch.distributed.init_process_group("hccl")
        model = LlamaForCausalLM.from_pretrained(folder, tp_plan="auto")
    else:
        model = LlamaForCausalLM.from_pretrained(folder).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for (ids,) in batches(torch, 1):
        loss = model(input_ids=ids.to(model.device), labels=ids.to(model.device)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.full_tensor() if hasattr(loss, "full_tensor") else loss))
    return losses


def trained_by_accelerate(torch: Any, device: str, folder: str, way: str) -> list[float]:
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin
    from transformers import LlamaForCausalLM

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                            transformer_cls_names_to_wrap=["LlamaDecoderLayer"])  # fmt: skip
    job = Accelerator(cpu=device == "cpu", fsdp_plugin=plugin if way == "fsdp2" else None)
    model = LlamaForCausalLM.from_pretrained(folder)
    model, optimizer = job.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    losses = []
    for parts in batches(torch, job.num_processes):
        ids = parts[job.process_index].to(job.device)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        job.backward(loss)
        job.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(job.gather(loss.detach()[None]).mean()))
    job.end_training()
    return losses


def work(way: str, device: str, folder: str) -> None:
    import torch

    done = trained_by_plan(torch, device, folder) if way == "tp" else trained_by_accelerate(torch, device, folder, way)
    if os.environ.get("RANK", "0") == "0":
        print("losses " + json.dumps(done), flush=True)


def run(command: list[str], environ: dict[str, str]) -> list[float]:
    done = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, timeout=300)
    found = re.search(r"^losses (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(found[1])


MAKE = """
import sys, torch, transformers
torch.manual_seed(0)
transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64)).save_pretrained(sys.argv[1])
print("losses []")
"""


def main(device: str) -> None:
    environ = os.environ | {"MINDTORCH_AS_TORCH": "1", "HF_HUB_OFFLINE": "1"}
    if device == "npu" and "ASCEND_HOME_PATH" not in environ:
        import cann_sim

        environ |= cann_sim.env() | {"CANN_SIM_DEVICES": "2"}
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    with tempfile.TemporaryDirectory() as folder:
        run(["-c", MAKE, folder], environ)
        for way in WAYS[: 2 if device == "cpu" else 3]:
            program = [__file__, "--work", way, device, folder]
            alone, together = run(program, environ), run([*launch, *program], environ)
            worst = max(abs(a - b) for a, b in zip(alone, together, strict=True))
            print(f"{way:6} {device} one process {alone} two {together} largest difference {worst:.1e}", flush=True)
            if worst > 1e-5:
                sys.exit(f"{way}: two processes do not train as one does")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main(sys.argv[1] if sys.argv[1:] else "cpu")
