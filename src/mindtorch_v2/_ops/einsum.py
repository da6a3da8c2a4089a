"""einsum: sums of products, written with letters."""
from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from mindtorch_v2._ops.table import ops, publish_plain
from mindtorch_v2._ops.view import check_tensors
from mindtorch_v2._tensor import Tensor


def _letters(text: str, rank: int, wide: bool, number: int = 0) -> list[Any]:
    """The labels of one operand; dims under an ellipsis are labelled by negative numbers, last is -1."""
    text = text.replace(" ", "")
    if "..." in text:
        before, _, after = text.partition("...")
        extra = rank - len(before) - len(after)
        if extra < 0:
            raise RuntimeError(f"einsum(): the number of subscripts in the equation ({len(before) + len(after)}) is more "
                               f"than the number of dimensions ({rank}) for operand {number}")
        return [*before, *range(-extra, 0), *after]
    if wide and len(text) != rank:
        raise RuntimeError(f"einsum(): the number of subscripts in the equation ({len(text)}) does not match the number "
                           f"of dimensions ({rank}) for operand {number} and no ellipsis was given")
    return list(text)


@lru_cache(maxsize=512)
def _parse(equation: str, ranks: tuple[int, ...]) -> tuple[list[list[Any]], list[Any]]:
    """The labels of the operands and of the result; both are shared by all calls."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        more = "fewer" if len(ranks) < len(parts) else "more"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
    for i, part in enumerate(parts):
        if "." in part.replace("...", "", 1):
            raise RuntimeError(f"einsum(): found '.' for operand {i} " + (
                "for which an ellipsis was already found" if "..." in part else "that is not part of any ellipsis"))
    if "." in right.replace("...", "", 1):
        raise RuntimeError("einsum(): found '.' for output " + (
            "for which an ellipsis (...) was already found" if "..." in right else "that is not part of any ellipsis (...)"))
    for c in left.replace("...", "").replace(",", "") + right.replace("...", ""):
        if not (c.isalpha() and c.isascii()):
            place = equation.find(c) if c not in right else len(equation) - len(right) + right.find(c)
            raise RuntimeError(f"einsum(): invalid subscript given at index {place} in the equation string, "
                               "subscripts must be in [a-zA-Z]")
    labels = [_letters(p, rank, True, i) for i, (p, rank) in enumerate(zip(parts, ranks))]
    wide = max((sum(isinstance(c, int) for c in ls) for ls in labels), default=0)
    if arrow:
        out = _letters(right, len(right.replace("...", "")) + wide, False)
        if len(set(out)) != len(out):
            twice = next(c for c in out if out.count(c) > 1)
            raise RuntimeError(f"einsum(): output subscript {twice} appears more than once in the output")
        known = {c for ls in labels for c in ls}
        for c in out:
            if c not in known:
                raise RuntimeError(f"einsum(): output subscript {c} does not appear in the equation for any input operand")
        return labels, out
    flat = [c for ls in labels for c in ls if not isinstance(c, int)]
    return labels, [*range(-wide, 0), *sorted(c for c in set(flat) if flat.count(c) == 1)]


def _diagonals(x: Tensor, labels: list[Any], number: int) -> tuple[Tensor, list[Any]]:
    """One dim per label: repeated labels become a diagonal."""
    if len(set(labels)) == len(labels):
        return x, labels
    labels = list(labels)
    for c in list(dict.fromkeys(labels)):
        while labels.count(c) > 1:
            i = labels.index(c)
            j = labels.index(c, i + 1)
            if x.size(i) != x.size(j):
                raise RuntimeError(f"einsum(): subscript {c} is repeated for operand {number} but the sizes don't match, "
                                   f"{x.size(j)} != {x.size(i)}")
            x = x.diagonal(0, i, j)
            labels = [v for k, v in enumerate(labels) if k not in (i, j)] + [c]
    return x, labels


def _arrange(x: Tensor, labels: list[Any], order: list[Any]) -> Tensor:
    """x permuted to `order`, with dims of size 1 for labels it lacks."""
    if labels == order:
        return x
    have = [c for c in order if c in labels]
    if have != labels:
        x = x.permute([labels.index(c) for c in have])
    if have == order:
        return x
    shape = iter(x.shape)
    return x.reshape([next(shape) if c in labels else 1 for c in order])


def _wide(x: Tensor, labels: list[Any]) -> set[Any]:
    """The labels of dims that do not broadcast."""
    return {c for c, n in zip(labels, x.shape) if n != 1}


def _summed(x: Tensor, labels: list[Any], gone: list[Any]) -> tuple[Tensor, list[Any]]:
    """x without the labels `gone`. A dim of size 1 is dropped: a sum over it would make integers int64."""
    for c in gone:
        at = labels.index(c)
        x = x.squeeze(at) if x.size(at) == 1 else x.sum(at)
        labels = [v for v in labels if v != c]
    return x, labels


def _contract(a: Tensor, la: list[Any], b: Tensor, lb: list[Any], keep: set[Any]) -> tuple[Tensor, list[Any]]:
    """One product of two operands, summed over labels that no other operand needs, as a batched matmul."""
    sizes: dict[str, int] = {}
    for x, ls in ((a, la), (b, lb)):
        for c, n in zip(ls, x.shape):
            if n != 1 and sizes.get(c, 1) not in (1, n):
                raise RuntimeError(f"einsum(): subscript {c} has size {n} for operand 1 which does not broadcast with previously "
                                   f"seen size {sizes[c]}")
            sizes[c] = max(n, sizes.get(c, 1)) if n != 0 else 0
    wide = _wide(a, la) & _wide(b, lb)
    a, la = _summed(a, la, [c for c in la if c not in wide and c not in keep])
    b, lb = _summed(b, lb, [c for c in lb if c not in wide and c not in keep])
    both = [c for c in la if c in lb]
    summed = [c for c in both if c not in keep]
    batch = [c for c in both if c in keep]
    if not summed:                                           # a product alone, which takes two dtypes
        order = la + [c for c in lb if c not in la]
        return _arrange(a, la, order) * _arrange(b, lb, order), order
    rows, columns = [c for c in la if c not in lb], [c for c in lb if c not in la]
    batch_shape = [sizes[c] for c in batch]
    a = _arrange(a, la, batch + rows + summed)
    b = _arrange(b, lb, batch + summed + columns)
    n_rows, n_sum, n_columns = (_product(sizes[c] for c in cs) for cs in (rows, summed, columns))
    left = a.expand(batch_shape + list(a.shape[len(batch):])) if batch else a
    right = b.expand(batch_shape + list(b.shape[len(batch):])) if batch else b
    n_batch = _product(batch_shape)
    made = ops.bmm(left.reshape([n_batch, n_rows, n_sum]), right.reshape([n_batch, n_sum, n_columns]))
    return made.reshape(batch_shape + [sizes[c] for c in rows + columns]), batch + rows + columns


def _product(sizes: Iterable[int]) -> int:
    n = 1
    for size in sizes:
        n *= size
    return n


class _Plan(NamedTuple):
    """A product of two operands as one batched matmul: how each is turned, and the result."""
    turn_a: list[int] | None
    shape_a: list[int]
    turn_b: list[int] | None
    shape_b: list[int]
    shape: list[int]
    turn: list[int] | None


def _turn(order: list[Any], labels: list[Any]) -> list[int] | None:
    """Where each label of the order stands, the rest behind; None where nothing moves."""
    places = [labels.index(c) for c in order] + [i for i, c in enumerate(labels) if c not in order]
    return None if places == sorted(places) else places


@lru_cache(maxsize=512)
def _plan(equation: str, shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> _Plan | None:
    """What _contract does with operands of these shapes; None where it takes more than one product."""
    (la, lb), out = _parse(equation, (len(shape_a), len(shape_b)))
    if len(set(la)) != len(la) or len(set(lb)) != len(lb):
        return None
    sizes = dict(zip(la, shape_a))
    if any(sizes.setdefault(c, n) != n for c, n in zip(lb, shape_b)):
        return None                                          # they broadcast, or do not fit
    both = [c for c in la if c in lb and sizes[c] != 1]
    alone = [c for ls, others in ((la, lb), (lb, la)) for c in ls if c not in both and c not in out and sizes[c] != 1]
    summed, batch = [c for c in both if c not in out], [c for c in la if c in lb and c in out]
    if alone or not summed:
        return None
    rows, columns = [c for c in la if c in out and c not in lb], [c for c in lb if c in out and c not in la]
    n_batch, n_rows, n_sum, n_columns = (_product(sizes[c] for c in cs) for cs in (batch, rows, summed, columns))
    made = batch + rows + columns
    return _Plan(_turn(batch + rows + summed, la), [n_batch, n_rows, n_sum], _turn(batch + summed + columns, lb),
                 [n_batch, n_sum, n_columns], [sizes[c] for c in made], _turn(out, made))


def _planned(plan: _Plan, a: Tensor, b: Tensor) -> Tensor:
    """One product of two operands as the plan says."""
    a = (a if plan.turn_a is None else a.permute(plan.turn_a)).reshape(plan.shape_a)
    b = (b if plan.turn_b is None else b.permute(plan.turn_b)).reshape(plan.shape_b)
    made = ops.bmm(a, b).reshape(plan.shape)
    return made if plan.turn is None else made.permute(plan.turn)


def einsum(equation: Any = None, *operands: Any) -> Tensor:
    """Sums of products as the equation says, e.g. einsum('bij,bjk->bik', a, b)."""
    if not operands:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand and its "
                         "subscripts list")
    equation, *tensors = _spread(equation, *operands)
    if not tensors:
        raise RuntimeError("einsum(): must provide at least one operand")
    check_tensors(tensors, 1)
    if len(tensors) == 2 and tensors[0]._readable and tensors[1]._readable and \
            (plan := _plan(equation, tuple(tensors[0].shape), tuple(tensors[1].shape))) is not None:
        return _planned(plan, *tensors)
    labels, out = _parse(equation, tuple([x.dim() for x in tensors]))
    items = [_diagonals(x, ls, i) for i, (x, ls) in enumerate(zip(tensors, labels))]
    x, have = items[0]
    for i, (y, ls) in enumerate(items[1:], 1):
        keep = set(out).union(*(_wide(*later) for later in items[i + 1:]))
        x, have = _contract(x, have, y, ls, keep)
    gone = [c for c in have if c not in out]
    if gone:
        x = x.sum([have.index(c) for c in gone])
        have = [c for c in have if c in out]
    return x.permute([have.index(c) for c in out]) if have != out or x is tensors[0] else x


def _from_lists(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """einsum(op1, [0, 1], op2, [1, 2], [0, 2]) as an equation."""
    def text(subs: Iterable[Any]) -> str:
        subs = list(subs)
        if not all(s is Ellipsis or 0 <= s < 52 for s in subs):
            raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
        return "".join("..." if s is Ellipsis else chr((ord("A") if s < 26 else ord("a") - 26) + s) for s in subs)
    operands, subs = list(args[0:-1:2] if len(args) % 2 else args[0::2]), args[1::2]
    equation = ",".join(text(s) for s in subs[:len(operands)])
    return (equation + ("->" + text(args[-1]) if len(args) % 2 else ""), *operands)


def _spread(equation: Any, *operands: Any) -> tuple[Any, ...]:
    """The arguments as torch shows them to classes that take einsum over: an equation, then the operands one by one."""
    found = list(operands)
    if not isinstance(equation, str):
        equation, *found = _from_lists((equation, *operands))
    if len(found) == 1 and isinstance(found[0], (list, tuple)):
        found = list(found[0])
    return equation, *found


einsum.normal_form = _spread      # type: ignore[attr-defined]
publish_plain(einsum)
