// What follows from an LU factorisation: lu_factor, solve, inv, det, slogdet, lu_solve; and the triangular solve.
#include "linalg_impl.h"

namespace mt {
namespace {

constexpr const char* N = "N";

// Matrices so small that a call of LAPACK costs more than their arithmetic; often there are thousands of them.
constexpr int64_t kSmall = 8;
template <class T> real_t<T> pivot_size(T v) {
  if constexpr (is_complex_v<T>) return std::abs(v.real()) + std::abs(v.imag());
  else return std::abs(v);
}
// getrf and getrs as LAPACK has them, column by column.
template <class T> int small_getrf(int64_t m, int64_t n, T* a, int* pivots) {
  int info = 0;
  for (int64_t j = 0; j < std::min(m, n); ++j) {
    int64_t p = j;
    for (int64_t i = j + 1; i < m; ++i)
      if (pivot_size(a[i + j * m]) > pivot_size(a[p + j * m])) p = i;
    pivots[j] = int(p) + 1;
    if (a[p + j * m] == T(0)) {
      if (info == 0) info = int(j) + 1;
    } else {
      for (int64_t k = 0; p != j && k < n; ++k) std::swap(a[j + k * m], a[p + k * m]);
      for (int64_t i = j + 1; i < m; ++i) a[i + j * m] /= a[j + j * m];
    }
    for (int64_t k = j + 1; k < n; ++k)
      for (int64_t i = j + 1; i < m; ++i) a[i + k * m] -= a[i + j * m] * a[j + k * m];
  }
  return info;
}
template <class T> void small_getrs(int64_t n, int64_t nrhs, const T* a, const int* pivots, T* b) {
  for (int64_t r = 0; r < nrhs; ++r, b += n) {
    for (int64_t i = 0; i < n; ++i)
      if (pivots[i] != i + 1) std::swap(b[i], b[pivots[i] - 1]);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = j + 1; i < n; ++i) b[i] -= a[i + j * n] * b[j];
    for (int64_t j = n - 1; j >= 0; --j) {
      b[j] /= a[j + j * n];
      for (int64_t i = 0; i < j; ++i) b[i] -= a[i + j * n] * b[j];
    }
  }
}

// The inverse of an N x N matrix at strides rs and cs to x (row by row): its rows beside those of the identity, each row a few
// vectors. As getrf and getrs, returns the first column without a pivot.
template <class T, int N> int small_inverse(const T* a, int64_t rs, int64_t cs, T* x) {
  T rows[N][2 * N];
  int info = 0;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) rows[i][j] = a[i * rs + j * cs], rows[i][N + j] = T(i == j);
  for (int j = 0; j < N; ++j) {
    int p = j;
    for (int i = j + 1; i < N; ++i)
      if (pivot_size(rows[i][j]) > pivot_size(rows[p][j])) p = i;
    if (rows[p][j] == T(0)) {
      if (info == 0) info = j + 1;
      continue;
    }
    if (p != j) std::swap(rows[p], rows[j]);
    for (int i = j + 1; i < N; ++i) {
      const T by = rows[i][j] / rows[j][j];
      for (int k = 0; k < 2 * N; ++k) rows[i][k] -= by * rows[j][k];
    }
  }
  for (int j = N - 1; j >= 0; --j) {
    for (int k = 0; k < N; ++k) x[j * N + k] = rows[j][N + k] / rows[j][j];
    for (int i = 0; i < j; ++i)
      for (int k = 0; k < N; ++k) rows[i][N + k] -= rows[i][j] * x[j * N + k];
  }
  return info;
}
template <class T> using SmallInverse = int (*)(const T* a, int64_t rs, int64_t cs, T* x);
template <class T> SmallInverse<T> small_inverse_of(int64_t n) {
  static constexpr SmallInverse<T> by_size[] = {nullptr, small_inverse<T, 1>, small_inverse<T, 2>, small_inverse<T, 3>,
                                                small_inverse<T, 4>, small_inverse<T, 5>, small_inverse<T, 6>};
  return n <= 6 && !is_complex_v<T> ? by_size[n] : nullptr;
}

