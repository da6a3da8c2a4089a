// Branch-free mathematics of double that the compiler vectorises: within 2 ulp, erfc within 6; right for subnormals,
// infinities and NaN. Included by vmath.h, which has the same for float.
#pragma once

namespace mt {
namespace v {

namespace wide {

inline uint64_t bits_of(double x) { return bits<uint64_t>(x); }

constexpr double kLn2Hi = 0.6931471803691238, kLn2Lo = 1.9082149292705877e-10;  // 32 bits, and the rest
constexpr double kPio2Hi = 1.5707963267948966, kPio2Lo = 6.123233995736766e-17;
constexpr double kPio4Hi = 0.7853981633974483, kPio4Lo = 3.061616997868383e-17;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kSign = uint64_t(1) << 63;

inline double at_most(double x, double most) { return x > most ? most : x; }
inline double at_least(double x, double least) { return x < least ? least : x; }
inline double magnitude(double x) { return bits<double>(bits_of(x) & ~kSign); }
inline double keep_sign(double size, double sign) { return bits<double>((bits_of(size) & ~kSign) | (bits_of(sign) & kSign)); }
inline double head(double x) { return bits<double>(bits_of(x) & 0xfffffffff8000000ull); }  // 26 bits: its square is exact

// ---- exp: x = n ln2 + r; the low bits of `place` hold n + bias (see vmath.h) ---------------------------------------

struct Reduced {
  double r, low;
  uint64_t place;
};
template <int bias> inline Reduced reduce(double x) {
  double z = x * kInvLn2 + (kWideRound + bias), k = z - (kWideRound + bias), big = x - k * kLn2Hi, r = big - k * kLn2Lo;
  return {r, (big - r) - k * kLn2Lo, bits_of(z)};
}
inline double scale(uint64_t place) { return bits<double>(place << 52); }
inline double scaled(double y, uint64_t place) {  // y 2^n, rounded once; place holds n + 2046
  uint64_t low = place & 4095, half = low >> 1;
  return y * scale(half) * scale(low - half);
}
inline double exp_rest(double r) {  // e^r - 1 - r
  return r * r * poly(r, 0.5, 0.1666666666666667, 0.04166666666666667, 0.00833333333332607, 0.0013888888888883703,
                          0.00019841269875048905, 2.480158732571076e-05, 2.755725511097889e-06, 2.755727343657049e-07,
                          2.510533724466521e-08, 2.091477283224809e-09);
}
inline double exp(double x) {
  Reduced p = reduce<2046>(at_most(at_least(x, -746.), 710.));
  return scaled(1. + (p.r + exp_rest(p.r)), p.place);
}
inline double half_exp(double x) {  // e^x / 2 for 0 <= x: overflows where sinh does
  Reduced p = reduce<2045>(at_most(x, 711.));
  return scaled(1. + (p.r + exp_rest(p.r)), p.place);
}
inline double exp2_rest(double r) {  // (2^r - 1 - r ln2) / r^2
  return poly(r, 0.24022650695910072, 0.055504108664821625, 0.00961812910762848, 0.001333355814640647, 0.00015403530393370734,
              1.5252733841556773e-05, 1.3215486808705563e-06, 1.0178057087733941e-07, 7.0548973041554995e-09,
              4.4558179083360645e-10, 2.5729324177362305e-11);
}
inline double exp2(double x) {
  double y = at_most(at_least(x, -1076.), 1025.), z = y + (kWideRound + 2046.), r = y - (z - (kWideRound + 2046.));
  return scaled(1. + r * (kLn2 + r * exp2_rest(r)), bits_of(z));
}
inline double expm1(double x) {
  Reduced p = reduce<1022>(at_most(at_least(x, -40.), 709.9));
  double q = p.r + (exp_rest(p.r) + p.low), h = scale(p.place), y = 2. * (h * q + (h - 0.5));
  y = p.place == bits<uint64_t>(kWideRound + 1022) ? q : y;  // n == 0: without the sum, which would lose tiny x
  return x == 0. ? x : y;
}

// ---- log: x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)) -----------------------------------------------------------

struct Split {
  double k, f;
};
inline Split split(double x) {
  double low = x < 2.2250738585072014e-308 ? 54. : 0.;
  uint64_t whole = bits_of(x < 2.2250738585072014e-308 ? x * 18014398509481984. : x);
  uint64_t e = (whole - 0x3fe6a09e667f3bcdull + (uint64_t(1024) << 52)) >> 52;
  return {bits<double>(e + bits<uint64_t>(kWideRound)) - (kWideRound + 1024.) - low, bits<double>(whole - ((e - 1024) << 52)) - 1.};
}
// log(1 + f) = f - f^2 / 2 + log_rest
inline double log_rest(double f) {
  double s = f / (2. + f), z = s * s;
  double p = z * poly(z, 0.6666666666666666, 0.40000000000000885, 0.28571428570799784, 0.22222222392581045, 0.18181795547521137,
                 0.15386244737621665, 0.13268638369266825, 0.13088034850927555);
  return s * (0.5 * f * f + p);
}
inline double log_special(double x, double y) {
  y = x == kInf ? x : y;
  y = x > 0. ? y : kNan;
  return x == 0. ? -kInf : y;
}
inline double log(double x) {
  Split p = split(x);
  return log_special(x, p.k * kLn2Hi - ((0.5 * p.f * p.f - (log_rest(p.f) + p.k * kLn2Lo)) - p.f));
}
inline double log1p(double x) {  // the rounding error of 1 + x goes back in
  double u = 1. + x, lost = x < 1. ? x - (u - 1.) : 1. - (u - x);
  Split p = split(u);
  double y = p.k * kLn2Hi - ((0.5 * p.f * p.f - (log_rest(p.f) + (p.k * kLn2Lo + lost / u))) - p.f);
  y = log_special(u, y);
  return x == 0. ? x : y;
}
// log(x) times a constant, k times another, each as the sum of 32 bits and the rest.
inline double log_times(double x, double hi, double lo, double k_hi, double k_lo) {
  Split p = split(x);
  double half = 0.5 * p.f * p.f, first = bits<double>(bits_of(p.f - half) & 0xffffffff00000000ull);
  double rest = ((p.f - first) - half) + log_rest(p.f), big = p.k * k_hi, part = first * hi, sum = big + part;
  double small = p.k * k_lo + ((rest + first) * lo + rest * hi) + ((big - sum) + part);
  return log_special(x, sum + small);
}
inline double log2(double x) { return log_times(x, 1.4426950407214463, 1.6751713164886512e-10, 1., 0.); }
inline double log10(double x) {
  return log_times(x, 0.4342944818781689, 2.5082946711645275e-11, 0.3010299955494702, 1.1451100898021838e-10);
}

// ---- hyperbolic ------------------------------------------------------------------------------------------------

inline double tanh(double x) {
  double q = expm1(2. * at_most(magnitude(x), 22.));
  return keep_sign(q / (q + 2.), x);
}
inline double sinh(double x) {
  double a = magnitude(x), q = expm1(at_most(a, 2.)), e = half_exp(a);
  return keep_sign(a < 2. ? 0.5 * (q + q / (q + 1.)) : e - 0.25 / e, x);
}
inline double cosh(double x) {
  double e = half_exp(magnitude(x));
  return e + 0.25 / e;
}
inline double asinh(double x) {
  double a = magnitude(x), c = at_most(a, 1e10), y = log1p(c + c * c / (1. + std::sqrt(c * c + 1.)));
  return keep_sign(a > 1e10 ? log(a) + kLn2 : y, x);
}
inline double acosh(double x) {
  double t = at_most(x, 1e10) - 1., y = log1p(t + std::sqrt(t * (t + 2.)));
  y = x > 1e10 ? log(x) + kLn2 : y;
  return x < 1. ? kNan : y;
}
inline double atanh(double x) {
  double a = magnitude(x);
  return keep_sign(0.5 * log1p(2. * a / (1. - a)), x);
}

// ---- circular: right up to kCircular (see vmath.h) -----------------------------------------------------------------

// x = q pi / 2 + (r + low)
struct Turned {
  double r, low;
  uint64_t q;
};
inline Turned turned(double x) {
  double z = x * 0.63661977236758134 + kWideRound, k = z - kWideRound;
  double big = x - k * 1.5707963267341256, r = big - k * 6.077100506303966e-11;
  return {r, ((big - r) - k * 6.077100506303966e-11) - k * 2.0222662487959506e-21, bits_of(z)};
}
struct Pair {
  double sin, sin_low, cos, cos_low;
};
inline Pair sin_cos(const Turned& t) {
  double z = t.r * t.r, v = z * t.r, half = 0.5 * z, w = 1. - half;
  double s = poly(z, 0.008333333333333331, -0.0001984126984126504, 2.755731921932058e-06, -2.50521062259944e-08,
             1.6058530596645953e-10, -7.586636882825159e-13);
  double c = poly(z, 0.041666666666666664, -0.0013888888888888887, 2.4801587301584632e-05, -2.755731922139249e-07,
             2.0876755787492604e-09, -1.1470460319209511e-11, 4.745838412531023e-14);
  double past_r = (t.low - z * (0.5 * t.low - v * s)) - v * 0.16666666666666666, past_w = ((1. - w) - half) + (z * z * c - t.r * t.low);
  double sine = t.r + past_r, cosine = w + past_w;
  return {sine, (t.r - sine) + past_r, cosine, (w - cosine) + past_w};
}
template <int shift> inline double turn(double x) {
  Turned t = turned(x);
  Pair p = sin_cos(t);
  uint64_t q = t.q + shift;
  return bits<double>(bits_of((q & 1) == 1 ? p.cos : p.sin) ^ ((q & 2) << 62));
}
inline double sin(double x) { return x == 0. ? x : turn<0>(x); }
inline double cos(double x) { return turn<1>(x); }
inline double tan(double x) {
  Turned t = turned(x);
  Pair p = sin_cos(t);
  auto odd = (t.q & 1) == 1;
  double n = odd ? -p.cos : p.sin, d = odd ? p.sin : p.cos, y = n / d;
  y += ((odd ? -p.cos_low : p.sin_low) - y * (odd ? p.sin_low : p.cos_low)) / d;
  return x == 0. ? x : y;
}
// (asin(s) / s - 1) of z = s^2 <= 1/4
inline double asin_rest(double z) {
  return z * poly(z, 0.16666666666666669, 0.07499999999998433, 0.04464285714635543, 0.030381944138531247, 0.02237217294214989,
                  0.017352392720869973, 0.013971212973552933, 0.011479177415184906, 0.01032281435018578, 0.005457506718640358,
                  0.01740087944269402, -0.014851887071247204, 0.028757851367421566);
}
inline double asin(double x) {
  double a = magnitude(x), z = a > 0.5 ? 0.5 * (1. - a) : a * a, s = a > 0.5 ? std::sqrt(z) : a, rest = s * asin_rest(z);
  double h = head(s), low = (z - h * h) / (s + h + 1e-300);
  double far = kPio4Hi - ((2. * rest - (kPio2Lo - 2. * low)) - (kPio4Hi - 2. * h));
  return keep_sign(a > 0.5 ? far : s + rest, x);
}
inline double acos(double x) {
  double a = magnitude(x), z = a > 0.5 ? 0.5 * (1. - a) : a * a, s = a > 0.5 ? std::sqrt(z) : x, rest = s * asin_rest(z);
  double h = head(s), low = (z - h * h) / (s + h + 1e-300);
  double far = x > 0. ? 2. * (h + (rest + low)) : 2. * (kPio2Hi - (s + (rest - kPio2Lo)));
  return a > 0.5 ? far : kPio2Hi - (s - (kPio2Lo - rest));
}
// atan(small / big) for 0 <= small <= big in two parts.
inline Split angle(double small, double big) {
  auto far = small > 0.4142 * big;
  double t = (far ? small - big : small) / (far ? small + big : big), z = t * t;
  double p = t * z * poly(z, -0.3333333333333333, 0.199999999999998, -0.14285714285658824, 0.1111111110505757, -0.09090908748635232,
                         0.07692296234491514, -0.06666422364033206, 0.05878900032342983, -0.052302411507894, 0.045506220391755364,
                         -0.034545610104858494, 0.016258132064979208);
  double k = far ? kPio4Hi + t : t;
  return {k, far ? (kPio4Hi - k) + t + (p + kPio4Lo) : p};
}
inline double atan(double x) {
  double a = magnitude(x), c = at_most(a, 1e20);
  Split p = angle(a > 1. ? 1. : c, a > 1. ? c : 1.);
  return keep_sign(a > 1. ? kPio2Hi - (p.k + (p.f - kPio2Lo)) : p.k + p.f, x);
}
inline double atan2(double y, double x) {
  double a = magnitude(y), b = magnitude(x), big = a > b ? a : b, small = a > b ? b : a;
  auto huge = big > 1e300;  // halved: their sum may be infinite
  small = small == kInf ? 1. : huge ? 0.25 * small : small;
  big = big == kInf ? (a == b ? 1. : big) : big == 0. ? 1. : huge ? 0.25 * big : big;
  Split p = angle(small, big);
  double r = a > b ? kPio2Hi - (p.k + (p.f - kPio2Lo)) : p.k + p.f;
  r = bits_of(x) >= kSign ? 2. * kPio2Hi - (r - 2. * kPio2Lo) : r;
  return x == x && y == y ? keep_sign(r, y) : kNan;
}

// ---- error function --------------------------------------------------------------------------------------------

// e^(a^2) erfc(a) for 0 <= a: (a + 4) times it is a polynomial in (a - 4) / (a + 4).
inline double scaled_tail(double a) {
  double inv = 1. / (a + 4.), u = (a - 4.) * inv;
  return inv * poly(u, 1.095995661000491, -0.976548729080882, 0.7732087022652371, -0.5408538313132345, 0.3308515878780107,
                    -0.1740109372399329, 0.07638151490940508, -0.026370053340693644, 0.006112055653486423, -0.0002809588591885133,
                    -0.00045505265938199427, 0.00017681276807246345, -3.6353297554803268e-06, -1.8860655854330127e-05,
                    4.6950561785746e-06, 1.4235449489632272e-06, -8.478822791044027e-07, -7.440264873928993e-08,
                    1.2695265530273053e-07, -2.7536352872439167e-10, -1.8208755312145305e-08, 7.051199409337464e-10,
                    2.324811797433193e-09, -7.646504127629377e-11, -1.8622609150237945e-10);
}
// e^-(a^2): the square in two parts, as its rounding error would count many times over.
inline double exp_minus_square(double a) {
  double h = head(a), d = (a - h) * (a + h);
  return wide::exp(-(h * h)) * (1. - d * (1. - d * (0.5 - d * 0.16666666666666666)));
}
inline double erfc_far(double a) { return scaled_tail(a) * exp_minus_square(a); }  // 0 <= a <= 30
inline double erf_near(double x) {  // |x| <= 1
  double z = x * x;
  return x + x * poly(z, 0.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792, 0.0052239776248180145,
                      -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05, 1.6461000484121368e-06,
                      -1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09, 5.957176147748911e-11);
}
inline double erfc(double x) {
  double a = magnitude(x), y = erfc_far(at_most(a, 30.));
  return a < 0.5 ? 1. - erf_near(x) : x < 0. ? 2. - y : y;
}
inline double erf(double x) {
  double a = magnitude(x);
  return a < 1. ? erf_near(x) : keep_sign(1. - erfc_far(at_most(a, 7.)), x);
}

// ---- hypot ------------------------------------------------------------------------------------------------------

// The root of the sum of squares, of items scaled by the power of two below the larger one, less what its square is too large
// by: within 1 ulp.
inline __attribute__((always_inline)) double hypot(double x, double y) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  // Powers whose inverse is a normal number: products with others take a hundred cycles.
  constexpr int64_t exponent = 0x7ff0000000000000, lowest = 0x0010000000000000, highest = 0x7fd0000000000000;
  const double a = magnitude(x), b = magnitude(y), larger = a > b ? a : b;
  int64_t power = int64_t(bits_of(larger)) & exponent;
  power = power < lowest ? lowest : power;
  power = power > highest ? highest : power;
  const double down = bits<double>(0x7fe0000000000000 - power), up = bits<double>(power);
  const double big = larger * down, small = (a > b ? b : a) * down, square = big * big;
  const double root = std::sqrt(__builtin_fma(small, small, square));
  const double excess = __builtin_fma(-small, small, __builtin_fma(root, root, -square)) - __builtin_fma(big, big, -square);
  const double exact = root - excess * double(0.5f / float(root));
  const double found = (root > 0. ? exact : root) * up;
  return a == kInf || b == kInf ? kInf : a + b == a + b ? found : kNan;
#else
  return std::hypot(x, y);
#endif
}

// ---- pow: within 1 ulp -------------------------------------------------------------------------------------------

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
// log2 of a positive finite number as the sum of two parts, to 65 bits: of 1 + f it is s (2 + z (2/3 + 2/5 z + ...)) / ln2 with
// s = f / (2 + f) and z = s^2, of which every factor has two parts.
inline Split pair_log2(double a) {
  const Split p = split(a);
  const double d = 2. + p.f, inv = 1. / d, s = p.f * inv, s_low = (__builtin_fma(-s, d, p.f) - s * (p.f - (d - 2.))) * inv;
  const double z = s * s, z_low = __builtin_fma(s, s, -z) + 2. * s * s_low;
  const double w = z * poly(z, 0.4, 0.28571428571429364, 0.22222222221655885, 0.18181818335392802, 0.1538459496251843,
                            0.1333480469384731, 0.11706236339491206, 0.11723178623876518);
  const double q = 0.6666666666666666 + w, q_low = ((0.6666666666666666 - q) + w) + (3.700743415417188e-17 + 0.4 * z_low);
  const double v = z * q, v_low = __builtin_fma(z, q, -v) + (z * q_low + z_low * q);
  const double m = 2. + v, m_low = ((2. - m) + v) + v_low;
  const double l = s * m, l_low = __builtin_fma(s, m, -l) + (s * m_low + s_low * m);
  const double b = l * 1.4426950408889634;
  const double b_low = __builtin_fma(l, 1.4426950408889634, -b) + (l * 2.0355273740931033e-17 + l_low * 1.4426950408889634);
  const double sum = p.k + b;
  return {sum, ((p.k - sum) + b) + b_low};
}
inline __attribute__((always_inline)) double pow(double x, double y) {
  const double a = magnitude(x);
  const Split p = pair_log2(a);
  double hi = a < kInf ? p.k : a;
  hi = a == 0. ? -kInf : hi;
  double t = y * hi, low = __builtin_fma(y, hi, -t) + y * p.f;
  low = magnitude(t) < 1100. ? low : 0.;  // beyond, the result is 0 or infinite
  t = at_most(at_least(t, -1100.), 1100.);
  const double z = t + (kWideRound + 2046.), r = (t - (z - (kWideRound + 2046.))) + low;
  // 2^r with the product of its largest term in two parts.
  const double u = r * kLn2, sum = 1. + u, past = ((1. - sum) + u) + (__builtin_fma(r, kLn2, -u) + r * (2.3190468138462996e-17 + r * exp2_rest(r)));
  double e = scaled(sum + past, bits_of(z));
  // One condition at a time: of several together the compiler makes branches.
  const double parity = magnitude(y - 2. * std::trunc(0.5 * y));  // of an integer 0 or 1
  double part = magnitude(y - std::trunc(y));
  part = x < 0. ? part : 0.;
  part = a < kInf ? part : 0.;
  e = parity == 1. ? keep_sign(e, x) : e;
  e = part > 0. ? kNan : e;
  e = a == 1. ? (parity == parity ? e : 1.) : e;  // of an infinite exponent
  e = y == y ? e : y;
  e = x == 1. ? 1. : e;
  return y == 0. ? 1. : e;
}
#else
inline double pow(double x, double y) { return std::pow(x, y); }
#endif

// ---- activations -----------------------------------------------------------------------------------------------

inline double sigmoid(double x) {
  double e = exp(-magnitude(x));
  return (x < 0. ? e : 1.) / (1. + e);
}
inline double log_sigmoid(double x) { return (x < 0. ? x : 0.) - log1p(exp(-magnitude(x))); }
inline double normal_cdf(double x) { return 0.5 * erfc(x * -0.7071067811865476); }
inline double gelu(double x) { return x * normal_cdf(x); }

}  // namespace wide

using wide::exp; using wide::exp2; using wide::expm1; using wide::log; using wide::log2; using wide::log10;
using wide::log1p; using wide::sinh; using wide::cosh; using wide::tanh; using wide::asinh; using wide::acosh;
using wide::atanh; using wide::asin; using wide::acos; using wide::atan; using wide::atan2; using wide::erf;
using wide::erfc; using wide::hypot; using wide::pow; using wide::sigmoid; using wide::log_sigmoid; using wide::normal_cdf; using wide::gelu;

}  // namespace v
}  // namespace mt
