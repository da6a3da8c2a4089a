// The bfloat16 product with the dot instructions of AVX-512 BF16, which double the rate of float; in the library for
// AVX-512, where the processor has them. Every other machine goes through gemm_half.cpp.
#include "gemm_bf16.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <array>
#include <utility>

namespace mt {
namespace {

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

const char* bf16_unit() {
  static const bool dots = __builtin_cpu_supports("avx512bf16");
  return dots ? has_amx() ? "amx" : "avx512_bf16" : "";
}

bool bf16_gemm(const Product& p) {
  static const char unit = *bf16_unit();
  if (!unit) return false;
  if (!p.transA && p.transB && std::min(p.m, p.n) <= kFew && p.k >= 64) return few_rows(p), true;
  if (has_amx()) return amx_gemm(p), true;
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
        pack_pairs(at<uint16_t>(p.B, (j0 + j) * b_line + 2 * q * b_item), b_line, b_item,
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
          pack_pairs(at<uint16_t>(p.A, (i0 + first(t)) * a_line + 2 * q * a_item), a_line, a_item, r, depth, (p.k & 1) &&
              q + depth == pairs, r,
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
  return true;
}

}  // namespace mt

#else
namespace mt {
const char* bf16_unit() { return ""; }
bool bf16_gemm(const Product&) { return false; }
}  // namespace mt
#endif
