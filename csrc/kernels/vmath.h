// Branch-free float math that the compiler vectorises: within 2 ulp, right for subnormals, infinities and NaN.
// Where float cannot carry the accuracy the work is done in double (wide_*), whose short polynomials serve float only.
// Those of double are in vmath_double.h; functions of complex are those of the standard library.
#pragma once
#include <cmath>
#include <limits>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "complex_math.h"
#include "scalar.h"

namespace mt {
namespace v {

template <class To, class From> inline To bits(From x) { return __builtin_bit_cast(To, x); }

// F stands for float or a vector of floats. Of float the compiler makes vectors in a loop; but it follows a clamped
// value's constant, doubling the code behind it, so that what clamps is best called with vectors (Lanes in loops.h).
template <class F> struct word { typedef uint32_t type __attribute__((vector_size(sizeof(F)))); };
template <> struct word<float> { using type = uint32_t; };
template <class F> using Word = typename word<F>::type;
template <class F> inline F every(float c) { return c + F{}; }

// c0 + c1 x + c2 x^2 + ..., four coefficients a step: Horner's scheme one at a time would wait for every product.
template <class T, class C> inline C poly(T, C a) { return a; }
template <class T, class C> inline T poly(T x, C a, C b) { return a + x * b; }
template <class T, class C> inline T poly(T x, C a, C b, C c) { return (a + x * b) + x * x * c; }
template <class T, class C> inline T poly(T x, C a, C b, C c, C d) { return (a + x * b) + x * x * (c + x * d); }
template <class T, class C> inline T poly(T x, C a, C b, C c, C d, C e) {
  return (a + x * b) + x * x * (c + x * (d + x * e));
}
template <class T, class C> inline T poly(T x, C a, C b, C c, C d, C e, C f) {
  return (a + x * b) + x * x * ((c + x * d) + x * x * (e + x * f));
}
template <class T, class C, class... R> inline T poly(T x, C a, C b, C c, C d, R... rest) {
  T z = x * x;
  return ((a + x * b) + z * (c + x * d)) + z * z * poly(x, rest...);
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLog2e = 1.44269504f, kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f;
constexpr float kPio2Hi = 1.57079637f, kPio2Lo = -4.37113883e-8f;
constexpr double kLn2 = 0.6931471805599453, kInvLn2 = 1.4426950408889634, kInvLn10 = 0.4342944819032518;
// Adding and taking away 1.5 * 2^23 (2^52) rounds to an integer, which then also stands in the low bits.
constexpr float kRound = 12582912.f;
constexpr double kWideRound = 6755399441055744.0;

// c - a b, rounded once.
inline float residual(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(-a, b, c);
#else
  return float(double(c) - double(a) * double(b));
#endif
}
// Bounds; NaN stays.
template <class F> inline F at_most(F x, float most) { return every<F>(most) < x ? every<F>(most) : x; }
template <class F> inline F at_least(F x, float least) { return every<F>(least) > x ? every<F>(least) : x; }
#if defined(__AVX__)  // one instruction each, which the compiler does not find
inline __m256 at_most(__m256 x, float most) { return _mm256_min_ps(_mm256_set1_ps(most), x); }
inline __m256 at_least(__m256 x, float least) { return _mm256_max_ps(_mm256_set1_ps(least), x); }
#endif
#if defined(__AVX512F__)
inline __m512 at_most(__m512 x, float most) { return _mm512_min_ps(_mm512_set1_ps(most), x); }
inline __m512 at_least(__m512 x, float least) { return _mm512_max_ps(_mm512_set1_ps(least), x); }
#endif
template <class F> inline F magnitude(F x) { return bits<F>(bits<Word<F>>(x) & 0x7fffffffu); }
inline float keep_sign(float magnitude, float sign) { return __builtin_copysignf(magnitude, sign); }

template <class F> inline F rsqrt(F x) {
  for (unsigned i = 0; i < sizeof(F) / sizeof(float); ++i) x[i] = std::sqrt(x[i]);
  return 1.f / x;
}
#if defined(__AVX__) && defined(__FMA__)
// The reciprocal by approximation and one step of the third order; where that is NaN (0, infinity) the first stands.
inline __m256 rsqrt(__m256 x) {
  __m256 s = _mm256_sqrt_ps(x), r = _mm256_rcp_ps(s), e = 1.f - s * r;
  return e == e ? r + r * (e + e * e) : r;
}
#endif

#if defined(__AVX512F__)
inline __m512 rsqrt(__m512 x) {
  __m512 s = _mm512_sqrt_ps(x), r = _mm512_rcp14_ps(s), e = 1.f - s * r;
  return e == e ? r + r * (e + e * e) : r;
}
#endif
template <class F> inline F sqrt(F x) {
  for (unsigned i = 0; i < sizeof(F) / sizeof(float); ++i) x[i] = std::sqrt(x[i]);
  return x;
}
#if defined(__AVX__)
inline __m256 sqrt(__m256 x) { return _mm256_sqrt_ps(x); }
#endif
#if defined(__AVX512F__)
inline __m512 sqrt(__m512 x) { return _mm512_sqrt_ps(x); }
#endif

// ---- exp ---------------------------------------------------------------------------------------------------

// x = n ln2 + r with |r| <= ln2 / 2. The low bits of `place` hold n + bias: shifted into the exponent they are
// 2^(n + bias - 127).
template <class F> struct Reduced {
  F r;
  Word<F> place;
};
template <int bias, class F> inline Reduced<F> reduce(F x) {
  F z = x * kLog2e + (kRound + bias), k = z - (kRound + bias);
  return {(x - k * kLn2Hi) - k * kLn2Lo, bits<Word<F>>(z)};
}
template <class F = float> inline F scale(Word<F> place) { return bits<F>(place << 23); }
// (e^r - 1 - r) / r^2
template <class F> inline F exp_tail(F r) {
  return poly(r, 0.49999994f, 0.166665196f, 0.0416684076f, 0.00836889818f, 0.00138142111f);
}
// y 2^n in two factors, so that results below the normal numbers are rounded once; place holds n + 254.
template <class F> inline F scaled(F y, Word<F> place) {
  Word<F> half = place >> 1;
  return y * scale<F>(half) * scale<F>(place - half);
}
#if defined(__AVX512F__)  // one instruction, which rounds once; as a float, place is kRound + n + 254
typedef uint32_t Words16 __attribute__((vector_size(64)));
inline __m512 scaled(__m512 y, Words16 place) { return _mm512_scalef_ps(y, bits<__m512>(place) - (kRound + 254.f)); }
#endif
template <class F> inline F exp_reduced(F r) { return 1.f + (r + r * r * exp_tail(r)); }  // e^r
template <class F> inline F exp_below(F x) {  // x <= 0: 2^n comes as 2^(n + 64) 2^-64, again to round once
  Reduced<F> p = reduce<127 + 64>(at_least(x, -104.f));
  return exp_reduced(p.r) * scale<F>(p.place) * 5.42101086e-20f;
}
template <class F> inline F exp(F x) {
  Reduced<F> p = reduce<254>(at_most(at_least(x, -104.f), 89.f));
  return scaled(exp_reduced(p.r), p.place);
}
// (2^r - 1) / r
template <class F> inline F exp2_tail(F r) {
  return poly(r, 0.693147182f, 0.240226477f, 0.0555033237f, 0.00961843692f, 0.00133988739f, 0.000153533663f);
}
inline float exp2(float x) {
  float z = x + (kRound + 254.f), r = x - (z - (kRound + 254.f));
  float y = scaled(1.f + r * exp2_tail(r), bits<uint32_t>(z));
  y = x < -150.f ? 0.f : y;
  return x >= 128.f ? kInf : y;
}
inline float expm1(float x) {
  Reduced<float> p = reduce<126>(x);
  float q = p.r + p.r * p.r * exp_tail(p.r), h = scale(p.place);
  float y = 2.f * (h * q + (h - 0.5f));
  y = p.place == bits<uint32_t>(kRound + 126) ? q : y;  // n == 0: without the sum, which would lose tiny x
  y = x < -25.f ? -1.f : y;
  y = x > 88.7228394f ? kInf : y;
  return x == 0.f ? x : y;
}

// ---- log ---------------------------------------------------------------------------------------------------

// x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); x positive and finite.
inline float log_split(float x, float& k) {
  bool small = x < 1.17549435e-38f;
  uint32_t u = bits<uint32_t>(small ? x * 33554432.f : x);
  int32_t e = int32_t(u - 0x3f3504f3u) >> 23;
  k = float(e) - (small ? 25.f : 0.f);
  return bits<float>(u - (uint32_t(e) << 23)) - 1.f;
}
// log(1 + f) - f
inline float log_tail(float f) {
  float q = poly(f, 0.333333135f, -0.250000089f, 0.200021178f, -0.166679949f, 0.142195553f, -0.124056004f, 0.118881576f,
                 -0.116755918f, 0.067465879f);
  return f * f * (f * q - 0.5f);
}
inline float log_special(float x, float y) { return x > 0.f ? (x < kInf ? y : x) : x == 0.f ? -kInf : kNan; }
inline float log(float x) {
  float k, f = log_split(x, k);
  return log_special(x, k * kLn2Hi + (f + (log_tail(f) + k * kLn2Lo)));
}
inline float log2(float x) {
  float k, f = log_split(x, k);
  return log_special(x, float((double(f) + double(log_tail(f))) * kInvLn2 + double(k)));
}
inline float log10(float x) {
  float k, f = log_split(x, k);
  return log_special(x, float((double(f) + double(log_tail(f))) * kInvLn10 + double(k) * (kLn2 * kInvLn10)));
}
// The rounding error of 1 + x goes back in.
inline float log1p(float x) {
  float u = 1.f + x, lost = x < 1.f ? x - (u - 1.f) : 1.f - (u - x);
  float k, f = log_split(u, k);
  float y = k * kLn2Hi + (f + (log_tail(f) + k * kLn2Lo + lost / u));
  y = u > 0.f ? y : u == 0.f ? -kInf : kNan;
  y = u == kInf ? u : y;
  return x == 0.f ? x : y;
}

// ---- wide: double arithmetic for float results ---------------------------------------------------------------

inline double wide_pow2(int64_t n) { return bits<double>(uint64_t(n + 1023) << 52); }
inline double wide_round(double x, int64_t& n) {
  double z = x + kWideRound;
  n = int64_t(bits<uint64_t>(z) - bits<uint64_t>(kWideRound));
  return z - kWideRound;
}
inline double wide_expm1(double x) {
  x = x > 150. ? 150. : x;
  x = x < -150. ? -150. : x;
  int64_t n;
  double k = wide_round(x * kInvLn2, n), r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double q = r + r * r * poly(r, 0.4999999999999828, 0.16666666666610377, 0.04166666666816765, 0.008333333371471125,
                              0.0013888888510342264, 0.00019841184334387041, 2.4801935296438414e-05,
                              2.763540413939804e-06, 2.7476402236917596e-07);
  double s = wide_pow2(n);
  return s * q + (s - 1.);
}
inline double wide_exp(double x) {
  x = x > 150. ? 150. : x;
  x = x < -150. ? -150. : x;
  int64_t n;
  double k = wide_round(x * kInvLn2, n), r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double p = poly(r, 0.4999999999965751, 0.1666666666727742, 0.04166666696675755, 0.008333333091436704,
                  0.0013888810351931403, 0.0001984154184617887, 2.488121380488291e-05, 2.749273443427594e-06);
  return (1. + (r + r * r * p)) * wide_pow2(n);
}
inline double wide_exp2(double x) {
  x = x > 200. ? 200. : x;
  x = x < -200. ? -200. : x;
  int64_t n;
  double r = x - wide_round(x, n);
  double p = poly(r, 0.6931471805598852, 0.24022650695722814, 0.055504108668414334, 0.009618129181164536,
                  0.001333355762566989, 0.00015403440884627844, 1.5252989920076962e-05, 1.3258335260739171e-06,
                  1.0148355432139984e-07);
  return (1. + r * p) * wide_pow2(n);
}
// x positive and normal: k and log of the rest.
inline double wide_log_split(double x, double& k) {
  uint64_t u = bits<uint64_t>(x) - 0x3fe6a09e667f3bcdull;
  // An arithmetic shift by 52 of 64 bits, which AVX2 lacks, and its float: the exponent biased, then unbiased.
  uint64_t e = (u + (uint64_t(1024) << 52)) >> 52;
  k = bits<double>(e + bits<uint64_t>(kWideRound)) - (kWideRound + 1024.);
  double f = bits<double>(bits<uint64_t>(x) - ((e - 1024) << 52)) - 1.;
  double s = f / (2. + f), z = s * s;
  return 2. * s + 2. * s * z * poly(z, 0.333333333332935, 0.20000000026194853, 0.14285708554691245,
                                    0.11111686614333166, 0.09061794994001911, 0.08410240986498371);
}
inline double wide_log(double x) {
  double k, l = wide_log_split(x, k);
  return l + k * kLn2;
}
inline double wide_log1p(double x) {
  double u = 1. + x, lost = x < 1. ? x - (u - 1.) : 1. - (u - x);
  double k, l = wide_log_split(u, k);
  return k * kLn2 + (l + lost / u);
}

// ---- hyperbolic ----------------------------------------------------------------------------------------------

inline float tanh(float x) {
  float a = std::fabs(x), z = a * a;
  float near = a + a * z * poly(z, -0.333333194f, 0.133326024f, -0.053853862f, 0.0210777689f, -0.00628248835f);
  Reduced<float> p = reduce<127>(2.f * a);
  float e = exp_reduced(p.r) * scale(p.place);
  float far = 1.f - 2.f / (e + 1.f);
  far = a > 10.f ? 1.f : far;
  return keep_sign(a < 0.55f ? near : far, x);
}
// e^a / 2 for a >= 0; halved before it is scaled, so that it overflows where sinh does.
inline float half_exp(float a) {
  Reduced<float> p = reduce<253>(at_most(a, 90.f));
  return scaled(exp_reduced(p.r), p.place);
}
inline float sinh(float x) {
  float a = std::fabs(x), z = a * a, e = half_exp(a);
  float near = a + a * z * poly(z, 0.166667163f, 0.00833028089f, 0.000203724412f);
  return keep_sign(a < 1.f ? near : e - 0.25f / e, x);
}
inline float cosh(float x) {
  float e = half_exp(std::fabs(x));
  return e + 0.25f / e;
}
inline float asinh(float x) {
  double a = std::fabs(x), y = wide_log1p(a + a * a / (1. + std::sqrt(a * a + 1.)));
  return a < double(kInf) ? keep_sign(float(y), x) : x;
}
inline float acosh(float x) {
  double t = double(x) - 1., y = wide_log1p(t + std::sqrt(t * (t + 2.)));
  return t >= 0. ? (t < double(kInf) ? float(y) : x) : kNan;
}
inline float atanh(float x) {
  double a = std::fabs(x), y = 0.5 * wide_log1p(2. * a / (1. - a));
  return keep_sign(float(a < 1. ? y : a == 1. ? double(kInf) : double(kNan)), x);
}

// ---- circular ------------------------------------------------------------------------------------------------

constexpr float kCircular = 1e6f;  // beyond this the reduction below loses digits: use the standard library

// x = q pi/2 + r; products with the first part of pi/2 (33 bits) are exact.
inline double quadrant(float x, int64_t& q) {
  double k = wide_round(double(x) * 0.63661977236758134, q);
  return (double(x) - k * 1.57079632673412561417) - k * 6.07710050650619224932e-11;
}
template <int shift> inline float sin_cos(float x) {
  int64_t q64;
  float r = float(quadrant(x, q64)), z = r * r;
  int32_t q = int32_t(q64) + shift;
  float s = r + r * z * poly(z, -0.166666672f, 0.00833332911f, -0.000198393303f, 2.7182748e-06f);
  float c = 1.f + (z * z * poly(z, 0.0416666679f, -0.00138888834f, 2.47995158e-05f, -2.72098958e-07f) - 0.5f * z);
  float y = (q & 1) ? c : s;
  return bits<float>(bits<uint32_t>(y) ^ (uint32_t(q & 2) << 30));
}
inline float sin(float x) { return x == 0.f ? x : sin_cos<0>(x); }
inline float cos(float x) { return sin_cos<1>(x); }
inline float tan(float x) {
  int64_t q;
  double r = quadrant(x, q), z = r * r;
  double s = r + r * z * poly(z, -0.1666666666663145, 0.00833333332524494, -0.00019841263807851269,
                              2.755535445513139e-06, -2.4761407423407524e-08);
  double c = 1. + (z * z * poly(z, 0.04166666666660194, -0.0013888888878232307, 2.4801580952848547e-05,
                                -2.7555563656931325e-07, 2.064751109454731e-09) - 0.5 * z);
  bool odd = (q & 1) != 0;
  double y = (odd ? -c : s) / (odd ? s : c);
  return x == 0.f ? x : float(y);
}
// asin of s, z = s^2. Split where the reflected part (2p below) falls under 1 and its rounding error halves.
constexpr float kAsinSplit = 0.5425f;
inline float asin_core(float s, float z) {
  return s + s * z * poly(z, 0.166666448f, 0.0750137642f, 0.0443543345f, 0.0331201069f, 0.00966099836f, 0.0439549275f);
}
inline float asin(float x) {
  float a = std::fabs(x);
  bool big = a > kAsinSplit;
  float z = big ? 0.5f * (1.f - a) : a * a, p = asin_core(big ? std::sqrt(z) : a, z);
  return keep_sign(big ? kPio2Hi - (2.f * p - kPio2Lo) : p, x);
}
inline float acos(float x) {
  float a = std::fabs(x);
  bool big = a > kAsinSplit;
  float z = big ? 0.5f * (1.f - a) : a * a, p = asin_core(big ? std::sqrt(z) : a, z);
  float near = kPio2Hi - (keep_sign(p, x) - kPio2Lo), far = x > 0.f ? 2.f * p : 2.f * (kPio2Hi - (p - kPio2Lo));
  return big ? far : near;
}
// atan of t in [0, 1]
inline float atan_core(float t) {
  float z = t * t;
  return t + t * z * poly(z, -0.333333313f, 0.199999273f, -0.142841667f, 0.110945046f, -0.0898544118f, 0.072594434f,
                          -0.0545160584f, 0.0344759785f, -0.0162995253f, 0.00492638769f, -0.000697962882f);
}
inline float atan(float x) {
  float a = std::fabs(x), p = atan_core(a > 1.f ? 1.f / a : a);
  return keep_sign(a > 1.f ? kPio2Hi - (p - kPio2Lo) : p, x);
}
inline float atan2(float y, float x) {
  float a = std::fabs(y), b = std::fabs(x), big = a > b ? a : b, small = a > b ? b : a;
  float t = big == 0.f ? 0.f : small == kInf ? 1.f : small / big;
  float p = atan_core(t);
  p = a > b ? kPio2Hi - (p - kPio2Lo) : p;
  p = keep_sign(1.f, x) < 0.f ? 2.f * kPio2Hi - (p - 2.f * kPio2Lo) : p;
  return x == x && y == y ? keep_sign(p, y) : kNan;
}

// ---- error function --------------------------------------------------------------------------------------------

inline float erf(float x) {
  float a = std::fabs(x), z = a * a;
  float near = x + x * poly(z, 0.128379166f, -0.37612626f, 0.112835854f, -0.026853811f, 0.00518832728f, -0.00080101908f,
                            7.85385346e-05f);
  float c = a > 4.f ? 4.f : a;
  float far = 1.f - exp_below(-c * poly(c, 1.1286943f, 0.634969473f, 0.106530979f, -0.0240101684f, 0.00375752314f,
                                  -0.000350603281f, 1.39635522e-05f));
  return a < 1.f ? near : keep_sign(far, x);
}
// erfc(a / sqrt2) e^(a^2 / 2) / 2 for a >= 0, a rational function of a: a polynomial in 1 - 8 / (a + 4).
inline double wide_tail(double a) {
  double inv = 1. / (a + 4.), u = 1. - 8. * inv;
  return inv * poly(u, 0.755285130419729, -0.6078966419932027, 0.38713740002491603, -0.18652185659015652,
                    0.06039659637598393, -0.007540206888996031, -0.0034799372749034657, 0.0016308489952251686,
                    0.0001346540520522564, -0.00023054622130946884, -5.200499364882979e-06, 3.225292251814405e-05,
                    3.6735716427985497e-06, -1.5335648478601877e-06);
}
inline float erfc(float x) {
  double a = std::fabs(x);
  a = a > 11. ? 11. : a;
  double y = 2. * wide_tail(a * 1.4142135623730951) * wide_exp(-a * a);
  return float(x < 0.f ? 2. - y : y);
}
// The lower tail of the normal distribution at -a as 2^-P(a) / 2. P is right up to 6, where the tail is 1e-9; it then
// grows too fast, and from 2^-127 on the tail is 0.
constexpr float kTail = 12.f;
template <class F> inline F normal_tail(F a) {  // a <= kTail
  F p = a * poly(a, 1.15110576f, 0.459204793f, 0.0524946712f, -0.00702931592f, 6.84407423e-05f, 0.000246777025f,
                 -6.70565423e-05f, 9.3936078e-06f, -7.16635839e-07f, 2.34869066e-08f);
  F z = at_least((kRound + 126.f) - p, kRound), r = ((kRound + 126.f) - z) - p;
  return (1.f + r * exp2_tail(r)) * scale<F>(bits<Word<F>>(z));
}
// The same to 17 bits, which the 8 of bfloat16 do not need all.
template <class F> inline F short_tail(F a) {
  F p = a * poly(a, 1.15121436f, 0.458541572f, 0.0538909398f, -0.00847684871f, 0.000923186075f, -6.0726201e-05f,
                 1.79378230e-06f);
#if defined(__AVX512F__)
  if constexpr (sizeof(F) == 64) {
    F n = ((kRound - 1.f) - p) - kRound, r = (-1.f - n) - p;
    return _mm512_scalef_ps(1.f + r * poly(r, 0.693121552f, 0.240220204f, 0.0559196882f, 0.00968190935f), n);
  }
#endif
  F z = at_least((kRound + 126.f) - p, kRound), r = ((kRound + 126.f) - z) - p;
  return (1.f + r * poly(r, 0.693121552f, 0.240220204f, 0.0559196882f, 0.00968190935f)) * scale<F>(bits<Word<F>>(z));
}
inline float erfinv(float x) {
  float a = std::fabs(x), k, f = log_split(residual(a, a, 1.f), k);
  float w = -(k * kLn2Hi + (f + (log_tail(f) + k * kLn2Lo))), c = at_most(w - 1.25f, 3.75f), t = std::sqrt(w) - 3.f;
  float near = 0.189561576f + c * poly(c, 0.249519616f, 0.00251162192f, -0.00225370796f, 0.000143691854f,
                                       3.1057818e-05f, -5.08298899e-06f, -2.60653309e-07f, 1.22132406e-07f,
                                       -8.79110384e-09f);
  float far = 1.83297682f + t * poly(t, 1.00167489f, 0.00944176596f, -0.00763531541f, 0.00571402162f,
                                     -0.00361109152f, 0.00141824363f, -1.72749697e-05f, -0.000257124513f,
                                     7.88647812e-05f);
  float y = a + a * (w < 5.f ? near : far);
  return keep_sign(a < 1.f ? y : a == 1.f ? kInf : kNan, x);
}

// ---- pow -------------------------------------------------------------------------------------------------------

// A sum of two floats: twice the digits.
struct Pair {
  float hi, lo;
};
// log2 of a positive finite number to 31 bits: of 1 + f it is 2 / ln2 (s + s^3 / 3 + ...) with s = f / (2 + f).
inline Pair pair_log2(float x) {
  constexpr float c = 2.88539004f, c_lo = 3.85192673e-08f;
  float k, f = log_split(x, k), d = 2.f + f, inv = 1.f / d, s = f * inv, z = s * s;
  float s_lo = (residual(s, d, f) - s * (f - (d - 2.f))) * inv;
  float tail = s * z * poly(z, 0.961796701f, 0.577079773f, 0.411899865f, 0.336620659f);
  float p = s * c, hi = p + tail, sum = k + hi;
  float lo = (tail - (hi - p)) + (s_lo * c + (s * c_lo - residual(s, c, p)));
  return {sum, (hi - (sum - k)) + lo};
}
inline float pow(float x, float y) {
  float a = std::fabs(x);
  Pair l = pair_log2(a);
  l.hi = a == 0.f ? -kInf : a < kInf ? l.hi : a;
  float t = y * l.hi, t_lo = y * l.lo - residual(y, l.hi, t);
  t_lo = std::fabs(t) < 160.f ? t_lo : 0.f;  // beyond, the result is 0 or infinite
  t = at_most(at_least(t, -160.f), 160.f);
  float z = t + (kRound + 254.f), r = (t - (z - (kRound + 254.f))) + t_lo;
  float p = scaled(1.f + r * exp2_tail(r), bits<uint32_t>(z));
  bool integer = std::trunc(y) == y, even = std::trunc(0.5f * y) == 0.5f * y;
  p = integer && !even ? keep_sign(p, x) : p;
  p = x < 0.f && a < kInf && !integer ? kNan : p;
  return x == 1.f || y == 0.f || (x == -1.f && std::fabs(y) == kInf) ? 1.f : p;
}

// ---- activations -----------------------------------------------------------------------------------------------

// With e^-x = 2^n p it is h / (h + 2^n h p) for any h; with h = 2^(-n / 2) both sides stay in range.
template <class F> inline F sigmoid(F x) {
  Reduced<F> p = reduce<254>(-at_most(at_least(x, -104.f), 104.f));
  Word<F> half = p.place >> 1;
  F h = scale<F>(254 - half);
  return h / (h + scale<F>(p.place - half) * exp_reduced(p.r));
}
template <class F> inline F normal_cdf(F x) {
  F tail = normal_tail(at_most(magnitude(x), kTail));
  return x < 0.f ? tail : 1.f - tail;
}
template <class F> inline F gelu(F x) {  // of an infinity NaN, as torch
  F a = magnitude(x);
  return at_least(x, 0.f) - a * normal_tail(at_most(a, kTail));
}
template <class F> inline F short_gelu(F x) {
  F a = magnitude(x);
  return at_least(x, 0.f) - a * short_tail(at_most(a, kTail));
}
inline float log_sigmoid(float x) { return (x < 0.f ? x : 0.f) - log1p(exp_below(-std::fabs(x))); }

}  // namespace v
}  // namespace mt

#include "vmath_double.h"

namespace mt {
namespace v {

// ---- complex, and what double leaves to the standard library -----------------------------------------------------

#define MT_STD(NAME) template <class T> inline std::complex<T> NAME(std::complex<T> x) { return std::NAME(x); }
MT_STD(exp) MT_STD(log) MT_STD(log10) MT_STD(sin) MT_STD(cos) MT_STD(tan) MT_STD(asin) MT_STD(acos) MT_STD(atan)
MT_STD(sinh) MT_STD(cosh) MT_STD(tanh) MT_STD(asinh) MT_STD(acosh) MT_STD(atanh)
#undef MT_STD
inline double sin(double x) { return std::sin(x); }
inline double cos(double x) { return std::cos(x); }
inline double tan(double x) { return std::tan(x); }
inline double exp_below(double x) { return exp(x); }
inline float rsqrt(float x) { return 1.f / std::sqrt(x); }
inline double rsqrt(double x) { return 1. / std::sqrt(x); }
template <class T> inline std::complex<T> rsqrt(std::complex<T> x) {
  return complex_over(std::complex<T>(1), std::sqrt(x));
}
template <class T> inline std::complex<T> exp2(std::complex<T> x) { return std::exp(x * T(kLn2)); }
template <class T> inline std::complex<T> log2(std::complex<T> x) { return std::log(x) * T(kInvLn2); }
// Through double: the plain formulas lose the digits of small arguments.
template <class T> inline std::complex<T> expm1(std::complex<T> x) {
  double a = x.real(), b = x.imag(), s = std::sin(0.5 * b), e = std::expm1(a);
  return {T(e * std::cos(b) - 2 * s * s), T((e + 1) * std::sin(b))};
}
template <class T> inline std::complex<T> log1p(std::complex<T> x) {
  double a = x.real(), b = x.imag();
  return {T(0.5 * std::log1p(a * (2 + a) + b * b)), T(std::atan2(b, 1 + a))};
}
template <class T> inline std::complex<T> sigmoid(std::complex<T> x) {
  return complex_over(std::complex<T>(1), T(1) + std::exp(-x));
}
template <class T> inline std::complex<T> pow(std::complex<T> x, std::complex<T> y) { return std::pow(x, y); }

}  // namespace v
}  // namespace mt
