// Losses over pairs of items (mse, l1, smooth l1, kl_div, soft margin, binary cross entropy) and over classes (nll).
#include <cmath>
#include <cstring>

#include "ops/result.h"

namespace cann_sim {
namespace {

enum Reduction { kNone, kMean, kSum, kBatchMean };  // the last one: kl_div only

void expect_reduction(int64_t reduction, int64_t last = kSum) {
  EXPECT(reduction >= 0 && reduction <= last, "reduction %ld is not in [0, %ld]", long(reduction), long(last));
}

// ---- losses of pairs: rows of a value and its slope in the input -----------------------------------------------
// p: what else the op was given (beta of smooth l1, logTarget of kl_div).
struct Pair {
  const char *name, *backward;
  float (*loss)(float x, float t, float p);
  float (*slope)(float x, float t, float p);
};
constexpr Pair kPairs[] = {
    {"aclnnMseLoss", "aclnnMseLossBackward", [](float x, float t, float) { return (x - t) * (x - t); },
     [](float x, float t, float) { return 2 * (x - t); }},
    {"aclnnMseLossOut", "", [](float x, float t, float) { return (x - t) * (x - t); }, nullptr},
    {"aclnnL1Loss", "aclnnL1LossBackward", [](float x, float t, float) { return std::abs(x - t); },
     [](float x, float t, float) { return x == t ? 0 : std::copysign((x - t) / (x - t), x - t); }},  // NaN stays
    {"aclnnSmoothL1Loss", "aclnnSmoothL1LossBackward",
     [](float x, float t, float beta) {
       float size = std::abs(x - t);
       return size < beta ? 0.5f * size * size / beta : size - 0.5f * beta;
     },
     [](float x, float t, float beta) {
       float d = x - t;
       return d <= -beta ? -1.f : d >= beta ? 1.f : d / beta;
     }},
    {"aclnnKlDiv", "aclnnKlDivBackward",
     [](float x, float t, float log_target) {
       if (log_target) return std::exp(t) * (t - x);
       return t == 0 ? -t * x : t * (std::log(t) - x);
     },
     [](float, float t, float log_target) { return log_target ? -std::exp(t) : -t; }},
    {"aclnnSoftMarginLoss", "aclnnSoftMarginLossBackward",
     [](float x, float t, float) { return std::log1p(std::exp(-t * x)); },
     [](float x, float t, float) { return -t / (1 + std::exp(t * x)); }},
};

const Pair& pair_of(const Call& c, const char* Pair::*name) {
  for (const Pair& p : kPairs)
    if (std::strcmp(c.name(), p.*name) == 0) return p;
  throw std::logic_error(std::string("no loss is called ") + c.name());
}

// The argument after the reduction, where the op has one: bool or float.
float parameter(const Call& c, int i) {
  Kind kind = c.row->args[i].kind;
  return kind == Kind::k_bool ? float(c.integer(i)) : kind == Kind::k_float ? float(c.number(i)) : 0;
}
int64_t last_reduction(const Call& c, int after) {
  return c.row->args[after].kind == Kind::k_bool ? kBatchMean : kSum;
}

Sizes pair_sizes(const Call& c, int x, int t) { return broadcast_sizes(sizes_of(c.tensor(x)), sizes_of(c.tensor(t))); }

// One result, or one for every item.
void expect_reduced(const Call& c, int out, int64_t reduction, const Sizes& items) {
  if (reduction == kNone) expect_shape(c, out, items);
  else expect_numel(c, out, 1);
}

// out = the losses reduced; `samples` counts the first dim.
void reduce(const Value& out, const Value& losses, int64_t reduction) {
  if (reduction == kNone) return copy(out, losses);
  Value one = empty({}, losses.dtype);
  call_kernel(reduction == kMean ? "mean" : "sum", {one, losses}, {none(), integer(0), none()});
  if (reduction == kBatchMean)
    call_pointwise("div", one.dtype, {one, one, full({}, one.dtype, double(losses.ndim ? losses.size(0) : 1))});
  copy(out, one);
}
// What one item's slope is multiplied by besides the incoming gradient.
float share(const Sizes& items, int64_t reduction) {
  int64_t n = 1;
  for (int64_t s : items) n *= s;
  return reduction == kMean ? 1 / float(n) : reduction == kBatchMean ? 1 / float(items.empty() ? 1 : items[0]) : 1;
}

Value floats(const Value& v, const Sizes& sizes) { return v.expand(sizes).to(mt::kFloat).dense(); }
// An optional factor: its items, or nothing.
Value maybe_floats(const Value& v, const Sizes& sizes) { return v.given() ? floats(v, sizes) : v; }

// (self, target, reduction, [parameter,] out)
void check_pair(const Call& c) {
  int out = c.row->nargs - 1;
  expect_reduction(c.integer(2), last_reduction(c, 3));
  expect_reduced(c, out, c.integer(2), pair_sizes(c, 0, 1));
  EXPECT(c.tensor(0).dtype != ACL_INT64 || c.integer(2) != kMean, "int64 has no mean");
}
// int64 is exact for the one op that has it.
void l1_of_integers(Run& r) {
  Value x = r.tensor(0), t = r.tensor(1), size = empty(pair_sizes(r.call, 0, 1), mt::kInt64);
  call_pointwise("sub", mt::kInt64, {size, x, t}, {integer(1)});
  call_pointwise("abs", mt::kInt64, {size, size});
  reduce(r.tensor(3), size, r.call.integer(2));
}
void pair_loss(Run& r) {
  const Call& c = r.call;
  if (c.tensor(0).dtype == ACL_INT64) return l1_of_integers(r);
  const Pair& row = pair_of(c, &Pair::name);
  Sizes sizes = pair_sizes(c, 0, 1);
  Value x = floats(r.tensor(0), sizes), t = floats(r.tensor(1), sizes), losses = empty(sizes, mt::kFloat);
  float p = parameter(c, 3), *to = losses.ptr<float>();
  const float *a = x.ptr<float>(), *b = t.ptr<float>();
  for (int64_t i = 0, n = losses.numel(); i < n; ++i) to[i] = row.loss(a[i], b[i], p);
  reduce(r.tensor(c.row->nargs - 1), losses, c.integer(2));
}

// (gradOutput, self, target, reduction, [parameter,] out)
void check_pair_backward(const Call& c) {
  Sizes sizes = pair_sizes(c, 1, 2);
  expect_reduction(c.integer(3), last_reduction(c, 4));
  EXPECT(broadcast_sizes(sizes_of(c.tensor(0)), sizes) == sizes || c.tensor(0).numel() == 1,
         "gradOutput %s does not broadcast to the items", describe(c.tensor(0)).c_str());
  expect_shape(c, c.row->nargs - 1, sizes);
}
// A single gradient may come with one dim or none.
Value gradient(const Value& grad, const Sizes& sizes) {
  return floats(grad.numel() == 1 ? grad.reshape({}) : grad, sizes);
}
void pair_backward(Run& r) {
  const Call& c = r.call;
  const Pair& row = pair_of(c, &Pair::backward);
  Sizes sizes = pair_sizes(c, 1, 2);
  Value g = gradient(r.tensor(0), sizes), x = floats(r.tensor(1), sizes), t = floats(r.tensor(2), sizes),
        made = empty(sizes, mt::kFloat);
  float p = parameter(c, 4), part = share(sizes, c.integer(3)), *to = made.ptr<float>();
  const float *gp = g.ptr<float>(), *a = x.ptr<float>(), *b = t.ptr<float>();
  for (int64_t i = 0, n = made.numel(); i < n; ++i) to[i] = gp[i] * part * row.slope(a[i], b[i], p);
  copy(r.tensor(c.row->nargs - 1), made);
}

// ---- binary cross entropy: weight and, from logits, posWeight may be absent ------------------------------------
float limited(float log) { return std::max(log, -100.f); }
float sigmoid(float x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
float log_sigmoid(float x) { return std::min(x, 0.f) - std::log1p(std::exp(-std::abs(x))); }

float bce(float x, float t, float) { return (t - 1) * limited(std::log1p(-x)) - t * limited(std::log(x)); }
float bce_slope(float x, float t, float) { return (x - t) / std::max((1 - x) * x, 1e-12f); }
float logits(float x, float t, float pos) { return (1 - t) * x - ((pos - 1) * t + 1) * log_sigmoid(x); }
float logits_slope(float x, float t, float pos) { return ((pos - 1) * t + 1) * sigmoid(x) - pos * t; }
float logits_target_slope(float x, float, float pos) { return log_sigmoid(-x) - pos * log_sigmoid(x); }

using Item = float (*)(float x, float t, float pos);

// f of every item, times weight and gradient where given.
Value entropy_items(const Sizes& sizes, Item f, const Value& x, const Value& t, const Value& weight, const Value& pos,
                    const Value& grad, float part) {
  Value a = floats(x, sizes), b = floats(t, sizes), w = maybe_floats(weight, sizes), p = maybe_floats(pos, sizes),
        g = grad.given() ? gradient(grad, sizes) : grad, made = empty(sizes, mt::kFloat);
  float* to = made.ptr<float>();
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    float y = part * f(a.ptr<float>()[i], b.ptr<float>()[i], p.given() ? p.ptr<float>()[i] : 1);
    if (w.given()) y *= w.ptr<float>()[i];
    to[i] = g.given() ? y * g.ptr<float>()[i] : y;
  }
  return made;
}

void expect_factor(const Call& c, int i, const Sizes& sizes) {
  if (c.given(i))
    EXPECT(broadcast_sizes(sizes_of(c.tensor(i)), sizes) == sizes, "%s %s does not broadcast to the items",
           c.row->args[i].name, describe(c.tensor(i)).c_str());
}
// self at `at`, then target, weight?, posWeight? where `logits`, reduction, out
template <int at, bool logits> void check_entropy(const Call& c) {
  Sizes sizes = sizes_of(c.tensor(at));
  const int reduction = at + (logits ? 4 : 3);
  expect_factor(c, at + 1, sizes);
  for (int i = at + 2; i < reduction; ++i) expect_factor(c, i, sizes);
  expect_reduction(c.integer(reduction));
  if (at == 1) {
    EXPECT(c.tensor(0).numel() == 1 || broadcast_sizes(sizes_of(c.tensor(0)), sizes) == sizes,
           "gradOutput %s does not broadcast to the items", describe(c.tensor(0)).c_str());
    expect_shape(c, reduction + 1, sizes);
  } else {
    expect_reduced(c, reduction + 1, c.integer(reduction), sizes);
  }
}
template <int at, bool logits, Item f> void entropy(Run& r) {
  const int reduction = at + (logits ? 4 : 3);
  int64_t how = r.call.integer(reduction);
  Sizes sizes = sizes_of(r.call.tensor(at));
  Value made =
      entropy_items(sizes, f, r.tensor(at), r.tensor(at + 1), r.tensor(at + 2), logits ? r.tensor(at + 3) : Value(),
                    at ? r.tensor(0) : Value(), at ? share(sizes, how) : 1);
  if (at) copy(r.tensor(reduction + 1), made);
  else reduce(r.tensor(reduction + 1), made, how);
}

// ---- classes: self [C], [N, C] or [N, C, H, W] -----------------------------------------------------------------
void expect_classes(const Call& c, int self, int target, int weight, int64_t reduction) {
  const TensorMeta &x = c.tensor(self), &t = c.tensor(target);
  expect_reduction(reduction);
  EXPECT(x.ndim == 1 || x.ndim == 2 || x.ndim == 4, "%s must have 1, 2 or 4 dims, got %s", c.row->args[self].name,
         describe(x).c_str());
  Sizes items = sizes_of(x);
  items.erase(items.begin() + (x.ndim > 1));
  EXPECT(sizes_of(t) == items || (x.ndim == 1 && t.numel() == 1), "target %s does not fit %s", describe(t).c_str(),
         describe(x).c_str());
  if (c.given(weight)) expect_numel(c, weight, x.sizes[x.ndim > 1]);
}
// (self, target, weight, reduction, ignoreIndex, out, totalWeight)
void check_nll(const Call& c) {
  expect_classes(c, 0, 1, 2, c.integer(3));
  if (c.integer(3) == kNone && c.tensor(0).ndim > 1) expect_shape(c, 5, sizes_of(c.tensor(1)));
  else expect_numel(c, 5, 1);
  expect_numel(c, 6, 1);
}
void nll(Run& r) {
  call_kernel("nll_loss_forward", {r.tensor(5), r.tensor(6), r.tensor(0), r.tensor(1), r.tensor(2)},
              {integer(r.call.integer(3)), integer(r.call.integer(4))});
}
// (gradOutput, self, target, weight, reduction, ignoreIndex, totalWeight, out)
void check_nll_backward(const Call& c) {
  expect_classes(c, 1, 2, 3, c.integer(4));
  bool each = c.integer(4) == kNone && c.tensor(1).ndim > 1;
  expect_numel(c, 0, each ? c.tensor(2).numel() : 1);
  expect_numel(c, 6, 1);
  expect_same_shape(c, 7, 1);
}
void nll_backward(Run& r) {
  call_kernel("nll_loss_backward", {r.tensor(7), r.tensor(0), r.tensor(1), r.tensor(2), r.tensor(3), r.tensor(6)},
              {integer(r.call.integer(4)), integer(r.call.integer(5))});
}

const Op ops[] = {
    {"aclnnMseLoss", check_pair, pair_loss},
    {"aclnnMseLossOut", check_pair, pair_loss},
    {"aclnnL1Loss", check_pair, pair_loss},
    {"aclnnSmoothL1Loss", check_pair, pair_loss},
    {"aclnnKlDiv", check_pair, pair_loss},
    {"aclnnSoftMarginLoss", check_pair, pair_loss},
    {"aclnnMseLossBackward", check_pair_backward, pair_backward},
    {"aclnnL1LossBackward", check_pair_backward, pair_backward},
    {"aclnnSmoothL1LossBackward", check_pair_backward, pair_backward},
    {"aclnnKlDivBackward", check_pair_backward, pair_backward},
    {"aclnnSoftMarginLossBackward", check_pair_backward, pair_backward},
    {"aclnnBinaryCrossEntropy", check_entropy<0, false>, entropy<0, false, bce>},
    {"aclnnBinaryCrossEntropyBackward", check_entropy<1, false>, entropy<1, false, bce_slope>},
    {"aclnnBinaryCrossEntropyWithLogits", check_entropy<0, true>, entropy<0, true, logits>},
    {"aclnnBinaryCrossEntropyWithLogitsBackward", check_entropy<1, true>, entropy<1, true, logits_slope>},
    {"aclnnBinaryCrossEntropyWithLogitsTargetBackward", check_entropy<1, true>, entropy<1, true, logits_target_slope>},
    {"aclnnNLLLoss", check_nll, nll},
    {"aclnnNLLLoss2d", check_nll, nll},
    {"aclnnNLLLossBackward", check_nll_backward, nll_backward},
    {"aclnnNLLLoss2dBackward", check_nll_backward, nll_backward},
};

}  // namespace
}  // namespace cann_sim
