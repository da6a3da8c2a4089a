"""torch.export: a module as a graph of aten ops, with its parameters and buffers as inputs."""
import mindtorch_v2 as torch
from mindtorch_v2.export import dynamic_shapes, exported_program, graph_signature
from mindtorch_v2.export._trace import draft_export, export, load, save
from mindtorch_v2.export.dynamic_shapes import Dim, ShapesCollection, dims
from mindtorch_v2.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from mindtorch_v2.export.graph_signature import ExportBackwardSignature, ExportGraphSignature

__all__ = ["Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry",
           "ModuleCallSignature", "ShapesCollection", "dims", "draft_export", "export", "load", "save"]

torch._named.complete(__name__)
