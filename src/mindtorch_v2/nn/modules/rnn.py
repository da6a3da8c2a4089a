"""Recurrent layers and cells; the loops over time are in _functional/recurrent.py."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import init
from mindtorch_v2.nn._functional.recurrent import STEPS, project_input, recurrent
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.parameter import Parameter
from mindtorch_v2.nn.utils.rnn import PackedSequence

Tensor = torch.Tensor

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """Parameters, checks and forward of the recurrent layers."""

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
        "bidirectional", "proj_size",
    ]  # fmt: skip

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kinds = {"bias": bool, "batch_first": bool, "input_size": int, "hidden_size": int}
        given = {
            "bias": bias, "batch_first": batch_first, "input_size": input_size,
            "hidden_size": hidden_size,
        }  # fmt: skip
        for name, kind in kinds.items():
            if not isinstance(given[name], kind):
                got = type(given[name]).__name__
                raise TypeError(f"{name} should be of type {kind.__name__}, got: {got}")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_options(dropout)
        kw = {"device": device, "dtype": dtype}
        directions = 2 if bidirectional else 1
        gates = _GATES[mode] * hidden_size
        real_hidden = proj_size if proj_size > 0 else hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(directions):
                width = input_size if layer == 0 else real_hidden * directions
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, width), "weight_hh": (gates, real_hidden)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size > 0:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                names = [name + suffix for name in shapes]
                for name, shape in zip(names, shapes.values()):
                    setattr(self, name, Parameter(torch.empty(shape, **kw)))
                self._all_weights.append(names)
        self.reset_parameters()

    def _check_options(self, dropout: Any) -> None:
        is_number: bool = isinstance(dropout, numbers.Number)
        if (
            not is_number
            or not 0 <= dropout <= 1
            or isinstance(dropout, bool)
        ):
            raise ValueError(
                "dropout should be a number in range [0, 1] "
                "representing the probability of an element being "
                "zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last "
                "recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={self.num_layers}",
                stacklevel=4,
            )
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + self.mode)

    def __getstate__(self) -> dict[str, Any]:
        """With the lists that PyTorch's layers keep: it reads what this library pickled."""
        return {**self.__dict__, "_flat_weights_names": self._flat_weights_names, "_flat_weights": self._flat_weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Layers that were saved before there were projections have none."""
        kept = {name: value for name, value in state.items() if not name.startswith("_flat_weights")}
        super().__setstate__({"proj_size": 0, **kept})

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing to do: the loops take the parameters as they lie."""

    def reset_parameters(self) -> None:
        """Draw everything uniformly from ±1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Check dtype, dimensions and features of the input."""
        dtype = self.weight_ih_l0.dtype
        if input.dtype != dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). "
                f"Convert input: input.to({dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )
        if input.dim() == 3 and input.size(1 if self.batch_first else 0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """(layers * directions, batch, hidden)."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        directions = 2 if self.bidirectional else 1
        hidden = self.proj_size if self.proj_size > 0 else self.hidden_size
        return (self.num_layers * directions, batch, hidden)

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """(layers * directions, batch, cell)."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return (layers, batch, self.hidden_size)

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Check the shape of one hidden state."""
        if tuple(hx.size()) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """Reorder the batch of a hidden state."""
        if permutation is None:
            return hx
        if isinstance(hx, tuple):
            return tuple(h.index_select(1, permutation) for h in hx)
        return hx.index_select(1, permutation)

    def _check_dims(self, input: Tensor, states: tuple[Any, ...], batched: bool) -> None:
        """A hidden state has to have a batch if and only if the input has one."""
        words = ("batched", 3) if batched else ("unbatched", 2)
        if self.mode == "LSTM":
            if any(s.dim() != words[1] for s in states):
                raise RuntimeError(
                    f"For {words[0]} {words[1]}-D input, hx and cx should also be {words[1]}-D "
                    f"but got ({states[0].dim()}-D, {states[1].dim()}-D) tensors"
                )
        elif states[0].dim() != words[1]:
            raise RuntimeError(
                f"For {words[0]} {words[1]}-D input, hx should also be {words[1]}-D but got "
                f"{states[0].dim()}-D tensor"
            )

    def _initial(self, input: Tensor, batch: int) -> tuple[Any, ...]:
        rows = self.num_layers * (2 if self.bidirectional else 1)
        hidden = self.proj_size if self.proj_size > 0 else self.hidden_size
        widths = (hidden, self.hidden_size) if self.mode == "LSTM" else (hidden,)
        kw: dict[str, Any] = {"dtype": input.dtype, "device": input.device}
        return tuple(torch.zeros(rows, batch, width, **kw) for width in widths)

    def _check_states(self, input: Tensor, states: tuple[Any, ...], batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        hidden = self.get_expected_hidden_size(input, batch_sizes)
        if self.mode != "LSTM":
            self.check_hidden_size(states[0], hidden)
            return
        cell = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(states[0], hidden, "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(states[1], cell, "Expected hidden[1] size {}, got {}")

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed = isinstance(input, PackedSequence)
        batch_sizes: Any = None
        sorted_indices: Any = None
        unsorted_indices: Any = None
        output: Any
        batched = True
        states = None if hx is None else (hx[0], hx[1]) if self.mode == "LSTM" else (hx,)
        if packed:
            input, batch_sizes, sorted_indices, unsorted_indices = input
            batch = int(batch_sizes[0])
        else:
            if input.dim() not in (2, 3):
                name = self._get_name()
                raise ValueError(
                    f"{name}: Expected input to be 2D or 3D, got {input.dim()}D instead"
                    if name in ("LSTM", "GRU")
                    else f"{name}: Expected input to be 2D or 3D, got {input.dim()}D tensor instead"
                )
            batched = input.dim() == 3
            if states is not None:
                self._check_dims(input, states, batched)
            if not batched:
                input = input.unsqueeze(0 if self.batch_first else 1)
                states = None if states is None else tuple(s.unsqueeze(1) for s in states)
            batch = input.size(0) if self.batch_first else input.size(1)
        if states is None:
            states = self._initial(input, batch)
        else:
            states = self.permute_hidden(states, sorted_indices)
        self._check_states(input, states, batch_sizes)
        if self.batch_first and not packed:
            input = input.transpose(0, 1)
        sizes = batch_sizes.tolist() if packed else None
        output, states = recurrent(
            self.mode, input, states, self.all_weights, sizes, self.bidirectional, self.dropout,
            self.training,
        )  # fmt: skip
        if packed:
            output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        elif self.batch_first:
            output = output.transpose(0, 1)
        states = self.permute_hidden(states, unsorted_indices)
        if not batched:
            output = output.squeeze(0 if self.batch_first else 1)
            states = tuple(s.squeeze(1) for s in states)
        return output, states if self.mode == "LSTM" else states[0]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        plain = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
            "bidirectional": False,
        }  # fmt: skip
        for name, default in plain.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    """An Elman network with tanh or relu."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.__dict__["nonlinearity"] = nonlinearity
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first,
            dropout, bidirectional, device=device, dtype=dtype, **kwargs,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent units."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """Parameters and checks of one recurrent step."""

    __constants__ = ["input_size", "hidden_size", "bias"]
    nonlinearity = "tanh"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kw = {"device": device, "dtype": dtype}
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(torch.empty((rows, input_size), **kw))
        self.weight_hh = Parameter(torch.empty((rows, hidden_size), **kw))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(torch.empty(rows, **kw)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw everything uniformly from ±1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.nonlinearity != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, mode: str, input: Tensor, states: tuple[Any, ...] | None) -> tuple:
        """Check, add a batch where there is none, and take one step."""
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for i, state in enumerate(states or ()):
            if state.dim() not in (1, 2):
                which = f"hx[{i}]" if mode == "LSTM" else "hidden"
                raise ValueError(
                    f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead"
                )
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
            states = None if states is None else tuple(s.unsqueeze(0) for s in states)
        if input.size(1) != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.size(1)} expected {self.input_size}"
            )
        if states is None:
            zeros = torch.zeros(
                input.size(0), self.hidden_size, dtype=input.dtype, device=input.device
            )
            states = (zeros, zeros) if mode == "LSTM" else (zeros,)
        for i, state in enumerate(states):
            if input.size(0) != state.size(0):
                raise RuntimeError(
                    f"Input batch size {input.size(0)} doesn't match hidden{i} batch size "
                    f"{state.size(0)}"
                )
            if state.size(1) != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {state.size(1)}, "
                    f"expected {self.hidden_size}"
                )
        weights = [self.weight_ih, self.weight_hh]
        if self.bias:
            weights += [self.bias_ih, self.bias_hh]
        states = STEPS[mode](project_input(input, weights), states, weights)
        return states if batched else tuple(s.squeeze(0) for s in states)


class RNNCell(RNNCellBase):
    """One step of an Elman network."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        mode = f"RNN_{self.nonlinearity.upper()}"
        return self._step(mode, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of long short-term memory."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        if isinstance(hx, torch.Tensor):
            raise TypeError("lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor")
        return self._step("LSTM", input, hx)


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, None if hx is None else (hx,))[0]
