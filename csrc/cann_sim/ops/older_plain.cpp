// Ops of the older interface that compute what an aclnn op computes: pointwise, shapes, products, reductions.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ops/loss.h"
#include "ops/older.h"
#include "ops/pointwise.h"
#include "ops/random.h"

namespace cann_sim {
namespace {

// ---- pointwise --------------------------------------------------------------------------------------------------------
void add(Older& o) { call_pointwise("add", promote(o.in(0).dtype, o.in(1).dtype), {o.out(0), o.in(0), o.in(1)}, {integer(1)}); }
void subtract(Older& o) { call_pointwise("sub", promote(o.in(0).dtype, o.in(1).dtype), {o.out(0), o.in(0), o.in(1)}, {integer(1)}); }
void multiply(Older& o) { call_pointwise("mul", promote(o.in(0).dtype, o.in(1).dtype), {o.out(0), o.in(0), o.in(1)}); }
void divide(Older& o) {
  const DType t = promote(o.in(0).dtype, o.in(1).dtype);
  call_pointwise("div", mt::is_integral(t) || t == mt::kBool ? mt::kFloat : opmath(t), {o.out(0), o.in(0), o.in(1)});
}
void relu(Older& o) { call_pointwise("relu", o.in(0).dtype, {o.out(0), o.in(0)}); }
void absolute(Older& o) { call_pointwise("abs", o.in(0).dtype, {o.out(0), o.in(0)}); }
void mish(Older& o) { call_pointwise("mish", opmath(o.in(0).dtype), {o.out(0), o.in(0)}); }
void cast(Older& o) { copy(o.out(0), o.in(0)); }

// x * sigmoid(scale * x), and its slope: (gradient, x, y)
Value gate(const Value& x, double scale) {
  const Value scaled = pointwise("mul", mt::kFloat, {x, full({}, mt::kFloat, scale)});
  return pointwise("sigmoid", mt::kFloat, {scaled});
}
void swish(Older& o) { call_pointwise("mul", mt::kFloat, {o.out(0), o.in(0), gate(o.in(0), o.real("scale", 1))}); }
void swish_grad(Older& o) {
  const double scale = o.real("scale", 1);
  const Value dy = o.in(0).to(mt::kFloat).dense(), x = o.in(1).to(mt::kFloat).dense(), g = gate(x, scale).dense();
  const Value made = empty(x.shape(), mt::kFloat);
  for (int64_t i = 0, n = x.numel(); i < n; ++i) {
    const float s = g.ptr<float>()[i];
    made.ptr<float>()[i] = dy.ptr<float>()[i] * (s + float(scale) * x.ptr<float>()[i] * s * (1 - s));
  }
  copy(o.out(0), made);
}

// input + value * x1 * x2
void addcmul(Older& o) {
  const DType t = promote(promote(o.in(0).dtype, o.in(1).dtype), o.in(2).dtype);
  const Value product = pointwise("mul", t, {o.in(1), o.in(2)});
  call_pointwise("add", t, {o.out(0), o.in(0), pointwise("mul", t, {product, o.in(3).reshape({})})}, {integer(1)});
}

// ---- shapes -------------------------------------------------------------------------------------------------------------
void fill_shape(Older& o) { copy(o.out(0), o.in(1).reshape({}).expand(o.out(0).shape())); }
void broadcast(Older& o) { copy(o.out(0), o.in(0).expand(o.numbers(1))); }
void transpose(Older& o) { copy(o.out(0), o.in(0).permute(o.numbers(1))); }
void slice(Older& o) {
  Value x = o.in(0);
  const Sizes begin = o.numbers(1), size = o.numbers(2);
  if (begin.size() != size_t(x.ndim) || size.size() != size_t(x.ndim)) o.refuse("offsets and size need an item a dim");
  for (int d = 0; d < x.ndim; ++d) {
    const int64_t n = size[d] < 0 ? x.sizes[d] - begin[d] : size[d];
    if (begin[d] < 0 || n < 0 || begin[d] + n > x.sizes[d]) o.refuse("the slice of dim " + std::to_string(d) + " is not inside");
    x = x.narrow(d, begin[d], n);
  }
  if (x.numel() != o.out(0).numel()) o.refuse("the output must have the slice's items");
  copy(o.out(0), x.reshape(o.out(0).shape()));
}
// NumPy's x[begin:end:step] with masks: a bit of begin_mask or end_mask means "from the end", of shrink_axis_mask an index.
void strided_slice(Older& o) {
  Value x = o.in(0);
  const Sizes begin = o.numbers(1), end = o.numbers(2);
  const Sizes step = o.given(3) ? o.numbers(3) : Sizes(begin.size(), 1);
  if (o.integer("ellipsis_mask", 0) || o.integer("new_axis_mask", 0)) o.refuse("ellipsis_mask and new_axis_mask are not supported");
  if (begin.size() > size_t(x.ndim) || end.size() != begin.size() || step.size() != begin.size()) o.refuse("begin, end and strides do not fit");
  const int64_t from_start = o.integer("begin_mask", 0), to_end = o.integer("end_mask", 0), shrink = o.integer("shrink_axis_mask", 0);
  int dim = 0;
  for (size_t d = 0; d < begin.size(); ++d) {
    const int64_t size = x.sizes[dim], bit = int64_t{1} << d;
    if (step[d] < 1) o.refuse("strides must be positive");
    auto placed = [&](int64_t i) { return std::min(std::max<int64_t>(i < 0 ? i + size : i, 0), size); };
    const int64_t first = from_start & bit ? 0 : placed(begin[d]), last = to_end & bit ? size : placed(end[d]);
    if (shrink & bit) {
      x = x.select(dim, first);
      continue;
    }
    x = x.narrow(dim++, first, std::max<int64_t>(0, (last - first + step[d] - 1) / step[d]), step[d]);
  }
  if (x.shape() != o.out(0).shape()) o.refuse("the output must be of the slice's shape");
  copy(o.out(0), x);
}
// ---- reductions ---------------------------------------------------------------------------------------------------------
// The index and the value of the largest (or smallest) item along a dim; outputs: indice, values.
template <bool most> void arg_with_value(Older& o) {
  const Value x = row_of(o.in(0));
  const int64_t dim = axes_of(o, {o.integer("dimension", 0)}, x.ndim)[0];
  const Value rows = x.transpose(dim, -1).to(mt::kDouble).dense();
  Sizes sizes = rows.shape();
  const int64_t width = sizes.back(), n = width ? rows.numel() / width : 0;
  sizes.back() = 1;
  const Value index = empty(sizes, mt::kInt64), value = empty(sizes, mt::kDouble);
  for (int64_t r = 0; r < n; ++r) {
    const double* row = rows.ptr<double>() + r * width;
    const double* found = most ? std::max_element(row, row + width) : std::min_element(row, row + width);
    index.ptr<int64_t>()[r] = found - row;
    value.ptr<double>()[r] = *found;
  }
  copy(o.out(0), index.transpose(dim, -1).reshape(o.out(0).shape()));
  copy(o.out(1), value.transpose(dim, -1).reshape(o.out(1).shape()));
}
// (sum |x|^p)^(1/p) over axes; the first of two steps leaves the root to LpNormUpdateV2. The largest integer stands for infinity.
template <bool root> void lp_norm(Older& o) {
  const Value x = o.in(0).to(mt::kFloat), out = o.out(0);
  const Sizes axes = axes_of(o, o.list("axes"), x.ndim);
  Sizes kept = x.shape();
  if (x.ndim)
    for (int64_t a : axes) kept[size_t(a)] = 1;
  const double given = o.real("p", 2), p = given > 2e9 ? INFINITY : given < -2e9 ? -INFINITY : given;
  Value made = empty(kept, mt::kFloat);
  call_kernel("linalg_vector_norm", {made, x}, {number(p), list(axes), integer(1), none()});
  if (!root && p != 0 && !std::isinf(p)) made = zipped(kept, {made}, [=](const float* v) { return std::pow(double(v[0]), p); });
  copy(out, made.reshape(out.shape()));
}

// ---- products -------------------------------------------------------------------------------------------------------------
void product(Older& o, bool turn1, bool turn2) {
  Value a = o.in(0), b = o.in(1);
  const Value out = o.out(0);
  const DType t = opmath(promote(a.dtype, b.dtype));
  if (turn1) a = a.transpose(-1, -2);
  if (turn2) b = b.transpose(-1, -2);
  Value made = empty(out.shape(), t);
  call_kernel("matmul", {made, a.to(t), b.to(t)});
  if (o.given(2)) made = pointwise("add", t, {made, o.in(2)}, {integer(1)});
  copy(out, made);
}
void matmul(Older& o) { product(o, o.integer("transpose_x1", 0), o.integer("transpose_x2", 0)); }
void batch_matmul(Older& o) { product(o, o.integer("adj_x1", 0), o.integer("adj_x2", 0)); }

// ---- norms -----------------------------------------------------------------------------------------------
void layer_norm(Older& o) {
  const Value x = o.in(0);
  const int64_t axis = o.integer("begin_norm_axis", 0), first = axis < 0 ? axis + x.ndim : axis;
  layer_norm_of(o, std::accumulate(x.sizes + first, x.sizes + x.ndim, int64_t{1}, std::multiplies<int64_t>()), false);
}

// (var, indices, updates): the item of every line along `dimension` that its index names is replaced.
void replace_items(Older& o) {
  const Value x = o.in(0), out = o.out(0);
  const int64_t dim = o.integer("dimension", 0) < 0 ? o.integer("dimension", 0) + x.ndim : o.integer("dimension", 0);
  Sizes line = x.shape();
  line[dim] = 1;
  copy(out, x);
  const Value index = o.in(1).to(mt::kInt64).reshape(line);
  call_kernel("scatter", {out, index, o.in(2).to(x.dtype).reshape(line)}, {integer(dim)});
}

// ---- random: a mask of one bit an item, and its use -------------------------------------------------------------------------
// (shape, prob to keep): a bit an item, or a byte where the output has as many
void gen_mask(Older& o) {
  int64_t items = 1;
  for (int64_t size : o.numbers(0)) items *= size;
  const Value out = o.out(0);
  const Seed seed{uint64_t(o.integer("seed", 0)), uint64_t(o.integer("seed2", 0))};
  if (out.numel() >= items && items) {
    const Value bits = make_mask((items + 7) / 8, items, 1 - o.number(1), seed), made = full(out.shape(), mt::kUInt8, 0);
    for (int64_t i = 0; i < items; ++i) made.ptr<uint8_t>()[i] = bits.ptr<uint8_t>()[i / 8] >> (i % 8) & 1;
    return copy(out, made);
  }
  copy(out, make_mask(out.numel(), std::min(items, out.numel() * 8), 1 - o.number(1), seed).reshape(out.shape()));
}
// (shape, prob to keep, seed, seed1, offset): a bit an item
void stateless_mask(Older& o) {
  int64_t items = 1;
  for (int64_t size : o.numbers(0)) items *= size;
  const Value out = o.out(0);
  if (items > out.numel() * 8) o.refuse("the output has fewer bits than there are items");
  const Seed seed{uint64_t(o.number(2)), uint64_t(o.number(3)) ^ (o.given(4) ? uint64_t(o.numbers(4).back()) : 0)};
  copy(out, make_mask(out.numel(), items, 1 - o.number(1), seed).reshape(out.shape()));
}
void do_mask(Older& o) {  // (x, mask, prob to keep)
  const double keep = o.number(2);
  use_mask(o.out(0), o.in(0), o.in(1), keep == 0 ? 0 : 1 / keep);
}
void random_normal(Older& o) {  // (shape, key, counter, alg)
  const Value out = o.out(0), made = empty(out.shape(), mt::kFloat);
  const Sizes key = o.given(1) ? o.numbers(1) : Sizes{0}, counter = o.given(2) ? o.numbers(2) : Sizes{0};
  call_kernel("normal_", {made}, {number(0), number(1)}, seeded({uint64_t(key[0]), uint64_t(counter[0])}));
  copy(out, made);
}

// ---- losses, status -----------------------------------------------------------------------------------------------------------
void soft_labels(Older& o) {
  const Value x = o.in(0).to(mt::kFloat).dense(), y = o.in(1).to(mt::kFloat).expand(x.shape()).dense();
  const int64_t classes = x.size(-1), rows = classes ? x.numel() / classes : 0;
  const Value loss = empty({rows}, mt::kFloat), back = empty(x.shape(), mt::kFloat);
  soft_cross_entropy(x.ptr<float>(), y.ptr<float>(), rows, classes, loss.ptr<float>(), back.ptr<float>());
  copy(o.out(0), loss.reshape(o.out(0).shape()));
  copy(o.out(1), back);
}
void margin(Older& o) {  // (scores, targets): the loss, and which classes are targets
  if (o.in(0).shape() != o.in(1).shape() || o.out(1).shape() != o.in(0).shape()) o.refuse("scores, targets and marks must be of one shape");
  multilabel_margin(o.in(0), o.in(1), o.text("reduction", "mean"), o.out(0), o.out(1));
}
// Signs as bits, the first in the lowest bit, and back.
void pack_signs(Older& o) {
  const Value x = o.in(0).to(mt::kFloat).dense(), out = o.out(0), made = full({out.numel()}, mt::kUInt8, 0);
  for (int64_t i = 0, n = std::min(x.numel(), out.numel() * 8); i < n; ++i)
    if (x.ptr<float>()[i] >= 0) made.ptr<uint8_t>()[i / 8] |= uint8_t(1u << (i % 8));
  copy(out, made.reshape(out.shape()));
}
void unpack_signs(Older& o) {
  const Value x = o.in(0).dense(), out = o.out(0), made = empty({out.numel()}, mt::kFloat);
  if (made.numel() > x.numel() * 8) o.refuse("the output has more items than there are bits");
  for (int64_t i = 0, n = made.numel(); i < n; ++i) made.ptr<float>()[i] = x.ptr<uint8_t>()[i / 8] >> (i % 8) & 1 ? 1 : -1;
  copy(out, made.reshape(out.shape()));
}
void float_status(Older& o) { fill(o.out(0), 0); }  // nothing overflows here: results are those of the host

const OlderOps ops({
    {"Add", 2, 2, 1, add}, {"AddV2", 2, 2, 1, add}, {"Sub", 2, 2, 1, subtract}, {"Mul", 2, 2, 1, multiply},
    {"RealDiv", 2, 2, 1, divide}, {"Div", 2, 2, 1, divide}, {"Relu", 1, 1, 1, relu}, {"Abs", 1, 1, 1, absolute},
    {"Mish", 1, 1, 1, mish}, {"Cast", 1, 1, 1, cast}, {"Swish", 1, 1, 1, swish}, {"SwishGrad", 3, 3, 1, swish_grad},
    {"Addcmul", 4, 4, 1, addcmul},
    {"Fill", 2, 2, 1, fill_shape}, {"BroadcastTo", 2, 2, 1, broadcast}, {"Transpose", 2, 2, 1, transpose},
    {"Slice", 3, 3, 1, slice}, {"StridedSlice", 3, 4, 1, strided_slice},
    {"ArgMaxWithValue", 1, 1, 2, arg_with_value<true>}, {"ArgMinWithValue", 1, 1, 2, arg_with_value<false>},
    {"LpNormReduceV2", 1, 1, 1, lp_norm<false>}, {"LpNormV2", 1, 1, 1, lp_norm<true>},
    {"MatMul", 2, 3, 1, matmul}, {"MatMulV2", 2, 4, 1, matmul}, {"BatchMatMul", 2, 2, 1, batch_matmul},
    {"BatchMatMulV2", 2, 4, 1, batch_matmul},
    {"LayerNormV3", 3, 3, 3, layer_norm}, {"ArgMaxGrad", 3, 3, 1, replace_items},
    {"DropOutGenMaskV3", 2, 2, 1, gen_mask}, {"DropOutGenMask", 2, 2, 1, gen_mask}, {"DropOutDoMask", 3, 3, 1, do_mask},
    {"StatelessDropOutGenMask", 4, 5, 1, stateless_mask}, {"MultilabelMarginLoss", 2, 2, 2, margin},
    {"StatelessRandomNormalV2", 1, 4, 1, random_normal}, {"SoftmaxCrossEntropyWithLogits", 2, 2, 2, soft_labels},
    {"SignBitsPack", 1, 1, 1, pack_signs}, {"SignBitsUnpack", 1, 1, 1, unpack_signs},
    {"NPUAllocFloatStatus", 0, 0, 1, float_status}, {"NPUGetFloatStatus", 1, 1, 1, float_status},
    {"NPUClearFloatStatus", 1, 1, 1, float_status},
});

}  // namespace

void layer_norm_of(Older& o, int64_t width, bool gives_variance) {
  const Value x = o.in(0).to(mt::kFloat).dense(), g = o.in(1).to(mt::kFloat).dense(), b = o.in(2).to(mt::kFloat).dense();
  const int64_t rows = width ? x.numel() / width : 0;
  const Value y = empty(x.shape(), mt::kFloat), mean = empty({rows}, mt::kFloat), spread = empty({rows}, mt::kFloat);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.ptr<float>() + r * width;
    double m = 0, v = 0;
    for (int64_t i = 0; i < width; ++i) m += row[i] / double(width);
    for (int64_t i = 0; i < width; ++i) v += (row[i] - m) * (row[i] - m) / double(width);
    const double s = 1 / std::sqrt(v + o.real("epsilon", 1e-5));
    for (int64_t i = 0; i < width; ++i) y.ptr<float>()[r * width + i] = float((row[i] - m) * s * g.ptr<float>()[i] + b.ptr<float>()[i]);
    mean.ptr<float>()[r] = float(m);
    spread.ptr<float>()[r] = float(gives_variance ? v : s);
  }
  copy(o.out(0), y);
  copy(o.out(1), mean.reshape(o.out(1).shape()));
  copy(o.out(2), spread.reshape(o.out(2).shape()));
}
}  // namespace cann_sim
