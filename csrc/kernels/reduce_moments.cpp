// Reductions over powers and exponentials: var, std, var_mean, std_mean, linalg_vector_norm, logsumexp.
#include <limits>

#include "reduce_exp.h"
#include "reduce_moments.h"

namespace mt {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kBlock = 1024;

// ---- variance ------------------------------------------------------------------------------------------------------
void moments_init(void* s, int64_t n) { std::memset(s, 0, size_t(n) * sizeof(Moments)); }
template <class T> void moments_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  add_moments(*static_cast<Moments*>(s), static_cast<const T*>(x), n);
}
template <class T>
void moments_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  constexpr int64_t kWide = kFoldBytes / sizeof(Moments);
  alignas(64) T mean[2 * kWide], rest[2 * kWide], square[2 * kWide];  // complex: two moments a state
  for (int64_t i = 0; i < rows; i += kColBlock / 2) {
    const T* p = static_cast<const T*>(x) + i * stride;
    int64_t m = std::min(kColBlock / 2, rows - i);
    for (T* a : {mean, rest, square}) std::fill_n(a, n, T(0));
    add_rows<T, AddLanes>(mean, p, m, stride, n);
    for (int64_t j = 0; j < n; ++j) mean[j] /= T(m);
    for (int64_t k = 0; k < m; ++k)
      for (int64_t j = 0; j < n; ++j) {
        T d = p[k * stride + j] - mean[j];
        rest[j] += d;
        square[j] += d * d;
      }
    for (int64_t j = 0; j < n; ++j) {
      double r = double(rest[j]) / double(m);
      static_cast<Moments*>(s)[j].join(double(m), double(mean[j]) + r, double(square[j]) - double(rest[j]) * r);
    }
  }
}
void moments_merge(void* s, const void* later, int64_t n) {
  const Moments* b = static_cast<const Moments*>(later);
  for (int64_t j = 0; j < n; ++j) static_cast<Moments*>(s)[j].join(b[j].n, b[j].mean, b[j].m2);
}
// P: parts of an item. The variance of a complex number is that of its parts, added.
template <class T, int P, bool kStd>
void moments_finish(const void* s, int64_t n, void* const* out, const FoldParam& q) {
  const Moments* a = static_cast<const Moments*>(s);
  double by = std::max(0., double(q.items) - q.p);
  for (int64_t j = 0; j < n; ++j) {
    double m2 = 0;
    for (int k = 0; k < P; ++k) m2 += a[j * P + k].m2;
    double v = q.items == 0 ? std::numeric_limits<double>::quiet_NaN() : std::max(m2, 0.) / by;
    if (m2 != m2) v = m2;
    static_cast<T*>(out[0])[j] = T(kStd ? std::sqrt(v) : v);
    if (!out[1]) continue;
    for (int k = 0; k < P; ++k) static_cast<T*>(out[1])[j * P + k] = q.items == 0 ? T(v) : T(a[j * P + k].mean);
  }
}
void moments2_init(void* s, int64_t n) { moments_init(s, 2 * n); }
template <class T> void moments2_row(void* s, const void* x, int64_t n, int64_t base, const FoldParam& q) {
  T part[kBlock];
  for (int k = 0; k < 2; ++k)
    for (int64_t i = 0; i < n; i += kBlock) {
      int64_t m = std::min(kBlock, n - i);
      for (int64_t j = 0; j < m; ++j) part[j] = static_cast<const T*>(x)[2 * (i + j) + k];
      moments_row<T>(static_cast<Moments*>(s) + k, part, m, base, q);
    }
}
template <class T>
void moments2_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t base, const FoldParam& q) {
  moments_cols<T>(s, x, rows, 2 * stride, 2 * n, base, q);
}
void moments2_merge(void* s, const void* later, int64_t n) { moments_merge(s, later, 2 * n); }

template <class T, bool kStd> constexpr Fold moments_fold() {
  return {sizeof(Moments), moments_init, moments_row<T>, moments_cols<T>, moments_merge, moments_finish<T, 1, kStd>};
}
template <class T, bool kStd> constexpr Fold moments2_fold() {
  return {2 * sizeof(Moments), moments2_init, moments2_row<T>, moments2_cols<T>, moments2_merge,
          moments_finish<T, 2, kStd>};
}

