"""gradcheck and gradgradcheck: analytical gradients against finite differences."""
from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mindtorch_v2._C import TensorBase, _op_named
from mindtorch_v2.autograd.engine import grad
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


# ---- sparse inputs: their values are what is moved, and where gradients are compared
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
    """A gradient of x in the order of x's items; None stands for zeros."""
    if g is None:
        return _op_named("zeros_like")(_values(x))
    if not _is_sparse(x):
        return g.detach().to_dense() if _is_sparse(g) else g.detach()
    pattern = x.detach()
    g = g.detach()
    masked = (g if g.layout == x.layout == pattern.layout and x.is_sparse else g.to_dense()).sparse_mask(pattern)
    return _values(masked)


def _places(shape: tuple) -> Any:
    return itertools.product(*(range(n) for n in shape))


def _numerical(fn: Callable[..., Any], inputs: tuple, x: Any, eps: float) -> list[Any]:
    """Per output a matrix: one row per (real) direction of x, by central differences."""
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
            rows.append([((a - b) / (2 * eps)).reshape(-1) for a, b in zip(above, below)])
    if not rows:
        return []
    return [_op_named("stack")([r[i] for r in rows]) for i in range(len(rows[0]))]


def _analytical(output: Any, inputs: list[Any]) -> list[Any]:
    """Per input a matrix with a column for each (real) direction of the output."""
    columns: list[list[Any]] = [[] for _ in inputs]
    for place in _places(tuple(output.shape)):
        for direction in (1, 1j) if output.is_complex() else (1,):
            start = _op_named("zeros_like")(output)
            start[place] = direction
            found = grad(output, inputs, start, retain_graph=True, allow_unused=True)
            for column, g, x in zip(columns, found, inputs):
                column.append(_gradient_items(g, x).reshape(-1))
    return [_op_named("stack")(c, 1) if c else None for c in columns]


def _compare(numeric: Any, analytic: Any, x: Any, output: Any, atol: float, rtol: float) -> str | None:
    """The message of a mismatch between the two Jacobians, in real terms."""
    real = _op_named("view_as_real")
    n = real(numeric.contiguous()).reshape(numeric.shape[0], -1) if output.is_complex() else numeric
    if x.is_complex():      # rows of `n` alternate d/dRe and d/dIm; gradients are dL/dRe + i dL/dIm
        a = real(analytic.contiguous()).permute(0, 2, 1).reshape(-1, analytic.shape[1])
    else:
        a = analytic.real if analytic.is_complex() else analytic
    if tuple(n.shape) != tuple(a.shape):
        return f"shapes {tuple(n.shape)} and {tuple(a.shape)}"
    if not bool(_op_named("allclose")(a, n.to(a.dtype), rtol, atol)):
        return f"numerical:{n}\nanalytical:{a}"
    return None


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
              check_grad_dtypes: bool = False, check_batched_grad: bool = False,
              check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None) -> bool:
    """Whether the gradients of func at inputs agree with finite differences."""
    inputs = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    inputs = tuple(_specified(x, bool(masked)) for x in inputs)
    checked = _checked(inputs)
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, "
                         "but none of the them have requires_grad=True.")
    if any(t.dtype.itemsize < (16 if t.is_complex() else 8) for t in checked):
        warnings.warn("Input #0 requires gradient and is not a double precision floating point or complex. This check "
                      "will likely fail if all the inputs are not of double precision floating point or complex. ",
                      stacklevel=2)
    try:
        with enable_grad():
            _check(func, inputs, checked, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Callable[..., Any], inputs: tuple, checked: list[Any], eps: float, atol: float, rtol: float) -> None:
    outputs = _outputs(func, inputs)
    numeric = [_numerical(func, inputs, x, eps) for x in checked]
    for i, output in enumerate(outputs):
        if not output.requires_grad:
            if any(bool((n[i] != 0).any()) for n in numeric if n):
                raise GradcheckError(f"Numerical gradient for function expected to be zero: output {i}")
            continue
        for j, analytic in enumerate(_analytical(output, checked)):
            if analytic is None or not numeric[j]:
                continue
            wrong = _compare(numeric[j][i], analytic, checked[j], output, atol, rtol)
            if wrong is not None:
                raise GradcheckError(f"Jacobian mismatch for output {i} with respect to input {j},\n{wrong}\n")


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6,
                  atol: float = 1e-5, rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False,
                  raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
                  check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False) -> bool:
    """Whether the second derivatives of func agree with finite differences of the first."""
    inputs = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    if grad_outputs is None:
        outputs = [o for o in _outputs(func, inputs) if o.requires_grad]
        starts = tuple(_op_named("rand_like")(o).requires_grad_(True) for o in outputs)
    else:
        starts = (grad_outputs,) if isinstance(grad_outputs, TensorBase) else tuple(grad_outputs)

    def first(*args: Any) -> tuple:
        values, given = args[:len(inputs)], args[len(inputs):]
        with enable_grad():
            outputs = [o for o in _outputs(func, values) if o.requires_grad]
            wanted = [v for v in values if isinstance(v, TensorBase) and v.requires_grad]
            found = grad(outputs, wanted, given, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None and g.requires_grad)

    return gradcheck(first, inputs + starts, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)


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
    return [tuple(_numerical(fn, given, x, eps)) for x in _iter_tensors(inputs if target is None else target, True)]
