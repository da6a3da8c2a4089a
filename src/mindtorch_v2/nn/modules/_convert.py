"""Moving and casting a Module: to, cpu, npu, float and their kin, all through _apply."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.nn.parameter import Parameter


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the call forms of `to`, which are Tensor.to's."""
    dtype, device, non_blocking, copy, memory_format = torch._tensor._parse_to(*args, **kwargs)
    if copy:
        raise RuntimeError(".to() does not accept copy argument")
    if dtype in (bool, int, float, complex):
        dtype = torch.empty(0, dtype=dtype).dtype
    return device if device is None else torch.device(device), dtype, non_blocking, memory_format


vars(torch._C._nn)["_parse_to"] = _parse_to     # where programs with a `to` of their own look for it


def _swap_param(module: Any, name: str, param: Any, applied: Any) -> None:
    """Gives a parameter the contents of what it was converted to; who holds the parameter sees them."""
    grad, param.grad = param.grad, None
    try:
        torch.utils.swap_tensors(param, Parameter(applied, param.requires_grad) if type(applied) is torch.Tensor else applied)
    except Exception as error:
        param.grad = grad
        raise RuntimeError(f"_apply(): Couldn't swap {type(module).__name__}.{name}") from error


class Convert:
    """Conversions; a parameter keeps its identity wherever the new data allows it."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Any]
    children: Callable[[], Any]

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            grad = param.grad
            with torch.no_grad():
                applied = fn(param)
            swap = torch.__future__.get_swap_module_params_on_conversion()
            if swap:
                _swap_param(self, name, param, applied)
            elif applied.is_meta == param.is_meta and not torch.__future__.get_overwrite_module_params_on_conversion():
                param.data = applied
            else:
                param = self._parameters[name] = Parameter(applied, param.requires_grad)
            if grad is None:
                continue
            with torch.no_grad():
                new_grad = fn(grad)
            if swap:
                torch.utils.swap_tensors(grad, new_grad.requires_grad_(grad.requires_grad))
                new_grad = grad
            param.grad = new_grad.requires_grad_(grad.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def _cast_floating(self, dtype: Any) -> Any:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Any:
        """Cast floating parameters and buffers to float32."""
        return self._cast_floating(torch.float32)

    def double(self) -> Any:
        """Cast floating parameters and buffers to float64."""
        return self._cast_floating(torch.float64)

    def half(self) -> Any:
        """Cast floating parameters and buffers to float16."""
        return self._cast_floating(torch.float16)

    def bfloat16(self) -> Any:
        """Cast floating parameters and buffers to bfloat16."""
        return self._cast_floating(torch.bfloat16)

    def type(self, dst_type: Any) -> Any:
        """Cast all parameters and buffers."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self) -> Any:
        """Move to the cpu."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Any:
        """Move to a CUDA device: there is none, so a module with tensors is refused, as in torch without CUDA."""
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device: Any = None) -> Any:
        """Move to an Intel GPU: there is none, so a module with tensors is refused."""
        return self._apply(lambda t: torch.xpu.synchronize())

    def mtia(self, device: Any = None) -> Any:
        """Move to an MTIA accelerator: there is none, so a module with tensors is refused."""
        return self._apply(lambda t: torch.mtia.synchronize())

    def ipu(self, device: Any = None) -> Any:
        """Move to an IPU: there is none, and so it is refused as in torch."""
        return self._apply(lambda t: t.ipu(device))

    def npu(self, device: Any = None) -> Any:
        """Move to an npu: the current one, or the given index or device."""
        if isinstance(device, int):
            device = torch.device("npu", device)
        return self._apply(lambda t: t.to(device if device is not None else "npu"))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Move to a device without copying the values."""
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse=recurse)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move and cast in place: to(device, dtype), to(dtype), to(tensor), memory_format=."""
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    "nn.Module.to only accepts floating point or complex "
                    f"dtypes, but got desired dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may "
                    "change, and some modules might not work as expected when using complex "
                    "tensors as parameters or buffers. Please file an issue at "
                    "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml "
                    "if a complex module does not work as expected.",
                    stacklevel=2,
                )

        def convert(t: Any) -> Any:
            to_dtype = dtype if t.is_floating_point() or t.is_complex() else None
            try:
                if memory_format is not None and t.dim() in (4, 5):
                    return t.to(device, to_dtype, non_blocking, memory_format=memory_format)
                return t.to(device, to_dtype, non_blocking)
            except NotImplementedError as error:
                if str(error) != "Cannot copy out of meta tensor; no data!":
                    raise
                raise NotImplementedError(
                    f"{error} Please use torch.nn.Module.to_empty() instead of "
                    "torch.nn.Module.to() when moving module from meta to a different device."
                ) from None

        return self._apply(convert)

    def share_memory(self) -> Any:
        """Move the storages into shared memory."""
        return self._apply(lambda t: t.share_memory_())
