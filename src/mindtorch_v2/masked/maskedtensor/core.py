"""MaskedTensor: data and a mask of the same shape; the tables below say what an op does with both."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

__all__ = ["MaskedTensor", "is_masked_tensor"]

# What answers an op of ATen, by the op's name, and a function of torch, by the function; the other files fill them.
DISPATCH: dict[str, Callable[..., Any]] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}

_DTYPES = (torch.float16, torch.float32, torch.float64, torch.bool, torch.int8, torch.int16, torch.int32, torch.int64)
_PROTOTYPE = ("The PyTorch API of MaskedTensors is in prototype stage and will change in the near future. Please open a "
              "Github issue for features requests and see our documentation on the torch.masked module for further "
              "information about the project.")
_WITH_HISTORY = ("It is not recommended to create a MaskedTensor with a tensor that requires_grad. To avoid this, you can "
                 "use data.detach().clone()")
UNSUPPORTED = ("If you would like this operator to be supported, please file an issue for a feature request at "
               "https://github.com/pytorch/maskedtensor/issues with a minimal reproducible code snippet.\n"
               "In the case that the semantics for the operator are not trivial, it would be appreciated to also include "
               "a proposal for the semantics.")


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether it is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


def _parts(x: Any) -> list[Any]:
    """The dense tensors that a tensor is made of."""
    if x.layout is torch.sparse_coo:
        return [x.values(), x.indices()]
    if x.layout is torch.sparse_csr:
        return [x.crow_indices(), x.col_indices(), x.values()]
    return [x]


def _tensors_match(a: Any, b: Any, exact: bool = True, rtol: float = 1e-05, atol: float = 1e-08) -> bool:
    """Whether two tensors have the same values, and where they are sparse the same places."""
    if is_masked_tensor(a) or is_masked_tensor(b):
        raise ValueError("Neither `a` nor `b` can be a MaskedTensor.")
    if a.layout != b.layout:
        raise ValueError(f"`a` and `b` must have the same layout. Got {a.layout} and {b.layout}")
    for x, y in zip(_parts(a), _parts(b), strict=True):
        y = y.to(x.dtype)
        if x.dim() != y.dim() or not (torch.eq(x, y).all() if exact else torch.allclose(x, y, rtol=rtol, atol=atol)):
            return False
    return True


def _masks_match(a: Any, b: Any) -> bool:
    """Whether the masks are the same; what has no mask matches all."""
    if is_masked_tensor(a) and is_masked_tensor(b):
        return _tensors_match(a.get_mask(), b.get_mask(), exact=True)
    return True


def _map_mt_args_kwargs(args: Any, kwargs: Any, map_fn: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments with each MaskedTensor, also in lists, replaced by map_fn of it."""
    def replaced(value: Any) -> Any:
        if is_masked_tensor(value):
            return map_fn(value)
        if isinstance(value, (list, tuple)):
            return type(value)([replaced(item) for item in value])
        return value
    return [replaced(a) for a in args], {name: replaced(value) for name, value in (kwargs or {}).items()}


def _wrap_result(result_data: Any, result_mask: Any) -> Any:
    """MaskedTensors of results and their masks, in the results' structure."""
    if isinstance(result_data, (list, tuple)):
        return type(result_data)([_wrap_result(r, m) for r, m in zip(result_data, result_mask, strict=True)])
    return MaskedTensor(result_data, result_mask) if torch.is_tensor(result_data) else NotImplemented


def _get_data(a: Any) -> Any:
    return a._masked_data if is_masked_tensor(a) else a


def _maybe_get_mask(a: Any) -> Any:
    return a._masked_mask if is_masked_tensor(a) else None


def _text(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _masked_tensor_str(data: Any, mask: Any) -> str:
    """The rows of a dense tensor, with dashes for what is masked out."""
    if data.dim() == 1:
        texts = [_text(value) for value in data.tolist()]
        kept = mask.tolist()
        width = max(len(text) if keep else 8 for text, keep in zip(texts, kept, strict=True))
        return "[" + ", ".join(text if keep else "--".rjust(width) for text, keep in zip(texts, kept, strict=True)) + "]"
    rows = [_masked_tensor_str(d, m) for d, m in zip(data, mask, strict=True)]
    return "[\n" + ",\n".join(_indented(row) for row in rows) + "\n]"


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))


def _at_mask(data: Any, mask: Any) -> Any:
    """Sparse data at the places that a sparse mask keeps; 0 where it has none there."""
    coo = mask.to_sparse_coo().coalesce()
    keep = coo.values()
    pattern = torch.sparse_coo_tensor(coo.indices()[:, keep], keep[keep], coo.shape).coalesce()
    found = data.to_sparse_coo().coalesce().sparse_mask(pattern).coalesce()
    return found if data.layout is torch.sparse_coo else found.to_sparse_csr()


