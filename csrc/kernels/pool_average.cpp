// Average pooling over windows and adaptive average pooling, 2-D and 3-D, with gradients; not the maxima.
#include "channels.h"
#include "lane_planes.h"
#include "pool.h"
#include "reduce_moments.h"

namespace mt {
namespace {

DType average_dtype(DType d) {
  if (d == kBool || (is_integral(d) && d != kInt64) || is_complex(d)) unsupported("avg_pool", d);
  return widened(d);
}
#define MT_AVERAGE(dtype, T, ...) \
  MT_SWITCH(dtype, "avg_pool", MT_FLOATS(T, __VA_ARGS__) MT_CASE(kInt64, int64_t, T, __VA_ARGS__))

struct Divisor {
  bool include_pad;
  int64_t fixed;  // 0: the size of the window

  Divisor(const Attr& count_include_pad, const Attr& divisor_override)
      : include_pad(count_include_pad.i), fixed(divisor_override.given ? divisor_override.i : 0) {
    if (divisor_override.given && fixed == 0) throw std::runtime_error("divisor must be not zero");
  }
  // The extent of window o in dim d. A window of ceil_mode may reach past the padding: that part never counts.
  int64_t extent(const Conv& s, int d, int64_t o) const {
    int64_t a = o * s.stride[d] - s.pad[d], b = std::min(a + s.kernel[d], s.in[d] + s.pad[d]);
    if (include_pad) return b - a;
    return std::max<int64_t>(std::min(b, s.in[d]) - std::max<int64_t>(a, 0), 0);
  }
};

template <class T> struct AveragePool {
  const Conv& s;
  const Divisor& divisor;
  std::vector<Span> spans = width_spans(s);
  std::vector<int64_t> widths;
  std::vector<T> divisors, scaled;  // of one row of outputs
  int64_t of_rows = -1;             // the pixels of a column of a window that the divisors are for

  AveragePool(const Conv& shape, const Divisor& d) : s(shape), divisor(d), divisors(s.out[2]), scaled(s.out[2]) {
    for (int64_t o = 0; o < s.out[2]; ++o) widths.push_back(divisor.extent(s, 2, o));
  }
  void set_divisors(int64_t od, int64_t oh) {
    const int64_t rest = divisor.extent(s, 0, od) * divisor.extent(s, 1, oh);
    if (rest == of_rows) return;  // they are those of the row before
    of_rows = rest;
    for (int64_t o = 0; o < s.out[2]; ++o) {
      int64_t size = divisor.fixed ? divisor.fixed : rest * widths[o];
      divisors[o] = T(size ? size : 1);  // an empty window has the sum 0
    }
  }
  // f(offset of the input row at output 0, span): every tap inside the image.
  template <class F> void for_each_tap(int64_t od, int64_t oh, F&& f) {
    for (int64_t kd = 0; kd < s.kernel[0]; ++kd) {
      int64_t id = od * s.stride[0] - s.pad[0] + kd;
      if (id < 0 || id >= s.in[0]) continue;
      for (int64_t kh = 0; kh < s.kernel[1]; ++kh) {
        int64_t ih = oh * s.stride[1] - s.pad[1] + kh;
        if (ih < 0 || ih >= s.in[1]) continue;
        for (int64_t kw = 0; kw < s.kernel[2]; ++kw) f((id * s.in[1] + ih) * s.in[2] + kw - s.pad[2], spans[kw]);
      }
    }
  }
  void forward(const T* x, int64_t od, int64_t oh, T* __restrict y) {
    const int64_t sw = s.stride[2];
    std::fill(y, y + s.out[2], T(0));
    for_each_tap(od, oh, [&](int64_t base, Span span) {
      const T* __restrict from = x + base;
      if (sw == 1) for (int64_t o = span.lo; o < span.hi; ++o) y[o] += from[o];
      else if (sw == 2) for (int64_t o = span.lo; o < span.hi; ++o) y[o] += from[o * 2];
      else for (int64_t o = span.lo; o < span.hi; ++o) y[o] += from[o * sw];
    });
    set_divisors(od, oh);
    for (int64_t o = 0; o < s.out[2]; ++o) y[o] /= divisors[o];
  }
  void backward(const T* gy, int64_t od, int64_t oh, T* gx) {
    const int64_t sw = s.stride[2];
    set_divisors(od, oh);
    for (int64_t o = 0; o < s.out[2]; ++o) scaled[o] = gy[o] / divisors[o];
    const T* __restrict g = scaled.data();
    for_each_tap(od, oh, [&](int64_t base, Span span) {
      T* __restrict to = gx + base;
      if (sw == 1) for (int64_t o = span.lo; o < span.hi; ++o) to[o] += g[o];
      else for (int64_t o = span.lo; o < span.hi; ++o) to[o * sw] += g[o];
    });
  }
};

// Planes [begin, end), a plane in each lane: rows of small ones are too short for a vector.
template <class T> void average_small(const Conv& s, const Divisor& divisor, const T* x, int64_t begin, int64_t end, T* y) {
  using Lanes = PlaneLanes<T>;
  AveragePool<T> pool(s, divisor);
  std::vector<typename Lanes::V> pixels(s.x_plane()), made(s.y_plane());
  for (int64_t p = begin; p < end; p += Lanes::kCount) {
    const T* from[Lanes::kCount];
    T* to[Lanes::kCount];
    for (int l = 0; l < Lanes::kCount; ++l) {
      const int64_t plane = std::min(p + l, end - 1);
      from[l] = x + plane * s.x_plane(), to[l] = y + plane * s.y_plane();
    }
    Lanes::load(from, 0, s.x_plane(), reinterpret_cast<T*>(pixels.data()));
    for (int64_t i = 0; i < s.out[0] * s.out[1]; ++i) {
      auto* row = made.data() + i * s.out[2];
      std::fill_n(row, s.out[2], typename Lanes::V{});
      pool.for_each_tap(i / s.out[1], i % s.out[1], [&](int64_t base, Span span) {
        for (int64_t o = span.lo; o < span.hi; ++o) row[o] += pixels[base + o * s.stride[2]];
      });
      pool.set_divisors(i / s.out[1], i % s.out[1]);
      for (int64_t o = 0; o < s.out[2]; ++o) row[o] /= pool.divisors[o];
    }
    Lanes::store(reinterpret_cast<const T*>(made.data()), 0, s.y_plane(), to, int(std::min<int64_t>(Lanes::kCount, end - p)));
  }
}

// Channels innermost: the pixels of a window are added up, all channels of an output at once.
template <class T> void average_last(const Conv& s, const Divisor& divisor, int64_t channels, const T* x, T* y) {
  const int64_t images = s.n / channels, lines = s.out[0] * s.out[1];
  parallel_for(images * lines, plane_grain(s.out[2] * s.taps() * channels), [&](int64_t begin, int64_t end) {
    AveragePool<T> pool(s, divisor);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t od = i % lines / s.out[1], oh = i % s.out[1];
      const T* image = x + i / lines * s.x_plane() * channels;
      T* line = y + i * s.out[2] * channels;
      std::fill(line, line + s.out[2] * channels, T(0));
      pool.for_each_tap(od, oh, [&](int64_t base, Span span) {
        for (int64_t o = span.lo; o < span.hi; ++o) {
          const T* __restrict from = image + (base + o * s.stride[2]) * channels;
          T* __restrict to = line + o * channels;
          for (int64_t c = 0; c < channels; ++c) to[c] += from[c];
        }
      });
      pool.set_divisors(od, oh);
      for (int64_t o = 0; o < s.out[2]; ++o) {
        const T size = pool.divisors[o];
        for (int64_t c = 0; c < channels; ++c) line[o * channels + c] /= size;
      }
    }
  });
}

template <int nd> void avg_pool(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  Conv s = pool_shape(self, out, nd, args.a, nullptr);
  Divisor divisor(args.a[4], args.a[5]);
  if (out.numel() == 0) return;
  DType dtype = average_dtype(self.dtype);
  if (self.ndim == nd + 2 && both_channels_last(self, out, dtype)) {
    MT_AVERAGE(dtype, T, { average_last(s, divisor, self.sizes[1], self.ptr<T>(), out.ptr<T>()); })
    return;
  }
  Dense x(self, dtype), y(out, dtype, Dense::kOutput);
  MT_AVERAGE(dtype, T, {
    if (s.out[2] < 16 && s.x_plane() <= 1024) {
      parallel_for(s.n, plane_grain(s.y_plane() * s.taps()), [&](int64_t begin, int64_t end) {
        average_small(s, divisor, x.ptr<T>(), begin, end, y.ptr<T>());
      });
    } else {
      parallel_for(s.n * s.out[0], plane_grain(s.out[1] * s.out[2] * s.taps()), [&](int64_t begin, int64_t end) {
        AveragePool<T> pool(s, divisor);
        for (int64_t i = begin; i < end; ++i)
          for (int64_t oh = 0; oh < s.out[1]; ++oh)
            pool.forward(x.ptr<T>() + i / s.out[0] * s.x_plane(), i % s.out[0], oh,
                         y.ptr<T>() + (i * s.out[1] + oh) * s.out[2]);
      });
    }
  })
  y.store();
}

template <int nd> void avg_pool_backward(const Args& args) {
  const View &grad_input = args.t[0], &grad_output = args.t[1];
  Conv s = pool_shape(grad_input, grad_output, nd, args.a, nullptr);
  Divisor divisor(args.a[4], args.a[5]);
  DType dtype = average_dtype(grad_input.dtype);
  Dense gx(grad_input, dtype, Dense::kOutput), gy(grad_output, dtype);
  MT_AVERAGE(dtype, T, {
    parallel_for(s.n, plane_grain(s.y_plane() * s.taps()), [&](int64_t begin, int64_t end) {
      AveragePool<T> pool(s, divisor);
      for (int64_t p = begin; p < end; ++p) {
        T* to = gx.ptr<T>() + p * s.x_plane();
        std::fill(to, to + s.x_plane(), T(0));
        for (int64_t i = 0; i < s.out[0] * s.out[1]; ++i)
          pool.backward(gy.ptr<T>() + p * s.y_plane() + i * s.out[2], i / s.out[1], i % s.out[1], to);
      }
    });
  })
  gx.store();
}

// The windows of adaptive pooling.
struct AdaptiveRows {
  const Conv& s;
  std::vector<int64_t> first[3], last[3];  // by dim and output

