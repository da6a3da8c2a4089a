// Connectionist temporal classification: the loss by the forward variables, and its gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/older.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

// Where logProbs, targets and the lengths lie: (logProbs, targets, inputLengths, targetLengths) from `first`.
struct Batch {
  int64_t steps, samples, classes, longest = 0;  // longest: of the targets
  Span<int64_t> inputs, targets;
  bool packed;                                   // targets laid end to end in one dim

  Batch(const Call& c, int first) : inputs(c.ints(first + 2)), targets(c.ints(first + 3)) {
    const TensorMeta &x = c.tensor(first), &t = c.tensor(first + 1);
    EXPECT(x.ndim == 2 || x.ndim == 3, "logProbs must have 2 or 3 dims, got %s", describe(x).c_str());
    steps = x.sizes[0], samples = x.ndim == 3 ? x.sizes[1] : 1, classes = x.sizes[x.ndim - 1];
    EXPECT(inputs.size() == samples && targets.size() == samples, "%ld samples need as many lengths, got %ld and %ld",
           long(samples), long(inputs.size()), long(targets.size()));
    packed = t.ndim == 1 && x.ndim == 3;
    int64_t sum = 0;
    for (int64_t n = 0; n < samples; ++n) {
      EXPECT(inputs[n] >= 0 && inputs[n] <= steps, "input length %ld is not in [0, %ld]", long(inputs[n]), long(steps));
      EXPECT(targets[n] >= 0, "target length %ld is negative", long(targets[n]));
      longest = std::max(longest, targets[n]);
      sum += targets[n];
    }
    if (packed) EXPECT(t.numel() == sum, "targets %s do not have %ld items", describe(t).c_str(), long(sum));
    else EXPECT(t.numel() >= samples * longest, "targets %s are shorter than %ld", describe(t).c_str(), long(longest));
  }
  // By the older interface, where the lengths are values.
  Batch(Older& o, const Value& x, const Value& t, const Sizes& input_lengths, const Sizes& target_lengths)
      : inputs{input_lengths.data(), int64_t(input_lengths.size())}, targets{target_lengths.data(), int64_t(target_lengths.size())} {
    if (x.ndim != 3) o.refuse("the probabilities must have 3 dims");
    steps = x.sizes[0], samples = x.sizes[1], classes = x.sizes[2], packed = t.ndim == 1;
    if (inputs.size() != samples || targets.size() != samples) o.refuse("there must be as many lengths as samples");
    int64_t sum = 0;
    for (int64_t n = 0; n < samples; ++n) {
      if (inputs[n] < 0 || inputs[n] > steps || targets[n] < 0) o.refuse("a length is out of range");
      longest = std::max(longest, targets[n]);
      sum += targets[n];
    }
    if (t.numel() < (packed ? sum : samples * longest)) o.refuse("the targets are shorter than their lengths");
  }
  void expect_blank(int64_t blank) const {
    EXPECT(blank >= 0 && blank < classes, "blank %ld is not in [0, %ld)", long(blank), long(classes));
  }
  // A2 and A3 want the states of a step in whole blocks of 32 bytes.
  Sizes alpha_sizes() const { return {samples, steps, (2 * longest + 8) / 8 * 8}; }
};

// One sample: its probabilities, and its target with blanks between.
struct Sample {
  const double* log_probs;
  int64_t stride, steps, states;
  std::vector<int64_t> labels;  // of the states
  double at(int64_t t, int64_t s) const { return log_probs[t * stride + labels[size_t(s)]]; }
  // A state may be reached from two before it, unless the label repeats or is a blank.
  bool skips(int64_t s) const { return s % 2 == 1 && s >= 2 && labels[size_t(s)] != labels[size_t(s - 2)]; }
};

