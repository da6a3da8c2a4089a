// What stands before multi-head latent attention: queries and keys from compressed ones, normed, rotated, keys into caches.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/older.h"
#include "ops/pointwise.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
float at_most_127(float x) { return std::clamp(std::nearbyint(x), -128.0f, 127.0f); }

// ---- the computation, whichever interface asks for it ---------------------------------------------------------------------------
// Matrices are of floats, or of int8 with scales of rows (of x) and columns (of weights). Absent values are not asked for.
struct Latent {
  Value x, dq, uq, uk, dkv, gamma_q, gamma_kv, sin, cos, index;
  Value kv, kr;                                                // caches [blocks, size, 1, width]
  Value scale_x, scale_dq, scale_uq, scale_dkv;                // what int8 is restored with
  Value scale_kv, scale_kr, smooth;                            // what caches and compressed queries are made int8 with
  Value query, rope, query_scale, norm, norm_scale;
  double eps_q = 1e-5, eps_kv = 1e-5;
  float factor_q = 1, factor_kv = 1;
  std::string mode, name;
};
// The sizes: heads, depth of a head, compressed width and the part of places.
struct Widths {
  int64_t tokens, heads, depth, kv, place;
  explicit Widths(const Latent& l)
      : tokens(l.x.numel() / l.x.size(-1)), heads(l.uk.size(0)), depth(l.uk.size(1)), kv(l.uk.size(2)), place(l.sin.size(-1)) {}
};
Value dense_floats(const Value& v) { return v.to(mt::kFloat).dense(); }
Value product(const Value& a, const Value& b) {
  const DType t = a.dtype == mt::kInt8 ? mt::kDouble : mt::kFloat;  // sums of integers stay exact
  const Value made = empty({a.size(0), b.size(1)}, t);
  call_kernel("matmul", {made, a.to(t), b.to(t)});
  return made.to(mt::kFloat).dense();
}
// x by a weight, both restored with their scales where they are int8.
Value restored(const Value& x, const Value& weight, const Value& rows, const Value& columns) {
  Value made = product(x, weight);
  if (rows.given()) made = times(made, rows.to(mt::kFloat).reshape({-1, 1}));
  return (columns.given() ? times(made, columns.to(mt::kFloat).reshape({1, -1})) : made).dense();
}
// Every row over its root mean square, times gamma and a factor; in place.
void norm_rows(const Value& x, const Value& gamma, double eps, float factor) {
  const int64_t n = x.size(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    float* row = x.ptr<float>() + i * n;
    double square = 0;
    for (int64_t k = 0; k < n; ++k) square += double(row[k]) * row[k];
    const float scale = float(1 / std::sqrt(square / double(n) + eps)) * factor;
    for (int64_t k = 0; k < n; ++k) row[k] *= scale * gamma.ptr<float>()[k];
  }
}
// Rows as int8, each over its greatest item / 127, which goes into `scales`.
Value by_rows(const Value& x, const Value& scales) {
  const Value made = empty(x.shape(), mt::kInt8);
  const int64_t n = x.size(-1);
  for (int64_t row = 0; row < x.numel() / n; ++row) {
    const float* in = x.ptr<float>() + row * n;
    float most = 0;
    for (int64_t k = 0; k < n; ++k) most = std::max(most, std::fabs(in[k]));
    const float scale = scales.ptr<float>()[row] = most / 127;
    for (int64_t k = 0; k < n; ++k) made.ptr<int8_t>()[row * n + k] = static_cast<int8_t>(scale ? at_most_127(in[k] / scale) : 0);
  }
  return made;
}
// Neighbours are pairs; the first of all pairs come before the second ones.
void rotate(const float* x, const float* sin, const float* cos, int64_t n, float* out) {
  for (int64_t k = 0; k < n / 2; ++k) {
    out[k] = x[2 * k] * cos[k] - x[2 * k + 1] * sin[k];
    out[n / 2 + k] = x[2 * k + 1] * cos[n / 2 + k] + x[2 * k] * sin[n / 2 + k];
  }
}
// A row into its slot. A block of the mode PA_NZ is [pieces of 32 bytes, size, piece].
void store(const Latent& l, const Value& cache, int64_t at, const float* row, int64_t n, const Value& scale) {
  const int64_t size = cache.size(1);
  if (at < 0) return;                                       // a token that is not kept
  if (at >= cache.size(0) * size)
    throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, l.name + ": cacheIndex " + std::to_string(at) + " is outside of the cache");
  const Value made = empty({n}, mt::kFloat);
  for (int64_t k = 0; k < n; ++k)
    made.ptr<float>()[k] = scale.given() ? at_most_127(row[k] * scale.ptr<float>()[scale.numel() == 1 ? 0 : k]) : row[k];
  const Value block = cache.select(0, at / size);
  if (l.mode != "PA_NZ") return copy(block.select(0, at % size).reshape({n}), made);
  const int64_t piece = 32 / mt::itemsize(cache.dtype);
  copy(block.reshape({n / piece, size, piece}).select(1, at % size), made.reshape({n / piece, piece}));
}
// The compressed queries, quantised by rows where the next weight is int8.
Value decompressed(Latent& l, const Value& cq, const Widths& w) {
  if (l.uq.dtype != mt::kInt8) {
    if (l.norm.given()) copy(l.norm, cq.reshape(l.norm.shape()));
    return product(cq, l.uq).reshape({w.tokens, w.heads, w.depth + w.place});
  }
  const Value scales = empty({w.tokens}, mt::kFloat), smooth = l.smooth.given() ? times(cq, l.smooth.to(mt::kFloat).reshape({1, -1})).dense() : cq;
  const Value low = by_rows(smooth, scales);
  if (l.norm.given()) copy(l.norm, (l.norm.dtype == mt::kInt8 ? low : cq).reshape(l.norm.shape()));
  if (l.norm_scale.given()) copy(l.norm_scale, scales.reshape(l.norm_scale.shape()));
  return restored(low, l.uq, scales, l.scale_uq).reshape({w.tokens, w.heads, w.depth + w.place});
}
void prolog(Latent& l) {
  const Widths w(l);
  const Value x = l.x.reshape({w.tokens, -1}), sin = dense_floats(l.sin), cos = dense_floats(l.cos), index = l.index.to(mt::kInt64).dense();
  const Value cq = restored(x, l.dq, l.scale_x, l.scale_dq), down = restored(x, l.dkv, l.scale_x, l.scale_dkv), uk = dense_floats(l.uk);
  norm_rows(cq, dense_floats(l.gamma_q), l.eps_q, l.factor_q);
  const Value up = decompressed(l, cq, w).dense();
  const Value query = empty({w.tokens, w.heads, w.kv}, mt::kFloat), rope = empty({w.tokens, w.heads, w.place}, mt::kFloat);
  for (int64_t h = 0; h < w.heads; ++h)
    copy(query.select(1, h), product(up.select(1, h).narrow(1, 0, w.depth).dense(), uk.select(0, h).dense()));
  const Value ckv = down.narrow(1, 0, w.kv).dense();
  norm_rows(ckv, dense_floats(l.gamma_kv), l.eps_kv, l.factor_kv);
  const Value scale_kv = l.scale_kv.given() ? dense_floats(l.scale_kv) : Value(), scale_kr = l.scale_kr.given() ? dense_floats(l.scale_kr) : Value();
  std::vector<float> turned(static_cast<size_t>(w.place));
  for (int64_t t = 0; t < w.tokens; ++t) {
    const float *s = sin.ptr<float>() + t * w.place, *k = cos.ptr<float>() + t * w.place;
    for (int64_t h = 0; h < w.heads; ++h)
      rotate(up.ptr<float>() + (t * w.heads + h) * (w.depth + w.place) + w.depth, s, k, w.place, rope.ptr<float>() + (t * w.heads + h) * w.place);
    rotate(down.ptr<float>() + t * (w.kv + w.place) + w.kv, s, k, w.place, turned.data());
    store(l, l.kv, index.ptr<int64_t>()[t], ckv.ptr<float>() + t * w.kv, w.kv, scale_kv);
    store(l, l.kr, index.ptr<int64_t>()[t], turned.data(), w.place, scale_kr);
  }
  copy(l.rope, rope.reshape(l.rope.shape()));
  if (l.query.dtype != mt::kInt8) return copy(l.query, query.reshape(l.query.shape()));
  const Value scales = empty({w.tokens * w.heads}, mt::kFloat);
  copy(l.query, by_rows(query, scales).reshape(l.query.shape()));
  if (l.query_scale.given() && l.query_scale.numel() == scales.numel()) copy(l.query_scale, scales.reshape(l.query_scale.shape()));
}

