// Ordering items: sort, argsort, topk, the unique family and searches in sorted sequences.
#include <algorithm>

#include "ops/result.h"
#include "ops/sort.h"

namespace cann_sim {
namespace {

// ---- sort(self, stable, dim, descending, values, indices), argsort(self, dim, descending, out) -------------------
void check_sort(const Call& c) {
  expect_computes(c, 0);
  wrap_dim(c.integer(2), c.tensor(0).ndim);
  expect_same_shape(c, 0, 4);
  expect_same_shape(c, 0, 5);
  expect_castable(c, 0, 4);
}
void sort_into(const Value& values, const Value& indices, const Value& self, int64_t dim, bool descending) {
  if (self.ndim == 0) {
    copy(values, self);
    return fill(indices, 0);
  }
  into(values, self.dtype, [&](const Value& to) {
    call_kernel("sort", {to, indices, self}, {integer(dim), integer(descending), integer(1)});
  });
}
void sort(Run& r) {
  sort_into(r.tensor(4), r.tensor(5), r.tensor(0), r.call.integer(2), r.call.integer(3));
}
void check_argsort(const Call& c) {
  expect_computes(c, 0);
  wrap_dim(c.integer(1), c.tensor(0).ndim);
  expect_same_shape(c, 0, 3);
}
void argsort(Run& r) {
  Value self = r.tensor(0);
  sort_into(empty(self.shape(), self.dtype), r.tensor(3), self, r.call.integer(1), r.call.integer(2));
}

// ---- topk(self, k, dim, largest, sorted, values, indices); V2 has a sort policy before values ---------------------
template <int values> void check_topk(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_computes(c, 0);
  std::vector<int64_t> sizes = sizes_of(self);
  const int64_t dim = wrap_dim(c.integer(2), self.ndim), k = c.integer(1), n = self.ndim ? self.sizes[dim] : 1;
  EXPECT(k >= 0 && k <= n, "k of %ld is outside of [0, %ld]", k, n);
  if (self.ndim) sizes[dim] = k;
  EXPECT(dtype_of(self.dtype) != mt::kBool && !mt::is_complex(dtype_of(self.dtype)), "self of %s has no topk",
         describe(self).c_str());
  expect_shape(c, values, sizes);
  expect_shape(c, values + 1, sizes);
  expect_castable(c, 0, values);
}
void topk(Run& r, int values) {
  Value self = r.tensor(0), indices = r.tensor(values + 1);
  if (indices.numel() == 0) return;
  into(r.tensor(values), self.dtype, [&](const Value& to) {
    call_kernel("topk", {to, indices, self},
                {integer(r.call.integer(1)), integer(r.call.integer(2)), integer(r.call.integer(3)),
                 integer(r.call.integer(4))});
  });
}

// ---- unique -------------------------------------------------------------------------------------------------------
// The outputs are as large as the input; the real size is set when the stream gets there.
void check_unique(const Call& c, int value, int inverse, int counts) {
  const int64_t n = c.tensor(0).numel();
  expect_computes(c, 0);
  expect_same_dtype(c, 0, value);
  EXPECT(c.tensor(value).numel() >= n, "%s of %s has no room for %ld items", c.row->args[value].name,
         describe(c.tensor(value)).c_str(), n);
  if (inverse >= 0) expect_same_shape(c, 0, inverse);
  if (counts >= 0)
    EXPECT(c.tensor(counts).numel() >= n, "%s of %s has no room for %ld items", c.row->args[counts].name,
           describe(c.tensor(counts)).c_str(), n);
}
// kernel: unique_sort, or unique_runs for runs of equal neighbours.
void unique(Run& r, const char* kernel, int value, int inverse, int counts) {
  Value self = r.tensor(0);
  const int64_t n = self.numel();
  Value items = empty({n}, self.dtype), where, many, found = empty({}, mt::kInt64);
  if (inverse >= 0) where = empty(self.shape(), mt::kInt64);
  if (counts >= 0) many = empty({n}, mt::kInt64);
  call_kernel(kernel, {items, where, many, found, self});
  const int64_t size = *found.ptr<int64_t>();
  copy(found_part(r, value, {size}), items.narrow(0, 0, size));
  if (inverse >= 0) copy(r.tensor(inverse), where);
  if (counts >= 0) copy(found_part(r, counts, {size}), many.narrow(0, 0, size));
}
// aclnnUnique(self, sorted, returnInverse, value, inverse)
void check_unique1(const Call& c) { check_unique(c, 3, c.integer(2) ? 4 : -1, -1); }
void unique1(Run& r) { unique(r, "unique_sort", 3, r.call.integer(2) ? 4 : -1, -1); }
// aclnnUnique2(self, sorted, returnInverse, returnCounts, value, inverse, counts)
void check_unique2(const Call& c) { check_unique(c, 4, c.integer(2) ? 5 : -1, c.integer(3) ? 6 : -1); }
void unique2(Run& r) { unique(r, "unique_sort", 4, r.call.integer(2) ? 5 : -1, r.call.integer(3) ? 6 : -1); }

// ---- unique rows along a dim --------------------------------------------------------------------------------------
// Rows compare as their first items that differ do.
template <class T> int compare_rows(const T* a, const T* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (a[i] < b[i]) return -1;
    if (b[i] < a[i]) return 1;
  }
  return 0;
}
struct Groups {
  std::vector<int64_t> first, counts;  // of each group an item, and how many it has
  std::vector<int64_t> inverse;        // of each item its group
};
template <class T> Groups group_rows(const T* rows, int64_t n, int64_t width, bool sorted) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  if (sorted)
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return compare_rows(rows + a * width, rows + b * width, width) < 0;
    });
  Groups g;
  g.inverse.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || compare_rows(rows + order[i] * width, rows + order[i - 1] * width, width) != 0) {
      g.first.push_back(order[i]);
      g.counts.push_back(0);
    }
    ++g.counts.back();
    g.inverse[order[i]] = int64_t(g.first.size()) - 1;
  }
  return g;
}
Groups groups_along(const Value& self, int64_t dim, bool sorted) {
  const int64_t n = self.size(dim), width = n ? self.numel() / n : 0;
  Value rows = self.transpose(0, dim).dense();
  const bool floating = is_float(self.dtype);
  Value items = rows.to(self.dtype == mt::kDouble ? mt::kDouble : floating ? mt::kFloat : mt::kInt64);
  if (items.dtype == mt::kDouble) return group_rows(items.ptr<double>(), n, width, sorted);
  if (items.dtype == mt::kFloat) return group_rows(items.ptr<float>(), n, width, sorted);
  return group_rows(items.ptr<int64_t>(), n, width, sorted);
}
Value as_value(const std::vector<int64_t>& items) {
  Value v = empty({int64_t(items.size())}, mt::kInt64);
  std::copy(items.begin(), items.end(), v.ptr<int64_t>());
  return v;
}
void unique_along(Run& r, int64_t dim, bool sorted, int value, int inverse, int counts) {
  const Distinct found = distinct_along(r.tensor(0), dim, sorted);
  copy(found_part(r, value, found.items.shape()), found.items);
  if (inverse >= 0) copy(r.tensor(inverse), found.inverse);
  if (counts >= 0) copy(found_part(r, counts, found.counts.shape()), found.counts);
}
void check_unique_along(const Call& c, int64_t dim, int value, int inverse, int counts) {
  const TensorMeta& self = c.tensor(0);
  expect_dims(c, 0);
  const int64_t n = self.sizes[wrap_dim(dim, self.ndim)];
  EXPECT(!mt::is_complex(dtype_of(self.dtype)), "complex numbers have no order");
  expect_same_dtype(c, 0, value);
  EXPECT(c.tensor(value).numel() >= self.numel(), "%s of %s has no room for %ld items", c.row->args[value].name,
         describe(c.tensor(value)).c_str(), self.numel());
  for (int i : {inverse, counts})
    if (i >= 0) EXPECT(c.tensor(i).numel() >= n, "%s has no room for %ld items", c.row->args[i].name, n);
}
// aclnnUniqueDim(self, sorted, returnInverse, dim, value, inverse, counts)
void check_unique_dim(const Call& c) { check_unique_along(c, c.integer(3), 4, c.integer(2) ? 5 : -1, 6); }
void unique_dim(Run& r) {
  unique_along(r, wrap_dim(r.call.integer(3), r.call.tensor(0).ndim), true, 4, r.call.integer(2) ? 5 : -1, 6);
}
// aclnnUniqueConsecutive(self, returnInverse, returnCounts, dim, value, inverse, counts); dim 1000 stands for no dim
constexpr int64_t kNoDim = 1000;
void check_unique_consecutive(const Call& c) {
  const int inverse = c.integer(1) ? 5 : -1, counts = c.integer(2) ? 6 : -1;
  if (c.integer(3) == kNoDim) check_unique(c, 4, inverse, counts);
  else check_unique_along(c, c.integer(3), 4, inverse, counts);
}
void unique_consecutive(Run& r) {
  const int inverse = r.call.integer(1) ? 5 : -1, counts = r.call.integer(2) ? 6 : -1;
  if (r.call.integer(3) == kNoDim) return unique(r, "unique_runs", 4, inverse, counts);
  unique_along(r, wrap_dim(r.call.integer(3), r.call.tensor(0).ndim), false, 4, inverse, counts);
}

