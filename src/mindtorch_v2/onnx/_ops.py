"""How aten ops are said in ONNX: a table of functions (model, node, *args) that give the names of the results."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_aten = torch.ops.aten
CONVERTERS: dict[Any, Callable[..., Any]] = {}


def _shape(node: Any) -> list[int]:
    return list(node.meta["val"].shape)


def _of(*packets: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CONVERTERS.update(dict.fromkeys(packets, function))
        return function
    return register


def _same(kind: str, **attributes: Any) -> Callable[..., Any]:
    """An op that ONNX has with the same arguments."""
    def convert(g: Any, node: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise NotImplementedError(f"[torch.onnx.export] {node.target} with {sorted(kwargs)}")
        like = next((a for a in args if isinstance(a, torch.fx.Node)), None)
        return g.add(kind, *(g.name(a, like) for a in args), **attributes)
    return convert


CONVERTERS |= {getattr(_aten, kind.lower()): _same(kind) for kind in (
    "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Abs", "Neg", "Floor", "Ceil", "Sin", "Cos", "Erf", "Reciprocal", "Sign",
    "Round", "Mul", "Sub", "Div", "Add", "Pow", "Where", "Mish", "MatMul", "HardSwish")}
CONVERTERS |= {_aten.mm: _same("MatMul"), _aten.bmm: _same("MatMul"), _aten.gt: _same("Greater"), _aten.lt: _same("Less"),
               _aten.ge: _same("GreaterOrEqual"), _aten.le: _same("LessOrEqual"), _aten.eq: _same("Equal"),
               _aten.logical_not: _same("Not"), _aten.clone: lambda g, node, x, **k: g.add("Identity", g.name(x)),
               _aten.detach: _same("Identity"), _aten.alias: _same("Identity"), _aten.maximum: _same("Max"),
               _aten.minimum: _same("Min"), _aten.contiguous: lambda g, node, x, **k: g.add("Identity", g.name(x)),
               _aten.hardsigmoid: _same("HardSigmoid", alpha=1 / 6, beta=0.5)}


@_of(_aten.linear)
def _linear(g: Any, node: Any, x: Any, weight: Any, bias: Any = None) -> str:
    if len(_shape(x)) == 2 and bias is not None:
        return g.add("Gemm", g.name(x), g.name(weight), g.name(bias), transB=1)
    product = g.add("MatMul", g.name(x), g.add("Transpose", g.name(weight), perm=[1, 0]))
    return product if bias is None else g.add("Add", product, g.name(bias))


@_of(_aten.addmm)
def _addmm(g: Any, node: Any, bias: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> str:
    return g.add("Gemm", g.name(a), g.name(b), g.name(bias), alpha=float(alpha), beta=float(beta))


@_of(_aten.convolution)
def _convolution(g: Any, node: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
                 transposed: bool, output_padding: Any, groups: int) -> str:
    given = {"strides": list(stride), "pads": list(padding) * 2, "dilations": list(dilation), "group": groups}
    inputs = [g.name(x), g.name(weight), *([g.name(bias)] if bias is not None else [])]
    if transposed:
        return g.add("ConvTranspose", *inputs, output_padding=list(output_padding), **given)
    return g.add("Conv", *inputs, **given)


@_of(_aten.native_batch_norm)
def _batch_norm(g: Any, node: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
                eps: float) -> tuple[str, None, None]:
    channels, dtype = _shape(x)[1], x.meta["val"].dtype
    scale = g.name(weight) or g.constant(torch.ones(channels, dtype=dtype))
    shift = g.name(bias) or g.constant(torch.zeros(channels, dtype=dtype))
    if training:
        if _shape(x)[0] != 1 or mean is not None:
            raise NotImplementedError("[torch.onnx.export] batch norm in training mode; call eval() before")
        return g.add("InstanceNormalization", g.name(x), scale, shift, epsilon=eps), None, None
    return g.add("BatchNormalization", g.name(x), scale, shift, g.name(mean), g.name(var), epsilon=eps), None, None


@_of(_aten.native_layer_norm)
def _layer_norm(g: Any, node: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[str, None, None]:
    scale = g.name(weight) or g.constant(torch.ones(list(shape), dtype=x.meta["val"].dtype))
    inputs = [g.name(x), scale, *([g.name(bias)] if bias is not None else [])]
    return g.add("LayerNormalization", *inputs, axis=-len(shape), epsilon=eps), None, None


@_of(_aten._native_group_norm)
def _group_norm(g: Any, node: Any, x: Any, weight: Any, bias: Any, n: int, channels: int, items: int, groups: int,
                eps: float) -> tuple[str, None, None]:
    dtype, sizes = x.meta["val"].dtype, [1, channels] + [1] * (len(_shape(x)) - 2)
    grouped = g.add("Reshape", g.name(x), g.ints([n, groups, -1]))
    one, zero = g.constant(torch.ones(groups, dtype=dtype)), g.constant(torch.zeros(groups, dtype=dtype))
    result = g.add("Reshape", g.add("InstanceNormalization", grouped, one, zero, epsilon=eps), g.ints(_shape(x)))
    if weight is not None:
        result = g.add("Mul", result, g.add("Reshape", g.name(weight), g.ints(sizes)))
    if bias is not None:
        result = g.add("Add", result, g.add("Reshape", g.name(bias), g.ints(sizes)))
    return result, None, None


def _pair(value: Any, count: int = 2) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value) * (count if len(value) == 1 else 1)


@_of(_aten.max_pool2d_with_indices)
def _max_pool(g: Any, node: Any, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False) -> tuple[str, None]:
    return g.add("MaxPool", g.name(x), kernel_shape=_pair(kernel), strides=_pair(stride or kernel), pads=_pair(padding) * 2,
                 dilations=_pair(dilation), ceil_mode=int(ceil_mode)), None


@_of(_aten.avg_pool2d)
def _avg_pool(g: Any, node: Any, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
              count_include_pad: bool = True, divisor_override: Any = None) -> str:
    if divisor_override is not None:
        raise NotImplementedError("[torch.onnx.export] average pooling with a divisor of its own")
    return g.add("AveragePool", g.name(x), kernel_shape=_pair(kernel), strides=_pair(stride or kernel),
                 pads=_pair(padding) * 2, ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad))


@_of(_aten._adaptive_avg_pool2d)
def _adaptive(g: Any, node: Any, x: Any, output_size: Any) -> str:
    if _pair(output_size) != [1, 1]:
        raise NotImplementedError(f"[torch.onnx.export] adaptive pooling to {output_size}; ONNX has one to a single item")
    return g.add("GlobalAveragePool", g.name(x))


@_of(_aten.softmax)
def _softmax(g: Any, node: Any, x: Any, dim: int, dtype: Any = None) -> str:
    return g.add("Softmax", g.name(x), axis=dim)


@_of(_aten.log_softmax)
def _log_softmax(g: Any, node: Any, x: Any, dim: int, dtype: Any = None) -> str:
    return g.add("LogSoftmax", g.name(x), axis=dim)


@_of(_aten._attention)
def _attention(g: Any, node: Any, query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> tuple[str, None]:
    if any(a is not None and a is not False for a in rest) or options:
        raise NotImplementedError("[torch.onnx.export] attention with a mask, causal or scaled")
    rank = len(_shape(key))
    turned = g.add("Transpose", g.name(key), perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.add("Mul", g.add("MatMul", g.name(query), turned), g.name(_shape(query)[-1] ** -0.5, query))
    return g.add("MatMul", g.add("Softmax", scores, axis=-1), g.name(value)), None


@_of(_aten.gelu)
def _gelu(g: Any, node: Any, x: Any, *, approximate: str = "none") -> str:
    return g.add("Gelu", g.name(x), approximate=approximate)


@_of(_aten.silu)
def _silu(g: Any, node: Any, x: Any) -> str:
    return g.add("Mul", g.name(x), g.add("Sigmoid", g.name(x)))


@_of(_aten.leaky_relu)
def _leaky_relu(g: Any, node: Any, x: Any, slope: float = 0.01) -> str:
    return g.add("LeakyRelu", g.name(x), alpha=float(slope))


@_of(_aten.elu)
def _elu(g: Any, node: Any, x: Any, alpha: float = 1.0) -> str:
    return g.add("Elu", g.name(x), alpha=float(alpha))


@_of(_aten.hardtanh, _aten.clamp)
def _clip(g: Any, node: Any, x: Any, low: Any = None, high: Any = None) -> str:
    return g.add("Clip", g.name(x), g.name(low, x), g.name(high, x))


@_of(_aten.softplus)
def _softplus(g: Any, node: Any, x: Any, beta: float = 1.0, threshold: float = 20.0) -> str:
    if beta != 1:
        raise NotImplementedError(f"[torch.onnx.export] softplus with beta={beta}")
    return g.add("Softplus", g.name(x))


@_of(_aten.rsqrt)
def _rsqrt(g: Any, node: Any, x: Any) -> str:
    return g.add("Reciprocal", g.add("Sqrt", g.name(x)))


@_of(_aten.embedding)
def _embedding(g: Any, node: Any, weight: Any, indices: Any, *rest: Any) -> str:
    return g.add("Gather", g.name(weight), g.name(indices), axis=0)


def _reduction(kind: str) -> Callable[..., str]:
    def convert(g: Any, node: Any, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> str:
        axes = [] if dim is None else [g.ints([dim] if isinstance(dim, int) else dim)]
        return g.add(kind, g.name(x), *axes, keepdims=int(keepdim))
    return convert


CONVERTERS |= {_aten.mean: _reduction("ReduceMean"), _aten.sum: _reduction("ReduceSum"), _aten.amax: _reduction("ReduceMax"),
               _aten.max: _reduction("ReduceMax"), _aten.amin: _reduction("ReduceMin")}


@_of(_aten.cat)
def _cat(g: Any, node: Any, tensors: Any, dim: int = 0) -> str:
    return g.add("Concat", *map(g.name, tensors), axis=dim)


@_of(_aten.view, _aten.reshape, _aten.unsqueeze, _aten.squeeze, _aten.flatten)
def _reshape(g: Any, node: Any, x: Any, *rest: Any) -> str:
    return g.add("Reshape", g.name(x), g.ints(_shape(node)))


@_of(_aten.permute)
def _permute(g: Any, node: Any, x: Any, dims: Any) -> str:
    rank = len(_shape(x))
    return g.add("Transpose", g.name(x), perm=[d % rank for d in dims])


@_of(_aten.t, _aten.transpose)
def _transpose(g: Any, node: Any, x: Any, a: int = 0, b: int = 1) -> str:
    order = list(range(len(_shape(x))))
    if len(order) > 1:
        order[a], order[b] = order[b], order[a]
    return g.add("Transpose", g.name(x), perm=order)


@_of(_aten.expand)
def _expand(g: Any, node: Any, x: Any, sizes: Any, **kwargs: Any) -> str:
    return g.add("Expand", g.name(x), g.ints(_shape(node)))


@_of(_aten.slice)
def _slice(g: Any, node: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str:
    last = _shape(x)[dim] if end is None else end
    return g.add("Slice", g.name(x), g.ints([start or 0]), g.ints([last]), g.ints([dim]), g.ints([step]))


@_of(_aten.select)
def _select(g: Any, node: Any, x: Any, dim: int, index: int) -> str:
    return g.add("Gather", g.name(x), g.constant(index, torch.int64), axis=dim)


@_of(_aten.upsample_nearest2d)
def _upsample(g: Any, node: Any, x: Any, *rest: Any) -> str:
    return g.add("Resize", g.name(x), "", "", g.ints(_shape(node)), mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric")
