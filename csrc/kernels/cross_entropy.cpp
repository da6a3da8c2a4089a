// The fused cross entropy of logits (N, C) and class indices: log_softmax and nll_loss in one pass over the logits.
#include <limits>
#include <string>

#include "norm.h"
#include "reduce_exp.h"
#include "short_row.h"

namespace mt {
namespace {

enum Reduce { kNone, kMean, kSum };
constexpr int64_t kBlock = 1024;

struct Call {
  int64_t samples, classes, reduction, ignore;
  double smoothing;
  Call(const View& self, const Attr* a) : reduction(a[0].i), ignore(a[1].i), smoothing(a[2].f) {
    if (self.ndim < 1 || self.ndim > 2) throw std::runtime_error("cross_entropy: logits must be (N, C) or (C)");
    samples = self.ndim == 1 ? 1 : self.sizes[0];
    classes = self.sizes[self.ndim - 1];
  }
  // The class of a row; false when the row is ignored.
  bool counts(int64_t target) const {
    if (target == ignore) return false;
    if (target < 0 || target >= classes)
      throw std::out_of_range("Target " + std::to_string(target) + " is out of bounds.");
    return true;
  }
};

// The largest item of a row and the sum of the powers under it. Their logarithm is never added to the largest item: a loss that is
// small beside the logits would lose its digits.
template <class T> void powers_of(const T* x, int64_t n, T* to) {
  if (n >= Block<T>::kItems && n <= kVectors) return short_powers(x, n, to);
  alignas(64) T e[kBlock];
  T max, sum = 0;
  fold_lanes<1, MaxLanes>(x, n, -std::numeric_limits<T>::infinity(), &max);
  for (int64_t i = 0; i < n; i += kBlock) {
    int64_t m = std::min(kBlock, n - i);
    for (int64_t j = 0; j < m; ++j) e[j] = exp_nonpositive(x[i + j] - max);
    sum += total(e, m);
  }
  to[0] = max, to[1] = sum;
}

// The part of label smoothing: the weighted sum of -log p over all classes.
template <class T> double smooth_loss(const T* x, const T* w, int64_t n, T max, T log) {
  alignas(64) T e[kBlock];
  double sum = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    int64_t m = std::min(kBlock, n - i);
    for (int64_t j = 0; j < m; ++j) e[j] = max - x[i + j] + log;
    for (int64_t j = 0; w && j < m; ++j) e[j] *= w[i + j];
    sum += double(total(e, m));
  }
  return sum;
}

// cross_entropy_forward(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index,
//   float label_smoothing) -> (Tensor output, Tensor total_weight, Tensor powers)
// powers: the largest logit and the sum of the powers under it, of each row.
template <class T> void forward(const Args& c) {
  const View &out = c.t[0], &self = c.t[3];
  Call s(self, c.a);
  expect_items(c.t[4], s.samples, "cross_entropy", "target");
  expect_items(c.t[5], s.classes, "cross_entropy", "weight");
  Matrix<T> x(self, Dense::kLoad);
  Dense target(c.t[4], kInt64);
  Maybe<T> w(c.t[5], Dense::kLoad), powers(c.t[2], Dense::kOutput);
  std::vector<double> loss(static_cast<size_t>(s.samples));
  parallel_for(s.samples, rows_per_piece(4 * s.classes), [&](int64_t begin, int64_t end) {
    auto rows = x.rows(s.classes);
    for (int64_t i = begin; i < end; ++i) {
      int64_t t = target.ptr<int64_t>()[i];
      const T* row = rows.read(i);
      T* own = powers.p + 2 * i;
      powers_of(row, s.classes, own);
      if (!s.counts(t)) continue;
      T max = own[0], log = std::log(own[1]);
      double nll = double(max - row[t] + log) * (w.p ? double(w.p[t]) : 1);
      if (s.smoothing > 0)
        nll = (1 - s.smoothing) * nll +
              s.smoothing / double(s.classes) * smooth_loss(row, w.p, s.classes, max, log);
      loss[size_t(i)] = nll;
    }
  });
  double sum = 0, weights = 0;
  for (int64_t i = 0; i < s.samples; ++i) {
    int64_t t = target.ptr<int64_t>()[i];
    if (t != s.ignore) weights += w.p ? double(w.p[t]) : 1;
    sum += loss[size_t(i)];
  }
  if (s.reduction == kMean) sum /= weights;
  Dense result(out, out.dtype, Dense::kOutput);
  if (s.reduction == kNone) convert(out.dtype, result.data(), kDouble, loss.data(), s.samples);
  else convert(out.dtype, result.data(), kDouble, &sum, 1);
  result.store();
  convert(c.t[1].dtype, c.t[1].data, kDouble, &weights, 1);
  powers.store();
}

// cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, Tensor total_weight,
//   Tensor powers, int reduction, int ignore_index, float label_smoothing) -> Tensor
// With p the softmax of a row, its grad is (a + b sum(w)) p - a [class is target] - b w, where a = (1 - smoothing) w_t
// and b = smoothing / classes.
template <class T> void backward(const Args& c) {
  const View& self = c.t[2];
  Call s(self, c.a);
  expect_items(c.t[1], s.reduction == kNone ? s.samples : 1, "cross_entropy_backward", "grad_output");
  expect_items(c.t[3], s.samples, "cross_entropy_backward", "target");
  expect_items(c.t[4], s.classes, "cross_entropy_backward", "weight");
  expect_items(c.t[5], 1, "cross_entropy_backward", "total_weight");
  expect_items(c.t[6], 2 * s.samples, "cross_entropy_backward", "powers");
  Matrix<T> x(self, Dense::kLoad), gx(c.t[0], Dense::kOutput);
  Dense target(c.t[3], kInt64);
  Maybe<T> grad(c.t[1], Dense::kLoad), w(c.t[4], Dense::kLoad), weights(c.t[5], Dense::kLoad);
  Maybe<T> powers(c.t[6], Dense::kLoad);
  double b = s.smoothing / double(s.classes), all = w.p ? double(total(w.p, s.classes)) : double(s.classes);
  parallel_for(s.samples, rows_per_piece(4 * s.classes), [&](int64_t begin, int64_t end) {
    auto rows = x.rows(s.classes), to = gx.rows(s.classes);
    for (int64_t i = begin; i < end; ++i) {
      int64_t t = target.ptr<int64_t>()[i];
      T* y = to.write_to(i);
      if (!s.counts(t)) {
        std::fill_n(y, s.classes, T(0));
        to.written(i);
        continue;
      }
      const T* row = rows.read(i);
      double g = double(grad.p[s.reduction == kNone ? i : 0]), a = (1 - s.smoothing) * (w.p ? double(w.p[t]) : 1);
      if (s.reduction == kMean) g /= double(weights.p[0]);
      T max = powers.p[2 * i], level = T(g * b), scale = T(g * (a + b * all) / double(powers.p[2 * i + 1]));
#pragma GCC ivdep
      for (int64_t j = 0; j < s.classes; ++j) y[j] = scale * exp_nonpositive(row[j] - max);
      for (int64_t j = 0; b > 0 && j < s.classes; ++j) y[j] -= w.p ? level * w.p[j] : level;
      y[t] -= T(g * a);
      to.written(i);
    }
  });
  gx.store();
}

void cross_entropy_forward(const Args& c) {
  DType d = widened(c.t[3].dtype);
  MT_SWITCH(d, "cross_entropy", MT_FLOATS(T, { forward<T>(c); }))
}
void cross_entropy_backward(const Args& c) {
  DType d = widened(c.t[2].dtype);
  MT_SWITCH(d, "cross_entropy_backward", MT_FLOATS(T, { backward<T>(c); }))
}

Register r_forward("cross_entropy_forward", cross_entropy_forward),
    r_backward("cross_entropy_backward", cross_entropy_backward);

}  // namespace
}  // namespace mt
