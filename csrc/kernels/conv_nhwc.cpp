// Convolutions over tensors whose channels are innermost in memory (channels last), computed as they lie: depthwise, 1x1, and
// others as the product of patches, whose taps are runs of channels, and weights. Where Winograd saves products, and in other
// layouts, the files of the other convolutions compute them.
#include <cstring>

#include "channels.h"
#include "conv.h"
#include "gemm.h"
#include "indexing.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

using indexing::Scratch;

char* at(void* p, int64_t items, DType dtype) { return static_cast<char*>(p) + items * itemsize(dtype); }

// Both channels last in this dtype, and neither contiguous as well, which the other files take.
bool lie_so(DType dtype, const Conv& s, const View& x, const View& y) {
  return both_channels_last(x, y, dtype) && s.c > 0 && s.k > 0;
}

// y starts as the bias: rows of one number for each channel.
void fill_pixels(DType dtype, const void* bias, int64_t pixels, int64_t channels, void* y) {
  const int64_t size = channels * itemsize(dtype);
  parallel_for(pixels, kGrain / channels + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(at(y, i * channels, dtype), bias, size_t(size));
  });
}

// A run of bytes to many places: two copies of a known size that may overlap.
template <int kSize> struct RunOf {
  void operator()(char* to, const char* from, int64_t bytes) const {
    std::memcpy(to, from, kSize);
    std::memcpy(to + bytes - kSize, from + bytes - kSize, kSize);
  }
};
template <> struct RunOf<0> {
  void operator()(char* to, const char* from, int64_t bytes) const { std::memcpy(to, from, size_t(bytes)); }
};
template <class F> void with_run(int64_t bytes, F&& f) {
  if (bytes > 128 || bytes < 4) f(RunOf<0>());
  else if (bytes >= 64) f(RunOf<64>());
  else if (bytes >= 32) f(RunOf<32>());
  else if (bytes >= 16) f(RunOf<16>());
  else if (bytes >= 8) f(RunOf<8>());
  else f(RunOf<4>());
}

// The patches of outputs as rows: taps, and the channels of each side by side.
struct Patches {
  const Conv& s;
  const char* x;  // images
  int64_t size;   // bytes of a pixel
  int64_t row() const { return s.taps() * size; }

  // `count` taps that are neighbours in the image as well, the first at column `at` of `line`: those outside are 0.
  void clipped(const char* line, int64_t at, int64_t count, char* to) const {
    const int64_t lo = std::clamp<int64_t>(-at, 0, count), hi = std::clamp<int64_t>(s.in[2] - at, lo, count);
    std::memset(to, 0, size_t(lo * size));
    if (lo < hi) std::memcpy(to + lo * size, line + (at + lo) * size, size_t((hi - lo) * size));
    std::memset(to + hi * size, 0, size_t((count - hi) * size));
  }
  // The same for the outputs [begin, end) of a row, whose patches follow each other.
  void line(const char* from, int64_t begin, int64_t end, int64_t column, int64_t count, char* to) const {
    const int64_t step = s.stride[2] * size, bytes = count * size, apart = row();
    const int64_t first = std::clamp(ceil_div(-column, s.stride[2]), begin, end);
    const int64_t last = std::clamp(s.in[2] - count - column < 0 ? first : (s.in[2] - count - column) / s.stride[2] + 1, first, end);
    for (int64_t w = begin; w < first; ++w, to += apart) clipped(from, w * s.stride[2] + column, count, to);
    const char* at = first < last ? from + (first * s.stride[2] + column) * size : from;
    with_run(bytes, [&](auto run) {
      for (int64_t w = first; w < last; ++w, to += apart, at += step) run(to, at, bytes);
    });
    for (int64_t w = last; w < end; ++w, to += apart) clipped(from, w * s.stride[2] + column, count, to);
  }
  // Of the outputs [begin, end) of the row at (d, h) of image n.
  void write(int64_t n, int64_t d, int64_t h, int64_t begin, int64_t end, char* to) const {
    const int64_t together = s.dilation[2] == 1 ? s.kernel[2] : 1;
    for (int64_t kd = 0; kd < s.kernel[0]; ++kd)
      for (int64_t kh = 0; kh < s.kernel[1]; ++kh) {
        const int64_t id = d * s.stride[0] - s.pad[0] + kd * s.dilation[0], ih = h * s.stride[1] - s.pad[1] + kh * s.dilation[1];
        const bool inside = id >= 0 && id < s.in[0] && ih >= 0 && ih < s.in[1];
        const char* from = inside ? x + ((n * s.in[0] + id) * s.in[1] + ih) * s.in[2] * size : x;
        for (int64_t kw = 0; kw < s.kernel[2]; kw += together, to += together * size) {
          if (inside) line(from, begin, end, kw * s.dilation[2] - s.pad[2], together, to);
          else for (int64_t w = 0; w < end - begin; ++w) std::memset(to + w * row(), 0, size_t(together * size));
        }
      }
  }
  // Of the outputs [begin, begin + count), counted over all images.
  void write(int64_t begin, int64_t count, char* to) const {
    for (int64_t p = begin; p < begin + count;) {
      const int64_t w = p % s.out[2], lines = p / s.out[2], h = lines % s.out[1], planes = lines / s.out[1];
      const int64_t end = std::min(s.out[2], w + begin + count - p);
      write(planes / s.out[0], planes % s.out[0], h, w, end, to);
      to += (end - w) * row();
      p += end - w;
    }
  }
};

