// Loops of the losses between two tensors, item by item, and of their slopes. Reductions follow as ops of their own.
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

template <class T> inline T absolute(T x) { return x < T(0) ? -x : x; }
MT_BINARY(binary_cross_entropy_with_logits, Floats, -1, (T(1) - y) * x - v::log_sigmoid(x))
MT_TERNARY(binary_cross_entropy_with_logits_backward, Floats, -1, x * (v::sigmoid(y) - z))

// smooth_l1_loss(self, target; beta) and huber_loss(self, target; delta): a square near zero, a line outside.
template <class T> struct smooth_l1_loss_op {
  T beta;
  explicit smooth_l1_loss_op(const Attr* a) : beta(number<T>(a[0])) {}
  T operator()(T x, T y) const {
    T d = absolute(x - y);
    return d < beta ? T(0.5) * d * d / beta : d - T(0.5) * beta;
  }
  T operator()(T g, T x, T y) const {
    T d = x - y;
    return d <= -beta ? -g : d >= beta ? g : g * d / beta;
  }
};
template <class T> using smooth_l1_loss_backward_op = smooth_l1_loss_op<T>;
MT_ROW(smooth_l1_loss, Floats, 2, -1)
MT_ROW(smooth_l1_loss_backward, Floats, 3, -1)

template <class T> struct huber_loss_op {
  T delta;
  explicit huber_loss_op(const Attr* a) : delta(number<T>(a[0])) {}
  T operator()(T x, T y) const {
    T d = absolute(x - y);
    return d <= delta ? T(0.5) * d * d : delta * (d - T(0.5) * delta);
  }
  T operator()(T g, T x, T y) const {
    T d = x - y;
    return d <= -delta ? -g * delta : d >= delta ? g * delta : g * d;
  }
};
template <class T> using huber_loss_backward_op = huber_loss_op<T>;
MT_ROW(huber_loss, Floats, 2, -1)
MT_ROW(huber_loss_backward, Floats, 3, -1)

MT_BINARY(mse_loss, Floats, -1, (x - y) * (x - y))
MT_TERNARY(mse_loss_backward, Floats, -1, T(2) * x * (y - z))

}  // namespace
}  // namespace mt
