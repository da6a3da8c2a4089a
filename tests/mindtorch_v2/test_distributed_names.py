"""The names of torch.distributed: every public one of PyTorch's is there, and does the thing or refuses by its name."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import mindtorch_v2 as mt


def public(module: Any) -> list[str]:
    """The names of a module of PyTorch's that are its own, but for aliases of types."""
    own = set(getattr(module, "__all__", ())) | {
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
    kinds = (type, types.FunctionType, types.BuiltinFunctionType)
    return sorted(name for name in own if not name.startswith("_") and isinstance(getattr(module, name, None), kinds))


def public_modules(package: Any) -> Iterator[str]:
    """Of PyTorch, imported, but for the one that needs a package which is not installed."""
    yield package.__name__
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if not info.name.rpartition(".")[2].startswith("_") and not info.name.endswith("etcd_rendezvous_backend"):
            module = importlib.import_module(info.name)
            yield from public_modules(module) if info.ispkg else [info.name]


def test_every_public_module_is_there_with_its_names() -> None:
    """Each name does the thing or refuses."""
    import torch.distributed as judge

    missing = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in public_modules(judge):
            try:
                ours = importlib.import_module(name.replace("torch", "mindtorch_v2", 1))
            except ModuleNotFoundError as error:
                missing.append(str(error))
                continue
            missing += [f"{name}.{one}" for one in public(sys.modules[name]) if not hasattr(ours, one)]
    assert not missing, missing


def test_what_is_not_there_refuses_by_name() -> None:
    dist = mt.distributed
    with pytest.raises(NotImplementedError, match=r"\[torch.distributed.elastic.timer.api.TimerServer\] mindtorch_v2 does not"):
        importlib.import_module("mindtorch_v2.distributed.elastic.timer.api").TimerServer()
    with pytest.raises(NotImplementedError, match=r"\[torch.distributed.shrink_group\]"):
        dist.shrink_group([0])
    assert "context" in dir(dist.autograd) and dist.autograd.is_available() is False
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dist.autograd.nothing  # noqa: B018


def test_options_and_defaults_are_torchs() -> None:
    import torch.distributed as judge

    for name in ("AllToAll", "AllreduceCoalesced", "Allreduce", "Barrier", "Broadcast", "Gather", "Reduce", "ReduceScatter",
                 "Scatter"):  # fmt: skip
        ours, theirs = getattr(mt.distributed, name + "Options")(), getattr(judge, name + "Options")()
        fields = [field for field in dir(theirs) if not field.startswith("_")]
        assert [field for field in dir(ours) if not field.startswith("_")] == fields
        assert [getattr(ours, f) for f in fields if f != "reduceOp"] == [getattr(theirs, f) for f in fields if f != "reduceOp"]
    assert mt.distributed.get_default_backend_for_device("cpu") == judge.get_default_backend_for_device("cpu") == "gloo"
    with pytest.raises(ValueError, match="Default backend not registered for device : meta"):
        mt.distributed.get_default_backend_for_device("meta")
    kinds = [name for name in mt.distributed.ReduceOp.RedOpType.__members__ if hasattr(judge.ReduceOp, name)]
    supported = [[library.distributed_c10d.supports_complex(getattr(library.ReduceOp, kind)) for kind in kinds]
                 for library in (mt.distributed, judge)]
    assert supported[0] == supported[1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_modules_computed_again_in_backward(reentrant: bool) -> None:
    """checkpoint_wrapper: gradients, names and state dicts of the plain model; the module runs twice."""
    wrap = importlib.import_module("mindtorch_v2.distributed.algorithms._checkpoint.checkpoint_wrapper")
    mt.manual_seed(1)
    model = mt.nn.Sequential(mt.nn.Linear(3, 4), mt.nn.Sequential(mt.nn.Linear(4, 4), mt.nn.Tanh()), mt.nn.Linear(4, 1))
    state, calls = {name: value.clone() for name, value in model.state_dict().items()}, []
    x = mt.randn(5, 3)
    model(x).sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model[1].register_forward_pre_hook(lambda *_: calls.append(1))   # it may stop before the end of the second time
    kind = wrap.CheckpointImpl.REENTRANT if reentrant else wrap.CheckpointImpl.NO_REENTRANT
    wrap.apply_activation_checkpointing(model, functools.partial(wrap.checkpoint_wrapper, checkpoint_impl=kind),
                                        check_fn=lambda module: isinstance(module, mt.nn.Sequential))
    assert isinstance(model[1], wrap.CheckpointWrapper) and not isinstance(model[0], wrap.CheckpointWrapper)
    model(x).sum().backward()
    assert len(calls) == 2 and all(mt.equal(p.grad, grad) for p, grad in zip(model.parameters(), grads, strict=True))
    assert list(model.state_dict()) == list(state) and str(model.load_state_dict(state)) == "<All keys matched successfully>"
    assert [name for name, _ in model[1].named_parameters()] == ["0.weight", "0.bias"] and model[1][1] is not None
    offloaded = wrap.offload_wrapper(model[0])
    offloaded(x).sum().backward()
    assert list(offloaded.state_dict()) == ["weight", "bias"]