struct Samples {
  Batch batch;
  Value probs, targets;
  int64_t blank;
  Samples(Run& r, int first, int64_t blank_class)
      : batch(r.call, first), probs(r.tensor(first).to(mt::kDouble).dense()),
        targets(r.tensor(first + 1).to(mt::kInt64).dense()), blank(blank_class) {}
  Samples(const Batch& made, const Value& x, const Value& t, int64_t blank_class)
      : batch(made), probs(x.to(mt::kDouble).dense()), targets(t.to(mt::kInt64).dense()), blank(blank_class) {}
  Sample operator[](int64_t n) const {
    int64_t length = batch.targets[n], from = 0;
    if (batch.packed) for (int64_t i = 0; i < n; ++i) from += batch.targets[i];
    else from = n * (targets.numel() / std::max<int64_t>(batch.samples, 1));
    Sample s{
        probs.ptr<double>() + n * batch.classes, batch.samples * batch.classes, batch.inputs[n], 2 * length + 1, {}};
    for (int64_t i = 0; i < s.states; ++i) {
      int64_t label = i % 2 ? targets.ptr<int64_t>()[from + i / 2] : blank;
      if (label < 0 || label >= batch.classes)
        throw std::out_of_range("ctc_loss: target " + std::to_string(label) + " is no class");
      s.labels.push_back(label);
    }
    return s;
  }
};

// alpha[t][s]: everything that ends in state s at step t. Rows are `width` long.
double forward(const Sample& x, double* alpha, int64_t width) {
  if (x.steps == 0) return x.states == 1 ? 0 : -kNever;
  for (int64_t s = 0; s < std::min<int64_t>(x.states, 2); ++s) alpha[s] = x.at(0, s);
  for (int64_t t = 1; t < x.steps; ++t)
    for (int64_t s = 0; s < x.states; ++s) {
      const double* before = alpha + (t - 1) * width;
      double sum = before[s];
      if (s >= 1) sum = log_add(sum, before[s - 1]);
      if (x.skips(s)) sum = log_add(sum, before[s - 2]);
      alpha[t * width + s] = sum + x.at(t, s);
    }
  const double* last = alpha + (x.steps - 1) * width;
  return -(x.states > 1 ? log_add(last[x.states - 1], last[x.states - 2]) : last[0]);
}

// ---- (logProbs, targets, inputLengths, targetLengths, blank, zeroInfinity, negLogLikelihood, logAlpha) ---------
void check_ctc(const Call& c) {
  Batch b(c, 0);
  b.expect_blank(c.integer(4));
  expect_numel(c, 6, b.samples);
  expect_shape(c, 7, b.alpha_sizes());
}
void losses(const Samples& samples, const Value& out, const Value& alphas) {
  const Batch& b = samples.batch;
  const Value alpha = full(alphas.shape(), mt::kDouble, kNever), loss = empty({b.samples}, mt::kDouble);
  const int64_t width = alpha.size(2);
  for (int64_t n = 0; n < b.samples; ++n)
    loss.ptr<double>()[n] = forward(samples[n], alpha.ptr<double>() + n * b.steps * width, width);
  copy(out, loss.reshape(out.shape()));
  copy(alphas, alpha);
}
void ctc(Run& r) { losses(Samples(r, 0, r.call.integer(4)), r.tensor(6), r.tensor(7)); }

