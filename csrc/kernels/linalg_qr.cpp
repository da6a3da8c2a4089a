// Orthogonal factorisations: geqrf, qr, householder_product, and the least-squares solvers built on them.
#include "linalg_impl.h"

namespace mt {
namespace {

template <class T> void geqrf(int64_t m, int64_t n, T* a, T* tau) {
  const int M = int(m), N = int(n), L = lead(m);
  int info = 0, lwork = -1;
  if (!m || !n) return;
  T query{};
  fortran<T>(Blas::geqrf, &M, &N, a, &L, tau, &query, &lwork, &info);
  lwork = queried(query);
  std::vector<T> work(lwork);
  fortran<T>(Blas::geqrf, &M, &N, a, &L, tau, work.data(), &lwork, &info);
}
// The first n columns of Q, from k reflectors in the columns of a.
template <class T> void orgqr(int64_t m, int64_t n, int64_t k, T* a, T* tau) {
  const int M = int(m), N = int(n), K = int(k), L = lead(m);
  int info = 0, lwork = -1;
  if (!m || !n) return;
  T query{};
  fortran<T>(Blas::orgqr, &M, &N, &K, a, &L, tau, &query, &lwork, &info);
  lwork = queried(query);
  std::vector<T> work(lwork);
  fortran<T>(Blas::orgqr, &M, &N, &K, a, &L, tau, work.data(), &lwork, &info);
}

// geqrf(Tensor self) -> (Tensor a, Tensor tau)
void geqrf_kernel(const Args& g) {
  const View &out = g.t[0], &tau = g.t[1], &A = g.t[2];
  const Batches batch(out, 2);
  const int64_t m = size(A, 2), n = size(A, 1), k = std::min(m, n);
  MT_DISPATCH_LINALG(A.dtype, "geqrf_cpu", T, {
    batch.each(double(m) * n * k, [&](int64_t from, int64_t to) {
      std::vector<T> a(m * n), t(k);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, m);
        geqrf(m, n, a.data(), t.data());
        store(Matrix<T>(out, batch, b), a, m);
        store_vector(tau, batch, b, t);
      }
    });
  })
}

// linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)
void linalg_qr(const Args& g) {
  const View &Q = g.t[0], &R = g.t[1], &A = g.t[2];
  const char mode = g.na && g.a[0].s ? g.a[0].s[0] : 'r';
  const bool complete = mode == 'c', only_r = g.na && g.a[0].s && std::string(g.a[0].s) == "r";
  const Batches batch(R, 2);
  const int64_t m = size(A, 2), n = size(A, 1), k = std::min(m, n), q = complete ? m : k, r = size(R, 2);
  MT_DISPATCH_LINALG(A.dtype, "linalg_qr_cpu", T, {
    batch.each(2. * m * n * k, [&](int64_t from, int64_t to) {
      std::vector<T> a(m * std::max(n, q)), t(k), upper(r * n);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, m);
        geqrf(m, n, a.data(), t.data());
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = 0; i < r; ++i) upper[i + j * r] = i <= j && i < m ? a[i + j * m] : T(0);
        store(Matrix<T>(R, batch, b), upper, r);
        if (only_r) continue;
        orgqr(m, q, k, a.data(), t.data());
        store(Matrix<T>(Q, batch, b), a, m);
      }
    });
  })
}

// linalg_householder_product(Tensor input, Tensor tau) -> Tensor
void linalg_householder_product(const Args& g) {
  const View &out = g.t[0], &A = g.t[1], &tau = g.t[2];
  const Batches batch(out, 2);
  const int64_t m = size(A, 2), n = size(A, 1), k = size(tau, 1);
  if (m < n) throw std::runtime_error("torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]");
  if (n < k) throw std::runtime_error("torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]");
  MT_DISPATCH_LINALG(A.dtype, "orgqr_cpu", T, {
    batch.each(2. * m * n * n, [&](int64_t from, int64_t to) {
      std::vector<T> a(m * n), t(k);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, m);
        load_vector(tau, batch, b, t);
        orgqr(m, n, k, a.data(), t.data());
        store(Matrix<T>(out, batch, b), a, m);
      }
    });
  })
}

