// grid_sampler in two and three dims with its gradients; affine_grid is a composite elsewhere.
#include <cmath>
#include <stdexcept>
#include <vector>

#include "dense.h"
#include "dispatch.h"
#include "parallel.h"

namespace mt {
namespace {

enum Interpolation { kBilinear, kNearest, kBicubic };
enum Border { kZeros, kClamp, kReflect };

struct Sampler {
  int nd;  // spatial dims
  int64_t n, c, in[3] = {1, 1, 1}, points = 1;  // in: depth, height, width
  int interpolation, border;
  bool align;

  Sampler(const View& input, const View& grid, int dims, const Attr* attr)
      : nd(dims), interpolation(int(attr[0].i)), border(int(attr[1].i)), align(attr[2].i) {
    if (input.ndim != nd + 2 || grid.ndim != nd + 2 || grid.sizes[0] != input.sizes[0] || grid.sizes[nd + 1] != nd)
      throw std::runtime_error("grid_sampler(): expected input and grid of matching batch and dims");
    n = input.sizes[0], c = input.sizes[1];
    if (interpolation < kBilinear || interpolation > kBicubic || border < kZeros || border > kReflect)
      throw std::runtime_error("grid_sampler(): unknown interpolation or padding mode");
    if (input.dtype != grid.dtype)
      throw std::runtime_error("grid_sampler(): expected input and grid to have same dtype");
    for (int d = 2; d < input.ndim; ++d)
      if (input.sizes[d] <= 0)
        throw std::runtime_error("grid_sampler(): expected input to have non-empty spatial dimensions");
    if (interpolation == kBicubic && nd == 3)
      throw std::runtime_error("grid_sampler(): bicubic interpolation only supports 4D input");
    for (int d = 0; d < nd; ++d) {
      in[3 - nd + d] = input.sizes[d + 2];
      points *= grid.sizes[d + 1];
    }
  }
  int64_t plane() const { return in[0] * in[1] * in[2]; }

