"""Checks of what programs that look at ops ask: fake tensors, references, tags, views made again. See parity_op_checks.py."""
from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from typing import Any

from parity_op_checks import Case, check, raises

GRADCHECKED = ("float64", "complex128")


# ---- fake tensors ----------------------------------------------------------------------------------------------------
def faked(case: Case, sample: Any) -> tuple[Any, Any]:
    """(a mode, a sample of its tensors)."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # of whichever library is called torch
    mode = FakeTensorMode()
    return mode, case.mapped((sample.input, sample.args, sample.kwargs), mode.from_tensor)


def looks_alike(case: Case, mine: Any, its: Any, strides: bool = True) -> None:
    torch = case.torch
    a, b = case.tensors(mine), case.tensors(its)
    assert len(a) == len(b), f"{len(a)} results of fake tensors, {len(b)} of real ones"
    for x, y in zip(a, b):
        if y.layout == torch.strided:
            assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{x.dtype} {list(x.shape)}, expected {y.dtype} {list(y.shape)}"
            same = not strides or torch._prims_common.check_significant_strides(x, y)[0]
            assert same, f"strides {x.stride()} of {list(x.shape)}, expected {y.stride()}"


def fake_run(case: Case, strides: bool, around: Any = nullcontext) -> None:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    for sample in case.samples():
        mode, (first, args, kwargs) = faked(case, sample)
        with around():
            expected = case.info(sample.input, *sample.args, **sample.kwargs)
        try:
            with mode, around():
                found = case.info(first, *args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            continue
        looks_alike(case, found, expected, strides)
        for x, y in zip(case.tensors(found), case.tensors(expected)):
            assert type(x).__name__ == "FakeTensor", "a result is no fake tensor"
            assert x.requires_grad == y.requires_grad, "requires_grad"


@check("TestFakeTensor.test_fake", "float32")
def fake(case: Case) -> None:
    """Fake tensors give results that look like those of real ones."""
    fake_run(case, True)


@check("TestFakeTensor.test_fake_autocast", "float32")
def fake_autocast(case: Case) -> None:
    fake_run(case, False, lambda: case.torch.autocast("cpu"))


def crossed(case: Case, backward: bool) -> None:
    from torch._subclasses.fake_utils import CrossRefFakeMode
    for sample in case.samples(backward):
        with CrossRefFakeMode(check_aliasing=False):
            result = case.info(sample.input, *sample.args, **sample.kwargs)
            ends = [t for t in case.tensors(sample.output_process_fn_grad(result)) if t.requires_grad]
            leaves = [t for t in case.tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
            if backward and ends and leaves:
                case.torch.autograd.grad(ends, leaves, [case.torch.ones_like(t) for t in ends], allow_unused=True)


@check("TestFakeTensor.test_fake_crossref_backward_no_amp", "float32")
def fake_backward(case: Case) -> None:
    if case.info.supports_autograd:
        crossed(case, True)


@check("TestMeta.test_dispatch_meta_outplace", "float32", "int64")
def meta(case: Case) -> None:
    """Tensors of the meta device give results that look like those of real ones."""
    torch = case.torch
    for sample in case.samples():
        if any(t.layout != torch.strided for t in case.tensors((sample.input, sample.args, sample.kwargs))):
            continue

        def bare(t: Any) -> Any:
            return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        first, args, kwargs = case.mapped((sample.input, sample.args, sample.kwargs), bare)
        expected = case.info(sample.input, *sample.args, **sample.kwargs)
        if not case.tensors((sample.input, sample.args, sample.kwargs)):
            kwargs = {**kwargs, "device": "meta"}
        looks_alike(case, case.info(first, *args, **{**kwargs, **({"device": "meta"} if "device" in kwargs else {})}), expected)


# ---- views, tags -----------------------------------------------------------------------------------------------------
@check("TestCompositeCompliance.test_view_replay", "float32")
def view_replay(case: Case) -> None:
    """A view knows how it is made of another base, and how a base would be made of it."""
    torch = case.torch
    with torch.autograd._force_original_view_tracking(True):
        for sample in case.samples():
            base = sample.input
            for out in case.tensors(case.info(base, *sample.args, **sample.kwargs)):
                if not isinstance(base, torch.Tensor) or not out._is_view() or out._base is not base:
                    continue
                other = base.clone()
                again = out._view_func_unsafe(other)
                assert (again.shape, again.stride(), again.dtype) == (out.shape, out.stride(), out.dtype), "another view"
                case.close(again, out, "replayed")
                back = out._rev_view_func_unsafe(out.detach())
                assert (back.shape, back.dtype) == (base.shape, base.dtype) and back._is_view(), "no view of the view"


@check("TestTags.test_tags", "float32")
def tags(case: Case) -> None:
    """Exactly the ops with the tag inplace_view change how an argument looks."""
    torch = case.torch
    from torch.utils._python_dispatch import TorchDispatchMode
    wrong = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = case.tensors((args, kwargs or {}))
            before = [(t.shape, t.stride()) for t in given if t.layout == torch.strided]
            result = func(*args, **(kwargs or {}))
            after = [(t.shape, t.stride()) for t in given if t.layout == torch.strided]
            if before != after and torch.Tag.inplace_view not in func.tags and "out" not in (kwargs or {}):
                wrong.append(str(func))
            return result
    for sample in islice(case.samples(), 2):
        for form in (case.info.op, case.info.inplace_variant):
            if form is None or form is case.info.inplace_variant and sample.broadcasts_input:
                continue
            first = case.mapped(sample.input, lambda t: t.detach().clone())
            try:
                form(case.mapped(first, lambda t: t.clone()), *sample.args, **sample.kwargs)
            except RuntimeError:
                continue
            with Watch():
                form(first, *sample.args, **sample.kwargs)
    assert not wrong, f"without the tag inplace_view: {wrong}"


# ---- derivatives as PyTorch's own helpers look at them ----------------------------------------------------------------
def looked_at(case: Case, form: Any, what: str, **options: Any) -> None:
    import unittest

    from torch.testing._internal.common_utils import TestGradients  # over whichever library is called torch
    info, tester = case.info, TestGradients()
    full = info.sample_inputs
    info.sample_inputs = lambda *args, **kwargs: islice(full(*args, **kwargs), 2)
    try:
        tester._skip_helper(info, case.device, case.dtype)
        tester._check_helper(case.device, case.dtype, info, form, what, **options)
    except unittest.SkipTest:
        pass
    finally:
        del info.sample_inputs


@check("TestBwdGradients.test_fn_grad", *GRADCHECKED)
def grad_batched(case: Case) -> None:
    """Gradients, those of batches and of undefined ones among them."""
    if case.info.supports_autograd:
        looked_at(case, case.info.get_op(), "gradcheck")


@check("TestBwdGradients.test_inplace_grad", *GRADCHECKED)
def grad_inplace(case: Case) -> None:
    info = case.info
    if info.inplace_variant is not None and info.supports_inplace_autograd:
        looked_at(case, safe(info), "gradcheck")


@check("TestBwdGradients.test_fn_gradgrad", *GRADCHECKED)
def gradgrad_batched(case: Case) -> None:
    if case.info.supports_gradgrad:
        looked_at(case, case.info.get_op(), "bwgrad_bwgrad")


@check("TestBwdGradients.test_inplace_gradgrad", *GRADCHECKED)
def gradgrad_inplace(case: Case) -> None:
    info = case.info
    if info.inplace_variant is not None and info.supports_inplace_autograd and info.supports_gradgrad:
        looked_at(case, safe(info), "bwgrad_bwgrad")


@check("TestBwdGradients.test_fn_fail_gradgrad", *GRADCHECKED)
def gradgrad_refused(case: Case) -> None:
    if case.info.supports_autograd and not case.info.supports_gradgrad:
        raises(lambda: looked_at(case, case.info.get_op(), "bwgrad_bwgrad"), Exception,
               "is not implemented|is not differentiable|[Cc]an't|not require|double backward|gradgrad")


@check("TestFwdGradients.test_forward_mode_AD", *GRADCHECKED)
def forward_batched(case: Case) -> None:
    info = case.info
    if info.supports_forward_ad:
        looked_at(case, info.get_op(), "gradcheck", check_forward_ad=True, check_backward_ad=False,
                  check_batched_grad=False, check_batched_forward_grad=info.check_batched_forward_grad)
    elif info.supports_autograd and case.dtype in info.supported_backward_dtypes("cpu"):
        raises(lambda: looked_at(case, info.get_op(), "gradcheck", check_forward_ad=True, check_backward_ad=False,
                                 check_batched_grad=False), NotImplementedError, "forward mode|forward AD|does not support it")


@check("TestFwdGradients.test_inplace_forward_mode_AD", *GRADCHECKED)
def forward_inplace(case: Case) -> None:
    info = case.info
    if info.inplace_variant is not None and info.supports_inplace_autograd and info.supports_forward_ad:
        looked_at(case, safe(info), "gradcheck", check_forward_ad=True, check_backward_ad=False, check_batched_grad=False,
                  check_batched_forward_grad=False)


@check("TestFwdGradients.test_fn_fwgrad_bwgrad", *GRADCHECKED)
def forward_of_grad(case: Case) -> None:
    if case.info.supports_fwgrad_bwgrad:
        looked_at(case, case.info.get_op(), "fwgrad_bwgrad")


def safe(info: Any) -> Any:
    """The in-place form over a copy."""
    from torch.testing._internal.common_utils import TestGradients
    return TestGradients()._get_safe_inplace(info.inplace_variant)


# ---- references ------------------------------------------------------------------------------------------------------
def refs_run(case: Case, op: Any, strides: bool = True) -> None:
    info = case.info
    case.torch.manual_seed(0)
    for sample in islice(info.reference_inputs(case.device, case.dtype), case.few):
        case.torch.manual_seed(0)
        its = info.torch_opinfo(sample.input, *sample.args, **sample.kwargs)
        case.torch.manual_seed(0)
        mine = op(sample.input, *sample.args, **sample.kwargs)
        looks_alike(case, mine, its, strides)
        for a, b in zip(case.tensors(mine), case.tensors(its)):
            if getattr(info, "validate_view_consistency", True):
                assert a._is_view() == b._is_view(), f"a view: {a._is_view()} and {b._is_view()}"
        if info.torch_opinfo.name not in ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"):
            case.close(mine, its, "reference")


@check("TestCommon.test_python_ref", "float32", "int64", "bfloat16", "complex64", "bool", kind="refs")
def ref(case: Case) -> None:
    refs_run(case, case.info)


@check("TestCommon.test_python_ref_executor", "float32", kind="refs")
def ref_executor(case: Case) -> None:
    from torch._prims.executor import make_traced
    refs_run(case, lambda *args, **kwargs: make_traced(case.info.op)(*args, executor="aten", **kwargs), False)


@check("TestCommon.test_python_ref_meta", "float32", "int64", "complex64", kind="refs")
def ref_meta(case: Case) -> None:
    case.torch.manual_seed(0)
    for sample in islice(case.info.reference_inputs(case.device, case.dtype), case.few):
        expected = case.info(sample.input, *sample.args, **sample.kwargs)
        mode, (first, args, kwargs) = faked(case, sample)
        with mode:
            found = case.info(first, *args, **kwargs)
        looks_alike(case, found, expected)


@check("TestCommon.test_python_ref_errors", "float32", kind="refs")
def ref_errors(case: Case) -> None:
    """What is wrong is refused for tensors without values as well."""
    if case.info.error_inputs_func is None:
        return
    for wrong in case.info.error_inputs(case.device):
        mode, (first, args, kwargs) = faked(case, wrong.sample_input)
        with mode:
            raises(lambda first=first, args=args, kwargs=kwargs: case.info(first, *args, **kwargs), wrong.error_type,
                   wrong.error_regex)


@check("TestForwardADWithScalars.test_0d_tensor_with_python_scalar", "float32", kind="BinaryUfuncInfo")
def dual_numbers(case: Case) -> None:
    """A dual tensor without dims and a number give a value and a tangent of one dtype."""
    torch, info = case.torch, case.info
    if not info.supports_forward_ad or case.dtype not in info.supported_backward_dtypes("cpu"):
        return
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(torch.rand(()), torch.rand(()))
        calls = [(dual, 2.0)] * info.supports_rhs_python_scalar + [(2.0, dual)] * info.supports_one_python_scalar
        for args in calls:
            value, tangent = forward.unpack_dual(info(*args))
            assert tangent is None or value.dtype == tangent.dtype, f"{value.dtype} and {tangent.dtype}"


@check("TestRefsOpsInfo.test_refs_are_in_decomp_table", "float32", kind="refs")
def decomposed(case: Case) -> None:
    """A reference that torch registers as a decomposition is one."""
    from torch._decomp import decomposition_table  # of whichever library is called torch
    from torch.testing._internal.common_methods_invocations import python_ref_db
    packages = {"_refs": case.torch._refs, "linalg": case.torch._refs.linalg, "fft": case.torch._refs.fft,
                "special": case.torch._refs.special, "functional": case.torch._refs.nn.functional}
    *path, name = case.info.name.split(".")
    assert case.info in python_ref_db
    assert any(getattr(packages.get(path[-1]), name, None) is f for f in decomposition_table.values()), "is in no table"
