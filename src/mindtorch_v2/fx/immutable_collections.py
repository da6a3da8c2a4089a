"""Lists and dicts that refuse to change: the arguments of a node, whose users would otherwise be wrong."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility

_pytree = torch.utils._pytree

__all__ = ["immutable_list", "immutable_dict"]

_HELP = """If you are attempting to modify the kwargs or args of a torch.fx.Node object,
instead create a new copy of it and assign the copy to the node:

    new_args = ...  # copy and mutate args
    node.args = new_args"""


def _no_mutation(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__!r} object does not support mutation. {_HELP}")


@compatibility(is_backward_compatible=True)
class immutable_list(list):
    """A list that does not change."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = _no_mutation
    insert = pop = remove = reverse = sort = _no_mutation

    def __hash__(self) -> int:   # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), (tuple(self),)


@compatibility(is_backward_compatible=True)
class immutable_dict(dict):
    """A dict that does not change."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = _no_mutation
    setdefault = update = _no_mutation

    def __hash__(self) -> int:   # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), (tuple(self.items()),)


def _list_flatten(d: list[Any]) -> tuple[list[Any], Any]:
    return list(d), None


def _list_unflatten(values: Iterable[Any], context: Any) -> immutable_list:
    return immutable_list(values)


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> immutable_dict:
    return immutable_dict(zip(context, values))


_pytree.register_pytree_node(immutable_list, _list_flatten, _list_unflatten,
                             serialized_type_name="torch.fx.immutable_collections.immutable_list",
                             flatten_with_keys_fn=_pytree._list_flatten_with_keys)
_pytree.register_pytree_node(immutable_dict, _dict_flatten, _dict_unflatten,
                             serialized_type_name="torch.fx.immutable_collections.immutable_dict",
                             flatten_with_keys_fn=_pytree._dict_flatten_with_keys)
