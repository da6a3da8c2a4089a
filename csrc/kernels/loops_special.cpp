// Loops of the special functions: gamma, Bessel, the normal distribution. In double, one item at a time, except erfinv.
#include <limits>

#include "loops.h"
#include "vmath.h"

namespace mt {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846, kSqrt1_2 = 0.70710678118654752440, kSqrtPi = 1.77245385090551602730;

double lgamma_(double x) {
  int sign;  // std::lgamma would write the global signgam
  return lgamma_r(x, &sign);
}

// Reflection to positive x, recurrence up to 10, the asymptotic series from there.
double digamma_(double x) {
  if (x == 0) return std::copysign(kInf, -x);
  double below = 0;
  if (x < 0) {
    if (x == std::trunc(x)) return kNan;
    double whole;
    below = -kPi / std::tan(kPi * std::modf(x, &whole));
    x = 1 - x;
  }
  for (; x < 10; x += 1) below -= 1 / x;
  double z = 1 / (x * x);
  double series = z * v::poly(z, 1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12);
  return below + std::log(x) - 0.5 / x - series;
}

// e^-|x| I_order(x): the power series, whose terms are all positive, or the asymptotic one, which from 25 on reaches
// full precision.
double bessel_scaled(double x, int order) {
  double a = std::fabs(x), sum = 1, term = 1, sign = order && x < 0 ? -1. : 1.;
  if (a != a) return a;
  if (a == kInf) return 0;
  if (a <= 25) {
    double z = 0.25 * a * a;
    for (int k = 1; term > sum * 1e-17; ++k) sum += term *= z / (double(k) * (k + order));
    return sign * sum * std::exp(-a) * (order ? 0.5 * a : 1.);
  }
  double mu = 4. * order * order;
  for (int k = 1; k < 30 && std::fabs(term) > 1e-17; ++k)
    sum += term *= -(mu - (2. * k - 1) * (2. * k - 1)) / (8 * a * k);
  return sign * sum / std::sqrt(2 * kPi * a);
}
double bessel(double x, int order) {
  double e = std::exp(0.5 * std::fabs(x));  // in two factors: the product may be finite where e^|x| is not
  double scaled = bessel_scaled(x, order);
  return std::fabs(x) == kInf ? (order ? x : kInf) : scaled * e * e;
}

// e^(x^2) erfc(x): the square in two parts, since its rounding error is multiplied by the square itself.
double erfcx(double x) {
  if (x < 25) {
    double head = double(float(x)), rest = (x - head) * (x + head);
    return x < -26.7 ? kInf : std::exp(head * head) * std::exp(rest) * std::erfc(x);
  }
  double z = 1 / (2 * x * x);
  return v::poly(z, 1., -1., 3., -15., 105., -945.) / (x * kSqrtPi);
}

// y with erfc(y) = t, 0 < t <= 1: a first guess, then Halley's steps.
double erfc_inverse(double t) {
  if (t <= 0) return t == 0 ? kInf : kNan;
  double y;
  if (t > 0.05) {
    y = double(v::erfinv(float(1 - t)));
  } else {
    double w = -std::log(t * kSqrtPi);
    y = std::sqrt(w - 0.5 * std::log(w));
  }
  for (int i = 0; i < 4; ++i) {
    double f = (std::erfc(y) - t) * kSqrtPi * 0.5 * std::exp(y * y);
    y += f / (1 - y * f);
  }
  return y;
}
double erfinv_(double x) {
  double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(kInf, x) : kNan;
  if (a > 0.5) return std::copysign(erfc_inverse(1 - a), x);
  double y = double(v::erfinv(float(x)));
  for (int i = 0; i < 2; ++i) {
    double f = (std::erf(y) - x) * kSqrtPi * 0.5 * std::exp(y * y);
    y -= f / (1 + y * f);
  }
  return y;
}
float erfinv_(float x) { return v::erfinv(x); }
double ndtri(double p) {
  if (!(p >= 0 && p <= 1)) return kNan;
  return p < 0.5 ? -erfc_inverse(2 * p) / kSqrt1_2 : erfc_inverse(2 * (1 - p)) / kSqrt1_2;
}
double log_ndtr(double x) {
  if (x < -1) return std::log(0.5 * erfcx(-x * kSqrt1_2)) - 0.5 * x * x;
  return std::log1p(-0.5 * std::erfc(x * kSqrt1_2));
}
double entr(double x) { return x > 0 ? -x * std::log(x) : x == 0 ? 0. : x != x ? x : -kInf; }
double sinc_(double x) { return x == 0 ? 1. : std::sin(kPi * x) / (kPi * x); }
float sinc_(float x) {  // of what is left beside a whole number, in double: vectors
  int64_t whole;
  const double r = (double(x) - v::wide_round(double(x), whole)) * kPi, z = r * r;
  const double sine = r + r * z * v::poly(z, -0.16666666666666666, 0.0083333333333333332, -0.00019841269841269841, 2.7557319223985893e-06,
                                          -2.505210838544172e-08, 1.6059043836821613e-10);
  const double y = ((whole & 1) != 0 ? -sine : sine) / (kPi * double(x));
  return x == 0.f ? 1.f : std::fabs(x) < 8388608.f ? float(y) : x - x;
}
template <class T> std::complex<T> sinc_(std::complex<T> x) {
  c128 y = c128(x) * kPi;
  return y == 0. ? std::complex<T>(1) : std::complex<T>(std::sin(y) / y);
}

MT_UNARY(lgamma, Floats, -1, T(lgamma_(x)))
MT_UNARY(digamma, Floats, -1, T(digamma_(x)))
MT_UNARY(erfinv, Floats, -1, erfinv_(x))
MT_UNARY(sinc, FloatsComplex, -1, T(sinc_(x)))
MT_UNARY(i0, Floats, -1, T(bessel(x, 0)))
MT_UNARY(special_i0e, Floats, -1, T(bessel_scaled(x, 0)))
MT_UNARY(special_i1, Floats, -1, T(bessel(x, 1)))
MT_UNARY(special_i1e, Floats, -1, T(bessel_scaled(x, 1)))
MT_UNARY(special_entr, Floats, -1, T(entr(x)))
MT_UNARY(special_ndtri, Floats, -1, T(ndtri(x)))
MT_UNARY(special_log_ndtr, Floats, -1, T(log_ndtr(x)))
MT_UNARY(special_erfcx, Floats, -1, T(erfcx(x)))

// logit(self; eps?)
template <class T> struct logit_op {
  T lo = -T(kInf), hi = T(kInf);
  explicit logit_op(const Attr* a) {
    if (a[0].given) lo = T(a[0].f), hi = T(1) - lo;
  }
  T operator()(T x) const {
    x = x < lo ? lo : x > hi ? hi : x;
    return v::log(x / (T(1) - x));
  }
};
MT_ROW(logit, Floats, 1, -1)

// Regularised incomplete gamma functions: the series below a + 1, Lentz's continued fraction above it.
double igamma_pair(double a, double x, bool upper) {
  if (!(x >= 0) || !(a >= 0) || (a == 0 && x == 0)) return kNan;
  if (a == 0) return upper ? 0. : 1.;
  if (x == 0) return upper ? 1. : 0.;
  if (a == kInf) return x == kInf ? kNan : upper ? 1. : 0.;
  if (x == kInf) return upper ? 0. : 1.;
  double scale = std::exp(a * std::log(x) - x - lgamma_(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int k = 1; k < 20000 && term > sum * 1e-17; ++k) sum += term *= x / (a + k);
    return upper ? 1 - sum * scale : sum * scale;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int k = 1; k < 20000; ++k) {
    double n = -k * (k - a);
    b += 2;
    d = 1 / (n * d + b);
    c = b + n / c;
    h *= d * c;
    if (std::fabs(d * c - 1) < 1e-16) break;
  }
  return upper ? h * scale : 1 - h * scale;
}
// The Hurwitz zeta function by Euler and Maclaurin: nine terms, the integral, and the corrections.
double zeta(double s, double q) {
  constexpr double factors[] = {12., -720., 30240., -1209600., 47900160., -1.8924375803183791606e9,
      7.47242496e10, -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
      1.8152105401943546773e17, -7.1661652561756670113e18};
  if (s == 1) return kInf;
  if (s < 1) return kNan;
  if (q <= 0) {
    if (q == std::floor(q)) return kInf;
    if (s != std::floor(s)) return kNan;
  }
  double sum = std::pow(q, -s), term = 0;
  for (int i = 0; i < 9 || q <= 9; ++i) {
    q += 1;
    sum += term = std::pow(q, -s);
    if (std::fabs(term) < 1e-17 * std::fabs(sum)) return sum;
  }
  sum += term * q / (s - 1) - 0.5 * term;
  double a = 1;
  for (int i = 0; i < 12; ++i) {
    a *= s + 2 * i;
    term /= q;
    double t = a * term / factors[i];
    sum += t;
    if (std::fabs(t) < 1e-17 * std::fabs(sum)) break;
    a *= s + 2 * i + 1;
    term /= q;
  }
  return sum;
}
MT_BINARY(igamma, Floats, -1, T(igamma_pair(x, y, false)))
MT_BINARY(igammac, Floats, -1, T(igamma_pair(x, y, true)))
MT_BINARY(special_zeta, Floats, -1, T(zeta(x, y)))

}  // namespace
}  // namespace mt
