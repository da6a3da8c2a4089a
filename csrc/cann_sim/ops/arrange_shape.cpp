// Moving items between shapes: flatten, channel_shuffle, chunk_cat, strided slices, the gradient of unfold.
#include <algorithm>

#include "ops/result.h"

namespace cann_sim {
namespace {

int64_t product(const int64_t* first, const int64_t* last) {
  int64_t n = 1;
  while (first != last) n *= *first++;
  return n;
}

// ---- aclnnFlatten(self, axis, out): the dims before the axis, and the rest ----------------------------------------
void check_flatten(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  const int64_t axis = c.integer(1) == self.ndim ? self.ndim : wrap_dim(c.integer(1), self.ndim);
  expect_shape(c, 2, {product(self.sizes, self.sizes + axis), product(self.sizes + axis, self.sizes + self.ndim)});
  expect_same_dtype(c, 2, 0);
}
void flatten(Run& r) { copy(r.tensor(2), r.tensor(0).reshape(r.tensor(2).shape())); }

// ---- aclnnChannelShuffle(self, groups, out) -----------------------------------------------------------------------
void check_shuffle(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  EXPECT(self.ndim >= 3, "self of %s has fewer than three dims", describe(self).c_str());
  EXPECT(c.integer(1) > 0 && self.sizes[1] % c.integer(1) == 0, "%ld channels in %ld groups", self.sizes[1],
         c.integer(1));
  expect_same_shape(c, 2, 0);
  expect_same_dtype(c, 2, 0);
}
void shuffle(Run& r) {
  Value self = r.tensor(0), out = r.tensor(2);
  Sizes sizes = self.shape();
  sizes[1] /= r.call.integer(1);
  sizes.insert(sizes.begin() + 1, r.call.integer(1));
  copy(out, self.reshape(sizes).transpose(1, 2).reshape(out.shape()));
}

// ---- aclnnConfusionTranspose(x, perm, shape, transposeFirst, out): a permute and a reshape, in either order -------
void check_confusion(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  Span<int64_t> perm = c.ints(1), shape = c.ints(2);
  const bool first = c.integer(3);
  EXPECT(perm.size() == (first ? x.ndim : shape.size()), "perm names %ld dims", perm.size());
  EXPECT(product(shape.begin(), shape.end()) == x.numel(), "shape does not hold the %ld items of x", x.numel());
  uint64_t seen = 0;
  std::vector<int64_t> sizes;
  for (int64_t dim : perm) {
    const int64_t d = wrap_dim(dim, perm.size());
    EXPECT(!(seen >> d & 1), "dim %ld is named twice", dim);
    seen |= uint64_t(1) << d;
    if (!first) sizes.push_back(shape[d]);
  }
  if (first) sizes.assign(shape.begin(), shape.end());
  expect_shape(c, 4, sizes);
  expect_same_dtype(c, 4, 0);
}
void confusion(Run& r) {
  Span<int64_t> perm = r.call.ints(1), shape = r.call.ints(2);
  const Sizes order(perm.begin(), perm.end()), sizes(shape.begin(), shape.end());
  Value x = r.tensor(0);
  copy(r.tensor(4), r.call.integer(3) ? x.permute(order).reshape(sizes) : x.reshape(sizes).permute(order));
}

// ---- aclnnChunkCat(tensors, dim, numChunks, out) ------------------------------------------------------------------
// Every tensor is cut along dim into numChunks chunks, the last ones padded with zeros; chunk i of all of them, flat,
// makes row i of the output.
int64_t chunk_items(const TensorMeta& t, int64_t dim, int64_t chunks) {
  return (t.sizes[dim] + chunks - 1) / chunks * product(t.sizes + dim + 1, t.sizes + t.ndim);
}
void check_chunk_cat(const Call& c) {
  Span<TensorMeta> tensors = c.tensors(0);
  const int64_t chunks = c.integer(2);
  EXPECT(tensors.size() > 0, "tensors is an empty list");
  EXPECT(chunks > 0, "numChunks of %ld is not positive", chunks);
  const int64_t dim = wrap_dim(c.integer(1), tensors[0].ndim);
  std::vector<int64_t> sizes(tensors[0].sizes, tensors[0].sizes + dim);
  int64_t width = 0;
  for (const TensorMeta& t : tensors) {
    EXPECT(t.ndim > dim && std::equal(sizes.begin(), sizes.end(), t.sizes), "%s and %s differ before dim %ld",
           describe(tensors[0]).c_str(), describe(t).c_str(), dim);
    EXPECT(t.dtype == tensors[0].dtype, "%s and %s differ in dtype", describe(tensors[0]).c_str(), describe(t).c_str());
    width += chunk_items(t, dim, chunks);
  }
  sizes.insert(sizes.end(), {chunks, width});
  expect_shape(c, 3, sizes);
}
void chunk_cat(Run& r) {
  Value out = r.tensor(3);
  const int64_t chunks = r.call.integer(2), dim = wrap_dim(r.call.integer(1), r.call.tensors(0)[0].ndim);
  int64_t at = 0, i = 0;
  for (const Value& t : r.tensors(0)) {
    const int64_t width = chunk_items(r.call.tensors(0)[i++], dim, chunks);
    Sizes padded = t.shape(), rows(t.sizes, t.sizes + dim);
    padded[dim] = (t.size(dim) + chunks - 1) / chunks * chunks;
    rows.insert(rows.end(), {chunks, width});
    Value whole = full(padded, t.dtype, 0);
    copy(whole.narrow(dim, 0, t.size(dim)), t);
    copy(out.narrow(-1, at, width), whole.reshape(rows));
    at += width;
  }
}

// ---- aclnnUnfoldGrad(gradOut, inputSizes, dim, size, step, gradIn) ------------------------------------------------
void check_unfold_grad(const Call& c) {
  Span<int64_t> input = c.ints(1);
  const int64_t dim = wrap_dim(c.integer(2), input.size()), size = c.integer(3), step = c.integer(4);
  EXPECT(step > 0 && size > 0, "windows of %ld, %ld apart", size, step);
  expect_shape(c, 5, {input.begin(), input.end()});
  std::vector<int64_t> sizes(input.begin(), input.end());
  if (!sizes.empty()) {
    EXPECT(sizes[dim] >= size, "windows of %ld in a dim of %ld items", size, sizes[dim]);
    sizes[dim] = (sizes[dim] - size) / step + 1;
  }
  sizes.push_back(size);
  expect_shape(c, 0, sizes);
  expect_castable(c, 0, 5);
}
void unfold_grad(Run& r) {
  call_kernel("unfold_backward", {r.tensor(5), r.tensor(0)}, {list_of(r.call, 1), integer(r.call.integer(2)),
                                                              integer(r.call.integer(3)), integer(r.call.integer(4))});
}

// ---- strided slices -----------------------------------------------------------------------------------------------
// One dim from begin to before end, counted from the end when negative; a negative stride walks backwards.
struct Range {
  int64_t start, length, stride;
};
Range make_range(int64_t n, int64_t begin, int64_t end, int64_t stride, bool whole_begin, bool whole_end) {
  EXPECT(stride != 0, "a stride of 0");
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? n : n - 1;
  auto inside = [&](int64_t i) { return std::clamp(i < 0 ? i + n : i, low, high); };
  begin = whole_begin ? (stride > 0 ? low : high) : inside(begin);
  end = whole_end ? (stride > 0 ? high : low) : inside(end);
  const int64_t length = stride > 0 ? (end - begin + stride - 1) / stride : (begin - end - stride - 1) / -stride;
  return {begin, std::max<int64_t>(length, 0), stride};
}

// aclnnStridedSlice(self, begin, end, strides, beginMask, endMask, ellipsisMask, newAxisMask, shrinkAxisMask, out)
// in TensorFlow's reading: bit i of a mask is about entry i of the lists. A value of no memory serves the check.
Value strided_view(const Call& c, Value v) {
  Span<int64_t> begin = c.ints(1), end = c.ints(2), strides = c.ints(3);
  EXPECT(begin.size() == end.size() && begin.size() == strides.size(),
         "begin, end and strides have %ld, %ld and %ld items", begin.size(), end.size(), strides.size());
  auto bit = [&](int mask, int64_t i) { return c.integer(mask) >> i & 1; };
  int64_t named = 0, at = 0;
  for (int64_t i = 0; i < begin.size(); ++i) named += !bit(6, i) && !bit(7, i);
  EXPECT(named <= v.ndim, "%ld dims are named of %d", named, v.ndim);
  for (int64_t i = 0; i < begin.size(); ++i) {
    if (bit(6, i)) {
      at += v.ndim - at - std::min<int64_t>(named, v.ndim - at);
    } else if (bit(7, i)) {
      v = v.unsqueeze(at++);
    } else if (bit(8, i)) {
      const int64_t n = v.size(at), index = begin[i] < 0 ? begin[i] + n : begin[i];
      EXPECT(index >= 0 && index < n, "index %ld is out of range for a dim of %ld items", begin[i], n);
      v = v.select(at, index);
      --named;
    } else {
      const Range s = make_range(v.size(at), begin[i], end[i], strides[i], bit(4, i), bit(5, i));
      v = v.narrow(at++, s.length ? s.start : 0, s.length, s.stride);
      --named;
    }
  }
  return v;
}
Value shape_of(const TensorMeta& t) {
  Value v;
  v.ndim = t.ndim;
  std::copy_n(t.sizes, t.ndim, v.sizes);
  std::fill_n(v.strides, t.ndim, 0);
  return v;
}
void check_strided(const Call& c) {
  expect_shape(c, 9, strided_view(c, shape_of(c.tensor(0))).shape());
  expect_same_dtype(c, 9, 0);
}
void strided(Run& r) { copy(r.tensor(9), strided_view(r.call, r.tensor(0))); }

// aclnnStridedSliceAssignV2(varRef, inputValue, begin, end, strides, axes?)
Value assigned_view(const Call& c, Value v) {
  Span<int64_t> begin = c.ints(2), end = c.ints(3), strides = c.ints(4), axes = c.ints(5);
  EXPECT(begin.size() == end.size() && begin.size() == strides.size() &&
             (axes.size() == 0 || axes.size() == begin.size()),
         "begin, end, strides and axes have %ld, %ld, %ld and %ld items", begin.size(), end.size(), strides.size(),
         axes.size());
  for (int64_t i = 0; i < begin.size(); ++i) {
    const int64_t dim = wrap_dim(axes.size() ? axes[i] : i, v.ndim);
    const Range s = make_range(v.size(dim), begin[i], end[i], strides[i], false, false);
    v = v.narrow(dim, s.length ? s.start : 0, s.length, s.stride);
  }
  return v;
}
void check_assign(const Call& c) {
  expect_dims(c, 0);
  expect_shape(c, 1, assigned_view(c, shape_of(c.tensor(0))).shape());
  expect_same_dtype(c, 1, 0);
}
void assign(Run& r) { copy(assigned_view(r.call, r.tensor(0)), r.tensor(1)); }

const Op ops[] = {
    {"aclnnFlatten", check_flatten, flatten},
    {"aclnnChannelShuffle", check_shuffle, shuffle},
    {"aclnnConfusionTranspose", check_confusion, confusion},
    {"aclnnChunkCat", check_chunk_cat, chunk_cat},
    {"aclnnUnfoldGrad", check_unfold_grad, unfold_grad},
    {"aclnnStridedSlice", check_strided, strided},
    {"aclnnStridedSliceAssignV2", check_assign, assign},
};

}  // namespace
}  // namespace cann_sim
