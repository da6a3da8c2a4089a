"""Spectral normalisation by a forward pre-hook (the newer way: parametrizations)."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.parameter import Parameter, UninitializedParameter
from mindtorch_v2.nn.utils._norm_hooks import remove_hook

Tensor = torch.Tensor

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """A weight with one dimension first and all others flattened."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.dim()) if d != dim))
    return weight.reshape(weight.size(0), -1)


def default_dim(module: Module) -> int:
    """The dimension of the outputs: second in transposed convolutions, else first."""
    transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    return 1 if isinstance(module, transposed) else 0


def check_iterations(n_power_iterations: int) -> None:
    """Refuse a number of iterations that is not positive."""
    if n_power_iterations <= 0:
        raise ValueError(
            "Expected n_power_iterations to be positive, but got "
            f"n_power_iterations={n_power_iterations}"
        )


class SpectralNorm:
    """The hook: divides the weight by its largest singular value before each forward."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        check_iterations(n_power_iterations)
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The weight as a matrix."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalised weight; the iteration updates the vectors in place."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with torch.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(torch.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(torch.mv(matrix, v), dim=0, eps=self.eps))
                # Copies: the buffers change in place before backward needs them.
                u, v = u.clone(), v.clone()
        return weight / torch.dot(u, torch.mv(matrix, v))

    def _solve_v(self, matrix: Tensor, u: Tensor, sigma: Tensor) -> Tensor:
        """The v that gives u after normalising matrix @ v, as long as the singular value sigma asks for."""
        v = torch.mv(torch.linalg.pinv(matrix), u)
        return v * (sigma / torch.dot(u, torch.mv(matrix, v)))

    def _note_version(self, module: Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
        """A hook of state_dict(): its metadata says which form the vectors have."""
        versions = metadata.setdefault("spectral_norm", {})
        key = self.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self._version

    def _read_old_state(self, state: dict[str, Any], prefix: str, metadata: dict[str, Any], strict: bool,
                        missing: list[str], unexpected: list[str], errors: list[str]) -> None:
        """A hook of load_state_dict(): states without a version have the normalised weight in the place of v."""
        version = metadata.get("spectral_norm", {}).get(self.name + ".version")
        key = prefix + self.name
        if version is not None and version >= 1 or \
                version is None and key not in state and all(key + s in state for s in ("_orig", "_u", "_v")):
            return
        absent = [key + s for s in ("_orig", "", "_u") if key + s not in state]
        if absent:
            missing.extend(absent if strict else [])
            return
        with torch.no_grad():
            original = state[key + "_orig"]
            sigma = (original / state.pop(key)).mean()
            state[key + "_v"] = self._solve_v(self.reshape_weight_to_matrix(original), state[key + "_u"], sigma)

    def remove(self, module: Module) -> None:
        """Put the plain parameter back."""
        with torch.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    @staticmethod
    def apply(
        module: Module, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Put the hook on one parameter of a module."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two spectral_norm hooks on the same parameter {name}"
                )
        fn = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying spectral normalization"
            )
        with torch.no_grad():
            rows, cols = fn.reshape_weight_to_matrix(weight).size()
            u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(weight.new_empty(cols).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(fn)
        module._register_state_dict_hook(fn._note_version)
        module._register_load_state_dict_pre_hook(fn._read_old_state)
        return fn


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a parameter by its largest singular value."""
    dim = default_dim(module) if dim is None else dim
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Undo spectral_norm."""
    remove_hook(module, SpectralNorm, name, "spectral_norm")
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for key, hook in list(hooks.items()):
            of = getattr(getattr(hook, "hook", hook), "__self__", None)
            if isinstance(of, SpectralNorm) and of.name == name:
                del hooks[key]
    return module
