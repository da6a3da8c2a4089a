// Inside of the linalg_* files: matrices of a batch to and from LAPACK's column-major memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "blas.h"
#include "dispatch.h"
#include "expect.h"
#include "library.h"
#include "parallel.h"
#include "scalar.h"

#define MT_DISPATCH_LINALG(dtype, op, T, ...) MT_SWITCH(dtype, op, MT_FLOATS(T, __VA_ARGS__) MT_COMPLEX(T, __VA_ARGS__))

namespace mt {

template <class T> struct real_of { using type = T; };
template <class T> struct real_of<std::complex<T>> { using type = T; };
template <class T> using real_t = typename real_of<T>::type;

template <class T> inline T conj_of(T v) {
  if constexpr (is_complex_v<T>) return std::conj(v);
  else return v;
}

// The batch of a call: the leading sizes of an output that ends in `tail` dims of its own.
struct Batches {
  const int64_t* sizes;
  int n;
  int64_t count = 1;
  Batches(const View& out, int tail) : sizes(out.sizes), n(out.ndim - tail) {
    if (n < 0) throw std::runtime_error("linalg: The input tensor must have at least 2 dimensions.");
    for (int d = 0; d < n; ++d) count *= sizes[d];
  }
  // Item offset of batch element b in a view that ends in `tail` dims and broadcasts to this batch.
  int64_t offset(const View& v, int tail, int64_t b) const {
    int64_t at = 0;
    for (int d = n - 1; d >= 0; --d) {
      const int from = v.ndim - tail - n + d;
      const int64_t i = b % sizes[d];
      b /= sizes[d];
      if (from < 0 || v.sizes[from] == 1) continue;
      if (v.sizes[from] != sizes[d]) throw std::runtime_error("linalg: a batch of " + sizes_text(v) + " does not fit");
      at += i * v.strides[from];
    }
    return at;
  }
  // body(from, to) over the batch; `work` is the number of multiplications of one element.
  template <class F> void each(double work, F&& body) const {
    parallel_for(count, std::max<int64_t>(1, int64_t(200000 / (work + 1))), body);
  }
};

inline int64_t size(const View& v, int from_end) {
  if (v.ndim < from_end)
    throw std::runtime_error("linalg: expected at least " + std::to_string(from_end) + " dimensions, but got " + sizes_text(v));
  return v.sizes[v.ndim - from_end];
}

template <class T> constexpr DType kItem =
    std::is_same_v<T, int> ? kInt32 : std::is_same_v<T, int64_t> ? kInt64 : std::is_same_v<T, float> ? kFloat
    : std::is_same_v<T, double> ? kDouble : std::is_same_v<T, c64> ? kComplexFloat : kComplexDouble;
template <class T> inline void check_items(const View& v) {
  if (v.dtype != kItem<T>) throw std::runtime_error(std::string("linalg: expected items of ") + dtype_name(kItem<T>) +
                                                    ", but got " + dtype_name(v.dtype));
}

// One strided matrix; a vector of n items is n x 1.
template <class T> struct Matrix {
  T* data;
  int64_t rows, cols, rs, cs;
  Matrix(const View& v, const Batches& b, int64_t i, bool vector = false) : data(v.ptr<T>() + b.offset(v, vector ? 1 : 2, i)) {
    check_items<T>(v);
    rows = size(v, vector ? 1 : 2), rs = v.strides[v.ndim - (vector ? 1 : 2)];
    cols = vector ? 1 : size(v, 1), cs = vector ? 0 : v.strides[v.ndim - 1];
  }
  Matrix transposed() const {
    Matrix t = *this;
    std::swap(t.rows, t.cols);
    std::swap(t.rs, t.cs);
    return t;
  }
};

// Between a strided matrix and column-major memory, in blocks so that one of the sides never strides far. The memory
// is sized for the shapes that an op expects: a tensor of other sizes is refused here.
template <class T> inline void check_room(const Matrix<T>& m, const std::vector<T>& memory, int64_t ld) {
  if (m.rows && m.cols && (m.rows > ld || (m.cols - 1) * ld + m.rows > int64_t(memory.size())))
    throw std::runtime_error("linalg: the sizes of the matrices do not fit each other");
}
template <class T, class F> inline void blocks(const Matrix<T>& m, F&& move) {
  constexpr int64_t B = 16;
  for (int64_t j0 = 0; j0 < m.cols; j0 += B)
    for (int64_t i0 = 0; i0 < m.rows; i0 += B)
      for (int64_t j = j0; j < std::min(j0 + B, m.cols); ++j)
        for (int64_t i = i0; i < std::min(i0 + B, m.rows); ++i) move(i, j);
}
template <class T> void load(const Matrix<T>& m, std::vector<T>& to, int64_t ld, bool conj = false) {
  check_room(m, to, ld);
  blocks(m, [&](int64_t i, int64_t j) {
    T v = m.data[i * m.rs + j * m.cs];
    to[i + j * ld] = conj ? conj_of(v) : v;
  });
}
template <class T> void store(const Matrix<T>& m, const std::vector<T>& from, int64_t ld, bool conj = false) {
  check_room(m, from, ld);
  blocks(m, [&](int64_t i, int64_t j) {
    T v = from[i + j * ld];
    m.data[i * m.rs + j * m.cs] = conj ? conj_of(v) : v;
  });
}
template <class T> void check_room(const View& v, const std::vector<T>& memory) {
  check_items<T>(v);
  if (size(v, 1) > int64_t(memory.size()))
    throw std::runtime_error("linalg: the sizes of a vector and of the matrices do not fit each other");
}
template <class T> void load_vector(const View& v, const Batches& b, int64_t i, std::vector<T>& to) {
  check_room(v, to);
  const T* p = v.ptr<T>() + b.offset(v, 1, i);
  for (int64_t k = 0; k < size(v, 1); ++k) to[k] = p[k * v.strides[v.ndim - 1]];
}
template <class T> void store_vector(const View& v, const Batches& b, int64_t i, const std::vector<T>& from) {
  check_room(v, from);
  T* p = v.ptr<T>() + b.offset(v, 1, i);
  for (int64_t k = 0; k < size(v, 1); ++k) p[k * v.strides[v.ndim - 1]] = from[k];
}
inline void store_info(const View& v, const Batches& b, int64_t i, int info) {
  if (v.given()) v.ptr<int32_t>()[b.offset(v, 0, i)] = info;
}

template <class T> inline bool all_finite(const std::vector<T>& a) {
  bool finite = true;
  for (const T& v : a) finite &= std::isfinite(std::real(v)) && std::isfinite(std::imag(v));
  return finite;
}

// gesdd answers a NaN with an error code, but may search forever in a matrix that holds infinities.
template <class T> inline bool has_infinity(const std::vector<T>& a) {
  bool inf = false, nan = false;
  for (const T& v : a) {
    inf |= std::isinf(std::real(v)) || std::isinf(std::imag(v));
    nan |= v != v;
  }
  return inf && !nan;
}

inline void check_square(const View& A, const char* op) {
  if (A.ndim < 2)
    throw std::runtime_error(std::string(op) + ": The input tensor A must have at least 2 dimensions.");
  if (size(A, 1) != size(A, 2))
    throw std::runtime_error(std::string(op) + ": A must be batches of square matrices, but they are " +
                             std::to_string(size(A, 2)) + " by " + std::to_string(size(A, 1)) + " matrices");
}

// LAPACK insists on leading dimensions of at least 1, and answers a workspace query (lwork == -1) in work[0].
inline int lead(int64_t n) { return int(std::max<int64_t>(n, 1)); }
template <class T> inline int queried(T work) { return std::max(1, int(std::real(work))); }
inline bool is_lower(const Attr& uplo) { return !uplo.s || uplo.s[0] == 'L' || uplo.s[0] == 'l'; }
inline bool flag(const Args& g, int i, bool otherwise) { return g.na > i && g.a[i].given ? g.a[i].i != 0 : otherwise; }

// B is a vector per matrix of A: (n,), or A's shape less one dim.
inline bool is_vector_case(const View& A, const View& B) {
  if (B.ndim == 1) return true;
  if (B.ndim != A.ndim - 1) return false;
  for (int d = 0; d < B.ndim; ++d)
    if (B.sizes[d] != A.sizes[d]) return false;
  return true;
}

}  // namespace mt
