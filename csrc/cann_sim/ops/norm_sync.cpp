// Batch norm taken apart, so that its statistics can be gathered from many devices: stats, gather, apply, backwards.
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

// An input [N, C, ...] as dense floats; f(channel, item) for all of them.
struct Channels {
  Value v;
  int64_t batch, channels, length = 1;
  explicit Channels(const Value& input) : v(input.to(mt::kFloat).dense()), batch(v.size(0)), channels(v.size(1)) {
    for (int d = 2; d < v.ndim; ++d) length *= v.sizes[d];
  }
  const float* data() const { return v.ptr<float>(); }
  int64_t items() const { return batch * length; }  // of one channel
  template <class F> void each(F f) const {
    for (int64_t i = 0, n = batch * channels; i < n; ++i)
      for (int64_t j = i * length; j < (i + 1) * length; ++j) f(size_t(i % channels), j);
  }
};
// A small tensor as dense floats; absent: all `otherwise`.
Value vector_of(const Value& v, int64_t n, float otherwise = 0) {
  return v.given() ? v.to(mt::kFloat).dense() : full({n}, mt::kFloat, otherwise);
}
Value vector_from(const std::vector<double>& items) {
  Value v = empty({int64_t(items.size())}, mt::kFloat);
  for (size_t i = 0; i < items.size(); ++i) v.ptr<float>()[i] = float(items[i]);
  return v;
}
void expect_vectors(const Call& c, int input, std::initializer_list<int> args) {
  for (int i : args)
    if (c.given(i)) expect_numel(c, i, c.tensor(input).sizes[1]);
}

// (input, eps, mean, invstd)
void check_stats(const Call& c) { expect_vectors(c, 0, {2, 3}); }
void stats(Run& r) {
  Channels x(r.tensor(0));
  std::vector<double> mean(size_t(x.channels)), spread(size_t(x.channels));
  x.each([&](size_t c, int64_t i) { mean[c] += x.data()[i]; });
  for (double& m : mean) m /= double(x.items());
  x.each([&](size_t c, int64_t i) { spread[c] += (x.data()[i] - mean[c]) * (x.data()[i] - mean[c]); });
  for (double& s : spread) s = 1 / std::sqrt(s / double(x.items()) + r.call.number(1));
  copy(r.tensor(2), vector_from(mean));
  copy(r.tensor(3), vector_from(spread));
}

// (x, sum, squareSum)
void check_sums(const Call& c) {
  EXPECT(c.tensor(0).ndim >= 2, "x must have at least 2 dims, got %s", describe(c.tensor(0)).c_str());
  expect_vectors(c, 0, {1, 2});
}
void sums(Run& r) {
  Channels x(r.tensor(0));
  std::vector<double> sum(size_t(x.channels)), squares(size_t(x.channels));
  x.each([&](size_t c, int64_t i) { sum[c] += x.data()[i], squares[c] += double(x.data()[i]) * x.data()[i]; });
  copy(r.tensor(1), vector_from(sum));
  copy(r.tensor(2), vector_from(squares));
}

// (input, mean [W, C], invstd [W, C], runningMean?, runningVar?, momentum, eps, counts [W], meanAll, invstdAll)
void check_gather(const Call& c) {
  const TensorMeta& mean = c.tensor(1);
  expect_vectors(c, 0, {3, 4, 8, 9});
  EXPECT(mean.sizes[1] == c.tensor(0).sizes[1], "mean %s has not the channels of input %s", describe(mean).c_str(),
         describe(c.tensor(0)).c_str());
  expect_same_shape(c, 2, 1);
  expect_numel(c, 7, mean.sizes[0]);
}
void gather(Run& r) {
  const Call& c = r.call;
  Value means = vector_of(r.tensor(1), 0), spreads = vector_of(r.tensor(2), 0), counts = vector_of(r.tensor(7), 0);
  int64_t workers = means.size(0), channels = means.size(1);
  double eps = c.number(6), momentum = c.number(5), all = 0;
  for (int64_t w = 0; w < workers; ++w) all += counts.ptr<float>()[w];
  std::vector<double> mean(static_cast<size_t>(channels)), var(static_cast<size_t>(channels));
  auto each = [&](auto f) {
    for (int64_t w = 0; w < workers; ++w)
      for (int64_t ch = 0; ch < channels; ++ch)
        f(size_t(ch), counts.ptr<float>()[w] / all, means.ptr<float>()[w * channels + ch],
          spreads.ptr<float>()[w * channels + ch]);
  };
  each([&](size_t ch, double part, double m, double) { mean[ch] += part * m; });
  each([&](size_t ch, double part, double m, double invstd) {
    var[ch] += part * (1 / (invstd * invstd) - eps + (m - mean[ch]) * (m - mean[ch]));
  });
  auto update = [&](int i, const std::vector<double>& found, double factor) {
    if (!r.given(i)) return;
    Value kept = r.tensor(i), now = vector_of(kept, 0);
    std::vector<double> next(found.size());
    for (size_t ch = 0; ch < found.size(); ++ch)
      next[ch] = (1 - momentum) * now.ptr<float>()[ch] + momentum * found[ch] * factor;
    copy(kept, vector_from(next));
  };
  update(3, mean, 1);
  update(4, var, all / (all - 1));
  for (double& v : var) v = 1 / std::sqrt(v + eps);
  copy(r.tensor(8), vector_from(mean));
  copy(r.tensor(9), vector_from(var));
}

