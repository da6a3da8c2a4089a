// Activation functions of neural networks and their gradients, item by item. Those that split a tensor in two are in
// activation_gated.cpp.
#include <cmath>

#include "loops.h"  // csrc/kernels: functors become loops
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

using mt::Attr;

// ---- kernels that csrc/kernels does not have; g is the gradient ---------------------------------
template <class T> T sigmoid(T x) { return T(1) / (T(1) + std::exp(-x)); }
template <class T> T number_or(const Attr& a, double otherwise) { return a.given ? T(a.f) : T(otherwise); }

// hardshrink and softshrink have one gradient: none between the bounds.
template <class T> struct shrink_backward_op {
  T lambd;
  explicit shrink_backward_op(const Attr* a) : lambd(T(a[0].f)) {}
  T operator()(T g, T x) const { return x >= -lambd && x <= lambd ? T(0) : g; }
};
template <class T> struct shrink_op {
  T lambd, bias;
  explicit shrink_op(const Attr* a) : lambd(T(a[0].f)), bias(T(a[1].f)) {}
  T operator()(T x) const { return x > lambd ? x - bias : x < -lambd ? x + bias : T(0); }
};
// elu_backward(grad, self or result; alpha, scale, input_scale, is_result)
template <class T> struct elu_backward_op {
  T negative, positive, inner;
  bool is_result;
  explicit elu_backward_op(const Attr* a)
      : negative(T(a[0].f * a[1].f)), positive(T(a[1].f)), inner(T(a[2].f)), is_result(a[3].i) {}
  T operator()(T g, T x) const {
    if (x > T(0)) return g * positive;
    return g * inner * (is_result ? x + negative : negative * std::exp(x * inner));
  }
};
constexpr double kSeluAlpha = 1.6732632423543772848, kSeluScale = 1.0507009873554804934;
template <class T> struct selu_op {
  explicit selu_op(const Attr*) {}
  T operator()(T x) const { return T(kSeluScale) * (x > T(0) ? x : T(kSeluAlpha) * std::expm1(x)); }
  T operator()(T g, T y) const { return g * (y > T(0) ? T(kSeluScale) : y + T(kSeluScale * kSeluAlpha)); }
};
// swish(x; beta): x sigmoid(beta x). FastGelu is swish with beta 1.702.
template <class T> struct swish_op {
  T beta;
  explicit swish_op(const Attr* a) : beta(number_or<T>(a[0], 1)) {}
  T operator()(T x) const { return x * sigmoid(beta * x); }
  T operator()(T g, T x) const {
    const T s = sigmoid(beta * x);
    return g * (s + beta * x * s * (T(1) - s));
  }
};
template <class T> struct fast_gelu_op : swish_op<T> {
  explicit fast_gelu_op(const Attr* a) : swish_op<T>(a) { this->beta = T(1.702); }
};
template <class T> struct squared_relu_op {
  explicit squared_relu_op(const Attr*) {}
  T operator()(T x) const { return x > T(0) ? x * x : x != x ? x : T(0); }
};
// A negative eps stands for none: what lies outside [0, 1] is then NaN.
template <class T> struct logit_op {
  T eps;
  explicit logit_op(const Attr* a) : eps(T(a[0].f)) {}
  T operator()(T x) const {
    if (eps >= T(0)) x = x < eps ? eps : x > T(1) - eps ? T(1) - eps : x;
    return std::log(x / (T(1) - x));
  }
  T operator()(T x, T g) const {
    const bool outside = eps < T(0) ? x < T(0) || x > T(1) : x < eps || x > T(1) - eps;
    return outside ? (eps < T(0) ? T(NAN) : T(0)) : g / (x * (T(1) - x));
  }
};
template <class T> struct prelu_op {
  explicit prelu_op(const Attr*) {}
  T operator()(T x, T w) const { return x > T(0) ? x : w * x; }
  T operator()(T g, T x, T w) const { return x > T(0) ? g : w * g; }
};
using mt::Floats;
const mt::Pointwise shrink = mt::make<shrink_op, Floats, 1>("shrink");
const mt::Pointwise shrink_backward = mt::make<shrink_backward_op, Floats, 2>("shrink_backward");
const mt::Pointwise elu_backward = mt::make<elu_backward_op, Floats, 2>("elu_backward");
const mt::Pointwise selu = mt::make<selu_op, Floats, 1>("selu");
const mt::Pointwise selu_backward = mt::make<selu_op, Floats, 2>("selu_backward");
const mt::Pointwise swish = mt::make<swish_op, Floats, 1>("swish");
const mt::Pointwise swish_backward = mt::make<swish_op, Floats, 2>("swish_backward");
const mt::Pointwise fast_gelu = mt::make<fast_gelu_op, Floats, 1>("fast_gelu");
const mt::Pointwise fast_gelu_backward = mt::make<fast_gelu_op, Floats, 2>("fast_gelu_backward");
const mt::Pointwise squared_relu = mt::make<squared_relu_op, Floats, 1>("squared_relu");
const mt::Pointwise logit = mt::make<logit_op, Floats, 1>("logit");
const mt::Pointwise logit_backward = mt::make<logit_op, Floats, 2>("logit_backward");
const mt::Pointwise prelu = mt::make<prelu_op, Floats, 2>("prelu");
const mt::Pointwise prelu_backward = mt::make<prelu_op, Floats, 3>("prelu_backward");

