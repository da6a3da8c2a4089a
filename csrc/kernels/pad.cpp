// Padding by a constant, by reflection and by replication, with the gradients of the latter two; circular padding is a
// composite of slices elsewhere.
#include <stdexcept>
#include <string>
#include <vector>

#include "channels.h"
#include "convert.h"
#include "dense.h"
#include "dispatch.h"
#include "parallel.h"
#include "scalar.h"

namespace mt {
namespace {

// Amounts that can be added to a size and to each other.
void check_amounts(const Attr& pad) {
  constexpr int64_t kMost = int64_t{1} << 61;
  for (int i = 0; i < pad.n; ++i)
    if (pad.list[i] < -kMost || pad.list[i] > kMost)
      throw std::runtime_error("padding of " + std::to_string(pad.list[i]) + " is out of range");
}

// The last nd dims with a map per dim from the output to the input; every other dim is a plane. pad lists (before,
// after) from the last dim on.
struct Padding {
  int64_t planes = 1, in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  std::vector<int64_t> map[3] = {{0}, {0}, {0}};
  int64_t lo = 0, hi = 0;  // the outputs of a row that are a plain copy

  Padding(const View& self, const View& padded, int nd, const Attr& pad, bool reflect) {
    if (self.ndim < nd || padded.ndim != self.ndim || pad.n != 2 * nd)
      throw std::runtime_error("padding size is expected to be " + std::to_string(2 * nd));
    check_amounts(pad);
    for (int d = 0; d < self.ndim - nd; ++d) {
      if (self.sizes[d] != padded.sizes[d]) throw std::runtime_error("padding: input and output differ in their planes");
      planes *= self.sizes[d];
    }
    for (int i = 0; i < nd; ++i) {
      int d = 3 - nd + i, dim = self.ndim - nd + i;
      int64_t before = pad.list[2 * (nd - 1 - i)], after = pad.list[2 * (nd - 1 - i) + 1];
      in[d] = self.sizes[dim];
      out[d] = padded.sizes[dim];
      if (reflect && (before >= in[d] || after >= in[d]))
        throw std::runtime_error("Argument #4: Padding size should be less than the corresponding input dimension, but "
                                 "got: padding (" + std::to_string(before) + ", " + std::to_string(after) +
                                 ") at dimension " + std::to_string(dim) + " of input");
      if (out[d] != in[d] + before + after || (in[d] == 0 && out[d] > 0))
        throw std::runtime_error("input (" + std::to_string(in[d]) + ") is too small or the output (" +
                                 std::to_string(out[d]) + ") does not fit the padding");
      map[d].resize(out[d]);
      for (int64_t o = 0; o < out[d]; ++o) {
        int64_t i0 = o - before, last = in[d] - 1;
        map[d][o] = reflect ? (i0 < 0 ? -i0 : i0 > last ? 2 * last - i0 : i0) : std::clamp<int64_t>(i0, 0, last);
      }
      lo = std::clamp<int64_t>(before, 0, std::max<int64_t>(out[d] - 1, 0));
      hi = std::clamp<int64_t>(before + in[d], lo, out[d]);
    }
  }
  int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  int64_t lines() const { return out[0] * out[1]; }
  int64_t source_line(int64_t line) const { return map[0][line / out[1]] * in[1] + map[1][line % out[1]]; }
};

template <int nd, bool reflect> void pad_forward(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  if (out.numel() == 0) return;
  Padding p(self, out, nd, args.a[0], reflect);
  Dense x(self, self.dtype), y(out, self.dtype, Dense::kOutput);
  const int64_t lines = p.lines(), width = p.out[2], *map = p.map[2].data();
  MT_DISPATCH_SIZE(self.dtype, "pad", T, {
    parallel_for(p.planes * lines, kGrain / width + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* from = x.ptr<T>() + i / lines * p.in_plane() + p.source_line(i % lines) * p.in[2];
        T* to = y.ptr<T>() + i * width;
        for (int64_t o = 0; o < p.lo; ++o) to[o] = from[map[o]];
        std::copy(from + map[p.lo], from + map[p.lo] + (p.hi - p.lo), to + p.lo);
        for (int64_t o = p.hi; o < width; ++o) to[o] = from[map[o]];
      }
    });
  })
  y.store();
}

template <class T> void add_lines(const Padding& p, const T* gy, T* gx) {
  const int64_t lines = p.lines(), width = p.out[2], *map = p.map[2].data();
  parallel_for(p.planes, kGrain / (lines * width + 1) + 1, [&](int64_t begin, int64_t end) {
    std::fill(gx + begin * p.in_plane(), gx + end * p.in_plane(), T(0));
    for (int64_t i = begin * lines; i < end * lines; ++i) {
      T* to = gx + i / lines * p.in_plane() + p.source_line(i % lines) * p.in[2];
      for (int64_t o = 0; o < width; ++o) to[map[o]] += gy[i * width + o];
    }
  });
}

