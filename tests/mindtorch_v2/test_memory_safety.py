"""Nothing that a program passes to the core reads or writes memory that is not there. What would crash runs apart."""
from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import mindtorch_v2 as torch

HEAD = """
import gc, threading, time, warnings
import mindtorch_v2 as torch
from mindtorch_v2 import _C

def refused(kind, call, *args):
    try:
        call(*args)
    except kind as error:
        return str(error)
    raise AssertionError("was not refused")
"""


def survives(program: str, timeout: int = 60) -> None:
    """Runs a program in a process of its own, which must come to its end."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", HEAD + program + "\nprint('survived')"],
                          capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0 and done.stdout.endswith("survived\n"), f"exit {done.returncode}\n{done.stderr[-3000:]}"


# ---- memory that was handed out -------------------------------------------------------------------------------------
EXPORTS = {
    "numpy": lambda x: x.numpy(),
    "asarray": lambda x: np.asarray(x),
    "dlpack": lambda x: x.__dlpack__(),
    "from_dlpack": lambda x: torch.from_dlpack(x),
    "memoryview": lambda x: memoryview(x.untyped_storage()),
    "numpy of a view": lambda x: x[1:].numpy(),
    "slice of an array": lambda x: x.numpy()[2:],
}


@pytest.mark.parametrize("how", EXPORTS)
def test_memory_that_was_handed_out_stays(how: str) -> None:
    x = torch.arange(5.)
    given = EXPORTS[how](x)
    for change in (lambda: x.resize_(1000), lambda: x.untyped_storage().resize_(0), lambda: x.untyped_storage()._pin(),
                   lambda: x.share_memory_()):
        with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
            change()
    assert x.resize_(2).tolist() == [0, 1]       # needs no other memory
    assert x.untyped_storage().nbytes() == 20
    del given, change
    assert x.resize_(1000).shape == (1000,)      # an export ends with the object that has it


def test_an_array_outlives_its_tensor() -> None:
    x = torch.arange(5.)
    array = x.numpy()
    x.set_(torch.zeros(3))
    torch.full((5,), 7.)                         # would take the block if it were free
    assert array.tolist() == [0, 1, 2, 3, 4]
    y = torch.arange(5.)
    array = y.numpy()
    y.data = torch.zeros(2)
    assert array.tolist() == [0, 1, 2, 3, 4] and y.resize_(100).shape == (100,)


def test_a_storage_without_room_is_not_exported() -> None:
    x = torch.arange(5.)
    x.untyped_storage().resize_(4)
    for give in (x.numpy, x.__dlpack__):
        with pytest.raises(RuntimeError, match="was resized"):
            give()


def test_a_buffer_is_held_while_a_tensor_is_over_it() -> None:
    block = bytearray(16)
    x = torch.frombuffer(block, dtype=torch.float32)
    with pytest.raises(BufferError):
        block.extend(b"more")
    y = torch.zeros(4).share_memory_()
    with pytest.raises(BufferError):
        y.untyped_storage()._owner[0].close()
    assert x.tolist() == [0] * 4 and y.tolist() == [0] * 4
    del x
    block.extend(b"more")


def test_shells_share_no_memory() -> None:
    a, b = (torch._C.TensorMethods.__new__(torch.Tensor) for _ in range(2))
    a.resize_(3).fill_(1)
    assert b.shape == (0,) and b.untyped_storage().nbytes() == 0
    b.untyped_storage().resize_(8)
    assert torch._C.TensorMethods.__new__(torch.Tensor).untyped_storage().nbytes() == 0


def test_negative_strides_from_dlpack() -> None:
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        torch.from_dlpack(np.arange(5.)[::-1])


def test_a_dlpack_capsule_without_a_shape_or_memory() -> None:
    survives("""
import ctypes
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
name, four, room = b"dltensor", (ctypes.c_int64 * 1)(4), ctypes.create_string_buffer(64)

def capsule(data, shape):  # the fields of a DLManagedTensor: float32, one dim, on the CPU
    fields = (ctypes.c_uint64 * 8)(data, 1, 1 | (2 | 32 << 8 | 1 << 16) << 32, shape, 0, 0, 0, 0)
    return new(ctypes.addressof(fields), name, None), fields

