// Ops that write numbers or copies: fill, zero, one, the diagonal, cast and copy. No ranges, no random numbers.
#include "ops/hifloat8.h"
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

bool same_bits(const Call& c, int i, int j) { return c.tensor(i).dtype == c.tensor(j).dtype; }

// ---- one number everywhere ----------------------------------------------------------------------
void check_moves(const Call& c) { bits_of(c.tensor(0).dtype); }
void check_fill(const Call& c) {
  EXPECT(converts(c.tensor(0).dtype), "%s: selfRef is %s, which is moved but not computed with", c.name(),
         describe(c.tensor(0)).c_str());
}
// The tensor that is filled, in the dtype that its items are.
Value filled(Run& run) {
  Value self = run.tensor(0);
  self.dtype = converted_dtype(run.call.tensor(0).dtype);
  return self;
}
void run_fill_scalar(Run& run) { call_kernel("fill", {filled(run)}, {scalar(run.call.scalar(1))}); }

void check_fill_tensor(const Call& c) {
  expect_one_element(c, 1);
  if (!same_bits(c, 0, 1)) dtype_of(c.tensor(0).dtype), dtype_of(c.tensor(1).dtype);
}
void run_fill_tensor(Run& run) {
  const Value self = run.tensor(0);
  copy(self, run.tensor(1).reshape({}).expand(self.shape()));
}
// Zero is all bits zero in every type, so it needs no dtype.
void run_zero(Run& run) { fill(run.tensor(0), 0); }
void run_one(Run& run) { fill(filled(run), 1); }

// fill_diagonal_(self, value, wrap): a tall matrix starts again below the square when it wraps.
void check_diagonal(const Call& c) {
  check_fill(c);
  const TensorMeta& self = c.tensor(0);
  EXPECT(self.ndim >= 2, "%s: expected a tensor of at least 2 dims, got %s", c.name(), describe(self).c_str());
  for (int d = 1; d < self.ndim && self.ndim > 2; ++d)
    EXPECT(self.sizes[d] == self.sizes[0], "%s: all dims of %s must be of one size", c.name(), describe(self).c_str());
}
void run_diagonal(Run& run) {
  const Value self = filled(run);
  const mt::Attr value = scalar(run.call.scalar(1));
  int64_t step = 0, least = self.sizes[0];
  for (int d = 0; d < self.ndim; ++d) step += self.strides[d], least = std::min(least, self.sizes[d]);
  const bool wrap = run.call.integer(2) && self.ndim == 2;
  const int64_t height = self.sizes[0], width = self.sizes[1];
  for (int64_t top = 0; top < (wrap ? height : std::min<int64_t>(height, 1)); top += width + 1) {
    Value diagonal = self.narrow(0, top, height - top);
    diagonal.ndim = 1;
    diagonal.sizes[0] = std::min(least, height - top);
    diagonal.strides[0] = step;
    call_kernel("fill", {diagonal}, {value});
  }
}

// ---- types that kernels convert, but hardly compute with ----------------------------------------------
void expect_converts(const Call& c, int i, int j) {
  if (same_bits(c, i, j)) return;
  for (int k : {i, j})
    EXPECT(converts(c.tensor(k).dtype) || c.tensor(k).dtype == ACL_HIFLOAT8, "%s: %s is %s, which is moved but not converted", c.name(), c.row->args[k].name,
           describe(c.tensor(k)).c_str());
}
void convert(Value out, aclDataType to, Value from, aclDataType t) {
  if (to != t && t == ACL_HIFLOAT8) return convert(out, to, from_hifloat8(from), ACL_FLOAT);
  if (to != t && to == ACL_HIFLOAT8) return copy(out.as(mt::kUInt8), to_hifloat8(from.as(converted_dtype(t))));
  if (to != t) out.dtype = converted_dtype(to), from.dtype = converted_dtype(t);
  copy(out, from);
}

// ---- copies ------------------------------------------------------------------------------------------
void check_cast(const Call& c) {
  EXPECT(c.integer(1) == c.tensor(2).dtype, "%s: dtype is %ld, and out is %s", c.name(), c.integer(1),
         describe(c.tensor(2)).c_str());
  expect_broadcast(c, {0}, 2);
  expect_converts(c, 0, 2);
}
void run_cast(Run& run) { convert(run.tensor(2), run.call.tensor(2).dtype, run.tensor(0), run.call.tensor(0).dtype); }

void check_copy(const Call& c) {
  expect_broadcast(c, {0, 1}, 0);
  expect_converts(c, 0, 1);
}
// The source is what gets a contiguous copy; the destination is written through its strides. Clients rely on it: they free
// the source's block to their pool before the workspace is taken from it.
uint64_t copy_workspace(const Call& c) { return scratch_of(c.tensor(1)); }
void run_copy(Run& run) {
  const Value self = run.tensor(0);
  convert(self, run.call.tensor(0).dtype, run.tensor(1).expand(self.shape()), run.call.tensor(1).dtype);
}

const Op ops[] = {
    {"aclnnInplaceFillScalar", check_fill, run_fill_scalar},
    {"aclnnInplaceFillTensor", check_fill_tensor, run_fill_tensor},
    {"aclnnInplaceZero", check_moves, run_zero},
    {"aclnnInplaceOne", check_fill, run_one},
    {"aclnnInplaceFillDiagonal", check_diagonal, run_diagonal},
    {"aclnnCast", check_cast, run_cast},
    {"aclnnInplaceCopy", check_copy, run_copy, copy_workspace},
};

}  // namespace
}  // namespace cann_sim
