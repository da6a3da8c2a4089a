// Max pooling over windows and adaptive max pooling, 2-D and 3-D, with indices and gradients; not the averages.
#include <limits>

#include "channels.h"
#include "pool.h"

namespace mt {
namespace {

// The types the loops are compiled for; the narrow ones go through a wide copy, which changes no maximum.
DType pool_dtype(DType d) {
  if (d == kBool || is_complex(d)) unsupported("max_pool", d);
  return is_integral(d) ? kInt64 : widened(d);
}
#define MT_POOL(dtype, T, ...) \
  MT_SWITCH(dtype, "max_pool", MT_FLOATS(T, __VA_ARGS__) MT_CASE(kInt64, int64_t, T, __VA_ARGS__))

template <class T> constexpr T lowest() {
  using L = std::numeric_limits<T>;
  return L::has_infinity ? -L::infinity() : L::lowest();
}

// One tap over a row of outputs. A NaN wins over everything, of two NaNs the later; of equal values the first.
template <int kStride, class T, class I>
void take_tap(const T* __restrict x, int64_t stride, I base, int64_t lo, int64_t hi, T* __restrict best,
              I* __restrict index) {
  const int64_t step = kStride ? kStride : stride;
  for (int64_t o = lo; o < hi; ++o) {
    T v = x[o * step];
    bool take = (v > best[o]) | (v != v);
    best[o] = take ? v : best[o];
    index[o] = take ? I(base + I(o) * I(step)) : index[o];
  }
}

// I holds the running index: 32 bits where they suffice, so that index and float have as many lanes.
template <class T, class I> struct MaxPool {
  const Conv& s;
  std::vector<Span> spans = width_spans(s);
  std::vector<I> first, index;  // the first column of each window; the running index of a row

  explicit MaxPool(const Conv& shape) : s(shape), first(s.out[2]), index(s.out[2]) {
    for (int64_t o = 0; o < s.out[2]; ++o) first[o] = I(start(2, o));
  }
  int64_t start(int d, int64_t o) const {  // the first input inside the image
    int64_t i = o * s.stride[d] - s.pad[d];
    return i < 0 ? i + ceil_div(-i, s.dilation[d]) * s.dilation[d] : i;
  }

  void row(const T* x, int64_t od, int64_t oh, T* best, int64_t* out_index) {
    const int64_t line = (start(0, od) * s.in[1] + start(1, oh)) * s.in[2], sw = s.stride[2];
    for (int64_t o = 0; o < s.out[2]; ++o) {
      best[o] = lowest<T>();
      index[o] = I(line) + first[o];
    }
    for (int64_t kd = 0; kd < s.kernel[0]; ++kd) {
      int64_t id = od * s.stride[0] - s.pad[0] + kd * s.dilation[0];
      if (id < 0 || id >= s.in[0]) continue;
      for (int64_t kh = 0; kh < s.kernel[1]; ++kh) {
        int64_t ih = oh * s.stride[1] - s.pad[1] + kh * s.dilation[1];
        if (ih < 0 || ih >= s.in[1]) continue;
        for (int64_t kw = 0; kw < s.kernel[2]; ++kw) {
          int64_t base = (id * s.in[1] + ih) * s.in[2] + kw * s.dilation[2] - s.pad[2];
          auto* take = sw == 1 ? take_tap<1, T, I> : sw == 2 ? take_tap<2, T, I> : take_tap<0, T, I>;
          take(x + base, sw, I(base), spans[kw].lo, spans[kw].hi, best, index.data());
        }
      }
    }
    std::copy(index.begin(), index.end(), out_index);
  }

  void planes(const T* x, T* y, int64_t* indices, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t od = 0; od < s.out[0]; ++od)
        for (int64_t oh = 0; oh < s.out[1]; ++oh) {
          int64_t at = p * s.y_plane() + (od * s.out[1] + oh) * s.out[2];
          row(x + p * s.x_plane(), od, oh, y + at, indices + at);
        }
  }
};

// One tap of all channels of an output, which lie side by side.
template <class T>
void take_pixel(const T* __restrict x, int32_t pixel, int64_t channels, T* __restrict best, int32_t* __restrict index) {
  for (int64_t c = 0; c < channels; ++c) {
    T v = x[c];
    bool take = (v > best[c]) | (v != v);
    best[c] = take ? v : best[c];
    index[c] = take ? pixel : index[c];
  }
}

// Channels innermost: memory is read and written in its own order.
template <class T> void max_pool_last(const Conv& s, int64_t channels, const T* x, T* y, int64_t* indices) {
  MaxPool<T, int32_t> pool(s);
  const int64_t images = s.n / channels, lines = s.out[0] * s.out[1];
  parallel_for(images * lines, plane_grain(s.out[2] * s.taps() * channels), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> index(static_cast<size_t>(channels));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t od = i % lines / s.out[1], oh = i % s.out[1];
      const T* image = x + i / lines * s.x_plane() * channels;
      const int64_t line = (pool.start(0, od) * s.in[1] + pool.start(1, oh)) * s.in[2];
      for (int64_t ow = 0; ow < s.out[2]; ++ow) {
        T* best = y + (i * s.out[2] + ow) * channels;
        std::fill(best, best + channels, lowest<T>());
        std::fill(index.begin(), index.end(), int32_t(line + pool.start(2, ow)));
        for (int64_t tap = 0; tap < s.taps(); ++tap) {
          const int64_t k[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]};
          const int64_t id = od * s.stride[0] - s.pad[0] + k[0] * s.dilation[0];
          const int64_t ih = oh * s.stride[1] - s.pad[1] + k[1] * s.dilation[1];
          const int64_t iw = ow * s.stride[2] - s.pad[2] + k[2] * s.dilation[2];
          if (id < 0 || id >= s.in[0] || ih < 0 || ih >= s.in[1] || iw < 0 || iw >= s.in[2]) continue;
          const int64_t pixel = (id * s.in[1] + ih) * s.in[2] + iw;
          take_pixel(image + pixel * channels, int32_t(pixel), channels, best, index.data());
        }
        std::copy(index.begin(), index.end(), indices + (i * s.out[2] + ow) * channels);
      }
    }
  });
}