// ---- (gradOut, logProbs, targets, inputLengths, targetLengths, negLogLikelihood, logAlpha, blank, zeroInfinity, out)
void check_ctc_backward(const Call& c) {
  Batch b(c, 1);
  b.expect_blank(c.integer(7));
  for (int i : {0, 5}) expect_numel(c, i, b.samples);
  const TensorMeta& alpha = c.tensor(6);
  EXPECT(alpha.ndim == 3 && alpha.sizes[0] == b.samples && alpha.sizes[1] == b.steps &&
             alpha.sizes[2] >= 2 * b.longest + 1,
         "logAlpha %s has no room for %ld states", describe(alpha).c_str(), long(2 * b.longest + 1));
  expect_same_shape(c, 9, 1);
}
// The gradient of one sample: exp(p) less the share of the paths through each class.
void backward(const Sample& x, const double* alpha, int64_t width, double loss, double grad, int64_t classes,
              double* out) {
  std::vector<double> beta(size_t(x.states), kNever), next, through(static_cast<size_t>(classes));
  for (int64_t t = x.steps - 1; t >= 0; --t) {
    next = beta;
    for (int64_t s = x.states - 1; s >= 0; --s) {
      double sum = t == x.steps - 1 ? (s >= x.states - 2 ? 0 : kNever) : next[size_t(s)];
      if (t < x.steps - 1 && s + 1 < x.states) sum = log_add(sum, next[size_t(s + 1)]);
      if (t < x.steps - 1 && s + 2 < x.states && x.skips(s + 2)) sum = log_add(sum, next[size_t(s + 2)]);
      beta[size_t(s)] = sum + x.at(t, s);
    }
    std::fill(through.begin(), through.end(), kNever);
    for (int64_t s = 0; s < x.states; ++s) {
      double& sum = through[size_t(x.labels[size_t(s)])];
      sum = log_add(sum, alpha[t * width + s] + beta[size_t(s)]);
    }
    for (int64_t k = 0; k < classes; ++k) {
      double p = x.log_probs[t * x.stride + k];
      out[t * x.stride + k] = (std::exp(p) - std::exp(through[size_t(k)] + loss - p)) * grad;
    }
  }
}
void slopes(const Samples& samples, const Value& grads, const Value& losses, const Value& alphas, bool zero_infinity, const Value& out) {
  const Batch& b = samples.batch;
  const Value grad = grads.to(mt::kDouble).dense(), loss = losses.to(mt::kDouble).dense(), alpha = alphas.to(mt::kDouble).dense();
  const Value made = full(samples.probs.shape(), mt::kDouble, 0);
  const int64_t width = alpha.size(2);
  for (int64_t n = 0; n < b.samples; ++n) {
    const double value = loss.ptr<double>()[n];
    if (zero_infinity && std::isinf(value)) continue;
    backward(samples[n], alpha.ptr<double>() + n * b.steps * width, width, value, grad.ptr<double>()[n], b.classes,
             made.ptr<double>() + n * b.classes);
  }
  copy(out, made);
}
void ctc_backward(Run& r) {
  slopes(Samples(r, 1, r.call.integer(7)), r.tensor(0), r.tensor(5), r.tensor(6), r.call.integer(8), r.tensor(9));
}

// ---- by the older interface: (log-probabilities, targets, input lengths, target lengths); the gradient of the loss before and
// the loss and its forward variables behind --------------------------------------------------------------------------------
// Clients may add a multiple of the number of classes to blank: they tell the kernel the longest target that way.
int64_t blank_of(Older& o, const Batch& b, const Value& alphas) {
  const int64_t given = o.integer("blank", 0);
  if (given < 0 || !b.classes) o.refuse("blank is no class");
  if (alphas.shape().size() != 3 || alphas.size(0) != b.samples || alphas.size(1) != b.steps || alphas.size(2) < 2 * b.longest + 1)
    o.refuse("log_alpha has no room for the states of all steps");
  return given % b.classes;
}
void older_ctc(Older& o) {
  const Sizes input_lengths = o.numbers(2), target_lengths = o.numbers(3);
  const Batch b(o, o.in(0), o.in(1), input_lengths, target_lengths);
  const int64_t blank = blank_of(o, b, o.out(1));
  losses(Samples(b, o.in(0), o.in(1), blank), o.out(0), o.out(1));
}
void older_ctc_backward(Older& o) {
  const Sizes input_lengths = o.numbers(3), target_lengths = o.numbers(4);
  const Batch b(o, o.in(1), o.in(2), input_lengths, target_lengths);
  const int64_t blank = blank_of(o, b, o.in(6));
  for (size_t i : {0, 5})
    if (o.in(i).numel() != b.samples) o.refuse("there must be a loss and a gradient for every sample");
  slopes(Samples(b, o.in(1), o.in(2), blank), o.in(0), o.in(5), o.in(6), o.integer("zero_infinity", 0), o.out(0));
}

const OlderOps older_ops({{"CTCLossV2", 4, 4, 2, older_ctc}, {"CTCLossV2Grad", 7, 7, 1, older_ctc_backward}});
const Op ops[] = {
    {"aclnnCtcLoss", check_ctc, ctc},
    {"aclnnCtcLossBackward", check_ctc_backward, ctc_backward},
};

}  // namespace
}  // namespace cann_sim
