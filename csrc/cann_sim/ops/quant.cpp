// Quantising and dequantising of single tensors: by given scales, by scales found in the data, and fake quantisation.
// Products of quantised matrices are not here.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/pointwise.h"

namespace cann_sim {
namespace {

// The numbers that an output holds. int32 is written as eight int4, the first in the lowest bits.
struct Grid {
  float low, high;
  bool packed;
};
Grid grid_of(aclDataType t, bool int32_packs) {
  if (t == ACL_INT8) return {-128, 127, false};
  if (t == ACL_UINT8) return {0, 255, false};
  return int32_packs ? Grid{-8, 7, true} : Grid{-0x1p31f, 0x1p31f - 128, false};
}

float rounded(float x, const char* mode) {
  if (!std::strcmp(mode, "ceil")) return std::ceil(x);
  if (!std::strcmp(mode, "floor")) return std::floor(x);
  if (!std::strcmp(mode, "trunc")) return std::trunc(x);
  return std::nearbyint(x);
}

// Rounds, limits and stores the numbers of `x`, which is float32 and contiguous.
void store(const Value& out, const Value& x, const Grid& grid, const char* mode) {
  const float* in = x.ptr<float>();
  const Value made = empty(out.shape(), mt::kInt32);
  int32_t* to = made.ptr<int32_t>();
  auto item = [&](int64_t i) {
    const float v = rounded(in[i], mode);
    return int32_t(v < grid.low ? grid.low : v > grid.high ? grid.high : v == v ? v : 0);
  };
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    uint32_t word = 0;
    for (int k = 0; k < 8 && grid.packed; ++k) word |= (uint32_t(item(8 * i + k)) & 15) << (4 * k);
    to[i] = grid.packed ? int32_t(word) : item(i);
  }
  copy(out, made);
}
Value unpacked(const Value& x) {  // eight int4 of every int32, along the last dim
  Sizes sizes = x.shape();
  sizes.back() *= 8;
  const Value in = x.dense(), out = empty(sizes, mt::kFloat);
  for (int64_t i = 0, n = out.numel(); i < n; ++i) {
    const uint32_t bits = uint32_t(in.ptr<int32_t>()[i / 8]) >> (4 * (i % 8)) & 15;
    out.ptr<float>()[i] = float(bits) - (bits > 7 ? 16.f : 0.f);
  }
  return out;
}

// A tensor of one number, of one for each index of `axis`, or with as many dims as x, under x's dims.
Value along(const Value& v, const Value& x, int64_t axis) {
  if (v.ndim == x.ndim && x.ndim > 1) return v;
  Sizes sizes(x.ndim, 1);
  sizes[axis] = v.numel();
  return v.reshape(sizes);
}
void expect_along(const Call& c, int i, const Sizes& x, int64_t axis) {
  if (!c.given(i)) return;
  const TensorMeta& t = c.tensor(i);
  const int64_t n = t.numel();
  const bool fits = n == 1 || (n == x[axis] && (t.ndim <= 1 || t.sizes[axis] == n));
  EXPECT(fits && (t.ndim <= 1 || t.ndim == int64_t(x.size())),
         "%s: expected %s with one element or one for each of the %ld of dim %ld, got %s", c.name(),
         c.row->args[i].name, x[axis], axis, describe(t).c_str());
}
void expect_storable(const Call& c, int x, int y) {
  EXPECT(computes(c.tensor(y).dtype), "%s: %s is %s, which is moved but not computed with", c.name(),
         c.row->args[y].name, describe(c.tensor(y)).c_str());
  Sizes sizes = sizes_of(c.tensor(x));
  if (c.tensor(y).dtype == ACL_INT32) {
    EXPECT(!sizes.empty() && sizes.back() % 8 == 0, "%s: the last dim of %s does not divide by 8", c.name(),
           describe(c.tensor(x)).c_str());
    sizes.back() /= 8;
  }
  expect_shape(c, y, sizes);
}
Value wide(const Value& v) { return v.to(mt::kFloat); }
Value plus(const Value& a, const Value& b) { return pointwise("add", mt::kFloat, {a, b}, {integer(1)}); }
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }

