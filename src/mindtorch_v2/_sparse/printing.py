"""How sparse tensors are written."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._printing import _contents, _grad_suffix, _options
from mindtorch_v2._sparse.pattern import COO
from mindtorch_v2._sparse.tensor import SparseTensor


def _part(name: str, tensor: Any, indent: int) -> str:
    """One part as torch writes it: its size where nothing else shows it, never its dtype."""
    prefix = f"{name}=tensor("
    text = "..." if tensor.is_meta else "[]" if tensor.numel() == 0 else _contents(tensor, indent + len(prefix))
    size = f", size={tuple(tensor.shape)}" if tensor.is_meta or tensor.numel() == 0 else ""
    return prefix + text + size + ")"


def sparse_repr(tensor: Any) -> str:
    """repr() of a sparse tensor."""
    prefix, pattern, meta = "tensor(", tensor._pattern, tensor.is_meta
    names = ("indices",) if pattern.layout is COO else ("crow_indices", "col_indices") if pattern.by_rows else \
        ("ccol_indices", "row_indices")
    parts = [*zip(names, pattern.parts()), ("values", tensor._dense)]
    joint = ",\n" + " " * len(prefix)
    text = prefix + joint.join(_part(name, part, len(prefix)) for name, part in parts)
    suffixes = [f"size={tuple(tensor.shape)}"] + ([] if meta else [f"nnz={pattern.nnz}"])
    if tensor.device.type != "cpu":
        suffixes.insert(0, f"device='{tensor.device}'")
    if tensor.dtype not in _unsaid():
        suffixes.append(f"dtype={tensor.dtype}")
    suffixes += [f"layout={tensor.layout}", *_grad_suffix(tensor)]
    return _wrapped(text, suffixes, prefix, pattern.layout is COO)


def _unsaid() -> tuple[Any, ...]:
    default = _C.get_default_dtype()
    wide = "complex128" if default._name == "float64" else "complex64"
    return (default, *(_C._dtype_named(name) for name in (wide, "int64", "bool")))


def _wrapped(text: str, suffixes: list[str], prefix: str, own_line: bool) -> str:
    column = len(text) - text.rfind("\n") + 1
    for k, suffix in enumerate(suffixes):
        if own_line and k == 0 or column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * len(prefix) + suffix
            column = len(prefix) + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def _repr(self: Any, *, tensor_contents: Any = None) -> str:
    return ("Parameter containing:\n" if getattr(self, "_is_param", False) else "") + sparse_repr(self)


def _format(self: Any, spec: str) -> str:
    return object.__format__(self, spec)


SparseTensor.__repr__ = _repr                    # type: ignore[method-assign,assignment]
SparseTensor.__format__ = _format                # type: ignore[method-assign]
