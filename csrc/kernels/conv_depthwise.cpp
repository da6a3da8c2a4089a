// Depthwise convolutions (one input channel per group) as sums of shifted planes, forward and both gradients, in
// float32 and float64; every other shape is a matrix product (conv.cpp).
#include <vector>

#include "dispatch.h"
#include "padded.h"
#include "parallel.h"

namespace mt {
namespace {

constexpr int64_t kChunk = 2048;  // positions at a time: they and what they read stay in the first level cache
constexpr int kSums = 16;         // lanes of a sum of products

// y += kTaps shifted runs of x; y is then read and written once for all of them.
template <int kTaps, class T>
void add_taps(T* __restrict y, const T* __restrict x, const int64_t* offset, const T* w, int64_t n) {
  const T* from[kTaps];
  T weight[kTaps];
  for (int t = 0; t < kTaps; ++t) {
    from[t] = x + offset[t];
    weight[t] = w[t];
  }
  for (int64_t j = 0; j < n; ++j) {
    T sum = y[j];
    for (int t = 0; t < kTaps; ++t) sum += weight[t] * from[t][j];
    y[j] = sum;
  }
}

template <class T> void add_shifted(T* __restrict y, const T* __restrict x, T w, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] += w * x[j];
}

template <class T> void add_products(T* __restrict sums, const T* __restrict a, const T* __restrict b, int64_t n) {
  T lanes[kSums];
  std::copy(sums, sums + kSums, lanes);
  int64_t j = 0;
  for (; j + kSums <= n; j += kSums)
    for (int l = 0; l < kSums; ++l) lanes[l] += a[j + l] * b[j + l];
  for (int l = 0; j + l < n; ++l) lanes[l] += a[j + l] * b[j + l];
  std::copy(lanes, lanes + kSums, sums);
}

// f(pixel of the image, output) for every output that tap t reads a pixel for.
template <class F> void for_each_pair(const Conv& s, int64_t t, F&& f) {
  const int64_t tap[] = {t / (s.kernel[1] * s.kernel[2]), t / s.kernel[2] % s.kernel[1], t % s.kernel[2]};
  auto pixel = [&](int64_t o, int d) { return o * s.stride[d] - s.pad[d] + tap[d] * s.dilation[d]; };
  auto inside = [&](int64_t i, int d) { return i >= 0 && i < s.in[d]; };
  for (int64_t d = 0; d < s.out[0]; ++d)
    for (int64_t h = 0; inside(pixel(d, 0), 0) && h < s.out[1]; ++h)
      for (int64_t w = 0; inside(pixel(h, 1), 1) && w < s.out[2]; ++w)
        if (inside(pixel(w, 2), 2))
          f((pixel(d, 0) * s.in[1] + pixel(h, 1)) * s.in[2] + pixel(w, 2), (d * s.out[1] + h) * s.out[2] + w);
}
template <class T> bool all_finite(const T* p, int64_t n) {
  T zero = 0;
  for (int64_t i = 0; i < n; ++i) zero += p[i] * T(0);
  return zero == 0;
}

// The loops below multiply by the zeros of the padding too, which is NaN where the other factor is not finite. Where a
// weight, or a sum of the weight gradient, is not, these loops over the image alone take their place.
template <class T> void exact_forward(const Conv& s, const T* x, const T* w, T bias, T* y) {
  std::fill_n(y, s.y_plane(), bias);
  for (int64_t t = 0; t < s.taps(); ++t) for_each_pair(s, t, [&](int64_t i, int64_t o) { y[o] += x[i] * w[t]; });
}
template <class T> void exact_input_grad(const Conv& s, const T* gy, const T* w, T* gx) {  // adds
  for (int64_t t = 0; t < s.taps(); ++t) for_each_pair(s, t, [&](int64_t i, int64_t o) { gx[i] += gy[o] * w[t]; });
}
template <class T> void exact_weight_grad(const Conv& s, const T* x, const T* gy, T* gw) {  // adds
  for (int64_t t = 0; t < s.taps(); ++t) for_each_pair(s, t, [&](int64_t i, int64_t o) { gw[t] += x[i] * gy[o]; });
}

// The buffers of one thread, in the layout of padded.h: a padded plane, and a plane of positions.
template <class T> struct Planes {
  const Conv& s;
  const Padded p;
  const std::vector<int64_t> offset = p.offsets(1);
  const int64_t positions = p.positions();
  std::vector<T> copy, plane;

  explicit Planes(const Conv& shape) : s(shape), p(s), copy(p.items()), plane(positions) {}

  template <class F> void for_each_chunk(F&& f) {  // f(first position, count)
    for (int64_t at = 0; at < positions; at += kChunk) f(at, std::min(kChunk, positions - at));
  }
  void load_gradient(const T* gy) {  // the junk positions stay 0
    p.for_each_output_row([&](int64_t row, int64_t at) {
      std::copy(gy + row, gy + row + s.out[2], plane.begin() + at);
    });
  }
  void forward(const T* w, T bias, T* y) {
    const int64_t taps = s.taps();
    for_each_chunk([&](int64_t at, int64_t n) {
      T* to = plane.data() + at;
      const T* from = copy.data() + at;
      int64_t t = 0;
      std::fill(to, to + n, bias);
      for (; t + 9 <= taps; t += 9) add_taps<9>(to, from, &offset[t], w + t, n);
      for (; t + 3 <= taps; t += 3) add_taps<3>(to, from, &offset[t], w + t, n);
      for (; t < taps; ++t) add_taps<1>(to, from, &offset[t], w + t, n);
    });
    p.for_each_output_row([&](int64_t row, int64_t at) {
      std::copy(plane.begin() + at, plane.begin() + at + s.out[2], y + row);
    });
  }
  void input_grad(const T* w) {
    for_each_chunk([&](int64_t at, int64_t n) {
      for (int64_t t = 0; t < s.taps(); ++t) add_shifted(copy.data() + offset[t] + at, plane.data() + at, w[t], n);
    });
  }
  void weight_grad(T* sums) {
    for_each_chunk([&](int64_t at, int64_t n) {
      for (int64_t t = 0; t < s.taps(); ++t)
        add_products(sums + t * kSums, plane.data() + at, copy.data() + offset[t] + at, n);
    });
  }
};

template <class T> void forward(const Conv& s, const T* x, const T* w, const T* bias, T* y) {
  parallel_for(s.n * s.c, kGrain / (s.y_plane() * s.taps()) + 1, [&](int64_t begin, int64_t end) {
    Planes<T> planes(s);
    for (int64_t i = begin; i < end; ++i) {
      planes.p.load(x + i * s.x_plane(), planes.copy.data());
      for (int64_t k = i % s.c * s.kg(); k < (i % s.c + 1) * s.kg(); ++k) {
        const T *filter = w + k * s.taps(), level = bias ? bias[k] : T(0);
        T* to = y + (i / s.c * s.k + k) * s.y_plane();
        if (all_finite(filter, s.taps())) planes.forward(filter, level, to);
        else exact_forward(s, x + i * s.x_plane(), filter, level, to);
      }
    }
  });
}

template <class T> void input_grad(const Conv& s, const T* gy, const T* w, T* gx) {
  parallel_for(s.n * s.c, kGrain / (s.y_plane() * s.taps()) + 1, [&](int64_t begin, int64_t end) {
    Planes<T> planes(s);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % s.c * s.kg(), last = first + s.kg();
      if (!all_finite(w + first * s.taps(), s.kg() * s.taps())) {
        T* to = gx + i * s.x_plane();
        std::fill_n(to, s.x_plane(), T(0));
        for (int64_t k = first; k < last; ++k)
          exact_input_grad(s, gy + (i / s.c * s.k + k) * s.y_plane(), w + k * s.taps(), to);
        continue;
      }
      std::fill(planes.copy.begin(), planes.copy.end(), T(0));
      for (int64_t k = first; k < last; ++k) {
        planes.load_gradient(gy + (i / s.c * s.k + k) * s.y_plane());
        planes.input_grad(w + k * s.taps());
      }
      planes.p.store(planes.copy.data(), gx + i * s.x_plane());
    }
  });
}

