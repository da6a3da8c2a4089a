// Scalar types of the kernels: conversions of the 16-bit floats, and the type each dtype computes and sums in.
#pragma once
#include <cmath>
#include <type_traits>

#include "view.h"

namespace mt {

inline float to_float(bf16 v) {
  uint32_t u = uint32_t(v.bits) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
inline bf16 to_bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if (f != f) return {0x7fc0};
  return {uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}
inline float to_float(f16 v) {
  uint32_t sign = uint32_t(v.bits & 0x8000) << 16, rest = uint32_t(v.bits & 0x7fff) << 13, u;
  if (rest >= 0x0f800000) u = rest + 0x70000000;           // inf, nan
  else if (rest >= 0x00800000) u = rest + 0x38000000;      // normal
  else {                                                   // subnormal: exact in float
    float f = float(v.bits & 0x7fff) * 5.9604644775390625e-8f;
    std::memcpy(&u, &f, 4);
  }
  u |= sign;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
inline f16 to_f16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  uint32_t sign = (u >> 16) & 0x8000, mag = u & 0x7fffffff;
  if (mag > 0x7f800000) return {uint16_t(sign | 0x7e00)};
  if (mag >= 0x477ff000) return {uint16_t(sign | 0x7c00)};  // rounds to inf
  if (mag < 0x38800000) {                                   // subnormal or zero: let the FPU round
    float m;
    std::memcpy(&m, &mag, 4);
    m += 0.5f;
    std::memcpy(&mag, &m, 4);
    return {uint16_t(sign | (mag - 0x3f000000))};
  }
  uint32_t r = mag - 0x38000000 + 0xfff + ((mag >> 13) & 1);
  return {uint16_t(sign | (r >> 13))};
}

template <class T> struct is_complex_t : std::false_type {};
template <class T> struct is_complex_t<std::complex<T>> : std::true_type {};
template <class T> constexpr bool is_complex_v = is_complex_t<T>::value;
template <class T> constexpr bool is_half_v = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// cast<To>(v): torch's conversion between any two dtypes (complex to real drops the imaginary part, anything to
// bool asks for non-zero; float to integer goes through int64 so that out-of-range wraps instead of trapping).
template <class To, class From> inline To cast(From v) {
  if constexpr (std::is_same_v<To, From>) return v;
  else if constexpr (std::is_same_v<From, b8>) return cast<To>(bool(v));
  else if constexpr (std::is_same_v<To, b8>) return b8(cast<bool>(v));
  else if constexpr (is_half_v<From>) return cast<To>(to_float(v));
  else if constexpr (std::is_same_v<To, bf16>) return to_bf16(cast<float>(v));
  else if constexpr (std::is_same_v<To, f16>) return to_f16(cast<float>(v));
  else if constexpr (is_complex_v<To>) {
    if constexpr (is_complex_v<From>) return To(typename To::value_type(v.real()), typename To::value_type(v.imag()));
    else return To(typename To::value_type(v), 0);
  } else if constexpr (std::is_same_v<To, bool>) return v != From(0);
  else if constexpr (is_complex_v<From>) return cast<To>(v.real());
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From> && sizeof(To) < 8) return To(int64_t(v));
  else return To(v);
}

// The type to compute in: float for the 16-bit floats, bool for its byte in memory, itself for the rest.
template <class T> using compute_t =
    std::conditional_t<is_half_v<T>, float, std::conditional_t<std::is_same_v<T, b8>, bool, T>>;
// The type in memory of items that are computed on as T.
template <class T> using memory_t = std::conditional_t<std::is_same_v<T, bool>, b8, T>;

}  // namespace mt
