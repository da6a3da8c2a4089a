// Loops of arithmetic on two and three operands: add, mul, divisions, where, lerp. Elementary functions are not here.
#include <numeric>
#include <stdexcept>

#include "complex_math.h"
#include "loops.h"
#include "vmath.h"

namespace mt {
namespace {

template <class T> inline T times(T x, T y) {
  if constexpr (is_complex_v<T>) return complex_times(x, y);
  else if constexpr (std::is_same_v<T, bool>) return x && y;
  else return T(arith_t<T>(x) * arith_t<T>(y));
}
template <class T> inline T plus(T x, T y) {
  if constexpr (std::is_same_v<T, bool>) return x || y;
  else return T(arith_t<T>(x) + arith_t<T>(y));
}
template <class T> inline T minus(T x, T y) { return T(arith_t<T>(x) - arith_t<T>(y)); }
template <class T> inline T over(T x, T y) {
  if constexpr (is_complex_v<T>) return complex_over(x, y);
  else return x / y;
}

// x + alpha * y and the like. With alpha 1 (nearly always) the product is left out, but of complex numbers: in PyTorch it
// makes NaN of the other part of an infinite one.
template <template <class, bool> class Op, class T> void scaled_loop(void* const* p, int64_t n, const Attr* a) {
  T* out = static_cast<T*>(p[0]);
  const memory_t<T>* x = static_cast<const memory_t<T>*>(p[1]);
  const memory_t<T>* y = static_cast<const memory_t<T>*>(p[2]);
  T alpha = number<T>(a[0]);
  if (!is_complex_v<T> && alpha == T(1)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = Op<T, false>()(x[i], y[i], alpha);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = Op<T, true>()(x[i], y[i], alpha);
  }
}
template <class T, bool scaled> struct Add {
  T operator()(T x, T y, T alpha) const { return plus(x, scaled ? times(alpha, y) : y); }
};
template <class T, bool scaled> struct Sub {
  T operator()(T x, T y, T alpha) const { return minus(x, scaled ? times(alpha, y) : y); }
};
template <class T, bool scaled> struct Rsub {
  T operator()(T x, T y, T alpha) const { return minus(y, scaled ? times(alpha, x) : x); }
};
template <template <class, bool> class Op> Pointwise scaled(const char* name) {
  Pointwise k = {name, 1, 2, -1, -1, {}};
#define MT_SCALED(D, T) k.loop[D] = scaled_loop<Op, T>;
  MT_SCALED(kUInt8, uint8_t) MT_SCALED(kInt8, int8_t) MT_SCALED(kInt16, int16_t) MT_SCALED(kInt32, int32_t)
  MT_SCALED(kInt64, int64_t) MT_SCALED(kFloat, float) MT_SCALED(kDouble, double) MT_SCALED(kComplexFloat, c64)
  MT_SCALED(kComplexDouble, c128)
#undef MT_SCALED
  return k;
}
Pointwise add() {
  Pointwise k = scaled<Add>("add");
  k.loop[kBool] = scaled_loop<Add, bool>;
  return k;
}
RegisterPointwise add_row(add()), sub_row(scaled<Sub>("sub")), rsub_row(scaled<Rsub>("rsub"));

MT_BINARY(mul, AllUnsigned, -1, times(x, y))
MT_BINARY(div, FloatsComplex, -1, over(x, y))

// On vectors: the streaming loops and those of the 16-bit floats. x + 1 * y is x + y, so one loop serves every alpha.
#define MT_STREAMING(NAME, PLAIN, ALPHA, ...) \
  struct NAME##_streaming { \
    float alpha; \
    explicit NAME##_streaming([[maybe_unused]] const Attr* a) : alpha(ALPHA) {} \
    template <class V> V operator()(V x, V y) const { return __VA_ARGS__; } \
  }; \
  RegisterStreaming NAME##_streams(PLAIN, streaming_loop<NAME##_streaming, PLAIN>); \
  RegisterSmallLoops<NAME##_streaming> NAME##_small(PLAIN);
constexpr Loop kAdd = scaled_loop<Add, float>, kSub = scaled_loop<Sub, float>;
constexpr Loop kMul = binary_loop<mul_op, float, float>, kDiv = binary_loop<div_op, float, float>;
MT_STREAMING(add, kAdd, float(a[0].f), x + alpha * y)
MT_STREAMING(sub, kSub, float(a[0].f), x - alpha * y)
MT_STREAMING(mul, kMul, 1.f, x * y)
MT_STREAMING(div, kDiv, 1.f, x / y)

// Rows with one item for all of them: x + row, x * column.
template <class T> struct add_row_op {
  T alpha;
  explicit add_row_op(const Attr* a) : alpha(number<T>(a[0])) {}
  T operator()(T x, T y) const { return x + alpha * y; }
};
template <class T> struct sub_row_op {
  T alpha;
  explicit sub_row_op(const Attr* a) : alpha(number<T>(a[0])) {}
  T operator()(T x, T y) const { return x - alpha * y; }
};
#define MT_REPEATED(NAME, OP, T, PLAIN) \
  RegisterRepeated NAME##_first(PLAIN, repeated_loop<OP, T, 1>, 1), NAME##_second(PLAIN, repeated_loop<OP, T, 2>, 2);
constexpr Loop kAddDouble = scaled_loop<Add, double>, kSubDouble = scaled_loop<Sub, double>;
constexpr Loop kMulDouble = binary_loop<mul_op, double, double>, kDivDouble = binary_loop<div_op, double, double>;
MT_REPEATED(add_float, add_row_op, float, kAdd)
MT_REPEATED(sub_float, sub_row_op, float, kSub)
MT_REPEATED(mul_float, mul_op, float, kMul)
MT_REPEATED(div_float, div_op, float, kDiv)
MT_REPEATED(add_double, add_row_op, double, kAddDouble)
MT_REPEATED(sub_double, sub_row_op, double, kSubDouble)
MT_REPEATED(mul_double, mul_op, double, kMulDouble)
MT_REPEATED(div_double, div_op, double, kDivDouble)

// ---- integer division: towards zero, or towards minus infinity as in Python -------------------------------------

template <class T> inline void check_divisor(T y) {
  if (y == 0) throw std::runtime_error("ZeroDivisionError");
}
// The quotient and the rest, without the trap of the smallest integer divided by -1.
template <class T> inline T quotient(T x, T y) {
  check_divisor(y);
  if constexpr (std::is_signed_v<T>) if (y == -1) return minus(T(0), x);
  return T(x / y);
}
template <class T> inline T rest(T x, T y) {
  check_divisor(y);
  if constexpr (std::is_signed_v<T>) if (y == -1) return 0;
  return T(x % y);
}
template <class T> inline T div_trunc(T x, T y) {
  if constexpr (std::is_integral_v<T>) return quotient(x, y);
  else return std::trunc(x / y);
}
template <class T> inline T fmod_(T x, T y) {
  if constexpr (std::is_integral_v<T>) return rest(x, y);
  else return std::fmod(x, y);
}
// From the remainder r that has the sign of x: the one that has the sign of y.
template <class T> inline T remainder_of(T x, T y, T r) {
  (void)x;
  if constexpr (!std::is_unsigned_v<T>) if (r != 0 && (r < 0) != (y < 0)) r = T(r + y);
  return r;
}
template <class T> inline T remainder_(T x, T y) { return remainder_of(x, y, fmod_(x, y)); }
// Floats as Python's divmod: the quotient that belongs to the remainder, not floor(x / y), which may round up.
template <class T> inline T div_floor_of(T x, T y, T r) {
  T exact = x / y, q = (x - r) / y;
  q = r != 0 && (y < 0) != (r < 0) ? q - 1 : q;
  T f = std::floor(q);
  f = q - f > T(0.5) ? f + 1 : f;
  return y == 0 ? exact : q == 0 ? std::copysign(T(0), exact) : f;
}
template <class T> inline T div_floor(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    T q = quotient(x, y);
    if constexpr (std::is_signed_v<T>) if ((x < 0) != (y < 0) && times(q, y) != x) q = minus(q, T(1));
    return q;
  } else {
    return div_floor_of(x, y, std::fmod(x, y));
  }
}
// The loop of floats with the remainders of a block at once, exact where the quotient is moderate. Those of float go by way of
// doubles: below 2**28 the quotient is nearest to no integer that it does not reach, and its product with y has 52 bits. Of
// doubles the quotient may be rounded up to an integer; the rest, rounded once, then has the other sign and lacks a y.
// Elsewhere the library's fmod.
inline int rest_of(float x, float y, float& r) {
  const double q = double(x) / double(y), rest = double(x) - std::trunc(q) * double(y);
  r = std::copysign(float(rest), x);
  return !(std::fabs(q) < 0x1p28) | (rest != rest);
}
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline int rest_of(double x, double y, double& r) {
  const double q = x / y, rest = __builtin_fma(-std::trunc(q), y, x);
  r = std::copysign((rest < 0) != (x < 0) && rest != 0 ? std::fabs(y) - std::fabs(rest) : rest, x);
  return !(std::fabs(q) < 0x1p52) | (rest != rest);
}
#else
inline int rest_of(double, double, double&) { return 1; }
#endif
template <class T> inline T fmod_of(T, T, T r) { return r; }
template <class T, T (*result)(T, T, T)> void rest_loop(void* const* p, int64_t n, const Attr*) {
  constexpr int64_t block = 256;
  T* out = static_cast<T*>(p[0]);
  const T *x = static_cast<const T*>(p[1]), *y = static_cast<const T*>(p[2]);
  T r[block];
  for (int64_t i = 0; i < n; i += block, out += block, x += block, y += block) {
    const int64_t m = std::min(block, n - i);
    int far = 0;
    for (int64_t j = 0; j < m; ++j) far |= rest_of(x[j], y[j], r[j]);
    if (far)
      for (int64_t j = 0; j < m; ++j) r[j] = std::fmod(x[j], y[j]);
#pragma GCC ivdep
    for (int64_t j = 0; j < m; ++j) out[j] = result(x[j], y[j], r[j]);
  }
}
template <template <class> class Op, float (*result)(float, float, float), double (*wide)(double, double, double)>
Pointwise by_rest(const char* name) {
  Pointwise k = make<Op, Real, 2>(name);
  k.loop[kFloat] = rest_loop<float, result>;
  k.loop[kDouble] = rest_loop<double, wide>;
  return k;
}
template <class T> struct div_trunc_op {
  explicit div_trunc_op(const Attr*) {}
  T operator()(T x, T y) const { return div_trunc(x, y); }
};
// The 16-bit floats round the quotient before they cut it, as torch does.
template <class H> void div_trunc_half(void* const* p, int64_t n, const Attr*) {
  for (int64_t i = 0; i < n; ++i) {
    float x = to_float(static_cast<const H*>(p[1])[i]), y = to_float(static_cast<const H*>(p[2])[i]);
    static_cast<H*>(p[0])[i] = cast<H>(std::trunc(to_float(cast<H>(x / y))));
  }
}
Pointwise div_trunc_kernel() {
  Pointwise k = make<div_trunc_op, Real, 2>("div_trunc");
  k.loop[kHalf] = div_trunc_half<f16>;
  k.loop[kBFloat16] = div_trunc_half<bf16>;
  return k;
}
RegisterPointwise div_trunc_row(div_trunc_kernel());
template <class T> struct div_floor_op {
  explicit div_floor_op(const Attr*) {}
  T operator()(T x, T y) const { return div_floor(x, y); }
};
template <class T> struct fmod_op {
  explicit fmod_op(const Attr*) {}
  T operator()(T x, T y) const { return fmod_(x, y); }
};
template <class T> struct remainder_op {
  explicit remainder_op(const Attr*) {}
  T operator()(T x, T y) const { return remainder_(x, y); }
};
RegisterPointwise div_floor_row(by_rest<div_floor_op, div_floor_of<float>, div_floor_of<double>>("div_floor"));
RegisterPointwise fmod_row(by_rest<fmod_op, fmod_of<float>, fmod_of<double>>("fmod"));
RegisterPointwise remainder_row(by_rest<remainder_op, remainder_of<float>, remainder_of<double>>("remainder"));

