// The matrix product for every dtype: which routine takes it, the plain loops, and the split over threads.
#include "gemm.h"

#include <algorithm>
#include <climits>

#include "dispatch.h"
#include "gemm_impl.h"
#include "indexing.h"
#include "parallel.h"

namespace mt {
namespace {

// Below this many multiplications a BLAS call costs more than it saves.
constexpr int64_t kSmall = 16 * 16 * 16;
// Multiplications worth a second thread.
constexpr int64_t kGrainGemm = 400000;
constexpr int64_t kGrainGemv = 100000;

// The type the plain loops sum in. Integers wrap, so unsigned sums give the low bits of both signednesses.
template <class T> struct Sum { using type = compute_t<T>; };
template <> struct Sum<uint8_t> { using type = uint16_t; };

template <class S> inline void multiply_add(S& acc, const S& a, const S& b) {
  if constexpr (is_complex_v<S>) {  // std::complex's operator* checks for NaN and is slow
    acc = S(acc.real() + (a.real() * b.real() - a.imag() * b.imag()),
        acc.imag() + (a.real() * b.imag() + a.imag() * b.real()));
  } else if constexpr (std::is_same_v<S, uint16_t>) {  // would be promoted to int, which may overflow
    acc = S(acc + uint32_t(a) * b);
  } else acc += a * b;
}
template <class T> inline T scalar(c128 v) {
  if constexpr (std::is_integral_v<T>) return T(int64_t(v.real()));
  else return cast<T>(v);
}

// ---- plain loops ---------------------------------------------------------------------------------------------
constexpr int64_t kPanel = 256;  // rows of B per packed panel

template <class S> struct Lanes {
  typedef S type __attribute__((vector_size(32)));
  static constexpr int count = 32 / sizeof(S);
};
template <class R> struct Lanes<std::complex<R>> {
  using type = std::complex<R>;
  static constexpr int count = 1;
};

// C = alpha * acc + beta * C for the first `valid` items.
template <class T, class S>
inline void store(const typename Lanes<S>::type& acc, S alpha, S beta, T* C, int valid) {
  constexpr int L = Lanes<S>::count;
  typename Lanes<S>::type old;
  if constexpr (std::is_same_v<T, S> && !is_complex_v<S>)
    if (valid >= L) {
      auto sum = alpha * acc;
      if (beta != S(0)) std::memcpy(&old, C, sizeof old), sum += beta * old;
      std::memcpy(C, &sum, sizeof sum);
      return;
    }
  S sum[L];
  std::memcpy(sum, &acc, sizeof sum);
  for (int j = 0; j < std::min(valid, L); ++j) {
    S v{};
    multiply_add(v, alpha, sum[j]);
    if (beta != S(0)) multiply_add(v, beta, cast<S>(C[j]));
    C[j] = cast<T>(v);
  }
}

// R rows by V vectors of C, kept in registers; `valid` of the columns are stored. A is read at [r * ar + p * ap].
template <class T, class S, int R, int V>
inline void tile(int64_t k, const T* A, int64_t ar, int64_t ap, const S* B, int64_t ldb, S alpha, S beta, T* C,
                 int64_t ldc, int valid) {
  using Vector = typename Lanes<S>::type;
  constexpr int L = Lanes<S>::count;
  Vector acc[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) acc[r][v] = Vector{};
  for (int64_t p = 0; p < k; ++p) {
    Vector b[V];
    for (int v = 0; v < V; ++v) std::memcpy(&b[v], B + p * ldb + v * L, sizeof(Vector));
    for (int r = 0; r < R; ++r) {
      const S a = cast<S>(A[r * ar + p * ap]);
      for (int v = 0; v < V; ++v) {
        if constexpr (is_complex_v<S>) multiply_add(acc[r][v], a, b[v]);
        else acc[r][v] += a * b[v];
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store<T, S>(acc[r][v], alpha, beta, C + r * ldc + v * L, valid - v * L);
}

// The columns [j, j + valid) of C from rows [p0, p0 + k) of op(B); fewer columns than the vectors hold are padded.
template <class T, class S, int V>
inline void columns(const Product& p, int64_t j, int valid, int64_t p0, int64_t k, S beta) {
  constexpr int N = V * Lanes<S>::count;
  alignas(64) S panel[kPanel * N];
  const int64_t bp = p.transB ? 1 : p.ldb, bj = p.transB ? p.ldb : 1;
  const T* from = at<T>(p.B, p0 * bp + j * bj);
  const S* B = panel;
  int64_t ldb = N;
  if (std::is_same_v<T, S> && bj == 1 && valid == N) {
    B = reinterpret_cast<const S*>(from);
    ldb = bp;
  } else {
    for (int64_t q = 0; q < k; ++q)
      for (int c = 0; c < N; ++c) panel[q * N + c] = c < valid ? cast<S>(from[q * bp + c * bj]) : S(0);
  }
  const int64_t ar = p.transA ? 1 : p.lda, ap = p.transA ? p.lda : 1;
  const T* A = at<T>(p.A, p0 * ap);
  T* C = static_cast<T*>(p.C) + j;
  const S alpha = scalar<S>(p.alpha);
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) tile<T, S, 4, V>(k, A + i * ar, ar, ap, B, ldb, alpha, beta, C + i * p.ldc, p.ldc,
      valid);
  for (; i < p.m; ++i) tile<T, S, 1, V>(k, A + i * ar, ar, ap, B, ldb, alpha, beta, C + i * p.ldc, p.ldc, valid);
}

// A product of a row and a column.
template <class T> void one_sum(const Product& p) {
  using S = typename Sum<T>::type;
  constexpr int L = 16;
  const int64_t as = p.transA ? p.lda : 1, bs = p.transB ? 1 : p.ldb;
  const T *a = at<T>(p.A, 0), *b = at<T>(p.B, 0);
  S lanes[L] = {}, v{};
  int64_t i = 0;
  if (as == 1 && bs == 1)
    for (; i + L <= p.k; i += L)
      for (int j = 0; j < L; ++j) multiply_add(lanes[j], cast<S>(a[i + j]), cast<S>(b[i + j]));
  for (; i < p.k; ++i) multiply_add(lanes[0], cast<S>(a[i * as]), cast<S>(b[i * bs]));
  for (int step = L / 2; step; step /= 2)
    for (int j = 0; j < step; ++j) lanes[j] += lanes[j + step];
  T& to = *static_cast<T*>(p.C);
  multiply_add(v, scalar<S>(p.alpha), lanes[0]);
  if (const S beta = scalar<S>(p.beta); beta != S(0)) multiply_add(v, beta, cast<S>(to));
  to = cast<T>(v);
}

template <class T> void plain_gemm(const Product& p) {
  using S = typename Sum<T>::type;
  if (p.m == 1 && p.n == 1) return one_sum<T>(p);
  constexpr int N = Lanes<S>::count;
  for (int64_t p0 = 0; p0 < p.k; p0 += kPanel) {
    const int64_t k = std::min(kPanel, p.k - p0);
    const S beta = p0 ? S(1) : scalar<S>(p.beta);
    int64_t j = 0;
    for (; j + 2 * N <= p.n; j += 2 * N) columns<T, S, 2>(p, j, 2 * N, p0, k, beta);
    for (; j < p.n; j += N) columns<T, S, 1>(p, j, int(std::min<int64_t>(N, p.n - j)), p0, k, beta);
  }
}

void plain(DType dtype, const Product& p) {
  switch (dtype) {
    case kUInt8: case kInt8: return plain_gemm<uint8_t>(p);
    case kInt16: return plain_gemm<uint16_t>(p);
    case kInt32: return plain_gemm<uint32_t>(p);
    case kInt64: return plain_gemm<uint64_t>(p);
    case kHalf: return plain_gemm<f16>(p);
    case kBFloat16: return plain_gemm<bf16>(p);
    case kFloat: return plain_gemm<float>(p);
    case kDouble: return plain_gemm<double>(p);
    case kComplexFloat: return plain_gemm<c64>(p);
    case kComplexDouble: return plain_gemm<c128>(p);
    default: unsupported("addmm_impl_cpu_", dtype);
  }
}

// ---- one product on one thread -------------------------------------------------------------------------------
template <class T> void blas_gemv(bool transA, int64_t m, int64_t n, c128 alpha, const void* A, int64_t lda,
                                  const void* x, int64_t incx, c128 beta, void* y, int64_t incy) {
  const int64_t out = transA ? n : m;
  T* Y = static_cast<T*>(y);
  if (beta == c128(0)) for (int64_t i = 0; i < out; ++i) Y[i * incy] = T(0);  // 0 * NaN must not survive
  const int M = int(n), N = int(m), L = int(lda), ix = int(incx), iy = int(incy);
  const T a = cast<T>(alpha), b = cast<T>(beta == c128(0) ? c128(1) : beta);
  fortran<T>(Blas::gemv, transA ? "N" : "T", &M, &N, &a, A, &L, x, &ix, &b, y, &iy, size_t(1));
}

template <class T> void blas_product(const Product& p) {
  const int64_t b_row = p.transB ? 1 : p.ldb, a_col = p.transA ? p.lda : 1;
  if (p.n == 1)
    blas_gemv<T>(p.transA, p.transA ? p.k : p.m, p.transA ? p.m : p.k, p.alpha, p.A, p.lda, p.B, b_row, p.beta, p.C,
        p.ldc);
  else if (p.m == 1)
    blas_gemv<T>(!p.transB, p.transB ? p.n : p.k, p.transB ? p.k : p.n, p.alpha, p.B, p.ldb, p.A, a_col, p.beta, p.C,
        1);
  else
    blas_gemm<T>(p.transA, p.transB, p.m, p.n, p.k, cast<T>(p.alpha), at<T>(p.A, 0), p.lda, at<T>(p.B, 0), p.ldb,
                 cast<T>(p.beta), static_cast<T*>(p.C), p.ldc);
}

template <class T> void scale(const Product& p) {
  using S = typename Sum<T>::type;
  const S beta = scalar<S>(p.beta);
  for (int64_t i = 0; i < p.m; ++i) {
    T* row = static_cast<T*>(p.C) + i * p.ldc;
    for (int64_t j = 0; j < p.n; ++j) {
      S v{};
      if (beta != S(0)) multiply_add(v, beta, cast<S>(row[j]));
      row[j] = cast<T>(v);
    }
  }
}

// A vector has one layout: with one row or column both ways to name it are the same, and this one is a dot product's.
Product as_rows(Product p) {
  if (p.m == 1 && p.transA && p.lda == 1) p.transA = false, p.lda = p.k;
  if (p.n == 1 && !p.transB && p.ldb == 1) p.transB = true, p.ldb = p.k;
  return p;
}

void run(DType dtype, const Product& given) {
  const Product p = as_rows(given);
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    MT_SWITCH(dtype, "addmm_impl_cpu_", MT_INTS(T, return scale<std::make_unsigned_t<T>>(p);)
              MT_FLOATS(T, return scale<T>(p);) MT_HALVES(T, return scale<T>(p);) MT_COMPLEX(T, return scale<T>(p);))
  }
  // A half sum must not be rounded between panels, hence the limit on k for the plain loop.
  const bool half = dtype == kHalf || dtype == kBFloat16;
  const bool small = p.m * p.n * p.k <= kSmall && !(half && p.k > kPanel);
  const bool wide = std::max({p.m, p.n, p.k, p.lda, p.ldb, p.ldc}) > INT_MAX;  // OpenBLAS counts in int
  if (small && p.k >= 128 && std::min(p.m, p.n) <= 4 && skinny_gemm(dtype, p)) return;  // plain would use a lane or four
  if (small || is_integral(dtype) || (wide && !half)) return plain(dtype, p);
  if (dtype == kBFloat16 && bf16_gemm(p)) return;
  if (skinny_gemm(dtype, p)) return;
  switch (dtype) {
    case kFloat: return p.m > 1 && p.n > 1 && float_gemm(p) ? void() : blas_product<float>(p);
    case kDouble: return blas_product<double>(p);
    case kComplexFloat: return blas_product<c64>(p);
    case kComplexDouble: return blas_product<c128>(p);
    default: return half_gemm(dtype, p);
  }
}

// ---- threads -------------------------------------------------------------------------------------------------
// C cut into rows x columns pieces. Every piece packs its parts of A and B anew, so that squares are the cheapest.
struct Grid {
  int64_t rows = 1, columns = 1;
  Grid(int64_t m, int64_t n, int64_t pieces) {
    int64_t least = INT64_MAX;
    for (int64_t r = 1; r <= pieces; ++r) {
      const int64_t c = pieces / r, cost = ceil16(m, r) + ceil16(n, c);
      if (r * c * 8 < pieces * 7 || cost >= least) continue;      // nearly all threads have a piece
      least = cost;
      rows = r;
      columns = c;
    }
  }
  int64_t pieces() const { return rows * columns; }
  // Items of one of `pieces` pieces: a multiple of 16.
  static int64_t ceil16(int64_t extent, int64_t pieces) { return ((extent + pieces - 1) / pieces + 15) / 16 * 16; }
};

Product piece(DType dtype, Product p, int64_t i, const Grid& grid) {
  const int64_t size = itemsize(dtype), down = Grid::ceil16(p.m, grid.rows), across = Grid::ceil16(p.n, grid.columns);
  const int64_t row = std::min(p.m, i / grid.columns * down), column = std::min(p.n, i % grid.columns * across);
  p.A = static_cast<const char*>(p.A) + size * op_offset(p.transA, p.lda, row, 0);
  p.B = static_cast<const char*>(p.B) + size * op_offset(p.transB, p.ldb, 0, column);
  p.C = static_cast<char*>(p.C) + size * (row * p.ldc + column);
  p.m = std::min(down, p.m - row);
  p.n = std::min(across, p.n - column);
  return p;
}

// A small result of a deep product, such as the gradient of a weight: cut into pieces it would leave little to each thread, which
// would read much for it. Each sums a part of the depth instead.
template <class T> void sum_depth(DType dtype, const Product& p, int64_t parts) {
  const int64_t size = p.m * p.n, each = (p.k + parts - 1) / parts;
  indexing::Scratch<T> partial((parts - 1) * size);
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Product part = p;
      const int64_t first = std::min(i * each, p.k);
      part.k = std::min(each, p.k - first);
      part.A = at<T>(p.A, op_offset(p.transA, p.lda, 0, first));
      part.B = at<T>(p.B, op_offset(p.transB, p.ldb, first, 0));
      if (i > 0) part.C = partial.get() + (i - 1) * size, part.ldc = p.n, part.beta = 0.0;
      run(dtype, part);
    }
  });
  parallel_for(p.m, kGrain / (parts * p.n) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* to = static_cast<T*>(p.C) + i * p.ldc;
      for (int64_t part = 1; part < parts; ++part) {
        const T* from = partial.get() + (part - 1) * size + i * p.n;
        for (int64_t j = 0; j < p.n; ++j) to[j] += from[j];
      }
    }
  });
}

