"""Making sparse tensors: torch.sparse_coo_tensor and its compressed siblings, with torch's checks and messages."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._ops.table import ops, publish_plain
from mindtorch_v2._sparse.pattern import BSC, BSR, COO, CSC, CSR, INT64, LAYOUTS, WORDS, Compressed, Coo
from mindtorch_v2._sparse.tensor import body, from_values, is_sparse, make, refusal, word_of

INT32 = _C._dtype_named("int32")


class Invariants:
    """Whether new sparse tensors are checked where the call does not say."""
    enabled = False


def _tensor_of(data: Any, dtype: Any, device: Any) -> Any:
    """data as a tensor; a tensor stays, memory and history included, where dtype and device allow it."""
    made = data if isinstance(data, TensorBase) else _C._from_data(data, dtype, False)
    if not isinstance(data, TensorBase) and device is None:
        device = _C.get_default_device()
    return made.to(dtype=dtype, device=device)


def _requires(made: Any, requires_grad: bool) -> Any:
    if requires_grad and not (made.is_floating_point() or made.is_complex()):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    return made._requires_grad_(True) if requires_grad and not made.requires_grad else made


def _alias(t: Any) -> Any:
    """t as the part of a sparse tensor, which a later resize or set_ of t does not reach."""
    return ops.alias(t) if not t.requires_grad else t


# ---- COO -------------------------------------------------------------------------------------------------------
def _invalid(values: tuple[Any, ...], unknown: dict[str, Any] | None = None) -> TypeError:
    got = ", ".join("Tensor" if isinstance(v, TensorBase) else type(v).__name__ for v in values if v is not None)
    got += "".join(f", {name}=" + ("torch." if isinstance(v, type(COO)) else "") + type(v).__name__.rpartition(".")[2]
                   for name, v in (unknown or {}).items())
    place = "*, torch.dtype dtype = None, torch.device device = None, "
    checked = "bool requires_grad = False, bool check_invariants = None"
    options = f"{place}bool pin_memory = False, {checked}, bool is_coalesced = None"
    return TypeError(f"sparse_coo_tensor() received an invalid combination of arguments - got ({got}), but expected one "
                     f"of:\n * (object indices, object values, {options})\n * (object indices, object values, tuple of "
                     f"ints size, {options})\n * (tuple of ints size, {place}{checked})\n")


def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None, **unknown: Any) -> Any:
    """A sparse tensor in coordinate format: values at indices, or nothing but a size."""
    if unknown:
        raise _invalid((indices, values, size), unknown)
    if isinstance(indices, TensorBase) and values is None and size is None:
        raise TypeError("sparse_coo_tensor(): argument 'size' (position 1) must be tuple of ints, not Tensor")
    if size is not None and not isinstance(size, (tuple, list)):
        raise _invalid((indices, values, size))
    if values is None and (size is None) != (indices is None) and not isinstance(indices, TensorBase):
        return _empty_coo(indices if size is None else size, dtype, device, requires_grad)
    if indices is None or values is None and not isinstance(indices, TensorBase):
        raise _invalid((indices, values, size))
    for word, part in (("indices", indices), ("values", values)):
        if is_sparse(part):
            raise RuntimeError(f"expected {word} to be a dense tensor, but got {word} of layout {WORDS[part.layout]}")
    values = _tensor_of(values, dtype, device)
    indices = _tensor_of(indices, INT64, values.device if device is None else device)
    if not isinstance(device, str | _C.device) and indices.device != values.device:
        raise RuntimeError("Expected all tensors to be on the same device")
    if values.dim() == 0 and values.numel() == 1:
        values = values.expand(1)
    if pin_memory:
        indices, values = indices.pin_memory(), values.pin_memory()
    checked = Invariants.enabled if check_invariants is None else check_invariants
    size = _inferred_size(indices, values) if size is None else tuple(int(n) for n in size)
    _check_coo(indices, values, size, checked)
    if is_coalesced and checked and not _is_sorted(indices, size):
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
    coalesced = indices.shape[1] < 2 if is_coalesced is None else is_coalesced
    return _requires(from_values(Coo(_alias(indices), size, coalesced), _alias(values)), requires_grad)


def _empty_coo(size: Any, dtype: Any, device: Any, requires_grad: bool, sparse_dim: int | None = None) -> Any:
    size = (size,) if isinstance(size, int) else tuple(int(n) for n in size)
    if any(n < 0 for n in size):
        raise RuntimeError("numel: integer multiplication overflow")
    sparse_dim = len(size) if sparse_dim is None else sparse_dim
    indices = ops.empty((sparse_dim, 0), dtype=INT64, device=device)
    values = ops.empty((0, *size[sparse_dim:]), dtype=dtype, device=device)
    return _requires(make(Coo(indices, size, True), values), requires_grad)


def _inferred_size(indices: Any, values: Any) -> tuple[int, ...]:
    """The smallest size that has room for the indices."""
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if indices.shape[1] == 0:
        return (0,) * indices.shape[0] + tuple(values.shape[1:])
    low, high = indices.amin(1).tolist() if indices.shape[0] else [], indices.amax(1).tolist() if indices.shape[0] else []
    for d, found in enumerate(low):
        if found < 0:
            raise RuntimeError(f"found negative index {found} for dim {d}")
    return tuple(n + 1 for n in high) + tuple(values.shape[1:])


def _check_coo(indices: Any, values: Any, size: tuple[int, ...], contents: bool) -> None:
    """torch's checks of the parts; contents: also of the indices themselves."""
    sparse_dim = indices.shape[0] if indices.dim() else 0
    if len(size) != sparse_dim + values.dim() - 1:
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, "
                           f"sparse_dim = {sparse_dim}, dense_dim = {values.dim() - 1}")
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    nnz = indices.shape[1]
    if values.shape[0] != nnz:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {nnz}, nnz from values: "
                           f"{values.shape[0]}")
    if tuple(values.shape[1:]) != size[sparse_dim:]:
        raise RuntimeError(f"values has incorrect size, expected {[nnz, *size[sparse_dim:]]}, got {list(values.shape)}")
    if contents and nnz and sparse_dim and not indices.is_meta:
        low, high = indices.amin(1).tolist(), indices.amax(1).tolist()
        for d in range(sparse_dim):
            if low[d] < 0:
                raise RuntimeError(f"found negative index {low[d]} for dim {d}")
            if high[d] >= size[d]:
                raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index "
                                   f"{high[d]}")


