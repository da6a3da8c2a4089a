// Reading and writing at indices: gather, index_select, take, put, advanced indexing. Writing along one dim is in
// scatter.cpp, table lookups are in index_embedding.cpp.
#include <algorithm>

#include "ops/result.h"

namespace cann_sim {
namespace {

// ---- aclnnGather(self, dim, index, out) ---------------------------------------------------------------------------
void check_gather(const Call& c) {
  const TensorMeta &self = c.tensor(0), &index = c.tensor(2);
  const int64_t dim = wrap_dim(c.integer(1), self.ndim);
  EXPECT(std::max(index.ndim, 1) == std::max(self.ndim, 1) || index.numel() == 0, "index of %s for self of %s",
         describe(index).c_str(), describe(self).c_str());
  for (int d = 0; d < std::min(self.ndim, index.ndim); ++d)
    EXPECT(d == dim || index.sizes[d] <= self.sizes[d], "index of %s is larger than self of %s at dim %d",
           describe(index).c_str(), describe(self).c_str(), d);
  expect_same_shape(c, 3, 2);
  expect_same_dtype(c, 3, 0);
}
void gather(Run& r) {
  if (r.call.tensor(2).numel() == 0) return;
  const Value self = r.tensor(0), index = index_value(r, 2).dense(), made = empty(index.shape(), mt::kInt64);
  const int64_t dim = wrap_dim(r.call.integer(1), self.ndim), size = self.ndim ? self.sizes[dim] : 1;
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {  // a negative index counts from the end
    const int64_t at = index.ptr<int64_t>()[i];
    made.ptr<int64_t>()[i] = at < 0 ? at + size : at;
  }
  call_kernel("gather", {r.tensor(3), self, made}, {integer(dim)});
}

// ---- aclnnIndexSelect(self, dim, index, out); aclnnGatherV2 alike, with an index of any rank ---------------------
// The sizes of self where the dims of index stand in the place of one dim.
std::vector<int64_t> selected_sizes(const TensorMeta& self, int64_t dim, const TensorMeta& index) {
  std::vector<int64_t> sizes(self.sizes, self.sizes + dim);
  sizes.insert(sizes.end(), index.sizes, index.sizes + index.ndim);
  if (dim < self.ndim) sizes.insert(sizes.end(), self.sizes + dim + 1, self.sizes + self.ndim);
  return sizes;
}
void check_index_select(const Call& c) {
  const TensorMeta &self = c.tensor(0), &index = c.tensor(2);
  EXPECT(index.ndim <= 1, "index of %s has more than one dim", describe(index).c_str());
  const int64_t dim = wrap_dim(c.integer(1), self.ndim);
  std::vector<int64_t> sizes = sizes_of(self);
  if (self.ndim > 0) sizes[dim] = index.numel();
  else EXPECT(index.numel() == 1, "index of %s for a self without dims", describe(index).c_str());
  expect_shape(c, 3, sizes);
  expect_same_dtype(c, 3, 0);
}
void index_select(Run& r) {
  Value out = r.tensor(3);
  if (out.numel() == 0) return;
  call_kernel("index_select", {out, r.tensor(0), r.tensor(2)}, {integer(r.call.integer(1))});
}
void check_gather_v2(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_shape(c, 3, selected_sizes(self, wrap_dim(c.integer(1), self.ndim), c.tensor(2)));
  expect_same_dtype(c, 3, 0);
}
// Along a dim by a 1-D index, then under the shape of the index.
void select_shaped(const Value& out, const Value& self, int64_t dim, const Value& index) {
  const Value from = self.ndim ? self : self.reshape({1});
  Sizes sizes = from.shape();
  sizes[dim] = index.numel();
  Value rows = empty(sizes, self.dtype);
  call_kernel("index_select", {rows, from, index.reshape({-1})}, {integer(dim)});
  copy(out, rows.reshape(out.shape()));
}
void gather_v2(Run& r) {
  Value self = r.tensor(0), out = r.tensor(3);
  if (out.numel() == 0) return;
  select_shaped(out, self, wrap_dim(r.call.integer(1), self.ndim), r.tensor(2));
}
// aclnnGatherV3(self, dim, index, batchDims, mode, out): the first batchDims dims of self and index go together
void check_gather_v3(const Call& c) {
  const TensorMeta &self = c.tensor(0), &index = c.tensor(2);
  const int64_t dim = wrap_dim(c.integer(1), self.ndim), batch = c.integer(3);
  EXPECT(batch >= 0 && batch <= dim && batch <= index.ndim, "batchDims of %ld for dim %ld", batch, dim);
  for (int64_t d = 0; d < batch; ++d)
    EXPECT(self.sizes[d] == index.sizes[d], "%s and %s differ in batch dim %ld", describe(self).c_str(),
           describe(index).c_str(), d);
  std::vector<int64_t> sizes(self.sizes, self.sizes + dim);
  sizes.insert(sizes.end(), index.sizes + batch, index.sizes + index.ndim);
  if (dim < self.ndim) sizes.insert(sizes.end(), self.sizes + dim + 1, self.sizes + self.ndim);
  expect_shape(c, 5, sizes);
  expect_same_dtype(c, 5, 0);
}
void gather_batches(const Value& out, const Value& self, int64_t dim, const Value& index, int64_t batch) {
  if (batch == 0) return select_shaped(out, self, dim, index);
  for (int64_t i = 0; i < self.sizes[0]; ++i)
    gather_batches(out.select(0, i), self.select(0, i), dim - 1, index.select(0, i), batch - 1);
}
void gather_v3(Run& r) {
  Value self = r.tensor(0), out = r.tensor(5);
  if (out.numel() == 0) return;
  gather_batches(out, self, wrap_dim(r.call.integer(1), self.ndim), r.tensor(2), r.call.integer(3));
}

// ---- aclnnTake(self, index, out), aclnnInplacePut(selfRef, index, source, accumulate) -----------------------------
void check_take(const Call& c) {
  EXPECT(c.tensor(0).numel() > 0 || c.tensor(1).numel() == 0, "self of %s holds no items",
         describe(c.tensor(0)).c_str());
  expect_same_shape(c, 2, 1);
  expect_same_dtype(c, 2, 0);
}
void take(Run& r) {
  if (r.call.tensor(1).numel() == 0) return;
  call_kernel("take", {r.tensor(2), r.tensor(0), index_value(r, 1)});
}
void check_put(const Call& c) {
  expect_numel(c, 2, c.tensor(1).numel());
  expect_same_dtype(c, 2, 0);
}
void put(Run& r) {
  if (r.call.tensor(1).numel() == 0) return;
  call_kernel("put", {r.tensor(0), r.tensor(1), r.tensor(2)}, {integer(r.call.integer(3))});
}

// ---- advanced indexing --------------------------------------------------------------------------------------------
// Clients pass a tensor without items for a dim that is not indexed. Where all are without items, an index of nothing
// was meant, and nothing is read or written.
bool is_indexed(const TensorMeta& t) { return t.given() && t.numel() > 0; }
bool any_indexed(Span<TensorMeta> indices) { return std::any_of(indices.begin(), indices.end(), is_indexed); }

// Masks take as many dims as they have, and their shape is known only when they were read.
bool is_mask(const TensorMeta& t) { return t.given() && t.dtype == ACL_BOOL; }
bool has_mask(Span<TensorMeta> indices) { return std::any_of(indices.begin(), indices.end(), is_mask); }

// The shape that self has under its indices: their common shape stands where the first of them stood when they are
// neighbours, else first.
std::vector<int64_t> indexed_sizes(const TensorMeta& self, Span<TensorMeta> indices) {
  std::vector<int64_t> common;
  int64_t first = -1, last = -1, given = 0;
  for (int64_t i = 0; i < indices.size(); ++i) {
    if (!is_indexed(indices[i])) continue;
    common = broadcast_sizes(common, sizes_of(indices[i]));
    if (first < 0) first = i;
    last = i;
    ++given;
  }
  const int64_t place = last - first + 1 == given ? first : 0;
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < self.ndim; ++d)
    if (d >= indices.size() || !is_indexed(indices[d])) sizes.push_back(self.sizes[d]);
  sizes.insert(sizes.begin() + place, common.begin(), common.end());
  return sizes;
}

void check_indices(const Call& c, Span<TensorMeta> indices) {
  int64_t dims = 0;
  for (const TensorMeta& t : indices) dims += is_mask(t) ? t.ndim : 1;
  EXPECT(dims <= c.tensor(0).ndim, "%ld dims are indexed of %s", dims, describe(c.tensor(0)).c_str());
}

// The indices as the kernels want them: int64, absent where a dim is not indexed, masks as the places of their trues.
std::vector<Value> index_values(Run& r, int i) {
  std::vector<Value> made;
  for (const TensorMeta& meta : r.call.tensors(i)) {
    if (!is_indexed(meta)) {
      made.emplace_back();
      continue;
    }
    Value v = r.value(meta);
    if (v.dtype != mt::kBool) {
      made.push_back(v.to(mt::kInt64));
      continue;
    }
    Value count = empty({}, mt::kInt64);
    call_kernel("count_true", {count, v});
    Value places = empty({*count.ptr<int64_t>(), v.ndim}, mt::kInt64);
    call_kernel("nonzero", {places, v});
    for (int d = 0; d < v.ndim; ++d) made.push_back(places.select(1, d));
  }
  return made;
}

// aclnnIndex(self, indices, out)
void check_index(const Call& c) {
  check_indices(c, c.tensors(1));
  Span<TensorMeta> indices = c.tensors(1);
  if (any_indexed(indices) && !has_mask(indices)) expect_shape(c, 2, indexed_sizes(c.tensor(0), indices));
  expect_same_dtype(c, 2, 0);
}
void index(Run& r) {
  if (r.call.tensor(2).numel() == 0) return;
  std::vector<Value> all{r.tensor(2), r.tensor(0)}, indices = index_values(r, 1);
  all.insert(all.end(), indices.begin(), indices.end());
  call_kernel("index", all, {integer(int64_t(indices.size()))});
}

// aclnnIndexPutImpl(selfRef, indices, values, accumulate, unsafe)
void check_index_put(const Call& c) {
  check_indices(c, c.tensors(1));
  expect_same_dtype(c, 2, 0);
  if (!any_indexed(c.tensors(1)) || has_mask(c.tensors(1))) return;
  const std::vector<int64_t> sizes = indexed_sizes(c.tensor(0), c.tensors(1));
  EXPECT(broadcast_sizes(sizes, sizes_of(c.tensor(2))) == sizes, "values of %s do not broadcast to the indexed items",
         describe(c.tensor(2)).c_str());
}
void index_put(Run& r) {
  if (!any_indexed(r.call.tensors(1)) || r.call.tensor(0).numel() == 0 || r.call.tensor(2).numel() == 0) return;
  std::vector<Value> all{r.tensor(0), r.tensor(2)}, indices = index_values(r, 1);
  if (has_mask(r.call.tensors(1))) {  // whose places are known only now
    std::vector<TensorMeta> places(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i].given() && !indices[i].numel()) return;
      places[i].ndim = indices[i].ndim;
      std::copy_n(indices[i].sizes, std::max(indices[i].ndim, 0), places[i].sizes);
    }
    const std::vector<int64_t> sizes = indexed_sizes(r.call.tensor(0), {places.data(), int64_t(places.size())});
    EXPECT(broadcast_sizes(sizes, sizes_of(r.call.tensor(2))) == sizes, "values of %s do not broadcast to the indexed items",
           describe(r.call.tensor(2)).c_str());
  }
  all.insert(all.end(), indices.begin(), indices.end());
  call_kernel("index_put", all, {integer(int64_t(indices.size())), integer(r.call.integer(3))});
}

