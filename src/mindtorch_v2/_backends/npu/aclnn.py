"""aclnn ops by name: the signature table, plans for the native launcher, and one call for every op of CANN."""
from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import cann_tables
from cann_tables import Argument
from mindtorch_v2 import _C, _config
from mindtorch_v2._backends.npu import acl_loader, cube, errors
from mindtorch_v2._backends.npu import runtime as npu_runtime
from mindtorch_v2._backends.npu.body import Args, Outs, Writer
from mindtorch_v2._row import Npu
from mindtorch_v2._schema import Schema

TENSOR_KINDS = ("tensor", "out", "inout")
FROM_PARAM, FROM_RESULT, FROM_CONSTANT = _C.PLAN_SOURCES
# How a source is read. Three are functions: ones(size), causal(whether), and scratch(tensor or sizes) for a result that
# is not wanted.
READINGS: dict[str, int] = _C.PLAN_READINGS
# The tables' dtypes that torch has too.
_DTYPES = {"bool": "bool", "u8": "uint8", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
           "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
           "c64": "complex64", "c128": "complex128", "u16": "uint16", "u32": "uint32", "u64": "uint64", "c32": "complex32",
           "f8e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3fn", "f8e8m0": "float8_e8m0fnu"}
_C._set_acl_dtypes({name: cann_tables.DTYPES[word] for word, name in _DTYPES.items()})


def signature(name: str) -> tuple[Argument, ...]:
    """The arguments of an op; raises NotImplementedError for a name that is not in the table."""
    found = cann_tables.op(name)
    if found is None or found.arguments is None:
        raise NotImplementedError(f"[{name}] is not an aclnn op whose arguments are known")
    return found.arguments


def dtypes_of(argument: Argument) -> frozenset[str]:
    """torch's names of the dtypes that an argument may have; empty where the table does not list them."""
    return frozenset(_DTYPES[word] for word in argument.dtypes if word in _DTYPES)


# ---- plans ----------------------------------------------------------------------------------------------------------
def read_mapping(mapping: str) -> tuple[str, list[str]]:
    """("aclnnAdd", ["self", "other", "alpha", "out"]) of "aclnnAdd(self, other, alpha, out)"."""
    name, _, rest = mapping.removesuffix(")").partition("(")
    return name, [word.strip() for word in rest.split(",")] if rest else []


class Source(NamedTuple):
    """Where an argument of an aclnn op comes from: a parameter or result by its place, or a constant; and how it is
    read: a number of READINGS, with a dim (size), names (choice) or a further source (ones, causal, scratch)."""
    kind: int
    at: Any
    reading: int = 0
    detail: Any = None
    otherwise: Source | None = None                      # what stands for None


class Reader:
    """Reads the words of a mapping for one row."""

    def __init__(self, schema: Schema, extra: Sequence[str]) -> None:
        self.params = [p.name for p in schema.params] + list(extra)
        self.returns = [name for _, name in schema.returns]
        self.changes_self = bool(schema.params) and schema.params[0].mutable
        self.generator = next((i for i, p in enumerate(schema.params) if p.kind == "Generator"), None)

    def source(self, word: str) -> Source:
        word, _, otherwise = word.partition("=")
        made = self._read(word)
        return made._replace(otherwise=self.source(otherwise)) if otherwise else made

    def _read(self, word: str) -> Source:
        function = re.fullmatch(r"(ones|causal|scratch)\((.*)\)", word)
        if function:
            return Source(FROM_CONSTANT, None, READINGS[function[1]], self.source(function[2]))
        choice = re.fullmatch(r"(\w+)\[(.*)\]", word)
        if choice:
            names = choice[1], tuple(choice[2].split("|"))
            return self._place(choice[1])._replace(reading=READINGS["choice"], detail=names)
        if word in ("seed", "offset") and word not in self.params:
            return Source(FROM_PARAM, self.generator, READINGS[word])
        read = re.fullmatch(r"([a-z]\w*)\.(mT|row|rows|size)(?:\((-?\d+)\))?", word)
        if read:
            return self._place(read[1])._replace(reading=READINGS[read[2]], detail=read[3] and int(read[3]))
        return self._place(word)

    def _place(self, word: str) -> Source:
        if word in self.params and not (word == self.params[0] and self.changes_self):
            return Source(FROM_PARAM, self.params.index(word))
        if self.params and word == self.params[0]:       # an op that changes self: the launcher gets it as its result
            return Source(FROM_RESULT, 0)
        if word in self.returns:
            return Source(FROM_RESULT, self.returns.index(word))
        if re.fullmatch(r"out\d*", word):
            return Source(FROM_RESULT, int(word[3:] or 0))
        return Source(FROM_CONSTANT, _literal(word))


