// Loops of the orthogonal polynomials and of the rarer Bessel and Airy functions. In double, one item at a time.
#include <cmath>
#include <limits>

#include "loops.h"

namespace mt {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846;

// p(0) = 1, p(1) = first, p(k + 1) = next(k, p(k), p(k - 1)).
template <class F> double recur(double n, double first, F&& next) {
  if (!(n > -1)) return 0;  // a fraction is cut off
  const int64_t last = n < 1e6 ? int64_t(n) : 1000000;
  double before = 1, now = first;
  if (last == 0) return 1;
  for (int64_t k = 1; k < last && now == now; ++k) {
    const double then = next(double(k), now, before);
    before = now, now = then;
  }
  return now;
}
double chebyshev(double x, double n, double first) {
  return recur(n, first, [x](double, double p, double q) { return 2 * x * p - q; });
}
double chebyshev_t(double x, double n) { return chebyshev(x, n, x); }
double chebyshev_u(double x, double n) { return chebyshev(x, n, 2 * x); }
double chebyshev_v(double x, double n) { return chebyshev(x, n, 2 * x - 1); }
double chebyshev_w(double x, double n) { return chebyshev(x, n, 2 * x + 1); }
double hermite_h(double x, double n) {
  return recur(n, 2 * x, [x](double k, double p, double q) { return 2 * x * p - 2 * k * q; });
}
double hermite_he(double x, double n) {
  return recur(n, x, [x](double k, double p, double q) { return x * p - k * q; });
}
double laguerre_l(double x, double n) {
  return recur(n, 1 - x, [x](double k, double p, double q) { return ((2 * k + 1 - x) * p - k * q) / (k + 1); });
}
double legendre_p(double x, double n) {
  return recur(n, x, [x](double k, double p, double q) { return ((2 * k + 1) * x * p - k * q) / (k + 1); });
}

// K of order 0 or 1; scaled by e^x when requested.
double bessel_k(double x, int order, bool scaled) {
  if (x == 0) return kInf;
  if (!(x > 0)) return kNan;
  if (std::isinf(x)) return 0;
  if (x < 1e-20) return order ? 1 / x : -std::log(x / 2) - 0.57721566490153286;   // cyl_bessel_k does not converge
  if (x > 200) {  // the asymptotic series: cyl_bessel_k underflows
    const double mu = 4. * order * order;
    double sum = 1, term = 1;
    for (int k = 1; k < 12; ++k) sum += term *= (mu - (2. * k - 1) * (2. * k - 1)) / (8 * x * k);
    return sum * std::sqrt(kPi / (2 * x)) * (scaled ? 1 : std::exp(-x));
  }
  return std::cyl_bessel_k(double(order), x) * (scaled ? std::exp(x) : 1);
}
double bessel_i(double x, int order) {
  const double a = std::fabs(x);
  if (a != a) return a;
  return (order && x < 0 ? -1 : 1) * (a > 700 ? kInf : std::cyl_bessel_i(double(order), a));
}
double bessel_y(double x, int order) {
  if (x == 0) return -kInf;
  if (!(x > 0)) return kNan;
  return order ? y1(x) : y0(x);
}
double airy_ai(double x) {
  if (x != x) return x;
  if (std::isinf(x)) return x > 0 ? 0 : kNan;
  if (std::fabs(x) < 1e-8) return 0.355028053887817239 - 0.258819403792806798 * x;   // the Bessel functions overflow
  const double a = std::fabs(x), z = 2. / 3 * a * std::sqrt(a), third = 1. / 3;
  if (x > 0) return x > 103.892 ? 0 : std::sqrt(x / 3) / kPi * std::cyl_bessel_k(third, z);
  // J of order -1/3 is cos(pi/3) J - sin(pi/3) Y of order 1/3.
  return std::sqrt(a) / 3 * (1.5 * std::cyl_bessel_j(third, z) - 0.86602540378443864676 * std::cyl_neumann(third, z));
}
double spherical_j0(double x) {
  if (std::isinf(x)) return 0;
  return std::fabs(x) < 0.5 ? 1 - x * x / 6 * (1 - x * x / 20 * (1 - x * x / 42 * (1 - x * x / 72 * (1 - x * x / 110))))
                            : std::sin(x) / x;
}

#define MT_POLYNOMIAL(NAME, ...) MT_BINARY(special_##NAME, Floats, -1, T(__VA_ARGS__))
MT_POLYNOMIAL(chebyshev_polynomial_t, chebyshev_t(x, y))
MT_POLYNOMIAL(chebyshev_polynomial_u, chebyshev_u(x, y))
MT_POLYNOMIAL(chebyshev_polynomial_v, chebyshev_v(x, y))
MT_POLYNOMIAL(chebyshev_polynomial_w, chebyshev_w(x, y))
MT_POLYNOMIAL(shifted_chebyshev_polynomial_t, chebyshev_t(2 * double(x) - 1, y))
MT_POLYNOMIAL(shifted_chebyshev_polynomial_u, chebyshev_u(2 * double(x) - 1, y))
MT_POLYNOMIAL(shifted_chebyshev_polynomial_v, chebyshev_v(2 * double(x) - 1, y))
MT_POLYNOMIAL(shifted_chebyshev_polynomial_w, chebyshev_w(2 * double(x) - 1, y))
MT_POLYNOMIAL(hermite_polynomial_h, hermite_h(x, y))
MT_POLYNOMIAL(hermite_polynomial_he, hermite_he(x, y))
MT_POLYNOMIAL(laguerre_polynomial_l, laguerre_l(x, y))
MT_POLYNOMIAL(legendre_polynomial_p, legendre_p(x, y))
MT_UNARY(special_bessel_j0, Floats, -1, T(j0(double(x))))
MT_UNARY(special_bessel_j1, Floats, -1, T(j1(double(x))))
MT_UNARY(special_bessel_y0, Floats, -1, T(bessel_y(x, 0)))
MT_UNARY(special_bessel_y1, Floats, -1, T(bessel_y(x, 1)))
MT_UNARY(special_modified_bessel_i0, Floats, -1, T(bessel_i(x, 0)))
MT_UNARY(special_modified_bessel_i1, Floats, -1, T(bessel_i(x, 1)))
MT_UNARY(special_modified_bessel_k0, Floats, -1, T(bessel_k(x, 0, false)))
MT_UNARY(special_modified_bessel_k1, Floats, -1, T(bessel_k(x, 1, false)))
MT_UNARY(special_scaled_modified_bessel_k0, Floats, -1, T(bessel_k(x, 0, true)))
MT_UNARY(special_scaled_modified_bessel_k1, Floats, -1, T(bessel_k(x, 1, true)))
MT_UNARY(special_spherical_bessel_j0, Floats, -1, T(spherical_j0(x)))
MT_UNARY(special_airy_ai, Floats, -1, T(airy_ai(x)))

}  // namespace
}  // namespace mt
