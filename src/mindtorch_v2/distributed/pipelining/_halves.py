"""Backward in two halves: gradients of a stage's inputs, for which another rank waits, and later those of its weights.

Where the way from the outputs to the inputs meets a node that also leads to weights, the gradient that arrives there is kept: from
it the second half computes what the node gives to the weights, and nothing twice.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import mindtorch_v2 as torch

Tensor = Any


class Kept(NamedTuple):
    """A node's gradient, and the weights that only it leads to."""
    edge: Any
    gradient: Tensor
    weights: list[Tensor]


class _Graph:
    """The graph behind some outputs: which nodes lead to the inputs, and which weights each of the others leads to."""

    def __init__(self, outputs: list[Tensor], inputs: list[Tensor]) -> None:
        self.ends = {torch.autograd.graph.get_gradient_edge(x).node for x in inputs}
        self.leads: dict[Any, bool] = {}          # whether an input is behind a node; nodes live as long as they are held
        self.wide: set[Any] = set()               # nodes of more than one output
        for x in outputs:
            if x.grad_fn is not None:
                self.wide |= {x.grad_fn} if x.output_nr else set()
                self._walk(x.grad_fn)
        self.nodes = [node for node, leads in self.leads.items() if leads and node not in self.ends]

    def _walk(self, root: Any) -> None:
        stack = [(root, False)]
        while stack:
            node, seen = stack.pop()
            after = [one for one, _ in node.next_functions if one is not None]
            if seen:
                self.leads[node] = node in self.ends or any(self.leads[one] for one in after)
            elif node not in self.leads:
                self.leads[node] = False
                self.wide |= {one for one, number in node.next_functions if one is not None and number}
                stack.append((node, True))
                stack += [(one, False) for one in after]

    def weights(self, node: Any) -> list[Tensor]:
        """The leaves that a node leads to by ways that no input is behind."""
        found, seen = [], set()
        stack = [one for one, _ in node.next_functions if one is not None and not self.leads[one]]
        while stack:
            one = stack.pop()
            if one in seen:
                continue
            seen.add(one)
            if hasattr(one, "variable"):
                found.append(one.variable)
            stack += [after for after, _ in one.next_functions if after is not None]
        return found


def input_half(outputs: list[Tensor], gradients: list[Tensor], inputs: list[Tensor]) -> list[Kept] | None:
    """Puts gradients into the inputs and returns what weight_half needs; None, with nothing done, where a weight is used at more
    than one place or by a node of several outputs, so that its gradient cannot be had apart."""
    graph = _Graph(outputs, inputs)
    pairs = [(node, weights) for node in graph.nodes if (weights := graph.weights(node))]
    used = [id(weight) for _, weights in pairs for weight in weights]
    straight = [x for x in outputs if x.grad_fn is not None and not graph.leads[x.grad_fn]]
    if len(set(used)) != len(used) or straight or any(node in graph.wide for node, _ in pairs):
        return None
    edges = [torch.autograd.graph.GradientEdge(node, 0) for node, _ in pairs]
    made = torch.autograd.grad(outputs, [*inputs, *edges], gradients, retain_graph=True, allow_unused=True)
    for x, gradient in zip(inputs, made):
        x.grad = gradient
    return [Kept(edge, gradient, weights) for edge, gradient, (_, weights) in zip(edges, made[len(inputs):], pairs, strict=True)
            if gradient is not None]


def weight_half(kept: list[Kept]) -> None:
    """Adds what is left to the gradients of the weights."""
    for edge, gradient, weights in kept:
        for weight, made in zip(weights, torch.autograd.grad([edge], weights, [gradient], retain_graph=True, allow_unused=True),
                                strict=True):
            if made is not None:
                weight.grad = made if weight.grad is None else weight.grad + made
