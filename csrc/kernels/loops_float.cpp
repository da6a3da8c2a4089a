// Loops of the elementary functions of one and two operands: exp, sin, pow and their kin. Their mathematics is vmath.h.
#include <limits>

#include "loops.h"
#include "vmath.h"

namespace mt {
namespace {

MT_LANES(exp, FloatsComplex, v::exp(x))
MT_UNARY(exp2, FloatsComplex, -1, v::exp2(x))
MT_UNARY(expm1, FloatsComplex, -1, v::expm1(x))
MT_UNARY(log, FloatsComplex, -1, v::log(x))
MT_UNARY(log2, FloatsComplex, -1, v::log2(x))
MT_UNARY(log10, FloatsComplex, -1, v::log10(x))
MT_UNARY(log1p, FloatsComplex, -1, v::log1p(x))
MT_UNARY(asin, FloatsComplex, -1, v::asin(x))
MT_UNARY(acos, FloatsComplex, -1, v::acos(x))
MT_UNARY(atan, FloatsComplex, -1, v::atan(x))
MT_UNARY(sinh, FloatsComplex, -1, v::sinh(x))
MT_UNARY(cosh, FloatsComplex, -1, v::cosh(x))
MT_UNARY(tanh, FloatsComplex, -1, v::tanh(x))
MT_UNARY(asinh, FloatsComplex, -1, v::asinh(x))
MT_UNARY(acosh, FloatsComplex, -1, v::acosh(x))
MT_UNARY(atanh, FloatsComplex, -1, v::atanh(x))
MT_LANES(sigmoid, FloatsComplex, v::sigmoid(x))
MT_UNARY(sqrt, FloatsComplex, -1, std::sqrt(x))
MT_SMALL_UNARY(sqrt, v::sqrt(x))
MT_LANES(rsqrt, FloatsComplex, v::rsqrt(x))
constexpr Loop kRsqrt = lanes_loop<rsqrt_op>;
RegisterStreaming rsqrt_streams(kRsqrt, streaming_loop<rsqrt_op<Lanes>, kRsqrt, 1>);
MT_UNARY(erf, Floats, -1, v::erf(x))
MT_UNARY(erfc, Floats, -1, v::erfc(x))

// The vectorised sine is right up to kCircular; a block with a larger item is done by the standard library.
#define MT_CIRCULAR(NAME) \
  template <class T> struct NAME##_op { \
    explicit NAME##_op(const Attr*) {} \
    T operator()(T x) const { \
      if constexpr (std::is_same_v<T, double>) return v::wide::NAME(x); \
      else return v::NAME(x); \
    } \
    static double far(double x) { return std::NAME(x); } \
    static bool is_far(T x) { return std::abs(x) > real_t<T>(v::kCircular); } \
  };
MT_CIRCULAR(sin) MT_CIRCULAR(cos) MT_CIRCULAR(tan)
template <template <class> class Op> Pointwise circular(const char* name) {
  Pointwise k = make<Op, Set<c64, c128>, 1>(name);
  k.loop[kFloat] = divided_loop<Op, float>;
  k.loop[kDouble] = divided_loop<Op, double>;
  return k;
}
RegisterPointwise sin_row(circular<sin_op>("sin")), cos_row(circular<cos_op>("cos")), tan_row(circular<tan_op>("tan"));

// ---- two operands ------------------------------------------------------------------------------------------------

inline float hypot_(float x, float y) {
  float r = float(std::sqrt(double(x) * x + double(y) * y));
  return std::fabs(x) == v::kInf || std::fabs(y) == v::kInf ? v::kInf : r;
}
inline double hypot_(double x, double y) { return v::hypot(x, y); }
template <class T> inline T xlogy(T x, T log_y, T y) { return y != y ? y : x == 0 ? T(0) : x * log_y; }
template <class T> inline T logaddexp_(T x, T y) {
  T big = x > y ? x : y, gap = std::fabs(x - y);
  return x == y && std::fabs(x) == T(v::kInf) ? x : (x != x ? x : big) + v::log1p(v::exp(-gap));
}
template <class T> inline std::complex<T> logaddexp_(std::complex<T> x, std::complex<T> y) {
  if (x.real() < y.real()) std::swap(x, y);
  return x == y && std::fabs(x.real()) == T(v::kInf) ? x : x + v::log1p(std::exp(y - x));
}
template <class T> inline T logaddexp2_(T x, T y) {
  T big = x > y ? x : y, gap = std::fabs(x - y);
  return x == y && std::fabs(x) == T(v::kInf) ? x : (x != x ? x : big) + v::log1p(v::exp2(-gap)) * T(v::kInvLn2);
}
MT_BINARY(atan2, Floats, -1, v::atan2(x, y))
MT_BINARY(hypot, Floats, -1, hypot_(x, y))
MT_BINARY(copysign, Floats, -1, std::copysign(x, y))

// nextafter steps in the dtype itself, so the 16-bit floats step on their bits.
template <class T> struct nextafter_op {
  explicit nextafter_op(const Attr*) {}
  // One step of the bits, which are ordered as the magnitudes are; of a NaN the sum, away from zero the smallest number.
  T operator()(T x, T y) const {
    using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    Bits bits;
    std::memcpy(&bits, &x, sizeof(T));
    bits += (y > x) == (x > T(0)) ? Bits(1) : Bits(-1);
    T next;
    std::memcpy(&next, &bits, sizeof(T));
    next = x == T(0) ? std::copysign(std::numeric_limits<T>::denorm_min(), y) : next;
    next = x == y ? y : next;
    return x != x || y != y ? x + y : next;
  }
};
template <class H> void nextafter_half(void* const* p, int64_t n, const Attr*) {
  for (int64_t i = 0; i < n; ++i) {
    H x = static_cast<const H*>(p[1])[i], y = static_cast<const H*>(p[2])[i], next = x;
    float a = to_float(x), b = to_float(y);
    if (a == 0) next.bits = (y.bits & 0x8000) | 1;
    else next.bits += (b > a) == (a > 0) ? 1 : -1;
    static_cast<H*>(p[0])[i] = a != a ? x : b != b || a == b ? y : next;
  }
}
Pointwise nextafter() {
  Pointwise k = make<nextafter_op, Floats, 2>("nextafter");
  k.loop[kHalf] = nextafter_half<f16>;
  k.loop[kBFloat16] = nextafter_half<bf16>;
  return k;
}
RegisterPointwise nextafter_row(nextafter());

MT_BINARY(logaddexp, FloatsComplex, -1, logaddexp_(x, y))
MT_BINARY(logaddexp2, Floats, -1, logaddexp2_(x, y))
MT_BINARY(xlogy, Floats, -1, xlogy(x, v::log(y), y))
MT_BINARY(special_xlog1py, Floats, -1, xlogy(x, v::log1p(y), y))
MT_BINARY(heaviside, RealBool, -1, x == T(0) ? y : T(x > T(0)))

// ---- pow ---------------------------------------------------------------------------------------------------------

// Integers: by squaring, with wrap-around; a negative exponent leaves something only of 1 and -1.
template <class T> inline T power(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    using U = arith_t<T>;
    if (y < 0) return x == T(1) ? T(1) : x == T(-1) ? (y % 2 ? T(-1) : T(1)) : T(0);
    U result = 1, square = U(x);
    for (U rest = U(y); rest; rest >>= 1) {
      if (rest & 1) result *= square;
      square *= square;
    }
    return T(result);
  } else if constexpr (is_complex_v<T>) {
    return y == T(0) ? T(1) : v::pow(x, y);
  } else {
    return v::pow(x, y);
  }
}
template <class T> struct pow_op {
  explicit pow_op(const Attr*) {}
  T operator()(T x, T y) const { return power(x, y); }
};