template <bool kStd> void variance(const char* name, int nout, const Args& c) {
  static constexpr Fold folds[] = {moments_fold<float, kStd>(), moments_fold<double, kStd>(),
                                   moments2_fold<float, kStd>(), moments2_fold<double, kStd>()};
  const View& in = c.t[nout];
  if (is_integral(in.dtype))
    throw std::runtime_error(std::string(nout == 2 ? name : "std and var") +
                             " only support floating point and complex dtypes");
  DType d = widened(in.dtype);
  double correction = c.na > 1 && c.a[1].given ? c.a[1].f : 1;
  reduce({name, folds + (d - kFloat), d, {real_dtype(d), d}, false}, c.t, nout, in,
         dim_mask(c.na ? c.a : nullptr, in.ndim), correction);
}
// var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor
void var(const Args& c) { variance<false>("var", 1, c); }
// std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor
void std_(const Args& c) { variance<true>("std", 1, c); }
// var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)
void var_mean(const Args& c) { variance<false>("var_mean", 2, c); }
// std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)
void std_mean(const Args& c) { variance<true>("std_mean", 2, c); }

// ---- norms ------------------------------------------------------------------------------------------------------
struct CountLanes {
  template <class V> static void item(V& a, const V& x) { a += (x != V{}) ? V{} + 1 : V{}; }
  template <class V> static void merge(V& a, const V& b) { a += b; }
};
struct AbsLanes {
  template <class V> static void item(V& a, const V& x) { a += (x < V{}) ? -x : x; }
  template <class V> static void merge(V& a, const V& b) { a += b; }
};
template <class F> struct AbsExtreme {
  template <class V> static void item(V& a, const V& x) {
    V y = (x < V{}) ? -x : x;
    F::item(a, y);
  }
  template <class V> static void merge(V& a, const V& b) { F::item(a, b); }
};
enum Ord { kZero, kOne, kTwo, kMaximum, kMinimum, kPower, kOrds };

template <class T, Ord O> struct Norm {
  using F = std::conditional_t<O == kZero, CountLanes, std::conditional_t<O == kOne, AbsLanes, SquareLanes>>;
  using X = AbsExtreme<std::conditional_t<O == kMaximum, MaxLanes, MinLanes>>;

  static void init(void* s, int64_t n) { std::fill_n(static_cast<double*>(s), n, O == kMinimum ? kInf : 0.); }
  static void row(void* s, const void* x, int64_t n, int64_t base, const FoldParam& q) {
    double& state = *static_cast<double*>(s);
    if constexpr (O <= kTwo) sum_row<T, double, 1, F>(s, x, n, base, q);
    else if constexpr (O == kPower) {
      auto add = [&](auto power) {
        for (int64_t i = 0; i < n; ++i) state += power(std::abs(double(static_cast<const T*>(x)[i])));
      };
      if (q.p == 3) add([](double a) { return a * a * a; });
      else if (q.p == 4) add([](double a) { return a * a * (a * a); });
      else if (q.p == 0.5) add([](double a) { return std::sqrt(a); });
      else add([&](double a) { return std::pow(a, q.p); });
    } else {
      T part;
      fold_lanes<1, X>(static_cast<const T*>(x), n, T(O == kMinimum ? kInf : 0.), &part);
      X::item(state, double(part));
    }
  }
  static void cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t base, const FoldParam& q) {
    double* state = static_cast<double*>(s);
    if constexpr (O <= kTwo) return sum_cols<T, double, 1, F>(s, x, rows, stride, n, base, q);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < n; ++j) row(state + j, static_cast<const T*>(x) + i * stride + j, 1, base, q);
  }
  static void merge(void* s, const void* later, int64_t n) {
    const double* b = static_cast<const double*>(later);
    for (int64_t j = 0; j < n; ++j)
      if constexpr (O == kMaximum || O == kMinimum) X::merge(static_cast<double*>(s)[j], b[j]);
      else static_cast<double*>(s)[j] += b[j];
  }
  static void finish(const void* s, int64_t n, void* const* out, const FoldParam& q) {
    for (int64_t j = 0; j < n; ++j) {
      double v = static_cast<const double*>(s)[j];
      if constexpr (O == kTwo) v = std::sqrt(v);
      if constexpr (O == kPower) v = std::pow(v, 1 / q.p);
      static_cast<T*>(out[0])[j] = T(v);
    }
  }
  // Complex items: their absolute values.
  static void row2(void* s, const void* x, int64_t n, int64_t base, const FoldParam& q) {
    T part[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      int64_t m = std::min(kBlock, n - i);
      for (int64_t j = 0; j < m; ++j) part[j] = std::abs(static_cast<const std::complex<T>*>(x)[i + j]);
      row(s, part, m, base, q);
    }
  }
  static void cols2(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t base, const FoldParam& q) {
    T part[kFoldWidth] = {};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n; ++j) part[j] = std::abs(static_cast<const std::complex<T>*>(x)[i * stride + j]);
      cols(s, part, 1, n, n, base, q);
    }
  }
  static constexpr Fold real() { return {8, init, row, cols, merge, finish}; }
  static constexpr Fold complex() { return {8, init, row2, cols2, merge, finish}; }
};
#define MT_ORDS(T, KIND) \
  {Norm<T, kZero>::KIND(), Norm<T, kOne>::KIND(), Norm<T, kTwo>::KIND(), Norm<T, kMaximum>::KIND(), \
   Norm<T, kMinimum>::KIND(), Norm<T, kPower>::KIND()}
