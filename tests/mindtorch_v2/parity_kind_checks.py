"""Checks for kinds of entries: reductions, pointwise ops of one and two tensors, modules, optimizers. See parity_op_checks.py."""
from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from parity_op_checks import Case, check, raises

INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
SOME = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")


# ---- reductions ------------------------------------------------------------------------------------------------------
def reduced(case: Case, x: Any, **given: Any) -> Any:
    args, kwargs = next(case.info.generate_args_kwargs(x, **given))
    return case.info(x, *args, **given, **kwargs)


def shape_after(x: Any, dims: Any, keep: bool) -> list[int]:
    gone = {d % max(x.dim(), 1) for d in dims}
    return [1 if d in gone else n for d, n in enumerate(x.shape) if keep or d not in gone]


@check("TestReductions.test_dim_multi", "float32", kind="ReductionOpInfo")
def reduction_dims(case: Case) -> None:
    """dim= of every kind, with and without keepdim: shapes, and what is refused."""
    torch, info = case.torch, case.info
    x = torch.randn(2, 3, 4, 2, device=case.device)
    for keep in (False, True):
        for dim in (0, 2, -1):
            assert list(reduced(case, x, dim=dim, keepdim=keep).shape) == shape_after(x, [dim], keep), f"dim={dim}"
        assert list(reduced(case, x, keepdim=keep).shape) == shape_after(x, range(4), keep), "no dim"
        if info.supports_multiple_dims:
            for dims in ([0, 2], [3, 1], [-1, 0], [0, 1, 2, 3]):
                assert list(reduced(case, x, dim=dims, keepdim=keep).shape) == shape_after(x, dims, keep), f"dim={dims}"
            assert list(reduced(case, x, dim=[], keepdim=keep).shape) == shape_after(x, range(4), keep), "dim=[]"
    for off in (-5, 4):
        raises(lambda: reduced(case, x, dim=off), IndexError)
    if info.supports_multiple_dims:
        raises(lambda: reduced(case, x, dim=[0, 0]), RuntimeError)
        raises(lambda: reduced(case, x, dim=[0, -4]), RuntimeError)
    else:
        raises(lambda: reduced(case, x, dim=[0, 1]), TypeError)
    scalar = torch.randn((), device=case.device)
    for dim in (0, -1):
        assert reduced(case, scalar, dim=dim).dim() == 0, "a scalar's dim"


@check("TestReductions.test_dim_ndim_limit", "float32", kind="ReductionOpInfo")
def reduction_rank(case: Case) -> None:
    raises(lambda: reduced(case, case.torch.ones([1] * 65), dim=0), RuntimeError, "only tensors with up to 64 dims")


@check("TestReductions.test_result_dtype", *SOME, kind="ReductionOpInfo")
def reduction_dtypes(case: Case) -> None:
    torch, info = case.torch, case.info
    x = torch.ones(5, dtype=case.dtype, device=case.device)
    result = reduced(case, x, dim=0)
    integral = not case.dtype.is_floating_point and not case.dtype.is_complex
    want = info.result_dtype or (torch.get_default_dtype() if info.promotes_int_to_float and integral else
                                 torch.int64 if info.promotes_int_to_int64 and integral else
                                 x.abs().dtype if info.complex_to_real and case.dtype.is_complex else case.dtype)
    assert result.dtype == want, f"{result.dtype}, expected {want}"


@check("TestReductions.test_nan_policy_propagate", "float32", kind="ReductionOpInfo")
def reduction_nan(case: Case) -> None:
    torch, info = case.torch, case.info
    x = torch.tensor([1.0, float("nan"), 3.0], device=case.device)
    if info.nan_policy == "propagate":
        assert reduced(case, x, dim=0).isnan(), "a nan was lost"
    elif info.nan_policy == "omit":
        case.close(reduced(case, x, dim=0), reduced(case, x[[0, 2]], dim=0), "without the nan")