def _is_sorted(indices: Any, size: tuple[int, ...]) -> bool:
    if indices.is_meta:
        return True
    keys = Coo(indices, size, False).keys()
    return keys.shape[0] < 2 or bool((keys[1:] > keys[:-1]).all())


def _validate_sparse_coo_tensor_args(indices: Any, values: Any, size: Any, is_coalesced: bool | None = None,
                                     check_pinning: bool | None = None) -> None:
    """Raises where these are not the parts of a COO tensor."""
    size = tuple(size)
    _check_coo(indices, values, size, True)
    if is_coalesced and not _is_sorted(indices, size):
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


def _sparse_coo_tensor_unsafe(indices: Any, values: Any, size: Any, *, is_coalesced: bool | None = None,
                              **options: Any) -> Any:
    """sparse_coo_tensor() without checks."""
    if Invariants.enabled:
        _check_coo(indices, values, tuple(size), True)
    return from_values(Coo(indices, tuple(size), indices.shape[1] < 2 if is_coalesced is None else is_coalesced), values)


# ---- compressed --------------------------------------------------------------------------------------------------
_NAMES = {CSR: ("crow_indices", "col_indices", "nrows", "ncols"), BSR: ("crow_indices", "col_indices", "nrows", "ncols"),
          CSC: ("ccol_indices", "row_indices", "ncols", "nrows"), BSC: ("ccol_indices", "row_indices", "ncols", "nrows")}


