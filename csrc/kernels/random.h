// The random generator: PyTorch's CPU generator, bit for bit.
#pragma once
#include <cstddef>
#include <cstdint>

namespace mt {

// mt19937 with PyTorch's seeding and its cached normals; random.cpp. Calls are serialised by the caller.
struct Generator {
  uint32_t state[624];
  int32_t left = 1;      // left - 1 words remain in `state`, from `next` on
  uint32_t next = 0;
  uint64_t seed = 5489;
  bool seeded = true;
  bool has_normal_float = false, has_normal_double = false;
  float normal_float = 0;
  double normal_double = 0;

  explicit Generator(uint64_t s);
  void reseed(uint64_t s);
  uint32_t random() {
    if (--left == 0) twist();
    return temper(state[next++]);
  }
  uint64_t random64();
  void twist();          // makes the next 624 words
  static uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }
  void fill(uint32_t* out, int64_t n);  // the next n words, as n calls of random() would give them

  // torch.Generator.get_state() of PyTorch: 5056 bytes. get_state(nullptr) only tells the size.
  size_t get_state(void* out) const;
  void set_state(const void* bytes, size_t n);
};

}  // namespace mt
