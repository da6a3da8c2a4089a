"""The op table: `op` and `composite` turn schema rows into ops. The rows live in the family files beside."""
from __future__ import annotations

import ast
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mindtorch_v2 import _C
from mindtorch_v2._ops.describe import Description
from mindtorch_v2._ops.namespace import ops
from mindtorch_v2._ops.returns import returns_class
from mindtorch_v2._row import Npu
from mindtorch_v2._schema import Schema, parse

Spec: TypeAlias = "tuple[Sequence[int], _C.dtype]"   # shape and dtype of an output, as a rule returns them
functions: dict[str, Any] = {}         # what torch.<name> is
methods: dict[str, Any] = {}           # what Tensor.<name> is
namespaces: dict[str, dict[str, Any]] = {"nn": {}, "linalg": {}, "special": {}, "fft": {}}
rows: list[tuple[Schema, dict[str, Any]]] = []   # every row as written, for tests and tools
npu_functions: dict[str, Any] = {}     # what torch.ops.npu.<name> is: torch_npu's own ops, see npu/
npu_rows: list[tuple[Schema, dict[str, Any]]] = []   # the rows of those
AUTOCAST_DEVICES = ("cpu", "npu")   # device types that autocast knows
_DESCRIPTION = Description()
_formulas: dict[str, int] = {}         # op name -> rows with a gradient so far


class Pointwise(str):
    """A rule: shapes broadcast, dtypes promote, and the result's dtype follows as the word says."""


_NODES = {                             # where torch counts otherwise than by the order of rows here, or splits ops otherwise
    "multilabel_margin_loss_forward": "MultilabelMarginLossBackward0",
    "copy_": "torch::autograd::CopyBackwards", "max": "MaxBackward1", "max.dim": "MaxBackward0", "min": "MinBackward1",
    "min.dim": "MinBackward0",
    "median.dim": "MedianBackward1", "nanmedian.dim": "NanmedianBackward1", "lerp.Tensor": "LerpBackward1",
    "random_": "RandomBackward2", "random_.from": "RandomBackward0",
    "nll_loss_forward": "NllLossBackward0", "nll_loss2d_forward": "NllLoss2DBackward0", "_cross_entropy": "NllLossBackward0",
    "_clamp_number": "ClampBackward1", "_clamp_tensor": "ClampBackward0", "_clamp_min_tensor": "ClampMinBackward1",
    "_clamp_max_tensor": "ClampMaxBackward1", "_square": "PowBackward0", "_div_trunc": "DivBackward2", "_div_floor": "DivBackward2",
    "_index_put_list_": "IndexPutBackward0", "_bag": "EmbeddingBagBackward0", "_smooth_l1": "SmoothL1LossBackward0",
    "_bce": "BinaryCrossEntropyBackward0", "_bce_logits": "BinaryCrossEntropyWithLogitsBackward0", "relu6": "HardtanhBackward0",
    "_attention": "ScaledDotProductFlashAttentionForCpuBackward0",
    "_dropout": "MulBackward0", "_matrix_exp": "LinalgMatrixExpBackward0", "prelu": "PreluKernelBackward0",
    "_cdist_apart": "CdistBackward0", "_cdist_slopes": "CdistBackwardBackward0",
    "_pdist_apart": "PdistBackward0", "_pdist_slopes": "PdistBackwardBackward0",
}


def _read_shown() -> dict[str, tuple[str, dict[str, Any], bool]]:
    """The lines of shown.txt: (op, further arguments, whether these are given by name)."""
    found = {}
    with open(os.path.join(os.path.dirname(__file__), "shown.txt"), encoding="utf-8") as file:   # pathlib costs 4 ms
        for line in file:
            if not line.startswith("#"):
                part, name, *words = line.replace(": ", " ", 1).split()
                pairs = [word.lstrip("*").split("=") for word in words]
                found[part] = name, {key: ast.literal_eval(value) for key, value in pairs}, "*" in line
    return found


_SHOWN = _read_shown()


def numbered(parameter: str) -> Callable[[Any], str]:
    """`several` of a row that is two ops in torch: the second has this parameter."""
    return lambda node: f"{_camel(node._op_name)}Backward{int(node._value(parameter) is not None)}"


def _camel(name: str) -> str:
    return "".join(part.title() for part in name.strip("_").split("_"))


