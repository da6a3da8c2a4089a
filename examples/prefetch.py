"""Copies the next batch on a stream of its own while the device works on this one."""

from __future__ import annotations

from collections.abc import Iterator

import mindtorch_v2 as torch


def prefetched(batches: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The batches on the npu, each copied while the one before is in use."""
    copies = torch.npu.Stream()
    waiting: torch.Tensor | None = None
    for batch in [*batches, None]:
        coming = None
        if batch is not None:
            with torch.npu.stream(copies):
                coming = batch.pin_memory().to("npu", non_blocking=True)
        if waiting is not None:
            torch.npu.current_stream().wait_stream(copies)  # the copy is done before the work begins; the host does not wait
            waiting.record_stream(torch.npu.current_stream())  # and its memory is not reused while this stream reads it
            yield waiting
        waiting = coming


def main() -> None:
    torch.manual_seed(0)
    weight = torch.randn(256, 256, device="npu")
    batches = [torch.randn(64, 256) for _ in range(20)]
    sums = [(batch @ weight).sum() for batch in prefetched(batches)]
    expected = [(batch @ weight.cpu()).sum() for batch in batches]
    worst = max(abs(a.item() - b.item()) for a, b in zip(sums, expected, strict=True))
    print(f"{len(sums)} batches, largest difference from the CPU {worst:.4f}")
    assert worst < 0.5


if __name__ == "__main__":
    main()
