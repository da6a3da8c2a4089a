"""Programs for fuzz.py: some random calls on the same few tensors, so that one call sees the state that another left."""
from __future__ import annotations

import copy
import gc
import pickle
import resource
from collections.abc import Callable
from typing import Any

from fuzz_targets import LEFT_ALONE, arguments, is_hungry, is_lasting, odd_index, read
from fuzz_values import DTYPES, Meddler, Random, Theme, fitting, meddle, number, strange, tensor, thing

import mindtorch_v2 as mt
from mindtorch_v2._ops.table import methods, ops

OPS = sorted((name, function) for name, function in vars(ops).items()
             if name not in LEFT_ALONE and not is_lasting(name) and not is_hungry(name))
INPLACE = [(name, function) for name, function in OPS if name.endswith("_")]
METHODS = sorted(name for name in methods if name not in LEFT_ALONE and not is_hungry(name))
LIMIT = 8                                                 # tensors alive in a program
# They take addresses, write files, or end what the process has of the device.
NPU_LEFT_ALONE = {"caching_allocator_delete", "ExternalStream", "ExternalEvent", "NPUPluggableAllocator", "init_dump",
                  "set_dump", "finalize_dump", "change_current_allocator"}


class Program:
    """The tensors of one execution, and whatever else holds their memory."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.tensors: list[Any] = []
        self.theme = Theme(rng, self.tensors)
        self.kept: list[Any] = []                         # arrays, memoryviews, storages, hooks, gradients

    def any(self) -> Any:
        return self.rng.choice(self.tensors) if self.tensors else tensor(self.rng, self.theme)

    def add(self, result: Any) -> None:
        if isinstance(result, mt.Tensor):
            if result.numel() > 20000:
                return
            if len(self.tensors) < LIMIT:
                self.tensors.append(result)
            else:
                self.tensors[self.rng.randrange(LIMIT)] = result
        elif isinstance(result, (tuple, list)):
            for item in list(result)[:4]:
                if isinstance(item, mt.Tensor):
                    self.add(item)


def call_op(p: Program) -> None:
    name, function = p.rng.choice(OPS)
    args, keywords = arguments(name, function, p.rng, p.theme)
    p.add(function(*args, **keywords))


def change(p: Program) -> None:
    name, function = p.rng.choice(INPLACE)
    args, keywords = arguments(name, function, p.rng, p.theme)
    p.add(function(*args, **keywords))


def combine(p: Program) -> None:
    x, y = p.any(), p.any()
    way = p.rng.randrange(6)
    p.add(x + y if way == 0 else x * y if way == 1 else x @ y if way == 2 else x.sum() if way == 3 else
          mt.cat([x, y]) if way == 4 else getattr(x, p.rng.choice(METHODS))())


def view(p: Program) -> None:
    x, rng = p.any(), p.rng
    way = rng.randrange(12)
    some = fitting("int[]", rng, p.theme)
    p.add(x.view(-1) if way == 0 else x.transpose(0, -1) if way == 1 else x[odd_index(rng, p.theme)] if way == 2 else
          x.detach() if way == 3 else x.as_strided(some, fitting("int[]", rng, p.theme), rng.choice((0, 1, 7))) if way == 4 else
          x.view(rng.choice(DTYPES)) if way == 5 else x.expand(some) if way == 6 else x.unfold(0, 2, 1) if way == 7 else
          x.split(1) if way == 8 else x.real if way == 9 else x.unbind() if way == 10 else x.view_as(p.any()))


def resize(p: Program) -> None:
    meddle(p.rng, p.tensors, [])


def assign(p: Program) -> None:
    p.any()[odd_index(p.rng, p.theme)] = p.any() if p.rng.random() < 0.6 else thing(p.rng, p.theme)


def set_attribute(p: Program) -> None:
    name = p.rng.choice(("data", "grad", "requires_grad", "real", "imag", "grad", "data", "names", "__class__"))
    setattr(p.any(), name, p.any() if p.rng.random() < 0.7 else thing(p.rng, p.theme))


def storage(p: Program) -> None:
    x, rng = p.any(), p.rng
    held = x.untyped_storage()
    p.kept.append(held)
    way = rng.randrange(6)
    if way == 0:
        held.resize_(rng.choice((0, 1, 64, 4096)))
    elif way == 1:
        p.any().detach().set_(held, rng.choice((0, 1, 3)), fitting("int[]", rng, p.theme), fitting("int[]", rng, p.theme))
    elif way == 2:
        held.copy_(p.any().untyped_storage())
    elif way == 3:
        held.fill_(number(rng, True))
    elif way == 4:
        held[rng.choice((0, -1, 5, 2**63))] = rng.choice((1, 300, Meddler(rng, p.tensors)))
    else:
        p.add(mt.tensor([], dtype=x.dtype).set_(held))


def export(p: Program) -> None:
    """Memory that something outside holds; it is read when the program ends."""
    x, rng = p.any().detach(), p.rng
    way = rng.randrange(6)
    if way == 0:
        p.kept.append(x.numpy())
    elif way == 1:
        p.kept.append(memoryview(x.numpy()))
    elif way == 2:
        p.kept.append(x.__dlpack__())
    elif way == 3:
        p.add(mt.from_dlpack(x))
    elif way == 4:
        p.add(mt.from_numpy(x.numpy()[::-1] if rng.random() < 0.3 else x.numpy()))
    else:
        p.kept.append(x.__array__()[...])


def require(p: Program) -> None:
    x = p.any()
    p.rng.choice((x.requires_grad_, x.retain_grad, x.detach_, x.zero_))()


def hook(p: Program) -> None:
    x, rng = p.any(), p.rng
    meddler = Meddler(rng, p.tensors)
    if x.grad_fn is not None and rng.random() < 0.5:
        p.kept.append(rng.choice((x.grad_fn.register_hook, x.grad_fn.register_prehook))(meddler))
    else:
        p.kept.append(rng.choice((x.register_hook, x.register_post_accumulate_grad_hook))(meddler))


def backward(p: Program) -> None:
    x, y, rng = p.any(), p.any(), p.rng
    seed = rng.choice((None, mt.ones_like(x), y, strange(rng, p.theme)))
    if rng.random() < 0.5:
        (x if rng.random() < 0.5 else x.sum()).backward(seed, retain_graph=rng.random() < 0.5, create_graph=rng.random() < 0.2)
    else:
        p.add(mt.autograd.grad(x, [y, p.any()], seed, retain_graph=rng.random() < 0.5, create_graph=rng.random() < 0.2,
                               allow_unused=True))


def saved_hooks(p: Program) -> None:
    """Packing that changes the tensors, while an op records."""
    meddler = Meddler(p.rng, p.tensors)

    def pack(x: Any) -> Any:
        meddler.act()
        return x.detach() if p.rng.random() < 0.8 else meddler

    with mt.autograd.graph.saved_tensors_hooks(pack, lambda x: p.any() if p.rng.random() < 0.2 else x):
        combine(p)


def duplicate(p: Program) -> None:
    x = p.any()
    way = p.rng.randrange(4)
    p.add(copy.copy(x) if way == 0 else copy.deepcopy(x) if way == 1 else pickle.loads(pickle.dumps(x.detach()))
          if way == 2 else x.as_subclass(p.rng.choice((mt.Tensor, mt.nn.Parameter))))


def forget(p: Program) -> None:
    if p.kept and p.rng.random() < 0.5:
        p.kept.pop(p.rng.randrange(len(p.kept)))
    elif p.tensors:
        p.tensors.pop(p.rng.randrange(len(p.tensors)))
    if p.rng.random() < 0.05:
        gc.collect(0)


def modes(p: Program) -> None:
    mode = p.rng.choice((mt.no_grad, mt.enable_grad, mt.inference_mode, lambda: mt.autocast("cpu")))
    with mode():
        combine(p)
        change(p)


STEPS: tuple[Callable[[Program], None], ...] = (
    call_op, call_op, call_op, change, change, combine, combine, view, view, view, resize, resize, assign, set_attribute, storage,
    export, export, require, hook, backward, backward, saved_hooks, duplicate, forget, modes)


def program(rng: Random) -> None:
    """5 to 20 calls on up to 8 tensors; then everything that is left is read."""
    p = Program(rng)
    for _ in range(rng.choice((1, 2, 3))):
        p.tensors.append(tensor(rng, Theme(rng)))
    for _ in range(rng.randrange(5, 21)):
        try:
            rng.choice(STEPS)(p)
        except (KeyboardInterrupt, SystemError):
            raise
        except Exception:
            pass
    for held in p.kept:
        if hasattr(held, "tobytes"):
            held.tobytes()
    for x in list(p.tensors):
        try:
            if x.numel() < 10000 and not x.is_meta:
                x.tolist()
                read(x.grad)
        except (KeyboardInterrupt, SystemError):
            raise
        except Exception:
            pass


def npu_program(rng: Random) -> None:
    """Calls of torch.npu, and of ops on its tensors. The addresses of a device count as mapped: no limit here."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    names = [name for name in dir(mt.npu) if not name.startswith("_") and name not in NPU_LEFT_ALONE
             and callable(getattr(mt.npu, name))]
    p = Program(rng)
    for _ in range(rng.randrange(5, 21)):
        try:
            if rng.random() < 0.3:
                getattr(mt.npu, rng.choice(names))(*[thing(rng, p.theme) for _ in range(rng.randrange(3))])
            elif rng.random() < 0.3 or not p.tensors:
                p.tensors.append(tensor(rng, Theme(rng)).detach().to("npu"))
            else:
                rng.choice(STEPS)(p)
        except (KeyboardInterrupt, SystemError):
            raise
        except Exception:
            pass
    for x in list(p.tensors):
        x.tolist()