def _node_name(name: str, overload: str, grad: Any) -> str:
    """What torch calls the node of a row: rows of one name are numbered, except where torch does it otherwise."""
    if not grad:
        return ""
    _formulas[name] = _formulas.get(name, -1) + 1
    return _NODES.get(f"{name}.{overload}" if overload else name) or f"{_camel(name)}Backward{_formulas[name]}"


def _publish(name: str, function: Any, variants: str) -> None:
    """Puts an op where torch has it: `function`, `method`, or a namespace such as `linalg`."""
    if function.namespace.startswith("npu"):     # names of torch_npu, which torch may have too; npu_calls have no public name
        if function.namespace == "npu":
            npu_functions[name] = function
        return
    if function.namespace != "Tensor":           # else a method that takes its arguments in another order than the function
        setattr(ops, name, function)
    for variant in variants.replace(",", " ").split():
        if variant == "function":
            functions[name] = function
        elif variant == "method":
            methods[name] = function
        else:
            namespaces[variant][name.removeprefix(variant + "_")] = function


def op(schema: str, *, rule: Any = None, kernel: str | Callable[..., Any] | None = None, view: str | None = None,
       native: str | None = None, body: Callable[..., Any] | None = None,
       grad: Mapping[str, Callable[..., Any] | str] | None = None, npu: str | Npu | None = None,
       numbers: bool | str | None = None, copies_self: bool = False, inplace: bool | str | None = None,
       out: bool | str | tuple[str | Callable[..., Any], ...] | Callable[..., Any] = True, guard: str | None = None,
       autocast: str | dict[str, str] | None = None,
       batch: Any = None, forward: Callable[..., Any] | None = None,
       refuses: Mapping[str, str | Exception] | None = None, lacks: str = "", variants: str = "function, method",
       namespace: str = "torch",
       format: str | None = None, doc: str | None = None, whole: bool | str = False, writes: str = "", node: bool = False,
       several: Callable[[Any], str] | None = None, keeps: bool = False) -> Any:
    """One row: an op (or a further overload of one) from its schema, rule, kernel and gradient.

    kernel: the library's name for it where that is not the op's, or a function for all devices: of (outs, args), and of
    the arguments where there is no rule. npu: its call of CANN, or all of them as an Npu. out: whether torch offers
    out=; or a function that serves out= in place of the op, where the result depends on the tensor, which comes first: it
    gives the result, or that tensor when it has written to it; "apart": it must not share memory with an argument;
    "exact" or "casts": whether it must have the result's dtype (rows with a kernel: it must), and words that refuse another
    ({result}, {out}: torch's names of both dtypes; with "casts": one that it cannot be cast to); a tuple of these.
    guard: which arguments torch refuses (GUARDS of
    _C/pointwise.pxi). autocast, in the first row of an op: what torch.autocast does with the tensors of all overloads
    (CAST_POLICIES of _C/autocast.pxi), on every device type or by it. Without it they stay as they are, and a composite is
    cast where its parts are. batch: how vmap runs it (batching.py); pointwise ops and composites need none, others without
    one run sample by sample. forward: the derivative along tangents (forward.py), where it does not follow from grad.
    format: the tensors from which outputs take channels last ("input weight"), or the order of memory ("=self"); or the
    outputs, by number, that hold matrices column by column ("|0 |2"; "|0?left": where the flag left is set).
    refuses: what torch says of a pointwise op's dtypes without a kernel: {"complex": words}, or of bool, int, float;
    an exception is raised as it is.
    lacks: dtypes of the first tensor (of a pointwise op: of what is computed) that torch has no kernel for on a cpu; int,
    half and complex stand for several.
    whole: dispatch modes and __torch_dispatch__ see a composite itself, not its parts; "unrecorded": unless a gradient is wanted,
    which the history of the parts gives.
    writes: the tensors besides self that the kernel changes ("running_mean running_var").
    several: what torch calls a node, where the row is several ops there.
    keeps: the first argument may change before backward, for torch computes something else of it and saves that.
    node: a composite's formulas are its history, also where its parts compute it; its body gives new tensors.
    numbers: whether numbers may stand for tensors: True, "other": but not for the first, "all": for all at once."""
    # grad=None: recorded, and backward refuses; grad={}: the results have no history, as in torch; {"target": "name"}: refused
    # in that op's name where the target needs a gradient, {"complex": "name"}: where numbers are complex
    parsed = parse(schema)
    npu = Npu(npu) if isinstance(npu, str) else npu
    if body and npu and rule is None:
        raise ValueError(f"{parsed.name}: nothing sizes what {npu.call} would give; a composite needs a rule for that")
    pointwise = isinstance(rule, Pointwise)
    family = ("view" if view else "native" if native else "pointwise" if pointwise else
              "composite" if body else "kernel")
    if lacks and not pointwise:
        body, rule = (_without(lacks, parsed.name, body), rule) if body else (body, _without(lacks, parsed.name, rule))
    mutates = bool(parsed.params and parsed.params[0].mutable)
    shown = _SHOWN.get(parsed.name)
    single = shown is not None and shown[0] == "="
    function = _C._define(
        parsed.name, parsed.overload, schema, [tuple(p) for p in parsed.params], parsed.returns,
        family=family, mode=str(rule) if pointwise else view or native, kernel=kernel,
        rule=None if pointwise else rule, body=body, grad=grad,
        numbers=pointwise if numbers is None else numbers, copies_self=copies_self or (mutates and not body),
        npu=npu, namespace=namespace,
        returns_class=None if namespace.startswith("npu") else returns_class(parsed.name, parsed.returns),
        written_class=None if namespace.startswith("npu") or out is False else returns_class(parsed.name, parsed.returns, True),
        node_name=_node_name(parsed.name, parsed.overload, grad), several=several, keeps=keeps,
        out=out, guard=guard, batching=batch, forward=forward,
        refuses=dict(refuses) if refuses else None,
        description=_DESCRIPTION, format=format, writes=writes, node=node,
        whole=whole or body is not None and single and "single", shown=None if single else shown,
        lacks=tuple(map(_C._dtype_named, _dtype_names(lacks))) if pointwise else (),
        autocast=dict.fromkeys(AUTOCAST_DEVICES, autocast) if isinstance(autocast, str) else autocast)
    if doc or body is not None:
        function.doc = doc or body.__doc__ or function.doc
    written = npu_rows if namespace.startswith("npu") else rows
    written.append((parsed, {"npu": npu, "rule": rule, "grad": grad, "body": body, "kernel": kernel,
                             "autocast": autocast}))
    _publish(parsed.name, function, variants)
    if pointwise if inplace is None else inplace:
        name = parsed.name + "_"
        if not hasattr(ops, name):
            where = "function, method" if "function" in variants else "nn" if "nn" in variants else "method"
            _publish(name, _C._define_inplace(name, function), inplace if isinstance(inplace, str) else where)
    return function


