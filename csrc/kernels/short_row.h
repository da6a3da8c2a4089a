// Rows of 16 to 256 items by vectors of 16: what softmax and the cross entropy share.
#pragma once
#include <cmath>

#include "reduce_exp.h"

namespace mt {

constexpr int64_t kVectors = 256;  // items of such a row, at most

// A row of few vectors. The last one overlaps the one before it, so that no loop has an end of its own: such ends would take
// longer than the row.
template <class T> struct Block {
  static constexpr int64_t kItems = 16;
  typedef T Items __attribute__((vector_size(kItems * sizeof(T))));
  typedef T Anywhere __attribute__((vector_size(kItems * sizeof(T)), aligned(sizeof(T)), may_alias));
  static Items load(const T* p) { return *reinterpret_cast<const Anywhere*>(p); }
  static void store(T* p, Items v) { *reinterpret_cast<Anywhere*>(p) = v; }
  static Items powers(const T* x, T max) {
    alignas(64) T e[kItems];
    for (int64_t j = 0; j < kItems; ++j) e[j] = exp_nonpositive(x[j] - max);
    return load(e);
  }
  template <class F> static T fold(Items v, F f) {
    v = f(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    v = f(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    v = f(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    v = f(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    return v[0];
  }
  static T maximum(const T* x, int64_t whole, Items most) {
    const auto greater = [](auto a, auto b) { return b > a ? b : a; };  // a NaN is in the sum of the powers anyway
    for (int64_t i = 0; i < whole; i += kItems) most = greater(most, load(x + i));
    return fold(most, greater);
  }
  // The last vector without its first items, which are in the one before it.
  static Items end_of(Items v, int64_t twice) {
    static constexpr T once[2 * kItems] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                           1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return v * load(once + kItems - twice);
  }
};

// The largest item of such a row and the sum of the powers under it.
template <class T> void short_powers(const T* x, int64_t n, T* to) {
  using B = Block<T>;
  const int64_t whole = (n - 1) / B::kItems * B::kItems, tail = n - B::kItems;
  const T max = B::maximum(x, whole, B::load(x + tail));
  auto sum = B::end_of(B::powers(x + tail, max), whole - tail);
  for (int64_t i = 0; i < whole; i += B::kItems) sum += B::powers(x + i, max);
  to[0] = max, to[1] = B::fold(sum, [](auto a, auto b) { return a + b; });
}

}  // namespace mt