constexpr Fold kNorms[][kOrds] = {MT_ORDS(float, real), MT_ORDS(double, real), MT_ORDS(float, complex),
                                  MT_ORDS(double, complex)};
#undef MT_ORDS

// linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None)
void linalg_vector_norm(const Args& c) {
  const View& in = c.t[1];
  double p = c.a[0].given ? c.a[0].f : 2;
  Ord ord = p == 0 ? kZero : p == 1 ? kOne : p == 2 ? kTwo : p == kInf ? kMaximum : p == -kInf ? kMinimum : kPower;
  if (ord != kZero && c.t[0].numel() == in.numel()) ord = kOne;  // of one item each: its square could overflow
  DType d = c.na > 3 && c.a[3].given ? DType(c.a[3].i) : in.dtype;
  if (is_integral(d))
    throw std::runtime_error("linalg.vector_norm: Expected a floating point or complex tensor as input. Got " +
                             std::string(dtype_name(d)));
  d = widened(d);
  reduce({"linalg_vector_norm", &kNorms[d - kFloat][ord], d, {real_dtype(d)}, false}, c.t, 1, in,
         dim_mask(c.na > 1 ? c.a + 1 : nullptr, in.ndim), p);
}

// ---- logsumexp --------------------------------------------------------------------------------------------------
// The sum is of exp(x - max); a max of -inf is not subtracted, as -inf - -inf is NaN.
struct LogSum { double max, sum; };
inline double shift_of(double max) { return max == -kInf ? 0 : max; }
inline void raise(LogSum& s, double max) {
  double old = s.max;
  MaxLanes::item(s.max, max);
  if (s.sum > 0) s.sum *= std::exp(old - shift_of(s.max));
}

