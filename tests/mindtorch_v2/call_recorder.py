"""Runs the samples of PyTorch's op_db, its modules and optimizers and some models on an npu, and writes which calls of CANN each made.

    cann-sim run python call_recorder.py --library torch_npu|mindtorch_v2 --out FILE [--only REGEX] [--samples 2]

The same file serves both libraries, each in its own Python; call_parity.py compares what they wrote.
"""
from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

DTYPES = ("float32", "float16", "bfloat16", "int64", "bool", "complex64")
SECONDS = 20                                       # for one sample


class Simulator:
    """The record of the simulator that this process has loaded."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.path.join(os.environ["ASCEND_HOME_PATH"], "lib64", "libascendcl.so"))
        self.library.cannSimRecordedCalls.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.library.cannSimRecordedCalls.restype = ctypes.c_size_t

    def start(self) -> None:
        self.library.cannSimRecordCalls(1)

    def _recorded(self) -> list[tuple[int, str]]:
        room = self.library.cannSimRecordedCalls(None, 0)
        buffer = ctypes.create_string_buffer(room + 1)
        self.library.cannSimRecordedCalls(buffer, room + 1)
        lines = (line.split(" ", 1) for line in buffer.value.decode().splitlines())
        return [(int(count), text) for count, text in lines]

    def launches(self) -> list[str]:
        """The launches of aclnn ops since start(), each as often as it was made."""
        return [text for count, text in self._recorded() if text.startswith("aclnn") for _ in range(count)]

    def functions(self) -> list[str]:
        """Other functions since start(), each text once, in the order in which they came first."""
        return [text for _, text in self._recorded() if not text.startswith("aclnn")]


def load(library: str) -> Any:
    """torch as the library has it."""
    if library == "torch_npu":
        import torch
        import torch_npu  # noqa: F401  registers the device
        return torch
    import mindtorch_v2
    spec = importlib.util.find_spec("torchgen")
    assert spec is not None and spec.origin is not None
    return mindtorch_v2.install(testing_internal=Path(spec.origin).parents[1])


def ring(number: int, frame: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


class Recorder:
    def __init__(self, torch: Any, samples: int) -> None:
        self.torch, self.samples, self.simulator = torch, samples, Simulator()

    def recorded(self, act: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        """What act returns, and its launches or its error."""
        self.simulator.start()
        try:
            result = act()
            self.torch.npu.synchronize()
        except Exception as error:      # an error is a result, to be compared like any other
            return None, {"error": f"{type(error).__name__}: {error}"[:160]}
        return result, {"calls": self.simulator.launches()}

    def to_npu(self, tree: Any) -> Any:
        torch = self.torch
        if isinstance(tree, torch.Tensor):
            return tree.detach().to("npu").requires_grad_(tree.requires_grad)
        if isinstance(tree, (list, tuple)) and type(tree) is not torch.Size:
            return type(tree)(self.to_npu(item) for item in tree)
        if isinstance(tree, dict):
            return {key: self.to_npu(value) for key, value in tree.items()}
        return torch.device("npu") if isinstance(tree, torch.device) else "npu" if tree == "cpu" else tree

    def outputs(self, out: Any) -> list[Any]:
        if isinstance(out, (tuple, list)):
            return [tensor for item in out for tensor in self.outputs(item)]
        return [out] if isinstance(out, self.torch.Tensor) and out.requires_grad else []

    def sample(self, function: Callable[..., Any], arguments: list[Any]) -> dict[str, Any]:
        """Both directions of a function of [the first argument, the others, those by name]."""
        torch = self.torch
        given = self.to_npu(arguments)
        torch.npu.synchronize()
        out, forward = self.recorded(lambda: function(given[0], *given[1], **given[2]))
        found = {"forward": forward}
        ends = self.outputs(out)
        if ends:
            ones = [torch.ones_like(end) for end in ends]
            torch.npu.synchronize()
            found["backward"] = self.recorded(lambda: torch.autograd.backward(ends, ones))[1]
        return found

    def item(self, info: Any, dtype: Any) -> list[dict[str, Any]]:
        self.torch.manual_seed(0)
        found = []
        grad = dtype.is_floating_point and info.supports_autograd
        for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=grad)):
            if number >= self.samples:
                break
            found.append(self.sample(info.op, [sample.input, list(sample.args), dict(sample.kwargs)]))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=["torch_npu", "mindtorch_v2"], required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES))
    options = parser.parse_args()
    torch = load(options.library)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, ring)
    torch.npu.set_device(0)
    from call_programs import Program, programs  # of the library that was loaded
    from torch.testing._internal.common_methods_invocations import op_db

    recorder = Recorder(torch, options.samples)
    items = [Program(info.full_name, word, lambda r, info=info, word=word: r.item(info, getattr(torch, word)))
             for info in op_db for word in options.dtypes if getattr(torch, word) in info.supported_dtypes("cpu")]
    items += [program for program in programs(torch) if program.dtype in options.dtypes]
    done = {json.loads(line)["key"] for line in options.out.read_text().splitlines()} if options.out.exists() else set()
    with options.out.open("a", buffering=1) as file:
        for item in items:
            key = f"{item.name} {item.dtype}"
            if key in done or not re.search(options.only, item.name):
                continue
            place = file.tell()
            file.write(json.dumps({"key": key, "samples": None}) + "\n")     # stays if this item ends the process
            signal.alarm(SECONDS * options.samples)
            try:
                found = item.run(recorder)
            except Exception as error:          # of the sample's making
                found = [{"forward": {"error": f"sample: {type(error).__name__}: {error}"[:160]}}]
            finally:
                signal.alarm(0)
            file.truncate(place)
            file.seek(place)
            file.write(json.dumps({"key": key, "samples": found}) + "\n")
    sys.stdout.flush()
    os._exit(0)                                    # what the samples left behind needs no orderly end


if __name__ == "__main__":
    main()
