// Convolution of any rank, group count and stride as matrix products, and the choice of a faster way where there is
// one; Winograd, depthwise and backward have files of their own.
#include "conv.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"
#include "gemm.h"
#include "indexing.h"
#include "panel.h"
#include "parallel.h"
#include "scalar.h"
#include "unfold.h"

namespace mt {
namespace {

std::string shape_text(const View& v) {
  std::string s = "[";
  for (int d = 0; d < v.ndim; ++d) s += (d ? ", " : "") + std::to_string(v.sizes[d]);
  return s + "]";
}

// Columns of the patch matrix (`rows` high, `total` wide over all images) per product: the matrix stays in the second
// level cache, each thread has work, and the width is a whole number of the tiles in panel.h.
int64_t column_block(int64_t rows, int64_t total) {
  int64_t block = std::clamp<int64_t>((96 << 10) / std::max<int64_t>(rows, 1), 96, 1536);
  return ceil_div(std::min(block, std::max<int64_t>(ceil_div(total, 2 * get_num_threads()), 96)), kWide) * kWide;
}

void fill_rows(DType dtype, const void* values, int64_t rows, int64_t length, void* y, int64_t ld) {
  MT_DISPATCH_SIZE(dtype, "convolution", T, {
    for (int64_t r = 0; r < rows; ++r) {
      T* to = static_cast<T*>(y) + r * ld;
      std::fill(to, to + length, values ? static_cast<const T*>(values)[r] : T());
    }
  })
}

const char* at(const void* p, int64_t items, DType dtype) {
  return static_cast<const char*>(p) + items * itemsize(dtype);
}
char* at(void* p, int64_t items, DType dtype) { return static_cast<char*>(p) + items * itemsize(dtype); }

// Images and groups per piece: one where there are enough for the threads, else all, and the threads share each product.
int64_t images_per_piece(const Conv& s) { return s.n * s.groups >= get_num_threads() ? 1 : s.n * s.groups; }

void pointwise_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y) {
  int64_t plane = s.y_plane(), kg = s.kg(), cg = s.cg();
  parallel_for(s.n * s.groups, images_per_piece(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t g = i % s.groups;
      char* to = at(y, i * kg * plane, dtype);
      if (bias) fill_rows(dtype, at(bias, g * kg, dtype), kg, plane, to, plane);
      gemm(dtype, false, false, kg, plane, cg, 1.0, at(w, g * kg * cg, dtype), cg, at(x, i * cg * plane, dtype), plane,
           bias ? 1.0 : 0.0, to, plane);
    }
  });
}

// The left factors of the products, one per group: for float32 in panels, else as they lie.
struct Factors {
  DType dtype;
  const void* memory;
  int64_t rows, depth, step;  // step: items between groups
  std::unique_ptr<float[]> packed;

  // Item (row, d) of group g is at w[g * step + row * row_step + d * depth_step].
  Factors(DType t, const void* w, int64_t groups, int64_t r, int64_t d, int64_t w_step, int64_t row_step,
          int64_t depth_step)
      : dtype(t), memory(w), rows(r), depth(d), step(w_step) {
    if (dtype != kFloat) return;
    step = rows * depth;
    packed.reset(new float[groups * step]);
    for (int64_t g = 0; g < groups; ++g)
      pack_panels(static_cast<const float*>(w) + g * w_step, row_step, depth_step, rows, depth,
                  packed.get() + g * step);
  }
  // c (rows x width) = (add: +=) factor of group g times b; all rows are ld items apart.
  void multiply(int64_t g, bool transposed, int64_t lda, const void* b, int64_t width, bool add, void* c,
                int64_t ld) const {
    if (packed)
      return panel_multiply(packed.get() + g * step, rows, depth, static_cast<const float*>(b), ld,
                            whole(width), add, static_cast<float*>(c), ld);
    gemm(dtype, transposed, false, rows, width, depth, 1.0, at(memory, g * step, dtype), lda, b, ld, add ? 1.0 : 0.0, c,
         ld);
  }
};

// Room for rows x ld items, filled with zeros: panel_multiply reads whole vectors.
std::unique_ptr<char[]> scratch(DType dtype, int64_t rows, int64_t ld) {
  return std::unique_ptr<char[]>(new char[size_t(rows * ld) * itemsize(dtype)]());
}