// ---- searches -----------------------------------------------------------------------------------------------------
// aclnnSearchSorted(sequence, self, outInt32, right, sorter?, out); aclnnSearchSorteds takes self as a scalar.
void check_sequence(const Call& c, int sequence, int sorter) {
  const TensorMeta& from = c.tensor(sequence);
  const DType dtype = dtype_of(from.dtype);
  EXPECT(from.ndim >= 1, "%s has no dims", c.row->args[sequence].name);
  EXPECT(dtype != mt::kBool && !mt::is_complex(dtype), "%s of %s has no order", c.row->args[sequence].name,
         mt::dtype_name(dtype));
  if (sorter >= 0 && c.given(sorter) && c.tensor(sorter).numel() > 0) expect_same_shape(c, sequence, sorter);
}
void expect_index_out(const Call& c, bool int32, int out) {
  EXPECT(c.tensor(out).dtype == (int32 ? ACL_INT32 : ACL_INT64), "out is not of %s", int32 ? "int32" : "int64");
}
void check_search_sorted(const Call& c) {
  const TensorMeta &sequence = c.tensor(0), &self = c.tensor(1);
  check_sequence(c, 0, 4);
  expect_computes(c, 1);
  bool fits = sequence.ndim == 1 || self.ndim == sequence.ndim;
  for (int d = 0; fits && d < sequence.ndim - 1; ++d) fits = self.sizes[d] == sequence.sizes[d];
  EXPECT(fits, "all but the last dim of sortedSequence %s and self %s must match", describe(sequence).c_str(),
         describe(self).c_str());
  expect_same_shape(c, 1, 5);
  expect_index_out(c, c.integer(2), 5);
}
// Both sides are compared in their common dtype.
void search(const Value& out, const Value& sequence, const Value& self, const Value& sorter, bool right) {
  const DType dtype = promote(sequence.dtype, self.dtype);
  const bool ordered = sorter.given() && sorter.numel() > 0;
  call_kernel("searchsorted", {out, sequence.to(dtype), self.to(dtype), ordered ? sorter : Value()}, {integer(right)});
}
void search_sorted(Run& r) {
  search(r.tensor(5), r.tensor(0), r.tensor(1), r.tensor(4), r.call.integer(3));
}
void check_search_sorteds(const Call& c) {
  check_sequence(c, 0, 4);
  EXPECT(c.tensor(0).ndim == 1, "sortedSequence of %s is not 1-D", describe(c.tensor(0)).c_str());
  expect_numel(c, 5, 1);
  expect_index_out(c, c.integer(2), 5);
}
void search_sorteds(Run& r) {
  Value sequence = r.tensor(0), out = r.tensor(5);
  Value self = empty({}, promote(sequence.dtype, r.call.scalar(1)));
  call_kernel("fill", {self}, {scalar(r.call.scalar(1))});
  search(out.reshape({}), sequence, self, r.tensor(4), r.call.integer(3));
}
// aclnnBucketize(self, boundaries, outInt32, right, out)
void check_bucketize(const Call& c) {
  check_sequence(c, 1, -1);
  expect_computes(c, 0);
  EXPECT(c.tensor(1).ndim == 1, "boundaries of %s are not 1-D", describe(c.tensor(1)).c_str());
  expect_same_shape(c, 0, 4);
  expect_index_out(c, c.integer(2), 4);
}
void bucketize(Run& r) { search(r.tensor(4), r.tensor(1), r.tensor(0), Value(), r.call.integer(3)); }