// ---- round(x / scale + zero) -----------------------------------------------------------------------------
void check_quantize(const Call& c) {  // (x, scales, zeroPoints?, dtype, axis, out)
  const Sizes x = sizes_of(c.tensor(0));
  EXPECT(c.integer(3) == c.tensor(5).dtype, "%s: dtype is %ld, and out is %s", c.name(), c.integer(3),
         describe(c.tensor(5)).c_str());
  EXPECT(computes(c.tensor(5).dtype), "%s: out is %s, which is moved but not computed with", c.name(),
         describe(c.tensor(5)).c_str());
  const int64_t axis = c.tensor(1).numel() == 1 ? 0 : wrap_dim(c.integer(4), int64_t(x.size()));
  expect_along(c, 1, x, axis);
  if (c.given(2)) expect_shape(c, 2, sizes_of(c.tensor(1)));
  expect_same_shape(c, 5, 0);
}
void run_quantize(Run& run) {
  const Value x = run.tensor(0), scale = run.tensor(1);
  const int64_t axis = scale.numel() == 1 ? 0 : wrap_dim(run.call.integer(4), x.ndim);
  Value q = pointwise("div", mt::kFloat, {x, along(scale, x, axis)});
  if (run.given(2)) q = plus(q, along(run.tensor(2), x, axis));
  store(run.tensor(5), q, grid_of(run.call.tensor(5).dtype, false), "round");
}

// ---- round(x * scale + offset), the scale squared in sqrtMode -----------------------------------------------
// (x, scale, offset?, sqrtMode, roundMode, dstType, y); V3 has the axis before the output.
template <bool v3> void check_ascend_quant(const Call& c) {
  const std::string mode = c.string(4);
  EXPECT(mode == "round" || mode == "ceil" || mode == "floor" || mode == "trunc",
         "%s: expected roundMode round, ceil, floor or trunc, got %s", c.name(), mode.c_str());
  EXPECT(c.integer(5) == c.tensor(6 + v3).dtype, "%s: dstType is %ld, and y is %s", c.name(), c.integer(5),
         describe(c.tensor(6 + v3)).c_str());
  const Sizes x = sizes_of(c.tensor(0));
  EXPECT(!x.empty(), "%s: expected x with at least one dim", c.name());
  const int64_t n = int64_t(x.size()), axis = wrap_dim(v3 ? c.integer(6) : -1, n);
  EXPECT(axis >= n - 2, "%s: axis %ld is not one of the last two dims", c.name(), axis);
  expect_along(c, 1, x, axis);
  if (c.given(2)) expect_shape(c, 2, sizes_of(c.tensor(1)));
  expect_storable(c, 0, 6 + v3);
}
template <bool v3> void run_ascend_quant(Run& run) {
  const Value x = run.tensor(0);
  const int64_t axis = wrap_dim(v3 ? run.call.integer(6) : -1, x.ndim);
  const Value scale = along(run.tensor(1), x, axis);
  Value q = times(x, scale);
  if (run.call.integer(3)) q = times(q, scale);
  if (run.given(2)) q = plus(q, along(run.tensor(2), x, axis));
  store(run.tensor(6 + v3), q, grid_of(run.call.tensor(6 + v3).dtype, true), run.call.string(4));
}

// ---- (x + offset) * scale -----------------------------------------------------------------------------------
void check_anti_quant(const Call& c) {  // (x, scale, offset, dstType, sqrtMode, y)
  EXPECT(computes(c.tensor(0).dtype), "%s: x is %s, which is moved but not computed with", c.name(),
         describe(c.tensor(0)).c_str());
  EXPECT(c.integer(3) == c.tensor(5).dtype, "%s: dstType is %ld, and y is %s", c.name(), c.integer(3),
         describe(c.tensor(5)).c_str());
  Sizes sizes = sizes_of(c.tensor(0));
  EXPECT(!sizes.empty(), "%s: expected x with at least one dim", c.name());
  if (c.tensor(0).dtype == ACL_INT32) sizes.back() *= 8;
  expect_shape(c, 5, sizes);
  expect_along(c, 1, sizes, int64_t(sizes.size()) - 1);
  if (c.given(2)) expect_shape(c, 2, sizes_of(c.tensor(1)));
}
void run_anti_quant(Run& run) {
  const Value in = run.tensor(0);
  const Value x = in.dtype == mt::kInt32 ? unpacked(in) : wide(in), scale = along(run.tensor(1), x, x.ndim - 1);
  const Value shifted = run.given(2) ? plus(x, along(run.tensor(2), x, x.ndim - 1)) : x;
  const Value y = times(shifted, scale);
  copy(run.tensor(5), run.call.integer(4) ? times(y, scale) : y);
}

