// What the reduction family shares: the fold engine, vector lanes, row walks. No op lives here.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <vector>

#include "convert.h"
#include "dense.h"
#include "dispatch.h"
#include "library.h"
#include "parallel.h"
#include "scalar.h"

namespace mt {

// ---- folds -----------------------------------------------------------------------------------------------
// A reduction is a set of loops over contiguous items of one compute dtype that fold them into states; the engine
// in reduce.cpp brings every shape, stride, dtype and thread count to these loops.
struct FoldParam {
  double p = 0;        // ord of a norm, correction of a variance
  int64_t items = 0;   // items folded into each state
  int64_t times = 1;   // how often each of them counts, see Repeats
};
struct Fold {
  int32_t state = 0;   // bytes of one state; 0: this compute dtype is not supported
  void (*init)(void* s, int64_t n) = nullptr;
  // One state takes n items; `base` is the number of the first of them among all items of that state.
  void (*row)(void* s, const void* x, int64_t n, int64_t base, const FoldParam& q) = nullptr;
  // State j takes the items x[i * stride + j], i < rows; `base` is the number of row 0.
  void (*cols)(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t base,
               const FoldParam& q) = nullptr;
  void (*merge)(void* s, const void* later, int64_t n) = nullptr;  // `later` saw the items after those of s
  void (*finish)(const void* s, int64_t n, void* const* out, const FoldParam& q) = nullptr;
};

// The most states the engine hands to `cols` at once, and the bytes they may take.
constexpr int64_t kFoldWidth = 2048, kFoldBytes = 32768;

// What is made of items that repeat along an expanded dim: all are folded; only the first, as the others change nothing; only
// the first, and finish() counts it q.times.
enum Repeats { kFoldEach, kFoldOnce, kFoldTimes };

// Which op, on which dtypes. result: the dtype `finish` writes, per output; the engine casts it to the output's.
struct Reduction {
  const char* name;
  const Fold* fold;
  DType compute;
  DType result[2];
  bool ordered;        // `base` is used: items are numbered in the logical order of the input
  Repeats repeats = kFoldEach;
};

// mask: bit d set when dim d of `in` is reduced. out: one or two views with the reduced dims kept or dropped.
void reduce(const Reduction& r, const View* out, int nout, const View& in, uint64_t mask, double p = 0);

int wrap_dim(int64_t dim, int ndim);

// Of more than 64 dims all are reduced or none.
inline bool is_reduced(uint64_t mask, int d) { return mask >> (d & 63) & 1; }

uint64_t dim_mask(const Attr* list, int ndim);   // nullptr, None or an empty list: all dims

// n items `stride` items apart, of any dtype, to and from contiguous items of another.
void load(DType to, void* dst, DType from, const void* src, int64_t stride, int64_t n);
void store(DType to, void* dst, int64_t stride, DType from, const void* src, int64_t n);


// ---- vector lanes ----------------------------------------------------------------------------------------
// Folds n items into kOut results (item i goes to result i % kOut) through eight vector accumulators, so that no
// addition waits for the one before and rounding errors stay those of n/64 additions. F::item(acc, x) takes an item
// and F::merge(acc, acc) joins accumulators; both must work on scalars and on vectors. By reference throughout: a
// 32-byte vector passed by value changes the ABI without AVX.
template <int kOut, class F, class T> inline void fold_lanes(const T* x, int64_t n, T identity, T* out) {
  typedef T V __attribute__((vector_size(32)));
  constexpr int L = 32 / sizeof(T), K = 8;
  for (int k = 0; k < kOut; ++k) out[k] = identity;
  int64_t i = 0;
  if (n >= L) {
    V acc[K], v;
    for (int k = 0; k < K; ++k) acc[k] = V{} + identity;
    for (; i + K * L <= n; i += K * L)
      for (int k = 0; k < K; ++k) {
        std::memcpy(&v, x + i + k * L, 32);
        F::item(acc[k], v);
      }
    for (; i + L <= n; i += L) {
      std::memcpy(&v, x + i, 32);
      F::item(acc[0], v);
    }
    for (int step = K / 2; step > 0; step /= 2)
      for (int k = 0; k < step; ++k) F::merge(acc[k], acc[k + step]);
    T lane[L];
    std::memcpy(lane, &acc[0], 32);
    for (int step = L / 2; step >= kOut; step /= 2)
      for (int k = 0; k < step; ++k) F::merge(lane[k], lane[k + step]);
    for (int k = 0; k < kOut; ++k) out[k] = lane[k];
  }
  for (; i < n; ++i) F::item(out[i % kOut], x[i]);
}

struct AddLanes {
  template <class V> static void item(V& a, const V& x) { a += x; }
  template <class V> static void merge(V& a, const V& b) { a += b; }
};
// A NaN wins and stays: x > NaN is false, so only another NaN replaces it.
struct MaxLanes {
  template <class V> static void item(V& a, const V& x) { a = ((x > a) | (x != x)) ? x : a; }
  template <class V> static void merge(V& a, const V& b) { item(a, b); }
};
struct MinLanes {
  template <class V> static void item(V& a, const V& x) { a = ((x < a) | (x != x)) ? x : a; }
  template <class V> static void merge(V& a, const V& b) { item(a, b); }
};

// State j takes x[i * stride + j], i < rows. Four rows meet before they touch the states. Written with vectors, as the
// compiler does not see through a choice between references.
template <class F, class T> inline void fold_columns(T* s, const T* x, int64_t rows, int64_t stride, int64_t n) {
  typedef T V __attribute__((vector_size(32)));
  constexpr int64_t L = 32 / sizeof(T);
  for (int64_t i = 0; i < rows; i += 4) {
    int64_t m = std::min<int64_t>(4, rows - i), j = 0;
    const T* p = x + i * stride;
    for (; j + L <= n; j += L) {
      V a, v;
      std::memcpy(&a, s + j, 32);
      for (int64_t k = 0; k < m; ++k) {
        std::memcpy(&v, p + k * stride + j, 32);
        F::item(a, v);
      }
      std::memcpy(s + j, &a, 32);
    }
    for (; j < n; ++j)
      for (int64_t k = 0; k < m; ++k) F::item(s[j], p[k * stride + j]);
  }
}

// ---- sums ------------------------------------------------------------------------------------------------
// The loops of a Fold that adds: items of P interleaved parts of type T (complex: 2), states of P parts of the wider
// type S. Only a block of items is added in their own precision before it goes to the state.
constexpr int64_t kRowBlock = 4096, kColBlock = 128;

template <class S, int P> void sum_init(void* s, int64_t n) { std::fill_n(static_cast<S*>(s), n * P, S(0)); }

template <class T, class S, int P, class F>
void sum_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  const T* p = static_cast<const T*>(x);
  for (int64_t i = 0; i < n * P; i += kRowBlock) {
    T part[P];
    fold_lanes<P, F>(p + i, std::min(kRowBlock, n * P - i), T(0), part);
    for (int k = 0; k < P; ++k) static_cast<S*>(s)[k] += S(part[k]);
  }
}

