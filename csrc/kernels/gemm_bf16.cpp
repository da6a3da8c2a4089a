// The bfloat16 product with the dot instructions of AVX-512 BF16, which double the rate of float; in the library for
// AVX-512, where the processor has them. gemm_neon.cpp has those of aarch64; every other machine goes through gemm_half.cpp.
#include "gemm_bf16.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)

namespace mt {
namespace {

struct Unit {
  static constexpr int kRows = 14, kWidth = 32;  // a tile: 28 of the 32 registers

  template <int R>
  MT_BF16 static void tile(int64_t pairs, const uint32_t* A, const uint32_t* B, float* C, int64_t ldc, bool add) {
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
};

// ---- few rows on one side: dot products straight from memory, as in gemm_skinny.cpp ------------------------------
constexpr int64_t kFew = 32, kItems = 2048;

template <int R, int C> MT_BF16 inline void dot_tile(int64_t k, const uint16_t* a, int64_t lda,
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
MT_BF16 inline __m128 totals(const __m512* v) {
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512 c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c),
      _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(c), 1)));
  return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

// C columns of the result: all m rows of a against C rows of b; sums come out as [i * C + c].
template <int C> MT_BF16 void dot_columns(int64_t m, int64_t k, const uint16_t* a, int64_t lda,
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
  pairs_gemm<Unit>(p);
  return true;
}

}  // namespace mt

#elif !defined(__aarch64__)
namespace mt {
const char* bf16_unit() { return ""; }
bool bf16_gemm(const Product&) { return false; }
}  // namespace mt
#endif
