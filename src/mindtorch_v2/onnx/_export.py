"""export: the graph that torch.export gives, node by node as ONNX."""
from __future__ import annotations

import os
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.onnx._error import OnnxExporterError
from mindtorch_v2.onnx._ops import CONVERTERS

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    onnx = None

__all__ = ["ONNXProgram", "export"]

OPSET = 20                                       # the first with Gelu; reductions take their axes as an input since 18
_Kind = torch.export.graph_signature.InputKind


class Model:
    """An ONNX graph that grows: nodes, initializers, and the names of the values of the exported graph."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[Any, Any] = {}
        self._used: set[str] = set()

    def fresh(self, hint: str) -> str:
        """An unused name with this prefix."""
        name, number = hint, 0
        while name in self._used:
            number += 1
            name = f"{hint}_{number}"
        self._used.add(name)
        return name

    def add(self, kind: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """Adds a node; the name of its output, or the names of several."""
        outputs = [self.fresh(kind.lower()) for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs[0] if count == 1 else tuple(outputs)

    def constant(self, value: Any, dtype: Any = None, hint: str = "constant") -> str:
        """A value that the file holds."""
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype)
        name = self.fresh(hint)
        self.initializers.append(numpy_helper.from_array(tensor.detach().cpu().contiguous().numpy(), name))
        return name

    def ints(self, values: Any) -> str:
        """A list of ints that the file holds."""
        return self.constant(list(values), torch.int64, "ints")

    def name(self, arg: Any, like: Any = None) -> str:
        """The name of an argument: of a node's value, or of a number, with the dtype of another argument."""
        if arg is None:
            return ""
        if isinstance(arg, torch.fx.Node):
            return self.names[arg]
        return self.constant(arg, like.meta["val"].dtype if isinstance(like, torch.fx.Node) else None)


def _info(name: str, value: Any) -> Any:
    kinds = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE, torch.float16: TensorProto.FLOAT16,
             torch.int64: TensorProto.INT64, torch.int32: TensorProto.INT32, torch.int8: TensorProto.INT8,
             torch.uint8: TensorProto.UINT8, torch.bool: TensorProto.BOOL, torch.bfloat16: TensorProto.BFLOAT16}
    if value.dtype not in kinds:
        raise OnnxExporterError(f"[torch.onnx.export] no ONNX type for {value.dtype}")
    return helper.make_tensor_value_info(name, kinds[value.dtype], list(value.shape))


class ONNXProgram:
    """A model in ONNX: model_proto, and save()."""

    def __init__(self, model_proto: Any, exported_program: Any) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program

    def save(self, destination: Any, **kwargs: Any) -> None:
        """Writes the model to a path or a file."""
        onnx.save(self.model_proto, os.fspath(destination) if isinstance(destination, os.PathLike) else destination)


def _build(program: Any, input_names: list[str] | None, output_names: list[str] | None, opset: int) -> Any:
    model, inputs = Model(), []
    held = {**program.state_dict, **program.constants}
    specs = {s.arg.name: s for s in program.graph_signature.input_specs}
    wanted = list(input_names or ())
    result: list[Any] = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = specs[node.name]
            if spec.kind is not _Kind.USER_INPUT:
                if node.users:
                    model.names[node] = model.constant(held[spec.target], hint=spec.target)
            elif isinstance(node.meta.get("val"), torch.Tensor):
                name = model.fresh(wanted.pop(0) if wanted else node.name)
                model.names[node] = name
                inputs.append(_info(name, node.meta["val"]))
        elif node.op == "output":
            result = list(node.args[0])
        else:
            model.names[node] = _convert(model, node)
    outputs = []
    for i, node in enumerate(result):
        name = model.fresh(output_names[i] if output_names and i < len(output_names) else f"output_{i}")
        model.nodes.append(helper.make_node("Identity", [model.name(node)], [name]))
        outputs.append(_info(name, node.meta["val"]))
    graph = helper.make_graph(model.nodes, "main_graph", inputs, outputs, model.initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="mindtorch_v2")
    onnx.checker.check_model(made)
    return made


def _convert(model: Model, node: Any) -> Any:
    """The name, or the names, of the ONNX values that a node becomes."""
    if node.op == "call_function" and not isinstance(node.target, torch._C.OpOverload):
        return model.names[node.args[0]][node.args[1]]       # an item of several results
    converter = CONVERTERS.get(node.target.overloadpacket)
    if converter is None:
        raise OnnxExporterError(f"[torch.onnx.export] {node.target} has no translation to ONNX; those that have one are in "
                                "mindtorch_v2/onnx/_ops.py")
    return converter(model, node, *node.args, **node.kwargs)


def export(model: Any, args: Any = (), f: Any = None, *, kwargs: dict[str, Any] | None = None,
           input_names: list[str] | None = None, output_names: list[str] | None = None, opset_version: int | None = None,
           dynamic_axes: Any = None, dynamic_shapes: Any = None, export_params: bool = True, **options: Any) -> ONNXProgram:
    """The model, for arguments like these, as ONNX; written to f where one is given. Sizes are those of the arguments."""
    if onnx is None:
        raise ImportError("torch.onnx.export needs the package onnx; run pip install onnx")
    if dynamic_axes or dynamic_shapes:
        raise NotImplementedError("[torch.onnx.export] sizes that vary need symbolic shapes, which mindtorch_v2 has not; export "
                                  "once for each size")
    opset = OPSET if opset_version is None else opset_version
    if opset < OPSET:
        raise NotImplementedError(f"[torch.onnx.export] opset {OPSET} is the lowest that is written, got {opset}")
    given = args if isinstance(args, tuple) else (args,)
    if given and isinstance(given[-1], dict) and kwargs is None and len(given) > 1:
        given, kwargs = given[:-1], given[-1]
    program = model if isinstance(model, torch.export.ExportedProgram) else torch.export.export(model, given, kwargs)
    made = ONNXProgram(_build(program, input_names, output_names, opset), program)
    if f is not None:
        made.save(f)
    return made