// Outputs whose patches are made at a time: about a megabyte, and some for each thread.
int64_t outputs_at_once(const Conv& s, int64_t row) {
  const int64_t total = s.n * s.y_plane(), each = ceil_div(total, 2 * get_num_threads());
  return std::clamp<int64_t>((1 << 20) / row, 64, std::clamp<int64_t>(each, 64, 2048));
}

// The weights with the channels of a tap side by side, as filters x taps x channels.
class Filters {
 public:
  Filters(DType dtype, const View& w) : moved_(w) {
    memory_ = moved_.view.data;
    if (moved_.view.contiguous()) return;
    packed_.reset(new indexing::Packed(moved_.view, dtype, indexing::Packed::kRead));
    memory_ = packed_->view.data;
  }
  const void* data() const { return memory_; }

 private:
  ChannelsMoved moved_;
  std::unique_ptr<indexing::Packed> packed_;
  const void* memory_;
};

void patches_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y) {
  const int64_t pixel = s.c * itemsize(dtype), total = s.n * s.y_plane(), depth = s.c * s.taps();
  const Patches patches{s, static_cast<const char*>(x), pixel};
  const int64_t most = outputs_at_once(s, patches.row());
  if (bias) fill_pixels(dtype, bias, total, s.k, y);
  parallel_for(ceil_div(total, most), 1, [&](int64_t begin, int64_t end) {
    Scratch<char> rows(most * patches.row());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * most, count = std::min(most, total - first);
      patches.write(first, count, rows.get());
      gemm(dtype, false, true, count, s.k, depth, 1.0, rows.get(), depth, w, depth, bias ? 1.0 : 0.0,
           at(y, first * s.k, dtype), s.k);
    }
  });
}

// Enough channels to copy at once, or to make up for the rearrangement that is spared. Winograd's products are fewer.
bool patches_fit(DType dtype, const Conv& s) {
  return s.groups == 1 && is_floating(dtype) && s.c * s.kernel[2] >= 8 && !winograd_fits(dtype, s) &&
         s.n * s.y_plane() > 0 && s.x_plane() > 0;
}

}  // namespace

bool channels_last_forward(DType dtype, const Conv& s, const View& x, const View& w, const void* bias, const View& y) {
  if (!lie_so(dtype, s, x, y) || w.dtype != dtype) return false;
  if (s.pointwise() && s.groups == 1 && w.contiguous()) {
    const int64_t pixels = s.n * s.y_plane();
    if (bias) fill_pixels(dtype, bias, pixels, s.k, y.data);
    gemm(dtype, false, true, pixels, s.k, s.c, 1.0, x.data, s.c, w.data, s.c, bias ? 1.0 : 0.0, y.data, s.k);
    return true;
  }
  if (depthwise_last_fits(dtype, s) && w.contiguous() && s.n * s.y_plane() > 0 && s.x_plane() > 0) {
    depthwise_forward(dtype, s, x.data, w.data, bias, y.data, true);
    return true;
  }
  if (!patches_fit(dtype, s)) return false;
  patches_forward(dtype, s, x.data, Filters(dtype, w).data(), bias, y.data);
  return true;
}

bool channels_last_input_grad(DType dtype, const Conv& s, const View& gy, const View& w, const View& gx) {
  if (!lie_so(dtype, s, gx, gy) || w.dtype != dtype || !w.contiguous() || s.n * s.y_plane() * s.x_plane() == 0) return false;
  if (s.pointwise() && s.groups == 1) {
    gemm(dtype, false, false, s.n * s.y_plane(), s.c, s.k, 1.0, gy.data, s.k, w.data, s.c, 0.0, gx.data, s.c);
    return true;
  }
  if (!depthwise_last_fits(dtype, s)) return false;
  depthwise_input_grad(dtype, s, gy.data, w.data, gx.data, true);
  return true;
}

bool channels_last_weight_grad(DType dtype, const Conv& s, const View& x, const View& gy, const View& gw) {
  if (!lie_so(dtype, s, x, gy) || gw.dtype != dtype || !gw.contiguous() || s.n * s.y_plane() * s.x_plane() == 0) return false;
  if (s.pointwise() && s.groups == 1) {
    gemm(dtype, true, false, s.k, s.c, s.n * s.y_plane(), 1.0, gy.data, s.k, x.data, s.c, 0.0, gw.data, s.c);
    return true;
  }
  if (!depthwise_last_fits(dtype, s)) return false;
  depthwise_weight_grad(dtype, s, x.data, gy.data, gw.data, true);
  return true;
}

}  // namespace mt
