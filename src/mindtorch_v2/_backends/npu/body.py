"""What an op has on an npu beside its row's calls: one record per op, and how its functions are run."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from mindtorch_v2 import _C

Outs: TypeAlias = tuple[Any, ...]
Args: TypeAlias = tuple[Any, ...]
Writer = Callable[[Outs, Args], None]            # writes the results, which are sized already
Value = Callable[..., Any]                       # takes the row's arguments, gives the result, or a tuple of them


class Body(NamedTuple):
    """Functions of the row's arguments, made of other ops and of calls by name; nothing that they do is recorded."""
    kernel: Writer | None = None                 # serves in place of the row's calls
    value: Value | None = None                   # the same, for an op that CANN lacks and others make up
    sized: Value | None = None                   # the same, for results that only the data can size
    fallback: Value | None = None                # for dtypes and ranks that the call takes in no wider form, and without it
    on_empty: Writer | None = None               # where the first tensor has no items, and CANN has no word for the result
    on_capture: Writer | None = None             # a random op while a graph is captured that CANN cannot replay anew
    refuses: frozenset[str] = frozenset()        # dtypes that a value is not good enough in
    needs: str = ""                              # the aclnn op of a kernel that not every CANN has


def writer_of(name: str, body: Body) -> Writer | None:
    """What serves an op in place of its row's calls; None: nothing does."""
    if body.kernel is not None:
        return quiet(body.kernel)
    if body.value is not None:
        return writes(refusing(name, body.refuses, body.value) if body.refuses else body.value)
    return quiet(body.sized) if body.sized is not None else None


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with nothing recorded: the row has a gradient of its own."""
    def run(*arguments: Any) -> Any:
        before = _C._is_grad_enabled()
        _C._set_grad_enabled(False)
        try:
            return function(*arguments)
        finally:
            _C._set_grad_enabled(before)
    return run


def writes(function: Value) -> Writer:
    """The function's value as what the results become; None stands for a result that is not wanted."""
    def run(outs: Outs, args: Args) -> None:
        made = function(*args)
        for out, value in zip(outs, made if isinstance(made, tuple) else (made,), strict=True):
            if out is not None and out is not value:
                out.copy_(value)
    return quiet(run)


def refusing(name: str, dtypes: frozenset[str], function: Value) -> Value:
    """The function, which refuses tensors of these dtypes by name."""
    def run(*args: Any) -> Any:
        for x in args:
            if isinstance(x, _C.TensorBase) and x.dtype._name in dtypes:
                raise NotImplementedError(f"[{name}] no kernel for npu in {x.dtype._name}; the npu has it in float32")
        return function(*args)
    return run
