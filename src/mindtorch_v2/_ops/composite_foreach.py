"""torch._foreach_*: one op over lists of tensors, as a plain loop."""
from __future__ import annotations

from mindtorch_v2._ops.table import ops, publish_plain

_UNARY = ("abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal "
          "round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc").split()
_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "clamp_max": "clamp_max", "clamp_min": "clamp_min",
           "maximum": "clamp_min", "minimum": "clamp_max", "pow": "pow"}


def _tensors(self, name):
    if not isinstance(self, (tuple, list)):
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(self).__name__}")
    if not self:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return self


def _each(other, n):
    """One operand a tensor: a list as it is, a single value n times."""
    if isinstance(other, (tuple, list)):
        if len(other) != n:
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {n} and {len(other)}")
        return other
    return (other,) * n


def _publish(name, function, doc):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    publish_plain(function)


def _define_unary(name):
    plain, changing = getattr(ops, name), getattr(ops, name + "_")
    full = f"_foreach_{name}"

    def every(self):
        return tuple(plain(t) for t in _tensors(self, full))

    def every_(self):
        for t in _tensors(self, full + "_"):
            changing(t)
    _publish(full, every, f"{name} of each tensor.")
    _publish(full + "_", every_, f"{name}_ of each tensor.")


def _define_binary(name, target):
    plain, changing = getattr(ops, target), getattr(ops, target + "_")
    full = f"_foreach_{name}"

    def pairs(self, others, scalars, which):
        """(tensor, operand) pairs; the operand may be called other, others, exponent, scalar, scalars …"""
        given = [x for x in (others, *scalars.values()) if x is not None]
        if len(given) != 1:
            raise TypeError(f"{which}() takes a tensor list and one operand, got {len(given)}")
        if name == "pow" and not isinstance(self, (tuple, list)):
            return [(self, e) for e in given[0]]
        return list(zip(_tensors(self, which), _each(given[0], len(self))))

    def every(self, others=None, *, alpha=1, **scalars):
        extra = {} if alpha == 1 else {"alpha": alpha}
        return tuple(plain(a, b, **extra) for a, b in pairs(self, others, scalars, full))

    def every_(self, others=None, *, alpha=1, **scalars):
        extra = {} if alpha == 1 else {"alpha": alpha}
        for a, b in pairs(self, others, scalars, full + "_"):
            changing(a, b, **extra)
    _publish(full, every, f"{target} of each tensor and its operand.")
    _publish(full + "_", every_, f"{target}_ of each tensor and its operand.")


def _define_ternary(name):
    plain, changing = getattr(ops, name), getattr(ops, name + "_")
    full = f"_foreach_{name}"

    def values(value, scalars, n):
        given = scalars if scalars is not None else value
        return _each(given.tolist() if hasattr(given, "tolist") and given.dim() else given, n)

    def every(self, tensor1, tensor2, value=1, scalars=None):
        return tuple(plain(a, b, c, value=v) for a, b, c, v in
                     zip(_tensors(self, full), tensor1, tensor2, values(value, scalars, len(self))))

    def every_(self, tensor1, tensor2, value=1, scalars=None):
        for a, b, c, v in zip(_tensors(self, full), tensor1, tensor2, values(value, scalars, len(self))):
            changing(a, b, c, value=v)
    _publish(full, every, f"{name} of each three tensors.")
    _publish(full + "_", every_, f"{name}_ of each three tensors.")


for _name in _UNARY:
    _define_unary(_name)
for _name, _target in _BINARY.items():
    _define_binary(_name, _target)
for _name in ("addcmul", "addcdiv"):
    _define_ternary(_name)


def _foreach_lerp(self, tensors1, weight):
    """lerp of each two tensors; one weight, or one a pair."""
    return tuple(ops.lerp(a, b, w) for a, b, w in zip(_tensors(self, "_foreach_lerp"), tensors1, _each(weight, len(self))))


def _foreach_lerp_(self, tensors1, weight):
    """lerp_ of each two tensors."""
    for a, b, w in zip(_tensors(self, "_foreach_lerp_"), tensors1, _each(weight, len(self))):
        ops.lerp_(a, b, w)


def _foreach_zero_(self):
    """Sets every tensor to zero."""
    for t in _tensors(self, "_foreach_zero_"):
        t.zero_()


def _foreach_copy_(self, src, non_blocking=False):
    """Copies each source to its tensor."""
    for a, b in zip(_tensors(self, "_foreach_copy_"), _each(src, len(self))):
        a.copy_(b, non_blocking)


def _foreach_norm(self, ord=2, dtype=None):
    """The norm of each tensor."""
    return tuple(ops.linalg_vector_norm(t, ord, dtype=dtype) for t in _tensors(self, "_foreach_norm"))


def _foreach_max(self):
    """The largest item of each tensor."""
    return tuple(t.max() for t in _tensors(self, "_foreach_max"))


publish_plain(_foreach_lerp, _foreach_lerp_, _foreach_zero_, _foreach_copy_, _foreach_norm, _foreach_max)
