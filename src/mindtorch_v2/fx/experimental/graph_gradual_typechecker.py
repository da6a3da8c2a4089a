"""Gradual typing of graphs: the types of tensors that annotated placeholders give the nodes; symbols are not refined."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node, map_arg
from mindtorch_v2.fx.tensor_type import Dyn, TensorType, Var, is_consistent, is_more_precise

_WHY = "sizes are not solved for; use torch.fx.passes.shape_prop.ShapeProp for the shapes of a graph"
Refine: Any = torch._facade.absent("torch.fx.experimental.graph_gradual_typechecker.Refine", _WHY)


def expand_to_tensor_dim(t: Any, n: int) -> TensorType:
    """A type of n sizes: Dyn is any of them."""
    if t == Dyn:
        return TensorType(tuple([Dyn] * n))
    if isinstance(t, TensorType):
        if len(t.__args__) != n:
            raise TypeError(f"Cannot extend tensor. Tensor {t} has rank {len(t.__args__)}. It should have rank {n}")
        return t
    raise TypeError(f"Cannot match the type {t}")


def broadcast_types(t1: Any, t2: Any) -> tuple[Any, Any]:
    """Both types with the sizes that they have in a pointwise op of the two; is_consistent says whether they fit."""
    if t1 == Dyn or t2 == Dyn or isinstance(t1, Var) or isinstance(t2, Var):
        return t1, t2
    if not isinstance(t1, TensorType) or not isinstance(t2, TensorType):
        raise TypeError(f"Cannot broadcast types {t1} and {t2}")
    rank = max(len(t1.__args__), len(t2.__args__))
    first = [1] * (rank - len(t1.__args__)) + list(t1.__args__)
    second = [1] * (rank - len(t2.__args__)) + list(t2.__args__)
    for i, (a, b) in enumerate(zip(first, second)):
        if a == 1:
            first[i] = b
        elif b == 1:
            second[i] = a
    return TensorType(tuple(first)), TensorType(tuple(second))


def get_greatest_upper_bound(type1: Any, type2: Any) -> Any:
    """The more precise of two types that fit, size by size."""
    if type1 == Dyn or type2 == Dyn:
        return type2 if type1 == Dyn else type1
    if not is_consistent(type1, type2):
        raise TypeError(f"Inconsistent types {type1}, {type2}")
    return TensorType(tuple(a if is_more_precise(a, b) else b for a, b in zip(type1.__args__, type2.__args__)))


# ---- rules: a function of the node and, for a module, of the module -------------------------------------------------
_INFERENCE_RULES: dict[Any, Callable[..., Any]] = {}


def register_inference_rule(call_target: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the rule of a function or of a class of modules."""
    def enter(rule: Callable[..., Any]) -> Callable[..., Any]:
        if call_target in _INFERENCE_RULES:
            raise RuntimeError(f"Inference rule already registered for {call_target}!")
        _INFERENCE_RULES[call_target] = rule
        return rule
    return enter


def _node(x: Any) -> Any:
    if not isinstance(x, Node):
        raise AssertionError(f"Expected Node, got {type(x)}")
    return x


@register_inference_rule(torch.add)
@register_inference_rule(operator.add)
def add_inference_rule(n: Node) -> Any:
    """The broadcast type; of two that fit, the one that says less."""
    first, second = _node(n.args[0]), _node(n.args[1])
    t1, t2 = first.type, second.type
    if int in (t1, t2) and (isinstance(t1, TensorType) or isinstance(t2, TensorType)):
        n.type = t2 if t1 is int else t1
        return n.type
    new1, new2 = broadcast_types(t1, t2)
    if not is_consistent(new1, new2):
        raise TypeError(f"Cannot add arguments {first} ({t1}) and {second} ({t2}) in node {n}. Types should match ")
    n.type = new2 if is_more_precise(new1, new2) else new1
    return n.type


@register_inference_rule(getattr)
def get_attr_inference_rule(n: Node, traced: Any = None) -> Any:
    """Of a shape nothing is known."""
    if n.args[1] != "shape":
        raise TypeError("Not yet implemented")
    n.type = Dyn
    return n.type


