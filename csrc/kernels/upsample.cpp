// Upsampling of the last one to three dims, nearest, linear, cubic and antialiased, with gradients: per dim a table
// says which inputs an output is made of. grid_sampler has a file of its own.
#include <cmath>
#include <vector>

#include "channels.h"
#include "dense.h"
#include "dispatch.h"
#include "parallel.h"
#include "scalar.h"

namespace mt {
namespace {

enum Mode { kNearest, kNearestExact, kLinear, kCubic, kLinearAA, kCubicAA, kLanczosAA };

// Output o of a dim is the sum over t < taps of weight[t * out + o] * input[index[t * out + o]].
template <class T> struct Axis {
  int64_t in = 1, out = 1, taps = 1;
  std::vector<int32_t> index = {0};
  std::vector<T> weight = {T(1)};

  void reset(int64_t count) {
    taps = count;
    index.assign(taps * out, 0);
    weight.assign(taps * out, T(0));
  }
  void set(int64_t t, int64_t o, int64_t i, T w) {
    index[t * out + o] = int32_t(std::clamp<int64_t>(i, 0, in - 1));
    weight[t * out + o] = w;
  }
};

// Input pixels per output pixel, in the precision torch computes it in: the last bit decides which pixel is nearest.
template <class T> T axis_scale(int64_t in, int64_t out, bool align_corners, const Attr& scale) {
  if (align_corners) return out > 1 ? T(in - 1) / T(out - 1) : T(0);
  return scale.given && scale.f > 0 ? T(1.0 / scale.f) : T(in) / T(out);
}

template <class T> T cubic_near(T x, T a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }         // |x| <= 1
template <class T> T cubic_far(T x, T a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }    // 1 < |x| < 2

template <class T> void fill_nearest(Axis<T>& axis, bool exact, const Attr& scale) {
  const float step = axis_scale<float>(axis.in, axis.out, false, scale);
  axis.reset(1);
  for (int64_t o = 0; o < axis.out; ++o) {
    int64_t i = int64_t(std::floor(exact ? (float(o) + 0.5f) * step : float(o) * step));
    if (!exact && axis.out == axis.in) i = o;
    if (!exact && axis.out == 2 * axis.in) i = o / 2;
    axis.set(0, o, i, T(1));
  }
}

template <class T> void fill_interpolating(Axis<T>& axis, bool cubic, bool align_corners, const Attr& scale) {
  const T step = axis_scale<T>(axis.in, axis.out, align_corners, scale), a = T(-0.75);
  axis.reset(cubic ? 4 : 2);
  for (int64_t o = 0; o < axis.out; ++o) {
    T at = align_corners ? step * T(o) : step * (T(o) + T(0.5)) - T(0.5);
    if (!cubic && at < 0) at = 0;
    if (!cubic && axis.in == axis.out) at = T(o);
    int64_t i = std::min<int64_t>(int64_t(std::floor(at)), axis.in - 1);
    T f = std::min(std::max(at - T(i), T(0)), T(1));
    if (cubic) {
      axis.set(0, o, i - 1, cubic_far(f + 1, a));
      axis.set(1, o, i, cubic_near(f, a));
      axis.set(2, o, i + 1, cubic_near(1 - f, a));
      axis.set(3, o, i + 2, cubic_far(2 - f, a));
    } else {
      axis.set(0, o, i, 1 - f);
      axis.set(1, o, i + 1, f);
    }
  }
}

template <class T> T sinc(T x) { return x == 0 ? T(1) : std::sin(T(M_PI) * x) / (T(M_PI) * x); }

template <class T> T antialias_filter(Mode mode, T x) {  // x >= 0
  const T a = T(-0.5);
  if (mode == kLinearAA) return std::max(1 - x, T(0));
  if (mode == kCubicAA) return x < 1 ? cubic_near(x, a) : x < 2 ? cubic_far(x, a) : T(0);
  return x < 3 ? sinc(x) * sinc(x / 3) : T(0);
}

// The filter is stretched over the inputs an output covers when the image shrinks.
template <class T> void fill_antialias(Axis<T>& axis, Mode mode, bool align_corners, const Attr& scale) {
  const T step = axis_scale<T>(axis.in, axis.out, align_corners, scale);
  const T stretch = std::max(step, T(1)), shrink = 1 / stretch, support = (mode == kLanczosAA ? 3 : mode == kCubicAA ? 2 : 1) * stretch;
  axis.reset(int64_t(std::ceil(support)) * 2 + 1);
  for (int64_t o = 0; o < axis.out; ++o) {
    const T center = step * (T(o) + T(0.5));
    const int64_t first = std::max<int64_t>(int64_t(center - support + T(0.5)), 0);
    const int64_t last = std::min<int64_t>(int64_t(center + support + T(0.5)), axis.in);
    T total = 0;
    for (int64_t i = first; i < last && i - first < axis.taps; ++i) {
      T w = antialias_filter(mode, std::fabs((T(i) - center + T(0.5)) * shrink));
      axis.set(i - first, o, i, w);
      total += w;
    }
    if (total != 0)
      for (int64_t t = 0; t < axis.taps; ++t) axis.weight[t * axis.out + o] /= total;
  }
}

template <class T> struct Resize {
  int64_t planes = 1;
  Axis<T> axis[3];  // depth, height, width
  int64_t in_plane() const { return axis[0].in * axis[1].in * axis[2].in; }
  int64_t out_plane() const { return axis[0].out * axis[1].out * axis[2].out; }

  // attr: align_corners where the mode has one, then a scale per dim.
  Resize(const View& in, const View& out, int nd, Mode mode, const Attr* attr) {
    if (in.ndim != nd + 2 || out.ndim != nd + 2) throw std::runtime_error("upsample: wrong number of dims");
    if (in.sizes[0] != out.sizes[0] || in.sizes[1] != out.sizes[1])
      throw std::runtime_error("upsample: input and output differ in their planes");
    planes = in.sizes[0] * in.sizes[1];
    bool align = mode >= kLinear && attr++->i;
    for (int i = 0; i < nd; ++i) {
      Axis<T>& a = axis[3 - nd + i];
      a.in = in.sizes[i + 2];
      a.out = out.sizes[i + 2];
      if (a.in <= 0 || a.out <= 0) throw std::runtime_error("Input and output sizes should be greater than 0");
      if (mode <= kNearestExact) fill_nearest(a, mode == kNearestExact, attr[i]);
      else if (mode <= kCubic) fill_interpolating(a, mode == kCubic, align, attr[i]);
      else fill_antialias(a, mode, align, attr[i]);
    }
  }
  // f(input row number, weight): the rows that output row (od, oh) is made of.
  template <class F> void for_each_line(int64_t od, int64_t oh, F&& f) const {
    const Axis<T>&d = axis[0], &h = axis[1];
    for (int64_t i = 0; i < d.taps; ++i)
      for (int64_t j = 0; j < h.taps; ++j) {
        T w = d.weight[i * d.out + od] * h.weight[j * h.out + oh];
        if (w != T(0)) f(int64_t(d.index[i * d.out + od]) * h.in + h.index[j * h.out + oh], w);
      }
  }
  // One output row; `line` holds a row of the input, summed over depth and height first: those are vector loops.
  void row(const T* x, int64_t od, int64_t oh, T* __restrict line, T* __restrict y) const {
    const Axis<T>& w = axis[2];
    bool first = true;
    for_each_line(od, oh, [&](int64_t number, T weight) {
      const T* __restrict from = x + number * w.in;
      if (first) for (int64_t i = 0; i < w.in; ++i) line[i] = weight * from[i];
      else for (int64_t i = 0; i < w.in; ++i) line[i] += weight * from[i];
      first = false;
    });
    for (int64_t t = 0; t < w.taps; ++t) {
      const int32_t* __restrict index = w.index.data() + t * w.out;
      const T* __restrict weight = w.weight.data() + t * w.out;
      if (t == 0) for (int64_t o = 0; o < w.out; ++o) y[o] = weight[o] * line[index[o]];
      else for (int64_t o = 0; o < w.out; ++o) y[o] += weight[o] * line[index[o]];
    }
  }
  // row() of all channels, which lie side by side; `line` has as many for each pixel of a row of the input.
  void row_last(const T* x, int64_t od, int64_t oh, int64_t channels, T* __restrict line, T* __restrict y) const {
    const Axis<T>& w = axis[2];
    const int64_t items = w.in * channels;
    bool first = true;
    for_each_line(od, oh, [&](int64_t number, T weight) {
      const T* __restrict from = x + number * items;
      if (first) for (int64_t i = 0; i < items; ++i) line[i] = weight * from[i];
      else for (int64_t i = 0; i < items; ++i) line[i] += weight * from[i];
      first = false;
    });
    for (int64_t o = 0; o < w.out; ++o)
      for (int64_t t = 0; t < w.taps; ++t) {
        const T weight = w.weight[t * w.out + o];
        const T* __restrict from = line + w.index[t * w.out + o] * channels;
        T* __restrict to = y + o * channels;
        if (t == 0) for (int64_t c = 0; c < channels; ++c) to[c] = weight * from[c];
        else for (int64_t c = 0; c < channels; ++c) to[c] += weight * from[c];
      }
  }
  // The adjoint of row().
  void row_backward(const T* gy, int64_t od, int64_t oh, T* line, T* gx) const {
    const Axis<T>& w = axis[2];
    std::fill(line, line + w.in, T(0));
    for (int64_t t = 0; t < w.taps; ++t)
      for (int64_t o = 0; o < w.out; ++o) line[w.index[t * w.out + o]] += w.weight[t * w.out + o] * gy[o];
    for_each_line(od, oh, [&](int64_t number, T weight) {
      T* __restrict to = gx + number * w.in;
      const T* __restrict from = line;
      for (int64_t i = 0; i < w.in; ++i) to[i] += weight * from[i];
    });
  }
};

// Nearest moves items of any type.
void move_rows(const Resize<float>& r, DType dtype, const void* x, void* y) {
  const int64_t lines = r.axis[0].out * r.axis[1].out, width = r.axis[2].out;
  const int32_t* index = r.axis[2].index.data();
  MT_DISPATCH_SIZE(dtype, "upsample", T, {
    parallel_for(r.planes * lines, kGrain / width + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t p = i / lines, od = i % lines / r.axis[1].out, oh = i % r.axis[1].out;
        int64_t number = int64_t(r.axis[0].index[od]) * r.axis[1].in + r.axis[1].index[oh];
        const T* from = static_cast<const T*>(x) + p * r.in_plane() + number * r.axis[2].in;
        T* to = static_cast<T*>(y) + i * width;
        for (int64_t o = 0; o < width; ++o) to[o] = from[index[o]];
      }
    });
  })
}

