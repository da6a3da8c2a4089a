// Repeating single items and spreading numbers into classes: repeat_interleave and one_hot.
#include "ops/result.h"

namespace cann_sim {
namespace {

// Item i of `self` along dim, repeats[i] times. One number of repeats serves all items.
void interleave(const Value& out, const Value& self, const Value& repeats, int64_t dim) {
  if (out.numel() == 0) return;
  Value index = empty({out.size(dim)}, mt::kInt64);
  call_kernel("repeat_interleave_index", {index, repeats.expand({self.size(dim)})});
  call_kernel("index_select", {out, self, index}, {integer(dim)});
}
void expect_repeats(const Call& c, int i, int64_t items) {
  const int64_t n = c.tensor(i).numel();
  EXPECT(n == 1 || n == items, "%ld repeats for %ld items", n, items);
}
void expect_output_size(int64_t size, int64_t items, int64_t repeats) {
  EXPECT(repeats >= 0, "repeats of %ld is negative", repeats);
  EXPECT(size == items * repeats, "outputSize of %ld for %ld items, %ld times each", size, items, repeats);
}
Value one(int64_t repeats) {
  Value v = empty({1}, mt::kInt64);
  *v.ptr<int64_t>() = repeats;
  return v;
}

// aclnnRepeatInterleave(self, repeats, outputSize, out): over all items, flat
void check_flat(const Call& c) {
  expect_repeats(c, 1, c.tensor(0).numel());
  expect_shape(c, 3, {c.integer(2)});
  expect_same_dtype(c, 0, 3);
}
void flat(Run& r) { interleave(r.tensor(3), r.tensor(0).reshape({-1}), r.tensor(1), 0); }
void check_flat_int(const Call& c) {
  expect_output_size(c.integer(2), c.tensor(0).numel(), c.integer(1));
  expect_shape(c, 3, {c.integer(2)});
  expect_same_dtype(c, 0, 3);
}
void flat_int(Run& r) { interleave(r.tensor(3), r.tensor(0).reshape({-1}), one(r.call.integer(1)), 0); }

// aclnnRepeatInterleaveWithDim(self, repeats, dim, outputSize, out)
int64_t check_along(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_dims(c, 0);
  const int64_t dim = wrap_dim(c.integer(2), self.ndim);
  std::vector<int64_t> sizes = sizes_of(self);
  const int64_t items = sizes[dim];
  sizes[dim] = c.integer(3);
  expect_shape(c, 4, sizes);
  expect_same_dtype(c, 0, 4);
  return items;
}
void check_dim(const Call& c) { expect_repeats(c, 1, check_along(c)); }
void check_dim_int(const Call& c) { expect_output_size(c.integer(3), check_along(c), c.integer(1)); }
void along(Run& r, const Value& repeats) {
  Value self = r.tensor(0);
  interleave(r.tensor(4), self, repeats, wrap_dim(r.call.integer(2), self.ndim));
}

// aclnnRepeatInterleaveTensor(repeats, outputSize, out): the indices themselves
void check_indices(const Call& c) { expect_shape(c, 2, {c.integer(1)}); }
void indices(Run& r) { call_kernel("repeat_interleave_index", {r.tensor(2), r.tensor(0)}); }

// aclnnRepeatInterleaveGrad(yGrad, repeats, axis, out): the gradients of the copies are added up
void check_grad(const Call& c) {
  const TensorMeta& grad = c.tensor(0);
  expect_dims(c, 0);
  const int64_t axis = wrap_dim(c.integer(2), grad.ndim);
  std::vector<int64_t> sizes = sizes_of(grad);
  EXPECT(c.tensor(3).ndim == grad.ndim, "out of %s for yGrad of %s", describe(c.tensor(3)).c_str(),
         describe(grad).c_str());
  sizes[axis] = c.tensor(3).sizes[axis];
  expect_shape(c, 3, sizes);
  expect_repeats(c, 1, sizes[axis]);
  expect_computes(c, 0);
  expect_castable(c, 0, 3);
}
void grad(Run& r) {
  Value from = r.tensor(0), out = r.tensor(3);
  const int64_t axis = wrap_dim(r.call.integer(2), from.ndim);
  Value index = empty({from.size(axis)}, mt::kInt64), sum = full(out.shape(), opmath(from.dtype), 0);
  call_kernel("repeat_interleave_index", {index, r.tensor(1).expand({out.size(axis)})});
  call_kernel("index_add", {sum, index, from.to(sum.dtype)}, {integer(axis)});
  copy(out, sum);
}

// aclnnOneHot(self, numClasses, onValue, offValue, axis, out): a number outside of the classes is off everywhere
void check_one_hot(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  EXPECT(c.integer(1) >= 0, "numClasses of %ld is negative", c.integer(1));
  expect_numel(c, 2, 1);
  expect_numel(c, 3, 1);
  expect_same_dtype(c, 2, 5);
  expect_same_dtype(c, 3, 5);
  std::vector<int64_t> sizes = sizes_of(self);
  sizes.insert(sizes.begin() + wrap_dim(c.integer(4), self.ndim + 1), c.integer(1));
  expect_shape(c, 5, sizes);
}
void one_hot(Run& r) {
  Value out = r.tensor(5), classes = empty({r.call.integer(1)}, mt::kInt64);
  if (out.numel() == 0) return;
  const int64_t axis = wrap_dim(r.call.integer(4), out.ndim);
  for (int64_t i = 0; i < classes.sizes[0]; ++i) classes.ptr<int64_t>()[i] = i;
  while (classes.ndim < out.ndim - axis) classes = classes.unsqueeze(classes.ndim);
  Value on = empty(out.shape(), mt::kBool);
  call_pointwise("eq", mt::kInt64, {on, r.tensor(0).unsqueeze(axis), classes});
  call_pointwise("where", out.dtype, {out, on, r.tensor(2).reshape({}), r.tensor(3).reshape({})});
}

const Op ops[] = {
    {"aclnnRepeatInterleave", check_flat, flat},
    {"aclnnRepeatInterleaveInt", check_flat_int, flat_int},
    {"aclnnRepeatInterleaveWithDim", check_dim, [](Run& r) { along(r, r.tensor(1)); }},
    {"aclnnRepeatInterleaveIntWithDim", check_dim_int, [](Run& r) { along(r, one(r.call.integer(1))); }},
    {"aclnnRepeatInterleaveTensor", check_indices, indices},
    {"aclnnRepeatInterleaveGrad", check_grad, grad},
    {"aclnnOneHot", check_one_hot, one_hot},
};

}  // namespace
}  // namespace cann_sim
