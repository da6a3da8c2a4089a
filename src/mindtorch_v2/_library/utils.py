"""What torch._library.utils is asked for: names of ops taken apart, and what a schema says of an op."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch

_DEVICE_KEYS = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "meta": "Meta", "npu": "PrivateUse1",
                "privateuseone": "PrivateUse1", "hpu": "HPU", "mtia": "MTIA"}


class RegistrationHandle:
    """What takes a registration away again."""

    def __init__(self, on_destroy: Callable[[], None]) -> None:
        self._on_destroy = on_destroy

    def destroy(self) -> None:
        """Takes it away."""
        self._on_destroy()


def parse_namespace(qualname: str) -> tuple[str, str]:
    """(namespace, name) of ns::name."""
    parts = qualname.split("::")
    if len(parts) != 2:
        raise ValueError(f"Expected `qualname` to be of the form \"namespace::name\", but got {qualname}. The "
                         "qualname passed to the "
                         "torch.library APIs must consist of a namespace and a name, e.g. aten::sin")
    return parts[0], parts[1]


def device_key(device_type: str) -> str:
    """The dispatch key of a device type."""
    if device_type == "default":
        return "CompositeExplicitAutograd"
    return _DEVICE_KEYS.get(torch.device(device_type).type, "PrivateUse1")


def lookup_op(qualname: str) -> Any:
    """The overload of a name such as ns::name or ns::name.overload."""
    space, name = parse_namespace(qualname)
    name, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, space), name), overload or "default")


def is_builtin(op: Any) -> bool:
    """Whether an op is torch's own."""
    return op.namespace in {"aten", "prim", "prims"}


def is_out(op: Any) -> bool:
    """Whether an overload writes to tensors given as keywords."""
    return torch.Tag.out in op.tags


def is_functional_schema(schema: Any, *, allow_valid_view: bool = False) -> bool:
    """Whether an op gives new tensors and changes none."""
    if isinstance(schema, str):
        schema = torch._C.FunctionSchema(schema)
    if schema.is_mutable:
        return False
    if any(r.alias_info is not None for r in schema.returns):
        return allow_valid_view and len(schema.returns) == 1
    return bool(schema.returns)


def is_tensor_like_type(typ: Any) -> bool:
    """Whether it is Tensor or Tensor?."""
    return typ.str() in ("Tensor", "Tensor?")


def is_tensorlist_like_type(typ: Any) -> bool:
    """Whether it is a list of tensors."""
    return typ.str() in ("Tensor[]", "Tensor?[]", "Tensor[]?")


def mutates_and_returns_first_arg(op: Any) -> bool:
    """Whether an overload changes its first argument and gives it back."""
    schema = op._schema
    if len(schema.returns) != 1 or schema.returns[0].alias_info is None or not schema.arguments:
        return False
    first, *rest = schema.arguments
    return first.is_write and schema.returns[0].alias_info.is_write and not any(a.is_write for a in rest)


def fill_defaults(schema: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments with those that were left out."""
    positional = [a for a in schema.arguments if not a.kwarg_only]
    filled = [args[i] if i < len(args) else kwargs.get(a.name, a.default_value) for i, a in enumerate(positional)]
    named = {a.name: kwargs.get(a.name, a.default_value) for a in schema.arguments if a.kwarg_only}
    return tuple(filled), named


def zip_schema(schema: Any, args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(argument of the schema, value) of those that were given."""
    if len(schema.arguments) < len(args) + len(kwargs):
        raise AssertionError(f"schema has {len(schema.arguments)} arguments but got {len(args)} args and "
                             f"{len(kwargs)} kwargs")
    for i, argument in enumerate(schema.arguments):
        if argument.kwarg_only or i >= len(args):
            if argument.name in kwargs:
                yield argument, kwargs[argument.name]
        else:
            yield argument, args[i]


def has_kwarg_only_args(schema: Any) -> bool:
    """Whether arguments are given by name only."""
    return any(a.kwarg_only for a in schema.arguments)


def has_kwarg_only_tensors(schema: Any) -> bool:
    """Whether tensors are given by name only."""
    return any(a.kwarg_only and (is_tensor_like_type(a.type) or is_tensorlist_like_type(a.type)) for a in schema.arguments)


def has_tensor_arg(schema: Any) -> bool:
    """Whether an op takes a tensor."""
    return any(is_tensor_like_type(a.type) or is_tensorlist_like_type(a.type) for a in schema.arguments)


def get_device_arg_index(schema: Any) -> int | None:
    """Where the argument called device stands."""
    return next((i for i, a in enumerate(schema.arguments) if a.name == "device" and a.type.str() == "Device"), None)


def requires_set_python_module() -> bool:
    """Whether an op of C++ has to say where its fake implementation lies: there are none here."""
    return False


def mutated_args_kwargs(schema: Any) -> tuple[list[int], list[str]]:
    """Places and names of the arguments that are changed."""
    return ([i for i, a in enumerate(schema.arguments) if a.is_write and not a.kwarg_only],
            [a.name for a in schema.arguments if a.is_write and a.kwarg_only])

torch._named.complete(__name__)
