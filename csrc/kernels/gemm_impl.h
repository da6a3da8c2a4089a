// Inside of gemm: one product on one thread, as the files of gemm hand it to each other.
#pragma once
#include "blas.h"
#include "gemm.h"
#include "scalar.h"

namespace mt {

// The arguments of gemm (gemm.h), without the dtype.
struct Product {
  bool transA, transB;
  int64_t m, n, k;
  c128 alpha;
  const void* A;
  int64_t lda;
  const void* B;
  int64_t ldb;
  c128 beta;
  void* C;
  int64_t ldc;
};

template <class T> inline const T* at(const void* p, int64_t items) { return static_cast<const T*>(p) + items; }

// Where op(X)[i, j] lies, in items from X.
inline int64_t op_offset(bool trans, int64_t ld, int64_t i, int64_t j) { return trans ? j * ld + i : i * ld + j; }

template <class T> inline void blas_gemm(bool transA, bool transB, int64_t m, int64_t n, int64_t k, T alpha, const T* A,
                                         int64_t lda, const T* B, int64_t ldb, T beta, T* C, int64_t ldc) {
  // Fortran is column-major: the row-major C is its C^T = op(B)^T op(A)^T, with the stored matrices unchanged.
  const int M = int(n), N = int(m), K = int(k), LA = int(ldb), LB = int(lda), LC = int(ldc);
  const char *ta = transB ? "T" : "N", *tb = transA ? "T" : "N";
  fortran<T>(Blas::gemm, ta, tb, &M, &N, &K, &alpha, B, &LA, A, &LB, &beta, C, &LC, size_t(1), size_t(1));
}

void half_gemm(DType dtype, const Product& p);    // gemm_half.cpp: float16 and bfloat16
bool skinny_gemm(DType dtype, const Product& p);  // gemm_skinny.cpp; false: not a case for it
bool float_gemm(const Product& p);                // gemm_float.cpp; false: OpenBLAS is the better choice
bool shared_gemm(DType dtype, const Product& p);  // the same by all threads at once; false: cut it into pieces
bool bf16_gemm(const Product& p);                 // gemm_bf16.cpp; false: this processor cannot

}  // namespace mt
