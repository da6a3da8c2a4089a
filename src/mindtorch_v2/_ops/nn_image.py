"""Rows of padding and resizing images."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2._C import _core as core
from mindtorch_v2._ops import batching, batching_nn
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._tensor import Tensor


# ---- padding -------------------------------------------------------------------------------------------------------
def _constant_rule(self: Tensor, pad: Sequence[int], value: complex) -> Spec:
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * self.dim():
        raise RuntimeError(f"Length of pad should be no more than twice the number of dimensions of the input. Pad "
                           f"length is {len(pad)} while the input has {self.dim()} dimensions.")
    sizes = list(self.shape)
    for i in range(len(pad) // 2):
        d = self.dim() - 1 - i
        size = sizes[d] + pad[2 * i] + pad[2 * i + 1]
        if sizes[d] + min(pad[2 * i], 0) + min(pad[2 * i + 1], 0) < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        sizes[d] = size
    if any(p > 0 for p in pad):                  # else no item gets the value
        core._check_fits(value, self.dtype)
    return sizes, self.dtype


op("constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", batch=batching.as_it_is, out=False,
   rule=_constant_rule, variants="function", format="self",
   npu="aclnnConstantPadNd(self, pad, value, out)",
   grad={"self": lambda g, pad: ops.constant_pad_nd(g, [-p for p in pad])},
   doc="Items of one value added at both ends of the last dims; negative numbers take items away.")


def _pad_rule(name: str, n: Any, reflect: bool) -> Callable[..., Any]:
    def rule(self: Tensor, padding: Any) -> Spec:
        padding = list(padding) if isinstance(padding, (tuple, list)) else [padding] * (2 * n)
        if len(padding) != 2 * n:
            raise RuntimeError(f"padding size is expected to be {2 * n}")
        if self.dim() not in (n + 1, n + 2) or any(s == 0 for s in self.shape[-n - 1:]):
            raise RuntimeError(f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and "
                               f"other non-zero dimensions for input, but got: {list(self.shape)}")
        sizes = list(self.shape)
        for i in range(n):
            d, left, right = self.dim() - 1 - i, padding[2 * i], padding[2 * i + 1]
            if reflect and max(left, right) >= sizes[d]:
                raise RuntimeError(f"Argument #{4 + 2 * i}: Padding size should be less than the corresponding input "
                                   f"dimension, but got: padding ({left}, {right}) at dimension {d} of input "
                                   f"{list(self.shape)}")
            sizes[d] += left + right
            if sizes[d] < 1:
                raise RuntimeError(f"input (size: {list(self.shape)}) is too small. Calculated output size at "
                                   f"dimension {d}: {sizes[d]}")
        return sizes, self.dtype
    return rule


def _pad_row(kind: str, n: int) -> None:
    name, camel = f"{kind}_pad{n}d", f"{kind.capitalize()}Pad{n}d"
    op(f"{name}_backward(Tensor grad_output, Tensor self, SymInt[{2 * n}] padding) -> Tensor",
       batch=batching_nn.folded(n + 1, "grad_output", "self"), variants="", format="self",
       rule=lambda grad_output, self, padding: (self.shape, self.dtype),
       npu=f"aclnn{camel}Backward(grad_output, self, padding, out)",
       grad={"grad_output": lambda g, padding: getattr(ops, name)(g, padding)})
    op(f"{name}(Tensor self, SymInt[{2 * n}] padding) -> Tensor", lacks="bool",
       batch=batching_nn.folded(n + 1, "self"), variants="nn", format="self",
       npu=f"aclnn{camel}(self, padding, out)",
       autocast=None if name == "reflection_pad3d" else {"cpu": "float32"},      # as torch, which leaves that one out
       rule=_pad_rule(name, n, kind == "reflection"),
       grad={"self": lambda g, self, padding: getattr(ops, name + "_backward")(g, self, padding)},
       doc="The last dims continued by " +
       ("their mirror image." if kind == "reflection" else "their first and last items."))


for _kind in ("reflection", "replication"):
    for _n in (1, 2, 3):
        _pad_row(_kind, _n)


@composite("_pad_circular(Tensor self, SymInt[] pad) -> Tensor", variants="nn")
def _pad_circular(self: Tensor, pad: tuple[int, ...]) -> Tensor:
    """The last dims continued by their other end."""
    n = len(pad) // 2
    if n + 2 != self.dim():
        raise RuntimeError(f"Invalid padding size, expected {2 * (self.dim() - 2)} but got {len(pad)}")
    self = self.contiguous()                     # torch keeps no memory format here
    for i in range(n):
        d, left, right = self.dim() - 1 - i, pad[2 * i], pad[2 * i + 1]
        size = self.size(d)
        if left > size or right > size:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if left + right + size < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")
        first, last = max(-left, 0), size - max(-right, 0)
        parts = [self.narrow(d, first, last - first)]
        if left > 0:
            parts.insert(0, self.narrow(d, last - left, left))
        if right > 0:
            parts.append(self.narrow(d, first, right))
        self = ops.cat(parts, d) if len(parts) > 1 else parts[0]
    return self


@composite("pad(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor", variants="nn")
def _pad(self: Tensor, pad: Sequence[int], mode: str, value: float | None) -> Tensor:
    """The last dims made longer: by a value, or as mode says ('reflect', 'replicate', 'circular')."""
    if mode not in ("constant", "circular", "reflect", "replicate"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * self.dim():
        raise RuntimeError(f"Padding length should be less than or equal to two times the input dimension but got "
                           f"padding length {len(pad)} and input of dimension {self.dim()}")
    if mode == "constant":
        return ops.constant_pad_nd(self, pad, 0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f"Padding mode \"{mode}\" doesn't take in value argument")
    n = len(pad) // 2
    if n not in (1, 2, 3) or self.dim() not in (n + 1, n + 2):
        raise NotImplementedError(f"Padding size {len(pad)} is not supported for {self.dim()}D input tensor.\n"
                                  "Supported combinations for non-constant padding:\n"
                                  "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
                                  "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
                                  "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)")
    if mode == "circular":
        alone = self.dim() == n + 1
        out = ops._pad_circular(self.unsqueeze(0) if alone else self, pad)
        return out.squeeze(0) if alone else out
    kind = {"reflect": "reflection", "replicate": "replication"}[mode]
    return getattr(ops, f"{kind}_pad{n}d")(self, pad)


@composite("_pad_enum(Tensor self, SymInt[] pad, int mode, float? value=None) -> Tensor", variants="nn")
def _pad_enum(self: Tensor, pad: Sequence[int], mode: int, value: float | None) -> Tensor:
    """pad, with the mode as a number."""
    return ops.pad(self, pad, ("constant", "reflect", "replicate", "circular")[mode], value)


# ---- resizing ------------------------------------------------------------------------------------------------------
def _resize_rule(name: str, n: int) -> Callable[..., Any]:
    def rule(self: Tensor, output_size: int | list[int] | tuple[int, ...], *_: object) -> Spec:
        sizes = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * n
        if len(sizes) != n:
            raise RuntimeError(f"It is expected output_size equals to {n}, but got size {len(sizes)}")
        if self.dim() != n + 2:
            raise RuntimeError(f"It is expected input_size equals to {n + 2}, but got size {self.dim()}")
        if min(sizes) <= 0 or min(self.shape[2:]) <= 0:
            given, wanted = (", ".join(f"{axis}: {size}" for axis, size in zip("DHW"[-n:], shape))
                             for shape in (self.shape[2:], sizes))
            raise RuntimeError(f"Input and output sizes should be greater than 0, but got input ({given}) "
                               f"{'and ' if n == 1 else ''}output ({wanted})")
        if self.numel() == 0 and self.size(1) == 0:
            raise RuntimeError(f"Non-empty {n + 2}D data tensor expected but got a tensor with sizes "
                               f"{list(self.shape)}")
        return (*self.shape[:2], *sizes), self.dtype
    return rule


def _named(parameters: str, formula: Callable[..., Any]) -> Callable[..., Any]:
    """The formula with the row's own parameter names, which tell the core what to save."""
    return eval(f"lambda g, {parameters}: formula(g, {parameters})", {"formula": formula})