def _compressed(name: str, layout: Any, compressed: Any, plain: Any, values: Any, size: Any, dtype: Any, device: Any,
                pin_memory: bool, requires_grad: bool, check_invariants: bool | None, asked: Any = None) -> Any:
    if layout is not None and asked is not None and asked is not layout:
        raise RuntimeError(f"{name}: layout must be {WORDS[layout]} but got {WORDS[asked]}")
    values = _tensor_of(values, dtype, device)
    place = values.device if device is None else device
    compressed, plain = (t if isinstance(t, TensorBase) else _C._from_data(t, INT64, False) for t in (compressed, plain))
    compressed, plain = compressed.to(place), plain.to(place)
    if pin_memory:
        compressed, plain, values = compressed.pin_memory(), plain.pin_memory(), values.pin_memory()
    if layout is None:
        raise RuntimeError("sparse_compressed_tensor expected sparse compressed tensor layout but got none")
    checked = Invariants.enabled if check_invariants is None else check_invariants
    size = tuple(int(n) for n in size) if size is not None else _compressed_size(layout, compressed, plain, values)
    if checked:
        _check_compressed(layout, compressed, plain, values, size)
    at = compressed.dim()
    block = tuple(values.shape[at:at + 2]) if layout in (BSR, BSC) else ()
    pattern = Compressed(layout, _alias(compressed), _alias(plain), size, block)
    return _requires(from_values(pattern, _alias(values), "SparseCompressedTensorBackward0"), requires_grad)


def _compressed_size(layout: Any, compressed: Any, plain: Any, values: Any) -> tuple[int, ...]:
    """The smallest size that has room for the indices."""
    at = compressed.dim()
    block = tuple(values.shape[at:at + 2]) if layout in (BSR, BSC) else (1, 1)
    dense = tuple(values.shape[at + (2 if layout in (BSR, BSC) else 0):])
    lines = compressed.shape[-1] - 1
    others = int(plain.max().item()) + 1 if plain.numel() else 0
    rows, columns = (lines, others) if layout in (CSR, BSR) else (others, lines)
    return (*compressed.shape[:-1], rows * block[0], columns * block[1], *dense)


