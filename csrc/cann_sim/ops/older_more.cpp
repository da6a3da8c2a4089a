// More ops of the older interface: views by strides, masks, sorting, the float status, and the steps of Adam.
#include <algorithm>
#include <cmath>

#include "ops/older.h"
#include "ops/pointwise.h"
#include "runtime/overflow.h"

namespace cann_sim {
namespace {

Value floats(const Value& v) { return v.to(mt::kFloat).dense(); }

// ---- shapes ---------------------------------------------------------------------------------------------------------------
void confusion_transpose(Older& o) {
  const Sizes perm = o.list("perm"), shape = o.list("shape");
  const Value x = o.in(0);
  copy(o.out(0), o.integer("transpose_first", 0) ? x.permute(perm).reshape(shape) : x.reshape(shape).permute(perm));
}

void check_confusion(Older& o) {
  const Sizes perm = o.list("perm"), shape = o.list("shape");
  const Value x = o.in(0);
  int64_t items = 1;
  for (int64_t size : shape) items *= size;
  if (items != x.numel() || o.out(0).numel() != items) o.refuse("the shape has another number of items");
  const size_t rank = o.integer("transpose_first", 0) ? size_t(x.ndim) : shape.size();
  Sizes sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted.size() != rank || sorted[i] != int64_t(i)) o.refuse("perm is no order of the dims");
}

// The memory of a dense operand under other sizes, strides and an offset.
Value strided(Older& o, const Value& whole, const Sizes& sizes, const Sizes& strides, int64_t offset) {
  if (sizes.size() != strides.size() || sizes.size() > size_t(kMaxRank)) o.refuse("sizes and strides do not fit together");
  Value v = whole.reshape({-1});
  int64_t last = offset, items = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || strides[d] < 0) o.refuse("a size or a stride is negative");
    last += (sizes[d] - 1) * strides[d];
    items *= sizes[d];
  }
  if (items && (offset < 0 || last >= v.sizes[0])) o.refuse("the view reaches beyond the memory");
  v.data = static_cast<char*>(v.data) + offset * mt::itemsize(v.dtype);
  v.ndim = int32_t(sizes.size());
  std::copy(sizes.begin(), sizes.end(), v.sizes);
  std::copy(strides.begin(), strides.end(), v.strides);
  return v;
}
int64_t offset_of(Older& o, size_t i) {
  const Sizes given = o.numbers(i);
  return given.empty() ? 0 : given[0];
}
void as_strided(Older& o) { copy(o.out(0), strided(o, o.in(0), o.numbers(1), o.numbers(2), o.given(3) ? offset_of(o, 3) : 0)); }
// (to, its sizes, strides, offset, from, its sizes, strides, offset) -> to
void view_copy(Older& o) {
  copy(strided(o, o.out(0), o.numbers(1), o.numbers(2), offset_of(o, 3)), strided(o, o.in(4), o.numbers(5), o.numbers(6), offset_of(o, 7)));
}

void sort(Older& o) {
  const Value x = o.in(0);
  int64_t axis = o.integer("axis", -1);
  if (axis < 0) axis += x.ndim;
  if (axis < 0 || axis >= x.ndim) o.refuse("axis is out of range");
  const bool descending = o.integer("descending", 0);
  const Value last = floats(x.transpose(axis, -1));
  const int64_t n = last.size(-1), rows = n ? last.numel() / n : 0;
  for (int64_t r = 0; r < rows; ++r) {
    float* row = last.ptr<float>() + r * n;
    std::sort(row, row + n, [&](float a, float b) { return descending ? a > b : a < b; });
  }
  copy(o.out(0).transpose(axis, -1), last);
}
void one_hot(Older& o) {  // (index, value of the one, of the others)
  const Value index = o.in(0).to(mt::kInt64).dense(), out = o.out(0);
  int64_t axis = o.integer("axis", -1);
  if (axis < 0) axis += out.ndim;
  const int64_t depth = o.integer("depth", 0);
  if (axis < 0 || axis >= out.ndim || out.size(axis) != depth) o.refuse("the output has no dim of the depth");
  if (axis != out.ndim - 1) o.refuse("only the last axis is computed");
  const Value made = full({index.numel(), depth}, mt::kFloat, o.number(2));
  for (int64_t i = 0; i < index.numel(); ++i)
    if (const int64_t at = index.ptr<int64_t>()[i]; at >= 0 && at < depth) made.ptr<float>()[i * depth + at] = float(o.number(1));
  copy(out, made.reshape(out.shape()));
}