class GetData(torch.autograd.Function):
    """The data; its gradient has the tensor's mask."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mask = x._masked_mask
        return x._masked_data.detach()

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return grad_output if is_masked_tensor(grad_output) else MaskedTensor(grad_output, ctx.mask)


class Constructor(torch.autograd.Function):
    """A MaskedTensor that keeps the history of its data."""

    @staticmethod
    def forward(ctx: Any, data: Any, mask: Any) -> Any:
        return MaskedTensor(data, mask)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return grad_output, None


class MaskedTensor(torch.Tensor):
    """Data whose items count only where the mask is True."""

    _masked_data: Any
    _masked_mask: Any

    @staticmethod
    def __new__(cls: type, data: Any, mask: Any, requires_grad: bool = False) -> Any:
        if is_masked_tensor(data) or not torch.is_tensor(data):
            raise TypeError("data must be a Tensor")
        if is_masked_tensor(mask) or not torch.is_tensor(mask):
            raise TypeError("mask must be a Tensor")
        warnings.warn(_PROTOTYPE, UserWarning, stacklevel=2)
        if data.requires_grad:
            warnings.warn(_WITH_HISTORY, UserWarning, stacklevel=2)
        return torch.Tensor._make_wrapper_subclass(cls, data.size(), device=data.device, dtype=data.dtype,
                                                   requires_grad=requires_grad)

    def __init__(self, data: Any, mask: Any, requires_grad: bool = False) -> None:
        self._preprocess_data(data, mask)
        self._validate_members()

    def _preprocess_data(self, data: Any, mask: Any) -> None:
        """Own copies of both; sparse data at the places of the mask."""
        if data.layout != mask.layout:
            raise TypeError("data and mask must have the same layout.")
        if data.layout is torch.sparse_coo:
            data, mask = data.coalesce(), mask.coalesce()
        if data.layout in (torch.sparse_coo, torch.sparse_csr) and data._nnz() != mask._nnz():
            data = _at_mask(data, mask)
        self._masked_data, self._masked_mask = data.clone(), mask.clone()

    def _validate_members(self) -> None:
        data, mask = self._masked_data, self._masked_mask
        if type(data) is not type(mask):
            raise TypeError(f"data and mask must have the same type. Got {type(data)} and {type(mask)}")
        if data.layout not in (torch.strided, torch.sparse_coo, torch.sparse_csr):
            raise TypeError(f"data layout of {data.layout} is not supported.")
        if data.layout is torch.sparse_coo and not _tensors_match(data.indices(), mask.indices()):
            raise ValueError("data and mask are both sparse COO tensors but do not have the same indices.")
        if data.layout is torch.sparse_csr and not (_tensors_match(data.crow_indices(), mask.crow_indices()) and
                                                    _tensors_match(data.col_indices(), mask.col_indices())):
            raise ValueError("data and mask are both sparse CSR tensors but do not share either crow or col indices.")
        if mask.dtype != torch.bool:
            raise TypeError("mask must have dtype bool.")
        if data.dtype not in _DTYPES:
            raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
        if data.dim() != mask.dim():
            raise ValueError("data.dim() must equal mask.dim()")
        if data.size() != mask.size():
            raise ValueError("data.size() must equal mask.size()")

    @staticmethod
    def _from_values(data: Any, mask: Any) -> MaskedTensor:
        """A MaskedTensor that keeps the history of data."""
        return Constructor.apply(data, mask)

    def _set_data_mask(self, data: Any, mask: Any) -> None:
        self._masked_data, self._masked_mask = data, mask
        self._validate_members()

    def __repr__(self, **kwargs: Any) -> str:   # type: ignore[override]
        data, mask = self._masked_data, self._masked_mask
        if self.dim() == 0:
            kept = mask.item()
            return f"MaskedTensor({_text(data.item()) if kept else '--'}, {kept})"
        if data.layout is not torch.strided:
            data, mask = data.to_dense(), mask.to_dense()
        return "MaskedTensor(\n" + _indented(_masked_tensor_str(data, mask)) + "\n)"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in FUNCTIONS:
            return FUNCTIONS[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        if packet.__name__ in DISPATCH:
            return DISPATCH[packet.__name__](packet, *args, **(kwargs or {}))
        warnings.warn(f"{packet.__name__} is not implemented in __torch_dispatch__ for MaskedTensor.\n{UNSUPPORTED}",
                      stacklevel=2)
        return NotImplemented

    @classmethod
    def unary(cls, fn: Callable[[Any], Any], data: Any, mask: Any) -> MaskedTensor:
        """fn of the data, with the mask."""
        return MaskedTensor(fn(data), mask)

    def __lt__(self, other: Any) -> MaskedTensor:
        return MaskedTensor(self.get_data() < _get_data(other), self.get_mask())

    def to_tensor(self, value: Any) -> Any:
        """The data, with a value where it is masked out."""
        return self.get_data().masked_fill(~self.get_mask(), value)

    @property  # type: ignore[misc]
    def data(self) -> Any:
        """Itself without history."""
        return MaskedTensor(self._masked_data, self._masked_mask)

    def item(self) -> Any:
        """The one item, which must not be masked out."""
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        if not self._masked_mask:
            raise ValueError("__torch_dispatch__, aten._local_scalar_dense: expected a mask tensor")
        return self._masked_data.item()

    def get_data(self) -> Any:
        """The data, as a tensor without a mask."""
        return GetData.apply(self)

    def get_mask(self) -> Any:
        """The mask."""
        return self._masked_mask

    # The wrapper has no memory: its data says how it lies.
    @property
    def layout(self) -> Any:
        return self._masked_data.layout

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        """Whether the data is."""
        if self.is_sparse:
            raise ValueError("MaskedTensors with sparse data do not have is_contiguous")
        return self._masked_data.is_contiguous(*args, **kwargs)

    def is_sparse_coo(self) -> bool:
        """Whether the data is sparse, by coordinates."""
        return self.layout is torch.sparse_coo

    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """Whether the data is sparse, by compressed rows."""
        return self.layout is torch.sparse_csr

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        return self.layout in (torch.sparse_coo, torch.sparse_csr)
