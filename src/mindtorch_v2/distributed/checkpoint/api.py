"""CheckpointException: what went wrong on which ranks."""
from __future__ import annotations

import traceback

WRAPPED_EXCEPTION = tuple[BaseException, traceback.StackSummary]


class CheckpointException(BaseException):
    """A step of save or load failed on some ranks; every rank gets it."""

    def __init__(self, msg: str, failures: dict[int, WRAPPED_EXCEPTION]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, WRAPPED_EXCEPTION]:
        """The exceptions, by rank."""
        return self._failures

    def __str__(self) -> str:
        text = f"CheckpointException ranks:{self._failures.keys()}\n"
        for rank, (error, stack) in self._failures.items():
            text += f"Traceback (most recent call last): (RANK {rank})\n{''.join(stack.format())}"
            text += "".join(traceback.format_exception_only(type(error), error))
        return text
