// Fused forms that networks use: softmax with a bias of places, scaled heads, products with what follows them, feed-forward
// layers, updates of attention by parts, modulation. Choices of tokens and experts are in moe_routing.cpp.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value wide(const Value& v) { return v.to(mt::kFloat).dense(); }
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
Value plus(const Value& a, const Value& b) { return pointwise("add", mt::kFloat, {a, b}, {integer(1)}); }
Value product(const Value& a, const Value& b, Sizes out) {
  Value made = empty(out, mt::kFloat);
  call_kernel("matmul", {made, a.to(mt::kFloat), b.to(mt::kFloat)});
  return made;
}
Value summed(const Value& x, const Sizes& dims, const Sizes& out) {
  Value made = empty(out, mt::kFloat);
  call_kernel("sum", {made, x}, {list(dims)});
  return made;
}

// ---- softmax(x * scale + mask + bias): x [B, W, N, S, S], mask [W, S, S], bias [N, S, S], ones in between allowed ------
// (x, attenMask?, relativePosBias, scaleValue, innerPrecisionMode, out)
void check_biased_softmax(const Call& c) {
  const TensorMeta &x = c.tensor(0), &bias = c.tensor(2);
  EXPECT(x.ndim >= 3 && bias.ndim >= 3, "x and relativePosBias need at least 3 dims");
  const int64_t plane = x.sizes[x.ndim - 1] * x.sizes[x.ndim - 2], heads = x.sizes[x.ndim - 3];
  EXPECT(bias.numel() == heads * plane, "relativePosBias %s does not fit %s", describe(bias).c_str(), describe(x).c_str());
  if (has(c, 1)) EXPECT(plane && c.tensor(1).numel() % plane == 0 && x.numel() % (c.tensor(1).numel() * heads) == 0,
                        "attenMask %s does not fit %s", describe(c.tensor(1)).c_str(), describe(x).c_str());
  expect_same_shape(c, 5, 0);
}
void biased_softmax(Run& r) {
  const Value x = r.tensor(0), out = r.tensor(5);
  const int64_t columns = x.size(-1), rows = x.size(-2), heads = x.size(-3);
  const int64_t windows = has(r.call, 1) ? r.tensor(1).numel() / (rows * columns) : 1;
  Value y = times(x.reshape({-1, windows, heads, rows, columns}), full({}, mt::kFloat, r.call.number(3)));
  if (has(r.call, 1)) y = plus(y, r.tensor(1).reshape({windows, 1, rows, columns}));
  y = plus(y, r.tensor(2).reshape({heads, rows, columns})).dense();
  for (int64_t i = 0, n = columns ? y.numel() / columns : 0; i < n; ++i) {
    float* row = y.ptr<float>() + i * columns;
    const float top = *std::max_element(row, row + columns);
    float total = 0;
    for (int64_t j = 0; j < columns; ++j) total += row[j] = std::exp(row[j] - top);
    for (int64_t j = 0; j < columns; ++j) row[j] /= total;
  }
  copy(out, y.reshape(out.shape()));
}

// ---- (qkv [B, T, 3 D], qkvBias [3 D], numHeads, q, k, v [B, H, T, D / H]): the queries are scaled ---------------------
void check_rescale(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  const int64_t heads = c.integer(2);
  EXPECT(x.ndim == 3 && heads > 0 && x.sizes[2] % (3 * heads) == 0, "qkv %s does not split into 3 parts of %ld heads",
         describe(x).c_str(), long(heads));
  expect_shape(c, 1, {x.sizes[2]});
  for (int i : {3, 4, 5}) expect_shape(c, i, {x.sizes[0], heads, x.sizes[1], x.sizes[2] / 3 / heads});
}
void rescale(Run& r) {
  const int64_t heads = r.call.integer(2), depth = r.tensor(0).size(2) / 3 / heads;
  const Value x = plus(r.tensor(0), r.tensor(1));
  const Value parts = x.reshape({x.size(0), x.size(1), 3, heads, depth}).permute({2, 0, 3, 1, 4});
  for (int i = 0; i < 3; ++i)
    copy(r.tensor(3 + i), i ? parts.select(0, i) : times(parts.select(0, 0), full({}, mt::kFloat, 1 / std::sqrt(double(depth)))));
}

