// Quantising to blocks with scales of their own: the MX formats, and blocks of rows and columns with float scales.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/low_float.h"
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

constexpr int64_t kBlock = 32;

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value floats(const Value& v) {  // a copy that may be written
  const Value made = empty(v.shape(), mt::kFloat);
  copy(made, v);
  return made;
}

// ---- along one dim ---------------------------------------------------------------------------------------------
struct OneDim {
  int axis, y, scales;
  explicit OneDim(const Call& c)
      : axis(argument(c, {"axis"})), y(argument(c, {"yOut", "y"})), scales(argument(c, {"mxscaleOut", "mxscale"})) {}
};
void check_one(const Call& c) {
  const OneDim at(c);
  const Sizes x = sizes_of(c.tensor(0));
  const Mx mx = mx_of(c, at.y);
  EXPECT(!x.empty(), "%s: x has no dims", c.name());
  expect_mx(c, mx, round_mode(c));
  expect_dst_type(c, dst_type(c), at.y);
  expect_mx_outputs(c, x, wrap_dim(c.integer(at.axis), int64_t(x.size())), mx, at.y, at.scales);
}
void run_one(Run& r) {
  const OneDim at(r.call);
  const Value x = r.tensor(0);
  store_mx(r, x, wrap_dim(r.call.integer(at.axis), x.ndim), mx_of(r.call, at.y), round_mode(r.call), at.y, at.scales);
}

// ---- along the last dim and the one before it --------------------------------------------------------------------
void check_two_of_x(const Call& c) { expect_two_dims(c, sizes_of(c.tensor(0))); }
void run_two_of_x(Run& r) { store_two_dims(r, r.tensor(0)); }

// ---- along dim 0, in groups: (x, groupIndex, …, y, mxscale) -------------------------------------------------------
void check_grouped(const Call& c) {
  const OneDim at(c);
  const Sizes x = sizes_of(c.tensor(0));
  const Mx mx = mx_of(c, at.y);
  EXPECT(x.size() == 2, "%s: expected x of 2 dims, got %s", c.name(), describe(c.tensor(0)).c_str());
  expect_mx(c, mx, round_mode(c));
  expect_dst_type(c, dst_type(c), at.y);
  expect_mx_outputs(c, x, 0, mx, at.y, at.scales, c.tensor(1).numel());
}
void run_grouped(Run& r) {
  const OneDim at(r.call);
  const Value x = r.tensor(0);
  const Ends ends = group_ends(r.tensor(1), false, x.sizes[0]);
  store_mx(r, x, 0, mx_of(r.call, at.y), round_mode(r.call), at.y, at.scales, &ends);
}

