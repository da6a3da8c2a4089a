"""Documentation of ops for help() and tools: signatures and text, made from the rows on first use."""
from __future__ import annotations

import functools
import inspect
import keyword
import os
import re
import sys
from inspect import Parameter, Signature
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._function_schema import FunctionSchema
from mindtorch_v2._ops import call_errors, overloads
from mindtorch_v2._ops.returns import returns_class
from mindtorch_v2._schema import Param, Schema, parse

SEARCH = "https://docs.pytorch.org/docs/stable/search.html?q="
# A kind of parameter in the words of Python's annotations.
_WORDS = {"Tensor": "Tensor", "Tensor[]": "Sequence[Tensor]", "Scalar": "Number", "Scalar[]": "Sequence[Number]",
          "int": "int", "int[]": "Sequence[int]", "float": "float", "float[]": "float | Sequence[float]", "bool": "bool",
          "bool[]": "Sequence[bool]", "str": "str", "ScalarType": "dtype", "Device": "device | str | int",
          "Layout": "layout", "MemoryFormat": "memory_format", "Generator": "Generator", "any": "Any"}
_RESULTS = {"Tensor": "Tensor", "Tensor[]": "tuple[Tensor, ...]", "Scalar": "Number", "int": "int", "float": "float",
            "bool": "bool", "str": "str", "ScalarType": "dtype", "int[]": "tuple[int, ...]",
            "SymInt": "int"}


