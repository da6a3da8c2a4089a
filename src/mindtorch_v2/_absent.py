"""Ops of PyTorch that are not here, by name: a program that reads them goes on, a call raises an error with the name."""
from __future__ import annotations

import sys
import traceback
from enum import Enum
from typing import Any

from mindtorch_v2 import _C, _facade, _function_schema

_REASONS = {
    "products of eight-bit floats are not offered": "_scaled_mm _scaled_mm_v2",
}
FUNCTIONS = {name: found for why, names in _REASONS.items() for name, found in
             _facade.refusals(names, why, "torch.").items()}
_KERNELS = "this kernel of CUDA's is not offered; use torch.nn.functional.scaled_dot_product_attention"
ATEN = FUNCTIONS | _facade.refusals("_flash_attention_forward _efficient_attention_forward", _KERNELS, "torch.ops.aten.")
ATEN |= _facade.refusals("_pin_memory _sparse_addmm _sparse_mm_reduce_impl", "this inner op is not offered", "torch.ops.aten.")
for _found in ATEN.values():
    _found.default = _found       # the overload that programs use as a key


# For annotations and isinstance: torch.load reads archives by its own means.
READERS = {name: _facade.absent(f"torch.{name}", "archives are read and written by torch.load and torch.save")
           for name in ("PyTorchFileReader", "PyTorchFileWriter")}


class qscheme:
    """How numbers would be quantised; the names exist for comparisons, nothing quantises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> str:
        return self._name


QSCHEMES = {name: qscheme(name) for name in ("per_tensor_affine", "per_channel_affine", "per_tensor_symmetric",
                                             "per_channel_symmetric", "per_channel_affine_float_qparams")}


class DispatchKey(Enum):
    """Names of the layers and devices between which PyTorch's core chooses; here they only name."""
    Undefined, CPU, CUDA, XPU, PrivateUse1, Meta, SparseCPU, Autograd, AutogradCPU, AutogradCUDA, AutogradPrivateUse1, \
        AutocastCPU, AutocastCUDA, AutocastXPU, AutocastPrivateUse1, CompositeImplicitAutograd, \
        CompositeExplicitAutograd, BackendSelect, Python, ADInplaceOrView = range(20)


class DispatchKeySet:
    """Several of them."""

    def __init__(self, *keys: DispatchKey) -> None:
        self._keys = frozenset(keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether it is one of them."""
        return key in self._keys

    def add(self, key: DispatchKey) -> DispatchKeySet:
        """These and one more."""
        return DispatchKeySet(*self._keys, key)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)


def _gather_traceback(python: bool = True, script: bool = True, cpp: bool = True) -> traceback.StackSummary:
    """The lines that are running; there is no TorchScript and no symbol of C++ among them."""
    frames = traceback.walk_stack(sys._getframe(1)) if python else iter(())
    return traceback.StackSummary.extract(frames, lookup_lines=False)


def _symbolize_tracebacks(to_symbolize: list[traceback.StackSummary]) -> list[list[dict[str, Any]]]:
    """Such lines as records, the innermost first."""
    return [[{"name": frame.name, "filename": frame.filename, "line": frame.lineno} for frame in stack] for stack in to_symbolize]


vars(_C).update(_set_conj=lambda x, conj: _C._core._mark(x, conj, x.is_neg()),
                _set_neg=lambda x, neg: _C._core._mark(x, x.is_conj(), neg),
                _len_torch_dispatch_stack=lambda: len(_C._dispatch_mode_stack()),
                _get_dispatch_stack_at=lambda i: _C._dispatch_mode_stack()[i])
vars(_C)["_profiler"] = _facade.module(_C.__name__, "_profiler", "Stacks of calls.", gather_traceback=_gather_traceback,
                                       symbolize_tracebacks=_symbolize_tracebacks,
                                       _ExperimentalConfig=_facade.absent("torch._C._profiler._ExperimentalConfig",
                                                                          "settings of PyTorch's own profiler are not offered"))
vars(_C)["_ExcludeDispatchKeyGuard"] = _facade.absent("torch._C._ExcludeDispatchKeyGuard", "dispatch keys only name things here")
vars(_C)["_distributed_rpc"] = _facade.module(_C.__name__, "_distributed_rpc", "Remote calls, which are not offered.",
                                              _is_current_rpc_agent_set=lambda: False)
_SCHEMA_NAMES = ("AnyType", "NoneType", "TensorType", "NumberType", "IntType", "FloatType", "ComplexType", "BoolType", "StringType",
                 "DeviceObjType", "ListType", "OptionalType", "SymIntType", "FunctionSchema", "Argument", "Tag", "parse_schema")
SCHEMAS = {name: getattr(_function_schema, name) for name in _SCHEMA_NAMES}
vars(_C).update(SCHEMAS | {"Type": _function_schema.Type, "_AliasInfo": _function_schema._AliasInfo})
vars(_C).update(DispatchKey=DispatchKey, DispatchKeySet=DispatchKeySet, _TensorMeta=type)      # the metaclass of Tensor
