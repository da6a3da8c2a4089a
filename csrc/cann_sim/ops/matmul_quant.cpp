// Products of quantised matrices: of integers with scales, of floats with integer weights, and the scales themselves as
// integers. Groups of such products, and floats of 8 bits, are not here.
#include <cmath>
#include <cstring>

#include "ops/pointwise.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

Value floats(Run& r, int i) { return r.tensor(i).given() ? r.tensor(i).to(mt::kFloat).dense() : Value(); }
bool is_weight(aclDataType t) { return t == ACL_INT8 || t == ACL_INT32; }

// Eight numbers of four bits in every int32, along the last dim.
Value unpacked(const Value& x) {
  if (x.dtype != mt::kInt32) return x.to(mt::kInt32).dense();
  Sizes sizes = x.shape();
  sizes.back() *= 8;
  const Value in = x.dense(), out = empty(sizes, mt::kInt32);
  for (int64_t i = 0, n = out.numel(); i < n; ++i) {
    const uint32_t bits = uint32_t(in.ptr<int32_t>()[i / 8]) >> (4 * (i % 8)) & 15;
    out.ptr<int32_t>()[i] = int32_t(bits) - (bits > 7 ? 16 : 0);
  }
  return out;
}
Sizes unpacked_sizes(const TensorMeta& t) {
  Sizes sizes = sizes_of(t);
  if (t.dtype == ACL_INT32) sizes.back() *= 8;
  return sizes;
}
Sizes transposed(Sizes sizes, bool wanted) {
  if (wanted) std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return sizes;
}

// ---- scales as integers: the upper 19 bits of a float32, an offset of 9 bits from bit 37 on, and bit 46 -------------
// V2 (scale, offset?, out); V3 (scale, offset?, roundMode, out)
template <bool v3> void check_param(const Call& c) {
  expect_same_shape(c, 2 + v3, 0);
  if (c.given(1)) EXPECT(c.tensor(1).numel() == 1 || c.tensor(1).numel() == c.tensor(0).numel() || c.tensor(0).numel() == 1,
                         "%s: offset %s for scale %s", c.name(), describe(c.tensor(1)).c_str(), describe(c.tensor(0)).c_str());
  const aclDataType out = c.tensor(2 + v3).dtype;
  EXPECT(out == ACL_INT64 || out == ACL_UINT64, "%s: out is %s", c.name(), describe(c.tensor(2 + v3)).c_str());
}
template <bool v3> void run_param(Run& r) {
  const Value scale = floats(r, 0), offset = floats(r, 1), out = r.tensor(2 + v3), made = empty(scale.shape(), mt::kInt64);
  for (int64_t i = 0, n = scale.numel(); i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, scale.ptr<float>() + i, sizeof bits);
    if (v3 && r.call.integer(2)) bits += 0xFFF + (bits >> 13 & 1);
    uint64_t word = bits & 0xFFFFE000u;
    if (offset.given()) {
      const float o = std::nearbyint(offset.ptr<float>()[offset.numel() == 1 ? 0 : i]);
      word |= (uint64_t(int64_t(o < -256 ? -256 : o > 255 ? 255 : o)) & 0x1FF) << 37;
    }
    made.ptr<int64_t>()[i] = int64_t(word | uint64_t(1) << 46);
  }
  std::memcpy(out.data, made.data, size_t(made.numel()) * 8);
}
// The scales that a product takes: floats, or such integers.
Value scales(const Value& v) {
  if (!v.given() || is_float(v.dtype)) return v.given() ? v.to(mt::kFloat).dense() : Value();
  const Value in = v.dense(), out = empty(v.shape(), mt::kFloat);
  for (int64_t i = 0, n = in.numel(); i < n; ++i) {
    const uint32_t bits = uint32_t(uint64_t(in.ptr<int64_t>()[i]));
    std::memcpy(out.ptr<float>() + i, &bits, sizeof bits);
  }
  return out;
}

