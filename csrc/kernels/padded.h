// The layout in which float convolutions read an image without gathering patches.
#pragma once
#include <vector>

#include "unfold.h"

namespace mt {

// A zero-padded copy of a plane, its pixels sorted by their remainders modulo the strides: one small plane (phase) of
// size q per remainder. The output at (d, h, w) reads tap t at offset(t) + position(d, h, w), whatever the stride: a
// tap is the same memory shifted, and neighbouring outputs read neighbouring pixels. Positions run over whole rows of a
// phase, a little wider than the output: what is computed there in excess is junk.
struct Padded {
  const Conv& s;
  int64_t q[3], phase = 1, phases = 1;

  explicit Padded(const Conv& shape) : s(shape) {
    for (int d = 0; d < 3; ++d) {
      q[d] = ceil_div(s.in[d] + 2 * s.pad[d], s.stride[d]);
      phase *= q[d];
      phases *= s.stride[d];
    }
  }
  int64_t items() const { return phase * phases; }
  int64_t position(int64_t d, int64_t h, int64_t w) const { return (d * q[1] + h) * q[2] + w; }
  // Positions from that of the first output to that of the last; all taps of all of them lie in the copy.
  int64_t positions() const { return position(s.out[0] - 1, s.out[1] - 1, s.out[2] - 1) + 1; }
  int64_t at(int64_t d, int64_t h, int64_t w) const {  // of a padded pixel
    int64_t r = (d % s.stride[0] * s.stride[1] + h % s.stride[1]) * s.stride[2] + w % s.stride[2];
    return r * phase + position(d / s.stride[0], h / s.stride[1], w / s.stride[2]);
  }
  int64_t offset(const int64_t* tap) const {
    return at(tap[0] * s.dilation[0], tap[1] * s.dilation[1], tap[2] * s.dilation[2]);
  }
  std::vector<int64_t> offsets(int64_t channels) const {  // of the rows of the patch matrix
    std::vector<int64_t> list;
    for_each_tap(s, channels, [&](int64_t c, const int64_t* tap, int64_t) {
      list.push_back(c * items() + offset(tap));
    });
    return list;
  }

  // f(first pixel of the plane, its place in the copy, count): pixels a width stride apart, side by side in the copy.
  template <class F> void for_each_piece(F&& f) const {
    for (int64_t d = 0; d < s.in[0]; ++d)
      for (int64_t h = 0; h < s.in[1]; ++h)
        for (int64_t w = 0; w < std::min(s.stride[2], s.in[2]); ++w)
          f((d * s.in[1] + h) * s.in[2] + w, at(d + s.pad[0], h + s.pad[1], w + s.pad[2]),
            ceil_div(s.in[2] - w, s.stride[2]));
  }
  template <class T> void load(const T* plane, T* copy) const {  // copy: zero where there is padding
    const int64_t sw = s.stride[2];
    for_each_piece([&](int64_t from, int64_t to, int64_t n) {
      if (sw == 1) std::copy(plane + from, plane + from + n, copy + to);
      else if (sw == 2) for (int64_t j = 0; j < n; ++j) copy[to + j] = plane[from + j * 2];
      else for (int64_t j = 0; j < n; ++j) copy[to + j] = plane[from + j * sw];
    });
  }
  template <class T> void store(const T* copy, T* plane) const {
    const int64_t sw = s.stride[2];
    for_each_piece([&](int64_t to, int64_t from, int64_t n) {
      if (sw == 1) std::copy(copy + from, copy + from + n, plane + to);
      else for (int64_t j = 0; j < n; ++j) plane[to + j * sw] = copy[from + j];
    });
  }
  // f(offset of a row of y, its position) for all output rows of a plane.
  template <class F> void for_each_output_row(F&& f) const {
    for (int64_t d = 0; d < s.out[0]; ++d)
      for (int64_t h = 0; h < s.out[1]; ++h) f((d * s.out[1] + h) * s.out[2], position(d, h, 0));
  }
};

}  // namespace mt
