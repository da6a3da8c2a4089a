// Fused forms that networks use: softmax with a bias of places, scaled heads, products with what follows them, feed-forward
// layers, updates of attention by parts, modulation. Choices of tokens and experts are in moe_routing.cpp.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/low_float.h"
#include "ops/pointwise.h"
#include "ops/quant_matmul.h"

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
  if (has(c, 1)) EXPECT(plane && heads && c.tensor(1).numel() % plane == 0 && x.numel() % (c.tensor(1).numel() * heads) == 0,
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
  EXPECT(c.tensor(0).ndim == 3 && c.tensor(1).ndim == 3, "x1 and x2 must have 3 dims");
  const Sizes a = permuted(c, 0, 4), b = permuted(c, 1, 5);
  EXPECT(a[0] == b[0] && a[2] == b[1], "%s and %s cannot be multiplied", describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  EXPECT(c.tensor(9).numel() == a[0] * a[1] * b[2], "out %s does not fit", describe(c.tensor(9)).c_str());
  if (has(c, 3)) EXPECT(c.tensor(3).numel() == a[0] * b[2], "scale has %ld items, expected %ld", long(c.tensor(3).numel()), long(a[0] * b[2]));
}
void transposed(Run& r) {
  auto order = [&](int i) { return Sizes(r.call.ints(i).begin(), r.call.ints(i).end()); };
  Value a = r.tensor(0), b = r.tensor(1);
  if (r.given(4)) a = a.permute(order(4));
  if (r.given(5)) b = b.permute(order(5));
  Value y = product(a, b, {a.size(0), a.size(1), b.size(2)});
  if (has(r.call, 2)) y = plus(y, r.tensor(2));
  if (has(r.call, 3)) y = times(y, scale_of(r, 3).reshape({y.size(0), 1, y.size(2)}));
  if (r.given(6) && r.call.ints(6).size() == 3) y = y.permute(order(6));
  y = y.reshape(r.tensor(9).shape());
  if (r.call.tensor(9).dtype == ACL_INT8) return store_low(r, 9, y.dense(), "rint");
  copy(r.tensor(9), y);
}

// ---- (x1, x2, bias?, x3?, fusedOpType, cubeMathType, y) ----------------------------------------------------------------
void expect_product(const Call& c) {
  const TensorMeta &a = c.tensor(0), &b = c.tensor(1);
  EXPECT(a.ndim >= 2 && b.ndim >= 2, "x1 and x2 need at least 2 dims");
  EXPECT(a.sizes[a.ndim - 1] == b.sizes[b.ndim - 2], "x1 %s and x2 %s cannot be multiplied", describe(a).c_str(), describe(b).c_str());
  Sizes out = broadcast_sizes(Sizes(a.sizes, a.sizes + a.ndim - 2), Sizes(b.sizes, b.sizes + b.ndim - 2));
  out.push_back(a.sizes[a.ndim - 2]);
  out.push_back(b.sizes[b.ndim - 1]);
  expect_shape(c, 6, out);
}
void check_fused_product(const Call& c) {
  const std::string kind = c.string(4);
  for (const char* known : {"", "16cast32", "add", "mul", "gelu_erf", "gelu_tanh", "relu"})
    if (kind == known) {
      EXPECT((kind != "add" && kind != "mul") || has(c, 3), "x3 is needed for %s", known);
      expect_product(c);
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

// ---- feed-forward: activation(x weight1 + bias1) weight2 + bias2, with weights of their own for the rows of each expert ----
// Integers are scaled after each product and made integers again in between (scale, offset); weights alone may be integers,
// with antiquant scales and offsets.
struct Ffn {
  int tokens, b1, b2, scale, offset, deq1, deq2, anti1, anti2, shift1, shift2, activation, ends, out;
  explicit Ffn(const Call& c)
      : tokens(argument(c, {"expertTokens", "expertTokensOptional"})), b1(argument(c, {"bias1", "bias1Optional"})),
        b2(argument(c, {"bias2", "bias2Optional"})), scale(argument(c, {"scale", "scaleOptional"})),
        offset(argument(c, {"offset", "offsetOptional"})), deq1(argument(c, {"deqScale1", "deqScale1Optional"})),
        deq2(argument(c, {"deqScale2", "deqScale2Optional"})), anti1(argument(c, {"antiquantScale1", "antiquantScale1Optional"})),
        anti2(argument(c, {"antiquantScale2", "antiquantScale2Optional"})),
        shift1(argument(c, {"antiquantOffset1", "antiquantOffset1Optional"})),
        shift2(argument(c, {"antiquantOffset2", "antiquantOffset2Optional"})), activation(argument(c, {"activation"})),
        ends(argument(c, {"tokensIndexFlag"})), out(c.row->nargs - 1) {}
  bool by_experts(const Call& c) const {
    return c.row->args[tokens].kind == Kind::k_ints ? c.given(tokens) && c.ints(tokens).size() : has(c, tokens);
  }
};
bool is_gated(const std::string& kind) { return kind == "geglu" || kind == "swiglu" || kind == "reglu"; }

void check_ffn(const Call& c) {
  const Ffn at(c);
  const std::string kind = c.string(at.activation);
  const bool gated = is_gated(kind);
  EXPECT(gated || kind == "gelu" || kind == "relu" || kind == "silu" || kind == "fastgelu", "activation %s is not supported", kind.c_str());
  const TensorMeta &x = c.tensor(0), &w1 = c.tensor(1), &w2 = c.tensor(2);
  const int experts = at.by_experts(c);
  EXPECT(w1.ndim == 2 + experts && w2.ndim == w1.ndim && x.ndim >= 2 && x.sizes[x.ndim - 1] == w1.sizes[experts] &&
             w1.sizes[experts + 1] == w2.sizes[experts] * (1 + gated) && (!experts || w1.sizes[0] == w2.sizes[0]),
         "x %s, weight1 %s and weight2 %s do not fit", describe(x).c_str(), describe(w1).c_str(), describe(w2).c_str());
  const int64_t count = c.row->args[at.tokens].kind == Kind::k_ints ? (experts ? int64_t(c.ints(at.tokens).size()) : 0) : experts ? c.tensor(at.tokens).numel() : 0;
  EXPECT(!experts || count == w1.sizes[0], "%ld expertTokens for the weights of %ld experts", long(count), long(w1.sizes[0]));
  if (x.dtype == ACL_INT8) EXPECT(has(c, at.scale) && has(c, at.deq1) && has(c, at.deq2) && !gated, "int8 needs scale, deqScale1, deqScale2 and an activation without a gate");
  else EXPECT((w1.dtype == ACL_INT8) == has(c, at.anti1) && (w2.dtype == ACL_INT8) == has(c, at.anti2), "weights of int8 need antiquantScale1 and 2");
  Sizes out = sizes_of(x);
  out.back() = w2.sizes[experts + 1];
  expect_shape(c, at.out, out);
}
Value activated(const Value& x, const std::string& kind) {
  if (is_gated(kind)) {
    const int64_t half = x.size(-1) / 2;
    const Value gate = activated(x.narrow(x.ndim - 1, 0, half), kind == "geglu" ? "gelu" : kind == "swiglu" ? "silu" : "relu");
    return times(gate, x.narrow(x.ndim - 1, half, half));
  }
  if (kind == "gelu") return pointwise("gelu", mt::kFloat, {x}, {string("none")});
  if (kind != "fastgelu") return pointwise(kind.c_str(), mt::kFloat, {x});
  return times(x, pointwise("sigmoid", mt::kFloat, {times(x, full({}, mt::kFloat, 1.702))}));
}
void ffn(Run& r) {
  const Call& c = r.call;
  const Ffn at(c);
  const std::string kind = c.string(at.activation);
  const bool integers = c.tensor(0).dtype == ACL_INT8;
  const Value out = r.tensor(at.out), rows = r.tensor(0).dense().reshape({-1, r.tensor(0).size(-1)});
  const Value results = empty({rows.size(0), out.size(-1)}, mt::kFloat);
  // Argument i of an expert (or of the only one, -1); what is absent stays so.
  auto of = [&](int i, int64_t expert) {
    if (!has(c, i)) return Value();
    const Value v = c.tensor(i).dtype == ACL_UINT64 || c.tensor(i).dtype == ACL_INT64 ? scale_of(r, i) : wide(r.tensor(i));
    return expert < 0 ? v : v.select(0, expert);
  };
  auto layer = [&](const Value& x, int64_t expert, const Value& into) {
    if (!x.size(0)) return;
    auto weight = [&](int i, int scale, int shift) {
      Value w = of(i, expert);
      if (integers || !has(c, scale)) return w;
      if (has(c, shift)) w = plus(w, of(shift, expert));
      return times(w, of(scale, expert));
    };
    auto linear = [&](const Value& from, const Value& w, int bias, int deq) {
      Value y = product(from, w, {from.size(0), w.size(1)});
      if (has(c, bias)) y = plus(y, of(bias, expert));
      return integers ? times(y, of(deq, expert)) : y;
    };
    Value y = activated(linear(wide(x), weight(1, at.anti1, at.shift1), at.b1, at.deq1), kind);
    if (integers) {
      y = times(y, of(at.scale, expert));
      if (has(c, at.offset)) y = plus(y, of(at.offset, expert));
      y = y.dense();
      for (int64_t i = 0, n = y.numel(); i < n; ++i) y.ptr<float>()[i] = std::min(127.f, std::max(-128.f, std::nearbyint(y.ptr<float>()[i])));
    }
    copy(into, linear(y, weight(2, at.anti2, at.shift2), at.b2, at.deq2));
  };
  if (!at.by_experts(c)) {
    layer(rows, -1, results);
  } else {
    Sizes counts;
    if (c.row->args[at.tokens].kind == Kind::k_ints) counts.assign(c.ints(at.tokens).begin(), c.ints(at.tokens).end());
    else {
      const Value v = r.tensor(at.tokens).to(mt::kInt64).dense();
      counts.assign(v.ptr<int64_t>(), v.ptr<int64_t>() + v.numel());
    }
    const bool ends = at.ends >= 0 && c.integer(at.ends);
    int64_t begin = 0;
    for (size_t e = 0; e < counts.size(); ++e) {
      const int64_t end = ends ? counts[e] : begin + counts[e];
      if (end < begin || end > rows.size(0))
        throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": expertTokens do not fit the rows of x");
      layer(rows.narrow(0, begin, end - begin), int64_t(e), results.narrow(0, begin, end - begin));
      begin = end;
    }
  }
  copy(out, results.reshape(out.shape()));
}

// ---- attention by parts: (attn, max, sum) twice, actualSeqQlen?, layout?, [that of max and sum?], then the three of both ------------------------
void check_ring(const Call& c) {
  const std::string layout = c.given(7) && *c.string(7) ? c.string(7) : "SBH";
  if (layout != "SBH") refuse(561003, "%s with inputLayout %s is not computed: only SBH is", c.name(), layout.c_str());
  EXPECT(c.tensor(0).ndim == 3 && c.tensor(1).ndim == 4, "prevAttnOut must be [S, B, H], prevSoftmaxMax [B, N, S, 8]");
  const TensorMeta &x = c.tensor(0), &m = c.tensor(1);
  EXPECT(m.sizes[0] == x.sizes[1] && m.sizes[2] == x.sizes[0] && m.sizes[1] && m.sizes[3] && x.sizes[2] % m.sizes[1] == 0,
         "prevSoftmaxMax %s for prevAttnOut %s", describe(m).c_str(), describe(x).c_str());
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
