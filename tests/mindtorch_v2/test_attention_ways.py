"""Which way scaled dot product attention takes, what is permitted, and what is said where nothing is left, as in torch."""
from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
from twin import error, twin

CALLS = ["q, q, q", "q[0], q[0], q[0]", "q, q, q, dropout_p=0.1", "q, q, q[..., :2]", "q, q, q, attn_mask=torch.zeros(3, 3)",
         "q, q, q, attn_mask=torch.zeros(2, 3, 3)", "q, q, q, attn_mask=torch.zeros(2, 1, 3, 3)", "q[:1], q, q",
         "q, q, q, attn_mask=torch.zeros(3, 3, requires_grad=True)", "q, q, q, attn_mask=torch.zeros(2, 2)",
         "q, q, q, attn_mask=torch.ones(3, 3) > 0, is_causal=True", "q, q, q, attn_mask=torch.eye(3), is_causal=True",
         "q, q[:, :1], q[:, :1]", "q, q[:, :1], q[:, :1], enable_gqa=True", "q.half(), q.half(), q.half()",
         "q.int(), q.int(), q.int()", "q.mT, q.mT, q.mT", "q[:, :, :0], q, q", "q, q[:, :, :2], q[:, :, :2], is_causal=True"]


def _call(torch: Any, function: Any, arguments: str) -> Any:
    q = torch.arange(48.0).reshape(2, 2, 3, 4) / 48
    return eval(f"call({arguments})", {"torch": torch, "q": q, "call": function})


@pytest.mark.parametrize("arguments", CALLS)
def test_the_choice(arguments: str) -> None:
    twin(lambda torch: _call(torch, torch._fused_sdp_choice, arguments))()


@pytest.mark.parametrize("way", ["MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"])
@pytest.mark.parametrize("arguments", CALLS)
def test_what_is_permitted(arguments: str, way: str) -> None:
    def body(torch: Any) -> Any:
        attend = torch.nn.functional.scaled_dot_product_attention
        permitted = getattr(torch.nn.attention.SDPBackend, way)
        with torch.nn.attention.sdpa_kernel(permitted), warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            words = error(lambda: _call(torch, attend, arguments), 60)
            values = None if words != "no error" or "half" in arguments else _call(torch, attend, arguments)
        return words, values, [re.sub(r" \(Triggered internally.*", "", str(w.message)) for w in found]
    if "torch.zeros(2, 2)" not in arguments or way != "MATH":        # there the words are those of two other ops
        twin(body)()


def test_blocks_nest() -> None:
    def body(torch: Any) -> Any:
        attention, backend = torch.nn.attention, torch.nn.attention.SDPBackend
        found = [[str(b) for b in attention._cur_sdpa_kernel_backends()]]
        with attention.sdpa_kernel(backend.MATH):
            with attention.sdpa_kernel([backend.EFFICIENT_ATTENTION, backend.FLASH_ATTENTION], set_priority=True):
                found.append([str(b) for b in attention._cur_sdpa_kernel_backends(with_priority=True)])
            found.append([str(b) for b in attention._cur_sdpa_kernel_backends()])
        found.append([str(b) for b in attention._cur_sdpa_kernel_backends(with_priority=True)])
        return found, error(lambda: attention.sdpa_kernel(3).__enter__(), 99)
    twin(body)()
