"""Checks of the forms an op is called in: slices and layouts of pointwise ops, odd values of reductions, lists of tensors, sparse
errors, storages of odd bools. See parity_op_checks.py."""
from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from parity_op_checks import Case, check, raises

POINTWISE = ("float32", "int64", "bool", "complex64", "bfloat16")


# ---- pointwise: every layout and slice gives what one item gives -----------------------------------------------------
def filled(case: Case, shape: tuple[int, ...]) -> Any:
    low, high = getattr(case.info, "domain", (None, None))
    return case.torch.testing.make_tensor(shape, dtype=case.dtype, device=case.device, low=low, high=high,
                                          exclude_zero=getattr(case.info, "rhs_make_tensor_kwargs", {}).get("exclude_zero", True))


def layouts(case: Case) -> dict[str, Callable[[Any], Any]]:
    """Tensors of the same items with other strides, by name."""
    torch = case.torch

    def apart(t: Any) -> Any:
        return torch.stack([t, t], -1)[..., 0]

    def turned(t: Any) -> Any:
        return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() else t

    def late(t: Any) -> Any:
        return torch.cat([t.reshape(-1)[:1], t.reshape(-1)])[1:].reshape(t.shape) if t.numel() else t
    return {"every other": apart, "transposed": turned, "offset": late,
            "size 1": lambda t: t.unsqueeze(0).transpose(0, -1).contiguous().transpose(0, -1).squeeze(0)}


def pointwise_layouts(case: Case, count: int) -> None:
    torch, info = case.torch, case.info
    torch.manual_seed(0)
    for shape in ((5,), (7, 4), (1, 6), (2, 3, 5), (1, 1, 9), (0, 3), ()):
        given = [filled(case, shape) for _ in range(count)]
        kwargs = info.sample_kwargs(case.device, case.dtype, given[0])[0] if count == 1 else {}
        expected = info(*given, **kwargs)
        for name, change in layouts(case).items():
            case.close(info(*map(change, given), **kwargs), expected, f"{name} {shape}")
    whole = [filled(case, (6, 8)) for _ in range(count)]
    kwargs = info.sample_kwargs(case.device, case.dtype, whole[0])[0] if count == 1 else {}
    expected = info(*whole, **kwargs)
    for row in range(3):
        case.close(info(*[t[row] for t in whole], **kwargs), case.mapped(expected, lambda t, row=row: t[row]), "a slice")
    index = torch.tensor([4, 0, 2])
    case.close(info(*[t[:, index] for t in whole], **kwargs), case.mapped(expected, lambda t: t[:, index]), "an index")
    case.close(info(*[t[:1].expand(6, 8) for t in whole], **kwargs), case.mapped(expected, lambda t: t[:1].expand(6, 8)),
               "expanded")


@check("TestUnaryUfuncs.test_contig_vs_every_other", *POINTWISE, kind="UnaryUfuncInfo")
def unary_layouts(case: Case) -> None:
    pointwise_layouts(case, 1)


@check("TestBinaryUfuncsDevice.test_non_contig", *POINTWISE, kind="BinaryUfuncInfo")
def binary_layouts(case: Case) -> None:
    pointwise_layouts(case, 2)


@check("TestUnaryUfuncs.test_float_domains", "float32", "float64", kind="UnaryUfuncInfo")
def unary_domains(case: Case) -> None:
    """Outside of its domain a function is nan."""
    torch, info = case.torch, case.info
    low, high = info.domain
    for edge, sign in ((low, -1), (high, 1)):
        if edge is None:
            continue
        for away in (1.0, 1e-1, 1e-3, 1e5):
            x = torch.tensor(edge + sign * away, dtype=case.dtype, device=case.device)
            if x.item() != edge:
                assert info(x, **info.sample_kwargs(case.device, case.dtype, x)[0]).isnan(), f"{x.item()} gives a number"


@check("TestBinaryUfuncsDevice.test_broadcast_python_scalar", "float32", "int64", "bool", kind="BinaryUfuncInfo")
def binary_number(case: Case) -> None:
    """A number on the right broadcasts to any shape."""
    info = case.info
    if not info.supports_rhs_python_scalar:
        return
    for shape in ((), (3,), (0, 2), (2, 1, 3)):
        x = filled(case, shape)
        assert info(x, True if case.dtype == case.torch.bool else 2).shape == x.shape


# ---- reductions: against the reference over NumPy --------------------------------------------------------------------
def reduced_like(case: Case, x: Any, **given: Any) -> None:
    torch, info = case.torch, case.info
    for args, kwargs in islice(info.generate_args_kwargs(x, **given), 4):
        mine = info(x, *args, **given, **kwargs)
        wide = x.float() if x.dtype == torch.bfloat16 else x
        its = torch.as_tensor(info.ref(wide.detach().cpu().numpy(), *args, **{("axis" if k == "dim" else "keepdims" if k == "keepdim"
                                                                            else k): v for k, v in {**given, **kwargs}.items()}))
        if mine.numel():
            case.close(mine, its.to(mine.dtype).reshape(mine.shape), f"{list(x.shape)} {given} {args} {kwargs}")


