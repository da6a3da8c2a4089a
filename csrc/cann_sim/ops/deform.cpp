// Convolutions whose kernels meet their items at places that move: the items by two-way interpolation, then a plain convolution.
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }

// stride and dilation are [1, 1, down, across], padding is [top, bottom, left, right].
struct Window {
  int64_t kh, kw, sh, sw, top, left, dh, dw, oh, ow, groups, deformable;
  Window(const Call& c, const TensorMeta& x, int kernel)
      : kh(c.ints(kernel)[0]), kw(c.ints(kernel)[1]), sh(c.ints(kernel + 1)[2]), sw(c.ints(kernel + 1)[3]), top(c.ints(kernel + 2)[0]),
        left(c.ints(kernel + 2)[2]), dh(c.ints(kernel + 3)[2]), dw(c.ints(kernel + 3)[3]),
        oh((x.sizes[2] + top + c.ints(kernel + 2)[1] - ((kh - 1) * dh + 1)) / sh + 1),
        ow((x.sizes[3] + left + c.ints(kernel + 2)[3] - ((kw - 1) * dw + 1)) / sw + 1), groups(c.integer(kernel + 4)),
        deformable(c.integer(kernel + 5)) {}
};
Window window(const Call& c, int x, int kernel) {
  EXPECT(c.tensor(x).ndim == 4, "%s: %s %s has no 4 dims", c.name(), c.row->args[x].name, describe(c.tensor(x)).c_str());
  EXPECT(c.ints(kernel).size() == 2, "%s: kernelSize of %ld numbers", c.name(), c.ints(kernel).size());
  for (int i : {kernel + 1, kernel + 2, kernel + 3})
    EXPECT(c.ints(i).size() == 4, "%s: %s of %ld numbers, expected 4", c.name(), c.row->args[i].name, c.ints(i).size());
  EXPECT(c.ints(kernel + 1)[2] > 0 && c.ints(kernel + 1)[3] > 0 && c.ints(kernel)[0] > 0 && c.ints(kernel)[1] > 0, "%s: a stride or a kernel of 0",
         c.name());
  if (!c.integer(kernel + 6)) refuse(561003, "%s without modulated is not computed", c.name());
  const Window w(c, c.tensor(x), kernel);
  EXPECT(w.oh > 0 && w.ow > 0, "%s: the kernel is larger than %s", c.name(), describe(c.tensor(x)).c_str());
  EXPECT(w.deformable > 0 && c.tensor(x).sizes[1] % w.deformable == 0, "%s: %ld deformableGroups", c.name(), w.deformable);
  return w;
}
void expect_offset(const Call& c, int x, int offset, const Window& w) {
  expect_shape(c, offset, {c.tensor(x).sizes[0], 3 * w.deformable * w.kh * w.kw, w.oh, w.ow});
}

// One place that the kernel meets: its four neighbours in a plane, their shares, and how these change with the place.
struct Place {
  int64_t at[4];
  float share[4], by_x[4], by_y[4], factor;
};
// Calls visit(item of the met ones within a plane, channel group, place, item of the offset for x, for y, for the factor).
template <class F> void each_place(const Value& x, const Value& offset, const Window& w, F&& visit) {
  const int64_t height = x.size(2), width = x.size(3), kernel = w.kh * w.kw, plane = w.oh * w.ow, part = w.deformable * kernel * plane;
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t g = 0; g < w.deformable; ++g)
      for (int64_t k = 0; k < kernel * plane; ++k) {
        const int64_t kh = k / plane / w.kw, kw = k / plane % w.kw, oh = k % plane / w.ow, ow = k % w.ow;
        const int64_t item = n * 3 * part + g * kernel * plane + k;
        const float px = float(ow * w.sw - w.left + kw * w.dw) + offset.ptr<float>()[item];
        const float py = float(oh * w.sh - w.top + kh * w.dh) + offset.ptr<float>()[item + part];
        Place p;
        p.factor = offset.ptr<float>()[item + 2 * part];
        for (int i = 0; i < 4; ++i) {
          const float cx = std::floor(px) + float(i % 2), cy = std::floor(py) + float(i / 2);
          const float sx = 1 - std::fabs(px - cx), sy = 1 - std::fabs(py - cy);
          const bool inside = cx >= 0 && cx < float(width) && cy >= 0 && cy < float(height);
          p.at[i] = inside ? int64_t(cy) * width + int64_t(cx) : -1;
          p.share[i] = sx * sy;
          p.by_x[i] = i % 2 ? sy : -sy;
          p.by_y[i] = i / 2 ? sx : -sx;
        }
        visit((oh * w.kh + kh) * w.ow * w.kw + ow * w.kw + kw, n, g, p, item, part);
      }
}
Value met(const Value& x, const Value& offset, const Window& w) {
  const Value made = full({x.size(0), x.size(1), w.oh * w.kh, w.ow * w.kw}, mt::kFloat, 0);
  const int64_t channels = x.size(1) / w.deformable, from = x.size(2) * x.size(3), to = w.oh * w.kh * w.ow * w.kw;
  each_place(x, offset, w, [&](int64_t item, int64_t n, int64_t g, const Place& p, int64_t, int64_t) {
    for (int64_t ch = n * x.size(1) + g * channels; ch < n * x.size(1) + (g + 1) * channels; ++ch)
      for (int i = 0; i < 4; ++i)
        if (p.at[i] >= 0) made.ptr<float>()[ch * to + item] += x.ptr<float>()[ch * from + p.at[i]] * p.share[i] * p.factor;
  });
  return made;
}