// ---- blocks of 32 by 32: (x, roundMode?, dstType, scaleAlg, dstTypeMax, y, scale1, scale2) --------------------------
void check_square(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0));
  const Mx mx = mx_of(c, 5);
  EXPECT(x.size() == 2 || x.size() == 3, "%s: expected x of 2 or 3 dims", c.name());
  expect_mx(c, mx, round_mode(c));
  expect_dst_type(c, 2, 5);
  expect_mx_outputs(c, x, -1, mx, 5, 6);
  expect_mx_outputs(c, x, -2, mx, 5, 7);
}
// One exponent for every square of [rows, columns]; both outputs repeat it, along the rows and along the columns.
void store_squares(Run& r, const Value& q, const Value& exponents, int scales1, int scales2) {
  const Value out1 = r.value(r.call.tensor(scales1)), out2 = r.value(r.call.tensor(scales2));
  const Value made1 = full(out1.shape(), mt::kUInt8, 0), made2 = full(out2.shape(), mt::kUInt8, 0);
  const int64_t rows = q.size(-2), columns = q.size(-1), batch = rows && columns ? q.numel() / (rows * columns) : 0;
  const int64_t wide = made1.size(-2) * 2, down = exponents.size(-2), across = exponents.size(-1), pairs = made2.size(-3);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const uint8_t e = exponents.ptr<uint8_t>()[(b * down + i / kBlock) * across + j / kBlock];
        made1.ptr<uint8_t>()[(b * rows + i) * wide + j / kBlock] = e;
        made2.ptr<uint8_t>()[((b * pairs + i / kBlock / 2) * columns + j) * 2 + i / kBlock % 2] = e;
      }
  copy(out1, made1);
  copy(out2, made2);
}
// Calls visit(item, square) for all items of [batch, rows, columns].
template <class F> void each_in_square(const Sizes& x, F&& visit) {
  const int64_t columns = x.back(), rows = x[x.size() - 2], across = (columns + kBlock - 1) / kBlock, down = (rows + kBlock - 1) / kBlock;
  int64_t n = 1;
  for (int64_t size : x) n *= size;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t j = k % columns, i = k / columns % rows, b = k / (rows * columns);
    visit(k, (b * down + i / kBlock) * across + j / kBlock);
  }
}
Sizes square_sizes(Sizes x) {
  for (size_t d = x.size() - 2; d < x.size(); ++d) x[d] = (x[d] + kBlock - 1) / kBlock;
  return x;
}
void run_square(Run& r) {
  const Mx mx = mx_of(r.call, 5);
  const Value q = floats(r.tensor(0)), largest = full(square_sizes(q.shape()), mt::kFloat, 0), exponents = empty(largest.shape(), mt::kUInt8);
  float *items = q.ptr<float>(), *most = largest.ptr<float>();
  each_in_square(q.shape(), [&](int64_t k, int64_t s) { most[s] = std::max(most[s], std::fabs(items[k])); });
  for (int64_t s = 0, n = largest.numel(); s < n; ++s) exponents.ptr<uint8_t>()[s] = mx_exponent(most[s], mx);
  each_in_square(q.shape(), [&](int64_t k, int64_t s) { items[k] = mx_scaled(items[k], exponents.ptr<uint8_t>()[s]); });
  store_low(r, 5, q, round_mode(r.call));
  store_squares(r, q, exponents, 6, 7);
}

// ---- back to floats: (x, mxscale, axis, dstType, y) -------------------------------------------------------------------
void check_anti(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0));
  if (!low_float(c.tensor(0).dtype)) refuse(561003, "%s of data type %d is not computed", c.name(), c.tensor(0).dtype);
  EXPECT(!x.empty(), "%s: x has no dims", c.name());
  expect_dst_type(c, 3, 4);
  expect_computes(c, 4);
  expect_shape(c, 1, mx_scale_sizes(x, wrap_dim(c.integer(2), int64_t(x.size())), kBlock));
  expect_same_shape(c, 4, 0);
}
void run_anti(Run& r) {
  const Value x = floats(load_low(r, 0)), exponents = r.value(r.call.tensor(1)).dense();
  const int64_t dim = wrap_dim(r.call.integer(2), x.ndim), n = x.sizes[dim], pairs = exponents.sizes[dim];
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.ndim; ++d) inner *= x.sizes[d];
  for (int64_t k = 0, all = x.numel(); k < all; ++k) {
    const int64_t i = k % inner, at = k / inner % n, o = k / (inner * n), b = at / kBlock;
    const uint8_t e = exponents.ptr<uint8_t>()[((o * pairs + b / 2) * inner + i) * 2 + b % 2];
    x.ptr<float>()[k] = e == 255 ? NAN : std::ldexp(x.ptr<float>()[k], e - 127);
  }
  copy(r.tensor(4), x);
}

