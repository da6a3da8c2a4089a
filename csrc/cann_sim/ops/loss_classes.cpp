// Losses over classes with more to them than nll (loss.cpp): cross entropy from logits, and margins of many labels.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/loss.h"
#include "ops/result.h"

namespace cann_sim {

void soft_cross_entropy(const float* x, const float* shares, int64_t rows, int64_t classes, float* loss, float* slope) {
  for (int64_t n = 0; n < rows; ++n, x += classes, shares += classes, slope += classes) {
    const float top = classes ? *std::max_element(x, x + classes) : 0;
    double total = 0, sum = 0;
    for (int64_t c = 0; c < classes; ++c) total += std::exp(double(x[c]) - top);
    for (int64_t c = 0; c < classes; ++c) {
      const double log_probability = double(x[c]) - top - std::log(total);
      sum -= shares[c] * log_probability;
      slope[c] = float(std::exp(log_probability)) - shares[c];
    }
    loss[n] = float(sum);
  }
}

void multilabel_margin(const Value& scores, const Value& targets, const std::string& reduction, const Value& out, const Value& marks) {
  const Value x = scores.to(mt::kFloat).dense(), t = targets.to(mt::kInt64).dense(), found = full(x.shape(), mt::kFloat, 0);
  const int64_t classes = x.ndim ? x.size(-1) : 1, samples = x.ndim == 2 ? x.size(0) : 1;
  const Value each = full({samples}, mt::kFloat, 0);
  double sum = 0;
  for (int64_t n = 0; n < samples; ++n) {
    const float* a = x.ptr<float>() + n * classes;
    const int64_t* target = t.ptr<int64_t>() + n * classes;
    float* mark = found.ptr<float>() + n * classes;
    int64_t count = 0;
    for (; count < classes && target[count] >= 0; ++count) {
      if (target[count] >= classes) throw std::out_of_range("multilabel_margin_loss: target is no class");
      mark[target[count]] = 1;
    }
    double loss = 0;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t k = 0; k < classes; ++k)
        if (mark[k] == 0) loss += std::max(0.f, 1 - a[target[i]] + a[k]);
    each.ptr<float>()[n] = float(loss / double(classes));
    sum += loss / double(classes);
  }
  if (reduction == "mean") sum /= double(samples);
  copy(out, reduction == "none" ? each.reshape(out.shape()) : full({}, mt::kFloat, sum));
  copy(marks, found);
}