void logsum_init(void* s, int64_t n) { std::fill_n(static_cast<LogSum*>(s), n, LogSum{-kInf, 0}); }
template <class T> void logsum_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  alignas(64) T e[kBlock];
  LogSum& state = *static_cast<LogSum*>(s);
  for (int64_t i = 0; i < n; i += kBlock) {
    const T* p = static_cast<const T*>(x) + i;
    int64_t m = std::min(kBlock, n - i);
    T part;
    fold_lanes<1, MaxLanes>(p, m, T(-kInf), &part);
    raise(state, part);
    T shift = T(shift_of(state.max));
    for (int64_t j = 0; j < m; ++j) e[j] = exp_nonpositive(p[j] - shift);
    fold_lanes<1, AddLanes>(e, m, T(0), &part);
    state.sum += part;
  }
}
template <class T>
void logsum_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  alignas(64) T max[kFoldWidth], sum[kFoldWidth];
  LogSum* state = static_cast<LogSum*>(s);
  for (int64_t i = 0; i < rows; i += kColBlock) {
    const T* p = static_cast<const T*>(x) + i * stride;
    int64_t m = std::min(kColBlock, rows - i);
    std::fill_n(max, n, T(-kInf));
    std::fill_n(sum, n, T(0));
    fold_columns<MaxLanes>(max, p, m, stride, n);
    for (int64_t j = 0; j < n; ++j) {
      raise(state[j], max[j]);
      max[j] = T(shift_of(state[j].max));
    }
    for (int64_t k = 0; k < m; ++k)
      for (int64_t j = 0; j < n; ++j) sum[j] += exp_nonpositive(p[k * stride + j] - max[j]);
    for (int64_t j = 0; j < n; ++j) state[j].sum += sum[j];
  }
}
void logsum_merge(void* s, const void* later, int64_t n) {
  const LogSum* b = static_cast<const LogSum*>(later);
  for (int64_t j = 0; j < n; ++j) {
    LogSum &a = static_cast<LogSum*>(s)[j], o = b[j];
    raise(a, o.max);
    raise(o, a.max);
    a.sum += o.sum;
  }
}
template <class T> void logsum_finish(const void* s, int64_t n, void* const* out, const FoldParam&) {
  for (int64_t j = 0; j < n; ++j) {
    LogSum a = static_cast<const LogSum*>(s)[j];
    static_cast<T*>(out[0])[j] = T(a.max - a.max == 0 ? a.max + std::log(a.sum) : a.max);
  }
}
template <class T> constexpr Fold logsum_fold() {
  return {sizeof(LogSum), logsum_init, logsum_row<T>, logsum_cols<T>, logsum_merge, logsum_finish<T>};
}

// Complex: shifted by the largest real part.
struct LogSum2 { double max; c128 sum; };
void logsum2_join(LogSum2& a, LogSum2 b) {
  double max = a.max;
  MaxLanes::item(max, b.max);
  double shift = shift_of(max);
  a = {max, a.sum * std::exp(a.max - shift) + b.sum * std::exp(b.max - shift)};
}
void logsum2_init(void* s, int64_t n) { std::fill_n(static_cast<LogSum2*>(s), n, LogSum2{-kInf, 0}); }
template <class T>
void logsum2_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < n; ++j) {
      c128 z(static_cast<const std::complex<T>*>(x)[i * stride + j]);
      logsum2_join(static_cast<LogSum2*>(s)[j], {z.real(), std::polar(1., z.imag())});
    }
}
template <class T> void logsum2_row(void* s, const void* x, int64_t n, int64_t base, const FoldParam& q) {
  logsum2_cols<T>(s, x, n, 1, 1, base, q);
}
void logsum2_merge(void* s, const void* later, int64_t n) {
  for (int64_t j = 0; j < n; ++j) logsum2_join(static_cast<LogSum2*>(s)[j], static_cast<const LogSum2*>(later)[j]);
}
template <class T> void logsum2_finish(const void* s, int64_t n, void* const* out, const FoldParam&) {
  for (int64_t j = 0; j < n; ++j) {
    LogSum2 a = static_cast<const LogSum2*>(s)[j];
    static_cast<std::complex<T>*>(out[0])[j] = std::complex<T>(std::log(a.sum) + shift_of(a.max));
  }
}
template <class T> constexpr Fold logsum2_fold() {
  return {sizeof(LogSum2), logsum2_init, logsum2_row<T>, logsum2_cols<T>, logsum2_merge, logsum2_finish<T>};
}
constexpr Fold kLogSum[] = {logsum_fold<float>(), logsum_fold<double>(), logsum2_fold<float>(), logsum2_fold<double>()};

// logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor; integers are computed in the output's dtype
void logsumexp(const Args& c) {
  const View &out = c.t[0], &in = c.t[1];
  DType d = widened(out.dtype);
  if (d < kFloat) unsupported("logsumexp", in.dtype);
  reduce({"logsumexp", kLogSum + (d - kFloat), d, {d}, false}, c.t, 1, in, dim_mask(c.a, in.ndim));
}

Register r_var("var", var), r_std("std", std_), r_var_mean("var_mean", var_mean), r_std_mean("std_mean", std_mean),
    r_norm("linalg_vector_norm", linalg_vector_norm), r_logsumexp("logsumexp", logsumexp);
Serves moments(kComplex32, {"var", "std", "var_mean", "std_mean", "linalg_vector_norm"});

}  // namespace
}  // namespace mt
