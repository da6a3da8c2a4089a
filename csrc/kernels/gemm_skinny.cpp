// Products with few rows on one side, as in linear with a small batch: dot products straight from memory, where BLAS
// would spend its time packing the large matrix for a single use.
#include <algorithm>
#include <memory>

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

#include "convert.h"
#include "gemm_impl.h"

namespace mt {
namespace {

constexpr int kLanes = 8;
typedef float Vector __attribute__((vector_size(32)));
typedef float Unaligned __attribute__((vector_size(32), aligned(4), may_alias));

constexpr int64_t kFew = 96;      // rows of the small side
constexpr int64_t kDepth = 1024;  // items of a row per block: three rows stay in L1

// Not memcpy: GCC 12 then keeps the array of loaded vectors in memory.
inline Vector load(const float* p) { return *reinterpret_cast<const Unaligned*>(p); }
#if defined(__AVX2__) && defined(__F16C__)
inline Vector load(const bf16* p) {
  return (Vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
}
inline Vector load(const f16* p) { return (Vector)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
#else
template <class T> inline Vector load(const T* p) {
  Vector v;
  for (int i = 0; i < kLanes; ++i) v[i] = to_float(p[i]);
  return v;
}
#endif
inline float as_float(float v) { return v; }
template <class T> inline float as_float(T v) { return to_float(v); }

// sums[r][c] += a_r * b_c, lane by lane, over k items (k a multiple of the lanes).
template <int R, int C, class T>
inline void tile(int64_t k, const float* a, int64_t lda, const T* b, int64_t ldb, Vector (*sums)[C]) {
  Vector acc[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = sums[r][c];
  for (int64_t p = 0; p < k; p += kLanes) {
    Vector y[C];
    for (int c = 0; c < C; ++c) y[c] = load(b + c * ldb + p);
    for (int r = 0; r < R; ++r) {
      const Vector x = load(a + r * lda + p);
      for (int c = 0; c < C; ++c) acc[r][c] += x * y[c];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) sums[r][c] = acc[r][c];
}

// The sums of four vectors at once, which takes a third of the work of four reductions.
inline void totals(const Vector& a, const Vector& b, const Vector& c, const Vector& d, float* out) {
  const Vector ab = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  const Vector cd = __builtin_shufflevector(c, d, 0, 8, 2, 10, 4, 12, 6, 14) + __builtin_shufflevector(c, d, 1, 9, 3, 11, 5, 13, 7, 15);
  const Vector all = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) + __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  for (int i = 0; i < 4; ++i) out[i] = all[i] + all[i + 4];
}

// The small side a (m x k, float) against C rows of the large side b: C columns of the result, `to` at [i * rs + c * cs].
template <int C, class T>
void columns(int64_t m, int64_t k, const float* a, int64_t lda, const T* b, int64_t ldb, float alpha, float beta, T* to, int64_t rs, int64_t cs) {
  Vector sums[kFew][C];
  const int64_t padded = (m + 3) / 4 * 4, whole = k / kLanes * kLanes;
  for (int64_t i = 0; i < padded; ++i)
    for (int c = 0; c < C; ++c) sums[i][c] = Vector{};
  for (int64_t p = 0; p < whole; p += kDepth) {
    const int64_t n = std::min(kDepth, whole - p);
    int64_t i = 0;
    for (; i + 4 <= m; i += 4) tile<4, C>(n, a + i * lda + p, lda, b + p, ldb, sums + i);
    for (; i + 2 <= m; i += 2) tile<2, C>(n, a + i * lda + p, lda, b + p, ldb, sums + i);
    for (; i < m; ++i) tile<1, C>(n, a + i * lda + p, lda, b + p, ldb, sums + i);
  }
  for (int64_t i0 = 0; i0 < m; i0 += 4)
    for (int c = 0; c < C; ++c) {
      float four[4];
      totals(sums[i0][c], sums[i0 + 1][c], sums[i0 + 2][c], sums[i0 + 3][c], four);
      for (int64_t i = i0; i < std::min(i0 + 4, m); ++i) {
        float sum = four[i - i0];
        for (int64_t p = whole; p < k; ++p) sum += a[i * lda + p] * as_float(b[c * ldb + p]);
        T& out = to[i * rs + c * cs];
        sum *= alpha;
        if (beta != 0) sum += beta * as_float(out);
        out = cast<T>(sum);
      }
    }
}

template <class T> void run(DType dtype, const Product& p) {
  const bool rows = p.m <= p.n;  // the small side is A; else the roles change, and C is written transposed
  const int64_t m = rows ? p.m : p.n, n = rows ? p.n : p.m, rs = rows ? p.ldc : 1, cs = rows ? 1 : p.ldc;
  const void* small = rows ? p.A : p.B;
  int64_t lda = rows ? p.lda : p.ldb;
  const int64_t ldb = rows ? p.ldb : p.lda;
  const T* b = at<T>(rows ? p.B : p.A, 0);
  std::unique_ptr<float[]> wide;
  const float* a = static_cast<const float*>(small);
  if (dtype != kFloat) {
    wide.reset(new float[m * p.k]);
    for (int64_t i = 0; i < m; ++i) convert(kFloat, wide.get() + i * p.k, dtype, at<T>(small, i * lda), p.k);
    a = wide.get(), lda = p.k;
  }
  const float alpha = float(p.alpha.real()), beta = float(p.beta.real());
  T* c = static_cast<T*>(p.C);
  int64_t j = 0;
  for (; j + 3 <= n; j += 3) columns<3>(m, p.k, a, lda, b + j * ldb, ldb, alpha, beta, c + j * cs, rs, cs);
  for (; j < n; ++j) columns<1>(m, p.k, a, lda, b + j * ldb, ldb, alpha, beta, c + j * cs, rs, cs);
}

}  // namespace

bool skinny_gemm(DType dtype, const Product& p) {
  if (p.transA || !p.transB || std::min(p.m, p.n) > kFew || p.k < 8 * kLanes) return false;
  switch (dtype) {
    case kFloat: return run<float>(dtype, p), true;
    case kHalf: return run<f16>(dtype, p), true;
    case kBFloat16: return run<bf16>(dtype, p), true;
    default: return false;
  }
}

}  // namespace mt
