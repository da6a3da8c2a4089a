// Products of 16-bit floats by widening blocks to float; the AVX-512 bfloat16 kernel is in gemm_bf16.cpp.
#include <algorithm>
#include <memory>

#include "convert.h"
#include "gemm_impl.h"

namespace mt {
namespace {

constexpr int64_t kRows = 256, kColumns = 512, kDepth = 1024;  // a block of A, of B and of C fits in L2 and L3

// Rows of the stored matrix that make up the block op(X)[i0 .. i0+rows, j0 .. j0+cols), as they lie: still transposed.
void widen_block(DType dtype, bool trans, const void* X, int64_t ld, int64_t i0, int64_t j0, int64_t rows,
    int64_t cols, float* out) {
  if (trans) {
    std::swap(i0, j0);
    std::swap(rows, cols);
  }
  for (int64_t r = 0; r < rows; ++r) convert(kFloat, out + r * cols, dtype, at<uint16_t>(X, (i0 + r) * ld + j0), cols);
}

void finish_block(DType dtype, const Product& p, int64_t i0, int64_t j0, int64_t rows, int64_t cols, float* sum) {
  const float beta = float(p.beta.real());
  float old[kColumns];
  for (int64_t i = 0; i < rows; ++i) {
    uint16_t* c = static_cast<uint16_t*>(p.C) + (i0 + i) * p.ldc + j0;
    float* s = sum + i * cols;
    if (beta != 0) {
      convert(kFloat, old, dtype, c, cols);
      for (int64_t j = 0; j < cols; ++j) s[j] += beta * old[j];
    }
    convert(dtype, c, kFloat, s, cols);
  }
}

}  // namespace

void half_gemm(DType dtype, const Product& p) {
  const int64_t mb = std::min(p.m, kRows), nb = std::min(p.n, kColumns), kb = std::min(p.k, kDepth);
  std::unique_ptr<float[]> memory(new float[mb * kb + kb * nb + mb * nb]);
  float *a = memory.get(), *b = a + mb * kb, *sum = b + kb * nb;
  for (int64_t j = 0; j < p.n; j += nb)
    for (int64_t i = 0; i < p.m; i += mb) {
      const int64_t rows = std::min(mb, p.m - i), cols = std::min(nb, p.n - j);
      for (int64_t q = 0; q < p.k; q += kb) {
        const int64_t depth = std::min(kb, p.k - q);
        widen_block(dtype, p.transA, p.A, p.lda, i, q, rows, depth, a);
        if (i == 0 || p.k > kb) widen_block(dtype, p.transB, p.B, p.ldb, q, j, depth, cols, b);
        blas_gemm<float>(p.transA, p.transB, rows, cols, depth, float(p.alpha.real()), a, p.transA ? rows : depth, b,
                         p.transB ? depth : cols, q ? 1.f : 0.f, sum, cols);
      }
      finish_block(dtype, p, i, j, rows, cols, sum);
    }
}

}  // namespace mt