// ---- a scale for each row, from its largest item --------------------------------------------------------------
void check_dynamic_quant(const Call& c) {  // (x, smoothScales?, yOut, scaleOut)
  const Sizes x = sizes_of(c.tensor(0));
  EXPECT(!x.empty(), "x has no dims");
  expect_along(c, 1, x, int64_t(x.size()) - 1);
  expect_storable(c, 0, 2);
  expect_shape(c, 3, Sizes(x.begin(), x.end() - 1));
}
void run_dynamic_quant(Run& run) {
  Value x = run.tensor(0);
  if (!x.numel()) return fill(run.tensor(3), 0);
  x = run.given(1) ? times(x, along(run.tensor(1), x, x.ndim - 1)) : wide(x).dense();
  const Grid grid = grid_of(run.call.tensor(2).dtype, true);
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
  const Value scales = empty({rows}, mt::kFloat), q = empty(x.shape(), mt::kFloat);
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x.ptr<float>() + r * width;
    float most = 0;
    for (int64_t i = 0; i < width; ++i) most = std::max(most, std::fabs(in[i]));
    const float scale = scales.ptr<float>()[r] = most / grid.high;
    for (int64_t i = 0; i < width; ++i) q.ptr<float>()[r * width + i] = scale ? in[i] / scale : 0;
  }
  store(run.tensor(2), q, grid, "round");
  const Value out = run.tensor(3);
  copy(out, scales.reshape(out.shape()));
}

// ---- x * weightScale * activateScale, the bias added before (integers) or after (floats) -----------------------
void check_dequant_bias(const Call& c) {  // (x [M, N], weightScale [N], activateScale? [M], bias? [N], dtype, out)
  const Sizes x = sizes_of(c.tensor(0));
  expect_shape(c, 1, {x[1]});
  if (c.given(2)) expect_shape(c, 2, {x[0]});
  if (c.given(3)) expect_shape(c, 3, {x[1]});
  EXPECT(c.integer(4) == c.tensor(5).dtype, "%s: outputDtype is %ld, and out is %s", c.name(), c.integer(4),
         describe(c.tensor(5)).c_str());
  expect_same_shape(c, 5, 0);
}
void run_dequant_bias(Run& run) {
  Value y = run.tensor(0);
  const Value bias = run.tensor(3);
  const bool before = bias.given() && bias.dtype == mt::kInt32;
  if (before) y = pointwise("add", mt::kInt32, {y, bias}, {integer(1)});
  y = times(y, run.tensor(1));
  if (run.given(2)) y = times(y, run.tensor(2).unsqueeze(1));
  if (bias.given() && !before) y = plus(y, bias);
  copy(run.tensor(5), y);
}

// ---- rows in groups, each with a scale of its own: (x [S, H], scale [E, H], groupIndex [E], offset? [1], dstType, y) ----
void check_group_quant(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0));
  EXPECT(c.tensor(5).dtype == ACL_INT8, "%s: y is %s, expected int8", c.name(), describe(c.tensor(5)).c_str());
  expect_shape(c, 1, {c.tensor(2).numel(), x[1]});
  expect_one_element(c, 3);
  expect_same_shape(c, 5, 0);
}
void run_group_quant(Run& run) {
  const Value x = run.tensor(0), scale = run.tensor(1), ends = run.tensor(2).to(mt::kInt64).dense(), q = full(x.shape(), mt::kFloat, 0);
  int64_t row = 0;
  for (int64_t g = 0; g < ends.numel(); ++g) {  // where each group ends
    const int64_t end = std::min(std::max(ends.ptr<int64_t>()[g], row), x.sizes[0]);
    if (end > row) copy(q.narrow(0, row, end - row), times(x.narrow(0, row, end - row), scale.select(0, g)));
    row = end;
  }
  store(run.tensor(5), (run.given(3) ? plus(q, run.tensor(3).reshape({})) : q).dense(), grid_of(ACL_INT8, false), "round");
}

// ---- signs as bits, the first in the lowest bit: (self, size, out [size, bytes]) and back: (self, size, dtype, out) --------
void check_pack_signs(const Call& c) {
  const int64_t bytes = (c.tensor(0).numel() + 7) / 8;
  EXPECT(c.integer(1) > 0 && bytes % c.integer(1) == 0, "%s: %ld bytes do not split into %ld rows", c.name(), long(bytes), long(c.integer(1)));
  expect_shape(c, 2, {c.integer(1), bytes / c.integer(1)});
}
void run_pack_signs(Run& run) {
  const Value x = wide(run.tensor(0)).dense(), out = run.tensor(2), made = full({out.numel()}, mt::kUInt8, 0);
  for (int64_t i = 0, n = x.numel(); i < n; ++i)
    if (x.ptr<float>()[i] >= 0) made.ptr<uint8_t>()[i / 8] |= uint8_t(1u << (i % 8));
  copy(out, made.reshape(out.shape()));
}
void check_unpack_signs(const Call& c) {
  EXPECT(c.integer(1) > 0 && c.tensor(3).numel() == c.tensor(0).numel() * 8, "%s: out %s does not fit", c.name(), describe(c.tensor(3)).c_str());
}
void run_unpack_signs(Run& run) {
  const Value x = run.tensor(0).dense(), out = run.tensor(3), made = empty({out.numel()}, mt::kFloat);
  for (int64_t i = 0, n = made.numel(); i < n; ++i) made.ptr<float>()[i] = x.ptr<uint8_t>()[i / 8] >> (i % 8) & 1 ? 1 : -1;
  copy(out, made.reshape(out.shape()));
}

