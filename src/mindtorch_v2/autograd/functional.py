"""Derivatives of functions: vjp, jvp, jacobian, hessian, hvp, vhp."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2._C import TensorBase, _op_named
from mindtorch_v2.autograd import forward_ad
from mindtorch_v2.autograd.engine import grad
from mindtorch_v2.autograd.modes import enable_grad

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]
_OUTPUTS = "outputs of the user-provided function"
_STRICT = "This is not allowed in strict mode"
# What a missing gradient means, by what was computed: the gradient itself, the trick of differentiating it by the vector it
# starts with, and both of them for second derivatives. {i} is the input.
_MISSING = {
    "back": "The output of the user-provided function is independent of input {i}.",
    "jacobian": "Output {o} of the user-provided function is independent of input {i}.",
    "back_trick": "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using the double "
                  "backward trick to compute forward mode gradients.",
    "double_back": "The jacobian of the user-provided function is independent of input {i}.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {i} in the grad_jacobian."}
# What it means that something has no history, by what it is.
_CONSTANT = {
    "outputs": "Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
               "differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {i} is independent of the inputs of the user-provided function. "
                   + _STRICT + ".",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to input {i} is "
                "independent of the input. " + _STRICT + ". You should ensure that your function is twice differentiable and that "
                "the jacobian depends on the inputs (this would be violated by a linear function for example).",
    "hessian": "The hessian of the user-provided function with respect to input {i} is independent of the input. " + _STRICT
               + ". You should ensure that your function is thrice differentiable and that the hessian depends on the inputs."}


def _as_tuple(values: Any, what: str, of: str) -> tuple[bool, tuple]:
    """Whether they are several, and they as a tuple."""
    if isinstance(values, TensorBase):
        return False, (values,)
    head = f"The {what} given to {of} must be either a Tensor or a tuple of Tensors but the "
    if not isinstance(values, tuple):
        raise TypeError(f"{head}given {what} has type {type(values)}.")
    for i, value in enumerate(values):
        if not isinstance(value, TensorBase):
            raise TypeError(f"{head}value at index {i} has type {type(value)}.")
    return True, values


def _prepare(inputs: tuple, create_graph: bool) -> tuple:
    """Inputs to differentiate by: connected to the caller's graph only with create_graph."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_(x.is_floating_point() or x.is_complex()) for x in inputs)


def _directions(v: Any, others: tuple, several: bool, of: str, whose: str) -> tuple:
    """The vector of a product, as a tuple; ones where it may be left out."""
    if v is None:
        if len(others) != 1 or others[0].nelement() != 1:
            raise RuntimeError(f"The vector v can only be None if {whose} a single Tensor with a single element.")
        return (_op_named("ones_like")(others[0]),)
    given = _as_tuple(v, "v", of)[1]
    if len(given) != len(others):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(others)} but got {len(given)}." if several else
                           "The given v should contain a single Tensor.")
    for i, (x, other) in enumerate(zip(given, others)):
        if x.size() != other.size():
            raise RuntimeError(f"{f'Entry {i} in ' if several else ''}v has invalid size: should be {other.size()} but got "
                               f"{x.size()}.")
    return given


def _check_history(values: tuple, what: str, strict: bool) -> None:
    """In strict mode everything depends on the inputs."""
    for i, value in enumerate(values) if strict else ():
        if value is None:
            raise RuntimeError(f"{_MISSING['back'].format(i=i)} {_STRICT}.")
        if not value.requires_grad:
            raise RuntimeError(_CONSTANT[what].format(i=i))


def _gradients(outputs: tuple, inputs: tuple, starts: tuple, create_graph: bool) -> tuple:
    """The gradients; None for an input that nothing depends on."""
    used = [(o, s) for o, s in zip(outputs, starts) if o is not None and o.requires_grad]
    if not used:
        return (None,) * len(inputs)
    return grad([o for o, _ in used], inputs, [s for _, s in used], create_graph=create_graph, retain_graph=True,
                allow_unused=True)


