// What the bfloat16 products have in common: the packing of both factors as pairs, and the rounding of a block of sums.
#pragma once
#include "gemm_impl.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <algorithm>
#include <memory>

#include "transpose16.h"

#define MT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace mt {

// The instructions multiply pairs: items 2q and 2q+1 of a row of op(A), of a column of op(B), as one 32-bit word.

// Packs `pairs` pairs of `lines` lines (rows of A, columns of B) as words [pair][width]; lines beyond are zero.
// Line i starts at i * line, its items lie `item` apart; one of the two is 1. odd: the last pair has one item only.
MT_AVX512_BF16 inline void pack_pairs(const uint16_t* X, int64_t line, int64_t item, int64_t lines, int64_t pairs, bool odd,
    int64_t width, uint32_t* to) {
  const int64_t whole = pairs - odd;
  if (lines < width) std::fill_n(to, pairs * width, 0u);
  if (item == 1) {
    int64_t i = 0;
    for (; i + 16 <= lines && width % 16 == 0; i += 16) {
      int64_t q = 0;
      for (; q + 16 <= whole; q += 16) transpose16(X + i * line + 2 * q, line * 2, to + q * width + i, width);
      for (; q < whole; ++q)
        for (int64_t l = i; l < i + 16; ++l) std::memcpy(to + q * width + l, X + l * line + 2 * q, 4);
    }
    for (; i < lines; ++i)
      for (int64_t q = 0; q < whole; ++q) std::memcpy(to + q * width + i, X + i * line + 2 * q, 4);
  } else {
    for (int64_t q = 0; q < whole; ++q) {
      const uint16_t *even = X + 2 * q * item, *next = even + item;
      for (int64_t i = 0; i < lines; ++i) to[q * width + i] = uint32_t(even[i]) | uint32_t(next[i]) << 16;
    }
  }
  if (odd)
    for (int64_t i = 0; i < lines; ++i) to[whole * width + i] = X[i * line + 2 * whole * item];
}

inline void finish_bf16(const Product& p, int64_t i0, int64_t j0, int64_t rows, int64_t cols, const float* sums, int64_t ld) {
  const float alpha = float(p.alpha.real()), beta = float(p.beta.real());
  for (int64_t i = 0; i < rows; ++i) {
    bf16* c = static_cast<bf16*>(p.C) + (i0 + i) * p.ldc + j0;
    for (int64_t j = 0; j < cols; ++j) {
      float v = alpha * sums[i * ld + j];
      if (beta != 0) v += beta * to_float(c[j]);
      uint32_t u;  // to_bf16 without a branch, so that it vectorises
      std::memcpy(&u, &v, 4);
      const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
      c[j].bits = uint16_t((u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
    }
  }
}

// gemm_amx.cpp: whether this processor has tiles for bfloat16, and the system gives them.
bool has_amx();
void amx_gemm(const Product& p);

}  // namespace mt
#endif
