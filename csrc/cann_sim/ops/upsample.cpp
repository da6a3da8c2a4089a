// Upsampling of images by nearest, linear and cubic rules with their gradients, sampling by a grid, and affine grids.
#include <cmath>
#include <cstring>

#include "ops/result.h"

namespace cann_sim {
namespace {

// ---- upsampling: rows ------------------------------------------------------------------------------------------
// An op (self, outputSize, [alignCorners,] [scales, one a dim,] out); its gradient has inputSize after outputSize.
struct Upsample {
  const char *name, *kernel;
  int dims;
  bool backward;
};
constexpr Upsample kUpsamples[] = {
    {"aclnnUpsampleNearest1d", "upsample_nearest1d", 1, false},
    {"aclnnUpsampleNearest1dV2", "upsample_nearest1d", 1, false},
    {"aclnnUpsampleNearest1dBackward", "upsample_nearest1d_backward", 1, true},
    {"aclnnUpsampleNearest2d", "upsample_nearest2d", 2, false},
    {"aclnnUpsampleNearest2dV2", "upsample_nearest2d", 2, false},
    {"aclnnUpsampleNearest2dBackward", "upsample_nearest2d_backward", 2, true},
    {"aclnnUpsampleNearest3d", "upsample_nearest3d", 3, false},
    {"aclnnUpsampleNearest3dBackward", "upsample_nearest3d_backward", 3, true},
    {"aclnnUpsampleNearestExact1d", "_upsample_nearest_exact1d", 1, false},
    {"aclnnUpsampleNearestExact1dBackward", "_upsample_nearest_exact1d_backward", 1, true},
    {"aclnnUpsampleNearestExact2d", "_upsample_nearest_exact2d", 2, false},
    {"aclnnUpsampleNearestExact2dBackward", "_upsample_nearest_exact2d_backward", 2, true},
    {"aclnnUpsampleNearestExact3d", "_upsample_nearest_exact3d", 3, false},
    {"aclnnUpsampleNearestExact3dBackward", "_upsample_nearest_exact3d_backward", 3, true},
    {"aclnnUpsampleLinear1d", "upsample_linear1d", 1, false},
    {"aclnnUpsampleLinear1dBackward", "upsample_linear1d_backward", 1, true},
    {"aclnnUpsampleBilinear2d", "upsample_bilinear2d", 2, false},
    {"aclnnUpsampleBilinear2dBackward", "upsample_bilinear2d_backward", 2, true},
    {"aclnnUpsampleBilinear2dBackwardV2", "upsample_bilinear2d_backward", 2, true},
    {"aclnnUpsampleBilinear2dAA", "_upsample_bilinear2d_aa", 2, false},
    {"aclnnUpsampleBilinear2dAABackward", "_upsample_bilinear2d_aa_backward", 2, true},
    {"aclnnUpsampleBicubic2d", "upsample_bicubic2d", 2, false},
    {"aclnnUpsampleBicubic2dBackward", "upsample_bicubic2d_backward", 2, true},
    {"aclnnUpsampleBicubic2dAA", "_upsample_bicubic2d_aa", 2, false},
    {"aclnnUpsampleBicubic2dAAGrad", "_upsample_bicubic2d_aa_backward", 2, true},
    {"aclnnUpsampleTrilinear3d", "upsample_trilinear3d", 3, false},
    {"aclnnUpsampleTrilinear3dBackward", "upsample_trilinear3d_backward", 3, true},
};

const Upsample& upsample_of(const Call& c) {
  for (const Upsample& u : kUpsamples)
    if (std::strcmp(c.name(), u.name) == 0) return u;
  throw std::logic_error(std::string("no upsampling is called ") + c.name());
}

// Where the arguments lie: alignCorners if the row has a bool, then the scales if it has them.
struct Layout {
  int align = -1, scales = -1, out;
  Layout(const Call& c, const Upsample& u) : out(c.row->nargs - 1) {
    int next = u.backward ? 3 : 2;
    if (c.row->args[next].kind == Kind::k_bool) align = next++;
    if (next < out) scales = next;
  }
};

void check_upsample(const Call& c) {
  const Upsample& u = upsample_of(c);
  Layout at(c, u);
  const TensorMeta& x = c.tensor(0);
  Span<int64_t> size = c.ints(1);
  EXPECT(size.size() == u.dims, "outputSize must have %d items, got %ld", u.dims, long(size.size()));
  Sizes large = sizes_of(x);
  if (u.backward) {
    Span<int64_t> in = c.ints(2);
    EXPECT(in.size() == u.dims + 2, "inputSize must have %d items, got %ld", u.dims + 2, long(in.size()));
    for (int64_t s : in) EXPECT(s > 0, "inputSize must be positive, got %ld", long(s));
    expect_shape(c, at.out, Sizes(in.begin(), in.end()));
    large.assign(in.begin(), in.end());
  }
  for (int d = 0; d < u.dims; ++d) {
    EXPECT(size[d] > 0, "outputSize must be positive, got %ld", long(size[d]));
    EXPECT(large[2 + d] > 0, "%s has no items to resize", describe(x).c_str());
    large[2 + d] = size[d];
  }
  expect_shape(c, u.backward ? 0 : at.out, large);
}

// A client that has no scale passes 0 or 1: 1 counts only where the sizes are equal, which no scale says as well.
mt::Attr scale_of(double scale) { return scale > 0 && scale != 1 ? number(scale) : none(); }
void upsample(Run& r) {
  const Call& c = r.call;
  const Upsample& u = upsample_of(c);
  Layout at(c, u);
  Value from = r.tensor(0), to = r.tensor(at.out);
  std::vector<mt::Attr> attrs{list_of(c, 1)};
  if (u.backward) attrs.push_back(list_of(c, 2));
  if (at.align >= 0) attrs.push_back(integer(c.integer(at.align)));
  for (int d = 0; d < u.dims; ++d)
    attrs.push_back(at.scales < 0 ? none() : scale_of(c.number(at.scales + d)));
  call_kernel(u.kernel, {to, from}, attrs);
}

// ---- resize: (self, scales, mode, out): the sizes follow from the scales ---------------------------------------
void check_resize(const Call& c) {
  Span<double> scales = c.floats(1);
  EXPECT(scales.size() == 4 && scales[0] == 1 && scales[1] == 1, "scales must be [1, 1, height, width]");
  std::string mode = c.string(2);
  EXPECT(mode == "nearest" || mode == "bilinear", "mode %s is not nearest or bilinear", mode.c_str());
  Sizes out = sizes_of(c.tensor(0));
  for (int d = 2; d < 4; ++d) {
    EXPECT(scales[d] > 0, "scales must be positive");
    out[d] = int64_t(std::floor(double(out[d]) * scales[d]));
  }
  expect_shape(c, 3, out);
}
void resize(Run& r) {
  Value x = r.tensor(0), out = r.tensor(3);
  Span<double> scales = r.call.floats(1);
  Sizes size{out.size(2), out.size(3)};
  std::vector<mt::Attr> attrs{list(size)};
  bool nearest = std::string(r.call.string(2)) == "nearest";
  if (!nearest) attrs.push_back(integer(0));
  for (int d = 2; d < 4; ++d) attrs.push_back(number(scales[d]));
  call_kernel(nearest ? "upsample_nearest2d" : "upsample_bilinear2d", {out, x}, attrs);
}

// ---- sampling by a grid: (input, grid, interpolationMode, paddingMode, alignCorners, out) ----------------------
template <int n> Sizes sampled_sizes(const Call& c, int input, int grid, int modes) {
  const TensorMeta &x = c.tensor(input), &g = c.tensor(grid);
  EXPECT(x.ndim == n + 2 && g.ndim == n + 2 && g.sizes[n + 1] == n && g.sizes[0] == x.sizes[0],
         "grid %s does not fit input %s", describe(g).c_str(), describe(x).c_str());
  EXPECT(c.integer(modes) >= 0 && c.integer(modes) <= 2, "interpolationMode %ld is not in [0, 2]",
         long(c.integer(modes)));
  EXPECT(n == 2 || c.integer(modes) < 2, "bicubic interpolation needs a 4-D input");
  EXPECT(c.integer(modes + 1) >= 0 && c.integer(modes + 1) <= 2, "paddingMode %ld is not in [0, 2]",
         long(c.integer(modes + 1)));
  for (int d = 0; d < n; ++d) EXPECT(x.sizes[2 + d] > 0, "%s has no items to sample", describe(x).c_str());
  Sizes out{x.sizes[0], x.sizes[1]};
  for (int d = 0; d < n; ++d) out.push_back(g.sizes[1 + d]);
  return out;
}
template <int n> void check_sampler(const Call& c) {
  expect_shape(c, 5, sampled_sizes<n>(c, 0, 1, 2));
  expect_same_dtype(c, 0, 1);
}
template <int n> void sampler(Run& r) {
  const Call& c = r.call;
  call_kernel(n == 2 ? "grid_sampler_2d" : "grid_sampler_3d", {r.tensor(5), r.tensor(0), r.tensor(1)},
              {integer(c.integer(2)), integer(c.integer(3)), integer(c.integer(4))});
}
// (gradOutput, input, grid, interpolationMode, paddingMode, alignCorners, outputMask, inputGrad?, gridGrad?)
template <int n> void check_sampler_backward(const Call& c) {
  expect_shape(c, 0, sampled_sizes<n>(c, 1, 2, 3));
  expect_same_dtype(c, 1, 2);
  EXPECT(c.ints(6).size() == 2, "outputMask must have 2 items, got %ld", long(c.ints(6).size()));
  for (int k : {0, 1}) {
    if (!c.ints(6)[k]) continue;
    EXPECT(c.given(7 + k), "outputMask asks for %s, which is not given", c.row->args[7 + k].name);
    expect_same_shape(c, 7 + k, 1 + k);
  }
}
template <int n> void sampler_backward(Run& r) {
  const Call& c = r.call;
  Value outs[2];
  for (int k : {0, 1})
    if (c.ints(6)[k]) outs[k] = r.tensor(7 + k);
  call_kernel(n == 2 ? "grid_sampler_2d_backward" : "grid_sampler_3d_backward",
              {outs[0], outs[1], r.tensor(0), r.tensor(1), r.tensor(2)},
              {integer(c.integer(3)), integer(c.integer(4)), integer(c.integer(5))});
}

// ---- affine grids: (theta [N, n, n + 1], size, alignCorners, out [N, ..., n]) ----------------------------------
void check_affine_grid(const Call& c) {
  const TensorMeta& theta = c.tensor(0);
  Span<int64_t> size = c.ints(1);
  int n = int(size.size()) - 2;
  EXPECT(n == 2 || n == 3, "size must have 4 or 5 items, got %ld", long(size.size()));
  expect_shape(c, 0, {size[0], n, n + 1});
  for (int64_t s : size) EXPECT(s > 0, "size must be positive, got %ld", long(s));
  Sizes out{theta.sizes[0]};
  out.insert(out.end(), size.begin() + 2, size.end());
  out.push_back(n);
  expect_shape(c, 3, out);
}
// The positions -1 .. 1 of an axis: its corners, or the middles of its pixels.
double position(int64_t i, int64_t n, bool corners) {
  if (corners) return n > 1 ? -1 + 2 * double(i) / double(n - 1) : 0;
  return (2 * double(i) + 1) / double(n) - 1;
}
void affine_grid(Run& r) {
  Span<int64_t> size = r.call.ints(1);
  int64_t n = size.size() - 2, points = 1;
  bool corners = r.call.integer(2);
  for (int d = 0; d < n; ++d) points *= size[2 + d];
  Value base = empty({points, n + 1}, mt::kFloat), theta = r.tensor(0).to(mt::kFloat), out = r.tensor(3);
  for (int64_t i = 0; i < points; ++i) {  // x before y before z, and a 1
    float* p = base.ptr<float>() + i * (n + 1);
    int64_t rest = i;
    for (int64_t d = 0; d < n; ++d) {
      int64_t axis = size[size.size() - 1 - d];
      p[d] = float(position(rest % axis, axis, corners));
      rest /= axis;
    }
    p[n] = 1;
  }
  Value made = empty({size[0], points, n}, mt::kFloat);
  call_kernel("matmul", {made, base, theta.transpose(1, 2)});
  copy(out, made.reshape(out.shape()));
}

const struct Register {
  Register() {
    for (const Upsample& u : kUpsamples) Op(u.name, check_upsample, upsample);
  }
} upsamples;

const Op ops[] = {
    {"aclnnResize", check_resize, resize},
    {"aclnnGridSampler2D", check_sampler<2>, sampler<2>},
    {"aclnnGridSampler3D", check_sampler<3>, sampler<3>},
    {"aclnnGridSampler2DBackward", check_sampler_backward<2>, sampler_backward<2>},
    {"aclnnGridSampler3DBackward", check_sampler_backward<3>, sampler_backward<3>},
    {"aclnnAffineGrid", check_affine_grid, affine_grid},
};

}  // namespace
}  // namespace cann_sim
