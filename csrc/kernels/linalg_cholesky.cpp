// The Cholesky factorisation and what follows from it: cholesky_ex, cholesky_solve, cholesky_inverse.
#include "linalg_impl.h"

namespace mt {
namespace {

// potrf of a lower triangle so small that LAPACK's call costs more than its arithmetic, column by column.
constexpr int64_t kSmall = 8;
template <class T> int small_potrf(int64_t n, T* a) {
  for (int64_t j = 0; j < n; ++j) {
    real_t<T> d = std::real(a[j + j * n]);
    for (int64_t k = 0; k < j; ++k) d -= std::norm(a[j + k * n]);
    a[j + j * n] = T(d);
    if (!(d > 0)) return int(j) + 1;
    a[j + j * n] = T(d = std::sqrt(d));
    for (int64_t i = j + 1; i < n; ++i) {
      T v = a[i + j * n];
      for (int64_t k = 0; k < j; ++k) v -= a[i + k * n] * conj_of(a[j + k * n]);
      a[i + j * n] = v / d;
    }
  }
  return 0;
}

// linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)
void linalg_cholesky_ex(const Args& g) {
  const View &out = g.t[0], &info = g.t[1], &A = g.t[2];
  check_square(A, "linalg.cholesky");
  const bool upper = flag(g, 0, false);
  const Batches batch(out, 2);
  const int64_t n = size(A, 1);
  MT_DISPATCH_LINALG(A.dtype, "linalg_cholesky", T, {
    batch.each(double(n) * n * n / 3, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, n);
        const int M = int(n), L = lead(n);
        int failed = 0;
        if (!upper && n <= kSmall) failed = small_potrf(n, a.data());
        else if (n) fortran<T>(Blas::potrf, upper ? "U" : "L", &M, a.data(), &L, &failed, size_t(1));
        for (int64_t j = 0; j < n && !failed; ++j)  // of NaN potrf says nothing
          if (!(std::abs(a[j + j * n]) >= 0)) failed = int(j) + 1;
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = upper ? j + 1 : 0; i < (upper ? n : j); ++i) a[i + j * n] = T(0);
        store(Matrix<T>(out, batch, b), a, n);
        store_info(info, batch, b, failed);
      }
    });
  })
}

// cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor
void cholesky_solve(const Args& g) {
  const View &X = g.t[0], &B = g.t[1], &factor = g.t[2];
  check_square(factor, "cholesky_solve");
  const bool upper = flag(g, 0, false);
  const Batches batch(X, 2);
  const int64_t n = size(factor, 1), nrhs = size(B, 1);
  MT_DISPATCH_LINALG(B.dtype, "cholesky_solve_cpu", T, {
    batch.each(double(n) * n * nrhs, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n), x(n * nrhs);
      for (int64_t b = from; b < to && n && nrhs; ++b) {
        load(Matrix<T>(factor, batch, b), a, n);
        load(Matrix<T>(B, batch, b), x, n);
        const int M = int(n), R = int(nrhs), L = lead(n);
        int failed = 0;
        fortran<T>(Blas::potrs, upper ? "U" : "L", &M, &R, a.data(), &L, x.data(), &L, &failed, size_t(1));
        store(Matrix<T>(X, batch, b), x, n);
      }
    });
  })
}

// cholesky_inverse(Tensor self, bool upper=False) -> Tensor
void cholesky_inverse(const Args& g) {
  const View &out = g.t[0], &factor = g.t[1];
  check_square(factor, "cholesky_inverse");
  const bool upper = flag(g, 0, false);
  const Batches batch(out, 2);
  const int64_t n = size(factor, 1);
  MT_DISPATCH_LINALG(factor.dtype, "cholesky_inverse_out_cpu", T, {
    batch.each(double(n) * n * n, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n);
      for (int64_t b = from; b < to && n; ++b) {
        load(Matrix<T>(factor, batch, b), a, n);
        const int M = int(n), L = lead(n);
        int failed = 0;
        fortran<T>(Blas::potri, upper ? "U" : "L", &M, a.data(), &L, &failed, size_t(1));
        if (failed)
          throw std::runtime_error("cholesky_inverse: The diagonal element " + std::to_string(failed) + " is zero, the inverse could not be computed.");
        for (int64_t j = 0; j < n; ++j)  // potri fills one triangle
          for (int64_t i = 0; i < j; ++i) {
            if (upper) a[j + i * n] = conj_of(a[i + j * n]);
            else a[i + j * n] = conj_of(a[j + i * n]);
          }
        store(Matrix<T>(out, batch, b), a, n);
      }
    });
  })
}

const Register registered[] = {{"linalg_cholesky_ex", linalg_cholesky_ex}, {"cholesky_solve", cholesky_solve},
                               {"cholesky_inverse", cholesky_inverse}};

}  // namespace
}  // namespace mt
