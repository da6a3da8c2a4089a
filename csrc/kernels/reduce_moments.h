// Mean and squared deviations of a run of items, for variances and the norms. No op lives here.
#pragma once
#include "reduce.h"

namespace mt {

struct SquareLanes {
  template <class V> static void item(V& a, const V& x) { a += x * x; }
  template <class V> static void merge(V& a, const V& b) { a += b; }
};

// Of blocks, each by two passes in the cache; merged by Chan's rule.
struct Moments {
  double n, mean, m2;
  void join(double bn, double bmean, double bm2) {
    if (bn == 0) return;
    if (n == 0) {
      n = bn, mean = bmean, m2 = bm2;
      return;
    }
    double d = bmean - mean, total = n + bn;
    mean += d * (bn / total);
    m2 += bm2 + d * d * (n * bn / total);
    n = total;
  }
};

constexpr int64_t kMomentsBlock = 1024;
template <class T> inline void add_moments(Moments& s, const T* x, int64_t n) {
  alignas(64) T d[kMomentsBlock];
  for (int64_t i = 0; i < n; i += kMomentsBlock) {
    const T* p = x + i;
    int64_t m = std::min(kMomentsBlock, n - i);
    T sum, rest, square;
    fold_lanes<1, AddLanes>(p, m, T(0), &sum);
    double per = 1 / double(m);
    T mean = T(double(sum) * per);
    for (int64_t j = 0; j < m; ++j) d[j] = p[j] - mean;
    fold_lanes<1, AddLanes>(d, m, T(0), &rest);
    fold_lanes<1, SquareLanes>(d, m, T(0), &square);
    // The rounding of `mean` is made good by what the deviations still sum to.
    double r = double(rest) * per;
    s.join(double(m), double(mean) + r, double(square) - double(rest) * r);
  }
}

template <class T> inline T total(const T* x, int64_t n) {
  T s;
  fold_lanes<1, AddLanes>(x, n, T(0), &s);
  return s;
}

// The sum of x * y, in blocks as short as those of a sum.
template <class T> inline double dot(const T* x, const T* y, int64_t n) {
  typedef T V __attribute__((vector_size(32)));
  constexpr int L = 32 / sizeof(T), K = 4;
  double sum = 0;
  int64_t i = 0;
  while (i + K * L <= n) {
    V acc[K] = {}, a, b;
    for (int64_t end = std::min(n, i + kRowBlock / 2); i + K * L <= end; i += K * L)
      for (int k = 0; k < K; ++k) {
        std::memcpy(&a, x + i + k * L, 32);
        std::memcpy(&b, y + i + k * L, 32);
        acc[k] += a * b;
      }
    acc[0] = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    for (int k = 0; k < L; ++k) sum += double(acc[0][k]);
  }
  for (; i < n; ++i) sum += double(x[i]) * double(y[i]);
  return sum;
}

}  // namespace mt
