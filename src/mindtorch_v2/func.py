"""torch.func and torch.vmap: derivatives of functions over trees of tensors, and maps over a batch dimension."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindtorch_v2 as torch

Tensor = torch.Tensor
_tree = torch.utils._pytree
_transforms, _forward, _functional = torch._transforms, torch.autograd.forward_ad, torch._transforms.functional
vmap, _name, rearrange = torch._functorch.vmap.vmap, torch._functorch.vmap._get_name, torch._functorch.einops.rearrange
vmap.__module__ = rearrange.__module__ = __name__

__all__ = ["debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
           "jvp", "linearize", "rearrange", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]


class _Level:
    """While a function runs that is differentiated: what it captures may not be changed, and reverse mode takes no hooks on
    saved tensors."""

    def __init__(self, reverse: bool = True) -> None:
        self.reverse = reverse

    def __enter__(self) -> None:
        if self.reverse:
            if torch._C._core._current_saved_hooks() is not None:
                raise RuntimeError(_NO_HOOKS)
            self.before = torch._C._forbid_saved_hooks(_NO_HOOKS)
        torch._C._open_level()

    def __exit__(self, *exc: Any) -> None:
        torch._C._close_level()
        if self.reverse:
            torch._C._forbid_saved_hooks(self.before)


_NO_HOOKS = ("torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an issue with your use "
             "case.")


# ---- reverse mode -------------------------------------------------------------------------------------------------
class _Traced:
    """Inputs of a function as the start of a graph of their own, and the way back from its outputs."""

    def __init__(self, inputs: Any, recorded: bool) -> None:
        self.recorded = recorded             # whether the caller records what it computes
        self.leaves, self.spec = _tree.tree_flatten(inputs)
        for x in self.leaves:
            if not isinstance(x, torch.Tensor):
                raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        # What the caller differentiates too stays connected to the caller's graph.
        self.starts = [_transforms.start(x) for x in self.leaves]
        self.inputs = _tree.tree_unflatten(self.starts, self.spec)

    def outer(self, outputs: Sequence[Tensor]) -> bool:
        """Whether the outputs are differentiated outside too: a leaf that is not ours takes part."""
        ours = {id(x) for x in self.starts if x.is_leaf}
        return self.recorded and any(id(leaf) not in ours for leaf in _graph_leaves(outputs))

    def ended(self, tree: Any, keep: bool) -> Any:
        """Results without the history that ends with this trace."""
        return tree if keep else _tree.tree_map_only(torch.Tensor, lambda x: _transforms.ended(x, self.outer), tree)

    def back(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], keep: bool) -> Any:
        """The gradients, in the inputs' structure; zeros where an input has no part."""
        create = keep or _transforms.differentiated()
        used = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(self.starts)
        if used:
            found = torch.autograd.grad([o for o, _ in used], self.starts, [c for _, c in used], create_graph=create,
                                        retain_graph=True, allow_unused=True)
        whole = [torch.zeros_like(x) if g is None else g for g, x in zip(found, self.starts, strict=True)]
        return _tree.tree_unflatten(self.ended(whole, keep), self.spec)


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


def _check_argnums(argnums: Any, count: int) -> None:
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if not numbers:
        raise RuntimeError("argnums must be non-empty")
    for n in numbers:
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    places = tuple(n % count for n in numbers)
    if len(set(places)) != len(places):
        raise RuntimeError(f"argnums elements must be unique, got {places}")


def _chosen(args: tuple, argnums: int | tuple[int, ...]) -> Any:
    _check_argnums(argnums, len(args))
    return args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in argnums)


def _replaced(args: tuple, argnums: int | tuple[int, ...], values: Any) -> tuple:
    whole = list(args)
    for n, value in ((argnums, values),) if isinstance(argnums, int) else zip(argnums, values, strict=True):
        whole[n] = value
    return tuple(whole)


def _call_traced(func: Callable[..., Any], args: tuple, kwargs: dict[str, Any], argnums: int | tuple[int, ...],
                 has_aux: bool, name: str, recorded: bool) -> tuple[_Traced, Any, Any]:
    """The arguments that argnums names as the start of a graph, func's value, and what it returns beside."""
    traced = _Traced(_chosen(args, argnums), recorded)
    result = func(*_replaced(args, argnums, traced.inputs), **kwargs)
    return (traced, *_with_aux(result, name)) if has_aux else (traced, result, None)