template <class F, class T> inline T item_of(T x) {
  T a = 0;
  F::item(a, x);
  return a;
}

// Eight rows are added as a tree before they touch the accumulators: one pass of loads and stores for eight rows.
template <class T, class F> void add_rows(T* __restrict acc, const T* x, int64_t rows, int64_t stride, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= rows; i += 8) {
    const T *a = x + i * stride, *b = a + stride, *c = b + stride, *d = c + stride;
    const T *e = d + stride, *f = e + stride, *g = f + stride, *h = g + stride;
    for (int64_t j = 0; j < n; ++j)
      acc[j] += ((item_of<F>(a[j]) + item_of<F>(b[j])) + (item_of<F>(c[j]) + item_of<F>(d[j]))) +
                ((item_of<F>(e[j]) + item_of<F>(f[j])) + (item_of<F>(g[j]) + item_of<F>(h[j])));
  }
  for (; i < rows; ++i)
    for (int64_t j = 0; j < n; ++j) acc[j] += item_of<F>(x[i * stride + j]);
}

template <class T, class S, int P, class F>
void sum_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  alignas(64) T acc[kFoldWidth * P];
  S* __restrict state = static_cast<S*>(s);
  const T* p = static_cast<const T*>(x);
  n *= P, stride *= P;
  for (int64_t i = 0; i < rows; i += kColBlock) {
    std::fill_n(acc, n, T(0));
    add_rows<T, F>(acc, p + i * stride, std::min(kColBlock, rows - i), stride, n);
    for (int64_t j = 0; j < n; ++j) state[j] += S(acc[j]);
  }
}