def _expect(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(text)


def _check_compressed(layout: Any, compressed: Any, plain: Any, values: Any, size: tuple[int, ...]) -> None:
    """torch's invariants of compressed tensors, in its order and words."""
    first, second, lines_word, others_word = _NAMES[layout]
    blocked, b = layout in (BSR, BSC), compressed.dim() - 1
    _expect(compressed.dim() >= 1, f"{first} must have dimensionality >= 1 but got {compressed.dim()}")
    _expect(plain.dim() >= 1, f"{second} must have dimensionality >= 1 but got {plain.dim()}")
    _expect(compressed.dim() == plain.dim(),
            f"{first} and {second} dimensionalities must be equal but got {compressed.dim()} and {plain.dim()}, "
            "respectively")
    dense_dim = values.dim() - b - (2 if blocked else 0) - 1
    _expect(dense_dim >= 0, f"values must have dimensionality > sum of batch and block dimensionalities "
                            f"(={b} + {2 if blocked else 0}) but got {values.dim()}")
    _expect(len(size) >= 2 and len(size) == b + 2 + dense_dim,
            f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={b} + 2 + {dense_dim}) but "
            f"got {len(size)}")
    block = tuple(values.shape[b + 1:b + 3]) if blocked else (1, 1)
    _expect(min(block) > 0, f"blocksize needs to be positive, got {list(block)}") if blocked else None
    rows, columns = size[b:b + 2]
    _expect(rows % block[0] == 0 and columns % block[1] == 0,
            f"tensor shape[{b if rows % block[0] else b + 1}] (={rows if rows % block[0] else columns}) must be divisible "
            f"with blocksize[{0 if rows % block[0] else 1}] (={block[0 if rows % block[0] else 1]}) as defined by values "
            "shape")
    lines, others = (rows // block[0], columns // block[1]) if layout in (CSR, BSR) else \
        (columns // block[1], rows // block[0])
    word = ("row" if lines_word == "nrows" else "column") + " block" * blocked
    _expect(compressed.shape[-1] == lines + 1,
            f"{first}.shape[-1] must be equal to the number of {word}s + 1 (={lines + 1}), but got "
            f"{compressed.shape[-1]}")
    nnz = plain.shape[-1]
    _expect(values.shape[b] == nnz, f"{second}.shape[-1] must be equal to nnz (={values.shape[b]}) as defined by "
                                    f"values.shape[{b}], but got {nnz}")
    _expect(compressed.dtype == plain.dtype, f"{first} and {second} must have the same dtype, bot got "
                                             f"{word_of(compressed.dtype)} and {word_of(plain.dtype)}, respectively")
    _expect(compressed.dtype in (INT32, INT64),
            f"{first} and {second} must be an int32 or int64 type, but got {word_of(compressed.dtype)}")
    if not compressed.is_meta:
        _check_contents(compressed, plain, lines, others, nnz, layout)


def _check_contents(compressed: Any, plain: Any, lines: int, others: int, nnz: int, layout: Any) -> None:
    first, second, _, others_word = _NAMES[layout]
    flat = compressed.reshape((math.prod(compressed.shape[:-1]), lines + 1)).to(INT64)
    if flat.shape[0] == 0:
        return
    _expect(bool((flat[:, 0] == 0).all()), f"`{first}[..., 0] == 0` is not satisfied.")
    _expect(bool((flat[:, -1] == nnz).all()), f"`{first}[..., -1] == nnz` is not satisfied.")
    steps = flat[:, 1:] - flat[:, :-1]
    _expect(bool(((steps >= 0) & (steps <= others)).all()),
            f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {others_word}` is not satisfied.")
    indices = plain.reshape((flat.shape[0], nnz)).to(INT64)
    if nnz == 0:
        return
    _expect(bool(((indices >= 0) & (indices < others)).all()), f"`0 <= {second} < {others_word}` is not satisfied.")
    line = ops.arange(lines, dtype=INT64, device=plain.device).expand(flat.shape[0], lines)
    keys = (line.reshape(-1).repeat_interleave(steps.reshape(-1)).reshape((flat.shape[0], nnz))) * others + indices
    _expect(bool((keys[:, 1:] > keys[:, :-1]).all()),
            f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {_NAMES[layout][2]} are sorted and "
            "distinct along the last dimension values` is not satisfied.")


def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *,
                             dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
                             requires_grad: bool = False, check_invariants: bool | None = None) -> Any:
    """A sparse tensor in one of the compressed layouts."""
    if layout is not None and layout not in _NAMES:
        raise RuntimeError("sparse_compressed_tensor expected sparse compressed tensor layout but got " + WORDS[layout])
    return _compressed("sparse_compressed_tensor", layout, compressed_indices, plain_indices, values, size, dtype, device,
                       pin_memory, requires_grad, check_invariants)


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                      layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                      check_invariants: bool | None = None) -> Any:
    """A sparse tensor by compressed rows."""
    return _compressed("sparse_csr_tensor", CSR, crow_indices, col_indices, values, size, dtype, device, pin_memory,
                       requires_grad, check_invariants, layout)


def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                      layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                      check_invariants: bool | None = None) -> Any:
    """A sparse tensor by compressed columns."""
    return _compressed("sparse_csc_tensor", CSC, ccol_indices, row_indices, values, size, dtype, device, pin_memory,
                       requires_grad, check_invariants, layout)


def sparse_bsr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                      layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                      check_invariants: bool | None = None) -> Any:
    """A sparse tensor by compressed rows of blocks."""
    return _compressed("sparse_bsr_tensor", BSR, crow_indices, col_indices, values, size, dtype, device, pin_memory,
                       requires_grad, check_invariants, layout)


def sparse_bsc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                      layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
                      check_invariants: bool | None = None) -> Any:
    """A sparse tensor by compressed columns of blocks."""
    return _compressed("sparse_bsc_tensor", BSC, ccol_indices, row_indices, values, size, dtype, device, pin_memory,
                       requires_grad, check_invariants, layout)


def _validate_sparse_compressed_tensor_args(compressed_indices: Any, plain_indices: Any, values: Any, size: Any,
                                            layout: Any, check_pinning: bool | None = None) -> None:
    """Raises where these are not the parts of a tensor of that layout."""
    _check_compressed(layout, compressed_indices, plain_indices, values, tuple(size))


publish_plain(sparse_coo_tensor, sparse_compressed_tensor, sparse_csr_tensor, sparse_csc_tensor, sparse_bsr_tensor,
              sparse_bsc_tensor, _validate_sparse_coo_tensor_args, _validate_sparse_compressed_tensor_args,
              _sparse_coo_tensor_unsafe)