def reductions(kind: str, *dtypes: str) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    return check(f"TestReductions.test_ref_{kind}", *dtypes, kind="ReductionOpInfo")


KINDS = ("float32", "float64", "int64", "bool", "complex64", "uint8")


@reductions("scalar_input", *KINDS)
def reduction_scalar(case: Case) -> None:
    if case.info.ref is not None:
        reduced_like(case, filled(case, ()))


@reductions("small_input", *KINDS)
def reduction_small(case: Case) -> None:
    if case.info.ref is not None:
        x = filled(case, (3, 4, 2, 5))
        reduced_like(case, x)
        for dim in ([0], [1, 3], [-1, 0, 2]) if case.info.supports_multiple_dims else (0, 2):
            reduced_like(case, x, dim=tuple(dim) if isinstance(dim, list) else dim, keepdim=True)


@reductions("large_input_1D", "float64", "int64")
def reduction_large(case: Case) -> None:
    if case.info.ref is not None:
        reduced_like(case, filled(case, (100_003,)))
        reduced_like(case, filled(case, (32, 3001)), dim=1)


@reductions("duplicate_values", *KINDS)
def reduction_ties(case: Case) -> None:
    if case.info.ref is not None:
        x = filled(case, (4, 4)).clone()
        x[:] = x[0, 0]
        reduced_like(case, x)
        reduced_like(case, x, dim=0)


@reductions("extremal_values", "float32", "float64", "complex64")
def reduction_extremal(case: Case) -> None:
    if case.info.ref is not None:
        for odd in (0.0, 1.0, float("nan"), float("inf"), -float("inf")):
            x = filled(case, (5,)).clone()
            x[2] = odd
            reduced_like(case, x)


# ---- lists of tensors ------------------------------------------------------------------------------------------------
def list_samples(case: Case, grad: bool = False) -> Any:
    case.torch.manual_seed(0)
    return islice(case.info.sample_inputs(case.device, case.dtype, requires_grad=grad), 3 * case.few)


def copies(case: Case, tensors: Any) -> list[Any]:
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]


def one_by_one(case: Case, f: Any, sample: Any, tensors: list[Any]) -> list[Any]:
    """What the op of single tensors gives, item by item."""
    found = []
    for i, t in enumerate(tensors):
        args = [a[i] if isinstance(a, (list, tuple)) or isinstance(a, case.torch.Tensor) and a.dim() == 1 and f.__name__ in (
            "addcmul", "addcdiv", "addcmul_", "addcdiv_") else a for a in sample.args]
        found.append(f(t, *args, **sample.ref_kwargs if hasattr(sample, "ref_kwargs") else sample.kwargs))
    return found


SOME = ("float32", "float64", "bfloat16", "int64", "bool", "complex64", "uint8")


@check("TestForeach.test_parity", *SOME, kind="lists")
def foreach(case: Case) -> None:
    """Ops over lists give, or refuse, what single ops do, in place as well."""
    info = case.info
    for sample in list_samples(case):
        for form, single in ((info.method_variant if info.supports_out else None, info.ref), (info.inplace_variant, info.ref_inplace)):
            if form is None or single is None:
                continue
            given, twins = copies(case, sample.input), copies(case, sample.input)
            try:
                expected = one_by_one(case, single, sample, twins)
            except (RuntimeError, TypeError, ZeroDivisionError) as error:
                if "unexpected keyword" not in str(error):
                    raises(lambda: form(given, *sample.args, **sample.kwargs), (RuntimeError, TypeError, ZeroDivisionError))
                continue
            found = form(given, *sample.args, **sample.kwargs)
            if form is info.inplace_variant:
                found, expected = given, twins
            case.close(list(found), list(expected), "list" if form is not info.inplace_variant else "list in place")


@check("TestForeach.test_autodiff", "float64", "complex128", kind="lists")
def foreach_grad(case: Case) -> None:
    """Gradients of ops over lists are those of single ops."""
    torch, info = case.torch, case.info
    if not (info.supports_autograd or info.supports_forward_ad) or info.ref is None or not info.supports_out:
        return
    for sample in list_samples(case, True):
        results = []
        for over_list in (True, False):
            leaves = copies(case, sample.input)
            try:
                found = info.method_variant(leaves, *sample.args, **sample.kwargs) if over_list else \
                    one_by_one(case, info.ref, sample, leaves)
            except (RuntimeError, TypeError):
                results.append(None)
                continue
            ends = [t for t in found if t.requires_grad]
            results.append([g for g in torch.autograd.grad(ends, leaves, [torch.ones_like(t) for t in ends], allow_unused=True)
                            if g is not None] if ends else [])
        if None not in results:
            case.close(results[0], results[1], "gradient")