// One least-squares problem: the solution is left in the first n rows of b (ld rows in all).
template <class T> int least_squares(const std::string& driver, int64_t m, int64_t n, int64_t nrhs, T* a, T* b, int64_t ld, real_t<T> rcond, real_t<T>* s, int& rank) {
  using R = real_t<T>;
  const int M = int(m), N = int(n), C = int(nrhs), L = lead(m), LB = int(ld), k = int(std::min(m, n));
  int info = 0, lwork = -1;
  std::vector<R> rwork(1);
  std::vector<int> pivots(n, 0), iwork(1);
  std::vector<T> work(1);
  auto call = [&] {
    if (driver == "gels") fortran<T>(Blas::gels, "N", &M, &N, &C, a, &L, b, &LB, work.data(), &lwork, &info, size_t(1));
    else if constexpr (is_complex_v<T>) {
      if (driver == "gelsd") fortran<T>(Blas::gelsd, &M, &N, &C, a, &L, b, &LB, s, &rcond, &rank, work.data(), &lwork, rwork.data(), iwork.data(), &info);
      else if (driver == "gelss") fortran<T>(Blas::gelss, &M, &N, &C, a, &L, b, &LB, s, &rcond, &rank, work.data(), &lwork, rwork.data(), &info);
      else fortran<T>(Blas::gelsy, &M, &N, &C, a, &L, b, &LB, pivots.data(), &rcond, &rank, work.data(), &lwork, rwork.data(), &info);
    } else {
      if (driver == "gelsd") fortran<T>(Blas::gelsd, &M, &N, &C, a, &L, b, &LB, s, &rcond, &rank, work.data(), &lwork, iwork.data(), &info);
      else if (driver == "gelss") fortran<T>(Blas::gelss, &M, &N, &C, a, &L, b, &LB, s, &rcond, &rank, work.data(), &lwork, &info);
      else fortran<T>(Blas::gelsy, &M, &N, &C, a, &L, b, &LB, pivots.data(), &rcond, &rank, work.data(), &lwork, &info);
    }
  };
  call();
  // gelsd answers the sizes of the real and integer workspaces in the first item of each.
  lwork = queried(work[0]);
  work.resize(lwork);
  rwork.resize(std::max<int64_t>({int64_t(rwork[0]), 5 * int64_t(k), 2 * n, 1}));
  iwork.resize(std::max(iwork[0], 1));
  call();
  return info;
}

// _linalg_lstsq(Tensor self, Tensor B, str? driver=None, float? rcond=None)
//   -> (Tensor solution, Tensor rank, Tensor singular_values, Tensor info); rank and values where the driver has them.
void linalg_lstsq(const Args& g) {
  const View &X = g.t[0], &ranks = g.t[1], &values = g.t[2], &infos = g.t[3], &A = g.t[4], &B = g.t[5];
  const std::string driver = g.na > 0 && g.a[0].s ? g.a[0].s : "gelsy";
  if (driver != "gels" && driver != "gelsy" && driver != "gelsd" && driver != "gelss")
    throw std::runtime_error("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  const bool vector = B.ndim == A.ndim - 1;
  const Batches batch(X, vector ? 1 : 2);
  const int64_t m = size(A, 2), n = size(A, 1), nrhs = vector ? 1 : size(B, 1), ld = std::max<int64_t>({m, n, 1});
  MT_DISPATCH_LINALG(A.dtype, "linalg_lstsq_cpu", T, {
    const bool given = g.na > 1 && g.a[1].given;
    const real_t<T> rcond = given ? real_t<T>(g.a[1].f) : std::numeric_limits<real_t<T>>::epsilon() * std::max(m, n);
    batch.each(2. * m * n * (std::min(m, n) + nrhs), [&](int64_t from, int64_t to) {
      std::vector<T> a(m * n), x(ld * nrhs);
      std::vector<real_t<T>> s(std::min(m, n));
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, m);
        std::fill(x.begin(), x.end(), T(0));
        load(Matrix<T>(B, batch, b, vector), x, ld);
        int info = 0, rank = 0;
        if (!all_finite(a)) {  // LAPACK may search forever for singular values: gelss does, of a matrix with a NaN
          std::fill(x.begin(), x.end(), T(std::numeric_limits<real_t<T>>::quiet_NaN()));
          std::fill(s.begin(), s.end(), std::numeric_limits<real_t<T>>::quiet_NaN());
        } else if (m && n && nrhs) info = least_squares(driver, m, n, nrhs, a.data(), x.data(), ld, rcond, s.data(), rank);
        store_info(infos, batch, b, info);
        if (ranks.given() && driver != "gels") ranks.ptr<int64_t>()[batch.offset(ranks, 0, b)] = rank;
        if (values.given() && driver != "gels" && driver != "gelsy") store_vector(values, batch, b, s);
        store(Matrix<T>(X, batch, b, vector), x, ld);
      }
    });
  })
}

const Register registered[] = {
    {"geqrf", geqrf_kernel}, {"linalg_qr", linalg_qr}, {"linalg_householder_product", linalg_householder_product},
    {"orgqr", linalg_householder_product}, {"_linalg_lstsq", linalg_lstsq}};

}  // namespace
}  // namespace mt