// The same where all channels of a pixel lie side by side.
void move_pixels(const Resize<float>& r, int64_t channels, DType dtype, const void* x, void* y) {
  const int64_t lines = r.axis[0].out * r.axis[1].out, width = r.axis[2].out, size = channels * itemsize(dtype);
  parallel_for(r.planes / channels * lines, kGrain / (width * channels) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t n = i / lines, od = i % lines / r.axis[1].out, oh = i % r.axis[1].out;
      int64_t number = int64_t(r.axis[0].index[od]) * r.axis[1].in + r.axis[1].index[oh];
      const char* from = static_cast<const char*>(x) + (n * r.in_plane() + number * r.axis[2].in) * size;
      char* to = static_cast<char*>(y) + i * width * size;
      for (int64_t o = 0; o < width; ++o) std::memcpy(to + o * size, from + r.axis[2].index[o] * size, size_t(size));
    }
  });
}

// ---- images of bytes -------------------------------------------------------------------------------------------------
// Two passes, each rounded to bytes, with weights of 16 bits and a common power of two: as torch and Pillow compute it.
struct ByteAxis {
  struct Tap {
    int32_t index, weight;
  };
  int64_t in, out;
  int shift = 0;
  std::vector<Tap> taps;
  std::vector<int64_t> first;  // of each output's taps; one more than there are outputs

