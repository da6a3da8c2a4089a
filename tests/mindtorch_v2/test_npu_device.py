"""torch.npu: devices, streams, events and generators, on a device; and what is said where there is none."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cann_tables
import mindtorch_v2 as torch
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import acl_loader, capi, runtime, soc, streams

# torch_npu 2.13's names of devices, streams, events and random numbers, with their parameters.
PUBLIC = """
can_device_access_peer device_id peer_device_id
current_blas_handle
current_device
current_stream device
default_stream device
device_count
get_default_generator device_index
get_device_capability device
get_device_limit device
get_device_name device_name
get_device_properties device_name
get_rng_state device
get_rng_state_all
get_stream_limit stream
init
initial_seed
is_initialized
manual_seed seed
manual_seed_all seed
npurt
reset_stream_limit stream
restart_device device_id rebuild_all_resources disable_tensor_unsafe_check
seed
seed_all
set_device device
set_op_timeout_ms timeout
set_rng_state new_state device
set_rng_state_all new_states
set_stream stream
set_stream_limit stream cube_num vector_num
stop_device device_id
stream stream
synchronize device
utilization device
Event enable_timing blocking interprocess
ExternalEvent
ExternalStream stream_ptr device kwargs
Stream device priority kwargs
StreamContext stream_ctx
SyncLaunchStream device priority kwargs
device device
device_of obj
"""
MEMBERS = {
    "Stream": "device device_index device_type is_capturing native_handle npu_stream priority priority_range query record_event "
    "set_data_preprocess_stream stream_id synchronize wait_event wait_stream",
    "Event": "device elapsed_time event_id from_ipc_handle ipc_handle npu_event query record recorded_time reset synchronize wait",
}


@pytest.mark.parametrize("row", [row for row in PUBLIC.split("\n") if row])
def test_names_and_parameters_are_torch_npus(row: str) -> None:
    name, *parameters = row.split()
    assert list(inspect.signature(getattr(torch.npu, name)).parameters) == parameters


def test_members_are_torch_npus(npu: ModuleType) -> None:
    for made, names in ((npu.Stream(), MEMBERS["Stream"]), (npu.Event(), MEMBERS["Event"])):
        assert not set(names.split()) - set(dir(made))


# ---- without a device -------------------------------------------------------------------------------------------------
def test_without_cann_it_is_said_quietly_or_at_length() -> None:
    code = """
import mindtorch_v2 as torch
assert torch.npu.is_available() is False and torch.npu.device_count() == 0
assert torch.accelerator.is_available() is False and torch.accelerator.current_accelerator() is None
print("--")
torch.npu.is_available(verbose=True)
for use in (torch.npu.init, torch.npu.synchronize, lambda: torch.ones(2, device="npu"), lambda: torch.ones(2).npu()):
    try:
        use()
    except RuntimeError as error:
        assert "CANN was not found" in str(error), error
    else:
        raise SystemExit("no error")
"""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    quiet, _, said = done.stdout.partition("--\n")
    assert quiet == "" and done.stderr == ""
    assert "ASCEND_HOME_PATH=(not set)" in said and "Install the Ascend driver and the CANN toolkit" in said


@pytest.fixture
def little_acl(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A device of which CANN says nothing."""
    before = dict(runtime._runtimes)
    rt = SimpleNamespace(
        set_device=lambda device: 0, create_context=lambda device: (1, 0), create_stream=lambda: (2, 0), set_context=lambda context: 0,
        get_mem_info=lambda kind: (0, 0, 207000),
    )  # fmt: skip
    acl = SimpleNamespace(init=lambda: 0, finalize=lambda: 0, get_soc_name=lambda: None, rt=rt)
    for name, value in (("acl", acl), ("_runtimes", {}), ("_started", None), ("_thread", runtime._Thread())):
        monkeypatch.setattr(runtime, name, value)
    monkeypatch.setattr(runtime, "_RUNTIME_CLEANUP_REGISTERED", True)
    yield acl
    _C._npu_set_bound(-1)
    for index in (0, 1):
        _C._npu_set_default_stream(index, before[index].stream if index in before else 0)


def test_what_cann_does_not_say_has_a_default_and_a_warning(little_acl: SimpleNamespace) -> None:
    with pytest.warns(UserWarning, match="does not say what the SoC is"):
        assert torch.npu.get_device_name(0) == "Ascend"
    with pytest.warns(UserWarning, match="generation of npu:0"):
        assert torch.npu.get_device_capability(0) == (0, 0)
    with pytest.warns(UserWarning, match="properties of npu:0 are incomplete"):
        properties = torch.npu.get_device_properties(0)
    assert (properties.name, properties.total_memory, properties.cube_core_num) == ("Ascend", 0, 0)
    assert torch.npu.stream_priority_range() == (0, 0)  # there is no such call before CANN 8.5


