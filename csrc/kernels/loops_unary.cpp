// Loops of simple functions of one operand: signs, rounding, clamping, parts of complex numbers.
#include <limits>

#include "complex_math.h"
#include "loops.h"
#include "vmath.h"

namespace mt {
namespace {

constexpr double kPi = 3.14159265358979323846;

template <class T> inline T negative(T x) { return T(arith_t<T>(0) - arith_t<T>(x)); }
template <class T> inline real_t<T> magnitude(T x) {
  if constexpr (std::is_same_v<T, c64>) {
    double a = x.real(), b = x.imag();
    float r = float(std::sqrt(a * a + b * b));
    return std::fabs(x.real()) == v::kInf || std::fabs(x.imag()) == v::kInf ? v::kInf : r;
  } else if constexpr (is_complex_v<T>) {
    return v::hypot(x.real(), x.imag());
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::abs(x);
  } else if constexpr (std::is_signed_v<T>) {
    return x < 0 ? negative(x) : x;
  } else {
    return x;
  }
}
template <class T> inline T direction(T x) {
  if constexpr (is_complex_v<T>) {
    auto m = magnitude(x);
    return m == 0 ? T(0) : x / m;
  } else {
    return T((x > T(0)) - (x < T(0)));  // NaN gives 0, as in torch
  }
}
template <class T> inline T bits_not(T x) {
  if constexpr (std::is_same_v<T, bool>) return !x;
  else return T(~x);
}
template <class T> inline T squared(T x) {
  if constexpr (is_complex_v<T>) return T(x.real() * x.real() - x.imag() * x.imag(), 2 * x.real() * x.imag());
  else return T(arith_t<T>(x) * arith_t<T>(x));
}
template <class T> inline real_t<T> phase(T x) {
  if constexpr (is_complex_v<T>) return v::atan2(x.imag(), x.real());
  else return x < 0 ? T(kPi) : x != x ? x : T(0);
}

// -x of a float flips the sign of zero too.
template <class T> inline T minus_of(T x) {
  if constexpr (std::is_integral_v<T>) return negative(x);
  else return -x;
}
// The sign of a 16-bit float is its first bit: cleared, or turned.
template <uint16_t keep, uint16_t turn> void sign_bits(void* const* p, int64_t n, const Attr*) {
  uint16_t* out = static_cast<uint16_t*>(p[0]);
  const uint16_t* x = static_cast<const uint16_t*>(p[1]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = uint16_t((x[i] & keep) ^ turn);
}
template <template <class> class Op, class S, int out, uint16_t keep, uint16_t turn> Pointwise of_sign(const char* name) {
  Pointwise k = make<Op, S, 1, out>(name);
  k.loop[kHalf] = k.loop[kBFloat16] = sign_bits<keep, turn>;
  return k;
}
#define MT_OF_SIGN(NAME, SET, OUT, KEEP, TURN, ...) \
  template <class T> struct NAME##_op { \
    explicit NAME##_op(const Attr*) {} \
    auto operator()(T x) const { return __VA_ARGS__; } \
  }; \
  RegisterPointwise NAME##_row(of_sign<NAME##_op, SET, OUT, KEEP, TURN>(#NAME));
MT_OF_SIGN(neg, Numbers, -1, 0xffff, 0x8000, minus_of(x))
MT_OF_SIGN(abs, All, -2, 0x7fff, 0, magnitude(x))
MT_UNARY(sign, RealBool, -1, direction(x))
MT_UNARY(sgn, All, -1, direction(x))
MT_UNARY(square, Numbers, -1, squared(x))
MT_SMALL_UNARY(square, x * x)
template <class T> inline T inverse(T x) {
  if constexpr (is_complex_v<T>) return complex_over(T(1), x);
  else return T(1) / x;
}
MT_UNARY(reciprocal, FloatsComplex, -1, inverse(x))
MT_SMALL_UNARY(reciprocal, 1.f / x)
MT_UNARY(bitwise_not, IntsBool, -1, bits_not(x))
MT_UNARY(deg2rad, Floats, -1, x * T(kPi / 180))
MT_UNARY(rad2deg, Floats, -1, x * T(180 / kPi))
MT_UNARY(angle, FloatsComplex, -2, phase(x))
template <class T> inline T conjugate(T x) {
  if constexpr (is_complex_v<T>) return std::conj(x);
  else return x;
}
MT_UNARY(conj_physical, AllUnsigned, -1, conjugate(x))
MT_UNARY(real, Complex, -2, x.real())
MT_UNARY(imag, Complex, -2, x.imag())
MT_SERVES(kComplex32, neg)
MT_SERVES(kFloat8 | kComplex32, abs)
MT_SERVES(kComplex32, sgn)
MT_SERVES(kFloat8 | kComplex32, conj_physical)
MT_SERVES(kComplex32, real)
MT_SERVES(kComplex32, imag)

// ---- rounding: integers are round already -------------------------------------------------------------------------

template <class T, class F> inline T if_float(T x, F f) {
  if constexpr (std::is_floating_point_v<T>) return f(x);
  else return x;
}
MT_UNARY(floor, RealUnsigned, -1, if_float(x, [](auto y) { return std::floor(y); }))
MT_UNARY(ceil, RealUnsigned, -1, if_float(x, [](auto y) { return std::ceil(y); }))
MT_UNARY(trunc, RealUnsigned, -1, if_float(x, [](auto y) { return std::trunc(y); }))
MT_UNARY(frac, Floats, -1, x - std::trunc(x))

// round(self; decimals): halves to even. Negative decimals divide first, so that the power of ten stays exact.
template <class T> void round_loop(void* const* p, int64_t n, const Attr* a) {
  T* out = static_cast<T*>(p[0]);
  const T* x = static_cast<const T*>(p[1]);
  int64_t decimals = a ? a[0].i : 0;
  if constexpr (std::is_integral_v<T>) {
    std::memmove(out, x, n * sizeof(T));
  } else if (decimals == 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = std::nearbyint(x[i]);
  } else {
    T ten = T(std::pow(10., std::abs(double(decimals))));
    if (decimals > 0) for (int64_t i = 0; i < n; ++i) out[i] = std::nearbyint(x[i] * ten) / ten;
    else for (int64_t i = 0; i < n; ++i) out[i] = std::nearbyint(x[i] / ten) * ten;
  }
}
Pointwise round_kernel() {
  Pointwise k = {"round", 1, 1, -1, -1, {}};
  MT_LOOPS_OF_INTEGERS(k, round_loop);
  MT_LOOPS_OF_FLOATS(k, round_loop);
  k.loop[kUInt16] = round_loop<uint16_t>, k.loop[kUInt32] = round_loop<uint32_t>, k.loop[kUInt64] = round_loop<uint64_t>;
  return k;
}
RegisterPointwise round_row(round_kernel());

// ---- clamping ----------------------------------------------------------------------------------------------------

// clamp(self; min?, max?): NaN items stay, a NaN bound makes everything NaN, max wins over min.
template <class T> struct clamp_op {
  T lo, hi;
  explicit clamp_op(const Attr* a) : lo(std::numeric_limits<T>::lowest()), hi(std::numeric_limits<T>::max()) {
    if (std::is_floating_point_v<T>) lo = -T(v::kInf), hi = T(v::kInf);
    if (a[0].given) lo = number<T>(a[0]);
    if (a[1].given) hi = number<T>(a[1]);
    if (lo != lo) hi = lo;
    if (hi != hi) lo = hi;
  }
  T operator()(T x) const {
    T r = x < lo || lo != lo ? lo : x;
    return r > hi ? hi : r;
  }
};
MT_ROW(clamp, Real, 1, -1)
// A bound that is NaN makes everything NaN.
MT_SMALL(clamp, (unary_loop<clamp_op, float, float>), 1, clamp_op<float>(at).lo, clamp_op<float>(at).hi, (Lanes x),
         v::at_most(v::at_least(x, a), b) * (a == a ? 1.f : a))

// nan_to_num(self; nan?, posinf?, neginf?)
template <class T> struct nan_to_num_op {
  using R = real_t<T>;
  R nan = 0, most = std::numeric_limits<R>::max(), least = std::numeric_limits<R>::lowest();
  explicit nan_to_num_op(const Attr* a) {
    if (a[0].given) nan = R(a[0].f);
    if (a[1].given) most = R(a[1].f);
    if (a[2].given) least = R(a[2].f);
  }
  R part(R x) const {
    if constexpr (std::is_floating_point_v<R>) {
      R r = x == R(v::kInf) ? most : x == -R(v::kInf) ? least : x;
      return x != x ? nan : r;
    } else {
      return x;
    }
  }
  T operator()(T x) const {
    if constexpr (is_complex_v<T>) return T(part(x.real()), part(x.imag()));
    else return part(x);
  }
};
// The 16-bit floats have loops of their own, because the largest number is that of the dtype.
template <class H> void nan_to_num_half(void* const* p, int64_t n, const Attr* a) {
  nan_to_num_op<float> op(a);
  const float most = std::is_same_v<H, f16> ? 65504.f : 3.38953139e38f;
  if (!a[1].given) op.most = most;
  if (!a[2].given) op.least = -most;
  for (int64_t i = 0; i < n; ++i) static_cast<H*>(p[0])[i] = cast<H>(op(to_float(static_cast<const H*>(p[1])[i])));
}
Pointwise nan_to_num() {
  Pointwise k = make<nan_to_num_op, AllUnsigned, 1>("nan_to_num");
  k.loop[kHalf] = nan_to_num_half<f16>;
  k.loop[kBFloat16] = nan_to_num_half<bf16>;
  return k;
}
RegisterPointwise nan_to_num_row(nan_to_num());

}  // namespace
}  // namespace mt
