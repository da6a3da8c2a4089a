"""How values are compared: pairs of leaves, each with its own rule, found inside sequences and mappings.

Tests of PyTorch derive their own pairs from these classes, so the names of methods and parameters are torch's.
"""
from __future__ import annotations

import cmath
import collections.abc
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import mindtorch_v2 as torch

_PRECISIONS = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5),
               torch.float64: (1e-7, 1e-7), torch.complex64: (1.3e-6, 1e-5), torch.complex128: (1e-7, 1e-7),
               torch.complex32: (1e-3, 1e-5)}


class ErrorMeta(Exception):
    """A comparison that failed: the error it becomes, and the item it was found at."""

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> None:
        super().__init__("If you are a user and see this message during normal operation please report it: "
                         "an ErrorMeta is turned into the error it stands for before it is raised")
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        """The error, with its own message, the given one, or what a function makes of its own."""
        if msg is None or callable(msg):
            where = "".join(f"[{item!r}]" if isinstance(item, str) else f"[{item}]" for item in self.id)
            own = self.msg + (f"\n\nThe failure occurred for item {where}" if where else "")
            msg = msg(own) if callable(msg) else own
        return self.type(msg)


class UnsupportedInputs(Exception):
    """A kind of pair does not handle these values; the next kind is tried."""