const Op ops[] = {
    {"aclnnSort", check_sort, sort},
    {"aclnnArgsort", check_argsort, argsort},
    {"aclnnTopk", check_topk<5>, [](Run& r) { topk(r, 5); }},
    {"aclnnTopkV2", check_topk<6>, [](Run& r) { topk(r, 6); }},
    {"aclnnUnique", check_unique1, unique1},
    {"aclnnUnique2", check_unique2, unique2},
    {"aclnnUniqueDim", check_unique_dim, unique_dim},
    {"aclnnUniqueConsecutive", check_unique_consecutive, unique_consecutive},
    {"aclnnSearchSorted", check_search_sorted, search_sorted},
    {"aclnnSearchSorteds", check_search_sorteds, search_sorteds},
    {"aclnnBucketize", check_bucketize, bucketize},
};

}  // namespace

Distinct distinct_along(const Value& self, int64_t dim, bool sorted) {
  const Groups g = groups_along(self, dim, sorted);
  Sizes sizes = self.shape();
  sizes[dim] = int64_t(g.first.size());
  const Value items = empty(sizes, self.dtype);
  call_kernel("index_select", {items, self, as_value(g.first)}, {integer(dim)});
  return {items, as_value(g.inverse), as_value(g.counts)};
}

}  // namespace cann_sim
