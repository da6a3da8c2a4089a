// Loops of the special functions: gamma, Bessel, the normal distribution. Most are in double and branch-free, so that the
// compiler makes vectors for float and double; incomplete gamma and zeta go item by item.
#include <limits>

#include "loops.h"
#include "vmath.h"

namespace mt {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846, kSqrt1_2 = 0.70710678118654752440, kSqrtPi = 1.77245385090551602730;

// sin(pi x) and cos(pi x), both with the same sign or both with the other.
struct Turn {
  double sine, cosine;
};
inline Turn half_turns(double x) {
  int64_t whole;
  const double r = (x - v::wide_round(x, whole)) * kPi;
  return {v::wide::turn<0>(r), v::wide::turn<1>(r)};
}

// log of the gamma function. In [1, 2.5] with both zeros as factors; up to 8 by the recurrence, then the asymptotic series;
// by reflection below 0, where near a zero only the absolute error is small.
inline double lgamma_positive(double x) {
  double y = x < 1 ? x + 1 : x, product = 1;
  auto down = [&] {
    const double below = y >= 2.5 ? y - 1 : y;
    product = y >= 2.5 ? product * below : product;
    y = below;
  };
  down(), down(), down(), down(), down(), down();
  const double u = y * (4. / 3) - 7. / 3, l = v::log(x < 1 || x >= 8 ? x : product), z = 1 / (x * x);
  const double near = (x < 1 ? x : y - 1) * (x < 1 ? x - 1 : y - 2) * v::poly(u, 0.4501393121092563, -0.08961118996893205, 0.02504275154916456, -0.008038388459636878,
      0.0027768984547282606, -0.0010028956763077732, 0.0003729600119860775, -0.00014156848293094692,
      5.4551200993948915e-05, -2.1263268683367353e-05, 8.36364443781725e-06, -3.313901748489389e-06,
      1.3205575341289792e-06, -5.291318237904447e-07, 2.1414879912862543e-07, -8.652835246958273e-08,
      3.318593463733553e-08, -1.347994799498292e-08, 7.47113828068614e-09, -3.062146810197855e-09,
      -5.594719095324771e-11, 2.6630538952593178e-11, 4.880199208585806e-10, -2.0160695070772754e-10);
  const double series = v::poly(z, 1. / 12, -1. / 360, 1. / 1260, -1. / 1680, 1. / 1188, -691. / 360360, 1. / 156, -3617. / 122400);
  const double far = (x - 0.5) * (l - 1) + 0.41893853320467274 + series / x;
  return x >= 8 ? far : x < 1 ? near - l : near + l;
}
inline double lgamma_below(double x) {  // any x
  const double a = std::fabs(x), l = lgamma_positive(a);
  const double r = x < 0 ? 1.1447298858494002 - v::log(a * std::fabs(half_turns(a).sine)) - l : l;
  return a == kInf ? a : r;
}

// Ten steps of the recurrence below 10, nine of them in one fraction, then the asymptotic series; by reflection below 0.
inline __attribute__((always_inline)) double digamma_(double x) {
  const double y = x < 0 ? 1 - x : x;
  const bool low = y < 10;
  const double under = v::poly(y, 362880., 1026576., 1172700., 723680., 269325., 63273., 9450., 870., 45., 1.);  // (y + 1) ... (y + 9)
  const double over = v::poly(y, 1026576., 2345400., 2171040., 1077300., 316365., 56700., 6090., 360., 9.);
  const double w = low ? y + 10 : y, z = 1 / (w * w);
  const double series = z * v::poly(z, 1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12);
  const Turn turn = half_turns(x);
  const double steps = over / under + 1 / y, reflected = kPi * turn.cosine / turn.sine;  // at 0 and below: infinite
  double r = (v::log(w) - 0.5 / w - series) - (low ? steps : 0.);
  r -= x < 0 ? reflected : 0.;
  r = x < 0 && turn.sine == 0 ? kNan : r;
  return x == 0 ? v::wide::keep_sign(kInf, -x) : r;
}

// The derivative of digamma, by the same steps.
inline __attribute__((always_inline)) double trigamma(double x) {
  const double y = x < 0 ? 1 - x : x, w = y < 10 ? y + 10 : y, u = 1 / w, z = u * u;
  auto step = [y](double k) { return 1 / ((y + k) * (y + k)); };
  const double steps = (((step(9) + step(8)) + (step(7) + step(6))) + ((step(5) + step(4)) + (step(3) + step(2)))) + step(1) + step(0);
  const double series = v::poly(z, 1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6);
  const double r = (y < 10 ? steps : 0.) + (u + 0.5 * z + u * z * series), sine = half_turns(x).sine * (1 / kPi);
  return x < 0 ? 1 / (sine * sine) - r : r;
}

// I of order 0 or 1: up to 8 its power series, all of whose terms are positive; e^-x sqrt(x) I(x) is smooth in 1 / x above.
template <int order> inline double bessel_near(double a) {
  const double z = 0.25 * a * a;
  if constexpr (order == 0)
    return v::poly(z, 1., 1.0000000000000009, 0.2499999999999948, 0.027777777777788643, 0.0017361111110991466, 6.944444445240514e-05,
                   1.9290123422052142e-06, 3.9367599937651325e-08, 6.151185080653331e-10, 7.594093461237802e-12,
                   7.5936581264081e-14, 6.279425816382418e-16, 4.338239454264185e-18, 2.6638168379729013e-20,
                   1.0805568728893e-22, 9.604864662681523e-25);
  else
    return 0.5 * a * v::poly(z, 1., 0.5000000000000001, 0.08333333333333304, 0.0069444444444450686, 0.00034722222222153507,
                             1.157407407453132e-05, 2.7557319204030443e-07, 4.920949921538654e-09, 6.834651294492253e-11,
                             7.594078567160322e-13, 6.90345927367201e-15, 5.231992159979275e-17, 3.3410044697092935e-19,
                             1.891028804078631e-21, 7.413211040554544e-24, 5.833651333188183e-26);
}
template <int order> inline double bessel_far(double a) {
  const double u = 16 / a - 1;
  double p;
  if constexpr (order == 0)
    p = v::poly(u, 0.4021765094450081, 0.0033605519836678913, 0.00013621607438951463, 1.114303378845176e-05,
                1.4838476780922646e-06, 2.9735992084667734e-07, 8.872014585661555e-08, 3.932512321137824e-08,
                2.156780676115673e-08, 7.559364098665437e-09, -6.856484545962442e-09, -1.3427511481900905e-08,
                -5.0175940345046716e-09, 7.600254486433509e-09, 6.522264862032271e-09, -3.5862834111582305e-09,
                -4.5305710768621196e-09, 1.6084886155781772e-09, 2.163681278413876e-09, -6.327909921997027e-10,
                -6.494591114401118e-10, 1.7698085539456536e-10, 9.114760157514253e-11, -2.4421972688131832e-11);
  else
    p = v::poly(u, 0.38939845902587233, -0.009749577193235765, -0.00021923576383137776, -1.5038547198221758e-05,
                -1.8349102493990178e-06, -3.4838563464253135e-07, -1.0001075046243961e-07, -4.3128498031006734e-08,
                -2.3394122958362557e-08, -8.432168972932417e-09, 6.84757829926934e-09, 1.4051746928735543e-08,
                5.5720183980930355e-09, -7.687251308765992e-09, -6.9444186339873875e-09, 3.501765193290176e-09,
                4.763780078020254e-09, -1.5218214060680734e-09, -2.2624401109204446e-09, 5.870664618471487e-10,
                6.7727478454462e-10, -1.6283264322621244e-10, -9.491890392992048e-11, 2.2421768596847442e-11);
  return p / std::sqrt(a);
}
template <int order> inline double bessel_sign(double y, double x) { return order == 1 && x < 0 ? -y : y; }
template <int order> inline double bessel_scaled(double x) {
  const double a = std::fabs(x), r = a <= 8 ? bessel_near<order>(a) * v::exp(-a) : bessel_far<order>(a);
  return bessel_sign<order>(a == kInf ? 0 : r, x);
}
template <int order> inline double bessel(double x) {
  const double a = std::fabs(x), e = v::exp(0.5 * a);  // in two factors: the product may be finite where e^|x| is not
  return bessel_sign<order>(a <= 8 ? bessel_near<order>(a) : a == kInf ? a : bessel_far<order>(a) * e * e, x);
}

// e^(x^2) erfc(x): the square in two parts, since its rounding error is multiplied by the square itself.
inline double erfcx(double x) {
  const double a = std::fabs(x), y = v::wide::scaled_tail(a), head = v::wide::head(a), rest = (a - head) * (a + head);
  const double e = v::exp(head * head) * (1 + rest * (1 + rest * (0.5 + rest * 0.16666666666666666)));
  return a == kInf ? (x < 0 ? kInf : 0) : x < -26.7 ? kInf : x < 0 ? 2 * e - y : y;
}

// The quantile of the normal distribution at 0.5 + q, where |q| is 0.5 - tail: rational functions, of q^2 in the middle and
// of sqrt(-log(tail)) at the ends.
inline double normal_quantile(double q, double tail) {
  const double c = 0.180625 - q * q, r = std::sqrt(-v::log(tail)), t = r - (r < 5 ? 1.6 : 5.);
  const double middle = q * (v::poly(c, 3.3871328727963665, 132.97557683613962, 1966.1728969176218, 13669.059879025406,
                                     45611.95020184088, 66635.35275395523, 33014.173124910216, 2468.94417789781) /
                             v::poly(c, 1., 42.26429481730511, 685.4400433328685, 5371.535865451887, 21082.49143662968,
                                     38971.52756182228, 28403.528046290998, 5150.707444391109));
  const double near = v::poly(t, 1.4234371107496837, 4.634866019562531, 5.783375059868183, 3.663265223698968, 1.278367767573018,
                              0.24371297048550858, 0.022927943290002327, 0.0007812783501698492) /
                      v::poly(t, 1., 2.056372781162814, 1.6823178116080353, 0.6937551129432789, 0.1492644762762677,
                              0.015335413433241333, 0.0005523546610193419, 1.05061927906254e-09);
  const double far = v::poly(t, 6.657904643501103, 5.461748543207097, 1.783291551960053, 0.2961124260162856, 0.026468364984692457,
                             0.001238099890938646, 2.696645379224926e-05, 1.99394600439588e-07) /
                     v::poly(t, 1., 0.5995263493731773, 0.13676686729600082, 0.01484364752389099, 0.0007841384175322803,
                             1.8363542134109737e-05, 1.4099235744912908e-07, 1.9956929951839242e-15);
  const double y = c > 0 ? middle : std::copysign(tail == 0 ? kInf : r < 5 ? near : far, q);
  return tail >= 0 ? y : kNan;
}
inline double erfinv_(double x) { return kSqrt1_2 * normal_quantile(0.5 * x, 0.5 * (1 - std::fabs(x))); }
inline float erfinv_(float x) { return v::erfinv(x); }
inline double ndtri(double p) { return normal_quantile(p - 0.5, p < 0.5 ? p : 1 - p); }
inline double log_ndtr(double x) {
  const double a = std::fabs(x) * kSqrt1_2, c = a > 1e10 ? 1e10 : a, tail = 0.5 * v::wide::scaled_tail(c);
  const double below = 0.5 * v::erfc(x * kSqrt1_2), l = v::log1p(x < -1 ? tail - 1 : -below);
  return x < -1 ? v::log(tail) - 0.5 * x * x : l;
}
inline double entr(double x) { return x > 0 ? -x * v::log(x) : x == 0 ? 0. : x != x ? x : -kInf; }
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

// Below 0 a double wants more than the vectors give; such blocks go item by item.
inline double lgamma_(double x) {
  int sign;  // std::lgamma would write the global signgam
  return lgamma_r(x, &sign);
}
template <class T> struct lgamma_op {
  explicit lgamma_op(const Attr*) {}
  T operator()(T x) const { return T(std::is_same_v<T, float> ? lgamma_below(x) : lgamma_positive(x)); }
  static T far(T x) { return T(lgamma_(x)); }
  static bool is_far(T x) { return x < T(0); }
};
Pointwise lgamma_kernel() {
  Pointwise k = make<lgamma_op, Floats, 1>("lgamma");
  k.loop[kDouble] = divided_loop<lgamma_op, double>;
  return k;
}
RegisterPointwise lgamma_row(lgamma_kernel());
MT_UNARY(digamma, Floats, -1, T(digamma_(x)))
MT_UNARY(trigamma, Floats, -1, T(trigamma(x)))
MT_UNARY(erfinv, Floats, -1, erfinv_(x))
MT_UNARY(sinc, FloatsComplex, -1, T(sinc_(x)))
MT_UNARY(i0, Floats, -1, T(bessel<0>(x)))
MT_UNARY(special_i0e, Floats, -1, T(bessel_scaled<0>(x)))
MT_UNARY(special_i1, Floats, -1, T(bessel<1>(x)))
MT_UNARY(special_i1e, Floats, -1, T(bessel_scaled<1>(x)))
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