constexpr PointwiseOp kActivations[] = {
    {"aclnnRelu", "aclnnInplaceRelu", "relu"},
    {"aclnnSigmoid", "aclnnInplaceSigmoid", "sigmoid", Rule::floating},
    {"aclnnSigmoidBackward", nullptr, "sigmoid_backward", Rule::promote, "01"},
    {"aclnnTanhBackward", nullptr, "tanh_backward", Rule::promote, "01"},
    {"aclnnThreshold", "aclnnInplaceThreshold", "threshold", Rule::promote, "0", "12"},
    {"aclnnThresholdBackward", nullptr, "threshold_backward", Rule::promote, "01", "2"},
    {"aclnnGelu", nullptr, "gelu", Rule::promote, "0", "-"},
    {"aclnnGeluBackward", nullptr, "gelu_backward", Rule::promote, "01", "-"},
    {"aclnnFastGelu", nullptr, "", Rule::promote, "0", "", &fast_gelu},
    {"aclnnFastGeluBackward", nullptr, "", Rule::promote, "01", "", &fast_gelu_backward},
    {"aclnnSilu", nullptr, "silu"},
    {"aclnnSiluBackward", nullptr, "silu_backward", Rule::promote, "01"},
    {"aclnnSwish", nullptr, "", Rule::promote, "0", "1", &swish},
    {"aclnnSwishBackward", nullptr, "", Rule::promote, "01", "2", &swish_backward},
    {"aclnnHardswish", "aclnnInplaceHardswish", "hardswish"},
    {"aclnnHardswishBackward", nullptr, "hardswish_backward", Rule::promote, "01"},
    {"aclnnHardswishBackwardV2", nullptr, "hardswish_backward", Rule::promote, "01"},
    {"aclnnHardsigmoid", "aclnnInplaceHardsigmoid", "hardsigmoid"},
    {"aclnnHardsigmoidBackward", nullptr, "hardsigmoid_backward", Rule::promote, "01"},
    {"aclnnLeakyRelu", "aclnnInplaceLeakyRelu", "leaky_relu", Rule::promote, "0", "1"},
    {"aclnnLeakyReluBackward", nullptr, "leaky_relu_backward", Rule::promote, "01", "2"},
    {"aclnnElu", "aclnnInplaceElu", "elu", Rule::promote, "0", "123"},
    {"aclnnEluBackward", nullptr, "", Rule::promote, "05", "1234", &elu_backward},
    {"aclnnSelu", "aclnnInplaceSelu", "", Rule::promote, "0", "", &selu},
    {"aclnnSeluBackward", nullptr, "", Rule::promote, "01", "", &selu_backward},
    {"aclnnCelu", "aclnnInplaceCelu", "celu", Rule::promote, "0", "1"},
    {"aclnnSoftplus", nullptr, "softplus", Rule::promote, "0", "12"},
    {"aclnnSoftplusBackward", nullptr, "softplus_backward", Rule::promote, "01", "23"},
    {"aclnnMish", "aclnnInplaceMish", "mish"},
    {"aclnnMishBackward", nullptr, "mish_backward", Rule::promote, "01"},
    {"aclnnHardtanh", "aclnnInplaceHardtanh", "hardtanh", Rule::promote, "0", "12"},
    {"aclnnHardtanhBackward", nullptr, "hardtanh_backward", Rule::promote, "01", "23"},
    {"aclnnHardshrink", nullptr, "hardshrink", Rule::promote, "0", "1"},
    {"aclnnHardshrinkBackward", nullptr, "", Rule::promote, "01", "2", &shrink_backward},
    {"aclnnSoftshrink", nullptr, "softshrink", Rule::promote, "0", "1"},
    {"aclnnSoftshrinkBackward", nullptr, "", Rule::promote, "01", "2", &shrink_backward},
    {"aclnnShrink", nullptr, "", Rule::promote, "0", "12", &shrink},
    {"aclnnSquaredRelu", nullptr, "", Rule::promote, "0", "", &squared_relu},
    {"aclnnLogSigmoid", nullptr, "log_sigmoid"},
    {"aclnnLogSigmoidForward", nullptr, "log_sigmoid"},  // its buffer is a leftover of the interface and is not read
    {"aclnnLogSigmoidBackward", nullptr, "log_sigmoid_backward", Rule::promote, "01"},
    {"aclnnLogit", nullptr, "", Rule::promote, "0", "1", &logit},
    {"aclnnLogitGrad", nullptr, "", Rule::promote, "01", "2", &logit_backward},
};
REGISTER_POINTWISE(kActivations);

