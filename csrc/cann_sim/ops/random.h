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

// Dropout: a mask of one bit an item, one being kept with probability 1 - p, and its use (random_dropout.cpp).
Value make_mask(int64_t bytes, int64_t items, double p, const Seed& seed);
void use_mask(const Value& out, const Value& self, const Value& mask, double scale);

}  // namespace cann_sim
