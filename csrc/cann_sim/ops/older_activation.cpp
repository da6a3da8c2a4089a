// Activations and losses of the older interface with their gradients, item by item in float32.
#include <algorithm>
#include <cmath>

#include "ops/older.h"

namespace cann_sim {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// ---- activations: an input, or a gradient beside what the forward op got or gave --------------------------------------------
void elu(Older& o) {
  const double alpha = o.real("alpha", 1), scale = o.real("scale", 1), inner = o.real("input_scale", 1);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) {
    return scale * (v[0] > 0 ? v[0] : alpha * std::expm1(inner * v[0]));
  }));
}
void elu_grad(Older& o) {  // (gradient, x, or y with is_result)
  const double alpha = o.real("alpha", 1), scale = o.real("scale", 1), inner = o.real("input_scale", 1);
  const bool of_result = o.integer("is_result", 0);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) {
    if (v[1] > 0) return v[0] * scale;
    return v[0] * inner * (of_result ? v[1] + scale * alpha : scale * alpha * std::exp(inner * v[1]));
  }));
}
void celu(Older& o) {
  const double alpha = o.real("alpha", 1);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) { return v[0] > 0 ? v[0] : alpha * std::expm1(v[0] / alpha); }));
}
void hardtanh_grad(Older& o) {  // (x, gradient)
  const double low = o.real("min_val", -1), high = o.real("max_val", 1);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) { return v[0] > low && v[0] < high ? v[1] : 0; }));
}
void hard_sigmoid(Older& o) {
  const double alpha = o.real("alpha", 1.0 / 6), beta = o.real("beta", 0.5);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) { return std::min(std::max(alpha * v[0] + beta, 0.0), 1.0); }));
}
void hard_sigmoid_grad(Older& o) {  // (gradient, x)
  const double alpha = o.real("alpha", 1.0 / 6), beta = o.real("beta", 0.5);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) {
    const double y = alpha * v[1] + beta;
    return y > 0 && y < 1 ? alpha * v[0] : 0;
  }));
}
void hard_shrink(Older& o) {
  const double by = o.real("lambd", 0.5);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) { return v[0] >= -by && v[0] <= by ? 0 : v[0]; }));
}
void soft_shrink(Older& o) {
  const double by = o.real("lambd", 0.5);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) { return v[0] > by ? v[0] - by : v[0] < -by ? v[0] + by : 0; }));
}
void shrink_grad(Older& o) {  // (gradient, x)
  const double by = o.real("lambd", 0.5);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) { return v[1] >= -by && v[1] <= by ? 0 : v[0]; }));
}
void log_sigmoid(Older& o) {
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [](const float* v) { return std::min(v[0], 0.0f) - std::log1p(std::exp(-std::fabs(v[0]))); }));
}
void log_sigmoid_grad(Older& o) {  // (gradient, x)
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0), o.in(1)}, [](const float* v) { return v[0] * sigmoid(-double(v[1])); }));
}
void threshold(Older& o) {
  const double least = o.real("threshold", 0), value = o.real("value", 0);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) { return v[0] > least ? v[0] : value; }));
}
void threshold_grad(Older& o) {  // (gradient, x)
  const double least = o.real("threshold", 0);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) { return v[1] > least ? v[0] : 0; }));
}
// The halves of x along a dim.
struct Halves {
  Value first, second;
  Halves(Older& o, const Value& given) {
    const Value x = row_of(given);
    const int64_t dim = axes_of(o, {o.integer("dim", -1)}, x.ndim)[0], n = x.size(dim) / 2;
    first = x.narrow(dim, 0, n);
    second = x.narrow(dim, n, n);
  }
};
void glu(Older& o) {
  const Halves x(o, o.in(0));
  copy(o.out(0), zipped(x.first.shape(), {x.first, x.second}, [](const float* v) { return v[0] * sigmoid(v[1]); }));
}
void glu_grad(Older& o) {  // (gradient, x)
  const Halves x(o, o.in(1)), dx(o, o.out(0));
  copy(dx.first, zipped(x.first.shape(), {o.in(0), x.second}, [](const float* v) { return v[0] * sigmoid(v[1]); }));
  copy(dx.second, zipped(x.first.shape(), {o.in(0), x.first, x.second}, [](const float* v) {
    const double s = sigmoid(v[2]);
    return v[0] * v[1] * s * (1 - s);
  }));
}
// One weight, or one a channel, beside x.
Value weights_of(Older& o, const Value& x, const Value& weight) {
  const Value flat = weight.reshape({-1});
  if (flat.numel() == 1) return flat.reshape({}).expand(x.shape());
  if (x.ndim < 2 || flat.numel() != x.size(1)) o.refuse("expected one weight or one a channel");
  Sizes shape(size_t(x.ndim), 1);
  shape[1] = flat.numel();
  return flat.reshape(shape).expand(x.shape());
}
void prelu(Older& o) {
  const Value x = o.in(0);
  copy(o.out(0), zipped(x.shape(), {x, weights_of(o, x, o.in(1))}, [](const float* v) { return v[0] > 0 ? v[0] : v[0] * v[1]; }));
}
void prelu_grad(Older& o) {  // (gradient, x, weight): of x and of the weight
  const Value x = o.in(1), dweight = o.out(1), w = weights_of(o, x, o.in(2));
  copy(o.out(0), zipped(x.shape(), {o.in(0), x, w}, [](const float* v) { return v[1] > 0 ? v[0] : v[0] * v[2]; }));
  const Value each = zipped(x.shape(), {o.in(0), x}, [](const float* v) { return v[1] > 0 ? 0 : v[0] * v[1]; });
  const Value total = full({dweight.numel()}, mt::kFloat, 0);
  const int64_t channels = dweight.numel(), inner = channels > 1 ? x.numel() / std::max<int64_t>(x.size(0) * channels, 1) : 1;
  for (int64_t i = 0; i < each.numel(); ++i) total.ptr<float>()[channels > 1 ? i / inner % channels : 0] += each.ptr<float>()[i];
  copy(dweight, total.reshape(dweight.shape()));
}
void log_add_exp(Older& o) {
  const double base = o.real("base", -1), to_e = base > 0 ? std::log(base) : 1;
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) {
    const double a = v[0] * to_e, b = v[1] * to_e;
    return (a == b ? a + std::log(2.0) : std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)))) / to_e;
  }));
}
void nan_to_num(Older& o) {
  const double nan = o.real("nan", 0), high = o.real("posinf", 3.4028235e38), low = o.real("neginf", -3.4028235e38);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) {
    return std::isnan(v[0]) ? nan : std::isinf(v[0]) ? (v[0] > 0 ? high : low) : v[0];
  }));
}