// ---- (x1, x2, bias?, scale?, permX1, permX2, permY, cubeMathType, batchSplitFactor, out) -------------------------------
Sizes permuted(const Call& c, int i, int perm) {
  const Span<int64_t> order = c.ints(perm);
  const Sizes sizes = sizes_of(c.tensor(i));
  Sizes made = sizes;
  EXPECT(!c.given(perm) || order.size() == int64_t(sizes.size()), "%s needs %ld items", c.row->args[perm].name, long(sizes.size()));
  for (int64_t d = 0; d < order.size(); ++d) made[d] = sizes[wrap_dim(order[d], int64_t(sizes.size()))];
  return made;
}
void check_transposed(const Call& c) {
  if (has(c, 3)) refuse(561003, "%s with scale is not computed", c.name());
  EXPECT(c.tensor(0).ndim == 3 && c.tensor(1).ndim == 3, "x1 and x2 must have 3 dims");
  const Sizes a = permuted(c, 0, 4), b = permuted(c, 1, 5);
  EXPECT(a[0] == b[0] && a[2] == b[1], "%s and %s cannot be multiplied", describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  EXPECT(c.tensor(9).numel() == a[0] * a[1] * b[2], "out %s does not fit", describe(c.tensor(9)).c_str());
}
void transposed(Run& r) {
  auto order = [&](int i) { return Sizes(r.call.ints(i).begin(), r.call.ints(i).end()); };
  Value a = r.tensor(0), b = r.tensor(1);
  if (r.given(4)) a = a.permute(order(4));
  if (r.given(5)) b = b.permute(order(5));
  Value y = product(a, b, {a.size(0), a.size(1), b.size(2)});
  if (has(r.call, 2)) y = plus(y, r.tensor(2));
  if (r.given(6) && r.call.ints(6).size() == 3) y = y.permute(order(6));
  copy(r.tensor(9), y.reshape(r.tensor(9).shape()));
}

// ---- (x1, x2, bias?, x3?, fusedOpType, cubeMathType, y) ----------------------------------------------------------------
void check_fused_product(const Call& c) {
  const std::string kind = c.string(4);
  for (const char* known : {"", "16cast32", "add", "mul", "gelu_erf", "gelu_tanh", "relu"})
    if (kind == known) {
      EXPECT((kind != "add" && kind != "mul") || has(c, 3), "x3 is needed for %s", known);
      EXPECT(c.tensor(0).ndim >= 2 && c.tensor(1).ndim >= 2, "x1 and x2 need at least 2 dims");
      return;
    }
  refuse(161002, "fusedOpType %s is not known", kind.c_str());
}
void fused_product(Run& r) {
  const Value out = r.tensor(6);
  const std::string kind = r.call.string(4);
  Value y = product(r.tensor(0), r.tensor(1), out.shape());
  if (has(r.call, 2)) y = plus(y, r.tensor(2));
  if (kind == "add") y = plus(y, r.tensor(3));
  else if (kind == "mul") y = times(y, r.tensor(3));
  else if (kind == "relu") y = pointwise("relu", mt::kFloat, {y});
  else if (kind == "gelu_erf" || kind == "gelu_tanh") y = pointwise("gelu", mt::kFloat, {y}, {string(kind == "gelu_erf" ? "none" : "tanh")});
  copy(out, y);
}

// ---- feed-forward: activation(x weight1 + bias1) weight2 + bias2, without experts and quantisation ----------------------
void check_ffn(const Call& c) {
  const int activation = argument(c, {"activation"});
  const std::string kind = c.string(activation);
  EXPECT(kind == "gelu" || kind == "relu" || kind == "silu" || kind == "fastgelu", "activation %s is not supported", kind.c_str());
  const int b1 = argument(c, {"bias1", "bias1Optional"}), b2 = argument(c, {"bias2", "bias2Optional"});
  for (int i = 3; i < c.row->nargs; ++i) {
    const Kind k = c.row->args[i].kind;
    const bool given = is_tensor(k) ? i != b1 && i != b2 && !is_output(k) && has(c, i) : k == Kind::k_ints && c.ints(i).size();
    if (given) refuse(561003, "%s with %s is not computed", c.name(), c.row->args[i].name);
  }
  const TensorMeta &x = c.tensor(0), &w1 = c.tensor(1), &w2 = c.tensor(2);
  EXPECT(w1.ndim == 2 && w2.ndim == 2 && x.ndim >= 2 && x.sizes[x.ndim - 1] == w1.sizes[0] && w1.sizes[1] == w2.sizes[0],
         "x %s, weight1 %s and weight2 %s do not fit", describe(x).c_str(), describe(w1).c_str(), describe(w2).c_str());
  Sizes out = sizes_of(x);
  out.back() = w2.sizes[1];
  expect_shape(c, c.row->nargs - 1, out);
}
void ffn(Run& r) {
  const Call& c = r.call;
  const std::string kind = c.string(argument(c, {"activation"}));
  const int b1 = argument(c, {"bias1", "bias1Optional"}), b2 = argument(c, {"bias2", "bias2Optional"});
  const Value x = r.tensor(0), w1 = r.tensor(1), w2 = r.tensor(2), out = r.tensor(c.row->nargs - 1);
  Sizes inner = x.shape();
  inner.back() = w1.size(1);
  Value y = product(x, w1, inner);
  if (has(c, b1)) y = plus(y, r.tensor(b1));
  if (kind == "gelu") y = pointwise("gelu", mt::kFloat, {y}, {string("none")});
  else if (kind != "fastgelu") y = pointwise(kind.c_str(), mt::kFloat, {y});
  else y = times(y, pointwise("sigmoid", mt::kFloat, {times(y, full({}, mt::kFloat, 1.702))}));
  y = product(y, w2, out.shape());
  copy(out, has(c, b2) ? plus(y, r.tensor(b2)) : y);
}

// ---- attention by parts: (attn, max, sum) twice, actualSeqQlen?, layout?, [that of max and sum?], then the three of both ------------------------
void check_ring(const Call& c) {
  const std::string layout = c.given(7) && *c.string(7) ? c.string(7) : "SBH";
  if (layout != "SBH") refuse(561003, "%s with inputLayout %s is not computed: only SBH is", c.name(), layout.c_str());
  EXPECT(c.tensor(0).ndim == 3 && c.tensor(1).ndim == 4, "prevAttnOut must be [S, B, H], prevSoftmaxMax [B, N, S, 8]");
  const int out = argument(c, {"attnOutOut"});
  for (int i : {3, out}) expect_same_shape(c, i, 0);
  for (int i : {2, 4, 5, out + 1, out + 2}) expect_same_shape(c, i, 1);
}
void ring(Run& r) {
  const Value prev = wide(r.tensor(0)), cur = wide(r.tensor(3)), max1 = wide(r.tensor(1)), sum1 = wide(r.tensor(2)),
              max2 = wide(r.tensor(4)), sum2 = wide(r.tensor(5));
  const int64_t length = prev.size(0), batch = prev.size(1), heads = max1.size(1), depth = prev.size(2) / heads, lanes = max1.size(3);
  const Value out = empty(prev.shape(), mt::kFloat), max = empty(max1.shape(), mt::kFloat), sum = empty(max1.shape(), mt::kFloat);
  for (int64_t i = 0, n = max.numel(); i < n; ++i) {
    const float m = std::max(max1.ptr<float>()[i], max2.ptr<float>()[i]);
    const float a = sum1.ptr<float>()[i] * std::exp(max1.ptr<float>()[i] - m), b = sum2.ptr<float>()[i] * std::exp(max2.ptr<float>()[i] - m);
    max.ptr<float>()[i] = m;
    sum.ptr<float>()[i] = a + b;
    if (i % lanes) continue;
    const int64_t at = i / lanes, s = at % length, h = at / length % heads, k = at / length / heads;
    const int64_t from = (s * batch + k) * heads * depth + h * depth;
    for (int64_t d = 0; d < depth; ++d)
      out.ptr<float>()[from + d] = (prev.ptr<float>()[from + d] * a + cur.ptr<float>()[from + d] * b) / (a + b);
  }
  const int first = argument(r.call, {"attnOutOut"});
  copy(r.tensor(first), out);
  copy(r.tensor(first + 1), max);
  copy(r.tensor(first + 2), sum);
}

// ---- x * (1 + scale) + shift: (grad, input [B, L, D], scale [B, D], shift, dx, dscale, dshift) ---------------------------
void check_modulate_backward(const Call& c) {
  const TensorMeta& x = c.tensor(1);
  EXPECT(x.ndim == 3, "input must have 3 dims, got %s", describe(x).c_str());
  expect_same_shape(c, 0, 1);
  expect_same_shape(c, 4, 1);
  for (int i : {2, 3, 5, 6}) EXPECT(!has(c, i) || c.tensor(i).numel() == x.sizes[0] * x.sizes[2], "%s %s does not fit",
                                    c.row->args[i].name, describe(c.tensor(i)).c_str());
}
void modulate_backward(Run& r) {
  const Value grad = r.tensor(0), x = r.tensor(1), out = r.tensor(4);
  const Sizes row{x.size(0), 1, x.size(2)};
  if (has(r.call, 2)) copy(out, times(grad, plus(r.tensor(2).reshape(row), full({}, mt::kFloat, 1))));
  else copy(out, grad);
  if (has(r.call, 5)) copy(r.tensor(5), summed(times(grad, x), {1}, {row[0], row[2]}).reshape(r.tensor(5).shape()));
  if (has(r.call, 6)) copy(r.tensor(6), summed(wide(grad), {1}, {row[0], row[2]}).reshape(r.tensor(6).shape()));
}

const Op ops[] = {
    {"aclnnMaskedSoftmaxWithRelPosBias", check_biased_softmax, biased_softmax},
    {"aclnnTransformBiasRescaleQkv", check_rescale, rescale},
    {"aclnnTransposeBatchMatMul", check_transposed, transposed},
    {"aclnnTransposeBatchMatMulWeightNz", check_transposed, transposed},
    {"aclnnFusedMatmul", check_fused_product, fused_product},
    {"aclnnFFN", check_ffn, ffn},
    {"aclnnFFNV2", check_ffn, ffn},
    {"aclnnFFNV3", check_ffn, ffn},
    {"aclnnRingAttentionUpdate", check_ring, ring},
    {"aclnnRingAttentionUpdateV2", check_ring, ring},
    {"aclnnModulateBackward", check_modulate_backward, modulate_backward},
};

}  // namespace
}  // namespace cann_sim
