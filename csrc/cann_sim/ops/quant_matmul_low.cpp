// Products of matrices in floats of 8 and 4 bits, with scales of rows and columns or of MX blocks, and their sums over batches.
#include <cmath>

#include "ops/attention.h"  // argument()
#include "ops/low_float.h"
#include "ops/pointwise.h"
#include "ops/quant_matmul.h"

namespace cann_sim {
namespace {

constexpr int64_t kBlock = 32;

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
bool is_mx(const Call& c, int scale) { return c.tensor(scale).dtype == ACL_FLOAT8_E8M0; }

float mx_scaled_back(float x, uint8_t exponent) { return exponent == 255 ? NAN : std::ldexp(x, exponent - 127); }

// Argument i as floats: times its MX scales along `dim`, where these are [..., pairs of blocks, ..., 2].
Value scaled_back(Run& r, int i, int scale, int64_t dim) {
  const Value x = load_low(r, i).dense();
  if (!is_mx(r.call, scale)) return x;
  const Value exponents = r.value(r.call.tensor(scale)).dense(), made = empty(x.shape(), mt::kFloat);
  const int64_t n = x.sizes[dim], pairs = exponents.sizes[dim];
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.ndim; ++d) inner *= x.sizes[d];
  for (int64_t k = 0, all = x.numel(); k < all; ++k) {
    const int64_t b = k / inner % n / kBlock;
    const uint8_t e = exponents.ptr<uint8_t>()[((k / (inner * n) * pairs + b / 2) * inner + k % inner) * 2 + b % 2];
    made.ptr<float>()[k] = mx_scaled_back(x.ptr<float>()[k], e);
  }
  return made;
}
void expect_low(const Call& c, int i) {
  if (!low_float(c.tensor(i).dtype)) refuse(561003, "%s with %s of data type %d is not computed", c.name(), c.row->args[i].name, c.tensor(i).dtype);
}

// ---- (x1 [M, B, K], x2 [B, K, N], bias?, x1Scale, x2Scale, dtype, groupSize, permX1, permX2, permY, batchSplitFactor, out) ------------
Sizes order_of(const Call& c, int i) { return Sizes(c.ints(i).begin(), c.ints(i).end()); }
Sizes permuted(const Sizes& sizes, const Sizes& order) {
  Sizes made;
  for (int64_t d : order) made.push_back(sizes[size_t(d)]);
  return made;
}
void check_transposed(const Call& c) {
  for (int i : {0, 1}) expect_low(c, i);
  if (has(c, 2)) refuse(561003, "%s with bias is not computed", c.name());
  EXPECT(c.integer(10) == 1, "%s: batchSplitFactor %ld is not 1", c.name(), long(c.integer(10)));
  EXPECT(order_of(c, 7) == (Sizes{1, 0, 2}) && order_of(c, 9) == (Sizes{1, 0, 2}), "%s: permX1 and permY are [1, 0, 2]", c.name());
  const Sizes turn = order_of(c, 8);
  EXPECT(turn == (Sizes{0, 1, 2}) || turn == (Sizes{0, 2, 1}), "%s: permX2 is [0, 1, 2] or [0, 2, 1]", c.name());
  EXPECT(c.tensor(0).ndim == 3 && c.tensor(1).ndim == 3, "%s: expected x1 and x2 of 3 dims", c.name());
  const Sizes a = permuted(sizes_of(c.tensor(0)), {1, 0, 2}), b = permuted(sizes_of(c.tensor(1)), turn);
  EXPECT(a[0] == b[0] && a[2] == b[1], "%s: x1 %s and x2 %s cannot be multiplied", c.name(), describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  EXPECT(is_mx(c, 3) == is_mx(c, 4), "%s: the scales are of two kinds", c.name());
  if (is_mx(c, 3)) {
    expect_shape(c, 3, mx_scale_sizes(sizes_of(c.tensor(0)), 2, kBlock));
    expect_shape(c, 4, mx_scale_sizes(sizes_of(c.tensor(1)), turn[1] == 1 ? 1 : 2, kBlock));
  } else {
    expect_numel(c, 3, a[1]);
    expect_numel(c, 4, b[2]);
  }
  expect_shape(c, 11, {a[1], a[0], b[2]});
}
void run_transposed(Run& r) {
  const Sizes turn = order_of(r.call, 8);
  const Value a = scaled_back(r, 0, 3, 2).permute({1, 0, 2}), b = scaled_back(r, 1, 4, turn[1] == 1 ? 1 : 2).permute(turn);
  Value y = empty({a.size(0), a.size(1), b.size(2)}, mt::kFloat);
  call_kernel("matmul", {y, a, b});
  if (!is_mx(r.call, 3)) y = times(times(y, r.tensor(3).reshape({1, -1, 1})), r.tensor(4).reshape({1, 1, -1}));
  copy(r.tensor(11), y.permute({1, 0, 2}));
}

// ---- (x1, x2, x1Scale, x2Scale, yRef, transposeX1, transposeX2, groupSize): y += x1 x2, both MX along their inner dim -------------------
void check_add(const Call& c) {
  for (int i : {0, 1}) expect_low(c, i);
  if (!is_mx(c, 2) || !is_mx(c, 3)) refuse(561003, "%s is computed with scales of FLOAT8_E8M0", c.name());
  const TensorMeta &a = c.tensor(0), &b = c.tensor(1);
  const bool left = c.integer(5), right = c.integer(6);
  EXPECT(a.ndim == 2 && b.ndim == 2 && a.sizes[left ? 0 : 1] == b.sizes[right ? 1 : 0], "%s: x1 %s and x2 %s cannot be multiplied", c.name(), describe(a).c_str(),
         describe(b).c_str());
  expect_shape(c, 2, mx_scale_sizes(sizes_of(a), left ? 0 : 1, kBlock));
  expect_shape(c, 3, mx_scale_sizes(sizes_of(b), right ? 1 : 0, kBlock));
  expect_shape(c, 4, {a.sizes[left ? 1 : 0], b.sizes[right ? 0 : 1]});
}
void run_add(Run& r) {
  const bool left = r.call.integer(5), right = r.call.integer(6);
  Value a = scaled_back(r, 0, 2, left ? 0 : 1), b = scaled_back(r, 1, 3, right ? 1 : 0);
  if (left) a = a.transpose(0, 1);
  if (right) b = b.transpose(0, 1);
  const Value out = r.tensor(4), y = empty(out.shape(), mt::kFloat);
  call_kernel("matmul", {y, a, b});
  copy(out, pointwise("add", mt::kFloat, {out, y}, {integer(1)}));
}

// ---- (x1 [M, K], x2 [K, N], scale1?, scale2, groupList, yRef [g, M, N], groupListType, groupSize): y_g += x1_g x2_g, groups along K -----------
// HiFloat8 with float scales [g] or [g, 1], and [g, N] or [g, 1]; FLOAT8 with MX scales whose groups begin at pair start / 64 + g.
void check_grouped_add(const Call& c) {
  const TensorMeta &a = c.tensor(0), &b = c.tensor(1);
  const int64_t groups = c.tensor(4).numel(), kinds = (a.dtype == ACL_HIFLOAT8) + (b.dtype == ACL_HIFLOAT8);
  EXPECT(a.sizes[1] == b.sizes[0], "%s: x1 %s and x2 %s cannot be multiplied", c.name(), describe(a).c_str(), describe(b).c_str());
  EXPECT(a.sizes[1] < 2 || a.strides[0] <= a.strides[1], "%s: x1 %s is not a transposed view", c.name(), describe(a).c_str());
  expect_shape(c, 5, {groups, a.sizes[0], b.sizes[1]});
  EXPECT(c.integer(6) == 0 || c.integer(6) == 1, "%s: groupListType %ld is not 0 or 1", c.name(), long(c.integer(6)));
  EXPECT(c.integer(7) == 0, "%s: groupSize %ld is not 0", c.name(), long(c.integer(7)));
  EXPECT(kinds != 1, "%s: x1 and x2 are of two kinds", c.name());
  EXPECT(has(c, 2), "%s: scale1Optional is needed", c.name());
  const aclDataType scale = kinds ? ACL_FLOAT : ACL_FLOAT8_E8M0;
  for (int i : {2, 3}) EXPECT(c.tensor(i).dtype == scale, "%s: %s is of data type %d, expected %d", c.name(), c.row->args[i].name, c.tensor(i).dtype, scale);
  if (!kinds) {
    const int64_t pairs = a.sizes[1] / (2 * kBlock) + groups;
    expect_shape(c, 2, {a.sizes[0], pairs, 2});
    return expect_shape(c, 3, {pairs, b.sizes[1], 2});
  }
  expect_numel(c, 2, groups);
  if (c.tensor(3).numel() != groups) expect_shape(c, 3, {groups, b.sizes[1]});
}
// Rows [from, to) of x [K, n] times the MX scales [pairs, n, 2] of group g.
void scale_group(const Value& x, const Value& exponents, int64_t from, int64_t to, int64_t g) {
  const int64_t n = x.size(1);
  for (int64_t k = from; k < to; ++k)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t b = (k - from) / kBlock;
      const uint8_t e = exponents.ptr<uint8_t>()[((from / (2 * kBlock) + g + b / 2) * n + j) * 2 + b % 2];
      x.ptr<float>()[k * n + j] = mx_scaled_back(x.ptr<float>()[k * n + j], e);
    }
}
void run_grouped_add(Run& r) {
  const bool mx = is_mx(r.call, 3);
  const Value a = load_low(r, 0).transpose(0, 1).dense(), b = load_low(r, 1).dense(), y = r.tensor(5);
  const Value first = mx ? r.value(r.call.tensor(2)).transpose(0, 1).dense() : Value(), second = mx ? r.value(r.call.tensor(3)).dense() : Value();
  const Ends ends = group_ends(r.tensor(4), r.call.integer(6) == 1, a.size(0));
  const Value sums = y.to(mt::kFloat).dense();
  int64_t from = 0;
  for (size_t g = 0; g < ends.size(); from = ends[g], ++g) {
    const int64_t to = ends[g], at = int64_t(g);
    if (to == from) continue;
    if (mx) scale_group(a, first, from, to, at), scale_group(b, second, from, to, at);
    Value part = empty({a.size(1), b.size(1)}, mt::kFloat);
    call_kernel("mm", {part, a.narrow(0, from, to - from).transpose(0, 1), b.narrow(0, from, to - from)});
    if (!mx) part = times(times(part, r.tensor(3).select(0, at)), r.tensor(2).reshape({-1}).narrow(0, at, 1));
    const Value sum = sums.select(0, at);
    call_pointwise("add", mt::kFloat, {sum, sum, part}, {number(1)});
  }
  copy(y, sums);
}

// ---- (x1 [B, M, K], x2 [B, K, N] int8, x1Scale [B, M], x2Scale [N], …, dims, keepDims, out): added over the batch
// dims is not read, as CANN does not: torch_npu 2.13 fills it from a list that has ended.
void check_sum(const Call& c) {
  const TensorMeta &a = c.tensor(0), &b = c.tensor(1);
  if (a.dtype != ACL_INT8 || b.dtype != ACL_INT8) refuse(561003, "%s is computed with int8", c.name());
  for (int i = 4; i < 9; ++i)
    if (has(c, i)) refuse(561003, "%s with %s is not computed", c.name(), c.row->args[i].name);
  EXPECT(!c.integer(9) && !c.integer(10) && !c.integer(13), "%s: transposeX1 %ld, transposeX2 %ld, keepDims %ld; all are 0", c.name(), c.integer(9),
         c.integer(10), c.integer(13));
  EXPECT(a.ndim == 3 && b.ndim == 3 && a.sizes[0] == b.sizes[0] && a.sizes[2] == b.sizes[1], "%s: x1 %s and x2 %s cannot be multiplied", c.name(),
         describe(a).c_str(), describe(b).c_str());
  expect_shape(c, 2, {a.sizes[0], a.sizes[1]});
  expect_shape(c, 3, {b.sizes[2]});
  expect_shape(c, 14, {a.sizes[1], b.sizes[2]});
}
void run_sum(Run& r) {
  const Value a = r.tensor(0).to(mt::kDouble), b = r.tensor(1).to(mt::kDouble), parts = empty({a.size(0), a.size(1), b.size(2)}, mt::kDouble);
  call_kernel("matmul", {parts, a, b});
  const Value sum = full({a.size(1), b.size(2)}, mt::kDouble, 0);
  for (int64_t i = 0; i < parts.size(0); ++i) {
    const Value part = pointwise("mul", mt::kDouble, {parts.select(0, i), r.tensor(2).select(0, i).reshape({-1, 1})});
    call_pointwise("add", mt::kDouble, {sum, sum, part}, {number(1)});
  }
  copy(r.tensor(14), pointwise("mul", mt::kDouble, {sum, r.tensor(3).reshape({1, -1})}));
}

const Op ops[] = {
    {"aclnnTransposeQuantBatchMatMul", check_transposed, run_transposed},
    {"aclnnTransposeQuantBatchMatMulWeightNz", check_transposed, run_transposed},
    {"aclnnQuantBatchMatmulInplaceAdd", check_add, run_add},
    {"aclnnQuantGroupedMatmulInplaceAdd", check_grouped_add, run_grouped_add},
    {"aclnnQuantMatmulReduceSumWeightNz", check_sum, run_sum},
};

}  // namespace
}  // namespace cann_sim