def test_the_seams_are_called(monkeypatch: pytest.MonkeyPatch, little_acl: SimpleNamespace) -> None:
    monkeypatch.setattr(torch.npu, "_get_device_name", lambda device: f"Ascend910_9391 number {device}")
    assert torch.npu.get_device_name("npu:1") == "Ascend910_9391 number 1"
    assert torch.npu.get_device_capability(torch.device("npu:1")) == (9, 2)
    monkeypatch.setattr(torch.npu, "_get_device_capability", lambda device: (7, device))
    assert torch.npu.get_device_capability(1) == (7, 1)
    with pytest.warns(UserWarning):
        assert torch.npu.get_device_properties(1).minor == 1


# ---- devices ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("given, index", [(None, 0), (1, 1), ("npu", 0), ("npu:1", 1), (torch.device("npu:1"), 1), (torch.device("npu"), 0)])
def test_a_device_can_be_given_in_many_ways(npu: ModuleType, given: Any, index: int) -> None:
    assert npu._device_index(given) == index


def test_what_is_no_npu_is_refused(npu: ModuleType) -> None:
    with pytest.raises(ValueError, match="Expected a npu device, but got: cpu"):
        npu.set_device("cpu")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        npu.set_device(npu.device_count())


def test_the_current_device(npu: ModuleType) -> None:
    assert npu.current_device() == 0 and npu.device_count() >= 2
    with npu.device(1) as context:
        assert npu.current_device() == 1 and context.idx == 1
        assert torch.empty(1, device="npu").device == torch.device("npu:1")
        with npu.device(None), npu.device(-1):
            assert npu.current_device() == 1
    assert npu.current_device() == 0
    with pytest.raises(KeyError), npu.device("npu:1"):
        raise KeyError
    assert npu.current_device() == 0
    npu.set_device("npu:1")
    npu.set_device(-1)
    assert npu.current_device() == 1
    npu.set_device(0)
    with npu.device_of(torch.empty(1, device="npu:1")):
        assert npu.current_device() == 1
        with npu.device_of(torch.empty(1)):
            assert npu.current_device() == 1


def test_socs_have_the_families_of_canns_table() -> None:
    rows = [row[:2] for row in cann_tables.socs() if row[0].startswith(("Ascend3", "Ascend9"))]
    assert len(rows) > 20
    for name, family in rows:
        assert soc.family_of(name) == family
    assert soc.family_of("Ascend031") == ""


def test_properties_come_from_the_device(npu: ModuleType) -> None:
    properties = npu.get_device_properties()
    assert properties.name == npu.get_device_name() and properties.name.startswith("Ascend")
    assert properties.total_memory == npu.mem_get_info()[1] > 0
    assert properties.cube_core_num > 0 and properties.vector_core_num > 0 and properties.L2_cache_size > 0
    assert (properties.major, properties.minor) == npu.get_device_capability() >= (3, 0)
    assert repr(properties).startswith(f"_NPUDeviceProperties(name='{properties.name}', total_memory=")
    assert npu.is_bf16_supported() == (npu.get_device_capability() >= (9, 1))


def test_peers(npu: ModuleType) -> None:
    assert npu.can_device_access_peer(0, 0) is False and npu.can_device_access_peer(0, 1) is True
    for pair in ((0, 99), (99, 0), (-1, 0)):
        with pytest.warns(UserWarning, match="is not there: CANN sees"):
            assert npu.can_device_access_peer(*pair) is False
    npu.enable_peer_access(0, 1)
    npu.disable_peer_access(1)  # of the current device, 0
    with pytest.raises(RuntimeError, match="npu:0 cannot access the memory of npu:0"):
        npu.enable_peer_access(0, 0)


def test_utilization_is_a_percentage(npu: ModuleType) -> None:
    assert 0 <= npu.utilization() <= 100


def test_threads_use_devices_of_their_own(npu: ModuleType) -> None:
    seen: list[tuple[int, int]] = []

    def work(index: int) -> None:
        npu.set_device(index)
        for _ in range(20):
            npu.Stream().synchronize()
            npu.synchronize()
        seen.append((index, npu.current_device()))

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and all(wanted == found for wanted, found in seen)
    assert npu.current_device() == 0 and npu.is_initialized()