// ---- 4 bits scaled along the last dim to 8 bits scaled by squares: (x, mxscale, dstType, y, scale1, scale2) -----------------
int largest_offset(aclDataType from, aclDataType to) {  // what the exponents of a square may differ by
  return low_float(to)->emax - low_float(from)->emax;
}
void check_to_squares(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0));
  const LowFloat *from = low_float(c.tensor(0).dtype), *to = low_float(c.tensor(3).dtype);
  if (!from || !to || from->most > 6 || to->most < 7) refuse(561003, "%s is computed from FLOAT4 to FLOAT8", c.name());
  EXPECT((x.size() == 2 || x.size() == 3) && x[x.size() - 2] % 64 == 0 && x.back() % 2 == 0, "%s: x %s has odd sizes", c.name(),
         describe(c.tensor(0)).c_str());
  expect_dst_type(c, 2, 3);
  expect_shape(c, 1, mx_scale_sizes(x, -1, kBlock));
  const Mx mx{c.tensor(3).dtype};
  expect_mx_outputs(c, x, -1, mx, 3, 4);
  expect_mx_outputs(c, x, -2, mx, 3, 5);
}
void run_to_squares(Run& r) {
  const Value x = floats(load_low(r, 0)), given = r.value(r.call.tensor(1)).dense();
  const int64_t columns = x.size(-1), wide = given.size(-2) * 2, offset = largest_offset(r.call.tensor(0).dtype, r.call.tensor(3).dtype);
  auto exponent = [&](int64_t k) { return int(given.ptr<uint8_t>()[k / columns * wide + k % columns / kBlock]); };
  const Value exponents = full(square_sizes(x.shape()), mt::kUInt8, 0);
  uint8_t* most = exponents.ptr<uint8_t>();
  each_in_square(x.shape(), [&](int64_t k, int64_t s) { most[s] = std::max(most[s], uint8_t(exponent(k))); });
  for (int64_t s = 0, n = exponents.numel(); s < n; ++s) most[s] = uint8_t(std::max<int64_t>(most[s] - offset, 0));
  each_in_square(x.shape(), [&](int64_t k, int64_t s) { x.ptr<float>()[k] = std::ldexp(x.ptr<float>()[k], exponent(k) - most[s]); });
  store_low(r, 3, x, "rint");
  store_squares(r, x, exponents, 4, 5);
}

// ---- two levels: (x, smoothScale?, roundMode?, level0BlockSize, level1BlockSize, y, level0Scale, level1Scale) -----------------
void check_dual(const Call& c) {
  Sizes x = sizes_of(c.tensor(0));
  EXPECT(!x.empty() && x.back() % 2 == 0, "%s: the last dim of x is odd", c.name());
  EXPECT(c.integer(3) == 512 && c.integer(4) == kBlock, "%s: expected blocks of 512 and 32, got %ld and %ld", c.name(), long(c.integer(3)), long(c.integer(4)));
  if (has(c, 1)) expect_shape(c, 1, {x.back()});
  EXPECT(c.tensor(5).dtype == ACL_FLOAT4_E2M1, "%s: yOut is of data type %d, expected FLOAT4_E2M1", c.name(), c.tensor(5).dtype);
  expect_mx(c, Mx{ACL_FLOAT4_E2M1}, round_mode(c));
  expect_mx_outputs(c, x, -1, Mx{ACL_FLOAT4_E2M1}, 5, 7);
  x.back() = (x.back() + 511) / 512;
  expect_shape(c, 6, x);
}
void run_dual(Run& r) {
  const Value in = r.tensor(0), out = r.tensor(6), scales = empty(out.shape(), mt::kFloat);
  const Value q = floats(has(r.call, 1) ? pointwise("mul", mt::kFloat, {in, r.tensor(1)}).to(in.dtype) : in);
  const int64_t width = q.size(-1), blocks = scales.size(-1);
  for (int64_t b = 0, n = scales.numel(); b < n; ++b) {
    float *first = q.ptr<float>() + b / blocks * width + b % blocks * 512, largest = 0;
    const int64_t count = std::min<int64_t>(512, width - b % blocks * 512);
    for (int64_t k = 0; k < count; ++k) largest = std::max(largest, std::fabs(first[k]));
    const float scale = scales.ptr<float>()[b] = largest / most_of(ACL_FLOAT4_E2M1);
    for (int64_t k = 0; k < count; ++k) first[k] = scale ? first[k] / scale : 0;
  }
  copy(out, scales);
  store_mx(r, q.to(in.dtype), -1, Mx{ACL_FLOAT4_E2M1}, round_mode(r.call), 5, 7);
}