  explicit ByteAxis(const Axis<double>& axis) : in(axis.in), out(axis.out), first(1, 0) {
    std::vector<double> weights;  // of pixels: what was clamped to one pixel is added up before it is rounded
    double largest = 0;
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t t = 0; t < axis.taps; ++t) {
        const int32_t index = axis.index[t * out + o];
        if (taps.size() == size_t(first.back()) || taps.back().index != index) {
          taps.push_back({index, 0});
          weights.push_back(0);
        }
        weights.back() += axis.weight[t * out + o];
        largest = std::max(largest, weights.back());
      }
      first.push_back(int64_t(taps.size()));
    }
    while (shift < 22 && int(0.5 + largest * (1 << (shift + 1))) < 1 << 15) ++shift;
    for (size_t k = 0; k < taps.size(); ++k) {
      const double scaled = weights[k] * (1 << shift);
      taps[k].weight = int(scaled + (scaled < 0 ? -0.5 : 0.5));
    }
  }
  uint8_t rounded(int32_t sum) const { return uint8_t(std::clamp(sum >> shift, 0, 255)); }
  int32_t half() const { return shift ? 1 << (shift - 1) : 0; }

  // `lines` lines along this axis; items of a line are `step` apart, the lines side by side.
  void resize(const uint8_t* x, uint8_t* y, int64_t lines, int64_t step) const {
    if (step == 1) {
      for (int64_t l = 0; l < lines; ++l)
        for (int64_t o = 0; o < out; ++o) {
          int32_t sum = half();
          for (int64_t k = first[o]; k < first[o + 1]; ++k) sum += x[l * in + taps[k].index] * taps[k].weight;
          y[l * out + o] = rounded(sum);
        }
      return;
    }
    std::vector<int32_t> sums(step);
    for (int64_t o = 0; o < out; ++o) {
      std::fill(sums.begin(), sums.end(), half());
      for (int64_t k = first[o]; k < first[o + 1]; ++k)
        for (int64_t l = 0; l < step; ++l) sums[l] += x[taps[k].index * step + l] * taps[k].weight;
      for (int64_t l = 0; l < step; ++l) y[o * step + l] = rounded(sums[l]);
    }
  }
};

