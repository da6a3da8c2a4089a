// The mt19937 engine of the random generator and its state as PyTorch writes it; no distributions.
#include "random.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace mt {
namespace {

constexpr int kN = 624, kM = 397;

inline uint32_t mix(uint32_t u, uint32_t v) {
  return (((u & 0x80000000u) | (v & 0x7fffffffu)) >> 1) ^ ((0u - (v & 1u)) & 0x9908b0dfu);
}

// The bytes of PyTorch's state: each word of the engine takes eight bytes, and the two normals stand apart.
struct StateBytes {
  uint64_t seed;
  int32_t left, seeded;
  uint64_t next;
  uint64_t words[kN];
  double normal_x, normal_double, normal_rho;  // the outer two are relics, always zero
  int32_t has_normal_double, padding;
  float normal_float;
  bool has_normal_float;
};
static_assert(sizeof(StateBytes) == 5056, "the size of torch.get_rng_state()");

}  // namespace

Generator::Generator(uint64_t s) { reseed(s); }

void Generator::reseed(uint64_t s) {
  seed = s;
  state[0] = uint32_t(s);
  for (int i = 1; i < kN; ++i) state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + uint32_t(i);
  left = 1;
  next = 0;
  seeded = true;
  has_normal_float = has_normal_double = false;
}

// Two loops whose dependences are 227 apart and more, so that they vectorise.
void Generator::twist() {
  uint32_t* s = state;
  for (int i = 0; i < kN - kM; ++i) s[i] = s[i + kM] ^ mix(s[i], s[i + 1]);
  for (int i = kN - kM; i < kN - 1; ++i) s[i] = s[i + kM - kN] ^ mix(s[i], s[i + 1]);
  s[kN - 1] = s[kM - 1] ^ mix(s[kN - 1], s[0]);
  left = kN;
  next = 0;
}

uint64_t Generator::random64() {
  uint64_t high = random();
  return (high << 32) | random();
}

void Generator::fill(uint32_t* out, int64_t n) {
  while (n > 0) {
    if (left == 1) {
      twist();
      ++left;  // as no word was taken yet
    }
    int32_t m = int32_t(std::min<int64_t>(n, left - 1));
    const uint32_t* from = state + next;
    for (int32_t i = 0; i < m; ++i) out[i] = temper(from[i]);
    left -= m;
    next += uint32_t(m);
    out += m;
    n -= m;
  }
}

size_t Generator::get_state(void* out) const {
  if (!out) return sizeof(StateBytes);
  StateBytes b;
  std::memset(&b, 0, sizeof b);
  b.seed = seed;
  b.left = left;
  b.seeded = seeded;
  b.next = next;
  std::copy(state, state + kN, b.words);
  b.has_normal_double = has_normal_double;
  b.normal_double = has_normal_double ? normal_double : 0;
  b.has_normal_float = has_normal_float;
  b.normal_float = has_normal_float ? normal_float : 0;
  std::memcpy(out, &b, sizeof b);
  return sizeof b;
}

void Generator::set_state(const void* bytes, size_t n) {
  if (n != sizeof(StateBytes))
    throw std::runtime_error("Expected a CPUGeneratorImplState of size " + std::to_string(sizeof(StateBytes)) +
                             " but found the input RNG state size to be " + std::to_string(n));
  StateBytes b;
  std::memcpy(&b, bytes, sizeof b);
  // left == 1 means that no word remains, wherever `next` then points; else they must agree.
  bool valid = b.seeded == 1 && b.left >= 1 && b.left <= kN && b.next <= uint64_t(kN) &&
               uint64_t(b.left - 1) <= uint64_t(kN) - b.next;
  if (!valid) throw std::runtime_error("Invalid mt19937 state");
  seed = b.seed;
  left = b.left;
  next = uint32_t(b.next);
  seeded = true;
  std::copy(b.words, b.words + kN, state);
  has_normal_double = b.has_normal_double != 0;
  normal_double = b.normal_double;
  has_normal_float = b.has_normal_float;
  normal_float = b.normal_float;
}

}  // namespace mt