// ---- extremes: NaN wins in maximum and minimum, loses in fmax and fmin --------------------------------------------

MT_BINARY(maximum, RealBool, -1, x != x ? x : y > x || y != y ? y : x)
MT_BINARY(minimum, RealBool, -1, x != x ? x : y < x || y != y ? y : x)
MT_BINARY(fmax, RealBool, -1, x != x || y > x ? y : x)
MT_BINARY(fmin, RealBool, -1, x != x || y < x ? y : x)
// clamp(self, min, max) of tensors: NaN anywhere gives NaN, and max wins over min.
template <class T> inline T clamp3(T x, T lo, T hi) {
  T r = x != x ? x : lo != lo || lo > x ? lo : x;
  return r != r ? r : hi != hi || hi < r ? hi : r;
}
MT_TERNARY(clamp_tensor, RealBool, -1, clamp3(x, y, z))

// ---- integers and bits ---------------------------------------------------------------------------------------------

template <class T> inline T gcd_(T x, T y) {
  using U = arith_t<T>;
  return T(std::gcd(x < 0 ? U(0) - U(x) : U(x), y < 0 ? U(0) - U(y) : U(y)));
}
// |x / gcd * y| as torch: narrow integers in int, and only the result wraps.
template <class T> inline T lcm_(T x, T y) {
  using W = std::conditional_t<sizeof(T) < 4, int32_t, T>;
  W g = gcd_(W(x), W(y));
  if (g == 0) return 0;
  W r = times(quotient(W(x), g), W(y));
  return T(r < 0 ? minus(W(0), r) : r);
}
// Shifts by the width or more, or by less than nothing, give what an endless shift would.
template <class T> inline T left(T x, T y) {
  return y < 0 || y >= T(sizeof(T) * 8) ? T(0) : T(arith_t<T>(x) << arith_t<T>(y));
}
template <class T> inline T right(T x, T y) {
  constexpr T most = T(sizeof(T) * 8 - std::is_signed_v<T>);
  if (std::is_unsigned_v<T> && y >= most) return 0;
  return T(x >> (y < 0 || y >= most ? most : y));
}
MT_BINARY(gcd, Ints, -1, gcd_(x, y))
MT_BINARY(lcm, Ints, -1, lcm_(x, y))
MT_BINARY(bitwise_and, IntsBoolUnsigned, -1, T(x & y))
MT_BINARY(bitwise_or, IntsBoolUnsigned, -1, T(x | y))
MT_BINARY(bitwise_xor, IntsBoolUnsigned, -1, T(x ^ y))
MT_BINARY(bitwise_left_shift, Ints, -1, left(x, y))
MT_BINARY(bitwise_right_shift, Ints, -1, right(x, y))

