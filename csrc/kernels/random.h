// The random generator: PyTorch's CPU generator, bit for bit.
#pragma once
#include <cstdint>

namespace mt {

// mt19937 with PyTorch's seeding and its cached normals; random.cpp. Calls are serialised by the caller.
struct Generator {
  uint32_t state[624];
  int32_t left = 1;
  uint32_t next = 0;
  uint64_t seed = 5489;
  bool seeded = true;
  bool has_normal_float = false, has_normal_double = false;
  float normal_float = 0;
  double normal_double = 0;

  explicit Generator(uint64_t s);
  void reseed(uint64_t s);
  uint32_t random();
  uint64_t random64();
};

}  // namespace mt
