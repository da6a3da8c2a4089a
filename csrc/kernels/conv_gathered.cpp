// Convolutions as one product over the patches of many images: 1x1 with small planes, with strides, and where there are fewer
// images than threads; larger kernels whose weights outweigh their planes. Large planes of 1x1 are multiplied where they
// lie, in conv.cpp.
#ifdef __AVX512F__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own "undefined" intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#endif

#include "conv.h"
#include "dispatch.h"
#include "gemm.h"
#include "indexing.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

using indexing::Scratch;

int64_t depth(const Conv& s) { return s.c * s.taps(); }

// The outputs of one product: positions [p0, p0 + width) of the images [first, first + count).
struct Part {
  int64_t first, count, p0, width;
  int64_t items() const { return count * width; }
};

// Images whose patches are gathered at a time: about 16 MiB of them.
int64_t images_at_once(const Conv& s) {
  return std::clamp<int64_t>((4 << 20) / std::max<int64_t>((depth(s) + s.k) * s.y_plane(), 1), 1, s.n);
}

// f(pixel of the image, pixel of the output) for the beginning of each output row.
template <class F> void for_each_row(const Conv& s, F&& f) {
  for (int64_t d = 0; d < s.out[0]; ++d)
    for (int64_t h = 0; h < s.out[1]; ++h)
      f((d * s.stride[0] * s.in[1] + h * s.stride[1]) * s.in[2], (d * s.out[1] + h) * s.out[2]);
}

// Rows of `columns`, one per channel and tap: the pixels that the outputs of the part read.
template <class T> void gather_input(const Conv& s, const T* x, const Part& part, T* columns) {
  const int64_t taps = s.taps(), ld = part.items();
  parallel_for(s.c, kGrain / (taps * ld) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t n = 0; n < part.count; ++n)
        unfold(s, x + ((part.first + n) * s.c + c) * s.x_plane(), 1, part.p0, part.p0 + part.width,
               columns + c * taps * ld + n * part.width, ld);
  });
}

// The sum of patches of whole images; floating-point dtypes only.
template <class T>
void fold_input(const Conv& s, const T* columns, const T* bias, int64_t first, int64_t count, T* x) {
  const int64_t plane = s.y_plane(), taps = s.taps();
  parallel_for(s.c * count, kGrain / (plane * taps) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i / count, n = i % count;
      T* to = x + ((first + n) * s.c + c) * s.x_plane();
      std::fill(to, to + s.x_plane(), bias ? bias[c] : T());
      fold(s, columns + (c * taps * count + n) * plane, count * plane, 1, 0, plane, to);
    }
  });
}

// Of 1x1 the other way round; what no output reads becomes 0, or the bias.
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

// Rows of outputs, one per channel.
template <class T> void gather_rows(const Conv& s, const T* y, const Part& part, T* rows) {
  parallel_for(s.k, kGrain / part.items() + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * part.count; i < end * part.count; ++i) {
      const T* from = y + ((part.first + i % part.count) * s.k + i / part.count) * s.y_plane() + part.p0;
      std::copy(from, from + part.width, rows + i * part.width);
    }
  });
}

template <class T> void fill_bias(const T* bias, int64_t rows, int64_t width, T* to) {
  if (!bias) return;
  parallel_for(rows, kGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::fill(to + r * width, to + (r + 1) * width, bias[r]);
  });
}

#ifdef __AVX512F__
// Sixteen items of a row of outputs, some of which lie in the image: the same for every channel. Pixels of a row are counted in
// 32 bits.
class RunCopy {
 public:
  RunCopy(int64_t stride, int64_t count, int64_t lo, int64_t hi)
      : stride_(stride), written_(bits(0, count)), read_(bits(lo, hi)), low_(spread(read_ & 0xff)), high_(spread(read_ >> 8)) {}

  void operator()(const float* pixels, float* to) const {
    if (stride_ == 1) {
      _mm512_mask_storeu_ps(to, written_, _mm512_maskz_loadu_ps(read_, pixels));
    } else if (stride_ == 2) {
      const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      const __m512 a = _mm512_maskz_loadu_ps(low_, pixels), b = _mm512_maskz_loadu_ps(high_, pixels + 16);
      _mm512_mask_storeu_ps(to, written_, _mm512_permutex2var_ps(a, even, b));
    } else {
      const __m512i at = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                            _mm512_set1_epi32(int(stride_)));
      _mm512_mask_storeu_ps(to, written_, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), read_, at, pixels, 4));
    }
  }

 private:
  static uint32_t bits(int64_t lo, int64_t hi) {
    lo = std::clamp<int64_t>(lo, 0, 16), hi = std::clamp<int64_t>(hi, lo, 16);
    return ((1u << hi) - 1) & ~((1u << lo) - 1);
  }
  static __mmask16 spread(uint32_t m) {  // bit i to bit 2i
    m = (m | m << 4) & 0x0f0f;
    m = (m | m << 2) & 0x3333;
    return __mmask16((m | m << 1) & 0x5555);
  }

  int64_t stride_;
  uint32_t written_, read_;
  __mmask16 low_, high_;
};