template <class T> int getrf(int64_t m, int64_t n, T* a, int* pivots) {
  if (m <= kSmall && n <= kSmall) return small_getrf(m, n, a, pivots);
  const int M = int(m), C = int(n), L = lead(m);
  int info = 0;
  if (m && n) fortran<T>(Blas::getrf, &M, &C, a, &L, pivots, &info);
  return info;
}
// op: "N", "T" or "C".
template <class T> void getrs(const char* op, int64_t n, int64_t nrhs, const T* a, const int* pivots, T* b) {
  if (op == N && n <= kSmall && nrhs <= kSmall) return small_getrs(n, nrhs, a, pivots, b);
  const int M = int(n), R = int(nrhs), L = lead(n);
  int info = 0;
  if (n && nrhs) fortran<T>(Blas::getrs, op, &M, &R, a, &L, pivots, b, &L, &info, size_t(1));
}

// A vector right-hand side as a matrix of one column.
struct Column {
  int64_t sizes[kMaxDims + 1], strides[kMaxDims + 1];
  View view;
  Column(const View& v, bool vector) : view(v) {
    if (!vector) return;
    std::copy_n(v.sizes, v.ndim, sizes), std::copy_n(v.strides, v.ndim, strides);
    sizes[v.ndim] = strides[v.ndim] = 1;
    view = View{v.data, sizes, strides, v.ndim + 1, v.dtype};
  }
};

// linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)
void linalg_lu_factor_ex(const Args& g) {
  const View &LU = g.t[0], &pivots = g.t[1], &info = g.t[2], &A = g.t[3];
  if (!flag(g, 0, true)) throw std::runtime_error("linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  const Batches batch(LU, 2);
  const int64_t m = size(A, 2), n = size(A, 1), k = std::min(m, n);
  MT_DISPATCH_LINALG(A.dtype, "linalg_lu_factor", T, {
    batch.each(double(m) * n * k, [&](int64_t from, int64_t to) {
      std::vector<T> a(m * n);
      std::vector<int> p(k);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, m);
        store_info(info, batch, b, getrf(m, n, a.data(), p.data()));
        store(Matrix<T>(LU, batch, b), a, m);
        store_vector(pivots, batch, b, p);
      }
    });
  })
}

// linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)
void linalg_inv_ex(const Args& g) {
  const View &inverse = g.t[0], &info = g.t[1], &A = g.t[2];
  check_square(A, "linalg.inv");
  const Batches batch(inverse, 2);
  const int64_t n = size(A, 1);
  MT_DISPATCH_LINALG(A.dtype, "linalg_inv", T, {
    if (const SmallInverse<T> invert = small_inverse_of<T>(n))
      return batch.each(2. * n * n * n, [&](int64_t from, int64_t to) {
        T x[36];
        for (int64_t b = from; b < to; ++b) {
          const Matrix<T> a(A, batch, b), made(inverse, batch, b);
          store_info(info, batch, b, invert(a.data, a.rs, a.cs, x));
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j) made.data[i * made.rs + j * made.cs] = x[i * n + j];
        }
      });
    batch.each(2. * n * n * n, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n), x(n * n);
      std::vector<int> p(n);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(A, batch, b), a, n);
        store_info(info, batch, b, getrf(n, n, a.data(), p.data()));
        for (int64_t i = 0; i < n * n; ++i) x[i] = T(i % (n + 1) == 0);
        getrs(N, n, n, a.data(), p.data(), x.data());  // getri would leave -0 where torch has 0
        store(Matrix<T>(inverse, batch, b), x, n);
      }
    });
  })
}