def _with_aux(result: Any, name: str) -> tuple[Any, Any]:
    """What a function with has_aux returns, checked."""
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    for leaf in _tree.tree_leaves(result[1]):
        if not isinstance(leaf, torch.Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")
    return result


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0,
                   has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of func, which returns one number, and its value."""
    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        recorded = torch.is_grad_enabled()
        with torch.enable_grad(), _Level():
            traced, value, aux = _call_traced(func, args, kwargs, argnums, has_aux, "grad_and_value(f)(*args)", recorded)
            if not isinstance(value, torch.Tensor):
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got "
                                   f"{type(value)}")
            if value.numel() != 1 or value.dim() != 0:
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor "
                                   f"with {value.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            if value.is_complex():
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {value.dtype}")
            outer = traced.outer([value])
            gradient = traced.back([value], [torch.ones_like(value, memory_format=torch.preserve_format)], outer)
        value, aux = traced.ended((value, aux), outer)
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


def _outputs(value: Any, name: str) -> tuple[list[Tensor], Any]:
    """The tensors that a function returned, at least one, and their tree."""
    outputs, spec = _tree.tree_flatten(value)
    if not outputs or outputs == [None]:
        raise RuntimeError(f"{name}: Expected f to be a function that has non-empty output (got output = {outputs})")
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise RuntimeError(f"{name}: expected f(*primals) to return only tensors, got unsupported type {type(output)}")
    return outputs, spec


def _differentiable_outputs(value: Any) -> tuple[list[Tensor], Any]:
    """The same of a function that reverse mode goes through."""
    outputs, spec = _outputs(value, "vjp(f, *primals)")
    for output in outputs:
        if not (output.is_floating_point() or output.is_complex()):
            raise RuntimeError("vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                               f"{output.dtype}")
    return outputs, spec


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """func's value and a function from cotangents of the value to cotangents of the primals."""
    recorded = torch.is_grad_enabled()
    with torch.enable_grad(), _Level():
        traced = _Traced(primals, recorded)
        result = func(*traced.inputs)
        value, aux = _with_aux(result, "vjp(f, *primals)") if has_aux else (result, None)
        outputs, spec = _differentiable_outputs(value)
        outer = traced.outer(outputs)

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, given_spec = _tree.tree_flatten(cotangents)
        if given_spec != spec:
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs "
                               f"to the function. cotangents: {_tree.treespec_pprint(given_spec)}, primal output: "
                               f"{_tree.treespec_pprint(spec)}")
        for c in given:
            if not isinstance(c, torch.Tensor):
                raise TypeError(f"gradients can be either Tensors or None, but got {type(c).__name__}")
        with torch.enable_grad():
            return traced.back(outputs, given, create_graph or outer or any(c.requires_grad for c in given))

    vjp_fn.__name__, vjp_fn.__qualname__ = "wrapper", "_vjp_with_argnums.<locals>.wrapper"        # errors say it
    value, aux = traced.ended((value, aux), outer)
    return (value, vjp_fn, aux) if has_aux else (value, vjp_fn)


def jacrev(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
           chunk_size: int | None = None, _preallocate_and_copy: bool = False) -> Callable[..., Any]:
    """A function that gives the Jacobian: for every output, and every input that argnums names, a tensor."""
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            with _Level():
                traced, value, aux = _call_traced(func, args, kwargs, argnums, has_aux, "vjp(f, *primals)", recorded)
            _check_real(traced.starts, "inputs", "jacrev")
            outputs, spec = _differentiable_outputs(value)
            _check_real(outputs, "outputs", "jacrev")
            outer = traced.outer(outputs)
            jacobians = _tree.tree_unflatten([_rows(traced, output, outer, chunk_size) for output in outputs], spec)
        return (jacobians, traced.ended(aux, outer)) if has_aux else jacobians
    return wrapped


def _check_real(tensors: Sequence[Tensor], what: str, name: str) -> None:
    for i, x in enumerate(tensors):
        if x.is_complex():
            raise RuntimeError(f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}")


