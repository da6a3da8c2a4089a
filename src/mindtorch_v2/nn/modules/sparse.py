"""Embedding tables."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn import init
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.parameter import Parameter

Tensor = torch.Tensor

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """The weight of an embedding, drawn from N(0, 1) with zeros in the padding row."""

    def _make_weight(self, weight: Tensor | None, freeze: bool, device: Any, dtype: Any) -> None:
        shape = [self.num_embeddings, self.embedding_dim]
        if weight is None:
            weight = torch.empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(weight, requires_grad=not freeze)
            self.reset_parameters()
            return
        if list(weight.shape) != shape:
            raise AssertionError(
                "Shape of weight does not match num_embeddings and embedding_dim"
            )
        self.weight = Parameter(weight, requires_grad=not freeze)

    @staticmethod
    def _check_padding(padding_idx: int | None, rows: int, name: str) -> int | None:
        if padding_idx is None:
            return None
        if not -rows <= padding_idx < max(rows, 1):
            raise AssertionError(f"{name} must be within num_embeddings")
        return padding_idx + rows if padding_idx < 0 else padding_idx

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    @staticmethod
    def _check_pretrained(embeddings: Tensor) -> tuple[int, int]:
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, width = embeddings.shape
        return rows, width


class Embedding(_Table):
    """Rows of a table by index."""

    __constants__ = [
        "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type",
        "scale_grad_by_freq", "sparse",
    ]  # fmt: skip

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = self._check_padding(padding_idx, num_embeddings, "Padding_idx")
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._make_weight(_weight, _freeze, device, dtype)
        self.sparse = sparse

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.sparse,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        plain = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}
        for name, default in plain.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text + (", sparse=True" if self.sparse is not False else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer around a table that is already there."""
        rows, cols = cls._check_pretrained(embeddings)
        return cls(
            rows, cols, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq, sparse=sparse, _weight=embeddings,
            _freeze=freeze,
        )  # fmt: skip


class EmbeddingBag(_Table):
    """Sums, means or maxima over bags of rows."""

    __constants__ = [
        "num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq", "mode",
        "sparse", "include_last_offset", "padding_idx",
    ]  # fmt: skip

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = self._check_padding(padding_idx, num_embeddings, "padding_idx")
        self._make_weight(_weight, False, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset,
            self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        plain = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}
        for name, default in plain.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)!r}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A layer around a table that is already there."""
        rows, cols = cls._check_pretrained(embeddings)
        bag = cls(
            rows, cols, max_norm=max_norm, norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq, mode=mode, sparse=sparse, _weight=embeddings,
            include_last_offset=include_last_offset, padding_idx=padding_idx,
        )  # fmt: skip
        bag.weight.requires_grad = not freeze
        return bag
