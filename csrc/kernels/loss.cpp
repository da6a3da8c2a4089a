// Negative log likelihood: nll_loss, nll_loss2d and their backwards. From logits: cross_entropy.cpp.
#include <string>

#include "norm.h"

namespace mt {
namespace {

enum Reduce { kNone, kMean, kSum };

// Input (N, C, positions...) with one class at every sample and position; a 1-D input is one sample.
struct Classes {
  int64_t samples = 1, classes = 1, positions = 1;
  explicit Classes(const View& self) {
    if (self.ndim < 1) throw std::runtime_error("input tensor should be 1D or 2D");
    classes = self.sizes[self.ndim == 1 ? 0 : 1];
    if (self.ndim > 1) samples = self.sizes[0];
    for (int d = 2; d < self.ndim; ++d) positions *= self.sizes[d];
  }
  int64_t items() const { return samples * positions; }
  // f(item, where its value of class 0 lies in a contiguous tensor) for all items.
  template <class F> void each(F&& f) const {
    for (int64_t n = 0, i = 0; n < samples; ++n)
      for (int64_t p = 0; p < positions; ++p, ++i) f(i, n * classes * positions + p);
  }
};

void check_target(int64_t target, int64_t classes) {
  if (target < 0 || target >= classes)
    throw std::out_of_range("Target " + std::to_string(target) + " is out of bounds.");
}

// nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index)
//   -> (Tensor output, Tensor total_weight); nll_loss2d_forward the same
template <class T> void forward(const Args& c) {
  const View &out = c.t[0], &self = c.t[2];
  Classes s(self);
  int64_t reduction = c.a[0].i, ignore = c.a[1].i;
  Dense x(self, self.dtype), target(c.t[3], kInt64);
  Maybe<T> w(c.t[4], Dense::kLoad);
  bool each = reduction == kNone && self.ndim > 1;
  expect_items(c.t[3], s.items(), "nll_loss", "target");
  expect_items(c.t[4], s.classes, "nll_loss", "weight");
  Dense each_out(out, out.dtype, Dense::kOutput);
  double sum = 0, weights = 0;
  const bool same = self.dtype == kDTypeOf<T>;
  s.each([&](int64_t i, int64_t first) {
    int64_t t = target.ptr<int64_t>()[i];
    T loss = 0, weight = 0;
    if (t != ignore) {
      check_target(t, s.classes);
      const int64_t at = first + t * s.positions;
      if (same) loss = x.ptr<T>()[at];
      else convert(kDTypeOf<T>, &loss, self.dtype, x.ptr<char>() + at * itemsize(self.dtype), 1);
      weight = w.p ? w.p[t] : T(1);
      loss *= -weight;
    }
    if (each) convert(out.dtype, each_out.ptr<char>() + i * itemsize(out.dtype), kDTypeOf<T>, &loss, 1);
    sum += double(loss);
    weights += double(weight);
  });
  if (each) weights = 0;
  if (reduction == kMean) sum /= weights;
  if (!each) convert(out.dtype, each_out.data(), kDouble, &sum, 1);
  each_out.store();
  convert(c.t[1].dtype, c.t[1].data, kDouble, &weights, 1);
}

// nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index,
//   Tensor total_weight) -> Tensor; nll_loss2d_backward the same
template <class T> void backward(const Args& c) {
  const View &out = c.t[0], &self = c.t[2];
  Classes s(self);
  int64_t reduction = c.a[0].i, ignore = c.a[1].i;
  Dense gx(out, out.dtype, Dense::kOutput), target(c.t[3], kInt64);
  Maybe<T> grad(c.t[1], Dense::kLoad), w(c.t[4], Dense::kLoad), total(c.t[5], Dense::kLoad);
  bool each = reduction == kNone && self.ndim > 1;
  expect_items(c.t[1], each ? s.items() : 1, "nll_loss_backward", "grad_output");
  expect_items(c.t[3], s.items(), "nll_loss_backward", "target");
  expect_items(c.t[4], s.classes, "nll_loss_backward", "weight");
  expect_items(c.t[5], 1, "nll_loss_backward", "total_weight");
  std::fill_n(gx.ptr<char>(), out.numel() * itemsize(out.dtype), char(0));
  const bool same = out.dtype == kDTypeOf<T>;
  s.each([&](int64_t i, int64_t first) {
    int64_t t = target.ptr<int64_t>()[i];
    if (t == ignore) return;
    check_target(t, s.classes);
    T g = -(w.p ? w.p[t] : T(1)) * grad.p[each ? i : 0];
    if (reduction == kMean) g /= total.p[0];
    const int64_t at = first + t * s.positions;
    if (same) gx.ptr<T>()[at] = g;
    else convert(out.dtype, gx.ptr<char>() + at * itemsize(out.dtype), kDTypeOf<T>, &g, 1);
  });
  gx.store();
}

void nll_loss_forward(const Args& c) {
  DType d = widened(c.t[2].dtype);
  MT_SWITCH(d, "nll_loss_out_frame", MT_FLOATS(T, { forward<T>(c); }))
}
void nll_loss_backward(const Args& c) {
  DType d = widened(c.t[2].dtype);
  MT_SWITCH(d, "nll_loss_backward_out_frame", MT_FLOATS(T, { backward<T>(c); }))
}

Register r_nll("nll_loss_forward", nll_loss_forward), r_nll2d("nll_loss2d_forward", nll_loss_forward),
    r_nll_b("nll_loss_backward", nll_loss_backward), r_nll2d_b("nll_loss2d_backward", nll_loss_backward);

}  // namespace
}  // namespace mt