template <class S, int P> void sum_merge(void* s, const void* later, int64_t n) {
  for (int64_t j = 0; j < n * P; ++j) static_cast<S*>(s)[j] += static_cast<const S*>(later)[j];
}

// ---- rows ------------------------------------------------------------------------------------------------
// Some dims of up to four tensors, outermost first.
struct Dims {
  int nt = 3, n = 0;
  int64_t size[kMaxDims], stride[4][kMaxDims];

  void sort();    // by falling stride of tensor 0; stable
  void merge();   // joins neighbours that are one dim in the memory of every tensor
  int64_t count(int upto) const {
    int64_t c = 1;
    for (int d = 0; d < upto; ++d) c *= size[d];
    return c;
  }
};

// The rows along one dim of tensors of one shape: every position of the other dims.
struct Rows {
  Dims dims;
  int64_t count = 1, length = 1, step[4] = {1, 1, 1, 1};  // rows, items of a row, stride inside a row per tensor

  Rows(std::initializer_list<const View*> views, int64_t dim);
  // f(offsets): the item offset of a row's first item in each tensor, for the rows [begin, end).
  template <class F> void each(int64_t begin, int64_t end, F f) const {
    int64_t at[kMaxDims], off[4] = {0, 0, 0, 0};
    for (int64_t d = dims.n - 1, rest = begin; d >= 0; --d) {
      at[d] = rest % dims.size[d];
      rest /= dims.size[d];
      for (int t = 0; t < dims.nt; ++t) off[t] += at[d] * dims.stride[t][d];
    }
    for (int64_t i = begin; i < end; ++i) {
      f(static_cast<const int64_t*>(off));
      for (int d = dims.n - 1; d >= 0; --d) {
        for (int t = 0; t < dims.nt; ++t) off[t] += dims.stride[t][d];
        if (++at[d] < dims.size[d]) break;
        for (int t = 0; t < dims.nt; ++t) off[t] -= dims.size[d] * dims.stride[t][d];
        at[d] = 0;
      }
    }
  }
  // Where rows lie side by side in every tensor, makes panels of them (`count` then counts panels, and each() walks
  // those) and returns the columns of a panel; else 0. Few columns do not pay.
  int64_t take_columns();
};

// One tensor's rows as contiguous items of the compute dtype: its own memory where it is that, else a buffer.
class RowBuffer {
 public:
  RowBuffer(const View& v, DType compute, int64_t step, int64_t n)
      : data_(v.ptr<char>()), dtype_(v.dtype), compute_(compute), step_(step), n_(n) {
    if (v.dtype != compute || (step != 1 && n != 1)) memory_.reset(new char[size_t(n) * itemsize(compute)]);
  }
  const void* read(int64_t offset) {
    if (!memory_) return at(offset);
    load(compute_, memory_.get(), dtype_, at(offset), step_, n_);
    return memory_.get();
  }
  void* write_to(int64_t offset) { return memory_ ? memory_.get() : at(offset); }
  void written(int64_t offset) {
    if (memory_) store(dtype_, at(offset), step_, compute_, memory_.get(), n_);
  }

 private:
  char* at(int64_t offset) const { return data_ + offset * itemsize(dtype_); }
  char* data_;
  DType dtype_, compute_;
  int64_t step_, n_;
  std::unique_ptr<char[]> memory_;
};

}  // namespace mt