// ---- blocks of rows by columns with float scales: DynamicBlockQuant, and in groups of rows ----------------------------------
struct Blocks {
  int groups, least, rows, columns, counts, most, y, scale;
  explicit Blocks(const Call& c)
      : groups(argument(c, {"groupList"})), least(argument(c, {"minScale"})), rows(argument(c, {"rowBlockSize"})),
        columns(argument(c, {"colBlockSize"})), counts(argument(c, {"groupListType"})), most(argument(c, {"dstTypeMax"})),
        y(argument(c, {"yOut"})), scale(argument(c, {"scaleOut"})) {}
};
void check_blocks(const Call& c) {
  const Blocks at(c);
  Sizes x = sizes_of(c.tensor(0));
  expect_quantised(c, at.y);
  expect_dst_type(c, dst_type(c), at.y);
  EXPECT(c.tensor(at.y).dtype != ACL_INT32, "%s: yOut is int32", c.name());
  EXPECT(x.size() == 2 || x.size() == 3, "%s: expected x of 2 or 3 dims", c.name());
  EXPECT(c.integer(at.rows) > 0 && c.integer(at.columns) > 0, "%s: blocks of %ld by %ld", c.name(), long(c.integer(at.rows)), long(c.integer(at.columns)));
  EXPECT(c.number(at.least) >= 0, "%s: minScale %g is below 0", c.name(), c.number(at.least));
  EXPECT(at.most < 0 || c.number(at.most) == 0, "%s: dstTypeMax goes with HIFLOAT8 only", c.name());
  expect_same_shape(c, at.y, 0);
  int64_t& down = x[x.size() - 2];
  down = at.groups < 0 ? (down + c.integer(at.rows) - 1) / c.integer(at.rows) : down / c.integer(at.rows) + c.tensor(at.groups).numel();
  x.back() = (x.back() + c.integer(at.columns) - 1) / c.integer(at.columns);
  expect_shape(c, at.scale, x);
}
void run_blocks(Run& r) {
  const Call& c = r.call;
  const Blocks at(c);
  const Value q = floats(r.tensor(0)), out = r.tensor(at.scale), scales = full(out.shape(), mt::kFloat, 0);
  const int64_t rows = q.size(-2), columns = q.size(-1), batch = rows && columns ? q.numel() / (rows * columns) : 0;
  const int64_t high = c.integer(at.rows), wide = c.integer(at.columns), across = scales.size(-1), down = scales.size(-2);
  const float most = most_of(c.tensor(at.y).dtype), limit = c.number(at.least) ? float(1 / c.number(at.least)) : INFINITY;
  const Ends ends = at.groups < 0 ? Ends{rows} : group_ends(r.tensor(at.groups), c.integer(at.counts) == 1, rows);
  for (int64_t b = 0; b < batch; ++b) {
    int64_t begin = 0;
    for (size_t g = 0; g < ends.size(); begin = ends[g++])
      for (int64_t i = begin; i < ends[g]; i += high)
        for (int64_t j = 0; j < columns; j += wide) {
          const int64_t last = std::min(ends[g], i + high), right = std::min(columns, j + wide);
          float largest = 0;
          auto each = [&](auto&& visit) {
            for (int64_t y = i; y < last; ++y)
              for (int64_t x = j; x < right; ++x) visit(q.ptr<float>()[(b * rows + y) * columns + x]);
          };
          each([&](float& x) { largest = std::max(largest, std::fabs(x)); });
          const float scale = std::min(largest / most, limit);
          each([&](float& x) { x = scale ? x / scale : 0; });
          const int64_t row = (at.groups < 0 ? 0 : begin / high + int64_t(g)) + (i - begin) / high;
          scales.ptr<float>()[(b * down + row) * across + j / wide] = scale;
        }
  }
  store_low(r, at.y, q, round_mode(c));
  copy(out, scales);
}

