"""Signatures of torch's ops, and arguments written as a signature names them."""
from __future__ import annotations

import inspect
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility

__all__ = ["ArgsKwargsPair", "check_for_mutable_operation", "get_signature_for_torch_op", "create_type_hint",
           "type_matches", "normalize_function", "normalize_module"]

# Types that are not lists or optional, by the words of schemas.
_KINDS = {"Tensor": torch.Tensor, "Scalar": numbers.Number, "int": int, "float": float, "bool": bool, "complex": complex,
          "str": str, "Device": torch.device, "Generator": torch.Generator}


@compatibility(is_backward_compatible=False)
class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _op_of(target: Any) -> Any:
    if isinstance(target, torch._C.OpOverload):
        return target.overloadpacket._op
    return target._op if isinstance(target, torch._C.OpOverloadPacket) else target


def _hint(kind: Any) -> Any:
    """A type of a schema as Python's annotations have it."""
    if isinstance(kind, torch._function_schema.OptionalType):
        return typing.Optional[_hint(kind.getElementType())]   # noqa: UP045
    if isinstance(kind, torch._function_schema.ListType):
        return typing.List[_hint(kind.getElementType())]   # type: ignore[misc]   # noqa: UP006
    return _KINDS.get(kind.str(), typing.Any)


def _torchscript_type_to_python_type(ts_type: Any) -> Any:
    """A type of a schema, or of a TorchScript annotation, as Python writes it."""
    kinds = {"Tensor": torch.Tensor, "Device": torch.device, "Layout": torch.layout, "number": numbers.Number,
             "Future": torch.futures.Future, "Storage": torch.UntypedStorage, "NoneType": type(None), "t": typing.TypeVar("t")}
    return eval(ts_type.annotation_str, {**vars(typing), **kinds})


def _signature(schema: Any) -> inspect.Signature:
    """The signature of an overload."""
    empty = inspect.Parameter.empty
    made: list[inspect.Parameter] = []
    for param in schema.arguments:
        kind: Any = inspect.Parameter.KEYWORD_ONLY if param.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        name = {"self": "input", "from": "from_"}.get(param.name, param.name)
        if made and not param.has_default_value() and not param.kwarg_only:
            made = [p.replace(default=empty) for p in made]
        made.append(inspect.Parameter(name, kind, default=param.default_value if param.has_default_value() else empty,
                                      annotation=_hint(param.type)))
    returns = [_hint(x.type) for x in schema.returns]
    return inspect.Signature(made, return_annotation=returns[0] if len(returns) == 1 else tuple(returns))


def _schemas(target: Any) -> list[Any]:
    """The schemas of an overload, or of all that an op has."""
    if isinstance(target, torch._C.OpOverload):
        return [target._schema]
    packet = target if isinstance(target, torch._C.OpOverloadPacket) else torch._C._op_packet(target)
    return list(packet._schemas.values())


@compatibility(is_backward_compatible=False)
def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of an op of torch, one for each overload; None for what is not one."""
    found = _op_of(op)
    if not isinstance(found, torch._C.Op):
        return (None, None) if return_schemas else None
    schemas = _schemas(op)
    signatures = [_signature(schema) for schema in schemas]
    return (signatures, schemas) if return_schemas else signatures


@compatibility(is_backward_compatible=False)
def check_for_mutable_operation(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises where a call of an op changes one of its arguments."""
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    matched = []
    for signature, schema in zip(signatures or (), schemas or ()):
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            continue
        matched.append(schema)
    if len(matched) == 1 and matched[0].is_mutable:
        raise RuntimeError(f"Tried to trace mutable operation {matched[0]}. FX only supports functional code, so operations "
                           "that mutate operands in-place (e.g. via `out` arguments) are not supported")


@compatibility(is_backward_compatible=False)
def create_type_hint(x: object) -> object:
    """The type hint of a list or tuple of types: list[int] for [int, int]."""
    if not isinstance(x, (list, tuple)):
        return x

    def make(item: Any) -> Any:
        return types.GenericAlias(list, item) if isinstance(x, list) else types.GenericAlias(tuple, (item, ...))
    if not x:
        return make(typing.Any)
    base = x[0]
    for t in x:
        if issubclass(t, base):
            continue
        if issubclass(base, t):
            base = t
        else:
            return make(typing.Any)
    return make(base)