// ---- (tokenX, weightDq, weightUqQr, weightUk, weightDkvKr, gammaCq, gammaCkv, sin, cos, …): the versions differ from here on ----
struct Prolog {
  int index, kv, kr, scale_x, scale_dq, scale_uq, scale_dkv, scale_kv, scale_kr, smooth, eps_q, eps_kv, mode, q_scale, k_scale, query, rope, found,
      norm, norm_scale, flags;
  explicit Prolog(const Call& c)
      : index(argument(c, {"cacheIndex", "cacheIndexOptional"})), kv(argument(c, {"kvCacheRef"})), kr(argument(c, {"krCacheRef"})),
        scale_x(argument(c, {"dequantScaleXOptional"})), scale_dq(argument(c, {"dequantScaleWDqOptional"})),
        scale_uq(argument(c, {"dequantScaleWUqQrOptional"})), scale_dkv(argument(c, {"dequantScaleWDkvKrOptional"})),
        scale_kv(argument(c, {"quantScaleCkvOptional"})), scale_kr(argument(c, {"quantScaleCkrOptional"})),
        smooth(argument(c, {"smoothScalesCqOptional"})), eps_q(argument(c, {"rmsnormEpsilonCq"})), eps_kv(argument(c, {"rmsnormEpsilonCkv"})),
        mode(argument(c, {"cacheModeOptional"})), q_scale(argument(c, {"qcQrScale"})), k_scale(argument(c, {"kcScale"})),
        query(argument(c, {"queryOut"})), rope(argument(c, {"queryRopeOut"})), found(argument(c, {"dequantScaleQNopeOutOptional"})),
        norm(argument(c, {"queryNormOutOptional"})), norm_scale(argument(c, {"dequantScaleQNormOutOptional"})), flags(argument(c, {"weightQuantMode"})) {}
};
std::string mode_of(const Call& c, const Prolog& at) { return c.given(at.mode) && *c.string(at.mode) ? c.string(at.mode) : "PA_BSND"; }
// Weights of int8 go with their scales, int8 out with what makes it so.
void expect_scales(const Call& c, const Prolog& at, int matrix, int scale, int64_t items) {
  const bool low = c.tensor(matrix).dtype == ACL_INT8;
  EXPECT(low || computes(c.tensor(matrix).dtype), "%s: %s %s", c.name(), c.row->args[matrix].name, describe(c.tensor(matrix)).c_str());
  EXPECT(low == has(c, scale), "%s: %s is %s, which goes %s %s", c.name(), c.row->args[matrix].name, describe(c.tensor(matrix)).c_str(),
         low ? "with" : "without", c.row->args[scale].name);
  if (low) EXPECT(c.tensor(scale).numel() == items || (c.tensor(scale).numel() == 1 && (matrix == at.kv || matrix == at.kr)), "%s %s", c.row->args[scale].name, describe(c.tensor(scale)).c_str());
}
void expect_modes(const Call& c, const Prolog& at) {
  for (const char* name : {"actualSeqLenOptional", "kNopeClipAlphaOptional"}) {
    const int i = argument(c, {name});
    if (has(c, i)) refuse(561003, "%s with %s is not computed", c.name(), name);
  }
  const int most[] = {2, 2, 1, 0, 0};                       // of weights, caches and queries; how scales and parts are kept
  for (int i = 0; at.flags >= 0 && i < 5; ++i)
    if (c.integer(at.flags + i) < 0 || c.integer(at.flags + i) > most[i])
      refuse(561003, "%s with %s %ld is not computed", c.name(), c.row->args[at.flags + i].name, c.integer(at.flags + i));
  for (int i : {0, 1, 2, 4})
    if (c.tensor(i).dtype != ACL_INT8 && !computes(c.tensor(i).dtype))
      refuse(561003, "%s with %s of data type %d is not computed", c.name(), c.row->args[i].name, c.tensor(i).dtype);
  const std::string mode = mode_of(c, at);
  if (mode != "PA_BSND" && mode != "PA_NZ") refuse(561003, "%s with cacheMode %s is not computed", c.name(), mode.c_str());
}
void check_prolog(const Call& c) {
  const Prolog at(c);
  expect_modes(c, at);
  const TensorMeta &x = c.tensor(0), &dq = c.tensor(1), &uk = c.tensor(3), &sin = c.tensor(7);
  EXPECT((x.ndim == 2 || x.ndim == 3) && x.numel() && dq.ndim == 2 && uk.ndim == 3 && sin.ndim == x.ndim, "%s: tokenX %s, weightDq %s, weightUk %s, ropeSin %s",
         c.name(), describe(x).c_str(), describe(dq).c_str(), describe(uk).c_str(), describe(sin).c_str());
  const int64_t tokens = x.numel() / x.sizes[x.ndim - 1], heads = uk.sizes[0], depth = uk.sizes[1], kv = uk.sizes[2], place = sin.sizes[sin.ndim - 1];
  EXPECT(place % 2 == 0, "%s: ropeSin %s", c.name(), describe(sin).c_str());
  const int64_t wide = x.sizes[x.ndim - 1], middle = dq.sizes[1];
  expect_shape(c, 1, {wide, middle});
  expect_shape(c, 2, {middle, heads * (depth + place)});
  expect_shape(c, 4, {wide, kv + place});
  expect_shape(c, 5, {middle});
  expect_shape(c, 6, {kv});
  for (int i : {7, 8}) expect_numel(c, i, tokens * place);
  EXPECT(has(c, at.index), "%s: cacheIndex is needed", c.name());
  expect_numel(c, at.index, tokens);
  for (int i : {at.kv, at.kr}) {
    const TensorMeta& cache = c.tensor(i);
    const int64_t width = i == at.kv ? kv : place;
    EXPECT(cache.ndim == 4 && cache.sizes[2] == 1 && cache.sizes[3] == width, "%s: %s %s", c.name(), c.row->args[i].name, describe(cache).c_str());
    EXPECT(mode_of(c, at) != "PA_NZ" || width % (32 / element_size(cache.dtype)) == 0, "%s: rows of %s are not whole pieces of 32 bytes", c.name(), c.row->args[i].name);
  }
  const std::pair<int, int> scaled[] = {{0, at.scale_x}, {1, at.scale_dq}, {2, at.scale_uq}, {4, at.scale_dkv}, {at.kv, at.scale_kv}, {at.kr, at.scale_kr}};
  const int64_t items[] = {tokens, middle, heads * (depth + place), kv + place, kv, place};
  for (size_t i = 0; i < std::size(scaled); ++i) expect_scales(c, at, scaled[i].first, scaled[i].second, items[i]);
  expect_numel(c, at.query, tokens * heads * kv);
  expect_numel(c, at.rope, tokens * heads * place);
  if (has(c, at.norm) && c.tensor(at.norm).numel() > 1) expect_numel(c, at.norm, tokens * middle);
}
void run_prolog(Run& r) {
  const Call& c = r.call;
  const Prolog at(c);
  auto optional = [&](int i) { return has(c, i) ? r.tensor(i) : Value(); };
  auto wanted = [&](int i) { return has(c, i) && c.tensor(i).numel() > 1 ? r.tensor(i) : Value(); };
  Latent l{r.tensor(0), r.tensor(1), r.tensor(2), r.tensor(3), r.tensor(4), r.tensor(5), r.tensor(6), r.tensor(7), r.tensor(8), r.tensor(at.index),
           r.tensor(at.kv), r.tensor(at.kr), optional(at.scale_x), optional(at.scale_dq), optional(at.scale_uq), optional(at.scale_dkv),
           optional(at.scale_kv), optional(at.scale_kr), optional(at.smooth), r.tensor(at.query), r.tensor(at.rope), optional(at.found), wanted(at.norm),
           optional(at.norm_scale)};
  l.eps_q = c.number(at.eps_q);
  l.eps_kv = c.number(at.eps_kv);
  if (at.q_scale >= 0) l.factor_q = float(c.number(at.q_scale));
  if (at.k_scale >= 0) l.factor_kv = float(c.number(at.k_scale));
  l.mode = mode_of(c, at);
  l.name = c.name();
  const int64_t tokens = l.x.numel() / l.x.size(-1);
  if (l.norm_scale.given() && l.norm_scale.numel() != tokens) l.norm_scale = Value();
  prolog(l);
}

