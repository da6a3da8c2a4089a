"""What is said of a call that fits no row: which argument is wrong, or all the calls that are offered (signatures.txt)."""
from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

from mindtorch_v2 import _C

_OPTIONS = ("torch.dtype dtype = None, torch.layout layout = None, torch.device device = None, bool pin_memory = False, "
            "bool requires_grad = False")
_NUMPY_NAMES = {"dim": ("axis",), "keepdim": ("keepdims",), "input": ("x", "a", "x1"), "other": ("x2",)}
_CLASSES: dict[str, Any] = {
    "bool": bool, "str": str, "torch.dtype": (_C.dtype, type(float)), "torch.layout": _C.layout,
    "torch.memory_format": _C.memory_format, "torch.Generator": _C.GeneratorBase, "torch.device": (_C.device, str, int),
    "torch.Storage": _C.StorageBase}
_OUT = re.compile(r"(Tensor|tuple of Tensors) out( = None)?")


class _Param(NamedTuple):
    kind: str
    name: str
    required: bool
    takes_none: bool
    keyword_only: bool


class _Signature(NamedTuple):
    """One way of calling an op, and its text."""
    params: tuple[_Param, ...]
    text: str

    @property
    def least(self) -> int:
        return sum(p.required for p in self.params)

    @property
    def positional(self) -> int:
        return sum(not p.keyword_only for p in self.params)

    @property
    def is_rest(self) -> bool:
        """Whether the positional arguments may be the items of its only list, as in x.view(2, 3)."""
        return self.positional == 1 and self.params[0].kind == "tuple of ints"


class _Wrong(NamedTuple):
    """What one signature says of a call."""
    text: str


@functools.cache
def _table() -> dict[str, tuple[str, ...]]:
    """The texts of the file by op; methods as Tensor.name."""
    lines = (Path(__file__).parent / "signatures.txt").read_text().splitlines()[1:]
    split = (line.split(": ", 1) for line in lines)
    return {name: tuple(text.replace("...", _OPTIONS).split(" | ")) for name, text in split}


def _words(text: str) -> list[str]:
    return text[1:-1].split(", ") if len(text) > 2 else []


def _as_method(text: str) -> str | None:
    """A function's signature as that of the method: without input and out=; None where it has no input."""
    words = _words(text)
    if "Tensor input" not in words:
        return None
    words.remove("Tensor input")
    return _shown([w for w in words if not _OUT.fullmatch(w)])


def _shown(words: list[str]) -> str:
    return f"({', '.join(words[:-1] if words and words[-1] == '*' else words)})"


def _texts(op: Any, method: bool) -> tuple[tuple[str, ...], bool]:
    """The signatures of an op, and whether PyTorch has more than one (some are not shown)."""
    table, plain = _table(), op.name.removesuffix("_")
    if method and f"Tensor.{op.name}" in table:
        return table[f"Tensor.{op.name}"], True
    found = table.get(op.name) or table.get(plain, ()) if not op.name.startswith("__") else ()
    if method:
        found = tuple(filter(None, map(_as_method, found)))
    if found:
        if op.inplace_of is not None and not method:
            found = tuple(_shown([w for w in _words(text) if not _OUT.fullmatch(w)]) for text in found)
        return found, True
    rows = [row for row in op.overloads if not row.overload_name.startswith("deprecated")] or op.overloads
    return tuple(f"({row.signature(int(method), op.inplace_of is not None)})" for row in rows), len(op.overloads) > 1


@functools.cache
def _parse(text: str) -> _Signature:
    params, keyword_only = [], False
    for word in _words(text):
        if word == "*":
            keyword_only = True
            continue
        head, given, default = word.partition(" = ")
        kind, _, name = head.rpartition(" ")
        params.append(_Param(kind, name, not given, default == "None", keyword_only))
    return _Signature(tuple(params), text)


def _is_int(value: Any) -> bool:
    if isinstance(value, _C.TensorBase):
        return value.numel() == 1 and not (value.is_floating_point() or value.is_complex())
    return not isinstance(value, (bool, float, str)) and hasattr(type(value), "__index__")


def _is_number(value: Any, kinds: Any) -> bool:
    if isinstance(value, _C.TensorBase):
        return value.dim() == 0 and not value.requires_grad
    return isinstance(value, kinds) or (getattr(value, "shape", None) == () and hasattr(type(value), "dtype"))


