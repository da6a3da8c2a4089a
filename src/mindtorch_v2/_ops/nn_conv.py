"""Rows of the convolutions. One kernel serves every rank; conv1d … conv_transpose3d are calls of it."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TYPE_NAMES
from mindtorch_v2._ops import batching_nn, forward
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._tensor import Tensor


def listed(value: Any, n: int) -> list[int]:
    """A stride or padding as a list: one number stands for all dims."""
    value = list(value) if isinstance(value, (tuple, list)) else [value]
    return value * n if len(value) == 1 else value


def _each(value: int | tuple[int, ...], n: int) -> tuple[int, ...]:
    return value if isinstance(value, (tuple, list)) else (value,) * n


def _check_dims(name: str, n: int, **lists: Any) -> None:
    for word, value in lists.items():
        if len(value) != n:
            raise RuntimeError(f"expected {word} to be a single integer value or a list of {n} values to match the "
                               f"convolution dimensions, but got {word}={list(value)}")


def _check_types(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    for name, other in (("weight", weight), ("bias", bias)):
        if other is None or other.dtype is input.dtype:
            continue
        if name == "weight" and input.is_cpu and bias is not None and bias.dtype is not input.dtype:
            continue                             # torch looks at the bias first
        if name == "weight" and input.is_cpu:
            raise RuntimeError(_weight_refused(input, other))
        raise RuntimeError(f"Input type ({TYPE_NAMES[input.dtype._id]}) and {name} type "
                           f"({TYPE_NAMES[other.dtype._id]}) should be the same")


def _weight_refused(input: Tensor, weight: Tensor) -> str:
    """What each of torch's kernels says of a weight of another dtype: oneDNN's serves bfloat16, and complex is taken apart."""
    words = [_C.TYPE_WORDS[t.dtype._id] for t in (input, weight)]
    if not input.is_complex() and words[0] != "BFloat16":
        return f"expected scalar type {words[0]} but found {words[1]}"
    kinds = [f"CPU{word}Type" if word.startswith(("Complex", "BFloat")) else f"torch.{word}Tensor" for word in words]
    other = "" if input.is_complex() else " or input should be a MKLDNN tensor and weight is a dense tensor"
    return f"Input type ({kinds[0]}) and weight type ({kinds[1]}) should be the same{other}"


_SHORT_INTEGERS = frozenset(("uint8", "int8", "int16", "int32"))     # torch's kernels take int64 alone


def _conv_rule(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
               dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int) -> Spec:
    n = weight.dim() - 2
    if n <= 0:
        raise RuntimeError("weight should have at least three dimensions")
    if input.dim() != n + 2:
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to conv{n}d, but got input of "
                           f"size: {list(input.shape)}")
    _check_types(input, weight, bias)
    stride, padding, dilation = listed(stride, n), listed(padding, n), listed(dilation, n)
    output_padding = listed(output_padding, n)
    _check_dims("conv", n, stride=stride, padding=padding, dilation=dilation, output_padding=output_padding)
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(output_padding) < 0:
        raise RuntimeError("negative output_padding is not supported")
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        told = [*([1] if n == 1 else []), *dilation]
        axes = ", ".join(f"dilation_{axis}: {d}" for axis, d in zip(("depth", "height", "width")[-len(told):], told))
        raise RuntimeError(f"dilation should be greater than zero, but got {axes if transposed else told}")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if (transposed or max(dilation) > 1) and input.is_cpu and input.dtype._name in _SHORT_INTEGERS:
        kernel = f"slow_conv_transpose{max(n, 2)}d_out_cpu" if transposed else "slow_conv_dilated<>"
        raise NotImplementedError(f'"{kernel}" not implemented for \'{_C.TYPE_WORDS[input.dtype._id]}\'')
    return _conv_shape(input.shape, weight.shape, bias, stride, padding, dilation, transposed, output_padding,
                       groups), input.dtype


def _conv_shape(x: tuple[int, ...], w: tuple[int, ...], bias: Tensor | None, stride: list[int], padding: list[int],
                dilation: list[int], transposed: bool, output_padding: list[int], groups: int) -> tuple[int, ...]:
    n, outer = len(w) - 2, w[0]
    if outer < groups or outer % groups:
        wrong, shown = ("divisible by", [list(w)]) if outer >= groups else ("at least", list(w))
        raise RuntimeError(f"Given groups={groups}, expected weight to be {wrong} {groups} at dimension 0, but got weight of "
                           f"size {shown} instead")
    wanted = outer if transposed else w[1] * groups
    if x[1] != wanted:
        kind = f"transposed={int(transposed)}, " if transposed else f"groups={groups}, "
        raise RuntimeError(f"Given {kind}weight of size {list(w)}, expected input{list(x)} to have {wanted} channels, "
                           f"but got {x[1]} channels instead")
    channels = w[1] * groups if transposed else outer
    if bias is not None and (bias.dim() != 1 or bias.size(0) != channels):
        raise RuntimeError(f"Given {'transposed=1, ' if transposed else ''}weight of size {list(w)}, expected bias to "
                           f"be 1-dimensional with {channels} elements, but got bias of size "
                           f"{list(bias.shape)} instead")
    sizes = []
    for d in range(n):
        reach = dilation[d] * (w[2 + d] - 1) + 1
        if transposed:
            if w[2 + d] <= 0:
                raise RuntimeError(f"kernel size should be greater than zero, but got {list(w[2:])}")
            size = (x[2 + d] - 1) * stride[d] - 2 * padding[d] + reach + output_padding[d]
            if output_padding[d] >= max(stride[d], dilation[d]):
                told = ((word, given if n > 1 else [fill, *given]) for word, given, fill in (
                    ("output_padding", output_padding, 0), ("stride", stride, 1), ("dilation", dilation, 1)))
                raise RuntimeError("output padding must be smaller than either stride or dilation, but got " + " ".join(
                    f"{word}_{axis}: {value}" for word, given in told
                    for axis, value in zip(("depth", "height", "width")[-max(n, 2):], given)))
            if size < 0:                         # none is allowed: with oneDNN torch gives an empty result
                raise RuntimeError(f"Given input size per channel: {list(x[2:])}. Calculated output size per channel "
                                   "is too small")
            if x[2 + d] == 0:
                raise RuntimeError("Only zero batch or zero channel inputs are supported, but got input shape: "
                                   f"{list(x)}")
        else:
            room = x[2 + d] + 2 * padding[d]
            if room < reach or w[2 + d] <= 0:
                padded = " x ".join(str(x[2 + i] + 2 * padding[i]) for i in range(n))
                kernel = " x ".join(str(dilation[i] * (w[2 + i] - 1) + 1) for i in range(n))
                raise RuntimeError(f"Calculated padded input size per channel: ({padded}). Kernel size: ({kernel}). "
                                   "Kernel size can't be greater than actual input size")
            size = (room - reach) // stride[d] + 1
        sizes.append(size)
    return (x[0], channels, *sizes)


# ---- gradients -----------------------------------------------------------------------------------------------------
def _conv_grad(g: Tensor, input: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int],
               dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
               needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    bias_sizes = None if not needs[2] else [weight.size(1) * groups if transposed else weight.size(0)]
    return ops.convolution_backward(g, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
                                    groups, needs)


def _conv_slopes(g: Tensor, input: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, stride: Sequence[int],
                 padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
                 groups: int, needs: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """The gradients of input, weight and bias; by one kernel unless they are recorded for gradients of their own."""
    if not _C._is_grad_enabled():
        return ops._convolution_backward(g, input, weight, stride, padding, dilation, transposed, output_padding,
                                         groups, needs)
    n = weight.dim() - 2
    stride, padding, dilation = listed(stride, n), listed(padding, n), listed(dilation, n)
    return (_input_grad(g, input.shape, weight, stride, padding, dilation, transposed, groups) if needs[0] else None,
            _weight_grad(g, input, weight.shape, stride, padding, dilation, transposed, groups) if needs[1] else None,
            g.sum((0, *range(2, n + 2))) if needs[2] else None)


def _input_grad(g: Tensor, x: tuple[int, ...], weight: Tensor, stride: list[int], padding: list[int],
                dilation: list[int], transposed: bool, groups: int) -> Tensor:
    """The gradient to the input, itself a convolution: the other way round."""
    if transposed:
        out = ops.convolution(g, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)
        for d in range(2, len(x)):               # output_padding may leave room for one more window
            out = out.narrow(d, 0, x[d])
        return out
    left = [x[2 + d] - ((g.size(2 + d) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (weight.size(2 + d) - 1) + 1)
            for d in range(len(stride))]
    over = [max(0, extra - max(s, t) + 1) for extra, s, t in zip(left, stride, dilation, strict=True)]
    out = ops.convolution(g, weight, None, stride, padding, dilation, True,
                          [extra - o for extra, o in zip(left, over, strict=True)], groups)
    return ops.constant_pad_nd(out, [p for o in reversed(over) for p in (0, o)]) if any(over) else out


def _weight_grad(g: Tensor, input: Tensor, w: tuple[int, ...], stride: list[int], padding: list[int],
                 dilation: list[int], transposed: bool, groups: int) -> Tensor:
    """The gradient to the weight: a convolution over the batch of the input by g, one for each group."""
    image, filters = (g, input) if transposed else (input, g)
    parts = []
    for a, b in zip(image.chunk(groups, 1), filters.chunk(groups, 1), strict=True):
        part = ops.convolution(a.transpose(0, 1), b.transpose(0, 1), None, dilation, padding, stride, False,
                               [0] * len(stride), 1)
        for d in range(len(stride)):
            part = part.narrow(2 + d, 0, w[2 + d])
        parts.append(part.transpose(0, 1))
    return parts[0] if groups == 1 else ops.cat(parts, 0)


def _backward_rule(grad_output: Tensor, input: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int],
                   dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
                   output_mask: tuple[bool, ...]) -> Sequence[Spec | None]:
    channels = weight.size(1) * groups if transposed else weight.size(0)
    specs = [(input.shape, input.dtype), (weight.shape, weight.dtype), ((channels,), input.dtype)]
    return [spec if wanted else None for spec, wanted in zip(specs, output_mask, strict=True)]


_ARGUMENTS = ("SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, "
              "SymInt groups")
op(f"_convolution_backward(Tensor grad_output, Tensor input, Tensor weight, {_ARGUMENTS}, bool[3] output_mask) "
   "-> (Tensor, Tensor, Tensor)", rule=_backward_rule, kernel="convolution_backward", variants="", format="input weight",
   batch=batching_nn.convolution_slopes,
   npu="aclnnConvolutionBackward(grad_output, input, weight, grad_output.size(1), stride, padding, dilation, transposed, "
       "output_padding, groups, output_mask, 1, out0, out1, out2)")
op("convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, "
   "SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) "
   "-> (Tensor, Tensor, Tensor)", body=_conv_slopes, variants="", whole=True)
op(f"convolution(Tensor input, Tensor weight, Tensor? bias, {_ARGUMENTS}) -> Tensor",
   batch=batching_nn.convolved, forward=forward.bilinear, autocast="lower", out=False,
   rule=_conv_rule, format="input weight",
   variants="function",
   npu="aclnnConvolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, out, 1)",
   grad={"input, weight, bias": lambda g, input, weight, stride, padding, dilation, transposed, output_padding, groups,
         needs: _conv_grad(g, input, weight, stride, padding, dilation, transposed, output_padding, groups, needs)})


@composite(f"_convolution(Tensor input, Tensor weight, Tensor? bias, {_ARGUMENTS}, bool benchmark, bool deterministic, "
           "bool cudnn_enabled, bool allow_tf32=True) -> Tensor", variants="function")
def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
                 dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, benchmark: bool,
                 deterministic: bool, cudnn_enabled: bool, allow_tf32: bool) -> Tensor:
    """convolution, with cuDNN's switches."""
    return ops.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


