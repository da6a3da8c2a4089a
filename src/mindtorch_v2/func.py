"""torch.func and torch.vmap: derivatives of functions over trees of tensors, and maps over a batch dimension.

vmap runs the function once a sample and stacks the results: right for everything that can run, gradients included, and
without the speed of torch's batching rules.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindtorch_v2 as torch

Tensor = torch.Tensor
_tree = torch.utils._pytree

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state",
           "vjp", "vmap"]


# ---- over a batch -------------------------------------------------------------------------------------------------
def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
    """A function that applies func to every sample along in_dims and stacks what it returns along out_dims."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = _tree.tree_flatten(args)
        dims = _dims_of(in_dims, args, spec, func)
        size = _batch_size(leaves, dims, func)
        results, states = [], _random_states(leaves) if randomness == "same" else []
        for i in range(size):
            for restore, state in states:
                restore(state)
            sample = [x if d is None else x.select(d, i) for x, d in zip(leaves, dims, strict=True)]
            results.append(func(*_tree.tree_unflatten(sample, spec), **kwargs))
        return _stacked(results, out_dims, func)
    return mapped


def _random_states(leaves: list[Any]) -> list[tuple[Callable[[Tensor], None], Tensor]]:
    """The generators of the cpu and of the inputs' npus as they are, and how to set them back."""
    npus = {x.device for x in leaves if isinstance(x, torch.Tensor) and x.device.type == "npu"}
    on_npus = [(functools.partial(torch.npu.set_rng_state, device=d), torch.npu.get_rng_state(d)) for d in npus]
    return [(torch.set_rng_state, torch.get_rng_state()), *on_npus]


def _name(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def _dims_of(in_dims: Any, args: tuple, spec: Any, func: Any) -> list[int | None]:
    """One dimension, or None, for every leaf of the arguments."""
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a "
                         f"(potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
                         "trying to vmap over a function with no inputs. The latter is unsupported.")
    dims = _tree._broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the "
                         "structure of inputs.")
    return dims


def _batch_size(leaves: list[Any], dims: list[int | None], func: Any) -> int:
    sizes = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            continue
        if not isinstance(x, torch.Tensor):
            raise ValueError(f"vmap({_name(func)}, ...)(<inputs>): Got in_dim={d} for an input but the input is of "
                             f"type {type(x)}. We cannot vmap over non-Tensor arguments, please use None as the "
                             "respective in_dim")
        if not -x.dim() <= d < x.dim():
            raise ValueError(f"vmap({_name(func)}, ...)(<inputs>): Got in_dim={d} for some input, but that input is a "
                             f"Tensor of dimensionality {x.dim()} so expected in_dim to satisfy "
                             f"-{x.dim()} <= in_dim < {x.dim()}.")
        sizes.append(x.shape[d])
    if not sizes:
        raise ValueError("vmap: at least one input must have a dimension to map over")
    if len(set(sizes)) > 1:
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                         f"{sizes} for the mapped dimension")
    return sizes[0]


def _stacked(results: list[Any], out_dims: Any, func: Any) -> Any:
    if not results:
        raise RuntimeError(f"vmap({_name(func)}): the mapped dimension has size 0, so the results are unknown")
    specs = [_tree.tree_flatten(r) for r in results]
    dims = _tree._broadcast_to_and_flatten(out_dims, specs[0][1])
    if dims is None:
        raise ValueError(f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with "
                         "the structure of the outputs.")
    columns = zip(*(leaves for leaves, _ in specs), strict=True)
    stacked = [column[0] if d is None else _stack(column, d, func) for column, d in zip(columns, dims, strict=True)]
    return _tree.tree_unflatten(stacked, specs[0][1])


def _stack(column: Sequence[Any], dim: int, func: Any) -> Tensor:
    if not isinstance(column[0], torch.Tensor):
        raise ValueError(f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type "
                         f"{type(column[0])}.")
    return torch.stack(list(column), dim)