# ---- streams --------------------------------------------------------------------------------------------------------------
def test_current_and_default_stream(npu: ModuleType) -> None:
    default = npu.default_stream()
    assert npu.current_stream() == default and default.stream_id == 0 and default.npu_stream
    side = npu.Stream()
    assert side != default and side.device == torch.device("npu:0") and side.stream_id == side.npu_stream
    with npu.stream(side) as context:
        assert context.stream is side and npu.current_stream() == side
        assert streams.current_stream_handle(0) == side.npu_stream
        with npu.stream(None):
            assert npu.current_stream() == side
        with npu.stream(default):
            assert npu.current_stream() == default
        assert npu.current_stream() == side
    assert npu.current_stream() == default
    with side, side:
        assert npu.current_stream() == side
    assert npu.current_stream() == default


def test_a_stream_brings_its_device(npu: ModuleType) -> None:
    there = npu.Stream("npu:1")
    with npu.stream(there):
        assert npu.current_device() == 1 and npu.current_stream() == there
        assert npu.current_stream(0) == npu.default_stream(0)
    assert npu.current_device() == 0 and npu.current_stream(1) == npu.default_stream(1)
    npu.set_stream(there)
    assert npu.current_device() == 1
    npu.set_stream(npu.default_stream(1))
    npu.set_stream(npu.default_stream(0))
    assert npu.current_device() == 0 and npu.current_stream(1) == npu.default_stream(1)


