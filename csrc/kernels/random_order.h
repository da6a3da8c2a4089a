// How random kernels meet memory: in the order PyTorch fills a strided tensor, fed with words of the generator.
// No distributions here. A namespace of its own, as its short names are common words.
#pragma once
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "dispatch.h"
#include "parallel.h"
#include "random.h"
#include "scalar.h"

namespace mt::rng {

constexpr int kRandomDims = kMaxDims + 1;  // a complex tensor seen as real has one more

// The dimensions of a tensor from the smallest stride to the largest (PyTorch fills memory in order, whatever the
// order of the dimensions), neighbours joined where possible. With a second view, which is broadcast to the first,
// its strides decide where those of the first do not.
struct Order {
  int ndim = 0;
  int64_t numel = 1;
  int64_t size[kRandomDims], stride[2][kRandomDims];

  explicit Order(const View& a, const View* b = nullptr);
  bool dense() const { return ndim == 0 || (ndim == 1 && stride[0][0] == 1); }

  // Calls f(offset in the first view, offset in the second, i, m) for runs along the first dimension that cover the
  // items begin + [0, n); i counts from 0.
  template <class F> void walk(int64_t begin, int64_t n, F&& f) const {
    int64_t index[kRandomDims], at[2] = {0, 0}, rest = begin;
    for (int d = 0; d < ndim; ++d) {
      index[d] = rest % size[d];
      rest /= size[d];
      for (int k = 0; k < 2; ++k) at[k] += index[d] * stride[k][d];
    }
    for (int64_t i = 0; i < n;) {
      int64_t m = ndim ? std::min(size[0] - index[0], n - i) : 1;
      f(at[0], at[1], i, m);
      i += m;
      if (i >= n) return;
      for (int k = 0; k < 2; ++k) at[k] -= index[0] * stride[k][0];
      index[0] = 0;
      for (int d = 1; d < ndim; ++d) {
        for (int k = 0; k < 2; ++k) at[k] += stride[k][d];
        if (++index[d] < size[d]) break;
        for (int k = 0; k < 2; ++k) at[k] -= size[d] * stride[k][d];
        index[d] = 0;
      }
    }
  }
  int64_t inner(int k) const { return ndim ? stride[k][0] : 0; }
};

// A buffer on the stack for small work and on the heap for large, there of at most `most` items.
template <class T, int Small> struct Buffer {
  Buffer(int64_t n, int64_t most) : size(n <= Small ? Small : std::min(n, most)) {
    if (n > Small) heap.reset(new T[size]);
  }
  T* data() { return heap ? heap.get() : stack; }
  int64_t size;

 private:
  T stack[Small];
  std::unique_ptr<T[]> heap;
};

constexpr int64_t kCheap = int64_t(1) << 62;  // grain of work that is not worth a second thread
constexpr int64_t kLibm = 16384;              // grain of work that calls the mathematical library
constexpr int64_t kPiece = 131072;            // items between two rounds of the threads

// Fills v by produce(T* out, int64_t n), which gives the next n items.
template <class T, class F> void fill_in_order(const View& v, F&& produce) {
  int64_t n = v.numel();
  if (n == 0) return;
  if (v.contiguous()) return produce(v.ptr<T>(), n);
  Order order(v);
  if (order.dense()) return produce(v.ptr<T>(), n);
  Buffer<T, 256> buffer(n, kPiece);
  T* out = v.ptr<T>();
  int64_t step = order.inner(0);
  for (int64_t begin = 0; begin < n; begin += buffer.size) {
    int64_t m = std::min(buffer.size, n - begin);
    const T* from = buffer.data();
    produce(buffer.data(), m);
    order.walk(begin, m, [&](int64_t at, int64_t, int64_t i, int64_t run) {
      for (int64_t j = 0; j < run; ++j) out[at + j * step] = from[i + j];
    });
  }
}

// The same for distributions that are computed in double whatever the dtype.
template <class F> void fill_doubles(const View& v, const char* op, F&& produce) {
  if (v.dtype == kDouble) return fill_in_order<double>(v, produce);
  MT_DISPATCH_REAL(v.dtype, op, T, {
    fill_in_order<T>(v, [&](T* out, int64_t n) {
      Buffer<double, 128> buffer(n, kPiece);
      for (int64_t begin = 0; begin < n; begin += buffer.size) {
        int64_t m = std::min(buffer.size, n - begin);
        const double* from = buffer.data();
        produce(buffer.data(), m);
        for (int64_t i = 0; i < m; ++i) out[begin + i] = cast<T>(from[i]);
      }
    });
  })
}

// out[i] = f(words of item i), where each item takes `Words` words of the generator.
template <int Words, class T, class F>
void from_words(Generator& g, T* out, int64_t n, int64_t grain, F&& f) {
  Buffer<uint32_t, 128 * Words> buffer(n * Words, (grain == kCheap ? 4096 : kPiece) * Words);
  for (int64_t begin = 0; begin < n; begin += buffer.size / Words) {
    int64_t m = std::min(buffer.size / Words, n - begin);
    const uint32_t* w = buffer.data();
    g.fill(buffer.data(), m * Words);
    parallel_for(m, grain, [&, out = out + begin](int64_t i, int64_t end) {
      for (; i < end; ++i) out[i] = f(w + i * Words);
    });
  }
}

// x * y + z, rounded once where the instruction set can (as PyTorch is built), twice elsewhere.
template <class T> inline T madd(T x, T y, T z) {
#ifdef __FMA__
  if constexpr (std::is_same_v<T, float>) return __builtin_fmaf(x, y, z);
  else return __builtin_fma(x, y, z);
#else
  return x * y + z;
#endif
}

// Uniform in [0, 1): 53 bits of two words, of which the first is the high one. Each half becomes a double by
// setting an exponent over its bits, which vectorises, while a conversion from 64-bit integers does not.
inline double unit_double(const uint32_t* w) {
  uint64_t both, low, high;
  std::memcpy(&both, w, 8);
  low = (both >> 32) | 0x4330000000000000u;
  high = (both & 0x1fffff) | 0x4530000000000000u;
  double l, h;
  std::memcpy(&l, &low, 8);
  std::memcpy(&h, &high, 8);
  return ((h - 0x1p84) + (l - 0x1p52)) * 0x1p-53;
}
inline double draw(Generator& g) {
  uint32_t w[2] = {g.random(), g.random()};
  return unit_double(w);
}
// Uniform in [0, 1): the lowest 24 bits of one word.
inline float unit_float(const uint32_t* w) { return float(int32_t(*w & 0xffffff)) * 0x1p-24f; }
template <class C> inline C unit(const uint32_t* w) {
  if constexpr (std::is_same_v<C, float>) return unit_float(w);
  else return unit_double(w);
}

// A complex tensor as a real one with twice the items; valid while the object lives.
struct RealView {
  explicit RealView(const View& v);
  View view;

 private:
  int64_t sizes_[kRandomDims], strides_[kRandomDims];
};

// Normal numbers of mean 0 and deviation 1, drawn in pairs; the second of a pair that is not needed waits in the
// generator for the next call. random_normal.cpp.
void standard_normals(Generator& g, double* out, int64_t n);

// As a stream prints a double: six digits.
std::string shown(double v);

[[noreturn]] inline void fail(const std::string& message) { throw std::runtime_error(message); }

}  // namespace mt::rng
