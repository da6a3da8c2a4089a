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

}  // namespace mt