// The factors of every matrix of A, stored to LU and pivots, and what `reduce` makes of each.
template <class T, class F> void factor_each(const View& A, const View& LU, const View& pivots, F&& reduce) {
  const Batches batch(LU, 2);
  const int64_t n = size(A, 1);
  batch.each(double(n) * n * n, [&](int64_t from, int64_t to) {
    std::vector<T> a(n * n);
    std::vector<int> p(n);
    for (int64_t b = from; b < to; ++b) {
      load(Matrix<T>(A, batch, b), a, n);
      getrf(n, n, a.data(), p.data());
      store(Matrix<T>(LU, batch, b), a, n);
      store_vector(pivots, batch, b, p);
      bool odd = false;
      for (int64_t i = 0; i < n; ++i) odd ^= p[i] != i + 1;
      reduce(batch, b, a.data(), n, odd);
    }
  });
}

// _linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)
void linalg_det(const Args& g) {
  const View& result = g.t[0];
  check_square(g.t[3], "linalg.det");
  MT_DISPATCH_LINALG(g.t[3].dtype, "linalg_det", T, {
    factor_each<T>(g.t[3], g.t[1], g.t[2], [&](const Batches& batch, int64_t b, const T* a, int64_t n, bool odd) {
      T det = odd ? T(-1) : T(1);
      for (int64_t i = 0; i < n; ++i) det *= a[i + i * n];
      result.ptr<T>()[batch.offset(result, 0, b)] = det;
    });
  })
}

// _linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)
void linalg_slogdet(const Args& g) {
  const View &sign = g.t[0], &logabsdet = g.t[1];
  check_square(g.t[4], "linalg.slogdet");
  MT_DISPATCH_LINALG(g.t[4].dtype, "linalg_slogdet", T, {
    factor_each<T>(g.t[4], g.t[2], g.t[3], [&](const Batches& batch, int64_t b, const T* a, int64_t n, bool odd) {
      T s = odd ? T(-1) : T(1);
      real_t<T> log = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T d = a[i + i * n];
        const real_t<T> size = std::abs(d);
        s = size == 0 ? T(0) : s * (d / size);
        log += std::log(size);
      }
      sign.ptr<T>()[batch.offset(sign, 0, b)] = s;
      logabsdet.ptr<real_t<T>>()[batch.offset(logabsdet, 0, b)] = log;
    });
  })
}

// _lu_permutation(Tensor pivots, int n) -> Tensor: row i of P^T A is row perm[i] of A.
void lu_permutation(const Args& g) {
  const View &perm = g.t[0], &pivots = g.t[1];
  const Batches batch(perm, 1);
  const int64_t n = g.a[0].i, k = pivots.ndim ? size(pivots, 1) : 0;
  if (pivots.dtype != kInt32 || pivots.ndim < 1 || k > n)
    throw std::runtime_error("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype");
  std::vector<int> p(k);
  std::vector<int64_t> order(n);
  for (int64_t b = 0; b < batch.count; ++b) {
    load_vector(pivots, batch, b, p);
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    for (int64_t i = 0; i < k; ++i) {
      if (p[i] < 1 || p[i] > n) throw std::runtime_error("pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
          "Did you properly pass the result of lu_factor?");
      std::swap(order[i], order[p[i] - 1]);
    }
    store_vector(perm, batch, b, order);
  }
}

// linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor
void linalg_lu_solve(const Args& g) {
  const View &X = g.t[0], &LU = g.t[1], &pivots = g.t[2], &B = g.t[3];
  check_square(LU, "torch.linalg.lu_solve");
  const bool left = flag(g, 0, true), adjoint = flag(g, 1, false);
  const Batches batch(X, 2);
  const int64_t n = size(LU, 1), nrhs = size(B, left ? 1 : 2);
  if (pivots.dtype != kInt32 || pivots.ndim < 1 || size(pivots, 1) != n || size(B, left ? 2 : 1) != n || B.dtype != LU.dtype)
    throw std::runtime_error("torch.linalg.lu_solve: LU, pivots and B do not fit together");
  MT_DISPATCH_LINALG(LU.dtype, "linalg_lu_solve", T, {
    batch.each(double(n) * n * nrhs, [&](int64_t from, int64_t to) {
      std::vector<T> a(n * n), x(n * nrhs);
      std::vector<int> p(n);
      for (int64_t b = from; b < to; ++b) {
        load(Matrix<T>(LU, batch, b), a, n);
        load_vector(pivots, batch, b, p);
        for (int pivot : p)
          if (pivot < 1 || pivot > n)
            throw std::runtime_error("Pivots given to lu_solve must all be greater or equal to 1. Did you properly pass the "
                                     "result of lu_factor?");
        Matrix<T> rhs(B, batch, b), result(X, batch, b);
        // X A = B is A^H X^H = B^H.
        load(left ? rhs : rhs.transposed(), x, n, !left);
        getrs(adjoint == left ? "C" : N, n, nrhs, a.data(), p.data(), x.data());
        store(left ? result : result.transposed(), x, n, !left);
      }
    });
  })
}

// linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)
//   -> (Tensor result, Tensor LU, Tensor pivots, Tensor info); LU is always that of A, never of its transpose.
void linalg_solve_ex(const Args& g) {
  const View &A = g.t[4], &B = g.t[5];
  check_square(A, "linalg.solve");
  const bool left = flag(g, 0, true), vector = is_vector_case(A, B);
  if (size(B, vector || !left ? 1 : 2) != size(A, 1))
    throw std::runtime_error(std::string("linalg.solve: Incompatible shapes of A and B for the equation ") + (left ? "AX = B" : "XA = B"));
  const View factor[] = {g.t[1], g.t[2], g.t[3], A};
  linalg_lu_factor_ex({factor, 4, nullptr, 0, nullptr});
  Column x(g.t[0], vector), rhs(B, vector);
  const View solve[] = {x.view, g.t[1], g.t[2], rhs.view};
  linalg_lu_solve({solve, 4, g.a, vector ? 0 : 1, nullptr});
}

// linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor
void linalg_solve_triangular(const Args& g) {
  const View &X = g.t[0], &A = g.t[1], &B = g.t[2];
  check_square(A, "linalg.solve_triangular");
  const bool upper = flag(g, 0, false), left = flag(g, 1, true), unit = flag(g, 2, false);
  const Batches batch(X, 2);
  const int64_t n = size(A, 1), m = size(X, 2), k = size(X, 1);
  expect(n == (left ? m : k), "linalg.solve_triangular", "the sizes of the matrices do not fit each other");
  MT_DISPATCH_LINALG(A.dtype, "triangular_solve", T, {
    batch.each(double(n) * m * k, [&](int64_t from, int64_t to) {
      std::vector<T> a, x(m * k);
      for (int64_t b = from; b < to && m && k; ++b) {
        const Matrix<T> factor(A, batch, b);
        // Rows that lie side by side are the columns of the transposed matrix, whose triangle is the other one.
        const bool rows = factor.cs == 1 && factor.rs >= n, columns = factor.rs == 1 && factor.cs >= n;
        if (!rows && !columns) a.resize(n * n), load(factor, a, n);
        load(Matrix<T>(B, batch, b), x, m);
        const T* where = rows || columns ? factor.data : a.data();
        const int M = int(m), K = int(k), L = rows ? int(factor.rs) : columns ? int(factor.cs) : lead(n), LX = lead(m);
        const T one(1);
        fortran<T>(Blas::trsm, left ? "L" : "R", upper != rows ? "U" : "L", rows ? "T" : N, unit ? "U" : N, &M, &K, &one, where,
                   &L, x.data(), &LX, size_t(1), size_t(1), size_t(1), size_t(1));
        store(Matrix<T>(X, batch, b), x, m);
      }
    });
  })
}

const Register registered[] = {
    {"linalg_lu_factor_ex", linalg_lu_factor_ex}, {"linalg_solve_ex", linalg_solve_ex}, {"_linalg_solve_ex", linalg_solve_ex},
    {"linalg_inv_ex", linalg_inv_ex}, {"_linalg_det", linalg_det}, {"_linalg_slogdet", linalg_slogdet},
    {"linalg_lu_solve", linalg_lu_solve}, {"_lu_permutation", lu_permutation}, {"linalg_solve_triangular", linalg_solve_triangular}};

}  // namespace
}  // namespace mt
