// Inside of attention: heads of a batch, blocks of rows in the compute type, the mask, and the loops of softmax.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "gemm.h"
#include "library.h"
#include "scalar.h"

namespace mt {

// Which head of which batch element: leading dims (batch..., heads) as the query has them. Key and value may have
// fewer heads: each serves `group` heads of the query that follow each other.
struct Heads {
  int n;
  int64_t sizes[kMaxDims], count = 1, group = 1;
  Heads(const View& query, const View& key) : n(query.ndim - 2) {
    if (n < 0 || key.ndim < 2)
      throw std::runtime_error("scaled_dot_product_attention: query, key and value must have at least 2 dimensions");
    for (int d = 0; d < n; ++d) count *= sizes[d] = query.sizes[d];
    if (n && key.ndim > 2) {
      const int64_t own = key.sizes[key.ndim - 3];
      if (own > 0 && sizes[n - 1] > 0 && own != sizes[n - 1]) {
        if (sizes[n - 1] % own)
          throw std::runtime_error("scaled_dot_product_attention: the number of heads in key and value must divide the "
                                   "number of heads in query");
        group = sizes[n - 1] / own;
      }
    }
  }
  // Item offset in a view that ends in `tail` dims of its own and broadcasts to the leading dims.
  int64_t offset(const View& v, int tail, int64_t head, bool grouped) const {
    int64_t at = 0;
    for (int d = n - 1; d >= 0; --d) {
      const int from = v.ndim - tail - n + d;
      int64_t i = head % sizes[d];
      head /= sizes[d];
      if (grouped && d == n - 1) i /= group;
      if (from >= 0 && v.sizes[from] != 1) at += i * v.strides[from];
    }
    return at;
  }
};

// The matrix of one head.
struct Rows {
  char* data;
  DType dtype;
  int64_t rows, cols, rs, cs;
  Rows(const View& v, const Heads& h, int64_t head, bool grouped)
      : data(v.ptr<char>() + h.offset(v, 2, head, grouped) * itemsize(v.dtype)), dtype(v.dtype),
          rows(v.sizes[v.ndim - 2]),
        cols(v.sizes[v.ndim - 1]), rs(v.strides[v.ndim - 2]), cs(v.strides[v.ndim - 1]) {}

  bool direct(DType compute) const { return dtype == compute && cs == 1 && rs >= cols; }
  // Rows [from, from + n) in the compute type: where they lie if they can be used there, else copied to scratch.
  template <class C> const C* read(DType compute, int64_t from, int64_t n, C* scratch, int64_t* ld) const {
    if (direct(compute)) {
      *ld = rs;
      return reinterpret_cast<const C*>(data) + from * rs;
    }
    move(compute, from, n, scratch, false);
    *ld = cols;
    return scratch;
  }
  template <class C> void write(DType compute, int64_t from, int64_t n, C* values)
      const { move(compute, from, n, values, true); }

 private:
  void move(DType compute, int64_t from, int64_t n, void* values, bool out) const {
    const int64_t sizes[] = {n, cols}, here[] = {rs, cs}, there[] = {cols, 1};
    const View mine{data + from * rs * itemsize(dtype), sizes, here, 2, dtype}, other{values, sizes, there, 2, compute};
    if (n && cols) out ? copy(mine, other) : copy(other, mine);
  }
};

// A boolean mask (true takes part) or a mask to add; broadcasts to (heads..., L, S).
struct Mask {
  View view;
  explicit Mask(const View& v) : view(v) {}
  // Applies row `row`, keys [from, from + n), of this head to the scores.
  template <class C> void apply(const Heads& h, int64_t head, int64_t row, int64_t from, int64_t n, C* scores) const {
    if (!view.given()) return;
    auto stride = [&](int from_end) {
      const int d = view.ndim - from_end;
      return d >= 0 && view.sizes[d] != 1 ? view.strides[d] : 0;
    };
    const int64_t cs = stride(1), at = h.offset(view, 2, head, false) + row * stride(2) + from * cs;
    switch (view.dtype) {
      case kBool: {
        const b8* m = view.ptr<b8>() + at;
        const C none = -std::numeric_limits<C>::infinity();
        if (cs == 1) for (int64_t j = 0; j < n; ++j) scores[j] = m[j] ? scores[j] : none;
        else for (int64_t j = 0; j < n; ++j) scores[j] = m[j * cs] ? scores[j] : none;
        break;
      }
      case kHalf: return add(view.ptr<f16>() + at, cs, n, scores);
      case kBFloat16: return add(view.ptr<bf16>() + at, cs, n, scores);
      case kFloat: return add(view.ptr<float>() + at, cs, n, scores);
      case kDouble: return add(view.ptr<double>() + at, cs, n, scores);
      default: throw std::runtime_error("Expected attn_mask dtype to be bool or float or to match query dtype");
    }
  }

