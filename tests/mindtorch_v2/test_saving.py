"""torch.save replaces a file as a whole: an error, a full disk or a kill leaves the checkpoint that was there."""

from __future__ import annotations

import collections
import gzip
import io
import os
import pickle
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from twin import error, twin

import mindtorch_v2 as mt


def files_of(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.pt"
    mt.save(mt.ones(3), path)
    before = path.read_bytes()
    place = mt.serialization._to_device
    monkeypatch.setattr(mt.serialization, "_to_device", lambda s, where: place(s, where) if len(s) < 100 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        mt.save([mt.ones(2), mt.ones(100)], path)
    with pytest.raises(ZeroDivisionError):
        mt.save([mt.ones(2), mt.ones(100)], tmp_path / "new.pt")
    with pytest.raises(AttributeError, match="Can't pickle local object"):
        mt.save(lambda: None, path)
    assert path.read_bytes() == before and files_of(tmp_path) == ["model.pt"]


@pytest.mark.parametrize("nameless", [True, False], ids=["O_TMPFILE", "named"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, nameless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.pt"
    mt.save(mt.ones(3), path)
    before = path.read_bytes()
    archive = sys.modules[mt.serialization.replacing.__module__]
    if not nameless:
        named = lambda folder, name: (os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), True)
        monkeypatch.setattr(archive, "_new_file", named)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            mt.save(mt.ones(1 << 20), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and files_of(tmp_path) == ["model.pt"]
    mt.save(mt.ones(4), path)
    assert mt.load(path).shape == (4,) and files_of(tmp_path) == ["model.pt"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_open(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        mt.save(1, tmp_path / "new.pt")
        (tmp_path / "plain").write_bytes(b"")
    finally:
        os.umask(before)
    plain = (tmp_path / "plain").stat()
    assert stat.S_IMODE((tmp_path / "new.pt").stat().st_mode) == stat.S_IMODE(plain.st_mode)
    (tmp_path / "new.pt").chmod(0o640)
    mt.save(2, tmp_path / "new.pt")
    assert stat.S_IMODE((tmp_path / "new.pt").stat().st_mode) == 0o640 and mt.load(tmp_path / "new.pt") == 2


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.pt", tmp_path / "there" / "model.pt"
    link.symlink_to(target)
    for value in (1, 2):  # the first time the link leads nowhere
        mt.save(value, link)
        assert link.is_symlink() and mt.load(target) == value and mt.load(link) == value
    assert files_of(tmp_path) == ["link.pt", "there"] and files_of(tmp_path / "there") == ["model.pt"]


def test_what_is_no_file_is_written_directly(tmp_path: Path) -> None:
    mt.save(mt.ones(3), "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    mt.save(mt.arange(3), pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode) and mt.load(io.BytesIO(got[0])).tolist() == [0, 1, 2]
    file = io.BytesIO(b"before")
    file.seek(6)
    mt.save(mt.arange(3), file)
    file.seek(6)
    assert file.getvalue().startswith(b"before") and mt.load(file).tolist() == [0, 1, 2]


def test_errors_of_paths(tmp_path: Path) -> None:
    for library in (mt, torch):
        with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
            library.save(1, tmp_path / "no" / "model.pt")
    with pytest.raises(IsADirectoryError):
        mt.save(1, tmp_path)
    assert files_of(tmp_path) == []


NOBODY = """
import os, sys
sys.path[:0] = {path!r}
import mindtorch_v2 as mt
mt.save(0, os.devnull)
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
folder = {folder!r}
try:
    mt.save(2, folder + "/readonly.pt")
except PermissionError:
    print("refused")
mt.save(mt.ones(3), folder + "/closed/model.pt")
print(mt.load(folder + "/closed/model.pt").tolist(), mt.load(folder + "/readonly.pt"))
"""


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    """As a user other than root: a read-only file in an own folder, and an own file in a read-only folder."""
    for folder in tmp_path.parents[:3]:          # pytest's own; one more where several processes run the tests
        if folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(0o711)
    tmp_path.chmod(0o777)
    (tmp_path / "closed").mkdir()
    mt.save(1, tmp_path / "readonly.pt")
    mt.save(1, tmp_path / "closed" / "model.pt")
    (tmp_path / "readonly.pt").chmod(0o444)
    (tmp_path / "closed" / "model.pt").chmod(0o666)
    (tmp_path / "closed").chmod(0o555)
    script = NOBODY.format(path=[p for p in sys.path if p], folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.stdout.split("\n")[:2] == ["refused", "[1.0, 1.0, 1.0] 1"], done.stderr
    assert files_of(tmp_path) == ["closed", "readonly.pt"]


def save_for_ever(path: Path, saved: int) -> None:
    step = 0
    while True:
        step += 1
        mt.save({"step": step, "weights": mt.full((200_000,), float(step))}, path)
        os.write(saved, b".")


def test_a_killed_save_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    path, r = tmp_path / "model.pt", random.Random(9)
    for _ in range(15):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                save_for_ever(path, write)
            finally:
                os._exit(1)
        os.read(read, 1)                          # it has saved one, and saves on
        time.sleep(r.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        found = mt.load(path)
        assert found["weights"].shape == (200_000,) and (found["weights"] == found["step"]).all()
        assert found["step"] > 0
        os.close(read), os.close(write)


def test_paths_that_open_refuses(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        mt.save(mt.ones(2), loop)
    assert loop.is_symlink()
    with pytest.raises(IsADirectoryError):
        mt.save(mt.ones(2), f"{tmp_path}/new/")
    assert [entry.name for entry in tmp_path.iterdir()] == ["loop"]


def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    path = os.path.join(tmp_path, os.fsdecode(b"caf\xe9.pt"))
    mt.save(mt.ones(2), path)
    assert mt.load(path).tolist() == torch.load(path).tolist() == [1, 1]


class PartialWriter(io.BytesIO):
    """Takes at most ten bytes at a time, as a raw file may."""

    def write(self, data: Any) -> int:
        return super().write(bytes(data)[:10])


class FullWriter(io.BytesIO):
    def write(self, data: Any) -> int:
        return 0


def test_a_file_that_takes_a_part() -> None:
    file = PartialWriter()
    mt.save(mt.arange(1000), file)
    assert mt.load(io.BytesIO(file.getvalue())).tolist() == list(range(1000))
    with pytest.raises(OSError, match="took 0 of"):
        mt.save(mt.ones(2), FullWriter())


class Shell(mt.Tensor):
    """A class that has its values in an attribute."""

    held: Any

    @staticmethod
    def __new__(cls: type, inner: Any) -> Any:
        made = mt.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)
        made.held = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(func)


def loaded(obj: Any, **options: Any) -> Any:
    file = io.BytesIO()
    mt.save(obj, file, _use_new_zipfile_serialization=not options.pop("legacy", False))
    file.seek(0)
    return mt.load(file, **options)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_class_that_has_its_values_elsewhere(legacy: bool) -> None:
    shell = Shell(mt.arange(3.0))
    with mt.serialization.safe_globals([Shell]):
        found = loaded([shell], legacy=legacy)[0]
    assert type(found) is Shell and found.held.tolist() == [0, 1, 2] and found.shape == (3,)
    with pytest.raises(pickle.UnpicklingError, match="GLOBAL .*Shell was not an allowed global by default"):
        loaded(shell, legacy=legacy)


def test_sparse_tensors_of_files_whose_bytes_come_last(tmp_path: Path) -> None:
    coo, csr = torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()
    torch.save([coo, csr], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    found = mt.load(tmp_path / "old.pt")
    assert [x.to_dense().tolist() for x in found] == [[[1, 0], [0, 1]]] * 2
    raw = (tmp_path / "old.pt").read_bytes()
    indices = bytes(coo._indices().untyped_storage())    # storages lie in the order of their addresses; both tensors have these
    damaged = indices.replace(b"\1", b"\x09", 1)         # an index that the size does not have
    (tmp_path / "bad.pt").write_bytes(raw.replace(indices, damaged))
    for kind in (pickle.UnpicklingError, RuntimeError):        # the second is PyTorch's
        with pytest.raises(kind, match="the parts of a sparse tensor do not fit together: .*size is inconsistent with indices"):
            mt.load(tmp_path / "bad.pt")


def test_what_is_said_of_a_global_that_is_not_allowed() -> None:
    class_of_ours = collections.UserDict
    for lib in (mt, torch):
        file = io.BytesIO()
        lib.save(class_of_ours(), file)
        file.seek(0)
        with pytest.raises(pickle.UnpicklingError) as caught:
            lib.load(file)
        said = str(caught.value)
        for words in ("This file can still be loaded, to do so you have two options", "`weights_only` set to `False` will likely",
                      "Unsupported global: GLOBAL collections.UserDict was not an allowed global by default. Please use "
                      "`torch.serialization.add_safe_globals([collections.UserDict])`"):
            assert words in said
    with pytest.raises(RuntimeError, match=r"don't know how to restore data location of torch.storage.UntypedStorage .tagged with"):
        loaded(mt.ones(1), map_location="nowhere")


@pytest.mark.parametrize("zipped", [True, False])
def test_files_that_are_written_forward_only(zipped: bool, tmp_path: Path) -> None:
    """A GzipFile says that it can seek; both libraries read what was written into one."""
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        mt.save({"w": mt.arange(4.0)}, file, _use_new_zipfile_serialization=zipped)
    for lib in (mt, torch):
        with gzip.open(tmp_path / "x.gz", "rb") as file:
            assert lib.load(file)["w"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_sparse_tensor_with_wrong_indices_is_a_runtime_error_too(weights_only: bool) -> None:
    file = io.BytesIO()
    torch.save(torch.sparse_coo_tensor(torch.tensor([[0, 5]]), torch.ones(2), (3,), check_invariants=False), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="size is inconsistent with indices: for dim 0, size is 3 but found index 5"):
        mt.load(file, weights_only=weights_only)


@twin
def test_private_helpers_of_files(t, tmp_path):
    s, path = t.serialization, tmp_path / f"{t.__name__}.pt"
    t.save({"a": t.ones(2)}, path)
    with s._open_file_like(path, "rb") as file:
        facts = [s._check_seekable(file), s._should_read_directly(file), s._is_compressed_file(file), s._is_zipfile(file)]
    closed = file.closed
    buffer = io.BytesIO(b"ab")
    with s._open_file_like(buffer, "r") as opened:
        read = opened.read().decode()
    with s._open_file_like(buffer, "w") as opened:
        opened.write(b"c")
    with s._open_zipfile_reader(str(path)) as archive:
        script = s._is_torchscript_zip(archive)
    packed = gzip.GzipFile(fileobj=io.BytesIO(), mode="wb")
    return (facts, closed, read, opened is buffer, buffer.closed, script, s._is_compressed_file(packed), s._should_read_directly(packed),
            s._should_read_directly(buffer), s._get_restore_location({"cpu": "meta"})(t.UntypedStorage(1), "cpu").device.type,
            error(lambda: s._check_seekable(object())), error(lambda: s._open_file_like(3, "r")),
            error(lambda: s._open_file_like(buffer, "q")), error(lambda: s._check_save_filelike(3)))