def default_tolerances(*inputs: Any, dtype_precisions: dict[Any, tuple[float, float]] | None = None) -> tuple[float, float]:
    """(rtol, atol): the larger defaults of tensors or dtypes."""
    for value in inputs:
        if not isinstance(value, (torch.Tensor, torch.dtype)):
            raise TypeError(f"Expected a torch.Tensor or a torch.dtype, but got {type(value)} instead.")
    dtypes = [value.dtype if isinstance(value, torch.Tensor) else value for value in inputs]
    found = [(dtype_precisions or _PRECISIONS).get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(r for r, _ in found), max(a for _, a in found)


def get_tolerances(*inputs: Any, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()) -> tuple[float, float]:
    """(rtol, atol): both as given, or the defaults."""
    if (rtol is None) != (atol is None):
        raise ErrorMeta(ValueError, "Both 'rtol' and 'atol' must be either specified or omitted, but got no "
                                    f"{'atol' if atol is None else 'rtol'}.", id=id)
    return (rtol, atol) if rtol is not None and atol is not None else default_tolerances(*inputs)


class Pair:
    """Two leaves and how they are compared."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown_parameters: Any) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: Any) -> None:
        if not all(isinstance(value, cls) for value in inputs):
            Pair._inputs_not_supported()

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=id or getattr(self, "id", ()))

    def compare(self) -> None:
        """Raises ErrorMeta where the values differ."""
        raise NotImplementedError


class ObjectPair(Pair):
    """Anything, compared by ==."""

    def compare(self) -> None:
        try:
            equal = self.actual == self.expected
        except Exception as error:       # of the class of the values; the caller gets it
            raise ErrorMeta(ValueError, f"{self.actual} == {self.expected} failed with:\n{error}.", id=self.id) from error
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """One of them is None, so the other must be."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        if actual is not None and expected is not None:
            self._inputs_not_supported()
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        if not (self.actual is None and self.expected is None):
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Two bools."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **other_parameters: Any) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return (bool, *_numpy_scalars("bool_"))

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> Any:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return [self._to_bool(value, id=id) for value in (actual, expected)]

    def _to_bool(self, bool_like: Any, *, id: tuple[Any, ...]) -> bool:
        if isinstance(bool_like, bool):
            return bool_like
        if isinstance(bool_like, _numpy_scalars("bool_")):
            return bool_like.item()
        raise ErrorMeta(TypeError, f"Unknown boolean type {type(bool_like)}.", id=id)

    def compare(self) -> None:
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class NumberPair(Pair):
    """Two numbers of Python or NumPy."""

    _TYPE_TO_DTYPE: dict[type, Any] = {int: torch.int64, float: torch.float64, complex: torch.complex128}
    _NUMBER_TYPES = tuple(_TYPE_TO_DTYPE)

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_dtype: bool = False,
                 **other_parameters: Any) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)
        dtypes = (self._TYPE_TO_DTYPE[type(value)] for value in (actual, expected))
        self.rtol, self.atol = get_tolerances(*dtypes, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return (*self._NUMBER_TYPES, *_numpy_scalars("number"))

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> Any:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return [self._to_number(value, id=id) for value in (actual, expected)]

    def _to_number(self, number_like: Any, *, id: tuple[Any, ...]) -> Any:
        if isinstance(number_like, _numpy_scalars("number")):
            return number_like.item()
        if isinstance(number_like, self._NUMBER_TYPES):
            return int(number_like) if isinstance(number_like, bool) else number_like
        raise ErrorMeta(TypeError, f"Unknown number type {type(number_like)}.", id=id)

    def compare(self) -> None:
        if self.check_dtype and type(self.actual) is not type(self.expected):
            self._fail(AssertionError, f"The (d)types do not match: {type(self.actual)} != {type(self.expected)}.")
        if self.actual == self.expected or (self.equal_nan and cmath.isnan(self.actual) and cmath.isnan(self.expected)):
            return
        gap = abs(self.actual - self.expected)
        if not (cmath.isfinite(gap) and gap <= self.atol + self.rtol * abs(self.expected)):
            self._fail(AssertionError, scalar_mismatch(self.actual, self.expected, self.rtol, self.atol))


class TensorLikePair(Pair):
    """Two tensors, or what becomes one."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), allow_subclasses: bool = True,
                 rtol: float | None = None, atol: float | None = None, equal_nan: bool = False, check_device: bool = True,
                 check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
                 **other_parameters: Any) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(actual, expected, rtol=rtol, atol=atol, id=self.id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool) -> Any:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or (not allow_subclasses and type(actual) is not type(expected)):
            self._inputs_not_supported()
        found = [self._to_tensor(value) for value in (actual, expected)]
        for tensor in found:
            self._check_supported(tensor, id=id)
        return found

    def _to_tensor(self, tensor_like: Any) -> Any:
        if isinstance(tensor_like, torch.Tensor):
            return tensor_like
        try:
            return torch.as_tensor(tensor_like)
        except Exception:       # whatever the conversion says: it is no tensor
            self._inputs_not_supported()

    def _check_supported(self, tensor: Any, *, id: tuple[Any, ...]) -> None:
        if tensor.layout not in _LAYOUTS:
            raise ErrorMeta(ValueError, f"Unsupported tensor layout {tensor.layout}", id=id)

    def compare(self) -> None:
        self._compare_attributes(self.actual, self.expected)
        if self.actual.is_meta or self.expected.is_meta:
            return
        self._compare_values(*self._equalize_attributes(self.actual, self.expected))

    def _compare_attributes(self, actual: Any, expected: Any) -> None:
        checked = [("shape", True, actual.shape, expected.shape),
                   ("layout", self.check_layout, actual.layout, expected.layout)]
        checked += [("device", self.check_device, actual.device, expected.device),
                    ("dtype", self.check_dtype, actual.dtype, expected.dtype)]
        if self.check_stride and actual.layout == expected.layout == torch.strided:
            checked.append(("stride()", True, actual.stride(), expected.stride()))
        for name, wanted, one, other in checked:
            if wanted and one != other:
                self._fail(AssertionError, f"The values for attribute '{name}' do not match: {one} != {other}.")

    def _equalize_attributes(self, actual: Any, expected: Any) -> tuple[Any, Any]:
        """Both on the CPU, in one dtype and one layout."""
        actual, expected = actual.detach().cpu(), expected.detach().cpu()
        if actual.layout != expected.layout:
            actual, expected = (x if x.layout == torch.strided else x.to_dense() for x in (actual, expected))
        if actual.dtype != expected.dtype:
            kind = torch.promote_types(actual.dtype, expected.dtype)
            actual, expected = actual.to(kind), expected.to(kind)
        return actual, expected

    def _compare_values(self, actual: Any, expected: Any) -> None:
        if actual.layout == torch.sparse_coo:
            self._compare_coo(actual, expected)
        elif actual.layout in _PARTS:
            self._compare_compressed(actual, expected)
        else:
            self._compare_dense(actual, expected)

    def _compare_coo(self, actual: Any, expected: Any) -> None:
        if actual._nnz() != expected._nnz():
            self._fail(AssertionError, "The number of specified values in sparse COO tensors does not match: "
                                       f"{actual._nnz()} != {expected._nnz()}")
        self._compare_dense(actual._indices(), expected._indices(), "Sparse COO indices", exactly=True)
        self._compare_dense(actual._values(), expected._values(), "Sparse COO values")

    def _compare_compressed(self, actual: Any, expected: Any) -> None:
        first, second = _PARTS[actual.layout]
        kind = str(actual.layout)[-3:].upper()
        if actual._nnz() != expected._nnz():
            self._fail(AssertionError, f"The number of specified values in sparse {kind} tensors does not match: "
                                       f"{actual._nnz()} != {expected._nnz()}")
        for name in (first, second):
            ours, theirs = (getattr(x, name)() for x in (actual, expected))
            self._compare_dense(ours, theirs, f"Sparse {kind} {name}", exactly=True)
        self._compare_dense(actual.values(), expected.values(), f"Sparse {kind} values")

    def _compare_dense(self, actual: Any, expected: Any, name: str = "Tensor-likes", exactly: bool = False) -> None:
        rtol, atol = (0, 0) if exactly else (self.rtol, self.atol)
        if exactly and actual.dtype != expected.dtype:
            actual, expected = actual.to(torch.int64), expected.to(torch.int64)
        if actual.is_floating_point() and actual.element_size() == 1:       # too few digits to be close
            self._compare_exactly(actual, expected)
            return
        if actual.dtype in (torch.uint16, torch.uint32, torch.uint64):      # they do not subtract
            actual, expected = actual.to(torch.int64), expected.to(torch.int64)
        close = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if not bool(close.all()):
            self._fail(AssertionError, tensor_mismatch(actual, expected, ~close, rtol, atol, name))

    def _compare_exactly(self, actual: Any, expected: Any) -> None:
        same = actual == expected
        if self.equal_nan:
            same = same | (actual.isnan() & expected.isnan())
        wrong = (~same).nonzero()
        if len(wrong):
            self._fail(AssertionError, f"Tensor-likes are not 'equal'!\n\nMismatched elements: {len(wrong)} / {same.numel()} "
                       f"({len(wrong) / same.numel():.1%})\nThe first mismatched element is at index {tuple(wrong[0].tolist())}.")


_LAYOUTS = {torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc,
            torch.jagged}


_PARTS = {torch.sparse_csr: ("crow_indices", "col_indices"), torch.sparse_bsr: ("crow_indices", "col_indices"),
          torch.sparse_csc: ("ccol_indices", "row_indices"), torch.sparse_bsc: ("ccol_indices", "row_indices")}


def _numpy_scalars(name: str) -> tuple[Any, ...]:
    """NumPy's class of that name, where NumPy is loaded: a program without it has no such values."""
    numpy = sys.modules.get("numpy")
    return (getattr(numpy, name),) if numpy is not None else ()


def _ratio(gap: Any, expected: Any) -> float:
    return gap / abs(expected) if expected else torch.inf


def scalar_mismatch(actual: Any, expected: Any, rtol: float, atol: float, name: str = "Scalars") -> str:
    """By how much two numbers differ."""
    word = "equal" if not rtol and not atol else "close"
    by_atol, by_rtol = (f" (up to {atol} allowed)", f" (up to {rtol} allowed)") if word == "close" else ("", "")
    gap = abs(actual - expected)
    return (f"{name} are not {word}!\n\nExpected {expected} but got {actual}.\n"
            f"Absolute difference: {gap}{by_atol}\nRelative difference: {_ratio(gap, expected)}{by_rtol}")


def tensor_mismatch(actual: Any, expected: Any, wrong: Any, rtol: float, atol: float, name: str = "Tensor-likes") -> str:
    """How many items differ, and by how much at most."""
    if actual.dim() == 0:
        return scalar_mismatch(actual.item(), expected.item(), rtol, atol, "Scalars" if name == "Tensor-likes" else name)
    word = "equal" if not rtol and not atol else "close"
    count, total = int(wrong.sum()), wrong.numel()
    if not actual.is_floating_point() and not actual.is_complex():
        actual, expected = actual.to(torch.int64), expected.to(torch.int64)
    right = wrong.logical_not()
    gap = (actual - expected).abs().masked_fill(right, 0)
    ratio = (gap / expected.abs()).masked_fill(right, 0)       # 0 / 0 is no difference
    lines = [f"{name} are not {word}!", "", f"Mismatched elements: {count} / {total} ({count / total:.1%})"]
    for kind, values, bound in (("absolute", gap, atol), ("relative", ratio, rtol)):
        largest, place = values.reshape(-1).max(0)
        index = tuple(int(i) for i in torch.unravel_index(place, tuple(values.shape)))
        allowed = f" (up to {bound} allowed)" if word == "close" else ""
        lines.append(f"Greatest {kind} difference: {largest.item()} at index {index}{allowed}")
    return "\n".join(lines)


def originate_pairs(actual: Any, expected: Any, *, pair_types: Any,
                    sequence_types: Any = (collections.abc.Sequence,), mapping_types: Any = (collections.abc.Mapping,),
                    id: tuple[Any, ...] = (), **options: Any) -> Iterator[Pair]:
    """The pairs of leaves, in order; raises ErrorMeta where the structures differ or no kind handles two leaves."""
    below = {"pair_types": pair_types, "sequence_types": sequence_types, "mapping_types": mapping_types, **options}
    is_text = isinstance(actual, str) or isinstance(expected, str)
    if not is_text and isinstance(actual, sequence_types) and isinstance(expected, sequence_types):
        if len(actual) != len(expected):
            raise ErrorMeta(AssertionError, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", id=id)
        for index in range(len(expected)):
            yield from originate_pairs(actual[index], expected[index], id=(*id, index), **below)
    elif isinstance(actual, mapping_types) and isinstance(expected, mapping_types):
        keys, others = set(actual.keys()), set(expected.keys())
        if keys != others:
            raise ErrorMeta(AssertionError, "The keys of the mappings do not match:\n"
                            f"Missing keys in the actual mapping: {sorted(others - keys, key=str)}\n"
                            f"Additional keys in the actual mapping: {sorted(keys - others, key=str)}", id=id)
        with contextlib.suppress(Exception):       # keys that do not compare stay in their order
            keys = sorted(keys)                    # type: ignore[assignment]
        for key in keys:
            yield from originate_pairs(actual[key], expected[key], id=(*id, key), **below)
    else:
        yield _pair_of(actual, expected, pair_types, id, options)


def _pair_of(actual: Any, expected: Any, pair_types: Any, id: tuple[Any, ...], options: dict[str, Any]) -> Pair:
    for kind in pair_types:
        with contextlib.suppress(UnsupportedInputs):
            return kind(actual, expected, id=id, **options)
    raise ErrorMeta(TypeError, f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.",
                    id=id)


def not_close_error_metas(actual: Any, expected: Any, *, pair_types: Any = (ObjectPair,),
                          sequence_types: Any = (collections.abc.Sequence,),
                          mapping_types: Any = (collections.abc.Mapping,), **options: Any) -> list[ErrorMeta]:
    """What differs: nothing, what the structures differ in, or every pair of leaves that does."""
    kinds = {"pair_types": pair_types, "sequence_types": _as_tuple(sequence_types), "mapping_types": _as_tuple(mapping_types)}
    try:
        pairs = list(originate_pairs(actual, expected, **kinds, **options))
    except ErrorMeta as meta:
        raise meta.to_error() from None
    found: list[ErrorMeta] = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as meta:
            found.append(meta)
    return found


def _as_tuple(types: Any) -> tuple[type, ...]:
    return tuple(types) if isinstance(types, (tuple, list)) else (types,)


def _unwrap_dtensor_for_comparison(actual: Any, expected: Any) -> tuple[Any, Any]:
    """The values themselves: no tensor is spread over processes."""
    return actual, expected
