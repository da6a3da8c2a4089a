// Seeds of random ops: a call draws the same numbers wherever and whenever it runs. No op lives here.
#pragma once
#include "ops/result.h"

namespace cann_sim {

struct Seed {
  uint64_t seed, offset;
};
Seed plain_seed(const Run& r, int i);     // arguments i and i + 1
Seed tensor_seed(Run& r, int i);          // tensors at i and i + 1, read when the op runs; i + 2 adds to the offset
void check_tensor_seed(const Call& c, int i);
mt::Generator* seeded(const Seed& seed);  // this worker's generator; valid until the next call

}  // namespace cann_sim