// A dim that keeps its size is left as it is.
void resize_bytes(const Resize<double>& r, const uint8_t* x, uint8_t* y) {
  const ByteAxis height(r.axis[1]), width(r.axis[2]);
  const int64_t middle = height.in * width.out, work = 4 * (middle + r.out_plane());
  parallel_for(r.planes, kGrain / work + 1, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> wide(middle);
    for (int64_t p = begin; p < end; ++p) {
      const uint8_t* from = x + p * r.in_plane();
      if (width.in == width.out) std::copy(from, from + middle, wide.begin());
      else width.resize(from, wide.data(), height.in, 1);
      uint8_t* to = y + p * r.out_plane();
      if (height.in == height.out) std::copy(wide.begin(), wide.end(), to);
      else height.resize(wide.data(), to, width.out, width.out);
    }
  });
}

// Floats; bytes in one or three dims are computed in float and rounded.
DType upsample_dtype(DType d, const char* op) {
  if (d != kUInt8 && !is_floating(d)) unsupported(op, d);
  return d == kUInt8 ? kFloat : widened(d);
}

template <int nd, Mode mode> void upsample(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  if (out.numel() == 0) return;
  DType dtype = upsample_dtype(self.dtype, "upsample");
  if (mode <= kNearestExact) {
    Resize<float> r(self, out, nd, mode, args.a + 1);
    if (both_channels_last(self, out, self.dtype)) return move_pixels(r, self.sizes[1], self.dtype, self.data, out.data);
    Dense x(self, self.dtype), y(out, self.dtype, Dense::kOutput);
    move_rows(r, self.dtype, x.data(), y.data());
    return y.store();
  }
  if (nd == 2 && self.dtype == kUInt8) {
    Resize<double> r(self, out, nd, mode, args.a + 1);
    Dense x(self, kUInt8), y(out, kUInt8, Dense::kOutput);
    resize_bytes(r, x.ptr<uint8_t>(), y.ptr<uint8_t>());
    return y.store();
  }
  if (both_channels_last(self, out, dtype)) {
    MT_SWITCH(dtype, "upsample", MT_FLOATS(T, {
      Resize<T> r(self, out, nd, mode, args.a + 1);
      const int64_t lines = r.axis[0].out * r.axis[1].out, channels = self.sizes[1], row = r.axis[2].out * channels;
      parallel_for(self.sizes[0] * lines, kGrain / (4 * row) + 1, [&](int64_t begin, int64_t end) {
        std::vector<T> line(r.axis[2].in * channels);
        for (int64_t i = begin; i < end; ++i)
          r.row_last(self.ptr<T>() + i / lines * r.in_plane() * channels, i % lines / r.axis[1].out, i % r.axis[1].out,
                     channels, line.data(), out.ptr<T>() + i * row);
      });
    }))
    return;
  }
  Dense x(self, dtype), y(out, dtype, Dense::kOutput);
  MT_SWITCH(dtype, "upsample", MT_FLOATS(T, {
    Resize<T> r(self, out, nd, mode, args.a + 1);
    const int64_t lines = r.axis[0].out * r.axis[1].out, width = r.axis[2].out;
    parallel_for(r.planes * lines, kGrain / (4 * (width + r.axis[2].in)) + 1, [&](int64_t begin, int64_t end) {
      std::vector<T> line(r.axis[2].in);
      for (int64_t i = begin; i < end; ++i) {
        T* to = y.ptr<T>() + i * width;
        r.row(x.ptr<T>() + i / lines * r.in_plane(), i % lines / r.axis[1].out, i % r.axis[1].out, line.data(), to);
        if (self.dtype == kUInt8)
          for (int64_t o = 0; o < width; ++o) to[o] = std::min(std::max(std::nearbyint(to[o]), T(0)), T(255));
      }
    });
  }))
  y.store();
}