// ---- fake quantisation: there and back, and a mask of what was not limited -------------------------------------
void fake_quant(const Value& self, const Value& scale, const Value& zero, int64_t low, int64_t high, const Value& out,
                const Value& mask) {
  const Value x = wide(self).dense(), s = wide(scale).expand(x.shape()).dense(),
              z = wide(zero).expand(x.shape()).dense();
  const Value made = empty(x.shape(), mt::kFloat), kept = empty(x.shape(), mt::kBool);
  for (int64_t i = 0, n = x.numel(); i < n; ++i) {
    const float q = std::nearbyint(x.ptr<float>()[i] / s.ptr<float>()[i]) + z.ptr<float>()[i];
    const float limited = q < float(low) ? float(low) : q > float(high) ? float(high) : q;
    made.ptr<float>()[i] = (limited - z.ptr<float>()[i]) * s.ptr<float>()[i];
    kept.ptr<bool>()[i] = q == limited;
  }
  copy(out, made);
  copy(mask, kept);
}
void expect_range(const Call& c) {
  EXPECT(c.integer(4) <= c.integer(5), "%s: quantMin %ld is above quantMax %ld", c.name(), c.integer(4), c.integer(5));
  expect_same_shape(c, 6, 0);
  expect_same_shape(c, 7, 0);
}
void check_fake_per_tensor(const Call& c) {  // (self, scale, zeroPoint, enabled, quantMin, quantMax, out, mask)
  expect_one_element(c, 1);
  expect_one_element(c, 2);
  expect_range(c);
}
void run_fake_per_tensor(Run& run) {
  const Value self = run.tensor(0);
  if (run.call.number(3) < 1) {
    copy(run.tensor(6), self);
    fill(run.tensor(7), 1);
    return;
  }
  fake_quant(self, run.tensor(1).reshape({}), run.tensor(2).reshape({}), run.call.integer(4), run.call.integer(5),
             run.tensor(6), run.tensor(7));
}
void check_fake_per_channel(const Call& c) {  // (self, scale, zeroPoint, axis, quantMin, quantMax, out, mask)
  const Sizes self = sizes_of(c.tensor(0));
  EXPECT(!self.empty(), "%s: expected self with at least one dim", c.name());
  const int64_t channels = self[wrap_dim(c.integer(3), int64_t(self.size()))];
  expect_shape(c, 1, {channels});
  expect_shape(c, 2, {channels});
  expect_range(c);
}
void run_fake_per_channel(Run& run) {
  const Value self = run.tensor(0);
  const int64_t axis = wrap_dim(run.call.integer(3), self.ndim);
  Sizes sizes(self.ndim, 1);
  sizes[axis] = self.sizes[axis];
  fake_quant(self, run.tensor(1).reshape(sizes), run.tensor(2).reshape(sizes), run.call.integer(4), run.call.integer(5),
             run.tensor(6), run.tensor(7));
}

const Op ops[] = {
    {"aclnnQuantize", check_quantize, run_quantize},
    {"aclnnAscendQuant", check_ascend_quant<false>, run_ascend_quant<false>},
    {"aclnnAscendQuantV3", check_ascend_quant<true>, run_ascend_quant<true>},
    {"aclnnAscendAntiQuant", check_anti_quant, run_anti_quant},
    {"aclnnDynamicQuant", check_dynamic_quant, run_dynamic_quant},
    {"aclnnGroupQuant", check_group_quant, run_group_quant},
    {"aclnnSignBitsPack", check_pack_signs, run_pack_signs},
    {"aclnnSignBitsUnpack", check_unpack_signs, run_unpack_signs},
    {"aclnnDequantBias", check_dequant_bias, run_dequant_bias},
    {"aclnnFakeQuantPerTensorAffineCachemask", check_fake_per_tensor, run_fake_per_tensor},
    {"aclnnFakeQuantPerChannelAffineCachemask", check_fake_per_channel, run_fake_per_channel},
};

}  // namespace
}  // namespace cann_sim
