// Eigenvalues and singular values: eigh, eig, svd.
#include "linalg_impl.h"

namespace mt {
namespace {

// One Hermitian matrix in place: eigenvectors in its columns when requested.
template <class T> int syevd(bool vectors, bool lower, int64_t n, T* a, real_t<T>* w) {
  const int N = int(n), L = lead(n);
  const char *job = vectors ? "V" : "N", *uplo = lower ? "L" : "U";
  int info = 0, lwork = -1, lrwork = -1, liwork = -1;
  std::vector<T> work(1);
  std::vector<real_t<T>> rwork(1);
  std::vector<int> iwork(1);
  auto call = [&] {
    if constexpr (is_complex_v<T>)
      fortran<T>(Blas::syevd, job, uplo, &N, a, &L, w, work.data(), &lwork, rwork.data(), &lrwork, iwork.data(), &liwork, &info, size_t(1), size_t(1));
    else
      fortran<T>(Blas::syevd, job, uplo, &N, a, &L, w, work.data(), &lwork, iwork.data(), &liwork, &info, size_t(1), size_t(1));
  };
  call();
  lwork = queried(work[0]), lrwork = queried(rwork[0]), liwork = std::max(1, iwork[0]);
  work.resize(lwork), rwork.resize(lrwork), iwork.resize(liwork);
  call();
  return info;
}

// _linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)
void linalg_eigh(const Args& g) {
  const View &w = g.t[0], &V = g.t[1], &info = g.t[2], &A = g.t[3];
  check_square(A, "linalg.eigh");
  const bool lower = g.na == 0 || is_lower(g.a[0]), vectors = flag(g, 1, true);
  const Batches batch(w, 1);
  const int64_t n = size(A, 1);
  MT_DISPATCH_LINALG(A.dtype, "linalg_eigh_cpu", T, {
    batch.each(9. * n * n * n, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n);
      std::vector<real_t<T>> values(n);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, n);
        store_info(info, batch, b, !n ? 0 : syevd(vectors, lower, n, a.data(), values.data()));
        store_vector(w, batch, b, values);
        if (vectors) store(Matrix<T>(V, batch, b), a, n);
      }
    });
  })
}

// One general matrix; values and vectors are complex. A real matrix gives its complex pairs as (re, im) columns.
template <class T> int geev(bool vectors, int64_t n, T* a, std::complex<real_t<T>>* values, std::complex<real_t<T>>* v) {
  using R = real_t<T>;
  using C = std::complex<R>;
  const int N = int(n), L = lead(n), one = 1;
  const char* job = vectors ? "V" : "N";
  int info = 0, lwork = -1;
  std::vector<T> work(1);
  if constexpr (is_complex_v<T>) {
    std::vector<R> rwork(2 * n);
    auto call = [&] {
      fortran<T>(Blas::geev, "N", job, &N, a, &L, values, (T*)nullptr, &one, v, &L, work.data(), &lwork, rwork.data(), &info, size_t(1), size_t(1));
    };
    call();
    lwork = queried(work[0]), work.resize(lwork);
    call();
  } else {
    std::vector<R> re(n), im(n), vr(vectors ? n * n : 1);
    auto call = [&] {
      fortran<T>(Blas::geev, "N", job, &N, a, &L, re.data(), im.data(), (T*)nullptr, &one, vr.data(), &L, work.data(), &lwork, &info, size_t(1), size_t(1));
    };
    call();
    lwork = queried(work[0]), work.resize(lwork);
    call();
    for (int64_t j = 0; j < n; ++j) values[j] = C(re[j], im[j]);
    for (int64_t j = 0; vectors && j < n; ++j) {
      const bool pair = im[j] != 0 && j + 1 < n;
      for (int64_t i = 0; i < n; ++i) {
        v[i + j * n] = C(vr[i + j * n], pair ? vr[i + (j + 1) * n] : R(0));
        if (pair) v[i + (j + 1) * n] = std::conj(v[i + j * n]);
      }
      j += pair;
    }
  }
  return info;
}

