// The gradients of a convolution: the weight gradient as a sum of matrix products, the bias gradient, and the op; the
// input gradient, which is the forward of the transposed convolution, is in conv.cpp.
#include <stdexcept>
#include <vector>

#include "conv.h"
#include "dispatch.h"
#include "gemm.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

// Each thread sums its share of the positions into a matrix of its own.
template <class T> void lowered_weight_grad(DType dtype, const Conv& s, const T* x, const T* gy, T* gw) {
  const int64_t plane = s.y_plane(), kg = s.kg(), depth = s.cg() * s.taps(), size = s.k * depth;
  const int64_t block = std::min<int64_t>(plane, std::clamp<int64_t>((1 << 17) / depth / 16 * 16, 256, 4096));
  const int64_t pieces = ceil_div(plane, block), units = s.n * pieces;
  const bool direct = s.pointwise();  // the patch matrix is x itself
  const int64_t room = std::max<int64_t>((64 << 20) / (size * int64_t(sizeof(T))), 1);
  const int64_t parts = std::min({int64_t(get_num_threads()), units, room});
  std::vector<T> partial((parts - 1) * size);
  std::fill(gw, gw + size, T(0));
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    T* sum = begin == 0 ? gw : partial.data() + (begin - 1) * size;
    std::unique_ptr<T[]> col(direct ? nullptr : new T[depth * block]);
    for (int64_t i = units * begin / parts; i < units * end / parts; ++i) {
      int64_t n = i / pieces, p = i % pieces * block, width = std::min(block, plane - p);
      for (int64_t g = 0; g < s.groups; ++g) {
        const T* image = x + (n * s.c + g * s.cg()) * s.x_plane();
        if (!direct) unfold(s, image, s.cg(), p, p + width, col.get(), width);
        gemm(dtype, false, true, kg, depth, width, 1.0, gy + (n * s.k + g * kg) * plane + p, plane,
             direct ? image + p : col.get(), direct ? plane : width, 1.0, sum + g * kg * depth, depth);
      }
    }
  });
  parallel_for(size, kGrain / parts + 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = begin; i < end; ++i) gw[i] += partial[(part - 1) * size + i];
  });
}

// Lanes within a run of items, so that the loop is a vector loop and the sum is nearly pairwise.
template <class T> T sum_items(const T* p, int64_t n) {
  T total = 0;
  while (n > 0) {
    int64_t length = std::min<int64_t>(n, 1024), j = 0;
    T lanes[16] = {}, sum = 0;
    for (; j + 16 <= length; j += 16)
      for (int l = 0; l < 16; ++l) lanes[l] += p[j + l];
    for (; j < length; ++j) sum += p[j];
    for (T l : lanes) sum += l;
    total += sum;
    p += length;
    n -= length;
  }
  return total;
}

template <class T> void bias_grad(int64_t n, int64_t channels, int64_t plane, const T* gy, T* gb) {
  parallel_for(channels, kGrain / (n * plane + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      T sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += sum_items(gy + (i * channels + c) * plane, plane);
      gb[c] = sum;
    }
  });
}

// A dense copy, conjugated for complex dtypes: gradients pair with the conjugate of the other factor.
struct Factor : Dense {
  Factor(const View& v, DType dtype) : Dense(v, dtype, is_complex(dtype) ? kOwnCopy : kLoad) {
    if (dtype == kComplexFloat) conjugate<float>(v.numel());
    if (dtype == kComplexDouble) conjugate<double>(v.numel());
  }
  template <class R> void conjugate(int64_t n) {
    for (int64_t i = 0; i < n; ++i) ptr<R>()[2 * i + 1] = -ptr<R>()[2 * i + 1];
  }
};

}  // namespace

void conv_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw) {
  if (s.k * s.cg() * s.taps() == 0) return;
  if (s.n * s.x_plane() * s.y_plane() == 0) {
    std::memset(gw, 0, size_t(s.k * s.cg() * s.taps()) * itemsize(dtype));
  } else if (depthwise_fits(dtype, s)) {
    depthwise_weight_grad(dtype, s, x, gy, gw);
  } else if (winograd_fits(dtype, s) && winograd_weight_grad(s, static_cast<const float*>(x), static_cast<const float*>(gy),
                                                             static_cast<float*>(gw))) {
    return;
  } else if (gathered_weight_grad_fits(dtype, s)) {
    gathered_weight_grad(dtype, s, x, gy, gw);
  } else if (!s.pointwise() && (s.kg() < 48 || s.cg() * s.taps() < 96) && direct_fits(dtype, s)) {  // few enough for dots
    direct_weight_grad(s, static_cast<const float*>(x), static_cast<const float*>(gy), static_cast<float*>(gw));
  } else {
    MT_SWITCH(dtype, "convolution_backward", MT_FLOATS(T, {
      lowered_weight_grad(dtype, s, static_cast<const T*>(x), static_cast<const T*>(gy), static_cast<T*>(gw)); })
      MT_COMPLEX(T, {
      lowered_weight_grad(dtype, s, static_cast<const T*>(x), static_cast<const T*>(gy), static_cast<T*>(gw)); }))
  }
}

// convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[] stride, SymInt[] padding,
//                      SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups)
//   -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)
// Without torch's bias_sizes and output_mask: a gradient that is not given is not wanted.
static void convolution_backward(const Args& args) {
  const View &gx = args.t[0], &gw = args.t[1], &gb = args.t[2], &gy = args.t[3], &x = args.t[4], &w = args.t[5];
  const bool transposed = args.a[3].i;
  Conv s = conv_shape(x, w, gy, args.a);
  DType dtype = widened(gy.dtype);
  if (!is_floating(dtype) && !is_complex(dtype)) unsupported("convolution_backward", dtype);
  const bool gx_made = gx.given() && !transposed && channels_last_input_grad(dtype, s, gy, w, gx);
  const bool gw_made = gw.given() && !transposed && channels_last_weight_grad(dtype, s, x, gy, gw);
  if ((!gx.given() || gx_made) && (!gw.given() || gw_made) && !gb.given()) return;
  Dense dgy(gy, dtype);
  if (gx.given() && !gx_made) {
    Factor dw(w, dtype);
    Dense out(gx, dtype, Dense::kOutput);
    if (transposed) conv_forward(dtype, s, dgy.data(), dw.data(), nullptr, out.data());
    else conv_input_grad(dtype, s, dgy.data(), dw.data(), nullptr, out.data());
    out.store();
  }
  if (gw.given() && !gw_made) {
    Factor dx(x, dtype);
    Dense out(gw, dtype, Dense::kOutput);
    if (transposed) conv_weight_grad(dtype, s, dgy.data(), dx.data(), out.data());
    else conv_weight_grad(dtype, s, dx.data(), dgy.data(), out.data());
    out.store();
  }
  if (gb.given()) {
    Dense out(gb, dtype, Dense::kOutput);
    int64_t channels = gy.sizes[1], plane = transposed ? s.x_plane() : s.y_plane();
    MT_SWITCH(dtype, "convolution_backward",
              MT_FLOATS(T, { bias_grad(s.n, channels, plane, dgy.ptr<T>(), out.ptr<T>()); })
              MT_COMPLEX(T, { bias_grad(s.n, channels, plane, dgy.ptr<T>(), out.ptr<T>()); }))
    out.store();
  }
}
static Register register_convolution_backward("convolution_backward", convolution_backward);

}  // namespace mt