// Patches times weights, a block of columns at a time: a part of one image, or several whole small ones.
void lowered_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y) {
  const int64_t plane = s.y_plane(), kg = s.kg(), depth = s.cg() * s.taps(), block = column_block(depth, s.n * plane);
  const int64_t images = std::clamp<int64_t>(block / plane, 1, s.n), pieces = ceil_div(plane, block);
  const int64_t units = ceil_div(s.n, images) * pieces;
  const int64_t ld = pieces > 1 ? block : whole(images * plane);
  Factors weights(dtype, w, s.groups, kg, depth, kg * depth, depth, 1);
  parallel_for(units * s.groups, 1, [&](int64_t begin, int64_t end) {
    auto col = scratch(dtype, depth, ld), rows = scratch(dtype, kg, ld);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t g = i % s.groups, n0 = i / s.groups / pieces * images, count = std::min(images, s.n - n0);
      const int64_t p0 = i / s.groups % pieces * block, part = std::min(block, plane - p0), width = count * part;
      for (int64_t n = 0; n < count; ++n)
        MT_DISPATCH_SIZE(dtype, "convolution", T, {
          unfold(s, static_cast<const T*>(x) + ((n0 + n) * s.c + g * s.cg()) * s.x_plane(), s.cg(), p0, p0 + part,
                 reinterpret_cast<T*>(col.get()) + n * part, ld);
        })
      if (bias) fill_rows(dtype, at(bias, g * kg, dtype), kg, width, rows.get(), ld);
      weights.multiply(g, false, depth, col.get(), width, bias != nullptr, rows.get(), ld);
      for (int64_t j = 0; j < count * kg; ++j)
        std::memcpy(at(y, ((n0 + j / kg) * s.k + g * kg + j % kg) * plane + p0, dtype),
                    at(rows.get(), j % kg * ld + j / kg * part, dtype), part * itemsize(dtype));
    }
  });
}

// The gradient as columns, summed back into the image. Threads take images, groups and, if those are few, channels.
template <class T> void lowered_input_grad(DType dtype, const Conv& s, const T* gy, const T* w, const T* bias, T* gx) {
  const int64_t plane = s.y_plane(), kg = s.kg(), cg = s.cg(), taps = s.taps();
  int64_t splits = std::clamp<int64_t>(ceil_div(2 * get_num_threads(), s.n * s.groups), 1, cg);
  while (cg % splits) --splits;
  const int64_t channels = cg / splits, rows = channels * taps;
  const int64_t block = whole(std::min(column_block(rows, s.n * plane), plane));
  // The weights of a group are kg x (cg taps): the factor of a split is some of its columns, turned.
  std::vector<Factors> weights;
  for (int64_t i = 0; i < splits; ++i)
    weights.emplace_back(dtype, w + i * rows, s.groups, rows, kg, kg * cg * taps, 1, cg * taps);
  parallel_for(s.n * s.groups * splits, 1, [&](int64_t begin, int64_t end) {
    auto col = scratch(dtype, rows, block), grad = scratch(dtype, kg, block);
    T *columns = reinterpret_cast<T*>(col.get()), *g_block = reinterpret_cast<T*>(grad.get());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t split = i % splits, ng = i / splits, g = ng % s.groups;
      T* to = gx + (ng * cg + split * channels) * s.x_plane();
      fill_rows(dtype, bias ? bias + g * cg + split * channels : nullptr, channels, s.x_plane(), to, s.x_plane());
      for (int64_t p = 0; p < plane; p += block) {
        const int64_t width = std::min(block, plane - p);
        for (int64_t k = 0; k < kg; ++k) {
          const T* from = gy + (ng * kg + k) * plane + p;
          std::copy(from, from + width, g_block + k * block);
        }
        weights[split].multiply(g, true, cg * taps, g_block, width, false, columns, block);
        fold(s, columns, block, channels, p, p + width, to);
      }
    }
  });
}

