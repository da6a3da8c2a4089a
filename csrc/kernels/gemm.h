// Matrix product over raw memory, for every dtype; the kernels on tensors (mm, addmm, ...) are in matmul.cpp.
#pragma once
#include "view.h"

namespace mt {

// C = alpha * op(A) op(B) + beta * C, row-major: op(A) is m x k, op(B) k x n, C m x n; op transposes when trans is
// set, so that A is then stored k x m. ld* counts items between rows as stored. beta == 0 never reads C.
// bool, the integers (they wrap), float16 and bfloat16 (summed in float, rounded once), floats and complex.
// Work is split over threads here, unless the caller already runs inside a parallel_for: then it runs inline, with
// nothing shared between callers. A, B and C do not overlap.
void gemm(DType dtype, bool transA, bool transB, int64_t m, int64_t n, int64_t k, c128 alpha, const void* A,
    int64_t lda,
          const void* B, int64_t ldb, c128 beta, void* C, int64_t ldc);

// The same for `batch` products whose operands lie stride* items apart (0: the same operand for all).
void gemm_batched(DType dtype, bool transA, bool transB, int64_t batch, int64_t m, int64_t n, int64_t k, c128 alpha,
                  const void* A, int64_t lda, int64_t strideA, const void* B, int64_t ldb, int64_t strideB, c128 beta,
                  void* C, int64_t ldc, int64_t strideC);

// y = alpha * op(A) x + beta * y; A is m x n as stored (row-major), incx and incy may be anything but 0 for y.
void gemv(DType dtype, bool transA, int64_t m, int64_t n, c128 alpha, const void* A, int64_t lda, const void* x,
          int64_t incx, c128 beta, void* y, int64_t incy);

// What multiplies bfloat16 on this processor without a way through float: "amx", "avx512_bf16", "neon_bf16", or "".
const char* bf16_unit();

// The right factor of a product in float32 that is written as it is needed, and never lies in memory as a whole.
struct MadeColumns {
  int64_t unit = 1;  // of the depth: slices begin and end at multiples of it
  virtual ~MadeColumns() = default;
  // Items depth0.. of columns first.. : item d of column j goes to strip[(d - depth0) * step + j - first].
  virtual void write(int64_t first, int64_t count, int64_t depth0, int64_t depth, float* strip, int64_t step) const = 0;
};

// C (m x n) = A (m x k) times the columns, or added to C. In the library for AVX-512 only.
void gemm_made(int64_t m, int64_t n, int64_t k, const float* A, int64_t lda, const MadeColumns& columns, bool add, float* C,
               int64_t ldc);

}  // namespace mt