  explicit AdaptiveRows(const Conv& shape) : s(shape) {
    expect(s.y_plane() == 0 || s.x_plane() > 0, "adaptive_avg_pool", "expected input to have non-zero size");
    for (int d = 0; d < 3; ++d)
      for (int64_t o = 0; o < s.out[d]; ++o) {
        first[d].push_back(adaptive_first(o, s.out[d], s.in[d]));
        last[d].push_back(adaptive_last(o, s.out[d], s.in[d]));
      }
  }
  // Calls f(offset, length, number of the output, size of the window) for the rows of each window, or for several that
  // lie side by side.
  template <class F> void each(F&& f) const {
    int64_t number = 0;
    for (int64_t od = 0; od < s.out[0]; ++od)
      for (int64_t oh = 0; oh < s.out[1]; ++oh)
        for (int64_t ow = 0; ow < s.out[2]; ++ow, ++number) {
          const int64_t a[] = {first[0][od], first[1][oh], first[2][ow]}, b[] = {last[0][od], last[1][oh], last[2][ow]};
          const int64_t size = (b[0] - a[0]) * (b[1] - a[1]) * (b[2] - a[2]);
          const bool rows = b[2] - a[2] == s.in[2], planes = rows && b[1] - a[1] == s.in[1];
          const int64_t length = planes ? size : (rows ? b[1] - a[1] : 1) * (b[2] - a[2]);
          for (int64_t d = a[0]; d < (planes ? a[0] + 1 : b[0]); ++d)
            for (int64_t h = a[1]; h < (rows ? a[1] + 1 : b[1]); ++h)
              f((d * s.in[1] + h) * s.in[2] + a[2], length, number, size);
        }
  }
};

// Channels innermost: the pixels of a window are added up, all channels of an output at once.
template <class T> void adaptive_average_last(const Conv& s, int64_t channels, const T* x, T* y) {
  const AdaptiveRows windows(s);
  parallel_for(s.n / channels, plane_grain(s.x_plane() * channels), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* image = x + n * s.x_plane() * channels;
      T* to = y + n * s.y_plane() * channels;
      std::vector<T> sizes(static_cast<size_t>(s.y_plane()), T(1));
      std::fill(to, to + s.y_plane() * channels, T(0));
      windows.each([&](int64_t offset, int64_t count, int64_t number, int64_t size) {
        T* __restrict sum = to + number * channels;
        sizes[static_cast<size_t>(number)] = T(size);
        for (int64_t j = 0; j < count; ++j) {
          const T* __restrict from = image + (offset + j) * channels;
          for (int64_t c = 0; c < channels; ++c) sum[c] += from[c];
        }
      });
      for (int64_t i = 0; i < s.y_plane() * channels; ++i) to[i] /= sizes[static_cast<size_t>(i / channels)];
    }
  });
}

