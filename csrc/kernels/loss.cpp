// Losses that are reduced as they are made: those of pairs, and negative log likelihood with its backward. From logits:
// cross_entropy.cpp.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

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

// ---- losses of pairs ---------------------------------------------------------------------------------------------

// What a difference of the two costs, of items and of vectors of them.
struct Square {
  template <class V> V operator()(V d) const { return d * d; }
};
struct Size {
  template <class V> V operator()(V d) const { return d < V{} ? -d : d; }
};
template <class T, bool exact> struct Smooth {  // exact: 1 / beta is, so that a product serves for the quotient
  T beta, inverse = 1 / beta;
  template <class V> V operator()(V d) const {
    const V a = d < V{} ? -d : d, square = T(0.5) * d * d;
    return a < beta + V{} ? (exact ? square * inverse : square / beta) : a - T(0.5) * beta;
  }
};
template <class T> struct Huber {
  T delta;
  template <class V> V operator()(V d) const {
    const V a = d < V{} ? -d : d;
    return a <= delta + V{} ? T(0.5) * d * d : delta * (a - T(0.5) * delta);
  }
};

// A block in its own precision, the blocks in double.
template <class T, class F> double pair_sum(const T* x, const T* y, int64_t n, const F& f) {
  typedef T V __attribute__((vector_size(32)));
  constexpr int64_t block = 4096, lanes = 32 / sizeof(T), chains = 4;
  double sum = 0;
  for (int64_t i = 0; i < n;) {
    const int64_t end = std::min(n, i + block);
    V acc[chains] = {}, u, w;
    for (; i + chains * lanes <= end; i += chains * lanes)
      for (int k = 0; k < chains; ++k) {
        std::memcpy(&u, x + i + k * lanes, 32);
        std::memcpy(&w, y + i + k * lanes, 32);
        acc[k] += f(u - w);
      }
    u = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    T part = 0;
    for (int64_t k = 0; k < lanes; ++k) part += u[k];
    for (; i < end; ++i) part += f(T(x[i] - y[i]));
    sum += double(part);
  }
  return sum;
}
template <class T, class F> void pair_loss_of(const Args& c, const F& f) {
  const T *x = c.t[1].ptr<T>(), *y = c.t[2].ptr<T>();
  constexpr int64_t piece = 1 << 15;
  const int64_t n = c.t[1].numel(), pieces = (n + piece - 1) / piece;
  double sum = 0;
  if (pieces <= 1) {
    sum = pair_sum(x, y, n, f);
  } else {
    std::vector<double> parts(pieces);
    parallel_for(pieces, std::max<int64_t>(1, 2 * kGrain / piece), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) parts[p] = pair_sum(x + p * piece, y + p * piece, std::min(piece, n - p * piece), f);
    });
    for (double part : parts) sum += part;
  }
  *c.t[0].ptr<T>() = T(c.a[2].i == kMean ? sum / double(n) : sum);
}
template <class T> void pair_loss_typed(const Args& c) {
  const T width = T(c.a[1].f);
  int exponent;
  switch (c.a[0].i) {
    case 0: return pair_loss_of<T>(c, Square());
    case 1: return pair_loss_of<T>(c, Size());
    case 2:
      if (std::frexp(width, &exponent) == T(0.5) && std::abs(exponent) < 100) return pair_loss_of<T>(c, Smooth<T, true>{width});
      return pair_loss_of<T>(c, Smooth<T, false>{width});
    default: return pair_loss_of<T>(c, Huber<T>{width});
  }
}
// _pair_loss(Tensor self, Tensor target, int kind, float width, int reduction) -> Tensor, of adjacent items; kind 0 the square
// of the difference, 1 its size, 2 smooth_l1 with beta = width, 3 huber with delta = width.
void pair_loss(const Args& c) {
  expect(c.t[1].contiguous() && c.t[2].contiguous() && c.t[1].dtype == c.t[2].dtype, "_pair_loss", "items must be adjacent");
  expect_items(c.t[2], c.t[1].numel(), "_pair_loss", "target");
  MT_SWITCH(c.t[1].dtype, "_pair_loss", MT_FLOATS(T, { pair_loss_typed<T>(c); }))
}

Register r_pair("pair_loss", pair_loss);
Register r_nll("nll_loss_forward", nll_loss_forward), r_nll2d("nll_loss2d_forward", nll_loss_forward),
    r_nll_b("nll_loss_backward", nll_loss_backward), r_nll2d_b("nll_loss2d_backward", nll_loss_backward);

}  // namespace
}  // namespace mt
