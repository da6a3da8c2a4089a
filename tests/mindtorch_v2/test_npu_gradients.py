"""What backward launches on an npu: gradients become .grad as they are."""
from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch
from cann_sim import calls


@pytest.mark.parametrize("function, shapes, expected", [
    (torch.relu, [(3, 4)], ["aclnnThresholdBackward"]),
    (torch.mm, [(3, 4), (4, 5)], ["aclnnMm", "aclnnMm"]),
    (torch.mul, [(3, 4), (4,)], ["aclnnMul", "aclnnMul", "aclnnReduceSum"]),
    (torch.mul, [(3, 4), ()], ["aclnnMul", "aclnnMul", "aclnnReduceSum"]),
    (lambda x, w, b: torch.nn.functional.layer_norm(x, [4], w, b), [(3, 4), (4,), (4,)], ["aclnnLayerNormBackward"]),
])
def test_gradients_become_grad_without_a_copy(npu: ModuleType, function: Any, shapes: Any, expected: Any) -> None:
    leaves = [torch.ones(shape, device="npu").requires_grad_() for shape in shapes]
    leaves[0].register_hook(lambda grad: None)
    out = function(*leaves)
    given = torch.ones_like(out)
    calls.record(True)
    out.backward(given)
    launched = [text.partition("(")[0] for count, text in calls.recorded() for _ in range(count) if text.startswith("aclnn")]
    calls.record(False)
    assert sorted(launched) == expected


def test_a_gradient_that_a_hook_keeps_is_copied(npu: ModuleType) -> None:
    for device in ("cpu", "npu"):
        x, kept = torch.ones(3, device=device).requires_grad_(), []
        x.register_hook(kept.append)
        x.exp().backward(torch.ones(3, device=device))
        x.grad.zero_()
        assert kept[0].sum().item() > 8
