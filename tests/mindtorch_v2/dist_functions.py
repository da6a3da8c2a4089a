"""Collectives as functions, with and without gradients, and device meshes: cases for mindtorch_v2 and PyTorch."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import dist_cases
from dist_cases import World, case

dist_cases.CASES.clear()


def module(w: World, name: str) -> Any:
    return importlib.import_module(f"{w.torch.__name__}.distributed.{name}")


@case
def gradients(w: World) -> Any:
    nn, out = module(w, "nn.functional"), {}
    weight = w.mine(4) / 3
    calls = {
        "all_reduce": lambda x: nn.all_reduce(x * 2),
        "broadcast": lambda x: nn.broadcast(x * x, 1),
        "reduce": lambda x: nn.reduce(x * 3, 0),
        "all_gather": lambda x: sum(t * (i + 1) for i, t in enumerate(nn.all_gather(x))),
        "all_to_all": lambda x: sum(nn.all_to_all([w.empty(2), w.empty(2)], list((x * x).chunk(2)))).repeat(2),
        "all_to_all_single": lambda x: nn.all_to_all_single(w.empty(4), x * x),
        "gather": lambda x: sum(nn.gather(x, 0)),
        "scatter": lambda x: nn.scatter([x * 2, x * 3], 0),
    }
    for name, call in calls.items():
        x = w.mine(4).requires_grad_()
        y = call(x)
        (y * weight).sum().backward()
        out[name] = [y, x.grad]
    return out


@case
def functional(w: World) -> Any:
    f, group = module(w, "_functional_collectives"), w.dist.group.WORLD
    x, before = w.mine(4, 2), w.mine(4, 2)
    out = [f.all_reduce(x, "sum", group), f.all_gather_tensor(x, 0, group), f.all_gather_tensor(x, 1, group),
           f.reduce_scatter_tensor(x, "sum", 0, group), f.broadcast(x, 1, group),
           f.all_to_all_single(x, [2, 2], [2, 2], group)]  # fmt: skip
    return [f.wait_tensor(t) for t in out], bool((x == before).all())


@case
def mesh_of_two(w: World) -> Any:
    mesh = w.dist.device_mesh.init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    t = w.mine(3)
    w.dist.all_reduce(t, group=mesh.get_group("dp"))
    alone = w.mine(3)
    w.dist.all_reduce(alone, group=mesh["tp"].get_group())
    asked = [mesh.shape, mesh.ndim, mesh.size(), mesh.size(0), mesh.get_coordinate(), mesh.get_local_rank("dp"), mesh.get_rank()]
    try:
        mesh.get_group()
    except RuntimeError as error:
        asked.append(str(error))
    return t, alone, asked, mesh["dp"].mesh, mesh.mesh_dim_names


if __name__ == "__main__":
    dist_cases.run(sys.argv[1:])