def _rows(traced: _Traced, output: Tensor, create: bool, chunk_size: int | None) -> Any:
    """The gradients of every element of one output, in its shape."""
    n = output.numel()
    if n == 0:
        whole = [x.new_zeros((*output.shape, *x.shape)) for x in traced.starts]
        return _tree.tree_unflatten(whole, traced.spec)
    units = torch.eye(n, dtype=output.dtype, device=output.device).view(n, *output.shape)

    def back(unit: Tensor) -> list[Tensor]:
        return _tree.tree_leaves(traced.back([output], [unit], create))
    rows = vmap(back, chunk_size=chunk_size)(units)
    whole = [column.reshape((*output.shape, *column.shape[1:])) for column in rows]
    return _tree.tree_unflatten(traced.ended(whole, create), traced.spec)


# ---- forward mode -------------------------------------------------------------------------------------------------
def jvp(func: Callable[..., Any], primals: tuple, tangents: tuple, *, strict: bool = False,
        has_aux: bool = False) -> Any:
    """func's value and its derivative along the tangents."""
    if not isinstance(primals, tuple):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call "
                           "f(*primals).")
    flat, spec = _tree.tree_flatten(primals)
    along, along_spec = _tree.tree_flatten(tangents)
    if spec != along_spec:
        raise RuntimeError(f"jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. "
                           f"For example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with "
                           f"structure {spec} and tangents with structure {along_spec}")
    for what, leaves in (("primal", flat), ("tangent", along)):
        if not leaves:
            raise RuntimeError(f"jvp(f, primals, tangents): Expected {what}s to contain at least one Tensor.")
        for x in leaves:
            if not isinstance(x, torch.Tensor):
                raise RuntimeError(f"jvp(f, primals, tangents): Expected {what}s to only contain Tensors, got {type(x)}")
    for what, leaves in (("primal", flat), ("tangent", along)):
        for x in leaves:
            if not (x.is_floating_point() or x.is_complex()):
                raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    _forward.refuse_nesting(_forward.DualLevel)
    level = _forward.Forward()
    before = torch._C._push_transform(level)
    try:
        with _Level(reverse=False):
            duals = []
            for x, t in zip(flat, along, strict=True):
                dual = _transforms.linked(x)
                level.note(dual, t)
                duals.append(dual)
            result = func(*_tree.tree_unflatten(duals, spec))
        result = _with_aux(result, "jvp(f, primals, tangents)") if has_aux else result
    finally:
        torch._C._pop_transform(before)
    value, aux = result if has_aux else (result, None)
    outputs, out_spec = _outputs(value, "jvp(f, primals, tangents)")
    slopes = [level.tangent(x) for x in outputs]
    if strict and None in slopes:
        raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is "
                           "not allowed with strict=True.")
    slopes = [torch.zeros_like(x) if t is None else t for x, t in zip(outputs, slopes, strict=True)]
    ended = [_forward.without(level, x) for x in outputs]
    level.end()
    made = _tree.tree_unflatten(ended, out_spec), _tree.tree_unflatten(slopes, out_spec)
    return (*made, aux) if has_aux else made


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """func's value, and the function that gives its derivative at the primals along tangents."""
    value = func(*primals)

    def jvp_fn(*tangents: Any) -> Any:
        given, spec = _tree.tree_flatten(tangents)
        flat, flat_spec = _tree.tree_flatten(primals)
        if spec != flat_spec:
            raise RuntimeError(f"Expected the tangents {spec} to have the same argspec as the primals {flat_spec}")
        for i, (x, t) in enumerate(zip(flat, given, strict=True)):
            if x.shape != t.shape:
                raise RuntimeError(f"tangent:{i} with shape {t.shape} in flattened pytree doesn't match the shape {x.shape} of the "
                                   "corresponding primal.")
            if x.dtype != t.dtype:
                raise RuntimeError(f"tangent:{i} with dtype {t.dtype} in flattened pytree doesn't match the dtype {x.dtype} of the "
                                   "corresponding primal.")
        return jvp(func, primals, tangents)[1]
    return value, jvp_fn