@check("TestReductions.test_empty_tensor_empty_slice", "float32", kind="ReductionOpInfo")
def reduction_empty(case: Case) -> None:
    """The identity where there is one, else nan or an error; no items where the result has none."""
    torch, info = case.torch, case.info
    x = torch.empty(0, 2, 3, device=case.device)
    for dim in (1, 2):
        assert list(reduced(case, x, dim=dim).shape) == shape_after(x, [dim], False), f"dim={dim} of an empty tensor"
    if info.identity is not None:
        result = reduced(case, x, dim=0)
        case.close(result, torch.full_like(result, info.identity), "identity")
    elif info.promotes_int_to_float:
        assert reduced(case, x, dim=0).isnan().all(), "expected nan"
    else:
        raises(lambda: reduced(case, x, dim=0), (RuntimeError, IndexError))


@check("TestReductions.test_noncontiguous_all", "float64", "int64", kind="ReductionOpInfo")
def reduction_strides(case: Case) -> None:
    torch = case.torch
    wide = torch.testing.make_tensor((4, 6, 8), dtype=case.dtype, device=case.device, exclude_zero=True, low=1, high=5)
    for name, x in (("innermost", wide[..., ::2]), ("outermost", wide[::2]), ("all", wide[::2, ::3, ::2]),
                    ("transposed", wide.mT), ("expanded", wide[:1].expand(4, 6, 8))):
        for dim in (0, 1, 2):
            case.close(reduced(case, x, dim=dim), reduced(case, x.contiguous(), dim=dim), f"{name} dim={dim}")


# ---- pointwise -------------------------------------------------------------------------------------------------------
def compared(case: Case, samples: Iterator[Any], what: str) -> None:
    """With the entry's reference over NumPy, which computes in the dtype that the op computes in."""
    torch, info = case.torch, case.info
    for sample in islice(samples, 8):
        mine = info(sample.input, *sample.args, **sample.kwargs)
        wide = {torch.bfloat16: torch.float32, torch.float16: torch.float32}.get(case.dtype)
        if wide is not None:
            sample = sample.transform(lambda t: t.to(wide) if isinstance(t, torch.Tensor) else t)
        numbers = sample.numpy()
        its = info.ref(numbers.input, *numbers.args, **numbers.kwargs)
        for a, b in zip(case.tensors(mine), its if isinstance(its, (tuple, list)) else [its]):
            b = torch.as_tensor(b)
            if a.numel() and b.dtype.is_complex == a.dtype.is_complex:
                case.close(a, b.to(a.dtype).reshape(a.shape), what)


def unary(kind: str) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        import torch.testing._internal.opinfo.core as core  # over whichever library is called torch
        if case.info.ref is None:
            return
        case.torch.manual_seed(0)
        make = getattr(core, f"generate_elementwise_unary_{kind}tensors")
        compared(case, make(case.info, device=case.device, dtype=case.dtype, requires_grad=False), kind or "normal")
    run.__name__ = f"unary_{kind or 'normal_'}".rstrip("_")
    return run


REAL = ("bool", "int64", "float16", "bfloat16", "float32", "complex64")
check("TestUnaryUfuncs.test_reference_numerics_normal", *REAL, kind="UnaryUfuncInfo")(unary(""))
check("TestUnaryUfuncs.test_reference_numerics_small", *REAL[1:], kind="UnaryUfuncInfo")(unary("small_value_"))
check("TestUnaryUfuncs.test_reference_numerics_large", *REAL[1:], kind="UnaryUfuncInfo")(unary("large_value_"))
check("TestUnaryUfuncs.test_reference_numerics_extremal", *REAL[2:], kind="UnaryUfuncInfo")(unary("extremal_value_"))


@check("TestUnaryUfuncs.test_out_arg_all_dtypes", "float32", "int64", "bool", kind="UnaryUfuncInfo")
def unary_out_dtypes(case: Case) -> None:
    """out= of any dtype takes what can be cast to it, and nothing else."""
    torch, info = case.torch, case.info
    if not info.supports_out:
        return
    sample = next(case.samples())
    expected = info(sample.input, *sample.args, **sample.kwargs)
    for name in SOME:
        given = torch.empty_like(expected, dtype=getattr(torch, name))
        call = lambda given=given: info(sample.input, *sample.args, **sample.kwargs, out=given)  # noqa: E731
        if torch.can_cast(expected.dtype, given.dtype):
            case.close(call(), expected.to(given.dtype), f"out {name}")
        else:
            raises(call, RuntimeError)