// One output for each of the planes [begin, end) of n.
template <class T> void average_planes(const T* x, int64_t n, int64_t plane, int64_t begin, int64_t end, T* y) {
  constexpr int64_t kShort = 4096;
  if (plane <= kShort && n >= PlaneLanes<T>::kCount)
    return for_each_total(x, n, plane, begin, end, [&](int64_t p, T sum) { y[p] = sum / T(plane); });
  for (int64_t p = begin; p < end; ++p) y[p] = total(x + p * plane, plane) / T(plane);
}

template <int nd> void adaptive_avg_pool(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  Conv s = pool_planes(self, out, nd);
  if (out.numel() == 0) return;
  if (s.x_plane() == 0) throw std::runtime_error("adaptive_avg_pool: expected input to have non-zero size");
  DType dtype = average_dtype(self.dtype);
  if (self.ndim == nd + 2 && both_channels_last(self, out, dtype)) {
    MT_AVERAGE(dtype, T, { adaptive_average_last(s, self.sizes[1], self.ptr<T>(), out.ptr<T>()); })
    return;
  }
  const AdaptiveRows windows(s);
  Dense x(self, dtype), y(out, dtype, Dense::kOutput);
  MT_AVERAGE(dtype, T, {
    parallel_for(s.n, plane_grain(s.x_plane()), [&](int64_t begin, int64_t end) {
      if (s.y_plane() == 1) return average_planes(x.ptr<T>(), s.n, s.x_plane(), begin, end, y.ptr<T>());
      for (int64_t p = begin; p < end; ++p) {
        T* to = y.ptr<T>() + p * s.y_plane();
        int64_t last = -1, count = 1;
        std::fill(to, to + s.y_plane(), T(0));
        windows.each([&](int64_t offset, int64_t n, int64_t number, int64_t size) {
          if (last >= 0 && number != last) to[last] /= T(count);
          last = number, count = size;
          to[number] += total(x.ptr<T>() + p * s.x_plane() + offset, n);
        });
        to[last] /= T(count);
      }
    });
  })
  y.store();
}

