"""gradcheck and gradgradcheck: analytical gradients against finite differences."""
from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from mindtorch_v2 import _named, autograd
from mindtorch_v2._C import GeneratorBase, TensorBase, _op_named
from mindtorch_v2.autograd import forward_ad
from mindtorch_v2.autograd.engine import grad
from mindtorch_v2.autograd.function import UndefinedGrad
from mindtorch_v2.autograd.modes import enable_grad, no_grad


class GradcheckError(RuntimeError):
    """Raised by gradcheck when gradients disagree."""


def _tensors(values: Any) -> tuple:
    if isinstance(values, TensorBase):
        return (values,)
    return tuple(v for v in values if isinstance(v, TensorBase))


def _checked(values: Any) -> list[Any]:
    return [t for t in _tensors(values) if t.requires_grad]


def _is_sparse(x: Any) -> bool:
    return isinstance(x, TensorBase) and str(x.layout) != "torch.strided"


def _outputs(fn: Callable[..., Any], inputs: tuple) -> list[Any]:
    found = [o for o in _tensors(fn(*inputs)) if o.is_floating_point() or o.is_complex()]
    if any(_is_sparse(o) for o in found):
        raise ValueError("Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the "
                         "output of fn for gradcheck.")
    return found


# ---- sparse inputs: differences move their values; Jacobians have a row for every item of the dense tensor
def _values(x: Any) -> Any:
    """The memory of a tensor's items: of a sparse one its values."""
    if not _is_sparse(x):
        return x.data
    return (x.detach()._values() if x.is_sparse else x.detach().values()).data


def _specified(x: Any, masked: bool) -> Any:
    """A sparse input as it is checked: coalesced; unless gradients are masked, with every place specified."""
    if not _is_sparse(x):
        return x
    made = x.detach().coalesce() if x.is_sparse else x.detach()
    if not masked:
        made = made.to_dense().sparse_mask(_full(made))
    return made.clone().requires_grad_(x.requires_grad)


def _full(x: Any) -> Any:
    """A sparse tensor like x in which every place is specified."""
    ones = _op_named("ones")(tuple(x.shape), dtype=x.dtype, device=x.device)
    if x.is_sparse:
        return ones.to_sparse(x.sparse_dim())
    at = x.dim() - x.dense_dim() - 1
    blocked = x.values().dim() > at + x.dense_dim()
    return ones.to_sparse(layout=x.layout, blocksize=tuple(x.values().shape[at:at + 2]) if blocked else None,
                          dense_dim=x.dense_dim())


def _gradient_items(g: Any, x: Any) -> Any:
    """A gradient of x as a dense tensor; None stands for zeros."""
    if g is None:
        return _op_named("zeros")(tuple(x.shape), dtype=x.dtype, device=x.device)
    return g.detach().to_dense() if _is_sparse(g) else g.detach()


def _dense_rows(rows: Any, x: Any) -> Any:
    """Rows for the values of a sparse tensor as rows for the items of the dense one: zeros where nothing is specified."""
    if not _is_sparse(x):
        return rows
    directions = 2 if x.is_complex() else 1
    places = _op_named("arange")(x.numel(), device=x.device).reshape(tuple(x.shape)).sparse_mask(x.detach())
    at = (_values(places).reshape(-1, 1) * directions + _op_named("arange")(directions, device=x.device)).reshape(-1)
    return rows.new_zeros((x.numel() * directions, rows.shape[1])).index_copy(0, at, rows)


def _places(shape: tuple) -> Any:
    return itertools.product(*(range(n) for n in shape))


def _numerical(fn: Callable[..., Any], inputs: tuple, given: Any, x: Any, eps: float) -> list[Any]:
    """Per output a matrix: one row per (real) direction of x, which takes the place of a given input, by central differences."""
    inputs = tuple(x if y is given else y for y in inputs)
    rows: list[list[Any]] = []
    data = _values(x)
    for place in _places(tuple(data.shape)):
        for direction in (1, 1j) if x.is_complex() else (1,):
            with no_grad():
                was = data[place].item()
                data[place] = was + eps * direction
                above = [o.detach().clone() for o in _outputs(fn, inputs)]
                data[place] = was - eps * direction
                below = [o.detach().clone() for o in _outputs(fn, inputs)]
                data[place] = was
            for a, b in zip(above, below):
                _same_kind(a, b, eps)
            rows.append([((a - b) / (2 * eps)).reshape(-1) for a, b in zip(above, below)])
    if not rows:
        return []
    return [_dense_rows(_op_named("stack")([r[i] for r in rows]), x) for i in range(len(rows[0]))]