def _suits(param: _Param, value: Any, numbers: bool, strict: bool) -> bool:
    """Whether a value may be this argument. A list is judged by its first item; strict: and an int is no list."""
    kind = param.kind
    if value is None:
        return param.takes_none
    if kind == "Tensor":
        return isinstance(value, _C.TensorBase) or numbers and _is_number(value, (int, float, complex))
    if kind.startswith("tuple of "):
        if isinstance(value, (tuple, list)):
            return not len(value) or kind == "tuple of Tensors" or _suits_item(kind, value[0])
        return not strict and kind in ("tuple of ints", "tuple of floats") and _suits_item(kind, value)
    if kind == "int":
        return _is_int(value)
    if kind in ("Number", "float"):
        return _is_number(value, (int, float, complex) if kind == "Number" else (int, float))
    return isinstance(value, _CLASSES.get(kind, object))


def _suits_item(kind: str, value: Any) -> bool:
    if kind == "tuple of ints":
        return _is_int(value)
    if kind == "tuple of bools":
        return isinstance(value, bool)
    return isinstance(value, _C.TensorBase) if kind == "tuple of Tensors" else _is_number(value, (int, float, complex))


def _named(param: _Param, kwargs: dict[str, Any]) -> str | None:
    """The keyword by which an argument was given."""
    return next((n for n in (param.name, *_NUMPY_NAMES.get(param.name, ())) if n in kwargs), None)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" + "s" * (count != 1)


def _too_many(name: str, signature: _Signature, given: int) -> _Wrong:
    least, most = signature.least, signature.positional
    takes = _plural(most, "positional argument") if least == most else f"from {least} to {most} positional arguments"
    return _Wrong(f"{name}() takes {takes} but {given} {'was' if given == 1 else 'were'} given")


def _unfit(name: str, signature: _Signature, index: int, value: Any, args: tuple[Any, ...], at: int | None) -> _Wrong:
    """An argument of a wrong type; at: its position, None where it was given by name."""
    param, shown = signature.params[index], ""
    place = "" if at is None else f" (position {at + 1})"
    if at is not None and param.kind == "tuple of ints":
        items = value if isinstance(value, (tuple, list)) else args if signature.is_rest and len(args) > 1 else ()
        bad = next((i for i, item in enumerate(items) if not _is_int(item)), None)
        if bad is not None and isinstance(value, (tuple, list)):
            shown = f", but found element of type {_C._said_type(items[bad])} at pos {bad}"
    return _Wrong(f"{name}(): argument '{param.name}'{place} must be {param.kind}{shown or ', not ' + _C._said_type(value)}")


def _odd_item(name: str, param: _Param, index: int, value: Any) -> _Wrong | None:
    """What is said of an item of a list that is not the first: the list itself was taken for one."""
    if not isinstance(value, (tuple, list)):
        return None
    for i, item in enumerate(value):
        if param.kind == "tuple of Tensors" and not _suits_item(param.kind, item) and (item is not None or param.name != "indices"):
            return _Wrong(f"expected Tensor as element {i} in argument {index}, but got {_C._said_type(item)}")
        if param.kind == "tuple of ints" and not _is_int(item):
            return _Wrong(f"{name}(): argument '{param.name}' failed to unpack the object at pos {i + 1} with error "
                          f"\"type must be {param.kind},but got {_C._said_type(item)}\"")
    return None


def _match(name: str, signature: _Signature, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: bool,
           strict: bool) -> tuple[_Wrong | None, _Wrong | None]:
    """What is wrong with a call of this signature, and what is wrong inside a list of a call that looks right."""
    rest, at, used, inside = signature.is_rest, 0, 0, None
    if len(args) > signature.positional and not rest:
        return _too_many(name, signature, len(args)), None
    for index, param in enumerate(signature.params):
        if at < len(args):
            if param.keyword_only:
                return _too_many(name, signature, len(args)), None
            value, place = args[at], at
        else:
            word = _named(param, kwargs)
            if word is None:
                if param.required:
                    lacking = [p.name for p in signature.params[index:] if p.required and _named(p, kwargs) is None]
                    quoted = ", ".join(f'"{n}"' for n in lacking)
                    plural = "s" * (len(lacking) == 1)   # as PyTorch has it
                    return _Wrong(f"{name}() missing {len(lacking)} required positional argument{plural}: {quoted}"), None
                continue
            value, place, used = kwargs[word], None, used + 1
        if param.kind == "tuple of Tensors" and (odd := _odd_item(name, param, index, value)):
            return odd, odd
        if rest and index == 0 and place == 0 and _is_int(value):
            inside, at = _odd_item(name, param, index, args), len(args)
            continue
        if not _suits(param, value, numbers, strict):
            return _unfit(name, signature, index, value, args, place), None
        inside = inside or _odd_item(name, param, index, value)
        at += place is not None
    if used < len(kwargs):
        return _odd_keyword(name, signature, args, kwargs), None
    return None, inside


