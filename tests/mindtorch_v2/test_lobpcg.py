"""lobpcg against the eigenvalues of the whole matrix, and its refusals against torch's."""
from __future__ import annotations

import pytest
from twin import error, twin

import mindtorch_v2 as mt


def symmetric(*shape, spread=1.0):
    mt.manual_seed(5)
    x = mt.randn(*shape, dtype=mt.float64)
    return x @ x.mT / shape[-1] + spread * mt.diag_embed(mt.arange(shape[-1], dtype=mt.float64).expand(shape[:-1]))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(40, 40), (2, 30, 30)])
def test_extreme_eigenpairs(shape, largest):
    A = symmetric(*shape)
    E, X = mt.lobpcg(A, k=3, largest=largest)
    every = mt.linalg.eigvalsh(A)
    expected = every.flip(-1)[..., :3] if largest else every[..., :3]
    assert mt.allclose(E, expected, rtol=1e-6)
    assert float((A @ X - X * E.unsqueeze(-2)).abs().max()) < 1e-5


def test_generalized_and_preconditioned():
    A, B = symmetric(30, 30), symmetric(30, 30, spread=0.0) + mt.eye(30, dtype=mt.float64)
    E, X = mt.lobpcg(A, k=2, B=B, largest=False, iK=mt.linalg.inv(A + mt.eye(30, dtype=mt.float64)))
    L = mt.linalg.cholesky(B)
    inner = mt.linalg.solve_triangular(L, mt.linalg.solve_triangular(L, A, upper=False).mT, upper=False)
    assert mt.allclose(E, mt.linalg.eigvalsh(inner)[:2], rtol=1e-6)
    assert mt.allclose(X.mT @ (B @ X), mt.eye(2, dtype=mt.float64), atol=1e-8)


def test_gradients_are_those_of_eigh():
    A = symmetric(15, 15).requires_grad_()
    C = symmetric(15, 15).requires_grad_()
    w = mt.randn(15, 2, dtype=mt.float64)

    def score(values, vectors):
        return (values * mt.tensor([1.0, 3.0], dtype=mt.float64)).sum() + ((vectors * w).sum(0) ** 2).sum()
    score(*mt.lobpcg(A, k=2, tol=1e-12)).backward()
    values, vectors = mt.linalg.eigh(C)
    score(values.flip(0)[:2], vectors.flip(1)[:, :2]).backward()
    assert mt.allclose(A.grad, (C.grad + C.grad.mT) / 2, atol=1e-6)


def test_a_tracker_sees_every_step_and_may_stop_them():
    seen = []

    def tracker(state):
        seen.append(state.ivars["istep"])
        state.bvars["force_stop"] = len(seen) == 2
    mt.lobpcg(symmetric(30, 30), k=1, tracker=tracker, tol=0.0)
    assert seen == [0, 1]


@twin
def test_refusals(t):
    return error(lambda: t.lobpcg(t.eye(4), k=2), 200), t.lobpcg(t.eye(9) * 2, k=1)[0]
