"""Rows of the poolings: max, average, adaptive, fractional, and max's inverse."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops import batching_nn
from mindtorch_v2._ops.reduce import INT64
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._tensor import Tensor


# ---- shapes --------------------------------------------------------------------------------------------------------
def _listed(name: str, word: str, value: Any, n: int, default: list[int] | None = None) -> list[int]:
    """kernel_size, stride …: one number or n of them; an empty stride is the kernel's."""
    value = list(value) if isinstance(value, (tuple, list)) else [value]
    if not value and default is not None:
        return default
    if len(value) not in (1, n):
        how = "a single int" + ("", ", or a tuple of two ints", ", or a tuple of three ints")[n - 1]
        omitted = "omitted, " if word == "stride" else ""
        raise RuntimeError(f"{name}: {word} must either be {omitted}{how}")
    return value * n if len(value) == 1 else value


def _out_size(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> int:
    room = size + 2 * pad - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)
    out = room // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= size + pad else out   # the last window starts inside


def _check_input(name: str, self: Tensor, n: int) -> None:
    empty = next((d for d in range(max(self.dim() - n - 1, 0), self.dim()) if self.size(d) == 0), None)
    if name == "max_pool3d" and self.dim() in (4, 5) and empty is not None:
        raise RuntimeError("max_pool3d_with_indices_out_cpu_template(): Expected input's non-batch dimensions to have positive "
                           f"length, but input has a shape of {list(self.shape)} and non-batch dimension {empty} has length "
                           "zero!")
    if self.dim() not in (n + 1, n + 2) or empty is not None:
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size "
                           f"for input, but got:{list(self.shape)}")


def _axes(word: str, values: Sequence[int]) -> str:
    """Sizes by their axes, as torch's messages have them: kH: 2 kW: 3."""
    return " ".join(f"{word}{axis}: {value}" for axis, value in zip("THW"[-len(values):], values))


def _windows(name: str, self: Tensor, n: int, kernel_size: int | Sequence[int], stride: int | Sequence[int],
             padding: int | Sequence[int], dilation: int | Sequence[int], ceil_mode: bool) -> tuple[int, ...]:
    """The output's shape; raises as torch does on windows that do not fit."""
    kernel = _listed(name, "kernel_size", kernel_size, n)
    stride = _listed(name, "stride", stride, n, kernel)
    padding, dilation = _listed(name, "padding", padding, n), _listed(name, "dilation", dilation, n)
    if n == 1:
        for word, (given,) in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
            if given <= 0:
                raise RuntimeError(f"{name}() {word} must be greater than zero, but got {given}")
        if not 0 <= padding[0] <= kernel[0] // 2:
            raise RuntimeError(f"{name}() padding must be non-negative, but got {padding[0]}" if padding[0] < 0 else
                               f"{name}() padding should be at most half of kernel size, but got padding={padding[0]} and "
                               f"kernel_size={kernel[0]}")
    if 0 in stride:
        raise RuntimeError("stride should not be zero")
    if min(kernel) <= 0:
        raise RuntimeError(f"kernel size should be greater than zero, but got {_axes('k', kernel)}")
    if min(stride) <= 0:
        raise RuntimeError(f"stride should be greater than zero, but got {_axes('d', stride)}")
    if min(dilation) <= 0:
        raise RuntimeError(f"dilation should be greater than zero, but got {_axes('dilation', dilation)}")
    if n > 1 and self.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input")
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} "
                               f"and dilation={d}")
        if p > k // 2:
            widths = ", ".join(f"{word}{axis} = {value}" for word, values in (("pad", padding), ("k", kernel))
                               for axis, value in zip("WHT", reversed(values)))
            raise RuntimeError(f"pad should be smaller than or equal to half of kernel size, but got {widths}")
    _check_input(name, self, n)
    sizes = [_out_size(s, k, step, p, d, ceil_mode)
             for s, k, step, p, d in zip(self.shape[-n:], kernel, stride, padding, dilation, strict=True)]
    if min(sizes) < 1 and n == 1:
        raise RuntimeError(f"{name}() Invalid computed output size: {sizes[0]}")
    if min(sizes) < 1 and name == "avg_pool3d":
        raise RuntimeError(f"input image ({_axes('', self.shape[-3:])}) smaller than kernel size ({_axes('k', kernel)})")
    if min(sizes) < 1:
        channels = self.shape[-n - 1]
        raise RuntimeError(f"Given input size: ({'x'.join(map(str, self.shape[-n - 1:]))}). Calculated output size: "
                           f"({'x'.join(map(str, (channels, *sizes)))}). Output size is too small")
    return (*self.shape[:-n], *sizes)


