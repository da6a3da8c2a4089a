"""What OpInfo says of every op, as checks over whichever library is called torch: out=, variants, errors, views, dtypes.

A check takes a `Case` and raises where a claim does not hold; parity_ops.py runs them. Nothing here knows which library it
runs on: the same checks over PyTorch say which of them PyTorch itself does not keep.
"""
from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

LOOSE = {"float16": (1e-2, 1e-2), "bfloat16": (4e-2, 4e-2), "float32": (2e-4, 2e-5), "complex64": (2e-4, 2e-5),
         "complex32": (2e-2, 2e-2), "float64": (1e-7, 1e-8), "complex128": (1e-7, 1e-8)}
# Values of these are whatever memory held, or drawn.
UNSET = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}


@dataclass
class Case:
    """One entry of a list in one dtype."""

    torch: Any
    info: Any
    dtype: Any
    device: str
    few: int                # samples of one check

    def samples(self, grad: bool = False) -> Iterator[Any]:
        self.torch.manual_seed(0)
        return islice(self.info.sample_inputs(self.device, self.dtype, requires_grad=grad), self.few)

    def tensors(self, tree: Any) -> list[Any]:
        """The tensors of a tree, in order."""
        if isinstance(tree, self.torch.Tensor):
            return [tree]
        if isinstance(tree, (tuple, list)):
            return [x for part in tree for x in self.tensors(part)]
        return [x for part in tree.values() for x in self.tensors(part)] if isinstance(tree, dict) else []

    def close(self, mine: Any, its: Any, what: str, exact_dtype: bool = True) -> None:
        """Whether two results agree."""
        if self.info.name in UNSET:
            return
        mine, its = self.tensors(mine), self.tensors(its)
        assert len(mine) == len(its), f"{what}: {len(mine)} results and {len(its)}"
        for a, b in zip(mine, its):
            rtol, atol = LOOSE.get(str(b.dtype)[6:], (0.0, 0.0))
            try:
                self.torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True, check_dtype=exact_dtype)
            except AssertionError as error:
                raise AssertionError(f"{what}: {' '.join(str(error).split())}") from None

    def mapped(self, tree: Any, f: Callable[[Any], Any]) -> Any:
        return self.torch.utils._pytree.tree_map(lambda x: f(x) if isinstance(x, self.torch.Tensor) else x, tree)


@dataclass
class Check:
    """A function, the dtypes it is for, and the test of PyTorch whose exceptions hold for it."""

    run: Callable[[Case], None]
    kind: str               # class of the entries it is for
    dtypes: tuple[str, ...]
    test: str


CHECKS: dict[str, Check] = {}


def check(test: str, *dtypes: str, kind: str = "OpInfo") -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    def note(run: Callable[[Case], None]) -> Callable[[Case], None]:
        CHECKS[run.__name__] = Check(run, kind, dtypes, test)
        return run
    return note


def raises(f: Callable[[], Any], kinds: Any, regex: str = "") -> None:
    try:
        f()
    except kinds as error:
        assert re.search(regex, str(error)), f"expected {regex!r}, got {type(error).__name__}: {error}"
        return
    except Exception as error:
        raise AssertionError(f"expected {kinds}, got {type(error).__name__}: {error}") from None
    raise AssertionError(f"nothing raised, expected {kinds}: {regex}")


# ---- out=, variants, errors ------------------------------------------------------------------------------------------
def into(case: Case, sample: Any, out: Any) -> Any:
    return case.info(sample.input, *sample.args, **sample.kwargs, out=out)


def as_out(results: Any) -> Any:
    return tuple(results) if isinstance(results, (tuple, list)) else results