  // A grid coordinate as a pixel coordinate of a dim of `size`; slope is the derivative.
  template <class T> T pixel(T g, int64_t size, T* slope) const {
    *slope = align ? T(size - 1) / 2 : T(size) / 2;
    return align ? (g + 1) / 2 * T(size - 1) : ((g + 1) * T(size) - 1) / 2;
  }
  // Brings a pixel coordinate into the image as the border mode says.
  template <class T> T bounded(T x, int64_t size, T* slope) const {
    if (border == kZeros) return x;
    if (border == kReflect) {
      // About the centres of the outer pixels when aligned, about their edges otherwise.
      T low = align ? T(0) : T(-0.5), span = align ? T(size - 1) : T(size);
      if (span <= 0) {
        *slope = 0;
        x = 0;
      } else {
        T away = x - low, sign = away < 0 ? T(-1) : T(1);
        away = std::fabs(away);
        T rest = std::fmod(away, span);
        bool even = std::fmod(std::floor(away / span), T(2)) == 0;
        x = even ? rest + low : span - rest + low;
        *slope *= even ? sign : -sign;
      }
    }
    T last = T(size - 1);
    if (!(x > 0)) {  // also a NaN, as torch's clip does
      *slope = 0;
      return 0;
    }
    if (x >= last) {
      *slope = 0;
      return last;
    }
    return x;
  }
};

template <class T> int64_t to_index(T x) {  // out of any image instead of undefined
  return x > T(-1e9) && x < T(1e9) ? int64_t(x) : int64_t(-1000000000);
}

// What one output point reads: up to 16 pixels, their weights, and the derivatives of those by the grid coordinates.
template <class T> struct Taps {
  int count = 0;
  int64_t offset[16];  // -1: outside, reads as 0
  T weight[16], slope[16][3];
};

// The taps of one dim; d runs width, height, depth as grid coordinates do.
template <class T> struct AxisTaps {
  int count;
  int64_t index[4];
  T weight[4], slope[4];
};

template <class T> void cubic_weights(T f, T* w, T* s) {
  const T a = T(-0.75);
  const T x[4] = {f + 1, f, 1 - f, 2 - f};
  for (int t = 0; t < 4; ++t) {
    bool near = t == 1 || t == 2;
    T v = x[t];
    w[t] = near ? ((a + 2) * v - (a + 3)) * v * v + 1 : ((a * v - 5 * a) * v + 8 * a) * v - 4 * a;
    T slope = near ? (3 * (a + 2) * v - 2 * (a + 3)) * v : (3 * a * v - 10 * a) * v + 8 * a;
    s[t] = t < 2 ? slope : -slope;
  }
}

template <class T> AxisTaps<T> axis_taps(const Sampler& s, T g, int64_t size) {
  AxisTaps<T> a;
  T slope, x = s.pixel(g, size, &slope);
  if (s.interpolation == kBicubic) {  // the border mode applies to each of the four pixels
    T base = std::floor(x);
    a.count = 4;
    cubic_weights(x - base, a.weight, a.slope);
    for (int t = 0; t < 4; ++t) {
      T ignored = 0;
      a.index[t] = to_index(s.bounded(base - 1 + T(t), size, &ignored));
      a.slope[t] *= slope;
    }
    return a;
  }
  x = s.bounded(x, size, &slope);
  if (s.interpolation == kNearest) {
    a.count = 1;
    a.index[0] = to_index(std::nearbyint(x));
    a.weight[0] = 1;
    a.slope[0] = 0;
    return a;
  }
  T base = std::floor(x);
  a.count = 2;
  a.index[0] = to_index(base);
  a.index[1] = a.index[0] + 1;
  a.weight[1] = x - base;
  a.weight[0] = base + 1 - x;
  a.slope[0] = -slope;
  a.slope[1] = slope;
  return a;
}

// The product of the dims' taps. grid: x, y[, z].
template <class T> void find_taps(const Sampler& s, const T* grid, Taps<T>& taps) {
  AxisTaps<T> axis[3];
  axis[2] = {1, {0}, {T(1)}, {T(0)}};
  for (int d = 0; d < s.nd; ++d) axis[d] = axis_taps(s, grid[d], s.in[2 - d]);
  taps.count = 0;
  for (int k = 0; k < axis[2].count; ++k)
    for (int j = 0; j < axis[1].count; ++j)
      for (int i = 0; i < axis[0].count; ++i) {
        int64_t x = axis[0].index[i], y = axis[1].index[j], z = axis[2].index[k];
        bool inside = x >= 0 && x < s.in[2] && y >= 0 && y < s.in[1] && z >= 0 && z < s.in[0];
        T a = axis[0].weight[i], b = axis[1].weight[j], c = axis[2].weight[k];
        int t = taps.count++;
        taps.offset[t] = inside ? (z * s.in[1] + y) * s.in[2] + x : -1;
        taps.weight[t] = a * b * c;
        taps.slope[t][0] = axis[0].slope[i] * b * c;
        taps.slope[t][1] = a * axis[1].slope[j] * c;
        taps.slope[t][2] = a * b * axis[2].slope[k];
      }
}

// The taps of a run of points of one image, laid out tap by tap, first by axis: the loops over points and over a channel
// are then free of branches. Offset: an integer that holds every place of a plane.
constexpr int kPoints = 64;
template <class T> struct AxisRun {
  int count = 1;
  int32_t index[4][kPoints] = {};
  T weight[4][kPoints];

  static int32_t place(T x) { return x > T(-1e9) && x < T(1e9) ? int32_t(x) : -1000000000; }
  // Coordinate d of the points; that of a dim which the image has not is 0.
  void find(const Sampler& s, const T* grid, int d, int points) {
    const int64_t size = s.in[2 - d];
    T x[kPoints], slope;
    const int step = s.nd;
    for (int i = 0; i < points; ++i) x[i] = grid[i * step + d];
    if (s.align) for (int i = 0; i < points; ++i) x[i] = (x[i] + 1) / 2 * T(size - 1);
    else for (int i = 0; i < points; ++i) x[i] = ((x[i] + 1) * T(size) - 1) / 2;
    if (s.interpolation == kBicubic) {  // the border mode applies to each of the four pixels
      count = 4;
      for (int i = 0; i < points; ++i) {
        const T low = std::floor(x[i]);
        T w[4], ignored[4];
        cubic_weights(x[i] - low, w, ignored);
        for (int t = 0; t < 4; ++t) {
          index[t][i] = place(s.bounded(low - 1 + T(t), size, ignored));
          weight[t][i] = w[t];
        }
      }
      return;
    }
    const T last = T(size - 1);
    if (s.border == kClamp)
      for (int i = 0; i < points; ++i) x[i] = x[i] > 0 ? (x[i] < last ? x[i] : last) : T(0);
    else if (s.border == kReflect)
      for (int i = 0; i < points; ++i) x[i] = s.bounded(x[i], size, &slope);
    if (s.interpolation == kNearest) {
      for (int i = 0; i < points; ++i) index[0][i] = place(std::nearbyint(x[i])), weight[0][i] = 1;
      return;
    }
    count = 2;
    for (int i = 0; i < points; ++i) {
      const T low = std::floor(x[i]);
      index[0][i] = place(low), index[1][i] = place(low) + 1;
      weight[0][i] = low + 1 - x[i], weight[1][i] = x[i] - low;
    }
  }
};

template <class T, class Offset> struct Run {
  using Mask = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  int count = 0;
  bool all_inside = true;
  Offset offset[16][kPoints];
  T weight[16][kPoints];
  Mask inside[16][kPoints];  // all bits, or none
  AxisRun<T> axis[3];

  Run() { std::fill_n(axis[2].weight[0], kPoints, T(1)); }
  void find(const Sampler& s, const T* grid, int points) {
    for (int d = 0; d < s.nd; ++d) axis[d].find(s, grid, d, points);
    const uint32_t depth = uint32_t(s.in[0]), height = uint32_t(s.in[1]), width = uint32_t(s.in[2]);
    Mask every = ~Mask(0);
    count = 0;
    for (int z = 0; z < axis[2].count; ++z)
      for (int y = 0; y < axis[1].count; ++y)
        for (int x = 0; x < axis[0].count; ++x, ++count) {
          const int32_t *at_x = axis[0].index[x], *at_y = axis[1].index[y], *at_z = axis[2].index[z];
          const T *share_x = axis[0].weight[x], *share_y = axis[1].weight[y], *share_z = axis[2].weight[z];
          Offset* const to = offset[count];
          Mask* const mask_to = inside[count];
          T* const share = weight[count];
#pragma GCC ivdep
          for (int i = 0; i < points; ++i) {
            const bool in = (uint32_t(at_x[i]) < width) & (uint32_t(at_y[i]) < height) & (uint32_t(at_z[i]) < depth);
            const Mask mask = in ? ~Mask(0) : Mask(0);
            mask_to[i] = mask;
            every &= mask;
            to[i] = in ? (Offset(at_z[i]) * Offset(height) + Offset(at_y[i])) * Offset(width) + Offset(at_x[i]) : Offset(0);
            share[i] = share_x[i] * share_y[i] * share_z[i];
          }
        }
    all_inside = every != 0;
  }
  template <int taps, bool all> void sum(const T* plane, int points, T* __restrict y) const {
    for (int i = 0; i < points; ++i) {
      T sum = 0;
      for (int t = 0; t < taps; ++t) {
        T v = plane[offset[t][i]];  // outside it is 0, and the weight counts: a NaN coordinate gives NaN
        if (!all) v = __builtin_bit_cast(T, __builtin_bit_cast(Mask, v) & inside[t][i]);
        sum += weight[t][i] * v;
      }
      y[i] = sum;
    }
  }
  void sample(const T* plane, int points, T* y) const {
    switch (count) {
      case 1: return all_inside ? sum<1, true>(plane, points, y) : sum<1, false>(plane, points, y);
      case 4: return all_inside ? sum<4, true>(plane, points, y) : sum<4, false>(plane, points, y);
      case 8: return all_inside ? sum<8, true>(plane, points, y) : sum<8, false>(plane, points, y);
      default: return all_inside ? sum<16, true>(plane, points, y) : sum<16, false>(plane, points, y);
    }
  }
};

template <class T, class Offset> void sample_runs(const Sampler& s, const T* x, const T* grid, T* y) {
  const int64_t runs = (s.points + kPoints - 1) / kPoints;
  parallel_for(s.n * runs, 64 / (s.c + 1) + 1, [&](int64_t begin, int64_t end) {
    Run<T, Offset> run;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / runs, p = i % runs * kPoints;
      const int points = int(std::min<int64_t>(kPoints, s.points - p));
      run.find(s, grid + (n * s.points + p) * s.nd, points);
      for (int64_t c = n * s.c; c < (n + 1) * s.c; ++c)
        run.sample(x + c * s.plane(), points, y + c * s.points + p);
    }
  });
}
template <class T> void sample(const Sampler& s, const T* x, const T* grid, T* y) {
  if (s.plane() < int64_t(1) << 31) sample_runs<T, int32_t>(s, x, grid, y);
  else sample_runs<T, int64_t>(s, x, grid, y);
}

// Threads take images: points of one image may read the same pixel. gx or gg may be nullptr.
template <class T> void sample_backward(const Sampler& s, const T* gy, const T* x, const T* grid, T* gx, T* gg) {
  parallel_for(s.n, 1, [&](int64_t begin, int64_t end) {
    Taps<T> taps;
    if (gx) std::fill(gx + begin * s.c * s.plane(), gx + end * s.c * s.plane(), T(0));
    for (int64_t i = begin * s.points; i < end * s.points; ++i) {
      find_taps(s, grid + i * s.nd, taps);
      int64_t n = i / s.points, p = i % s.points;
      T by_grid[3] = {};
      for (int64_t c = 0; c < s.c; ++c) {
        const int64_t plane = (n * s.c + c) * s.plane();
        const T g = gy[(n * s.c + c) * s.points + p];
        for (int t = 0; t < taps.count; ++t) {
          if (taps.offset[t] < 0) continue;
          if (gx) gx[plane + taps.offset[t]] += taps.weight[t] * g;
          const T v = x[plane + taps.offset[t]] * g;
          for (int d = 0; d < 3; ++d) by_grid[d] += taps.slope[t][d] * v;
        }
      }
      if (gg) std::copy(by_grid, by_grid + s.nd, gg + i * s.nd);
    }
  });
}

template <int nd> void grid_sampler(const Args& args) {
  const View &out = args.t[0], &input = args.t[1], &grid = args.t[2];
  Sampler s(input, grid, nd, args.a);
  if (out.numel() == 0) return;
  DType dtype = widened(input.dtype);
  Dense x(input, dtype), g(grid, dtype), y(out, dtype, Dense::kOutput);
  MT_SWITCH(dtype, "grid_sampler", MT_FLOATS(T, { sample(s, x.ptr<T>(), g.ptr<T>(), y.ptr<T>()); }))
  y.store();
}

template <int nd> void grid_sampler_backward(const Args& args) {
  const View &grad_input = args.t[0], &grad_grid = args.t[1], &grad_output = args.t[2], &input = args.t[3];
  Sampler s(input, args.t[4], nd, args.a);
  bool fits = grad_output.ndim == nd + 2 && grad_output.sizes[0] == s.n && grad_output.sizes[1] == s.c;
  for (int d = 0; fits && d < nd; ++d) fits = grad_output.sizes[d + 2] == args.t[4].sizes[d + 1];
  if (!fits) throw std::runtime_error("grid_sampler_backward: grad_output has the wrong size");
  DType dtype = widened(input.dtype);
  Dense gy(grad_output, dtype), x(input, dtype), grid(args.t[4], dtype);
  Dense gx(grad_input, grad_input.given() ? dtype : grad_input.dtype, Dense::kOutput);
  Dense gg(grad_grid, grad_grid.given() ? dtype : grad_grid.dtype, Dense::kOutput);
  MT_SWITCH(dtype, "grid_sampler_backward", MT_FLOATS(T, {
    sample_backward(s, gy.ptr<T>(), x.ptr<T>(), grid.ptr<T>(), grad_input.given() ? gx.ptr<T>() : nullptr,
                    grad_grid.given() ? gg.ptr<T>() : nullptr);
  }))
  if (grad_input.given()) gx.store();
  if (grad_grid.given()) gg.store();
}

// grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor
Register sampler2("grid_sampler_2d", grid_sampler<2>), sampler3("grid_sampler_3d", grid_sampler<3>);
// grid_sampler_2d_backward(Tensor grad_output, Tensor input, Tensor grid, int interpolation_mode, int padding_mode,
//                          bool align_corners) -> (grad_input, grad_grid); a gradient not given is not wanted
Register sampler2b("grid_sampler_2d_backward", grid_sampler_backward<2>);
Register sampler3b("grid_sampler_3d_backward", grid_sampler_backward<3>);

}  // namespace
}  // namespace mt
