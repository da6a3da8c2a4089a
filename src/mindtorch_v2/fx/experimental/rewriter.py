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


class AST_Rewriter(ast.NodeTransformer):
    """assert a, b as torch._assert(a, b); annotations of assignments are kept by a call as well."""

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """The function with its source rewritten; it sees the globals of the old one."""
        source = textwrap.dedent(inspect.getsource(fn))
        tree = ast.fix_missing_locations(self.visit(ast.parse(source)))
        scope = {**fn.__globals__, "torch": torch}
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            scope[name] = cell.cell_contents
        before = set(scope)
        code = compile(tree, "", "exec")
        exec(code, scope)
        made = scope[fn.__name__] if fn.__name__ in scope else scope[next(k for k in scope if k not in before)]
        # Wrapped functions are found by the globals of the module, which the copy does not change.
        rewritten = FunctionType(made.__code__, fn.__globals__ if not fn.__code__.co_freevars else scope, fn.__name__,
                                 fn.__defaults__, made.__closure__)
        rewritten.__kwdefaults__ = copy.copy(fn.__kwdefaults__)
        rewritten.__annotations__ = fn.__annotations__
        return rewritten

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """assert as a call."""
        call = ast.parse("torch._assert()", mode="eval").body
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
        made.__class__ = type(type(fn).__name__, (type(fn),), {"forward": AST_Rewriter().rewrite(type(fn).forward)})
    return made


def _is_users(module: Any) -> bool:
    """Whether a module's source is the user's: torch's own have no assertions that a graph would want."""
    return module is not None and not type(module).__module__.startswith((torch.__name__ + ".", "torch.nn"))
