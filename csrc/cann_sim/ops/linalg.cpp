// Linear algebra of matrices (inverse, determinants, QR, SVD, Cholesky, triangular solves), cross products, distances.
// Products of matrices: matmul.cpp; einsum: linalg_einsum.cpp.
#include <algorithm>
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

Sizes batch_of(const TensorMeta& t) { return Sizes(t.sizes, t.sizes + t.ndim - 2); }
Sizes with(Sizes batch, std::initializer_list<int64_t> last) {
  batch.insert(batch.end(), last);
  return batch;
}
void expect_square(const Call& c, int i) {
  const TensorMeta& t = c.tensor(i);
  EXPECT(t.ndim >= 2 && t.sizes[t.ndim - 1] == t.sizes[t.ndim - 2], "%s %s is no batch of square matrices",
         c.row->args[i].name, describe(t).c_str());
}
// LAPACK computes in these.
DType lapack_dtype(DType t) { return is_float(t) ? opmath(t) : t; }
Value info_for(const Value& matrices) {
  Sizes shape = matrices.shape();
  return empty(Sizes(shape.begin(), shape.end() - 2), mt::kInt32);
}

// ---- inverse: (self, out) --------------------------------------------------------------------------------------
void check_inverse(const Call& c) {
  expect_square(c, 0);
  expect_same_shape(c, 1, 0);
}
void inverse(Run& r) {
  Value self = r.tensor(0);
  DType t = lapack_dtype(self.dtype);
  into(r.tensor(1), t, [&](const Value& out) {
    call_kernel("linalg_inv_ex", {out, info_for(self), self.to(t)}, {integer(0)});
  });
}

// ---- determinants: (self, sign, log) and (self, out) -----------------------------------------------------------
struct Determinant {
  Value sign, log;
  explicit Determinant(const Value& self) {
    Sizes shape = self.shape(), batch(shape.begin(), shape.end() - 2), pivots(shape.begin(), shape.end() - 1);
    sign = empty(batch, self.dtype), log = empty(batch, real_of(self.dtype));
    call_kernel("_linalg_slogdet", {sign, log, empty(shape, self.dtype), empty(pivots, mt::kInt32), self});
  }
};
void check_slogdet(const Call& c) {
  expect_square(c, 0);
  for (int i : {1, 2}) expect_shape(c, i, batch_of(c.tensor(0)));
}
void slogdet(Run& r) {
  Determinant d(r.tensor(0));
  copy(r.tensor(1), d.sign);
  copy(r.tensor(2), d.log);
}
void check_logdet(const Call& c) {
  expect_square(c, 0);
  expect_shape(c, 1, batch_of(c.tensor(0)));
}
// log(sign) + log|det|: NaN for a negative real determinant.
void logdet(Run& r) {
  Determinant d(r.tensor(0));
  DType t = d.sign.dtype;
  call_pointwise("log", t, {d.sign, d.sign});
  call_pointwise("add", t, {r.tensor(1), d.sign, d.log}, {number(1)});
}

// ---- QR: (self, mode, Q, R); mode 0 reduced, 1 complete, 2 R alone. aclnnQr has `some` instead -----------------
enum QrMode { kReduced, kComplete, kOnlyR };
QrMode qr_mode(const Call& c) {
  if (c.row->args[1].kind == Kind::k_bool) return c.integer(1) ? kReduced : kComplete;
  EXPECT(c.integer(1) >= kReduced && c.integer(1) <= kOnlyR, "mode %ld is not in [0, 2]", long(c.integer(1)));
  return QrMode(c.integer(1));
}
void check_qr(const Call& c) {
  const TensorMeta& a = c.tensor(0);
  QrMode mode = qr_mode(c);
  EXPECT(a.ndim >= 2, "%s is no batch of matrices", describe(a).c_str());
  int64_t m = a.sizes[a.ndim - 2], n = a.sizes[a.ndim - 1], k = mode == kComplete ? m : std::min(m, n);
  if (mode != kOnlyR) expect_shape(c, 2, with(batch_of(a), {m, k}));
  expect_shape(c, 3, with(batch_of(a), {k, n}));
}
void qr(Run& r) {
  constexpr const char* kModes[] = {"reduced", "complete", "r"};
  Value self = r.tensor(0), q = r.tensor(2);
  DType t = lapack_dtype(self.dtype);
  QrMode mode = qr_mode(r.call);
  Value unused = empty({}, t);
  into(r.tensor(3), t, [&](const Value& upper) {
    if (mode == kOnlyR) return call_kernel("linalg_qr", {unused, upper, self.to(t)}, {string(kModes[mode])});
    into(q, t, [&](const Value& basis) {
      call_kernel("linalg_qr", {basis, upper, self.to(t)}, {string(kModes[mode])});
    });
  });
}

