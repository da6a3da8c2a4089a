// The lazy door to OpenBLAS and its LAPACK: found and opened at the first use. What is done with it is elsewhere.
#pragma once
#include <complex>
#include <cstddef>
#include <string>
#include <type_traits>

#include "view.h"

namespace mt {

void set_blas_path(const char* file);  // before the first use; nullptr or "" goes back to the search of blas.cpp

// The routines, for the four BLAS dtypes; blas.cpp maps orgqr and syevd to the complex names, hetrf
// and hetrs to the real ones.
#define MT_BLAS_ROUTINES(X) \
  X(gemm) X(gemv) X(trsm) X(getrf) X(getrs) X(getri) X(potrf) X(potri) X(potrs) X(geqrf) X(orgqr) X(syevd) X(geev) \
  X(gesdd) X(gels) X(gelsy) X(gelsd) X(gelss) X(sytrf) X(sytrs) X(hetrf) X(hetrs)

struct Blas {
  enum Routine {
#define MT_NAME(name) name,
    MT_BLAS_ROUTINES(MT_NAME)
#undef MT_NAME
    kCount
  };
  void* routine[4][kCount];  // [float, double, complex64, complex128]
};

const Blas& blas();  // throws std::runtime_error when there is no OpenBLAS, or none that multiplies correctly
std::string find_wrong_product(const Blas& blas);  // blas_check.cpp: the first product that is wrong; empty: all are right

inline bool is_blas_dtype(DType d) { return d >= kFloat; }
template <class T> constexpr int blas_index() {
  if (std::is_same_v<T, float>) return 0;
  if (std::is_same_v<T, double>) return 1;
  return std::is_same_v<T, c64> ? 2 : 3;
}

// Calls a Fortran routine: every argument is a pointer; the lengths that gfortran appends for character arguments
// are passed as trailing size_t, since leaving them out lets a tail call in the callee overwrite our stack.
template <class T, class... A> inline void fortran(Blas::Routine r, A... args) {
  reinterpret_cast<void (*)(A...)>(blas().routine[blas_index<T>()][r])(args...);
}

}  // namespace mt