// ---- integers times integers --------------------------------------------------------------------------------------
// Where one version keeps its arguments.
struct Product { int x1, x2, x1_scale, x2_scale, offset, bias, transpose1, transpose2, out; };
constexpr Product kV4{0, 1, 4, 2, 3, 5, 6, 7, 8}, kV5{0, 1, 2, 3, 6, 8, 9, 10, 12};

Sizes product_sizes(const Call& c, const Product& at) {
  const Sizes a = transposed(unpacked_sizes(c.tensor(at.x1)), c.integer(at.transpose1)),
              b = transposed(unpacked_sizes(c.tensor(at.x2)), c.integer(at.transpose2));
  EXPECT(a.size() >= 2 && b.size() >= 2 && a.back() == b[b.size() - 2], "%s: x1 %s and x2 %s do not multiply", c.name(),
         describe(c.tensor(at.x1)).c_str(), describe(c.tensor(at.x2)).c_str());
  Sizes sizes = broadcast_sizes(Sizes(a.begin(), a.end() - 2), Sizes(b.begin(), b.end() - 2));
  sizes.push_back(a[a.size() - 2]);
  sizes.push_back(b.back());
  return sizes;
}
template <const Product& at> void check_product(const Call& c) {
  for (int i : {at.x1, at.x2})
    if (!is_weight(c.tensor(i).dtype))
      refuse(561003, "%s of %s is not computed: int8, and int4 in int32, are", c.name(), describe(c.tensor(i)).c_str());
  const Sizes sizes = product_sizes(c, at);
  expect_shape(c, at.out, sizes);
  const int64_t columns = sizes.back(), rows = sizes[sizes.size() - 2];
  for (int i : {at.x2_scale, at.offset})
    if (c.given(i))
      EXPECT(c.tensor(i).numel() == 1 || c.tensor(i).numel() == columns, "%s: %s %s for %ld columns", c.name(),
             c.row->args[i].name, describe(c.tensor(i)).c_str(), columns);
  if (c.given(at.x1_scale))
    EXPECT(c.tensor(at.x1_scale).numel() == rows, "%s: %s %s for %ld rows", c.name(), c.row->args[at.x1_scale].name,
           describe(c.tensor(at.x1_scale)).c_str(), rows);
}
// The exact sums as int32, [..., rows, columns].
Value sums(Run& r, const Product& at, const Sizes& sizes) {
  Value a = unpacked(r.tensor(at.x1)), b = unpacked(r.tensor(at.x2));
  if (r.call.integer(at.transpose1)) a = a.transpose(-1, -2);
  if (r.call.integer(at.transpose2)) b = b.transpose(-1, -2);
  const int64_t rows = sizes[sizes.size() - 2], columns = sizes.back(), depth = a.size(-1);
  Sizes left = sizes, right = sizes;
  left.back() = depth, right[right.size() - 2] = depth;
  const Value x = a.expand(left).dense(), y = b.expand(right).dense(), out = full(sizes, mt::kInt32, 0);
  for (int64_t m = 0, n = rows * columns ? out.numel() / (rows * columns) : 0; m < n; ++m)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < depth; ++k) {
        const int32_t f = x.ptr<int32_t>()[(m * rows + i) * depth + k];
        const int32_t* from = y.ptr<int32_t>() + (m * depth + k) * columns;
        int32_t* to = out.ptr<int32_t>() + (m * rows + i) * columns;
        for (int64_t j = 0; j < columns; ++j) to[j] += f * from[j];
      }
  return out;
}
template <const Product& at> void run_product(Run& r) {
  const Sizes sizes = product_sizes(r.call, at);
  Value total = sums(r, at, sizes);
  const Value bias = r.tensor(at.bias), out = r.tensor(at.out);
  if (bias.given() && bias.dtype == mt::kInt32) total = pointwise("add", mt::kInt32, {total, bias}, {integer(1)});
  if (out.dtype == mt::kInt32) return copy(out, total);
  Value y = total.to(mt::kFloat);
  const Value scale = scales(r.tensor(at.x2_scale)), token = floats(r, at.x1_scale), offset = floats(r, at.offset);
  if (scale.given()) y = pointwise("mul", mt::kFloat, {y, scale.reshape({scale.numel()})});
  if (token.given()) y = pointwise("mul", mt::kFloat, {y, token.reshape({token.numel(), 1})});
  if (bias.given() && bias.dtype != mt::kInt32) y = pointwise("add", mt::kFloat, {y, bias}, {integer(1)});
  if (out.dtype != mt::kInt8) return copy(out, y);
  if (offset.given()) y = pointwise("add", mt::kFloat, {y, offset.reshape({offset.numel()})}, {integer(1)});
  y = y.dense();
  for (int64_t i = 0, n = y.numel(); i < n; ++i) {
    float& v = y.ptr<float>()[i];
    v = std::nearbyint(v);
    v = v < -128 ? -128 : v > 127 ? 127 : v;
  }
  copy(out, y);
}