template <int nd, bool reflect> void pad_backward(const Args& args) {
  const View &grad_input = args.t[0], &grad_output = args.t[1];
  if (grad_input.numel() == 0) return;
  if (grad_output.ndim != grad_input.ndim) throw std::runtime_error("pad_backward: grad_output has the wrong size");
  Padding p(grad_input, grad_output, nd, args.a[0], reflect);
  DType dtype = widened(grad_input.dtype);
  Dense gx(grad_input, dtype, Dense::kOutput), gy(grad_output, dtype);
  MT_SWITCH(dtype, "pad_backward", MT_FLOATS(T, { add_lines(p, gy.ptr<T>(), gx.ptr<T>()); })
                                   MT_COMPLEX(T, { add_lines(p, gy.ptr<T>(), gx.ptr<T>()); }))
  gx.store();
}

// Row by row: the part of the input row that is left, between two runs of the value. Negative padding crops.
template <class T> void pad_rows(const View& x, const View& y, const int64_t* before, T value) {
  const int last = y.ndim - 1;
  const int64_t width = y.sizes[last], lo = std::clamp<int64_t>(before[last], 0, width);
  const int64_t hi = std::clamp<int64_t>(before[last] + x.sizes[last], lo, width);
  parallel_for(y.numel() / width, kGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* to = y.ptr<T>() + row * width;
      int64_t rest = row, from = 0, step = 1;
      bool inside = true;
      for (int d = last - 1; d >= 0; --d) {
        int64_t i = rest % y.sizes[d] - before[d];
        inside = inside && i >= 0 && i < x.sizes[d];
        from += i * step;
        step *= x.sizes[d];
        rest /= y.sizes[d];
      }
      std::fill(to, inside ? to + lo : to + width, value);
      if (!inside) continue;
      if (hi > lo) std::memcpy(to + lo, x.ptr<T>() + from * x.sizes[last] + lo - before[last], (hi - lo) * sizeof(T));
      std::fill(to + hi, to + width, value);
    }
  });
}

// constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor
void constant_pad_nd(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  const Attr &pad = args.a[0], &value = args.a[1];
  if (out.ndim != self.ndim || pad.n % 2 != 0 || pad.n > 2 * self.ndim)
    throw std::runtime_error("Length of pad should be even and no more than twice the number of dimensions of the "
                             "input.");
  check_amounts(pad);
  int64_t before[kMaxDims] = {};
  for (int i = 0; i < pad.n / 2; ++i) {
    int d = self.ndim - 1 - i;
    before[d] = pad.list[2 * i];
    if (out.sizes[d] != self.sizes[d] + pad.list[2 * i] + pad.list[2 * i + 1])
      throw std::runtime_error("constant_pad_nd: output of the wrong size at dimension " + std::to_string(d));
  }
  if (out.numel() == 0) return;
  if (out.ndim == 0) return copy(out, self);
  alignas(16) char item[16];
  store_scalar(value, out.dtype, item);
  if (both_channels_last(self, out, out.dtype)) {
    ChannelsMoved x(self), y(out);
    int64_t amounts[kMaxDims];
    for (int d = 0; d < out.ndim; ++d) amounts[ChannelsMoved::moved(d, out.ndim)] = before[d];
    MT_DISPATCH_SIZE(out.dtype, "constant_pad_nd", T,
                     { pad_rows(x.view, y.view, amounts, *reinterpret_cast<const T*>(item)); })
    return;
  }
  Dense x(self, out.dtype), y(out, out.dtype, Dense::kOutput);
  MT_DISPATCH_SIZE(out.dtype, "constant_pad_nd", T,
                   { pad_rows(x.view(), y.view(), before, *reinterpret_cast<const T*>(item)); })
  y.store();
}
Register constant("constant_pad_nd", constant_pad_nd);
Serves constant_rare(kWideUnsigned | kFloat8 | kComplex32, {"constant_pad_nd"});

// reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor; 2d, 3d and replication_pad alike
Register reflect1("reflection_pad1d", pad_forward<1, true>), reflect2("reflection_pad2d", pad_forward<2, true>);
Register reflect3("reflection_pad3d", pad_forward<3, true>), replicate1("replication_pad1d", pad_forward<1, false>);
Register replicate2("replication_pad2d", pad_forward<2, false>), replicate3("replication_pad3d", pad_forward<3, false>);
// reflection_pad1d_backward(Tensor grad_output, Tensor self, SymInt[2] padding) -> Tensor; the others alike
Register reflect1b("reflection_pad1d_backward", pad_backward<1, true>);
Register reflect2b("reflection_pad2d_backward", pad_backward<2, true>);
Register reflect3b("reflection_pad3d_backward", pad_backward<3, true>);
Register replicate1b("replication_pad1d_backward", pad_backward<1, false>);
Register replicate2b("replication_pad2d_backward", pad_backward<2, false>);
Register replicate3b("replication_pad3d_backward", pad_backward<3, false>);

}  // namespace
}  // namespace mt