def binary(kind: str) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        import torch.testing._internal.opinfo.core as core  # over whichever library is called torch
        if case.info.ref is None:
            return
        case.torch.manual_seed(0)
        make = getattr(core, f"generate_elementwise_binary_{kind}tensors")
        extra = {} if "value" in kind else {"exclude_zero": True}
        compared(case, make(case.info, device=case.device, dtype=case.dtype, requires_grad=False, **extra), kind or "normal")
    run.__name__ = f"binary_{kind or 'normal_'}".rstrip("_")
    return run


check("TestBinaryUfuncsDevice.test_reference_numerics", *REAL, kind="BinaryUfuncInfo")(binary(""))
check("TestBinaryUfuncsDevice.test_reference_numerics_small_values", *REAL[1:], kind="BinaryUfuncInfo")(binary("small_value_"))
check("TestBinaryUfuncsDevice.test_reference_numerics_large_values", *REAL[1:], kind="BinaryUfuncInfo")(binary("large_value_"))
check("TestBinaryUfuncsDevice.test_reference_numerics_extremal_values", *REAL[2:], kind="BinaryUfuncInfo")(binary("extremal_value_"))
check("TestBinaryUfuncsDevice.test_broadcasting", *REAL, kind="BinaryUfuncInfo")(binary("broadcasting_"))


@check("TestBinaryUfuncsDevice.test_type_promotion", "float32", kind="BinaryUfuncInfo")
def binary_promotion(case: Case) -> None:
    """Results have the dtype that promotion gives, in every pair of dtypes."""
    torch, info = case.torch, case.info
    supported = [getattr(torch, d) for d in SOME if getattr(torch, d) in info.supported_dtypes("cpu")]
    wrong = []
    for a in supported:
        for b in supported:
            if torch.promote_types(a, b) not in supported:
                continue
            x, y = torch.ones(3, dtype=a, device=case.device), torch.ones(3, dtype=b, device=case.device)
            together = torch.result_type(x, y)
            if a != b and not info.supports_rhs_python_scalar and info.name in ("copysign",):
                continue
            try:
                result = info(x, y)
            except Exception as error:
                wrong.append(f"{a} {b}: {error}"[:90])
                continue
            integral = not together.is_floating_point and not together.is_complex
            want = torch.bool if info.always_returns_bool else \
                torch.get_default_dtype() if info.promotes_int_to_float and integral else together
            if result.dtype != want:
                wrong.append(f"{a} {b}: {result.dtype}, expected {want}")
    assert not wrong, "; ".join(wrong[:4])


@check("TestBinaryUfuncsDevice.test_scalar_support", "float32", "int64", kind="BinaryUfuncInfo")
def binary_scalars(case: Case) -> None:
    """Numbers on either side give what 0-dim tensors give."""
    torch, info = case.torch, case.info
    x = torch.testing.make_tensor((5,), dtype=case.dtype, device=case.device, low=1, high=6, exclude_zero=True)
    number = 3 if case.dtype == torch.int64 else 2.5
    for name, taken, call in (
            ("right", info.supports_rhs_python_scalar, lambda n: info(x, n)),
            ("one", info.supports_one_python_scalar, lambda n: info(n, x)),
            ("two", info.supports_two_python_scalars, lambda n: info(n, number))):
        if taken:
            got = call(number)
            got = got if isinstance(got, torch.Tensor) else torch.tensor(got)
            case.close(got, call(torch.tensor(number, dtype=case.dtype)) if name != "two" else got, name, False)
        else:
            raises(lambda call=call: call(number), (TypeError, RuntimeError, NotImplementedError))