def _same_kind(a: Any, b: Any, eps: float) -> None:
    for word, first, second in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
        if first != second:
            raise AssertionError(f"Expected `func` to return outputs with the same {word} when inputs are perturbed by {eps}, but "
                                 f"got: {word}s {first} and {second}.")


def _analytical(output: Any, inputs: list[Any], dtypes: bool = False) -> list[Any]:
    """Per input a matrix with a column for each (real) direction of the output."""
    columns: list[list[Any]] = [[] for _ in inputs]
    for place in _places(tuple(output.shape)):
        for direction in (1, 1j) if output.is_complex() else (1,):
            start = _op_named("zeros_like")(output)
            start[place] = direction
            found = grad(output, inputs, start, retain_graph=True, allow_unused=True)
            for column, g, x in zip(columns, found, inputs):
                if g is not None:
                    _gradient_fits(g, x, dtypes)
                column.append(_gradient_items(g, x).reshape(-1))
    return [_op_named("stack")(c, 1) if c else None for c in columns]


def _gradient_fits(g: Any, x: Any, dtypes: bool) -> None:
    if g.shape != x.shape:
        raise GradcheckError("Analytical gradient has incorrect size")
    if dtypes and g.dtype != x.dtype:
        raise GradcheckError("Gradient has dtype mismatch")


def _compare(numeric: Any, analytic: Any, x: Any, output: Any, near: _Tolerances) -> tuple[str, str] | None:
    """The words of a mismatch between the two Jacobians, in real terms, and what goes before; None: there is none."""
    atol, rtol, fast = near.atol, near.rtol, near.fast
    real = _op_named("view_as_real")
    n = real(numeric.contiguous()).reshape(numeric.shape[0], -1) if output.is_complex() else numeric
    if x.is_complex():      # rows of `n` alternate d/dRe and d/dIm; gradients are dL/dRe + i dL/dIm
        a = real(analytic.contiguous()).permute(0, 2, 1).reshape(-1, analytic.shape[1])
    else:
        a = analytic.real if analytic.is_complex() else analytic
    if tuple(n.shape) != tuple(a.shape):
        return f"shapes {tuple(n.shape)} and {tuple(a.shape)}", ""
    parts = ((1, "imaginary"), (0, "real")) if output.is_complex() else ((0, ""),)        # columns alternate
    for first, part in parts:
        columns = slice(first, None, len(parts))
        if not _close(a[:, columns], n[:, columns], rtol, atol):
            shown = [_as_complex(m[:, columns]) if x.is_complex() else m[:, columns] for m in (n, a)]
            return (_fast_words(*shown) if fast else f"numerical:{shown[0]}\nanalytical:{shown[1]}",
                    f"While considering the {part} part of complex outputs only, " if part else "")
    return None


def _as_complex(rows: Any) -> Any:
    """Rows that alternate d/dRe and d/dIm as complex ones, for people."""
    return _op_named("complex")(rows[0::2].contiguous(), rows[1::2].contiguous())


def _fast_words(numeric: Any, analytic: Any) -> str:
    """A mismatch as fast mode of torch words it: the product of each Jacobian with two unit vectors, then both Jacobians."""
    scale = max(numeric.numel(), 1) ** -0.5
    return (f"numerical:{(numeric.sum() * scale).item()}\nanalytical:{(analytic.sum() * scale).item()}\n\n"
            "The above quantities relating the numerical and analytical jacobians are computed \nin fast mode. See: "
            "https://github.com/pytorch/pytorch/issues/53876 for more background \nabout fast mode. Below, we recompute "
            f"numerical and analytical jacobians in slow mode:\n\nNumerical:\n {numeric}\nAnalytical:\n{analytic}\n\n"
            f"The max per-element difference (slow mode) is: {(numeric - analytic).abs().max().item()}.")


def _close(a: Any, n: Any, rtol: float, atol: float) -> bool:
    return bool(_op_named("allclose")(a, n.to(a.dtype), rtol, atol))


