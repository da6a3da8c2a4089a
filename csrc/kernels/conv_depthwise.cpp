// Depthwise convolutions (one input channel per group) as direct loops over rows, forward and both gradients, in float32
// and float64; every other shape is a matrix product (conv.cpp).
#include <vector>

#include "conv.h"
#include "dispatch.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

// A zero-padded copy of a plane in which the columns of a row are sorted by their remainder modulo the stride: what
// neighbouring outputs read then lies side by side, for any stride, and the loops need no bounds.
struct Padded {
  const Conv& s;
  int64_t depth, height, phase;  // phase: columns of each remainder

  explicit Padded(const Conv& shape)
      : s(shape), depth(s.in[0] + 2 * s.pad[0]), height(s.in[1] + 2 * s.pad[1]),
        phase(ceil_div(s.in[2] + 2 * s.pad[2], s.stride[2])) {}
  int64_t row() const { return phase * s.stride[2]; }
  int64_t items() const { return depth * height * row(); }
  int64_t column(int64_t t) const {  // where output 0 reads tap t
    int64_t i = t * s.dilation[2];
    return i % s.stride[2] * phase + i / s.stride[2];
  }
  // f(item of the plane, item of the padded copy) by rows, each with the pieces that are evenly spaced.
  template <class F> void for_each_piece(F&& f) const {
    const int64_t sw = s.stride[2];
    for (int64_t d = 0; d < s.in[0]; ++d)
      for (int64_t h = 0; h < s.in[1]; ++h)
        for (int64_t w = 0; w < std::min(sw, s.in[2]); ++w) {
          int64_t i = w + s.pad[2], line = ((d + s.pad[0]) * height + h + s.pad[1]) * row();
          f((d * s.in[1] + h) * s.in[2] + w, line + i % sw * phase + i / sw, ceil_div(s.in[2] - w, sw));
        }
  }
  template <class T> void load(const T* plane, T* padded) const {
    const int64_t sw = s.stride[2];
    for_each_piece([&](int64_t from, int64_t to, int64_t n) {
      if (sw == 1) std::copy(plane + from, plane + from + n, padded + to);
      else for (int64_t j = 0; j < n; ++j) padded[to + j] = plane[from + j * sw];
    });
  }
  template <class T> void store(const T* padded, T* plane) const {
    const int64_t sw = s.stride[2];
    for_each_piece([&](int64_t to, int64_t from, int64_t n) {
      if (sw == 1) std::copy(padded + from, padded + from + n, plane + to);
      else for (int64_t j = 0; j < n; ++j) plane[to + j * sw] = padded[from + j];
    });
  }
  // f(offset of an output row, offset of the padded row, offset of the kernel row) for all rows of a plane.
  template <class F> void for_each_row(F&& f) const {
    for (int64_t od = 0; od < s.out[0]; ++od)
      for (int64_t oh = 0; oh < s.out[1]; ++oh)
        for (int64_t kd = 0; kd < s.kernel[0]; ++kd)
          for (int64_t kh = 0; kh < s.kernel[1]; ++kh) {
            int64_t d = od * s.stride[0] + kd * s.dilation[0], h = oh * s.stride[1] + kh * s.dilation[1];
            f((od * s.out[1] + oh) * s.out[2], (d * height + h) * row(), (kd * s.kernel[1] + kh) * s.kernel[2]);
          }
  }
};

// y += three taps at once: most kernel rows are that wide, and y is then read and written once.
template <class T>
void add_three(T* __restrict y, const T* __restrict a, const T* __restrict b, const T* __restrict c, const T* w, int64_t n) {
  const T w0 = w[0], w1 = w[1], w2 = w[2];
  for (int64_t j = 0; j < n; ++j) y[j] += w0 * a[j] + w1 * b[j] + w2 * c[j];
}
template <class T> void add_one(T* __restrict y, const T* __restrict x, T w, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] += w * x[j];
}
template <class T> void add_row(T* y, const T* x, const int64_t* column, const T* w, int64_t taps, int64_t n) {
  int64_t t = 0;
  for (; t + 3 <= taps; t += 3) add_three(y, x + column[t], x + column[t + 1], x + column[t + 2], w + t, n);
  for (; t < taps; ++t) add_one(y, x + column[t], w[t], n);
}

// sums[t][lane] += the products of a row with tap t; the lanes are added up at the end.
constexpr int kSums = 16;
template <class T> void add_products(T* __restrict sums, const T* __restrict g, const T* __restrict x, int64_t n) {
  int64_t j = 0;
  for (; j + kSums <= n; j += kSums)
    for (int l = 0; l < kSums; ++l) sums[l] += g[j + l] * x[j + l];
  for (int l = 0; j + l < n; ++l) sums[l] += g[j + l] * x[j + l];
}