// How many parts of the depth; 1: it is not worth it.
int64_t parts_for(DType dtype, const Product& p) {
  constexpr int64_t kMost = 1 << 17, kEach = 512;  // items of the result, the depth of a part
  const int64_t threads = in_parallel() ? 1 : get_num_threads(), small = std::min<int64_t>(kMost, threads * 128 * 128);
  if (dtype != kFloat && dtype != kDouble) return 1;
  if (p.m * p.n > small || std::min(p.m, p.n) < 16 || p.k < 8 * std::max(p.m, p.n)) return 1;
  return std::min(threads, p.k / kEach);
}

int64_t pieces_for(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kOutput = 16;  // to write a result takes as long as so many multiplications
  const int64_t grain = m == 1 || n == 1 ? kGrainGemv : kGrainGemm, work = m * n * std::max(k, kOutput);
  if (work <= grain) return 1;
  return std::min<int64_t>({get_num_threads(), work / grain + 1, (m + 15) / 16 * ((n + 15) / 16)});
}

}  // namespace

void gemm(DType dtype, bool transA, bool transB, int64_t m, int64_t n, int64_t k, c128 alpha, const void* A,
    int64_t lda,
          const void* B, int64_t ldb, c128 beta, void* C, int64_t ldc) {
  const Product p{transA, transB, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc};
  const int64_t pieces = pieces_for(m, n, k);
  if (pieces <= 1) return run(dtype, p);
  if (const int64_t parts = parts_for(dtype, p); parts > 1)
    return dtype == kFloat ? sum_depth<float>(dtype, p, parts) : sum_depth<double>(dtype, p, parts);
  if (shared_gemm(dtype, p)) return;
  const Grid grid(m, n, pieces);
  parallel_for(grid.pieces(), 1, [&](int64_t from, int64_t to) {
    if (to - from == grid.pieces()) return run(dtype, p);  // inline: no reason to cut
    for (int64_t i = from; i < to; ++i) run(dtype, piece(dtype, p, i, grid));
  });
}