# ---- reverse mode -------------------------------------------------------------------------------------------------
class _Traced:
    """Inputs of a function as the start of a graph of their own, and the way back from its outputs."""

    def __init__(self, inputs: Any) -> None:
        self.leaves, self.spec = _tree.tree_flatten(inputs)
        for x in self.leaves:
            if not isinstance(x, torch.Tensor):
                raise RuntimeError(f"torch.func: expected tensors to differentiate by, got {type(x).__name__}")
        # What the caller differentiates too stays connected to the caller's graph.
        self.starts = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in self.leaves]
        self.inputs = _tree.tree_unflatten(self.starts, self.spec)

    def outer(self, outputs: Sequence[Tensor]) -> bool:
        """Whether somebody else differentiates through the outputs: a leaf that is not ours takes part."""
        ours = {id(x) for x, given in zip(self.starts, self.leaves, strict=True) if not given.requires_grad}
        return any(id(leaf) not in ours for leaf in _graph_leaves(outputs))

    def back(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], create: bool) -> Any:
        """The gradients, in the inputs' structure; zeros where an input has no part."""
        used = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(self.starts)
        if used:
            found = torch.autograd.grad([o for o, _ in used], self.starts, [c for _, c in used], create_graph=create,
                                        retain_graph=True, allow_unused=True)
        whole = [torch.zeros_like(x) if g is None else g for g, x in zip(found, self.starts, strict=True)]
        return _tree.tree_unflatten(whole if create else [g.detach() for g in whole], self.spec)


def _graph_leaves(outputs: Sequence[Tensor]) -> Iterator[Tensor]:
    seen, left = set(), [o.grad_fn for o in outputs if o.grad_fn is not None]
    yield from (o for o in outputs if o.grad_fn is None and o.requires_grad)
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        left.extend(next_node for next_node, _ in node.next_functions if next_node is not None)


def _chosen(args: tuple, argnums: int | tuple[int, ...]) -> Any:
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    return args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in argnums)


def _replaced(args: tuple, argnums: int | tuple[int, ...], values: Any) -> tuple:
    whole = list(args)
    for n, value in ((argnums, values),) if isinstance(argnums, int) else zip(argnums, values, strict=True):
        whole[n] = value
    return tuple(whole)


def _call_traced(func: Callable[..., Any], args: tuple, kwargs: dict[str, Any], argnums: int | tuple[int, ...],
                 has_aux: bool) -> tuple[_Traced, Any, Any]:
    """The arguments that argnums names as the start of a graph, func's value, and what it returns beside."""
    traced = _Traced(_chosen(args, argnums))
    result = func(*_replaced(args, argnums, traced.inputs), **kwargs)
    return (traced, *result) if has_aux else (traced, result, None)


def _plain(tree: Any) -> Any:
    return _tree.tree_map_only(torch.Tensor, lambda x: x.detach(), tree)


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0,
                   has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of func, which returns one number, and its value."""
    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            traced, value, aux = _call_traced(func, args, kwargs, argnums, has_aux)
            if not isinstance(value, torch.Tensor):
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a tensor, got "
                                   f"{type(value)}")
            if value.numel() != 1 or value.dim() != 0:
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got tensor "
                                   f"with {value.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            outer = traced.outer([value])
            gradient = traced.back([value], [torch.ones_like(value)], outer)
        value, aux = (value, aux) if outer else (value.detach(), _plain(aux))
        return (gradient, (value, aux)) if has_aux else (gradient, value)
    return wrapped


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of func with respect to the arguments that argnums names."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient
    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """func's value and a function from cotangents of the value to cotangents of the primals."""
    with torch.enable_grad():
        traced = _Traced(primals)
        result = func(*traced.inputs)
        value, aux = result if has_aux else (result, None)
        outputs, spec = _tree.tree_flatten(value)
        outer = traced.outer(outputs)

    def vjp_fn(cotangents: Any) -> Any:
        given, given_spec = _tree.tree_flatten(cotangents)
        if given_spec != spec:
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs "
                               f"to the function. cotangents: {given_spec}, primal output: {spec}")
        with torch.enable_grad():
            return traced.back(outputs, given, outer or any(c.requires_grad for c in given))

    value, aux = (value, aux) if outer else (_plain(value), _plain(aux))
    return (value, vjp_fn, aux) if has_aux else (value, vjp_fn)