void pointwise_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, const void* bias, void* gx) {
  int64_t plane = s.y_plane(), kg = s.kg(), cg = s.cg();
  parallel_for(s.n * s.groups, images_per_piece(s), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t g = i % s.groups;
      char* to = at(gx, i * cg * plane, dtype);
      if (bias) fill_rows(dtype, at(bias, g * cg, dtype), cg, plane, to, plane);
      gemm(dtype, true, false, cg, plane, kg, 1.0, at(w, g * kg * cg, dtype), cg, at(gy, i * kg * plane, dtype), plane,
           bias ? 1.0 : 0.0, to, plane);
    }
  });
}

}  // namespace

Conv conv_shape(const View& x, const View& w, const View& y, const Attr* attr) {
  bool transposed = attr[3].i;
  int nd = x.ndim - 2, skip = 3 - nd;
  if (nd < 1 || nd > 3 || w.ndim != x.ndim || y.ndim != x.ndim || y.sizes[0] != x.sizes[0])
    throw std::runtime_error("convolution: expected input, weight and output of 3 to 5 dims of the same number");
  const View &inner = transposed ? y : x, &outer = transposed ? x : y;
  Conv s{x.sizes[0], inner.sizes[1], outer.sizes[1], attr[5].i, {}, {}, {}, {}, {}, {}};
  for (int d = 0; d < 3; ++d) {
    int v = d - skip;
    bool real = v >= 0;
    s.in[d] = real ? inner.sizes[v + 2] : 1;
    s.out[d] = real ? outer.sizes[v + 2] : 1;
    s.kernel[d] = real ? w.sizes[v + 2] : 1;
    s.stride[d] = real ? list_item(attr[0], v) : 1;
    s.pad[d] = real ? list_item(attr[1], v, 0) : 0;
    s.dilation[d] = real ? list_item(attr[2], v) : 1;
    if (s.stride[d] <= 0) throw std::runtime_error("non-positive stride is not supported");
    if (s.dilation[d] <= 0) throw std::runtime_error("dilation should be greater than zero");
    if (s.pad[d] < 0) throw std::runtime_error("negative padding is not supported");
    int64_t slack = s.in[d] + 2 * s.pad[d] - s.dilation[d] * (s.kernel[d] - 1) - 1;
    bool fits = slack >= 0 && s.out[d] <= slack / s.stride[d] + 1;  // less: output_padding beyond the stride
    if (!fits && inner.numel() && outer.numel()) throw std::runtime_error("convolution: output of the wrong size");
    // A stride beyond the last place is never walked, but sizes are rounded up to it: near 2^63 that would overflow.
    if (slack >= 0) s.stride[d] = std::min(s.stride[d], slack + 1);
  }
  if (s.groups <= 0) throw std::runtime_error("non-positive groups is not supported");
  if (w.sizes[0] != s.k || w.sizes[1] * s.groups != s.c || s.k % s.groups != 0)
    throw std::runtime_error("Given groups=" + std::to_string(s.groups) + ", weight of size " + shape_text(w) +
                             ", expected input" + shape_text(x) + " to have " +
                             std::to_string(transposed ? w.sizes[0] : w.sizes[1] * s.groups) + " channels, but got " +
                             std::to_string(x.sizes[1]) + " channels instead");
  return s;
}

void conv_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y) {
  if (s.n * s.k * s.y_plane() == 0) return;
  if (s.c * s.x_plane() == 0) {         // padding alone
    for (int64_t n = 0; n < s.n; ++n)
      fill_rows(dtype, bias, s.k, s.y_plane(), at(y, n * s.k * s.y_plane(), dtype), s.y_plane());
  } else if (depthwise_fits(dtype, s)) {
    depthwise_forward(dtype, s, x, w, bias, y);
  } else if (winograd_fits(dtype, s) && winograd_forward(s, static_cast<const float*>(x), static_cast<const float*>(w),
                                                         static_cast<const float*>(bias), static_cast<float*>(y))) {
    return;
  } else if (gathered_forward_fits(dtype, s)) {
    gathered_forward(dtype, s, x, w, bias, y);
  } else if (s.pointwise()) {
    pointwise_forward(dtype, s, x, w, bias, y);
  } else if (direct_fits(dtype, s)) {
    direct_forward(s, static_cast<const float*>(x), static_cast<const float*>(w), static_cast<const float*>(bias),
                   static_cast<float*>(y));
  } else {
    lowered_forward(dtype, s, x, w, bias, y);
  }
}

