// What the bfloat16 products have in common: the packing of both factors as pairs, and the rounding of a block of sums.
#pragma once
#include "gemm_impl.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define MT_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#elif defined(__aarch64__)
#define MT_BF16 __attribute__((target("arch=armv8.2-a+bf16")))
#endif

#ifdef MT_BF16
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "transpose16.h"

namespace mt {

// The instructions multiply pairs: items 2q and 2q+1 of a row of op(A), of a column of op(B), as one 32-bit word.

// Packs `pairs` pairs of `lines` lines (rows of A, columns of B) as words [pair][width]; lines beyond are zero.
// Line i starts at i * line, its items lie `item` apart; one of the two is 1. odd: the last pair has one item only.
MT_BF16 inline void pack_pairs(const uint16_t* X, int64_t line, int64_t item, int64_t lines, int64_t pairs, bool odd,
    int64_t width, uint32_t* to) {
  const int64_t whole = pairs - odd;
  if (lines < width) std::fill_n(to, pairs * width, 0u);
  if (item == 1) {
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= lines && width % 16 == 0; i += 16) {
      int64_t q = 0;
      for (; q + 16 <= whole; q += 16) transpose16(X + i * line + 2 * q, line * 2, to + q * width + i, width);
      for (; q < whole; ++q)
        for (int64_t l = i; l < i + 16; ++l) std::memcpy(to + q * width + l, X + l * line + 2 * q, 4);
    }
    int64_t turned = 0;  // pairs of the lines that are left
    for (; i < lines && turned + 16 <= whole; turned += 16)
      transpose_few(X + i * line + 2 * turned, line * 2, int(std::min<int64_t>(16, lines - i)), to + turned * width + i, width);
#else
    const int64_t turned = 0;
#endif
    for (; i < lines; ++i)
      for (int64_t q = turned; q < whole; ++q) std::memcpy(to + q * width + i, X + i * line + 2 * q, 4);
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

// C[rows x Unit::kWidth] (+)= A B over `pairs`; A holds as many words per pair as it has rows, B kWidth.
using PairTile = void (*)(int64_t pairs, const uint32_t* A, const uint32_t* B, float* C, int64_t ldc, bool add);
template <class Unit, int... R> constexpr std::array<PairTile, Unit::kRows> pair_tiles(std::integer_sequence<int, R...>) {
  return {Unit::template tile<R + 1>...};
}

// The product by the tiles of a Unit: all of B in strips of kWidth columns, A in blocks of rows.
template <class Unit> void pairs_gemm(const Product& p) {
  constexpr int kRows = Unit::kRows, kWidth = Unit::kWidth;
  constexpr int64_t kPairs = 256;  // depth of a block: a packed strip of B fits in L1
  constexpr int64_t kBlockRows = 112, kBlockColumns = 1024 / kWidth * kWidth;
  static constexpr auto by_rows = pair_tiles<Unit>(std::make_integer_sequence<int, kRows>());
  const int64_t pairs = (p.k + 1) / 2, nc = std::min(kBlockColumns, (p.n + kWidth - 1) / kWidth * kWidth);
  const int64_t mc = std::min(kBlockRows, p.m);
  std::unique_ptr<uint32_t[]> packed(new uint32_t[pairs * nc + kPairs * mc]);
  std::unique_ptr<float[]> sums(new float[mc * nc]);
  uint32_t *B = packed.get(), *A = B + pairs * nc;
  const int64_t a_line = p.transA ? 1 : p.lda, a_item = p.transA ? p.lda : 1;
  const int64_t b_line = p.transB ? p.ldb : 1, b_item = p.transB ? 1 : p.ldb;
  auto odd = [&](int64_t q, int64_t depth) { return (p.k & 1) && q + depth == pairs; };
  for (int64_t j0 = 0; j0 < p.n; j0 += nc) {
    const int64_t cols = std::min(nc, p.n - j0);
    for (int64_t q = 0; q < pairs; q += kPairs) {  // block by block: strips of kWidth columns, each `depth` pairs deep
      const int64_t depth = std::min(kPairs, pairs - q);
      for (int64_t j = 0; j < cols; j += kWidth)
        pack_pairs(at<uint16_t>(p.B, (j0 + j) * b_line + 2 * q * b_item), b_line, b_item, std::min<int64_t>(kWidth, cols - j),
                   depth, odd(q, depth), kWidth, B + q * nc + j * depth);
    }
    const int64_t blocks = (p.m + mc - 1) / mc;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t i0 = p.m * block / blocks, rows = p.m * (block + 1) / blocks - i0, count = (rows + kRows - 1) / kRows;
      for (int64_t q = 0; q < pairs; q += kPairs) {
        const int64_t depth = std::min(kPairs, pairs - q);
        auto first = [&](int64_t t) { return rows * t / count; };  // tiles of nearly equal height waste nothing
        for (int64_t t = 0; t < count; ++t) {
          const int64_t r = first(t + 1) - first(t);
          pack_pairs(at<uint16_t>(p.A, (i0 + first(t)) * a_line + 2 * q * a_item), a_line, a_item, r, depth, odd(q, depth), r,
                     A + first(t) * depth);
        }
        for (int64_t j = 0; j < cols; j += kWidth)
          for (int64_t t = 0; t < count; ++t)
            by_rows[first(t + 1) - first(t) - 1](depth, A + first(t) * depth, B + q * nc + j * depth,
                                                 sums.get() + first(t) * nc + j, nc, q != 0);
      }
      finish_bf16(p, i0, j0, rows, cols, sums.get(), nc);
    }
  }
}

// gemm_amx.cpp: whether this processor has tiles for bfloat16, and the system gives them.
bool has_amx();
void amx_gemm(const Product& p);

}  // namespace mt
#endif