def _dtype_names(words: str) -> list[str]:
    """Names of dtypes, groups of them spelled out."""
    groups = {"int": "uint8 int8 int16 int32 int64", "half": "float16 bfloat16", "complex": "complex64 complex128"}
    return " ".join(groups.get(word, word) for word in words.split()).split()


def _without(lacks: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule or body that refuses what torch has no kernel for."""
    names = frozenset(_dtype_names(lacks))

    @functools.wraps(function)
    def checked(first: Any, *rest: Any) -> Any:
        if isinstance(first, _C.TensorBase) and first.dtype._name in names and first.is_cpu:
            raise NotImplementedError(f'"{name}" not implemented for \'{_C.TYPE_WORDS[first.dtype._id]}\'')
        return function(first, *rest)
    return checked


def composite(schema: str, **row: Any) -> Callable[[Callable[..., Any]], Any]:
    """An op written in Python from other ops; gradients follow from them.

    With a rule, a backend's one op (npu) and the formulas (grad) serve where they can: the rule may say None, and then
    the body serves. Formulas without a rule are for bodies that give several views of self."""
    return lambda body: op(schema, body=body, **row)


def publish_plain(*given: Callable[..., Any]) -> None:
    """Functions with their own Python signature (varargs and the like) as torch.<name> and ops.<name>."""
    for function in given:
        functions[function.__name__] = function
        setattr(ops, function.__name__, function)


def alias(name: str, target: str, variants: str = "function, method") -> None:
    """A function of its own that is an op by another name, and one for its in-place form when there is one."""
    _publish(name, _C._alias_of(getattr(ops, target), name), variants)
    if hasattr(ops, target + "_") and not name.endswith("_") and variants not in ("linalg", "special", "fft"):
        _publish(name + "_", _C._alias_of(getattr(ops, target + "_"), name + "_"), variants)