def jvp(func: Callable[..., Any], primals: tuple, tangents: tuple, *, strict: bool = False,
        has_aux: bool = False) -> Any:
    """func's value and its derivative along the tangents, by differentiating the backward pass."""
    with torch.enable_grad():
        traced = _Traced(primals)
        result = func(*traced.inputs)
        value, aux = result if has_aux else (result, None)
        outputs, spec = _tree.tree_flatten(value)
        outer = traced.outer(outputs)
        ghosts = [torch.zeros_like(o, requires_grad=True) for o in outputs]
        back = _tree.tree_leaves(traced.back(outputs, ghosts, True))
        used = [(g, t) for g, t in zip(back, _tree.tree_leaves(tangents), strict=True) if g.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(ghosts)
        if used:
            found = torch.autograd.grad([g for g, _ in used], ghosts, [t for _, t in used], create_graph=outer,
                                        allow_unused=True)
    whole = [torch.zeros_like(o) if d is None else d for d, o in zip(found, outputs, strict=True)]
    slopes = _tree.tree_unflatten(whole, spec)
    value, slopes, aux = (value, slopes, aux) if outer else (_plain(value), _plain(slopes), _plain(aux))
    return (value, slopes, aux) if has_aux else (value, slopes)


def jacrev(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
           chunk_size: int | None = None, _preallocate_and_copy: bool = False) -> Callable[..., Any]:
    """A function that gives the Jacobian: for every output, and every input that argnums names, a tensor."""
    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            traced, value, aux = _call_traced(func, args, kwargs, argnums, has_aux)
            outputs, spec = _tree.tree_flatten(value)
            outer = traced.outer(outputs)
            jacobians = _tree.tree_unflatten([_rows(traced, output, outer) for output in outputs], spec)
        return (jacobians, aux if outer else _plain(aux)) if has_aux else jacobians
    return wrapped


def _rows(traced: _Traced, output: Tensor, create: bool) -> Any:
    """The gradients of every element of one output, stacked into its shape."""
    units = torch.eye(output.numel(), dtype=output.dtype, device=output.device).view(-1, *output.shape)
    rows = [_tree.tree_leaves(traced.back([output], [unit], create)) for unit in units]
    whole = [torch.stack(column).view(*output.shape, *column[0].shape) for column in zip(*rows, strict=True)]
    return _tree.tree_unflatten(whole, traced.spec)


def jacfwd(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
           chunk_size: int | None = None, randomness: str = "error") -> Callable[..., Any]:
    """The Jacobian, as jacrev gives it: there is no forward mode here."""
    return jacrev(func, argnums, has_aux, chunk_size=chunk_size)


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives the matrix of second derivatives."""
    return jacrev(jacrev(func, argnums), argnums)


# ---- modules ------------------------------------------------------------------------------------------------------
def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: dict | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """Calls a module with other tensors in the place of its parameters and buffers."""
    given = parameter_and_buffer_dicts
    if isinstance(given, (list, tuple)):
        merged: dict[str, Tensor] = {}
        for part in given:
            repeated = merged.keys() & part.keys()
            if repeated:
                raise ValueError(f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call "
                                 "is ambiguous")
            merged |= part
        given = merged
    return torch.nn.utils.stateless._functional_call(module, given, args, kwargs, tie_weights=tie_weights,
                                                     strict=strict)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and buffers of modules of one class, stacked: what vmap over an ensemble takes."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")

    def stacked(states: list[dict[str, Tensor]], grad: bool) -> dict[str, Tensor]:
        return {name: torch.stack([s[name] for s in states]).detach().requires_grad_(
            grad and states[0][name].requires_grad) for name in states[0]}
    return (stacked([dict(m.named_parameters()) for m in models], True),
            stacked([dict(m.named_buffers()) for m in models], False))
