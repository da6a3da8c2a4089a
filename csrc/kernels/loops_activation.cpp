// Loops of the activation functions of neural networks and of their derivatives.
#include <stdexcept>

#include "loops.h"
#include "vmath.h"

namespace mt {
namespace {

template <class T> inline T between(T x, T lo, T hi) {
  T r = x < lo ? lo : x;
  return r > hi ? hi : r;
}
// tanh(softplus(x)) without the logarithm: with e = e^x it is (e^2 + 2e) / (e^2 + 2e + 2).
template <class T> inline T mish_gate(T x) {
  T e = v::exp(x > T(20) ? T(20) : x), n = e * (e + T(2));
  return n / (n + T(2));
}

MT_UNARY(relu, Real, -1, x < T(0) ? T(0) : x)
MT_SMALL_UNARY(relu, x < 0.f ? Lanes{} : x)
MT_UNARY(relu6, Real, -1, between(x, T(0), T(6)))
template <class V> inline V silu_(V x) { return x * v::sigmoid(x); }
template <class T> inline std::complex<T> silu_(std::complex<T> x) { return complex_over(x, T(1) + std::exp(-x)); }
MT_LANES(silu, FloatsComplex, silu_(x))
MT_UNARY(mish, Floats, -1, x * mish_gate(x))
MT_UNARY(hardswish, Floats, -1, x * between(x + T(3), T(0), T(6)) / T(6))
MT_UNARY(hardsigmoid, Floats, -1, between(x + T(3), T(0), T(6)) / T(6))
MT_SMALL_UNARY(relu6, v::at_most(v::at_least(x, 0.f), 6.f))
MT_SMALL_UNARY(hardswish, x * v::at_most(v::at_least(x + 3.f, 0.f), 6.f) / 6.f)
MT_SMALL_UNARY(hardsigmoid, v::at_most(v::at_least(x + 3.f, 0.f), 6.f) / 6.f)
MT_UNARY(log_sigmoid, Floats, -1, v::log_sigmoid(x))

// At NaN a derivative is that of the side which `x <= edge` does not choose, as in torch.
// The gradient of a complex function is multiplied by the conjugate of its slope.
template <class T> inline T conjugate(T x) {
  if constexpr (is_complex_v<T>) return std::conj(x);
  else return x;
}
MT_BINARY(sigmoid_backward, FloatsComplex, -1, x * conjugate((T(1) - y) * y))
MT_BINARY(tanh_backward, FloatsComplex, -1, x * conjugate(T(1) - y * y))
template <class T> inline T silu_slope(T x) {
  T s = v::sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}
template <class T> inline T mish_slope(T x) {
  T t = mish_gate(x);
  return t + x * v::sigmoid(x) * (T(1) - t * t);
}
MT_BINARY(silu_backward, FloatsComplex, -1, x * conjugate(silu_slope(y)))
MT_BINARY(mish_backward, Floats, -1, x * mish_slope(y))
MT_BINARY(hardswish_backward, Floats, -1, y <= T(-3) ? T(0) : y < T(3) ? x * (y / T(3) + T(0.5)) : x)
MT_BINARY(hardsigmoid_backward, Floats, -1, y > T(-3) && y < T(3) ? x / T(6) : T(0))
MT_BINARY(log_sigmoid_backward, Floats, -1, x * v::sigmoid(-y))

// An op with one attribute, A.
#define MT_WITH(NAME, SET, NIN, A, PARAMS, ...) \
  template <class T> struct NAME##_op { \
    T A; \
    explicit NAME##_op(const Attr* a) : A(number<T>(a[0])) {} \
    T operator() PARAMS const { return __VA_ARGS__; } \
  }; \
  MT_ROW(NAME, SET, NIN, -1)
MT_WITH(leaky_relu, Floats, 1, slope, (T x), x > T(0) ? x : x * slope)
MT_WITH(leaky_relu_backward, Floats, 2, slope, (T g, T x), x > T(0) ? g : g * slope)
MT_WITH(hardshrink, Floats, 1, lambd, (T x), x >= -lambd && x <= lambd ? T(0) : x)
MT_WITH(softshrink, Floats, 1, lambd, (T x), x > lambd ? x - lambd : x < -lambd ? x + lambd : x != x ? x : T(0))
MT_WITH(threshold_backward, Real, 2, edge, (T g, T x), x <= edge ? T(0) : g)
MT_SMALL(leaky_relu, (unary_loop<leaky_relu_op, float, float>), 1, number<float>(at[0]), 0, (Lanes x), x > 0.f ? x : x * a)
MT_SMALL(leaky_relu_backward, (binary_loop<leaky_relu_backward_op, float, float>), 2, number<float>(at[0]), 0,
         (Lanes g, Lanes x), x > 0.f ? g : g * a)
MT_SMALL(threshold_backward, (binary_loop<threshold_backward_op, float, float>), 2, number<float>(at[0]), 0,
         (Lanes g, Lanes x), x <= a ? Lanes{} : g)
MT_WITH(celu, Floats, 1, alpha, (T x), x > T(0) ? x : alpha * v::expm1(x / alpha))

template <class T> struct threshold_op {
  T edge, value;
  explicit threshold_op(const Attr* a) : edge(number<T>(a[0])), value(number<T>(a[1])) {}
  T operator()(T x) const { return x <= edge ? value : x; }
};
MT_ROW(threshold, Real, 1, -1)

template <class T> struct hardtanh_op {
  T lo, hi;
  explicit hardtanh_op(const Attr* a) : lo(number<T>(a[0])), hi(number<T>(a[1])) {}
  T operator()(T x) const { return between(x, lo, hi); }
  T operator()(T g, T x) const { return x <= lo || x >= hi ? T(0) : g; }
};
template <class T> using hardtanh_backward_op = hardtanh_op<T>;
MT_ROW(hardtanh, Real, 1, -1)
MT_ROW(hardtanh_backward, Floats, 2, -1)
MT_SMALL(hardtanh, (unary_loop<hardtanh_op, float, float>), 1, number<float>(at[0]), number<float>(at[1]), (Lanes x),
         v::at_most(v::at_least(x, a), b))

template <class T> struct softplus_op {
  T beta, edge;
  explicit softplus_op(const Attr* a) : beta(number<T>(a[0])), edge(number<T>(a[1])) {}
  T operator()(T x) const { return x * beta > edge ? x : v::log1p(v::exp(x * beta)) / beta; }
  T operator()(T g, T x) const { return x * beta > edge ? g : g * v::sigmoid(x * beta); }
};
template <class T> using softplus_backward_op = softplus_op<T>;
MT_ROW(softplus, Floats, 1, -1)
MT_ROW(softplus_backward, Floats, 2, -1)

// elu(self; alpha, scale, input_scale)
template <class T> struct elu_op {
  T negative, positive, inner;
  explicit elu_op(const Attr* a)
      : negative(number<T>(a[0]) * number<T>(a[1])), positive(number<T>(a[1])), inner(number<T>(a[2])) {}
  T operator()(T x) const { return x < T(0) ? v::expm1(x * inner) * negative : x * positive; }
  T operator()(T g, T x) const {
    return x <= T(0) ? g * inner * negative * v::exp(x * inner) : g * positive;
  }
};
template <class T> using elu_backward_op = elu_op<T>;
MT_ROW(elu, Floats, 1, -1)
MT_ROW(elu_backward, Floats, 2, -1)

// gelu(self; approximate): 1 + tanh(u) is 2 sigmoid(2u), which keeps the digits of the negative side.
template <class T> struct gelu_none_op {
  explicit gelu_none_op(const Attr*) {}
  T operator()(T x) const { return v::gelu(x); }
  T operator()(T g, T x) const {
    return g * (v::normal_cdf(x) + x * v::exp_below(-0.5f * x * x) * T(0.3989422804014327));
  }
};
template <class T> struct gelu_tanh_op {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  static constexpr Number k = Number(1.5957691216057308), c = Number(0.044715), one = 1;  // 2 sqrt(2 / pi)
  explicit gelu_tanh_op(const Attr*) {}
  T operator()(T x) const { return x * v::sigmoid(k * x * (one + c * x * x)); }
  T operator()(T g, T x) const {
    T s = v::sigmoid(k * x * (T(1) + c * x * x));
    return g * (s + x * s * (T(1) - s) * k * (T(1) + T(3) * c * x * x));
  }
};
bool by_tanh(const Attr& approximate) {
  if (!approximate.s || std::strcmp(approximate.s, "none") == 0) return false;
  if (std::strcmp(approximate.s, "tanh") != 0) throw std::runtime_error("approximate argument must be either none or tanh.");
  return true;
}
template <class T, int nin> void gelu_loop(void* const* p, int64_t n, const Attr* a) {
  if (by_tanh(a[0])) pick<gelu_tanh_op, T, T, nin>()(p, n, a);
  else if (nin == 1 && std::is_same_v<T, float>) lanes_loop<gelu_none_op>(p, n, a);
  else pick<gelu_none_op, T, T, nin>()(p, n, a);
}
struct gelu_short {
  explicit gelu_short(const Attr*) {}
  Lanes operator()(Lanes x) const { return v::short_gelu(x); }
};
void gelu_bfloat(void* const* p, int64_t n, const Attr* a) {
  (by_tanh(a[0]) ? bfloat_loop<gelu_tanh_op<Lanes>, 1> : bfloat_loop<gelu_short, 1>)(p, n, a);
}
template <int nin> Pointwise gelu(const char* name) {
  Pointwise k = {name, 1, nin, -1, -1, {}};
  k.loop[kFloat] = gelu_loop<float, nin>;
  k.loop[kDouble] = gelu_loop<double, nin>;
  return k;
}
RegisterPointwise gelu_row(gelu<1>("gelu")), gelu_backward_row(gelu<2>("gelu_backward"));
RegisterSmall gelu_small(gelu_loop<float, 1>, gelu_bfloat, kBFloat16);

}  // namespace
}  // namespace mt