def _check_inputs(inputs: tuple) -> None:
    found = False
    for i, x in enumerate(inputs):
        if not isinstance(x, TensorBase) or not x.requires_grad:
            continue
        found = True
        if x.dtype.itemsize < (16 if x.is_complex() else 8):
            warnings.warn(f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                          "will likely fail if all the inputs are not of double precision floating point or complex. ",
                          stacklevel=3)
        content = _values(x)
        if any(stride <= 0 and size > 1 for stride, size in zip(content.stride(), content.shape)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                               "non-overlapping to be able to compute the numerical gradients correctly. You should call "
                               ".contiguous on the input before passing it to gradcheck.")
    if not found:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, "
                         "but none of them have requires_grad=True.")


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
              check_grad_dtypes: bool = False, check_batched_grad: bool = False,
              check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None) -> bool:
    """Whether the gradients of func at inputs agree with finite differences; fast_mode compares one product of each Jacobian."""
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    inputs = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    _check_inputs(inputs)
    moved = _checked(_specified(x, bool(masked)) for x in inputs)
    inputs = tuple(_specified(x, True) for x in inputs)
    checked = _checked(inputs)
    try:
        with enable_grad():
            outputs = [o for o in _outputs(func, inputs) if o.requires_grad]
            _check(func, inputs, checked, moved, _Tolerances(eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode),
                   check_backward_ad, check_forward_ad)
            if check_batched_forward_grad:
                autograd._check_batched_forward(func, inputs)
            if not check_backward_ad:
                return True
            for i, output in enumerate(outputs if check_batched_grad else ()):
                autograd._check_batched(checked, output, i)
            if outputs:
                _check_zero_gradients(outputs, checked, bool(masked))
            if outputs and check_undefined_grad:
                _check_undefined(func, inputs, checked)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


class _Tolerances(NamedTuple):
    """How far what is compared may differ."""
    eps: float
    atol: float
    rtol: float
    nondet: float
    dtypes: bool
    fast: bool                   # a mismatch is told in the words of fast mode


def _check(func: Callable[..., Any], inputs: tuple, checked: list[Any], moved: list[Any], near: _Tolerances, backward: bool,
           forward: bool) -> None:
    """Jacobians of each output and input: by differences (of what is moved), by backward and by forward mode."""
    outputs = _outputs(func, inputs)
    fast = near.fast and not any(_is_sparse(x) for x in checked)
    if fast and _products_agree(func, inputs, checked, near, backward, forward):
        return
    numeric = [_numerical(func, inputs, x, y, near.eps) for x, y in zip(checked, moved)]
    _check_backward(outputs, checked, numeric, near, backward)
    by_forward = [_pushed(func, inputs, x, near.dtypes) for x in checked] if forward else []
    for i, output in enumerate(outputs):
        for j, columns in enumerate(by_forward if output.requires_grad else ()):
            n = numeric[j][i] if numeric[j] else None
            if n is not None and not _close(columns[i], n, near.rtol, near.atol):
                words = _fast_words(n, columns[i]) if near.fast else f"numerical:{n}\nanalytical:{columns[i]}"
                raise GradcheckError(f"Jacobian computed with forward mode mismatch for output {i} with respect to input {j},\n"
                                     f"{words}\n")
    if fast:
        raise GradcheckError("Fast gradcheck failed but element-wise differences are small. This means that the\n"
                             "test might've passed in slow_mode!\n")


def _check_backward(outputs: list[Any], checked: list[Any], numeric: list[list[Any]], near: _Tolerances, backward: bool) -> None:
    """Jacobians by backward against those by differences; without outputs that have a history those must be zero."""
    for i, output in enumerate(outputs):
        if not output.requires_grad:
            if not any(o.requires_grad for o in outputs) and any(bool((n[i] != 0).any()) for n in numeric if n):
                raise GradcheckError("Numerical gradient for function expected to be zero")
            continue
        for j, found in enumerate(_analytical_twice(output, checked, near) if backward else ()):
            if found is None or not numeric[j]:
                continue
            wrong = _compare(numeric[j][i], found, checked[j], output, near)
            if wrong is not None:
                raise GradcheckError(f"{wrong[1]}Jacobian mismatch for output {i} with respect to input {j},\n{wrong[0]}\n")