def _literal(word: str) -> Any:
    if word in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[word]
    if word.startswith("'"):
        return word.strip("'")
    return float(word) if "." in word or "e" in word else int(word)


def build_plan(name: str, sources: Sequence[Source], kept: bool = True) -> Any:
    """A plan from where each argument of the op comes from."""
    args = signature(name)
    if len(args) != len(sources):
        raise TypeError(f"[{name}] takes {len(args)} arguments ({', '.join(a.name for a in args)}), got {len(sources)}")
    bind()
    at = next((i for i, a in enumerate(args) if a.name == cube.ARGUMENT and sources[i].kind == FROM_CONSTANT), None)
    described = [(_C.PLAN_KINDS[a.kind], s._replace(at=cube.math_type(name)) if i == at else s, a.dense, _takes(a), _ranks(a, s))
                 for i, (a, s) in enumerate(zip(args, sources, strict=True))]
    made = _C.NpuPlan(name, acl_loader.symbol(name + "GetWorkspaceSize"), acl_loader.symbol(name), described, kept)
    if at is not None:
        _products.append((made, at))
    return made


_products: list[tuple[Any, int]] = []            # plans of float32 products, and which argument says how they may round


def allow_rounding() -> None:
    """Said where the settings in cube.py changed: plans that were made before follow them."""
    for made, at in _products:
        made.set_constant(at, cube.math_type(made.name))


def _takes(argument: Argument) -> int:
    """The dtypes of a tensor argument as bits; 0 where the table says nothing."""
    return _bits(_C._dtype_named(name)._id for name in dtypes_of(argument)) if argument.kind in TENSOR_KINDS else 0


def _ranks(argument: Argument, source: Source) -> int:
    """The ranks of a tensor argument as bits; 0 where any will do."""
    low, high = argument.ranks
    free = high - low == cann_tables.MAX_RANK or source.reading in (READINGS["row"], READINGS["rows"])
    return 0 if free else _bits(range(low, high + 1))


def _bits(places: Iterable[int]) -> int:
    return sum(1 << place for place in places)


# dtype -> those that hold all its values, the nearest first
_WIDER = {"bool": ("uint8", "int32", "int64", "float32"), "uint8": ("int16", "int32", "int64", "float32"),
          "int8": ("int16", "int32", "int64", "float32"), "int16": ("int32", "int64", "float32"), "int32": ("int64",),
          "float16": ("float32",), "bfloat16": ("float32",)}


def _recast(plan: Any, sources: tuple[Source, ...], fallback: Writer | None, outs: Outs, given: Args) -> None:
    """Launches with tensors of dtypes that the op takes, where that costs no digit; else the fallback serves, or CANN
    refuses."""
    args = signature(plan.name)
    given_dtypes = {t.dtype._name for t in given if isinstance(t, _C.TensorBase)}
    result = next(out for out in outs if out is not None)
    held = {FROM_PARAM: list(given), FROM_RESULT: list(outs)}
    targets = [(source, name) for argument, source in zip(args, sources, strict=True) if source.kind in held and
               (name := _target(argument, held[source.kind][source.at], result.dtype, given_dtypes)) is not None]
    lossy = ("",) if result.is_floating_point() else ("", "float32")    # sums of integers do not fit
    if fallback is not None and (not targets or any(name in lossy for _, name in targets)):   # no target: a rank
        fallback(outs, given)
        return
    for source, name in targets:
        if name:
            held[source.kind][source.at] = held[source.kind][source.at].detach().to(_C._dtype_named(name))
    try:
        _C._npu_call(plan, result.device.index, tuple(held[FROM_PARAM]), tuple(held[FROM_RESULT]))
    except RuntimeError as error:
        taken = [f"{a.name} in {', '.join(sorted(dtypes_of(a)))}" for a in args if a.dtypes]
        error.args = (f"{error}\n{plan.name} takes {'; '.join(taken)}", *error.args[1:])
        raise
    for out, made in zip(outs, held[FROM_RESULT], strict=True):
        if made is not out:
            out.detach().copy_(made)


