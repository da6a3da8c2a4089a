"""The attributes of modules by which passes compare them."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


@compatibility(is_backward_compatible=False)
def default_matching(name: str, target_version: int) -> str:
    """The name itself."""
    return name


_CONV = ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]
module_fetch_book: dict[type, tuple[int, list[str], Any]] = {
    torch.nn.Linear: (1, ["weight", "bias"], default_matching),
    torch.nn.Conv2d: (1, _CONV, default_matching),
    torch.nn.BatchNorm2d: (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    torch.nn.AdaptiveAvgPool2d: (1, [], default_matching),
    torch.nn.MaxPool2d: (1, ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"],
                         default_matching),
    torch.nn.ReLU: (1, ["inplace"], default_matching),
}


@compatibility(is_backward_compatible=False)
def extract_attrs_for_lowering(mod: torch.nn.Module) -> dict[str, Any]:
    """What a module is made of, by name."""
    if type(mod) not in module_fetch_book:
        raise RuntimeError(f"module_fetch_book doesn't have {torch.typename(type(mod))}")
    _, names, matching = module_fetch_book[type(mod)]
    return {"name": torch.typename(mod), **{name: getattr(mod, matching(name, 1)) for name in names}}


@compatibility(is_backward_compatible=False)
def lift_lowering_attrs_to_nodes(fx_module: Any) -> None:
    """Puts what each called module is made of on its node."""
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op == "call_module":
            if isinstance(modules[node.target], torch.fx.GraphModule):
                lift_lowering_attrs_to_nodes(modules[node.target])
            else:
                node.attrs_for_lowering = extract_attrs_for_lowering(modules[node.target])