def _picked(g: Tensor, indices: Tensor, n: int) -> Tensor:
    """The items of g's last n dims that the indices name: the gradient of max pooling's backward."""
    return g.flatten(-n).gather(-1, indices.flatten(-n)).reshape(indices.shape)


# ---- max -----------------------------------------------------------------------------------------------------------
def _max_rule(name: str, n: int) -> Callable[..., Any]:
    def rule(self: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int],
             dilation: int | Sequence[int], ceil_mode: bool) -> Sequence[Spec]:
        shape = _windows(name, self, n, kernel_size, stride, padding, dilation, ceil_mode)
        return [(shape, self.dtype), (shape, INT64)]
    return rule


def _max_alone(name: str) -> Callable[..., Any]:
    def body(self: Tensor, kernel_size: int | tuple[int, ...], stride: int | Sequence[int],
             padding: int | tuple[int, ...], dilation: int | tuple[int, ...], ceil_mode: bool) -> Tensor:
        """The largest item of every window."""
        return getattr(ops, name)(self, kernel_size, stride, padding, dilation, ceil_mode)[0]
    return body


_MAX2 = ("MaxPool2dWithIndices(self, kernel_size, stride, padding, dilation, ceil_mode, out0, out1)",
         "MaxPool2dWithIndicesBackward(grad_output, self, indices, kernel_size, stride, padding, dilation, ceil_mode, "
         "out)")
_MAX3 = tuple(text.replace("MaxPool2dWithIndices", "MaxPool3dWithArgmax") for text in _MAX2)
def _cast_of(n: int) -> dict[str, Any] | None:
    """What autocast does with the pools of n dims, as in torch."""
    return {"cpu": "float32"} if n == 3 else None


for _n, (_npu, _npu_back), _slope, _back in (
    (2, _MAX2, lambda g, self, kernel_size, stride, padding, dilation, ceil_mode, result1:
     ops.max_pool2d_with_indices_backward(g, self, kernel_size, stride, padding, dilation, ceil_mode, result1),
     lambda g, indices: _picked(g, indices, 2)),
    (3, _MAX3, lambda g, self, kernel_size, stride, padding, dilation, ceil_mode, result1:
     ops.max_pool3d_with_indices_backward(g, self, kernel_size, stride, padding, dilation, ceil_mode, result1),
     lambda g, indices: _picked(g, indices, 3)),
):
    _name = f"max_pool{_n}d_with_indices"
    _window = (f"int[{_n}] kernel_size, int[{_n}] stride=[], int[{_n}] padding=0, int[{_n}] dilation=1, "
               "bool ceil_mode=False")
    op(f"{_name}_backward(Tensor grad_output, Tensor self, {_window}, Tensor indices) -> Tensor", lacks="int",
       batch=batching_nn.folded(_n + 1, "grad_output", "self", "indices"), variants="", format="self",
       rule=lambda grad_output, self, *_: (self.shape, self.dtype), npu="aclnn" + _npu_back,
       grad={"grad_output": _back, "self": lambda g: ops.zeros_like(g)})
    op(f"{_name}(Tensor self, {_window}) -> (Tensor, Tensor)",
       batch=batching_nn.folded(_n + 1, "self"), variants="nn", npu="aclnn" + _npu, format="self",
       rule=_max_rule(f"max_pool{_n}d", _n), grad={"self": _slope})
    op(f"max_pool{_n}d(Tensor self, {_window}) -> Tensor", variants="function", out=False,
       autocast=_cast_of(_n), body=_max_alone(_name))
_WINDOW1 = "int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False"


def _as_plane(value: Any, other: int) -> list[int]:
    """A 1-d window as that of a plane of height 1."""
    value = list(value) if isinstance(value, (tuple, list)) else [value]
    return [other, *value] if value else value


def _check_line(name: str, self: Tensor) -> None:
    if self.dim() not in (2, 3):
        raise RuntimeError(f"Expected 2 to 3 dimensions, but got {self.dim()}-dimensional tensor for argument #1 'self' "
                           f"(while checking arguments for {name})")


