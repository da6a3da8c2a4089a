"""The PyTorch process of coverage_run.py: runs the same call on the same values and compares the results."""
from __future__ import annotations

import io
import pickle
import struct
import sys
import warnings
from typing import Any

import torch

# Values of these are whatever memory held; only their shapes and dtypes are compared.
UNSET = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
# The order of equal items is unspecified: indices of these are compared by what they point to.
TIES = {"sort", "msort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode"}
# Vectors of these are unique but for a factor of absolute value 1.
PHASE = {"linalg.eigh", "linalg.eig", "linalg.svd", "svd", "symeig", "linalg.qr", "qr", "geqrf"}
# Relative, and relative to the largest item: sums in another order differ by that.
LOOSE = {torch.float16: (1e-2, 1e-2), torch.bfloat16: (4e-2, 4e-2), torch.float32: (2e-4, 2e-5), torch.complex64: (2e-4, 2e-5),
         torch.float64: (1e-7, 1e-9), torch.complex128: (1e-7, 1e-9)}


def outputs(out: Any) -> list[Any]:
    """The tensors and numbers of a result."""
    if isinstance(out, (tuple, list)):
        return [item for part in out for item in outputs(part)]
    if isinstance(out, dict):
        return [item for part in out.values() for item in outputs(part)]
    return [out]


def gradients(tensors: list[Any], results: list[Any]) -> list[Any]:
    """Gradients of the sum of all outputs with respect to tensors that need them."""
    ends = [out for out in results if isinstance(out, torch.Tensor) and out.requires_grad]
    if not tensors or not ends:
        return []
    return list(torch.autograd.grad(ends, tensors, [torch.ones_like(end) for end in ends], allow_unused=True))


def difference(mine: list[Any], its: list[Any], values: bool = True) -> str | None:
    """What differs, in a line."""
    if len(mine) != len(its):
        return f"{len(mine)} results, expected {len(its)}"
    for number, (a, b) in enumerate(zip(mine, its)):
        if b is None and isinstance(a, torch.Tensor) and not a.any():      # a gradient that is zero may be left out
            continue
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
            return f"result {number} is a {type(a).__name__}, expected a {type(b).__name__}"
        if not isinstance(b, torch.Tensor):
            if a != b and not (isinstance(b, float) and abs(a - b) <= 1e-4 * max(1, abs(b))) and str(a) != str(b):
                return f"result {number} is {a}, expected {b}"
            continue
        b = b.detach()
        b = b.to_dense() if b.layout != torch.strided else b
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {number} is {a.dtype} {list(a.shape)}, expected {b.dtype} {list(b.shape)}"
        if not values:
            continue
        a, b = (x.detach().resolve_conj().resolve_neg() for x in (a, b))
        rtol, atol = LOOSE.get(b.dtype, (0.0, 0.0))
        largest = b.abs()[b.isfinite()] if rtol else b.new_empty(0)
        atol *= max(1.0, largest.max().item()) if largest.numel() else 1.0
        try:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return f"result {number}: {' '.join(str(error).split())}"[:300]
    return None


