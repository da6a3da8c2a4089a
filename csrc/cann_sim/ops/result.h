// Where an op writes when it computes in a dtype of its own, and the checks that the ops of several families share.
#pragma once
#include "ops/op.h"

namespace cann_sim {

// Calls compute(value) with the output itself when it has this dtype, else with a temporary that is cast into it.
template <class F> void into(const Value& out, DType dtype, F&& compute) {
  if (out.dtype == dtype) return compute(out);
  Value made = empty(out.shape(), dtype);
  compute(made);
  copy(out, made);
}

// A list argument for a kernel; the call owns the items.
inline mt::Attr list_of(const Call& c, int i) {
  Span<int64_t> items = c.ints(i);
  return list(items.data, items.n);
}

// Argument i has a dtype that kernels compute with.
inline void expect_computes(const Call& c, int i) { dtype_of(c.tensor(i).dtype); }

// What is computed from argument `from` may be stored in `to`: they are of one dtype, or both compute and aclnn casts.
inline void expect_castable(const Call& c, int from, int to) {
  if (c.tensor(from).dtype == c.tensor(to).dtype) return;
  DType a = dtype_of(c.tensor(from).dtype), b = dtype_of(c.tensor(to).dtype);
  EXPECT(can_cast(a, b), "%s of %s cannot be stored in %s of %s", c.row->args[from].name, mt::dtype_name(a),
         c.row->args[to].name, mt::dtype_name(b));
}

// The dtype that argument i asks to compute in; ACL_DT_UNDEFINED leaves it to the output.
inline DType asked_dtype(const Call& c, int i, int out) {
  const int64_t dtype = c.integer(i);
  return dtype_of(dtype == ACL_DT_UNDEFINED ? c.tensor(out).dtype : aclDataType(dtype));
}

inline void expect_dims(const Call& c, int i) {
  EXPECT(c.tensor(i).ndim > 0, "%s has no dims", c.row->args[i].name);
}

inline void expect_numel(const Call& c, int i, int64_t numel) {
  EXPECT(c.tensor(i).numel() == numel, "%s has %ld items, expected %ld", c.row->args[i].name, c.tensor(i).numel(),
         numel);
}

// Index tensors as the kernels want them.
inline Value index_value(Run& r, int i) { return r.tensor(i).to(mt::kInt64); }

// The first items of an output with a shape that the op found: the client then sees it dense, whatever it passed.
inline Value found_part(Run& r, int i, const Sizes& sizes) {
  r.set_shape(i, sizes);
  Value part = r.tensor(i);
  part.ndim = int32_t(sizes.size());
  int64_t step = 1;
  for (int d = part.ndim - 1; d >= 0; --d) {
    part.sizes[d] = sizes[d];
    part.strides[d] = step;
    step *= sizes[d];
  }
  return part;
}

}  // namespace cann_sim