@check("TestBinaryUfuncsDevice.test_not_broadcastable", "float32", kind="BinaryUfuncInfo")
def binary_refuses(case: Case) -> None:
    torch, info = case.torch, case.info
    for a, b in (((5,), (6,)), ((2, 5), (3, 5)), ((4, 1, 2), (3, 2, 3))):
        raises(lambda a=a, b=b: info(torch.ones(a), torch.ones(b)), RuntimeError)


# ---- modules ---------------------------------------------------------------------------------------------------------
def layers(case: Case, train: bool = True) -> Iterator[tuple[Any, Any]]:
    """(a new layer, its input), as the entry makes them."""
    torch, info = case.torch, case.info
    torch.manual_seed(0)
    for given in islice(info.module_inputs_func(info, device=case.device, dtype=case.dtype, requires_grad=False, training=train),
                        2 * case.few):
        if given.forward_input is None:
            continue
        made = given.constructor_input
        layer = info.module_cls(*made.args, **made.kwargs).to(case.device, case.dtype)
        yield layer.train(train), given


def forward(case: Case, layer: Any, given: Any) -> Any:
    case.torch.manual_seed(0)
    return layer(*given.forward_input.args, **given.forward_input.kwargs)


@check("TestModule.test_repr", "float32", kind="modules")
def module_repr(case: Case) -> None:
    for layer, _ in layers(case):
        assert repr(layer).startswith(type(layer).__name__), repr(layer)
        str(layer)


@check("TestModule.test_pickle", "float32", kind="modules")
def module_pickle(case: Case) -> None:
    """A layer that was pickled, saved, copied or loaded from a state gives the same."""
    torch = case.torch
    for layer, given in layers(case):
        expected = forward(case, copy.deepcopy(layer), given)
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        twins = [torch.load(buffer, weights_only=False), pickle.loads(pickle.dumps(layer))]
        for twin in twins:
            case.close(forward(case, twin, given), expected, "after pickling")


@check("TestModule.test_factory_kwargs", "float64", kind="modules")
def module_factory(case: Case) -> None:
    """device= and dtype= reach every parameter and floating buffer."""
    torch, info = case.torch, case.info
    for layer, given in layers(case):
        made = given.constructor_input
        if not list(layer.parameters()) and not list(layer.buffers()):
            continue
        twin = info.module_cls(*made.args, **{**made.kwargs, "device": "meta", "dtype": torch.float64})
        for name, value in [*twin.named_parameters(), *twin.named_buffers()]:
            if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
                continue
            assert value.device.type == "meta", f"{name} on {value.device}"
            assert not value.is_floating_point() or value.dtype == torch.float64, f"{name} is {value.dtype}"


@check("TestModule.test_non_contiguous_tensors", "float32", kind="modules")
def module_strides(case: Case) -> None:
    torch = case.torch

    def strided(t: Any) -> Any:
        return torch.stack([t, t], -1).select(-1, 0).detach().requires_grad_(t.requires_grad) if t.dim() else t
    for layer, given in layers(case):
        twin = copy.deepcopy(layer)
        results = []
        for one, change in ((layer, lambda t: t), (twin, strided)):
            args, kwargs = case.mapped((given.forward_input.args, given.forward_input.kwargs), change)
            torch.manual_seed(0)
            result = one(*args, **kwargs)
            ends = [t for t in case.tensors(result) if t.requires_grad]
            leaves = [p for p in one.parameters() if p.requires_grad]
            grads = torch.autograd.grad(ends, leaves, [strided(torch.ones_like(t)) for t in ends], allow_unused=True) \
                if ends and leaves else []
            results.append((result, [g for g in grads if g is not None]))
        case.close(results[1][0], results[0][0], "strided input")
        case.close(results[1][1], results[0][1], "gradient of strided input")


