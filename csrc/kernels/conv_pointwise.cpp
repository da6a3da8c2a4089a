// 1x1 convolutions without padding as one product over the pixels of many images: for small planes, for strides, and where
// there are fewer images than threads. Large planes are multiplied where they lie, in conv.cpp.
#include "conv.h"
#include "dispatch.h"
#include "gemm.h"
#include "indexing.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

using indexing::Scratch;

// Images whose pixels are gathered at a time: about 16 MiB of them.
int64_t images_at_once(const Conv& s) {
  return std::clamp<int64_t>((4 << 20) / std::max<int64_t>((s.c + s.k) * s.y_plane(), 1), 1, s.n);
}

// f(pixel of the image, pixel of the output) for the beginning of each output row.
template <class F> void for_each_row(const Conv& s, F&& f) {
  for (int64_t d = 0; d < s.out[0]; ++d)
    for (int64_t h = 0; h < s.out[1]; ++h)
      f((d * s.stride[0] * s.in[1] + h * s.stride[1]) * s.in[2], (d * s.out[1] + h) * s.out[2]);
}

// Rows of `columns`, one per channel: the pixels of the images [first, first + count) that the outputs read.
template <class T> void gather_input(const Conv& s, const T* x, int64_t first, int64_t count, T* columns) {
  const int64_t plane = s.y_plane(), step = s.stride[2];
  parallel_for(s.c, kGrain / (count * plane) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t n = 0; n < count; ++n) {
        const T* from = x + ((first + n) * s.c + c) * s.x_plane();
        T* to = columns + (c * count + n) * plane;
        for_each_row(s, [&](int64_t in, int64_t out) {
          if (step == 1) std::copy(from + in, from + in + s.out[2], to + out);
          else for (int64_t j = 0; j < s.out[2]; ++j) to[out + j] = from[in + j * step];
        });
      }
  });
}

// The other way round; what no output reads becomes 0, or the bias.
template <class T> void scatter_input(const Conv& s, const T* columns, const T* bias, int64_t first, int64_t count, T* x) {
  const int64_t plane = s.y_plane(), step = s.stride[2];
  parallel_for(s.c, kGrain / (count * plane) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t n = 0; n < count; ++n) {
        T* to = x + ((first + n) * s.c + c) * s.x_plane();
        const T *from = columns + (c * count + n) * plane, base = bias ? bias[c] : T();
        if (plane != s.x_plane()) std::fill(to, to + s.x_plane(), base);
        for_each_row(s, [&](int64_t in, int64_t out) {
          for (int64_t j = 0; j < s.out[2]; ++j) to[in + j * step] = from[out + j];
        });
      }
  });
}

// Planes [outer][inner] as [inner][outer]: images of channels as rows of all pixels of a channel, and back.
template <class T> void swap_planes(const T* from, int64_t outer, int64_t inner, int64_t plane, T* to) {
  parallel_for(outer * inner, kGrain / plane + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* source = from + (i % outer * inner + i / outer) * plane;
      std::copy(source, source + plane, to + i * plane);
    }
  });
}

template <class T> void fill_bias(const T* bias, int64_t rows, int64_t width, T* to) {
  if (!bias) return;
  parallel_for(rows, kGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::fill(to + r * width, to + (r + 1) * width, bias[r]);
  });
}

template <class T> void forward(DType dtype, const Conv& s, const T* x, const T* w, const T* bias, T* y) {
  const int64_t plane = s.y_plane(), most = images_at_once(s);
  Scratch<T> columns(s.c * most * plane), result(s.k * most * plane);
  for (int64_t first = 0; first < s.n; first += most) {
    const int64_t count = std::min(most, s.n - first), width = count * plane;
    gather_input(s, x, first, count, columns.get());
    fill_bias(bias, s.k, width, result.get());
    gemm(dtype, false, false, s.k, width, s.c, 1.0, w, s.c, columns.get(), width, bias ? 1.0 : 0.0, result.get(), width);
    swap_planes(result.get(), s.k, count, plane, y + first * s.k * plane);
  }
}

template <class T> void input_grad(DType dtype, const Conv& s, const T* gy, const T* w, const T* bias, T* gx) {
  const int64_t plane = s.y_plane(), most = images_at_once(s);
  Scratch<T> columns(s.c * most * plane), grad(s.k * most * plane);
  for (int64_t first = 0; first < s.n; first += most) {
    const int64_t count = std::min(most, s.n - first), width = count * plane;
    swap_planes(gy + first * s.k * plane, count, s.k, plane, grad.get());
    fill_bias(bias, s.c, width, columns.get());
    gemm(dtype, true, false, s.c, width, s.k, 1.0, w, s.c, grad.get(), width, bias ? 1.0 : 0.0, columns.get(), width);
    scatter_input(s, columns.get(), bias, first, count, gx);
  }
}

template <class T> void weight_grad(DType dtype, const Conv& s, const T* x, const T* gy, T* gw) {
  const int64_t plane = s.y_plane(), most = images_at_once(s);
  Scratch<T> columns(s.c * most * plane), grad(s.k * most * plane);
  for (int64_t first = 0; first < s.n; first += most) {
    const int64_t count = std::min(most, s.n - first), width = count * plane;
    gather_input(s, x, first, count, columns.get());
    swap_planes(gy + first * s.k * plane, count, s.k, plane, grad.get());
    gemm(dtype, false, true, s.k, s.c, width, 1.0, grad.get(), width, columns.get(), width, first ? 1.0 : 0.0, gw, s.c);
  }
}

constexpr int64_t kSmallPlane = 128;  // a product per image this narrow spends its time on packing the weights

}  // namespace

bool gathered_fits(const Conv& s) {
  bool strided = false;
  for (int d = 0; d < 3; ++d) {
    if (s.kernel[d] != 1 || s.pad[d] != 0 || (s.out[d] - 1) * s.stride[d] >= s.in[d]) return false;
    strided = strided || s.stride[d] != 1 || s.in[d] != s.out[d];
  }
  if (s.groups != 1) return false;
  const bool few = get_num_threads() > 1 && s.n < 2 * get_num_threads() && s.y_plane() <= 1024;
  return strided || (s.n > 1 && std::min(s.c, s.k) >= 64 && (s.y_plane() <= kSmallPlane || few));
}

bool gathered_weight_grad_fits(const Conv& s) {
  return gathered_fits(s) || (s.pointwise() && s.groups == 1 && s.y_plane() <= 1024 && s.n > 1);
}

void gathered_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y) {
  MT_DISPATCH_SIZE(dtype, "convolution", T, {
    forward(dtype, s, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), static_cast<T*>(y));
  })
}

void gathered_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, const void* bias, void* gx) {
  MT_DISPATCH_SIZE(dtype, "convolution", T, {
    input_grad(dtype, s, static_cast<const T*>(gy), static_cast<const T*>(w), static_cast<const T*>(bias),
               static_cast<T*>(gx));
  })
}

void gathered_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw) {
  MT_DISPATCH_SIZE(dtype, "convolution_backward", T, {
    weight_grad(dtype, s, static_cast<const T*>(x), static_cast<const T*>(gy), static_cast<T*>(gw));
  })
}

}  // namespace mt