// The older interface's op gives its caches as outputs, which may be the inputs' memory.
void older_prolog(Older& o) {
  for (size_t i : {0, 1})
    if (o.out(2 + i).data != o.in(10 + i).data) copy(o.out(2 + i), o.in(10 + i));
  Latent l{o.in(0), o.in(1), o.in(2), o.in(3), o.in(4), o.in(5), o.in(6), o.in(7), o.in(8), o.in(9), o.out(2), o.out(3), o.in(12), o.in(13), o.in(14), o.in(15),
           o.in(16), o.in(17), o.in(18), o.out(0), o.out(1), Value(), Value(), Value()};
  l.eps_q = o.real("rmsnorm_epsilon_cq", 1e-5);
  l.eps_kv = o.real("rmsnorm_epsilon_ckv", 1e-5);
  l.mode = o.text("cache_mode", "PA_BSND");
  l.name = o.name();
  if (l.mode != "PA_BSND" && l.mode != "PA_NZ") o.refuse("cache_mode " + l.mode + " is not computed");
  prolog(l);
}

const Op ops[] = {
    {"aclnnMlaProlog", check_prolog, run_prolog},
    {"aclnnMlaPrologV2WeightNz", check_prolog, run_prolog},
    {"aclnnMlaPrologV3WeightNz", check_prolog, run_prolog},
};
const OlderOps older_ops({{"MlaProlog", 12, 19, 4, older_prolog}});

}  // namespace
}  // namespace cann_sim
