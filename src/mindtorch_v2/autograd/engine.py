"""The front of the engine: backward() and grad() with torch's argument rules."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase, _op_named


def _tuple(tensors: Any) -> tuple:
    return (tensors,) if isinstance(tensors, TensorBase) else tuple(tensors)


def _start_gradients(tensors: tuple, grads: Any, create_graph: bool) -> tuple:
    """The gradients to start from: given, or 1 for a scalar."""
    given = _tuple(grads) if grads is not None else (None,) * len(tensors)
    if len(given) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(given)} gradients")
    start = []
    for tensor, grad in zip(tensors, given):
        if grad is not None:
            if not isinstance(grad, TensorBase):
                raise TypeError(f"gradients can be either Tensors or None, but got {type(grad).__name__}")
            if grad.shape != tensor.shape:
                raise RuntimeError(f"Mismatch in shape: grad_output[{len(start)}] has a shape of {grad.shape} and "
                                   f"output[{len(start)}] has a shape of {tensor.shape}.")
            if grad.is_complex() != tensor.is_complex():
                raise RuntimeError(
                    "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch "
                    f"in dtype: grad_output[{len(start)}] has a dtype of {grad.dtype} and output[{len(start)}] has a "
                    f"dtype of {tensor.dtype}.")
            start.append(grad)
        elif tensor.requires_grad:
            if tensor.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if not tensor.is_floating_point():
                raise RuntimeError("grad can be implicitly created only for real scalar outputs but got "
                                   f"{tensor.dtype}")
            start.append(_op_named("ones_like")(tensor))
        else:
            start.append(None)
    return tuple(start)


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
    """Adds the gradients of tensors to the .grad of the leaves (or of inputs only)."""
    tensors = _tuple(tensors)
    if inputs is not None:
        inputs = _tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    start = _start_gradients(tensors, grad_tensors, create_graph)
    _C._run_backward(tensors, start, create_graph if retain_graph is None else retain_graph, create_graph, inputs,
                     True, True)


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple:
    """The gradients of outputs with respect to inputs; .grad is not touched."""
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, "
                         "but got: allow_unused=False.")
    outputs, inputs = _tuple(outputs), _tuple(inputs)
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, create_graph, allow_unused, materialize_grads)
    start = _start_gradients(outputs, grad_outputs, create_graph)
    found = _C._run_backward(outputs, start, create_graph if retain_graph is None else retain_graph, create_graph,
                             inputs, False, bool(allow_unused or materialize_grads))
    if materialize_grads:
        found = tuple(_op_named("zeros_like")(x) if g is None else g for g, x in zip(found, inputs))
    return found


def _batched(outputs: tuple, inputs: tuple, grad_outputs: Any, create_graph: bool, allow_unused: bool | None,
             materialize: bool) -> tuple:
    """grad() once per item of the leading dim of grad_outputs."""
    given = _tuple(grad_outputs)
    results: list[Sequence[Any]] = []
    for i in range(given[0].size(0)):
        results.append(grad(outputs, inputs, tuple(g[i] for g in given), True, create_graph, True, allow_unused,
                            False, materialize))
    stack = _op_named("stack")
    return tuple(None if column[0] is None else stack(list(column)) for column in zip(*results))
