"""FlopCounterMode: the floating point operations of products and convolutions, for each module and in all."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

try:
    from tabulate import tabulate
except ImportError:
    tabulate = None

__all__ = ["FlopCounterMode", "register_flop_formula"]

_Mode: Any = torch.utils._python_dispatch.TorchDispatchMode
_aten = torch.ops.aten
flop_registry: dict[Any, Callable[..., int]] = {}
_SUFFIXES = ["", "K", "M", "B", "T"]


def _of_shapes(formula: Callable[..., int]) -> Callable[..., int]:
    """A formula that gets shapes in the place of tensors, and the shape of the result."""
    def of_shapes(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        args, kwargs, shape = torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.shape, (args, kwargs, out_val))
        return formula(*args, out_shape=shape, **kwargs)
    return of_shapes


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the formula of an op; it gets shapes in the place of tensors, or the tensors themselves."""
    def register(formula: Callable[..., Any]) -> Callable[..., Any]:
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            flop_registry[target] = formula if get_raw else _of_shapes(formula)
        return formula
    return register


def _count(shape: Any) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@register_flop_formula(_aten.mm)
def mm_flop(a_shape: Any, b_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of a product of matrices."""
    return a_shape[0] * a_shape[1] * 2 * b_shape[1]


@register_flop_formula(_aten.addmm)
def addmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of a product that is added to something."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(_aten.bmm)
def bmm_flop(a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of a batch of products."""
    return a_shape[0] * a_shape[1] * b_shape[2] * 2 * a_shape[2]


@register_flop_formula(_aten.baddbmm)
def baddbmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of a batch of products that is added to something."""
    return bmm_flop(a_shape, b_shape)


@register_flop_formula(_aten.matmul)
def _matmul_flop(a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * _count(out_shape) * a_shape[-1]


@register_flop_formula(_aten.linear)
def _linear_flop(input_shape: Any, weight_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * _count(input_shape) * weight_shape[0]


def conv_flop_count(x_shape: Any, w_shape: Any, out_shape: Any, transposed: bool = False) -> int:
    """Of a convolution: each output, or each input of a transposed one, is a product with the filters."""
    return _count((x_shape if transposed else out_shape)[2:]) * _count(w_shape) * x_shape[0] * 2


@register_flop_formula(_aten.convolution)
def conv_flop(x_shape: Any, w_shape: Any, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool,
              *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of a convolution."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=transposed)


@register_flop_formula(_aten.convolution_backward)
def conv_backward_flop(grad_shape: Any, x_shape: Any, w_shape: Any, _bias: Any, _stride: Any, _padding: Any, _dilation: Any,
                       transposed: bool, _output_padding: Any, _groups: Any, output_mask: Any, out_shape: Any = None,
                       **kwargs: Any) -> int:
    """Of the gradients of a convolution: each of input and weight costs as much as the convolution."""
    return (output_mask[0] + output_mask[1]) * conv_flop_count(x_shape, w_shape, grad_shape, transposed)


def sdpa_flop_count(query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Of attention: scores, and their product with the values."""
    *batch, queries, width = query_shape
    keys, out = key_shape[-2], value_shape[-1]
    return _count(batch) * 2 * queries * keys * (width + out)


@register_flop_formula(_aten._attention)
def sdpa_flop(query_shape: Any, key_shape: Any, value_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of attention."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


@register_flop_formula(_aten._attention_backward)
def sdpa_backward_flop(grad_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any, *args: Any,
                       out_shape: Any = None, **kwargs: Any) -> int:
    """Of the gradients of attention: five products, of which the scores are made anew."""
    *batch, queries, width = query_shape
    keys, out = key_shape[-2], value_shape[-1]
    return _count(batch) * 2 * queries * keys * (3 * width + 2 * out)


def get_suffix_str(number: int) -> str:
    """The letter with which a number is short."""
    return _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: int, suffix: str) -> str:
    """A number with a letter."""
    return f"{number / 1000 ** _SUFFIXES.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: int, denom: int) -> str:
    """A share in percent."""
    return "0%" if denom == 0 else f"{num / denom:.2%}"


class FlopCounterMode(_Mode):
    """A with block that counts; what backward computes counts for the whole, not for a module."""

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True,
                 custom_mapping: dict[Any, Any] | None = None) -> None:
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        self.flop_registry = {**flop_registry, **{k: _of_shapes(v) for k, v in (custom_mapping or {}).items()}}
        self._open: list[str] = ["Global"]
        self._modules: list[Any] = [None]
        self._handles: list[Any] = []

    def get_total_flops(self) -> int:
        """The sum of everything."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """The counts by module and op."""
        return {k: dict(v) for k, v in self.flop_counts.items()}

    def _named(self, module: Any) -> str:
        parent = self._open[-1]
        if parent == "Global":
            return type(module).__name__
        return next((f"{parent}.{n}" for n, child in self._modules[-1].named_children() if child is module),
                    f"{parent}.{type(module).__name__}")

    def _enter(self, module: Any, args: Any) -> None:
        self._open.append(self._named(module))
        self._modules.append(module)

    def _leave(self, module: Any, args: Any, result: Any) -> None:
        self._open.pop()
        self._modules.pop()

    def __enter__(self) -> Any:
        self.flop_counts.clear()
        self._open, self._modules = ["Global"], [None]
        module = torch.nn.modules.module
        self._handles = [module.register_module_forward_pre_hook(self._enter),
                         module.register_module_forward_hook(self._leave, always_call=True)]
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        for handle in self._handles:
            handle.remove()
        if self.display:
            print(self.get_table(self.depth))

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func.overloadpacket
        if packet in self.flop_registry:
            count = self.flop_registry[packet](*args, **kwargs, out_val=out)
            for name in set(self._open):
                self.flop_counts[name][packet] += count
        return out

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a table, through the tabulate package."""
        if tabulate is None:
            raise ImportError("FlopCounterMode.get_table needs the library tabulate; run pip install tabulate")
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        suffix = get_suffix_str(total)
        rows = []
        roots = [sum(c.values()) for name, c in self.flop_counts.items() if name != "Global" and "." not in name]
        subsumed = any(count >= total for count in roots)     # one module did everything
        for name in sorted(self.flop_counts, key=lambda n: (n != "Global", n)):
            level = 0 if name == "Global" else name.count(".") + 1 - subsumed
            if level > depth or name == "Global" and subsumed:
                continue
            counts = self.flop_counts[name]
            own = sum(counts.values())
            pad = " " * level
            rows.append([pad + name, convert_num_with_suffix(own, suffix), convert_to_percent_str(own, total)])
            rows += [[f"{pad} - {packet}", convert_num_with_suffix(n, suffix), convert_to_percent_str(n, total)]
                     for packet, n in counts.items()]
        return tabulate(rows or [["Global", "0", "0%"]], headers=["Module", "FLOP", "% Total"],
                        colalign=("left", "right", "right"))

torch._named.complete(__name__)
