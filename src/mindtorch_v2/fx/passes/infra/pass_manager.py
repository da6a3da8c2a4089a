"""PassManager: passes in an order that respects what each has to come before, run until nothing changes."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from queue import Queue
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.passes._pass_list import PassList
from mindtorch_v2.fx.passes.infra.pass_base import PassResult

__all__ = ["pass_result_wrapper", "this_before_that_pass_constraint", "PassManager"]


@compatibility(is_backward_compatible=False)
def pass_result_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A pass that changes a module in place and gives nothing, as one that gives a PassResult."""
    if fn is None:
        return None

    @wraps(fn)
    def wrapped(gm: Any) -> Any:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        return result if isinstance(result, PassResult) else PassResult(result, True)
    if wrapped.__name__ is None:
        wrapped.__name__ = str(type(fn))
    return wrapped


@compatibility(is_backward_compatible=False)
def this_before_that_pass_constraint(this: Callable[..., Any], that: Callable[..., Any]) -> Callable[..., Any]:
    """A constraint: one pass runs before another."""
    def depends_on(a: Callable[..., Any], b: Callable[..., Any]) -> bool:
        return a != that or b != this
    return depends_on


def _topological_sort_passes(passes: list[Any], constraints: list[Any]) -> list[Any]:
    """The passes in an order that all constraints allow."""
    if not constraints:
        return passes
    after: dict[Any, list[Any]] = {p: [] for p in passes}
    waits = dict.fromkeys(passes, 0)
    ready: Queue[Any] = Queue()
    for a in passes:
        for b in passes:
            if a != b and not all(constraint(a, b) for constraint in constraints):
                after[b].append(a)
                waits[a] += 1
        if waits[a] == 0:
            ready.put(a)
    visited: dict[Any, bool] = dict.fromkeys(passes, False)
    found = []
    while not ready.empty():
        p = ready.get()
        found.append(p)
        visited[p] = True
        for later in after[p]:
            if not visited[later]:
                waits[later] -= 1
                if waits[later] == 0:
                    ready.put(later)
    cycle = [p for p in passes if waits[p] != 0]
    if cycle:
        raise RuntimeError(f"Circular dependency detected within the following passes: {cycle}")
    return found


@compatibility(is_backward_compatible=False)
class PassManager(PassList):
    """Runs passes over a module, `steps` times at most."""

    steps: int = 1

    def __init__(self, passes: list[Any] | None = None, constraints: list[Any] | None = None, steps: int | None = None,
                 run_checks_after_each_pass: bool = False, suppress_check_failures: bool = False) -> None:
        super().__init__(passes, constraints)
        if steps:
            self.steps = steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def validate_constraints(self) -> None:
        """Raises where the order of the passes breaks a constraint."""
        self._validate()

    def solve_constraints(self) -> None:
        """Brings the passes into an order that the constraints allow."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[..., Any]) -> None:
        """Sets a check of the module, which runs at the beginning and, with run_checks_after_each_pass, after each pass."""
        names = list(inspect.signature(check).parameters.values())
        if len(names) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check   # type: ignore[method-assign]

    def check(self, module: torch.nn.Module) -> None:
        """Checks nothing, unless add_checks has set something."""

    def __call__(self, module: torch.nn.Module) -> PassResult:
        """Runs the passes until nothing changes, or as often as `steps` says."""
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        changed_at_all = False
        for _ in range(self.steps):
            changed = False
            for fn in self.passes:
                name = fn.__name__ if inspect.isfunction(fn) else type(fn).__name__
                try:
                    result = fn(module)
                    if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                        raise TypeError(f"The result of the pass {name} should be type PassResult."
                                        "Please wrap it with pass_result_wrapper()")
                    module, changed = result.graph_module, changed or result.modified
                    if isinstance(module, torch.fx.GraphModule):
                        module.recompile()
                    if self.run_checks_after_each_pass:
                        self.check(module)
                except Exception as error:
                    before = [p.__name__ if inspect.isfunction(p) else type(p).__name__
                              for p in self.passes[:self.passes.index(fn)]]
                    raise Exception(f"An error occurred when running the '{name}' pass after the following passes: "
                                    f"{before}") from error
            changed_at_all = changed_at_all or changed
            if not changed:
                break
        return PassResult(module, changed_at_all)   # type: ignore[arg-type]
