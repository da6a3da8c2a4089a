// The bfloat16 product with the dot instructions of ARMv8.2 BF16, where the processor has them; gemm_bf16.cpp has those of x86.
#include "gemm_bf16.h"

#ifdef __aarch64__
#include <arm_neon.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

namespace mt {
namespace {

struct Unit {
  static constexpr int kRows = 8, kWidth = 12;  // a tile: 24 of the 32 registers

  template <int R>
  MT_BF16 static void tile(int64_t pairs, const uint32_t* A, const uint32_t* B, float* C, int64_t ldc, bool add) {
    float32x4_t acc[R][3];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) acc[r][j] = add ? vld1q_f32(C + r * ldc + 4 * j) : vdupq_n_f32(0);
    for (int64_t q = 0; q < pairs; ++q) {
      bfloat16x8_t b[3];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) b[j] = vreinterpretq_bf16_u32(vld1q_u32(B + q * kWidth + 4 * j));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const bfloat16x8_t a = vreinterpretq_bf16_u32(vld1q_dup_u32(A + q * R + r));
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) acc[r][j] = vbfdotq_f32(acc[r][j], a, b[j]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) vst1q_f32(C + r * ldc + 4 * j, acc[r][j]);
  }
};

}  // namespace

const char* bf16_unit() {
#ifdef __linux__
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16
  static const bool dots = getauxval(AT_HWCAP2) & kBf16;
  return dots ? "neon_bf16" : "";
#else
  return "";
#endif
}

bool bf16_gemm(const Product& p) {
  static const char unit = *bf16_unit();
  if (unit) pairs_gemm<Unit>(p);
  return unit != 0;
}

}  // namespace mt
#endif