// ---- masks and activations ----------------------------------------------------------------------------------------------------
void mish_grad(Older& o) {
  const Value dy = floats(o.in(0)), x = floats(o.in(1)), made = empty(x.shape(), mt::kFloat);
  for (int64_t i = 0, n = x.numel(); i < n; ++i) {
    const double v = x.ptr<float>()[i], t = std::tanh(std::log1p(std::exp(v))), s = 1 / (1 + std::exp(-v));
    made.ptr<float>()[i] = float(dy.ptr<float>()[i] * (t + v * s * (1 - t * t)));
  }
  copy(o.out(0), made);
}

// What a mask hides: its items, or all above the diagonal.
Value hidden(Older& o, size_t mask, const Sizes& sizes) {
  const Value made = full(sizes, mt::kFloat, 0);
  if (!o.integer("fixed_triu_mask", 0)) {
    copy(made, o.in(mask).expand(sizes));
    return made;
  }
  const int64_t cols = sizes.back(), rows = sizes[sizes.size() - 2];
  for (int64_t i = 0; i < made.numel(); ++i) made.ptr<float>()[i] = i % cols > i / cols % rows ? 1 : 0;
  return made;
}
constexpr float kMasked = -10000;
void masked_softmax(Older& o) {
  const Value x = o.in(0), scores = empty(x.shape(), mt::kFloat), hides = hidden(o, 1, x.shape()), made = empty(x.shape(), mt::kFloat);
  copy(scores, x);
  const auto scale = float(o.real("scale", 1));
  for (int64_t i = 0; i < scores.numel(); ++i) scores.ptr<float>()[i] = hides.ptr<float>()[i] != 0 ? kMasked : scores.ptr<float>()[i] * scale;
  call_kernel("_softmax", {made, scores}, {integer(x.ndim - 1), integer(0)});
  copy(o.out(0), made);
}
void masked_softmax_grad(Older& o) {  // (dy, y, mask)
  const Value dy = floats(o.in(0)), y = floats(o.in(1)), hides = hidden(o, 2, o.in(1).shape()), made = empty(y.shape(), mt::kFloat);
  const int64_t n = y.size(-1), rows = n ? y.numel() / n : 0;
  const double scale = o.real("scale", 1);
  for (int64_t r = 0; r < rows; ++r) {
    double along = 0;
    for (int64_t i = r * n; i < (r + 1) * n; ++i) along += double(dy.ptr<float>()[i]) * y.ptr<float>()[i];
    for (int64_t i = r * n; i < (r + 1) * n; ++i)
      made.ptr<float>()[i] = hides.ptr<float>()[i] != 0 ? 0 : float(scale * y.ptr<float>()[i] * (dy.ptr<float>()[i] - along));
  }
  copy(o.out(0), made);
}
void do_byte_mask(Older& o) {  // (x, a byte an item, the part that is kept)
  const Value kept = pointwise("mul", mt::kFloat, {o.in(0), o.in(1).reshape(o.in(0).shape())});
  call_pointwise("div", mt::kFloat, {o.out(0), kept, full({}, mt::kFloat, o.number(2))});
}

void float_status(Older& o) { fill(o.out(0), has_overflowed() ? 1 : 0); }
void clear_float_status(Older&) { clear_overflow(); }

