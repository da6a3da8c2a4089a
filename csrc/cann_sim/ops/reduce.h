// What the reductions share: the dims they name and the shape they leave. No op lives here.
#pragma once
#include "ops/result.h"

namespace cann_sim {

// The dims that a reduction names, a bit each; when it names none, all of them.
inline uint64_t dim_mask(Span<int64_t> dims, int64_t ndim) {
  if (dims.size() == 0) return ~uint64_t(0);
  uint64_t mask = 0;
  for (int64_t dim : dims) {
    const uint64_t bit = uint64_t(1) << wrap_dim(dim, ndim);
    EXPECT(!(mask & bit), "dim %ld appears multiple times in the list of dims", dim);
    mask |= bit;
  }
  return mask;
}

// Output i has the shape of self with the dims of the mask reduced.
inline void expect_reduced(const Call& c, int i, const TensorMeta& self, uint64_t mask, bool keepdim) {
  const TensorMeta& out = c.tensor(i);
  int n = 0;
  bool fits = true;
  for (int d = 0; d < self.ndim; ++d) {
    const bool reduced = mask >> d & 1;
    if (reduced && !keepdim) continue;
    fits = fits && n < out.ndim && out.sizes[n] == (reduced ? 1 : self.sizes[d]);
    ++n;
  }
  // A row that is summed up may leave one item instead of none: CANN takes [1] for [].
  const bool one = n == 0 && self.ndim == 1 && out.ndim == 1 && out.sizes[0] == 1;
  EXPECT((fits && n == out.ndim) || one, "%s of %s does not have the shape that is left of %s%s", c.row->args[i].name,
         describe(out).c_str(), describe(self).c_str(), keepdim ? " when dims are kept" : "");
}

// A reduction that has no value for nothing: no reduced dim may be empty, unless nothing is left to compute.
inline void expect_items(const TensorMeta& self, uint64_t mask) {
  bool none = false;
  for (int d = 0; d < self.ndim; ++d) {
    if (!(mask >> d & 1) && self.sizes[d] == 0) return;
    none = none || ((mask >> d & 1) && self.sizes[d] == 0);
  }
  EXPECT(!none, "the reduced dims of %s hold no items", describe(self).c_str());
}

}  // namespace cann_sim
