// Products and quotients of complex numbers by the plain formulas, as PyTorch's: an infinite part makes NaN of the other one.
#pragma once
#include <cmath>

#include "scalar.h"

namespace mt {

// The operators of std::complex repair NaNs, at ten times the cost.
template <class T> inline std::complex<T> complex_times(std::complex<T> x, std::complex<T> y) {
  return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
}
// Smith's quotient: scaled by the larger part of the divisor, so that it does not overflow on the way.
template <class T> inline std::complex<T> complex_over(std::complex<T> x, std::complex<T> y) {
  T a = x.real(), b = x.imag(), c = y.real(), d = y.imag();
  bool wide = std::abs(c) >= std::abs(d);
  T big = wide ? c : d, small = wide ? d : c;
  if (big == 0) return {a / std::abs(c), b / std::abs(d)};
  T ratio = small / big, scale = 1 / (big + small * ratio);
  return wide ? std::complex<T>((a + b * ratio) * scale, (b - a * ratio) * scale)
              : std::complex<T>((a * ratio + b) * scale, (b * ratio - a) * scale);
}

}  // namespace mt
