// The window arithmetic that the pooling ops check their outputs by. The ops are in pool.cpp and pool_max.cpp.
#pragma once
#include "ops/result.h"

namespace cann_sim {

// Item d of a list of 1 or n numbers; an empty stride stands for the kernel.
inline int64_t window_item(const Span<int64_t>& list, int d) { return list[list.size() == 1 ? 0 : d]; }

inline void expect_window(const Span<int64_t>& list, const char* name, int n, int64_t least,
                          bool may_be_empty = false) {
  EXPECT(list.size() == 1 || list.size() == n || (may_be_empty && list.size() == 0),
         "%s must have 1 or %d items, got %ld", name, n, long(list.size()));
  for (int64_t x : list) EXPECT(x >= least, "%s must be at least %ld, got %ld", name, long(least), long(x));
}

struct Window {
  Span<int64_t> kernel, stride, pad, dilation;  // dilation may be left empty
  bool ceil;

  // The sizes of a pooling of x over its last n dims; refuses what torch refuses.
  Sizes pooled(const TensorMeta& x, int n) const {
    EXPECT(x.ndim == n + 1 || x.ndim == n + 2, "expected %d or %d dims, got %s", n + 1, n + 2, describe(x).c_str());
    expect_window(kernel, "kernelSize", n, 1);
    expect_window(stride, "stride", n, 1, true);
    expect_window(pad, "padding", n, 0);
    if (dilation.size()) expect_window(dilation, "dilation", n, 1);
    Sizes out = sizes_of(x);
    for (int d = 0; d < n; ++d) {
      int64_t k = window_item(kernel, d), step = stride.size() ? window_item(stride, d) : k, p = window_item(pad, d),
              spread = dilation.size() ? window_item(dilation, d) : 1, in = x.sizes[x.ndim - n + d];
      EXPECT(p <= (spread * (k - 1) + 1) / 2, "padding %ld is more than half of the kernel %ld", long(p), long(k));
      int64_t slack = in + 2 * p - spread * (k - 1) - 1;
      int64_t count = slack < 0 ? 0 : (slack + (ceil ? step - 1 : 0)) / step + 1;
      if (ceil && (count - 1) * step >= in + p) --count;  // a last window that begins in the padding is none
      EXPECT(count > 0, "the window does not fit %s", describe(x).c_str());
      out[x.ndim - n + d] = count;
    }
    return out;
  }
};

}  // namespace cann_sim
