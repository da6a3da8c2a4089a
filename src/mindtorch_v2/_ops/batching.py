"""How ops run over a batch for vmap: the rules that rows name with `batch=`, and the defaults by kind of op.

A rule gets a Call whose batched tensors have the batch as their dim 0, in front of the dims that the caller sees, and
gives results in the same form.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

Rule = Callable[["Call"], Any]
_CONTIGUOUS = _C._named_constant("contiguous_format")


class Call:
    """One call of an op over a batch: its arguments in schema order, and which of them are batched."""

    __slots__ = ("op", "row", "size", "values", "batched", "names", "shown")

    def __init__(self, op: Any, row: Any, size: int, shown: tuple, values: list[Any], batched: list[Any]) -> None:
        self.op, self.row, self.size, self.names = op, row, size, row.names
        self.values, self.batched = values, batched
        self.shown = shown               # the arguments as the caller sees them, with the shapes of one sample

    def __getitem__(self, name: str) -> Any:
        return self.values[self.names.index(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        self.values[self.names.index(name)] = value

    def is_batched(self, name: str) -> bool:
        return self.batched[self.names.index(name)] is True

    def rank(self, name: str) -> int:
        """The rank that the caller sees."""
        return self.shown[self.names.index(name)].dim()

    def full(self, name: str) -> Any:
        """A tensor argument with the batch in front, also where it is shared by the samples."""
        at = self.names.index(name)
        value = self.values[at]
        if value is None or self.batched[at] is True:
            return value
        return value.expand(self.size, *value.shape)

    def run(self) -> Any:
        return _C._call_bound(self.op, self.row, tuple(self.values))

    def fill(self) -> None:
        """Every tensor argument gets the batch in front."""
        for name, value in zip(self.names, self.values):
            if isinstance(value, TensorBase):
                self[name] = self.full(name)
            elif isinstance(value, (tuple, list)) and value and isinstance(value[0], TensorBase):
                flags = self.batched[self.names.index(name)]
                self[name] = tuple(v if b else v.expand(self.size, *v.shape) for v, b in zip(value, flags))


def copied_beside(x: Any, *sources: Any) -> Any:
    """A copy of x that the sources may be written to: inside vmap one for each sample, where a source has one for each; of
    the class of a source that computes with what it holds."""
    for source in sources:
        if type(source) is not Tensor or _C._transforms():
            if not source._readable or not source.numel():       # what has no items can always be read
                x = ops.where(source.new_ones((), dtype=_C._dtype_named("bool")), x, x)
    return x.clone()


def drawn_like(call: Call) -> Any:
    """Of random numbers in the shape of a tensor, whose values do not matter: vmap draws them itself (Vmap._draw)."""
    return NotImplemented


def drawn_by_row(call: Call) -> Any:
    """Of draws from rows of a matrix: the rows of all samples are those of one matrix."""
    x = call["self"]
    call["self"] = x.reshape(-1, x.shape[-1])
    return call.run().reshape(*x.shape[:-1], -1)


# ---- pointwise ------------------------------------------------------------------------------------------------------
def pointwise(call: Call) -> Any:
    """Shapes broadcast from the right, so a batched tensor gets its missing dims behind the batch."""
    ranks = [v.dim() for v in call.shown if isinstance(v, TensorBase)]
    top = max(ranks)
    if min(ranks) < top:
        for i, value in enumerate(call.values):
            if call.batched[i] is True and (missing := top + 1 - value.dim()) > 0:
                call.values[i] = value.view(call.size, *(1,) * missing, *value.shape[1:]) if value.is_contiguous() else \
                    value[(slice(None), *(None,) * missing)]
    if min(ranks) < top or not top:
        _keep_dtype(call)
    return call.run()


def masked(call: Call) -> Any:
    """pointwise(), where self has the shape of the result: the batch too, if the mask has it."""
    call["self"], call.batched[call.names.index("self")] = call.full("self"), True
    return pointwise(call)


def _keep_dtype(call: Call) -> None:
    """A tensor without dims weighs less in promotion; with the batch as a dim it would weigh more."""
    kinds = {v.dtype for v in call.shown if isinstance(v, TensorBase)}
    if len(kinds) < 2:
        return
    operands = [i for i, v in enumerate(call.shown) if isinstance(v, TensorBase)]
    operands = [i for i in operands if call.names[i] not in ("condition", "mask")]
    want = _C._core._result_type(tuple(call.shown[i] for i in operands))
    if want != _C._core._result_type(tuple(call.values[i] for i in operands)):
        for i in operands:
            call.values[i] = call.values[i].to(want)


# ---- along dims -----------------------------------------------------------------------------------------------------
_DIMS = ("dim", "dims", "dim0", "dim1", "dim2", "dimension")


def _first(call: Call) -> str:
    """The tensor whose dims the others are counted in."""
    return next(n for n, v in zip(call.names, call.shown) if isinstance(v, TensorBase))


def _shift(dim: Any, rank: int) -> Any:
    """A dim, or several, of one sample as those of the batch."""
    if isinstance(dim, (tuple, list)):
        return [_shift(d, rank) for d in dim]
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(rank, 1)}, {max(rank, 1) - 1}], "
                         f"but got {dim})")
    return dim % max(rank, 1) + 1


def dims(call: Call) -> Any:
    """Ops along dims that they name: one further to the right. No dim, or none named, means all but the batch."""
    call.fill()
    first = _first(call)
    rank = call.rank(first)
    if rank == 0:
        for name, value in zip(call.names, list(call.values)):
            if isinstance(value, TensorBase) and value.dim() == 1:
                call[name] = value.unsqueeze(1)
    for name in _DIMS:
        if name in call.names:
            at = call[name]
            if at is None or at == () or at == []:
                call[name] = list(range(1, max(rank, 1) + 1))
            else:
                call[name] = _shift(at, rank)
    result = call.run()
    return result if rank else _map(result, lambda t: t.squeeze(1) if t.dim() > 1 else t)


def flat_or_dims(call: Call) -> Any:
    """dims(), but where no dim is named the op looks at all items as one list."""
    named = next((n for n in _DIMS if n in call.names), None)
    if named is not None and call[named] is not None:
        return dims(call)
    first = _first(call)
    rank, value = call.rank(first), call.full(first)
    call[first] = value.reshape(call.size, -1)
    if named is None:
        return _map(_other_overload(call, 1), lambda t: t)
    call[named] = 1
    keep = "keepdim" in call.names and call["keepdim"]
    return _map(call.run(), lambda t: t.view(call.size, *(1,) * rank) if keep else t)


def _other_overload(call: Call, dim: int) -> Any:
    """max(), min(), median(): the values of the form that takes a dim."""
    name = call.op.name.removeprefix("_")
    return getattr(ops, name)(call[_first(call)], dim)[0]


def _map(result: Any, fn: Callable[[Any], Any]) -> Any:
    if isinstance(result, TensorBase):
        return fn(result)
    if isinstance(result, (tuple, list)):
        items = [_map(r, fn) for r in result]
        return type(result)(items) if type(result) in (tuple, list) or hasattr(result, "_fields") or \
            hasattr(result, "n_fields") else tuple(items)
    return result


def flipped(call: Call) -> Any:
    """Without dims nothing is flipped."""
    return dims(call) if call["dims"] else call["self"].clone()


def picked(call: Call) -> Any:
    """gather: the result has the rank of the index, which may have a dim where self has none."""
    made = dims(call)
    rank = call.rank("index")
    return made.unsqueeze(1) if made.dim() == 1 and rank == 1 and call.rank("self") == 0 else made


def rolled(call: Call) -> Any:
    """Without dims it rolls all items as one list."""
    x = call["self"]
    if call["dims"] != () and call["dims"] != []:
        return dims(call)
    return ops.roll(x.reshape(call.size, -1), call["shifts"], 1).reshape(x.shape)


def along_index(call: Call) -> Any:
    """Ops along a dim by an index. With an index for each sample the batch is joined with that dim."""
    rank = call.rank("self")
    if not call.is_batched("index") and rank:
        for other in ("self", "source"):
            if other in call.names:
                call[other] = call.full(other)
        call["dim"] = _shift(call["dim"], rank)
        return call.run()
    self, index = call.full("self"), call.full("index").reshape(call.size, -1)
    dim = _shift(call["dim"], rank)
    parts = {"self": self.unsqueeze(1) if rank == 0 else self}
    if "source" in call.names:
        source = call.full("source")
        parts["source"] = source.unsqueeze(1) if source.dim() == 1 else source
    n = parts["self"].shape[dim]
    first = ops.arange(call.size, device=index.device).unsqueeze(1) * n
    given = {**dict(zip(call.names, call.values)), "dim": 0, "index": (index % n + first if n else index).reshape(-1)}
    for name, part in parts.items():
        moved = part.movedim(dim, 1)
        parts[name] = moved
        given[name] = moved.reshape(-1, *moved.shape[2:])
    changes = call.op.inplace_of is not None
    made = _C._call_bound(call.op.inplace_of if changes else call.op, call.row, tuple(given.values()))
    made = made.reshape(parts["self"].shape).movedim(1, dim).reshape(self.shape)
    return call["self"].copy_(made) if changes else made


def dynamic(call: Call) -> Any:
    """Ops whose results would differ in shape from sample to sample."""
    raise RuntimeError("vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
                       f"aten::{call.op.name}. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
                       "feature.")


def leading(call: Call) -> Any:
    """Ops that treat all dims in front as a batch, or look at no dim at all. Samples have no order of channels."""
    call.fill()
    if "memory_format" in call.names and call["memory_format"] not in (None, _CONTIGUOUS):
        call["memory_format"] = None
    return call.run()


def cloned(call: Call) -> Any:
    asked = call["memory_format"]
    if asked not in (None, _CONTIGUOUS, _C._named_constant("preserve_format")):
        name = "".join(word.capitalize() for word in str(asked).removeprefix("torch.").split("_"))
        raise RuntimeError("NYI: Tensor.clone(memory_format) inside vmap is only supported with memory_format "
                           f"torch.preserve_format or torch.contiguous_format (got {name})")
    return leading(call)


def leading_or_none(call: Call) -> Any:
    """leading(), with results that may be left out: their shape is (0,) for each sample too."""
    return _map(leading(call), lambda t: t.expand(call.size, 0) if t.shape == (0,) else t)


# ---- views ----------------------------------------------------------------------------------------------------------
def resized(call: Call) -> Any:
    size = call.values[1]
    call.values[1] = (call.size, *([size] if isinstance(size, int) else size))
    return call.run()


def expanded(call: Call) -> Any:
    x, size = call.values[0], call["size"]
    size = (size,) if isinstance(size, int) else tuple(size)
    missing = len(size) - call.rank("self")
    if missing > 0:
        x = x[(slice(None), *(None,) * missing)]
    return x.expand(call.size, *size)


def permuted(call: Call) -> Any:
    return call.values[0].permute(0, *_shift(list(call["dims"]), call.rank("self")))


def transposed(call: Call) -> Any:
    x, rank = call.values[0], call.rank("self")
    first, second = _shift(call["dim0"], rank), _shift(call["dim1"], rank)
    return x.transpose(first, second) if rank else x.view_as(x)


def matrix_transposed(call: Call) -> Any:
    x, rank = call.values[0], call.rank("self")
    if rank > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return x.transpose(1, 2) if rank == 2 else x.view_as(x)


def squeezed(call: Call) -> Any:
    x, rank = call.values[0], call.rank("self")
    if len(call.values) == 1:
        at = [d + 1 for d in range(rank) if x.shape[d + 1] == 1]
    else:
        given = call.values[1]
        at = [_shift(d, rank) for d in ([given] if isinstance(given, int) else given)] if rank else []
    return x.squeeze(at) if at else x.view_as(x)


def unsqueezed(call: Call) -> Any:
    return call.values[0].unsqueeze(_shift(call["dim"], call.rank("self") + 1))


def along(call: Call) -> Any:
    """A part along one dim, which a sample must have."""
    rank = call.rank("self")
    if rank == 0:
        raise IndexError(f"{call.op.name}() cannot be applied to a 0-dim tensor.")
    call["dim"] = _shift(call["dim"], rank)
    return call.run()


def windows(call: Call) -> Any:
    rank = call.rank("self")
    call["dimension"] = _shift(call["dimension"], rank)
    if rank:
        return call.run()
    call["self"] = call["self"].unsqueeze(1)
    return call.run().squeeze(1)


def between(call: Call) -> Any:
    """Two dims, each one further to the right."""
    rank = call.rank("self")
    call["dim1"], call["dim2"] = _shift(call["dim1"], rank), _shift(call["dim2"], rank)
    return call.run()


def strided(call: Call) -> Any:
    x, offset = call.values[0], call["storage_offset"]
    _check_reach(call.shown[0], x, call["size"], call["stride"], offset)
    start = x.storage_offset() if offset is None else x.storage_offset() + offset - call.shown[0].storage_offset()
    return x.as_strided((call.size, *call["size"]), (x.stride(0), *call["stride"]), start)


def _check_reach(shown: Any, whole: Any, size: Any, stride: Any, offset: int | None) -> None:
    """Refuses as_strided that reads memory beside one sample: that of another one."""
    def reach(size: Any, stride: Any) -> int:
        return 1 + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else 0
    if len(size) != len(stride):
        raise RuntimeError("Tensor.as_strided(size, stride, ...): size and stride must have the same length! Got size "
                           f"{list(size)} and stride {list(stride)}")
    own = shown.storage_offset()
    first, last = 0, reach(shown.shape, whole.stride()[1:])
    start = 0 if offset is None else offset - own
    end = start + reach(size, stride)
    if whole.shape[0] and 0 not in size and (start < first or end > last):
        raise RuntimeError(f"result = tensor.as_strided({list(size)}, {list(stride)}, {start + own}) can access memory outside of "
                           f"`tensor`. `result` can access some memory in range [{start + own}, {end + own}], but `tensor` can "
                           f"only access some memory in range [{first + own}, {last + own}]. This is not supported inside of "
                           "vmap, please try to rewrite the `as_strided` call as a sequence of PyTorch view operations")


def without_rule(message: str) -> Rule:
    """Of an op that answers for a tensor as a whole: there is no answer for a batch of them."""
    def rule(call: Call) -> Any:
        raise RuntimeError(message)
    return rule


def as_it_is(call: Call) -> Any:
    """Ops of one batched tensor that look at its last dims only, or at none."""
    return call.run()


# ---- matrices -------------------------------------------------------------------------------------------------------
def matrix_product(call: Call) -> Any:
    """Vectors become matrices, so that the batch is a batch of products; what is shared stays one matrix."""
    (a, b), (m, n) = call.values[:2], (call.shown[0].dim(), call.shown[1].dim())
    if m == 0 or n == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {m}D and {n}D")
    first, second = call.batched[0] is True, call.batched[1] is True
    if m == 1:
        a = a.unsqueeze(-2)
    if n == 1:
        b = b.unsqueeze(-1)
    top = max(m, n, 2)
    a = _lifted(a, top, first)
    b = _lifted(b, top, second)
    result = ops.matmul(a, b)
    if n == 1:
        result = result.squeeze(-1)
    return result.squeeze(-2 if n != 1 else -1) if m == 1 else result


def _lifted(x: Any, rank: int, batched: bool) -> Any:
    """A batched matrix with dims of size 1 between the batch and the rest, up to a rank."""
    missing = rank + 1 - x.dim()
    return x[(slice(None), *(None,) * missing)] if batched and missing > 0 else x


def product(*ranks: int) -> Rule:
    """mm, mv, dot and their like: a matmul of the first two tensors, which have these ranks."""
    def rule(call: Call) -> Any:
        if tuple(x.dim() for x in call.shown[:2]) != ranks:
            return _C._call_bound(call.op, call.row, tuple(_one(v, f) for v, f in zip(call.values, call.batched)))
        return matrix_product(Call(ops.matmul, call.row, call.size, call.shown[:2], call.values[:2], call.batched[:2]))
    return rule


def _one(value: Any, flag: Any) -> Any:
    """The first sample: an op says of it what is wrong with all."""
    return value.select(0, 0) if flag is True else value


def _added(multiply: Callable[[Any, Any], Any]) -> Rule:
    """addmm and its like as beta * self + alpha * product."""
    def rule(call: Call) -> Any:
        self, a, b = call.shown[:3]
        beta, alpha = call["beta"], call["alpha"]

        def body() -> Any:
            made = multiply(a, b)
            made = made if alpha == 1 else made * alpha
            return made if beta == 0 else made + (self if beta == 1 else self * beta)
        return Recall(body)
    return rule


added_product: Any = _added(lambda a, b: ops.matmul(a, b))
added_outer: Any = _added(lambda a, b: ops.outer(a, b))


def affine(call: Call) -> Any:
    weight, bias = call.values[1], call.values[2]
    if not call.is_batched("weight") and not call.is_batched("bias"):
        return call.run()
    if not call.is_batched("weight"):
        made = ops.linear(call.full("input"), weight, None)
    else:
        x, rank = call.values[0], call.rank("input")
        if not call.is_batched("input"):
            made = matrix_product(Call(ops.matmul, call.row, call.size, (call.shown[0], call.shown[1].t()),
                               [x, weight.transpose(1, 2)], [False, True]))
        else:
            rows = x.reshape(call.size, math.prod(x.shape[1:-1]), x.shape[-1]) if rank != 2 else x
            made = ops.bmm(rows, weight.transpose(1, 2)).reshape(*x.shape[:-1], weight.shape[1])
    if bias is None:
        return made
    if call.is_batched("bias"):
        bias = bias.view(call.size, *(1,) * (made.dim() - 2), bias.shape[-1]) if bias.is_contiguous() else \
            bias.reshape(call.size, *(1,) * (made.dim() - 2), bias.shape[-1])
    return made + bias


class Recall:
    """What a rule returns that says the op in terms of other ops on the caller's own tensors."""

    def __init__(self, body: Callable[[], Any]) -> None:
        self.body = body


class Rewrite:
    """A rule that says the op in terms of other ops, its gradient included."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self.body = body


def reshaped(self: Any, shape: Any) -> Any:
    """reshape: a view where the memory allows it."""
    if self.is_contiguous() or self._as_view(shape):
        return self.view(shape)
    return self.clone(memory_format=_CONTIGUOUS).view(shape)


def taken(self: Any, index: Any) -> Any:
    """take: by numbers that may count from the end."""
    at = index.reshape(-1)
    return self.reshape(-1).gather(0, ops.where(at < 0, at + self.numel(), at)).view(index.shape)


def made_contiguous(self: Any, memory_format: Any) -> Any:
    self.is_contiguous(memory_format=memory_format)          # refuses orders of channels
    return self if self.is_contiguous() else self.clone(memory_format=_CONTIGUOUS)


reshape: Rewrite = Rewrite(reshaped)
contiguous: Rewrite = Rewrite(made_contiguous)
AS_MEMORY_ALLOWS = (reshape, contiguous)
take: Rewrite = Rewrite(taken)
vdot: Rewrite = Rewrite(lambda self, other: (self.conj() * other).sum())
trace: Rewrite = Rewrite(lambda self: self.diagonal().sum())
