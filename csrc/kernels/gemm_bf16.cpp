// The bfloat16 product with the dot instructions of AVX-512 BF16, which double the rate of float; used where the
// processor has them, whatever the library was compiled for. Every other machine goes through gemm_half.cpp.
#include "gemm_impl.h"

#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own "undefined" intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#define MT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace mt {
namespace {

// The instruction multiplies pairs: items 2q and 2q+1 of a row of op(A), of a column of op(B), as one 32-bit word.
constexpr int kRows = 14, kWidth = 32;  // a tile: 28 of the 32 registers
constexpr int64_t kPairs = 256;         // depth of a block: a packed strip of B fits in L1
constexpr int64_t kBlockRows = 112, kBlockColumns = 1024;

// C[R x 32] (+)= A B over `pairs`; A holds R words per pair, B 32.
template <int R> MT_AVX512_BF16 void tile(int64_t pairs, const uint32_t* A, const uint32_t* B, float* C, int64_t ldc,
    bool add) {
  __m512 acc[R][2];
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r) {
    acc[r][0] = add ? _mm512_loadu_ps(C + r * ldc) : _mm512_setzero_ps();
    acc[r][1] = add ? _mm512_loadu_ps(C + r * ldc + 16) : _mm512_setzero_ps();
  }
  for (int64_t q = 0; q < pairs; ++q) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(B + q * kWidth),
        b1 = (__m512bh)_mm512_loadu_si512(B + q * kWidth + 16);
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
      const __m512bh a = (__m512bh)_mm512_set1_epi32(int(A[q * R + r]));
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], a, b0);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], a, b1);
    }
  }
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r) {
    _mm512_storeu_ps(C + r * ldc, acc[r][0]);
    _mm512_storeu_ps(C + r * ldc + 16, acc[r][1]);
  }
}
using Tile = void (*)(int64_t, const uint32_t*, const uint32_t*, float*, int64_t, bool);
template <int... R> constexpr std::array<Tile, kRows> tiles(std::integer_sequence<int, R...>)
    { return {tile<R + 1>...}; }

// Transposes 16 rows of 16 words: to[j * ld + i] = word j of row i; rows lie `step` 16-bit items apart.
MT_AVX512_BF16 inline void transpose16(const uint16_t* from, int64_t step, uint32_t* to, int64_t ld) {
  __m512i r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(from + i * step);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]),
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // r[i + c]: word c of every quarter, of rows i .. i+3
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd), e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_storeu_si512(to + c * ld, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(to + (8 + c) * ld, _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(to + (4 + c) * ld, _mm512_shuffle_i32x4(d, e, 0x88));
    _mm512_storeu_si512(to + (12 + c) * ld, _mm512_shuffle_i32x4(d, e, 0xdd));
  }
}

// Packs `pairs` pairs of `lines` lines (rows of A, columns of B) as words [pair][width]; lines beyond are zero.
// Line i starts at i * line, its items lie `item` apart; one of the two is 1. odd: the last pair has one item only.
MT_AVX512_BF16 void pack(const uint16_t* X, int64_t line, int64_t item, int64_t lines, int64_t pairs, bool odd,
    int64_t width, uint32_t* to) {
  const int64_t whole = pairs - odd;
  if (lines < width) std::fill_n(to, pairs * width, 0u);
  if (item == 1) {
    int64_t i = 0;
    for (; i + 16 <= lines && width % 16 == 0; i += 16) {
      int64_t q = 0;
      for (; q + 16 <= whole; q += 16) transpose16(X + i * line + 2 * q, line, to + q * width + i, width);
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

void finish(const Product& p, int64_t i0, int64_t j0, int64_t rows, int64_t cols, const float* sums, int64_t ld) {
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

// ---- few rows on one side: dot products straight from memory, as in gemm_skinny.cpp ------------------------------
constexpr int64_t kFew = 32, kItems = 2048;

template <int R, int C> MT_AVX512_BF16 inline void dot_tile(int64_t k, const uint16_t* a, int64_t lda,
    const uint16_t* b, int64_t ldb, __m512* sums) {
  __m512 acc[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = sums[r * C + c];
  int64_t p = 0;
  for (; p + 32 <= k; p += 32) {
    __m512bh y[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) y[c] = (__m512bh)_mm512_loadu_si512(b + c * ldb + p);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512bh x = (__m512bh)_mm512_loadu_si512(a + r * lda + p);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], x, y[c]);
    }
  }
  if (p < k) {
    const __mmask32 valid = (1u << (k - p)) - 1;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512bh x = (__m512bh)_mm512_maskz_loadu_epi16(valid, a + r * lda + p);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c)
        acc[r][c] = _mm512_dpbf16_ps(acc[r][c], x, (__m512bh)_mm512_maskz_loadu_epi16(valid, b + c * ldb + p));
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) sums[r * C + c] = acc[r][c];
}

// The sums of four vectors at once, which takes a third of the work of four reductions.
MT_AVX512_BF16 inline __m128 totals(const __m512* v) {
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512 c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c),
      _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(c), 1)));
  return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