@check("TestCommon.test_out", "float32")
def out(case: Case) -> None:
    """out= of the right kind is written through its strides, a wrong one is resized with a warning or refused."""
    torch, info = case.torch, case.info
    for sample in case.samples():
        expected = info(sample.input, *sample.args, **sample.kwargs)
        if not case.tensors(expected):
            return
        if not info.supports_out:
            raises(lambda: into(case, sample, case.mapped(as_out(expected), torch.empty_like)), TypeError)
            return
        def strided(t: Any) -> Any:
            wide = torch.empty_strided((*t.shape, 2), (*(2 * s for s in t.contiguous().stride()), 1), dtype=t.dtype,
                                       device=t.device) if t.dim() else torch.empty(2, dtype=t.dtype, device=t.device)
            return wide.fill_(1)[..., 0]
        for how, make in (("like", torch.empty_like), ("strided", strided),
                          ("permuted", lambda t: torch.empty(t.shape[::-1], dtype=t.dtype, device=t.device).permute(
                              tuple(reversed(range(t.dim()))))), ("empty", lambda t: t.new_empty(0))):
            given = case.mapped(as_out(expected), make)
            before = [(t.data_ptr(), t.stride()) for t in case.tensors(given)]
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                result = into(case, sample, given)
            case.close(given, expected, f"out {how}")
            assert all(a is b for a, b in zip(case.tensors(result), case.tensors(given))), f"out {how}: another tensor"
            if how != "empty":
                assert before == [(t.data_ptr(), t.stride()) for t in case.tensors(given)], f"out {how}: moved"
        if all(t.numel() for t in case.tensors(expected)):
            wrong = case.mapped(as_out(expected), lambda t: torch.empty((*t.shape, 1, 1), dtype=t.dtype, device=t.device))
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                into(case, sample, wrong)
            assert any("An output with one or more elements" in str(w.message) for w in seen), "no warning of a resize"
        first = case.tensors(expected)[0]
        if len(case.tensors(expected)) == 1 and (first.is_floating_point() or first.is_complex()):
            raises(lambda: into(case, sample, torch.empty_like(first, dtype=torch.long)), RuntimeError)
        if len(case.tensors(expected)) == 1:
            raises(lambda: into(case, sample, torch.empty_like(first, device="meta")), (RuntimeError, NotImplementedError))


@check("TestCommon.test_out_requires_grad_error", "float32")
def out_grad(case: Case) -> None:
    if not case.info.supports_out or not case.info.supports_autograd:
        return
    for sample in islice(case.samples(), 1):
        expected = case.info(sample.input, *sample.args, **sample.kwargs)
        given = case.mapped(as_out(expected), lambda t: case.torch.empty_like(t).requires_grad_(
            t.is_floating_point() or t.is_complex()))
        if any(t.requires_grad for t in case.tensors(given)):
            raises(lambda: into(case, sample, given), RuntimeError, "arguments? .*don't support automatic differentiation")


@check("TestCommon.test_variant_consistency_eager", "float32", "complex64")
def variants(case: Case) -> None:
    """Methods, operators, in-place forms and aliases give what the function gives, gradients included."""
    torch, info = case.torch, case.info
    grad = info.supports_autograd and (case.dtype.is_floating_point or case.dtype in info.supported_backward_dtypes("cpu"))
    for sample in case.samples(grad):
        def given(s: Any = sample) -> Any:
            return case.mapped((s.input, s.args, s.kwargs), lambda t: t.detach().clone().requires_grad_(t.requires_grad))
        def answer(f: Callable[..., Any], change: bool = False) -> tuple[Any, list[Any]]:
            first, args, kwargs = given()
            leaves = [t for t in case.tensors((first, args, kwargs)) if t.requires_grad]
            torch.manual_seed(0)
            result = f(case.mapped(first, torch.clone) if change else first, *args, **kwargs)
            ends = [t for t in case.tensors(result) if t.requires_grad]
            found = torch.autograd.grad(ends, leaves, [torch.ones_like(t) for t in ends], allow_unused=True) \
                if ends and leaves and grad else []
            return result, [g for g in found if g is not None]
        expected, gradients = answer(info.op)
        forms = [("method", info.method_variant), ("operator", info.operator_variant)]
        forms += [(f"alias {a.name}", a.op) for a in info.aliases] + [(f"alias method {a.name}", a.method_variant) for a in
                                                                       info.aliases]
        for name, form in forms:
            if form is None or name == "operator" and (sample.kwargs or len(sample.args) > 1):
                continue
            result, found = answer(form)
            case.close(result, expected, name)
            case.close(found, gradients, f"{name} gradient")
        for name, form in [("inplace", info.inplace_variant), ("inplace operator", info.operator_variant and
                                                               info.inplace_operator_variant),
                           *((f"inplace alias {a.name}", a.inplace_variant) for a in info.aliases)]:
            if form is None or sample.broadcasts_input or "inplace operator" in name and (sample.kwargs or len(sample.args) > 1):
                continue
            same = case.tensors(expected)[0].dtype == case.tensors(sample.input)[0].dtype if case.tensors(expected) else True
            if not same and name == "inplace":
                raises(lambda: answer(form, True), RuntimeError)
                continue
            result, found = answer(form, True)
            case.close(result, expected, name)
            if info.supports_inplace_autograd:
                case.close(found, gradients, f"{name} gradient")