void gemm_batched(DType dtype, bool transA, bool transB, int64_t batch, int64_t m, int64_t n, int64_t k, c128 alpha,
                  const void* A, int64_t lda, int64_t strideA, const void* B, int64_t ldb, int64_t strideB, c128 beta,
                  void* C, int64_t ldc, int64_t strideC) {
  const int64_t work = std::max<int64_t>(m * n * k, 1), size = itemsize(dtype);
  const Grid grid(m, n, batch >= get_num_threads() ? 1 : pieces_for(m, n, k));
  const int64_t pieces = grid.pieces();
  parallel_for(batch * pieces, std::max<int64_t>(1, kGrainGemm / work), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t b = i / pieces;
      const Product p{transA, transB, m, n, k, alpha, static_cast<const char*>(A) + size * b * strideA, lda,
                      static_cast<const char*>(B) + size * b * strideB, ldb, beta,
                          static_cast<char*>(C) + size * b * strideC, ldc};
      run(dtype, pieces == 1 ? p : piece(dtype, p, i % pieces, grid));
    }
  });
}

void gemv(DType dtype, bool transA, int64_t m, int64_t n, c128 alpha, const void* A, int64_t lda, const void* x,
          int64_t incx, c128 beta, void* y, int64_t incy) {
  // x as a (k x 1) matrix of row stride incx, y of row stride incy.
  gemm(dtype, transA, false, transA ? n : m, 1, transA ? m : n, alpha, A, lda, x, incx, beta, y, incy);
}

}  // namespace mt
