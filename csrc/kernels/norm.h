// What the norms and losses share: optional tensors as arrays, rows of any float dtype. No op lives here.
#pragma once
#include "expect.h"
#include "reduce_moments.h"

namespace mt {

template <class T> constexpr DType kDTypeOf = sizeof(T) == 4 ? kFloat : kDouble;

// A small tensor that may be absent, as contiguous items of T; absent: nullptr.
template <class T> class Maybe {
 public:
  T* p = nullptr;
  Maybe(const View& v, Dense::Mode mode) {
    if (!v.given()) return;
    if (v.dtype != kDTypeOf<T> || !v.contiguous()) dense_.reset(new Dense(v, kDTypeOf<T>, mode));
    p = dense_ ? dense_->template ptr<T>() : v.ptr<T>();
  }
  void store() const { if (dense_) dense_->store(); }

 private:
  std::unique_ptr<Dense> dense_;
};

// A large tensor that may be absent, as contiguous rows, each converted to T when it is read or written.
template <class T> class Matrix {
 public:
  Matrix(const View& v, Dense::Mode mode) : view_(v) {
    if (!v.given() || v.contiguous()) return;
    dense_.reset(new Dense(v, v.dtype, mode));
    view_ = dense_->view();
  }
  explicit operator bool() const { return view_.given(); }
  void store() const { if (dense_) dense_->store(); }

  // The rows of n items, for one thread's use.
  class Access {
   public:
    Access(const View& v, int64_t n) : n_(n), buffer_(v, kDTypeOf<T>, 1, n) {}
    const T* read(int64_t row) { return static_cast<const T*>(buffer_.read(row * n_)); }
    T* write_to(int64_t row) { return static_cast<T*>(buffer_.write_to(row * n_)); }
    void written(int64_t row) { buffer_.written(row * n_); }

   private:
    int64_t n_;
    RowBuffer buffer_;
  };
  Access rows(int64_t n) const { return Access(view_, n); }

 private:
  View view_;
  std::unique_ptr<Dense> dense_;
};

// What one thread adds up for grad_weight and grad_bias: a block of rows in T, all blocks in double.
template <class T> struct Sums {
  std::vector<T> part;
  std::vector<double> all;
  int64_t held = 0;
  explicit Sums(int64_t n) : part(size_t(2 * n)), all(size_t(2 * n)) {}
  void flush() {
    for (size_t j = 0; j < part.size(); ++j) all[j] += double(part[j]), part[j] = 0;
    held = 0;
  }
  void add_row(const T* g, const T* normal, int64_t n) {
    T *__restrict w = part.data(), *__restrict b = w + n;
    for (int64_t j = 0; j < n; ++j) w[j] += g[j] * normal[j], b[j] += g[j];
    if (++held == kColBlock) flush();
  }
};

inline int64_t rows_per_piece(int64_t n) { return std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(n, 1)); }

}  // namespace mt