def _filled(grads: tuple, like: tuple, strict: bool, create_graph: bool, stage: str, output: int = 0) -> tuple:
    """Gradients with zeros in the place of those that are missing, which strict mode refuses."""
    made = []
    for i, (g, x) in enumerate(zip(grads, like)):
        if g is None and strict:
            raise RuntimeError(f"{_MISSING[stage].format(i=i, o=output)} {_STRICT}.")
        if g is not None and strict and create_graph and not g.requires_grad:
            word = "hessian" if "double" in stage else "jacobian"
            raise RuntimeError(f"The {word} of the user-provided function is independent of input {i}. {_STRICT} when "
                               "create_graph=True.")
        made.append(_op_named("zeros_like")(x) if g is None else g)
    return tuple(made)


def _finish(values: tuple, several: bool, keep: bool) -> Any:
    values = values if keep else tuple(v.detach() for v in values)
    return values if several else values[0]


def _value(func: Callable[..., Any], inputs: tuple, of: str) -> tuple[bool, tuple]:
    return _as_tuple(func(*inputs), _OUTPUTS, of)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """(func(inputs), vᵀ · Jacobian)."""
    with enable_grad():
        several, given = _as_tuple(inputs, "inputs", "vjp")
        prepared = _prepare(given, create_graph)
        outputs_several, outputs = _value(func, prepared, "vjp")
        _check_history(outputs, "outputs", strict)
        starts = _directions(v, outputs, outputs_several, "vjp", "the user-provided function returns")
        found = _gradients(outputs, prepared, starts, create_graph)
        found = _filled(found, prepared, strict, create_graph, "back")
    return _finish(outputs, outputs_several, create_graph), _finish(found, several, create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """(func(inputs), Jacobian · v), by differentiating the vjp by the vector it starts with."""
    with enable_grad():
        several, given = _as_tuple(inputs, "inputs", "jvp")
        prepared = _prepare(given, create_graph)
        directions = _directions(v, prepared, several, "jvp", "the input to the user-provided function is")
        outputs_several, outputs = _value(func, prepared, "jvp")
        _check_history(outputs, "outputs", strict)
        starts = tuple(_op_named("zeros_like")(o).requires_grad_() for o in outputs)
        first = _gradients(outputs, prepared, starts, True)
        _check_history(first, "grad_inputs", strict)
        found = _gradients(first, starts, directions, create_graph)
        found = _filled(found, outputs, strict, create_graph, "back_trick")
    return _finish(outputs, outputs_several, create_graph), _finish(found, outputs_several, create_graph)


def _check_forward_mode(vectorize: bool, strict: bool, create_graph: bool, inputs: Any) -> None:
    name = "torch.autograd.functional.jacobian"
    if create_graph:
        raise NotImplementedError(f'{name}: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet). '
                                  'Please either set `create_graph=False` or `strategy="reverse-mode"`.')
    if strict:
        raise RuntimeError(f'{name}: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either '
                           'set `strict=False` or `strategy="reverse-mode"`.')
    _as_tuple(inputs, "inputs", "jacobian")
    if not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for "
                                  "`vectorize=True`.")


def _basis(x: Any) -> list[Any]:
    """The unit vectors of a tensor's space, in its shape."""
    eye = _op_named("eye")(x.numel(), dtype=x.dtype, device=x.device)
    return [row.view(x.shape) for row in eye.unbind(0)] if x.numel() else []


def _forward_jacobian(func: Callable[..., Any], inputs: tuple) -> tuple[bool, list[tuple]]:
    """A row of blocks for each output, by forward mode: one run for each item of the inputs."""
    columns: list[list[tuple]] = []              # of each input: the tangents of all outputs, for each of its items
    shapes: list[Any] = []
    several = False
    for i, x in enumerate(inputs):
        columns.append([])
        for unit in _basis(x):
            with forward_ad.dual_level():
                duals = tuple(forward_ad.make_dual(a, unit if j == i else _op_named("zeros_like")(a))
                              for j, a in enumerate(inputs))
                several, outputs = _value(func, duals, "jacobian")
                parts = [forward_ad.unpack_dual(o) for o in outputs]
            shapes = [p.primal for p in parts]
            columns[-1].append(tuple(_op_named("zeros_like")(p.primal) if p.tangent is None else p.tangent for p in parts))
    stack = _op_named("stack")
    return several, [tuple(stack([column[k] for column in found], -1).view(tuple(out.shape) + tuple(x.shape))
                           for found, x in zip(columns, inputs)) for k, out in enumerate(shapes)]