@check("TestModule.test_memory_format", "float32", kind="modules")
def module_channels(case: Case) -> None:
    """channels_last inputs and weights give the values of contiguous ones, and such outputs where the entry declares that."""
    torch, info = case.torch, case.info
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for layer, given in layers(case):
        args = given.forward_input.args
        if not args or not isinstance(args[0], torch.Tensor) or args[0].dim() not in formats:
            continue
        form = formats[args[0].dim()]
        expected = forward(case, copy.deepcopy(layer), given)
        changed = [a.to(memory_format=form) if isinstance(a, torch.Tensor) and a.dim() == args[0].dim() else a for a in args]
        torch.manual_seed(0)
        result = copy.deepcopy(layer).to(memory_format=form)(*changed, **given.forward_input.kwargs)
        case.close(result, expected, "channels_last")
        if info.module_memformat_affects_out and result.dim() == args[0].dim():
            assert result.is_contiguous(memory_format=form), "the output is not channels_last"


@check("TestModule.test_check_inplace", "float32", kind="modules")
def module_inplace(case: Case) -> None:
    torch, info = case.torch, case.info
    for _, given in layers(case):
        made = given.constructor_input
        try:
            layer = info.module_cls(*made.args, **{**made.kwargs, "inplace": True})
        except TypeError:
            return
        plain = info.module_cls(*made.args, **{**made.kwargs, "inplace": False})
        args, kwargs = case.mapped((given.forward_input.args, given.forward_input.kwargs), torch.clone)
        expected = forward(case, plain, given)
        torch.manual_seed(0)
        result = layer(*args, **kwargs)
        case.close(result, expected, "inplace")
        case.close(args[0], expected, "the changed input")


@check("TestModule.test_errors", "float32", kind="modules")
def module_errors(case: Case) -> None:
    info = case.info
    if info.module_error_inputs_func is None:
        return
    for wrong in info.module_error_inputs_func(info, device=case.device, dtype=case.dtype, requires_grad=False, training=True):
        made, ahead = wrong.module_error_input.constructor_input, wrong.module_error_input.forward_input
        if wrong.error_on.name == "CONSTRUCTION_ERROR":
            raises(lambda: info.module_cls(*made.args, **made.kwargs), wrong.error_type, wrong.error_regex)
        else:
            layer = info.module_cls(*made.args, **made.kwargs)
            raises(lambda: layer(*ahead.args, **ahead.kwargs), wrong.error_type, wrong.error_regex)


@check("TestModule.test_grad", "float64", kind="modules")
def module_grad(case: Case) -> None:
    torch = case.torch
    wide = Case(torch, case.info, torch.float64, case.device, 1)
    for layer, given in islice(layers(wide), 2):
        leaves = [p for p in layer.parameters() if p.requires_grad and not isinstance(
            p, torch.nn.parameter.UninitializedTensorMixin)]
        if not leaves or sum(p.numel() for p in leaves) > 300:
            continue
        def f(*values: Any, layer: Any = layer, given: Any = given) -> Any:
            return tuple(t for t in case.tensors(forward(case, layer, given)) if t.is_floating_point())
        assert torch.autograd.gradcheck(f, leaves, fast_mode=True, nondet_tol=1e-10)


# ---- optimizers ------------------------------------------------------------------------------------------------------
def stepped(case: Case, options: dict[str, Any], steps: int, params: list[Any] | None = None, optim: Any = None) -> Any:
    """(parameters, optimizer) after some steps."""
    torch, info = case.torch, case.info
    if params is None:
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(n, device=case.device)) for n in ((3, 2), (4,))]
    optim = info.optim_cls(params, **options) if optim is None else optim

    def loss() -> Any:
        optim.zero_grad()
        total = sum((p * p).sum() * (k + 1) for k, p in enumerate(params))
        total.backward()
        if info.only_supports_sparse_grads:
            for p in params:
                p.grad = p.grad.to_sparse()
        return total
    for _ in range(steps):
        if info.step_requires_closure:
            optim.step(loss)
        else:
            loss()
            optim.step()
    return params, optim


def choices(case: Case) -> Iterator[dict[str, Any]]:
    for given in case.info.optim_inputs_func(device=case.device):
        yield given.kwargs