@check("TestForeach.test_inplace_foreach_leaf_check_and_grad_fn", "float32", kind="lists")
def foreach_leaf(case: Case) -> None:
    """In place, a leaf that needs a gradient is refused; what is none has the node of its own op afterwards."""
    info = case.info
    if info.inplace_variant is None or not info.supports_autograd:
        return
    for sample in islice(list_samples(case), 2):
        leaves = [t.detach().clone() for t in sample.input]
        leaves[0].requires_grad_()
        raises(lambda: info.inplace_variant(leaves, *sample.args, **sample.kwargs), RuntimeError,
               "a leaf Variable that requires grad is being used in an in-place operation")
        mixed = [t.detach().clone().requires_grad_(i == 0).clone() for i, t in enumerate(sample.input)]
        info.inplace_variant(mixed, *sample.args, **sample.kwargs)
        assert mixed[0].grad_fn is not None, "no node"
        assert all(t.grad_fn is None or t.requires_grad for t in mixed[1:]), "a node of what needs none"


@check("TestForeach.test_all_zero_size_tensors_do_not_launch_kernel", "float32", kind="lists")
def foreach_nothing(case: Case) -> None:
    info = case.info
    for sample in info.sample_zero_size_inputs(case.device, case.dtype):
        for form in (info.method_variant if info.supports_out else None, info.inplace_variant):
            if form is not None:
                form(copies(case, sample.input), *sample.args, **sample.kwargs)


# ---- odd inputs ------------------------------------------------------------------------------------------------------
@check("TestCommon.test_non_standard_bool_values", "bool")
def odd_bools(case: Case) -> None:
    """A bool is true by any byte but 0."""
    torch = case.torch

    def odd(t: Any) -> Any:
        if t.dtype != torch.bool:
            return t
        bytes_ = torch.randint(2, 256, t.shape, dtype=torch.uint8, device=t.device)
        return torch.where(t, bytes_, torch.zeros_like(bytes_)).view(torch.bool)
    for sample in case.samples():
        expected = case.info(*case.mapped((sample.input, *sample.args), torch.clone), **sample.kwargs)
        twin = sample.transform(lambda x: odd(x) if isinstance(x, torch.Tensor) else x)
        case.close(case.info(twin.input, *twin.args, **twin.kwargs), expected, "odd bools")


@check("TestCommon.test_complex_half_reference_testing", "complex32")
def complex_half(case: Case) -> None:
    torch = case.torch
    for sample in case.samples():
        mine = case.info(sample.input, *sample.args, **sample.kwargs)
        wide = sample.transform(lambda x: x.to(torch.complex64) if isinstance(x, torch.Tensor) and x.dtype == torch.complex32
                                else torch.complex64 if x is torch.complex32 else x)
        its = case.info(wide.input, *wide.args, **wide.kwargs)
        case.close([t.to(torch.complex64) if t.dtype == torch.complex32 else t for t in case.tensors(mine)],
                   [t.to(torch.complex32).to(torch.complex64) if t.is_complex() else t for t in case.tensors(its)], "half",
                   exact_dtype=False)


@check("TestCommon.test_promotes_int_to_float", "int64", "bool", "uint8")
def int_to_float(case: Case) -> None:
    for sample in case.samples():
        if getattr(case.info, "promotes_int_to_float", False):
            result = case.info(sample.input, *sample.args, **sample.kwargs)
            assert all(t.dtype == case.torch.get_default_dtype() for t in case.tensors(result)), "no float"


@check("TestCommon.test_errors_sparse", "float32")
def errors_sparse(case: Case) -> None:
    torch, info = case.torch, case.info
    if not info.supports_sparse and info.error_inputs_sparse_func is None:
        return
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc, torch.sparse_coo):
        if info.error_inputs_sparse_func is None:
            return
        for wrong in info.error_inputs_sparse(case.device, layout):
            given = wrong.sample_input
            raises(lambda given=given: info(given.input, *given.args, **given.kwargs), wrong.error_type, wrong.error_regex)


@check("TestFakeTensor.test_strided_layout", "float32")
def strided_layout(case: Case) -> None:
    """layout=torch.strided is taken wherever a layout is."""
    torch = case.torch
    for sample in case.samples():
        result = case.info(sample.input, *sample.args, **sample.kwargs)
        if "layout" in sample.kwargs or not case.info.name.endswith("_like"):
            continue
        again = case.info(sample.input, *sample.args, **{**sample.kwargs, "layout": torch.strided})
        assert again.layout == torch.strided and again.stride() == result.stride()
