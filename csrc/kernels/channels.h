// How the channels of images lie in memory.
#pragma once
#include "view.h"

namespace mt {

// Whether the channels (dim 1) are innermost in memory and nothing lies between the items.
inline bool channels_last(const View& v) {
  if (v.ndim < 2) return false;
  int64_t want = v.sizes[1];
  if (v.strides[1] != 1 && v.sizes[1] != 1) return false;
  for (int d = v.ndim - 1; d >= 0; --d) {
    if (d == 1) continue;
    if (v.sizes[d] != 1 && v.strides[d] != want) return false;
    want *= v.sizes[d];
  }
  return true;
}

// Two tensors of a dtype, both channels last, which a contiguous loop would have to rearrange.
inline bool both_channels_last(const View& a, const View& b, DType dtype) {
  return a.dtype == dtype && b.dtype == dtype && a.ndim > 2 && !a.contiguous() && channels_last(a) && channels_last(b);
}

// The same memory with the channels as the last dim: contiguous where it was channels last.
struct ChannelsMoved {
  int64_t sizes[kMaxDims], strides[kMaxDims];
  View view;

  explicit ChannelsMoved(const View& v) : view(v) {
    for (int d = 0; d < v.ndim; ++d) {
      const int to = moved(d, v.ndim);
      sizes[to] = v.sizes[d];
      strides[to] = v.strides[d];
    }
    view.sizes = sizes;
    view.strides = strides;
  }
  ChannelsMoved(const ChannelsMoved&) = delete;
  ChannelsMoved& operator=(const ChannelsMoved&) = delete;
  static int moved(int d, int ndim) { return d == 0 ? 0 : d == 1 ? ndim - 1 : d - 1; }
};

}  // namespace mt