// ---- Adam ---------------------------------------------------------------------------------------------------------------------
struct Moments {
  Value m, v;
  Moments(Older& o, const Value& g, double beta1, double beta2) : m(empty(g.shape(), mt::kFloat)), v(empty(g.shape(), mt::kFloat)) {
    copy(m, o.in(1));
    copy(v, o.in(2));
    for (int64_t i = 0; i < g.numel(); ++i) {
      const float x = g.ptr<float>()[i];
      m.ptr<float>()[i] = float(m.ptr<float>()[i] * beta1 + x * (1 - beta1));
      v.ptr<float>()[i] = float(v.ptr<float>()[i] * beta2 + double(x) * x * (1 - beta2));
    }
  }
};
void store(Older& o, const Value& var, const Moments& moments) {
  copy(o.out(0), var);
  copy(o.out(1), moments.m);
  copy(o.out(2), moments.v);
}
// (var, m, v, beta1 to the step, beta2 to the step, lr, beta1, beta2, epsilon, gradient)
void adam(Older& o) {
  const Value g = floats(o.in(9)), var = empty(g.shape(), mt::kFloat);
  copy(var, o.in(0));
  const double beta1 = o.number(6), rate = o.number(5) * std::sqrt(1 - o.number(4)) / (1 - o.number(3));
  const Moments at(o, g, beta1, o.number(7));
  for (int64_t i = 0; i < g.numel(); ++i) {
    const double m = at.m.ptr<float>()[i], ahead = o.integer("use_nesterov", 0) ? m * beta1 + g.ptr<float>()[i] * (1 - beta1) : m;
    var.ptr<float>()[i] -= float(rate * ahead / (std::sqrt(at.v.ptr<float>()[i]) + o.number(8)));
  }
  store(o, var, at);
}
// (var, m, v, lr, beta1, beta2, epsilon, gradient, most of its norm, its norm, weight decay, ...): moments are not corrected
void bert_adam(Older& o) {
  Value g = empty(o.in(7).shape(), mt::kFloat);
  copy(g, o.in(7));
  const Value var = empty(g.shape(), mt::kFloat);
  copy(var, o.in(0));
  const double most = o.number(8), limit = o.text("adam_mode", "adam") == "adam" && most > 0 ? std::max(1.0, o.number(9) / most) : 1;
  for (int64_t i = 0; i < g.numel(); ++i) g.ptr<float>()[i] = float(g.ptr<float>()[i] / limit);
  const Moments at(o, g, o.number(4), o.number(5));
  for (int64_t i = 0; i < g.numel(); ++i) {
    const double step = at.m.ptr<float>()[i] / (std::sqrt(at.v.ptr<float>()[i]) + o.number(6)) + var.ptr<float>()[i] * o.number(10);
    var.ptr<float>()[i] -= float(o.number(3) * step);
  }
  store(o, var, at);
}

const OlderOps ops({
    {"ConfusionTransposeD", 1, 1, 1, confusion_transpose, check_confusion},
    {"AsStrided", 3, 4, 1, as_strided}, {"ViewCopy", 8, 8, 1, view_copy}, {"SortV2", 1, 1, 1, sort}, {"OneHotD", 3, 3, 1, one_hot},
    {"MishGrad", 2, 3, 1, mish_grad}, {"ScaledMaskedSoftmax", 2, 2, 1, masked_softmax},
    {"ScaledMaskedSoftmaxGrad", 3, 3, 1, masked_softmax_grad}, {"DropOutDoMaskV3", 3, 3, 1, do_byte_mask},
    {"NPUGetFloatStatusV2", 0, 0, 1, float_status}, {"NPUClearFloatStatusV2", 0, 0, 0, clear_float_status},
    {"ApplyAdamD", 10, 10, 3, adam}, {"ApplyAdamV2", 11, 12, 3, bert_adam},
});

}  // namespace
}  // namespace cann_sim