def test_streams_are_per_thread(npu: ModuleType) -> None:
    seen: list[Any] = []
    with npu.stream(npu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(npu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [npu.default_stream()]


def test_a_program_cannot_use_up_the_streams(npu: ModuleType) -> None:
    handles = {npu.Stream().npu_stream for _ in range(3 * streams.STREAMS_PER_PRIORITY)}
    assert len(handles) <= streams.STREAMS_PER_PRIORITY


def test_streams_are_rebuilt_and_compared(npu: ModuleType) -> None:
    side = npu.Stream(priority=-100)  # brought into the range
    low, high = sorted(npu.stream_priority_range())
    assert low <= side.priority <= high and npu.Stream.priority_range() == npu.stream_priority_range()
    again = npu.Stream(stream_id=side.stream_id, device_index=0, device_type=side.device_type)
    assert again == side and hash(again) == hash(side) and again != npu.default_stream() and side != 3
    assert npu.Stream(stream_id=0, device_index=0) == npu.default_stream()
    foreign = npu.ExternalStream(side.native_handle, device="npu:0")
    assert foreign == side and foreign.query() and not foreign.is_capturing()
    assert repr(side) == f"<torch.npu.Stream device=npu:0 npu_stream={side.npu_stream:#x}>"


def test_copies_and_pickles_of_tensors_stay_on_the_device(npu: ModuleType) -> None:
    x = torch.arange(6.0, device="npu")[1:5:2]
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.device == x.device and made.tolist() == [1, 3] and made.stride() == x.stride()


def test_streams_and_events_are_handles(npu: ModuleType) -> None:
    """A copy of a stream is the stream; a copy of an event would give its handle back twice."""
    stream, event = npu.Stream(-1), npu.Stream().record_event()
    assert copy.copy(stream) is copy.deepcopy(stream) is stream and stream.device_index == npu.current_device()
    for act, made in ((pickle.dumps, stream), (pickle.dumps, event), (copy.copy, event), (copy.deepcopy, event)):
        with pytest.raises(TypeError, match="cannot pickle"):
            act(made)
    assert stream._as_parameter_.value == stream.npu_stream and event._as_parameter_.value == event.npu_event
    assert repr(npu.ExternalEvent()) == "<torch.npu.ExternalEvent uninitialized>" and stream != stream.npu_stream
    with pytest.raises(TypeError):
        npu.ExternalStream("0x1")


def test_the_module_of_a_device(npu: ModuleType) -> None:
    assert torch.get_device_module("npu:1") is torch.get_device_module() is npu
    assert torch.get_device_module(torch.device("cpu")) is torch.cpu
    for wrong in ("meta", 3):
        with pytest.raises(RuntimeError):
            torch.get_device_module(wrong)


def test_torchs_generic_names(npu: ModuleType) -> None:
    assert isinstance(npu.Stream(), torch.Stream) and isinstance(npu.Event(), torch.Event)
    event = torch.Event("npu", enable_timing=True)
    torch.Stream("npu").record_event(event)
    event.synchronize()
    assert event.query()
    with pytest.raises(ValueError, match="Expected a npu device"):
        torch.Event("cpu")


# ---- events -----------------------------------------------------------------------------------------------------------------
def test_an_event_that_was_not_recorded(npu: ModuleType) -> None:
    event = npu.Event()
    assert event.query() and event.device is None and repr(event) == "<torch.npu.Event uninitialized>"
    event.wait()
    event.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        event.elapsed_time(npu.Event(enable_timing=True))
    with pytest.raises(ValueError, match="must be recorded"):
        npu.Event(enable_timing=True).elapsed_time(npu.Event(enable_timing=True))
    with pytest.raises(NotImplementedError, match="interprocess"):
        npu.Event(interprocess=True)


def test_record_wait_and_query(npu: ModuleType) -> None:
    first, second = npu.Stream(), npu.Stream()
    event = first.record_event()
    assert event.device == torch.device("npu:0") and event.npu_event
    second.wait_event(event)
    second.wait_stream(first)
    second.synchronize()
    assert event.query() and second.query()
    event.record(second)  # again, and elsewhere
    event.synchronize()
    assert event.query()
    event.reset()
    assert event.device is None and event.query()


def test_elapsed_time_is_milliseconds(npu: ModuleType) -> None:
    start, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    begin = time.monotonic()
    start.record()
    start.synchronize()
    time.sleep(0.03)
    end.record()
    assert 29 < start.elapsed_time(end) < (time.monotonic() - begin) * 1000  # the host's clock says the most
    assert end.recorded_time() > start.recorded_time() > 0


def test_an_event_stays_on_its_device(npu: ModuleType) -> None:
    event = npu.default_stream(0).record_event()
    with pytest.raises(RuntimeError, match="Event device 0 does not match recording stream's device 1"):
        event.record(npu.default_stream(1))
    npu.default_stream(1).wait_event(event)  # the host waits for it
    assert event.query()


def test_events_are_used_again(npu: ModuleType) -> None:
    for _ in range(3):
        npu.Event().record()
    made = len(runtime.get_runtime(0).made_events)
    for _ in range(50):
        npu.Event().record()
    assert len(runtime.get_runtime(0).made_events) == made


def test_streams_run_side_by_side_and_events_order_them(npu: ModuleType) -> None:
    """A copy on one stream is seen by another that waits for it, whatever the delays."""
    source = torch.arange(1 << 16, dtype=torch.int32)
    first, second = npu.Stream(), npu.Stream()
    for _ in range(5):
        with npu.stream(first):
            there = source.to("npu", non_blocking=True)
        second.wait_stream(first)
        with npu.stream(second):
            back = there.cpu()
        assert torch.equal(back, source)


def test_ops_in_flight_keep_their_addresses(npu: ModuleType) -> None:
    """Prepared calls are launched again with other tensors while earlier launches wait."""
    results = [torch.full((64,), float(i), device="npu") + 1 for i in range(50)]
    assert [result.sum().item() for result in results] == [64.0 * (i + 1) for i in range(50)]


def test_threads_and_streams_compute_side_by_side(npu: ModuleType) -> None:
    results: dict[int, float] = {}

    def work(i: int) -> None:
        with npu.device(i % 2):
            x = torch.full((64,), float(i), device="npu")
            side = npu.Stream()
            side.wait_stream(npu.current_stream())
            with npu.stream(side):
                y = (x + 1) * 2
            npu.current_stream().wait_stream(side)
            assert y.device.index == i % 2
            results[i] = y.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: 128.0 * (i + 1) for i in range(12)}


# ---- generators ---------------------------------------------------------------------------------------------------------------
def test_generators_are_a_seed_and_an_offset(npu: ModuleType) -> None:
    made = torch.Generator("npu:1").manual_seed(7)
    assert made.device == torch.device("npu:1") and made.initial_seed() == 7
    assert npu.random.next_seed_offset(made, 1) == (7, 0) and npu.random.next_seed_offset(made, 10) == (7, 4)
    assert made.get_offset() == 16
    state = made.get_state()
    copy = made.clone_state()
    assert state.dtype is torch.uint8 and state.numel() == 16
    made.manual_seed(8)
    assert made.get_offset() == 0
    made.set_state(state)
    assert (made.initial_seed(), made.get_offset()) == (copy.initial_seed(), copy.get_offset()) == (7, 16)
    with pytest.raises(RuntimeError, match="16 bytes"):
        made.set_state(state[:8])
    with pytest.raises(RuntimeError, match="multiple of 4"):
        made.set_offset(3)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'npu'"):
        torch.rand(2, generator=made)
    with pytest.raises(RuntimeError, match="Expected a 'npu' device type for generator but found 'cpu'"):
        npu.random.next_seed_offset(torch.Generator(), 1)


def test_seeds_of_all_devices(npu: ModuleType) -> None:
    torch.manual_seed(11)
    assert npu.initial_seed() == 11 and [g.initial_seed() for g in npu.default_generators] == [11] * npu.device_count()
    npu.manual_seed(12)
    with npu.device(1):
        assert npu.initial_seed() == 11
        npu.seed()
        assert npu.initial_seed() != 11
    assert npu.initial_seed() == 12
    states = npu.get_rng_state_all()
    drawn = npu.random.next_seed_offset(None, 4)
    npu.manual_seed_all(13)
    npu.set_rng_state_all(states)
    assert npu.random.next_seed_offset(None, 4) == drawn
    state = npu.get_rng_state(1)
    npu.seed_all()
    npu.set_rng_state(state, "npu:1")
    assert torch.equal(npu.get_rng_state("npu:1"), state)
    assert npu.get_default_generator(1) is npu.default_generators[1]


def test_forked_generators_come_back(npu: ModuleType) -> None:
    torch.manual_seed(21)
    npu.random.next_seed_offset(None, 4)
    with torch.random.fork_rng():
        torch.manual_seed(22)
        npu.random.next_seed_offset(None, 4)
    assert npu.random.next_seed_offset(None, 4) == (21, 4) and npu.get_default_generator(1).initial_seed() == 21
    with torch.random.fork_rng(devices=["npu:1"]):
        npu.manual_seed_all(23)
    assert npu.initial_seed() == 23 and npu.get_default_generator(1).initial_seed() == 21


# ---- torch.accelerator --------------------------------------------------------------------------------------------------------
def test_the_accelerator_is_the_npu(npu: ModuleType) -> None:
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator() == torch.device("npu")
    assert accelerator.device_count() == npu.device_count() and accelerator.current_device_index() == 0
    with accelerator.device_index(1), accelerator.device_index(None):
        assert accelerator.current_device_index() == 1
    accelerator.set_device_index("npu:1")
    assert npu.current_device() == 1
    accelerator.set_device_index(0)
    accelerator.set_stream(accelerator.current_stream())
    accelerator.synchronize()
    assert accelerator.get_memory_info()[1] == npu.mem_get_info()[1]
    assert torch.float32 in accelerator.get_device_capability()["supported_dtypes"]
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() >= accelerator.memory_allocated()


# ---- limits, recovery, processes ----------------------------------------------------------------------------------------------
def test_a_device_is_stopped_and_goes_on(npu: ModuleType) -> None:
    npu.stop_device(1)
    npu.restart_device(1)
    npu.default_stream(1).record_event().synchronize()


def test_c_functions_beyond_pyacl_are_called(npu: ModuleType) -> None:
    npu.init()
    status, _, code = capi.function("capture_get_info")(npu.default_stream().npu_stream)
    assert (status, code) == (0, 0)


def test_the_binding_serves_a_toolkit_without_an_acl_module(npu: ModuleType, tmp_path: Path) -> None:
    library = Path(next(iter(acl_loader.libraries().values())))
    (tmp_path / "lib64").symlink_to(library.parent)
    code = """
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import acl_loader, runtime
start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
with torch.npu.stream(torch.npu.Stream(1)):
    start.record()
    assert (torch.arange(3, device="npu") + 1).tolist() == [1, 2, 3]
    end.record()
assert start.elapsed_time(end) > 0 and torch.npu.mem_get_info()[1] > 0
print(type(runtime.acl).__name__, acl_loader._home)
"""
    environment = os.environ | {"ASCEND_HOME_PATH": str(tmp_path), "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"SimpleNamespace {tmp_path}\n", "")


def test_a_forked_child_cannot_use_the_parents_device(npu: ModuleType) -> None:
    code = """
import os
import mindtorch_v2 as torch
torch.npu.init()
tensor = torch.ones(2, device="npu")
if not (child := os.fork()):
    errors = 0
    for use in (torch.npu.synchronize, torch.npu.Stream, lambda: tensor + 1, lambda: torch.ones(2, device="npu")):
        try:
            use()
        except RuntimeError as error:
            errors += "Cannot re-initialize NPU in forked subprocess" in str(error)
    os._exit(errors)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
assert (tensor + 1).tolist() == [2, 2]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_exit_gives_everything_back_quietly(npu: ModuleType) -> None:
    code = """
import mindtorch_v2 as torch
tensors = [torch.ones(1000, device=f"npu:{i}") for i in range(2)]
event = torch.npu.Stream(1).record_event()
keep = torch.npu.Event(enable_timing=True)
keep.record()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
