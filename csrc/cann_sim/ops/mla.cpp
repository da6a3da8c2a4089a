// What stands before multi-head latent attention: queries and keys from compressed ones, normed, rotated, keys into caches.
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/pointwise.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }

// ---- (tokenX, weightDq, weightUqQr, weightUk, weightDkvKr, gammaCq, gammaCkv, sin, cos, …): the versions differ from here on ----
struct Prolog {
  int index, kv, kr, eps_q, eps_kv, mode, q_scale, k_scale, query, rope, found, norm, flags;
  explicit Prolog(const Call& c)
      : index(argument(c, {"cacheIndex", "cacheIndexOptional"})), kv(argument(c, {"kvCacheRef"})), kr(argument(c, {"krCacheRef"})),
        eps_q(argument(c, {"rmsnormEpsilonCq"})), eps_kv(argument(c, {"rmsnormEpsilonCkv"})),
        mode(argument(c, {"cacheModeOptional"})), q_scale(argument(c, {"qcQrScale"})), k_scale(argument(c, {"kcScale"})),
        query(argument(c, {"queryOut"})), rope(argument(c, {"queryRopeOut"})),
        found(argument(c, {"dequantScaleQNopeOutOptional"})), norm(argument(c, {"queryNormOutOptional"})),
        flags(argument(c, {"weightQuantMode"})) {}
};
// The sizes: heads, depth of a head, compressed width and the part of places.
struct Widths {
  int64_t tokens, heads, depth, kv, place;
  Widths(const TensorMeta& x, const TensorMeta& uk, const TensorMeta& sin)
      : tokens(x.numel() / x.sizes[x.ndim - 1]), heads(uk.sizes[0]), depth(uk.sizes[1]), kv(uk.sizes[2]),
        place(sin.sizes[sin.ndim - 1]) {}
};
void expect_unquantised(const Call& c, const Prolog& at) {
  for (int i = 0; i < c.row->nargs; ++i) {
    const std::string name = c.row->args[i].name;
    const bool scales = name.find("Scale") != std::string::npos && is_tensor(c.row->args[i].kind) && !is_output(c.row->args[i].kind);
    if ((scales || name == "actualSeqLenOptional" || name == "kNopeClipAlphaOptional") && has(c, i))
      refuse(561003, "%s with %s is not computed", c.name(), name.c_str());
  }
  for (int i = at.flags; at.flags >= 0 && i < at.flags + 5; ++i)
    if (c.integer(i)) refuse(561003, "%s with %s %ld is not computed", c.name(), c.row->args[i].name, c.integer(i));
  const std::string mode = c.given(at.mode) && *c.string(at.mode) ? c.string(at.mode) : "PA_BSND";
  if (mode != "PA_BSND") refuse(561003, "%s with cacheMode %s is not computed", c.name(), mode.c_str());
}
void check_prolog(const Call& c) {
  const Prolog at(c);
  expect_unquantised(c, at);
  const TensorMeta &x = c.tensor(0), &dq = c.tensor(1), &uk = c.tensor(3), &sin = c.tensor(7);
  EXPECT((x.ndim == 2 || x.ndim == 3) && x.numel() && dq.ndim == 2 && uk.ndim == 3 && sin.ndim == x.ndim, "%s: tokenX %s, weightDq %s, weightUk %s, ropeSin %s",
         c.name(), describe(x).c_str(), describe(dq).c_str(), describe(uk).c_str(), describe(sin).c_str());
  const Widths w(x, uk, sin);
  EXPECT(w.place % 2 == 0, "%s: ropeSin %s", c.name(), describe(sin).c_str());
  const int64_t wide = x.sizes[x.ndim - 1], middle = dq.sizes[1];
  expect_shape(c, 1, {wide, middle});
  expect_shape(c, 2, {middle, w.heads * (w.depth + w.place)});
  expect_shape(c, 4, {wide, w.kv + w.place});
  expect_shape(c, 5, {middle});
  expect_shape(c, 6, {w.kv});
  for (int i : {7, 8}) expect_numel(c, i, w.tokens * w.place);
  EXPECT(has(c, at.index), "%s: cacheIndex is needed", c.name());
  expect_numel(c, at.index, w.tokens);
  for (int i : {at.kv, at.kr}) {
    const TensorMeta& cache = c.tensor(i);
    EXPECT(cache.ndim == 4 && cache.sizes[2] == 1 && cache.sizes[3] == (i == at.kv ? w.kv : w.place), "%s: %s %s", c.name(),
           c.row->args[i].name, describe(cache).c_str());
  }
  expect_numel(c, at.query, w.tokens * w.heads * w.kv);
  expect_numel(c, at.rope, w.tokens * w.heads * w.place);
  if (has(c, at.norm) && c.tensor(at.norm).numel() > 1) expect_numel(c, at.norm, w.tokens * middle);
}
Value product(const Value& a, const Value& b) {
  const Value made = empty({a.size(0), b.size(1)}, mt::kFloat);
  call_kernel("matmul", {made, a, b});
  return made;
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
// Neighbours are pairs; the first of all pairs come before the second ones.
void rotate(const float* x, const float* sin, const float* cos, int64_t n, float* out) {
  for (int64_t k = 0; k < n / 2; ++k) {
    out[k] = x[2 * k] * cos[k] - x[2 * k + 1] * sin[k];
    out[n / 2 + k] = x[2 * k + 1] * cos[n / 2 + k] + x[2 * k] * sin[n / 2 + k];
  }
}
void store(Run& r, int cache, int64_t at, const float* row, int64_t n) {
  const Value to = r.tensor(cache);
  const int64_t size = to.size(1);
  if (at < 0) return;                                       // a token that is not kept
  if (at >= to.size(0) * size)
    throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(r.call.name()) + ": cacheIndex " + std::to_string(at) + " is outside of the cache");
  const Value made = empty({n}, mt::kFloat);
  std::copy_n(row, n, made.ptr<float>());
  copy(to.select(0, at / size).select(0, at % size), made.reshape({1, n}));
}
void prolog(Run& r) {
  const Call& c = r.call;
  const Prolog at(c);
  const Widths w(c.tensor(0), c.tensor(3), c.tensor(7));
  const Value x = floats(r, 0).reshape({w.tokens, -1}), sin = floats(r, 7), cos = floats(r, 8), index = index_value(r, at.index).dense();
  const Value cq = product(x, floats(r, 1)), down = product(x, floats(r, 4)), uk = floats(r, 3);
  norm_rows(cq, floats(r, 5), c.number(at.eps_q), at.q_scale < 0 ? 1 : float(c.number(at.q_scale)));
  const Value up = product(cq, floats(r, 2)).reshape({w.tokens, w.heads, w.depth + w.place});
  const Value query = empty({w.tokens, w.heads, w.kv}, mt::kFloat), rope = empty({w.tokens, w.heads, w.place}, mt::kFloat);
  for (int64_t h = 0; h < w.heads; ++h)
    copy(query.select(1, h), product(up.select(1, h).narrow(1, 0, w.depth).dense(), uk.select(0, h).dense()));
  const Value ckv = down.narrow(1, 0, w.kv).dense();
  norm_rows(ckv, floats(r, 6), c.number(at.eps_kv), at.k_scale < 0 ? 1 : float(c.number(at.k_scale)));
  std::vector<float> turned(static_cast<size_t>(w.place));
  for (int64_t t = 0; t < w.tokens; ++t) {
    const float *s = sin.ptr<float>() + t * w.place, *k = cos.ptr<float>() + t * w.place;
    for (int64_t h = 0; h < w.heads; ++h)
      rotate(up.ptr<float>() + (t * w.heads + h) * (w.depth + w.place) + w.depth, s, k, w.place, rope.ptr<float>() + (t * w.heads + h) * w.place);
    rotate(down.ptr<float>() + t * (w.kv + w.place) + w.kv, s, k, w.place, turned.data());
    store(r, at.kv, index.ptr<int64_t>()[t], ckv.ptr<float>() + t * w.kv, w.kv);
    store(r, at.kr, index.ptr<int64_t>()[t], turned.data(), w.place);
  }
  copy(r.tensor(at.query), query.reshape(r.tensor(at.query).shape()));
  copy(r.tensor(at.rope), rope.reshape(r.tensor(at.rope).shape()));
  if (has(c, at.norm) && c.tensor(at.norm).numel() == cq.numel()) copy(r.tensor(at.norm), cq.reshape(r.tensor(at.norm).shape()));
}

const Op ops[] = {
    {"aclnnMlaProlog", check_prolog, prolog},
    {"aclnnMlaPrologV2WeightNz", check_prolog, prolog},
    {"aclnnMlaPrologV3WeightNz", check_prolog, prolog},
};

}  // namespace
}  // namespace cann_sim
