// More ops of the older interface: views by strides, masks, sorting, the float status, steps of Adam, sequences.
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

int64_t offset_of(Older& o, size_t i) {
  const Sizes given = o.numbers(i);
  return given.empty() ? 0 : given[0];
}
void as_strided(Older& o) { copy(o.out(0), o.strided_in(0, o.numbers(1), o.numbers(2), o.given(3) ? offset_of(o, 3) : 0)); }
// (to, its sizes, strides, offset, from, its sizes, strides, offset) -> to
void view_copy(Older& o) {
  copy(o.strided_out(0, o.numbers(1), o.numbers(2), offset_of(o, 3)), o.strided_in(4, o.numbers(5), o.numbers(6), offset_of(o, 7)));
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
    std::stable_sort(row, row + n, [&](float a, float b) { return descending ? a > b : a < b; });
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

// (var, m, v, beta1 to the step before, beta2 to it, lr, weight decay, beta1, beta2, epsilon, gradient, most of v so far?)
void adam_w(Older& o) {
  Value g = empty(o.in(10).shape(), mt::kFloat);
  copy(g, o.in(10));
  if (o.integer("maximize", 0)) call_pointwise("neg", mt::kFloat, {g, g});
  const Value var = empty(g.shape(), mt::kFloat);
  copy(var, o.in(0));
  const bool largest = o.integer("amsgrad", 0);
  if (largest && !o.given(11)) o.refuse("amsgrad needs max_grad_norm");
  const double beta1 = o.number(7), beta2 = o.number(8), lr = o.number(5);
  const double by_m = 1 - o.number(3) * beta1, by_v = 1 - o.number(4) * beta2;
  const Moments at(o, g, beta1, beta2);
  const Value most = largest ? floats(o.in(11)) : Value();
  for (int64_t i = 0; i < g.numel(); ++i) {
    double v = at.v.ptr<float>()[i], x = var.ptr<float>()[i] * (1 - lr * o.number(6));
    if (largest) v = std::max<double>(v, most.ptr<float>()[i]);
    var.ptr<float>()[i] = float(x - lr * (at.m.ptr<float>()[i] / by_m) / (std::sqrt(v / by_v) + o.number(9)));
  }
  store(o, var, at);
}

// ---- sequences and ranges -------------------------------------------------------------------------------------------------------
// (x [N, features, frames], how many frames count): less the mean, by the deviation, of each feature or of all
void normalize_batch(Older& o) {
  const Value x = floats(o.in(0)), made = empty(x.shape(), mt::kFloat);
  const Sizes frames = o.numbers(1);
  if (x.ndim != 3 || frames.size() != size_t(x.sizes[0])) o.refuse("expected x of 3 dims and a length a sequence");
  const bool each = o.text("normalize_type", "per_feature") == "per_feature";
  const int64_t rows = each ? 1 : x.sizes[1], width = x.sizes[2];
  for (int64_t first = 0; first < x.sizes[0] * x.sizes[1]; first += rows) {
    const int64_t count = std::min(frames[first / x.sizes[1]], width);
    double sum = 0, squares = 0;
    auto item = [&](int64_t r, int64_t i) { return double(x.ptr<float>()[(first + r) * width + i]); };
    for (int64_t i = 0; i < rows * count; ++i) sum += item(i / count, i % count);
    const double mean = sum / double(rows * count);
    for (int64_t i = 0; i < rows * count; ++i) squares += std::pow(item(i / count, i % count) - mean, 2);
    const double deviation = std::sqrt(squares / double(rows * count - 1)) + o.real("epsilon", 1e-5);
    for (int64_t i = 0; i < rows * width; ++i) made.ptr<float>()[first * width + i] = float((item(i / width, i % width) - mean) / deviation);
  }
  copy(o.out(0), made);
}
// (x, start [K, N], end [K, N], value [K]): value k from start to end of the last axis, of row n
void fill_range(Older& o) {
  const Value x = o.in(0), out = o.out(0);
  const Sizes start = o.numbers(1), end = o.numbers(2);
  const int64_t ranges = o.in(1).size(0), rows = o.in(1).size(1), axis = o.integer("axis", -1);
  if (axis != -1 && axis != x.ndim - 1) o.refuse("only the last axis is computed");
  copy(out, x);
  const Value lines = out.ndim == 1 ? out.unsqueeze(0) : out;
  const int64_t width = lines.size(-1);
  for (int64_t k = 0; k < ranges; ++k)
    for (int64_t n = 0; n < std::min(rows, lines.sizes[0]); ++n) {
      const int64_t from = std::max<int64_t>(start[k * rows + n], 0), to = std::min(end[k * rows + n], width);
      if (from < to) copy(lines.select(0, n).narrow(-1, from, to - from), o.in(3).select(0, k));
    }
}
// Images whose channels lie in groups of 16: those from an offset on of both, added. The rest of the output is 0.
void stride_add(Older& o) {
  const Value a = o.in(0), b = o.in(1), out = o.out(0);
  const int64_t first = o.integer("x1_c1_offset", 0) * 16, other = o.integer("x2_c1_offset", 0) * 16;
  const int64_t count = std::min({o.integer("c1_len", 0) * 16, a.size(1) - first, b.size(1) - other, out.size(1)});
  fill(out, 0);
  if (count <= 0) return;
  copy(out.narrow(1, 0, count), pointwise("add", mt::kFloat, {a.narrow(1, first, count), b.narrow(1, other, count)}, {integer(1)}));
}

const OlderOps ops({
    {"ConfusionTransposeD", 1, 1, 1, confusion_transpose, check_confusion},
    {"AsStrided", 3, 4, 1, as_strided}, {"ViewCopy", 8, 8, 1, view_copy}, {"SortV2", 1, 1, 1, sort}, {"OneHotD", 3, 3, 1, one_hot},
    {"MishGrad", 2, 3, 1, mish_grad}, {"ScaledMaskedSoftmax", 2, 2, 1, masked_softmax},
    {"ScaledMaskedSoftmaxGrad", 3, 3, 1, masked_softmax_grad}, {"DropOutDoMaskV3", 3, 3, 1, do_byte_mask},
    {"NPUGetFloatStatusV2", 0, 0, 1, float_status}, {"NPUClearFloatStatusV2", 0, 0, 0, clear_float_status},
    {"ApplyAdamD", 10, 10, 3, adam}, {"ApplyAdamV2", 11, 12, 3, bert_adam},
    {"ApplyAdamW", 11, 12, 3, adam_w}, {"NormalizeBatch", 2, 2, 1, normalize_batch}, {"MaskedFillRange", 4, 4, 1, fill_range},
    {"StrideAdd", 2, 2, 1, stride_add},
});

}  // namespace
}  // namespace cann_sim