def _block(rows: list[Any], out: Any, x: Any) -> Any:
    shape = tuple(out.shape) + tuple(x.shape)
    return _op_named("stack")(rows).view(shape) if rows else out.new_zeros(shape)


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
             vectorize: bool = False, strategy: str = "reverse-mode") -> Any:
    """The Jacobian of func at inputs, shaped (*output shape, *input shape)."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more '
                             'outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use '
                             '"reverse-mode".')
    if strategy == "forward-mode":
        _check_forward_mode(vectorize, strict, create_graph, inputs)
    several, given = _as_tuple(inputs, "inputs", "jacobian")
    if strategy == "forward-mode":
        outputs_several, blocks = _forward_jacobian(func, given)
    else:
        with enable_grad():
            prepared = _prepare(given, create_graph)
            outputs_several, outputs = _value(func, prepared, "jacobian")
            _check_history(outputs, "outputs", strict)
            if vectorize and strict:
                raise RuntimeError("torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
                                   "together. Please either set `strict=False` or `vectorize=False`.")
            blocks = []
            for number, out in enumerate(outputs):
                rows: list[list[Any]] = [[] for _ in prepared]
                for unit in _basis(out):
                    found = _gradients((out,), prepared, (unit,), create_graph)
                    for row, g in zip(rows, _filled(found, prepared, strict, create_graph, "jacobian", number)):
                        row.append(g)
                blocks.append(tuple(_block(row, out, x) for row, x in zip(rows, prepared)))
    shaped = tuple(_finish(b, several, create_graph) for b in blocks)
    return shaped if outputs_several else shaped[0]


def _scalar(func: Callable[..., Any], of: str, strict: bool = False) -> Callable[..., Any]:
    """The function, which must give one number."""
    def checked(*args: Any) -> Any:
        several, outputs = _value(func, args, of)
        _check_history(outputs, "outputs", strict)
        if several:
            raise RuntimeError(f"The function given to {of} should return a single Tensor")
        if outputs[0].nelement() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {of} should contain a single element")
        return outputs[0] if of in ("vhp", "hvp") else outputs[0].squeeze()
    return checked


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
            vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The matrix of second derivatives of a scalar function."""
    several, given = _as_tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def first(*args: Any) -> Any:
        if outer_jacobian_strategy == "forward-mode":        # the inputs are dual numbers, whose gradient is one, too
            args = tuple(x.requires_grad_(True) for x in args)
        found = jacobian(_scalar(func, "hessian", strict), args, create_graph=True)
        _check_history(found, "jacobian", strict)
        return found

    found = jacobian(first, given, create_graph=create_graph, strict=strict, vectorize=vectorize,
                     strategy=outer_jacobian_strategy)
    return found if several else found[0][0]


def _second(func: Callable[..., Any], inputs: Any, create_graph: bool, strict: bool, of: str) -> tuple[bool, tuple, Any, tuple]:
    """Inputs, the value, and the gradient with its history, for products with the Hessian."""
    several, given = _as_tuple(inputs, "inputs", of)
    prepared = _prepare(given, create_graph)
    out = _scalar(func, of, strict)(*prepared)
    first = _gradients((out,), prepared, (_op_named("ones_like")(out),), True)
    _check_history(first, "jacobian", strict)
    return several, prepared, out, first


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """(func(inputs), vᵀ · Hessian)."""
    with enable_grad():
        several, given = _as_tuple(inputs, "inputs", "vhp")
        starts = _directions(v, given, several, "vhp", "the input to the user-provided function is")
        several, prepared, out, first = _second(func, inputs, create_graph, strict, "vhp")
        found = _filled(_gradients(first, prepared, starts, create_graph), prepared, strict, create_graph, "double_back")
    return _finish((out,), False, create_graph), _finish(found, several, create_graph)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """(func(inputs), Hessian · v), by differentiating vᵀ · Hessian by v."""
    with enable_grad():
        several, given = _as_tuple(inputs, "inputs", "hvp")
        directions = _directions(v, given, several, "hvp", "the input to the user-provided function is")
        several, prepared, out, first = _second(func, inputs, create_graph, strict, "hvp")
        starts = tuple(_op_named("zeros_like")(x).requires_grad_() for x in prepared)
        second = _gradients(first, prepared, starts, True)
        _check_history(second, "hessian", strict)
        found = _filled(_gradients(second, starts, directions, create_graph), prepared, strict, create_graph,
                        "double_back_trick")
    return _finish((out,), False, create_graph), _finish(found, several, create_graph)
