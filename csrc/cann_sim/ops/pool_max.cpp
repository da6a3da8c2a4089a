// Max pooling over windows with indices or with a bit mask, its gradients, and unpooling. Adaptive pooling: pool.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/pool.h"

namespace cann_sim {
namespace {

// kernelSize, stride, padding, dilation, ceilMode at `first`
Window max_window(const Call& c, int first) {
  return {c.ints(first), c.ints(first + 1), c.ints(first + 2), c.ints(first + 3), c.integer(first + 4) != 0};
}
std::vector<mt::Attr> max_attrs(const Call& c, int first) {
  return {list_of(c, first), list_of(c, first + 1), list_of(c, first + 2), list_of(c, first + 3),
          integer(c.integer(first + 4))};
}

// ---- with indices into a plane: (self, window, out, indices) ---------------------------------------------------
template <int n> void check_indices(const Call& c) {
  Sizes out = max_window(c, 1).pooled(c.tensor(0), n);
  expect_shape(c, 6, out);
  expect_shape(c, 7, out);
}
template <int n> void indices(Run& r) {
  call_kernel(n == 2 ? "max_pool2d_with_indices" : "max_pool3d_with_indices", {r.tensor(6), r.tensor(7), r.tensor(0)},
              max_attrs(r.call, 1));
}
// (gradOutput, self, indices, window, gradInput)
template <int n> void check_indices_backward(const Call& c) {
  expect_shape(c, 0, max_window(c, 3).pooled(c.tensor(1), n));
  expect_same_shape(c, 2, 0);
  expect_same_shape(c, 8, 1);
}
template <int n> void indices_backward(Run& r) {
  call_kernel(n == 2 ? "max_pool2d_with_indices_backward" : "max_pool3d_with_indices_backward",
              {r.tensor(8), r.tensor(0), r.tensor(1), r.tensor(2)}, max_attrs(r.call, 3));
}

// ---- with a mask: for every tap of the window one row of bits, one bit an output -------------------------------
// The row is as long as the card's: 16 outputs take 32 bytes, and 32 more follow. Only the op and its gradient read it.
Sizes mask_sizes(const Sizes& out, const Window& w) {
  int64_t outputs = out[out.size() - 1] * out[out.size() - 2];
  Sizes sizes(out.begin(), out.end() - 2);
  sizes.push_back(window_item(w.kernel, 0) * window_item(w.kernel, 1));
  sizes.push_back(((outputs + 15) / 16 + 1) * 32);
  return sizes;
}
void check_mask(const Call& c) {
  Window w = max_window(c, 1);
  Sizes out = w.pooled(c.tensor(0), 2);
  expect_shape(c, 6, out);
  expect_shape(c, 7, mask_sizes(out, w));
}

// From an output and the index of its maximum: the tap of the window.
struct Taps {
  int64_t width, columns, k[2], step[2], pad[2], spread[2];
  Taps(const Window& w, int64_t in_width, int64_t out_columns) : width(in_width), columns(out_columns) {
    for (int d = 0; d < 2; ++d) {
      k[d] = window_item(w.kernel, d);
      step[d] = w.stride.size() ? window_item(w.stride, d) : k[d];
      pad[d] = window_item(w.pad, d);
      spread[d] = window_item(w.dilation, d);
    }
  }
  int64_t tap(int64_t output, int64_t index) const {
    int64_t y = index / width - (output / columns * step[0] - pad[0]),
            x = index % width - (output % columns * step[1] - pad[1]);
    return y / spread[0] * k[1] + x / spread[1];
  }
  int64_t index(int64_t output, int64_t tap) const {
    int64_t y = output / columns * step[0] - pad[0] + tap / k[1] * spread[0],
            x = output % columns * step[1] - pad[1] + tap % k[1] * spread[1];
    return y * width + x;
  }
};

void mask(Run& r) {
  Value self = r.tensor(0), out = r.tensor(6), bits = r.tensor(7), at = empty(out.shape(), mt::kInt64);
  call_kernel("max_pool2d_with_indices", {out, at, self}, max_attrs(r.call, 1));
  Taps taps(max_window(r.call, 1), self.size(-1), out.size(-1));
  Value dense = empty(bits.shape(), mt::kInt8);
  std::memset(dense.data, 0, size_t(dense.numel()));
  int64_t outputs = out.size(-1) * out.size(-2), row = bits.size(-1), rows = bits.size(-2);
  const int64_t* index = at.ptr<int64_t>();
  for (int64_t i = 0, n = out.numel(); i < n; ++i) {
    int64_t plane = i / outputs, o = i % outputs;
    dense.ptr<uint8_t>()[(plane * rows + taps.tap(o, index[i])) * row + o / 8] |= uint8_t(1 << o % 8);
  }
  copy(bits, dense);
}

// (gradOutput, self, mask, window, gradInput)
void check_mask_backward(const Call& c) {
  Window w = max_window(c, 3);
  Sizes out = w.pooled(c.tensor(1), 2);
  expect_shape(c, 0, out);
  expect_shape(c, 2, mask_sizes(out, w));
  expect_same_shape(c, 8, 1);
}
void mask_backward(Run& r) {
  Value grad = r.tensor(0), self = r.tensor(1), bits = r.tensor(2).dense(), at = empty(grad.shape(), mt::kInt64);
  Taps taps(max_window(r.call, 3), self.size(-1), grad.size(-1));
  int64_t outputs = grad.size(-1) * grad.size(-2), row = bits.size(-1), rows = bits.size(-2);
  for (int64_t i = 0, n = grad.numel(); i < n; ++i) {
    int64_t plane = i / outputs, o = i % outputs, tap = 0;
    while (tap < rows && !(bits.ptr<uint8_t>()[(plane * rows + tap) * row + o / 8] >> o % 8 & 1)) ++tap;
    at.ptr<int64_t>()[i] = tap == rows ? -1 : taps.index(o, tap);  // -1: no mask of the forward op; the kernel refuses
  }
  call_kernel("max_pool2d_with_indices_backward", {r.tensor(8), grad, self, at}, max_attrs(r.call, 3));
}

// ---- without either: (self, kernelShape, strides, autoPad, pads, dilations, ceilMode, out) ---------------------
// pads: none, one for all, [h, w], or [h begin, w begin, h end, w end].
struct Pads {
  int64_t begin[2] = {0, 0}, end[2] = {0, 0};
  explicit Pads(const Span<int64_t>& pads) {
    EXPECT(pads.size() <= 2 || pads.size() == 4, "pads must have 0, 1, 2 or 4 items, got %ld", long(pads.size()));
    for (int d = 0; pads.size() && d < 2; ++d) {
      begin[d] = pads[pads.size() == 1 ? 0 : d];
      end[d] = pads.size() == 4 ? pads[2 + d] : begin[d];
    }
    for (int64_t p : pads) EXPECT(p >= 0, "pads must not be negative, got %ld", long(p));
  }
};
int64_t or_one(const Span<int64_t>& list, int d) { return list.size() ? window_item(list, d) : 1; }

void check_max_pool(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  expect_computes(c, 0);
  EXPECT(c.integer(3) == 0, "autoPad %ld is not supported: only 0 (NOTSET)", long(c.integer(3)));
  expect_window(c.ints(1), "kernelShape", 2, 1);
  expect_window(c.ints(2), "strides", 2, 1, true);
  expect_window(c.ints(5), "dilations", 2, 1, true);
  Pads pads(c.ints(4));
  Sizes out = sizes_of(x);
  for (int d = 0; d < 2; ++d) {
    int64_t k = window_item(c.ints(1), d), step = or_one(c.ints(2), d), in = x.sizes[x.ndim - 2 + d];
    int64_t slack = in + pads.begin[d] + pads.end[d] - or_one(c.ints(5), d) * (k - 1) - 1;
    int64_t count = slack < 0 ? 0 : (slack + (c.integer(6) ? step - 1 : 0)) / step + 1;
    if (c.integer(6) && (count - 1) * step >= in + pads.begin[d]) --count;
    EXPECT(count > 0, "the window does not fit %s", describe(x).c_str());
    out[x.ndim - 2 + d] = count;
  }
  expect_shape(c, 7, out);
}
// The padding is made by hand, so that the two sides may differ: it holds the smallest value.
void max_pool(Run& r) {
  const Call& c = r.call;
  Pads pads(c.ints(4));
  Value x = r.tensor(0), out = r.tensor(7), padded = x;
  bool none_needed = true;
  Sizes sizes = x.shape(), kernel, step, spread, zero{0};
  for (int d = 0; d < 2; ++d) {
    kernel.push_back(window_item(c.ints(1), d));
    step.push_back(or_one(c.ints(2), d));
    spread.push_back(or_one(c.ints(5), d));
    // A window of ceilMode may reach past the padding: room for it.
    int64_t reach = (out.size(d - 2) - 1) * step[d] + spread[d] * (kernel[d] - 1) + 1;
    int64_t& size = sizes[x.ndim - 2 + d];
    none_needed = none_needed && pads.begin[d] == 0 && reach <= size;
    size = std::max(size + pads.begin[d] + pads.end[d], reach);
  }
  if (!none_needed) {
    DType t = is_float(x.dtype) ? mt::kFloat : mt::kInt64;
    padded = is_float(x.dtype) ? full(sizes, t, -INFINITY) : empty(sizes, t);
    if (t == mt::kInt64) std::fill_n(padded.ptr<int64_t>(), padded.numel(), INT64_MIN);
    copy(padded.narrow(-2, pads.begin[0], x.size(-2)).narrow(-1, pads.begin[1], x.size(-1)), x);
  }
  call_kernel("max_pool2d_with_indices", {out, empty(out.shape(), mt::kInt64), padded},
              {list(kernel), list(step), list(zero), list(spread), integer(0)});
}

// ---- unpooling: items go back to where the indices say ---------------------------------------------------------
void expect_unpooled(const Call& c, int pooled, int size, int whole, int n) {
  Sizes want = sizes_of(c.tensor(pooled));
  Span<int64_t> asked = c.ints(size);
  EXPECT(asked.size() == n, "outputSize must have %d items, got %ld", n, long(asked.size()));
  std::copy(asked.begin(), asked.end(), want.end() - n);
  expect_shape(c, whole, want);
}
// f(offset of an item in the whole, offset in the pooled) for every index.
template <class F> void each_place(const Value& whole, const Value& at, int n, F f) {
  int64_t plane = 1, outputs = 1;
  for (int d = 1; d <= n; ++d) plane *= whole.size(-d), outputs *= at.size(-d);
  const int64_t* index = at.ptr<int64_t>();
  for (int64_t i = 0, all = at.numel(); i < all; ++i) {
    if (index[i] < 0 || index[i] >= plane)
      throw std::out_of_range("max_unpool: index " + std::to_string(index[i]) + " is outside the plane");
    f(i / outputs * plane + index[i], i);
  }
}
// Between dense values of one dtype.
void move_item(const Value& into, int64_t to, const Value& source, int64_t from) {
  const int64_t size = mt::itemsize(into.dtype);
  std::memcpy(into.ptr<char>() + to * size, source.ptr<char>() + from * size, size_t(size));
}
// (self, indices, outputSize, [stride, padding,] out)
template <int n> void check_unpool(const Call& c) {
  expect_same_shape(c, 1, 0);
  expect_unpooled(c, 0, 2, c.row->nargs - 1, n);
}
template <int n> void unpool(Run& r) {
  Value out = r.tensor(r.call.row->nargs - 1), at = index_value(r, 1).dense(), x = r.tensor(0).to(out.dtype).dense(),
        whole = full(out.shape(), out.dtype, 0);
  each_place(whole, at, n, [&](int64_t to, int64_t from) { move_item(whole, to, x, from); });
  copy(out, whole);
}
// (gradOutput, self, indices, outputSize, [stride, padding,] out)
template <int n> void check_unpool_backward(const Call& c) {
  expect_same_shape(c, 2, 1);
  expect_unpooled(c, 1, 3, 0, n);
  expect_same_shape(c, c.row->nargs - 1, 1);
}
template <int n> void unpool_backward(Run& r) {
  Value out = r.tensor(r.call.row->nargs - 1), at = index_value(r, 2).dense(),
        whole = r.tensor(0).to(out.dtype).dense(), gx = empty(out.shape(), out.dtype);
  each_place(whole, at, n, [&](int64_t from, int64_t to) { move_item(gx, to, whole, from); });
  copy(out, gx);
}

const Op ops[] = {
    {"aclnnMaxPool2dWithIndices", check_indices<2>, indices<2>},
    {"aclnnMaxPool3dWithArgmax", check_indices<3>, indices<3>},
    {"aclnnMaxPool2dWithIndicesBackward", check_indices_backward<2>, indices_backward<2>},
    {"aclnnMaxPool3dWithArgmaxBackward", check_indices_backward<3>, indices_backward<3>},
    {"aclnnMaxPool2dWithMask", check_mask, mask},
    {"aclnnMaxPool2dWithMaskBackward", check_mask_backward, mask_backward},
    {"aclnnMaxPool", check_max_pool, max_pool},
    {"aclnnMaxUnpool2d", check_unpool<2>, unpool<2>},
    {"aclnnMaxUnpool3d", check_unpool<3>, unpool<3>},
    {"aclnnMaxUnpool2dBackward", check_unpool_backward<2>, unpool_backward<2>},
    {"aclnnMaxUnpool3dBackward", check_unpool_backward<3>, unpool_backward<3>},
};

}  // namespace
}  // namespace cann_sim
