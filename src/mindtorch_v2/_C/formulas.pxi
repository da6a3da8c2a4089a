# Backward formulas of the hottest rows, compiled; all others are Python and stand in their rows (_ops).
# Like those, they say by their parameters' names what is saved (hence binding: define.pxi reads the names), and use
# differentiable ops only.

@cython.binding(True)
def _grad_same(g):
    return g


@cython.binding(True)
def _grad_neg(g):
    return hot_call1(hot.neg, g)


@cython.binding(True)
def _grad_add(g, alpha):
    """Of add's other."""
    return g if alpha == 1 else hot_call2(hot.mul, g, _conj(alpha))


@cython.binding(True)
def _grad_sub(g, alpha):
    """Of sub's other and rsub's self."""
    return hot_call1(hot.neg, g) if alpha == 1 else hot_call2(hot.mul, g, -_conj(alpha))


@cython.binding(True)
def _grad_mul_self(g, other):
    return hot_call2(hot.mul, g, _conj(other))


@cython.binding(True)
def _grad_mul_other(g, self):
    return hot_call2(hot.mul, g, _conj(self))


@cython.binding(True)
def _grad_div_self(g, other):
    return hot_call2(hot.div, g, _conj(other))


@cython.binding(True)
def _grad_sum(g, self_shape, dim, keepdim):
    """A reduced gradient back over the dims that were reduced."""
    if dim is not None and not keepdim:
        rank = len(self_shape)
        dims = dim if isinstance(dim, (tuple, list)) else (dim,)
        for d in sorted([d % rank for d in dims]) if dims and rank else range(rank):
            g = hot_call2(hot.unsqueeze, g, d)
    return hot_call2(hot.expand, g, self_shape)