// ---- SVD: (input, fullMatrices, computeUV, sigma, u, v); v is V, not its adjoint -------------------------------
void check_svd(const Call& c) {
  const TensorMeta& a = c.tensor(0);
  EXPECT(a.ndim >= 2, "%s is no batch of matrices", describe(a).c_str());
  int64_t m = a.sizes[a.ndim - 2], n = a.sizes[a.ndim - 1], k = std::min(m, n);
  expect_shape(c, 3, with(batch_of(a), {k}));
  // Where they are not asked for, CANN fills u and v with zeros, and its sources check their shapes all the same; torch_npu
  // passes empty ones there.
  const bool omitted = !c.integer(2) && !c.tensor(4).numel() && !c.tensor(5).numel() && !settings().strict;
  if (!omitted) {
    expect_shape(c, 4, with(batch_of(a), {m, c.integer(1) ? m : k}));
    expect_shape(c, 5, with(batch_of(a), {n, c.integer(1) ? n : k}));
  }
  for (int i : {3, 4, 5}) expect_same_dtype(c, 0, i);
}
void svd(Run& r) {
  Value a = r.tensor(0), u = r.tensor(4), v = r.tensor(5);
  bool vectors = r.call.integer(2);
  DType t = lapack_dtype(a.dtype);
  Sizes batch = batch_of(r.call.tensor(0));
  int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  bool full = r.call.integer(1);
  Value left = empty(with(batch, {m, full ? m : k}), t), right = empty(with(batch, {full ? n : k, n}), t),
        sigma = empty(with(batch, {k}), real_of(t));
  call_kernel("_linalg_svd", {left, sigma, right, info_for(a), a.to(t)}, {integer(full), integer(vectors), none()});
  copy(r.tensor(3), sigma);
  if (!vectors) {
    fill(u, 0);
    fill(v, 0);
    return;
  }
  copy(u, left);
  if (mt::is_complex(t)) call_pointwise("conj_physical", t, {right, right});
  copy(v, right.transpose(-1, -2));
}

// ---- Cholesky: (self, upper, out) ------------------------------------------------------------------------------
void check_cholesky(const Call& c) {
  expect_square(c, 0);
  expect_same_shape(c, 2, 0);
}
void cholesky(Run& r) {
  Value self = r.tensor(0);
  DType t = lapack_dtype(self.dtype);
  into(r.tensor(2), t, [&](const Value& out) {
    call_kernel("linalg_cholesky_ex", {out, info_for(self), self.to(t)}, {integer(r.call.integer(1)), integer(0)});
  });
}

// ---- triangular solve: (self, A, upper, transpose, unitriangular, x, m): A x = self, and m is a copy of A ------
Sizes solve_batch(const Call& c) { return broadcast_sizes(batch_of(c.tensor(0)), batch_of(c.tensor(1))); }
void check_triangular(const Call& c) {
  const TensorMeta &b = c.tensor(0), &a = c.tensor(1);
  expect_square(c, 1);
  EXPECT(b.ndim >= 2 && b.sizes[b.ndim - 2] == a.sizes[a.ndim - 1], "self %s does not fit A %s", describe(b).c_str(),
         describe(a).c_str());
  expect_same_dtype(c, 1, 0);
  expect_shape(c, 5, with(solve_batch(c), {b.sizes[b.ndim - 2], b.sizes[b.ndim - 1]}));
  expect_shape(c, 6, with(solve_batch(c), {a.sizes[a.ndim - 2], a.sizes[a.ndim - 1]}));
}
void triangular(Run& r) {
  const Call& c = r.call;
  Value x = r.tensor(5), m = r.tensor(6), a = r.tensor(1).expand(m.shape()), b = r.tensor(0).expand(x.shape());
  bool transposed = c.integer(3);
  call_kernel("linalg_solve_triangular", {x, transposed ? a.transpose(-1, -2) : a, b},
              {integer(bool(c.integer(2)) != transposed), integer(1), integer(c.integer(4))});
  copy(m, a);
}