@register_inference_rule(torch.transpose)
def transpose_inference_rule(n: Node) -> Any:
    """Two sizes change places."""
    kind, dim1, dim2 = _node(n.args[0]).type, n.args[1], n.args[2]
    if kind == Dyn:
        return n.type
    rank = len(kind.__args__)
    if not (0 <= dim1 < rank and 0 <= dim2 < rank):          # type: ignore[operator]
        raise TypeError(f"Cannot transpose {dim1} and {dim2} in type {kind} for node {n}")
    sizes: Any = list(kind.__args__)
    sizes[dim1], sizes[dim2] = sizes[dim2], sizes[dim1]
    n.type = TensorType(sizes) if n.type == Dyn else get_greatest_upper_bound(TensorType(sizes), n.type)
    return n.type


@register_inference_rule(torch.reshape)
def reshape_inference_rule(n: Node) -> Any:
    """The requested sizes, where one number of items divides the other."""
    kind, wanted = _node(n.args[0]).type, n.args[1]
    made = TensorType([Dyn if size == -1 else size for size in wanted])      # type: ignore[union-attr]
    if kind != Dyn:
        before, after = (math.prod(size for size in t.__args__ if size != Dyn) for t in (kind, made))
        if before % after and after % before:
            raise TypeError(f"Cannot reshape in node {n} from {kind} to {made}")
    n.type = made
    return n.type


@register_inference_rule(torch.flatten)
def flatten_inference_rule(n: Node) -> Any:
    """Sizes from the first to the last flattened dim as one."""
    source = _node(n.args[0])
    given: list[Any] = [*n.args[1:], *(1, -1)[len(n.args) - 1:]]
    start, end = given
    if source.type == Dyn and isinstance(n.type, TensorType):
        source.type = expand_to_tensor_dim(source.type, len(n.type.__args__))
    if isinstance(source.type, TensorType):
        n.type = get_greatest_upper_bound(flatten_check(source.type, start, end), n.type)
    return n.type


def flatten_check(tensor_type: Any, start_dim: int, end_dim: int) -> TensorType:
    """The type of a flattened tensor."""
    sizes = tensor_type.__args__
    rank = len(sizes)
    start = rank if start_dim == -1 else abs(start_dim)
    end = rank + end_dim + 1 if end_dim < 0 else end_dim + 1
    if not (0 <= start < rank and 0 <= end <= rank and start < end):
        raise TypeError(f"Incompatible dimensions {start}, {end - 1} in type {tensor_type}")
    joined = sizes[start:end]
    return TensorType((*sizes[:start], Dyn if Dyn in joined else math.prod(joined), *sizes[end:]))


@register_inference_rule(torch.nn.BatchNorm2d)
def bn2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The type of the input, of four dims with as many channels as the module has."""
    source = _node(n.args[0])
    source.type = expand_to_tensor_dim(source.type, 4)
    n.type = expand_to_tensor_dim(n.type, 4)
    channels = module_instance.num_features
    if not (is_consistent(source.type.__args__[1], channels) and is_consistent(n.type.__args__[1], channels) and
            is_consistent(source.type, n.type)):
        raise TypeError(f"Cannot apply {module_instance} with input type {source.type} and existing type {n.type} on {n}")
    n.type = get_greatest_upper_bound(source.type, n.type)
    return n.type


def calculate_out_dimension(d_in: Any, module_instance: Any, index: int) -> Any:
    """The size that a convolution or a pool makes of one."""
    def part(value: Any) -> Any:
        return value[index] if isinstance(value, tuple) else value
    padding, kernel, stride, dilation = (part(getattr(module_instance, name)) for name in
                                         ("padding", "kernel_size", "stride", "dilation"))
    if d_in == Dyn:
        return Dyn
    if not isinstance(d_in, int):
        raise TypeError(f"{d_in} in {module_instance} must be a number or Dyn. Received {type(d_in)}")
    return (d_in + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@register_inference_rule(torch.nn.Conv2d)
def conv2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The module's channels and the sizes that it makes."""
    source = _node(n.args[0])
    source.type = expand_to_tensor_dim(source.type, 4)
    batch, channels, high, wide = source.type.__args__
    if not is_consistent(channels, module_instance.in_channels):
        raise TypeError(f"Cannot apply {module_instance} with input type {source.type} and existing type {n.type} on {n}")
    made = TensorType((batch, module_instance.out_channels, calculate_out_dimension(high, module_instance, 0),
                       calculate_out_dimension(wide, module_instance, 1)))
    n.type = get_greatest_upper_bound(made, expand_to_tensor_dim(n.type, 4))
    return n.type