void conv_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, const void* bias, void* gx) {
  if (s.n * s.c * s.x_plane() == 0) return;
  if (s.k * s.y_plane() == 0) {
    for (int64_t n = 0; n < s.n; ++n)
      fill_rows(dtype, bias, s.c, s.x_plane(), at(gx, n * s.c * s.x_plane(), dtype), s.x_plane());
  } else if (depthwise_fits(dtype, s) && !bias) {
    depthwise_input_grad(dtype, s, gy, w, gx);
  } else if (winograd_fits(dtype, s) && winograd_input_grad(s, static_cast<const float*>(gy), static_cast<const float*>(w),
                                                            static_cast<const float*>(bias), static_cast<float*>(gx))) {
    return;
  } else if (gathered_input_grad_fits(dtype, s)) {
    gathered_input_grad(dtype, s, gy, w, bias, gx);
  } else if (s.pointwise()) {
    pointwise_input_grad(dtype, s, gy, w, bias, gx);
  } else if (direct_input_grad_fits(dtype, s)) {
    direct_input_grad(s, static_cast<const float*>(gy), static_cast<const float*>(w), static_cast<const float*>(bias),
                      static_cast<float*>(gx));
  } else {
    MT_SWITCH(dtype, "convolution", MT_INTS(T, {
      lowered_input_grad(dtype, s, static_cast<const T*>(gy), static_cast<const T*>(w), static_cast<const T*>(bias),
                         static_cast<T*>(gx)); }) MT_FLOATS(T, {
      lowered_input_grad(dtype, s, static_cast<const T*>(gy), static_cast<const T*>(w), static_cast<const T*>(bias),
                         static_cast<T*>(gx)); }) MT_COMPLEX(T, {
      lowered_input_grad(dtype, s, static_cast<const T*>(gy), static_cast<const T*>(w), static_cast<const T*>(bias),
                         static_cast<T*>(gx)); }))
  }
}

// Whether products of bfloat16 itself are faster than those of float: not where Winograd's way saves most of them, nor where
// few filters share the patches.
static bool small_fits(DType dtype, const Conv& s) {
  return dtype == kBFloat16 && *bf16_unit() && s.n * s.k * s.y_plane() > 0 && s.cg() * s.taps() >= 32 &&
         s.kg() >= (s.pointwise() ? 16 : 64) && !winograd_fits(kFloat, s);
}
static void small_forward(const Conv& s, const View& x, const View& w, const View& b, const View& y) {
  using indexing::Packed;
  Packed dx(x, kBFloat16, Packed::kRead), dw(w, kBFloat16, Packed::kRead), dy(y, kBFloat16, Packed::kWrite);
  Dense db(b, b.given() ? kBFloat16 : b.dtype);
  (s.pointwise() ? pointwise_forward : lowered_forward)(kBFloat16, s, dx.view.data, dw.view.data, b.given() ? db.data() : nullptr,
                                                        dy.view.data);
  dy.finish();
}

// convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation,
//             bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor
static void convolution(const Args& args) {
  const View &y = args.t[0], &x = args.t[1], &w = args.t[2], &b = args.t[3];
  Conv s = conv_shape(x, w, y, args.a);
  DType dtype = widened(y.dtype);
  if (dtype == kBool) unsupported("convolution", dtype);
  if (!args.a[3].i && small_fits(y.dtype, s)) return small_forward(s, x, w, b, y);
  Dense db(b, b.given() ? dtype : b.dtype);
  const void* bias = b.given() ? db.data() : nullptr;
  if (!args.a[3].i && channels_last_forward(dtype, s, x, w, bias, y)) return;
  using indexing::Packed;  // not Dense: new pages for an image cost more than to rearrange it
  Packed dx(x, dtype, Packed::kRead), dw(w, dtype, Packed::kRead), dy(y, dtype, Packed::kWrite);
  if (args.a[3].i) conv_input_grad(dtype, s, dx.view.data, dw.view.data, bias, dy.view.data);
  else conv_forward(dtype, s, dx.view.data, dw.view.data, bias, dy.view.data);
  dy.finish();
}
static Register register_convolution("convolution", convolution);
Serves complex32(kComplex32, {"convolution"});

}  // namespace mt
