"""Cases of torch_npu's ops over floats of 8 and 4 bits whose blocks share a scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_op_case import R, b, case, e4m3, f, h, i32, i64, u
from npu_op_cases_layers import by_rows

E5M2, E4M3, E2M1 = 291, 292, 296
EMAX = {E5M2: 15, E4M3: 8, E2M1: 2}
MOST = {E5M2: 57344.0, E4M3: 448.0, E2M1: 6.0}


def spread(*shape: int) -> np.ndarray:
    """Numbers over many powers of two."""
    return (R.randn(*shape) * np.exp2(R.randint(-8, 8, shape))).astype(np.float16)


def codes_of(torch: Any, largest: Any, kind: int, alg: int) -> Any:
    """The exponents of blocks, as bytes: of the largest item less emax, or of largest / most rounded up."""
    fraction, power = torch.frexp(largest if alg == 0 else largest / MOST[kind])
    made = power - 1 + 127 - EMAX[kind] if alg == 0 else power - 1 + 127 + (fraction > 0.5)
    return torch.where(largest == 0, 0, made.clamp(min=0))


def stored(torch: Any, q: Any, kind: int) -> Any:
    """The nearest numbers of the type; of 4 bits as codes, two in a byte."""
    if kind != E2M1:
        return q.clamp(-MOST[kind], MOST[kind]).to(torch.float8_e4m3fn if kind == E4M3 else torch.float8_e5m2)
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    distance = (q.abs().clamp(max=6).unsqueeze(-1) - numbers).abs() + torch.arange(8) % 2 * 1e-6
    code = distance.argmin(-1) + 8 * torch.signbit(q)
    return (code[..., 0::2] + 16 * code[..., 1::2]).to(torch.uint8)


def mx(torch: Any, x: Any, dim: int, kind: int, alg: int = 0) -> Any:
    dim %= x.dim()
    n = x.shape[dim]
    blocks = torch.nn.functional.pad(x.float().movedim(dim, -1), (0, -n % 64)).unflatten(-1, (-1, 32))
    codes = codes_of(torch, blocks.abs().amax(-1), kind, alg)
    q = torch.ldexp(blocks, (127 - codes).unsqueeze(-1)).flatten(-2)[..., :n].movedim(-1, dim)
    return stored(torch, q, kind), codes.unflatten(-1, (-1, 2)).movedim(-2, dim).to(torch.uint8)


def grouped(torch: Any, x: Any, ends: list[int], kind: int, alg: int = 0) -> Any:
    """Along dim 0, group by group."""
    codes, parts, start = torch.zeros(x.shape[0] // 64 + len(ends), x.shape[1], 2, dtype=torch.uint8), [], 0
    for g, end in enumerate(ends):
        y, own = mx(torch, x[start:end], 0, kind, alg)
        parts.append(y)
        codes[start // 64 + g:start // 64 + g + own.shape[0]] = own
        start = end
    return torch.cat(parts), codes


for _kind in (E4M3, E5M2, E2M1):
    case("npu_dynamic_mx_quant", spread(5, 98), dst_type=_kind, ref=lambda torch, x, dst_type: mx(torch, x, -1, dst_type))
case("npu_dynamic_mx_quant", spread(70, 3), axis=0, dst_type=E4M3, scale_alg=1,
     ref=lambda torch, x, axis, dst_type, scale_alg: mx(torch, x, 0, dst_type, 1))
case("npu_dynamic_mx_quant_with_dual_axis", spread(64, 70), dst_type=E4M3,
     ref=lambda torch, x, dst_type: (*mx(torch, x, -1, dst_type), *mx(torch, x, -2, dst_type)))
case("npu_grouped_dynamic_mx_quant", spread(100, 6), i32(30, 100), dst_type=24,
     ref=lambda torch, x, ends, dst_type: grouped(torch, x, ends.tolist(), E4M3))


def squares(torch: Any, x: Any, dst_type: int) -> Any:
    rows, columns = x.shape
    wide = torch.nn.functional.pad(x.float(), (0, -columns % 64, 0, -rows % 64))
    codes = codes_of(torch, wide.reshape(wide.shape[0] // 32, 32, -1, 32).abs().amax((1, 3)), dst_type, 0)
    every = codes.repeat_interleave(32, 0).repeat_interleave(32, 1)
    down = codes.repeat_interleave(32, 1)[:, :columns].reshape(-1, 2, columns).transpose(1, 2)
    return (stored(torch, torch.ldexp(wide, 127 - every)[:rows, :columns], dst_type),
            codes.repeat_interleave(32, 0)[:rows].reshape(rows, -1, 2).to(torch.uint8), down.to(torch.uint8))


case("npu_dynamic_block_mx_quant", spread(40, 70), dst_type=E4M3, ref=squares)


def two_levels(torch: Any, x: Any) -> Any:
    blocks = x.float().unflatten(-1, (-1, 512))
    scale = blocks.abs().amax(-1) / 6
    y, codes = mx(torch, (blocks / scale.unsqueeze(-1)).flatten(-2).half(), -1, E2M1)
    return y, scale, codes


case("npu_dynamic_dual_level_mx_quant", h(3, 1024), ref=two_levels)
CODES = R.randint(120, 134, (4, 2, 2)).astype(np.uint8)
case("npu_anti_mx_quant", e4m3(f(4, 96)), CODES, atol=1.0, ref=lambda torch, x, codes: torch.ldexp(
    x.float(), codes.reshape(4, 4).repeat_interleave(32, 1)[:, :96].int() - 127).bfloat16())

for _name in ("npu_add_quant_matmul", "npu_add_quant_matmul_"):
    case(_name, f(4, 6), e4m3(f(4, 64)), e4m3(f(64, 6)), R.randint(124, 130, (1, 6, 2)).astype(np.uint8),
         x1_scale=R.randint(124, 130, (4, 1, 2)).astype(np.uint8), group_sizes=[1, 1, 32], x1_scale_dtype=293, x2_scale_dtype=293, atol=1e-3,
         ref=lambda torch, y, a, c, sc, x1_scale, **kw: y + torch.ldexp(
             a.float(), x1_scale.reshape(4, 2).repeat_interleave(32, 1).int() - 127) @ torch.ldexp(
                 c.float(), sc.permute(0, 2, 1).reshape(2, 6).repeat_interleave(32, 0).int() - 127))


# ---- norms and gated activations before it ------------------------------------------------------------------------------
def normed(torch: Any, x: Any, gamma: Any) -> Any:
    return x * (x.square().mean(-1, True) + 1e-6).rsqrt() * gamma.float()


case("npu_rms_norm_dynamic_mx_quant", h(3, 64), h(64), dst_type=E4M3,
     ref=lambda torch, x, g, dst_type: (*mx(torch, normed(torch, x.float(), g), -1, dst_type), torch.empty(0)))
case("npu_add_rms_norm_dynamic_mx_quant", h(3, 64), h(3, 64), h(64), dst_type=E4M3, atol=1e-3,
     ref=lambda torch, x, y, g, dst_type: (lambda q, codes: (q, (x.float() + y.float()).half(), codes, torch.empty(0)))(
         *mx(torch, normed(torch, x.float() + y.float(), g), -1, dst_type)))


def gated(torch: Any, x: Any, left: bool = True) -> Any:
    first, second = x.float().chunk(2, -1)
    gate, up = (first, second) if left else (second, first)
    return torch.nn.functional.silu(gate) * up


case("npu_swiglu_mx_quant", h(3, 128), dst_type=E4M3, ref=lambda torch, x, dst_type: mx(torch, gated(torch, x, False), -1, dst_type))
case("npu_swiglu_mx_quant", h(70, 64), group_index=i64(30, 40), dst_type=E5M2, axis=0, activate_left=True,
     ref=lambda torch, x, group_index, dst_type, axis, activate_left: grouped(torch, gated(torch, x), [30, 70], dst_type))
case("npu_swiglu_mx_quant_with_dual_axis", b(f(64, 128)),
     ref=lambda torch, x: (*mx(torch, gated(torch, x), -1, E4M3, 1), *mx(torch, gated(torch, x), -2, E4M3, 1)))


def gated_grad(torch: Any, x: Any, g: Any) -> Any:
    leaf = x.float().requires_grad_()
    return torch.autograd.grad(gated(torch, leaf), leaf, g.float())[0]


case("_npu_swiglu_backward_mx_quant_with_dual_axis", b(f(64, 128)), b(f(64, 64)), ref=lambda torch, x, g: (lambda made: (
    *mx(torch, made, -1, E4M3, 1), *mx(torch, made, -2, E4M3, 1)))(gated_grad(torch, x, g)))
case("npu_swiglu_group_quant_backward", b(f(4, 64)), b(f(4, 128)), atol=5e-2,
     ref=lambda torch, g, x: (gated_grad(torch, x, g).bfloat16(), torch.empty(0)))


# ---- scales that are floats --------------------------------------------------------------------------------------------
def in_blocks(torch: Any, x: Any, ends: Any, dst_type: int) -> Any:
    scale = x.float().reshape(6, 2, 128).abs().amax(-1) / MOST[dst_type]
    q = stored(torch, (x.float().reshape(6, 2, 128) / scale[..., None]).reshape(6, 256), dst_type)
    return q, torch.cat([scale[:2], torch.zeros(1, 2), scale[2:], torch.zeros(1, 2)])    # a row after every group


case("npu_grouped_dynamic_block_quant", h(6, 256), i32(2, 6), dst_type=E5M2, atol=1e-2, ref=in_blocks)
case("npu_quant_max", h(4, 64), u(1), dst_dtype=E5M2, ref=lambda torch, x, s, dst_dtype: (
    stored(torch, x.float() * s, E5M2), x.abs().amax().reshape(1)))
case("npu_rotate_quant", b(f(4, 64)), b(f(32, 32)), atol=1.0,
     ref=lambda torch, x, turn: by_rows(torch, (x.float().reshape(-1, 32) @ turn.float()).reshape(4, 64)))
case("npu_fused_linear_cross_entropy_loss_with_max_sum_backward", f(9), h(9, 16), h(12, 16), np.array([0b01000100, 0b01111111], np.uint8),
     i64(3, 0, 11, 5, 1, 0, 2, 7, 4), 0.0, f(9), u(9) * 20, atol=1e-1,
     ref=lambda torch, g, x, w, mask, at, smooth, top, total: (lambda hit: (lambda d: (
         (d @ w.float()).half(), (d.t() @ x.float()).half()))(
             ((x.float() @ w.float().t() - top[:, None]).exp() / total[:, None] - hit) * g[:, None]))(
                 torch.nn.functional.one_hot(at, 12) * torch.tensor([1, 0, 1, 1, 1, 0, 1, 1, 1])[:, None]))