@register_inference_rule(torch.nn.ReLU)
def relu_inference_rule(n: Node, module_instance: Any) -> Any:
    """The type of the input."""
    return _module_rule(n, lambda kind: kind)


def _module_rule(n: Node, result: Callable[[Any], Any]) -> Any:
    """The rule of a module that makes one type of one and keeps the number of dims."""
    source = _node(n.args[0])
    if source.type == Dyn and isinstance(n.type, TensorType):
        source.type = expand_to_tensor_dim(source.type, len(n.type.__args__))
    if isinstance(source.type, TensorType):
        n.type = get_greatest_upper_bound(result(source.type), n.type)
    return n.type


@register_inference_rule(torch.nn.MaxPool2d)
def maxpool2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The last two sizes as the pool makes them."""
    return _module_rule(n, lambda kind: maxpool2d_check(kind, module_instance))


def maxpool2d_check(typ: Any, module_instance: Any) -> TensorType:
    """The type of the pooled tensor."""
    sizes = list(typ.__args__)
    if len(sizes) not in (3, 4):
        raise TypeError(f"Wrong size {typ} for {module_instance}")
    sizes[-2:] = [calculate_out_dimension(size, module_instance, k) for k, size in enumerate(sizes[-2:])]
    return TensorType(tuple(sizes))


@register_inference_rule(torch.nn.AdaptiveAvgPool2d)
def adaptiveavgpool2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The last two sizes that the module says."""
    return _module_rule(n, lambda kind: adaptiveavgpool2d_check(kind, module_instance))


def adaptiveavgpool2d_check(tensor_type: Any, module_instance: Any) -> TensorType:
    """The type of the pooled tensor; a size of None is the other one."""
    size, sizes = module_instance.output_size, list(tensor_type.__args__)
    high, wide = (size, size) if isinstance(size, int) else size
    if len(sizes) not in (3, 4):
        raise TypeError(f"Tensor ranks must be 3 or 4. Got {tensor_type}")
    sizes[-2:] = [wide if high is None else high, high if wide is None else wide]
    return TensorType(tuple(sizes))


@register_inference_rule(torch.nn.Linear)
def linear_inference_rule(n: Node, module_instance: Any) -> Any:
    """The last size becomes the module's."""
    return _module_rule(n, lambda kind: linear_check(kind, module_instance))


def linear_check(tensor_type: Any, module_instance: Any) -> TensorType:
    """The type of the product."""
    sizes = tensor_type.__args__
    if len(sizes) < 2:
        raise TypeError(f"Type {tensor_type} must have rank 2 or more.")
    if not is_consistent(module_instance.in_features, sizes[-1]):
        raise TypeError(f"Inconsistent {module_instance.in_features} and {sizes[-1]} in {module_instance}")
    return TensorType((*sizes[:-1], module_instance.out_features))


def get_parameter(traced: Any, target: str) -> Any:
    """The parameter or buffer of a name with dots."""
    owner, _, name = target.rpartition(".")
    return getattr(traced.get_submodule(owner) if owner else traced, name)


class GraphTypeChecker:
    """Gives the nodes of a graph their types, or raises TypeError where types do not fit."""

    def __init__(self, env: dict[Any, Any], traced: GraphModule) -> None:
        self.env, self.traced = env, traced

    def type_check(self) -> bool:
        """Goes through the graph from its placeholders on."""
        for node in self.traced.graph.nodes:
            self.type_check_node(node)
        return True

    def type_check_node(self, n: Node) -> Any:
        """The type of one node, which is also put into it."""
        n.type = Dyn if n.type is None else n.type
        if n.op == "get_attr":
            value = get_parameter(self.traced, str(n.target))
            n.type = TensorType(value.shape) if isinstance(value, torch.Tensor) else n.type
        elif n.op == "output":
            n.type = map_arg(n.args[0], lambda x: x.type)
        elif n.op == "call_function":
            if n.target not in _INFERENCE_RULES:
                raise RuntimeError(f"No inference rule registered for target {n.target}!")
            return _INFERENCE_RULES[n.target](n)
        elif n.op == "call_module":
            module = self.traced.get_submodule(str(n.target))
            if type(module) not in _INFERENCE_RULES:
                raise RuntimeError(f"No inference rule registered for class {type(module)}!")
            return _INFERENCE_RULES[type(module)](n, module)
        elif n.op != "placeholder":
            raise NotImplementedError(f"Method {n.op} not yet implemented")
        return n.type
