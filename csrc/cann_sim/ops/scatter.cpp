// Writing and reducing into indexed places along one dim: scatter, index_add, index_copy, index_fill.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/result.h"

namespace cann_sim {
namespace {

// What aclnn's `reduce` says, and the kernels' words for it. aclnnScatter knows the first three.
enum Reduce { kReplace, kAdd, kMultiply, kReduces = 6 };
constexpr const char* kNames[kReduces] = {"", "sum", "prod", "amax", "amin", "mean"};

// ---- scatter ------------------------------------------------------------------------------------------------------
// An index of self's rank, in no dim but `dim` larger than self, and in none larger than src.
void check_index(const Call& c, int self_at, int64_t dim, int index_at, int src_at) {
  const TensorMeta &self = c.tensor(self_at), &index = c.tensor(index_at);
  dim = wrap_dim(dim, self.ndim);
  if (index.numel() == 0) return;
  EXPECT(std::max(index.ndim, 1) == std::max(self.ndim, 1), "index of %s for self of %s", describe(index).c_str(),
         describe(self).c_str());
  for (int d = 0; d < std::min(self.ndim, index.ndim); ++d)
    EXPECT(d == dim || index.sizes[d] <= self.sizes[d], "index of %s is larger than self of %s at dim %d",
           describe(index).c_str(), describe(self).c_str(), d);
  if (src_at < 0) return;
  const TensorMeta& src = c.tensor(src_at);
  EXPECT(std::max(src.ndim, 1) == std::max(index.ndim, 1) && src.numel(), "src of %s for index of %s", describe(src).c_str(),
         describe(index).c_str());
  for (int d = 0; d < std::min(src.ndim, index.ndim); ++d)
    EXPECT(index.sizes[d] <= src.sizes[d], "index of %s is larger than src of %s at dim %d", describe(index).c_str(),
           describe(src).c_str(), d);
  expect_same_dtype(c, self_at, src_at);
}
void check_reduce(const Call& c, int64_t reduce, int64_t last = kMultiply) {
  EXPECT(reduce >= 0 && reduce <= last, "reduce of %ld is outside of [0, %ld]", reduce, last);
  expect_computes(c, 0);
}
void scatter_into(const Value& out, int64_t dim, const Value& index, const Value& src, int64_t reduce,
                  bool include_self = true) {
  if (index.numel() == 0) return;
  if (reduce == kReplace || (reduce == kAdd && include_self))
    return call_kernel(reduce == kAdd ? "scatter_add" : "scatter", {out, index, src}, {integer(dim)});
  call_kernel("scatter_reduce", {out, index, src}, {integer(dim), string(kNames[reduce]), integer(include_self)});
}
Value spread(const aclScalar& value, const Value& index, DType dtype) {
  Value one = empty({}, dtype);
  call_kernel("fill", {one}, {scalar(value)});
  return one.expand(index.shape());
}
// The output with argument 0 copied into it; clients pass one tensor as both to work in place.
Value copied(Run& r, int out) {
  Value v = r.tensor(out), self = r.tensor(0);
  const bool same = v.data == self.data && std::equal(v.strides, v.strides + v.ndim, self.strides);
  if (!same) copy(v, self);
  return v;
}
void check_out(const Call& c, int out) {
  expect_same_shape(c, out, 0);
  expect_same_dtype(c, out, 0);
}

// aclnnScatter(self, dim, index, src, reduce, out), aclnnInplaceScatter without out; aclnnScatterAdd without reduce
void check_scatter(const Call& c) {
  check_index(c, 0, c.integer(1), 2, 3);
  check_reduce(c, c.integer(4));
}
void check_scatter_out(const Call& c) {
  check_scatter(c);
  check_out(c, 5);
}
void check_scatter_add(const Call& c) {
  check_index(c, 0, c.integer(1), 2, 3);
  check_out(c, 4);
}
void scatter(Run& r) {
  scatter_into(copied(r, 5), r.call.integer(1), r.tensor(2), r.tensor(3), r.call.integer(4));
}
void scatter_add(Run& r) {
  scatter_into(copied(r, 4), r.call.integer(1), r.tensor(2), r.tensor(3), kAdd);
}
void scatter_in_place(Run& r) {
  scatter_into(r.tensor(0), r.call.integer(1), r.tensor(2), r.tensor(3), r.call.integer(4));
}

// aclnnScatterValue(self, dim, index, value, reduce, out), aclnnInplaceScatterValue without out
void check_scatter_value(const Call& c) {
  check_index(c, 0, c.integer(1), 2, -1);
  check_reduce(c, c.integer(4));
}
void scatter_value(Run& r, const Value& out) {
  Value index = r.tensor(2);
  scatter_into(out, r.call.integer(1), index, spread(r.call.scalar(3), index, out.dtype), r.call.integer(4));
}

// aclnnScatterReduce(self, dim, index, src, reduce, includeSelf, out), aclnnInplaceScatterReduce without out
void check_scatter_reduce(const Call& c) {
  check_index(c, 0, c.integer(1), 2, 3);
  check_reduce(c, c.integer(4), kReduces - 1);
}
void scatter_reduce(Run& r, const Value& out) {
  scatter_into(out, r.call.integer(1), r.tensor(2), r.tensor(3), r.call.integer(4), r.call.integer(5));
}

// ---- rows of a table: (varRef, indices, updates [, useLocking]), indices of any shape -----------------------------
void check_table(const Call& c) {
  const TensorMeta &table = c.tensor(0), &indices = c.tensor(1);
  expect_dims(c, 0);
  std::vector<int64_t> sizes = sizes_of(indices);
  sizes.insert(sizes.end(), table.sizes + 1, table.sizes + table.ndim);
  EXPECT(dtype_of(indices.dtype) == mt::kInt32 || dtype_of(indices.dtype) == mt::kInt64, "indices of %s",
         describe(indices).c_str());
  expect_computes(c, 0);
  expect_same_dtype(c, 0, 2);
  expect_shape(c, 2, sizes);
}
void reduce_rows(Run& r, const Value& table, const char* reduce) {
  Value indices = r.tensor(1).reshape({-1});
  if (indices.numel() == 0 || table.numel() == 0) return;
  Sizes sizes = table.shape();
  sizes[0] = indices.numel();
  call_kernel("index_reduce", {table, indices, r.tensor(2).reshape(sizes)}, {integer(0), string(reduce), integer(1)});
}
// One after the other, which is the same as by their product.
void divide_rows(Run& r) {
  Value table = r.tensor(0), divisors = full(table.shape(), table.dtype, 1);
  reduce_rows(r, divisors, "prod");
  call_pointwise(mt::is_integral(table.dtype) ? "div_trunc" : "div", opmath(table.dtype), {table, table, divisors});
}

// ---- aclnnInplaceScatterUpdate(data, indices, updates, axis) ------------------------------------------------------
// Batch b of the updates is written into data from place indices[b] of the axis on; rows (batch, place) name the batch.
void check_scatter_update(const Call& c) {
  const TensorMeta &data = c.tensor(0), &indices = c.tensor(1), &updates = c.tensor(2);
  const int64_t axis = wrap_dim(c.integer(3), data.ndim);
  EXPECT(axis != 0, "axis 0 is that of the batches");
  EXPECT(updates.ndim == data.ndim, "updates of %s for data of %s", describe(updates).c_str(), describe(data).c_str());
  for (int d = 1; d < data.ndim; ++d)
    EXPECT(d == axis ? updates.sizes[d] <= data.sizes[d] : updates.sizes[d] == data.sizes[d],
           "updates of %s for data of %s", describe(updates).c_str(), describe(data).c_str());
  EXPECT(indices.ndim == 2 ? indices.sizes[1] == 2 && indices.sizes[0] == updates.sizes[0]
                           : indices.numel() == updates.sizes[0],
         "indices of %s for updates of %s", describe(indices).c_str(), describe(updates).c_str());
  expect_same_dtype(c, 0, 2);
}
void write_updates(Run& r, const Value& updates, int64_t axis) {
  Value data = r.tensor(0), indices = index_value(r, 1).dense();
  axis = wrap_dim(axis, data.ndim);
  const int64_t length = updates.size(axis);
  for (int64_t b = 0; b < updates.sizes[0]; ++b) {
    const int64_t* at = indices.ptr<int64_t>() + (indices.ndim == 2 ? 2 * b : b);
    const int64_t batch = indices.ndim == 2 ? at[0] : b, place = at[indices.ndim == 2];
    if (batch < 0 || batch >= data.sizes[0] || place < 0 || place + length > data.size(axis))
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION,
                        std::string(r.call.name()) + ": batch " + std::to_string(batch) + ", place " +
                            std::to_string(place) + " lies outside of data");
    copy(data.select(0, batch).narrow(axis - 1, place, length), updates.select(0, b));
  }
}
void scatter_update(Run& r) { write_updates(r, r.tensor(2), r.call.integer(3)); }

// ---- aclnnInplaceQuantScatter(self, indices, updates, scales, zeroPoints?, axis, quantAxis, reduction): round(x / s + z) ----
void check_quant_scatter(const Call& c) {
  if (c.row->nargs > 8 && *c.string(8) && std::string(c.string(8)) != "rint") refuse(561003, "%s with roundMode %s is not computed", c.name(), c.string(8));
  const TensorMeta &data = c.tensor(0), &updates = c.tensor(2);
  const int64_t axis = wrap_dim(c.integer(5), data.ndim), scaled = wrap_dim(c.integer(6), data.ndim);
  EXPECT(axis != 0 && axis != scaled, "axis %ld and quantAxis %ld", long(axis), long(scaled));
  EXPECT(updates.ndim == data.ndim && c.tensor(1).numel() == updates.sizes[0], "updates of %s for self of %s and %ld indices",
         describe(updates).c_str(), describe(data).c_str(), long(c.tensor(1).numel()));
  for (int d = 1; d < data.ndim; ++d)
    EXPECT(d == axis ? updates.sizes[d] <= data.sizes[d] : updates.sizes[d] == data.sizes[d], "updates of %s for self of %s",
           describe(updates).c_str(), describe(data).c_str());
  for (int i : {3, 4})
    EXPECT(!c.given(i) || c.tensor(i).numel() == data.sizes[scaled], "%s has %ld items, expected %ld", c.row->args[i].name,
           long(c.tensor(i).numel()), long(data.sizes[scaled]));
}
void quant_scatter(Run& r) {
  const Value updates = r.tensor(2);
  Sizes along(updates.ndim, 1);
  const int64_t axis = wrap_dim(r.call.integer(6), updates.ndim);
  along[axis] = updates.sizes[axis];
  Value q = empty(updates.shape(), mt::kFloat);
  call_pointwise("div", mt::kFloat, {q, updates, r.tensor(3).reshape(along)});
  if (r.given(4)) call_pointwise("add", mt::kFloat, {q, q, r.tensor(4).reshape(along)}, {integer(1)});
  const Value made = empty(updates.shape(), mt::kInt8);
  for (int64_t i = 0, n = made.numel(); i < n; ++i)
    made.ptr<int8_t>()[i] = int8_t(std::min(std::max(std::nearbyint(q.ptr<float>()[i]), -128.f), 127.f));
  write_updates(r, made, r.call.integer(5));
}

// ---- index_add(self, dim, index, source, alpha, out) --------------------------------------------------------------
// A 1-D index with as many items as source has along dim; the other dims of source are those of self.
void check_rows(const Call& c, int64_t dim, int index_at, int source_at) {
  const TensorMeta &self = c.tensor(0), &index = c.tensor(index_at), &source = c.tensor(source_at);
  dim = wrap_dim(dim, self.ndim);
  EXPECT(index.ndim <= 1, "index of %s has more than one dim", describe(index).c_str());
  EXPECT(std::max(source.ndim, 1) == std::max(self.ndim, 1), "source of %s for self of %s", describe(source).c_str(),
         describe(self).c_str());
  for (int d = 0; d < source.ndim; ++d)
    EXPECT(d < self.ndim ? source.sizes[d] == (d == dim ? index.numel() : self.sizes[d]) : source.sizes[d] == 1,
           "source of %s does not fit self of %s and %ld indices", describe(source).c_str(), describe(self).c_str(),
           index.numel());
  if (source.ndim == 0) EXPECT(index.numel() == 1, "%ld indices for a source without dims", index.numel());
  expect_same_dtype(c, 0, source_at);
}
template <int out> void check_index_add(const Call& c) {
  check_rows(c, c.integer(1), 2, 3);
  expect_computes(c, 0);
  check_out(c, out);
}
// An index of several dims has a row of source, of as many dims more, for each item: torch_npu's gradient of npu_gather_sparse_index.
bool has_rows_of_index(const Call& c) {
  const TensorMeta &self = c.tensor(0), &index = c.tensor(2), &source = c.tensor(3);
  if (index.ndim < 2 || wrap_dim(c.integer(1), self.ndim) != 0 || source.ndim != index.ndim + self.ndim - 1) return false;
  return std::equal(index.sizes, index.sizes + index.ndim, source.sizes) &&
         std::equal(self.sizes + 1, self.sizes + self.ndim, source.sizes + index.ndim);
}
void check_index_add_rows(const Call& c) {
  if (!has_rows_of_index(c)) return check_index_add<6>(c);
  expect_same_dtype(c, 0, 3);
  expect_computes(c, 0);
  check_out(c, 6);
}
void index_add(Run& r, int at) {
  Value out = copied(r, at), source = r.tensor(3), index = r.tensor(2);
  if (source.numel() == 0) return;
  if (index.ndim > 1) {
    Sizes rows = out.shape();
    rows[0] = index.numel();
    index = index.dense().reshape({index.numel()});
    source = source.dense().reshape(rows);
  }
  call_kernel("index_add", {out, index, source}, {integer(r.call.integer(1)), scalar(r.call.scalar(4))});
}

// ---- index_copy(selfRef, dim, index, source [, outRef]) -----------------------------------------------------------
void check_index_copy(const Call& c) { check_rows(c, c.integer(1), 2, 3); }
void check_index_copy_out(const Call& c) {
  check_index_copy(c);
  check_out(c, 4);
}
void index_copy(Run& r, const Value& out) {
  if (r.call.tensor(3).numel() == 0) return;
  call_kernel("index_copy", {out, r.tensor(2), r.tensor(3)}, {integer(r.call.integer(1))});
}

// ---- index_fill(self, dim, index, value [, out]): the index is a list, or a tensor in later CANN ------------------
void check_listed(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  const int64_t dim = wrap_dim(c.integer(1), self.ndim), n = self.ndim ? self.sizes[dim] : 1;
  for (int64_t i : c.ints(2)) EXPECT(i >= -n && i < n, "index %ld is out of range for a dim of %ld items", i, n);
}
void check_listed_out(const Call& c) {
  check_listed(c);
  check_out(c, 4);
}
void check_filled(const Call& c) {
  wrap_dim(c.integer(1), c.tensor(0).ndim);
  expect_computes(c, 0);
  EXPECT(c.tensor(2).ndim <= 1, "index of %s has more than one dim", describe(c.tensor(2)).c_str());
}
void check_filled_out(const Call& c) {
  check_filled(c);
  check_out(c, 4);
}
Value listed(const Call& c) {
  Span<int64_t> items = c.ints(2);
  Value v = empty({items.size()}, mt::kInt64);
  std::copy(items.begin(), items.end(), v.ptr<int64_t>());
  return v;
}
void index_fill(Run& r, const Value& out, const Value& index) {
  if (index.numel() == 0 || out.numel() == 0) return;
  call_kernel("index_fill", {out, index}, {integer(r.call.integer(1)), scalar(r.call.scalar(3))});
}

// ---- aclnnScatterList(varRef, indice, updates, mask?, reduce?, axis): update b into tensor b of the list -------------------
// indice is a start for each tensor, or a start and a length; axis counts the dims of updates, whose first is the list.
int64_t list_dim(const Call& c) { return wrap_dim(c.integer(5), c.tensor(2).ndim) - 1; }
void check_list(const Call& c) {
  const Span<TensorMeta> list = c.tensors(0);
  const TensorMeta &index = c.tensor(1), &updates = c.tensor(2);
  const std::string reduce = c.given(4) && *c.string(4) ? c.string(4) : "update";
  EXPECT(reduce == "update", "%s: reduce %s; only update is offered", c.name(), reduce.c_str());
  EXPECT(updates.ndim > 1 && updates.sizes[0] == list.size() && list_dim(c) >= 0, "%s: updates %s for %ld tensors along %ld",
         c.name(), describe(updates).c_str(), list.size(), c.integer(5));
  EXPECT((index.ndim == 1 || (index.ndim == 2 && index.sizes[1] == 2)) && index.sizes[0] == list.size(), "%s: indice %s", c.name(),
         describe(index).c_str());
  if (c.given(3)) expect_numel(c, 3, list.size());
  for (const TensorMeta& t : list) {
    EXPECT(t.ndim == updates.ndim - 1 && t.dtype == updates.dtype, "%s: var %s for updates %s", c.name(), describe(t).c_str(),
           describe(updates).c_str());
    for (int d = 0; d < t.ndim; ++d)
      EXPECT(d == list_dim(c) || t.sizes[d] == updates.sizes[d + 1], "%s: var %s for updates %s", c.name(), describe(t).c_str(),
             describe(updates).c_str());
  }
}
void scatter_list(Run& r) {
  const std::vector<Value> list = r.tensors(0);
  const Value index = index_value(r, 1).dense(), updates = r.tensor(2), mask = r.given(3) ? index_value(r, 3).dense() : Value();
  const int64_t dim = list_dim(r.call), each = index.ndim;
  for (int64_t b = 0; b < int64_t(list.size()); ++b) {
    if (mask.given() && !mask.ptr<int64_t>()[b]) continue;
    const Value from = updates.select(0, b);
    const int64_t start = index.ptr<int64_t>()[b * each], n = each == 2 ? index.ptr<int64_t>()[b * each + 1] : from.size(dim);
    if (start < 0 || n < 0 || n > from.size(dim) || start + n > list[size_t(b)].size(dim))
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnScatterList: an update lies outside of its tensor");
    copy(list[size_t(b)].narrow(dim, start, n), from.narrow(dim, 0, n));
  }
}

// ---- coalesce(the distinct places, which of them item i has, places [items, dims], values [items, ...], new places, new values):
// values at one place are added
void check_coalesce(const Call& c) {
  const TensorMeta &places = c.tensor(2), &values = c.tensor(3);
  const int64_t distinct = c.tensor(0).numel(), items = c.tensor(1).numel();
  EXPECT(places.ndim == 2 && places.sizes[0] == items && values.ndim >= 1 && values.sizes[0] == items, "indices %s and values %s do not have %ld items each",
         describe(places).c_str(), describe(values).c_str(), long(items));
  Sizes made = sizes_of(values);
  made[0] = distinct;
  expect_shape(c, 4, {distinct, places.sizes[1]});
  expect_shape(c, 5, made);
  expect_same_dtype(c, 3, 5);
}
void coalesce(Run& r) {
  Value at = index_value(r, 1).reshape({-1}), places = r.tensor(2), values = r.tensor(3), new_places = r.tensor(4), new_values = r.tensor(5);
  fill(new_values, 0);
  if (!at.numel()) return;
  constexpr int64_t kRows = 0;
  call_kernel("index_copy", {new_places, at, places.to(new_places.dtype)}, {integer(kRows)});
  const DType sum = opmath(new_values.dtype);
  Value total = full(new_values.shape(), sum, 0);
  call_kernel("index_add", {total, at, values.to(sum)}, {integer(kRows), number(1)});
  copy(new_values, total);
}

const Op ops[] = {
    {"aclnnCoalesceSparse", check_coalesce, coalesce},
    {"aclnnScatterList", check_list, scatter_list},
    {"aclnnScatter", check_scatter_out, scatter},
    {"aclnnInplaceScatter", check_scatter, scatter_in_place},
    {"aclnnScatterAdd", check_scatter_add, scatter_add},
    {"aclnnScatterValue", [](const Call& c) { check_scatter_value(c), check_out(c, 5); },
     [](Run& r) { scatter_value(r, copied(r, 5)); }},
    {"aclnnInplaceScatterValue", check_scatter_value, [](Run& r) { scatter_value(r, r.tensor(0)); }},
    {"aclnnScatterReduce", [](const Call& c) { check_scatter_reduce(c), check_out(c, 6); },
     [](Run& r) { scatter_reduce(r, copied(r, 6)); }},
    {"aclnnInplaceScatterReduce", check_scatter_reduce, [](Run& r) { scatter_reduce(r, r.tensor(0)); }},
    {"aclnnTfScatterAdd", check_table, [](Run& r) { reduce_rows(r, r.tensor(0), "sum"); }},
    {"aclnnScatterMul", check_table, [](Run& r) { reduce_rows(r, r.tensor(0), "prod"); }},
    {"aclnnScatterMax", check_table, [](Run& r) { reduce_rows(r, r.tensor(0), "amax"); }},
    {"aclnnScatterMin", check_table, [](Run& r) { reduce_rows(r, r.tensor(0), "amin"); }},
    {"aclnnScatterDiv", check_table, divide_rows},
    {"aclnnInplaceScatterUpdate", check_scatter_update, scatter_update},
    {"aclnnInplaceQuantScatter", check_quant_scatter, quant_scatter},
    {"aclnnInplaceQuantScatterV2", check_quant_scatter, quant_scatter},
    {"aclnnIndexAdd", check_index_add<5>, [](Run& r) { index_add(r, 5); }},
    {"aclnnIndexAddV2", check_index_add_rows, [](Run& r) { index_add(r, 6); }},
    {"aclnnIndexCopy", check_index_copy_out, [](Run& r) { index_copy(r, copied(r, 4)); }},
    {"aclnnInplaceIndexCopy", check_index_copy, [](Run& r) { index_copy(r, r.tensor(0)); }},
    {"aclnnIndexFillTensor", check_listed_out, [](Run& r) { index_fill(r, copied(r, 4), listed(r.call)); }},
    {"aclnnInplaceIndexFillTensor", check_listed, [](Run& r) { index_fill(r, r.tensor(0), listed(r.call)); }},
    {"aclnnIndexFill", check_filled_out, [](Run& r) { index_fill(r, copied(r, 4), r.tensor(2)); }},
    {"aclnnInplaceIndexFill", check_filled, [](Run& r) { index_fill(r, r.tensor(0), r.tensor(2)); }},
};

}  // namespace
}  // namespace cann_sim
