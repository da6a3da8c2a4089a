"""torch.sparse: functions of sparse tensors, and the switch for checking their invariants."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

__all__ = ["addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax",
           "solve", "spdiags", "spsolve", "sum", "to_sparse_semi_structured"]

globals().update(torch._legacy.sparse_types)
_WHY = "2:4 sparsity and Triton's kernels need hardware that neither the cpu nor an npu is"
_semi = torch._facade.absents(
    "SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT SparseSemiStructuredTensorCUTLASS", _WHY, "torch.sparse.")
globals().update(_semi)
_triton_ops: Any = torch._facade.module(__name__, "_triton_ops", "Triton's kernels of sparse products: none.",
                                        __getattr__=torch._facade.refuse_all("torch.sparse._triton_ops", _WHY))
_triton_ops_meta: Any = torch._facade.module(__name__, "_triton_ops_meta", "Their parameters: none.",
                                             __getattr__=torch._facade.refuse_all("torch.sparse._triton_ops_meta", _WHY))


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """beta mat + alpha (mat1 @ mat2); the gradient of a sparse mat1 has the places of mat1."""
    return torch._sparse_addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def mm(mat1: Any, mat2: Any, reduce: str | None = None) -> Any:
    """mat1 @ mat2; the gradient of a sparse operand has its places."""
    if reduce is not None and mat1.layout in (torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        raise RuntimeError(f"sparse_mm_reduce: expect self to be SparseCsr, got {torch._sparse.pattern.WORDS[mat1.layout]}")
    if reduce is not None and mat1.layout is torch.sparse_csr:
        _check_reducible(mat1, mat2)
    if reduce is not None and (reduce != "sum" or mat1.dtype.itemsize == 2):
        return _mm_reduced(mat1, mat2, reduce)
    if not (torch._sparse.is_sparse(mat1) or torch._sparse.is_sparse(mat2)):
        return torch.mm(mat1, mat2)
    return torch._sparse_mm(mat1, mat2)


def _check_reducible(mat1: Any, mat2: Any) -> None:
    """The sizes, and the dtypes for which torch has a kernel that reduces."""
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({mat1.shape[0]}x{mat1.shape[1]} and "
                           f"{mat2.shape[0]}x{mat2.shape[1]})")
    if not mat1.is_floating_point():
        raise NotImplementedError(f"\"spmm_reduce_kernel\" not implemented for '{torch._C.TYPE_WORDS[mat1.dtype._id]}'")


def _mm_reduced(mat1: Any, mat2: Any, reduce: str) -> Any:
    """mat1 @ mat2 with another reduction of the products than their sum; a row without values gives 0."""
    if mat1.layout is not torch.sparse_csr:
        raise torch._sparse.refusal("_sparse_mm_reduce_impl", mat1)
    if reduce.startswith("p"):                               # products; what no reduction is called is refused below
        raise RuntimeError(f"sparse_mm_reduce: reduce type of {reduce} has not been enabled.")
    starts = mat1.crow_indices()
    rows = torch.repeat_interleave(torch.arange(mat1.shape[0], device=mat1.device), starts.diff())
    terms = mat2.index_select(0, mat1.col_indices()) * mat1.values().unsqueeze(1)
    result = torch.zeros((mat1.shape[0], mat2.shape[1]), dtype=mat2.dtype, device=mat2.device)
    return result.scatter_reduce(0, rows.unsqueeze(1).expand_as(terms), terms, reduce, include_self=False)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of all values, or over dims; the gradient has the places of input."""
    return torch._sparse_sum(input, dim, dtype=dtype)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """softmax where what is not specified counts as minus infinity."""
    return torch._sparse_softmax(input, dim, dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of softmax()."""
    return torch._sparse_log_softmax(input, dim, dtype)


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix with the rows of diagonals on the diagonals that offsets name."""
    return torch._spdiags(diagonals, offsets, shape, layout)


def sampled_addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> Any:
    """beta input + alpha (mat1 @ mat2), computed at the places of the CSR tensor input only."""
    function = torch._C._op_named("sparse_sampled_addmm")
    return function(input, mat1, mat2, beta=beta, alpha=alpha) if out is None else function(
        input, mat1, mat2, beta=beta, alpha=alpha, out=out)


def solve(*args: Any, **kwargs: Any) -> Any:
    """Raises: there is no sparse solver here."""
    raise NotImplementedError("torch.sparse.solve: there is no sparse solver here; use torch.linalg.solve on dense tensors")


spsolve = solve


def to_sparse_semi_structured(original_tensor: Any, transposed: bool = False) -> Any:
    """Raises: 2:4 sparsity needs hardware that neither the cpu nor an npu is."""
    raise RuntimeError(f"Error original_tensor.device= {original_tensor.device} is not supported! Only CUDA tensors are currently "
                       "supported.")


semi_structured: Any = torch._facade.module(
    __name__, "semi_structured", "Tensors with 2:4 sparsity: their classes, of which no tensor can be made.", **_semi,
    to_sparse_semi_structured=to_sparse_semi_structured)


class check_sparse_tensor_invariants:
    """Whether new sparse tensors are checked: a context, a decorator, and functions that set the default."""

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved_state: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Whether new sparse tensors are checked."""
        return torch._sparse.Invariants.enabled

    @staticmethod
    def enable() -> None:
        """Checks sparse tensors from now on."""
        torch._sparse.Invariants.enabled = True

    @staticmethod
    def disable() -> None:
        """Checks no sparse tensor from now on."""
        torch._sparse.Invariants.enabled = False

    def __enter__(self) -> None:
        if self.saved_state is not None:
            raise RuntimeError("This context manager instance is already activated. Use a different context manager instance "
                               "for context nesting.")
        self.saved_state = self.is_enabled()
        torch._sparse.Invariants.enabled = self.state

    def __exit__(self, *exc: Any) -> None:
        if self.saved_state is None:
            raise AssertionError("the context was not entered")
        torch._sparse.Invariants.enabled = self.saved_state
        self.saved_state = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)
        return checked


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """A gradcheck that takes functions with sparse inputs and results: it checks a function of their values instead."""
    @functools.wraps(gradcheck)
    def wrapped(func: Callable[..., Any], inputs: Any, **kwargs: Any) -> Any:
        masked = kwargs.pop("masked", False)
        given = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
        values, rebuild = _separate(given, masked)

        def dense_func(*args: Any) -> Any:
            made = func(*rebuild(args))
            results = made if isinstance(made, (tuple, list)) else (made,)
            shown = tuple(_shown(r, masked) for r in results)
            return shown if isinstance(made, (tuple, list)) else shown[0]
        return gradcheck(dense_func, values, **kwargs)
    return wrapped


def _shown(result: Any, masked: bool) -> Any:
    """A result that gradcheck can read: a sparse one as a dense tensor."""
    if not isinstance(result, torch.Tensor) or result.layout == torch.strided:
        return result
    return result.to_dense(masked_grad=masked)


def _specified(x: Any) -> Any:
    """x with every place specified: gradients that are not masked are compared everywhere."""
    if x.layout == torch.sparse_coo:
        full = torch.ones(x.shape[:x.sparse_dim()], dtype=torch.bool, device=x.device).nonzero().t()
        shape, kept = x.shape, x.detach().coalesce()
        blank = torch.sparse_coo_tensor(full, torch.zeros((full.shape[1], *shape[x.sparse_dim():]), dtype=x.dtype), shape,
                                        is_coalesced=True)
        return kept.sparse_mask(blank)
    batch = x.dim() - x.dense_dim() - 2
    block = tuple(x.values().shape[batch + 1:batch + 3]) if x.layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    ones = torch.ones(x.shape, dtype=x.dtype, device=x.device)
    mask = ones.to_sparse(layout=x.layout, blocksize=block, dense_dim=x.dense_dim())
    return x.detach().to_dense().sparse_mask(mask)


def _separate(given: tuple[Any, ...], masked: bool) -> tuple[tuple[Any, ...], Callable[..., list[Any]]]:
    """The inputs with sparse tensors replaced by their values, and a function that puts them together again."""
    values: list[Any] = []
    makers: list[Any] = []
    for x in given:
        if not isinstance(x, torch.Tensor) or x.layout == torch.strided or not x.requires_grad:
            values.append(x)
            makers.append(None)
            continue
        source = x.detach() if masked else _specified(x)
        part = source._values() if source.layout == torch.sparse_coo else source.values()
        values.append(part.detach().clone().requires_grad_(True))
        makers.append(_maker(source))

    def rebuild(args: Any) -> list[Any]:
        return [value if maker is None else maker(value) for value, maker in zip(args, makers)]
    return tuple(values), rebuild


def _maker(x: Any) -> Callable[[Any], Any]:
    if x.layout == torch.sparse_coo:
        return lambda v: torch.sparse_coo_tensor(x._indices(), v, x.shape, is_coalesced=x.is_coalesced())
    rows = x.layout in (torch.sparse_csr, torch.sparse_bsr)
    first, second = (x.crow_indices(), x.col_indices()) if rows else (x.ccol_indices(), x.row_indices())
    return lambda v: torch.sparse_compressed_tensor(first, second, v, x.shape, layout=x.layout)

__path__: list[str] = []       # modules that torch has below it are found by name