class Written(str):
    """An annotation that a signature shows as it is written, without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _annotation(param: Param, numbers: bool, schema: str) -> Written:
    """The type of an argument, as one writes it."""
    word = _WORDS[param.kind]
    if param.kind == "Tensor" and numbers:
        word = "Tensor | Number"
    elif param.kind == "Tensor[]" and "Tensor?[]" in schema:
        word = "Sequence[Tensor | None]"
    elif param.kind == "int[]" and param.list_size:
        word = "int | Sequence[int]"
    return Written(word + " | None" if param.optional or not param.required and param.default is None else word)


def _returns(schema: Schema) -> Written:
    """The type of the result; named results are a class of torch.return_types."""
    kinds = [_RESULTS[re.sub(r"\([^)]*\)|\?", "", kind)] for kind, _ in schema.returns]
    if returns_class(schema.name, schema.returns) is not None:
        return Written(f"return_types.{schema.name}")
    return Written("None" if not kinds else kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]")


def _parameters(overload: Any, schema: Schema) -> list[Parameter]:
    made: list[Parameter] = []
    for param in schema.params:
        name = "input" if param.name == "self" else param.name
        kind: Any = Parameter.KEYWORD_ONLY if param.keyword_only else Parameter.POSITIONAL_OR_KEYWORD
        if keyword.iskeyword(name):            # `from` of random_: it cannot be written as a keyword
            name, kind = name + "_", Parameter.POSITIONAL_ONLY
            made = [p.replace(kind=kind) for p in made]
        if param.required and not param.keyword_only:      # what comes before it cannot be left out
            made = [p.replace(default=Parameter.empty) for p in made]
        made.append(Parameter(name, kind, default=Parameter.empty if param.required else param.default,
                              annotation=_annotation(param, overload.numbers, overload.schema)))
    return made


def _with_rest(parameters: list[Parameter], schema: Schema) -> list[Parameter] | None:
    """The form whose last positional int[] is the rest of the arguments, x.view(2, 3); None where there is none."""
    last = sum(not p.keyword_only for p in schema.params) - 1
    if last not in (0, 1) or schema.params[last].kind != "int[]" or last == 1 and schema.params[0].kind != "Tensor":
        return None
    rest = Parameter(parameters[last].name, Parameter.VAR_POSITIONAL, annotation=Written("int"))
    before = [p.replace(kind=Parameter.POSITIONAL_ONLY) for p in parameters[:last]]
    return [*before, rest, *parameters[last + 1:]]


def _takes_out(op: Any, overload: Any, schema: Schema) -> bool:
    """Whether torch offers out=: for functions that give tensors and change none."""
    return (overload.takes_out and op.inplace_of is None and not overload.mutates and bool(schema.returns)
            and all(kind.startswith("Tensor") for kind, _ in schema.returns)
            and not op.name.startswith("_foreach_") and not any(p.name == "out" for p in schema.params)
            and any(not place.startswith("torch.Tensor.") for place in places(op)))


def signatures(op: Any) -> list[Signature]:
    """How an op can be called, overload by overload."""
    made = []
    for overload in op.overloads:
        schema = parse(overload.schema)
        parameters, returns = _parameters(overload, schema), _returns(schema)
        if op.inplace_of is not None:
            returns, parameters[0] = Written("Tensor"), parameters[0].replace(annotation=Written("Tensor"))
        for form in filter(None, [parameters, _with_rest(parameters, schema)]):
            if _takes_out(op, overload, schema):
                word = "Tensor | None" if len(schema.returns) == 1 else "Sequence[Tensor] | None"
                form.append(Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation=Written(word)))
            made.append(Signature(form, return_annotation=returns))
    return made


def signature(op: Any) -> Signature:
    """That of the first overload: a Signature can say one. The others are in the text."""
    return signatures(op)[0]


def text_signature(op: Any) -> str:
    """The same without types, as builtins have it."""
    bare = [p.replace(annotation=Parameter.empty) for p in signature(op).parameters.values()]
    return str(Signature(bare))


def places(op: Any) -> list[str]:
    """Where torch has the op: torch.add, torch.Tensor.add."""
    torch = sys.modules["mindtorch_v2"]
    prefix, _, rest = op.name.partition("_")
    known = [("torch.", torch, op.name), ("torch._C._nn.", _C._nn, op.name), ("torch.Tensor.", torch.Tensor, op.name)]
    if op.__module__.endswith("." + prefix):
        known.append((f"torch.{prefix}.", getattr(torch, prefix), rest))
    return [place + word for place, holder, word in known if getattr(vars(holder).get(word), "function", None) is op]


def _way(overload: Any, device: str) -> Any:
    """What serves a row on a device; a row over lists names its call of CANN in its body."""
    listed = getattr(overload.body, "npu", None) if device == "npu" else None
    return listed or _C._served_by(overload, device)


def _devices(op: Any) -> str:
    """What serves the op on each device."""
    words = {"core": "the core", "kernel": "a kernel", "composite": "composed of other ops", "": "no kernel"}
    said: list[str] = []
    for device in ("cpu", "npu"):
        ways = [_way(overload, device) for overload in op.overloads]
        shown = [call for way in ways for call in re.findall(r"aclnn\w+", str(way))]
        shown += [words[way] for way in ways if isinstance(way, str) and way in words]
        said.append(f"    {device}: {', '.join(dict.fromkeys(shown))}")
    return "\n".join(said)


@functools.cache
def _sentences() -> dict[str, str]:
    """Of the ops whose rows have no place for one."""
    with open(os.path.join(os.path.dirname(__file__), "sentences.txt"), encoding="utf-8") as file:   # pathlib costs 4 ms
        return dict(line.rstrip("\n").split(": ", 1) for line in list(file)[1:])


def sentence(op: Any) -> str:
    """What the op does, in one sentence; "" where there is none."""
    if op.inplace_of is not None:
        return op.doc or f"{op.inplace_of.name}(), in place."
    return op.doc or (_sentences().get(op.name, "") if op.namespace == "torch" else "")


def document(op: Any) -> str:
    """Every form of the call, what it does, the rows, where torch has it, and what serves it on which device."""
    name = op.name.removeprefix(op.name.partition("_")[0] + "_") if op.__module__.count(".") else op.name
    if not op.overloads:
        return sentence(op)
    calls = "\n".join(f"{name}{form}" for form in signatures(op))
    rows = "\n".join("    " + overload.schema for overload in op.overloads)
    parts = [calls, inspect.cleandoc(sentence(op)), f"Schema:\n{rows}"]
    where = places(op)
    if where:
        parts.append("In torch: " + ", ".join(where))
    parts.append(f"Served on\n{_devices(op)}")
    if where and op.namespace == "torch" and not op.name.startswith("_"):
        parts.append(f"PyTorch's page: {SEARCH}{where[0].replace('_C._nn', 'nn.functional')}")
    return "\n\n".join(part for part in parts if part)


def _functions_of_torch() -> Any:
    """The class whose functions those of torch are."""
    return sys.modules["mindtorch_v2"]._C._VariableFunctionsClass


class Description(_C.OpDescription):
    """What the ops of the table show of themselves."""

    def document(self, op: Any) -> str:
        return document(op)

    def signature(self, op: Any) -> Signature:
        return signature(op)

    def text_signature(self, op: Any) -> str:
        return text_signature(op)

    def overloads(self, op: Any) -> dict[str, overloads.Named]:
        return dict(overloads.named(op.name)) if op.namespace in ("torch", "Tensor") else {}

    def overload_of_call(self, op: Any, row: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        return overloads.overload_of_call(op.name, row.names, args, kwargs)

    def call_error(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], method: bool) -> TypeError:
        return call_errors.call_error(op, args, kwargs, method)

    def is_of_layers(self, op: Any) -> bool:
        torch = sys.modules["mindtorch_v2"]
        name = op.name
        return vars(_C._nn).get(name) is op and vars(torch).get(name) is not op

    def shown(self, op: Any) -> str:
        owner = _functions_of_torch()
        place = f"method {op.name} of type object at {id(owner):#x}" if vars(owner).get(op.name) is op else f"function {op.name}"
        return f"<built-in {place}>"

    def reduced(self, op: Any, method: bool) -> Any:
        """As PyTorch pickles its functions, so that either library reads the other's."""
        name, owner = op.name, sys.modules["mindtorch_v2"].Tensor if method else _functions_of_torch()
        if method:
            return (getattr, (owner, name)) if getattr(owner, name, None) is op else None
        if self.is_of_layers(op) or getattr(getattr(_C, f"_{name.partition('_')[0]}", None), name, None) is op:
            return name
        return (getattr, (owner, name)) if vars(owner).get(name) is op else None

    def function_schema(self, text: str) -> FunctionSchema:
        return FunctionSchema(text)