# ---- fast mode: v @ J @ u for one direction u of each input and one v of each output, J itself only to tell a mismatch
def _direction(x: Any, generator: Any) -> Any:
    """A vector of length one with the sizes of x and nothing below zero."""
    n = x.numel() * (2 if x.is_complex() else 1)
    real = _op_named("rand")((n,), generator=generator, dtype=x.dtype.to_real())
    real = (real / real.norm() if n else real).to(x.device)
    return (_op_named("view_as_complex")(real.reshape(-1, 2)) if x.is_complex() else real).reshape(tuple(x.shape))


def _real_dot(a: Any, b: Any) -> Any:
    """The sum of products of two tensors' real numbers."""
    return (a.real * b.real + a.imag * b.imag).sum() if a.is_complex() and b.is_complex() else (a.real * b.real).sum()


def _real_sum(x: Any) -> Any:
    return x.real.sum() + x.imag.sum() if x.is_complex() else x.sum()


def _slopes(func: Callable[..., Any], inputs: tuple, x: Any, u: Any, eps: float) -> list[Any]:
    """For each output, how it changes along u."""
    found, data = [], x.data
    with no_grad():
        was = data.clone()
        for step in (eps, -eps):
            data.copy_(was + step * u)
            found.append([o.detach().clone() for o in _outputs(func, inputs)])
        data.copy_(was)
    for a, b in zip(*found):
        _same_kind(a, b, eps)
    return [(a - b) / (2 * eps) for a, b in zip(*found)]


def _slopes_by_forward(func: Callable[..., Any], inputs: tuple, x: Any, u: Any, dtypes: bool) -> list[Any]:
    """The same by forward mode."""
    found = []
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), u)
        for output in _outputs(func, tuple(dual if y is x else y.detach() if isinstance(y, TensorBase) else y for y in inputs)):
            primal, slope = forward_ad.unpack_dual(output)
            if dtypes and slope is not None and slope.dtype != primal.dtype:
                raise GradcheckError("Forward AD gradient has dtype mismatch.")
            found.append(_op_named("zeros_like")(primal) if slope is None else slope)
    return found


def _products_agree(func: Callable[..., Any], inputs: tuple, checked: list[Any], near: _Tolerances, backward: bool,
                    forward: bool) -> bool:
    """Whether v @ J @ u is the same by differences, by backward and by forward mode, for every output and input."""
    generator = GeneratorBase()         # the caller's stays as it is
    us = [_direction(x, generator) for x in checked]
    outputs = _outputs(func, inputs)
    vs = [_direction(o, generator) for o in outputs]
    slopes = [_slopes(func, inputs, x, u, near.eps) for x, u in zip(checked, us)]
    pushed = [_slopes_by_forward(func, inputs, x, u, near.dtypes) for x, u in zip(checked, us)] if forward else []
    for i, (output, v) in enumerate(zip(outputs, vs)):
        if not output.requires_grad:
            if not any(o.requires_grad for o in outputs) and any(bool((s[i] != 0).any()) for s in slopes):
                return False
            continue
        for j, g in enumerate(_pulled(output, checked, v, near) if backward else [None] * len(checked)):
            wanted, atol = _real_dot(v, slopes[j][i]), near.atol * float(_real_sum(us[j]) * _real_sum(v))
            given = ([] if g is None else [_real_dot(g, us[j])]) + ([_real_dot(v, pushed[j][i])] if forward else [])
            if not all(_close(found, wanted, near.rtol, atol) for found in given):
                return False
    return True


def _pulled(output: Any, checked: list[Any], v: Any, near: _Tolerances) -> list[Any]:
    """The gradients of an output that was given v, computed twice as the whole Jacobians are."""
    first, again = (grad(output, checked, v, retain_graph=True, allow_unused=True) for _ in range(2))
    for a, b, x in zip(first, again, checked):
        if a is not None and b is not None:
            _gradient_fits(a, x, near.dtypes)
            _same_again(a, b, near.nondet)
    return [_gradient_items(g, x) for g, x in zip(first, checked)]


def _analytical_twice(output: Any, checked: list[Any], near: _Tolerances) -> list[Any]:
    """The Jacobians by backward, computed twice: they must be the same, and have the inputs' sizes and dtypes."""
    found, again = _analytical(output, checked, near.dtypes), _analytical(output, checked, False)
    for a, b in zip(found, again):
        if a is not None:
            _same_again(a, b, near.nondet)
    return found


