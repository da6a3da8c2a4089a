// Loops whose result is bool: comparisons, logic, classes of numbers.
#include "loops.h"

namespace mt {
namespace {

MT_BINARY(eq, AllUnsigned, kBool, x == y)
MT_BINARY(ne, AllUnsigned, kBool, x != y)
MT_BINARY(lt, RealBool, kBool, x < y)
MT_BINARY(le, RealBool, kBool, x <= y)
MT_BINARY(gt, RealBool, kBool, x > y)
MT_BINARY(ge, RealBool, kBool, x >= y)
MT_BINARY(logical_and, All, kBool, (x != T(0)) & (y != T(0)))
MT_BINARY(logical_or, All, kBool, (x != T(0)) | (y != T(0)))
MT_BINARY(logical_xor, All, kBool, (x != T(0)) ^ (y != T(0)))
MT_UNARY(logical_not, All, kBool, x == T(0))

template <class T> inline bool is_nan(T x) { return x != x; }
template <class T> inline bool is_inf(T x) {
  if constexpr (is_complex_v<T>) return is_inf(x.real()) || is_inf(x.imag());
  else if constexpr (std::is_floating_point_v<T>) return std::abs(x) == std::numeric_limits<T>::infinity();
  else return false;
}
template <class T> inline bool sign_bit(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::signbit(x);
  else return x < T(0);
}
MT_UNARY(isnan, AllUnsigned, kBool, is_nan(x))
MT_UNARY(isinf, AllUnsigned, kBool, is_inf(x))
MT_UNARY(isfinite, AllUnsigned, kBool, !is_nan(x) && !is_inf(x))
MT_UNARY(isposinf, RealBoolUnsigned, kBool, is_inf(x) && x > T(0))
MT_UNARY(isneginf, RealBoolUnsigned, kBool, is_inf(x) && x < T(0))
MT_UNARY(signbit, RealBoolUnsigned, kBool, sign_bit(x))

MT_SERVES(kFloat8 | kComplex32, eq)
MT_SERVES(kFloat8 | kComplex32, ne)
MT_SERVES(kFloat8 | kComplex32, isnan)
MT_SERVES(kFloat8 | kComplex32, isfinite)
MT_SERVES(kComplex32, isinf)

}  // namespace
}  // namespace mt
