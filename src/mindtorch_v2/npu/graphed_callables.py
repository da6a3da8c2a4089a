"""torch.npu.make_graphed_callables: functions and modules whose forward and backward are replays of graphs."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mindtorch_v2 import _C, autograd
from mindtorch_v2.amp.autocast_mode import is_autocast_enabled
from mindtorch_v2.npu.devices import synchronize
from mindtorch_v2.npu.graphs import NPUGraph, graph, graph_pool_handle
from mindtorch_v2.npu.memory import PoolId
from mindtorch_v2.npu.streams import Stream, StreamContext


def _leaves(tree: Any) -> list[Any]:
    """The items of nested tuples, lists and dicts, in order."""
    if isinstance(tree, (tuple, list)):
        return [leaf for item in tree for leaf in _leaves(item)]
    if isinstance(tree, dict):
        return [leaf for item in tree.values() for leaf in _leaves(item)]
    return [tree]


def _with_leaves(tree: Any, leaves: Iterator[Any]) -> Any:
    """The same nest with other items."""
    if isinstance(tree, (tuple, list)):
        items = [_with_leaves(item, leaves) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, dict):
        return {key: _with_leaves(item, leaves) for key, item in tree.items()}
    return next(leaves)


def _is_module(function: Any) -> bool:
    return hasattr(function, "parameters") and hasattr(function, "forward")


class _Recorded:
    """One function: its graphs, and the tensors that they read and write."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], allow_unused: bool) -> None:
        self.function, self.args, self.allow_unused = function, args, allow_unused
        leaves = _leaves(args)
        if not all(isinstance(leaf, _C.TensorBase) for leaf in leaves):
            raise TypeError("In the beta API, sample_args for each callable must contain only Tensors. Other types are "
                            "not allowed.")
        self.n_args = len(leaves)
        self.parameters = tuple(function.parameters()) if _is_module(function) else ()   # type: ignore[attr-defined]
        self.inputs = (*leaves, *self.parameters)
        self.forward, self.backward = NPUGraph(), NPUGraph()
        self.made: Any = None                     # what the function returned, nested
        self.outputs: list[Any] = []
        self.grad_outputs: list[Any] = []
        self.grad_inputs: list[Any] = []

    def _gradients(self, outputs: list[Any], grad_outputs: list[Any]) -> list[Any]:
        """The gradients of all inputs; None for those that need none."""
        wanted = [x for x in self.inputs if x.requires_grad]
        pairs = [(o, g) for o, g in zip(outputs, grad_outputs) if g is not None]
        if not wanted or not pairs:
            return [None] * len(self.inputs)
        outputs, grad_outputs = map(list, zip(*pairs))
        found = iter(autograd.grad(outputs, wanted, grad_outputs, allow_unused=self.allow_unused))
        return [next(found) if x.requires_grad else None for x in self.inputs]

    @staticmethod
    def _like(outputs: list[Any], op: str = "empty_like") -> list[Any]:
        make = _C._op_named(op)
        return [make(o) if isinstance(o, _C.TensorBase) and o.requires_grad else None for o in outputs]

    def warm_up(self, times: int) -> None:
        """Runs the function, so that everything which is made at first use is there."""
        for _ in range(times):
            outputs = _leaves(self.function(*self.args))
            self._gradients(outputs, self._like(outputs, "zeros_like"))

    def capture_forward(self, pool: PoolId) -> None:
        with graph(self.forward, pool=pool):
            self.made = self.function(*self.args)
        self.outputs = _leaves(self.made)

    def capture_backward(self, pool: PoolId) -> None:
        self.grad_outputs = self._like(self.outputs)
        if any(g is not None for g in self.grad_outputs):
            with graph(self.backward, pool=pool):
                self.grad_inputs = self._gradients(self.outputs, self.grad_outputs)
        else:
            self.grad_inputs = [None] * len(self.inputs)

    def function_of_graphs(self) -> Callable[..., Any]:
        """A function with the same arguments and results that replays."""
        recorded = self

        class Graphed(autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                for static, given in zip(recorded.inputs[:recorded.n_args], inputs):
                    if static.data_ptr() != given.data_ptr():
                        static.copy_(given, True)
                recorded.forward.replay()
                return tuple(o.detach() for o in recorded.outputs)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                for static, given in zip(recorded.grad_outputs, grads):
                    if static is not None and static.data_ptr() != given.data_ptr():
                        static.copy_(given)
                recorded.backward.replay()
                return tuple(g if g is None else g.detach() for g in recorded.grad_inputs)

        def replayed(*args: Any) -> Any:
            made = Graphed.apply(*_leaves(args), *recorded.parameters)
            return _with_leaves(recorded.made, iter(made))
        return replayed


def _in_place_of_forward(module: Any, replayed: Callable[..., Any]) -> Any:
    """The module, replaying in the mode (training or not) that it was recorded in, else as before."""
    training, plain = module.training, module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return replayed(*args) if module.training == training else plain(*args, **kwargs)
    module.forward = forward
    return module


def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = 3,
                           allow_unused_input: bool = False, pool: PoolId | None = None) -> Any:
    """Functions or modules whose forward and backward are replays of graphs recorded with sample_args. Shapes stay as
    they are there; several callables must be called in the order given, and their backwards in the reverse order."""
    if is_autocast_enabled("npu") and _C._is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables does not support the autocast caching. Please set "
                           "`cache_enabled=False`.")
    if not isinstance(callables, tuple):
        return make_graphed_callables((callables,), (sample_args,), num_warmup_iters, allow_unused_input, pool)[0]
    pool = graph_pool_handle() if pool is None else pool
    all_recorded = [_Recorded(f, args, allow_unused_input) for f, args in zip(callables, sample_args)]
    synchronize()
    with StreamContext(Stream()):                 # what is made at first use must not be made during a capture
        for recorded in all_recorded:
            recorded.warm_up(num_warmup_iters)
    synchronize()
    for recorded in all_recorded:
        recorded.capture_forward(pool)
    for recorded in reversed(all_recorded):
        recorded.capture_backward(pool)
    made = [(r.function, r.function_of_graphs()) for r in all_recorded]
    return tuple(_in_place_of_forward(f, replayed) if _is_module(f) else replayed for f, replayed in made)