def _same_again(a: Any, b: Any, nondet: float) -> None:
    if a.numel() and bool((a - b).abs().max() > nondet):
        raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                             "gives different values, although analytical gradient matches numerical gradient."
                             f"The tolerance for nondeterminism was {nondet}.{_NONDETERMINISTIC}")


_NONDETERMINISTIC = """

NOTE: If your op relies on non-deterministic operations i.e., it is listed here:
https://pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html
this failure might be expected.
"""


def _pushed(func: Callable[..., Any], inputs: tuple, x: Any, dtypes: bool) -> list[Any]:
    """Per output a matrix: one row per (real) direction of x, by forward mode."""
    rows: list[list[Any]] = []
    shape = tuple(x.shape)
    for place in _places(shape):
        for direction in (1, 1j) if x.is_complex() else (1,):
            tangent = _op_named("zeros_like")(x.detach())
            tangent[place] = direction
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x.detach(), tangent)
                given = tuple(dual if y is x else y.detach() if isinstance(y, TensorBase) else y for y in inputs)
                row = []
                for output in _outputs(func, given):
                    primal, slope = forward_ad.unpack_dual(output)
                    if dtypes and slope is not None and slope.dtype != primal.dtype:
                        raise GradcheckError("Forward AD gradient has dtype mismatch.")
                    row.append((_op_named("zeros_like")(primal) if slope is None else slope).detach().reshape(-1))
            rows.append(row)
    return [_op_named("stack")([r[i] for r in rows]) for i in range(len(rows[0]))] if rows else []


# ---- what backward does with gradients that are zero, or not there
def _check_zero_gradients(outputs: list[Any], checked: list[Any], masked: bool) -> None:
    zeros = [_op_named("zeros_like")(o.detach()) for o in outputs]
    for g, x in zip(grad(outputs, checked, zeros, retain_graph=True, allow_unused=True), checked):
        if g is None:
            continue
        if _is_sparse(g) and g.layout != x.layout:
            raise GradcheckError(f"grad is incorrect layout ({g.layout} is not {x.layout})")
        items = g.detach().to_dense() if _is_sparse(g) else g.detach()
        if not bool((items == 0).all()) and not (masked and bool(_op_named("allclose")(items, _op_named("zeros_like")(items)))):
            raise GradcheckError("backward not multiplied by grad_output")
        for word, ours, theirs in (("type", g.dtype, x.dtype), ("device", g.device, x.device), ("size", g.shape, x.shape)):
            if ours != theirs:
                raise GradcheckError(f"grad is incorrect {word}")


