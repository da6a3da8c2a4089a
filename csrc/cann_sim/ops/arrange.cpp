// Rearranging whole tensors: cat, stack, permute, expand, repeat, flip, roll, split, slice, triangles, diagonals.
// Padding is in arrange_pad.cpp, repetition of single items in arrange_repeat.cpp.
#include <algorithm>

#include "ops/result.h"

namespace cann_sim {
namespace {

// ---- cat(tensors, dim, out), stack --------------------------------------------------------------------------------
// As in torch, one empty row fits tensors of any shape, and adds nothing.
bool is_joined(const TensorMeta& t) { return t.ndim != 1 || t.sizes[0] != 0; }

// Tensors of one dtype are moved whatever it is; of several, all are cast to out's.
void expect_castable_list(const Call& c, Span<TensorMeta> tensors, int out) {
  EXPECT(tensors.size() > 0, "%s is an empty list", c.row->args[0].name);
  for (const TensorMeta& t : tensors) {
    if (t.dtype == c.tensor(out).dtype) continue;
    EXPECT(can_cast(dtype_of(t.dtype), dtype_of(c.tensor(out).dtype)), "%s cannot be stored in out of %s",
           describe(t).c_str(), describe(c.tensor(out)).c_str());
  }
}
void check_cat(const Call& c) {
  Span<TensorMeta> tensors = c.tensors(0);
  expect_castable_list(c, tensors, 2);
  const TensorMeta* first = std::find_if(tensors.begin(), tensors.end(), is_joined);
  if (first == tensors.end()) return expect_numel(c, 2, 0);
  EXPECT(first->ndim > 0, "tensors without dims cannot be concatenated");
  const int64_t dim = wrap_dim(c.integer(1), first->ndim);
  std::vector<int64_t> sizes = sizes_of(*first);
  sizes[dim] = 0;
  for (const TensorMeta& t : tensors) {
    if (!is_joined(t)) continue;
    bool fits = t.ndim == first->ndim;
    for (int d = 0; fits && d < t.ndim; ++d) fits = d == dim || t.sizes[d] == first->sizes[d];
    EXPECT(fits, "%s and %s differ in more than dim %ld", describe(*first).c_str(), describe(t).c_str(), dim);
    sizes[dim] += t.sizes[dim];
  }
  expect_shape(c, 2, sizes);
}
void cat_into(const Value& out, const std::vector<Value>& tensors, int64_t dim) {
  std::vector<Value> all{out};
  all.insert(all.end(), tensors.begin(), tensors.end());
  call_kernel("cat", all, {integer(int64_t(tensors.size())), integer(dim)});
}
void cat(Run& r) { cat_into(r.tensor(2), r.tensors(0), r.call.integer(1)); }

void check_stack(const Call& c) {
  Span<TensorMeta> tensors = c.tensors(0);
  expect_castable_list(c, tensors, 2);
  std::vector<int64_t> sizes = sizes_of(tensors[0]);
  for (const TensorMeta& t : tensors)
    EXPECT(sizes_of(t) == sizes, "%s and %s differ in shape", describe(tensors[0]).c_str(), describe(t).c_str());
  sizes.insert(sizes.begin() + wrap_dim(c.integer(1), tensors[0].ndim + 1), tensors.size());
  expect_shape(c, 2, sizes);
}
void stack(Run& r) {
  std::vector<Value> tensors = r.tensors(0);
  Value out = r.tensor(2);
  const int64_t dim = wrap_dim(r.call.integer(1), out.ndim);
  for (size_t i = 0; i < tensors.size(); ++i) copy(out.select(dim, int64_t(i)), tensors[i]);
}

// ---- permute(self, dims, out), expand(self, size, out), repeat(self, repeats, out) --------------------------------
void check_permute(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  Span<int64_t> dims = c.ints(1);
  EXPECT(dims.size() == self.ndim, "%ld dims are named for %s", dims.size(), describe(self).c_str());
  std::vector<int64_t> sizes;
  uint64_t seen = 0;
  for (int64_t dim : dims) {
    const int64_t d = wrap_dim(dim, self.ndim);
    EXPECT(!(seen >> d & 1), "dim %ld is named twice", dim);
    seen |= uint64_t(1) << d;
    sizes.push_back(self.sizes[d]);
  }
  expect_shape(c, 2, sizes);
  expect_castable(c, 0, 2);
}
void permute(Run& r) {
  Span<int64_t> dims = r.call.ints(1);
  copy(r.tensor(2), r.tensor(0).permute(Sizes(dims.begin(), dims.end())));
}

void check_expand(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  Span<int64_t> size = c.ints(1);
  EXPECT(size.size() >= self.ndim, "%s does not expand to %ld dims", describe(self).c_str(), size.size());
  std::vector<int64_t> sizes(size.begin(), size.end());
  const int64_t added = size.size() - self.ndim;
  for (int64_t d = 0; d < size.size(); ++d) {
    if (sizes[d] == -1 && d >= added) sizes[d] = self.sizes[d - added];
    EXPECT(sizes[d] >= 0 && (d < added || self.sizes[d - added] == 1 || self.sizes[d - added] == sizes[d]),
           "%s does not expand to %ld at dim %ld", describe(self).c_str(), sizes[d], d);
  }
  expect_shape(c, 2, sizes);
  expect_castable(c, 0, 2);
}
void expand(Run& r) { copy(r.tensor(2), r.tensor(0)); }

void check_repeat(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  Span<int64_t> repeats = c.ints(1);
  EXPECT(repeats.size() >= self.ndim, "%ld repeats for %s", repeats.size(), describe(self).c_str());
  std::vector<int64_t> sizes(repeats.begin(), repeats.end());
  for (int64_t d = 0; d < repeats.size(); ++d) {
    EXPECT(repeats[d] >= 0, "a repeat of %ld", repeats[d]);
    const int64_t own = d - (repeats.size() - self.ndim);
    if (own >= 0) sizes[d] *= self.sizes[own];
  }
  expect_shape(c, 2, sizes);
  expect_castable(c, 0, 2);
}
void repeat(Run& r) { call_kernel("repeat", {r.tensor(2), r.tensor(0)}, {list_of(r.call, 1)}); }

// ---- flip(self, dims, out), roll(self, shifts, dims, out) ---------------------------------------------------------
void check_flip(const Call& c) {
  uint64_t seen = 0;
  for (int64_t dim : c.ints(1)) {
    const uint64_t bit = uint64_t(1) << wrap_dim(dim, c.tensor(0).ndim);
    EXPECT(!(seen & bit), "dim %ld is named twice", dim);
    seen |= bit;
  }
  expect_same_shape(c, 2, 0);
  expect_same_dtype(c, 2, 0);
}
void flip(Run& r) { call_kernel("flip", {r.tensor(2), r.tensor(0)}, {list_of(r.call, 1)}); }

void check_roll(const Call& c) {
  const int64_t shifts = c.ints(1).size(), dims = c.ints(2).size();
  EXPECT(shifts == dims || (dims == 0 && shifts == 1), "%ld shifts for %ld dims", shifts, dims);
  for (int64_t dim : c.ints(2)) wrap_dim(dim, c.tensor(0).ndim);
  expect_same_shape(c, 3, 0);
  expect_castable(c, 0, 3);
}
void roll(Run& r) { call_kernel("roll", {r.tensor(3), r.tensor(0)}, {list_of(r.call, 1), list_of(r.call, 2)}); }

// ---- splits: (self, splitSections, dim, outs), (self, splitSize, dim, outs) ---------------------------------------
void check_part(const Call& c, const TensorMeta& part, int64_t dim, int64_t size) {
  std::vector<int64_t> sizes = sizes_of(c.tensor(0));
  sizes[dim] = size;
  EXPECT(sizes_of(part) == sizes, "an output of %s where dim %ld should be %ld", describe(part).c_str(), dim, size);
  EXPECT(part.dtype == c.tensor(0).dtype, "an output of %s for self of %s", describe(part).c_str(),
         describe(c.tensor(0)).c_str());
}
void check_split(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  Span<TensorMeta> outs = c.tensors(3);
  expect_dims(c, 0);
  const int64_t dim = wrap_dim(c.integer(2), self.ndim), each = c.integer(1), n = self.sizes[dim];
  EXPECT(each > 0 || n == 0, "splitSections of %ld", each);
  const int64_t parts = n == 0 ? 1 : (n + each - 1) / each;
  EXPECT(outs.size() == parts, "%ld outputs for %ld parts", outs.size(), parts);
  for (int64_t i = 0; i < parts; ++i) check_part(c, outs[i], dim, std::min(each, n - i * each));
}
void check_split_sizes(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_dims(c, 0);
  Span<TensorMeta> outs = c.tensors(3);
  Span<int64_t> sizes = c.ints(1);
  const int64_t dim = wrap_dim(c.integer(2), self.ndim);
  int64_t total = 0;
  EXPECT(outs.size() == sizes.size(), "%ld outputs for %ld sizes", outs.size(), sizes.size());
  for (int64_t i = 0; i < sizes.size(); ++i) {
    EXPECT(sizes[i] >= 0, "a size of %ld", sizes[i]);
    check_part(c, outs[i], dim, sizes[i]);
    total += sizes[i];
  }
  EXPECT(total == self.sizes[dim], "the sizes add up to %ld, dim %ld has %ld", total, dim, self.sizes[dim]);
}
void split(Run& r) {
  Value self = r.tensor(0);
  const int64_t dim = wrap_dim(r.call.integer(2), self.ndim);
  int64_t at = 0;
  for (const Value& out : r.tensors(3)) {
    copy(out, self.narrow(dim, at, out.size(dim)));
    at += out.size(dim);
  }
}

// ---- slices: (self, dim, start, end, step, out), (self, starts, ends, axes, steps, out) ---------------------------
struct Slice {
  int64_t dim, start, length, step;
};
Slice make_slice(const TensorMeta& self, int64_t dim, int64_t start, int64_t end, int64_t step) {
  dim = wrap_dim(dim, self.ndim);
  EXPECT(self.ndim > 0, "a slice of a tensor without dims");
  EXPECT(step > 0, "a step of %ld", step);
  const int64_t n = self.sizes[dim];
  auto inside = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  start = inside(start);
  end = std::max(inside(end), start);
  return {dim, start, (end - start + step - 1) / step, step};
}
std::vector<Slice> slice_of(const Call& c) {
  return {make_slice(c.tensor(0), c.integer(1), c.integer(2), c.integer(3), c.integer(4))};
}
std::vector<Slice> slices_of(const Call& c) {
  Span<int64_t> starts = c.ints(1), ends = c.ints(2), axes = c.ints(3), steps = c.ints(4);
  EXPECT(starts.size() == ends.size() && starts.size() == axes.size() && starts.size() == steps.size(),
         "starts, ends, axes and steps have %ld, %ld, %ld and %ld items", starts.size(), ends.size(), axes.size(),
         steps.size());
  std::vector<Slice> slices;
  for (int64_t i = 0; i < starts.size(); ++i)
    slices.push_back(make_slice(c.tensor(0), axes[i], starts[i], ends[i], steps[i]));
  return slices;
}
void check_slices(const Call& c, const std::vector<Slice>& slices) {
  std::vector<int64_t> sizes = sizes_of(c.tensor(0));
  for (const Slice& s : slices) sizes[s.dim] = s.length;
  expect_shape(c, 5, sizes);
  expect_castable(c, 0, 5);
}
void copy_slices(Run& r, const std::vector<Slice>& slices) {
  Value from = r.tensor(0);
  for (const Slice& s : slices) from = from.narrow(s.dim, s.start, s.length, s.step);
  copy(r.tensor(5), from);
}

// ---- triangles: (self, diagonal, out) or (selfRef, diagonal) ------------------------------------------------------
void check_triangle(const Call& c) {
  EXPECT(c.tensor(0).ndim >= 2, "self of %s has fewer than two dims", describe(c.tensor(0)).c_str());
  expect_same_shape(c, 2, 0);
  expect_castable(c, 0, 2);
}
void triangle(Run& r, const char* kernel) {
  Value self = r.tensor(0);
  const mt::Attr diagonal = integer(r.call.integer(1));
  into(r.tensor(2), self.dtype, [&](const Value& to) { call_kernel(kernel, {to, self}, {diagonal}); });
}
void triangle_in_place(Run& r, const char* kernel) {
  Value self = r.tensor(0);
  call_kernel(kernel, {self, self}, {integer(r.call.integer(1))});
}

// ---- diagonals: (self, diagonal, out) -----------------------------------------------------------------------------
// The diagonal of a matrix as a view; above the main one when positive.
int64_t diagonal_length(const int64_t* sizes, int64_t offset) {
  const int64_t rows = sizes[0] + std::min<int64_t>(offset, 0), cols = sizes[1] - std::max<int64_t>(offset, 0);
  return std::max<int64_t>(std::min(rows, cols), 0);
}
Value diagonal_of(const Value& matrix, int64_t offset) {
  const int64_t n = diagonal_length(matrix.sizes, offset);
  Value v = matrix.narrow(offset < 0 ? 0 : 1, n ? std::abs(offset) : 0, 1);
  v.ndim = 1;
  v.sizes[0] = n;
  v.strides[0] = matrix.strides[0] + matrix.strides[1];
  return v;
}
void check_diag(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  const int64_t offset = c.integer(1);
  expect_castable(c, 0, 2);
  if (self.ndim == 1) {
    const int64_t n = self.sizes[0] + std::abs(offset);
    return expect_shape(c, 2, {n, n});
  }
  EXPECT(self.ndim == 2, "self of %s is neither a row nor a matrix", describe(self).c_str());
  expect_shape(c, 2, {diagonal_length(self.sizes, offset)});
}
void diag(Run& r) {
  Value self = r.tensor(0), out = r.tensor(2);
  const int64_t offset = r.call.integer(1);
  if (out.numel() == 0) return;
  if (self.ndim == 2) return copy(out, diagonal_of(self, offset));
  fill(out, 0);
  if (self.numel() > 0) copy(diagonal_of(out, offset), self);
}
void check_diag_flat(const Call& c) {
  const int64_t n = c.tensor(0).numel() + std::abs(c.integer(1));
  expect_shape(c, 2, {n, n});
  expect_castable(c, 0, 2);
}
void diag_flat(Run& r) {
  Value self = r.tensor(0), out = r.tensor(2);
  if (out.numel() == 0) return;
  fill(out, 0);
  if (self.numel() > 0) copy(diagonal_of(out, r.call.integer(1)), self.reshape({-1}));
}

const Op ops[] = {
    {"aclnnCat", check_cat, cat},
    {"aclnnStack", check_stack, stack},
    {"aclnnPermute", check_permute, permute},
    {"aclnnExpand", check_expand, expand},
    {"aclnnRepeat", check_repeat, repeat},
    {"aclnnFlip", check_flip, flip},
    {"aclnnRoll", check_roll, roll},
    {"aclnnSplitTensor", check_split, split},
    {"aclnnSplitWithSize", check_split_sizes, split},
    {"aclnnSlice", [](const Call& c) { check_slices(c, slice_of(c)); },
     [](Run& r) { copy_slices(r, slice_of(r.call)); }},
    {"aclnnSliceV2", [](const Call& c) { check_slices(c, slices_of(c)); },
     [](Run& r) { copy_slices(r, slices_of(r.call)); }},
    {"aclnnTril", check_triangle, [](Run& r) { triangle(r, "tril"); }},
    {"aclnnTriu", check_triangle, [](Run& r) { triangle(r, "triu"); }},
    {"aclnnInplaceTril", nullptr, [](Run& r) { triangle_in_place(r, "tril"); }},
    {"aclnnInplaceTriu", nullptr, [](Run& r) { triangle_in_place(r, "triu"); }},
    {"aclnnDiag", check_diag, diag},
    {"aclnnDiagFlat", check_diag_flat, diag_flat},
};

}  // namespace
}  // namespace cann_sim