void eig(const View& w, const View& V, const View& info, const View& A) {
  check_square(A, "linalg.eig");
  const Batches batch(w, 1);
  const int64_t n = size(A, 1);
  const bool vectors = V.given();
  MT_DISPATCH_LINALG(A.dtype, "linalg_eig_out_cpu", T, {
    using C = std::complex<real_t<T>>;
    batch.each(20. * n * n * n, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n);
      std::vector<C> values(n), v(vectors ? n * n : 1);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, n);
        const bool finite = all_finite(a);
        if (!finite && vectors)
          throw std::runtime_error("torch.linalg.eig: input tensor should not contain infs or NaNs.");
        if (!finite) values.assign(n, C(std::numeric_limits<real_t<T>>::quiet_NaN(), std::numeric_limits<real_t<T>>::quiet_NaN()));
        store_info(info, batch, b, !n || !finite ? 0 : geev(vectors, n, a.data(), values.data(), v.data()));
        store_vector(w, batch, b, values);
        if (vectors) store(Matrix<C>(V, batch, b), v, n);
      }
    });
  })
}

// _linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)
void linalg_eig(const Args& g) { eig(g.t[0], g.t[1], g.t[2], g.t[3]); }

// _linalg_eigvals(Tensor self) -> (Tensor eigenvalues, Tensor info)
void linalg_eigvals(const Args& g) { eig(g.t[0], View{}, g.t[1], g.t[2]); }

template <class T> int gesdd(const char* job, int64_t m, int64_t n, T* a, real_t<T>* s, T* u, T* vt, int64_t vt_rows) {
  const int M = int(m), N = int(n), LA = lead(m), LV = lead(vt_rows);
  const int64_t k = std::min(m, n), big = std::max(m, n);
  int info = 0, lwork = -1;
  std::vector<T> work(1);
  std::vector<int> iwork(8 * k);
  const bool values_only = *job == 'N';
  std::vector<real_t<T>> rwork(is_complex_v<T> ? (values_only ? 7 * k : k * std::max(5 * k + 7, 2 * big + 2 * k + 1)) + 1 : 1);
  auto call = [&] {
    if constexpr (is_complex_v<T>)
      fortran<T>(Blas::gesdd, job, &M, &N, a, &LA, s, u, &LA, vt, &LV, work.data(), &lwork, rwork.data(), iwork.data(), &info, size_t(1));
    else
      fortran<T>(Blas::gesdd, job, &M, &N, a, &LA, s, u, &LA, vt, &LV, work.data(), &lwork, iwork.data(), &info, size_t(1));
  };
  call();
  // The answer is rounded to float for the single precisions: leave room.
  lwork = queried(work[0]) + (sizeof(real_t<T>) == 4 ? queried(work[0]) / 1024 : 0), work.resize(lwork);
  call();
  return info;
}

// _linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None)
//   -> (Tensor U, Tensor S, Tensor Vh, Tensor info)
void linalg_svd(const Args& g) {
  const View &U = g.t[0], &S = g.t[1], &Vh = g.t[2], &info = g.t[3], &A = g.t[4];
  const bool full = flag(g, 0, false), vectors = flag(g, 1, true);
  const Batches batch(S, 1);
  const int64_t m = size(A, 2), n = size(A, 1), k = std::min(m, n), uc = full ? m : k, vr = full ? n : k;
  MT_DISPATCH_LINALG(A.dtype, "linalg_svd_cpu", T, {
    batch.each(20. * m * n * k, [&](int64_t from, int64_t to) {
      std::vector<T> a(m * n), u(vectors ? m * uc : 1), vt(vectors ? vr * n : 1);
      std::vector<real_t<T>> s(k);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, m);
        if (has_infinity(a)) {
          const real_t<T> none = std::numeric_limits<real_t<T>>::quiet_NaN();
          std::fill(s.begin(), s.end(), none);
          std::fill(u.begin(), u.end(), T(none));
          std::fill(vt.begin(), vt.end(), T(none));
          store_info(info, batch, b, 0);
        } else if (k) {
          store_info(info, batch, b, gesdd(vectors ? (full ? "A" : "S") : "N", m, n, a.data(), s.data(), u.data(), vt.data(), vectors ? vr : 1));
        } else {
          store_info(info, batch, b, 0);  // an empty matrix: the full bases are identities
          for (int64_t i = 0; vectors && i < m * uc; ++i) u[i] = T(i % (m + 1) == 0);
          for (int64_t i = 0; vectors && i < vr * n; ++i) vt[i] = T(i % (n + 1) == 0);
        }
        store_vector(S, batch, b, s);
        if (!vectors) continue;
        store(Matrix<T>(U, batch, b), u, m);
        store(Matrix<T>(Vh, batch, b), vt, vr);
      }
    });
  })
}

const Register registered[] = {{"_linalg_eigh", linalg_eigh}, {"_linalg_eig", linalg_eig},
                               {"_linalg_eigvals", linalg_eigvals}, {"_linalg_svd", linalg_svd}};

}  // namespace
}  // namespace mt