def _check_undefined(func: Callable[..., Any], inputs: tuple, checked: list[Any]) -> None:
    """That backward works where none, or not all, of the gradients of the outputs are there."""
    def fresh() -> list[Any]:
        return [o for o in _outputs(func, inputs) if o.requires_grad]
    outputs = fresh()
    cases = [[UndefinedGrad()(o) for o in outputs]]
    if len(outputs) > 1:
        cases += [[UndefinedGrad()(o) if k == i else o for k, o in enumerate(fresh())] for i in range(len(outputs))]
    notes = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
    for case in cases:
        try:
            found = grad(case, checked, [_op_named("zeros_like")(o.detach()) for o in case], allow_unused=True)
        except RuntimeError as error:
            warnings.warn("Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it "
                          "may break existing callers of this function. If this is true for you, you can call this function "
                          'with "check_undefined_grad=False" to disable the feature', stacklevel=2)
            raise GradcheckError(f"Expected backward function to handle undefined output grads. {notes}") from error
        for g in found:
            if g is not None and not bool(((g.to_dense() if _is_sparse(g) else g) == 0).all()):
                raise GradcheckError("Expected all input grads to be undefined or zero when all output grads are undefined or "
                                     f"zero. {notes}")


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6,
                  atol: float = 1e-5, rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False,
                  raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
                  check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False) -> bool:
    """Whether the second derivatives of func agree with finite differences of the first."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    for name, given in (("check_undefined_grad", check_undefined_grad), ("check_batched_grad", check_batched_grad)):
        if given and not check_rev_over_rev:
            raise AssertionError(f"Setting {name}=True requires check_rev_over_rev to be True")
    inputs = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    if grad_outputs is None:
        outputs = [o for o in _outputs(func, inputs) if o.requires_grad]
        starts = tuple(_op_named("rand_like")(o).requires_grad_(True) for o in outputs)
    else:
        starts = (grad_outputs,) if isinstance(grad_outputs, TensorBase) else tuple(grad_outputs)
    needed = [isinstance(x, TensorBase) and x.requires_grad for x in inputs + starts]

    def first(*args: Any) -> tuple:
        args = tuple(x.requires_grad_() if need else x for x, need in zip(args, needed))     # forward mode detaches them
        values, given = args[:len(inputs)], args[len(inputs):]
        with enable_grad():
            outputs = [o for o in _outputs(func, values) if o.requires_grad]
            wanted = [v for v in values if isinstance(v, TensorBase) and v.requires_grad]
            found = grad(outputs, wanted, given, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(first, inputs + starts, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
                     check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev,
                     check_backward_ad=check_rev_over_rev, fast_mode=fast_mode, masked=masked)


def _iter_tensors(x: Any, only_requiring_grad: bool = False) -> Iterator[Any]:
    """The tensors in a tree of sequences; with the flag, those that need gradients."""
    if isinstance(x, TensorBase):
        if x.requires_grad or not only_requiring_grad:
            yield x
    elif isinstance(x, Iterable) and not isinstance(x, str):
        for item in x:
            yield from _iter_tensors(item, only_requiring_grad)


def _get_numerical_jacobian(fn: Callable[..., Any], inputs: Any, outputs: Any = None, target: Any = None, eps: float = 1e-3,
                            is_forward_ad: bool = False) -> list[tuple[Any, ...]]:
    """For each tensor of `target` (by default the inputs) that needs gradients: a matrix for each output."""
    given = tuple(_iter_tensors(inputs)) if not isinstance(inputs, tuple) else inputs
    return [tuple(_numerical(fn, given, x, x, eps)) for x in _iter_tensors(inputs if target is None else target, True)]


def _warn_of_private(name: str) -> None:
    warnings.warn(f"`{name}` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and it will be "
                  "removed in a future version of PyTorch. If you have a specific use for this or feature request for this to be "
                  "a stable API, please file us an issue at https://github.com/pytorch/pytorch/issues/new", FutureWarning,
                  stacklevel=3)


def get_numerical_jacobian_wrt_specific_input(fn: Callable[..., Any], input_idx: int, inputs: Any, outputs: Any, eps: float,
                                              input: Any = None, is_forward_ad: bool = False) -> tuple[Any, ...]:
    """The matrix of each output for one of the inputs."""
    given = inputs if isinstance(inputs, tuple) else tuple(_iter_tensors(inputs))
    x = given[input_idx] if input is None else input
    return tuple(_numerical(fn, given, x, x, eps))


def get_numerical_jacobian(fn: Callable[..., Any], inputs: Any, target: Any = None, eps: float = 1e-3,
                           grad_out: float = 1.0) -> list[Any]:
    """For each input, or target, the matrix of fn's first output, which takes all inputs in a tuple. Deprecated in torch."""
    _warn_of_private("get_numerical_jacobian")
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0.")
    return [found[0] for found in _get_numerical_jacobian(lambda *given: fn(given), inputs, None, target, eps)]


def get_analytical_jacobian(inputs: Any, output: Any, nondet_tol: float = 0.0,
                            grad_out: float = 1.0) -> tuple[tuple[Any, ...], bool, bool, bool]:
    """The matrices of an output, whether a second run gives the same, and whether sizes and dtypes fit. Deprecated in torch."""
    _warn_of_private("get_analytical_jacobian")
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_analytical_jacobian no longer supports values of grad_out != 1.0.")
    if output.is_complex():
        raise ValueError("Expected output to be non-complex. get_analytical_jacobian no longer supports functions that return "
                         "complex outputs.")
    checked = list(_iter_tensors(inputs, True))
    found, again = _analytical(output, checked), _analytical(output, checked)
    same = all(bool((a - b).abs().max() <= nondet_tol) for a, b in zip(found, again) if a.numel())
    return tuple(found), same, True, all(a.dtype == x.dtype for a, x in zip(found, checked))

_named.complete(__name__)