def _target(argument: Argument, t: Any, result: Any, given: set[str]) -> str | None:
    """The dtype that an argument is cast to; "": none will do; None: it stays as it is."""
    taken = dtypes_of(argument)
    if argument.kind not in TENSOR_KINDS or not isinstance(t, _C.TensorBase) or not taken or t.dtype._name in taken:
        return None
    wider = _WIDER.get(t.dtype._name, ())
    if argument.kind == "out" and t.dtype._name == "float64" and "float64" not in given:
        wider = ("float32",)                                 # out= of a wider dtype than torch computes in
    elif t.dtype._name not in _DTYPES.values():
        return ""                                            # CANN casts no dtype that it does not have
    elif result.is_floating_point and not t.is_floating_point() and not t.is_complex():
        wider = (result._name, "float32", *wider)            # torch computes in the result's dtype
    return next((name for name in wider if name in taken), "")


def plan(forms: Npu, schema: Schema, extra: Sequence[str] = (), kept: bool | None = None,
         fallback: Writer | None = None) -> Any:
    """The plan of a row. Each of its calls is an aclnn op with words: a parameter, a result ("out", "out1" or its name)
    or a literal. A tensor may be read as `.mT` (last two dims exchanged), `.row` (a number as a vector of one item),
    `.rows` (a matrix of all its rows) or `.size(k)`; `mode[a|b]` is the place of a word; `eps=1e-5` says what stands for
    None, which may be ones(…) or scratch(…); `seed` and `offset` are the generator's.

    extra: names of values that the caller appends to the parameters. kept: whether prepared calls are; those that draw
    are not. fallback: what serves where no lossless cast gives dtypes that CANN takes."""
    kept = not draws(forms) if kept is None else kept
    read = functools.partial(_plan, schema=schema, extra=extra, kept=kept, fallback=fallback)
    made, names = read(forms.call), [p.name for p in schema.params]
    for param, call_ in forms.number.items():
        if has(read_mapping(call_)[0]):
            made.for_number(names.index(param), read(call_))
    if forms.without_optional is not None:
        made.where_none(_needed(forms.call, schema), read(forms.without_optional))
    return made


def draws(forms: Npu) -> bool:
    """Whether a row's call takes random numbers."""
    return "seed" in read_mapping(forms.call)[1]


def _needed(mapping: str, schema: Schema) -> int:
    """The parameter of a call that may be None although CANN needs it."""
    name, words = read_mapping(mapping)
    params = {p.name: i for i, p in enumerate(schema.params) if p.optional}
    words = [word.partition(".")[0] for word in words]
    return next(params[word] for word, argument in zip(words, signature(name), strict=True)
                if word in params and not argument.optional)


def _plan(mapping: str, schema: Schema, extra: Sequence[str], kept: bool, fallback: Writer | None) -> Any:
    name, words = read_mapping(mapping)
    sources = [Reader(schema, extra).source(word) for word in words]
    made = build_plan(name, sources, kept)
    made.fallback = functools.partial(_recast, made, tuple(sources), fallback)
    inplace = "aclnnInplace" + name.removeprefix("aclnn")
    if words[-1:] == ["out"] and _argument_count(inplace) == len(words) - 1 and has(inplace):
        made.in_place = build_plan(inplace, sources[:-1], kept)
        made.in_place.fallback = made.fallback               # CANN's form with an out takes more dtypes
    return made


def _argument_count(name: str) -> int:
    found = cann_tables.op(name)
    return len(found.arguments or ()) if found else -1


def has(name: str) -> bool:
    """Whether the installed CANN has an op."""
    try:
        acl_loader.symbol(name + "GetWorkspaceSize")
    except errors.MissingSymbolError:
        return False
    return True


# ---- calling --------------------------------------------------------------------------------------------------------
def bind() -> None:
    """Gives the launcher CANN's functions, once per start of the runtime."""
    if not _C._npu_is_bound():
        _C._npu_bind([acl_loader.symbol(name) for name in _C.API_NAMES], npu_runtime.bind_thread, _failure,
                     _not_destroyed, bind)


def pause_blocking(paused: bool) -> None:
    """Suspends or resumes the waits of ACL_LAUNCH_BLOCKING: synchronizing is illegal while a graph is captured."""
    _C._npu_pause_blocking(paused)