// ---- x * scale and the largest |x|: (x, scale, [groupList], roundMode, dstType, y, amax) ---------------------------------------
template <bool grouped> void check_quant_max(const Call& c) {
  const int y = 4 + grouped;
  if (!low_float(c.tensor(y).dtype)) refuse(561003, "%s to data type %d is not computed", c.name(), c.tensor(y).dtype);
  EXPECT(c.tensor(0).ndim > grouped, "%s: x %s has too few dims", c.name(), describe(c.tensor(0)).c_str());
  expect_dst_type(c, 3 + grouped, y);
  const int64_t groups = grouped ? c.tensor(2).numel() : 1;
  expect_shape(c, 1, {groups});
  expect_same_shape(c, y, 0);
  expect_shape(c, y + 1, {groups});
}
template <bool grouped> void run_quant_max(Run& r) {
  const Value q = floats(r.tensor(0)), scale = r.tensor(1).to(mt::kFloat).dense(), out = r.tensor(5 + grouped), most = full(out.shape(), mt::kFloat, 0);
  const int64_t rows = q.sizes[0], width = rows ? q.numel() / rows : 0;
  const Ends ends = grouped ? group_ends(r.tensor(2), false, rows) : Ends{rows};
  int64_t begin = 0;
  for (size_t g = 0; g < ends.size(); begin = ends[g++])
    for (int64_t k = begin * width; k < ends[g] * width; ++k) {
      float& x = q.ptr<float>()[k];
      most.ptr<float>()[g] = std::max(most.ptr<float>()[g], std::fabs(x));
      x *= scale.ptr<float>()[g];
    }
  store_low(r, 4 + grouped, q, r.call.string(2 + grouped));
  copy(out, most);
}

// ---- products before quantising -------------------------------------------------------------------------------------------------
// Every row by its largest item: scale = largest * ratio / most.
void store_rows(Run& r, const Value& q, int64_t rows, double ratio, const char* mode, int y, int scale) {
  const int64_t width = rows ? q.numel() / rows : 0;
  const Value out = r.tensor(scale), scales = empty({rows}, mt::kFloat);
  for (int64_t i = 0; i < rows; ++i) {
    float *row = q.ptr<float>() + i * width, largest = 0;
    for (int64_t k = 0; k < width; ++k) largest = std::max(largest, std::fabs(row[k]));
    const float s = scales.ptr<float>()[i] = float(largest * ratio / most_of(r.call.tensor(y).dtype));
    for (int64_t k = 0; k < width; ++k) row[k] = s ? row[k] / s : 0;
  }
  store_low(r, y, q, mode);
  copy(out, scales.reshape(out.shape()));
}

// (x [M, N1, N2], kroneckerP1, kroneckerP2, [groupList], clipRatio, …, out, quantScale): P1 x P2.
struct Flat {
  int groups, ratio, out, scale;
  explicit Flat(const Call& c)
      : groups(argument(c, {"groupListOptional"})), ratio(argument(c, {"clipRatio"})), out(argument(c, {"out"})), scale(argument(c, {"quantScale"})) {}
};
Mx flat_mx(const Call& c, int out) {
  Mx mx = mx_of(c, out);
  mx.alg = mx.most ? 2 : 0;
  return mx;
}
void check_flat(const Call& c) {
  const Flat at(c);
  Sizes x = sizes_of(c.tensor(0));
  if (has(c, at.groups)) refuse(561003, "%s in groups is not computed", c.name());
  EXPECT(x.size() == 3, "%s: expected x of 3 dims, got %s", c.name(), describe(c.tensor(0)).c_str());
  expect_shape(c, 1, {x[1], x[1]});
  const bool mx = c.tensor(at.out).dtype == ACL_FLOAT4_E2M1;
  if (!mx || c.tensor(2).numel()) expect_shape(c, 2, {x[2], x[2]});
  EXPECT(c.number(at.ratio) > 0 && c.number(at.ratio) <= 1, "%s: clipRatio %g is not in (0, 1]", c.name(), c.number(at.ratio));
  if (mx) {
    expect_mx(c, flat_mx(c, at.out), "");
    return expect_mx_outputs(c, {x[0], x[1] * x[2]}, -1, flat_mx(c, at.out), at.out, at.scale);
  }
  expect_quantised(c, at.out);
  expect_shape(c, at.scale, {x[0]});
  if (c.tensor(at.out).dtype == ACL_INT32) x[2] /= 8;
  expect_shape(c, at.out, x);
}
void run_flat(Run& r) {
  const Flat at(r.call);
  Value x = r.tensor(0).to(mt::kFloat);
  if (r.call.tensor(2).numel()) {
    const Value right = empty(x.shape(), mt::kFloat);
    call_kernel("matmul", {right, x, r.tensor(2).to(mt::kFloat)});
    x = right;
  }
  const Value y = empty(x.shape(), mt::kFloat);
  call_kernel("matmul", {y, r.tensor(1).to(mt::kFloat), x});
  if (r.call.tensor(at.out).dtype == ACL_FLOAT4_E2M1)
    return store_mx(r, y.reshape({x.sizes[0], -1}), -1, flat_mx(r.call, at.out), "", at.out, at.scale);
  store_rows(r, y, x.sizes[0], r.call.number(at.ratio), "rint", at.out, at.scale);
}

