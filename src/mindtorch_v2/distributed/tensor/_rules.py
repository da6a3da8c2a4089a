"""How each op may be computed on parts: for one dimension of a mesh, the placements of its tensors that give a result.

A rule takes a Call and gives Ways; that all tensors are whole is a way of every op and is not listed. What no rule names
is pointwise, where its row declares that, or computed on gathered tensors.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mindtorch_v2.distributed.tensor.placement_types import (
    DTensorSpec,
    Partial,
    Placement,
    Replicate,
    Shard,
    TensorMeta,
    _NormPartial,
    _StridedShard,
)


@dataclass
class Way:
    """Placements of the results and of the tensors, in the order of the arguments."""
    results: tuple[Placement, ...]
    tensors: tuple[Placement, ...]


@dataclass
class Call:
    """An op and its arguments, with specs in the place of tensors."""
    name: str
    named: dict[str, Any]
    specs: list[DTensorSpec]
    at: dict[str, int]                            # where the tensor of a parameter is in specs
    results: list[TensorMeta]
    parts: int                                    # of the whole mesh: what a dimension has to divide by
    strided: int                                  # split_factor where a tensor lies strided along this mesh dimension

    def dim(self, name: str = "dim", of: str = "self") -> int:
        return _positive(self.named[name], len(self.specs[self.at[of]].shape))

    def dims(self, name: str = "dim", of: str = "self") -> list[int]:
        """The dimensions that are named; all where none is."""
        rank, given = len(self.specs[self.at[of]].shape), self.named.get(name)
        if given is None or given == () or given == []:
            return list(range(rank))
        return [_positive(d, rank) for d in (given if isinstance(given, tuple | list) else (given,))]

    def way(self, result: Placement, /, **tensors: Placement) -> Way:
        """One placement for all results; tensors that are not named are whole."""
        inputs: list[Placement] = [Replicate()] * len(self.specs)
        for name, placement in tensors.items():
            if name in self.at:
                inputs[self.at[name]] = placement
        return Way((result,) * len(self.results), tuple(inputs))

    def alike(self, placement: Placement) -> Way:
        """The same placement for everything."""
        return Way((placement,) * len(self.results), (placement,) * len(self.specs))


Rule = Callable[[Call], list[Way]]
R = Replicate()
SUM = Partial()


def _positive(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


# ---- item by item ---------------------------------------------------------------------------------------------------------
_ADDS = frozenset(("add", "sub", "_to_copy", "clone", "neg", "copy_", "zero_", "positive", "alias", "detach", "copy"))
_SCALES = frozenset(("mul", "div"))
_LIKE = frozenset(("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like"))


def pointwise(call: Call) -> list[Way]:
    """Sharded along any dimension of the result; sums stay sums under what is linear."""
    if not call.results:
        return []
    ways, out = [], call.results[0].shape
    for d in range(len(out)):
        inputs: list[Placement] = []
        for spec in call.specs:
            k = d - (len(out) - len(spec.shape))
            whole = k < 0 or spec.shape[k] != out[d]
            inputs.append(R if whole else _shard(k, call))
        ways.append(Way((_shard(d, call),) * len(call.results), tuple(inputs)))
    base = call.name[:-1] if call.name.endswith("_") and call.name not in _ADDS else call.name
    if base in _ADDS and all(not isinstance(call.named.get(k), int | float) or not call.named[k] for k in ("other",)):
        ways += [call.alike(kind) for kind in (SUM, Partial("avg"))]
    elif base in _SCALES and call.named.get("rounding_mode") is None:
        for kind in (SUM, Partial("avg")):
            ways.append(call.way(kind, self=kind))
            if base == "mul" and "other" in call.at:
                ways.append(call.way(kind, other=kind))
    elif base in _LIKE:
        ways += [Way((R,), (kind,)) for kind in (SUM, Partial("avg"), Partial("max"), Partial("min"))]
    return ways


def _shard(dim: int, call: Call) -> Shard:
    return _StridedShard(dim, call.strided) if call.strided else Shard(dim)


# ---- sums of products -----------------------------------------------------------------------------------------------------
def product(call: Call, labels: dict[str, str], result: str, added: str | None = None) -> list[Way]:
    """An einsum: each letter may be sharded wherever it stands, which gives a sum where the result does not have it.
    `added` is a tensor that is added to it, aligned with the end of the result."""
    ways = []
    for letter in sorted(set("".join(labels.values()))):
        placements: dict[str, Placement] = {}
        for name, text in labels.items():
            spec = call.specs[call.at[name]]
            if letter in text and spec.shape[text.index(letter)] != 1:
                placements[name] = Shard(text.index(letter))
        if added in call.at:
            rank, mine = len(result), len(call.specs[call.at[added]].shape)
            k = result.index(letter) - (rank - mine) if letter in result else None
            if k is None:
                placements[added] = SUM
            elif k >= 0 and call.specs[call.at[added]].shape[k] != 1:
                placements[added] = Shard(k)
        if placements:
            ways.append(call.way(Shard(result.index(letter)) if letter in result else SUM, **placements))
    for name in labels:
        given = {name: SUM} | ({added: SUM} if added in call.at else {})
        ways.append(call.way(SUM, **given))
    return ways


def matmul(call: Call, a: str = "self", b: str = "other", added: str | None = None) -> list[Way]:
    ranks = [len(call.specs[call.at[name]].shape) for name in (a, b)]
    batch = "abcdefgh"[:max(*ranks, 2) - 2]
    left = "k" if ranks[0] == 1 else batch[len(batch) - (ranks[0] - 2):] + "mk"
    right = "k" if ranks[1] == 1 else batch[len(batch) - (ranks[1] - 2):] + "kn"
    result = batch + ("m" if ranks[0] > 1 else "") + ("n" if ranks[1] > 1 else "")
    return product(call, {a: left, b: right}, result, added)


def linear(call: Call) -> list[Way]:
    batch = "abcdefgh"[:len(call.specs[call.at["input"]].shape) - 1]
    return product(call, {"input": batch + "k", "weight": "nk"}, batch + "n", "bias")


# ---- reductions -----------------------------------------------------------------------------------------------------------
def reduction(reduced: Callable[[Call, list[int]], Placement | None]) -> Rule:
    """Along the dimensions that stay, sharded; along the others what `reduced` says, if anything."""
    def rule(call: Call) -> list[Way]:
        gone, keep = call.dims(), call.named.get("keepdim", False)
        ways, rank = [], len(call.specs[0].shape)
        partial = reduced(call, gone)
        for d in range(rank):
            if d not in gone:
                at = d if keep else d - sum(g < d for g in gone)
                ways.append(call.way(Shard(at), self=Shard(d)))
            elif partial is not None:
                ways.append(call.way(partial, self=Shard(d)))
        if isinstance(partial, _NormPartial):
            ways.append(call.way(partial, self=partial))
        elif partial is not None and partial.is_partial("sum"):
            ways.append(call.way(SUM, self=SUM))
        elif partial is not None and partial.is_partial("avg"):
            ways += [call.way(kind, self=kind) for kind in (SUM, Partial("avg"))]
        return ways
    return rule


def _mean(call: Call, gone: list[int]) -> Placement | None:
    even = all(call.specs[0].shape[d] % call.parts == 0 for d in gone)
    return Partial("avg") if even else None       # parts of several sizes have no plain mean


def _extreme(kind: str) -> Callable[[Call, list[int]], Placement | None]:
    """An empty part has no largest item."""
    return lambda call, gone: Partial(kind) if all(call.specs[0].shape[d] % call.parts == 0 for d in gone) else None


def _norm(call: Call, gone: list[int]) -> Placement | None:
    kind = float(call.named.get("ord", 2))
    even = all(call.specs[0].shape[d] % call.parts == 0 for d in gone)
    return _NormPartial("sum", kind) if even or 0 < kind < float("inf") else None


# ---- along one dimension --------------------------------------------------------------------------------------------------
def along(name: str = "dim", whole: tuple[str, ...] = ()) -> Rule:
    """All tensors sharded alike, along any other dimension; those in `whole` are not divided."""
    def rule(call: Call) -> list[Way]:
        taken = call.dims(name, "self" if "self" in call.at else next(iter(call.at)))
        rank, keep = len(call.specs[0].shape), len(call.results[0].shape) == len(call.specs[0].shape)
        ways = []
        for d in range(rank):
            if d not in taken:
                at = d if keep else d - sum(t < d for t in taken)
                placed = {n: Shard(d) for n, i in call.at.items() if n not in whole and len(call.specs[i].shape) == rank}
                ways.append(call.way(Shard(at), **placed))
        return ways
    return rule


def leading(trailing: int) -> Rule:
    """Everything before the last dimensions is a batch."""
    def rule(call: Call) -> list[Way]:
        return [call.alike(Shard(d)) for d in range(len(call.specs[0].shape) - trailing)]
    return rule


def joined(call: Call) -> list[Way]:
    """cat, along any other dimension; empty tensors of one dimension are joined with everything."""
    if any(len(spec.shape) != len(call.specs[0].shape) for spec in call.specs):
        return []
    dim = _positive(call.named.get("dim", 0), len(call.specs[0].shape))
    ways = [call.alike(Shard(d)) for d in range(len(call.specs[0].shape)) if d != dim]
    norms = {spec.placements[i] for spec in call.specs for i in range(len(spec.placements))}
    return ways + [call.alike(kind) for kind in (SUM, Partial("avg"), *(n for n in norms if isinstance(n, _NormPartial)))]


# ---- layers ---------------------------------------------------------------------------------------------------------------
def norm_layer(call: Call) -> list[Way]:
    outer = len(call.specs[0].shape) - len(call.named["normalized_shape"])
    return [call.way(Shard(d), input=Shard(d)) for d in range(outer)]


def norm_layer_backward(call: Call) -> list[Way]:
    """The gradient of the input lies as the input; those of weight and bias are sums over the batch."""
    outer = len(call.specs[0].shape) - len(call.named["normalized_shape"])
    ways = []
    for d in range(outer):
        way = call.way(SUM, grad_out=Shard(d), input=Shard(d), mean=Shard(d), rstd=Shard(d))
        way.results = (Shard(d), *way.results[1:])
        ways.append(way)
    return ways


def embedding(call: Call) -> list[Way]:
    """Along the width, along the batch, or along the vocabulary: that one is a sum, see _special.py."""
    width = len(call.results[0].shape) - 1
    ways = [call.way(Shard(width), weight=Shard(1)), call.way(SUM, weight=Shard(0))]
    return ways + [call.way(Shard(d), indices=Shard(d)) for d in range(width)]


def embedding_backward(call: Call) -> list[Way]:
    width = len(call.specs[call.at["indices"]].shape)
    ways = [call.way(Shard(1), grad_output=Shard(width)), call.way(SUM, grad_output=SUM)]
    return ways + [call.way(SUM, grad_output=Shard(d), indices=Shard(d)) for d in range(width)]


def attention(call: Call) -> list[Way]:
    """Batches and heads are independent; a mask of one row is replicated."""
    ways: list[Way] = []
    if len(call.specs[0].shape) != 4:
        return ways
    for d in (0, 1):
        length = call.specs[call.at["query"]].shape[d]
        placed = {}
        for name, i in call.at.items():
            shape = call.specs[i].shape
            k = d - (4 - len(shape)) if name == "attn_mask" else d
            if k >= 0 and shape[k] == length:
                placed[name] = Shard(k)
        if all(name in placed for name in ("key", "value")) and length % call.parts == 0:
            ways.append(call.way(Shard(d), **placed))
    return ways


# ---- views ----------------------------------------------------------------------------------------------------------------
def view_of(dims: Callable[[Call], dict[int, int]]) -> Rule:
    """A view by where each dimension of the tensor is in the result; those that are missing cannot be sharded."""
    def rule(call: Call) -> list[Way]:
        ways = [call.way(Shard(at), self=Shard(d)) for d, at in dims(call).items()]
        norms = {p for p in call.specs[0].placements if isinstance(p, Partial)}
        return ways + [call.way(kind, self=kind) for kind in norms]
    return rule


def _rank(call: Call) -> int:
    return len(call.specs[0].shape)


def _transposed(call: Call) -> dict[int, int]:
    a, b = (call.dim("dim0"), call.dim("dim1")) if "dim0" in call.named else (0, min(_rank(call), 2) - 1)
    swap = {a: b, b: a}
    return {d: swap.get(d, d) for d in range(_rank(call))}


def _permuted(call: Call) -> dict[int, int]:
    return {d: at for at, d in enumerate(call.dims("dims"))}


def _unsqueezed(call: Call) -> dict[int, int]:
    new = _positive(call.named["dim"], _rank(call) + 1)
    return {d: d + (d >= new) for d in range(_rank(call))}


def _squeezed(call: Call) -> dict[int, int]:
    shape = call.specs[0].shape
    gone = [d for d in call.dims() if shape[d] == 1]
    return {d: d - sum(g < d for g in gone) for d in range(len(shape)) if d not in gone}


def _selected(call: Call) -> dict[int, int]:
    dim = call.dim()
    return {d: d - (d > dim) for d in range(_rank(call)) if d != dim}


def _sliced(call: Call) -> dict[int, int]:
    dim = _positive(call.named.get("dim", 0), _rank(call))
    whole = call.results[0].shape[dim] == call.specs[0].shape[dim] and call.named.get("step", 1) == 1
    return {d: d for d in range(_rank(call)) if d != dim or whole}


def _expanded(call: Call) -> dict[int, int]:
    shape, out = call.specs[0].shape, call.results[0].shape
    extra = len(out) - len(shape)
    return {d: d + extra for d in range(len(shape)) if shape[d] == out[d + extra]}


def _repeated(call: Call) -> dict[int, int]:
    return _expanded(call)


def viewed(call: Call) -> dict[int, int]:
    """view: groups of dimensions that are merged or split; the outermost of a group can be sharded where it divides."""
    before, after = call.specs[0].shape, call.results[0].shape
    found, i, j = {}, 0, 0
    while i < len(before) and j < len(after):
        first, at, a, b = i, j, before[i], after[j]
        while a != b:
            if a < b:
                i += 1
                a *= before[i]
            else:
                j += 1
                b *= after[j]
        # a group may begin with ones, which are of no length to cut
        while first < i and before[first] == 1:
            first += 1
        while at < j and after[at] == 1:
            at += 1
        if before[first] == after[at] or before[first] % call.parts == 0 and after[at] % call.parts == 0:
            found[first] = at
        i, j = i + 1, j + 1
    return found


RULES: dict[str, Rule] = {
    "matmul": matmul, "mm": lambda c: matmul(c, "self", "mat2"), "bmm": lambda c: matmul(c, "self", "mat2"),
    "mv": lambda c: matmul(c, "self", "vec"), "dot": lambda c: matmul(c, "self", "tensor"), "linear": linear,
    "addmm": lambda c: matmul(c, "mat1", "mat2", "self"), "baddbmm": lambda c: matmul(c, "batch1", "batch2", "self"),
    "sum": reduction(lambda c, g: SUM), "mean": reduction(_mean), "amax": reduction(_extreme("max")),
    "amin": reduction(_extreme("min")), "prod": reduction(lambda c, g: Partial("product")),
    "linalg_vector_norm": reduction(_norm), "any": reduction(lambda c, g: None), "all": reduction(lambda c, g: None),
    "var": reduction(lambda c, g: None), "std": reduction(lambda c, g: None), "argmax": reduction(lambda c, g: None),
    "argmin": reduction(lambda c, g: None), "_logsumexp": reduction(lambda c, g: None),
    "max": lambda c: (reduction(_extreme("max"))(c) if len(c.results) == 1 else along()(c)) if "other" not in c.at
    else pointwise(c),
    "min": lambda c: (reduction(_extreme("min"))(c) if len(c.results) == 1 else along()(c)) if "other" not in c.at
    else pointwise(c),
    "cat": joined, "tril": leading(2), "triu": leading(2),
    "index_select": along(whole=("index",)), "gather": along(), "scatter": along(), "scatter_add": along(),
    "native_layer_norm": norm_layer, "native_layer_norm_backward": norm_layer_backward,
    "_fused_rms_norm": norm_layer, "_fused_rms_norm_backward": norm_layer_backward,
    "embedding": embedding, "embedding_dense_backward": embedding_backward,
    "_attention": attention, "_attention_backward": attention, "_flash_attention": attention,
    "_flash_attention_backward": attention,
    "transpose": view_of(_transposed), "t": view_of(_transposed), "permute": view_of(_permuted),
    "unsqueeze": view_of(_unsqueezed), "squeeze": view_of(_squeezed), "select": view_of(_selected),
    "slice": view_of(_sliced), "expand": view_of(_expanded), "repeat": view_of(_repeated), "view": view_of(viewed),
}
RULES |= dict.fromkeys(("softmax", "log_softmax", "_softmax", "_log_softmax", "_softmax_backward_data", "cumsum", "cumprod",
                        "_log_softmax_backward_data", "sort", "topk", "flip", "kthvalue", "split", "unbind",
                        "split_with_sizes"), along())
# Item by item, though their rows say that they are kernels.
_POINTWISE = ("zeros_like ones_like empty_like _to_copy clone copy_ zero_ fill_ alias detach _masked_fill masked_fill_ where "
              "_dropout _dropout_backward _bernoulli_scalar_ _bernoulli_tensor uniform_ normal_ random_ exponential_ "
              "bernoulli_ trunc_normal_ log_normal_ complex polar lerp addcmul addcdiv")
RULES |= dict.fromkeys(_POINTWISE.split(), pointwise)
# Views and others with sizes among their arguments: what the parameter is called.
SIZES = {"view": "size", "expand": "size"}
