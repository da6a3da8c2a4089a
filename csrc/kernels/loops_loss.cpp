// Loops of the losses, item by item, and of their slopes. Reductions follow as ops of their own.
#include <stdexcept>

#include "loops.h"
#include "vmath.h"

namespace mt {
namespace {

// The probability is checked here, where it is read anyway; logarithms are limited to -100, as PyTorch does.
template <class T> inline T limited_log(T x) {
  T y = std::log(x);
  return y < T(-100) ? T(-100) : y;
}
template <class T> struct binary_cross_entropy_op {
  explicit binary_cross_entropy_op(const Attr*) {}
  T operator()(T x, T y) const {
    if (!(x >= T(0) && x <= T(1))) throw std::runtime_error("all elements of input should be between 0 and 1");
    if (!(y >= T(0) && y <= T(1))) throw std::runtime_error("all elements of target should be between 0 and 1");
    T below = std::log1p(-x);
    return (y - T(1)) * (below < T(-100) ? T(-100) : below) - y * limited_log(x);
  }
};
MT_ROW(binary_cross_entropy, Floats, 2, -1)
MT_TERNARY(binary_cross_entropy_backward, Floats, -1,
           x * (y - z) / std::max((T(1) - y) * y, T(1e-12)))

MT_BINARY(binary_cross_entropy_with_logits, Floats, -1, (T(1) - y) * x - v::log_sigmoid(x))
MT_TERNARY(binary_cross_entropy_with_logits_backward, Floats, -1, x * (v::sigmoid(y) - z))

// smooth_l1(difference; beta): a square near zero, a line outside. Its slope is limited to [-1, 1].
template <class T> struct smooth_l1_op {
  T beta;
  explicit smooth_l1_op(const Attr* a) : beta(number<T>(a[0])) {}
  T operator()(T x) const {
    T size = x < T(0) ? -x : x;
    return size < beta ? T(0.5) * x * x / beta : size - T(0.5) * beta;
  }
  T operator()(T g, T x) const { return x <= -beta ? -g : x >= beta ? g : g * x / beta; }
};
template <class T> using smooth_l1_backward_op = smooth_l1_op<T>;
MT_ROW(smooth_l1, Floats, 1, -1)
MT_ROW(smooth_l1_backward, Floats, 2, -1)

}  // namespace
}  // namespace mt
