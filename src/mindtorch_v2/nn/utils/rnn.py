"""Packed sequences: batches of sequences of different lengths without padding."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Iterable

import mindtorch_v2 as torch

Tensor = torch.Tensor

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class PackedSequence(
    namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])
):
    """All elements of time 0, then of time 1, and so on, with the batch size of each time."""

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            # Built from one pair, as old code did.
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. "
                "Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence "
                "and pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Move or cast the data, and move the indices along."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "dtype")}
        move = lambda t: None if t is None else t.to(data.device, **kwargs)  # noqa: E731
        indices = (move(self.sorted_indices), move(self.unsorted_indices))
        return type(self)(data, self.batch_sizes, *indices)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Move to the cpu."""
        return self.to("cpu")

    def npu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Move to the npu."""
        return self.to("npu")

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Move to a CUDA device: there is none, and so it is refused."""
        return type(self)(self.data.cuda(*args, **kwargs), *self[1:])

    def double(self) -> PackedSequence:
        """Cast to float64."""
        return self.to(dtype=torch.float64)

    def float(self) -> PackedSequence:
        """Cast to float32."""
        return self.to(dtype=torch.float32)

    def half(self) -> PackedSequence:
        """Cast to float16."""
        return self.to(dtype=torch.float16)

    def long(self) -> PackedSequence:
        """Cast to int64."""
        return self.to(dtype=torch.int64)

    def int(self) -> PackedSequence:
        """Cast to int32."""
        return self.to(dtype=torch.int32)

    def short(self) -> PackedSequence:
        """Cast to int16."""
        return self.to(dtype=torch.int16)

    def char(self) -> PackedSequence:
        """Cast to int8."""
        return self.to(dtype=torch.int8)

    def byte(self) -> PackedSequence:
        """Cast to uint8."""
        return self.to(dtype=torch.uint8)

    def pin_memory(self) -> PackedSequence:
        """Pin the memory of all tensors."""
        pin = lambda t: None if t is None else t.pin_memory()  # noqa: E731
        indices = (pin(self.sorted_indices), pin(self.unsorted_indices))
        return type(self)(self.data.pin_memory(), self.batch_sizes, *indices)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Say whether the data is pinned."""
        return self.data.is_pinned()


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes one."""
    if permutation is None:
        return None
    output = torch.empty_like(permutation, memory_format=torch.contiguous_format)
    order = torch.arange(0, permutation.numel(), device=permutation.device)
    return output.scatter_(0, permutation, order.to(permutation.dtype))


def _check_lengths(lengths: Tensor, batch: int) -> list[int]:
    if lengths.dim() != 1 or lengths.device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D "
            f"{lengths.device.type} Long tensor"
        )
    values = lengths.tolist()
    if len(values) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(values)} "
            f"(batch_size={batch})"
        )
    if any(a < b for a, b in zip(values, values[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if values and values[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    return values


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch; longest first unless enforce_sorted is False."""
    if not isinstance(lengths, torch.Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    lengths = lengths.to(dtype=torch.int64)
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = torch.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if batch_first:
        input = input.transpose(0, 1)
    values = _check_lengths(lengths, input.size(1))
    sizes = [sum(n > t for n in values) for t in range(values[0])]
    if len(sizes) > input.size(0):
        raise RuntimeError(
            f"Expected sequence lengths of at most {input.size(0)}, but got {values[0]}"
        )
    data = torch.cat([input[t, :size] for t, size in enumerate(sizes)])
    batch_sizes = torch.tensor(sizes, dtype=torch.int64)
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Undo pack_padded_sequence: the padded batch and the lengths."""
    data, batch_sizes, _, unsorted_indices = sequence
    sizes = batch_sizes.tolist()
    steps, batch = len(sizes), sizes[0]
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    rows = []
    for step in data.split(sizes):
        missing = batch - step.size(0)
        if missing:
            fill = step.new_full((missing, *step.shape[1:]), padding_value)
            step = torch.cat([step, fill])
        rows.append(step)
    if steps > len(rows):
        shape = (steps - len(rows), batch, *data.shape[1:])
        padded = torch.cat([torch.stack(rows), data.new_full(shape, padding_value)])
    else:
        padded = torch.stack(rows)
    lengths = torch.tensor([sum(size > i for size in sizes) for i in range(batch)])
    if unsorted_indices is not None:
        padded = padded.index_select(1, unsorted_indices)
        lengths = lengths[unsorted_indices.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack sequences of different lengths, padded to the longest."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    if isinstance(sequences, torch.Tensor):
        sequences = sequences.unbind(0)
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    for i, s in enumerate(sequences):
        if not isinstance(s, torch.Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(s).__name__}")
    first = sequences[0].shape
    for s in sequences[1:]:
        for dim, (a, b) in enumerate(zip(first[1:], s.shape[1:]), 1):
            if a != b:
                raise RuntimeError(
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) at "
                    f"non-singleton dimension {dim}"
                )
    longest = max(s.size(0) for s in sequences)
    padded = []
    for s in sequences:
        missing = longest - s.size(0)
        if missing:
            fill = s.new_full((missing, *s.shape[1:]), padding_value)
            s = torch.cat([fill, s] if padding_side == "left" else [s, fill])
        padded.append(s)
    return torch.stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch, each with its own length."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [s[:n].clone(memory_format=torch.contiguous_format) for s, n in zip(padded_sequences.unbind(0), lengths.tolist())]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences."""
    lengths = torch.as_tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(
        pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted
    )


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Undo pack_sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