template <class T> void adaptive_max(const Conv& s, const T* x, T* y, int64_t* indices) {
  for (int64_t od = 0; od < s.out[0]; ++od)
    for (int64_t oh = 0; oh < s.out[1]; ++oh)
      for (int64_t ow = 0; ow < s.out[2]; ++ow) {
        const int64_t o[3] = {od, oh, ow};
        int64_t a[3], b[3];
        for (int d = 0; d < 3; ++d) {
          a[d] = adaptive_first(o[d], s.out[d], s.in[d]);
          b[d] = adaptive_last(o[d], s.out[d], s.in[d]);
        }
        T best = lowest<T>();
        int64_t index = (a[0] * s.in[1] + a[1]) * s.in[2] + a[2];
        for (int64_t d = a[0]; d < b[0]; ++d)
          for (int64_t h = a[1]; h < b[1]; ++h)
            for (int64_t w = a[2]; w < b[2]; ++w) {
              int64_t i = (d * s.in[1] + h) * s.in[2] + w;
              if (x[i] > best || x[i] != x[i]) best = x[i], index = i;
            }
        *y++ = best;
        *indices++ = index;
      }
}

template <int nd> void max_pool(const Args& args) {
  const View &out = args.t[0], &indices = args.t[1], &self = args.t[2];
  Conv s = pool_shape(self, out, nd, args.a, args.a + 3);
  if (out.numel() == 0) return;
  DType dtype = pool_dtype(self.dtype);
  if (self.ndim == nd + 2 && both_channels_last(self, out, dtype) && indices.dtype == kInt64 && channels_last(indices) &&
      s.x_plane() < (int64_t(1) << 31)) {
    MT_POOL(dtype, T, { max_pool_last(s, self.sizes[1], self.ptr<T>(), out.ptr<T>(), indices.ptr<int64_t>()); })
    return;
  }
  Dense x(self, dtype), y(out, dtype, Dense::kOutput), index(indices, kInt64, Dense::kOutput);
  MT_POOL(dtype, T, {
    parallel_for(s.n, plane_grain(s.y_plane() * s.taps()), [&](int64_t begin, int64_t end) {
      if (s.x_plane() < (int64_t(1) << 31))
        MaxPool<T, int32_t>(s).planes(x.ptr<T>(), y.ptr<T>(), index.ptr<int64_t>(), begin, end);
      else
        MaxPool<T, int64_t>(s).planes(x.ptr<T>(), y.ptr<T>(), index.ptr<int64_t>(), begin, end);
    });
  })
  y.store();
  index.store();
}