// (x [M, N], rotation [K, K], alpha?, axis, roundMode, scaleAlg, dstTypeMax, trans, yOut, scaleOut): pieces of K items are turned.
void check_rotate(const Call& c) {
  Sizes x = sizes_of(c.tensor(0));
  EXPECT(x.size() == 2 && c.tensor(1).ndim == 2, "%s: expected x and rotation of 2 dims", c.name());
  if (has(c, 2)) refuse(561003, "%s with alpha is not computed", c.name());
  if (c.integer(3) != -1 || c.integer(7)) refuse(561003, "%s is computed for axis -1 without trans", c.name());
  const int64_t k = c.tensor(1).sizes[0];
  EXPECT(k > 0 && c.tensor(1).sizes[1] == k && x[1] % k == 0, "%s: rows of %ld do not split into pieces of %ld", c.name(), long(x[1]), long(k));
  if (low_float(c.tensor(8).dtype)) {
    expect_mx(c, mx_of(c, 8), round_mode(c));
    return expect_mx_outputs(c, x, -1, mx_of(c, 8), 8, 9);
  }
  expect_quantised(c, 8);
  expect_shape(c, 9, {x[0]});
  if (c.tensor(8).dtype == ACL_INT32) x[1] /= 8;
  expect_shape(c, 8, x);
}
void run_rotate(Run& r) {
  const Value x = r.tensor(0).to(mt::kFloat), turn = r.tensor(1).to(mt::kFloat), y = empty(x.shape(), mt::kFloat);
  const int64_t k = turn.sizes[0];
  call_kernel("matmul", {y.reshape({-1, k}), x.reshape({-1, k}), turn});
  if (low_float(r.call.tensor(8).dtype)) return store_mx(r, y, -1, mx_of(r.call, 8), round_mode(r.call), 8, 9);
  store_rows(r, y, x.sizes[0], 1, round_mode(r.call), 8, 9);
}

const Op ops[] = {
    {"aclnnDynamicMxQuant", check_one, run_one},
    {"aclnnDynamicMxQuantV2", check_one, run_one},
    {"aclnnDynamicMxQuantV3", check_one, run_one},
    {"aclnnDynamicMxQuantWithDualAxis", check_two_of_x, run_two_of_x},
    {"aclnnDynamicMxQuantWithDualAxisV2", check_two_of_x, run_two_of_x},
    {"aclnnGroupedDynamicMxQuantWithDualAxis", check_two_of_x, run_two_of_x},
    {"aclnnGroupedDynamicMxQuant", check_grouped, run_grouped},
    {"aclnnGroupedDynamicMxQuantV2", check_grouped, run_grouped},
    {"aclnnDynamicBlockMxQuant", check_square, run_square},
    {"aclnnAntiMxQuant", check_anti, run_anti},
    {"aclnnMxToBlockMxQuant", check_to_squares, run_to_squares},
    {"aclnnDynamicDualLevelMxQuant", check_dual, run_dual},
    {"aclnnDynamicBlockQuant", check_blocks, run_blocks},
    {"aclnnDynamicBlockQuantV2", check_blocks, run_blocks},
    {"aclnnGroupedDynamicBlockQuant", check_blocks, run_blocks},
    {"aclnnGroupedDynamicBlockQuantV2", check_blocks, run_blocks},
    {"aclnnQuantMax", check_quant_max<false>, run_quant_max<false>},
    {"aclnnGroupedQuantMax", check_quant_max<true>, run_quant_max<true>},
    {"aclnnFlatQuant", check_flat, run_flat},
    {"aclnnFlatQuantV2", check_flat, run_flat},
    {"aclnnFlatQuantV3", check_flat, run_flat},
    {"aclnnRotateQuant", check_rotate, run_rotate},
};

}  // namespace
}  // namespace cann_sim