// ---- losses: `reduction` is none, mean or sum ----------------------------------------------------------------------------------
// What the gradient of one item is multiplied by.
double by_reduction(Older& o, int64_t items, const char* otherwise = "mean") {
  return o.text("reduction", otherwise) == "mean" ? 1 / double(std::max<int64_t>(items, 1)) : 1;
}
Value ones_or(Older& o, size_t i) { return o.given(i) ? o.in(i) : full({}, mt::kFloat, 1); }

void cross_entropy_of_bits(Older& o) {  // (x, target, weight?); logarithms are at least -100, as in torch
  reduce_loss(o, zipped(o.in(0).shape(), {o.in(0), o.in(1), ones_or(o, 2)}, [](const float* v) {
    auto log_of = [](double x) { return std::max(std::log(x), -100.0); };
    return -v[2] * (v[1] * log_of(v[0]) + (1 - v[1]) * log_of(1 - double(v[0])));
  }));
}
void cross_entropy_of_bits_grad(Older& o) {  // (x, target, gradient, weight?)
  const double by = by_reduction(o, o.in(0).numel());
  copy(o.out(0), zipped(o.in(0).shape(), {o.in(0), o.in(1), o.in(2), ones_or(o, 3)}, [=](const float* v) {
    return by * v[2] * v[3] * (v[0] - v[1]) / std::max((1 - double(v[0])) * v[0], 1e-12);
  }));
}
void logits_loss(Older& o) {  // (x, target, weight?, positive weight?)
  reduce_loss(o, zipped(o.in(0).shape(), {o.in(0), o.in(1), ones_or(o, 2), ones_or(o, 3)}, [](const float* v) {
    const double x = v[0], lost = std::max(-x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    return v[2] * ((1 - v[1]) * x + (1 + (v[3] - 1.0) * v[1]) * lost);
  }));
}
void logits_loss_grad(Older& o) {  // (x, target, gradient, weight?, positive weight?)
  const double by = by_reduction(o, o.in(0).numel());
  copy(o.out(0), zipped(o.in(0).shape(), {o.in(0), o.in(1), o.in(2), ones_or(o, 3), ones_or(o, 4)}, [=](const float* v) {
    const double t = v[4] * double(v[1]);
    return by * v[2] * v[3] * ((t + 1 - v[1]) * sigmoid(v[0]) - t);
  }));
}
void smooth_l1(Older& o) {
  const double beta = o.real("sigma", 1);
  reduce_loss(o, zipped(o.in(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) {
    const double d = std::fabs(double(v[0]) - v[1]);
    return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
  }));
}
void smooth_l1_grad(Older& o) {  // (x, target, gradient)
  const double beta = o.real("sigma", 1), by = by_reduction(o, o.in(0).numel());
  copy(o.out(0), zipped(o.in(0).shape(), {o.in(0), o.in(1), o.in(2)}, [=](const float* v) {
    const double d = double(v[0]) - v[1];
    return by * v[2] * (std::fabs(d) < beta ? d / beta : d > 0 ? 1 : d < 0 ? -1 : 0);
  }));
}
void soft_margin(Older& o) {
  reduce_loss(o, zipped(o.in(0).shape(), {o.in(0), o.in(1)}, [](const float* v) { return std::log1p(std::exp(-double(v[0]) * v[1])); }));
}
void soft_margin_grad(Older& o) {  // (x, target, gradient)
  const double by = by_reduction(o, o.in(0).numel());
  copy(o.out(0), zipped(o.in(0).shape(), {o.in(0), o.in(1), o.in(2)}, [=](const float* v) { return -by * v[2] * v[1] * sigmoid(-double(v[0]) * v[1]); }));
}
void lp_loss(Older& o) {
  if (o.integer("p", 1) != 1) o.refuse("only p = 1 is computed");
  reduce_loss(o, zipped(o.in(0).shape(), {o.in(0), o.in(1)}, [](const float* v) { return std::fabs(v[0] - v[1]); }));
}
void l1_grad(Older& o) {  // (gradient, x, target)
  const double by = by_reduction(o, o.in(1).numel());
  copy(o.out(0), zipped(o.in(1).shape(), {o.in(0), o.in(1), o.in(2)}, [=](const float* v) { return by * v[0] * (v[1] > v[2] ? 1 : v[1] < v[2] ? -1 : 0); }));
}
void kl_div(Older& o) {  // (x, target)
  const bool logs = o.integer("log_target", 0);
  const Value each = zipped(o.in(0).shape(), {o.in(0), o.in(1)}, [=](const float* v) {
    return logs ? std::exp(double(v[1])) * (v[1] - v[0]) : v[1] > 0 ? v[1] * (std::log(double(v[1])) - v[0]) : 0;
  });
  if (o.text("reduction", "mean") != "batchmean") return reduce_loss(o, each);
  double sum = 0;
  for (int64_t i = 0; i < each.numel(); ++i) sum += each.ptr<float>()[i];
  fill(o.out(0), sum / double(std::max<int64_t>(each.ndim ? each.size(0) : 1, 1)));
}
void kl_div_grad(Older& o) {  // (gradient, x, target)
  const bool logs = o.integer("log_target", 0);
  const Value x = o.in(1);
  const bool by_batch = o.text("reduction", "mean") == "batchmean";
  const double by = by_batch ? 1 / double(x.ndim ? x.size(0) : 1) : by_reduction(o, x.numel());
  copy(o.out(0), zipped(x.shape(), {o.in(0), o.in(2)}, [=](const float* v) {
    return -by * v[0] * (logs ? std::exp(double(v[1])) : std::max(v[1], 0.0f));
  }));
}

void fast_gelu(Older& o) {
  copy(o.out(0), zipped(o.in(0).shape(), {o.in(0)}, [](const float* v) { return v[0] * sigmoid(1.702 * v[0]); }));
}
void fast_gelu_grad(Older& o) {  // (gradient, x)
  copy(o.out(0), zipped(o.in(1).shape(), {o.in(0), o.in(1)}, [](const float* v) {
    const double s = sigmoid(1.702 * v[1]);
    return v[0] * s * (1 + 1.702 * v[1] * (1 - s));
  }));
}

const OlderOps ops({
    {"FastGelu", 1, 1, 1, fast_gelu}, {"FastGeluGrad", 2, 2, 1, fast_gelu_grad},
    {"Elu", 1, 1, 1, elu}, {"EluGradV2", 2, 2, 1, elu_grad}, {"CeluV2", 1, 1, 1, celu}, {"HardtanhGrad", 2, 2, 1, hardtanh_grad},
    {"HardSigmoid", 1, 1, 1, hard_sigmoid}, {"HardSigmoidGrad", 2, 2, 1, hard_sigmoid_grad}, {"HardShrink", 1, 1, 1, hard_shrink},
    {"HardShrinkGrad", 2, 2, 1, shrink_grad}, {"SoftShrink", 1, 1, 1, soft_shrink}, {"SoftShrinkGrad", 2, 2, 1, shrink_grad},
    {"LogSigmoid", 1, 1, 1, log_sigmoid}, {"LogSigmoidGrad", 2, 2, 1, log_sigmoid_grad}, {"ThresholdV2D", 1, 1, 1, threshold},
    {"ThresholdGradV2D", 2, 2, 1, threshold_grad}, {"GLU", 1, 1, 1, glu}, {"GLUGrad", 2, 2, 1, glu_grad}, {"PRelu", 2, 2, 1, prelu},
    {"PReluGrad", 3, 3, 2, prelu_grad}, {"LogAddExp", 2, 2, 1, log_add_exp}, {"NanToNum", 1, 1, 1, nan_to_num},
    {"BinaryCrossEntropy", 2, 3, 1, cross_entropy_of_bits}, {"BinaryCrossEntropyGrad", 3, 4, 1, cross_entropy_of_bits_grad},
    {"SigmoidCrossEntropyWithLogitsV2", 2, 4, 1, logits_loss}, {"SigmoidCrossEntropyWithLogitsGradV2", 3, 5, 1, logits_loss_grad},
    {"SmoothL1LossV2", 2, 2, 1, smooth_l1}, {"SmoothL1LossGradV2", 3, 3, 1, smooth_l1_grad}, {"SoftMarginLoss", 2, 2, 1, soft_margin},
    {"SoftMarginLossGrad", 3, 3, 1, soft_margin_grad}, {"LpLoss", 2, 2, 1, lp_loss}, {"L1LossGrad", 3, 3, 1, l1_grad},
    {"KLDiv", 2, 2, 1, kl_div}, {"KlDivLossGrad", 3, 3, 1, kl_div_grad},
});

}  // namespace
}  // namespace cann_sim
