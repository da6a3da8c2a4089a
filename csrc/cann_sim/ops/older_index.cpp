// Indices, scans, products and draws of the older interface.
#include <algorithm>
#include <cmath>

#include "ops/older.h"
#include "ops/pointwise.h"
#include "ops/random.h"
#include "ops/sort.h"

namespace cann_sim {
namespace {

// ---- scans: an axis as an input or an attribute -----------------------------------------------------------------------------------
void running_product(Older& o) {  // (x, axis)
  if (o.integer("exclusive", 0) || o.integer("reverse", 0)) o.refuse("exclusive and reverse are not supported");
  const Value x = row_of(o.in(0).to(opmath(o.in(0).dtype))), made = empty(x.shape(), x.dtype);
  call_kernel("cumprod", {made, x}, {integer(axes_of(o, {o.numbers(1).at(0)}, x.ndim)[0])});
  copy(o.out(0), made.reshape(o.out(0).shape()));
}
void running_extreme(Older& o, const char* kernel, int64_t axis) {  // values and their places
  const Value x = row_of(o.in(0)), values = empty(x.shape(), x.dtype), places = empty(x.shape(), mt::kInt64);
  call_kernel(kernel, {values, places, x}, {integer(axes_of(o, {axis}, x.ndim)[0])});
  copy(row_of(o.out(0)), values);
  copy(row_of(o.out(1)), places);
}
void running_max(Older& o) { running_extreme(o, "cummax", o.integer("dim", 0)); }
void running_min(Older& o) { running_extreme(o, "cummin", o.integer("axis", 0)); }
void log_sum_exp(Older& o) {  // (x, axes)
  const Value x = row_of(o.in(0)).to(mt::kFloat), out = o.out(0);
  const Sizes dims = axes_of(o, o.numbers(1), x.ndim);
  Sizes kept = x.shape();
  for (int64_t d : dims) kept[size_t(d)] = 1;
  const Value made = empty(kept, mt::kFloat);
  call_kernel("logsumexp", {made, x}, {list(dims), integer(1)});
  copy(out, made.reshape(out.shape()));
}

// ---- products -----------------------------------------------------------------------------------------------------------------------
void dot(Older& o) {
  const DType t = opmath(promote(o.in(0).dtype, o.in(1).dtype));
  const Value a = o.in(0).to(t).reshape({1, -1}), b = o.in(1).to(t).reshape({-1, 1}), made = empty({1, 1}, t);
  call_kernel("matmul", {made, a, b});
  copy(o.out(0), made.reshape(o.out(0).shape()));
}
void cross(Older& o) {
  const Value out = row_of(o.out(0)), a = o.in(0).expand(out.shape()), b = o.in(1).expand(out.shape());
  const DType t = opmath(promote(a.dtype, b.dtype));
  const int64_t dim = axes_of(o, {o.integer("dim", -1)}, out.ndim)[0];
  if (out.size(dim) != 3) o.refuse("the dim must have 3 items");
  for (int i = 0; i < 3; ++i) {
    auto part = [&](const Value& v, int k) { return v.select(dim, (i + k) % 3); };
    const Value left = pointwise("mul", t, {part(a, 1), part(b, 2)}), right = pointwise("mul", t, {part(a, 2), part(b, 1)});
    call_pointwise("sub", t, {part(out, 0), left, right}, {integer(1)});
  }
}
void trace(Older& o) {
  const Value x = o.in(0), made = empty({}, opmath(x.dtype));
  call_kernel("trace", {made, x.to(made.dtype)});
  copy(o.out(0), made.reshape(o.out(0).shape()));
}
void orthogonal(Older& o) {  // (x): Q and R
  const Value x = o.in(0).to(mt::kFloat), q = empty(o.out(0).shape(), mt::kFloat), r = empty(o.out(1).shape(), mt::kFloat);
  if (x.numel()) call_kernel("linalg_qr", {q, r, x}, {string(o.integer("full_matrices", 0) ? "complete" : "reduced")});
  copy(o.out(0), q);
  copy(o.out(1), r);
}
void singular_values(Older& o) {  // (x): the values, U and V
  const Value x = o.in(0).to(mt::kFloat);
  const bool whole = o.integer("full_matrices", 0), vectors = o.integer("compute_uv", 1);
  const int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
  auto of = [&](int64_t rows, int64_t columns) {
    Sizes sizes(x.sizes, x.sizes + x.ndim - 2);
    sizes.push_back(rows);
    if (columns) sizes.push_back(columns);
    return sizes;
  };
  const Value left = empty(of(m, whole ? m : k), mt::kFloat), right = empty(of(whole ? n : k, n), mt::kFloat), sigma = empty(of(k, 0), mt::kFloat);
  Sizes batch(x.sizes, x.sizes + x.ndim - 2);
  if (!x.numel()) return;
  call_kernel("_linalg_svd", {left, sigma, right, empty(batch, mt::kInt32), x}, {integer(whole), integer(vectors), none()});
  copy(o.out(0), sigma);
  if (vectors) copy(o.out(1), left);
  else fill(o.out(1), 0);
  if (vectors) copy(o.out(2), right.transpose(-1, -2));
  else fill(o.out(2), 0);
}
void triangular_solve(Older& o) {  // (matrix, right side)
  const Value a = o.in(0).to(mt::kFloat), b = o.in(1).to(mt::kFloat), made = empty(o.out(0).shape(), mt::kFloat);
  const bool turned = o.integer("adjoint", 0), lower = o.integer("lower", 1);
  if (made.numel())
    call_kernel("linalg_solve_triangular", {made, turned ? a.transpose(-1, -2) : a, b}, {integer(lower == turned), integer(1), integer(0)});
  copy(o.out(0), made);
}

// ---- items at places ------------------------------------------------------------------------------------------------------------------
// The inputs from `first` on, one for each 1 of the mask; dims with 0 are not indexed.
std::vector<Value> index_list(Older& o, const Sizes& mask, size_t first) {
  std::vector<Value> made;
  for (int64_t on : mask) made.push_back(on ? o.in(first++).to(mt::kInt64) : Value());
  return made;
}
void index(Older& o) {  // (x, which dims are indexed, sizes of the result, indices ...)
  const Value x = o.in(0), out = o.out(0);
  std::vector<Value> all{out, x}, at = index_list(o, o.numbers(1), 3);
  if (!out.numel()) return;
  all.insert(all.end(), at.begin(), at.end());
  call_kernel("index", all, {integer(int64_t(at.size()))});
}
void index_put(Older& o) {  // (x, values, which dims are indexed, strides, indices ...)
  const Value x = o.in(0), out = o.out(0);
  if (out.data != x.data) copy(out, x);
  std::vector<Value> all{out, o.in(1).to(out.dtype)}, at = index_list(o, o.numbers(2), 4);
  if (!out.numel() || !o.in(1).numel()) return;
  all.insert(all.end(), at.begin(), at.end());
  call_kernel("index_put", all, {integer(int64_t(at.size())), integer(o.integer("accumulate", 0))});
}
// (x, 0 where an item is replaced and 1 elsewhere, the values there and 0 elsewhere)
void index_fill(Older& o) {
  const DType t = o.in(0).dtype;
  call_pointwise("add", t, {o.out(0), pointwise("mul", t, {o.in(0), o.in(1)}), o.in(2)}, {integer(1)});
}
void index_add(Older& o) {  // (x, index, values, alpha?)
  const Value x = row_of(o.in(0)), out = row_of(o.out(0));
  if (out.data != x.data) copy(out, x);
  const mt::Attr alpha = o.given(3) ? number(o.number(3)) : number(1);
  call_kernel("index_add", {out, row_of(o.in(1).to(mt::kInt64)), row_of(o.in(2).to(out.dtype))}, {integer(axes_of(o, {o.integer("axis", 0)}, out.ndim)[0]), alpha});
}
// (x, places [..., k], values): x at the places that the first k dims name
template <bool adds> void scatter_nd(Older& o) {
  const Value x = o.in(0), out = o.out(0), places = o.in(1).to(mt::kInt64);
  if (out.data != x.data) copy(out, x);
  if (!places.numel()) return;
  std::vector<Value> all{out, o.in(2).to(out.dtype)};
  for (int64_t d = 0; d < places.size(-1); ++d) all.push_back(places.select(-1, d));
  const auto count = int64_t(all.size()) - 2;
  call_kernel("index_put", all, {integer(count), integer(adds)});
}
void scatter_rows(Older& o) {  // (x, places, rows): the rows of x at the places
  const Value x = o.in(0), out = o.out(0), places = o.in(1).to(mt::kInt64);
  if (out.data != x.data) copy(out, x);
  if (places.numel()) call_kernel("index_put", {out, o.in(2).to(out.dtype), places}, {integer(1), integer(0)});
}
void masked_scatter(Older& o) {  // (x, mask, values)
  const Value x = o.in(0), out = o.out(0);
  if (out.data != x.data) copy(out, x);
  call_kernel("masked_scatter", {out, o.in(1).to(mt::kBool).expand(out.shape()).dense(), o.in(2).to(out.dtype).dense()});
}
void roll(Older& o) {
  const Value x = row_of(o.in(0)), out = row_of(o.out(0));
  const Sizes shifts = o.list("shifts"), given = o.list("dims");
  if (!given.empty()) {
    const Sizes dims = axes_of(o, given, x.ndim);
    return call_kernel("roll", {out, x}, {list(shifts), list(dims)});
  }
  const Sizes first{0};  // without dims all items are one row
  const Value made = empty({x.numel()}, x.dtype);
  call_kernel("roll", {made, x.reshape({-1})}, {list(shifts), list(first)});
  copy(out, made.reshape(out.shape()));
}
void repeat_items(Older& o) {  // (x, how often, for all or for each)
  const Value x = row_of(o.in(0)), out = row_of(o.out(0)), times = o.in(1).to(mt::kInt64);
  const int64_t dim = axes_of(o, {o.integer("axis", 0)}, x.ndim)[0];
  const Value at = empty({out.size(dim)}, mt::kInt64);
  call_kernel("repeat_interleave_index", {at, times.numel() == 1 ? times.reshape({}).expand({x.size(dim)}) : times.reshape({-1})});
  call_kernel("index_select", {out, x, at}, {integer(dim)});
}
void one_hot(Older& o) {  // (index, depth, value of the one, of the others), axis
  const Value index = o.in(0).to(mt::kInt64).dense(), out = row_of(o.out(0));
  const int64_t axis = axes_of(o, {o.integer("axis", -1)}, out.ndim)[0], depth = o.numbers(1).at(0);
  if (out.size(axis) != depth) o.refuse("the output has no dim of the depth");
  const Value lines = full({index.numel(), depth}, mt::kDouble, o.number(3));
  for (int64_t i = 0; i < index.numel(); ++i)
    if (const int64_t k = index.ptr<int64_t>()[i]; k >= 0 && k < depth) lines.ptr<double>()[i * depth + k] = o.number(2);
  Sizes shape = index.shape(), order;
  shape.push_back(depth);
  for (int64_t d = 0; d < out.ndim; ++d) order.push_back(d < axis ? d : d == axis ? out.ndim - 1 : d - 1);
  copy(out, lines.reshape(shape).permute(order));
}
void histogram(Older& o) {
  const Value x = o.in(0).to(mt::kFloat), made = empty(o.out(0).shape(), mt::kFloat);
  call_kernel("histc", {made, x}, {integer(o.integer("bins", 100)), number(o.real("min", 0)), number(o.real("max", 0))});
  copy(o.out(0), made);
}
void log_spaced(Older& o) {
  const double first = o.real("start", 0), last = o.real("end", 0), base = o.real("base", 10);
  const Value out = o.out(0), made = empty(out.shape(), mt::kDouble);
  const int64_t n = made.numel();
  for (int64_t i = 0; i < n; ++i) made.ptr<double>()[i] = std::pow(base, n > 1 ? first + (last - first) * double(i) / double(n - 1) : first);
  copy(out, made);
}

// ---- distinct items, in order: items, where each item went, how many of each -------------------------------------------------------------
void distinct(Older& o, const char* kernel, size_t inverse, size_t counts, size_t outputs) {
  const Value x = o.in(0);
  const int64_t n = x.numel();
  const Value items = empty({n}, x.dtype), where = empty(x.shape(), mt::kInt64), many = empty({n}, mt::kInt64), found = empty({}, mt::kInt64);
  call_kernel(kernel, {items, where, many, found, x});
  const int64_t size = *found.ptr<int64_t>();
  copy(o.found(0, {size}), items.narrow(0, 0, size));
  if (inverse < outputs && o.out(inverse).numel() >= n) copy(o.out(inverse), where.reshape(o.out(inverse).shape()));
  if (counts < outputs && o.out(counts).numel() >= size && (o.integer("return_counts", 0) || o.out(counts).numel() > 1)) copy(o.found(counts, {size}), many.narrow(0, 0, size));
}
void store_distinct(Older& o, const Distinct& found, size_t inverse, size_t counts) {
  copy(o.found(0, found.items.shape()), found.items);
  if (o.out(inverse).numel() >= found.inverse.numel()) copy(o.found(inverse, found.inverse.shape()), found.inverse);
  if (o.out(counts).numel() >= found.counts.numel()) copy(o.found(counts, found.counts.shape()), found.counts);
}
void unique_sorted(Older& o) { distinct(o, "unique_sort", 1, 2, 3); }
void unique_runs(Older& o) {
  constexpr int64_t kNone = 1000;  // stands for no axis
  if (o.integer("axis", kNone) == kNone || o.in(0).ndim < 1) return distinct(o, "unique_runs", 1, 2, 3);
  store_distinct(o, distinct_along(o.in(0), axes_of(o, {o.integer("axis", 0)}, o.in(0).ndim)[0], false), 1, 2);
}
// (x, axis): the distinct slices in order, a place of each (which no client reads), their counts, of each slice its place
void unique_along(Older& o) {
  const Value x = row_of(o.in(0));
  store_distinct(o, distinct_along(x, axes_of(o, {o.numbers(1).at(0)}, x.ndim)[0], true), 3, 2);
}

// (var, indices, updates): batch b of the updates from place indices[b] of the axis on, or of the batch that a row of indices names
void scatter_batches(Older& o) {
  if (o.text("reduce", "update") != "update") o.refuse("reduce " + o.text("reduce", "update") + " is not supported");
  const Value out = o.out(0), indices = o.in(1).to(mt::kInt64).dense(), updates = o.in(2);
  const int64_t axis = axes_of(o, {o.integer("axis", 0)}, out.ndim)[0], named = indices.ndim == 2;
  if (axis == 0 || updates.ndim != out.ndim || indices.numel() != updates.size(0) * (1 + named)) o.refuse("indices and updates do not fit");
  if (out.data != o.in(0).data) copy(out, o.in(0));
  for (int64_t b = 0; b < updates.size(0); ++b) {
    const int64_t* at = indices.ptr<int64_t>() + b * (1 + named);
    const int64_t batch = named ? at[0] : b;
    if (batch < 0 || batch >= out.size(0) || at[named] < 0 || at[named] + updates.size(axis) > out.size(axis)) o.refuse("an index lies outside of var");
    copy(out.select(0, batch).narrow(axis - 1, at[named], updates.size(axis)), updates.select(0, b));
  }
}
void quantize(Older& o) {  // (x, scales, zero_points): round(x / scale + zero point), one of each or one along the axis
  const Value x = o.in(0), scale = o.in(1).to(mt::kFloat), out = o.out(0);
  Sizes along(size_t(x.ndim), 1);
  if (scale.numel() != 1) along.at(size_t(axes_of(o, {o.integer("axis", 0)}, x.ndim)[0])) = scale.numel();
  const std::string kind = o.text("dtype", "");
  const double least = kind == "torch.quint8" ? 0 : kind == "torch.qint8" ? -128 : -2147483648.0, most = kind == "torch.quint8" ? 255 : kind == "torch.qint8" ? 127 : 2147483647.0;
  copy(out, zipped(x.shape(), {x, scale.reshape(along), o.in(2).to(mt::kFloat).reshape(along)},
                   [=](const float* v) { return std::min(std::max(std::nearbyint(double(v[0]) / v[1]) + v[2], least), most); }));
}

// ---- draws --------------------------------------------------------------------------------------------------------------------------------
void bernoulli(Older& o) {  // (shape, probabilities, seed, offset)
  const Value out = o.out(0), made = empty(out.shape(), mt::kFloat);
  const Value p = o.in(1).to(mt::kFloat).expand(out.shape()).dense();
  call_kernel("bernoulli_tensor", {made, p}, {}, seeded({uint64_t(o.number(2)), uint64_t(o.number(3))}));
  copy(out, made);
}
void multinomial(Older& o) {  // (weights, seed, offset)
  const Value out = o.out(0), made = empty(out.shape(), mt::kInt64);
  call_kernel("multinomial", {made, o.in(0).to(mt::kFloat)}, {integer(o.integer("numsamples", 1)), integer(o.integer("replacement", 0))},
              seeded({uint64_t(o.number(1)), uint64_t(o.number(2))}));
  copy(out, made);
}

const OlderOps ops({
    {"Scatter", 3, 3, 1, scatter_batches}, {"Quantize", 3, 3, 1, quantize},
    {"Cumprod", 2, 2, 1, running_product}, {"Cummax", 1, 1, 2, running_max}, {"Cummin", 1, 1, 2, running_min}, {"ReduceLogSumExp", 2, 2, 1, log_sum_exp},
    {"Dot", 2, 2, 1, dot}, {"Cross", 2, 2, 1, cross}, {"Trace", 1, 1, 1, trace}, {"Qr", 1, 1, 2, orthogonal}, {"Svd", 1, 1, 3, singular_values},
    {"MatrixTriangularSolve", 2, 2, 1, triangular_solve}, {"Index", 4, 16, 1, index}, {"IndexPutV2", 5, 16, 1, index_put}, {"IndexFillD", 3, 3, 1, index_fill},
    {"InplaceIndexAdd", 3, 4, 1, index_add}, {"ScatterNdAdd", 3, 3, 1, scatter_nd<true>}, {"ScatterNdUpdate", 3, 3, 1, scatter_nd<false>},
    {"ScatterUpdate", 3, 3, 1, scatter_rows}, {"MaskedScatter", 3, 3, 1, masked_scatter}, {"Roll", 1, 1, 1, roll}, {"RepeatInterleave", 2, 2, 1, repeat_items}, {"OneHot", 4, 4, 1, one_hot},
    {"Histogram", 1, 1, 1, histogram}, {"LogSpaceD", 1, 1, 1, log_spaced}, {"UniqueWithCountsAndSorting", 1, 1, 3, unique_sorted},
    {"UniqueWithCountsExt2", 2, 2, 4, unique_along}, {"UniqueConsecutive", 1, 1, 3, unique_runs}, {"StatelessBernoulli", 4, 4, 1, bernoulli}, {"MultinomialWithReplacement", 3, 3, 1, multinomial},
});

}  // namespace
}  // namespace cann_sim
