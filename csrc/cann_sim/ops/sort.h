// What ops of distinct rows share with the older interface. No op lives here.
#pragma once
#include "ops/value.h"

namespace cann_sim {

// The distinct slices of a tensor along a dim: in order, or of each run of equal neighbours one (sort.cpp).
struct Distinct {
  Value items, inverse, counts;  // the slices, of each slice its place among them, and how often each was there
};
Distinct distinct_along(const Value& self, int64_t dim, bool sorted);

}  // namespace cann_sim
