"""How much of PyTorch is here, by PyTorch's own lists: OpInfo, ModuleInfo and OptimizerInfo over the drop-in, judged.

    python tests/mindtorch_v2/coverage_run.py --out build/coverage [--device cpu npu] [--family op module optim]
                                              [--only REGEX] [--samples 3] [--all-dtypes]

torch/testing/_internal of the installed PyTorch is imported over this library, its samples are made of our tensors, and
every result goes to a second process with PyTorch itself (coverage_judge.py). A worker that crashes is started again
behind the item that killed it. `make parity` runs this and coverage_report.py, which writes docs/coverage.md.
"""
from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FEW = ("float32", "bfloat16", "int64", "bool", "complex64")
SECONDS = 40        # for one item: an op in one dtype
GRADIENTS = ("float32", "float64", "complex64", "complex128")


class Judge:
    """The process with PyTorch: a message of bytes, an answer of bytes."""

    def __init__(self, family: str) -> None:
        environ = {name: value for name, value in os.environ.items() if name != "MINDTORCH_AS_TORCH"}
        self.process = subprocess.Popen([sys.executable, str(HERE / "coverage_judge.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=environ)
        self.ask(pickle.dumps((family, None, None)))       # it imports its lists now, not in an item's time

    def ask(self, message: bytes) -> tuple[str, str]:
        """(pass, wrong or skipped; why)."""
        into, out = self.process.stdin, self.process.stdout
        assert into is not None and out is not None
        into.write(struct.pack("<Q", len(message)) + message)
        into.flush()
        head = out.read(8)
        if len(head) < 8:
            sys.exit("the process with PyTorch has ended")
        return pickle.loads(out.read(struct.unpack("<Q", head)[0]))


class TooLong(Exception):
    """An item took longer than its time."""


def ring(number: int, frame: Any) -> None:
    raise TooLong(f"more than {SECONDS} s")


class Run:
    """One worker: a family on a device."""

    def __init__(self, torch: Any, judge: Judge, device: str, samples: int) -> None:
        self.torch, self.judge, self.device, self.samples = torch, judge, device, samples
        self.tree_map = torch.utils._pytree.tree_map

    def to_cpu(self, tree: Any) -> Any:
        """Tensors on the CPU, as leaves; named tuples as tuples, devices by the judge's name for them."""
        torch = self.torch
        if isinstance(tree, torch.Tensor):
            if tree.layout != torch.strided:
                tree = tree.to_dense()
            grad, tree = tree.requires_grad, tree.detach().cpu()
            return tree.requires_grad_(grad) if grad else tree
        if isinstance(tree, torch.device):
            return torch.device("cpu")
        if isinstance(tree, str) and tree.partition(":")[0] == "npu":
            return "cpu"
        if isinstance(tree, (tuple, list)) and type(tree) is not torch.Size:
            parts = [self.to_cpu(item) for item in tree]
            return parts if isinstance(tree, list) else tuple(parts)
        return {key: self.to_cpu(value) for key, value in tree.items()} if isinstance(tree, dict) else tree

    def packed(self, what: dict[str, Any]) -> bytes:
        """In PyTorch's file format: storages, strides and what tensors share stay as they are."""
        buffer = io.BytesIO()
        try:
            self.torch.save(self.to_cpu(what), buffer)
        except RuntimeError:                # one storage under two dtypes, which no file can hold
            buffer = io.BytesIO()
            self.torch.save(self.tree_map(lambda x: x.clone() if isinstance(x, self.torch.Tensor) else x,
                                          self.to_cpu(what)), buffer)
        return buffer.getvalue()

    def judged(self, kind: str, given: dict[str, Any], call: Callable[[dict[str, Any]], None]) -> tuple[str, str]:
        """The verdict of one sample: the arguments are packed before the call, which may change them."""
        try:
            before = self.packed({**given, "draws_itself": self.device != "cpu"})
        except (pickle.PicklingError, AttributeError, TypeError, NotImplementedError) as error:
            return "skipped", f"cannot be sent: {error}"[:200]
        found: dict[str, Any] = {}
        try:
            call(found)
            after = self.packed(found)
        except TooLong:
            raise
        except Exception as error:          # any error is a result: the judge says whether PyTorch gives one too
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
            after = self.packed(found)
        verdict, why = self.judge.ask(pickle.dumps((kind, before, after)))
        says = ("NotImplementedError", "has no attribute", "no kernel", "not offered", "not implemented", "not supported")
        error = found.get("error", "")      # one that says that something is not there is no wrong result
        return ("missing" if verdict == "wrong" and any(word in error for word in says) else verdict), why

    def outputs(self, out: Any) -> list[Any]:
        """The tensors and numbers of a result."""
        if isinstance(out, (tuple, list)):
            return [item for part in out for item in self.outputs(part)]
        if isinstance(out, dict):
            return [item for part in out.values() for item in self.outputs(part)]
        return [out]

    def gradients(self, tensors: list[Any], outputs: list[Any]) -> list[Any]:
        """Gradients of the sum of all outputs with respect to tensors that need them."""
        ends = [out for out in outputs if isinstance(out, self.torch.Tensor) and out.requires_grad]
        if not tensors or not ends:
            return []
        return list(self.torch.autograd.grad(ends, tensors, [self.torch.ones_like(end) for end in ends], allow_unused=True))

    def first_bad(self, verdicts: Iterator[tuple[str, str]]) -> tuple[str, str]:
        """One verdict of an item's samples: the first that is not good, else whether any was compared."""
        best = ("skipped", "no samples")
        for said in verdicts:
            if said[0] in ("wrong", "missing"):
                return said
            best = said if best[0] != "pass" else best
        return best

    def op(self, info: Any, dtype: Any) -> Iterator[tuple[str, str]]:
        torch, name = self.torch, str(dtype).removeprefix("torch.")
        wants = info.supports_autograd and name in GRADIENTS
        torch.manual_seed(1)
        samples = list(zip(range(self.samples), info.sample_inputs(self.device, dtype, requires_grad=wants)))
        for _, sample in samples:
            def call(found: dict[str, Any], sample: Any = sample) -> None:
                torch.manual_seed(0)
                found["outputs"] = self.outputs(info.op(sample.input, *sample.args, **sample.kwargs))
                leaves = [x for x in self.outputs([sample.input, *sample.args, sample.kwargs])
                          if isinstance(x, torch.Tensor) and x.requires_grad] if wants else []
                found["grads"] = self.gradients(leaves, found["outputs"])
            yield self.judged("op", {"op": info.name, "variant": info.variant_test_name, "gradients": wants,
                                     "args": (sample.input, *sample.args), "kwargs": sample.kwargs}, call)

    def module(self, info: Any, dtype: Any) -> Iterator[tuple[str, str]]:
        torch = self.torch
        inputs = info.module_inputs_func(info, device=self.device, dtype=dtype, requires_grad=True, training=True)
        for _, given in zip(range(self.samples), inputs):
            if given.forward_input is None:
                continue
            made, forward = given.constructor_input, given.forward_input
            torch.manual_seed(0)
            try:
                layer = info.module_cls(*made.args, **{"device": self.device, "dtype": dtype, **made.kwargs})
            except TypeError:               # a layer without parameters takes neither
                layer = info.module_cls(*made.args, **made.kwargs)

            def call(found: dict[str, Any], layer: Any = layer, forward: Any = forward) -> None:
                torch.manual_seed(0)
                found["outputs"] = self.outputs(layer(*forward.args, **forward.kwargs))
                found["grads"] = self.gradients([p for p in layer.parameters() if p.requires_grad], found["outputs"])
            is_lazy = any(isinstance(p, torch.nn.parameter.UninitializedTensorMixin) for p in layer.parameters())
            state = {} if is_lazy else {name: value.detach().clone() for name, value in layer.state_dict().items()}
            yield self.judged("module", {"op": info.name, "made": (made.args, made.kwargs), "args": forward.args,
                                         "kwargs": forward.kwargs, "state": state}, call)

    def optim(self, info: Any, dtype: Any) -> Iterator[tuple[str, str]]:
        torch, sparse = self.torch, info.only_supports_sparse_grads
        for number, given in enumerate(info.optim_inputs_func(device=self.device)):
            torch.manual_seed(number)
            start = [torch.randn(3, 2, dtype=dtype), torch.randn(4, dtype=dtype)]

            def call(found: dict[str, Any], given: Any = given, start: Any = start) -> None:
                params = [torch.nn.Parameter(x.to(self.device)) for x in start]
                made = info.optim_cls(params, **given.kwargs)

                def loss() -> Any:
                    made.zero_grad()
                    total = sum((p * p * p.detach().cos()).sum() for p in params)
                    total.backward()
                    for p in params if sparse else ():
                        p.grad = p.grad.to_sparse()
                    return total
                for _ in range(4):
                    made.step(loss)
                found["outputs"] = [p.detach() for p in params]
            yield self.judged("optim", {"op": info.optim_cls.__name__, "options": given.kwargs, "start": start,
                                        "sparse": sparse}, call)


def items(torch: Any, family: str, device: str, all_dtypes: bool) -> Iterator[tuple[str, str, Any, Any]]:
    """(name, kind, entry, dtype) of a family."""
    if family == "op":
        from torch.testing._internal.common_methods_invocations import op_db  # over this library, after install()
        for info in op_db:
            for dtype in sorted(info.supported_dtypes("cpu"), key=str):
                if all_dtypes or str(dtype).removeprefix("torch.") in FEW:
                    yield info.full_name, type(info).__name__, info, dtype
    elif family == "module":
        from torch.testing._internal.common_modules import module_db
        for info in module_db:
            yield info.name, "modules", info, torch.float32
    else:
        from torch.testing._internal.common_optimizers import optim_db
        for info in optim_db:
            yield info.optim_cls.__name__, "optimizers", info, torch.float32


def work(options: Any) -> None:
    """Go through the items that the file of results does not have yet."""
    import mindtorch_v2
    torch = mindtorch_v2.install(testing_internal=Path(importlib.util.find_spec("torchgen").origin).parents[1])
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, ring)
    done = {tuple(json.loads(line)["key"]) for line in options.file.read_text().splitlines()} if options.file.exists() else set()
    run = Run(torch, Judge(options.family), options.device, options.samples)
    with options.file.open("a", buffering=1) as file:
        for name, kind, info, dtype in items(torch, options.family, options.device, options.all_dtypes):
            key = (name, str(dtype).removeprefix("torch."))
            if key in done or not re.search(options.only, name):
                continue
            record = {"key": key, "kind": kind, "verdict": "crash", "why": "the process ended"}
            place = file.tell()
            file.write(json.dumps(record) + "\n")       # stays if this item ends the process
            signal.alarm(SECONDS)
            try:
                record["verdict"], record["why"] = run.first_bad(getattr(run, options.family)(info, dtype))
            except TooLong as error:                    # an answer may be under way: another judge
                record["verdict"], record["why"] = "wrong", str(error)
                run.judge.process.kill()
                run.judge = Judge(options.family)
            except Exception as error:                  # of the samples themselves: PyTorch's lists use more than the op
                record["verdict"], record["why"] = "missing", f"samples: {type(error).__name__}: {error}"[:300]
            finally:
                signal.alarm(0)
            file.truncate(place)
            file.seek(place)
            file.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--device", nargs="+", default=["cpu", "npu"])
    parser.add_argument("--family", nargs="+", default=["op", "module", "optim"])
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--all-dtypes", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker:
        options.device, options.family = options.device[0], options.family[0]
        options.file = options.out / f"{options.family}-{options.device}.jsonl"
        work(options)
        return
    for family in options.family:
        for device in options.device:
            file = options.out / f"{family}-{device}.jsonl"
            file.unlink(missing_ok=True)
            start = ["cann-sim", "run"] if device == "npu" else []
            start[:1] = [str(Path(sys.executable).parent / "cann-sim")] if start else []
            rest = [*sys.argv[1:], "--worker", "--device", device, "--family", family]
            for _ in range(30):                         # a crash costs one item, and a start of the worker
                if subprocess.run([*start, sys.executable, __file__, *rest]).returncode == 0:
                    break
            print(family, device, "done", flush=True)


if __name__ == "__main__":
    main()
