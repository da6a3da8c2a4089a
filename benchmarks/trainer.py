"""transformers on the drop-in beside PyTorch: its import, and a step of Trainer with a tiny Llama; seconds of the process.

    python benchmarks/trainer.py VENV [--steps 1] [--rounds 3]

VENV is what `make ecosystem` makes: packages without PyTorch. PyTorch is that of the Python that runs this.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, sys, tempfile, time, warnings
def spent(): return [time.perf_counter(), time.process_time()]
times = [spent()]
import torch
if torch.version.cuda is None and not hasattr(torch, "npu"):      # names that torchvision asks for; see ecosystem.py
    names = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        names.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
times.append(spent())
warnings.simplefilter("ignore")
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
                                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))
data = [{"input_ids": torch.arange(i, i + 32) % 256, "labels": torch.arange(i, i + 32) % 256} for i in range(64)]
arguments = TrainingArguments(tempfile.mkdtemp(), max_steps=int(sys.argv[1]), per_device_train_batch_size=4, report_to=[],
                              disable_tqdm=True, use_cpu=True, save_strategy="no", logging_strategy="no")
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
times.append(spent())
print("times", json.dumps(times))
"""


def measure(python: str, environ: dict[str, str], steps: int, found: dict[str, list[float]]) -> None:
    """Lowers the least seconds on the clock and of the processor by one more run: import, steps, all."""
    done = subprocess.run([python, "-W", "ignore", "-c", PROGRAM, str(steps)], env=os.environ | environ,
                          capture_output=True, text=True, check=True)
    start, imported, end = json.loads(next(x for x in done.stdout.splitlines() if x.startswith("times"))[6:])
    for name, a, b in (("import", start, imported), ("steps", imported, end), ("all", start, end)):
        now = [b[0] - a[0], b[1] - a[1]]
        found[name] = [min(pair) for pair in zip(now, found.get(name, now), strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    site = next((options.venv / "lib").glob("python3*/site-packages"))
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for _ in range(options.rounds):               # in turns: a machine that others use is not the same a minute later
        measure(str(options.venv / "bin/python"), {"MINDTORCH_AS_TORCH": "1", "PYTHONPATH": ""}, options.steps, ours)
        measure(sys.executable, {"PYTHONPATH": str(site)}, options.steps, theirs)
    for name in ours:
        (clock, cpu), (their_clock, their_cpu) = ours[name], theirs[name]
        print(f"{name:7} clock {clock:6.2f} s, PyTorch {their_clock:6.2f} s: {their_clock / clock:.2f} times; "
              f"processor {cpu:6.2f} s, PyTorch {their_cpu:6.2f} s: {their_cpu / cpu:.2f} times")


if __name__ == "__main__":
    main()
