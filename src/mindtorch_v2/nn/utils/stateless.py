"""functional_call: run a module with other parameters and buffers than its own."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import Any, Iterator

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.module import Module

Tensor = torch.Tensor

__all__ = ["functional_call"]


def _tables(module: Module) -> dict[str, tuple[dict[Any, Any], str]]:
    """Every parameter and buffer by dotted name: the dictionary it is in, and its key."""
    places = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for table in (owner._parameters, owner._buffers):
            for name in table:
                places[f"{path}.{name}" if path else name] = (table, name)
    return places


def _with_tied(places: dict[Any, Any], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give every name of a shared tensor the value that one of them was given."""
    groups: dict[int, list[str]] = {}
    for name, (table, key) in places.items():
        if table[key] is not None:
            groups.setdefault(id(table[key]), []).append(name)
    result = dict(given)
    for names in groups.values():
        values = [given[name] for name in names if name in given]
        if not values:
            continue
        if any(value is not values[0] for value in values):
            tied = sorted(name for name in names if name in given)
            raise ValueError(
                f"functional_call got multiple values for keys {tied}, which are tied. "
                "Consider using tie_weights=False"
            )
        for name in names:
            result[name] = values[0]
    return result


def _check_given(module: Module, places: dict[Any, Any], given: dict[str, Tensor]) -> None:
    """Refuse names that lead nowhere and values that are no tensors, as torch does while it puts them in."""
    for name, value in given.items():
        if name in places:
            if value is not None and not isinstance(value, torch.Tensor):
                raise TypeError(f"{value} is not an instance of torch.Tensor")
            continue
        if name == "":
            raise KeyError('tensor name can\'t be empty string ""')
        owner: Any = module
        *path, last = name.split(".")
        for i, part in enumerate(path):
            if not hasattr(owner, part):
                raise AttributeError(f"{owner._get_name()} has no attribute `{part}`")
            owner = getattr(owner, part)
            if not isinstance(owner, Module):
                raise TypeError(f"submodule `{'.'.join(path[:i + 1])}`: {owner} is not an instance of torch.nn.Module")
        found = getattr(owner, last, None)
        if found is not None and not isinstance(found, torch.Tensor):
            raise TypeError(f"attribute `{name}`: {found} is not an instance of torch.Tensor")


@contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
) -> Iterator[None]:
    places = _tables(module)
    given = parameters_and_buffers
    _check_given(module, places, given)
    if tie_weights:
        given = _with_tied(places, given)
    if strict:
        # Names of one shared tensor count as given when one of them is.
        unexpected = sorted(name for name in given if name not in places)
        missing = sorted(n for n, (t, k) in places.items() if n not in given and t[k] is not None)
        errors = []
        for word, names in (("Unexpected", unexpected), ("Missing", missing)):
            if names:
                errors.append(f"{word} key(s): {', '.join(map(repr, names))}.")
        if errors:
            lines = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in reparametrizing for {module._get_name()}:\n\t{lines}"
            )
    saved = {}
    computed: list[tuple[Module, str, Tensor]] = []      # what a parametrization computes is set through it, and set back
    try:
        for name, value in given.items():
            if name in places:
                table, key = places[name]
                saved[name] = table[key]
                table[key] = value
                continue
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            if hasattr(owner, last):
                computed.append((owner, last, getattr(owner, last)))
                setattr(owner, last, value)
        yield
    finally:
        for owner, last, value in reversed(computed):
            setattr(owner, last, value)
        for name, value in saved.items():
            table, key = places[name]
            if name in parameters_and_buffers:
                # A module may have replaced a buffer meanwhile: hand the new one out.
                parameters_and_buffers[name] = table[key]
            table[key] = value


def _functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """The old place of torch.func.functional_call."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 "
        "and will be removed in a future version of PyTorch. "
        "Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
