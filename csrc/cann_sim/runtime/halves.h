// Floats of 16 bits, as their bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cann_sim {

inline float half_to_float(uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const auto fraction = static_cast<float>(h & 1023);
  const float sign = h >> 15 ? -1.f : 1.f;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return exponent ? sign * std::ldexp(1 + fraction / 1024, exponent - 15) : sign * std::ldexp(fraction / 1024, -14);
}
inline uint16_t float_to_half(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(f)) return static_cast<uint16_t>(sign | 0x7E00);
  const float size = std::fabs(f);
  if (size >= 65520) return static_cast<uint16_t>(sign | 0x7C00);
  int exponent;
  std::frexp(size, &exponent);                 // size = m * 2^exponent, m in [0.5, 1)
  exponent = std::max(exponent - 1, -14);
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<uint16_t>(sign | (units < 1024 ? units : units + static_cast<uint32_t>(exponent + 14) * 1024));
}
inline float bfloat_to_float(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline uint16_t float_to_bfloat(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (std::isnan(f)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace cann_sim