@composite(f"max_pool1d_with_indices(Tensor self, {_WINDOW1}) -> (Tensor, Tensor)", out=False, variants="function")
def _max_pool1d_with_indices(self: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int],
                             padding: int | tuple[int, ...], dilation: int | tuple[int, ...],
                             ceil_mode: bool) -> tuple[Tensor, Tensor]:
    """The largest item of every window, and where it stands."""
    _check_line("max_pool1d", self)
    out, indices = ops.max_pool2d_with_indices(self.unsqueeze(-2), _as_plane(kernel_size, 1), _as_plane(stride, 1),
                                               _as_plane(padding, 0), _as_plane(dilation, 1), ceil_mode)
    return out.squeeze(-2), indices.squeeze(-2)


@composite(f"max_pool1d(Tensor self, {_WINDOW1}) -> Tensor", lacks="int", out=False, variants="function")
def _max_pool1d(self: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int], padding: int | tuple[int, ...],
                dilation: int | tuple[int, ...], ceil_mode: bool) -> Tensor:
    """The largest item of every window."""
    _windows("max_pool1d", self, 1, kernel_size, stride, padding, dilation, ceil_mode)
    return ops.max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)[0]


def _planes(n: int) -> str | None:
    """As torch, these keep channels last for planes and not for volumes."""
    return "self" if n == 2 else None


# ---- average -------------------------------------------------------------------------------------------------------
def _average_rule(name: str, n: int) -> Callable[..., Any]:
    def rule(self: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int],
             ceil_mode: bool, count_include_pad: bool, divisor_override: int | None) -> Spec:
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        if n == 2:                               # torch reads this size before it counts the dims: an IndexError
            kernel = _listed(name, "kernel_size", kernel_size, n)
            _listed(name, "stride", stride, n, kernel), _listed(name, "padding", padding, n), self.size(-3)
        return _windows(name, self, n, kernel_size, stride, padding, 1, ceil_mode), self.dtype
    return rule


_AVERAGES: tuple[tuple[int, str, Callable[..., Any], Callable[..., Any]], ...] = (
    (2, "1, ", lambda g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override:
     ops.avg_pool2d_backward(g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
     lambda g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override:
     ops.avg_pool2d(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)),
    (3, "", lambda g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override:
     ops.avg_pool3d_backward(g, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
     lambda g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override:
     ops.avg_pool3d(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)),
)
for _n, _extra, _slope, _back in _AVERAGES:
    _window = (f"int[{_n}] kernel_size, int[{_n}] stride=[], int[{_n}] padding=0, bool ceil_mode=False, "
               "bool count_include_pad=True, int? divisor_override=None")
    _args = f"kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=0, {_extra}out)"
    op(f"avg_pool{_n}d_backward(Tensor grad_output, Tensor self, {_window}) -> Tensor",
       batch=batching_nn.folded(_n + 1, "grad_output", "self"), variants="", format=_planes(_n),
       rule=lambda grad_output, self, *_: (self.shape, self.dtype),
       npu=f"aclnnAvgPool{_n}dBackward(grad_output, self, {_args}", grad={"grad_output": _back})
    op(f"avg_pool{_n}d(Tensor self, {_window}) -> Tensor", lacks="half" if _n == 3 else "",
       batch=batching_nn.folded(_n + 1, "self"), variants="nn", rule=_average_rule(f"avg_pool{_n}d", _n),
       npu=f"aclnnAvgPool{_n}d(self, {_args}", grad={"self": _slope}, autocast=_cast_of(_n), format=_planes(_n),
       doc="The mean of every window.")


@composite("avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, "
           "bool count_include_pad=True) -> Tensor", out=False, variants="function")
def _avg_pool1d(self: Tensor, kernel_size: int | tuple[int, ...], stride: int | tuple[int, ...],
                padding: int | tuple[int, ...], ceil_mode: bool, count_include_pad: bool) -> Tensor:
    """The mean of every window."""
    _check_line("avg_pool1d", self)
    return ops.avg_pool2d(self.unsqueeze(-2), _as_plane(kernel_size, 1), _as_plane(stride, 1), _as_plane(padding, 0),
                          ceil_mode, count_include_pad).squeeze(-2)


# ---- adaptive ------------------------------------------------------------------------------------------------------
def _adaptive_shape(name: str, self: Tensor, n: int, output_size: Any) -> tuple[int, ...]:
    sizes = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * n
    if len(sizes) != n:
        raise RuntimeError(f"{name}(): internal error: output_size.size() must be {n}" if n > 1 and "max" in name else
                           f"{name}: output_size must be {n}" if n > 1 else
                           f"{name}() argument 'output_size' should contain one int (got {len(sizes)})")
    if min(sizes) < 0 and "max" in name:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: "
                           f"{[*self.shape[:-n], *([1] if n == 1 else []), *sizes]}")
    if min(sizes) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received "
                           f"{{{', '.join(map(str, sizes[:2]))}{f',{sizes[2]}' if n == 3 else ''}}}")
    if n == 1:
        _check_line(name, self)
    if self.dim() not in (n + 1, n + 2):
        told = f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got:" if "max" in name else \
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got"
        raise RuntimeError(f"{told} {list(self.shape)}")
    for d in range(1 if n == 3 and "avg" in name else self.dim() - n - ("max" in name), self.dim()):
        if self.size(d) == 0:
            raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has "
                               f"sizes {list(self.shape)} with dimension {d} being empty")
    return (*self.shape[:-n], *sizes)