 private:
  template <class M, class C> static void add(const M* m, int64_t cs, int64_t n, C* scores) {
    if (cs == 1) for (int64_t j = 0; j < n; ++j) scores[j] += cast<C>(m[j]);
    else for (int64_t j = 0; j < n; ++j) scores[j] += cast<C>(m[j * cs]);
  }
};

// exp(x) for x <= 0 or NaN, written so that it vectorises; 0 below the smallest normal number.
inline float exp_nonpositive(float x) {
  constexpr float magic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float t = x * 1.44269504f + magic, n = t - magic, r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.f / 5040;
  p = p * r + 1.f / 720, p = p * r + 1.f / 120, p = p * r + 1.f / 24, p = p * r + 1.f / 6, p = p * r + .5f;
  p = p * r + 1.f, p = p * r + 1.f;
  uint32_t bits;
  std::memcpy(&bits, &t, 4);
  bits = (bits << 23) + 0x3f800000u;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return x < -87.3f ? 0.f : p * scale;
}
inline double exp_nonpositive(double x) {
  constexpr double magic = 6755399441055744.;  // 1.5 * 2^52
  const double t = x * 1.4426950408889634 + magic, n = t - magic;
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1. / 6227020800.;
  for (double c : {1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120,
                   1. / 24, 1. / 6, .5, 1., 1.}) p = p * r + c;
  uint64_t bits;
  std::memcpy(&bits, &t, 8);
  bits = (bits << 52) + 0x3ff0000000000000u;
  double scale;
  std::memcpy(&scale, &bits, 8);
  return x < -708. ? 0. : p * scale;
}

// The two loops of softmax keep `Lanes` partial results, since one running result may not be vectorised.
template <int Lanes, class C> inline C largest_by(const C* s, int64_t n, C m) {
  C lanes[Lanes];
  std::fill_n(lanes, Lanes, m);
  int64_t j = 0;
  for (; j + Lanes <= n; j += Lanes)
    for (int i = 0; i < Lanes; ++i) lanes[i] = s[j + i] > lanes[i] ? s[j + i] : lanes[i];
  for (; j < n; ++j) lanes[0] = s[j] > lanes[0] ? s[j] : lanes[0];
  for (int i = 1; i < Lanes; ++i) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  return lanes[0];
}
template <int Lanes, class C> inline C exp_and_sum_by(C* s, int64_t n, C m) {
  C lanes[Lanes] = {};
  int64_t j = 0;
  for (; j + Lanes <= n; j += Lanes)
    for (int i = 0; i < Lanes; ++i) {
      s[j + i] = exp_nonpositive(s[j + i] - m);
      lanes[i] += s[j + i];
    }
  for (; j < n; ++j) {
    s[j] = exp_nonpositive(s[j] - m);
    lanes[0] += s[j];
  }
  for (int i = 1; i < Lanes; ++i) lanes[0] += lanes[i];
  return lanes[0];
}

// The largest score; NaN is passed over (the exponentials bring it back).
template <class C> C largest(const C* s, int64_t n, C m)
    { return n < 64 ? largest_by<8>(s, n, m) : largest_by<32>(s, n, m); }
// s = exp(s - m), and their sum.
template <class C> C exp_and_sum(C* s, int64_t n, C m) {
  return n < 64 ? exp_and_sum_by<8>(s, n, m) : exp_and_sum_by<32>(s, n, m);
}

}  // namespace mt