# ---- conv1d, conv2d, conv3d and their transposes ---------------------------------------------------------------------
def _batched(name: str, n: int, input: Tensor, weight: Tensor) -> tuple[Tensor, bool]:
    """The input with a batch dim, and whether that was added."""
    if input.dim() == n + 2:
        return input, False
    if input.dim() != n + 1:
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of "
                           f"size: {list(input.shape)}")
    return input.unsqueeze(0), True


def _forward(name: str, n: int) -> Callable[..., Any]:
    zeros = (0,) * n

    def body(input: Tensor, weight: Tensor, bias: Tensor | None, stride: int | tuple[int, ...],
             padding: int | Sequence[int], dilation: int | tuple[int, ...], groups: int) -> Tensor:
        if isinstance(stride, int):
            stride = (stride,) * n
        if isinstance(padding, int):
            padding = (padding,) * n
        if isinstance(dilation, int):
            dilation = (dilation,) * n
        if input.dim() == n + 2:
            return ops.convolution(input, weight, bias, stride, padding, dilation, False, zeros, groups)
        input, _ = _batched(name, n, input, weight)
        return ops.convolution(input, weight, bias, stride, padding, dilation, False, zeros, groups).squeeze(0)
    body.__doc__ = f"Convolution over the last {n} dim{'s' * (n > 1)}."
    return body


