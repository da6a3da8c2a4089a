"""torch._dynamo.testing: helpers of tests. What counts or keeps captured graphs is a backend, and no backend is called here."""
from __future__ import annotations

import contextlib
import functools
import re
import sys
import unittest
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import mindtorch_v2 as torch

_facade = torch._facade
_WHY = "mindtorch_v2 captures no graphs: every op runs when it is called"
unsupported = _facade.refusal("torch._dynamo.testing.unsupported", _WHY)
reset = torch.compiler.reset
globals().update(_facade.refusals(
    "debug_dump debug_dir insert_nops debug_insert_nops debug_checks extract_graph_and_tracker extract_graph_backend "
    "check_dynamic_shape_capture extract_graph", _WHY, "torch._dynamo.testing."))


def optimize_assert(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """A decorator that gives the function itself."""
    return lambda fn: fn


def _ops_of(gm: Any) -> int:
    return sum("call" in node.op for node in gm.graph.nodes)


class CompileCounter:
    """A backend that counts the graphs it gets and their ops."""

    def __init__(self) -> None:
        self.frame_count: int | str = 0
        self.op_count: int | str = 0
        self.clear()

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1       # type: ignore[operator]
        self.op_count += _ops_of(gm)    # type: ignore[operator]
        return gm.forward

    def clear(self) -> None:
        """Begins at 0."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend:
    """A counter that keeps the graphs and hands them on to a backend."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.clear()

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        self.frame_count += 1
        self.op_count += _ops_of(gm)
        self.graphs.append(gm)
        return gm.forward if self.backend == "eager" else torch.compile(gm, backend=self.backend)

    def clear(self) -> None:
        """Begins at 0, without graphs."""
        self.frame_count, self.op_count = 0, 0
        self.graphs: list[Any] = []


class EagerAndRecordGraphs:
    """A backend that keeps the graphs it gets and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        self.graphs.append(gm)
        return gm.forward


class AotEagerAndRecordGraphs:
    """The same, for the graphs of forward and backward."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.fw_graphs: list[Any] = []
        self.bw_graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        self.graphs.append(gm)
        return gm.forward


class InductorAndRecordGraphs(AotEagerAndRecordGraphs):
    """The same, for the graphs that a compiler gets."""

    def __init__(self) -> None:
        super().__init__()
        self.inductor_graphs: list[Any] = []


def same(a: Any, b: Any, tol: float = 1e-4, equal_nan: bool = False, **kwargs: Any) -> bool:
    """Whether two results, or containers of them, agree within a tolerance."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return bool(torch.allclose(a, b, rtol=tol, atol=tol, equal_nan=equal_nan) if a.is_floating_point() or a.is_complex()
                    else torch.equal(a, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, tol, equal_nan) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], tol, equal_nan) for key in a)
    return type(a) is type(b) and (a == b or isinstance(a, float) and abs(a - b) <= tol)


def rand_strided(size: Sequence[int], stride: Sequence[int], dtype: Any = torch.float32, device: Any = "cpu",
                 extra_size: int = 0) -> Any:
    """A tensor of random numbers with these strides, over a storage that is larger by so many."""
    needed = extra_size + 1 + sum((n - 1) * step for n, step in zip(size, stride)) if 0 not in size else extra_size
    if dtype.is_floating_point or dtype.is_complex:
        short = dtype.itemsize == 1
        buffer = torch.randn(needed, dtype=torch.float16 if short else dtype, device=device).to(dtype)
    else:
        buffer = torch.randint(0, 2, (needed,), device=device).to(dtype)
    return torch.as_strided(buffer, size, stride)


def collect_results(model: Any, prediction: Any, loss: Any, example_inputs: Any) -> list[Any]:
    """What a pass forward and backward gave: results, loss, gradients and values of parameters, gradients of inputs."""
    named = dict(model.named_parameters())
    results = [prediction, torch.tensor(loss) if isinstance(loss, float) else loss]
    results.append({name + ".grad": None if p.grad is None else torch.clone(p.grad) for name, p in named.items()})
    results.append({name: torch.clone(value) for name, value in [*named.items(), *model.named_buffers()]})
    results += [torch.clone(x.grad) for x in torch.utils._pytree.tree_leaves(example_inputs)
                if isinstance(x, torch.Tensor) and x.grad is not None]
    return results


def requires_bwd_pass(out: Any) -> bool:
    """Whether there is a gradient to compute."""
    if isinstance(out, torch.Tensor):
        return bool(out.requires_grad)
    if isinstance(out, (list, tuple)):
        return any(requires_bwd_pass(x) for x in out)
    if out is None or isinstance(out, int):
        return False
    raise NotImplementedError("Don't know how to reduce", type(out))


def reduce_to_scalar_loss(out: Any) -> Any:
    """One number of all results, for a backward pass."""
    if isinstance(out, torch.Tensor):
        return out.sum() / out.numel()
    if isinstance(out, (list, tuple)):
        return sum(reduce_to_scalar_loss(x) for x in out) / len(out)
    if type(out).__name__ in ("MaskedLMOutput", "Seq2SeqLMOutput", "CausalLMOutputWithCrossAttentions"):
        return reduce_to_scalar_loss(out.logits)
    if type(out).__name__ == "SquashedNormal":
        return out.mean.sum()
    if isinstance(out, dict):
        return sum(reduce_to_scalar_loss(value) for value in out.values()) / len(out)
    raise NotImplementedError("Don't know how to reduce", type(out))


def standard_test(self: Any, fn: Any, nargs: int, *args: Any, **kwargs: Any) -> None:
    """Refuses: it compares a function with its captured graph."""
    raise NotImplementedError(f"[torch._dynamo.testing.standard_test] {_WHY}")


def dummy_fx_compile(gm: Any, example_inputs: Any) -> Any:
    """The graph as it is."""
    return gm.forward


def format_speedup(speedup: float, pvalue: float, is_correct: bool = True, pvalue_threshold: float = 0.1) -> str:
    """A ratio as text, SAME where it may be chance."""
    if not is_correct:
        return "ERROR"
    return f"{speedup:.3f}x SAME" if pvalue > pvalue_threshold else f"{speedup:.3f}x p={pvalue:.2f}"


# ---- text of graphs --------------------------------------------------------------------------------------------------
def strip_comment(code: Any) -> str:
    """Code without comments."""
    return re.sub(r"(?m)^ *#.*\n?", "", str(code))


def remove_trailing_space(code: str) -> str:
    """Lines without blanks at their ends."""
    return "\n".join(line.rstrip() for line in code.split("\n"))


def normalize_gm(gm_str: str) -> str:
    """Code of a graph without what differs between runs."""
    return remove_trailing_space(strip_comment(gm_str))


def empty_line_normalizer(code: str) -> str:
    """Code without empty lines."""
    return re.sub(r"[\n\r]+", "\n", str(code))


def _squash_blank_lines(code: str) -> str:
    return re.sub(r"\n\n+", "\n\n", code)


# ---- tests and classes of tests -----------------------------------------------------------------------------------------
def expectedFailureDynamic(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that fails when sizes are symbols."""
    vars(fn)["_expected_failure_dynamic"] = True
    return fn


def expectedFailureCodegenDynamic(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that fails when code for such sizes is written."""
    vars(fn)["_expected_failure_codegen_dynamic"] = True
    return fn


def expectedFailureDynamicWrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a test that fails in dynamic wrappers."""
    vars(fn)["_expected_failure_dynamic_wrapper"] = True
    return fn


def _make_fn_with_patches(fn: Callable[..., Any], *patches: tuple[Any, str, Any]) -> Callable[..., Any]:
    """A function in which settings have other values."""
    @functools.wraps(fn)
    def patched(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for config, name, value in patches:
                stack.enter_context(patch.object(config, name, value))
            return fn(*args, **kwargs)
    return patched


def make_test_cls_with_patches(cls: type, cls_prefix: str, fn_suffix: str, *patches: Any, xfail_prop: str | None = None,
                               decorator: Callable[[Any], Any] = lambda x: x) -> type:
    """A class with the tests of another, under names with a suffix, in which settings have other values."""
    made = type(f"{cls_prefix}{cls.__name__}", cls.__bases__, {})
    for name in dir(cls):
        value = getattr(cls, name)
        if name.startswith("test_"):
            if not callable(value):
                setattr(made, name, value)
                continue
            test = decorator(_make_fn_with_patches(value, *patches))
            test.__name__ = new = f"{name}{fn_suffix}"
            if xfail_prop is not None and hasattr(value, xfail_prop):
                test = unittest.expectedFailure(test)
            setattr(made, new, test)
        elif name in vars(cls) or not hasattr(made, name):
            if name not in ("__dict__", "__weakref__"):
                setattr(made, name, vars(cls).get(name, value))
    made.__name__, made.__module__ = f"{cls_prefix}{cls.__name__}", cls.__module__
    return made


def _skip(when: bool, why: str) -> Callable[[Any], Any]:
    return unittest.skip(why) if when else lambda fn: fn


def _fail(when: bool) -> Callable[[Any], Any]:
    return unittest.expectedFailure if when else lambda fn: fn


skipIfNotPy311 = _skip(sys.version_info < (3, 11), "requires Python 3.11+")
skipIfNotPy312 = _skip(sys.version_info < (3, 12), "Requires Python 3.12+")
skipIfPy312 = _skip(sys.version_info >= (3, 12), "Not supported in Python 3.12+")
skipIfOnlyNotPy312 = _skip(sys.version_info[:2] != (3, 12), "Requires Python 3.12")
skipIfPy314 = _skip(sys.version_info >= (3, 14), "Not supported in Python 3.14+")
xfailIfPy312 = _fail(sys.version_info >= (3, 12))


def reset_rng_state(use_xla: bool = False) -> None:
    """The random numbers of every run of a benchmark."""
    torch.manual_seed(1337)
