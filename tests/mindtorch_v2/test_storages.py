"""Typed and untyped storages: how they are made, read, cast and refused, against PyTorch's."""
from __future__ import annotations

import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.multiprocessing.reductions
import twin

import mindtorch_v2 as mt

MADE = """torch.TypedStorage([1,2,3],dtype=torch.float64).tolist()
torch.TypedStorage(5,dtype=torch.int32).dtype
torch.TypedStorage().size()
torch.TypedStorage([1.,2.],dtype=torch.float32,device='meta').size()
torch.TypedStorage(0,0)
torch.TypedStorage('string',dtype=torch.float32)
torch.TypedStorage(wrap_storage=0,dtype=torch.float32)
torch.TypedStorage(wrap_storage=torch.UntypedStorage(4))
torch.TypedStorage(wrap_storage=torch.UntypedStorage(4),dtype=0)
torch.TypedStorage(wrap_storage=torch.UntypedStorage(4),dtype=torch.float32,device='cpu')
torch.FloatStorage(0,0,dtype=torch.float32)
torch.FloatStorage('string')
torch.FloatStorage(1,device='meta')
torch.FloatStorage(wrap_storage=torch.UntypedStorage(4,device='meta'))
torch.FloatStorage(torch.ones(2).untyped_storage())
torch.storage._LegacyStorage()
torch.is_storage(torch.FloatStorage(1)), torch.is_storage(1)
torch.ones(1,dtype=torch.int8).storage_type() is torch.CharStorage
isinstance(torch.ones(1).storage(), torch.FloatStorage), isinstance(torch.ones(1).storage(), torch.IntStorage)""".split("\n")
META = """s[0]|s.fill_(1).size()|s.tolist()|s.copy_(s).size()|s.clone().device|s.cpu()|s.share_memory_()|s.float().size()|s.type()
repr(s)|list(s)|s.nbytes(), s.element_size(), s.is_shared(), s.data_ptr()|s.untyped().tolist()|s.untyped()[0]
s.untyped().fill_(1).size()""".replace("\n", "|").split("|")
ITEMS = """s[1]|s[-1]|s[5]|s[1.5]|s[0:1]|s[torch.tensor(1)]|s.double().tolist()|s.complex_float().tolist()|s.bool().tolist()|s.half().dtype
s.type()|s.is_cuda|s.filename|s._pickle_storage_type()|s.cpu().tolist()|s.untyped().float().size()|s.untyped()[99]|s.untyped()['a']
torch.ones(2,dtype=torch.float64).set_(s)|torch.ones(2).set_(s).tolist()""".replace("\n", "|").split("|")


@pytest.mark.parametrize("line", MADE)
def test_storages_are_made_and_refused_as_torch_does(line: str) -> None:
    twin.check_lines(line)


@pytest.mark.parametrize("line", META)
def test_storages_without_data(line: str) -> None:
    twin.check_lines(f"s=torch.TypedStorage(3,device='meta',dtype=torch.float32)\n{line}")


@pytest.mark.parametrize("line", ITEMS)
def test_items_of_storages(line: str) -> None:
    twin.check_lines(f"s=torch.FloatStorage([1,2,3])\n{line}")


@pytest.mark.parametrize("lines", [
    "s=torch.FloatStorage([1,2,3])\ns[:]=7\ns[1]=5\ns.tolist()", "s=torch.FloatStorage([1,2,3])\ns[3]=5\ns",
    "s=torch.FloatStorage([1,2,3])\ns[[0]]=5\ns", "s=torch.UntypedStorage([1,2])\ns[0]=300\ns.tolist()",
    "import copy\ncopy.copy(torch.FloatStorage([1,2])).tolist(), copy.deepcopy(torch.FloatStorage([1,2])).tolist()",
    "torch.FloatStorage.from_file(__import__('tempfile').mkdtemp()+'/f',True,3).fill_(2.).tolist()"])
def test_writing_to_storages(lines: str) -> None:
    twin.check_lines(lines)


