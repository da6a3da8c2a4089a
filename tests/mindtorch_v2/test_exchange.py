"""Values in and out: construction from data, NumPy, DLPack, buffers, pickle and copies, judged by PyTorch."""
from __future__ import annotations

import gc
import signal
from typing import Any

import numpy as np
import pytest
import torch
import twin

import mindtorch_v2 as mt

DATA = """1|1.5|True|1+2j|[]|[[]]|[[],[]]|[1,2.5]|[True,2]|[True,2.]|[1,2j]|[[1,2],[3,4]]|[[1,2],[3]]|[1,[2]]|[[1],2]|'a'|['a']
None|[None]|{}|{1}|object()|(1,2)|range(3)|np.float64(1)|[np.float64(1)]|[np.float32(1)]|[np.int32(1),2]|np.int8(3)
np.ones((2,3))|[np.ones(2),np.zeros(2)]|np.ones((2,3))[::-1]|np.ones((2,3)).T|np.array('a')|np.array(3.)|torch.ones(2)
[torch.tensor(1),torch.tensor(2.)]|[torch.ones(2),torch.ones(2)]|torch.ones(2,requires_grad=True)|2**40|2**63|-2**63|2**64
[2**62]|1e400|float('nan')|b'ab'|np.bool_(True)|[np.bool_(True)]|np.complex64(1)|[1.0,True]|[[1.,2],[True,3j]]|[[[1]],[[2]]]
np.float16(2)|np.datetime64('2020')|slice(1)|float|np.ones(3,dtype='>f4')|[()]|[(),()]|[[1,2],(3,4)]
torch.Size([1,2])|np.arange(6).reshape(2,3)[:,::2]|{'a':1}.values()""".replace("\n", "|").split("|")


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("make", ["tensor", "as_tensor"])
def test_from_data(make: str, data: str) -> None:
    twin.check_lines(f"torch.{make}({data})")


@pytest.mark.parametrize("data", [d for d in DATA if "np." not in d and d != "[torch.tensor(1),torch.tensor(2.)]"
                                  and d != "[torch.ones(2),torch.ones(2)]"])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool", "float64", "bfloat16", "complex64"])
def test_from_data_with_dtype(dtype: str, data: str) -> None:
    twin.check_lines(f"torch.tensor({data}, dtype=torch.{dtype})")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"])
@pytest.mark.parametrize("value", ["300", "-1", "-129", "-256", "128", "70000", "1e10", "float('inf')", "2.9"])
def test_overflow(dtype: str, value: str) -> None:
    twin.check_lines(f"torch.tensor({value}, dtype=torch.{dtype})")
    twin.check_lines(f"torch.tensor([{value}], dtype=torch.{dtype})")


ARRAYS = r"""torch.arange(6).reshape(2,3).t().numpy()
torch.ones(2,dtype=torch.bfloat16).numpy()
torch.ones(2,requires_grad=True).numpy()
torch.ones(2,requires_grad=True).detach().numpy()
torch.ones(2,requires_grad=True).numpy(force=True)
np.asarray(torch.ones(2,3))
np.array(torch.ones(2),dtype=np.int32)
torch.ones(()).numpy()
torch.from_numpy(np.arange(6).reshape(2,3).T)
torch.from_numpy([1])
torch.from_numpy(np.ones(3)[::-1])
np.add(torch.ones(2),1)
np.ones(2)+torch.ones(2)
torch.ones(2)+np.ones(2)
np.float32(2)*torch.ones(2)
torch.ones(2)*np.float64(2)
torch.ones(2)==np.ones(2)
np.ones(2)==torch.ones(2)
np.sin(torch.ones(2))
np.array([torch.tensor(1),torch.tensor(2)])
torch.frombuffer(bytearray(b'\x01\x02\x03\x04'),dtype=torch.int16)
torch.frombuffer(bytearray(b'\x01\x02\x03'),dtype=torch.int16)
torch.from_dlpack(np.arange(3))
np.from_dlpack(torch.arange(6).reshape(2,3).t())
torch.from_dlpack(torch.ones(2,3).t())
torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(torch.arange(3)))""".split("\n")


@pytest.mark.parametrize("lines", ARRAYS)
def test_arrays(lines: str) -> None:
    twin.check_lines(lines)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
                                   "complex64", "complex128"])
def test_numpy_shares_memory_both_ways(dtype: str) -> None:
    array = np.zeros((3, 4), dtype)
    tensor = mt.from_numpy(array[:, ::2])
    tensor[1, 1] = 1
    assert array[1, 2] == 1 and tensor.dtype is getattr(mt, dtype)
    back = tensor.numpy()
    back[0, 0] = 1
    assert array[0, 0] == 1 and back.strides == array[:, ::2].strides


def test_an_array_outlives_its_tensor_and_the_other_way_round() -> None:
    array = mt.arange(1000).numpy()
    tensor = mt.from_numpy(np.arange(1000))
    gc.collect()
    assert array[999] == 999 and tensor[999] == 999


def test_a_readonly_array_warns() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        mt.from_numpy(array)


def test_a_capsule_is_used_once() -> None:
    capsule = mt.ones(2).__dlpack__()
    mt.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="only once"):
        mt.from_dlpack(capsule)


