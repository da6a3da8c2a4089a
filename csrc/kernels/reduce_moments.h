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

}  // namespace mt