// ---- gelu with an argument that names its form --------------------------------------------------
constexpr PointwiseOp kGelu[] = {{"aclnnGeluV2", nullptr, "gelu"},
                                 {"aclnnGeluBackwardV2", nullptr, "gelu_backward", Rule::promote, "01", "2"}};
void check_gelu(const Call& c) {  // (x, approximate: 0 none, 1 tanh, y)
  EXPECT(c.integer(1) == 0 || c.integer(1) == 1, "%s: expected approximate 0 or 1, got %ld", c.name(), c.integer(1));
  check_row<kGelu, 0>(c);
}
void run_gelu(Run& run) {
  const Value x = run.tensor(0);
  call_pointwise("gelu", x.dtype, {run.tensor(2), x}, {string(run.call.integer(1) ? "tanh" : "none")});
}
void check_gelu_backward(const Call& c) {
  const std::string form = c.string(2);
  EXPECT(form == "none" || form == "tanh", "%s: expected approximate none or tanh, got %s", c.name(), form.c_str());
  check_row<kGelu, 1>(c);
}
const Op gelu_v2("aclnnGeluV2", check_gelu, run_gelu);
const Op gelu_backward_v2("aclnnGeluBackwardV2", check_gelu_backward, run_row<kGelu, 1>);

// ---- prelu: one weight, or one for each channel (dim 1) -----------------------------------------
void check_weight(const Call& c, int self, int weight) {
  const TensorMeta& x = c.tensor(self);
  const int64_t n = c.tensor(weight).numel(), channels = x.ndim > 1 ? x.sizes[1] : 1;
  EXPECT(n == 1 || n == channels, "%s: expected a weight for each of %ld channels or one for all, got %s", c.name(),
         channels, describe(c.tensor(weight)).c_str());
}
Value along_channels(const Value& weight, const Value& self) {
  Sizes sizes(self.ndim, 1);
  if (self.ndim > 1) sizes[1] = weight.numel();
  return weight.reshape(sizes);
}
void run_own(const mt::Pointwise& kernel, DType compute, std::initializer_list<Value> values) {
  mt::View views[kMostOperands + 1];
  int n = 0;
  for (const Value& v : values) views[n++] = v.view();
  kernels().pointwise(&kernel, compute, views, nullptr);
}
void check_prelu(const Call& c) {
  check_weight(c, 0, 1);
  expect_broadcast(c, {0}, 2);
  expect_result(c, promote(dtype_of(c.tensor(0).dtype), dtype_of(c.tensor(1).dtype)), 2);
}
void run_prelu(Run& run) {
  const Value self = run.tensor(0), weight = run.tensor(1);
  run_own(prelu, promote(self.dtype, weight.dtype), {run.tensor(2), self, along_channels(weight, self)});
}
void check_prelu_backward(const Call& c) {
  check_weight(c, 1, 2);
  expect_same_shape(c, 0, 1);          // the sums below run over the dims of self
  expect_broadcast(c, {0, 1}, 3);
  EXPECT(c.tensor(4).numel() == c.tensor(2).numel(), "%s: expected gradWeight like weight %s, got %s", c.name(),
         describe(c.tensor(2)).c_str(), describe(c.tensor(4)).c_str());
  for (int i = 0; i < 5; ++i) dtype_of(c.tensor(i).dtype);
}
void run_prelu_backward(Run& run) {
  const Value grad = run.tensor(0), self = run.tensor(1), weight = along_channels(run.tensor(2), self);
  run_own(prelu_backward, opmath(self.dtype), {run.tensor(3), grad, self, weight});
  // d/dw: grad * self where self is not positive, summed over all but the weight's own dim.
  const DType wide = opmath(self.dtype);
  const Value slope = pointwise("mul", wide, {grad, pointwise("minimum", wide, {self, full({}, wide, 0)})});
  Sizes dims;
  for (int d = 0; d < self.ndim; ++d)
    if (weight.sizes[d] == 1) dims.push_back(d);
  Value sums = slope;
  if (!dims.empty()) {
    sums = empty(weight.shape(), wide);
    call_kernel("sum", {sums, slope}, {list(dims), integer(1), none()});
  }
  const Value out = run.tensor(4);
  copy(out, sums.reshape(out.shape()));
}
const Op prelu_row("aclnnPrelu", check_prelu, run_prelu);
const Op prelu_backward_row("aclnnPreluBackward", check_prelu_backward, run_prelu_backward);

}  // namespace
}  // namespace cann_sim
