// exp of arguments not above zero, as softmax and its kin need it: arithmetic that vectorises. No other function.
#pragma once
#include <cstdint>
#include <cstring>

namespace mt {

// Within 1 ulp. Results that would be subnormal are zero, so exp(-inf) is; NaN stays. Adding 1.5 * 2^23 leaves the
// rounded quotient in the low bits of the sum, where the shift into the exponent finds it. Always inline: a loop with a call
// in it makes no vectors, and in a large file the compiler leaves some calls.
inline __attribute__((always_inline)) float exp_nonpositive(float x) {
  float t = x * 1.44269504088896341f + 12582912.f, k = t - 12582912.f;
  uint32_t n;
  std::memcpy(&n, &t, 4);
  n = (n << 23) + 0x3f800000;
  float scale, r = x - k * 0.693359375f + k * 2.12194440e-4f;
  std::memcpy(&scale, &n, 4);
  float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
             1.6666665459e-1f) * r + 5.0000001201e-1f;
  p = (p * r * r + r + 1.f) * scale;
  return x < -87.33f ? 0.f : p;
}
inline __attribute__((always_inline)) double exp_nonpositive(double x) {
  double t = x * 1.4426950408889634 + 6755399441055744., k = t - 6755399441055744.;
  uint64_t n;
  std::memcpy(&n, &t, 8);
  n = (n << 52) + 0x3ff0000000000000;
  double scale, r = x - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10;
  std::memcpy(&scale, &n, 8);
  double p = 1. / 6227020800;
  constexpr double c[] = {1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040,
                          1. / 720, 1. / 120, 1. / 24, 1. / 6, 0.5, 1., 1.};
  for (double a : c) p = p * r + a;
  return x < -708.3 ? 0. : p * scale;
}

}  // namespace mt