def _resize_row(name: str, n: int, aligned: bool, npu: str | None) -> None:
    """The op, its gradient, and the overload by scale factors."""
    corners, given = (", bool align_corners", ", align_corners") if aligned else ("", "")
    scales = {1: ["scales"], 2: ["scales_h", "scales_w"], 3: ["scales_d", "scales_h", "scales_w"]}[n]
    text, names = "".join(f", float? {s}=None" for s in scales), "".join(f", {s}" for s in scales)
    free = "".join(f", {s}=0.0" for s in scales)             # CANN's word for a scale that was not given
    backward = name + "_backward"
    back = f"{npu}".removesuffix("V2") + ("Grad" if npu == "UpsampleBicubic2dAA" else "Backward")

    def slope(g: Tensor, self_shape: tuple[int, ...], *arguments: float | None) -> Tensor:
        return getattr(ops, backward)(g, list(g.shape[2:]), list(self_shape), *arguments)

    def curve(g: Tensor, output_size: list[int], *arguments: bool | None) -> Tensor:
        return getattr(ops, name)(g, output_size, *arguments)

    op(f"{backward}(Tensor grad_output, SymInt[{n}] output_size, SymInt[{n + 2}] input_size{corners}{text}) -> Tensor",
       variants="", format="grad_output", batch=batching_nn.resize_slope,
       rule=lambda grad_output, output_size, input_size, *_: (input_size, grad_output.dtype),
       npu=npu and f"aclnn{back}(grad_output, output_size, input_size{given}{free}, out)",
       grad={"grad_output": _named(f"output_size{given}{names}", curve)})
    op(f"{name}(Tensor self, SymInt[{n}] output_size{corners}{text}) -> Tensor",
       lacks="half" if name.endswith("_aa") else "uint8" if name in ("upsample_linear1d", "upsample_trilinear3d") else "",
       batch=batching_nn.folded(n + 1, "self"), variants="nn", format="self",
       rule=_resize_rule(name, n), npu=npu and f"aclnn{npu}(self, output_size{given}{free}, out)",
       grad={"self": _named(f"self_shape{given}{names}", slope)}, autocast={"npu": "float32"} if npu else None,
       doc=f"The last {n} dim{'s' * (n > 1)} resized to output_size, or by scale factors.")

    def by_factor(self: Tensor, output_size: Sequence[int] | None, *rest: Any) -> Tensor:
        factors = rest[-1]
        if (output_size is None) == (factors is None):
            raise RuntimeError("Must specify exactly one of output_size and scale_factors")
        if factors is None:
            return getattr(ops, name)(self, output_size, *rest[:-1])
        if len(factors) != n:
            raise RuntimeError(f"Must specify {n} scale factors, got {len(factors)}")
        sizes = [int(s * f) for s, f in zip(self.shape[2:], factors, strict=True)]
        return getattr(ops, name)(self, sizes, *rest[:-1], *factors)

    op(f"{name}.vec(Tensor self, SymInt[]? output_size{corners}, float[]? scale_factors) -> Tensor", variants="nn",
       body=by_factor)


for _name, _n, _aligned, _npu in (
    ("upsample_nearest1d", 1, False, "UpsampleNearest1dV2"), ("upsample_nearest2d", 2, False, "UpsampleNearest2dV2"),
    ("upsample_nearest3d", 3, False, "UpsampleNearest3d"),
    ("_upsample_nearest_exact1d", 1, False, "UpsampleNearestExact1d"),
    ("_upsample_nearest_exact2d", 2, False, "UpsampleNearestExact2d"),
    ("_upsample_nearest_exact3d", 3, False, "UpsampleNearestExact3d"),
    ("upsample_linear1d", 1, True, "UpsampleLinear1d"), ("upsample_bilinear2d", 2, True, "UpsampleBilinear2d"),
    ("upsample_trilinear3d", 3, True, "UpsampleTrilinear3d"), ("upsample_bicubic2d", 2, True, "UpsampleBicubic2d"),
    ("_upsample_bilinear2d_aa", 2, True, "UpsampleBilinear2dAA"),
    ("_upsample_bicubic2d_aa", 2, True, "UpsampleBicubic2dAA"),
    ("_upsample_lanczos2d_aa", 2, True, None),
):
    _resize_row(_name, _n, _aligned, _npu)
