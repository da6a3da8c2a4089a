"""pipeline(): a model is recorded once, and its graph cut into stages at the places that the program or a list marks."""
from __future__ import annotations

import copy
import enum
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.distributed.pipelining.stage import PipelineStage, build_stage

_proxy_tensor = torch.fx.experimental.proxy_tensor
_pytree = torch.utils._pytree


class SplitPoint(enum.Enum):
    """Where a submodule that begins or ends a stage is cut off."""
    BEGINNING, END = 1, 2


@torch.fx.node.has_side_effect
def pipe_split() -> None:
    """In a model's forward: the next stage begins here. Nothing where no pipeline is made of the model."""
    mode = _proxy_tensor.get_proxy_mode()
    if mode is not None:
        mode.tracer.create_node("call_function", pipe_split, (), {})


def annotate_split_points(mod: Any, spec: dict[str, SplitPoint]) -> None:
    """Has submodules call pipe_split() before or after their forward."""
    for path, point in spec.items():
        if not isinstance(point, SplitPoint):
            raise ValueError(f"split_spec[{path!r}] is a SplitPoint, got {point!r}")
        module = mod.get_submodule(path)
        module.forward = _cut(module.forward, point)


def _cut(forward: Callable[..., Any], point: SplitPoint) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if point is SplitPoint.BEGINNING:
            pipe_split()
        made = forward(*args, **kwargs)
        if point is SplitPoint.END:
            pipe_split()
        return made
    return run


class PipeInfo(NamedTuple):
    """What a stage needs to know of its pipeline."""
    graph: Any
    num_stages: int
    has_loss_and_backward: bool = False


class Pipe(torch.nn.Module):
    """A model in stages: split_gm.submod_0 and so on. A stage gives the next one all that it and later ones need."""

    def __init__(self, split_gm: Any, num_stages: int, has_loss_and_backward: bool = False, loss_spec: Any = None) -> None:
        super().__init__()
        self.split_gm, self.num_stages = split_gm, num_stages
        self.has_loss_and_backward, self.loss_spec = has_loss_and_backward, loss_spec

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """All stages one after the other, in this process."""
        made = self.get_stage_module(0)(*args, **kwargs)
        for stage in range(1, self.num_stages):
            made = self.get_stage_module(stage)(*made)
        return made

    def get_stage_module(self, stage_idx: int) -> Any:
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return getattr(self.split_gm, f"submod_{stage_idx}")

    def info(self) -> PipeInfo:
        return PipeInfo(self.split_gm.graph, self.num_stages, self.has_loss_and_backward)

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """The PipelineStage of a stage, whose module is on the device from now on."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)

    def print_readable(self) -> None:
        for stage in range(self.num_stages):
            self.get_stage_module(stage).print_readable()


def pipeline(module: Any, mb_args: tuple[Any, ...], mb_kwargs: dict[str, Any] | None = None,
             split_spec: dict[str, SplitPoint] | None = None, split_policy: Callable[[Any], Any] | None = None) -> Pipe:
    """A model as a pipeline; mb_args and mb_kwargs are those of a microbatch."""
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    if split_spec is not None:
        module = _with_cuts(module, split_spec)
    program = torch.export.export(module, mb_args, mb_kwargs)
    whole = program.module(check_guards=False)
    if split_policy is not None:
        whole = split_policy(whole)
    stages = _Stages(whole, program.call_spec)
    split = torch.nn.Module()
    split.graph = whole.graph
    for i, stage in enumerate(stages.modules()):
        split.add_module(f"submod_{i}", stage)
    return Pipe(split, stages.count)


def _with_cuts(module: Any, spec: dict[str, SplitPoint]) -> Any:
    """The module with marks: other objects with the same parameters, so that the program's own are not changed."""
    tensors = {id(t): t for t in (*module.parameters(), *module.buffers())}
    twin = copy.deepcopy(module, tensors)
    annotate_split_points(twin, spec)
    return twin


class _Stages:
    """A recorded program, cut at its pipe_split calls."""

    def __init__(self, whole: Any, call_spec: Any) -> None:
        self.whole, self.spec = whole, call_spec
        self.nodes = [node for node in whole.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
        self.inputs = [node for node in whole.graph.nodes if node.op == "placeholder"]
        self.result = next(node for node in whole.graph.nodes if node.op == "output").args[0]
        if len(self.inputs) != len(_argument_leaves(call_spec.in_spec)):
            raise NotImplementedError("[pipeline] arguments of a pipelined model are tensors, not lists or dicts of them")
        self.stage_of: dict[Any, int] = dict.fromkeys(self.inputs, 0)
        stage = 0
        for node in self.nodes:
            if node.target is pipe_split:
                stage += 1
            else:                                 # an item of a result stays with it: what travels are tensors
                first = node.args[0] if node.target is operator.getitem else None
                self.stage_of[node] = self.stage_of[first] if first in self.stage_of else stage
        self.count = stage + 1

    def modules(self) -> list[Any]:
        return [self._module(stage) for stage in range(self.count)]

    def _crossing(self, stage: int) -> list[Any]:
        """What is made before a stage and used in it or later."""
        ends: list[Any] = []
        torch.fx.node.map_arg(self.result, lambda node: ends.append(node))
        return [node for node, made in self.stage_of.items() if made < stage and
                (node in ends or any(self.stage_of.get(user, -1) >= stage for user in node.users))]

    def _module(self, stage: int) -> Any:
        graph, known = torch.fx.Graph(), {}
        for node in self.inputs if stage == 0 else self._crossing(stage):
            known[node] = graph.placeholder(node.name)

        def value(node: Any) -> Any:
            if node not in known:                 # a parameter, or a buffer, of this stage
                known[node] = graph.node_copy(node, value)
            return known[node]

        for node in self.nodes:
            if self.stage_of.get(node) == stage:
                known[node] = graph.node_copy(node, value)
        if stage < self.count - 1:
            graph.output(tuple(value(node) for node in self._crossing(stage + 1)))
        else:
            self._finish(graph, value)
        made = torch.fx.GraphModule(self.whole, graph)
        made.graph.lint()
        return made

    def _finish(self, graph: Any, value: Callable[[Any], Any]) -> None:
        """The last stage gives what the model gives."""
        leaves = list(self.result) if isinstance(self.result, tuple | list) else [self.result]
        found = [value(leaf) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
        graph.output(_pytree.tree_unflatten(found, self.spec.out_spec))


def _argument_leaves(in_spec: Any) -> list[Any]:
    """The arguments of a call, where each is one tensor."""
    args, kwargs = _pytree.tree_unflatten(list(range(in_spec.num_leaves)), in_spec)
    return [one for one in (*args, *kwargs.values()) if isinstance(one, int)]