template <class T> inline T product(T x, T y) {
  if constexpr (is_complex_v<T>)
    return T(x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real());
  else return x * y;
}
template <class T, class F> inline void each(void* const* p, int64_t n, F f) {
  T* out = static_cast<T*>(p[0]);
  const T* x = static_cast<const T*>(p[1]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}
// pow_scalar(self; Scalar exponent): the exponents of everyday use are worth a loop of their own.
template <class T> void pow_scalar_loop(void* const* p, int64_t n, const Attr* a) {
  const T y = number<T>(a[0]);
  if constexpr (std::is_integral_v<T>) {
    if (y == 2) return each<T>(p, n, [](T x) { return T(arith_t<T>(x) * arith_t<T>(x)); });
  } else {
    if (y == T(2)) return each<T>(p, n, [](T x) { return product(x, x); });
    if (y == T(3)) return each<T>(p, n, [](T x) { return product(product(x, x), x); });
    if (y == T(0.5)) return each<T>(p, n, [](T x) { return std::sqrt(x); });
    if (y == T(-0.5)) return each<T>(p, n, [](T x) { return T(1) / std::sqrt(x); });
    if (y == T(-1)) return each<T>(p, n, [](T x) { return T(1) / x; });
    if (y == T(-2)) return each<T>(p, n, [](T x) { return T(1) / product(x, x); });
  }
  // Any other as equal items: of one that is known not to change the compiler would make branches instead of vectors.
  constexpr int64_t block = 512;
  T same[block];
  std::fill_n(same, std::min(n, block), y);
  for (int64_t i = 0; i < n; i += block) {
    void* const at[] = {static_cast<T*>(p[0]) + i, static_cast<T*>(p[1]) + i, same};
    binary_loop<pow_op, T, T>(at, std::min(block, n - i), nullptr);
  }
}
Pointwise pow_scalar_kernel() {
  Pointwise k = {"pow_scalar", 1, 1, -1, -1, {}};
  MT_LOOPS_OF_INTEGERS(k, pow_scalar_loop);
  MT_LOOPS_OF_FLOATS(k, pow_scalar_loop);
  k.loop[kComplexFloat] = pow_scalar_loop<c64>;
  k.loop[kComplexDouble] = pow_scalar_loop<c128>;
  return k;
}
RegisterPointwise pow_scalar_row(pow_scalar_kernel());

// Squares of the 16-bit floats, of which norms are made, as they lie; other powers by way of blocks of floats.
struct square_lanes {
  explicit square_lanes(const Attr*) {}
  Lanes operator()(Lanes x) const { return x * x; }
};
template <DType dtype> void pow_scalar_small(void* const* p, int64_t n, const Attr* a) {
  if (a[0].f == 2 && a[0].im == 0 && dtype == kBFloat16) return bfloat_loop<square_lanes, 1>(p, n, a);
#if defined(__AVX2__) && defined(__F16C__)
  if (a[0].f == 2 && a[0].im == 0 && dtype == kHalf) return half_loop<square_lanes, 1>(p, n, a);
#endif
  constexpr int64_t block = 512;
  float x[block], y[block];
  void* const at[] = {y, x};
  for (int64_t i = 0; i < n; i += block) {
    const int64_t m = std::min(block, n - i);
    convert(kFloat, x, dtype, static_cast<uint16_t*>(p[1]) + i, m);
    pow_scalar_loop<float>(at, m, a);
    convert(dtype, static_cast<uint16_t*>(p[0]) + i, kFloat, y, m);
  }
}
RegisterSmall pow_scalar_bfloat(pow_scalar_loop<float>, pow_scalar_small<kBFloat16>, kBFloat16);
RegisterSmall pow_scalar_half(pow_scalar_loop<float>, pow_scalar_small<kHalf>, kHalf);

// pow(self, exponent): a number reaches the loop as equal items, and has the loop of that number.
template <class T> void pow_loop(void* const* p, int64_t n, const Attr* a) {
  const T* y = static_cast<const T*>(p[2]);
  if (n > 0 && p[0] != p[2] && std::memcmp(y, y + 1, (n - 1) * sizeof(T)) == 0) {
    Attr exponent = {};
    exponent.f = double(std::real(y[0])), exponent.im = double(std::imag(y[0]));
    if constexpr (std::is_integral_v<T>) exponent.i = y[0];
    return pow_scalar_loop<T>(p, n, &exponent);
  }
  binary_loop<pow_op, T, T>(p, n, a);
}
Pointwise pow_kernel() {
  Pointwise k = {"pow", 1, 2, -1, -1, {}};
  MT_LOOPS_OF_INTEGERS(k, pow_loop);
  MT_LOOPS_OF_FLOATS(k, pow_loop);
  k.loop[kComplexFloat] = pow_loop<c64>;
  k.loop[kComplexDouble] = pow_loop<c128>;
  return k;
}
RegisterPointwise pow_row(pow_kernel());
template <DType dtype> void pow_number_small(void* const* p, int64_t n, const Attr*) {
  Attr exponent = {};
  exponent.f = *static_cast<const float*>(p[2]);
  pow_scalar_small<dtype>(p, n, &exponent);
}
RegisterSmall pow_bfloat(pow_loop<float>, pow_number_small<kBFloat16>, kBFloat16, 2);
RegisterSmall pow_half(pow_loop<float>, pow_number_small<kHalf>, kHalf, 2);

}  // namespace
}  // namespace mt
