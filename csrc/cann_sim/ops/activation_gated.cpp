// Gated activations: a tensor is split in two along a dim, one half is activated and multiplied with the other.
#include <algorithm>
#include <cmath>

#include "ops/pointwise.h"

namespace cann_sim {
namespace {

struct Halves {
  Value left, right;
};
Halves halves(const Value& x, int64_t dim) {
  const int64_t half = x.size(dim) / 2;
  return {x.narrow(dim, 0, half), x.narrow(dim, half, half)};
}

// Argument `whole` splits evenly along dim; every one of `parts` has the shape of a half.
void expect_halves(const Call& c, int whole, int64_t dim, std::initializer_list<int> parts) {
  const TensorMeta& x = c.tensor(whole);
  EXPECT(x.ndim > 0, "%s: a 0-dim tensor cannot be split", c.name());
  dim = wrap_dim(dim, x.ndim);
  EXPECT(x.sizes[dim] % 2 == 0, "%s: dim %ld of %s does not split evenly", c.name(), dim, describe(x).c_str());
  Sizes half = sizes_of(x);
  half[dim] /= 2;
  dtype_of(x.dtype);
  for (int i : parts) {
    expect_shape(c, i, half);
    if (c.given(i)) dtype_of(c.tensor(i).dtype);
  }
}
DType wide(const Value& x) { return opmath(x.dtype); }
void write_product(const Value& out, const Value& a, const Value& b) {
  call_pointwise("mul", wide(a), {out, a, b});
}

// ---- SwiGlu: silu(left) * right -----------------------------------------------------------------
void check_swiglu(const Call& c) { expect_halves(c, 0, c.integer(1), {2}); }
void run_swiglu(Run& run) {
  const Value x = run.tensor(0);
  const auto [left, right] = halves(x, run.call.integer(1));
  write_product(run.tensor(2), pointwise("silu", wide(x), {left}), right);
}
void check_swiglu_grad(const Call& c) {  // (yGrad, x, dim, out)
  expect_halves(c, 1, c.integer(2), {0});
  expect_same_shape(c, 3, 1);
}
void run_swiglu_grad(Run& run) {
  const int64_t dim = run.call.integer(2);
  const Value grad = run.tensor(0), x = run.tensor(1);
  const auto [left, right] = halves(x, dim);
  const auto [to_left, to_right] = halves(run.tensor(3), dim);
  call_pointwise("silu_backward", wide(x), {to_left, pointwise("mul", wide(x), {grad, right}), left});
  write_product(to_right, pointwise("silu", wide(x), {left}), grad);
}

// ---- Glu: left * sigmoid(right) -----------------------------------------------------------------
void check_glu(const Call& c) { expect_halves(c, 0, c.integer(1), {2}); }
void run_glu(Run& run) {
  const Value x = run.tensor(0);
  const auto [left, right] = halves(x, run.call.integer(1));
  write_product(run.tensor(2), pointwise("sigmoid", wide(x), {right}), left);
}
void run_glu_backward(Run& run) {
  const int64_t dim = run.call.integer(2);
  const Value grad = run.tensor(0), x = run.tensor(1);
  const auto [left, right] = halves(x, dim);
  const auto [to_left, to_right] = halves(run.tensor(3), dim);
  const Value gate = pointwise("sigmoid", wide(x), {right});
  write_product(to_left, gate, grad);
  call_pointwise("sigmoid_backward", wide(x), {to_right, pointwise("mul", wide(x), {grad, left}), gate});
}

// ---- GeGlu: one half * gelu(other half); the right one is activated unless activateLeft ---------
const char* gelu_form(int64_t approximate) { return approximate ? "tanh" : "none"; }

// GeGlu(self, dim, approximate, out, outGelu); V3 has activateLeft before the outputs.
template <bool v3> void check_geglu(const Call& c) {
  EXPECT(c.integer(2) == 0 || c.integer(2) == 1, "%s: expected approximate 0 or 1, got %ld", c.name(), c.integer(2));
  expect_halves(c, 0, c.integer(1), {3 + v3, 4 + v3});
}
template <bool v3> void run_geglu(Run& run) {
  const Value x = run.tensor(0);
  auto [plain, active] = halves(x, run.call.integer(1));
  if (v3 && run.call.integer(3)) std::swap(plain, active);
  const Value gelu = pointwise("gelu", wide(x), {active}, {string(gelu_form(run.call.integer(2)))});
  copy(run.tensor(4 + v3), gelu);
  write_product(run.tensor(3 + v3), gelu, plain);
}
// GeGluBackward(gradOutput, self, gelu, dim, approximate, gradInput); V3 has activateLeft before the output.
template <bool v3> void check_geglu_backward(const Call& c) {
  EXPECT(c.integer(4) == 0 || c.integer(4) == 1, "%s: expected approximate 0 or 1, got %ld", c.name(), c.integer(4));
  expect_halves(c, 1, c.integer(3), {0, 2});
  expect_same_shape(c, 5 + v3, 1);
}
template <bool v3> void run_geglu_backward(Run& run) {
  const int64_t dim = run.call.integer(3);
  const Value grad = run.tensor(0), x = run.tensor(1), gelu = run.tensor(2);
  auto [plain, active] = halves(x, dim);
  auto [to_plain, to_active] = halves(run.tensor(5 + v3), dim);
  if (v3 && run.call.integer(5)) std::swap(plain, active), std::swap(to_plain, to_active);
  call_pointwise("mul", wide(x), {to_plain, grad, gelu});
  call_pointwise("gelu_backward", wide(x), {to_active, pointwise("mul", wide(x), {grad, plain}), active},
                 {string(gelu_form(run.call.integer(4)))});
}

// ---- over the last dim: gelu(left) * right, and (left above the threshold) * right --------------
void check_gelu_mul(const Call& c) {
  const std::string form = c.given(1) ? c.string(1) : "none";
  EXPECT(form == "none" || form == "tanh", "%s: expected approximate none or tanh, got %s", c.name(), form.c_str());
  expect_halves(c, 0, -1, {2});
}
void run_gelu_mul(Run& run) {
  const Value x = run.tensor(0);
  const auto [left, right] = halves(x, -1);
  const char* form = run.given(1) ? run.call.string(1) : "none";
  write_product(run.tensor(2), pointwise("gelu", wide(x), {left}, {string(form)}), right);
}
void check_fatrelu_mul(const Call& c) {
  expect_one_element(c, 1);
  expect_halves(c, 0, -1, {2});
}
void run_fatrelu_mul(Run& run) {
  const Value x = run.tensor(0);
  const auto [left, right] = halves(x, -1);
  const double edge = *run.tensor(1).reshape({}).to(mt::kDouble).ptr<double>();
  write_product(run.tensor(2), pointwise("threshold", wide(x), {left}, {number(edge), number(0)}), right);
}

// ---- ClippedSwiglu: min(a, limit) sigmoid(alpha a) * (b limited to both sides + bias) ----------------
struct Clipped {
  int64_t dim;
  float alpha, limit, bias;
  bool interleaved;
};
Clipped clipped_at(const Call& c, int dim) {  // (dim, alpha, limit, bias, interleaved)
  return {c.integer(dim), float(c.number(dim + 1)), float(c.number(dim + 2)), float(c.number(dim + 3)),
          c.integer(dim + 4) != 0};
}
// The rows that are computed: all, or as many as the groups have together. The rest of the output is left as it is.
int64_t row_count(Run& run, int groups, int64_t rows) {
  if (!run.given(groups)) return rows;
  const Value sizes = run.tensor(groups).to(mt::kInt64).dense();
  int64_t sum = 0;
  for (int64_t i = 0, n = sizes.numel(); i < n; ++i) sum += sizes.ptr<int64_t>()[i];
  return std::min(sum, rows);
}
// [rows, width] with everything from `dim` on in one row, and its two operands: neighbours, or halves.
Value flat_rows(const Value& x, int64_t dim) {
  int64_t rows = 1;
  for (int64_t d = 0; d < wrap_dim(dim, x.ndim); ++d) rows *= x.sizes[d];
  return x.reshape({rows, rows ? x.numel() / rows : 0});
}
Halves operands(const Value& rows, bool interleaved) {
  if (!interleaved) return halves(rows, 1);
  const int64_t half = rows.sizes[1] / 2;
  return {rows.narrow(1, 0, half, 2), rows.narrow(1, 1, half, 2)};
}
// (x, groupIndex?, dim, alpha, limit, bias, interleaved, [clampMode], out); clampMode 1 limits after silu, without alpha and bias.
template <bool v2> void check_clipped(const Call& c) {
  expect_halves(c, 0, c.integer(2), {7 + v2});
  EXPECT(!c.given(1) || c.tensor(1).ndim == 1, "%s: expected groupIndex of 1 dim", c.name());
  EXPECT(!v2 || c.integer(7) == 0 || c.integer(7) == 1, "%s: clampMode %ld is not 0 or 1", c.name(), long(c.integer(7)));
}
template <bool v2> void run_clipped(Run& run) {
  Clipped k = clipped_at(run.call, 2);
  const bool after = v2 && run.call.integer(7);
  if (after) k.alpha = 1, k.bias = 0;
  const Value x = flat_rows(run.tensor(0).to(mt::kFloat), k.dim), out = run.tensor(7 + v2), y = flat_rows(out, k.dim);
  const int64_t rows = row_count(run, 1, x.sizes[0]);
  const auto [a, b] = operands(x.narrow(0, 0, rows), k.interleaved);
  auto limited = [&](const Value& v) { return pointwise("clamp", mt::kFloat, {v}, {none(), number(k.limit)}); };
  const Value left = after ? a : limited(a);
  const Value right = pointwise("clamp", mt::kFloat, {b}, {number(-k.limit), number(k.limit)});
  const Value scaled = pointwise("mul", mt::kFloat, {left, full({}, mt::kFloat, k.alpha)});
  const Value gate = pointwise("mul", mt::kFloat, {left, pointwise("sigmoid", mt::kFloat, {scaled})});
  const Value shifted = pointwise("add", mt::kFloat, {right, full({}, mt::kFloat, k.bias)}, {integer(1)});
  write_product(y.narrow(0, 0, rows), after ? limited(gate) : gate, shifted);
  if (y.data != out.data) copy(out, y.reshape(out.shape()));
}
void check_clipped_grad(const Call& c) {  // (gradY, x, groupIndex?, dim, alpha, limit, bias, interleaved, gradX)
  expect_halves(c, 1, c.integer(3), {0});
  expect_same_shape(c, 8, 1);
  dtype_of(c.tensor(8).dtype);
}
void run_clipped_grad(Run& run) {
  const Clipped k = clipped_at(run.call, 3);
  const Value x = flat_rows(run.tensor(1).to(mt::kFloat), k.dim), out = run.tensor(8), dx = flat_rows(out, k.dim);
  const int64_t rows = row_count(run, 2, x.sizes[0]);
  const auto [a, b] = operands(x.narrow(0, 0, rows), k.interleaved);
  const auto [to_a, to_b] = operands(dx.narrow(0, 0, rows), k.interleaved);
  const Value dy = flat_rows(run.tensor(0).to(mt::kFloat), k.dim), p = a.dense(), q = b.dense();
  const Value da = empty(p.shape(), mt::kFloat), db = empty(p.shape(), mt::kFloat);
  for (int64_t i = 0, n = p.numel(); i < n; ++i) {
    const float g = dy.ptr<float>()[i], u = p.ptr<float>()[i], v = q.ptr<float>()[i];
    const float left = std::min(u, k.limit), right = std::min(std::max(v, -k.limit), k.limit);
    const float s = 1 / (1 + std::exp(-k.alpha * left));
    da.ptr<float>()[i] = u <= k.limit ? g * (right + k.bias) * s * (1 + k.alpha * left * (1 - s)) : 0;
    db.ptr<float>()[i] = right == v ? g * left * s : 0;
  }
  copy(to_a, da);
  copy(to_b, db);
  if (dx.data != out.data) copy(out, dx.reshape(out.shape()));
}

// ---- Modulate: self * (1 + scale) + shift, of [B, L, D] by [B, D] or [B, 1, D] -----------------------
void check_modulate(const Call& c) {
  const Sizes self = sizes_of(c.tensor(0));
  EXPECT(self.size() == 3, "%s: expected self of 3 dims, got %s", c.name(), describe(c.tensor(0)).c_str());
  for (int i : {1, 2})
    if (c.given(i)) expect_shape(c, i, c.tensor(i).ndim == 2 ? Sizes{self[0], self[2]} : Sizes{self[0], 1, self[2]});
  expect_same_shape(c, 3, 0);
  for (int i = 0; i < 4; ++i)
    if (c.given(i)) dtype_of(c.tensor(i).dtype);
}
void run_modulate(Run& run) {
  auto middle = [&](int i) {
    const Value v = run.tensor(i);
    return v.ndim == 2 ? v.unsqueeze(1) : v;
  };
  Value y = run.tensor(0);
  const DType compute = wide(y);
  if (run.given(1)) y = pointwise("addcmul", compute, {y, y, middle(1)}, {integer(1)});
  if (run.given(2)) y = pointwise("add", compute, {y, middle(2)}, {integer(1)});
  copy(run.tensor(3), y);
}

const Op ops[] = {
    {"aclnnSwiGlu", check_swiglu, run_swiglu},
    {"aclnnSwiGluGrad", check_swiglu_grad, run_swiglu_grad},
    {"aclnnGlu", check_glu, run_glu},
    {"aclnnGluBackward", check_swiglu_grad, run_glu_backward},
    {"aclnnGeGlu", check_geglu<false>, run_geglu<false>},
    {"aclnnGeGluV3", check_geglu<true>, run_geglu<true>},
    {"aclnnGeGluBackward", check_geglu_backward<false>, run_geglu_backward<false>},
    {"aclnnGeGluV3Backward", check_geglu_backward<true>, run_geglu_backward<true>},
    {"aclnnGeluMul", check_gelu_mul, run_gelu_mul},
    {"aclnnFatreluMul", check_fatrelu_mul, run_fatrelu_mul},
    {"aclnnClippedSwiglu", check_clipped<false>, run_clipped<false>},
    {"aclnnClippedSwigluV2", check_clipped<true>, run_clipped<true>},
    {"aclnnClippedSwigluGrad", check_clipped_grad, run_clipped_grad},
    {"aclnnModulate", check_modulate, run_modulate},
};

}  // namespace
}  // namespace cann_sim