def _adaptive_rule(name: str, n: int) -> Callable[..., Any]:
    return lambda self, output_size: (_adaptive_shape(name, self, n, output_size), self.dtype)


def _adaptive_max_rule(name: str, n: int) -> Callable[..., Any]:
    def rule(self: Tensor, output_size: int | list[int]) -> Sequence[Spec]:
        shape = _adaptive_shape(name, self, n, output_size)
        return [(shape, self.dtype), (shape, INT64)]
    return rule


def _like_input(name: str) -> Callable[..., Any]:
    def rule(grad_output: Tensor, self: Tensor, *_: object) -> Spec:
        for d in range(1, grad_output.dim()):
            if grad_output.size(d) == 0:
                raise RuntimeError(f"{name}(): Expected grad_output to have non-zero size for non-batch dimensions, but "
                                   f"grad_output has sizes {list(grad_output.shape)} with dimension {d} being empty")
        return self.shape, self.dtype
    return rule


def _adaptive_average(self: Tensor, output_size: list[int], n: int) -> Tensor:
    """One window in a plane is a mean, as in torch: of nothing too, and of any number of dims in front."""
    if output_size != [1, 1] or self.device.type == "npu":
        return getattr(ops, f"_adaptive_avg_pool{n}d")(self, output_size)
    mean = self.mean((-1, -2), True)
    if self.dim() == 4 and self.numel() and _C._suggested_format(self) == _C._named_constant("channels_last"):
        channels = self.size(1)
        return mean.as_strided(mean.shape, (channels, 1, channels, channels))
    return mean


for _n, _average, _average_back, _max, _max_back in (
    (2, lambda g, self: ops._adaptive_avg_pool2d_backward(g, self),
     lambda g, grad_output_shape: ops._adaptive_avg_pool2d(g, grad_output_shape[-2:]),
     lambda g, self, result1: ops.adaptive_max_pool2d_backward(g, self, result1),
     lambda g, indices: _picked(g, indices, 2)),
    (3, lambda g, self: ops._adaptive_avg_pool3d_backward(g, self),
     lambda g, grad_output_shape: ops._adaptive_avg_pool3d(g, grad_output_shape[-3:]),
     lambda g, self, result1: ops.adaptive_max_pool3d_backward(g, self, result1),
     lambda g, indices: _picked(g, indices, 3)),
):
    op(f"_adaptive_avg_pool{_n}d_backward(Tensor grad_output, Tensor self) -> Tensor",
       batch=batching_nn.folded(_n + 1, "grad_output", "self"), variants="", format=_planes(_n),
       rule=_like_input(f"adaptive_avg_pool{_n}d_backward"), grad={"grad_output": _average_back},
       npu=f"aclnnAdaptiveAvgPool{_n}dBackward(grad_output, self, out)")
    op(f"_adaptive_avg_pool{_n}d(Tensor self, SymInt[{_n}] output_size) -> Tensor",
       batch=batching_nn.folded(_n + 1, "self"), variants="function",
       rule=_adaptive_rule(f"adaptive_avg_pool{_n}d", _n), grad={"self": _average}, format=_planes(_n),
       npu=f"aclnnAdaptiveAvgPool{_n}d(self, output_size, out)", doc="The mean of as many windows as asked for.")
    op(f"adaptive_avg_pool{_n}d(Tensor self, SymInt[{_n}] output_size) -> Tensor", variants="nn", autocast=_cast_of(_n),
       lacks="int64 complex" if _n == 3 else "int64",
       body=lambda self, output_size, _n=_n: _adaptive_average(
           self, list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * _n, _n))
    op(f"adaptive_max_pool{_n}d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor",
       batch=batching_nn.folded(_n + 1, "grad_output", "self", "indices"), variants="", format=_planes(_n),
       rule=_like_input(f"adaptive_max_pool{_n}d_backward"), grad={"grad_output": _max_back},
       npu=_n == 3 and "aclnnAdaptiveMaxPool3dBackward(grad_output, self, indices, out)" or None)
    op(f"adaptive_max_pool{_n}d(Tensor self, int[{_n}] output_size) -> (Tensor, Tensor)", lacks="int",
       batch=batching_nn.folded(_n + 1, "self"), variants="nn", format=_planes(_n),
       rule=_adaptive_max_rule(f"adaptive_max_pool{_n}d", _n), grad={"self": _max}, autocast=_cast_of(_n),
       doc="The largest item of as many windows as asked for, and where it stands.")


