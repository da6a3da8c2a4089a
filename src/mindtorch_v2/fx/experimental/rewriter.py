"""RewritingTracer: assert statements become calls of torch._assert before a program is traced."""
from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._symbolic_trace import Tracer
from mindtorch_v2.fx.graph import Graph

__all__ = ["AST_Rewriter", "RewritingTracer"]

_ASSERT = "torch_assert"                         # what rewritten functions call torch._assert


class AST_Rewriter(ast.NodeTransformer):
    """assert a, b as torch._assert(a, b); annotations of assignments are kept by a call as well."""

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """The function with its source rewritten; it sees the globals of the old one."""
        source = textwrap.dedent(inspect.getsource(fn))
        definition: Any = self.visit(ast.parse(source)).body[0]
        definition.decorator_list = []
        # A function around it holds what the old one closes over, and torch._assert, whatever its module calls torch.
        closed = {**dict(zip(fn.__code__.co_freevars, (cell.cell_contents for cell in fn.__closure__ or ()))),
                  _ASSERT: torch._assert}
        around: Any = ast.parse(f"def around({', '.join(closed)}):\n    return {fn.__name__}")
        around.body[0].body.insert(0, definition)
        scope: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(around), fn.__code__.co_filename, "exec"), fn.__globals__, scope)
        made = scope["around"](**closed)
        made.__defaults__, made.__kwdefaults__ = fn.__defaults__, copy.copy(fn.__kwdefaults__)
        made.__annotations__ = fn.__annotations__
        return made

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """assert as a call."""
        call = ast.parse(f"{_ASSERT}()", mode="eval").body
        assert isinstance(call, ast.Call)
        message = node.msg if node.msg else ast.Constant(value="", kind=None)
        call.args = [node.test, message]
        return ast.copy_location(ast.Expr(value=call), node)


class RewritingTracer(Tracer):
    """A tracer that rewrites the module, and the modules in it that it traces into."""

    def trace(self, root: torch.nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(fn: Any) -> Any:
    """A function rewritten, or a module with every forward in it rewritten; the modules are shallow copies."""
    if not isinstance(fn, torch.nn.Module):
        return AST_Rewriter().rewrite(fn)
    made = copy.copy(fn)
    made.__dict__ = {**fn.__dict__, "_modules": {name: _rewrite(child) if _is_users(child) else child
                                                 for name, child in fn._modules.items()}}
    if _is_users(fn):
        forward: Any = type(fn).forward
        made.__class__ = type(type(fn).__name__, (type(fn),), {"forward": AST_Rewriter().rewrite(forward)})
    return made


def _is_users(module: Any) -> bool:
    """Whether a module's source is the user's: torch's own have no assertions that a graph would want."""
    return module is not None and not type(module).__module__.startswith((torch.__name__ + ".", "torch.nn"))
