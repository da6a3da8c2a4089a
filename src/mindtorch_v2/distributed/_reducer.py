"""The gradients of DistributedDataParallel: buckets that are reduced as soon as backward has filled them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._collectives import all_reduce, broadcast

Tensor = Any
FIRST_BUCKET_BYTES = 1024 * 1024                  # a small one first, so that the reduction begins early


class GradBucket:
    """Some parameters' gradients in one row, as a communication hook gets it."""

    def __init__(self, params: list[Tensor], index: int, last: bool) -> None:
        self._params, self._index, self._last = params, index, last
        self.flat = torch.zeros(sum(p.numel() for p in params), dtype=params[0].dtype, device=params[0].device)
        self.views: list[Tensor] = []
        at = 0
        for p in params:
            self.views.append(self.flat[at:at + p.numel()].view(p.shape))
            at += p.numel()
        self.left = len(params)
        self.future: Any = None

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last one of a backward pass to be reduced."""
        return self._last

    def buffer(self) -> Tensor:
        """The row."""
        return self.flat

    def set_buffer(self, tensor: Tensor) -> None:
        self.flat = tensor

    def gradients(self) -> list[Tensor]:
        """The gradients, as parts of the row."""
        return self.views

    def parameters(self) -> list[Tensor]:
        return self._params


def divide(params: list[Tensor], cap: int, first: int = FIRST_BUCKET_BYTES) -> list[list[Tensor]]:
    """Params in buckets of at most so many bytes, in their order; each of one dtype and device."""
    buckets: list[list[Tensor]] = []
    open_ones: dict[Any, tuple[list[Tensor], int]] = {}
    for p in params:
        key = (p.dtype, p.device)
        bucket, size = open_ones.get(key, ([], 0))
        limit = first if not buckets or buckets[0] is bucket else cap
        if bucket and size + p.numel() * p.element_size() > limit:
            bucket, size = [], 0
        if not bucket:
            buckets.append(bucket)
        bucket.append(p)
        open_ones[key] = bucket, size + p.numel() * p.element_size()
    return buckets


class Reducer:
    """Watches the gradients of parameters in backward and reduces them over a group."""

    def __init__(self, params: list[Tensor], group: Any, cap_bytes: int, as_views: bool, find_unused: bool,
                 static: bool) -> None:
        self.params, self.group, self.cap, self.as_views = params, group, cap_bytes, as_views
        self.find_unused, self.static = find_unused, static
        self.size = group.size()
        self.hook: Callable[[Any, GradBucket], Any] | None = None
        self.hook_state: Any = None
        self.divide_by = self.size                # fewer while ranks have left a join()
        self.armed = self.rebuilt = False
        self.order: list[Tensor] = []             # in which gradients came in the first backward pass
        self.unused: set[int] | None = None       # of a static graph
        self._index = {id(p): i for i, p in enumerate(params)}
        self._build(params[::-1])
        for p in params:
            p.register_post_accumulate_grad_hook(self._ready)

    def _build(self, params: list[Tensor]) -> None:
        parts = divide(params, self.cap)
        self.buckets = [GradBucket(part, i, i == len(parts) - 1) for i, part in enumerate(parts)]
        self.place = {id(p): (bucket, i) for bucket in self.buckets for i, p in enumerate(bucket._params)}

    # ---- a pass ----
    def prepare(self, outputs: list[Tensor]) -> None:
        """Before a backward pass that is to be reduced."""
        self.armed, self.next, self.pending = True, 0, {id(p) for p in self.params}
        for bucket in self.buckets:
            bucket.left, bucket.future = len(bucket._params), None
        self.used = set(self.pending)
        if not self.find_unused and not self.static:
            return
        if self.unused is None or not self.static:
            reached = parameters_behind(outputs)
            self.unused = {key for key in self.pending if key not in reached}
        self.used -= self.unused

    def is_unfinished(self) -> bool:
        return self.armed and bool(self.pending)

    def _ready(self, param: Tensor) -> None:
        """A gradient is complete."""
        if not self.armed or id(param) not in self.pending:
            return
        if len(self.pending) == len(self.params):     # the first of this pass: those that will not come are complete too
            for key in self.pending - self.used - {id(param)}:
                self._mark(self.params[self._index[key]])
        if not self.rebuilt:
            self.order.append(param)
        self._mark(param)
        if not self.pending:
            self._finish()

    def _mark(self, param: Tensor) -> None:
        self.pending.discard(id(param))
        bucket, _ = self.place[id(param)]
        bucket.left -= 1
        # In one order on all ranks, whatever order gradients come in: a rank must not wait for another's other bucket.
        while self.next < len(self.buckets) and not self.buckets[self.next].left:
            self._start(self.buckets[self.next])
            self.next += 1

    def _start(self, bucket: GradBucket) -> None:
        with torch.no_grad():
            grads, views = [], []
            for p, view in zip(bucket._params, bucket.views, strict=True):
                if p.grad is None or id(p) not in self.used:
                    view.zero_() if p.grad is None else view.copy_(p.grad)
                elif p.grad.data_ptr() != view.data_ptr():
                    grads.append(p.grad)
                    views.append(view)
            if grads:
                torch._foreach_copy_(views, grads)
            if self.hook is not None:
                bucket.future = self.hook(self.hook_state, bucket)
            else:
                bucket.flat.div_(self.divide_by)
                bucket.future = all_reduce(bucket.flat, group=self.group, async_op=True)

    def _finish(self) -> None:
        """All gradients are in their buckets: waits for the reductions and gives the parameters their results."""
        used = self._used_somewhere()
        with torch.no_grad():
            for bucket in self.buckets:
                result = bucket.future.wait()
                if self.hook is not None:
                    row = result[0] if isinstance(result, list | tuple) else result
                    if row.data_ptr() != bucket.flat.data_ptr():
                        bucket.flat.copy_(row.view(-1))
                self._give_back(bucket, used)
        self.armed = False

    def _give_back(self, bucket: GradBucket, used: set[int] | None) -> None:
        grads, views = [], []
        for p, view in zip(bucket._params, bucket.views, strict=True):
            if used is not None and self._index[id(p)] not in used:
                continue                          # not used: it keeps what it has
            if self.as_views:
                p.grad = view
            elif p.grad is None:
                p.grad = view.clone()
            else:
                grads.append(p.grad)
                views.append(view)
        if grads:
            torch._foreach_copy_(grads, views)

    def _used_somewhere(self) -> set[int] | None:
        if not self.find_unused and not self.static:
            return None
        device = self.params[0].device
        flags = torch.tensor([float(id(p) in self.used) for p in self.params], device=device)
        all_reduce(flags, group=self.group)
        return {i for i, flag in enumerate(flags.tolist()) if flag}

    def rebuild(self) -> None:
        """After the first pass: buckets in the order in which gradients came on rank 0."""
        if self.rebuilt or self.find_unused or len(self.order) != len(self.params):
            return
        self.rebuilt = True
        device = self.params[0].device
        order = torch.tensor([self._index[id(p)] for p in self.order], dtype=torch.int64, device=device)
        broadcast(order, group=self.group, group_src=0)
        self._build([self.params[i] for i in order.tolist()])

    def reduce_zeros(self) -> None:
        """What a rank that has no more input does while the others have: all reductions of a pass, with nothing to add."""
        with torch.no_grad():
            for bucket in self.buckets:
                bucket.flat.zero_()
                if self.hook is not None:
                    bucket.future = self.hook(self.hook_state, bucket)
                else:
                    bucket.future = all_reduce(bucket.flat, group=self.group, async_op=True)
            self.used = set()
            self._used_somewhere()
            for bucket in self.buckets:
                bucket.future.wait()


def parameters_behind(outputs: list[Tensor]) -> set[int]:
    """The ids of the leaves whose gradients a backward pass from these outputs would compute."""
    found: set[int] = set()
    seen: set[Any] = set()
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    found |= {id(t) for t in outputs if t.grad_fn is None and t.requires_grad}
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        todo += [after for after, _ in node.next_functions if after is not None]
    return found
