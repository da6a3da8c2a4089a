// The LDL factorisation of symmetric and Hermitian matrices (Bunch-Kaufman): ldl_factor_ex, ldl_solve.
#include "linalg_impl.h"

namespace mt {
namespace {

constexpr const char* kLower = "L";

// _linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots, Tensor info)
void linalg_ldl_factor_ex(const Args& g) {
  const View &LD = g.t[0], &pivots = g.t[1], &info = g.t[2], &A = g.t[3];
  check_square(A, "torch.linalg.ldl_factor_ex");
  const auto routine = flag(g, 0, false) ? Blas::hetrf : Blas::sytrf;
  const Batches batch(LD, 2);
  const int64_t n = size(A, 1);
  MT_DISPATCH_LINALG(A.dtype, "ldl_factor_kernel_cpu", T, {
    batch.each(double(n) * n * n / 3, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n), work(1);
      std::vector<int> p(n);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, n);
        const int M = int(n), L = lead(n);
        int failed = 0, room = -1;
        if (n) {
          fortran<T>(routine, kLower, &M, a.data(), &L, p.data(), work.data(), &room, &failed, size_t(1));
          room = queried(work[0]);
          work.resize(room);
          fortran<T>(routine, kLower, &M, a.data(), &L, p.data(), work.data(), &room, &failed, size_t(1));
        }
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = 0; i < j; ++i) a[i + j * n] = T(0);
        store(Matrix<T>(LD, batch, b), a, n);
        store_vector(pivots, batch, b, p);
        store_info(info, batch, b, failed);
      }
    });
  })
}

// LAPACK follows the pivots without a look: a negative one stands twice, for a block of two rows.
void check_pivots(const std::vector<int>& p) {
  const int n = int(p.size());
  for (int k = 0; k < n; ++k) {
    const bool pair = p[k] < 0;
    if (std::abs(int64_t(p[k])) < 1 || std::abs(int64_t(p[k])) > n || (pair && (k + 1 == n || p[k + 1] != p[k])))
      throw std::runtime_error("torch.linalg.ldl_solve: pivots are not those of an LDL factorisation. Did you properly pass "
                               "the result of ldl_factor?");
    k += pair;
  }
}

// _linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor
void linalg_ldl_solve(const Args& g) {
  const View &X = g.t[0], &LD = g.t[1], &pivots = g.t[2], &B = g.t[3];
  check_square(LD, "torch.linalg.ldl_solve");
  const auto routine = flag(g, 0, false) ? Blas::hetrs : Blas::sytrs;
  const Batches batch(X, 2);
  const int64_t n = size(LD, 1), nrhs = size(B, 1);
  if (pivots.dtype != kInt32 || pivots.ndim < 1 || size(pivots, 1) != n || size(B, 2) != n || B.dtype != LD.dtype)
    throw std::runtime_error("torch.linalg.ldl_solve: LD, pivots and B do not fit together");
  MT_DISPATCH_LINALG(LD.dtype, "ldl_solve_kernel_cpu", T, {
    batch.each(double(n) * n * nrhs, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n), x(n * nrhs);
      std::vector<int> p(n);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(LD, batch, b), a, n);
        load(Matrix<T>(B, batch, b), x, n);
        load_vector(pivots, batch, b, p);
        check_pivots(p);
        const int M = int(n), R = int(nrhs), L = lead(n);
        int failed = 0;
        if (n && nrhs)
          fortran<T>(routine, kLower, &M, &R, a.data(), &L, p.data(), x.data(), &L, &failed, size_t(1));
        store(Matrix<T>(X, batch, b), x, n);
      }
    });
  })
}

const Register registered[] = {{"_linalg_ldl_factor_ex", linalg_ldl_factor_ex}, {"_linalg_ldl_solve", linalg_ldl_solve}};

}  // namespace
}  // namespace mt
