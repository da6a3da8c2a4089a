"""Which transform leads from unconstrained numbers into a constraint's set: biject_to and transform_to."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2.distributions import constraints, transforms


class ConstraintRegistry:
    """Constraint classes and the functions that make a transform for one of them."""

    def __init__(self) -> None:
        self._makers: dict[type, Callable[[Any], transforms.Transform]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], transforms.Transform] | None = None) -> Any:
        """Names the maker for a constraint or its class; without one, a decorator."""
        if factory is None:
            return lambda maker: self.register(constraint, maker)
        kind = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(kind, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._makers[kind] = factory
        return factory

    def __call__(self, constraint: constraints.Constraint) -> transforms.Transform:
        """The transform whose values lie in the constraint's set."""
        maker = self._makers.get(type(constraint))
        if maker is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return maker(constraint)


biject_to = ConstraintRegistry()        # to and fro, with a Jacobian: for densities
transform_to = ConstraintRegistry()     # into the set only: for optimizers


def _to_interval(low: Any, high: Any) -> transforms.Transform:
    if low == 0 and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _beyond(bound: Any, direction: int) -> transforms.Transform:
    if bound == 0 and direction > 0:
        return transforms.ExpTransform()
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, direction)])


def _both(*kinds: Any) -> Callable[[Any], Any]:
    def register(maker: Any) -> Any:
        for registry in (biject_to, transform_to):
            for kind in kinds:
                registry.register(kind, maker)
        return maker
    return register


@_both(constraints.real)
def _real(constraint: Any) -> transforms.Transform:
    return transforms.identity_transform


@_both(constraints.greater_than, constraints.greater_than_eq)
def _above(constraint: Any) -> transforms.Transform:
    return _beyond(constraint.lower_bound, 1)


@_both(constraints.less_than)
def _below(constraint: Any) -> transforms.Transform:
    return _beyond(constraint.upper_bound, -1)


@_both(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> transforms.Transform:
    return _to_interval(constraint.lower_bound, constraint.upper_bound)


def _register_composed(registry: Any) -> None:
    """Constraints made of others: their transforms are made of the parts' transforms."""
    registry.register(constraints.independent, lambda c: transforms.IndependentTransform(
        registry(c.base_constraint), c.reinterpreted_batch_ndims))
    registry.register(constraints.cat, lambda c: transforms.CatTransform(
        [registry(part) for part in c.cseq], c.dim, c.lengths))
    registry.register(constraints.stack, lambda c: transforms.StackTransform(
        [registry(part) for part in c.cseq], c.dim))


for _registry in (biject_to, transform_to):
    _register_composed(_registry)
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
for _registry in (biject_to, transform_to):
    _registry.register(constraints.corr_cholesky, lambda c: transforms.CorrCholeskyTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda c: transforms.PositiveDefiniteTransform())
