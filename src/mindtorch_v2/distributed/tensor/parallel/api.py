"""parallelize_module: applies the styles of a plan to the submodules that it names."""
from __future__ import annotations

import warnings
from fnmatch import fnmatch
from typing import Any

from mindtorch_v2.distributed.device_mesh import DeviceMesh, _mesh_resources
from mindtorch_v2.distributed.tensor.parallel.style import ParallelStyle


def parallelize_module(module: Any, device_mesh: DeviceMesh | None = None,
                       parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None, *,
                       src_data_rank: int | None = 0) -> Any:
    """The module, with the styles of a plan: one for all of it, or by the names of submodules, which may have wildcards."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if mesh.ndim > 1:
        raise ValueError(f"Tensor Parallel only accepts a 1D DeviceMesh, but found {mesh.ndim}D!"
                         'If you have a 2-D or N-D device_mesh, consider passing in device_mesh["tp"]')
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported at the moment, so this "
                      "parallelize_module call will do nothing.", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError("Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
                        f"{type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        if not path:
            parallelize_module(module, mesh, style, src_data_rank=src_data_rank)
            continue
        atom, _, rest = path.partition(".")
        matched = [child for name, child in module.named_children() if fnmatch(name, atom)]
        if not matched:
            warnings.warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matching token '{atom}' in module "
                          f"{module}, skipping this plan key.", stacklevel=2)
        for child in matched:
            parallelize_module(child, mesh, {rest: style} if rest else style, src_data_rank=src_data_rank)
    return module
