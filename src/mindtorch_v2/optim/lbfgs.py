"""LBFGS, with the strong Wolfe line search."""

from __future__ import annotations

import math
from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import Optimizer, check_lr, number

Tensor = torch.Tensor

__all__ = ["LBFGS"]


def _cubic_interpolate(a: tuple[Any, ...], b: tuple, bounds: tuple | None = None) -> float:
    """The minimum of the cubic through two points (x, f, slope), kept within bounds."""
    (x1, f1, g1), (x2, f2, g2) = (a, b) if a[0] <= b[0] else (b, a)
    low, high = (x1, x2) if bounds is None else bounds
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if not square >= 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    below = g2 - g1 + 2 * d2
    if below == 0:
        return (low + high) / 2.0
    return min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / below), low), high)


class _Point:
    """One point of a line search: step, value, gradient and slope."""

    __slots__ = ("f", "grad", "slope", "t")

    def __init__(self, t: float, f: float, grad: Tensor, slope: float) -> None:
        self.t, self.f, self.grad, self.slope = t, f, grad, slope

    @property
    def cubic(self) -> tuple[float, float, float]:
        return self.t, self.f, self.slope


def _bracket(
    evaluate: Callable[..., Any], start: _Point, t: float, c1: float, c2: float, max_ls: int
) -> tuple[list[_Point], bool, int]:
    """Walk out until a minimum is bracketed: the bracket, whether it is final, the tries."""
    before, point, tries = start, evaluate(t), 0
    while tries < max_ls:
        worse = point.f > start.f + c1 * point.t * start.slope
        if worse or (tries > 1 and point.f >= before.f):
            return [before, point], False, tries
        if abs(point.slope) <= -c2 * start.slope:
            return [point], True, tries
        if point.slope >= 0:
            return [before, point], False, tries
        bounds = (point.t + 0.01 * (point.t - before.t), point.t * 10)
        t = _cubic_interpolate(before.cubic, point.cubic, bounds)
        before, point = point, evaluate(t)
        tries += 1
    return [start, point], False, tries


def _strong_wolfe(
    evaluate: Callable[..., Any],
    start: _Point,
    t: float,
    d_norm: float,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
    c1: float = 1e-4,
    c2: float = 0.9,
) -> _Point:
    """A step that satisfies the strong Wolfe conditions, by bracketing and zooming."""
    bracket, done, tries = _bracket(evaluate, start, t, c1, c2, max_ls)
    low, high = (0, 1) if bracket[0].f <= bracket[-1].f else (1, 0)
    stuck = False
    while not done and tries < max_ls:
        least, most = sorted(p.t for p in bracket)
        if (most - least) * d_norm < tolerance_change:
            break
        t = _cubic_interpolate(bracket[0].cubic, bracket[1].cubic)
        # Twice too near to an end is no progress: move a tenth into the bracket.
        margin = 0.1 * (most - least)
        if min(most - t, t - least) < margin:
            if stuck or t >= most or t <= least:
                t = most - margin if abs(t - most) < abs(t - least) else least + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = evaluate(t)
        tries += 1
        if point.f > start.f + c1 * t * start.slope or point.f >= bracket[low].f:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].f <= bracket[1].f else (1, 0)
            continue
        if abs(point.slope) <= -c2 * start.slope:
            done = True
        elif point.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = point
    return bracket[low if len(bracket) > 1 else 0]