@check("TestCommon.test_errors", "float32")
def errors(case: Case) -> None:
    case.torch.manual_seed(0)
    if case.info.error_inputs_func is None:
        return
    for wrong in case.info.error_inputs(case.device):
        given = wrong.sample_input
        raises(lambda: case.info(given.input, *given.args, **given.kwargs), wrong.error_type, wrong.error_regex)


# ---- layouts and views -----------------------------------------------------------------------------------------------
@check("TestCommon.test_noncontiguous_samples", "float32", "int64", "complex64")
def noncontiguous(case: Case) -> None:
    torch, info = case.torch, case.info
    grad = info.supports_autograd and case.dtype in info.supported_backward_dtypes("cpu")
    for sample in case.samples(grad):
        twin = sample.noncontiguous()
        found = []
        for one in (sample, twin):
            leaves = [t for t in case.tensors((one.input, one.args, one.kwargs)) if t.requires_grad]
            torch.manual_seed(0)
            result = info(one.input, *one.args, **one.kwargs)
            result = one.output_process_fn_grad(result)
            ends = [t for t in case.tensors(result) if t.requires_grad]
            grads = torch.autograd.grad(ends, leaves, [torch.ones_like(t) for t in ends], allow_unused=True) if ends and leaves else []
            found.append((result, [torch.zeros(()) if g is None else g for g in grads]))
        case.close(found[1][0], found[0][0], "strided")
        case.close(found[1][1], found[0][1], "gradient strided")


def math_view(case: Case, physical: Callable[[Any], Any], lazy: Callable[[Any], Any], is_set: Callable[[Any], bool]) -> None:
    """Inputs whose bit says that they are to be read changed give what changed inputs give."""
    torch, info = case.torch, case.info
    grad = info.supports_autograd and case.dtype in info.supported_backward_dtypes("cpu")
    for sample in case.samples(grad):
        tensors = case.tensors(sample.input)
        if not tensors or any(t.layout != torch.strided or t.dtype != case.dtype for t in tensors):
            return
        expected_leaf = case.mapped(sample.input, lambda t: t.detach().clone().requires_grad_(t.requires_grad))
        leaf = case.mapped(sample.input, lambda t: physical(t.detach()).requires_grad_(t.requires_grad))
        for form in (info.op, info.inplace_variant):
            if form is None or form is info.inplace_variant and sample.broadcasts_input:
                continue
            # what the bit is set on is no leaf, so that in-place forms may change it
            plain = expected_leaf if form is info.op else case.mapped(expected_leaf, torch.clone)
            viewed = case.mapped(leaf if form is info.op else case.mapped(leaf, torch.clone), lazy)
            assert all(is_set(t) for t in case.tensors(viewed)), "the bit is not set"
            torch.manual_seed(0)
            try:
                expected = form(plain, *sample.args, **sample.kwargs)
            except RuntimeError:
                if form is info.op:
                    raise
                continue
            torch.manual_seed(0)
            result = form(viewed, *sample.args, **sample.kwargs)
            case.close(result, expected, "inplace" if form is not info.op else "forward")
            ends, its = ([t for t in case.tensors(r) if t.requires_grad] for r in (result, expected))
            leaves, theirs = ([t for t in case.tensors(r) if t.requires_grad] for r in (leaf, expected_leaf))
            if not (grad and its and theirs) or form is not info.op and not info.supports_inplace_autograd:
                continue
            mine = torch.autograd.grad(ends, leaves, [torch.ones_like(t) for t in ends], allow_unused=True)
            wanted = torch.autograd.grad(its, theirs, [torch.ones_like(t) for t in its], allow_unused=True)
            pairs = [(a, physical(b)) for a, b in zip(mine, wanted) if a is not None and b is not None]
            case.close([a for a, _ in pairs], [b for _, b in pairs], "gradient")


@check("TestMathBits.test_conj_view", "complex64")
def conj_view(case: Case) -> None:
    if case.info.test_conjugated_samples:
        torch = case.torch
        math_view(case, torch.conj_physical, torch.conj, torch.is_conj)


@check("TestMathBits.test_neg_view", "float64")
def neg_view(case: Case) -> None:
    if case.info.test_neg_view:
        torch = case.torch
        math_view(case, torch.neg, torch._neg_view, torch.is_neg)


@check("TestMathBits.test_neg_conj_view", "complex128")
def neg_conj_view(case: Case) -> None:
    if case.info.test_neg_view and case.info.test_conjugated_samples:
        torch = case.torch
        math_view(case, lambda t: t.neg().conj_physical(), lambda t: torch._neg_view(t).conj(),
                  lambda t: t.is_neg() and t.is_conj())