def finish(device: int) -> None:
    """Said at the end of work that is no launch, a copy: waits for it where ops are waited for."""
    if _C._npu_is_blocking():
        _wait(device)


def _wait(device: int) -> None:
    npu_runtime.get_runtime(device).synchronize()


_C._npu_set_blocking(*_config.launch_blocking_source(), _wait, errors.of_op)


def _unbind(_device: int) -> None:
    if _C._npu_is_bound():
        _C._npu_unbind()


npu_runtime.on_close(_unbind)


def _failure(name: str, code: int, call: str, function: str) -> Exception:
    """The exception for a launch that failed; call is the op with its arguments, function what failed around it."""
    what = f"{function} of {name}" if function else name
    if code == -1:                                           # no status: a function returned no object
        return errors.error_of(errors.NO_OBJECT, what, call)
    return errors.error_of(code, what, call)


def _not_destroyed(function: str, code: int) -> None:
    """An object of an op could not be destroyed; nothing can be done about it, and the work goes on."""
    warnings.warn(f"an object of an aclnn op is leaked: {errors.describe(code, function)}", RuntimeWarning, stacklevel=2)


@functools.cache
def plan_of(name: str, kept: bool = True) -> Any:
    """The plan that takes an op's own arguments in their order."""
    return build_plan(name, [Source(FROM_PARAM, i) for i in range(len(signature(name)))], kept)


def call(name: str, *arguments: Any, device: Any = None) -> None:
    """Launches an aclnn op by name, arguments in CANN's order, outputs included: call("aclnnAdd", a, b, 1, out)."""
    if device is None:
        device = next((t.device.index for a in arguments for t in (a if isinstance(a, (list, tuple)) else (a,))
                       if isinstance(t, _C.TensorBase) and t.is_npu), npu_runtime.current_device())
    npu_runtime.bind_thread(device)
    made = plan_of(name)
    if len(arguments) != len(signature(name)):
        raise TypeError(f"[{name}] takes {len(signature(name))} arguments "
                        f"({', '.join(a.name for a in signature(name))}), got {len(arguments)}")
    _C._npu_call(made, device, arguments)


def launch(name: str, out: Any, *arguments: Any) -> None:
    """One aclnn op on the device of out, arguments in CANN's order; nothing where out has no items."""
    if out.numel():
        _C._npu_call(plan_of(name), out.device.index, arguments)


def _on(runtime: Any, name: str, *arguments: Any) -> None:
    call(name, *arguments, device=runtime.device_id)


def add(self: Any, other: Any, out: Any, runtime: Any, alpha: Any = 1) -> None:
    """out = self + alpha * other"""
    _on(runtime, "aclnnAdd", self, other, alpha, out)


def mul(self: Any, other: Any, out: Any, runtime: Any) -> None:
    """out = self * other"""
    _on(runtime, "aclnnMul", self, other, out)


def relu(self: Any, out: Any, runtime: Any) -> None:
    """out = max(self, 0)"""
    _on(runtime, "aclnnRelu", self, out)


def reduce_sum(self: Any, out: Any, dim: Sequence[int], keepdim: bool, runtime: Any) -> None:
    """out = self summed over dim"""
    _on(runtime, "aclnnReduceSum", self, dim, keepdim, out.dtype, out)


def matmul(self: Any, mat2: Any, out: Any, runtime: Any, cube_math_type: int = 0) -> None:
    """out = self @ mat2"""
    _on(runtime, "aclnnMatmul", self, mat2, out, cube_math_type)


def inplace_one(self: Any, runtime: Any) -> None:
    """Every item of self becomes 1."""
    _on(runtime, "aclnnInplaceOne", self)


def inplace_zero(self: Any, runtime: Any) -> None:
    """Every item of self becomes 0."""
    _on(runtime, "aclnnInplaceZero", self)


# ---- probes (the front door shows them as torch._C._npu_aclnn_*) ----------------------------------------------------
def available() -> bool:
    """Whether CANN's op library can be loaded here."""
    return _are_there("aclCreateTensor")


def symbols_ok() -> bool:
    """Whether every function that the launcher itself needs is there."""
    return _are_there(*_C.API_NAMES)


def _are_there(*names: str) -> bool:
    try:
        for name in names:
            acl_loader.symbol(name)
    except (ImportError, OSError, RuntimeError):         # no CANN, one that does not load, one without the function
        return False
    return True