template <int nd> void adaptive_max_pool(const Args& args) {
  const View &out = args.t[0], &indices = args.t[1], &self = args.t[2];
  Conv s = pool_planes(self, out, nd);
  if (out.numel() == 0) return;
  if (s.x_plane() == 0) throw std::runtime_error("adaptive_max_pool: expected input to have non-zero size");
  DType dtype = pool_dtype(self.dtype);
  Dense x(self, dtype), y(out, dtype, Dense::kOutput), index(indices, kInt64, Dense::kOutput);
  MT_POOL(dtype, T, {
    parallel_for(s.n, plane_grain(s.x_plane()), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        adaptive_max(s, x.ptr<T>() + p * s.x_plane(), y.ptr<T>() + p * s.y_plane(),
                     index.ptr<int64_t>() + p * s.y_plane());
    });
  })
  y.store();
  index.store();
}

// Every gradient goes to the item its maximum came from; the window does not matter any more.
template <int nd> void max_pool_backward(const Args& args) {
  const View &grad_input = args.t[0], &grad_output = args.t[1], &indices = args.t[3];
  Conv s = pool_planes(grad_input, grad_output, nd);
  expect_like(indices, grad_output, "max_pool_backward", "indices");
  DType dtype = pool_dtype(grad_input.dtype);
  Dense gx(grad_input, dtype, Dense::kOutput), gy(grad_output, dtype), index(indices, kInt64);
  const int64_t in = s.x_plane(), out = s.y_plane();
  MT_POOL(dtype, T, {
    parallel_for(s.n, plane_grain(in), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        T* to = gx.ptr<T>() + p * in;
        std::fill(to, to + in, T(0));
        for (int64_t i = p * out; i < (p + 1) * out; ++i) {
          int64_t at = index.ptr<int64_t>()[i];
          if (at < 0 || at >= in) throw std::runtime_error("max_pool backward: index out of range");
          to[at] += gy.ptr<T>()[i];
        }
      }
    });
  })
  gx.store();
}

// max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1,
//                         bool ceil_mode=False) -> (Tensor, Tensor); 3d alike
Register max2("max_pool2d_with_indices", max_pool<2>), max3("max_pool3d_with_indices", max_pool<3>);
// max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding,
//                                  int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor; 3d alike
Register max2b("max_pool2d_with_indices_backward", max_pool_backward<2>);
Register max3b("max_pool3d_with_indices_backward", max_pool_backward<3>);
// adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor); 3d alike
Register adaptive2("adaptive_max_pool2d", adaptive_max_pool<2>), adaptive3("adaptive_max_pool3d", adaptive_max_pool<3>);
// adaptive_max_pool2d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor; 3d alike
Register adaptive2b("adaptive_max_pool2d_backward", max_pool_backward<2>);
Register adaptive3b("adaptive_max_pool3d_backward", max_pool_backward<3>);

}  // namespace
}  // namespace mt
