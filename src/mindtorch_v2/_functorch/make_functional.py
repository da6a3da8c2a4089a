"""Modules as functions of their parameters and buffers, in the form that functorch had before torch.func.functional_call."""
from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import mindtorch_v2 as torch

nn = torch.nn


class FunctionalModuleWithBuffers(nn.Module):
    """A module without tensors of its own: f(parameters, buffers, *inputs)."""

    def __init__(self, stateless_model: Any, param_names: tuple[str, ...], buffer_names: tuple[str, ...],
                 param_names_map: dict[str, list[str]], buffer_names_map: dict[str, list[str]]) -> None:
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, param_names, buffer_names
        self._places = param_names_map, buffer_names_map

    @staticmethod
    def _create_from(model: Any, disable_autograd_tracking: bool = False) -> tuple[Any, tuple, tuple]:
        bare, params, buffers, places = _taken_apart(model, disable_autograd_tracking)
        return FunctionalModuleWithBuffers(bare, tuple(params), tuple(buffers), *places), tuple(params.values()), \
            tuple(buffers.values())

    def forward(self, params: Sequence[Any], buffers: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        return _called(self, [(self._places[0], self.param_names, params), (self._places[1], self.buffer_names, buffers)],
                       args, kwargs)


class FunctionalModule(nn.Module):
    """A module without parameters of its own: f(parameters, *inputs)."""

    def __init__(self, stateless_model: Any, param_names: tuple[str, ...], names_map: dict[str, list[str]]) -> None:
        super().__init__()
        self.stateless_model, self.param_names, self.names_map = stateless_model, param_names, names_map

    @staticmethod
    def _create_from(model: Any, disable_autograd_tracking: bool = False) -> tuple[Any, tuple]:
        bare, params, buffers, places = _taken_apart(model, disable_autograd_tracking)
        for name, value in buffers.items():       # they stay in the module
            for place in places[1][name]:
                _put(bare, place, value, buffer=True)
        return FunctionalModule(bare, tuple(params), places[0]), tuple(params.values())

    def forward(self, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        return _called(self, [(self.names_map, self.param_names, params)], args, kwargs)


def _put(model: Any, name: str, value: Any, buffer: bool = False) -> None:
    parent, _, last = name.rpartition(".")
    owner = model.get_submodule(parent)
    (owner._buffers if buffer else owner._parameters).pop(last, None)
    if buffer:
        owner._buffers[last] = value
    else:
        owner.__dict__.pop(last, None)
        owner._parameters[last] = value


def _taken_apart(model: Any, disable_autograd_tracking: bool) -> tuple[Any, dict, dict, tuple[dict, dict]]:
    """A copy of the module with marks in place of its tensors, these by name, and every name that leads to each."""
    bare = copy.deepcopy(model)
    found: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    places: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for kind, pairs in enumerate((bare.named_parameters(remove_duplicate=False), bare.named_buffers(remove_duplicate=False))):
        first: dict[int, str] = {}
        for name, value in list(pairs):
            main = first.setdefault(id(value), name)
            found[kind].setdefault(main, value)
            places[kind].setdefault(main, []).append(name)
    for kind in (0, 1):
        for names in places[kind].values():
            for name in names:
                _put(bare, name, torch.empty(0, device="meta"), buffer=bool(kind))
    params, buffers = found
    if disable_autograd_tracking:
        params = {name: value.detach().requires_grad_(False) for name, value in params.items()}
    return bare, params, buffers, places


def _called(owner: Any, parts: list[tuple[dict[str, list[str]], tuple[str, ...], Sequence[Any]]], args: tuple,
            kwargs: dict[str, Any]) -> Any:
    given = {place: value for places, names, values in parts for name, value in zip(names, values, strict=True)
             for place in places[name]}
    return nn.utils.stateless._functional_call(owner.stateless_model, given, args, kwargs, tie_weights=False)


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple]:
    """(function of parameters and inputs, parameters) of a module without buffers."""
    if list(model.buffers()):
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    return FunctionalModule._create_from(model, disable_autograd_tracking)


def make_functional_with_buffers(model: Any, disable_autograd_tracking: bool = False) -> tuple[Any, tuple, tuple]:
    """(function of parameters, buffers and inputs, parameters, buffers) of a module."""
    return FunctionalModuleWithBuffers._create_from(model, disable_autograd_tracking)


def transpose_stack(tuple_of_tuple_of_tensors: Sequence[Sequence[Any]]) -> tuple:
    """One tensor, stacked and apart from any history, for each place of several tuples."""
    return tuple(torch.stack(column).detach() for column in zip(*tuple_of_tuple_of_tensors, strict=True))


def combine_state_for_ensemble(models: Sequence[Any]) -> tuple[Any, tuple, tuple]:
    """(function, stacked parameters, stacked buffers) of modules of one class."""
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    funcs, params, buffers = zip(*(make_functional_with_buffers(model) for model in models))
    stacked = transpose_stack(params)
    return funcs[0], tuple(x.requires_grad_(p.requires_grad) for x, p in zip(stacked, params[0])), transpose_stack(buffers)


def functional_init(model_class: type, ensemble_shape: tuple = (), device: Any = "cpu") -> Callable[..., Any]:
    """A maker of modules as functions; with a shape of one dim, of so many of them with stacked weights."""
    def made(*args: Any, **kwargs: Any) -> Any:
        if len(ensemble_shape) >= 2:
            raise ValueError("NYI: ensemble_shape with more than 1 element")
        if len(ensemble_shape) == 0:
            return make_functional(model_class(*args, **kwargs).to(device))
        if ensemble_shape[0] <= 0:
            raise ValueError(f"num_models {ensemble_shape[0]} should be > 0")
        models = tuple(model_class(*args, **kwargs).to(device) for _ in range(ensemble_shape[0]))
        function, weights = make_functional(model_class(*args, **kwargs))
        stacked = transpose_stack(tuple(make_functional(model)[1] for model in models))
        return tuple(x.requires_grad_(w.requires_grad) for x, w in zip(stacked, weights)), function, function.param_names
    return made


def functional_init_with_buffers(model_class: type, ensemble_shape: tuple = (), device: Any = "cpu") -> Callable[..., Any]:
    """The same of modules with buffers."""
    def made(*args: Any, **kwargs: Any) -> Any:
        if len(ensemble_shape) >= 2:
            raise ValueError("NYI: ensemble_shape with more than 1 element")
        if len(ensemble_shape) == 0:
            return make_functional_with_buffers(model_class(*args, **kwargs).to(device))
        if ensemble_shape[0] <= 0:
            raise ValueError(f"num_models {ensemble_shape[0]} should be > 0")
        models = tuple(model_class(*args, **kwargs).to(device) for _ in range(ensemble_shape[0]))
        function, weights, buffers = combine_state_for_ensemble(models)
        return weights, buffers, function, function.param_names, function.buffer_names
    return made
