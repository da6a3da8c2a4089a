// Choosing items by a mask: masked_fill, masked_select, masked_scatter, nonzero.
#include "ops/result.h"

namespace cann_sim {
namespace {

// The mask broadcasts to the tensor it is for.
void expect_mask(const Call& c, int mask, int self) {
  const std::vector<int64_t> sizes = sizes_of(c.tensor(self));
  EXPECT(broadcast_sizes(sizes, sizes_of(c.tensor(mask))) == sizes, "mask of %s does not broadcast to %s",
         describe(c.tensor(mask)).c_str(), describe(c.tensor(self)).c_str());
}

// aclnnInplaceMaskedFillScalar(selfRef, mask, value), ...Tensor with a value of one item
void check_fill(const Call& c) { expect_mask(c, 1, 0); }
void fill_scalar(Run& r) { call_kernel("masked_fill", {r.tensor(0), r.tensor(1)}, {scalar(r.call.scalar(2))}); }
void check_fill_tensor(const Call& c) {
  expect_mask(c, 1, 0);
  expect_numel(c, 2, 1);
  expect_castable(c, 2, 0);
}
void fill_tensor(Run& r) {
  Value self = r.tensor(0);
  call_pointwise("where", self.dtype, {self, r.tensor(1), r.tensor(2).reshape({}).to(self.dtype), self});
}

// aclnnInplaceMaskedScatter(selfRef, mask, source)
void check_scatter(const Call& c) {
  expect_mask(c, 1, 0);
  expect_same_dtype(c, 0, 2);
}
void scatter(Run& r) {
  Value self = r.tensor(0);
  call_kernel("masked_scatter", {self, r.tensor(1).expand(self.shape()), r.tensor(2)});
}

int64_t count_true(const Value& v) {
  Value count = empty({}, mt::kInt64);
  call_kernel("count_true", {count, v});
  return *count.ptr<int64_t>();
}

// aclnnMaskedSelect(self, mask, out): out has room for every item
void check_select(const Call& c) {
  const std::vector<int64_t> sizes = broadcast_sizes(sizes_of(c.tensor(0)), sizes_of(c.tensor(1)));
  int64_t numel = 1;
  for (int64_t n : sizes) numel *= n;
  EXPECT(c.tensor(2).ndim == 1 && c.tensor(2).numel() >= numel, "out of %s has no room for %ld items",
         describe(c.tensor(2)).c_str(), numel);
  expect_same_dtype(c, 0, 2);
}
void select(Run& r) {
  Value self = r.tensor(0), mask = r.tensor(1);
  const Sizes sizes = broadcast_sizes(self.shape(), mask.shape());
  mask = mask.expand(sizes).dense();
  call_kernel("masked_select", {found_part(r, 2, {count_true(mask)}), self.expand(sizes), mask});
}

// aclnnNonzero(self, out): a row of indices for each; aclnnNonzeroV2 gives a column
void check_nonzero(const Call& c, int rows, int columns) {
  const TensorMeta &self = c.tensor(0), &out = c.tensor(1);
  const int64_t room = self.ndim ? self.numel() : 0;  // places without coordinates take no room
  EXPECT(out.ndim == 2 && out.sizes[rows] >= room && out.sizes[columns] == self.ndim,
         "out of %s has no room for the places of %s", describe(out).c_str(), describe(self).c_str());
}
void nonzero(Run& r) {
  Value self = r.tensor(0);
  call_kernel("nonzero", {found_part(r, 1, {count_true(self), self.ndim}), self});
}
void nonzero_columns(Run& r) {
  Value self = r.tensor(0);
  const int64_t n = count_true(self);
  Value places = empty({n, self.ndim}, mt::kInt64);
  call_kernel("nonzero", {places, self});
  copy(found_part(r, 1, {self.ndim, n}), places.transpose(0, 1));
}

const Op ops[] = {
    {"aclnnInplaceMaskedFillScalar", check_fill, fill_scalar},
    {"aclnnInplaceMaskedFillTensor", check_fill_tensor, fill_tensor},
    {"aclnnInplaceMaskedScatter", check_scatter, scatter},
    {"aclnnMaskedSelect", check_select, select},
    {"aclnnNonzero", [](const Call& c) { check_nonzero(c, 0, 1); }, nonzero},
    {"aclnnNonzeroV2", [](const Call& c) { check_nonzero(c, 1, 0); }, nonzero_columns},
};

}  // namespace
}  // namespace cann_sim