std::vector<int64_t> tap_columns(const Padded& p) {
  std::vector<int64_t> columns(p.s.kernel[2]);
  for (int64_t t = 0; t < p.s.kernel[2]; ++t) columns[t] = p.column(t);
  return columns;
}

template <class T> void forward(const Conv& s, const T* x, const T* w, const T* bias, T* y) {
  const Padded p(s);
  const auto columns = tap_columns(p);
  const int64_t kg = s.kg(), plane = s.y_plane(), taps = s.taps();
  parallel_for(s.n * s.c, kGrain / (plane * taps) + 1, [&](int64_t begin, int64_t end) {
    std::unique_ptr<T[]> padded(new T[p.items()]());
    for (int64_t i = begin; i < end; ++i) {
      p.load(x + i * s.x_plane(), padded.get());
      for (int64_t k = i % s.c * kg; k < (i % s.c + 1) * kg; ++k) {
        T* to = y + (i / s.c * s.k + k) * plane;
        std::fill(to, to + plane, bias ? bias[k] : T(0));
        p.for_each_row([&](int64_t row, int64_t line, int64_t tap) {
          add_row(to + row, padded.get() + line, columns.data(), w + k * taps + tap, s.kernel[2], s.out[2]);
        });
      }
    }
  });
}

template <class T> void input_grad(const Conv& s, const T* gy, const T* w, T* gx) {
  const Padded p(s);
  const auto columns = tap_columns(p);
  const int64_t kg = s.kg(), plane = s.y_plane(), taps = s.taps();
  parallel_for(s.n * s.c, kGrain / (plane * taps) + 1, [&](int64_t begin, int64_t end) {
    std::unique_ptr<T[]> padded(new T[p.items()]);
    for (int64_t i = begin; i < end; ++i) {
      std::fill(padded.get(), padded.get() + p.items(), T(0));
      for (int64_t k = i % s.c * kg; k < (i % s.c + 1) * kg; ++k) {
        const T* from = gy + (i / s.c * s.k + k) * plane;
        p.for_each_row([&](int64_t row, int64_t line, int64_t tap) {
          for (int64_t t = 0; t < s.kernel[2]; ++t)
            add_one(padded.get() + line + columns[t], from + row, w[k * taps + tap + t], s.out[2]);
        });
      }
      p.store(padded.get(), gx + i * s.x_plane());
    }
  });
}

template <class T> void weight_grad(const Conv& s, const T* x, const T* gy, T* gw) {
  const Padded p(s);
  const auto columns = tap_columns(p);
  const int64_t kg = s.kg(), plane = s.y_plane(), taps = s.taps();
  parallel_for(s.c, 1, [&](int64_t begin, int64_t end) {
    std::unique_ptr<T[]> padded(new T[p.items()]()), sums(new T[taps * kSums]);
    std::fill(gw + begin * kg * taps, gw + end * kg * taps, T(0));
    for (int64_t c = begin; c < end; ++c)
      for (int64_t n = 0; n < s.n; ++n) {
        p.load(x + (n * s.c + c) * s.x_plane(), padded.get());
        for (int64_t k = c * kg; k < (c + 1) * kg; ++k) {
          const T* g = gy + (n * s.k + k) * plane;
          std::fill(sums.get(), sums.get() + taps * kSums, T(0));
          p.for_each_row([&](int64_t row, int64_t line, int64_t tap) {
            for (int64_t t = 0; t < s.kernel[2]; ++t)
              add_products(sums.get() + (tap + t) * kSums, g + row, padded.get() + line + columns[t], s.out[2]);
          });
          for (int64_t t = 0; t < taps; ++t) {
            T total = 0;
            for (int l = 0; l < kSums; ++l) total += sums[t * kSums + l];
            gw[k * taps + t] += total;
          }
        }
      }
  });
}

template <class T> const T* as(const void* p) { return static_cast<const T*>(p); }
template <class T> T* as(void* p) { return static_cast<T*>(p); }

}  // namespace

bool depthwise_fits(DType dtype, const Conv& s) { return s.depthwise() && (dtype == kFloat || dtype == kDouble); }

void depthwise_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y) {
  MT_SWITCH(dtype, "convolution", MT_FLOATS(T, { forward(s, as<T>(x), as<T>(w), as<T>(bias), as<T>(y)); }))
}

void depthwise_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, void* gx) {
  MT_SWITCH(dtype, "convolution", MT_FLOATS(T, { input_grad(s, as<T>(gy), as<T>(w), as<T>(gx)); }))
}

void depthwise_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw) {
  MT_SWITCH(dtype, "convolution", MT_FLOATS(T, { weight_grad(s, as<T>(x), as<T>(gy), as<T>(gw)); }))
}

}  // namespace mt