// ---- three operands ------------------------------------------------------------------------------------------------

// where only moves items: one loop for each size, of the 16-bit floats too.
template <class T> void where_loop(void* const* p, int64_t n, const Attr*) {
  T* out = static_cast<T*>(p[0]);
  const uint8_t* mask = static_cast<const uint8_t*>(p[1]);
  const T* x = static_cast<const T*>(p[2]);
  const T* y = static_cast<const T*>(p[3]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = mask[i] ? x[i] : y[i];
}
Pointwise where_kernel() {
  constexpr Loop by_size[] = {where_loop<uint8_t>, where_loop<uint16_t>, where_loop<uint32_t>, where_loop<uint64_t>,
                              where_loop<c128>};
  Pointwise k = {"where", 1, 3, -1, kBool, {}};
  for (int d = 0; d < kNumDTypes; ++d)
    if (!is_only_stored(DType(d))) k.loop[d] = by_size[__builtin_ctz(itemsize(DType(d)))];
  return k;
}
RegisterPointwise where_row(where_kernel());

// From the nearer end, so that weight 1 gives `end` exactly.
template <class T> inline T lerp_(T x, T end, T weight) {
  T d = minus(end, x);
  if constexpr (is_complex_v<T>)
    return std::norm(weight) < real_t<T>(0.25) ? x + times(weight, d) : end - times(d, T(1) - weight);
  else return std::abs(weight) < T(0.5) ? x + weight * d : end - d * (1 - weight);
}
MT_TERNARY(lerp, FloatsComplex, -1, lerp_(x, y, z))
struct lerp_streaming {
  explicit lerp_streaming(const Attr*) {}
  Lanes operator()(Lanes x, Lanes end, Lanes weight) const {
    Lanes d = end - x;
    return v::magnitude(weight) < 0.5f ? x + weight * d : end - d * (1.f - weight);
  }
};
constexpr Loop kLerp = ternary_loop<lerp_op, float, float>;
RegisterStreaming lerp_streams(kLerp, streaming_loop<lerp_streaming, kLerp, 3>);

template <class T> struct addcmul_op {
  T value;
  explicit addcmul_op(const Attr* a) : value(number<T>(a[0])) {}
  T operator()(T x, T y, T z) const { return plus(x, times(times(value, y), z)); }
};
template <class T> struct addcdiv_op {
  T value;
  explicit addcdiv_op(const Attr* a) : value(number<T>(a[0])) {}
  T operator()(T x, T y, T z) const { return x + over(times(value, y), z); }
};
MT_ROW(addcmul, Numbers, 3, -1)
MT_ROW(addcdiv, FloatsComplex, 3, -1)

MT_SERVES(kComplex32, add)
MT_SERVES(kComplex32, sub)
MT_SERVES(kComplex32, rsub)
MT_SERVES(kFloat8 | kComplex32, mul)
MT_SERVES(kComplex32, addcmul)

}  // namespace
}  // namespace mt