// The patches of images, each column those of one output: written when the product needs them.
class Patches final : public MadeColumns {
 public:
  Patches(const Conv& shape, const float* images) : s(shape), x(images) { unit = s.taps(); }

  void write(int64_t first, int64_t count, int64_t depth0, int64_t depth, float* strip, int64_t step) const override {
    const int64_t plane = s.y_plane(), taps = s.taps(), channels = depth / taps;
    for (int64_t at = 0; at < count;) {  // image by image
      const int64_t image = (first + at) / plane, p0 = (first + at) % plane, p1 = std::min(plane, p0 + count - at);
      const float* from = x + (image * s.c + depth0 / taps) * s.x_plane();
      float* row = strip + at;
      for_each_tap(s, 1, [&](int64_t, const int64_t* tap, int64_t) {
        float* to = row;
        for_each_run(s, from, tap, p0, p1, [&](int64_t length, const float* pixels, int64_t lo, int64_t hi) {
          for (int64_t j = 0; j < length; j += 16) {
            const RunCopy copy(s.stride[2], length - j, lo - j, hi - j);
            for (int64_t c = 0; c < channels; ++c)
              copy(pixels + c * s.x_plane() + j * s.stride[2], to + c * taps * step + j);
          }
          to += length;
        });
        row += step;
      });
      at += p1 - p0;
    }
  }

 private:
  const Conv& s;
  const float* x;
};

void forward_made(const Conv& s, const float* x, const float* w, const float* bias, float* y) {
  const int64_t plane = s.y_plane(), deep = depth(s);
  const int64_t most = std::clamp<int64_t>((4 << 20) / std::max<int64_t>(s.k * plane, 1), 1, s.n);
  Scratch<float> result(s.k * most * plane);
  for (int64_t first = 0; first < s.n; first += most) {
    const int64_t count = std::min(most, s.n - first), width = count * plane;
    const bool alone = count == 1;  // its rows are those of the output
    float* to = alone ? y + first * s.k * plane : result.get();
    fill_bias(bias, s.k, width, to);
    gemm_made(s.k, width, deep, w, deep, Patches(s, x + first * s.c * s.x_plane()), bias != nullptr, to, width);
    if (!alone) swap_planes(result.get(), s.k, count, plane, y + first * s.k * plane);
  }
}
#endif

template <class T> void forward(DType dtype, const Conv& s, const T* x, const T* w, const T* bias, T* y) {
  const int64_t plane = s.y_plane(), most = images_at_once(s), deep = depth(s);
  Scratch<T> columns(deep * most * plane), result(s.k * most * plane);
  for (int64_t first = 0; first < s.n; first += most) {
    const int64_t count = std::min(most, s.n - first), width = count * plane;
    gather_input(s, x, {first, count, 0, plane}, columns.get());
    fill_bias(bias, s.k, width, result.get());
    gemm(dtype, false, false, s.k, width, deep, 1.0, w, deep, columns.get(), width, bias ? 1.0 : 0.0, result.get(), width);
    swap_planes(result.get(), s.k, count, plane, y + first * s.k * plane);
  }
}

template <class T> void input_grad(DType dtype, const Conv& s, const T* gy, const T* w, const T* bias, T* gx) {
  const int64_t plane = s.y_plane(), most = images_at_once(s), deep = depth(s);
  const bool single = s.taps() == 1;
  Scratch<T> columns(deep * most * plane), grad(s.k * most * plane);
  for (int64_t first = 0; first < s.n; first += most) {
    const int64_t count = std::min(most, s.n - first), width = count * plane;
    swap_planes(gy + first * s.k * plane, count, s.k, plane, grad.get());
    if (single) fill_bias(bias, s.c, width, columns.get());
    gemm(dtype, true, false, deep, width, s.k, 1.0, w, deep, grad.get(), width, single && bias ? 1.0 : 0.0, columns.get(),
         width);
    if constexpr (std::is_floating_point_v<T>) {
      if (!single) fold_input(s, columns.get(), bias, first, count, gx);
    }
    if (single) scatter_input(s, columns.get(), bias, first, count, gx);
  }
}