// ---- aclnnDeformableConv2d(x, weight, offset, bias?, kernelSize, stride, padding, dilation, groups, deformableGroups, modulated, out,
//                            deformOut?) ------------------------------------------------------------------------------------
void check_conv(const Call& c) {
  const Window w = window(c, 0, 4);
  const TensorMeta &x = c.tensor(0), &weight = c.tensor(1);
  EXPECT(weight.ndim == 4 && weight.sizes[2] == w.kh && weight.sizes[3] == w.kw && w.groups > 0 && weight.sizes[1] * w.groups == x.sizes[1] &&
             weight.sizes[0] % w.groups == 0, "%s: weight %s for x %s", c.name(), describe(weight).c_str(), describe(x).c_str());
  expect_offset(c, 0, 2, w);
  if (has(c, 3)) expect_shape(c, 3, {weight.sizes[0]});
  expect_shape(c, 11, {x.sizes[0], weight.sizes[0], w.oh, w.ow});
  if (has(c, 12)) expect_shape(c, 12, {x.sizes[0], x.sizes[1], w.oh * w.kh, w.ow * w.kw});
}
// Rows of (batch, group, place) items for the kernel: [places, channels of the group * kernel].
Value patches(const Value& x, const Window& w, int64_t n, int64_t group) {
  const int64_t channels = x.size(1) / w.groups;
  return x.select(0, n).narrow(0, group * channels, channels).dense().reshape({channels, w.oh, w.kh, w.ow, w.kw}).permute({1, 3, 0, 2, 4}).dense()
      .reshape({w.oh * w.ow, channels * w.kh * w.kw});
}
Value back_from_patches(const Value& rows, const Window& w, int64_t channels) {
  return rows.reshape({w.oh, w.ow, channels, w.kh, w.kw}).permute({2, 0, 3, 1, 4}).dense().reshape({channels, w.oh * w.kh, w.ow * w.kw});
}
void conv(Run& r) {
  const Window w(r.call, r.call.tensor(0), 4);
  const Value found = met(floats(r, 0), floats(r, 2), w), weight = floats(r, 1);
  const int64_t outs = weight.size(0) / w.groups, plane = w.oh * w.ow;
  const Value made = empty({found.size(0), weight.size(0), plane}, mt::kFloat), bias = has(r.call, 3) ? floats(r, 3) : Value();
  for (int64_t n = 0; n < found.size(0); ++n)
    for (int64_t g = 0; g < w.groups; ++g) {
      const Value y = empty({plane, outs}, mt::kFloat), kernel = weight.narrow(0, g * outs, outs).dense().reshape({outs, -1});
      call_kernel("matmul", {y, patches(found, w, n, g), kernel.transpose(0, 1)});
      copy(made.select(0, n).narrow(0, g * outs, outs), y.transpose(0, 1));
    }
  for (int64_t k = 0; bias.given() && k < made.numel(); ++k) made.ptr<float>()[k] += bias.ptr<float>()[k / plane % weight.size(0)];
  copy(r.tensor(11), made.reshape(r.tensor(11).shape()));
  if (has(r.call, 12)) copy(r.tensor(12), found);
}