// C columns of the result: all m rows of a against C rows of b; sums come out as [i * C + c].
template <int C> MT_AVX512_BF16 void dot_columns(int64_t m, int64_t k, const uint16_t* a, int64_t lda,
    const uint16_t* b, int64_t ldb, float* out) {
  __m512 sums[kFew * C];
  for (int64_t i = 0; i < m * C; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t p = 0; p < k; p += kItems) {
    const int64_t n = std::min(kItems, k - p);
    int64_t i = 0;
    for (; i + 4 <= m; i += 4) dot_tile<4, C>(n, a + i * lda + p, lda, b + p, ldb, sums + i * C);
    for (; i < m; ++i) dot_tile<1, C>(n, a + i * lda + p, lda, b + p, ldb, sums + i * C);
  }
  for (int64_t i = 0; i < m * C; i += C) {
    if constexpr (C == 4) _mm_storeu_ps(out + i, totals(sums + i));
    else out[i] = _mm512_reduce_add_ps(sums[i]);
  }
}

void few_rows(const Product& p) {
  const bool rows = p.m <= p.n;  // the small side is A; else the roles change, and C is written transposed
  const int64_t m = rows ? p.m : p.n, n = rows ? p.n : p.m, rs = rows ? p.ldc : 1, cs = rows ? 1 : p.ldc;
  const int64_t lda = rows ? p.lda : p.ldb, ldb = rows ? p.ldb : p.lda;
  const uint16_t *a = at<uint16_t>(rows ? p.A : p.B, 0), *b = at<uint16_t>(rows ? p.B : p.A, 0);
  const float alpha = float(p.alpha.real()), beta = float(p.beta.real());
  float sums[kFew * 4];
  for (int64_t j = 0; j < n;) {
    const int width = n - j >= 4 ? 4 : 1;
    if (width == 4) dot_columns<4>(m, p.k, a, lda, b + j * ldb, ldb, sums);
    else dot_columns<1>(m, p.k, a, lda, b + j * ldb, ldb, sums);
    for (int64_t i = 0; i < m; ++i)
      for (int c = 0; c < width; ++c) {
        bf16& to = static_cast<bf16*>(p.C)[i * rs + (j + c) * cs];
        const float v = alpha * sums[i * width + c];
        to = to_bf16(beta != 0 ? v + beta * to_float(to) : v);
      }
    j += width;
  }
}

}  // namespace

bool bf16_gemm(const Product& p) {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl");
  if (!has) return false;
  if (!p.transA && p.transB && std::min(p.m, p.n) <= kFew && p.k >= 64) return few_rows(p), true;
  static constexpr std::array<Tile, kRows> by_rows = tiles(std::make_integer_sequence<int, kRows>());
  const int64_t pairs = (p.k + 1) / 2, nc = std::min(kBlockColumns, (p.n + kWidth - 1) / kWidth * kWidth),
      mc = std::min(kBlockRows, p.m);
  std::unique_ptr<uint32_t[]> packed(new uint32_t[pairs * nc + kPairs * mc]);
  std::unique_ptr<float[]> sums(new float[mc * nc]);
  uint32_t *B = packed.get(), *A = B + pairs * nc;
  const int64_t a_line = p.transA ? 1 : p.lda, a_item = p.transA ? p.lda : 1, b_line = p.transB ? p.ldb : 1,
      b_item = p.transB ? 1 : p.ldb;
  for (int64_t j0 = 0; j0 < p.n; j0 += nc) {
    const int64_t cols = std::min(nc, p.n - j0);
    for (int64_t q = 0; q < pairs; q += kPairs) {  // block by block: strips of 32 columns, each `depth` pairs deep
      const int64_t depth = std::min(kPairs, pairs - q);
      for (int64_t j = 0; j < cols; j += kWidth)
        pack(at<uint16_t>(p.B, (j0 + j) * b_line + 2 * q * b_item), b_line, b_item,
            std::min<int64_t>(kWidth, cols - j), depth,
             (p.k & 1) && q + depth == pairs, kWidth, B + q * nc + j * depth);
    }
    const int64_t blocks = (p.m + mc - 1) / mc;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t i0 = p.m * block / blocks, rows = p.m * (block + 1) / blocks - i0, count = (rows + kRows - 1)
          / kRows;
      for (int64_t q = 0; q < pairs; q += kPairs) {
        const int64_t depth = std::min(kPairs, pairs - q);
        auto first = [&](int64_t t) { return rows * t / count; };  // tiles of nearly equal height waste nothing
        for (int64_t t = 0; t < count; ++t) {
          const int64_t r = first(t + 1) - first(t);
          pack(at<uint16_t>(p.A, (i0 + first(t)) * a_line + 2 * q * a_item), a_line, a_item, r, depth, (p.k & 1) &&
              q + depth == pairs, r,
               A + first(t) * depth);
        }
        for (int64_t j = 0; j < cols; j += kWidth)
          for (int64_t t = 0; t < count; ++t)
            by_rows[first(t + 1) - first(t) - 1](depth, A + first(t) * depth, B + q * nc + j * depth,
                sums.get() + first(t) * nc + j, nc, q != 0);
      }
      finish(p, i0, j0, rows, cols, sums.get(), nc);
    }
  }
  return true;
}

}  // namespace mt

#else
namespace mt {
bool bf16_gemm(const Product&) { return false; }
}  // namespace mt
#endif
