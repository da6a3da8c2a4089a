"""Selective checkpointing: a policy says of every op whether its result is kept or computed again."""
from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils._python_dispatch import TorchDispatchMode
from mindtorch_v2.utils._pytree import tree_map

# Given a view of what it is given; nothing is saved by keeping it
SAC_IGNORED_OPS = {torch._C._op_packet(torch._ops.ops.detach).default}


class CheckpointPolicy(enum.Enum):
    """What becomes of an op's result. PREFER and MUST differ only for compilers."""
    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


def _taken_apart(func: Any, args: tuple) -> Any:
    """The op that a policy written for torch expects: torch takes matmul and linear apart before a mode sees them."""
    aten = torch.ops.aten
    if func is aten.matmul.default and args[0].dim() == args[1].dim() and args[0].dim() in (2, 3):
        return aten.mm.default if args[0].dim() == 2 else aten.bmm.default
    if func is aten.linear.default and args[0].dim() == 2:
        return aten.mm.default if len(args) < 3 or args[2] is None else aten.addmm.default
    return func


def _version(value: Any) -> int:
    """How often a tensor was changed; what was made in inference mode does not count."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


class SelectiveCheckpointContext:
    """The context of a policy: whether this is the recomputation, and in forward the op's output."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Kept:
    """A result that forward keeps for the replay."""

    def __init__(self, x: Any, offload: bool) -> None:
        self.device = x.device if isinstance(x, torch.Tensor) else None
        self.value = x.detach() if isinstance(x, torch.Tensor) else x
        if offload and self.device is not None:
            self.value = self.value.cpu()
        self.version = _version(self.value)

    def get(self, may_change: bool) -> Any:
        if self.device is None:
            return self.value
        if _version(self.value) != self.version and not may_change:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return self.value.to(self.device)


_AGAIN = object()                                # in a kept result's place: it is computed again


class _Keeping(TorchDispatchMode):
    """Forward: keeps the outputs that the policy selects, by op, in the order of the calls."""

    def __init__(self, policy: Callable[..., Any], kept: dict[Any, list[Any]]) -> None:
        self.policy, self.kept = policy, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func in SAC_IGNORED_OPS:
            return out
        context = SelectiveCheckpointContext(is_recompute=False, op_output=out)
        choice = self.policy(context, _taken_apart(func, args), *args, **kwargs)
        if choice is True or choice in _SAVED or choice in _OFFLOADED:
            found = tree_map(lambda x: _Kept(x, choice in _OFFLOADED), out)
        else:
            found = _AGAIN
        self.kept.setdefault(func, []).append(found)
        return out


class _Finding(TorchDispatchMode):
    """The replay: gives what forward kept."""

    def __init__(self, kept: dict[Any, list[Any]], may_change: bool) -> None:
        self.kept, self.may_change = kept, may_change

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in SAC_IGNORED_OPS:
            return func(*args, **kwargs)
        if func not in self.kept:
            raise RuntimeError(f"{func} encountered during backward, but not found in storage")
        if not self.kept[func]:
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region "
                               "computed under selective activation checkpoint.")
        found = self.kept[func].pop(0)
        return func(*args, **kwargs) if found is _AGAIN else tree_map(lambda x: x.get(self.may_change), found)


def create_selective_checkpoint_contexts(policy_fn_or_list: Callable[..., Any] | Sequence[Any],
                                         allow_cache_entry_mutation: bool = False) -> tuple[Any, Any]:
    """The context_fn of a checkpoint that keeps what policy(ctx, op, *args, **kwargs) says, or the results of listed ops."""
    if callable(policy_fn_or_list):
        policy = policy_fn_or_list
    elif isinstance(policy_fn_or_list, (list, tuple)):
        listed = list(policy_fn_or_list)
        for op in listed:
            if not isinstance(op, type(torch.ops.aten.detach.default)):
                hint = ("Please update the OpOverloadPacket to a specific OpOverload.For example, if you have "
                        "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`."
                        if isinstance(op, type(torch.ops.aten.detach)) else "")
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {hint}")

        def policy(ctx: SelectiveCheckpointContext, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in listed else CheckpointPolicy.PREFER_RECOMPUTE
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: dict[Any, list[Any]] = {}
    return _Keeping(policy, kept), _Finding(kept, allow_cache_entry_mutation)
