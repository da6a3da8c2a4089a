"""The checks of gradcheck that need vmap: gradients of a batch of cotangents, or of tangents, are those of each."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_WORKAROUND = """
If you are adding a new operator, please file an issue and then use one of the
workarounds. The workaround depends on how your test invokes gradcheck/gradgradcheck.
If the test
- manually invokes gradcheck/gradgradcheck, then call gradcheck/gradgradcheck
  with `check_batched_{word}grad=False` as a keyword argument."""
_BACKWARD = ("gradcheck or gradgradcheck failed while testing batched gradient computation.\n" + _WORKAROUND.format(word=""))
_FORWARD = ("gradcheck failed while testing batched gradient computation with forward-mode AD.\n" +
            _WORKAROUND.format(word="forward_"))


def _compare(of_each: Callable[[Any], tuple], given: list[Any], number: int, words: str) -> None:
    """That the function of a batch gives what it gives for each item."""
    expected = [torch.stack(parts) for parts in zip(*[of_each(x) for x in given], strict=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        try:
            found = torch.vmap(of_each)(torch.stack(given))
        except RuntimeError as error:
            raise torch.autograd.GradcheckError(
                f"While computing batched gradients, got: {error}\n\n{words}") from error
    for i, (ours, one_by_one) in enumerate(zip(found, expected, strict=True)):
        if not torch.allclose(ours, one_by_one):
            raise torch.autograd.GradcheckError(
                f"For output {number} and input {i}:\n\n{words}\n\nGot:\n{ours}\n\nExpected:\n{one_by_one}")


def _check_batched(inputs: list[Any], output: Any, number: int) -> None:
    """gradcheck(check_batched_grad=True): backward of two cotangents at once."""
    def back(v: Any) -> tuple:
        found = torch.autograd.grad(output, inputs, v, retain_graph=True, allow_unused=True)
        return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))
    _compare(back, [torch.randn_like(output) for _ in range(2)], number, _BACKWARD)


def _check_batched_forward(func: Callable[..., Any], inputs: tuple) -> None:
    """gradcheck(check_batched_forward_grad=True): two tangents at once."""
    forward = torch.autograd.forward_ad
    for at, x in enumerate(inputs):
        if not (isinstance(x, torch.Tensor) and x.requires_grad):
            continue

        def along(tangent: Any, at: int = at, x: Any = x) -> tuple:
            with forward.dual_level():
                dual = forward.make_dual(x.detach(), tangent)
                given = [dual if i == at else y.detach() if isinstance(y, torch.Tensor) else y for i, y in enumerate(inputs)]
                results = func(*given)
                pairs = [forward.unpack_dual(o) for o in (results if isinstance(results, (tuple, list)) else (results,))
                         if o is not None]
                return tuple(torch.zeros_like(p) if t is None else t for p, t in pairs)
        _compare(along, [torch.randn_like(x) for _ in range(2)], at, _FORWARD)