def jacfwd(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
           randomness: str = "error") -> Callable[..., Any]:
    """A function that gives the Jacobian by forward mode: one derivative for every element of the inputs."""
    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen = _chosen(args, argnums)
        flat, spec = _tree.tree_flatten(chosen)
        _check_real([x for x in flat if isinstance(x, torch.Tensor)], "inputs", "jacfwd")
        basis = _unit_vectors(flat)

        def push(*units: Tensor) -> Any:
            def f(*values: Any) -> Any:
                return func(*_replaced(args, argnums, _tree.tree_unflatten(list(values), spec)), **kwargs)
            made = jvp(f, tuple(flat), units, has_aux=has_aux)
            return made[1:] if has_aux else made[1]
        found = vmap(push, out_dims=(0, None) if has_aux else 0, randomness=randomness)(*basis)
        columns, aux = found if has_aux else (found, None)
        outputs, out_spec = _tree.tree_flatten(columns)
        _check_real(outputs, "outputs", "jacfwd")
        jacobians = [_tree.tree_unflatten([part.movedim(0, -1).reshape((*part.shape[1:], *x.shape)) for part, x in
                                           zip(y.split([x.numel() for x in flat]), flat, strict=True)], spec)
                     for y in outputs]
        made = _tree.tree_unflatten(jacobians, out_spec)
        return (made, aux) if has_aux else made
    return wrapped


def _unit_vectors(flat: list[Tensor]) -> list[Tensor]:
    """For every element of the tensors, in order, the tangents that are 1 there and 0 elsewhere; stacked."""
    sizes = [x.numel() for x in flat]
    total, start, made = sum(sizes), 0, []
    for x, n in zip(flat, sizes, strict=True):
        units = torch.zeros(total, n, dtype=x.dtype, device=x.device)
        units[start:start + n].diagonal().fill_(1)
        made.append(units.view(total, *x.shape))
        start += n
    return made


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives the matrix of second derivatives: forward mode over reverse mode."""
    return jacfwd(jacrev(func, argnums), argnums)


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function that does what func does without in-place ops, for those that record it; remove="mutations_and_views": and
    with copies in place of views. What func changes in its arguments is copied to them at the end."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. {_REMOVED}")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        level = _functional.Functionalize(remove == "mutations_and_views")
        given, spec = _tree.tree_flatten((args, kwargs))
        before = torch._C._push_transform(level)
        try:
            inner = [level.wrap(x) if isinstance(x, torch.Tensor) else x for x in given]
            positional, named = _tree.tree_unflatten(inner, spec)
            outputs = func(*positional, **named)
        finally:
            torch._C._pop_transform(before)
        result = _tree.tree_map_only(torch.Tensor, level.unwrap, outputs)
        for x, seen in zip(given, inner, strict=True):
            if isinstance(x, torch.Tensor) and seen.synced() is not x:
                x.copy_(seen.value)
        return result
    return wrapped


_REMOVED = """Valid options are:
     remove='mutations': all inplace and out= operators will be removed from the program, and replaced with their \
out-of-place equivalents.
     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be replaced with their \
non-aliasing counterparts, {view}_copy.
"""


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The batch behind a tensor inside vmap; recurse: of all levels."""
    while isinstance(tensor, (_transforms.BatchedTensor, _functional.FunctionalTensor)):
        tensor = tensor.value
        if not recurse:
            break
    return tensor


# ---- modules ------------------------------------------------------------------------------------------------------
def replace_all_batch_norm_modules_(root: Any) -> Any:
    """The module itself, its batch norms without running statistics: those would be changed in place inside vmap."""
    for module in root.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: dict | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """Calls a module with other tensors in the place of its parameters and buffers."""
    given = parameter_and_buffer_dicts
    if not isinstance(given, (dict, list, tuple)):
        raise ValueError(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}")
    if isinstance(given, (list, tuple)):
        merged: dict[str, Tensor] = {}
        if not all(isinstance(part, dict) for part in given):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        for part in given:
            repeated = [name for name in part if name in merged]
            if repeated:
                raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call "
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
        for name, value in states[0].items():
            if any(s[name].requires_grad != value.requires_grad for s in states):
                raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
        return {name: torch.stack([s[name] for s in states]).detach().requires_grad_(
            grad and states[0][name].requires_grad) for name in states[0]}
    return (stacked([dict(m.named_parameters()) for m in models], True),
            stacked([dict(m.named_buffers()) for m in models], False))