template <int nd> void adaptive_avg_pool_backward(const Args& args) {
  const View &grad_input = args.t[0], &grad_output = args.t[1];
  Conv s = pool_planes(grad_input, grad_output, nd);
  DType dtype = average_dtype(grad_input.dtype);
  const AdaptiveRows windows(s);
  Dense gx(grad_input, dtype, Dense::kOutput), gy(grad_output, dtype);
  MT_AVERAGE(dtype, T, {
    parallel_for(s.n, plane_grain(s.x_plane()), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        T* to = gx.ptr<T>() + p * s.x_plane();
        const T* from = gy.ptr<T>() + p * s.y_plane();
        std::fill(to, to + s.x_plane(), T(0));
        windows.each([&](int64_t offset, int64_t n, int64_t number, int64_t size) {
          T g = from[number] / T(size);
          for (int64_t j = 0; j < n; ++j) to[offset + j] += g;
        });
      }
    });
  })
  gx.store();
}

// avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False,
//            bool count_include_pad=True, int? divisor_override=None) -> Tensor; 3d alike
Register avg2("avg_pool2d", avg_pool<2>), avg3("avg_pool3d", avg_pool<3>);
// avg_pool2d_backward(Tensor grad_output, Tensor self, ... as the forward) -> Tensor; 3d alike
Register avg2b("avg_pool2d_backward", avg_pool_backward<2>), avg3b("avg_pool3d_backward", avg_pool_backward<3>);
// _adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor; 3d alike
Register adaptive2("_adaptive_avg_pool2d", adaptive_avg_pool<2>);
Register adaptive3("_adaptive_avg_pool3d", adaptive_avg_pool<3>);
// _adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor; 3d alike
Register adaptive2b("_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward<2>);
Register adaptive3b("_adaptive_avg_pool3d_backward", adaptive_avg_pool_backward<3>);

}  // namespace
}  // namespace mt