// ---- cross products: (self, other, dim, out) -------------------------------------------------------------------
void check_cross(const Call& c) {
  Sizes out = broadcast_sizes(sizes_of(c.tensor(0)), sizes_of(c.tensor(1)));
  int64_t dim = wrap_dim(c.integer(2), int64_t(out.size()));
  EXPECT(c.tensor(0).ndim == c.tensor(1).ndim, "%s and %s differ in dims", describe(c.tensor(0)).c_str(),
         describe(c.tensor(1)).c_str());
  EXPECT(c.tensor(0).sizes[dim] == 3 && c.tensor(1).sizes[dim] == 3, "dim %ld of %s and %s must have size 3", long(dim),
         describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  expect_shape(c, 3, out);
}
void cross(Run& r) {
  Value out = r.tensor(3), a = r.tensor(0).expand(out.shape()), b = r.tensor(1).expand(out.shape());
  DType t = promote(a.dtype, b.dtype), sum = opmath(t);
  int64_t dim = wrap_dim(r.call.integer(2), out.ndim);
  Value made = empty(out.shape(), t);
  Value left = empty(made.select(dim, 0).shape(), sum), right = empty(left.shape(), sum);
  for (int i = 0; i < 3; ++i) {
    auto part = [&](const Value& v, int k) { return v.select(dim, (i + k) % 3); };
    call_pointwise("mul", sum, {left, part(a, 1), part(b, 2)});
    call_pointwise("mul", sum, {right, part(a, 2), part(b, 1)});
    call_pointwise("sub", sum, {part(made, 0), left, right}, {number(1)});
  }
  copy(out, made);
}

// ---- distances -------------------------------------------------------------------------------------------------
// (x1, x2, p, computeMode, out)
void check_cdist(const Call& c) {
  const TensorMeta &a = c.tensor(0), &b = c.tensor(1);
  EXPECT(a.ndim >= 2 && b.ndim >= 2 && a.sizes[a.ndim - 1] == b.sizes[b.ndim - 1], "%s and %s have no distances",
         describe(a).c_str(), describe(b).c_str());
  EXPECT(c.number(2) >= 0, "p must not be negative, got %g", c.number(2));
  EXPECT(c.integer(3) >= 0 && c.integer(3) <= 2, "compute_mode %ld is not in [0, 2]", long(c.integer(3)));
  expect_shape(c, 4, with(broadcast_sizes(batch_of(a), batch_of(b)), {a.sizes[a.ndim - 2], b.sizes[b.ndim - 2]}));
}
void cdist(Run& r) {
  Value a = r.tensor(0), b = r.tensor(1);
  DType t = opmath(promote(a.dtype, b.dtype));
  into(r.tensor(4), t, [&](const Value& out) {
    call_kernel("cdist", {out, a.to(t), b.to(t)}, {number(r.call.number(2)), integer(r.call.integer(3))});
  });
}

// (self [N, M], p, out [N (N - 1) / 2]): every pair once. p is a float or a scalar.
double pdist_p(const Call& c) { return c.row->args[1].kind == Kind::k_scalar ? c.scalar(1).re : c.number(1); }
void check_pdist(const Call& c) {
  int64_t n = c.tensor(0).sizes[0];
  EXPECT(pdist_p(c) >= 0, "p must not be negative, got %g", pdist_p(c));
  expect_shape(c, 2, {n * (n - 1) / 2});
}
void pdist(Run& r) {
  Value x = r.tensor(0).to(mt::kFloat);
  int64_t n = x.size(0), at = 0;
  Value all = empty({n, n}, mt::kFloat), out = r.tensor(2);
  constexpr int64_t kByDifferences = 2;  // the product form loses small distances
  call_kernel("cdist", {all, x, x}, {number(pdist_p(r.call)), integer(kByDifferences)});
  for (int64_t i = 0; i + 1 < n; at += n - 1 - i, ++i)
    copy(out.narrow(0, at, n - 1 - i), all.select(0, i).narrow(0, i + 1, n - 1 - i));
}

const Op ops[] = {
    {"aclnnInverse", check_inverse, inverse},
    {"aclnnSlogdet", check_slogdet, slogdet},
    {"aclnnLogdet", check_logdet, logdet},
    {"aclnnLinalgQr", check_qr, qr},
    {"aclnnQr", check_qr, qr},
    {"aclnnSvd", check_svd, svd},
    {"aclnnLinalgCholesky", check_cholesky, cholesky},
    {"aclnnTriangularSolve", check_triangular, triangular},
    {"aclnnLinalgCross", check_cross, cross},
    {"aclnnCdist", check_cdist, cdist},
    {"aclnnPdist", check_pdist, pdist},
    {"aclnnPdistForward", check_pdist, pdist},
};

}  // namespace
}  // namespace cann_sim
