// HiFloat8 as its publication defines it (arXiv 2409.16626): numbers near one have 3 bits of fraction, distant ones 1, tiny ones none.
#include "ops/hifloat8.h"

#include <cmath>
#include <cstdlib>

namespace cann_sim {
namespace {

constexpr uint8_t kNan = 0x80, kInfinity = 0x6F;
constexpr float kBeyond = 40960;  // 1.25 * 2^15: half way between the largest number and what would follow it
constexpr int kLeast = -22;       // 2^-22 is the smallest number; up to 2^-16 they are powers of two, with codes 1 to 7

struct Form { int prefix, shift, fraction; };  // the prefix stands above `shift` bits of exponent and fraction

// By how many bits the exponent's magnitude has: none for 0, else its first bit, a one, is not stored.
constexpr Form kForms[] = {{1, 3, 3}, {1, 4, 3}, {1, 5, 3}, {2, 5, 2}, {3, 5, 1}};

int magnitude_bits(int exponent) {
  int bits = 0;
  for (int left = std::abs(exponent); left; left >>= 1) ++bits;
  return bits;
}

}  // namespace

float hifloat8_value(uint8_t code) {
  const int rest = code & 0x7F;
  if (code == kNan) return NAN;
  if (!rest) return 0;
  float x;
  if (rest == kInfinity) x = INFINITY;
  else if (rest < 8) x = std::ldexp(1.f, rest + kLeast - 1);
  else {
    const int bits = rest < 16 ? 0 : rest < 32 ? 1 : rest < 64 ? 2 : rest < 96 ? 3 : 4;
    const Form& form = kForms[bits];
    const int fraction = rest & ((1 << form.fraction) - 1), exponent = (rest & ((1 << form.shift) - 1)) >> form.fraction;
    const int magnitude = bits ? 1 << (bits - 1) | (exponent & ((1 << (bits - 1)) - 1)) : 0;
    const bool below = bits && exponent >> (bits - 1);
    x = std::ldexp(1 + std::ldexp(float(fraction), -form.fraction), below ? -magnitude : magnitude);
  }
  return code & 0x80 ? -x : x;
}

uint8_t hifloat8_code(float x) {
  if (x != x) return kNan;
  const float a = std::fabs(x);
  const int sign = std::signbit(x) ? 0x80 : 0;
  if (a >= kBeyond) return uint8_t(sign | kInfinity);
  if (a < std::ldexp(1.f, kLeast - 1)) return 0;  // there is no zero below zero: that code is NaN
  int exponent = std::ilogb(a);
  auto rounded = [&](int fraction) { return int(std::floor(std::ldexp(a, fraction - exponent) + 0.5f)); };
  if (exponent < -15) {
    exponent = exponent < kLeast ? kLeast : exponent + (rounded(0) > 1);
    if (exponent < -15) return uint8_t(sign | (exponent - kLeast + 1));
    return uint8_t(sign | 3 << 5 | 15 << 1);  // 2^-15
  }
  int bits = magnitude_bits(exponent), whole = rounded(kForms[bits].fraction);
  if (whole >> kForms[bits].fraction == 2) {  // the next power of two, where the fraction may have another length
    bits = magnitude_bits(++exponent);
    whole = 1 << kForms[bits].fraction;
  }
  const Form& form = kForms[bits];
  const int magnitude = std::abs(exponent) - (bits ? 1 << (bits - 1) : 0), below = exponent < 0 ? 1 << (bits - 1) : 0;
  return uint8_t(sign | form.prefix << form.shift | (magnitude | below) << form.fraction | (whole & ((1 << form.fraction) - 1)));
}

Value from_hifloat8(const Value& codes) {
  const Value in = codes.as(mt::kUInt8).dense(), made = empty(in.shape(), mt::kFloat);
  for (int64_t i = 0, n = in.numel(); i < n; ++i) made.ptr<float>()[i] = hifloat8_value(in.ptr<uint8_t>()[i]);
  return made;
}

Value to_hifloat8(const Value& x) {
  const Value in = x.to(mt::kFloat).dense(), made = empty(in.shape(), mt::kUInt8);
  for (int64_t i = 0, n = in.numel(); i < n; ++i) made.ptr<uint8_t>()[i] = hifloat8_code(in.ptr<float>()[i]);
  return made;
}

}  // namespace cann_sim
