"""The updates of the optimizers as functions over lists, and the names that optimizers of other packages import."""
from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import torch
import torch.optim._functional
from twin import error, twin

import mindtorch_v2 as mt

SCALARS = {"state_steps", "mus", "mu_products", "etas"}
LISTS: dict[str, tuple[str, dict[str, Any]]] = {
    "adadelta": ("square_avgs acc_deltas state_steps", {"lr": .1, "rho": .9, "eps": 1e-6, "maximize": False}),
    "adagrad": ("state_sums state_steps", {"lr": .1, "lr_decay": .1, "eps": 1e-10, "maximize": True}),
    "adam": ("exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps",
             {"amsgrad": True, "beta1": .9, "beta2": .99, "lr": .1, "eps": 1e-8, "maximize": False}),
    "adamw": ("exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps",
              {"amsgrad": False, "beta1": .9, "beta2": .99, "lr": .1, "eps": 1e-8, "maximize": False}),
    "adamax": ("exp_avgs exp_infs state_steps", {"eps": 1e-8, "beta1": .9, "beta2": .99, "lr": .1}),
    "asgd": ("axs mus etas state_steps", {"lambd": 1e-4, "lr": .1, "t0": 1e6, "alpha": .75}),
    "nadam": ("exp_avgs exp_avg_sqs mu_products state_steps",
              {"beta1": .9, "beta2": .99, "lr": .1, "momentum_decay": .004, "eps": 1e-8}),
    "radam": ("exp_avgs exp_avg_sqs state_steps", {"beta1": .9, "beta2": .99, "lr": .1, "eps": 1e-8}),
    "rmsprop": ("square_avgs grad_avgs momentum_buffer_list state_steps",
                {"lr": .1, "alpha": .9, "eps": 1e-2, "momentum": .5, "centered": False}),
    "rprop": ("prevs step_sizes state_steps", {"step_size_min": 1e-6, "step_size_max": 50, "etaminus": .5, "etaplus": 1.2}),
}


def function(side: Any, name: str, module: str = "") -> Any:
    return getattr(importlib.import_module(f"{side.__name__}.optim.{module or name}"), name)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", LISTS)
def test_a_function_is_the_optimizers_update(name: str, foreach: bool) -> None:
    lists, options = LISTS[name]
    options = options if name == "rprop" else {**options, "weight_decay": .01}

    def body(side: Any) -> Any:
        params = [side.rand(3, 4), side.rand(5)]
        state = [[side.tensor(1.) if which in SCALARS else side.rand_like(p) for p in params] for which in lists.split()]
        update = function(side, name)
        for _ in range(3):
            update(params, [side.rand_like(p) - .5 for p in params], *state, foreach=foreach, **options)
        return params, state
    twin(body)


@pytest.mark.parametrize("name", [*LISTS, "sgd"])
def test_signatures(name: str) -> None:
    def parameters(side: Any) -> list[Any]:
        return [(p.name, str(p.kind), p.default) for p in inspect.signature(function(side, name)).parameters.values()]
    assert parameters(mt) == parameters(torch)


def test_sgd_fills_in_a_momentum_and_unscales() -> None:
    def body(side: Any) -> Any:
        params, buffers = [side.rand(3), side.rand(2, 2)], [None, side.rand(2, 2)]
        options = {"weight_decay": .1, "momentum": .9, "lr": .1, "dampening": 0., "nesterov": True, "maximize": False}
        function(side, "sgd")(params, [side.rand_like(p) for p in params], buffers, **options)
        scale = side.tensor(4.)
        for found in (0., 1.):
            function(side, "sgd")(params, [side.rand_like(p) for p in params], buffers, fused=True, grad_scale=scale,
                                  found_inf=side.tensor(found), **options)
        return params, buffers
    twin(body)


def test_sparse_adam_adafactor_and_muon() -> None:
    def body(side: Any) -> Any:
        rows, average, square = side.rand(4, 2), side.rand(4, 2), side.rand(4, 2)
        grad = side.sparse_coo_tensor([[1, 3]], side.rand(2, 2), (4, 2))
        function(side, "sparse_adam", "_functional")([rows], [grad], [average], [square], [2], eps=1e-8, beta1=.9,
                                                     beta2=.99, lr=.1, maximize=False)
        params, steps = [side.rand(3, 4), side.rand(5)], [side.tensor(1.), side.tensor(1.)]
        row, col, variance = [side.rand(3, 1), None], [side.rand(1, 4), None], [None, side.rand(5)]
        function(side, "adafactor", "_adafactor")(params, [side.rand_like(p) for p in params], row, col, variance, steps, d=1.,
                                                  lr=.1, beta2_decay=-.8, weight_decay=.1, eps1=1e-8, eps2=1e-3,
                                                  maximize=False)
        return rows, average, square, params, row, col, variance
    twin(body)


def test_lists_of_unequal_length_are_refused() -> None:
    options = LISTS["radam"][1]
    with pytest.raises(ValueError, match="equally long"):
        function(mt, "radam")([mt.ones(2)], [], [], [], [], weight_decay=0., **options)


def test_names_for_optimizers_of_other_packages() -> None:
    def body(side: Any) -> Any:
        names = importlib.import_module(side.__name__ + ".optim.optimizer")
        params, states = [side.ones(2, dtype=side.complex64), side.ones(2)], [side.zeros(2, dtype=side.complex64), side.zeros(2)]
        names._view_as_real(params, states)
        whole = side.ones(1, dtype=side.int64)
        many = importlib.import_module(side.__name__ + ".optim._multi_tensor")
        return (params, states, names._get_value(side.ones(1)), names._to_scalar(side.ones(1)), names._stack_if_compiling(3),
                str(names._get_scalar_dtype()).rpartition(".")[2], names._disable_dynamo_if_unsupported()(len)([1]),
                error(lambda: names._device_dtype_check_for_fused(whole)),
                many.SGD([side.ones(2)]).defaults["foreach"])
    twin(body)


def test_classes_live_in_modules_of_their_own() -> None:
    for name in mt.optim.__all__:
        if isinstance(found := getattr(mt.optim, name), type):
            assert found.__module__.partition(".")[2] == getattr(torch.optim, name).__module__.partition(".")[2], name


def test_the_first_step_of_lbfgs_is_a_tensor_where_it_is_shorter_than_the_rate() -> None:
    def body(side: Any) -> Any:
        found = []
        for size in (0.1, 4.0):
            param = side.full((3,), 2.0, requires_grad=True)
            optimizer = side.optim.LBFGS([param], lr=0.5, max_iter=1)

            def closure() -> Any:
                optimizer.zero_grad()            # noqa: B023
                loss = (param * size).sum()      # noqa: B023
                loss.backward()
                return loss
            optimizer.step(closure)
            step = optimizer.state[param]["t"]
            found.append((isinstance(step, side.Tensor), float(step), param))
        return found
    twin(body)
