// Products of two vectors: dot, vdot, addr.
#include <algorithm>
#include <string>
#include <vector>

#include "dispatch.h"
#include "library.h"
#include "parallel.h"
#include "scalar.h"

namespace mt {
namespace {

constexpr int64_t kChunk = 32768;  // items summed by one thread; fixed, so that the sum does not depend on the threads

// Integers wrap: sum them unsigned.
template <class T, bool = std::is_integral_v<T>> struct Sum { using type = compute_t<T>; };
template <class T> struct Sum<T, true> { using type = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>; };

template <class S> inline S times(S a, S b, bool conj) {
  if constexpr (is_complex_v<S>) {
    const auto im = conj ? -a.imag() : a.imag();
    return S(a.real() * b.real() - im * b.imag(), a.real() * b.imag() + im * b.real());
  } else return a * b;
}

template <class S> inline S from_number(c128 v) {
  if constexpr (std::is_integral_v<S>) return S(int64_t(v.real()));
  else return cast<S>(v);
}

// Lanes of partial sums, which vectorise where one running sum may not.
template <class T, class S> S sum_products(const T* a, int64_t as, const T* b, int64_t bs, int64_t n, bool conj) {
  constexpr int L = is_complex_v<S> ? 4 : 32;
  S lanes[L] = {}, sum = S(0);
  int64_t i = 0;
  if (as == 1 && bs == 1)
    for (; i + L <= n; i += L)
      for (int j = 0; j < L; ++j) lanes[j] += times(cast<S>(a[i + j]), cast<S>(b[i + j]), conj);
  for (; i < n; ++i) sum += times(cast<S>(a[i * as]), cast<S>(b[i * bs]), conj);
  for (int step = L / 2; step; step /= 2)
    for (int j = 0; j < step; ++j) lanes[j] += lanes[j + step];
  return sum + lanes[0];
}

template <class T> T dot_all(const View& a, const View& b, bool conj) {
  using S = typename Sum<T>::type;
  const int64_t n = a.sizes[0], as = a.strides[0], bs = b.strides[0];
  if (n <= kChunk) return cast<T>(sum_products<T, S>(a.ptr<T>(), as, b.ptr<T>(), bs, n, conj));
  std::vector<S> partial((n + kChunk - 1) / kChunk);
  parallel_for(int64_t(partial.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t c = from; c < to; ++c) {
      const int64_t i = c * kChunk;
      partial[c] = sum_products<T, S>(a.ptr<T>() + i * as, as, b.ptr<T>() + i * bs, bs, std::min(kChunk, n - i), conj);
    }
  });
  S sum = S(0);
  for (S p : partial) sum += p;
  return cast<T>(sum);
}

void product(const Args& g, bool conj) {
  const View &out = g.t[0], &a = g.t[1], &b = g.t[2];
  if (a.ndim != 1 || b.ndim != 1)
    throw std::runtime_error("1D tensors expected, but got " + std::to_string(a.ndim) + "D and " +
        std::to_string(b.ndim) + "D tensors");
  if (a.dtype != b.dtype)
    throw std::runtime_error(std::string("dot : expected both vectors to have same dtype, but found ") +
        dtype_name(a.dtype) + " and " + dtype_name(b.dtype));
  const int64_t n = a.sizes[0];
  if (n != b.sizes[0])
    throw std::runtime_error("inconsistent tensor size, expected tensor [" + std::to_string(n) + "] and src [" +
        std::to_string(b.sizes[0]) +
        "] to have the same number of elements, but got " + std::to_string(n) + " and " + std::to_string(b.sizes[0])
            + " elements respectively");
  if (a.dtype == kBool) unsupported("dot", kBool);
  MT_DISPATCH_ALL(a.dtype, "dot", T, { *out.ptr<T>() = dot_all<T>(a, b, conj); })
}

// dot(Tensor self, Tensor tensor) -> Tensor
void dot(const Args& g) { product(g, false); }

// vdot(Tensor self, Tensor other) -> Tensor
void vdot(const Args& g) { product(g, true); }

// One row of addr: out = beta * self + a * vec2.
template <class T, class S>
void addr_row(T* out, int64_t os, const T* self, int64_t ss, S a, const T* vec, int64_t vs, S beta, bool use_self,
    int64_t n) {
  if (os == 1 && vs == 1 && !use_self)
    for (int64_t j = 0; j < n; ++j) out[j] = cast<T>(times(a, cast<S>(vec[j]), false));
  else if (os == 1 && vs == 1 && ss == 1)
    for (int64_t j = 0; j < n; ++j) out[j] =
        cast<T>(S(times(beta, cast<S>(self[j]), false) + times(a, cast<S>(vec[j]), false)));
  else
    for (int64_t j = 0; j < n; ++j) {
      S v = times(a, cast<S>(vec[j * vs]), false);
      if (use_self) v = times(beta, cast<S>(self[j * ss]), false) + v;
      out[j * os] = cast<T>(v);
    }
}

void addr_bool(const View& out, const View& self, int64_t sr, int64_t sc, const View& v1, const View& v2, bool beta,
    bool alpha) {
  for (int64_t i = 0; i < out.sizes[0]; ++i)
    for (int64_t j = 0; j < out.sizes[1]; ++j) {
      const bool product = alpha && v1.ptr<b8>()[i * v1.strides[0]] && v2.ptr<b8>()[j * v2.strides[0]];
      out.ptr<b8>()[i * out.strides[0] + j * out.strides[1]] = product || (beta && self.ptr<b8>()[i * sr + j * sc]);
    }
}

// addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
void addr(const Args& g) {
  const View &out = g.t[0], &self = g.t[1], &v1 = g.t[2], &v2 = g.t[3];
  if (v1.ndim != 1 || v2.ndim != 1)
    throw std::runtime_error("addr: Expected 1-D argument vec" + std::string(v1.ndim != 1 ? "1" : "2") + ", but got " +
                             std::to_string(v1.ndim != 1 ? v1.ndim : v2.ndim) + "-D");
  auto stride = [&](int from_end) {
    const int d = self.ndim - from_end;
    return d >= 0 && self.sizes[d] != 1 ? self.strides[d] : 0;
  };
  const int64_t sr = stride(2), sc = stride(1), n = out.sizes[1];
  const c128 one(1), beta = g.na > 0 && g.a[0].given ? c128(g.a[0].f, g.a[0].im) : one,
             alpha = g.na > 1 && g.a[1].given ? c128(g.a[1].f, g.a[1].im) : one;
  if (out.dtype == kBool) return addr_bool(out, self, sr, sc, v1, v2, beta != c128(0), alpha != c128(0));
  MT_DISPATCH_ALL(out.dtype, "addr", T, {
    using S = typename Sum<T>::type;
    const S b = from_number<S>(beta), a = from_number<S>(alpha);
    parallel_for(out.sizes[0], std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i)
        addr_row<T, S>(out.ptr<T>() + i * out.strides[0], out.strides[1], self.ptr<T>() + i * sr, sc,
                       times(a, cast<S>(v1.ptr<T>()[i * v1.strides[0]]), false), v2.ptr<T>(), v2.strides[0], b,
                           b != S(0), n);
    });
  })
}

const Register registered[] = {{"dot", dot}, {"vdot", vdot}, {"addr", addr}};

}  // namespace
}  // namespace mt
