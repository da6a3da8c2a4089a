"""What a collective takes and returns: ReduceOp, Work, and the record of one call for messages."""
from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import mindtorch_v2 as torch


class RedOpType(enum.IntEnum):
    """How values of ranks are combined."""
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)


_Kind: TypeAlias = RedOpType                      # under a name that ReduceOp has no member of


class ReduceOp:
    """A way to combine values, with the factor that PREMUL_SUM multiplies by first."""

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = RedOpType

    def __init__(self, op: _Kind | ReduceOp, factor: Any = None) -> None:
        self.op: _Kind = op.op if isinstance(op, ReduceOp) else RedOpType(op)
        self.factor: Any = op.factor if isinstance(op, ReduceOp) else factor

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ReduceOp):
            return self.op == other.op
        return self.op == other if isinstance(other, RedOpType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return f"<ReduceOp.{self.op.name}>"


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """A sum of values that are multiplied by factor first."""
    return ReduceOp(RedOpType.PREMUL_SUM, factor)


def op_type(op: Any) -> tuple[RedOpType, Any]:
    """(how, factor) of what a user gave as op."""
    if isinstance(op, ReduceOp):
        return op.op, op.factor
    if isinstance(op, RedOpType):
        return op, None
    raise TypeError(f"expected a torch.distributed.ReduceOp, got {type(op).__name__}")


class Call(NamedTuple):
    """Which collective it is, for messages."""
    name: str
    sequence: int
    group: Any                                    # the ProcessGroup
    shape: tuple[int, ...] | None
    dtype: Any

    def __str__(self) -> str:
        return self.group._describe(self.name, self.sequence, self.shape, self.dtype)


class Work:
    """A collective that was started."""

    __slots__ = ()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """cpu: blocks until it is done. npu: the current stream waits, the host does not."""
        raise NotImplementedError

    def is_completed(self) -> bool:
        """Whether it is done; never blocks."""
        raise NotImplementedError

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What it failed with."""
        return None

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def result(self) -> list[Any]:
        """The tensors that it filled."""
        raise NotImplementedError

    def source_rank(self) -> int:
        raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv or recv-from-any call.")

    def get_future(self) -> Any:
        """A torch.futures.Future of the list of its tensors."""
        raise NotImplementedError

    def _source_rank(self) -> int:
        return self.source_rank()


class HostWork(Work):
    """One that the host completes."""

    def __init__(self, call: Call | None, result: list[Any]) -> None:
        self._call, self._result = call, result

    def result(self) -> list[Any]:
        return self._result


class DoneWork(HostWork):
    """Nothing was left to do."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        future = torch.futures.Future()
        future.set_result(self._result)
        return future


class ManyWorks(HostWork):
    """Several that are waited for as one."""

    def __init__(self, works: list[Work]) -> None:
        super().__init__(None, [tensor for work in works for tensor in work.result()])
        self.works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self.works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def exception(self) -> BaseException | None:
        return next((error for work in self.works if (error := work.exception())), None)

    def get_future(self) -> Any:
        return torch.futures.collect_all([work.get_future() for work in self.works]).then(lambda _: self._result)
