// Reductions that add, multiply, count or choose: sum, mean, prod, all, any, the extremes and their places.
// Moments and norms are in reduce_moments.cpp, what needs whole rows is in reduce_rows.cpp.
#include "ops/reduce.h"

namespace cann_sim {
namespace {

// Most rows read (self, dims, keepdim, ..., out); these are the places of the first three.
constexpr int kSelf = 0, kDims = 1, kKeepdim = 2;

template <int... outs> void check_shapes(const Call& c) {
  const TensorMeta& self = c.tensor(kSelf);
  const uint64_t mask = dim_mask(c.ints(kDims), self.ndim);
  expect_computes(c, kSelf);
  (expect_reduced(c, outs, self, mask, c.integer(kKeepdim)), ...);
}
template <int... outs> void check_extreme(const Call& c) {
  check_shapes<outs...>(c);
  expect_items(c.tensor(kSelf), dim_mask(c.ints(kDims), c.tensor(kSelf).ndim));
  (expect_castable(c, kSelf, outs), ...);
}

void expect_stored(const Call& c, DType computed, int out) {
  const DType to = dtype_of(c.tensor(out).dtype);
  EXPECT(computed == to || can_cast(computed, to), "a result of %s cannot be stored in %s of %s",
         mt::dtype_name(computed), c.row->args[out].name, mt::dtype_name(to));
}

// ---- sums and means: (self, dims, keepdim, dtype, out) ------------------------------------------------------------
void check_sum(const Call& c) {
  check_shapes<4>(c);
  expect_stored(c, asked_dtype(c, 3, 4), 4);
}
void fold(Run& r, const char* kernel, int out, DType dtype) {
  const mt::Attr dims = list_of(r.call, kDims);
  into(r.tensor(out), dtype, [&](const Value& to) { call_kernel(kernel, {to, r.tensor(kSelf)}, {dims}); });
}
void sum(Run& r, const char* kernel) { fold(r, kernel, 4, asked_dtype(r.call, 3, 4)); }
// Kernels have no mean of integers: it is that of doubles.
DType mean_dtype(DType d) { return mt::is_integral(d) ? mt::kDouble : d; }
void mean(Run& r) { fold(r, "mean", 4, mean_dtype(asked_dtype(r.call, 3, 4))); }

// A reduction over no dims that is to do nothing: (self, dims, keepdim, noop, out).
bool is_noop(const Call& c) { return c.integer(3) && c.ints(kDims).size() == 0; }
void check_noop(const Call& c) {
  if (is_noop(c)) expect_same_shape(c, kSelf, 4);
  else check_shapes<4>(c);
  expect_castable(c, kSelf, 4);
}
void mean_or_nothing(Run& r) {
  if (is_noop(r.call)) return copy(r.tensor(4), r.tensor(kSelf));
  fold(r, "mean", 4, mean_dtype(r.tensor(kSelf).dtype));
}
void max_or_nothing(Run& r) {
  if (is_noop(r.call)) return copy(r.tensor(4), r.tensor(kSelf));
  fold(r, "amax", 4, r.tensor(kSelf).dtype);
}
void check_max_or_nothing(const Call& c) {
  check_noop(c);
  if (!is_noop(c)) expect_items(c.tensor(kSelf), dim_mask(c.ints(kDims), c.tensor(kSelf).ndim));
}
// log of the sum, computed in float.
void log_sum_or_nothing(Run& r) {
  Value out = r.tensor(4), self = r.tensor(kSelf), total = out;
  if (!is_noop(r.call)) {
    total = empty(out.shape(), opmath(self.dtype));
    call_kernel("sum", {total, self}, {list_of(r.call, kDims)});
  } else {
    total = self;
  }
  call_pointwise("log", opmath(self.dtype), {out, total});
}

// ---- products: (self, dtype, out) and (self, dim, keepdim, dtype, out) --------------------------------------------
void check_prod(const Call& c) {
  expect_computes(c, 0);
  expect_numel(c, 2, 1);
  expect_stored(c, asked_dtype(c, 1, 2), 2);
}
void prod(Run& r) {
  into(r.tensor(2), asked_dtype(r.call, 1, 2), [&](const Value& to) { call_kernel("prod", {to, r.tensor(0)}); });
}
void check_prod_dim(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_computes(c, 0);
  expect_reduced(c, 4, self, uint64_t(1) << wrap_dim(c.integer(1), self.ndim), c.integer(2));
  expect_stored(c, asked_dtype(c, 3, 4), 4);
}
void prod_dim(Run& r) {
  const Sizes dim{r.call.integer(1)};
  into(r.tensor(4), asked_dtype(r.call, 3, 4),
       [&](const Value& to) { call_kernel("prod", {to, r.tensor(0)}, {list(dim)}); });
}

// ---- truth: (self, dims, keepdim, out), extremes alike ------------------------------------------------------------
void truth(Run& r, const char* kernel) {
  call_kernel(kernel, {r.tensor(3), r.tensor(kSelf)}, {list_of(r.call, kDims)});
}
void extreme(Run& r, const char* kernel) { fold(r, kernel, 3, r.tensor(kSelf).dtype); }

// ---- extremes of all items: (self, out) and (self, min, max) ------------------------------------------------------
template <int... outs> void check_all_items(const Call& c) {
  expect_computes(c, 0);
  expect_items(c.tensor(0), ~uint64_t(0));
  (expect_numel(c, outs, 1), ...);
  (expect_castable(c, 0, outs), ...);
}
void extreme_of_all(Run& r, const char* kernel) {
  Value self = r.tensor(0);
  into(r.tensor(1), self.dtype, [&](const Value& to) { call_kernel(kernel, {to, self}); });
}

// Both extremes; the kernel's outputs have the dtype of self.
void both(const Value& low, const Value& high, const Value& self, const mt::Attr& dims) {
  into(low, self.dtype, [&](const Value& least) {
    into(high, self.dtype, [&](const Value& most) { call_kernel("aminmax", {least, most, self}, {dims}); });
  });
}
void check_aminmax_dim(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  const uint64_t mask = uint64_t(1) << wrap_dim(c.integer(1), self.ndim);
  expect_items(self, mask);
  for (int out : {3, 4}) {
    expect_reduced(c, out, self, mask, c.integer(2));
    expect_castable(c, 0, out);
  }
}

// ---- extremes with their places: (self, dim, keepdim, values, indices), or (self, dim, keepdim, indices) ----------
template <int... outs> void check_place(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  const uint64_t mask = uint64_t(1) << wrap_dim(c.integer(1), self.ndim);
  expect_computes(c, 0);
  expect_items(self, mask);
  (expect_reduced(c, outs, self, mask, c.integer(2)), ...);
}
void check_value_and_place(const Call& c) {
  check_place<3, 4>(c);
  expect_castable(c, 0, 3);
}
void value_and_place(Run& r, const char* kernel) {
  Value self = r.tensor(0);
  into(r.tensor(3), self.dtype,
       [&](const Value& values) { call_kernel(kernel, {values, r.tensor(4), self}, {integer(r.call.integer(1))}); });
}
void place(Run& r, const char* kernel) {
  call_kernel(kernel, {r.tensor(3), r.tensor(0)}, {integer(r.call.integer(1))});
}

const Op ops[] = {
    {"aclnnReduceSum", check_sum, [](Run& r) { sum(r, "sum"); }},
    {"aclnnReduceNansum", check_sum, [](Run& r) { sum(r, "nansum"); }},
    {"aclnnMean", check_sum, mean},
    {"aclnnMeanV2", check_noop, mean_or_nothing},
    {"aclnnMaxV2", check_max_or_nothing, max_or_nothing},
    {"aclnnReduceLogSum", check_noop, log_sum_or_nothing},
    {"aclnnProd", check_prod, prod},
    {"aclnnProdDim", check_prod_dim, prod_dim},
    {"aclnnAll", check_shapes<3>, [](Run& r) { truth(r, "all"); }},
    {"aclnnAny", check_shapes<3>, [](Run& r) { truth(r, "any"); }},
    {"aclnnAmax", check_extreme<3>, [](Run& r) { extreme(r, "amax"); }},
    {"aclnnAmin", check_extreme<3>, [](Run& r) { extreme(r, "amin"); }},
    {"aclnnMax", check_all_items<1>, [](Run& r) { extreme_of_all(r, "max"); }},
    {"aclnnMin", check_all_items<1>, [](Run& r) { extreme_of_all(r, "min"); }},
    {"aclnnAminmax", check_extreme<3, 4>,
     [](Run& r) {  // the kernel for both at once takes one dim
       fold(r, "amin", 3, r.tensor(kSelf).dtype);
       fold(r, "amax", 4, r.tensor(kSelf).dtype);
     }},
    {"aclnnAminmaxAll", check_all_items<1, 2>, [](Run& r) { both(r.tensor(1), r.tensor(2), r.tensor(0), none()); }},
    {"aclnnAminmaxDim", check_aminmax_dim,
     [](Run& r) { both(r.tensor(3), r.tensor(4), r.tensor(0), integer(r.call.integer(1))); }},
    {"aclnnMaxDim", check_value_and_place, [](Run& r) { value_and_place(r, "max_dim"); }},
    {"aclnnMinDim", check_value_and_place, [](Run& r) { value_and_place(r, "min_dim"); }},
    {"aclnnArgMax", check_place<3>, [](Run& r) { place(r, "argmax"); }},
    {"aclnnArgMin", check_place<3>, [](Run& r) { place(r, "argmin"); }},
};

}  // namespace
}  // namespace cann_sim