def test_typed_storages_warn() -> None:
    """Once, or at every use that is not part of another."""
    storage = mt.storage
    storage._reset_warn_typed_storage_removal()
    uses: list[Callable[[], object]] = [
        lambda: mt.FloatStorage(2), lambda: mt.ones(2).storage(), lambda: made.fill_(0), lambda: made.is_cuda, lambda: len(made),
        lambda: made[0], lambda: made.tolist(), lambda: made.float(), lambda: made.untyped(), lambda: repr(made)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = mt.FloatStorage(3)
        made.fill_(1)
        assert len(seen) == 1
        storage._set_always_warn_typed_storage_removal(True)
        try:
            for use in uses:
                del seen[:]
                use()
                assert [str(w.message)[:26] for w in seen] == ["TypedStorage is deprecated"]
        finally:
            storage._set_always_warn_typed_storage_removal(False)


@pytest.mark.parametrize("line", """torch.UntypedStorage([1.5])|torch.UntypedStorage('a')|torch.UntypedStorage(torch.ones(2))
torch.UntypedStorage([300]).tolist()|torch.UntypedStorage(2).fill_('a')|torch.UntypedStorage(2).resize_('a')
torch.UntypedStorage.from_buffer(b'abcd')|torch.BoolStorage.from_buffer(b'ab')|torch.UntypedStorage([1, 2]).__setitem__(-1, 1)
torch.utils.dlpack.DLDeviceType.kDLCPU == torch.ones(2).__dlpack_device__()[0]|torch.FloatTensor(size=(2,)).shape
torch.FloatTensor('a')|torch.FloatTensor([1], 2)|torch.FloatTensor([1], dtype=torch.float)|torch.Tensor({1, 2})
__import__('pickle').loads(__import__('pickle').dumps(torch.ones(2, 3, device='meta').t()))
torch.DoubleTensor(torch.ones(2).storage())|torch.HalfTensor(torch.tensor([1]))""".replace("\n", "|").split("|"))
def test_makers(line: str) -> None:
    twin.check_lines(line, message=True)


def test_the_object_of_a_storage_lives_as_long_as_the_storage() -> None:
    """Attributes and weak references stay while tensors use the memory, and end with it."""
    x = mt.ones(3)
    x.untyped_storage().note = "kept"
    seen = weakref.ref(x.untyped_storage())
    gc.collect()
    assert x.view(3, 1).untyped_storage().note == "kept" and seen() is x.untyped_storage()
    held = x.untyped_storage()
    del x
    assert seen() is held and held.nbytes() == 12 and held.note == "kept"
    del held
    gc.collect()
    assert seen() is None


def test_a_storage_that_gets_no_memory_is_an_error() -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", """
import ctypes, resource
import mindtorch_v2 as torch
malloc = ctypes.CDLL(None).malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
spare, kept, failed = [torch.UntypedStorage(0) for _ in range(1000)], [], 0
try:
    torch.UntypedStorage(1 << 60)                # what C++ keeps of a thread's exceptions is allocated with the first
except RuntimeError:
    pass
with open("/proc/self/statm") as f:
    resource.setrlimit(resource.RLIMIT_AS, (int(f.read().split()[0]) * resource.getpagesize(), resource.RLIM_INFINITY))
size = 1 << 20
while size >= 16:                                # whatever malloc has left; objects still come from Python's own pools
    while malloc(size):
        pass
    size -= 16 if size <= 1024 else size // 2
for _ in range(100):
    try:
        kept.append(torch.UntypedStorage(0))
    except MemoryError:
        failed += 1
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(failed > 0, torch.UntypedStorage(4).nbytes())
"""], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True 4\n", "")


def test_a_storage_in_a_circle_ends() -> None:
    x = mt.ones(2)
    y = mt.zeros(2)
    storage = mt.UntypedStorage(3)
    storage.me, storage.other = storage, y
    seen = weakref.ref(storage)
    del storage
    gc.collect()
    assert seen() is None
    y.set_(x.untyped_storage(), 0, (2,), (1,))
    assert y.tolist() == [1, 1]


def test_classes_over_storages_and_their_base() -> None:
    class Own(mt._C.StorageBase):
        pass
    with pytest.raises(RuntimeError, match="Cannot directly construct StorageBase"):
        mt._C.StorageBase()
    storage = mt.UntypedStorage([1, 2])
    made = Own(storage)
    assert type(made) is Own and made.nbytes() == 2 and made.data_ptr() == storage.data_ptr()


@pytest.mark.parametrize("lines", [
    "torch.UntypedStorage(1, 2)", "torch.UntypedStorage(4, foo=1)", "torch.UntypedStorage(1.5)", "torch.UntypedStorage(True)",
    "torch.UntypedStorage(torch.tensor(3)).nbytes()", "torch.UntypedStorage(size=3).nbytes(), torch.UntypedStorage(sequence=[3])[0]",
    "torch.UntypedStorage([1, 2], device='meta').nbytes()", "torch.UntypedStorage(-1)", "torch.UntypedStorage({})",
    "s = torch.zeros(2).untyped_storage()\ns.copy_(torch.ones(2))", "s = torch.zeros(2).storage()\ns.copy_(torch.ones(3).storage())",
    "s = torch.zeros(2).untyped_storage()\ns.copy_(torch.ones(2).storage()).tolist()",
    "s = torch.zeros(2).untyped_storage()\ns[::2] = 7", "s = torch.zeros(2).storage()\ns.cpu() is s, s.get_device()",
    "torch.FloatStorage._new_shared(3).is_shared()", "torch.FloatStorage.from_file('x')", "torch.FloatStorage(3.5)",
    "torch.ByteStorage.from_buffer(bytearray([0, 1]), 'foo').tolist()", "torch.ByteStorage.from_buffer(bytearray([0]), 'native', 1, 7)",
    "torch.zeros(3)[3:].data_ptr(), torch.zeros(0).data_ptr()", "torch.tensor(torch.FloatStorage([1, 2]))",
    "torch.zeros(2).set_(torch.IntStorage(4))", "torch.FloatTensor(torch.IntStorage(4))"])
def test_wrong_storages_are_told_as_torch_tells_them(lines: str) -> None:
    twin.check_lines(lines, message=True)


@pytest.mark.parametrize("shared", [True, False])
def test_a_storage_over_a_file_is_shared(shared: bool, tmp_path: Path) -> None:
    for lib in (torch, mt):
        (tmp_path / "items").write_bytes(bytes(8))
        made = lib.FloatStorage.from_file(str(tmp_path / "items"), shared, 2)
        assert made.is_shared() and (made.filename is not None) == shared


def test_weak_references_of_storages() -> None:
    for lib in (torch, mt):
        tensor = lib.zeros(2)
        seen = lib.multiprocessing.reductions.StorageWeakRef(tensor.untyped_storage())
        again = lib.multiprocessing.reductions.StorageWeakRef(tensor.storage())
        view = tensor.view(2, 1)
        del tensor
        assert seen == again and hash(seen) == hash(again) and not seen.expired() and seen.cdata == view.untyped_storage()._cdata
        del view
        assert seen.expired()
