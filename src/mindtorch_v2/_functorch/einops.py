"""torch.func.rearrange: dims of a tensor in another order, split and joined, by a pattern such as '(a b) c -> c b a'."""
from __future__ import annotations

import math
import re
from typing import Any

import mindtorch_v2 as torch

_REST, _ONE = "...", ""          # a group is a list of names; these stand for all dims that are not named, and for one of size 1


def _groups(side: str) -> list[list[str]]:
    """The dims of one side of a pattern, each as the names that are joined in it."""
    wrong = re.search(r"[^\w\s.()]", side)
    if wrong:
        raise ValueError(f"Unknown character '{wrong.group()}'")
    found: list[list[str]] = []
    seen: set[str] = set()
    inside = False
    for word in re.findall(r"\.\.\.|[()]|[^\s().]+|\.", side):
        if word in "()":
            if word == "(" and inside:
                raise ValueError("Axis composition is one-level (brackets inside brackets not allowed)")
            if word == ")" and not inside:
                raise ValueError("Brackets are not balanced")
            inside = word == "("
            found += [[]] if inside else []
            continue
        name = _checked(word, seen)
        if inside:
            found[-1] += [name] if name else []
        else:
            found.append([name] if name else [])
    if inside:
        raise ValueError(f"Imbalanced parentheses in expression: '{side}'")
    return found


def _checked(word: str, seen: set[str]) -> str:
    """A name as it is kept, unless it cannot be one or was there before."""
    if word == ".":
        raise ValueError("Expression may contain dots only inside ellipsis (...)")
    if word.isdecimal():
        if word != "1":
            raise ValueError("rearrange only supports unnamed axes of size 1")
        return _ONE
    if word != _REST and not word.isidentifier():
        raise ValueError(f"Invalid axis identifier: {word}\nnot a valid python identifier")
    if word.startswith("_") or word.endswith("_"):
        raise ValueError(f"Invalid axis identifier: {word}\naxis name should should not start or end with underscore")
    if word in seen:
        raise ValueError(f"Indexing expression contains duplicate dimension '{word}'")
    seen.add(word)
    return word


def _parsed(pattern: str, given: dict[str, int]) -> tuple[list[list[str]], list[list[str]]]:
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError("Pattern must contain a single '->' separator")
    left, right = _groups(sides[0]), _groups(sides[1])
    names = [{name for group in side for name in group} for side in (left, right)]
    if _REST in names[1] - names[0]:
        raise ValueError(f"Ellipsis found in right side, but not left side of a pattern {pattern}")
    if names[0] ^ names[1]:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {names[0] ^ names[1]}")
    if unknown := given.keys() - names[0]:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}")
    return left, right


def _sized(left: list[list[str]], shape: Any, given: dict[str, int]) -> dict[str, list[int]]:
    """The sizes that every name stands for, by what a tensor has."""
    sizes: dict[str, list[int]] = {name: [size] for name, size in given.items()}
    at = 0
    for group in left:
        if group == [_REST]:
            rest = len(shape) - len(left) + 1
            sizes[_REST] = list(shape[at:at + rest])
            at += rest
            continue
        open_names = [name for name in group if name not in sizes]
        if len(open_names) > 1:
            raise ValueError(f"cannot infer the sizes of two dimensions at once {' and '.join(open_names)}")
        known = math.prod(size for name in group if name in sizes for size in sizes[name])
        if open_names and known and shape[at] % known == 0:
            sizes[open_names[0]] = [shape[at] // known]
        elif open_names or known != shape[at]:
            raise ValueError(f"inferred dimension does not evenly fit into larger dimension: {shape[at]} vs {known}")
        at += 1
    return sizes


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> torch.Tensor:
    """A tensor, or a list of tensors that are stacked first, with its dims as the pattern's right side has them."""
    x = tensor if isinstance(tensor, torch.Tensor) else torch.stack(list(tensor))
    left, right = _parsed(pattern, axes_lengths)
    if len(left) != x.dim() and (len(left) - 1 > x.dim() or [_REST] not in left):
        raise ValueError(f"Number of dimensions in pattern ({len(left)}) must be equal to the number of dimensions in the tensor "
                         f"({x.dim()})")
    sizes = _sized(left, x.shape, axes_lengths)
    order = [(name, i) for group in left for name in group for i in range(len(sizes[name]))]
    wanted: list[list[tuple[str, int]]] = []
    for group in right:
        parts = [(name, i) for name in group for i in range(len(sizes[name]))]
        wanted += [[part] for part in parts] if group == [_REST] else [parts]
    whole = x.reshape([size for group in left for name in group for size in sizes[name]])
    turned = whole.permute([order.index(part) for parts in wanted for part in parts])
    return turned.reshape([math.prod(sizes[name][i] for name, i in parts) for parts in wanted])
