// Patches of an image as matrix columns, and the sum back: the loops behind im2col, col2im and the convolutions.
#pragma once
#include "conv.h"

namespace mt {

inline int64_t ceil_div(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// Visits the runs of output positions [p0, p1) that share an output row, for one kernel tap. run(length, xrow, lo, hi):
// items lo..hi of the run lie inside the image, item j at xrow[j * stride of width]; the others are padding.
template <class T, class F>
inline void for_each_run(const Conv& s, T* x, const int64_t tap[3], int64_t p0, int64_t p1, F&& run) {
  int64_t ow = p0 % s.out[2], oh = p0 / s.out[2] % s.out[1], od = p0 / (s.out[2] * s.out[1]);
  const int64_t sw = s.stride[2], w0 = tap[2] * s.dilation[2] - s.pad[2];
  const int64_t first = ceil_div(-w0, sw), last = ceil_div(s.in[2] - w0, sw);
  while (p0 < p1) {
    int64_t length = std::min(s.out[2] - ow, p1 - p0);
    int64_t id = od * s.stride[0] - s.pad[0] + tap[0] * s.dilation[0];
    int64_t ih = oh * s.stride[1] - s.pad[1] + tap[1] * s.dilation[1];
    int64_t lo = 0, hi = 0;
    if (id >= 0 && id < s.in[0] && ih >= 0 && ih < s.in[1]) {
      lo = std::clamp<int64_t>(first - ow, 0, length);
      hi = std::clamp<int64_t>(last - ow, lo, length);
    }
    if (lo == hi) lo = hi = 0;  // nothing of the image: no address is formed, for an image without items has none
    run(length, lo < hi ? x + (id * s.in[1] + ih) * s.in[2] + w0 + ow * sw : x, lo, hi);
    p0 += length;
    ow = 0;
    if (++oh == s.out[1]) oh = 0, ++od;
  }
}

// Calls f(channel, tap, row) for every row of the column matrix of channels [0, channels).
template <class F> inline void for_each_tap(const Conv& s, int64_t channels, F&& f) {
  int64_t row = 0;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t d = 0; d < s.kernel[0]; ++d)
      for (int64_t h = 0; h < s.kernel[1]; ++h)
        for (int64_t w = 0; w < s.kernel[2]; ++w, ++row) {
          const int64_t tap[3] = {d, h, w};
          f(c, tap, row);
        }
}

// col (channels * taps rows, ld items apart) = the patches of x at output positions [p0, p1).
template <class T>
void unfold(const Conv& s, const T* x, int64_t channels, int64_t p0, int64_t p1, T* col, int64_t ld) {
  const int64_t sw = s.stride[2];
  for_each_tap(s, channels, [&](int64_t c, const int64_t* tap, int64_t row) {
    T* r = col + row * ld;
    for_each_run(s, x + c * s.x_plane(), tap, p0, p1, [&](int64_t length, const T* from, int64_t lo, int64_t hi) {
      std::fill(r, r + lo, T());
      if (sw == 1) std::copy(from + lo, from + hi, r + lo);
      else if (sw == 2) for (int64_t j = lo; j < hi; ++j) r[j] = from[j * 2];  // a known step: vector loads
      else for (int64_t j = lo; j < hi; ++j) r[j] = from[j * sw];
      std::fill(r + hi, r + length, T());
      r += length;
    });
  });
}

// x += the column matrix, every item to the pixel it came from.
template <class T>
void fold(const Conv& s, const T* col, int64_t ld, int64_t channels, int64_t p0, int64_t p1, T* x) {
  const int64_t sw = s.stride[2];
  for_each_tap(s, channels, [&](int64_t c, const int64_t* tap, int64_t row) {
    const T* r = col + row * ld;
    for_each_run(s, x + c * s.x_plane(), tap, p0, p1, [&](int64_t length, T* to, int64_t lo, int64_t hi) {
      if (sw == 1) for (int64_t j = lo; j < hi; ++j) to[j] = T(to[j] + r[j]);
      else for (int64_t j = lo; j < hi; ++j) to[j * sw] = T(to[j * sw] + r[j]);
      r += length;
    });
  });
}

}  // namespace mt