@composite("adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor",
           lacks="int64 complex", out=False, variants="function")
def _adaptive_avg_pool1d(self: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """The mean of as many windows as asked for."""
    _adaptive_shape("adaptive_avg_pool1d", self, 1, output_size)
    return ops._adaptive_avg_pool2d(self.unsqueeze(-2), _as_plane(output_size, 1)).squeeze(-2)


@composite("adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)", out=False, variants="function")
def _adaptive_max_pool1d(self: Tensor, output_size: int | tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The largest item of as many windows as asked for, and where it stands."""
    _adaptive_shape("adaptive_max_pool1d", self, 1, output_size)
    out, indices = ops.adaptive_max_pool2d(self.unsqueeze(-2), _as_plane(output_size, 1))
    return out.squeeze(-2), indices.squeeze(-2)


# ---- the inverse of max ----------------------------------------------------------------------------------------------
def _unpool_rule(name: str, self: Tensor, indices: Tensor, output_size: list[int], n: int) -> Spec:
    if indices.dtype is not INT64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {_C.TYPE_WORDS[indices.dtype._id]}")
    if len(output_size) != n:
        wanted = "two elements (height, width)" if n == 2 else "three elements (depth, height, width)"
        raise RuntimeError(f"There should be exactly {wanted} in output_size, but got {len(output_size)} elements.")
    if self.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with "
                           f"{self.dim()} dimensions.")
    if self.shape != indices.shape:
        raise RuntimeError(f"Expected shape of indices to be same as that of the input tensor ({list(self.shape)}) but "
                           f"got indices tensor with shape: {list(indices.shape)}")
    for d in range(1, self.dim()):
        if self.size(d) == 0:
            raise RuntimeError(f"{name}_cpu(): Expected input to have non-zero size for non-batch dimensions, but got "
                               f"{list(self.shape)} with dimension {d} being empty.")
    return (*self.shape[:-n], *output_size), self.dtype


def _unpool(name: str, self: Tensor, indices: Tensor, output_size: list[int], n: int) -> Tensor:
    shape, _ = _unpool_rule(name, self, indices, output_size, n)
    items = 1
    for size in output_size:
        items *= size
    flat = indices.flatten(-n)
    least, most = (flat.min()._known(), flat.max()._known()) if flat.numel() else (0, -1)
    if least is not None and (least < 0 or most >= items):
        raise RuntimeError(f"Found an invalid max index: {most} (output volumes are of size "
                           f"{'x'.join(map(str, output_size))})")
    whole = self.new_zeros((*self.shape[:-n], items))
    made = whole.scatter(-1, flat, self.flatten(-n)).reshape(shape)
    return made.contiguous(memory_format=_C._suggested_format(self)) if n == 2 and self._readable else made


# CANN's ops look at no index, as torch's on a device.
@composite("max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor",
           lacks="int", autocast={"cpu": "float32"},
           variants="nn",
           rule=lambda self, indices, output_size:
           _unpool_rule("max_unpooling2d_forward_out", self, indices, output_size, 2),
           node=True, npu="aclnnMaxUnpool2d(self, indices, output_size, out)",
           grad={"self": lambda g, indices: _picked(g, indices, 2)})
def _max_unpool2d(self: Tensor, indices: Tensor, output_size: list[int]) -> Tensor:
    """Every item where max pooling found it, zeros elsewhere."""
    _config.alert_not_deterministic("max_unpooling2d_forward_out")
    return _unpool("max_unpooling2d_forward_out", self, indices, output_size, 2)


@composite("max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
           lacks="int",
           autocast={"cpu": "float32"},
           variants="nn", rule=lambda self, indices, output_size, stride, padding:
           _unpool_rule("max_unpooling3d_forward_out", self, indices, output_size, 3),
           node=True, npu="aclnnMaxUnpool3d(self, indices, output_size, stride, padding, out)",
           grad={"self": lambda g, indices: _picked(g, indices, 3)})
def _max_unpool3d(self: Tensor, indices: Tensor, output_size: list[int], stride: tuple[int, ...],
                  padding: tuple[int, ...]) -> Tensor:
    """Every item where max pooling found it, zeros elsewhere."""
    _config.alert_not_deterministic("max_unpooling3d_forward_out")
    return _unpool("max_unpooling3d_forward_out", self, indices, output_size, 3)


# ---- fractional ------------------------------------------------------------------------------------------------------
def _starts(samples: Tensor, size: int, out: int, kernel: int) -> Tensor:
    """Where the windows of each plane begin, drawn by one number each; (…, out)."""
    if out <= 1:
        return ops.full((*samples.shape, out), size - kernel, dtype=INT64, device=samples.device)
    step = (size - kernel) / (out - 1)
    first = ((ops.arange(out - 1, device=samples.device) + samples.unsqueeze(-1)) * step).to(INT64)
    first = first - (samples.unsqueeze(-1) * step).to(INT64)
    return ops.cat([first, ops.full_like(first[..., :1], size - kernel)], -1)


def _check_samples(self: Tensor, samples: Tensor, n: int) -> None:
    """Refuses random numbers that are not n for each plane."""
    if samples.dim() != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.dim()}")
    batch = self.size(0) if self.dim() == n + 2 else 1
    if samples.size(0) < batch:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.size(1) != self.size(-n - 1):
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.size(2) != n:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {n}; got {samples.size(2)}.")


def _fractional(self: Tensor, kernel_size: tuple[int, ...], output_size: tuple[int, ...], random_samples: Tensor,
                n: int) -> tuple[Tensor, Tensor]:
    """The largest item of windows that start at random places, and where it stands."""
    told = f"fractional_max_pool{n}d{'_out' if n == 3 else ''}()"
    if self.dim() not in (n + 1, n + 2):
        raise RuntimeError(f"{told}: Expected {n + 1}D or {n + 2}D tensor, but got: {list(self.shape)}")
    empty = next((d for d in range(self.dim() - n - 1, self.dim()) if self.size(d) == 0), None)
    if empty is not None:
        raise RuntimeError(f"{told}: Expected input to have non-zero size for non-batch dimensions, but got"
                           f"{list(self.shape)} with dimension {empty} being empty.")
    kernel = _listed(f"fractional_max_pool{n}d", "kernel_size", kernel_size, n)
    out = _listed(f"fractional_max_pool{n}d", "output_size", output_size, n)
    _check_samples(self, random_samples, n)
    samples = random_samples[:self.size(0)] if self.dim() == n + 2 else random_samples[0]
    place: Any = None
    for axis in range(n):
        d = axis if n == 3 else 1 - axis         # torch draws width before height in 2-d
        size = self.size(axis - n)
        if out[axis] + kernel[axis] - 1 > size:
            word = ("time", "height", "width")[axis - n]
            raise RuntimeError(f"{told}: pool {word} {kernel[axis]} too large relative to input {word} {size}")
        offsets = _starts(samples[..., d], size, out[axis], kernel[axis]).unsqueeze(-1)
        offsets = offsets + ops.arange(kernel[axis], device=self.device)
        stride = 1
        for later in range(axis + 1, n):
            stride *= self.size(later - n)
        shape = list(samples.shape[:-1])
        shape += [out[i] if i == axis else 1 for i in range(n)] + [kernel[i] if i == axis else 1 for i in range(n)]
        along = offsets.reshape(shape) * stride
        place = along if place is None else place + along
    place = place.flatten(-n)                                # (…, output, window)
    windows = self.flatten(-n).gather(-1, place.flatten(-n - 1)).reshape(place.shape)
    best = windows.detach().argmax(-1, True)
    indices = place.gather(-1, best).squeeze(-1)
    return windows.gather(-1, best).squeeze(-1), indices


for _n in (2, 3):
    op(f"fractional_max_pool{_n}d(Tensor self, int[{_n}] kernel_size, int[{_n}] output_size, Tensor random_samples) "
       "-> (Tensor, Tensor)", variants="nn", autocast={"cpu": "float32"}, doc=_fractional.__doc__,
       body=lambda self, kernel_size, output_size, random_samples, _n=_n:
       _fractional(self, kernel_size, output_size, random_samples, _n))