whole = capsule(ctypes.addressof(room), ctypes.addressof(four))
assert torch.from_dlpack(whole[0]).tolist() == [0.0] * 4
for broken in (capsule(ctypes.addressof(room), 0), capsule(0, ctypes.addressof(four))):
    assert "from_dlpack received" in refused(RuntimeError, torch.from_dlpack, broken[0])
""")


def test_a_storage_from_bytes_is_as_large_as_they_are() -> None:
    class Larger(torch.UntypedStorage):
        def __init__(self, size: int) -> None:
            super().__init__(size * 1000)
    made = Larger._from_bytes(b"abc")
    assert bytes(made) == b"abc" and isinstance(made, Larger)


# ---- other threads ----------------------------------------------------------------------------------------------------
def test_what_a_kernel_reads_stays_while_others_change_it() -> None:
    """Lists are cleared, tensors get other memory and other shapes, storages are resized under running kernels."""
    survives("""
stop = time.monotonic() + 4
pool = [torch.full((40000,), float(i)) for i in range(8)]
tensors = [t.clone() for t in pool]
items = list(tensors)

def replace():
    k = 0
    while time.monotonic() < stop:
        k += 1
        t = tensors[k % 8]
        items.clear()
        items.extend(tensors)
        if k % 4 == 0:
            t.data = pool[k % 8].clone()
        elif k % 4 == 1:
            t.set_(pool[k % 8].clone().view(200, 200))
        elif k % 4 == 2:
            t.untyped_storage().resize_(0)
            t.data = pool[k % 8].clone()
        else:
            t.resize_(300000)
            t.data = pool[k % 8].clone()

def check(result, value):
    assert bool((result == value).all()), result

wrong = []
def use():
    k = 0
    while time.monotonic() < stop:
        k += 1
        n = k % 8
        for call in (lambda: torch.cat(items), lambda: torch.stack(items), lambda: tensors[n] + 1,
                     lambda: tensors[n].clone(), lambda: tensors[n].sum(), lambda: tensors[n].to(torch.float64),
                     lambda: tensors[n].sort()[0], lambda: tensors[n].add_(0), lambda: tensors[n].fill_(float(n)),
                     lambda: torch.softmax(tensors[n], 0), lambda: tensors[n].nonzero()):
            try:
                call()
            except (RuntimeError, ValueError, IndexError):
                pass                             # the shapes may not fit together, or a storage may be empty

threads = [threading.Thread(target=f) for f in (replace, use, use)]
for t in threads: t.start()
for t in threads: t.join()
""")


CHANGES = {
    "list": "fresh = [full(i) for i in range(8)]; items.clear(); items.extend(fresh); del fresh",
    "data": "for i, t in enumerate(items): t.data = full(i)",
    "set_": "for i, t in enumerate(items): t.set_(full(i))",
    "resize": "for t in items: t.untyped_storage().resize_(8 * N); t.untyped_storage().resize_(4 * N)",
    "shape": "for i, t in enumerate(items): t.data = full(i).view([1] * (i + 1) + [N]); t.data = full(i)",
}


@pytest.mark.parametrize("how", CHANGES)
def test_kernels_see_no_memory_of_others(how: str) -> None:
    """The values stay what they are, whatever another thread does to the tensors of a call that runs."""
    survives(f"""
N = 1 << 19
def full(value): return torch.full((N,), float(value))
items = [full(i) for i in range(8)]
stop = threading.Event()
def change():
    while not stop.is_set():
        {CHANGES[how]}
        waste = [full(-1) for _ in range(8)]     # takes what was freed
        del waste
worker = threading.Thread(target=change)
worker.start()
begun, n = time.monotonic(), 0
try:
    while n < 5 or time.monotonic() < begun + 0.8 and n < 200:
        try:
            r = torch.cat(items) if n % 2 else torch.cat([items[3] * 1])
        except (RuntimeError, ValueError):       # the list is empty, or the shapes differ
            continue
        n += 1
        for i, part in enumerate(r.reshape(-1, N)):
            value = float(i if n % 2 == 0 else 3)
            assert bool((part == value).all()), (i, part)
