"""Prints the host cost of npu ops beside torch_npu's, on one simulated device that computes nothing (CANN_SIM_MODE=null).

The two libraries cannot share a process, so each has a worker of its own; they take turns in short blocks, so that a
noisy neighbour hits both. A line shows medians. The task queue of torch_npu is off: with it the host part costs more.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import cann_sim
from run import block_seconds, in_words, print_line

HEADER = f"{'':<30} {'':>7} {'ours':>10} {'torch_npu':>10} {'ratio':>7} {'target':>7}"
# title, the least ratio of a line and of the mean; None: reported only
GROUPS = {"op": ("host cost of one op", 4.0, 6.0), "step": ("2-layer MLP, batch 32, hidden 64, SGD", 3.0, None),
          "nn": ("forward of a layer", None, None), "model": ("training", None, None),
          "optim": ("optimizers, 20 parameters of 64 x 64", None, None)}


def works(xp: ModuleType) -> dict[str, Any]:
    """What is timed, by group/name."""
    nn, f = xp.nn, xp.nn.functional
    a, b, out = (xp.rand(4, 4).to("npu") for _ in range(3))
    weight, bias = xp.rand(4).to("npu"), xp.rand(4).to("npu")
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to("npu")
    optimizer = xp.optim.SGD(model.parameters(), lr=0.01)
    x, y = xp.rand(32, 64).to("npu"), xp.randint(0, 10, (32,)).to("npu")

    def step() -> None:
        optimizer.zero_grad()
        f.cross_entropy(model(x), y).backward()
        optimizer.step()

    table, image, filters = xp.rand(100, 16).to("npu"), xp.rand(2, 3, 8, 8).to("npu"), xp.rand(4, 3, 3, 3).to("npu")
    logits = xp.rand(32, 10).to("npu")
    matrix, vector = model[0].weight, model[0].bias

    def amp_step() -> None:
        optimizer.zero_grad()
        with xp.autocast("npu", dtype=xp.bfloat16):
            loss = f.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    block, words = transformer_block(xp), xp.rand(2, 16, 32).to("npu")

    def train_block() -> None:
        for parameter in block.parameters():
            parameter.grad = None
        block(words).sum().backward()

    return {
        "op/add": lambda: a + b,
        "op/mul": lambda: a * b,
        "op/add scalar": lambda: a + 1.5,
        "op/matmul 4x4": lambda: xp.matmul(a, b),
        "op/in-place add": lambda: out.add_(b),
        "op/add out=": lambda: xp.add(a, b, out=out),
        "op/view": lambda: a.view(2, 8),
        "op/empty_like": lambda: xp.empty_like(a),
        "op/softmax": lambda: xp.softmax(a, 1),
        "op/layer_norm": lambda: f.layer_norm(a, (4,), weight, bias),
        "step/step": step,
        "nn/linear": lambda: f.linear(x, matrix, vector),
        "nn/cross_entropy": lambda: f.cross_entropy(logits, y),
        "nn/conv2d": lambda: f.conv2d(image, filters),
        "nn/embedding": lambda: f.embedding(y, table),
        "nn/dropout": lambda: f.dropout(x, 0.5),
        "model/MLP step, autocast": amp_step,
        "model/transformer block": train_block,
        **optimizers(xp),
    }


def optimizers(xp: ModuleType) -> dict[str, Any]:
    """Steps over parameters that have their gradients."""
    params = [xp.nn.Parameter(xp.rand(64, 64).to("npu")) for _ in range(20)]
    for parameter in params:
        parameter.grad = xp.rand(64, 64).to("npu")
    return {
        "optim/AdamW step": xp.optim.AdamW(params, lr=1e-3).step,
        "optim/AdamW step, foreach": xp.optim.AdamW(params, lr=1e-3, foreach=True).step,
        "optim/SGD step, momentum": xp.optim.SGD(params, lr=1e-3, momentum=0.9).step,
        "optim/RMSprop step": xp.optim.RMSprop(params, lr=1e-3).step,
        "optim/clip_grad_norm_": lambda: xp.nn.utils.clip_grad_norm_(params, 1.0),
    }


def transformer_block(xp: ModuleType) -> Any:
    """Attention of 4 heads and a feed-forward net, each after a norm and beside a residual."""
    nn = xp.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(32), nn.LayerNorm(32)
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
            self.net = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

        def forward(self, x: Any) -> Any:
            batch, length, size = x.shape
            qkv = self.qkv(self.before(x)).reshape(batch, length, 3, 4, size // 4).permute(2, 0, 3, 1, 4)
            heads = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
            x = x + self.out(heads.transpose(1, 2).reshape(batch, length, size))
            return x + self.net(self.between(x))

    return Block().to("npu")


def serve(library: str) -> None:
    """The worker: reads [name, calls] lines, answers seconds of one call."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the libraries print is not an answer
    if library == "torch":
        importlib.import_module("torch_npu")
    xp = importlib.import_module(library)
    xp.set_num_threads(1)
    made = works(xp)
    gc.disable()
    print(json.dumps(sorted(made)), file=answers)
    for line in sys.stdin:
        name, calls = json.loads(line)
        seconds = block_seconds(made[name], calls)
        xp.npu.synchronize()
        print(json.dumps(seconds), file=answers)


class Worker:
    """One library in a process of its own."""

    def __init__(self, python: str, library: str) -> None:
        env = os.environ | cann_sim.env() | {"CANN_SIM_MODE": "null", "TASK_QUEUE_ENABLE": "0"}
        if library == "torch":  # its own packages, but for what the simulator sets
            env["PYTHONPATH"] = os.pathsep.join([cann_sim.env()["PYTHONPATH"], os.path.dirname(os.path.dirname(cann_sim.__file__))])
        self.process = subprocess.Popen([python, __file__, "--serve", library], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.names = self._read()

    def _read(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended with status {self.process.wait()}")
        return json.loads(line)

    def seconds(self, name: str, calls: int) -> float:
        print(json.dumps([name, calls]), file=self.process.stdin, flush=True)
        return self._read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=".venv-conformance/bin/python", help="the Python that has torch_npu")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter blocks")
    parser.add_argument("--only", default="", metavar="REGEX", help="lines, as group/name")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    rounds, block = (5, 0.01) if args.quick else (15, 0.05)
    ours, theirs = Worker(sys.executable, "mindtorch_v2"), Worker(args.peer, "torch")
    print("mindtorch_v2 against torch_npu on cann_sim, null device; ratio = torch_npu's time / ours\n")
    print(HEADER)
    for key, (title, at_least, mean) in GROUPS.items():
        names = [n for n in ours.names if n.startswith(key + "/") and re.search(args.only, n)]
        if names:
            print(title)
        ratios = []
        for name in names:
            medians = side_by_side(ours, theirs, name, rounds, block)
            ratios.append(medians[1] / medians[0])
            print_line(name.partition("/")[2], "", (in_words(medians[0]), in_words(medians[1])), ratios[-1], at_least)
        if len(ratios) > 1:
            print_line("geometric mean", "", ("", ""), math.exp(statistics.fmean(map(math.log, ratios))), mean)


def side_by_side(ours: Worker, theirs: Worker, name: str, rounds: int, block: float) -> tuple[float, float]:
    workers, calls = (ours, theirs), []
    for worker in workers:
        once = min(worker.seconds(name, 20) for _ in range(3))
        calls.append(max(1, min(100_000, int(block / max(once, 1e-9)))))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            time.sleep(0.002)
            times[i].append(workers[i].seconds(name, calls[i]))
    return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    main()