// ---- floats times (weight + offset) * scale: (x, weight, scale, offset?, quantScale?, quantOffset?, bias?, group, [inner,] y)
template <bool v3> void check_weight(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0)), w = unpacked_sizes(c.tensor(1));
  if (!is_weight(c.tensor(1).dtype)) refuse(561003, "%s of %s is not computed", c.name(), describe(c.tensor(1)).c_str());
  if (c.given(4)) refuse(561003, "%s with quantScale is not computed", c.name());
  EXPECT(x.size() == 2 && w.size() == 2 && x[1] == w[0], "%s: x %s and weight %s do not multiply", c.name(),
         describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  const int64_t group = c.integer(7), groups = group ? (w[0] + group - 1) / group : 1, n = c.tensor(2).numel();
  EXPECT(n == w[1] * groups || (n == 1 && !group), "%s: antiquantScale %s for weight %s", c.name(),
         describe(c.tensor(2)).c_str(), describe(c.tensor(1)).c_str());
  if (c.given(3)) expect_same_shape(c, 3, 2);
  if (c.given(6)) EXPECT(c.tensor(6).numel() == w[1], "%s: bias %s", c.name(), describe(c.tensor(6)).c_str());
  expect_shape(c, 8 + v3, {x[0], w[1]});
}
template <bool v3> void run_weight(Run& r) {
  const Value x = floats(r, 0), w = unpacked(r.tensor(1)), scale = floats(r, 2), offset = floats(r, 3), bias = floats(r, 6);
  const int64_t rows = x.sizes[0], depth = x.sizes[1], columns = w.sizes[1], group = r.call.integer(7);
  const Value y = full({rows, columns}, mt::kFloat, 0);
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = scale.numel() == 1 ? 0 : (group ? k / group * columns : 0) + j;
      const float shift = offset.given() ? offset.ptr<float>()[at] : 0;
      const float f = (float(w.ptr<int32_t>()[k * columns + j]) + shift) * scale.ptr<float>()[at];
      for (int64_t i = 0; i < rows; ++i) y.ptr<float>()[i * columns + j] += x.ptr<float>()[i * depth + k] * f;
    }
  copy(r.tensor(8 + v3), bias.given() ? pointwise("add", mt::kFloat, {y, bias.reshape({columns})}, {integer(1)}) : y);
}

const Op ops[] = {
    {"aclnnTransQuantParamV2", check_param<false>, run_param<false>},
    {"aclnnTransQuantParamV3", check_param<true>, run_param<true>},
    {"aclnnQuantMatmulV4", check_product<kV4>, run_product<kV4>},
    {"aclnnQuantMatmulV5", check_product<kV5>, run_product<kV5>},
    {"aclnnWeightQuantBatchMatmulV2", check_weight<false>, run_weight<false>},
    {"aclnnWeightQuantBatchMatmulV3", check_weight<true>, run_weight<true>},
    // Weights stay in the plain layout here, which every product takes.
    {"aclnnTransMatmulWeight", nullptr, [](Run&) {}},
};

}  // namespace
}  // namespace cann_sim
