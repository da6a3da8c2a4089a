"""Sparse tensors against PyTorch: each program runs in both libraries; results, layouts, flags and errors must agree."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from twin import check_lines

import mindtorch_v2

warnings.filterwarnings("ignore", "Sparse .* tensor support is in beta state")
LAYOUTS = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def described(value: Any) -> Any:
    """A result in words that both libraries share."""
    if isinstance(value, (torch.Tensor, mindtorch_v2.Tensor)):
        layout, what = str(value.layout), (str(value.dtype), tuple(value.shape), value.requires_grad)
        data = value.detach()
        if layout == "torch.sparse_coo":
            return layout, what, data.is_coalesced(), described(data._indices()), described(data._values())
        if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
            return layout, what, described(data.crow_indices()), described(data.col_indices()), described(data.values())
        if layout in ("torch.sparse_csc", "torch.sparse_bsc"):
            return layout, what, described(data.ccol_indices()), described(data.row_indices()), described(data.values())
        wide = data.to(data.dtype if data.is_complex() else data.float().dtype if data.dtype.itemsize < 4 else data.dtype)
        return what[:2], rounded(wide.tolist())
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    return value


def rounded(items: Any) -> Any:
    if isinstance(items, list):
        return [rounded(i) for i in items]
    if isinstance(items, complex):
        return complex(float(f"{items.real:.4g}"), float(f"{items.imag:.4g}"))
    return float(f"{items:.4g}") + 0.0 if isinstance(items, float) else items


def outcome(program: Callable[[Any], Any], library: Any) -> Any:
    """What a program gives, or its error: the type and the beginning of the message."""
    try:
        return described(program(library))
    except Exception as error:  # noqa: BLE001 - errors are results here
        kind = "RuntimeError" if isinstance(error, RuntimeError) else type(error).__name__
        return kind, str(error).split("This could be because")[0][:60]


def agree(program: Callable[[Any], Any]) -> None:
    assert str(outcome(program, mindtorch_v2)) == str(outcome(program, torch))  # as text: nan is nan


class Samples:
    """The same sparse tensors in either library."""

    def __init__(self, library: Any) -> None:
        self.T = library

    def coo(self, size: tuple[int, ...] = (4, 5), sparse_dim: int = 2, nnz: int = 7, coalesced: bool = False,
            dtype: str = "float32", seed: int = 1) -> Any:
        """nnz values at indices of which some come twice."""
        state = seed * 2654435761 % 2**32
        numbers = []
        for _ in range(nnz * (sparse_dim + 40)):
            state = (state * 1664525 + 1013904223) % 2**32
            numbers.append(state >> 16)
        at = iter(numbers)
        indices = [[next(at) % max(size[d], 1) for _ in range(nnz)] for d in range(sparse_dim)]
        count = nnz
        for n in size[sparse_dim:]:
            count *= n
        values = [(k * 7 + seed * 3) % 11 - 5 for k in range(count)]
        T = self.T
        made = T.sparse_coo_tensor(T.tensor(indices).reshape(sparse_dim, nnz).long(),
                                   T.tensor(values).reshape(nnz, *size[sparse_dim:]).to(getattr(T, dtype)), size)
        return made.coalesce() if coalesced else made

    def dense(self, *size: int, dtype: str = "float32", seed: int = 1) -> Any:
        count = 1
        for n in size:
            count *= n
        return self.T.tensor([(k * 5 + seed) % 7 - 3 for k in range(count)]).reshape(size).to(getattr(self.T, dtype))

    def holes(self, *size: int, dtype: str = "float32") -> Any:
        """A dense tensor with zeros, as many in each matrix of a batch."""
        rows, columns = size[-2:]
        matrix = self.T.tensor([[(i * 3 + j * 5) % 4 % 3 for j in range(columns)] for i in range(rows)])
        return (matrix.expand(size) * 1).to(getattr(self.T, dtype))

    def compressed(self, layout: str, *size: int, dtype: str = "float32") -> Any:
        size = size or (4, 6)
        block = (2, 3) if layout[7] == "b" else None
        return self.holes(*size, dtype=dtype).to_sparse(layout=getattr(self.T, layout), blocksize=block)


def on_coo(body: Callable[..., Any], **sample: Any) -> None:
    for coalesced in (True, False):
        agree(lambda T: body(T, Samples(T).coo(coalesced=coalesced, **sample)))


UNARY = ("abs asin asinh atan atanh ceil erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p nan_to_num neg "
         "relu round sgn sign signbit sin sinh sqrt tan tanh trunc deg2rad rad2deg square conj_physical positive").split()


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_unary_ops_keep_the_places(name: str, dtype: str) -> None:
    if (name, dtype) == ("frac", "int64"):
        return  # refused in other words
    on_coo(lambda T, x: getattr(T, name)(x), dtype=dtype)
    if name not in ("square", "conj_physical", "positive"):  # torch has no in-place forms of these for all layouts
        on_coo(lambda T, x: getattr(x, name + "_")() if hasattr(x, name + "_") else 0, dtype=dtype)
    for layout in LAYOUTS:
        if name not in ("positive", "nan_to_num"):  # which torch refuses here
            agree(lambda T: getattr(T, name)(Samples(T).compressed(layout, dtype=dtype)))


BINARY = {
    "add": lambda T, x, y, d: (x + y).coalesce(),
    "add alpha": lambda T, x, y, d: T.add(x, y, alpha=3).coalesce(),
    "sub": lambda T, x, y, d: (x - y).coalesce(),
    "same": lambda T, x, y, d: x + x,
    "dense add": lambda T, x, y, d: d + x,
    "dense sub": lambda T, x, y, d: T.sub(d, x, alpha=2),
    "sparse add dense": lambda T, x, y, d: x + d,
    "mul scalar": lambda T, x, y, d: x * 3,
    "scalar mul": lambda T, x, y, d: 2.5 * x,
    "mul 0-dim": lambda T, x, y, d: x * T.tensor(2.0),
    "mul dense": lambda T, x, y, d: x * d,
    "dense mul": lambda T, x, y, d: d * x,
    "mul row": lambda T, x, y, d: x * d[0],
    "mul column": lambda T, x, y, d: x * d[:, :1],
    "div": lambda T, x, y, d: x / 2,
    "div floor": lambda T, x, y, d: T.div(x, 2, rounding_mode="floor"),
    "div trunc": lambda T, x, y, d: T.div(x, -2, rounding_mode="trunc"),
    "div sparse": lambda T, x, y, d: x / y,
    "div dense": lambda T, x, y, d: x / d,
    "floordiv": lambda T, x, y, d: x // 2,
    "floordiv sparse": lambda T, x, y, d: x // y,
    "pow": lambda T, x, y, d: x ** 2,
    "pow 0": lambda T, x, y, d: x ** 0,
    "add_": lambda T, x, y, d: x.add_(y).coalesce(),
    "sub_": lambda T, x, y, d: x.sub_(y).coalesce(),
    "mul_": lambda T, x, y, d: x.mul_(2).to_dense(),
    "div_": lambda T, x, y, d: x.div_(4),
    "dense add_": lambda T, x, y, d: d.add_(x, alpha=-2),
    "dense mul_": lambda T, x, y, d: d.mul_(x),
    "zero_": lambda T, x, y, d: x.zero_(),
    "copy_": lambda T, x, y, d: x.copy_(y),
    "copy_ dense": lambda T, x, y, d: x.copy_(d),
    "dense copy_": lambda T, x, y, d: d.copy_(x),
    "neg out": lambda T, x, y, d: T.neg(x, out=T.zeros_like(x)),
    "mul out": lambda T, x, y, d: T.mul(x, 2, out=T.zeros_like(x)),
    "any": lambda T, x, y, d: x.any(),
    "refused": lambda T, x, y, d: x.cos(),
    "refused in place": lambda T, x, y, d: x.cos_(),
    "max": lambda T, x, y, d: x.max(),
    "assign": lambda T, x, y, d: x.__setitem__(0, 1.0),
}


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(name: str) -> None:
    for size, sparse_dim in (((4, 5), 2), ((4, 5, 2), 2), ((4, 5, 2), 1)):
        for coalesced in (True, False):
            def program(T: Any) -> Any:
                make = Samples(T)
                x, y = (make.coo(size, sparse_dim, coalesced=coalesced, seed=s) for s in (1, 2))
                return BINARY[name](T, x, y, make.dense(*size))
            if name.startswith(("mul row", "mul column")) and len(size) == 3 and sparse_dim == 1:
                continue  # a dense operand that broadcasts inside dense dims
            if name in ("mul dense", "dense mul") and sparse_dim == 1 and not coalesced:
                continue
            agree(program)


SHAPES = {
    "t": lambda T, x: x.t(),
    "T": lambda T, x: x.T,
    "transpose": lambda T, x: x.transpose(0, 1),
    "transpose wrong": lambda T, x: x.transpose(0, -1),
    "transpose_": lambda T, x: x.transpose_(0, 1),
    "permute": lambda T, x: x.permute(1, 0, 2) if x.dim() == 3 else x.permute(1, 0),
    "permute few": lambda T, x: x.permute(0),
    "permute twice": lambda T, x: x.permute((0,) * x.dim()),
    "select": lambda T, x: x.select(0, 1),
    "select negative": lambda T, x: x[-1],
    "select two": lambda T, x: x[1, 2],
    "select far": lambda T, x: x.select(0, 9),
    "unsqueeze": lambda T, x: x.unsqueeze(0),
    "unsqueeze last": lambda T, x: x.unsqueeze(-1),
    "unsqueeze far": lambda T, x: x.unsqueeze(7),
    "index_select": lambda T, x: x.coalesce().index_select(0, T.tensor([2, 0, 2])),
    "narrow_copy": lambda T, x: x.narrow_copy(0, 1, 2),
    "cat": lambda T, x: T.cat([x, x, x]),
    "cat dim": lambda T, x: T.cat([x, x], 1),
    "cat dense": lambda T, x: T.cat([x, x.to_dense()]),
    "stack": lambda T, x: T.stack([x, x]),
    "unbind": lambda T, x: x.unbind(0),
    "clone": lambda T, x: x.clone(),
    "detach": lambda T, x: x.detach(),
    "double": lambda T, x: x.double(),
    "zeros_like": lambda T, x: T.zeros_like(x),
    "zeros_like strided": lambda T, x: T.zeros_like(x, layout=T.strided),
    "empty_like": lambda T, x: T.empty_like(x, dtype=T.int64),
    "new_zeros": lambda T, x: x.new_zeros((2, 3)),
    "new": lambda T, x: x.new(2, 3),
    "new parts": lambda T, x: x.new(x._indices(), x._values(), x.shape),
    "resize": lambda T, x: x.sparse_resize_((8, *x.shape[1:]), x.sparse_dim(), x.dense_dim()),
    "resize dims": lambda T, x: x.sparse_resize_((4, 5, 6, 7, 8), 1, 4),
    "resize small": lambda T, x: x.sparse_resize_((1, *x.shape[1:]), x.sparse_dim(), x.dense_dim()),
    "clear": lambda T, x: x.sparse_resize_and_clear_((3, 3, 3), 2, 1),
    "sum": lambda T, x: x.sum(),
    "sum 0": lambda T, x: x.sum(0),
    "sum all": lambda T, x: x.sum(tuple(range(x.dim()))),
    "sparse.sum": lambda T, x: T.sparse.sum(x),
    "sparse.sum 0": lambda T, x: T.sparse.sum(x.coalesce(), 0),
    "sparse.sum twice": lambda T, x: T.sparse.sum(x, [0, 0]),
    "sparse.sum far": lambda T, x: T.sparse.sum(x, 5),
    "softmax": lambda T, x: T.sparse.softmax(x, 0),
    "softmax 1": lambda T, x: T.sparse.softmax(x, 1, dtype=T.float64),
    "log_softmax": lambda T, x: T.sparse.log_softmax(x, -1),
    "norm": lambda T, x: (x.norm(), x.norm(1), T.norm(x, 3)),
    "norm keepdim": lambda T, x: x.norm(keepdim=True),
    "norm dim": lambda T, x: x.norm(dim=0),
    "mask": lambda T, x: x.to_dense().sparse_mask(x),
    "mask sparse": lambda T, x: (x * 2).sparse_mask(x.coalesce()),
    "to_sparse": lambda T, x: x.to_dense().to_sparse(x.sparse_dim()),
    "counts": lambda T, x: (x._nnz(), x.sparse_dim(), x.dense_dim(), x._dimI(), x._dimV(), x.numel(), x.is_sparse,
                            x.is_sparse_csr, len(x), x.element_size(), x.stride(), x.is_contiguous(), x.type()),
    "numpy": lambda T, x: x.numpy(),
    "storage": lambda T, x: x.untyped_storage(),
    "data_ptr": lambda T, x: x.data_ptr(),
    "nbytes": lambda T, x: x.nbytes,
    "item": lambda T, x: x.item(),
    "bool": lambda T, x: bool(x),
    "indices": lambda T, x: x.indices(),
    "values": lambda T, x: x.values(),
    "crow_indices": lambda T, x: x.crow_indices(),
    "reshape": lambda T, x: x.reshape(-1),
    "expand": lambda T, x: x.expand(2, *x.shape),
    "view": lambda T, x: x.view(-1),
    "isclose": lambda T, x: T.is_tensor(x) and isinstance(x, T.Tensor) and x.__class__ is T.Tensor,
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_reductions(name: str) -> None:
    on_coo(SHAPES[name])
    if name != "select two":
        on_coo(SHAPES[name], size=(3, 4, 2), sparse_dim=2)


CONSTRUCTION = {
    "indices 1-D": lambda T: T.sparse_coo_tensor(T.tensor([0, 1]), T.tensor([1.0, 2.0]), (2,)),
    "nnz": lambda T: T.sparse_coo_tensor(T.tensor([[0, 1]]), T.tensor([1.0, 2.0, 3.0]), (2,)),
    "dims": lambda T: T.sparse_coo_tensor(T.tensor([[0, 1]]), T.tensor([1.0, 2.0]), (2, 2)),
    "values": lambda T: T.sparse_coo_tensor(T.tensor([[0, 1]]), T.tensor([[1.0, 2], [3, 4]]), (2, 3)),
    "unchecked": lambda T: T.sparse_coo_tensor(T.tensor([[0, 5]]), T.tensor([1.0, 2.0]), (2,)),
    "far": lambda T: T.sparse_coo_tensor(T.tensor([[0, 5]]), T.tensor([1.0, 2.0]), (2,), check_invariants=True),
    "negative": lambda T: T.sparse_coo_tensor(T.tensor([[0, -5]]), T.tensor([1.0, 2.0])),
    "inferred": lambda T: T.sparse_coo_tensor([[0, 3], [2, 1]], [1.0, 2.0]),
    "number": lambda T: T.sparse_coo_tensor([[0]], 1),
    "size only": lambda T: T.sparse_coo_tensor((2, 3)),
    "size keyword": lambda T: T.sparse_coo_tensor(size=(2, 3), dtype=T.int32),
    "nothing": lambda T: T.sparse_coo_tensor(),
    "coalesced": lambda T: T.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,), is_coalesced=True),
    "not coalesced": lambda T: T.sparse_coo_tensor([[0, 0]], [1.0, 2], (2,), is_coalesced=True, check_invariants=True),
    "requires_grad": lambda T: T.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,), requires_grad=True),
    "scalar": lambda T: T.sparse_coo_tensor(T.zeros(0, 2), [1.0, 2.0], ()).coalesce(),
    "large": lambda T: T.sparse_coo_tensor(T.tensor([[0]] * 4), T.tensor([1.0]), (100001,) * 4),
    "empty": lambda T: T.empty(2, 3, layout=T.sparse_coo),
    "zeros csr": lambda T: T.zeros(2, 3, layout=T.sparse_csr),
    "csr": lambda T: T.sparse_csr_tensor([0, 1, 3], [1, 0, 2], [1.0, 2, 3]),
    "csc": lambda T: T.sparse_csc_tensor(T.tensor([0, 1, 3]), T.tensor([1, 0, 2]), T.tensor([1.0, 2, 3]), (3, 2)),
    "bsr": lambda T: T.sparse_bsr_tensor([0, 1, 2], [1, 0], T.ones(2, 2, 2), (4, 4)),
    "csr dims": lambda T: T.sparse_csr_tensor(T.tensor([[0, 1]]), T.tensor([0]), T.tensor([1.0]), (1, 1),
                                              check_invariants=True),
    "csr first": lambda T: T.sparse_csr_tensor(T.tensor([1, 1]), T.tensor([0]), T.tensor([1.0]), (1, 1),
                                               check_invariants=True),
    "csr last": lambda T: T.sparse_csr_tensor(T.tensor([0, 2]), T.tensor([0]), T.tensor([1.0]), (1, 1),
                                              check_invariants=True),
    "csr far": lambda T: T.sparse_csr_tensor(T.tensor([0, 1]), T.tensor([3]), T.tensor([1.0]), (1, 2),
                                             check_invariants=True),
    "csc far": lambda T: T.sparse_csc_tensor(T.tensor([0, 1]), T.tensor([3]), T.tensor([1.0]), (2, 1),
                                             check_invariants=True),
    "csr sorted": lambda T: T.sparse_csr_tensor(T.tensor([0, 2]), T.tensor([1, 0]), T.ones(2), (1, 2),
                                                check_invariants=True),
    "csr nnz": lambda T: T.sparse_csr_tensor(T.tensor([0, 2]), T.tensor([0, 1]), T.ones(3), (1, 2), check_invariants=True),
    "csr rows": lambda T: T.sparse_csr_tensor(T.tensor([0, 2]), T.tensor([0, 1]), T.ones(2), (2, 2), check_invariants=True),
    "csr dtypes": lambda T: T.sparse_csr_tensor(T.tensor([0, 2]).int(), T.tensor([0, 1]), T.ones(2), (1, 2),
                                                check_invariants=True),
    "compressed strided": lambda T: T.sparse_compressed_tensor([0, 1], [0], [1.0], layout=T.strided),
    "to_sparse far": lambda T: T.ones(2, 3).to_sparse(3),
    "to_sparse block": lambda T: T.ones(2, 3).to_sparse(blocksize=(1, 1)),
    "to_sparse no block": lambda T: T.ones(2, 3).to_sparse(layout=T.sparse_bsr),
    "to_sparse odd block": lambda T: T.ones(2, 3).to_sparse_bsr((2, 2)),
    "to_sparse short block": lambda T: T.ones(2, 3).to_sparse_bsr((1,)),
    "to_sparse strided": lambda T: T.ones(2, 3).to_sparse(layout=T.strided),
    "coalesce dense": lambda T: T.ones(2).coalesce(),
    "is_coalesced dense": lambda T: T.ones(2).is_coalesced(),
    "indices dense": lambda T: T.ones(2).indices(),
    "values dense": lambda T: T.ones(2).values(),
    "col_indices dense": lambda T: T.ones(2).col_indices(),
    "_nnz dense": lambda T: T.ones(2)._nnz(),
    "dims dense": lambda T: (T.ones(2, 3).sparse_dim(), T.ones(2, 3).dense_dim(), T.ones(2).to_dense()),
    "spdiags": lambda T: T.sparse.spdiags(T.arange(6.0).reshape(2, 3), T.tensor([0, 1]), (3, 3)).to_dense(),
    "spdiags csr": lambda T: T.sparse.spdiags(T.arange(6.0).reshape(2, 3), T.tensor([-1, 1]), (4, 4), layout=T.sparse_csr),
    "spdiags twice": lambda T: T.sparse.spdiags(T.ones(2, 3), T.tensor([0, 0]), (3, 3)),
    "spdiags 3-D": lambda T: T.sparse.spdiags(T.ones(1, 3), T.tensor([0]), (3, 2, 3)),
}


@pytest.mark.parametrize("name", CONSTRUCTION)
def test_construction(name: str) -> None:
    agree(CONSTRUCTION[name])


@pytest.mark.parametrize("source", ["strided", "sparse_coo", *LAYOUTS])
@pytest.mark.parametrize("target", ["sparse_coo", *LAYOUTS])
def test_conversions_between_layouts(source: str, target: str) -> None:
    for size in ((4, 6), (2, 4, 6)):
        for dtype in ("float32", "bool"):
            def program(T: Any) -> Any:
                dense = Samples(T).holes(*size, dtype=dtype)
                block = (2, 3) if source[7:8] == "b" else None
                made = dense.to_sparse(layout=getattr(T, source), blocksize=block) if source != "strided" else dense
                block = (2, 3) if target[7] == "b" else None
                return made.to_sparse(layout=getattr(T, target), blocksize=block)
            if source == "sparse_coo" and len(size) == 3 and target != "sparse_coo":
                continue
            agree(program)
    agree(lambda T: Samples(T).compressed(source).to_dense() if source in LAYOUTS else 0)


COMPRESSED = {
    "t": lambda T, x: x.t(),
    "transpose": lambda T, x: x.transpose(0, 1),
    "select": lambda T, x: x.select(0, 1),
    "clone": lambda T, x: x.clone(),
    "double": lambda T, x: x.double(),
    "sum": lambda T, x: x.sum(),
    "sum 0": lambda T, x: x.sum(0, keepdim=True),
    "sum 1": lambda T, x: x.sum(1, keepdim=True),
    "mul 2": lambda T, x: x * 2,
    "add same": lambda T, x: x + x,
    "add": lambda T, x: x + x * -1,
    "zeros_like": lambda T, x: T.zeros_like(x),
    "coalesce": lambda T, x: x.coalesce(),
    "indices": lambda T, x: x.indices(),
    "ccol_indices": lambda T, x: x.ccol_indices(),
    "crow_indices": lambda T, x: x.crow_indices(),
    "counts": lambda T, x: (x._nnz(), x.sparse_dim(), x.dense_dim(), x.is_sparse, x.is_sparse_csr, x.nbytes),
    "stride": lambda T, x: x.stride(),
    "numpy": lambda T, x: x.numpy(),
    "div": lambda T, x: x / 2,
    "exp": lambda T, x: x.exp(),
    "mask": lambda T, x: x.to_dense().sparse_mask(x),
    "copy_ dense": lambda T, x: x.copy_(x.to_dense()),
    "copy_": lambda T, x: x.copy_(T.neg(x)),
    "copy_ into coordinates": lambda T, x: x.to_dense().to_sparse().copy_(x),
    **{f"times {other}": lambda T, x, other=other: (x * x.to_dense().to_sparse(
        layout=getattr(T, other), blocksize=(2, 2) if "bs" in other else None)).to_dense() for other in (*LAYOUTS, "sparse_coo")},
    "times in place": lambda T, x: x.mul_(x.to_dense().to_sparse_csr()),
    "itself": lambda T, x: x.to_sparse(layout=x.layout),
    "select dense": lambda T, x: T.sparse_compressed_tensor(
        x.crow_indices(), x.col_indices(), T.stack([x.values(), x.values()], -1), (4, 4, 2), layout=x.layout)[..., 1],
    "empty_like": lambda T, x: T.empty_like(x)._nnz(),
    **{f"{name} {other}": lambda T, x, name=name, other=other: T.Tensor.sparse_dim(getattr(T, name)(x, layout=getattr(T, other)))
       for name in ("empty_like", "zeros_like") for other in (*LAYOUTS, "strided")},
}


MORE_THAN_TORCH = {("select", "sparse_bsr"), ("select", "sparse_bsc"), ("add", "sparse_csc"), ("add", "sparse_bsr"),
                   ("add", "sparse_bsc")}


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compressed_layouts(name: str, layout: str) -> None:
    if (name, layout) in MORE_THAN_TORCH:
        assert mindtorch_v2.is_tensor(COMPRESSED[name](mindtorch_v2, Samples(mindtorch_v2).compressed(layout)))
    else:
        agree(lambda T: COMPRESSED[name](T, Samples(T).compressed(layout)))


def test_printing() -> None:
    def program(T: Any) -> Any:
        make = Samples(T)
        x = make.coo()
        grad = make.coo().requires_grad_(True)
        texts = [x, x.double(), x.int(), x.coalesce(), grad, grad + grad, T.sparse_coo_tensor((2, 3)), make.coo((3, 2, 2), 1)]
        texts += [make.compressed(layout) for layout in LAYOUTS]
        texts += [make.compressed(layout, 2, 4, 6, dtype="int32") for layout in LAYOUTS]
        return [repr(t) for t in texts] + [str(T.zeros(2, 2, layout=T.sparse_coo, device="meta"))]
    agree(program)


def test_invariants_switch() -> None:
    def program(T: Any) -> Any:
        switch = T.sparse.check_sparse_tensor_invariants
        seen = [switch.is_enabled()]
        with switch():
            seen.append(switch.is_enabled())
            with switch(False):
                seen.append(switch.is_enabled())
        with switch(), pytest.raises(RuntimeError, match="size is inconsistent"):
            T.sparse_coo_tensor([[9]], [1.0], (2,))
        return [*seen, switch.is_enabled()]
    agree(program)


# ---- products ------------------------------------------------------------------------------------------------------
PRODUCTS = {
    "mm": lambda T, s, d, r: s.mm(d),
    "matmul": lambda T, s, d, r: s @ d,
    "sparse.mm": lambda T, s, d, r: T.sparse.mm(s, d),
    "mv": lambda T, s, d, r: s.mv(d[:, 0]),
    "mv wrong": lambda T, s, d, r: s.mv(d),
    "mv long": lambda T, s, d, r: s.mv(d[1:, 0]),
    "addmm": lambda T, s, d, r: T.addmm(r, s, d, beta=2, alpha=3),
    "addmm broadcast": lambda T, s, d, r: T.sparse.addmm(r[:1], s, d),
    "dense mm": lambda T, s, d, r: d.t().mm(s.t()),
    "sparse sparse": lambda T, s, d, r: T.sparse.mm(s, s.t()),
    "dtypes": lambda T, s, d, r: T.sparse.mm(s, s.t().double()),
    "shapes": lambda T, s, d, r: T.sparse.mm(s, s),
    "hspmm": lambda T, s, d, r: T.hspmm(s, d).to_dense(),
    "smm": lambda T, s, d, r: T.smm(s, d).to_dense(),
    "sspaddmm": lambda T, s, d, r: T.sspaddmm(r.to_sparse(), s, d, beta=2, alpha=-1).to_dense(),
    "sspaddmm dense": lambda T, s, d, r: T.sspaddmm(r, d, d),
    "bmm": lambda T, s, d, r: T.stack([s, s * 2]).bmm(T.stack([d, d])),
    "bmm sparse": lambda T, s, d, r: T.stack([s, s]).bmm(T.stack([s, s])),
    "aliases": lambda T, s, d, r: (T.spmm(s, d), T.dsmm(s, d), T.hsmm(s, d).to_dense()),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_products(name: str, dtype: str) -> None:
    for coalesced in (True, False):
        def program(T: Any) -> Any:
            make = Samples(T)
            s = make.coo((4, 5), 2, 9, coalesced=coalesced, dtype=dtype)
            return PRODUCTS[name](T, s, make.dense(5, 3, dtype=dtype), make.dense(4, 3, dtype=dtype))
        agree(program)


@pytest.mark.parametrize("name", ["mm", "matmul", "sparse.mm", "mv", "addmm", "dense mm"])
@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc"])
def test_compressed_products(name: str, layout: str) -> None:
    def program(T: Any) -> Any:
        make = Samples(T)
        return PRODUCTS[name](T, make.compressed(layout), make.dense(6, 3), make.dense(4, 3))
    agree(program)


def test_sampled_addmm() -> None:
    agree(lambda T: T.sparse.sampled_addmm(Samples(T).compressed("sparse_csr"), T.ones(4, 2), T.ones(2, 6), beta=2, alpha=3))


# ---- gradients -----------------------------------------------------------------------------------------------------
GRADIENTS = {
    "to_dense": lambda T, x, d: x.to_dense() * d,
    "to_dense whole": lambda T, x, d: x.to_dense(masked_grad=False) * d,
    "mul": lambda T, x, d: (x * 3).to_dense() * d,
    "mul dense": lambda T, x, d: (x * d).to_dense(),
    "mul sparse": lambda T, x, d: (x.coalesce() * x.coalesce()).to_dense() * d,
    "add": lambda T, x, d: (x + x).to_dense() * d,
    "dense add": lambda T, x, d: (d + x) * d,
    "neg": lambda T, x, d: (-x).to_dense() * d,
    "sub": lambda T, x, d: (x - x * 0.5).to_dense() * d,
    "div": lambda T, x, d: (x / 4).to_dense() * d,
    "pow": lambda T, x, d: (x ** 2).to_dense() * d,
    "coalesce": lambda T, x, d: x.coalesce().values() * 2,
    "sum": lambda T, x, d: x.sum(),
    "sparse.sum": lambda T, x, d: T.sparse.sum(x) * 2,
    "sparse.sum 0": lambda T, x, d: T.sparse.sum(x, 0).to_dense() * d[0],
    "softmax": lambda T, x, d: T.sparse.softmax(x, 1).to_dense() * d,
    "log_softmax": lambda T, x, d: T.sparse.log_softmax(x, 0).to_dense() * d,
    "sparse.mm": lambda T, x, d: T.sparse.mm(x, d.t()),
    "mm": lambda T, x, d: T.mm(x, d.t()),
    "sparse sparse": lambda T, x, d: T.sparse.mm(x, x.t().detach().coalesce()).to_dense(),
    "addmm": lambda T, x, d: T.sparse.addmm(d[:, :4], x, d.t(), alpha=2),
    "mask": lambda T, x, d: x.sparse_mask(x.detach().coalesce()).to_dense() * d,
    "transpose": lambda T, x, d: x.t().to_dense() * d.t(),
    "clone": lambda T, x, d: x.clone().to_dense() * d,
    "double": lambda T, x, d: x.double().to_dense() * d,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    for coalesced in (True, False):
        def program(T: Any) -> Any:
            make = Samples(T)
            x = make.coo(coalesced=coalesced).requires_grad_(True)
            d = make.dense(4, 5).requires_grad_(True)
            GRADIENTS[name](T, x, d).sum().backward()
            return x.grad.to_dense(), None if d.grad is None else d.grad.to_dense()
        agree(program)


def test_gradients_of_compressed_tensors() -> None:
    programs = {"to_dense": lambda T, x, d: x.to_dense() * d, "sum": lambda T, x, d: x.sum() * 2,
                "mul": lambda T, x, d: (x * 3).to_dense() * d, "values": lambda T, x, d: x.values() * 2}
    for layout in ("sparse_csr",):  # torch cannot keep the .grad of the others
        for program in programs.values():
            def run(T: Any) -> Any:
                x = Samples(T).compressed(layout).requires_grad_(True)
                program(T, x, Samples(T).dense(4, 6)).sum().backward()
                return x.grad
            agree(run)
    for masked in (True, False):
        def run(T: Any) -> Any:
            x, d = Samples(T).compressed("sparse_csr").requires_grad_(True), Samples(T).dense(6, 3).requires_grad_(True)
            (T.sparse.mm if masked else T.mm)(x, d).sum().backward()
            return x.grad.to_dense(), d.grad
        agree(run)


def test_gradients_of_constructors() -> None:
    def run(T: Any) -> Any:
        values = T.tensor([1.0, 2.0, 3.0], requires_grad=True)
        made = T.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], values, (2, 3))
        (made.to_dense() * T.arange(6.0).reshape(2, 3)).sum().backward()
        return made.requires_grad, made.is_leaf, values.grad
    agree(run)


def test_accumulated_gradients_are_sparse_until_a_dense_one_comes() -> None:
    def run(T: Any) -> Any:
        x = Samples(T).coo(coalesced=True).requires_grad_(True)
        seen = []
        for _ in range(2):
            x.to_dense().sum().backward()
            seen.append(x.grad.clone().coalesce())
        x.sum().backward()
        return [*seen, x.grad]
    agree(run)


@pytest.mark.parametrize("masked", [True, False])
def test_gradcheck(masked: bool) -> None:
    T = mindtorch_v2
    check = T.autograd.gradcheck
    x = Samples(T).coo((3, 4), 2, 5, dtype="float64").requires_grad_(True)
    d = T.randn(4, 2, dtype=T.float64, requires_grad=True)
    assert check(lambda s: s.to_dense(masked_grad=masked), (x,), masked=masked)
    assert check(lambda s: (s * s).to_dense(masked_grad=masked), (x,), masked=masked)
    assert check(T.sparse.mm if masked else T.mm, (x, d), masked=masked)
    at_values = [T.tanh, lambda s: T.cat([s, s * 2]), lambda s: s * d[:, 0], lambda s: s.unsqueeze(1), lambda s: s.select(0, 1),
                 lambda s: s.index_select(1, T.tensor([2, 0, 2]))]               # gradients are at the values alone
    for more in (lambda s: s.t(), lambda s: s + s * 2, *(at_values if masked else ())):
        assert check(lambda s: more(s).to_dense(masked_grad=masked), (x,), masked=masked)
    assert check(T.Tensor.sum, (x,), masked=masked, raise_exception=False) is not masked         # its gradient is dense
    assert not check(lambda s: s.to_dense(masked_grad=not masked), (x,), masked=masked, raise_exception=False)
    assert not check(lambda s: s.to_dense().detach() + s.to_dense() * 2, (x,), masked=masked, raise_exception=False)
    with pytest.raises(ValueError, match="Sparse output is not supported"):
        check(lambda s: s * 2, (x,), masked=masked)
    for layout in LAYOUTS:
        y = Samples(T).compressed(layout, dtype="float64").requires_grad_(True)
        assert check(lambda s: s.to_dense(masked_grad=masked), (y,), masked=masked)
    wrapped = T.sparse.as_sparse_gradcheck(check)
    assert all(wrapped(f, (x,), masked=masked) for f in (T.Tensor.to_dense, T.Tensor.sum, lambda s: s * 2))


@pytest.mark.parametrize("line", [
    "x.resize_as_sparse_(x).values()", "torch.ones_like(x).values()", "torch.mm(x, d.t())",
    "F.linear(d, x)", "F.linear(d, x, torch.ones(4))", "x.mv(torch.ones(4))"])
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr"])
def test_compressed_layouts_in_more_ops(layout: str, line: str) -> None:
    if layout == "csc" and "F.linear" in line:
        line = line.replace("(d, x", "(d[0], x")
    block = "(2, 2)" if layout == "bsr" else ""
    check_lines(f"F, d = torch.nn.functional, torch.arange(16.0).reshape(4, 4).tril()\nx = d.to_sparse_{layout}({block})\n{line}")


@pytest.mark.parametrize("line", ["torch.mm(h, torch.ones(2, 2))", "h.mv(torch.ones(2))", "F.linear(torch.ones(4, 4), x)",
                                  "torch.sparse.mm(x.to_sparse_csr(), x.to_dense(), reduce='prod')",
                                  *(f"torch.sparse.mm(x.to_sparse_csr(), x.to_dense(), reduce='{name}')" for name in
                                    ("sum", "mean", "amax", "amin"))])
def test_products_of_coordinates(line: str) -> None:
    check_lines("F, x = torch.nn.functional, torch.arange(16.0).reshape(4, 4).tril().to_sparse()\n"
                f"h = torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 2), (3, 2))\n{line}")


def test_rows_are_added_in_place() -> None:
    check_lines("x = torch.arange(16.0).reshape(4, 4).tril().to_sparse_csr()\nx.clone().add_(x).to_dense()")


def test_gradients_of_reduced_products() -> None:
    check_lines("x = torch.arange(16.0).reshape(4, 4).tril().to_sparse_csr().requires_grad_()\n"
                "d = torch.arange(8.0).reshape(4, 2).requires_grad_()\n"
                "torch.sparse.mm(x, d, reduce='mean').sum().backward()\n[(g * 60).round() for g in (d.grad, x.grad.values())]")
