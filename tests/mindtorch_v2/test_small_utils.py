"""Small modules of torch.utils that programs import: what they do is what PyTorch's do."""
from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._appending_byte_serializer
import torch.utils._exposed_in
import torch.utils._functools
import torch.utils._thunk
import torch.utils._typing_utils
import torch.utils.file_baton
import torch.utils.show_pickle
from twin import error, twin

import mindtorch_v2 as mt
import mindtorch_v2.utils._appending_byte_serializer
import mindtorch_v2.utils._exposed_in
import mindtorch_v2.utils._functools
import mindtorch_v2.utils._thunk
import mindtorch_v2.utils._typing_utils
import mindtorch_v2.utils.file_baton
import mindtorch_v2.utils.show_pickle


@twin
def test_values_that_are_computed_once(t):
    calls = []

    class Doubling:
        @t.utils._functools.cache_method
        def of(self, x: int) -> int:
            calls.append(x)
            return 2 * x

    first, second = Doubling(), Doubling()
    thunk = t.utils._thunk.Thunk(lambda: calls.append(0) or 5)
    return ([first.of(1), first.of(1), second.of(1), first.of(2)], thunk.force(), thunk.force(), calls,
            t.utils._exposed_in.exposed_in("torch.x")(lambda: None).__module__, t.utils._typing_utils.not_none(0),
            error(lambda: t.utils._typing_utils.not_none(None)))


@twin
def test_values_appended_as_bytes(t):
    module = t.utils._appending_byte_serializer

    def write(writer: Any, value: tuple[str, int]) -> None:
        writer.write_str(value[0])
        writer.write_uint64(value[1])

    serializer = module.AppendingByteSerializer(serialize_fn=write)
    serializer.extend([("a", 1), ("bc", 2)])
    serializer.append(("", 3))
    read = lambda reader: (reader.read_str(), reader.read_uint64())  # noqa: E731
    found = module.AppendingByteSerializer.to_list(serializer.to_bytes(), deserialize_fn=read)
    serializer.clear()
    return found, module.AppendingByteSerializer.to_list(serializer.to_bytes(), deserialize_fn=read)


@twin
def test_a_file_that_one_process_holds(t, tmp_path: Path):
    path = str(tmp_path / f"{t.__name__}.lock")
    first, second = t.utils.file_baton.FileBaton(path), t.utils.file_baton.FileBaton(path, wait_seconds=0.01)
    taken = first.try_acquire(), second.try_acquire()
    first.release()
    second.wait()
    return taken, second.try_acquire()


class Named:
    def __init__(self) -> None:
        self.weight = 3


@twin
def test_a_pickle_is_shown_without_its_objects(t, tmp_path: Path):
    path = tmp_path / f"{t.__name__}.pt"
    t.save({"n": Named(), "l": [1, (2.5, None)], "s": "text"}, path)
    shown = io.StringIO()
    t.utils.show_pickle.main(["", f"{path}@*/data.pkl"], output_stream=shown)
    missing = error(lambda: t.utils.show_pickle.main(["", f"{path}@*/nothing"], output_stream=shown))
    return shown.getvalue(), missing == "no error"


@twin
def test_function_modes_as_a_stack(t):
    overrides = t.overrides
    with overrides.BaseTorchFunctionMode() as outer, overrides.BaseTorchFunctionMode() as inner:
        with overrides._pop_mode_temporarily() as popped:
            without = overrides._get_current_function_mode() is outer
        again = t._C._pop_torch_function_stack()
        t._C._push_on_torch_function_stack(again)
        return popped is inner, without, again is inner, t._C._len_torch_function_stack(), t._C._get_function_stack_at(0) is outer


def test_dispatch_modes_can_be_left_for_a_while() -> None:
    dispatch = mt.utils._python_dispatch
    with dispatch.TorchDispatchMode() as mode:
        with dispatch._pop_mode_temporarily() as popped:
            assert popped is mode and dispatch._get_current_dispatch_mode() is None
        assert dispatch._get_current_dispatch_mode() is mode


@twin
def test_batches_of_pipes_are_chunks(t):
    data = t.utils.data
    chunks = list(data.datapipes.iter.IterableWrapper(range(5)).batch(2))
    return ([type(c).__name__ for c in chunks], [list(c) for c in chunks], chunks[0].as_str(" "), list(chunks[0].raw_iterator()),
            [p.name for p in data.graph_settings.SHARDING_PRIORITIES])


def test_a_text_that_is_none_is_shown_as_bytes() -> None:
    shown = io.StringIO()
    show = mt.utils.show_pickle
    assert show.DumpUnpickler.dump(io.BytesIO(pickle.dumps(OrderedDict(a=1), 2)), shown) == {"a": 1}
    broken = io.BytesIO(b"\x80\x02X\x01\x00\x00\x00\xff.")
    assert show.DumpUnpickler(broken, catch_invalid_utf8=True).load() == "(bytes b'\\xff')"
    broken.seek(0)
    with pytest.raises(UnicodeDecodeError):
        show.DumpUnpickler(broken).load()
    assert torch.utils.show_pickle.FakeObject("m", "n", (1,)).__repr__() == repr(show.FakeObject("m", "n", (1,)))
