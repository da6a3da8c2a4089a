// Planes side by side, one in each lane of a vector: how loops over small images use whole vectors.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "panel.h"

namespace mt {

template <class T> struct PlaneLanes {
  static constexpr int kCount = kLanes * 4 / sizeof(T);
  typedef T V __attribute__((vector_size(kLanes * 4)));
  typedef T Anywhere __attribute__((vector_size(kLanes * 4), aligned(sizeof(T)), may_alias));  // a V at any address
  using Indices = std::make_integer_sequence<int, kCount>;

  // Of two rows that lie kApart apart: columns with that bit of the one change places with columns without it of the other.
  template <int kApart, int... J> static void exchange(V& a, V& b, std::integer_sequence<int, J...>) {
    const V low = __builtin_shufflevector(a, b, ((J & kApart) ? kCount + J - kApart : J)...);
    b = __builtin_shufflevector(a, b, ((J & kApart) ? kCount + J : J + kApart)...);
    a = low;
  }
  template <int kApart = 1> static void transpose(V (&r)[kCount]) {
    MT_UNROLL for (int i = 0; i < kCount; ++i)
      if (!(i & kApart)) exchange<kApart>(r[i], r[i + kApart], Indices());
    if constexpr (2 * kApart < kCount) transpose<2 * kApart>(r);
  }

  // Items begin..end of the planes side by side, those of item i at to[(i - begin) * step].
  static void load(const T* const* plane, int64_t begin, int64_t end, T* to, int64_t step = kCount) {
    if (end - begin < kCount) {
      for (int64_t i = begin; i < end; ++i)
        for (int l = 0; l < kCount; ++l) to[(i - begin) * step + l] = plane[l][i];
      return;
    }
    for (int64_t i = begin; i < end; i += kCount) {
      const int64_t at = std::min(i, end - kCount);  // the last ones again, instead of fewer
      V r[kCount];
      MT_UNROLL for (int l = 0; l < kCount; ++l) r[l] = *reinterpret_cast<const Anywhere*>(plane[l] + at);
      transpose(r);
      MT_UNROLL for (int l = 0; l < kCount; ++l) *reinterpret_cast<Anywhere*>(to + (at - begin + l) * step) = r[l];
    }
  }
  // The sums of kCount planes of n items that follow each other: short ones, whose sums would each wait for the one before.
  static V totals(const T* x, int64_t n) {
    V sums[kCount] = {}, all{};
    int64_t i = 0;
    for (; i + kCount <= n; i += kCount)
      MT_UNROLL for (int l = 0; l < kCount; ++l) sums[l] += *reinterpret_cast<const Anywhere*>(x + l * n + i);
    transpose(sums);
    MT_UNROLL for (int l = 0; l < kCount; ++l) all += sums[l];
    for (; i < n; ++i)
      for (int l = 0; l < kCount; ++l) all[l] += x[l * n + i];
    return all;
  }

  // Back again: items begin..end of the first `count` planes.
  static void store(const T* from, int64_t begin, int64_t end, T* const* plane, int count, int64_t step = kCount) {
    if (end - begin < kCount) {
      for (int64_t i = begin; i < end; ++i)
        for (int l = 0; l < count; ++l) plane[l][i] = from[(i - begin) * step + l];
      return;
    }
    for (int64_t i = begin; i < end; i += kCount) {
      const int64_t at = std::min(i, end - kCount);
      V r[kCount];
      MT_UNROLL for (int l = 0; l < kCount; ++l) r[l] = *reinterpret_cast<const Anywhere*>(from + (at - begin + l) * step);
      transpose(r);
      if (count == kCount) {
        MT_UNROLL for (int l = 0; l < kCount; ++l) *reinterpret_cast<Anywhere*>(plane[l] + at) = r[l];
      } else {
        for (int l = 0; l < count; ++l) *reinterpret_cast<Anywhere*>(plane[l] + at) = r[l];
      }
    }
  }
};

// f(i, sum of plane i) for the planes [begin, end) of n, at least PlaneLanes<T>::kCount. How a plane is summed does not depend
// on the range it is in, and so not on the number of threads.
template <class T, class F> void for_each_total(const T* x, int64_t n, int64_t plane, int64_t begin, int64_t end, F&& f) {
  constexpr int64_t kCount = PlaneLanes<T>::kCount;
  for (int64_t p = begin; p < end; p += kCount) {
    const int64_t first = std::min(p, n - kCount);
    const auto sums = PlaneLanes<T>::totals(x + first * plane, plane);
    for (int64_t i = p; i < std::min(p + kCount, end); ++i) f(i, sums[i - first]);
  }
}

}  // namespace mt
