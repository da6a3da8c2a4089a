// The geometry shared by the pooling kernels; the loops are in pool_max.cpp and pool_average.cpp.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "conv.h"
#include "dispatch.h"
#include "expect.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {

// The planes of a pooling over the last nd dims as a Conv whose n counts planes; every other dim is a plane.
inline Conv pool_planes(const View& in, const View& out, int nd) {
  if (in.ndim < nd || out.ndim != in.ndim) throw std::runtime_error("pooling: input and output differ in dims");
  Conv s{1, 1, 1, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
  for (int d = 0; d < in.ndim - nd; ++d) {
    expect(in.sizes[d] == out.sizes[d], "pooling", "input and output differ in their planes");
    s.n *= in.sizes[d];
  }
  for (int d = 0; d < nd; ++d) {
    s.in[3 - nd + d] = in.sizes[in.ndim - nd + d];
    s.out[3 - nd + d] = out.sizes[in.ndim - nd + d];
  }
  return s;
}

// attr: kernel_size, stride (empty: the kernel), padding, and dilation where the op has one.
inline Conv pool_shape(const View& in, const View& out, int nd, const Attr* attr, const Attr* dilation) {
  Conv s = pool_planes(in, out, nd);
  for (int i = 0; i < nd; ++i) {
    int d = 3 - nd + i;
    s.kernel[d] = list_item(attr[0], i);
    s.stride[d] = list_item(attr[1], i, s.kernel[d]);
    s.pad[d] = list_item(attr[2], i, 0);
    s.dilation[d] = dilation ? list_item(*dilation, i) : 1;
    if (s.kernel[d] <= 0) throw std::runtime_error("kernel size should be greater than zero");
    if (s.stride[d] <= 0) throw std::runtime_error("stride should not be zero");
    if (s.dilation[d] <= 0) throw std::runtime_error("dilation should be greater than zero");
    if (s.pad[d] < 0 || s.pad[d] > (__int128(s.dilation[d]) * (s.kernel[d] - 1) + 1) / 2)
      throw std::runtime_error("pad should be at most half of effective kernel size, but got pad=" +
                               std::to_string(s.pad[d]) + ", kernel_size=" + std::to_string(s.kernel[d]) +
                               " and dilation=" + std::to_string(s.dilation[d]));
    // With ceil_mode a window may reach beyond the padded input, by less than a stride. Taps out there read nothing.
    const __int128 padded = __int128(s.in[d]) + 2 * __int128(s.pad[d]);
    const __int128 window = __int128(s.dilation[d]) * (s.kernel[d] - 1) + 1;
    if (window > padded + s.stride[d]) throw std::runtime_error("pooling: the window is larger than the padded input");
    if (window > padded) s.kernel[d] = int64_t(padded / s.dilation[d]) + 1;
  }
  return s;
}

// Per tap of the width, the outputs [lo, hi) whose input column exists.
struct Span { int64_t lo, hi; };
inline std::vector<Span> width_spans(const Conv& s) {
  std::vector<Span> spans(s.kernel[2]);
  for (int64_t k = 0; k < s.kernel[2]; ++k) {
    int64_t w0 = k * s.dilation[2] - s.pad[2];
    int64_t lo = std::clamp<int64_t>(ceil_div(-w0, s.stride[2]), 0, s.out[2]);
    spans[k] = {lo, std::clamp<int64_t>(ceil_div(s.in[2] - w0, s.stride[2]), lo, s.out[2])};
  }
  return spans;
}

// Window o of adaptive pooling: inputs [first, last).
inline int64_t adaptive_first(int64_t o, int64_t out, int64_t in) { return o * in / out; }
inline int64_t adaptive_last(int64_t o, int64_t out, int64_t in) { return ((o + 1) * in + out - 1) / out; }

// Planes per thread, given the work of one.
inline int64_t plane_grain(int64_t work) { return std::max<int64_t>(kGrain / std::max<int64_t>(work, 1), 1); }

}  // namespace mt
