"""What the inputs and outputs of an exported graph are: parameters, buffers, constants, the user's values."""
from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping
from typing import Any

import mindtorch_v2 as torch

__all__ = ["ConstantArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind",
           "OutputSpec", "TensorArgument"]


@dataclasses.dataclass
class TensorArgument:
    """A tensor, by the name of its node."""

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A value that is no tensor."""

    name: str
    value: int | float | bool | str | None


class InputKind(enum.Enum):
    """What an input of the graph is."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    """What an output of the graph is."""

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


@dataclasses.dataclass
class InputSpec:
    """One input."""

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = f" target='{self.target}'" if self.target is not None else ""
        persistent = f" persistent={self.persistent}" if self.persistent is not None else ""
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclasses.dataclass
class OutputSpec:
    """One output."""

    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        target = f" target='{self.target}'" if self.target is not None else ""
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclasses.dataclass
class ExportBackwardSignature:
    """What a joint graph computes of gradients; no graph here does."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """All inputs and outputs, in their order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> dict[str, str]:
        return {s.arg.name: s.target for s in self.input_specs if s.kind is kind}   # type: ignore[misc]

    @property
    def parameters(self) -> Collection[str]:
        """The paths of the parameters."""
        return tuple(self._targets(InputKind.PARAMETER).values())

    @property
    def buffers(self) -> Collection[str]:
        """The paths of the buffers."""
        return tuple(self._targets(InputKind.BUFFER).values())

    @property
    def non_persistent_buffers(self) -> Collection[str]:
        """The paths of the buffers that are not in the state dict."""
        return tuple(s.target for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False)   # type: ignore

    @property
    def lifted_tensor_constants(self) -> Collection[str]:
        """The paths of the tensors that are neither."""
        return tuple(self._targets(InputKind.CONSTANT_TENSOR).values())

    @property
    def user_inputs(self) -> Collection[Any]:
        """The names of the user's inputs; the value of one that is no tensor."""
        return tuple(s.arg.name if isinstance(s.arg, TensorArgument) else s.arg.value
                     for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> Collection[Any]:
        """The names of the user's outputs; the value of one that is no tensor."""
        return tuple(s.arg.name if isinstance(s.arg, TensorArgument) else s.arg.value
                     for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """The path of the parameter that an input is."""
        return self._targets(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """The path of the buffer that an input is."""
        return self._targets(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """The path of the constant that an input is."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Empty: programs that change buffers are not exported."""
        return {}

    user_inputs_to_mutate = parameters_to_mutate = buffers_to_mutate
    backward_signature: ExportBackwardSignature | None = None

    def __str__(self) -> str:
        inputs = "\n".join(str(s) for s in self.input_specs)
        outputs = "\n".join(str(s) for s in self.output_specs)
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"

torch._named.complete(__name__)