// ---- indices whose last dim names a place: gather_nd(self, indices, negative, out), scatter_nd --------------------
// The shape of the items at those places.
std::vector<int64_t> nd_sizes(const TensorMeta& self, const TensorMeta& indices) {
  EXPECT(indices.ndim > 0, "indices has no dims");
  const int64_t depth = indices.sizes[indices.ndim - 1];
  EXPECT(depth <= self.ndim, "places of %ld dims in %s", depth, describe(self).c_str());
  std::vector<int64_t> sizes(indices.sizes, indices.sizes + indices.ndim - 1);
  sizes.insert(sizes.end(), self.sizes + depth, self.sizes + self.ndim);
  return sizes;
}
std::vector<Value> nd_indices(const Value& indices) {
  std::vector<Value> made;
  for (int64_t d = 0; d < indices.size(-1); ++d) made.push_back(indices.select(-1, d).to(mt::kInt64));
  return made;
}
void check_gather_nd(const Call& c) {
  expect_shape(c, 3, nd_sizes(c.tensor(0), c.tensor(1)));
  expect_same_dtype(c, 3, 0);
}
void gather_nd(Run& r) {
  Value out = r.tensor(3), self = r.tensor(0);
  if (out.numel() == 0) return;
  std::vector<Value> all{out, self}, indices = nd_indices(r.tensor(1));
  if (indices.empty()) return copy(out, self);
  all.insert(all.end(), indices.begin(), indices.end());
  call_kernel("index", all, {integer(int64_t(indices.size()))});
}
void check_scatter_nd(const Call& c) {
  expect_shape(c, 2, nd_sizes(c.tensor(0), c.tensor(1)));
  expect_same_dtype(c, 2, 0);
}
void check_scatter_nd_out(const Call& c) {
  check_scatter_nd(c);
  expect_same_shape(c, 3, 0);
  expect_same_dtype(c, 3, 0);
}
void put_nd(const Value& self, const Value& places, const Value& updates) {
  if (updates.numel() == 0) return;
  std::vector<Value> all{self, updates}, indices = nd_indices(places);
  if (indices.empty()) return copy(self, updates);
  all.insert(all.end(), indices.begin(), indices.end());
  call_kernel("index_put", all, {integer(int64_t(indices.size())), integer(0)});
}
void scatter_nd(Run& r) {
  copy(r.tensor(3), r.tensor(0));
  put_nd(r.tensor(3), r.tensor(1), r.tensor(2));
}

const Op ops[] = {
    {"aclnnGather", check_gather, gather},
    {"aclnnIndexSelect", check_index_select, index_select},
    {"aclnnGatherV2", check_gather_v2, gather_v2},
    {"aclnnGatherV3", check_gather_v3, gather_v3},
    {"aclnnTake", check_take, take},
    {"aclnnInplacePut", check_put, put},
    {"aclnnIndex", check_index, index},
    {"aclnnIndexPutImpl", check_index_put, index_put},
    {"aclnnGatherNd", check_gather_nd, gather_nd},
    {"aclnnScatterNd", check_scatter_nd_out, scatter_nd},
    {"aclnnScatterNdUpdate", check_scatter_nd, [](Run& r) { put_nd(r.tensor(0), r.tensor(1), r.tensor(2)); }},
};

}  // namespace
}  // namespace cann_sim