# ---- dtypes ----------------------------------------------------------------------------------------------------------
ALL = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex32",
       "complex64", "complex128")


@check("TestCommon.test_dtypes", "float32")
def dtypes(case: Case) -> None:
    """Exactly the dtypes of the entry work forward and backward."""
    torch, info = case.torch, case.info
    claims = {"forward": set(info.supported_dtypes("cpu")), "backward": set(info.supported_backward_dtypes("cpu"))}
    wrong = []
    for name in ALL:
        dtype = getattr(torch, name)
        forward, backward, why = True, info.supports_autograd and (dtype.is_floating_point or dtype.is_complex), ""
        torch.manual_seed(0)
        try:
            samples = list(info.sample_inputs(case.device, dtype, requires_grad=backward))
        except Exception as error:
            if dtype in claims["forward"]:
                wrong.append(f"{name}: samples: {error}"[:80])
            continue
        for sample in samples:
            try:
                result = sample.output_process_fn_grad(info(sample.input, *sample.args, **sample.kwargs))
            except Exception as error:
                forward, why = False, str(error)
                break
            first = next(iter(case.tensors(result)), None)
            try:
                if first is not None and first.requires_grad and backward:
                    first.backward(torch.randn_like(first))
            except Exception as error:
                backward, why = False, str(error)
                break
        if forward != (dtype in claims["forward"]):
            wrong.append(f"{name} forward {'works' if forward else 'fails'} {why[:60]}")
        elif forward and info.supports_autograd and (dtype.is_floating_point or dtype.is_complex) and samples and \
                backward != (dtype in claims["backward"]):
            wrong.append(f"{name} backward {'works' if backward else 'fails'} {why[:60]}")
    assert not wrong, "; ".join(wrong)


@check("TestCommon.test_numpy_ref", "float64", "complex128", "int64")
def reference(case: Case) -> None:
    """What the entry's reference function over NumPy gives."""
    torch, info = case.torch, case.info
    if info.ref is None or info.ref is NotImplemented or getattr(info.ref, "__name__", "") == "_NOTHING":
        return
    torch.manual_seed(0)
    for sample in islice(info.reference_inputs(case.device, case.dtype), 4 * case.few):
        mine = info(sample.input, *sample.args, **sample.kwargs)
        numbers = sample.numpy()
        its = info.ref(numbers.input, *numbers.args, **numbers.kwargs)
        tensors = case.tensors(mine)
        its = its if isinstance(its, (tuple, list)) else [its]
        for a, b in zip(tensors, its):
            case.close(a, torch.as_tensor(b).to(a.dtype).reshape(a.shape) if a.numel() else a, "reference")