COPIES = """pickle.loads(pickle.dumps(torch.device('cpu:0')))
pickle.loads(pickle.dumps(torch.float32)) is torch.float32
copy.deepcopy(torch.float32) is torch.float32
pickle.loads(pickle.dumps(torch.channels_last))
pickle.loads(pickle.dumps(torch.Size([1,2])))
pickle.loads(pickle.dumps(torch.ones(2,3).t()))
pickle.loads(pickle.dumps(torch.ones(2,requires_grad=True)))
pickle.loads(pickle.dumps(torch.nn.Parameter(torch.ones(2))))
copy.deepcopy(torch.nn.Parameter(torch.ones(2)))
copy.deepcopy(torch.ones(3)[1:]).storage_offset()
copy.deepcopy(torch.ones(2,requires_grad=True)*2)
copy.copy(torch.ones(2,requires_grad=True))""".split("\n")


@pytest.mark.parametrize("lines", [
    "repr(torch.ones(2).__dlpack__(max_version=(1, 0))).split()[2]", "repr(torch.ones(2).__dlpack__(max_version=(0, 8))).split()[2]",
    "x = torch.arange(6.)\ny = np.from_dlpack(x)\ny[0] = 9\nx, y.flags.writeable",
    "c = torch.arange(6.).view(2, 3).t().__dlpack__(max_version=(1, 0))\ny = torch.from_dlpack(c)\ny, repr(c).split()[2]",
    "c = torch.ones(2).__dlpack__(max_version=(1, 0))\ny = torch.from_dlpack(c)\ntorch.from_dlpack(c)",
    "x = torch.ones(2)\ny = torch.from_dlpack(x, copy=True)\ny[0] = 3\nx", "torch.from_dlpack(torch.ones(2).__dlpack__(), copy=True)",
    "torch.ones(2).__dlpack__(dl_device=(99, 0))", "torch.ones(2).__dlpack__(dl_device=(2, 0), copy=False)",
    "torch.ones(2).__dlpack__(dl_device='a')", "torch.ones(2, device='meta').__dlpack__()", "torch.ones(2, requires_grad=True).__dlpack__()",
    "torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(2, requires_grad=True)))", "torch.utils.dlpack.to_dlpack(1)",
    "torch.utils.dlpack.to_dlpack(torch.ones(2).to_sparse())", "torch._C._torchDeviceToDLDevice(torch.device('cpu'))",
    "torch.from_dlpack(torch._C._to_dlpack_versioned(torch.ones(2, dtype=torch.bool)))"])
def test_capsules_and_their_versions(lines: str) -> None:
    twin.check_lines(lines, message=True)


def test_what_gives_a_capsule_is_asked_as_torch_asks_it() -> None:
    for lib in (torch, mt):
        asked: list[dict[str, Any]] = []

        class Giver:
            def __dlpack__(self, **options: Any) -> Any:
                asked.append(options)
                if len(asked) == 1:
                    raise TypeError("an older one")
                return lib.ones(2).__dlpack__()

            def __dlpack_device__(self) -> tuple[int, int]:
                return 1, 0
        assert lib.from_dlpack(Giver(), copy=True, device="cpu").tolist() == [1, 1]
        lib.from_dlpack(Giver())
        wanted = {"copy": True, "dl_device": (1, 0)}
        assert asked == [{"max_version": (1, 0), **wanted}, wanted, {"max_version": (1, 0)}]


@pytest.mark.parametrize("line", COPIES)
def test_pickle_and_copy(line: str) -> None:
    twin.check_lines("import copy, pickle\n" + line)


@pytest.mark.parametrize("way", ["pickle.loads(pickle.dumps(pair))", "copy.deepcopy(pair)"])
def test_copies_keep_sharing(way: str) -> None:
    twin.check_lines(f"import copy, pickle\nx=torch.arange(10)\npair=(x[:5],x[2:])\na,b={way}\na[2]=99\nb")


def test_resizing_a_storage_moves_every_tensor_with_it() -> None:
    x = mt.arange(4)
    y = x.view(2, 2)
    x.resize_(100000)
    assert y.tolist() == [[0, 1], [2, 3]] and y.data_ptr() == x.data_ptr()


def test_shared_memory_keeps_views() -> None:
    x = mt.arange(4)
    y = x[1:]
    assert x.share_memory_() is x and x.is_shared() and y.is_shared()
    x[1] = 7
    assert y.tolist() == [7, 2, 3]


def test_pinned_memory_is_marked() -> None:
    x = mt.ones(3)
    y = x.pin_memory()
    assert not x.is_pinned() and y.is_pinned() and y.untyped_storage()._pinned and y.tolist() == [1, 1, 1]
    assert y.pin_memory() is y


class Endless:
    """Says that it has so many items, and has any."""

    def __init__(self, length: int, items: int | None = None) -> None:
        self.length, self.items = length, items

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> float:
        if self.items is not None and index >= self.items:
            raise IndexError(index)
        return 1.0


@pytest.mark.parametrize("data", [Endless(2**62), range(2**62), [range(2**62)], [Endless(2**60)]],
                         ids=["sequence", "range", "list of a range", "list of a sequence"])
def test_more_items_than_any_memory_holds_are_refused_without_asking_for_all(data: Any) -> None:
    with pytest.raises(RuntimeError, match="allocate|overflow"):
        mt.tensor(data)


def test_a_sequence_that_ends_early_is_an_error() -> None:
    with pytest.raises(IndexError, match="3"):    # as torch
        mt.tensor(Endless(2**62, 3))


@pytest.mark.parametrize("dtype", [None, mt.float16])
def test_ctrl_c_ends_a_long_conversion(dtype: Any) -> None:
    """Of a sequence that is C, so that no Python runs between its items."""
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            mt.tensor(range(2**29), dtype=dtype)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