@check("TestOptimRenewed.test_errors", "float32", kind="optimizers")
def optim_errors(case: Case) -> None:
    info = case.info
    if info.optim_error_inputs_func is None:
        return
    for wrong in info.optim_error_inputs_func(device=case.device, dtype=case.dtype):
        given = wrong.optimizer_error_input
        if wrong.error_on.name == "CONSTRUCTION_ERROR":
            raises(lambda: info.optim_cls(given.params, **given.kwargs), wrong.error_type, wrong.error_regex)
        else:
            made = info.optim_cls(given.params, **given.kwargs)
            raises(lambda: made.step(), wrong.error_type, wrong.error_regex)


@check("TestOptimRenewed.test_save_load_equality_with_weights_only", "float32", kind="optimizers")
def optim_state(case: Case) -> None:
    """A state that was saved, loaded or copied goes on as the first one does; in any order of state_dict()'s keys."""
    torch, info = case.torch, case.info
    for options in choices(case):
        params, optim = stepped(case, options, 3)
        buffer = io.BytesIO()
        torch.save(optim.state_dict(), buffer)
        buffer.seek(0)
        twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
        other = info.optim_cls(twins, **options)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        copied = copy.deepcopy(optim)
        assert list(copied.state_dict()) == list(optim.state_dict()) == ["state", "param_groups"]
        stepped(case, options, 2, params, optim)
        stepped(case, options, 2, twins, other)
        case.close(twins, params, f"after a reload {options}")


@check("TestOptimRenewed.test_foreach_matches_forloop", "float32", kind="optimizers")
def optim_foreach(case: Case) -> None:
    for flag in ("foreach", "fused"):
        if flag not in case.info.supported_impls or flag == "fused" and "cpu" not in case.info.supports_fused_on:
            continue
        for options in choices(case):
            plain, _ = stepped(case, {**options, flag: False}, 4)
            case.close(stepped(case, {**options, flag: True}, 4)[0], plain, f"{flag} {options}")


@check("TestOptimRenewed.test_tensor_lr", "float32", kind="optimizers")
def optim_tensor_lr(case: Case) -> None:
    torch = case.torch
    for options in choices(case):
        if isinstance(options.get("lr"), torch.Tensor) or "lr" not in options:
            continue
        plain, _ = stepped(case, {**options, "foreach": False} if "foreach" in case.info.supported_impls else options, 3)
        given = {**options, "lr": torch.tensor(options["lr"])}
        if "foreach" in case.info.supported_impls:
            given["foreach"] = False
        case.close(stepped(case, given, 3)[0], plain, f"lr as a tensor {options}")


@check("TestOptimRenewed.test_param_groups_lr", "float32", kind="optimizers")
def optim_groups(case: Case) -> None:
    torch, info = case.torch, case.info
    if not info.supports_param_groups:
        return
    for options in choices(case):
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(3))]
        still = params[1].detach().clone()
        lr = options.get("lr", 0.01)
        groups = [{"params": [params[0]]}, {"params": [params[1]], "lr": lr * 0}]
        stepped(case, options, 2, params, info.optim_cls(groups, **options))
        if not options.get("weight_decay") and info.optim_cls.__name__ not in ("Rprop", "Adadelta"):
            case.close(params[1], still, f"lr=0 moves {options}")


@check("TestOptimRenewed.test_complex", "float32", kind="optimizers")
def optim_complex(case: Case) -> None:
    """A complex parameter moves as the pair of its parts does."""
    torch, info = case.torch, case.info
    if not info.supports_complex or info.only_supports_sparse_grads or info.step_requires_closure:
        return
    for options in choices(case):
        torch.manual_seed(0)
        whole = torch.randn(3, dtype=torch.complex64, requires_grad=True)
        parts = torch.view_as_real(whole).detach().clone().requires_grad_()
        mine, its = info.optim_cls([whole], **options), info.optim_cls([parts], **options)
        for _ in range(3):
            for one, leaf in ((mine, whole), (its, parts)):
                one.zero_grad()
                real = torch.view_as_real(leaf) if leaf is whole else leaf
                (real * real).sum().backward()
                one.step()
        case.close(torch.view_as_real(whole), parts, f"complex {options}")