# ---- factories with layout= ----------------------------------------------------------------------------------------
def empty_compressed(layout: Any, size: tuple[int, ...], dtype: Any, device: Any, like: Any = None) -> Any:
    """A compressed tensor without values; like: a pattern that says index dtype, blocks, batches and dense dims."""
    b = len(size) - 2 if like is None else like.batch_dim if type(like) is Compressed else like.sparse_dim - 2
    block = like.blocksize if type(like) is Compressed else ()
    high, wide = block or (1, 1)
    rows, columns = size[b] // max(high, 1), size[b + 1] // max(wide, 1)
    lines = rows if layout in (CSR, BSR) else columns
    index = like.compressed.dtype if type(like) is Compressed else INT64
    compressed = ops.zeros((*size[:b], lines + 1), dtype=index, device=device)
    plain = ops.empty((*size[:b], 0), dtype=index, device=device)
    values = ops.empty((*size[:b], 0, *block, *size[b + 2:]), dtype=dtype, device=device)
    return make(Compressed(layout, compressed, plain, size, block), values)


def _factory(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
             requires_grad: Any = False, memory_format: Any = None) -> Any:
    """empty and zeros of a sparse layout, or with a sparse out=."""
    size = (size,) if isinstance(size, int) else tuple(size)
    if layout is None or layout is COO:
        return _empty_coo(size, dtype or _C.get_default_dtype(), device, bool(requires_grad))
    if len(size) < 2:
        raise RuntimeError("torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size "
                           f"{list(size)}")
    if layout in (BSR, BSC):
        raise RuntimeError("empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got "
                           f"{WORDS[layout]}")
    return _requires(empty_compressed(layout, size, dtype or _C.get_default_dtype(), device), bool(requires_grad))


body(ops.empty)(_factory)


@body(ops.zeros)
def _zeros(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
           requires_grad: Any = False, memory_format: Any = None) -> Any:
    """As empty, but for two messages."""
    size = (size,) if isinstance(size, int) else tuple(size)
    if layout in (BSR, BSC):
        raise RuntimeError("zeros_sparse_compressed expected sparse compressed (non-block) tensor layout but got "
                           f"{WORDS[layout]}")
    if layout in (CSR, CSC) and len(size) < 2:
        raise RuntimeError("torch.zeros: Only batched sparse compressed (non-block) tensors are supported, but got size "
                           f"{list(size)}")
    return _factory(size, dtype, layout, device, pin_memory, requires_grad)


@body(ops.ones, "full", of="coo")
def _filled(**arguments: Any) -> Any:
    raise RuntimeError("full(...) is not implemented for sparse layout")


@body("new_ones", "new_full", of="coo")
def _new_filled(self: Any, **arguments: Any) -> Any:
    raise refusal(ops.fill_.name, self, "Scalar")


def _filled_like(name: str, factory: Any) -> None:
    """A row that is refused for sparse results and served for dense ones."""
    @body(name, of="coo")
    def make_like(self: Any, *values: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
                  requires_grad: Any = False, memory_format: Any = None, generator: Any = None, **named: Any) -> Any:
        if layout is not LAYOUTS["strided"]:
            drawn = {"rand_like": "uniform_", "randn_like": "normal_"}.get(name)
            raise refusal(drawn or ops.fill_.name, self, "" if drawn else "Scalar")
        options = {} if generator is None else {"generator": generator}
        made = factory(tuple(self.shape), *values, *named.values(), dtype=dtype or self.dtype, device=device or self.device,
                       **options)
        return _requires(made, bool(requires_grad))


for _factory_op in (ops.ones, ops.full, ops.rand, ops.randn):
    _filled_like(_factory_op.name + "_like", _factory_op)


@body("new_empty", "new_zeros")
def _new(self: Any, size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
         requires_grad: Any = False) -> Any:
    if layout is LAYOUTS["strided"]:
        return _requires(ops.zeros(tuple(size), dtype=dtype or self.dtype, device=device or self.device), bool(requires_grad))
    return _factory(size, dtype or self.dtype, layout or self.layout, device or self.device, None, requires_grad)