def _named_padding(name: str, n: int) -> Callable[..., Any]:
    def body(input: Tensor, weight: Tensor, bias: Tensor | None, stride: int | tuple[int, ...], padding: str,
             dilation: int | tuple[int, ...], groups: int) -> Tensor:
        if padding == "valid":
            return getattr(ops, name)(input, weight, bias, stride, 0, dilation, groups)
        if padding != "same":
            raise RuntimeError(f"Invalid padding string: '{padding}'")
        if max(listed(stride, n)) > 1:
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        if weight.dim() != n + 2 or input.dim() not in (n + 1, n + 2):
            k = weight.dim()
            raise RuntimeError(f"Expected {k}-dimensional input for {k}-dimensional weight {list(weight.shape)}, but "
                               f"got {input.dim()}-dimensional input of size {list(input.shape)} instead")
        _check_types(input, weight, bias)
        total = [d * (k - 1) for d, k in zip(listed(dilation, n), weight.shape[2:], strict=True)]
        if any(t % 2 for t in total):           # the odd item goes to the right
            input = ops.constant_pad_nd(input, [p for t in reversed(total) for p in (0, t % 2)])
        return getattr(ops, name)(input, weight, bias, stride, [t // 2 for t in total], dilation, groups)
    return body


def _transposed(name: str, n: int) -> Callable[..., Any]:
    def body(input: Tensor, weight: Tensor, bias: Tensor | None, stride: int | tuple[int, ...],
             padding: int | tuple[int, ...], output_padding: int | tuple[int, ...], groups: int,
             dilation: int | tuple[int, ...]) -> Tensor:
        input, alone = _batched(name, n, input, weight)
        out = ops.convolution(input, weight, bias, _each(stride, n), _each(padding, n), _each(dilation, n), True,
                              _each(output_padding, n), groups)
        return out.squeeze(0) if alone else out
    body.__doc__ = f"Transposed convolution (the gradient of one to its input) over the last {n} dim{'s' * (n > 1)}."
    return body


for _n in (1, 2, 3):
    _head = f"d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{_n}] stride=1"
    op(f"conv{_n}{_head}, SymInt[{_n}] padding=0, SymInt[{_n}] dilation=1, SymInt groups=1) -> Tensor",
       body=_forward(f"conv{_n}d", _n), variants="function", out=False, autocast="lower")
    op(f"conv{_n}d.padding{_head[1:]}, str padding='valid', SymInt[{_n}] dilation=1, SymInt groups=1) -> Tensor",
       body=_named_padding(f"conv{_n}d", _n), variants="function", out=False,
       doc=getattr(ops, f"conv{_n}d").doc)
    op(f"conv_transpose{_n}{_head}, SymInt[{_n}] padding=0, SymInt[{_n}] output_padding=0, SymInt groups=1, "
       f"SymInt[{_n}] dilation=1) -> Tensor", body=_transposed(f"conv_transpose{_n}d", _n), variants="function",
       out=False, autocast="lower")


def _conv_tbc_rule(self: Tensor, weight: Tensor, bias: Tensor, pad: int) -> Spec | None:
    """What CANN's op gives; sizes that do not fit are for conv1d to refuse."""
    _check_tbc(self, weight, bias)
    steps = self.size(0) + 2 * pad - weight.size(0) + 1
    fits = steps > 0 and self.size(2) == weight.size(1) and bias.size(0) == weight.size(2)
    if not fits or not self.dtype is weight.dtype is bias.dtype:
        return None
    return (steps, self.size(1), weight.size(2)), self.dtype


def _check_tbc(self: Tensor, weight: Tensor, bias: Tensor) -> None:
    if self.dim() != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if weight.dim() != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if bias.dim() != 1:
        raise RuntimeError("Bias must be 1-D")


@composite("conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor", autocast="lower", out=False,
           variants="function",
           rule=_conv_tbc_rule, npu="aclnnConvTbc(self, weight, bias, pad, out, 0)")
def _conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int) -> Tensor:
    """conv1d of an input (time, batch, channels) with a weight (width, in, out)."""
    _check_tbc(self, weight, bias)
    return ops.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1)
