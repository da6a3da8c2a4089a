"""Chains of ops for which CANN has one op: what feeds what is followed while a program runs, and compared with recipes."""
from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import mindtorch_v2 as torch


class Recipe(NamedTuple):
    """A chain from its last op to its first; a step ending in "*" may be missing or repeated."""
    name: str
    serves: str
    steps: tuple[str, ...]


PRODUCT = "matmul|bmm|mm|baddbmm"
RECIPES = (
    Recipe("attention", "torch.nn.functional.scaled_dot_product_attention",
           (PRODUCT, "dropout|native_dropout|_to_copy*", "softmax|_softmax",
            "add|mul|div|sub|masked_fill|where|_to_copy*", PRODUCT)),
    Recipe("RMS norm", "torch.nn.functional.rms_norm", ("mul", "_to_copy*", "rsqrt", "add", "mean", "pow|square|mul")),
    Recipe("layer norm", "torch.nn.functional.layer_norm", ("div|mul", "sqrt|rsqrt", "add", "var|mean")),
    Recipe("SwiGLU", "torch_npu.npu_swiglu", ("mul", "silu", "split|chunk|slice|narrow")),
    Recipe("rotary embedding", "torch_npu.npu_rotary_mul", ("add", "mul", "cat", "neg")),
    Recipe("GELU (tanh)", 'torch.nn.functional.gelu(x, approximate="tanh")', ("mul", "add", "tanh", "mul", "add")),
    Recipe("GELU", "torch.nn.functional.gelu", ("mul", "add", "erf", "div|mul")),
    Recipe("log softmax", "torch.nn.functional.log_softmax", ("log", "softmax|_softmax")),
)
SIBLINGS = Recipe("SiLU", "torch.nn.functional.silu", ("mul", "sigmoid"))     # and the mul's other factor is sigmoid's input
SEEN_THROUGH = frozenset(("view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "detach", "alias", "contiguous",
                          "clone"))


class Node:
    """One op that ran and what fed it."""

    __slots__ = ("name", "inputs", "line", "sources", "used")

    def __init__(self, name: str, inputs: list[Node], line: str, sources: list[int]) -> None:
        self.name, self.inputs, self.line, self.sources, self.used = name, inputs, line, sources, False


class Fusion(NamedTuple):
    """A chain that was found."""
    name: str
    serves: str
    ops: tuple[str, ...]
    line: str


class Graph:
    """What ran, by the tensors that it made; tensors are not kept alive."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.makers: dict[int, tuple[Any, Node]] = {}

    def add(self, name: str, args: tuple, kwargs: dict[str, Any], result: Any, line: str) -> bool:
        """Notes an op; whether its result is a view of its first argument."""
        given = [item for arg in (*args, *kwargs.values()) for item in (arg if isinstance(arg, list | tuple) else (arg,))
                 if torch.is_tensor(item)]
        results = [item for item in (result if isinstance(result, list | tuple) else (result,)) if torch.is_tensor(item)]
        view = bool(given and results) and results[0] is not given[0] and same_memory(results[0], given[0])
        inputs = [maker for item in given if (maker := self._maker(item)) is not None]
        if torch._C._current_graph_task_id() >= 0:    # formulas of backward follow from what forward called
            return view
        if name in SEEN_THROUGH and len(inputs) == 1:
            node = inputs[0]
        else:
            node = Node(name, inputs, line, [id(item) for item in given])
            self.nodes.append(node)
        for item in results:
            self.makers[id(item)] = weakref.ref(item), node
        return view

    def _maker(self, tensor: Any) -> Node | None:
        found = self.makers.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def found(self) -> list[Fusion]:
        """The chains of all recipes; an op counts for one."""
        found = []
        for recipe in RECIPES:
            for node in reversed(self.nodes):
                chain = match(node, recipe.steps)
                if chain is not None and not any(link.used for link in chain):
                    found.append(self._taken(recipe, chain))
        for node in self.nodes:
            gates = [fed for fed in node.inputs if fed.name == "sigmoid"] if node.name == "mul" else []
            if gates and not node.used and set(gates[0].sources) & set(node.sources):
                found.append(self._taken(SIBLINGS, [node, gates[0]]))
        return found

    @staticmethod
    def _taken(recipe: Recipe, chain: list[Node]) -> Fusion:
        for link in chain:
            link.used = True
        return Fusion(recipe.name, recipe.serves, tuple(link.name for link in reversed(chain)), chain[0].line)


def match(node: Node, steps: tuple[str, ...]) -> list[Node] | None:
    """The nodes from this one back that are the steps, or None."""
    step, rest = steps[0], steps[1:]
    if step.endswith("*"):
        if node.name in step[:-1].split("|"):
            for fed in node.inputs:
                if (chain := match(fed, steps)) is not None:
                    return [node, *chain]
        return match(node, rest)
    if node.name not in step.split("|"):
        return None
    if not rest:
        return [node]
    for fed in node.inputs:
        if (chain := match(fed, rest)) is not None:
            return [node, *chain]
    return None


def same_memory(one: Any, other: Any) -> bool:
    """Whether two tensors share a storage."""
    return one.device == other.device and one.numel() > 0 and one.untyped_storage()._cdata == other.untyped_storage()._cdata