class Lists:
    """PyTorch's own entries by name."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def load(self, kind: str) -> tuple[str, str]:
        """Import one of the lists."""
        if kind == "op":
            from torch.testing._internal.common_methods_invocations import op_db  # slow: half a minute of tables
            self.found["op"] = {(info.name, info.variant_test_name): info for info in op_db}
        elif kind == "module":
            from torch.testing._internal.common_modules import module_db  # as slow
            self.found["module"] = {info.name: info for info in module_db}
        return "pass", ""


LISTS = Lists()


def run_op(what: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    info = LISTS.found["op"][what["op"], what["variant"]]
    torch.manual_seed(0)
    results = outputs(info.op(*what["args"], **what["kwargs"]))
    leaves = [x for x in outputs([what["args"], what["kwargs"]]) if isinstance(x, torch.Tensor) and x.requires_grad]
    return results, gradients(leaves, results) if what["gradients"] else []


def run_module(what: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    args, kwargs = what["made"]
    torch.manual_seed(0)
    layer = LISTS.found["module"][what["op"]].module_cls(*args, **kwargs)
    if what["state"]:
        layer.load_state_dict(what["state"])
    torch.manual_seed(0)
    results = outputs(layer(*what["args"], **what["kwargs"]))
    return results, gradients([p for p in layer.parameters() if p.requires_grad], results)


def run_optim(what: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    params = [torch.nn.Parameter(x) for x in what["start"]]
    made = getattr(torch.optim, what["op"])(params, **what["options"])

    def loss() -> Any:
        made.zero_grad()
        total = sum((p * p * p.detach().cos()).sum() for p in params)
        total.backward()
        if what["sparse"]:
            for p in params:
                p.grad = p.grad.to_sparse()
        return total
    for _ in range(4):
        made.step(loss)
    return [p.detach() for p in params], []


RUNS = {"op": run_op, "module": run_module, "optim": run_optim}


def comparable(what: dict[str, Any], results: list[Any]) -> list[Any]:
    """Results without what PyTorch promises nothing about."""
    if what["op"] in PHASE:
        return [x.abs() if isinstance(x, torch.Tensor) else x for x in results]
    if what["op"] in TIES and "variant" in what:
        keys = what["args"][0]
        found = [x for x in results if x.dtype != torch.int64]
        if not found and results and results[0].shape == keys.shape and keys.dim():
            dim = what["kwargs"].get("dim", what["args"][1] if len(what["args"]) > 1 else -1)
            found = [keys.gather(dim, results[0])]
        return found or results[:1]
    return results


def is_drawn(kind: str, what: dict[str, Any], results: list[Any]) -> bool:
    """Whether PyTorch gives other numbers from another seed: a device with a generator of its own draws its own numbers, as
    PyTorch's devices do, and only their shapes and dtypes can be compared. On a CPU both libraries draw the same."""
    if not what.get("draws_itself"):
        return False
    what = torch.load(io.BytesIO(what["packed"]), weights_only=False)     # an op may have changed its arguments
    seeded = torch.manual_seed
    torch.manual_seed = lambda seed: seeded(seed + 1)                      # the entries of random ops set one themselves
    try:
        return difference(RUNS[kind](what)[0], results) is not None
    finally:
        torch.manual_seed = seeded


def judge(kind: str, before: bytes, after: bytes) -> tuple[str, str]:
    """(pass, wrong or skipped; why)."""
    try:
        what = torch.load(io.BytesIO(before), weights_only=False)
        found = torch.load(io.BytesIO(after), weights_only=False)
    except Exception as error:      # what cannot be read back cannot be compared
        return "skipped", f"cannot be read by PyTorch: {type(error).__name__}: {error}"[:200]
    try:
        results, grads = RUNS[kind](what)
    except Exception as error:      # an error is an answer
        if "error" in found:
            return "pass", "both refuse"
        return "wrong", f"PyTorch raises {type(error).__name__}: {error}"[:300]
    if "error" in found:
        return "wrong", found["error"]
    unset = what["op"] in UNSET or is_drawn(kind, {**what, "packed": before}, results)
    wrong = difference(comparable(what, found["outputs"]), comparable(what, results), not unset)
    if wrong is None and not unset and what["op"] not in PHASE:
        wrong = difference(found.get("grads", []), grads)
        wrong = wrong and f"gradient: {wrong}"
    return ("wrong", wrong) if wrong else ("pass", "")


def main() -> None:
    warnings.simplefilter("ignore")
    into, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr          # whatever prints must not get between the answers
    while len(head := into.read(8)) == 8:
        kind, before, after = pickle.loads(into.read(struct.unpack("<Q", head)[0]))
        try:
            said = LISTS.load(kind) if before is None else judge(kind, before, after)
        except Exception as error:       # of the comparison itself: it says nothing about the result
            said = ("skipped", f"cannot be compared: {type(error).__name__}: {error}"[:200])
        answer = pickle.dumps(said)
        out.write(struct.pack("<Q", len(answer)) + answer)
        out.flush()


if __name__ == "__main__":
    main()
