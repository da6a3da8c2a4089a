"""Checkpoints as files of safetensors: the bytes that the format says, whole tensors and shards, and files that lie."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mindtorch_v2 as mt

c = mt.distributed.checkpoint


def raw(path: Path, header: dict[str, Any], data: bytes) -> None:
    """A file by the format's own words: the length of the header in eight bytes, the header, the data."""
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    body = path.read_bytes()
    end = 8 + int.from_bytes(body[:8], "little")
    return json.loads(body[8:end]), body[end:]


def state() -> dict[str, Any]:
    return {"a.w": mt.arange(6, dtype=mt.float32).view(3, 2), "a.b": mt.ones(3, dtype=mt.bfloat16), "n": mt.tensor(-2),
            "none": mt.empty(0, 4), "flag": mt.tensor([True, False]), "odd": mt.arange(12.0).view(3, 4).t()}


def read(path: Path, like: dict[str, Any]) -> dict[str, Any]:
    found = {name: mt.zeros_like(value) for name, value in like.items()}
    c.load(found, storage_reader=c.HuggingFaceStorageReader(path))
    return found


def test_what_is_written_is_the_format(tmp_path: Path) -> None:
    mapping = {"a.w": 1, "a.b": 2, "n": 2, "none": 1, "flag": 2, "odd": 1}
    c.save(state(), storage_writer=c.HuggingFaceStorageWriter(tmp_path, mapping))
    header, data = header_of(tmp_path / "model-00001-of-00002.safetensors")
    begin, end = header["a.w"]["data_offsets"]
    assert header["a.w"] | {"data_offsets": 0} == {"dtype": "F32", "shape": [3, 2], "data_offsets": 0}
    assert mt.frombuffer(bytearray(data[begin:end]), dtype=mt.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert header["__metadata__"]["format"] == "pt" and header["none"]["shape"] == [0, 4]
    second, _ = header_of(tmp_path / "model-00002-of-00002.safetensors")
    assert [second[name]["dtype"] for name in ("n", "a.b", "flag")] == ["I64", "BF16", "BOOL"]
    assert all(entry["data_offsets"][0] % 8 == 0 for name, entry in second.items() if name == "n")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    sizes = sum(value.numel() * value.itemsize for value in state().values())
    assert index["metadata"]["total_size"] == sizes
    assert index["weight_map"] == {name: f"model-0000{number}-of-00002.safetensors" for name, number in mapping.items()}
    found = read(tmp_path, state())
    assert all(mt.equal(found[name], value) for name, value in state().items())


def test_shards_are_put_together(tmp_path: Path) -> None:
    """Columns of one rank and of another, as two writers leave them."""
    sharded, whole = tmp_path / "sharded", tmp_path / "whole"
    sharded.mkdir()
    for rank, values in enumerate(([0, 1, 4, 5], [2, 3, 6, 7])):
        said = {"DCP_SHARDING_INFO": json.dumps({"x": {"saved_offsets": [0, 2 * rank]}})}
        raw(sharded / f"shard-0000{rank + 1}-model-00001-of-00001.safetensors",
            {"__metadata__": said, "x": {"dtype": "I16", "shape": [2, 2], "data_offsets": [0, 8]}},
            b"".join(value.to_bytes(2, "little") for value in values))  # fmt: skip
    x = {"x": mt.arange(8, dtype=mt.int16).view(2, 4)}
    assert mt.equal(read(sharded, x)["x"], x["x"])
    consolidate = c._consolidate_hf_safetensors.consolidate_safetensors_files
    consolidate(str(sharded), str(whole), {"x": 1}, num_threads=2)
    assert mt.equal(read(whole, x)["x"], x["x"])
    (sharded / "shard-00001-model-00001-of-00001.safetensors").unlink()
    with pytest.raises(ValueError, match="the shards of 'x' do not fill it"):
        consolidate(str(sharded), str(whole), {"x": 1})
    assert mt.equal(read(whole, x)["x"], x["x"]), "what failed has left the file as it was"


X = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(("header", "data"), [
    ({"x": X | {"data_offsets": [0, 16]}}, bytes(8)), ({"x": X}, bytes(4)), ({"x": X | {"shape": [3]}}, bytes(8)),
    ({"x": X | {"shape": [-2]}}, bytes(8)), ({"x": X | {"dtype": "F7"}}, bytes(8)), ({"x": X | {"data_offsets": [-8, 0]}}, bytes(8)),
    ({"x": 1}, b""), ([], b"")])  # fmt: skip
def test_a_file_that_lies_is_refused(tmp_path: Path, header: Any, data: bytes) -> None:
    raw(tmp_path / "model.safetensors", header, data)
    with pytest.raises(c.CheckpointException) as told:
        read(tmp_path, {"x": mt.ones(2)})
    assert isinstance(told.value.failures[0][0], ValueError), told.value


def test_no_file_of_safetensors(tmp_path: Path) -> None:
    for body in (b"", b"\x08", (1 << 60).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"{"):
        (tmp_path / "x.safetensors").write_bytes(body)
        with pytest.raises(c.CheckpointException, match="is no file of safetensors"):
            read(tmp_path, {"x": mt.ones(2)})


def test_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(c.CheckpointException, match="'step' is no tensor, and safetensors holds nothing else"):
        c.save({"x": mt.ones(1), "step": 3}, storage_writer=c.HuggingFaceStorageWriter(tmp_path))
    with pytest.raises(NotImplementedError, match="HuggingFaceStorageWriter"):
        c.FileSystemWriter(tmp_path, serialization_format=c.filesystem.SerializationFormat.SAFETENSORS)
