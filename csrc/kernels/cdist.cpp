// cdist: distances between all pairs of rows of two matrices.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "dispatch.h"
#include "gemm.h"
#include "library.h"
#include "parallel.h"

namespace mt {
namespace {

// One distance; the partial sums vectorise where one running sum may not.
template <class T, class Term, class Join> inline T over_pair(const T* a, const T* b, int64_t n, Term term, Join join) {
  constexpr int L = 16;
  T lanes[L] = {};
  int64_t i = 0;
  for (; i + L <= n; i += L)
    for (int j = 0; j < L; ++j) lanes[j] = join(lanes[j], term(a[i + j] - b[i + j]));
  for (; i < n; ++i) lanes[0] = join(lanes[0], term(a[i] - b[i]));
  for (int j = 1; j < L; ++j) lanes[0] = join(lanes[0], lanes[j]);
  return lanes[0];
}

template <class T> T distance(const T* a, const T* b, int64_t n, double p) {
  auto add = [](T x, T y) { return x + y; };
  auto larger = [](T x, T y) { return x != x || x > y ? x : y; };  // NaN wins
  if (p == 2) return std::sqrt(over_pair(a, b, n, [](T d) { return d * d; }, add));
  if (p == 1) return over_pair(a, b, n, [](T d) { return std::abs(d); }, add);
  if (p == 0) return over_pair(a, b, n, [](T d) { return T(d != 0); }, add);
  if (std::isinf(p)) return over_pair(a, b, n, [](T d) { return std::abs(d); }, larger);
  const T power = T(p);
  return std::pow(over_pair(a, b, n, [power](T d) { return std::pow(std::abs(d), power); }, add), 1 / power);
}

// Euclidean distances through a product: |a - b|^2 = |a|^2 + |b|^2 - 2 a.b, cut off at 0 where rounding falls below.
template <class T> void euclid_by_product(DType t, int64_t P, int64_t R, int64_t M, const T* a, const T* b, T* out) {
  auto squares = [M](const T* x, int64_t rows) {
    std::unique_ptr<T[]> s(new T[std::max<int64_t>(rows, 1)]);
    const std::unique_ptr<T[]> zero(new T[M + 1]());
    for (int64_t i = 0; i < rows; ++i)
      s[i] = over_pair(x + i * M, zero.get(), M, [](T d) { return d * d; }, [](T u, T v) { return u + v; });
    return s;
  };
  const auto a2 = squares(a, P), b2 = squares(b, R);
  gemm(t, false, true, P, R, M, -2, a, M, b, M, 0, out, R);
  parallel_for(P, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, R)), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      for (int64_t j = 0; j < R; ++j) {
        const T d = out[i * R + j] + a2[i] + b2[j];
        out[i * R + j] = std::sqrt(d < 0 ? T(0) : d);
      }
  });
}

// A dense copy of a tensor, its batch dims broadcast to those of out.
template <class T> struct Dense {
  std::unique_ptr<T[]> memory;
  Dense(const View& x, const View& out) {
    int64_t sizes[kMaxDims], from[kMaxDims], to[kMaxDims], n = 1;
    for (int d = 0; d < out.ndim; ++d) {
      const int s = x.ndim - out.ndim + d;
      sizes[d] = d >= out.ndim - 2 ? x.sizes[s] : out.sizes[d];
      from[d] = s >= 0 && x.sizes[s] != 1 ? x.strides[s] : 0;
    }
    for (int d = out.ndim - 1; d >= 0; --d) to[d] = n, n *= sizes[d];
    memory.reset(new T[std::max<int64_t>(n, 1)]);
    if (n) copy(View{memory.get(), sizes, to, out.ndim, x.dtype}, View{x.data, sizes, from, out.ndim, x.dtype});
  }
};

template <class T> void run(const View& out, const View& x1, const View& x2, double p, int64_t mode) {
  const int64_t P = x1.sizes[x1.ndim - 2], R = x2.sizes[x2.ndim - 2], M = x1.sizes[x1.ndim - 1];
  const Dense<T> a(x1, out), b(x2, out);
  const int64_t n = out.numel(), batch = P != 0 && R != 0 ? n / (P * R) : 0;
  int64_t strides[kMaxDims], step = 1;
  for (int d = out.ndim - 1; d >= 0; --d) strides[d] = step, step *= out.sizes[d];
  std::unique_ptr<T[]> own(out.contiguous() ? nullptr : new T[std::max<int64_t>(n, 1)]);
  T* to = own ? own.get() : out.ptr<T>();
  const bool by_product = p == 2 && (mode == 1 || (mode == 0 && (P > 25 || R > 25)));
  if (by_product) {
    for (int64_t i = 0; i < batch; ++i)
      euclid_by_product(out.dtype, P, R, M, a.memory.get() + i * P * M, b.memory.get() + i * R * M, to + i * P * R);
  } else {
    parallel_for(batch * P, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, R * M)), [&](int64_t from, int64_t end) {
      for (int64_t i = from; i < end; ++i)
        for (int64_t j = 0; j < R; ++j)
          to[i * R + j] = distance(a.memory.get() + i * M, b.memory.get() + (i / P * R + j) * M, M, p);
    });
  }
  if (own && n) copy(out, View{own.get(), out.sizes, strides, out.ndim, out.dtype});
}

// cdist(Tensor x1, Tensor x2, float p=2, int? compute_mode=None) -> Tensor
void cdist(const Args& g) {
  const View &out = g.t[0], &x1 = g.t[1], &x2 = g.t[2];
  const double p = g.na > 0 && g.a[0].given ? g.a[0].f : 2;
  const int64_t mode = g.na > 1 && g.a[1].given ? g.a[1].i : 0;
  if (x1.ndim < 2 || x2.ndim < 2) throw std::runtime_error("cdist only supports at least 2D tensors");
  if (x1.sizes[x1.ndim - 1] != x2.sizes[x2.ndim - 1])
      throw std::runtime_error("X1 and X2 must have the same number of columns.");
  if (p < 0) throw std::runtime_error("cdist only supports non-negative p values");
  if (mode < 0 || mode > 2) throw std::runtime_error("possible modes: 0, 1, 2, but was: " + std::to_string(mode));
  MT_SWITCH(out.dtype, "cdist", MT_FLOATS(T, run<T>(out, x1, x2, p, mode);))
}

const Register registered[] = {{"cdist", cdist}, {"_cdist_forward", cdist}};

}  // namespace
}  // namespace mt