namespace {

enum Reduction { kNone, kMean, kSum };
Reduction named_reduction(const Call& c, int i) {
  std::string name = c.given(i) ? c.string(i) : "mean";
  EXPECT(name == "mean" || name == "sum" || name == "none", "reduction %s is not mean, sum or none", name.c_str());
  return name == "none" ? kNone : name == "sum" ? kSum : kMean;
}

// ---- cross entropy: input [N, C], target [N] -------------------------------------------------------------------
// What every class of one sample counts: the target, and with label smoothing a little of all.
struct Shares {
  Value target, weight;
  int64_t ignore, classes;
  double smoothing;
  bool counts(int64_t n) const { return target.ptr<int64_t>()[n] != ignore; }
  double weight_of(int64_t c) const { return weight.given() ? weight.ptr<float>()[c] : 1; }
  double target_weight(int64_t n) const { return counts(n) ? weight_of(checked(n)) : 0; }
  double of(int64_t n, int64_t c) const {
    return ((checked(n) == c ? 1 - smoothing : 0) + smoothing / double(classes)) * weight_of(c);
  }
  int64_t checked(int64_t n) const {
    int64_t t = target.ptr<int64_t>()[n];
    if (t < 0 || t >= classes) throw std::out_of_range("cross_entropy: target " + std::to_string(t) + " is no class");
    return t;
  }
  double total(int64_t samples) const {
    double sum = 0;
    for (int64_t n = 0; n < samples; ++n) sum += target_weight(n);
    return sum;
  }
};
void expect_classes(const Call& c, int input, int target, int weight, double smoothing) {
  const TensorMeta& x = c.tensor(input);
  EXPECT(x.ndim == 2, "expected [N, C], got %s", describe(x).c_str());
  expect_shape(c, target, {x.sizes[0]});
  if (c.given(weight)) expect_numel(c, weight, x.sizes[1]);
  EXPECT(smoothing >= 0 && smoothing < 1, "labelSmoothing %g is not in [0, 1)", smoothing);
}

// (input, target, weight?, reduction?, ignoreIndex, labelSmoothing, zlossScale, returnZloss, loss, logProb, zloss, lse)
void check_cross_entropy(const Call& c) {
  expect_classes(c, 0, 1, 2, c.number(5));
  EXPECT(c.number(6) == 0 && !c.integer(7),
         "zloss is not supported: lseSquareScaleForZloss must be 0, returnZloss false");
  if (named_reduction(c, 3) == kNone) expect_numel(c, 8, c.tensor(0).sizes[0]);
  else expect_numel(c, 8, 1);
  expect_same_shape(c, 9, 0);
}
void cross_entropy(Run& r) {
  const Call& c = r.call;
  Value input = r.tensor(0), logs = empty(input.shape(), mt::kFloat), weight = r.tensor(2);
  int64_t samples = input.size(0), classes = input.size(1);
  call_kernel("_log_softmax", {logs, input}, {integer(1), integer(0)});
  Shares shares{r.tensor(1).to(mt::kInt64).dense(), weight.given() ? weight.to(mt::kFloat).dense() : weight,
                c.integer(4), classes, c.number(5)};
  Reduction how = named_reduction(c, 3);
  Value each = full({samples}, mt::kFloat, 0), out = r.tensor(8);
  double sum = 0;
  for (int64_t n = 0; n < samples; ++n) {
    double loss = 0;
    for (int64_t k = 0; shares.counts(n) && k < classes; ++k) {
      double share = shares.of(n, k);
      if (share != 0) loss -= share * logs.ptr<float>()[n * classes + k];
    }
    each.ptr<float>()[n] = float(loss);
    sum += loss;
  }
  if (how == kMean) sum /= shares.total(samples);
  copy(out, how == kNone ? each.reshape(out.shape()) : full({}, mt::kFloat, sum));
  copy(r.tensor(9), logs);
}

// (gradLoss, logProb, target, weight?, gradZloss?, lse?, reduction?, ignoreIndex, labelSmoothing, zlossScale, out)
void check_cross_entropy_grad(const Call& c) {
  expect_classes(c, 1, 2, 3, c.number(8));
  EXPECT(c.number(9) == 0, "zloss is not supported: lseSquareScaleForZloss must be 0");
  expect_numel(c, 0, named_reduction(c, 6) == kNone ? c.tensor(1).sizes[0] : 1);
  expect_same_shape(c, 10, 1);
}
void cross_entropy_grad(Run& r) {
  const Call& c = r.call;
  Value logs = r.tensor(1).to(mt::kFloat).dense(), grad = r.tensor(0).to(mt::kFloat).dense(), weight = r.tensor(3),
        made = full(logs.shape(), mt::kFloat, 0);
  int64_t samples = logs.size(0), classes = logs.size(1);
  Shares shares{r.tensor(2).to(mt::kInt64).dense(), weight.given() ? weight.to(mt::kFloat).dense() : weight,
                c.integer(7), classes, c.number(8)};
  Reduction how = named_reduction(c, 6);
  double part = how == kMean ? 1 / shares.total(samples) : 1;
  for (int64_t n = 0; n < samples; ++n) {
    if (!shares.counts(n)) continue;
    double g = grad.ptr<float>()[how == kNone ? n : 0] * part, sum = 0;
    for (int64_t k = 0; k < classes; ++k) sum += shares.of(n, k);
    for (int64_t k = 0; k < classes; ++k) {
      int64_t i = n * classes + k;
      made.ptr<float>()[i] = float(g * (std::exp(logs.ptr<float>()[i]) * sum - shares.of(n, k)));
    }
  }
  copy(r.tensor(10), made);
}

// ---- multilabel margin: (self [N, C], [C] or one item, target alike, reduction, out, isTarget) ---
void check_margin(const Call& c) {
  expect_same_shape(c, 1, 0);
  expect_same_shape(c, 4, 0);
  EXPECT(c.integer(2) >= kNone && c.integer(2) <= kSum, "reduction %ld is not in [0, 2]", long(c.integer(2)));
  bool each = c.integer(2) == kNone && c.tensor(0).ndim == 2;
  expect_numel(c, 3, each ? c.tensor(0).sizes[0] : 1);
}
void margin(Run& r) {
  const char* const reductions[] = {"none", "mean", "sum"};
  multilabel_margin(r.tensor(0), r.tensor(1), reductions[r.call.integer(2)], r.tensor(3), r.tensor(4));
}

// ---- cross entropy with a share of every class: (features, labels, loss, backprop) ------------------------------
void check_soft_labels(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim == 2, "expected features [N, C], got %s", describe(x).c_str());
  expect_same_shape(c, 1, 0);
  expect_same_shape(c, 3, 0);
  expect_numel(c, 2, x.sizes[0]);
  for (int i : {0, 1, 2, 3}) EXPECT(is_float(dtype_of(c.tensor(i).dtype)), "%s must be floating", c.row->args[i].name);
}
void soft_labels(Run& r) {
  const Value x = r.tensor(0).to(mt::kFloat).dense(), y = r.tensor(1).to(mt::kFloat).dense();
  const Value loss = empty({x.size(0)}, mt::kFloat), back = empty(x.shape(), mt::kFloat);
  soft_cross_entropy(x.ptr<float>(), y.ptr<float>(), x.size(0), x.size(1), loss.ptr<float>(), back.ptr<float>());
  copy(r.tensor(2), loss.reshape(r.tensor(2).shape()));
  copy(r.tensor(3), back);
}

const Op ops[] = {
    {"aclnnSoftmaxCrossEntropyWithLogits", check_soft_labels, soft_labels},
    {"aclnnCrossEntropyLoss", check_cross_entropy, cross_entropy},
    {"aclnnCrossEntropyLossGrad", check_cross_entropy_grad, cross_entropy_grad},
    {"aclnnMultilabelMarginLoss", check_margin, margin},
};

}  // namespace
}  // namespace cann_sim
