// Products with few rows on one side, as in linear with a small batch: dot products straight from memory, where BLAS
// would spend its time packing the large matrix for a single use.
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions only
#include <algorithm>
#include <memory>

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

#include "convert.h"
#include "gemm_impl.h"

#define MT_INLINE inline __attribute__((always_inline))

namespace mt {
namespace {

template <int Lanes> struct Floats {
  typedef float Vector __attribute__((vector_size(4 * Lanes)));
  typedef float Unaligned __attribute__((vector_size(4 * Lanes), aligned(4), may_alias));
};
template <int Lanes> using Vector = typename Floats<Lanes>::Vector;

constexpr int64_t kFew = 100;     // rows of the small side (and room for a whole tile of 4)
constexpr int64_t kDepth = 1024;  // items of a row per block, so that the rows of a tile stay in L1

// Not memcpy: GCC 12 then keeps the array of loaded vectors in memory.
template <int Lanes> MT_INLINE Vector<Lanes> load(const float* p) {
  return *reinterpret_cast<const typename Floats<Lanes>::Unaligned*>(p);
}
#if defined(__AVX2__) && defined(__F16C__)
template <int Lanes> MT_INLINE Vector<8> load(const bf16* p) {
  return (Vector<8>)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
}
template <int Lanes> MT_INLINE Vector<8> load(const f16* p) {
  return (Vector<8>)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#else
template <int Lanes, class T> MT_INLINE Vector<Lanes> load(const T* p) {
  Vector<Lanes> v;
  for (int i = 0; i < Lanes; ++i) v[i] = to_float(p[i]);
  return v;
}
#endif
inline float as_float(float v) { return v; }
template <class T> inline float as_float(T v) { return to_float(v); }

MT_INLINE Vector<8> eight(const Vector<8>& v) { return v; }
MT_INLINE Vector<8> eight(const Vector<16>& v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13,
      14, 15);
}
MT_INLINE Vector<8> interleaved(const Vector<8>& a, const Vector<8>& b) {
  return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13,
      7, 15);
}
// The sums of four vectors at once, which takes a third of the work of four reductions.
template <class V> MT_INLINE Vector<4> totals(const V& a, const V& b, const V& c, const V& d) {
  const Vector<8> ab = interleaved(eight(a), eight(b)), cd = interleaved(eight(c), eight(d));
  const Vector<8> all = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
                        __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  return __builtin_shufflevector(all, all, 0, 1, 2, 3) + __builtin_shufflevector(all, all, 4, 5, 6, 7);
}

// sums[c][r] += a_r . b_c over k items, a multiple of the lanes.
template <int Lanes, int R, int C, class T>
MT_INLINE void tile(int64_t k, const float* a, int64_t lda, const T* b, int64_t ldb, float* sums) {
  Vector<Lanes> acc[4][C];  // with R < 4 the rest stay zero
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = Vector<Lanes>{};
  for (int64_t p = 0; p < k; p += Lanes) {
    Vector<Lanes> y[C];
    for (int c = 0; c < C; ++c) y[c] = load<Lanes>(b + c * ldb + p);
    for (int r = 0; r < R; ++r) {
      const Vector<Lanes> x = load<Lanes>(a + r * lda + p);
      for (int c = 0; c < C; ++c) acc[r][c] += x * y[c];
    }
  }
  for (int c = 0; c < C; ++c) {
    Vector<4> sum;
    std::memcpy(&sum, sums + c * kFew, sizeof sum);
    sum += totals(acc[0][c], acc[1][c], acc[2][c], acc[3][c]);
    std::memcpy(sums + c * kFew, &sum, sizeof sum);
  }
}

// Small side a (m x k, float), large side b (n x k); the result [i, j] goes to C at [i * rs + j * cs].
template <class T> struct Sides {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const T* b;
  int64_t ldb;
  float alpha, beta;
  T* out;
  int64_t rs, cs;
};

// The result for rows [j, j + C) of the large side.
template <int Lanes, int C, class T> MT_INLINE void columns(const Sides<T>& s, int64_t j) {
  float sums[C * kFew];
  const int64_t whole = s.k / Lanes * Lanes, lda = s.lda, ldb = s.ldb;
  const T* b = s.b + j * ldb;
  for (int c = 0; c < C; ++c) std::fill_n(sums + c * kFew, (s.m + 3) / 4 * 4, 0.f);
  for (int64_t p = 0; p < whole; p += kDepth) {
    const int64_t n = std::min(kDepth, whole - p);
    int64_t i = 0;
    for (; i + 4 <= s.m; i += 4) tile<Lanes, 4, C>(n, s.a + i * lda + p, lda, b + p, ldb, sums + i);
    for (; i < s.m; ++i) tile<Lanes, 1, C>(n, s.a + i * lda + p, lda, b + p, ldb, sums + i);
  }
  for (int c = 0; c < C; ++c)
    for (int64_t i = 0; i < s.m; ++i) {
      float sum = sums[c * kFew + i];
      for (int64_t p = whole; p < s.k; ++p) sum += s.a[i * lda + p] * as_float(b[c * ldb + p]);
      T& out = s.out[i * s.rs + (j + c) * s.cs];
      sum *= s.alpha;
      out = cast<T>(s.beta != 0 ? sum + s.beta * as_float(out) : sum);
    }
}

template <int Lanes, int C, class T> MT_INLINE void all_columns(const Sides<T>& s) {
  int64_t j = 0;
  for (; j + C <= s.n; j += C) columns<Lanes, C>(s, j);
  for (; j < s.n; ++j) columns<Lanes, 1>(s, j);
}
template <class T> void with_registers(const Sides<T>& s) { all_columns<8, 3>(s); }

#ifdef __AVX512F__
// Twice the registers, twice as wide: the tile is larger, and the rows are read half as often.
void with_registers(const Sides<float>& s) { all_columns<16, 6>(s); }
#endif

template <class T> void run(DType dtype, const Product& p) {
  const bool rows = p.m <= p.n;  // the small side is A; else the roles change, and C is written transposed
  const void* small = rows ? p.A : p.B;
  Sides<T> s{rows ? p.m : p.n, rows ? p.n : p.m, p.k, static_cast<const float*>(small), rows ? p.lda : p.ldb,
             at<T>(rows ? p.B : p.A, 0), rows ? p.ldb : p.lda, float(p.alpha.real()), float(p.beta.real()),
             static_cast<T*>(p.C), rows ? p.ldc : 1, rows ? 1 : p.ldc};
  std::unique_ptr<float[]> wide;
  if (dtype != kFloat) {
    wide.reset(new float[s.m * p.k]);
    for (int64_t i = 0; i < s.m; ++i) convert(kFloat, wide.get() + i * p.k, dtype, at<T>(small, i * s.lda), p.k);
    s.a = wide.get(), s.lda = p.k;
  }
  with_registers(s);
}

}  // namespace

// Rows of the small side up to which this is faster than packing. The sums of the lanes weigh more in shorter rows.
static int64_t most_rows([[maybe_unused]] DType dtype, int64_t k) {
#ifdef __AVX512F__
  if (dtype == kFloat) return k < kDepth / 2 ? 12 : k < kDepth ? 24 : 48;  // than gemm_float.cpp
#endif
  return k < kDepth ? 48 : kFew - 4;  // than BLAS
}

bool skinny_gemm(DType dtype, const Product& p) {
  if (p.transA || !p.transB || p.k < 64 || std::min(p.m, p.n) > most_rows(dtype, p.k)) return false;
  switch (dtype) {
    case kFloat: return run<float>(dtype, p), true;
    case kHalf: return run<f16>(dtype, p), true;
    case kBFloat16: return run<bf16>(dtype, p), true;
    default: return false;
  }
}

}  // namespace mt