// ---- aclnnDeformableConv2dBackward(input, gradOutput, offsetOut, weight, offset, kernelSize, …, gradInput, gradWeight, gradOffset,
//                                    gradBias) ------------------------------------------------------------------------------
void check_conv_grad(const Call& c) {
  const Window w = window(c, 0, 5);
  const TensorMeta &x = c.tensor(0), &weight = c.tensor(3);
  EXPECT(weight.ndim == 4 && weight.sizes[2] == w.kh && weight.sizes[3] == w.kw && w.groups > 0 && weight.sizes[1] * w.groups == x.sizes[1],
         "%s: weight %s for input %s", c.name(), describe(weight).c_str(), describe(x).c_str());
  expect_shape(c, 1, {x.sizes[0], weight.sizes[0], w.oh, w.ow});
  expect_shape(c, 2, {x.sizes[0], x.sizes[1], w.oh * w.kh, w.ow * w.kw});
  expect_offset(c, 0, 4, w);
  expect_same_shape(c, 12, 0);
  expect_same_shape(c, 13, 3);
  expect_same_shape(c, 14, 4);
  expect_numel(c, 15, weight.sizes[0]);
}
void conv_grad(Run& r) {
  const Window w(r.call, r.call.tensor(0), 5);
  const Value x = floats(r, 0), grad = floats(r, 1), found = floats(r, 2), weight = floats(r, 3), offset = floats(r, 4);
  const int64_t outs = weight.size(0) / w.groups, plane = w.oh * w.ow, ins = x.size(1) / w.groups;
  const Value dmet = empty(found.shape(), mt::kFloat), dweight = full({weight.size(0), ins * w.kh * w.kw}, mt::kFloat, 0);
  const Value dbias = full({weight.size(0)}, mt::kFloat, 0), dx = full(x.shape(), mt::kFloat, 0), doffset = full(offset.shape(), mt::kFloat, 0);
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t g = 0; g < w.groups; ++g) {
      const Value dy = grad.select(0, n).narrow(0, g * outs, outs).dense().reshape({outs, plane});
      const Value kernel = weight.narrow(0, g * outs, outs).dense().reshape({outs, -1}), rows = empty({plane, kernel.size(1)}, mt::kFloat);
      const Value part = empty({outs, kernel.size(1)}, mt::kFloat), sum = dweight.narrow(0, g * outs, outs);
      call_kernel("matmul", {rows, dy.transpose(0, 1), kernel});
      copy(dmet.select(0, n).narrow(0, g * ins, ins), back_from_patches(rows, w, ins));
      call_kernel("matmul", {part, dy, patches(found, w, n, g)});
      call_pointwise("add", mt::kFloat, {sum, sum, part}, {number(1)});
    }
  for (int64_t k = 0; k < grad.numel(); ++k) dbias.ptr<float>()[k / plane % weight.size(0)] += grad.ptr<float>()[k];
  const int64_t channels = x.size(1) / w.deformable, from = x.size(2) * x.size(3), to = w.oh * w.kh * w.ow * w.kw;
  each_place(x, offset, w, [&](int64_t item, int64_t n, int64_t g, const Place& p, int64_t at, int64_t part) {
    float *o = doffset.ptr<float>() + at;
    for (int64_t ch = n * x.size(1) + g * channels; ch < n * x.size(1) + (g + 1) * channels; ++ch)
      for (int i = 0; i < 4; ++i) {
        if (p.at[i] < 0) continue;
        const float d = dmet.ptr<float>()[ch * to + item], v = x.ptr<float>()[ch * from + p.at[i]];
        dx.ptr<float>()[ch * from + p.at[i]] += d * p.share[i] * p.factor;
        o[0] += d * v * p.by_x[i] * p.factor;
        o[part] += d * v * p.by_y[i] * p.factor;
        o[2 * part] += d * v * p.share[i];
      }
  });
  copy(r.tensor(12), dx);
  copy(r.tensor(13), dweight.reshape(weight.shape()));
  copy(r.tensor(14), doffset);
  copy(r.tensor(15), dbias.reshape(r.tensor(15).shape()));
}

const Op ops[] = {
    {"aclnnDeformableConv2d", check_conv, conv},
    {"aclnnDeformableConv2dBackward", check_conv_grad, conv_grad},
};

}  // namespace
}  // namespace cann_sim