@compatibility(is_backward_compatible=False)
def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether an argument of a type is valid for the type in a signature."""
    if signature_type is argument_type or signature_type is typing.Any:
        return True
    origin = typing.get_origin(signature_type)
    inside = typing.get_args(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(t, argument_type) for t in inside)
    if origin is list:
        wanted = inside[0] if inside else typing.Any
        if wanted is int and argument_type is int:   # an int stands for a list of one
            return True
        if typing.get_origin(argument_type) not in (list, tuple):
            return False
        given = [t for t in typing.get_args(argument_type) if t is not ...]
        return all(type_matches(wanted, t) for t in given)
    if signature_type is int and argument_type is torch.dtype:   # as schemas write a dtype
        return True
    if signature_type is numbers.Number and argument_type in (int, float, complex, bool):
        return True
    return inspect.isclass(argument_type) and inspect.isclass(signature_type) and issubclass(argument_type, signature_type)


def _bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any],
           only_kwargs: bool) -> ArgsKwargsPair | None:
    """The arguments by their names; None where a signature has parameters that take the rest."""
    supported = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.kind not in supported for p in signature.parameters.values()) and \
            list(signature.parameters) not in (["input", "from", "to", "generator"],):
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named: dict[str, Any] = {}
    positional = []
    for i, name in enumerate(signature.parameters):
        if only_kwargs or i >= len(args):
            named[name] = bound.arguments[name]
        else:
            positional.append(bound.arguments[name])
    return ArgsKwargsPair(tuple(positional), named)


_args_kwargs_to_normalized_args_kwargs = _bound


def _defaults(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """The names of a function's parameters with their defaults."""
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]


def _matching(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], arg_types: Any,
              kwarg_types: Any) -> list[inspect.Signature]:
    """The overloads that an op's arguments fit; by their types, where more than one does and types are known."""
    found = []
    for signature in get_signature_for_torch_op(target) or ():
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            continue
        found.append(signature)
    if len(found) < 2 or arg_types is None and kwarg_types is None:
        return found
    kinds = [signature.bind(*(arg_types or ()), **(kwarg_types or {})).arguments for signature in found]
    return [signature for signature, bound in zip(found, kinds)
            if all(type_matches(signature.parameters[name].annotation, kind) for name, kind in bound.items())]


@compatibility(is_backward_compatible=False)
def normalize_function(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None,
                       arg_types: tuple[Any] | None = None, kwarg_types: dict[str, Any] | None = None,
                       normalize_to_only_use_kwargs: bool = False) -> ArgsKwargsPair | None:
    """The arguments of a call of a torch function with every parameter named and defaults filled in, or None."""
    named = {} if kwargs is None else kwargs
    if isinstance(_op_of(target), torch._C.Op):
        found = _matching(target, args, named, arg_types, kwarg_types)
        distinct = {str(signature) for signature in found}
        if found and (len(distinct) == 1 or arg_types is not None or kwarg_types is not None):
            return _bound(found[0], args, named, normalize_to_only_use_kwargs)
        if len(distinct) > 1:
            shown = "\n".join(str(s) for s in found)
            raise RuntimeError(f"Tried to normalize arguments to {torch.typename(target)} but the schema match was "
                               f"ambiguous! Please provide argument types to the normalize_arguments() call. Available "
                               f"schemas:\n{shown}")
        return None
    if isinstance(target, types.FunctionType) and target in torch._jit_internal.boolean_dispatched:
        target, other = (torch._jit_internal.boolean_dispatched[target][key] for key in ("if_true", "if_false"))
        if _defaults(target) != _defaults(other):
            return None
    return _bound(inspect.signature(inspect.unwrap(target)), args, named, normalize_to_only_use_kwargs)


@compatibility(is_backward_compatible=False)
def normalize_module(root: torch.nn.Module, target: str, args: tuple[Any], kwargs: dict[str, Any] | None = None,
                     normalize_to_only_use_kwargs: bool = False) -> ArgsKwargsPair | None:
    """normalize_function for a call of one of torch's modules."""
    try:
        module = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(f"Tried to normalize node with target {target} but root did not have that target!") from error
    if getattr(torch.nn, type(module).__name__, None) is not type(module):
        return None
    signature = inspect.signature(type(module).forward)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    return _bound(signature, args, {} if kwargs is None else kwargs, normalize_to_only_use_kwargs)