// The patches that one product sums over: as many as stay in the second level caches of all threads.
template <class T> void weight_grad(DType dtype, const Conv& s, const T* x, const T* gy, T* gw) {
  const int64_t plane = s.y_plane(), deep = depth(s), room = int64_t(get_num_threads()) << 18;
  const int64_t most = std::clamp<int64_t>(room / deep, 256, std::max<int64_t>(s.n * plane, 256));
  const int64_t width = std::min(plane, most), images = std::clamp<int64_t>(most / plane, 1, s.n);
  Scratch<T> columns(deep * images * width), grad(s.k * images * width);
  for (int64_t first = 0; first < s.n; first += images)
    for (int64_t p0 = 0; p0 < plane; p0 += width) {
      const Part part{first, std::min(images, s.n - first), p0, std::min(width, plane - p0)};
      gather_input(s, x, part, columns.get());
      gather_rows(s, gy, part, grad.get());
      gemm(dtype, false, true, s.k, deep, part.items(), 1.0, grad.get(), part.items(), columns.get(), part.items(),
           first + p0 ? 1.0 : 0.0, gw, deep);
    }
}

constexpr int64_t kSmallPlane = 128;  // a product per image this narrow spends its time on packing the weights

}  // namespace

static bool strided(const Conv& s) {
  for (int d = 0; d < 3; ++d)
    if (s.stride[d] != 1) return true;
  return false;
}

// 1x1 without padding: in one product where it has strides, or narrow images.
static bool single_fits(const Conv& s) {
  bool whole = true;
  for (int d = 0; d < 3; ++d) {
    if (s.kernel[d] != 1 || s.pad[d] != 0 || (s.out[d] - 1) * s.stride[d] >= s.in[d]) return false;
    whole = whole && s.stride[d] == 1 && s.in[d] == s.out[d];
  }
  const bool few = get_num_threads() > 1 && s.n < 2 * get_num_threads() && s.y_plane() <= 1024;
  return !whole || (s.n > 1 && std::min(s.c, s.k) >= 64 && (s.y_plane() <= kSmallPlane || few));
}

// Larger kernels with small planes: enough weights make up for the rearranged patches.
static bool larger_fits(DType dtype, const Conv& s, int64_t weights) {
  return is_floating(dtype) && s.taps() > 1 && s.y_plane() <= 2 * kSmallPlane && s.k * depth(s) >= weights;
}

constexpr int64_t kMany = 1 << 17, kSome = 1 << 11;  // weights

bool gathered_forward_fits(DType dtype, const Conv& s) {
  if (s.groups != 1) return false;
#ifdef __AVX512F__  // where the patches are not stored, fewer weights make up for them
  if (dtype == kFloat && s.k >= 24 && larger_fits(dtype, s, kSome)) return true;
#endif
  return single_fits(s) || larger_fits(dtype, s, kMany);
}

bool gathered_input_grad_fits(DType dtype, const Conv& s) {
  return s.groups == 1 && (single_fits(s) || larger_fits(dtype, s, strided(s) ? kSome : kMany));
}

bool gathered_weight_grad_fits(DType dtype, const Conv& s) {
  if (s.groups != 1) return false;
  if (single_fits(s) || larger_fits(dtype, s, kMany)) return true;
  if (s.pointwise()) return s.y_plane() <= 1024 && s.n > 1;
  return is_floating(dtype) && s.k * depth(s) / get_num_threads() >= kSome;  // enough of the result for each thread
}

void gathered_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y) {
#ifdef __AVX512F__
  if (dtype == kFloat && s.in[2] < 1 << 30)
    return forward_made(s, static_cast<const float*>(x), static_cast<const float*>(w), static_cast<const float*>(bias),
                        static_cast<float*>(y));
#endif
  MT_DISPATCH_SIZE(dtype, "convolution", T, {
    forward(dtype, s, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), static_cast<T*>(y));
  })
}

void gathered_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, const void* bias, void* gx) {
  auto with = [&](auto item) {
    using T = decltype(item);
    input_grad(dtype, s, static_cast<const T*>(gy), static_cast<const T*>(w), static_cast<const T*>(bias),
               static_cast<T*>(gx));
  };
  if (dtype == kFloat) return with(float());
  if (dtype == kDouble) return with(double());
  MT_DISPATCH_SIZE(dtype, "convolution", T, { with(T()); })
}

void gathered_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw) {
  MT_DISPATCH_SIZE(dtype, "convolution_backward", T, {
    weight_grad(dtype, s, static_cast<const T*>(x), static_cast<const T*>(gy), static_cast<T*>(gw));
  })
}

}  // namespace mt
