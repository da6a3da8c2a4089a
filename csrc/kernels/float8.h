// The 8-bit floats as numbers: each code to float, and a float to the nearest code. Arrays are converted in convert.cpp.
#pragma once
#include <array>

#include "scalar.h"

namespace mt {

// exponent bias, bits of the significand, the largest code of a number, and what is beyond it: a NaN is one code without
// a sign ("uz": that of -0, which does not exist), or all codes above the largest number or infinity.
struct Float8 {
  int bias, digits;
  uint8_t beyond;      // what numbers too large become
  uint8_t nan;
  bool unsigned_zero;  // fnuz
  bool infinite;
};
constexpr Float8 kE4M3FN = {7, 3, 0x7e, 0x7f, false, false};  // saturates, as torch does since 2.12
constexpr Float8 kE5M2 = {15, 2, 0x7c, 0x7f, false, true};
constexpr Float8 kE4M3FNUZ = {8, 3, 0x80, 0x80, true, false};
constexpr Float8 kE5M2FNUZ = {16, 2, 0x80, 0x80, true, false};

inline float float_of_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

template <const Float8& F> inline uint8_t to_float8(float f) {
  constexpr int shift = 23 - F.digits;
  constexpr uint32_t least = uint32_t(128 - F.bias) << 23;                       // the smallest normal number
  constexpr uint32_t magic = uint32_t(128 - F.bias + 23 - F.digits) << 23;       // its last bit is that of a subnormal
  constexpr uint32_t largest = F.unsigned_zero ? 0x7f : F.infinite ? 0x7b : 0x7e;
  uint32_t u;
  std::memcpy(&u, &f, 4);
  const uint32_t sign = (u >> 24) & 0x80;
  u &= 0x7fffffff;
  if (u > 0x7f800000) return F.unsigned_zero ? F.nan : uint8_t(sign | F.nan);
  uint32_t code;
  if (u < least) {  // let the FPU round
    const float sum = float_of_bits(u) + float_of_bits(magic);
    std::memcpy(&code, &sum, 4);
    code -= magic;
  } else {
    code = (u - (uint32_t(127 - F.bias) << 23) + (1u << (shift - 1)) - 1 + ((u >> shift) & 1)) >> shift;
  }
  if (code > largest) return F.unsigned_zero ? F.beyond : uint8_t(sign | F.beyond);
  return F.unsigned_zero && code == 0 ? 0 : uint8_t(sign | code);
}

template <const Float8& F> inline float from_float8(uint8_t code) {
  const uint32_t sign = uint32_t(code & 0x80) << 24, mag = code & 0x7f, fraction = mag & ((1u << F.digits) - 1);
  constexpr uint32_t top = 0x7f;
  if (F.unsigned_zero) {
    if (code == 0x80) return float_of_bits(0xff800001);
  } else if (F.infinite) {
    if (mag >> F.digits == top >> F.digits) return float_of_bits(sign | 0x7f800000 | fraction << (23 - F.digits));
  } else if (mag == top) {
    return float_of_bits(sign | 0x7ff00000);
  }
  if (mag >> F.digits == 0) {
    const float f = float(fraction) * float_of_bits(uint32_t(128 - F.bias - F.digits) << 23);
    return sign ? -f : f;
  }
  return float_of_bits(sign | ((mag << (23 - F.digits)) + (uint32_t(127 - F.bias) << 23)));
}

// A power of two alone, from 2^-127 on; no sign, no zero. Halfway numbers go up.
inline uint8_t to_e8m0(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  const uint32_t exponent = (u >> 23) & 0xff, rest = u & 0x3fffff;
  const bool half = u & 0x400000;
  if (exponent == 0xff) return 0xff;
  return uint8_t(exponent + (half && (exponent > 0 || rest)));
}
inline float from_e8m0(uint8_t code) {
  return float_of_bits(code == 0 ? 0x00400000 : code == 0xff ? 0x7f800001 : uint32_t(code) << 23);
}

template <class F> std::array<float, 256> float8_values(F f) {
  std::array<float, 256> table;
  for (int i = 0; i < 256; ++i) table[i] = f(uint8_t(i));
  return table;
}

}  // namespace mt