template <class T> void weight_grad(const Conv& s, const T* x, const T* gy, T* gw) {
  const int64_t kg = s.kg(), taps = s.taps();
  parallel_for(s.c, 1, [&](int64_t begin, int64_t end) {
    Planes<T> planes(s);
    std::vector<T> sums;
    for (int64_t c = begin; c < end; ++c) {
      sums.assign(kg * taps * kSums, T(0));
      for (int64_t n = 0; n < s.n; ++n) {
        planes.p.load(x + (n * s.c + c) * s.x_plane(), planes.copy.data());
        for (int64_t k = 0; k < kg; ++k) {
          planes.load_gradient(gy + (n * s.k + c * kg + k) * s.y_plane());
          planes.weight_grad(sums.data() + k * taps * kSums);
        }
      }
      for (int64_t t = 0; t < kg * taps; ++t) {
        T total = 0;
        for (int l = 0; l < kSums; ++l) total += sums[t * kSums + l];
        gw[c * kg * taps + t] = total;
      }
      T* filters = gw + c * kg * taps;
      if (all_finite(filters, kg * taps)) continue;
      std::fill_n(filters, kg * taps, T(0));
      for (int64_t n = 0; n < s.n; ++n)
        for (int64_t k = 0; k < kg; ++k)
          exact_weight_grad(s, x + (n * s.c + c) * s.x_plane(), gy + (n * s.k + c * kg + k) * s.y_plane(),
                            filters + k * taps);
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