// (input, weight?, bias?, mean, invstd, eps, output)
void check_apply(const Call& c) {
  expect_vectors(c, 0, {1, 2, 3, 4});
  expect_same_shape(c, 6, 0);
}
void apply(Run& r) {
  Channels x(r.tensor(0));
  Value w = vector_of(r.tensor(1), x.channels, 1), b = vector_of(r.tensor(2), x.channels),
        mean = vector_of(r.tensor(3), 0), invstd = vector_of(r.tensor(4), 0), made = empty(x.v.shape(), mt::kFloat);
  x.each([&](size_t c, int64_t i) {
    made.ptr<float>()[i] =
        (x.data()[i] - mean.ptr<float>()[c]) * invstd.ptr<float>()[c] * w.ptr<float>()[c] + b.ptr<float>()[c];
  });
  copy(r.tensor(6), made);
}

// (gradOut, input, mean, invstd, weight?, inputG, weightG, biasG, sumDy?, sumDyXmu?, gradWeight?, gradBias?)
void check_reduce(const Call& c) {
  expect_same_shape(c, 0, 1);
  expect_vectors(c, 1, {2, 3, 4, 8, 9, 10, 11});
  const bool wanted[] = {c.integer(5) != 0, c.integer(5) != 0, c.integer(6) != 0, c.integer(7) != 0};
  for (int k = 0; k < 4; ++k)
    EXPECT(!wanted[k] || c.given(8 + k), "%s is asked for and not given", c.row->args[8 + k].name);
}
void reduce(Run& r) {
  const Call& c = r.call;
  Channels g(r.tensor(0)), x(r.tensor(1));
  Value mean = vector_of(r.tensor(2), 0), invstd = vector_of(r.tensor(3), 0);
  std::vector<double> sum(size_t(x.channels)), along(size_t(x.channels)), slope(size_t(x.channels));
  x.each([&](size_t ch, int64_t i) {
    sum[ch] += g.data()[i];
    along[ch] += double(g.data()[i]) * (x.data()[i] - mean.ptr<float>()[ch]);
  });
  for (size_t ch = 0; ch < slope.size(); ++ch) slope[ch] = along[ch] * invstd.ptr<float>()[ch];
  if (c.integer(5)) copy(r.tensor(8), vector_from(sum)), copy(r.tensor(9), vector_from(along));
  if (c.integer(6)) copy(r.tensor(10), vector_from(slope));
  if (c.integer(7)) copy(r.tensor(11), vector_from(sum));
}

// (gradOut, input, mean, invstd, weight?, sumDy, sumDyXmu, counter, gradInput)
void check_apply_backward(const Call& c) {
  expect_same_shape(c, 0, 1);
  expect_vectors(c, 1, {2, 3, 4, 5, 6});
  expect_same_shape(c, 8, 1);
}
void apply_backward(Run& r) {
  Channels g(r.tensor(0)), x(r.tensor(1));
  Value mean = vector_of(r.tensor(2), 0), invstd = vector_of(r.tensor(3), 0), w = vector_of(r.tensor(4), x.channels, 1),
        sum = vector_of(r.tensor(5), 0), along = vector_of(r.tensor(6), 0), counts = vector_of(r.tensor(7), 0),
        made = empty(x.v.shape(), mt::kFloat);
  float all = 0;
  for (int64_t i = 0; i < counts.numel(); ++i) all += counts.ptr<float>()[i];
  x.each([&](size_t c, int64_t i) {
    float s = invstd.ptr<float>()[c], centred = x.data()[i] - mean.ptr<float>()[c];
    float slope = g.data()[i] - sum.ptr<float>()[c] / all - centred * s * s * along.ptr<float>()[c] / all;
    made.ptr<float>()[i] = slope * s * w.ptr<float>()[c];
  });
  copy(r.tensor(8), made);
}

const Op ops[] = {
    {"aclnnBatchNormStats", check_stats, stats},
    {"aclnnBatchNormReduce", check_sums, sums},
    {"aclnnBatchNormGatherStatsWithCounts", check_gather, gather},
    {"aclnnBatchNormElemt", check_apply, apply},
    {"aclnnBatchNormReduceBackward", check_reduce, reduce},
    {"aclnnBatchNormElemtBackward", check_apply_backward, apply_backward},
};

}  // namespace
}  // namespace cann_sim