template <int nd, Mode mode> void upsample_backward(const Args& args) {
  const View &grad_input = args.t[0], &grad_output = args.t[1];
  if (grad_input.numel() == 0) return;
  DType dtype = upsample_dtype(grad_input.dtype, "upsample_backward");
  Dense gx(grad_input, dtype, Dense::kOutput), gy(grad_output, dtype);
  MT_SWITCH(dtype, "upsample_backward", MT_FLOATS(T, {
    Resize<T> r(grad_input, grad_output, nd, mode, args.a + 2);
    const int64_t lines = r.axis[0].out * r.axis[1].out, width = r.axis[2].out;
    parallel_for(r.planes, kGrain / (4 * r.out_plane()) + 1, [&](int64_t begin, int64_t end) {
      std::vector<T> line(r.axis[2].in);
      for (int64_t p = begin; p < end; ++p) {
        T* to = gx.ptr<T>() + p * r.in_plane();
        std::fill(to, to + r.in_plane(), T(0));
        for (int64_t i = 0; i < lines; ++i)
          r.row_backward(gy.ptr<T>() + (p * lines + i) * width, i / r.axis[1].out, i % r.axis[1].out, line.data(), to);
      }
    });
  }))
  gx.store();
}

// NAME(Tensor self, SymInt[] output_size, [bool align_corners,] float? scales, one per dim) -> Tensor
// NAME_backward(Tensor grad_output, SymInt[] output_size, SymInt[] input_size, [bool align_corners,] float? scales)
//   -> Tensor
// align_corners is there except for the nearest ones.
#define MT_UPSAMPLE(NAME, ND, MODE) \
  Register NAME##_forward(#NAME, upsample<ND, MODE>), NAME##_grad(#NAME "_backward", upsample_backward<ND, MODE>)
MT_UPSAMPLE(upsample_nearest1d, 1, kNearest);
MT_UPSAMPLE(upsample_nearest2d, 2, kNearest);
MT_UPSAMPLE(upsample_nearest3d, 3, kNearest);
MT_UPSAMPLE(_upsample_nearest_exact1d, 1, kNearestExact);
MT_UPSAMPLE(_upsample_nearest_exact2d, 2, kNearestExact);
MT_UPSAMPLE(_upsample_nearest_exact3d, 3, kNearestExact);
MT_UPSAMPLE(upsample_linear1d, 1, kLinear);
MT_UPSAMPLE(upsample_bilinear2d, 2, kLinear);
MT_UPSAMPLE(upsample_trilinear3d, 3, kLinear);
MT_UPSAMPLE(upsample_bicubic2d, 2, kCubic);
MT_UPSAMPLE(_upsample_bilinear2d_aa, 2, kLinearAA);
MT_UPSAMPLE(_upsample_bicubic2d_aa, 2, kCubicAA);
MT_UPSAMPLE(_upsample_lanczos2d_aa, 2, kLanczosAA);

}  // namespace
}  // namespace mt