class LBFGS(Optimizer):
    """Limited memory BFGS."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        defaults = {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def _gather_flat_grad(self) -> Tensor:
        views = []
        for param in self._params:
            grad = torch.zeros_like(param) if param.grad is None else param.grad
            grad = grad if grad.layout == torch.strided else grad.to_dense()
            if grad.is_complex():
                grad = torch.view_as_real(grad)
            views.append(grad.reshape(-1))
        return torch.cat(views, 0)

    def _add_grad(self, step_size: float, update: Tensor) -> None:
        offset = 0
        for param in self._params:
            if param.is_complex():
                param = torch.view_as_real(param)
            count = param.numel()
            param.add_(update[offset : offset + count].view_as(param), alpha=step_size)
            offset += count

    def _evaluate(self, closure: Callable[..., Any], saved: list[Any], t: float, d: Tensor) -> _Point:
        """Value and gradient at a step along d; the parameters are put back afterwards."""
        self._add_grad(t, d)
        loss = float(closure())
        grad = self._gather_flat_grad()
        for param, old in zip(self._params, saved):
            param.copy_(old)
        return _Point(t, loss, grad, grad.dot(d).item())

    @staticmethod
    def _direction(state: dict[Any, Any], grad: Tensor, d: Any, t: Any, size: int) -> Tensor:
        """The two-loop recursion, after the history has taken in the last step."""
        if state["n_iter"] == 1:
            state["old_dirs"], state["old_stps"], state["ro"] = [], [], []
            state["H_diag"] = 1
            return grad.neg()
        dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y, s = grad.sub(state["prev_flat_grad"]), d.mul(t)
        ys = y.dot(s)
        if ys > 1e-10:
            if len(dirs) == size:
                for table in (dirs, steps, ro):
                    table.pop(0)
            dirs.append(y)
            steps.append(s)
            ro.append(1.0 / ys)
            state["H_diag"] = ys / y.dot(y)
        al = state.setdefault("al", [None] * size)
        q = grad.neg()
        for i in range(len(dirs) - 1, -1, -1):
            al[i] = steps[i].dot(q) * ro[i]
            q.add_(dirs[i], alpha=-number(al[i]))
        r = torch.mul(q, state["H_diag"])
        for i in range(len(dirs)):
            r.add_(steps[i], alpha=number(al[i] - dirs[i].dot(r) * ro[i]))
        return r

    def step(self, closure: Callable[[], float]) -> float:  # type: ignore[override]
        """Several iterations, each of which calls the closure at least once."""
        with torch.no_grad():
            return self._iterate(closure)

    def _iterate(self, given: Callable[[], float]) -> float:
        def closure() -> float:
            with torch.enable_grad():
                return given()

        group = self.param_groups[0]
        lr, max_iter, max_eval = number(group["lr"]), group["max_iter"], group["max_eval"]
        tolerance_grad, tolerance = group["tolerance_grad"], group["tolerance_change"]
        search = group["line_search_fn"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        loss, evals = float(first_loss), 1
        state["func_evals"] += 1
        grad = self._gather_flat_grad()
        if grad.abs().max() <= tolerance_grad:
            return first_loss
        d, t, n_iter = state.get("d"), state.get("t"), 0
        while n_iter < max_iter:
            n_iter += 1
            state["n_iter"] += 1
            d = self._direction(state, grad, d, t, group["history_size"])
            state["prev_flat_grad"] = grad.clone(memory_format=torch.contiguous_format)
            previous = state["prev_loss"] = loss
            t = lr
            if state["n_iter"] == 1:
                t = min(1.0, 1.0 / grad.abs().sum()) * lr        # a tensor, where it is the smaller one
            slope = grad.dot(d).item()
            if slope > -tolerance:
                break
            used, flat = 0, False
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                saved = [p.clone(memory_format=torch.contiguous_format) for p in self._params]
                points: list[_Point] = []

                def evaluate(at: float, saved: list[Any] = saved, d: Tensor = d) -> _Point:
                    points.append(self._evaluate(closure, saved, at, d))
                    return points[-1]

                start = _Point(0, loss, grad.clone(), slope)
                norm = d.abs().max().item()
                best = _strong_wolfe(evaluate, start, t, norm, max_ls=max_eval - evals)
                loss, grad, t, used = best.f, best.grad, best.t, len(points)
                self._add_grad(t, d)
                flat = bool(grad.abs().max() <= tolerance_grad)
            else:
                self._add_grad(t, d)
                if n_iter != max_iter:
                    loss = float(closure())
                    grad = self._gather_flat_grad()
                    flat = bool(grad.abs().max() <= tolerance_grad)
                    used = 1
            evals += used
            state["func_evals"] += used
            if n_iter == max_iter or evals >= max_eval or flat:
                break
            if d.mul(t).abs().max() <= tolerance or abs(loss - previous) < tolerance:
                break
        started = "d" in state
        state["d"], state["t"] = d, t
        for key in () if started else ("old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss"):
            state[key] = state.pop(key)                      # in the order that torch's states have
        return first_loss