# ---- derivatives -----------------------------------------------------------------------------------------------------
def derivative(case: Case, second: bool, forward: bool) -> None:
    torch, info = case.torch, case.info
    for sample in islice(case.samples(True), 2):
        if max([t.numel() for t in case.tensors((sample.input, sample.args))] or [0]) > 60:
            continue
        leaves = [t for t in case.tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
        if not leaves:
            continue
        def f(*values: Any, sample: Any = sample, leaves: Any = leaves) -> Any:
            swap = {id(a): b for a, b in zip(leaves, values)}
            first, args, kwargs = case.mapped((sample.input, sample.args, sample.kwargs), lambda t: swap.get(id(t), t))
            torch.manual_seed(0)
            result = sample.output_process_fn_grad(info.gradcheck_wrapper(info.op, first, *args, **kwargs))
            ends = tuple(t for t in case.tensors(result) if t.is_floating_point() or t.is_complex())
            return ends if len(ends) != 1 else ends[0]
        options = {"fast_mode": True, "check_batched_grad": False, "nondet_tol": 1e-10}
        if second:
            assert torch.autograd.gradgradcheck(f, leaves, gen_non_contig_grad_outputs=False, **options)
        else:
            assert torch.autograd.gradcheck(f, leaves, check_forward_ad=forward, check_backward_ad=not forward,
                                            check_undefined_grad=not forward, **options)


@check("TestBwdGradients.test_fn_grad", "float64", "complex128")
def grad(case: Case) -> None:
    if case.info.supports_autograd and case.dtype in case.info.supported_backward_dtypes("cpu"):
        derivative(case, False, False)


@check("TestBwdGradients.test_fn_gradgrad", "float64")
def gradgrad(case: Case) -> None:
    if case.info.supports_autograd and case.info.supports_gradgrad:
        derivative(case, True, False)


@check("TestFwdGradients.test_forward_mode_AD", "float64")
def forward_mode(case: Case) -> None:
    if case.info.supports_autograd and case.info.supports_forward_ad:
        derivative(case, False, True)


# ---- copy on write ---------------------------------------------------------------------------------------------------
@check("TestCompositeCompliance.test_cow_input", "float32")
def copy_on_write(case: Case) -> None:
    """Arguments and gradients that share their memory by _lazy_clone() go on sharing it where they are only read, and what
    they were made of never changes."""
    torch, info = case.torch, case.info

    def lazily(tree: Any, noted: dict[Any, Any], names: Any) -> list[Any]:
        made = []
        for name, x in zip(names, tree):
            if isinstance(x, torch.Tensor) and x.layout == torch.strided:
                noted[name] = (torch._lazy_clone(x), x.detach().clone(), x)
                x = noted[name][0]
            made.append(x)
        return made

    def look(noted: dict[Any, Any], claimed: bool, allowed: Any, when: str) -> None:
        for name, (now, before, origin) in noted.items():
            shares = torch._C._is_cow_tensor(now)
            assert shares or not claimed or name in (allowed or ()), f"{when}: {name} was copied"
            assert not shares or torch._C._data_address(now) == torch._C._data_address(origin), f"{when}: {name} moved"
            torch.testing.assert_close(origin.detach(), before, rtol=0, atol=0, equal_nan=True)
            if shares:
                torch.testing.assert_close(now.detach(), before, rtol=0, atol=0, equal_nan=True)
    for sample in case.samples(info.supports_autograd):
        noted: dict[Any, Any] = {}
        args = lazily((sample.input, *sample.args), noted, range(1 + len(sample.args)))
        kwargs = dict(zip(sample.kwargs, lazily(sample.kwargs.values(), noted, sample.kwargs)))
        result = info.get_op()(*args, **kwargs)
        look(noted, info.supports_cow_input_no_materialize_forward, info.allow_cow_input_materialize_forward, "forward")
        leaves = [t for t in case.tensors((args, kwargs)) if t.requires_grad]
        if not info.supports_autograd or not leaves or info.skip_cow_input_backward:
            continue
        ends = [t for t in case.tensors(sample.output_process_fn_grad(result)) if t.requires_grad]
        if any(t.layout != torch.strided for t in ends):
            continue
        grads = lazily([torch.ones_like(t) for t in ends], noted, [f"output grad {i}" for i in range(len(ends))])
        torch.autograd.grad(ends, leaves, grads, allow_unused=True)
        look(noted, info.supports_cow_input_no_materialize_backward,
             [*(info.allow_cow_input_materialize_forward or ()), *(info.allow_cow_input_materialize_backward or ())], "backward")


# ---- tensors of a class that holds others ----------------------------------------------------------------------------
def compliant(case: Case, grad: bool, run: Callable[..., None]) -> None:
    """PyTorch's own checks that ops read no memory of such tensors and write none into plain ones."""
    import torch.testing._internal.composite_compliance as rules  # over whichever library is called torch

    def same(mine: Any, its: Any, **_: Any) -> None:
        case.torch.testing.assert_close(mine, its, rtol=2e-4, atol=2e-5, equal_nan=True, check_stride=False)
    for sample in case.samples(grad and case.info.supports_autograd):
        run(rules, sample, [sample.input, *sample.args], same)


@check("TestCompositeCompliance.test_operator", "float32")
def composite(case: Case) -> None:
    def run(rules: Any, sample: Any, args: list[Any], same: Any) -> None:
        rules.check_with_mode(case.info, args, sample.kwargs, same)
        rules.check_all_permutations(case.info, args, sample.kwargs, same)
    compliant(case, False, run)


@check("TestCompositeCompliance.test_backward", "float32")
def composite_backward(case: Case) -> None:
    if case.info.supports_autograd:
        compliant(case, True, lambda rules, sample, args, same: rules.check_backward_formula(
            case.info.get_op(), args, sample.kwargs, sample.output_process_fn_grad, case.info.gradcheck_wrapper, same))


@check("TestCompositeCompliance.test_forward_ad", "float32")
def composite_forward_ad(case: Case) -> None:
    if case.info.supports_autograd and case.info.supports_forward_ad:
        compliant(case, True, lambda rules, sample, args, same: rules.check_forward_ad_formula(
            case.info.get_op(), args, sample.kwargs, case.info.gradcheck_wrapper, same))