def _odd_keyword(name: str, signature: _Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Wrong:
    taken = {n for p in signature.params for n in (p.name,)}
    for word in kwargs:
        if word not in taken:
            return _Wrong(f"{name}() got an unexpected keyword argument '{word}'")
        if word in [p.name for p in signature.params[:len(args)]]:
            return _Wrong(f"{name}() got multiple values for argument '{word}'")
    return _Wrong(f"invalid keyword arguments for {name}()")


def _described(value: Any) -> str:
    """A type as the detail of a signature shows it."""
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_C._said_type(item) for item in value)
        return f"list of [{inner}]" if isinstance(value, list) else f"tuple of ({inner}{',' * (len(value) == 1)})"
    return _C._said_type(value)


def _list_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    words = [_C._said_type(value) for value in args] + [f"{name}={_C._said_type(value)}" for name, value in kwargs.items()]
    return f"({', '.join(words)}{', ' * (not args and bool(kwargs))})"


def _marked(words: list[str], args: tuple[Any, ...]) -> str:
    """The types given, with a mark at each that is not, to the letter, what the signature shows."""
    shown = [(word.partition(" = ")[0].rpartition(" ")[0], _described(value)) for word, value in zip(words, args)]
    return ", ".join(given if kind == given else f"!{given}!" for kind, given in shown)


def _detail(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """Keywords that a signature does not have (it is read as text: one with a default is not found), and the types given where
    there are as many as the signature has words, the * among them."""
    words = _words(text) or [""]
    names = {word.rpartition(" ")[2]: word.rpartition(" ")[0] for word in words}
    odd = ", ".join(name for name in kwargs if name not in names)
    if len(words) != len(args) + len(kwargs):
        return odd, ""
    given = {name: _described(value) for name, value in kwargs.items() if not odd}
    marked = [_marked(words, args)] * bool(args)
    marked += [f"{n}={kind}" if names[n] == kind else f"!{n}={kind}!" for n, kind in given.items()]
    return odd, f"({', '.join(marked)}{', ' * (not args and bool(kwargs))})"


def _none_fits(name: str, texts: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    """The error that shows all signatures."""
    words, got = f"{name}() received an invalid combination of arguments - got ", _list_of(args, kwargs)
    if len(texts) == 1:
        odd, types = _detail(texts[0], args, kwargs)
        return TypeError(f"{words}unrecognized keyword arguments: {odd}" if odd else
                         f"{words}{types or got}, but expected {texts[0]}")
    shown = ""
    for text in texts:
        odd, types = _detail(text, args, kwargs)
        why = f"keywords were incorrect: {odd}" if odd else f"arguments have invalid types: {types}"
        shown += f"\n * {text}" + f"\n      didn't match because some of the {why}" * bool(types)
    return TypeError(f"{words}{got}, but expected one of:{shown}\n")


def call_error(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], method: bool) -> TypeError:
    """The TypeError of a call that fits no row of an op; args of a method begin with the tensor."""
    args = args[1:] if method else args
    texts, several = _texts(op, method)
    signatures, name = [_parse(text) for text in texts], op.name
    if method and texts == ("()",) and (args or kwargs):
        said = "keyword arguments" if kwargs else f"arguments ({len(args)} given)"
        return TypeError(f"TensorBase.{name}() takes no {said}")
    numbers = any(row.numbers for row in op.overloads)
    for signature in signatures:
        wrong, inside = _match(name, signature, args, kwargs, numbers, False)
        if inside is not None:
            return TypeError(inside.text)
    count = len(args) + len(kwargs)
    plausible = [s for s in signatures if s.least <= count <= len(s.params)] if several else signatures
    if len(plausible) == 1:
        for strict in (False, True):
            wrong, _ = _match(name, plausible[0], args, kwargs, numbers, strict)
            if wrong is not None:
                return TypeError(wrong.text)
    return _none_fits(name, texts, args, kwargs)