finally:
    stop.set()
    worker.join()
""")


def test_one_generator_in_many_threads() -> None:
    survives("""
g = torch.Generator().manual_seed(1)
alone = sorted(torch.rand(100000, dtype=torch.float64, generator=g).sum().item() for _ in range(30))
g.manual_seed(1)
drawn = []
def draw():
    for _ in range(10):
        drawn.append(torch.rand(100000, dtype=torch.float64, generator=g).sum().item())
        g.get_state()
threads = [threading.Thread(target=draw) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
assert sorted(drawn) == alone                    # one after another, no number twice
""")


# ---- user code that runs during a call ------------------------------------------------------------------------------
def test_objects_that_change_the_tensor_they_index() -> None:
    survives("""
class Evil:
    dtype, shape = "int64", ()
    def __init__(self, value, change): self.value, self.change = value, change
    def __index__(self): self.change(); return self.value
    def __int__(self): self.change(); return self.value
    def __float__(self): self.change(); return float(self.value)
    def item(self): self.change(); return self.value

def each(call):
    for change in (lambda x: x.set_(), lambda x: x.resize_(0), lambda x: x.untyped_storage().resize_(0),
                   lambda x: setattr(x, "data", torch.zeros(1)), lambda x: x.set_(torch.zeros([1] * 40))):
        x = torch.arange(100000.).view(10, 100, 100)
        evil = lambda value: Evil(value, lambda: change(x))
        try:
            r = call(x, evil)
            r.tolist() if isinstance(r, torch.Tensor) and r.numel() < 1000 else None
        except (IndexError, RuntimeError, TypeError, ValueError):
            pass

each(lambda x, e: x[e(99999):])
each(lambda x, e: x[:e(10)])
each(lambda x, e: x[::e(2)])
each(lambda x, e: x[e(9), e(9), e(99)])
each(lambda x, e: x[..., e(99)])
each(lambda x, e: x[..., e(9):, torch.tensor([1, 2])])
each(lambda x, e: x.size(e(2)))
each(lambda x, e: x.stride(e(2)))
each(lambda x, e: x.select(e(1), e(9)))
each(lambda x, e: x.narrow(e(0), e(5), e(5)))
each(lambda x, e: x.view(e(1000), e(100)))
each(lambda x, e: x.sum(e(1)))
each(lambda x, e: torch.cat([x, x], e(1)))
each(lambda x, e: x + e(1))
each(lambda x, e: torch.add(x, x, alpha=e(2)))
each(lambda x, e: torch.clamp(x, e(2), e(5)))
each(lambda x, e: x.fill_(e(2)))
each(lambda x, e: x.__setitem__(e(3), 1.))
each(lambda x, e: x.__setitem__(slice(e(3), None), 1.))
each(lambda x, e: x.uniform_(e(0), e(1)))
each(lambda x, e: torch.nn.functional.interpolate(x[None], scale_factor=[e(2), e(2)]))

class Number(int):
    def __lt__(self, other): x.set_(torch.zeros(1)); return False
    def __index__(self): x.set_(torch.zeros(1)); return 1
    __int__ = __index__
class Real(float):
    def __float__(self): x.set_(torch.zeros(1)); return 1.
for odd in (Number(3), Real(3.)):
    x = torch.arange(1000000)
    r = x ** odd
    assert r.numel() == 1000000 and r[2] == 8
class Short(tuple):
    def __len__(self): return 64
refused((RuntimeError, IndexError, TypeError), torch.zeros(4).view, Short((2, 2, 5)))
torch.zeros(4).resize_(Short((2, 2)))
""")


def test_owners_that_read_the_tensor_they_leave() -> None:
    survives("""
import numpy as np
seen = []
class Owner(np.ndarray):
    def __del__(self): seen.append((x.shape, x.tolist(), x.untyped_storage().nbytes(), x.clone().sum().item()))
def foreign(*shape): return torch.from_numpy(np.ones(shape, np.float32).view(Owner))

for change in (lambda: setattr(x, "data", torch.zeros([1] * 20)), lambda: x.set_(torch.zeros(2)), lambda: x.set_(),
               lambda: x.untyped_storage().share_memory_(), lambda: _C._adopt(x, torch.zeros(3))):
    x = foreign(4, 5)
    change()
    gc.collect()
assert len(seen) == 5, seen
x = torch.zeros(1)
s = foreign(3).untyped_storage()
s.__init__(b"x" * 2)
s.__init__(3)
x = torch.ones(2, requires_grad=True)
class Sub(torch.Tensor):
    pass
class Watch:
    def __del__(self): seen.append((x.grad, x.grad_fn))
x.grad = torch.ones(2).as_subclass(Sub)
x.grad.watch = Watch()
x.grad = None
assert seen[-1] == (None, None)
y = (x * 2).exp()
y.grad_fn.metadata = Watch()
y.detach_()
""")


def test_self_referential_lists() -> None:
    survives("""
items = []
items.append(items)
for call in (lambda: torch.tensor([1, items]), lambda: torch.zeros(3)[items]):
    assert "self-referential lists are incompatible" in refused(TypeError, call)
assert "too many dimensions 'list'" in refused(ValueError, lambda: torch.tensor(items))
""")


# ---- private methods --------------------------------------------------------------------------------------------------
def test_gradient_edges_of_anything() -> None:
    survives("""
from mindtorch_v2.autograd.graph import GradientEdge
a = torch.ones(3, requires_grad=True)
b = a * 2
grad = torch.ones(3)
for edge, given, kind in ((GradientEdge(object(), 0), grad, RuntimeError), (GradientEdge(b.grad_fn, 5), grad, IndexError),
                          (GradientEdge(b.grad_fn, -1), grad, IndexError), (GradientEdge(b.grad_fn, 0), "abc", TypeError),
                          (GradientEdge(b.grad_fn, 0), torch.ones(4), RuntimeError),
                          (GradientEdge(b.grad_fn, 0), None, RuntimeError),
                          (GradientEdge(_C._core.AccumulateGrad(3), 0), grad, RuntimeError)):
    refused(kind, torch.autograd.backward, (edge,), (given,))
said = refused(RuntimeError, torch.autograd.grad, b.sum(), GradientEdge(object(), 0))
assert said == "GradientEdge's first object must be an autograd.graph.Node but got object"
torch.autograd.backward((b,), (grad,), inputs=(GradientEdge(b.grad_fn.next_functions[0][0], 0),))
assert a.grad.tolist() == [2, 2, 2]
""")


def test_private_methods_refuse_what_is_no_tensor() -> None:
    """Every function of the core that takes a tensor, a node or a tuple, given None and other things."""
    survives("""
core = _C._core
x = torch.ones(2, requires_grad=True)
node = (x * 2).grad_fn
own = core.Node()
wrong = (None, 3, "text", [], (), {}, object(), x, node, own, torch.add, core.Op)
for call in (core._adopt, core._give_history, core._rebase, core._changed, core._bump, core._will_run, core._pack, core._unpack,
             core._accumulator, node.__call__, own.__call__, core.AccumulateGrad(3).__call__,
             core._array_view, core._to_dlpack, core._from_dlpack, core._from_array, core._from_buffer, core._from_data,
             core._to, core._many_views, core._run_backward, core._result_type, core._register_class, core._has_kernel,
             core._sgd_step, core._adam_step, core._set_kernel,
             core._has_cpu_kernel, core._define_inplace, core.promote_types, core.can_cast, core.OpDescription,
             own._attach, own._set_inputs, own._needs_input_grad, node._attach, node._set_inputs, node._needs_input_grad,
             core.Op, core.Op.__new__, core.Foreach, torch.UntypedStorage._from_bytes, x._take_view_, x.is_set_to,
             torch.zeros(2).set_, torch.UntypedStorage(4)._move_to, torch.Generator().set_state, core.CopySlices().apply):
    for count in range(1, 5):
        for value in wrong:
            try:
                call(*[value] * count)
            except Exception:
                pass
for args in ((torch.zeros(2), node, 7), (torch.zeros(2), node, -7)):
    refused(IndexError, core._give_history, *args)
refused(ValueError, own._attach, torch.zeros(2), -3)
refused(ValueError, own._attach, torch.zeros(2), 2 ** 31 - 1)
refused(RuntimeError, node._attach, torch.zeros(2), 0)
refused(RuntimeError, core._rebase, core.Node(), torch.zeros(4)[1:], 0)
refused(AttributeError, lambda: torch.add.overloads.append(3))
refused(TypeError, core.Op.__new__, core.Op)
for row in torch._foreach_add.overloads:
    for args in ((3, 4), ([3], 4), ([3], [4]), (3,), (), ([None], [None])):
        try:
            row.body(*args)
        except (TypeError, RuntimeError):
            pass
assert (torch.add(x, x) == 2).all()
""")


def test_nodes_that_grow_during_backward() -> None:
    survives("""
core = _C._core
class Grows(core.Node):
    def apply(self, *grads):
        self._attach(torch.zeros(3), 4)
        try:
            self._set_inputs((x, x, x))
        except RuntimeError:
            pass
        return tuple(grads[:1]) * self.inputs
    def _release(self): pass
for inputs in (0, 1):
    x = torch.ones(3, requires_grad=True)
    node, out = Grows(), torch.ones(3)
    node.inputs = inputs
    if inputs:
        node._set_inputs((x,))
    node._attach(out, 0)
    node.register_prehook(lambda grads: node._attach(torch.zeros(3), 2))
    try:
        out.backward(torch.ones(3))
    except RuntimeError:
        pass
class Junk(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a): return a * 2
    @staticmethod
    def backward(ctx, g): return "junk"
for anomaly in (False, True):
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(anomaly):
        warnings.simplefilter("ignore")
        refused(RuntimeError, Junk.apply(x).sum().backward)
y = torch.ones(3, requires_grad=True)
y.register_hook(lambda g: setattr(y, "data", torch.ones(100000)))
(y * 2).sum().backward()
assert y.grad.shape == (3,) and y.shape == (100000,)         # as in torch
refused(RuntimeError, (y * 2).sum().backward)                # which adds to it
""")


def test_rows_that_do_not_fit() -> None:
    """What a row may hold is bounded where the row is read."""
    survives("""
def param(name, kind="Tensor"): return name, kind, False, 0, None, False, True, False
names = [f"t{i}" for i in range(12)]
tensors = [param(n) for n in names]
numbers = [param(f"n{i}", "int") for i in range(9)]
many = ", ".join(f"a{i}" for i in range(30))
shapes = ", ".join(names + [n + "_shape" for n in names])
for params, family, mode, grad in (
        (tensors, "composite", None, {", ".join(names): lambda g: g}),
        (tensors[:1], "composite", None, {"t0": eval(f"lambda {many}: 0")}),
        (tensors[:1], "composite", None, {"t0": lambda g9: g9}),
        (tensors[:1], "composite", None, {"t0": lambda result7: result7}),
        (tensors, "composite", None, {"t0": eval(f"lambda {shapes}: 0")}),
        ([param("self")] + numbers, "pointwise", "promote", None),
        (numbers, "view", "view", None), (numbers, "native", "clone", None)):
    refused(ValueError, lambda: _C._define("add", "", "", params, ["Tensor"], family=family, mode=mode, grad=grad,
                                           namespace="test"))
x, n = torch.ones(3), torch.zeros((), dtype=torch.int64)
assert "lists" in refused(ValueError, _C._run_kernel, "count_true", (n,), (x,), *[[1]] * 9)
for name, outs, inputs in (("topk", (), ()), ("nonzero", (), (x,)), ("count_true", (n,), (None,)), ("nonzero", (None,), (x,)),
                           ("masked_select", (x,), (x,))):
    refused(ValueError, _C._run_kernel, name, outs, inputs)
""")


# ---- what each thread has of its own ----------------------------------------------------------------------------------
def in_thread(call: Any) -> Any:
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(call()))
    worker.start()
    worker.join()
    return found[0]


def test_default_devices_are_a_stack_of_the_thread() -> None:
    with torch.device("cpu"):
        with torch.device("meta"):
            with torch.device("cpu"):
                assert torch.empty(1).device.type == "cpu"
            assert torch.empty(1).device.type == "meta"
            assert in_thread(lambda: torch.empty(1).device.type) == "cpu"
        assert torch.empty(1).device.type == "cpu"
    torch.set_default_device("meta")
    try:
        assert torch.empty(1).device.type == torch.get_default_device().type == "meta"
        assert in_thread(lambda: torch.get_default_device().type) == "cpu"
        with torch.device("cpu"):
            torch.set_default_device("meta")
            assert torch.empty(1).device.type == "cpu"
    finally:
        torch.set_default_device(None)
    assert torch.get_default_device().type == "cpu"
    with pytest.raises(RuntimeError):
        torch.device("cpu").__exit__(None, None, None)


def test_modes_and_hooks_are_the_threads_own() -> None:
    seen: list[Any] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))
    with Mode():
        in_thread(lambda: torch.ones(1) + 1)
        assert not seen
        torch.ones(1) + 1
        assert seen
    del seen[:]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        in_thread(lambda: torch.ones(1, requires_grad=True) * torch.ones(1, requires_grad=True))
        assert not seen
        torch.ones(1, requires_grad=True) * torch.ones(1, requires_grad=True)
        assert seen

    def allowed() -> bool:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return True
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        assert in_thread(allowed)
        with pytest.raises(RuntimeError, match="not here"):
            allowed()


# ---- what torch refuses -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("change", [lambda t: t.resize_(10), lambda t: t.resize_(2), lambda t: t.set_(torch.ones(7))])
def test_a_saved_tensor_that_was_resized_is_noticed(change: Any) -> None:
    a, b = torch.ones(4), torch.ones(4, requires_grad=True)
    c = a * b
    change(a)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.* is at version 1; expected version 0"):
        c.sum().backward()


def test_data_and_set_of_a_leaf() -> None:
    leaf = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="data set to a tensor that requires gradients must be floating point or complex"):
        leaf.data = torch.ones(3, dtype=torch.int64)
    for source in ((), (torch.ones(4),)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation."):
            leaf.set_(*source)
    with torch.no_grad():
        assert leaf.set_(torch.ones(4)).shape == (4,)
    with pytest.raises(RuntimeError, match="Could not set tensor of type long int to a tensor of type float"):
        torch.ones(3).set_(torch.ones(3, dtype=torch.int64))


@pytest.mark.parametrize("flag", ["yes", 1, None, np.bool_(True)])
def test_requires_grad_is_a_bool(flag: Any) -> None:
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        torch.ones(3).requires_grad = flag
    for call in (torch.ones(3).requires_grad_, lambda f: torch.tensor(1., requires_grad=f),
                 lambda f: torch.nn.Parameter(torch.ones(1), requires_grad=f)):
        with pytest.raises(TypeError, match="must be bool, not "):
            call(flag)


def test_an_empty_tensor_needs_its_device_too(npu: Any) -> None:
    with pytest.raises((RuntimeError, ValueError)) as full:
        torch.empty(1, device="npu:99")
    with pytest.raises(full.type) as empty:
        torch.empty(0, device="npu:99")
    assert str(empty.value) == str(full.value)


def test_a_handler_that_gives_fewer_results_than_the_op() -> None:
    """The gradient would save results that are not there."""
    survives("""
class Answering(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls.answer

for answer, what in (((torch.ones(2, 2),), "tuple of 1"), (torch.ones(2, 2), "Tensor"), ([torch.ones(2)] * 5, "list of 5")):
    Answering.answer = answer
    x = torch._C._make_wrapper(Answering, (2, 2), None, torch.float32, "cpu", True)
    for op in (torch.linalg.eigh, torch.slogdet, torch.linalg.qr):
        said = refused(TypeError, op, x)
        assert said.endswith(f" results, but a handler gave {what}"), said
""")