def _like(self: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
          requires_grad: Any = False, memory_format: Any = None, *, name: str = "empty_like") -> Any:
    """empty_like and zeros_like: of the requested layout, with the same dims sparse."""
    layout, dtype, device = layout or self.layout, dtype or self.dtype, device or self.device
    size, compressed = tuple(self.shape), is_sparse(self) and self.layout is not COO
    if compressed and layout is not self.layout and (name == "empty_like" or layout is LAYOUTS["strided"]):
        raise RuntimeError(f"empty_like with different sparse layout is not supported (self is {WORDS[self.layout]} but you "
                           f"requested {WORDS[layout]})")
    if layout is LAYOUTS["strided"]:
        make_one = ops.zeros if name == "zeros_like" else ops.empty
        made = make_one(size, dtype=dtype, device=device)
        if memory_format is not None and "preserve" not in str(memory_format):
            made = made.contiguous(memory_format=memory_format)
        return _requires(made, bool(requires_grad))
    if memory_format is not None:
        raise RuntimeError("memory format option is only supported by strided tensors")
    if not is_sparse(self):
        if name == "empty_like":
            raise refusal("empty_strided", None, backend="SparseCPU" if layout is COO else "SparseCsrCPU")
        if layout is COO:
            return _factory(size, dtype, layout, device, None, requires_grad)
    if layout is COO:
        pattern = self._pattern
        sparse_dim = pattern.sparse_dim + (pattern.batch_dim if type(pattern) is Compressed else 0)
        return _empty_coo(size, dtype, device, bool(requires_grad), sparse_dim)
    if compressed and name == "empty_like":
        kept = self._pattern.with_parts(tuple(t.to(device, copy=True) for t in self._pattern.parts()))
        return _requires(make(kept, ops.empty_like(self._dense, dtype=dtype, device=device)), bool(requires_grad))
    like = self._pattern if is_sparse(self) else Coo(ops.empty((2, 0), dtype=INT64, device=device), size, True)
    _check_like(like, layout, name)
    return _requires(empty_compressed(layout, size, dtype, device, like), bool(requires_grad))


def _check_like(like: Any, layout: Any, name: str) -> None:
    """Refuses what a compressed tensor like another, of this pattern, cannot have of it."""
    if layout in (BSR, BSC) and not (type(like) is Compressed and like.blocked):
        if name == "empty_like":
            raise RuntimeError("empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got "
                               f"{WORDS[layout]}")
        raise RuntimeError("sparse_compressed_tensor_with_dims: blocksize needs to be a tuple of size 2, but got 0")
    if type(like) is Compressed and like.blocked and layout not in (BSR, BSC):
        raise RuntimeError("sparse_compressed_tensor_with_dims: blocksize cannot be specified for non-block layout "
                           f"{WORDS[layout]}")
    if len(like.size) < 2 or type(like) is Coo and like.sparse_dim < 2:
        raise RuntimeError(f"{name}: a {WORDS[layout]} tensor needs two sparse dims, got a size of {list(like.size)}")


@body(ops.empty_like)
def _empty_like(**arguments: Any) -> Any:
    return _like(**arguments)


@body(ops.ones_like, of="compressed")
def _ones_like(self: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
               requires_grad: Any = False, memory_format: Any = None) -> Any:
    """Ones at the places of self."""
    if layout is not None and layout is not self.layout:
        raise refusal("ones_like", self)
    made = make(self._pattern, ops.ones_like(self._dense, dtype=dtype, device=device))
    return _requires(made, bool(requires_grad))


@body("full_like", of="compressed")
def _full_like(self: Any, fill_value: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
               requires_grad: Any = False, memory_format: Any = None) -> Any:
    """A number at the places of self."""
    if layout is not None and layout is not self.layout:
        raise refusal("full_like", self)
    values = ops.full_like(self._dense, fill_value, dtype=dtype or self.dtype, device=device)
    return _requires(make(self._pattern, values), bool(requires_grad))


@body(ops.zeros_like)
def _zeros_like(**arguments: Any) -> Any:
    return _like(**arguments, name="zeros_like")
