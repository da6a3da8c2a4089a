"""The front of the engine: backward() and grad() with torch's argument rules."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase, _op_named
from mindtorch_v2.autograd.graph import GradientEdge


def _tuple(tensors: Any) -> tuple:
    """Tensors (or gradient edges) as a tuple."""
    return (tensors,) if isinstance(tensors, (TensorBase, GradientEdge)) else tuple(tensors)


def _gradients(grads: Any, count: int) -> tuple | None:
    """The gradients of `count` outputs; what is given beyond is ignored, as in torch."""
    return None if grads is None else _tuple(grads)[:count]


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
    """Adds the gradients of tensors to the .grad of the leaves (or of inputs only)."""
    _C._refuse_backward()
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please "
                               "only use `grad_tensors`.")
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    tensors = _tuple(tensors)
    _C._run_backward(tensors, _gradients(grad_tensors, len(tensors)), create_graph if retain_graph is None else retain_graph,
                     create_graph, inputs, True, True)


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> Any:
    """The gradients of outputs with respect to inputs, a tuple or a dict as they are; .grad is not touched."""
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, "
                         "but got: allow_unused=False.")
    if isinstance(inputs, dict):
        return dict(zip(inputs, grad(outputs, tuple(inputs.values()), grad_outputs, retain_graph, create_graph, only_inputs,
                                     allow_unused, is_grads_batched, materialize_grads)))
    if not only_inputs:
        warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
                      "other parts of the graph, please use torch.autograd.backward.", FutureWarning, stacklevel=2)
    outputs, inputs = _tuple(outputs), _tuple(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    if is_grads_batched:
        found = _batched(outputs, inputs, grad_outputs, create_graph, bool(allow_unused or materialize_grads))
        return _materialized(found, inputs) if materialize_grads else found
    found = _C._run_backward(outputs, _gradients(grad_outputs, len(outputs)),
                             create_graph if retain_graph is None else retain_graph, create_graph, inputs, False,
                             bool(allow_unused or materialize_grads))
    return _materialized(found, inputs) if materialize_grads else found


def _materialized(found: tuple, inputs: tuple) -> tuple:
    """Zeros where no gradient came."""
    return tuple(_op_named("zeros_like")(x) if g is None else g for g, x in zip(found, inputs))


def _batched(outputs: tuple, inputs: tuple, grad_outputs: Any, create_graph: bool, allow_unused: bool) -> tuple:
    """grad() once per item of the leading dim of grad_outputs."""
    if grad_outputs is None:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    given = _tuple(grad_outputs)
    for i, (g, x) in enumerate(zip(given, outputs)):
        shape, sample = _calculate_shape(x, g, True)
        if tuple(shape) != tuple(sample):
            sample = _calculate_shape(x, g[0], True)[1]      # torch's message drops one dim more
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The "
                "sizes of the remaining dimensions are expected to match the shape of corresponding output, but a mismatch was "
                f"detected: grad_output[{i}] has a shape of {sample} and output[{i}] has a shape of {shape}. If you only "
                "want some tensors in `grad_output` to be considered batched, consider using vmap.")
    results: list[Sequence[Any]] = []
    for i in range(given[0].size(0)):
        results.append(grad(outputs, inputs, tuple(g[i] for g in given), True, create_graph, True, allow_unused))
    stack = _op_named("stack")
    return tuple(None if column[0] is None else stack(list(column)) for column in zip(*results))


def _is_checkpoint_valid() -> bool:
    """Whether the running backward adds to .grad; one for chosen inputs cannot run another one for all."""
    return _C._core._is_checkpoint_valid()


def _calculate_shape(output: Any, grad: Any, is_grads_batched: bool) -> tuple:
    """The sizes of an output, or of what an edge leads to, and of its gradient without the dim of a batch."""
    if isinstance(output, GradientEdge):
        return tuple(output.node._input_metadata[output.output_nr].shape), grad.shape[1:] if is_grads_batched else grad.shape
    if output.is_nested:
        if is_grads_batched:
            raise RuntimeError("Batched grads are not supported with Nested Tensor.")
        return output._nested_tensor_size(), grad._nested_tensor_size()
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape
