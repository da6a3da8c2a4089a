// Products of quantised matrices: weights of 4 or 8 bits under a float input, both sides quantised, and their parameters.
// The versions of an op differ in which arguments they have, so these go by name.
#include <cmath>
#include <cstring>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/pointwise.h"
#include "ops/quant_matmul.h"

namespace cann_sim {

static constexpr int64_t kPacked = 8;  // int4 in an int32, the first in the lowest bits
static int packed_dim(const TensorMeta& t) { return t.strides[t.ndim - 1] != 1 && t.strides[t.ndim - 2] == 1 ? t.ndim - 2 : t.ndim - 1; }
Sizes held_sizes(const TensorMeta& t) {
  Sizes sizes = sizes_of(t);
  if (t.dtype == ACL_INT32) sizes[packed_dim(t)] *= kPacked;
  return sizes;
}
Value held(Run& r, int i) { return held(r, r.call.tensor(i)); }
Value held(Run& r, const TensorMeta& t) {
  if (t.dtype == ACL_INT4) return r.int4(t);
  const Value v = r.value(t);
  if (t.dtype != ACL_INT32) return v;
  const int dim = packed_dim(t);
  const Value words = v.transpose(dim, -1).dense();
  Sizes sizes = words.shape();
  sizes.back() *= kPacked;
  const Value made = empty(sizes, mt::kInt8);
  for (int64_t k = 0, n = made.numel(); k < n; ++k) {
    const uint32_t bits = uint32_t(words.ptr<int32_t>()[k / kPacked]) >> (4 * (k % kPacked)) & 15;
    made.ptr<int8_t>()[k] = int8_t(bits > 7 ? int(bits) - 16 : int(bits));
  }
  return made.transpose(dim, -1);
}
// Float scales, or those of the hardware: a float in the low half of 64 bits.
Value scale_of(Run& r, int i) { return scale_of(r.tensor(i)); }
Value scale_of(const Value& v) {
  if (v.dtype != mt::kInt64) return v.to(mt::kFloat);
  const Value from = v.dense(), made = empty(v.shape(), mt::kFloat);
  for (int64_t k = 0, n = made.numel(); k < n; ++k) std::memcpy(made.ptr<float>() + k, from.ptr<int64_t>() + k, 4);
  return made;
}
// The offset beside such a scale: 9 bits with a sign.
static int64_t offset_of(int64_t parameter) {
  const int64_t bits = parameter >> 37 & 0x1FF;
  return bits > 255 ? bits - 512 : bits;
}
Value offsets_in(const Value& parameters) {
  const Value from = parameters.dense(), made = empty(from.shape(), mt::kFloat);
  for (int64_t k = 0, n = made.numel(); k < n; ++k) made.ptr<float>()[k] = float(offset_of(from.ptr<int64_t>()[k]));
  return made;
}
// A scale for every item of a [k, n] weight.
Value spread(const Value& v, int64_t k, int64_t n, int64_t group) {
  if (v.numel() == 1) return v.reshape({1, 1});
  const int64_t rows = v.numel() / n;
  if (rows == 1) return v.reshape({1, n});
  const Value groups = v.to(mt::kFloat).reshape({rows, n}), made = empty({k, n}, mt::kFloat);
  for (int64_t i = 0; i < k; ++i) copy(made.select(0, i), groups.select(0, i / group));
  return made;
}

// Rounds and limits to int8.
void store_int8(const Value& out, const Value& x) {
  const Value in = x.to(mt::kFloat).dense(), made = empty(x.shape(), mt::kInt8);
  for (int64_t k = 0, n = made.numel(); k < n; ++k) {
    const float v = std::nearbyint(in.ptr<float>()[k]);
    made.ptr<int8_t>()[k] = int8_t(v < -128 ? -128 : v > 127 ? 127 : v == v ? v : 0);
  }
  copy(out, made);
}

namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
Value plus(const Value& a, const Value& b) { return pointwise("add", mt::kFloat, {a, b}, {integer(1)}); }

void expect_integers(const Call& c, int i) {
  const aclDataType t = c.tensor(i).dtype;
  if (t != ACL_INT8 && t != ACL_INT4 && t != ACL_INT32)
    refuse(561003, "%s with %s of %s is not computed: only int8 and int4 are", c.name(), c.row->args[i].name,
           describe(c.tensor(i)).c_str());
  EXPECT(c.tensor(i).ndim >= 2, "%s must have at least 2 dims, got %s", c.row->args[i].name, describe(c.tensor(i)).c_str());
}

// ---- x by (weight + offset) * scale: WeightQuantBatchMatmul V2, V3, Nz -------------------------------------------
struct Weighted {
  int x, weight, scale, offset, quant_scale, quant_offset, bias, group, out;
  explicit Weighted(const Call& c)
      : x(argument(c, {"x"})), weight(argument(c, {"weight"})), scale(argument(c, {"antiquantScale"})),
        offset(argument(c, {"antiquantOffsetOptional"})), quant_scale(argument(c, {"quantScaleOptional"})),
        quant_offset(argument(c, {"quantOffsetOptional"})), bias(argument(c, {"biasOptional"})),
        group(argument(c, {"antiquantGroupSize"})), out(argument(c, {"y"})) {}
};

// Scales are one, one a column, or one a column for every group of rows.
void expect_groups(const Call& c, int i, const Sizes& weight, int64_t group) {
  if (!c.given(i) || (c.row->args[i].optional && !has(c, i))) return;
  const int64_t n = weight[1], k = weight[0], rows = group > 0 ? (k + group - 1) / group : 1, numel = c.tensor(i).numel();
  EXPECT(numel == 1 || numel == n * rows, "%s: %s of %s does not fit a weight of [%ld, %ld] in groups of %ld", c.name(),
         c.row->args[i].name, describe(c.tensor(i)).c_str(), long(k), long(n), long(group));
}
void check_weighted(const Call& c) {
  const Weighted at(c);
  expect_integers(c, at.weight);
  const Sizes weight = held_sizes(c.tensor(at.weight)), x = sizes_of(c.tensor(at.x));
  EXPECT(weight.size() == 2 && x.size() == 2 && x[1] == weight[0], "x %s and weight %s cannot be multiplied",
         describe(c.tensor(at.x)).c_str(), describe(c.tensor(at.weight)).c_str());
  const int64_t group = c.integer(at.group);
  EXPECT(group == 0 || (group >= 32 && group % 32 == 0), "antiquantGroupSize %ld is not 0 or a multiple of 32", long(group));
  expect_groups(c, at.scale, weight, group);
  expect_groups(c, at.offset, weight, group);
  if (has(c, at.bias)) EXPECT(c.tensor(at.bias).numel() == weight[1], "biasOptional has %ld items, expected %ld",
                              long(c.tensor(at.bias).numel()), long(weight[1]));
  expect_shape(c, at.out, {x[0], weight[1]});
}
void run_weighted(Run& r) {
  const Call& c = r.call;
  const Weighted at(c);
  const Value x = r.tensor(at.x).to(mt::kFloat);
  Value weight = held(r, at.weight).to(mt::kFloat);
  const int64_t k = weight.size(0), n = weight.size(1), group = c.integer(at.group);
  if (has(c, at.offset)) weight = plus(weight, spread(r.tensor(at.offset), k, n, group));
  weight = times(weight, spread(scale_of(r, at.scale), k, n, group));
  Value y = empty({x.size(0), n}, mt::kFloat);
  call_kernel("matmul", {y, x, weight});
  if (has(c, at.bias)) y = plus(y, r.tensor(at.bias).reshape({1, n}));
  const Value out = r.tensor(at.out);
  if (out.dtype != mt::kInt8) return copy(out, y);
  if (has(c, at.quant_scale)) y = times(y, scale_of(r, at.quant_scale).reshape({1, -1}));
  if (has(c, at.quant_scale) && r.tensor(at.quant_scale).dtype == mt::kInt64) y = plus(y, offsets_in(r.tensor(at.quant_scale)).reshape({1, -1}));
  if (has(c, at.quant_offset)) y = plus(y, r.tensor(at.quant_offset).reshape({1, -1}));
  store_int8(out, y);
}

// ---- int8 by int8, scaled: QuantMatmul and its versions ------------------------------------------------------------
struct Quantised {
  int x1, x2, scale, token_scale, offset, bias, turn1, turn2, out, group, then;
  explicit Quantised(const Call& c)
      : x1(argument(c, {"x1"})), x2(argument(c, {"x2"})), scale(argument(c, {"x2Scale", "scale", "deqScale"})),
        token_scale(argument(c, {"x1Scale", "pertokenScaleOptional"})), offset(argument(c, {"x2Offset", "offset"})),
        bias(argument(c, {"bias", "biasOptional"})), turn1(argument(c, {"transposeX1", "adjX1"})),
        turn2(argument(c, {"transposeX2", "adjX2"})), out(argument(c, {"out"})), group(argument(c, {"groupSize", "groupSizeOptional"})), then(argument(c, {"fusedOpType"})) {}
  bool turned(const Call& c, int i) const { return i >= 0 && c.integer(i); }
};
Sizes turned_sizes(const Call& c, int i, bool turned) {
  Sizes sizes = held_sizes(c.tensor(i));
  if (turned) std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return sizes;
}
void check_quantised(const Call& c) {
  const Quantised at(c);
  expect_integers(c, at.x1);
  expect_integers(c, at.x2);
  const Sizes a = turned_sizes(c, at.x1, at.turned(c, at.turn1)), b = turned_sizes(c, at.x2, at.turned(c, at.turn2));
  const int64_t m = a[a.size() - 2], n = b.back();
  EXPECT(a.back() == b[b.size() - 2], "x1 %s and x2 %s cannot be multiplied", describe(c.tensor(at.x1)).c_str(),
         describe(c.tensor(at.x2)).c_str());
  if (at.group >= 0 && c.integer(at.group)) refuse(561003, "%s in groups is not computed", c.name());
  for (int i : {argument(c, {"yScaleOptional"}), argument(c, {"x1OffsetOptional"}), argument(c, {"x2OffsetOptional"}), argument(c, {"yOffsetOptional"}), argument(c, {"x3Optional"})})
    if (at.then >= 0 && has(c, i)) refuse(561003, "%s with %s is not computed", c.name(), c.row->args[i].name);
  if (at.then >= 0) {
    const std::string then = c.string(at.then);
    EXPECT(then == "gelu_tanh" || then == "gelu_erf", "%s: fusedOpType %s is not gelu_tanh or gelu_erf", c.name(), then.c_str());
  }
  if (at.scale >= 0 && is_tensor(c.row->args[at.scale].kind) && has(c, at.scale)) {
    const int64_t numel = c.tensor(at.scale).numel();
    EXPECT(numel == 1 || numel == n, "%s has %ld items, expected 1 or %ld", c.row->args[at.scale].name, long(numel), long(n));
  }
  if (has(c, at.token_scale)) {
    const int64_t numel = c.tensor(at.token_scale).numel();
    EXPECT(numel == 1 || numel == m, "%s has %ld items, expected 1 or %ld", c.row->args[at.token_scale].name, long(numel), long(m));
  }
  Sizes out = broadcast_sizes(Sizes(a.begin(), a.end() - 2), Sizes(b.begin(), b.end() - 2));
  out.insert(out.end(), {m, n});
  expect_shape(c, at.out, out);
}
void run_quantised(Run& r) {
  const Call& c = r.call;
  const Quantised at(c);
  Value a = held(r, at.x1).to(mt::kDouble), b = held(r, at.x2).to(mt::kDouble);  // sums of integers stay exact
  if (at.turned(c, at.turn1)) a = a.transpose(-1, -2);
  if (at.turned(c, at.turn2)) b = b.transpose(-1, -2);
  const Value out = r.tensor(at.out), bias = has(c, at.bias) ? r.tensor(at.bias) : Value();
  Value y = empty(out.shape(), mt::kDouble);
  call_kernel("matmul", {y, a, b});
  Value added = bias;
  if (bias.given() && bias.ndim == 3 && out.ndim == 2) added = bias.reshape({1, bias.size(-1)});
  const bool before = bias.given() && bias.dtype == mt::kInt32;
  if (before) y = pointwise("add", mt::kDouble, {y, added}, {integer(1)});
  if (out.dtype == mt::kInt32) return copy(out, y);
  if (at.scale >= 0 && !is_tensor(c.row->args[at.scale].kind)) y = times(y, full({}, mt::kFloat, c.number(at.scale)));
  else y = times(y, scale_of(r, at.scale).reshape({-1}));
  if (has(c, at.token_scale)) y = times(y, scale_of(r, at.token_scale).reshape({-1, 1}));
  if (bias.given() && !before) y = plus(y, added);
  if (at.then >= 0) y = pointwise("gelu", mt::kFloat, {y}, {string(std::string(c.string(at.then)) == "gelu_tanh" ? "tanh" : "none")});
  if (out.dtype != mt::kInt8) return copy(out, y);
  store_int8(out, has(c, at.offset) ? plus(y, r.tensor(at.offset).reshape({-1})) : y);
}

// ---- (x1, x2 in float16, quantParam, bias?, transposeX1, transposeX2, out int8): (x1 x2 + bias) * scale + offset ------------------
void check_to_int8(const Call& c) {
  Sizes a = sizes_of(c.tensor(0)), b = sizes_of(c.tensor(1));
  EXPECT(a.size() >= 2 && b.size() >= 2, "x1 and x2 must have at least 2 dims");
  if (c.integer(4)) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (c.integer(5)) std::swap(b[b.size() - 1], b[b.size() - 2]);
  EXPECT(a.back() == b[b.size() - 2], "x1 %s and x2 %s cannot be multiplied", describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  EXPECT(c.tensor(2).numel() == 1 || c.tensor(2).numel() >= b.back(), "quantParam %s does not fit", describe(c.tensor(2)).c_str());
  if (has(c, 3)) expect_numel(c, 3, b.back());
  Sizes out = broadcast_sizes(Sizes(a.begin(), a.end() - 2), Sizes(b.begin(), b.end() - 2));
  out.insert(out.end(), {a[a.size() - 2], b.back()});
  EXPECT(c.tensor(6).dtype == ACL_INT8, "out is %s, expected int8", describe(c.tensor(6)).c_str());
  expect_shape(c, 6, out);
}
void run_to_int8(Run& r) {
  Value a = r.tensor(0).to(mt::kFloat), b = r.tensor(1).to(mt::kFloat);
  if (r.call.integer(4)) a = a.transpose(-1, -2);
  if (r.call.integer(5)) b = b.transpose(-1, -2);
  Value y = empty(r.tensor(6).shape(), mt::kFloat);
  call_kernel("matmul", {y, a, b});
  if (has(r.call, 3)) y = plus(y, r.tensor(3).reshape({-1}));
  const int64_t n = y.size(-1);
  const Value given = r.tensor(2).reshape({-1}).dense(), scale = empty({n}, mt::kFloat), offset = empty({n}, mt::kFloat);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t* parameter = given.ptr<int64_t>() + (given.numel() == 1 ? 0 : k);
    std::memcpy(scale.ptr<float>() + k, parameter, 4);
    offset.ptr<float>()[k] = float(offset_of(*parameter));
  }
  store_int8(r.tensor(6), plus(times(y, scale), offset));
}

// ---- parameters and weights ----------------------------------------------------------------------------------------
// The hardware's form: 19 bits of the scale, a flag, and 9 bits of a whole offset.
uint64_t parameter(float scale, const float* offset, bool rounds) {
  uint32_t bits;
  std::memcpy(&bits, &scale, 4);
  if (rounds) bits += 0xFFF + (bits >> 13 & 1);  // to the nearest of what 19 bits hold, ties to even
  uint64_t made = (bits & 0xFFFFE000u) | uint64_t{1} << 46;
  if (!offset) return made;
  const float whole = std::nearbyint(*offset);
  const int64_t limited = whole < -256 ? -256 : whole > 255 ? 255 : int64_t(whole);
  return (made & 0x4000FFFFFFFFull) | uint64_t(limited & 0x1FF) << 37;
}
template <bool v3> void check_parameters(const Call& c) {  // (scale, offset?, [roundMode], out)
  const int out = 2 + v3;
  EXPECT(!v3 || c.integer(2) == 0 || c.integer(2) == 1, "roundMode %ld is not 0 or 1", long(c.integer(2)));
  const int64_t scales = c.tensor(0).numel(), offsets = c.given(1) ? c.tensor(1).numel() : 1;
  EXPECT(scales == offsets || scales == 1 || offsets == 1, "%ld scales and %ld offsets", long(scales), long(offsets));
  EXPECT(c.tensor(out).numel() == (scales && offsets ? std::max(scales, offsets) : 0), "out %s does not fit", describe(c.tensor(out)).c_str());
}
template <bool v3> void run_parameters(Run& r) {
  const Value out = r.tensor(2 + v3), made = empty(out.shape(), mt::kInt64);
  const Value scale = r.tensor(0).to(mt::kFloat).dense(), offset = r.given(1) ? r.tensor(1).to(mt::kFloat).dense() : Value();
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    const float* o = offset.given() ? offset.ptr<float>() + (offset.numel() == 1 ? 0 : i) : nullptr;
    made.ptr<int64_t>()[i] = int64_t(parameter(scale.ptr<float>()[scale.numel() == 1 ? 0 : i], o, v3 && r.call.integer(2)));
  }
  copy(out, made);
}

// int32 items in [-8, 7] to int4, eight to an int32 or two to a byte.
void check_pack(const Call& c) {  // (weight, weightInt4Pack)
  Sizes sizes = sizes_of(c.tensor(0));
  EXPECT(sizes.back() % kPacked == 0, "the last dim of %s does not divide by 8", describe(c.tensor(0)).c_str());
  if (c.tensor(1).dtype == ACL_INT32) sizes.back() /= kPacked;
  expect_shape(c, 1, sizes);
}
void run_pack(Run& r) {
  const Value in = r.tensor(0).dense();
  if (r.call.tensor(1).dtype == ACL_INT4) return r.set_int4(r.call.tensor(1), in);
  const Value out = r.tensor(1), made = empty(out.shape(), mt::kInt32);
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    uint32_t word = 0;
    for (int k = 0; k < kPacked; ++k) word |= (uint32_t(in.ptr<int32_t>()[i * kPacked + k]) & 15) << (4 * k);
    made.ptr<int32_t>()[i] = int32_t(word);
  }
  copy(out, made);
}

// Private formats keep the items of plain memory here: an NZ weight is read with the strides that its tensor says.
void keep_weight(Run&) {}
void check_cast(const Call& c) { expect_same_shape(c, 1, 0); }
void cast_format(Run& r) { copy(r.tensor(1), r.tensor(0)); }
void check_convolution_weight(const Call& c) { expect_same_shape(c, 3, 0); }
void convert_weight(Run& r) { copy(r.tensor(3), r.tensor(0)); }

const Op ops[] = {
    {"aclnnWeightQuantBatchMatmulV2", check_weighted, run_weighted},
    {"aclnnWeightQuantBatchMatmulV3", check_weighted, run_weighted},
    {"aclnnWeightQuantBatchMatmulNz", check_weighted, run_weighted},
    {"aclnnQuantMatmul", check_quantised, run_quantised},
    {"aclnnQuantMatmulV2", check_quantised, run_quantised},
    {"aclnnQuantMatmulV3", check_quantised, run_quantised},
    {"aclnnQuantMatmulV4", check_quantised, run_quantised},
    {"aclnnQuantMatmulV5", check_quantised, run_quantised},
    {"aclnnQuantMatmulWeightNz", check_quantised, run_quantised},
    {"aclnnFusedQuantMatmul", check_quantised, run_quantised},
    {"aclnnFusedQuantMatmulWeightNz", check_quantised, run_quantised},
    {"aclnnBatchMatmulQuant", check_to_int8, run_to_int8},
    {"aclnnTransQuantParamV2", check_parameters<false>, run_parameters<false>},
    {"aclnnTransQuantParamV3", check_parameters<true>, run_parameters<true>},
    {"aclnnConvertWeightToINT4Pack", check_pack, run_pack},
    {"aclnnTransMatmulWeight", nullptr, keep_weight},
    {"aclnnTransConvolutionWeight", check_convolution_weight, convert_weight},
    {"aclnnNpuFormatCast", check_cast, cast_format},
};

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

// ---- plain functions: sizes and parameters that clients ask for before they allocate ------------------------------
namespace {

constexpr int64_t kFractal = 16;  // rows of a fractal; its columns are 32 bytes

int64_t round_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The items of a matrix, or of a batch of them, in fractals of 16 rows and `columns` columns; 0: not a shape.
uint64_t fractal_items(const aclIntArray& shape, int64_t columns) {
  const auto& sizes = shape.items;
  if (sizes.size() < 2 || sizes.size() > 6) return 0;
  uint64_t items = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] <= 0) return 0;
    const int64_t unit = d + 1 == sizes.size() ? columns : d + 2 == sizes.size() ? kFractal : 1;
    items *= static_cast<uint64_t>(round_to(sizes[d], unit));
  }
  return items;
}

int weight_size(const aclIntArray* shape, aclDataType dtype, uint64_t* size, const char* function) {
  if (!shape || !size) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null argument", function);
  const aclIntArray* found = int_arrays().get(shape);
  if (!found) return fail(ACLNN_ERR_PARAM_INVALID, "%s: tensorShape is not a live array", function);
  if (dtype != ACL_FLOAT16 && dtype != ACL_BF16 && dtype != ACL_INT8 && dtype != ACL_FLOAT)
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: data type %d has no NZ form", function, dtype);
  *size = fractal_items(*found, 32 / element_size(dtype));
  if (!*size) return fail(ACLNN_ERR_PARAM_INVALID, "%s: expected 2 to 6 positive dims", function);
  return 0;
}

}  // namespace

aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray* tensorShape, uint64_t* weightTensorSize) {
  CANN_ENTRY("aclnnCalculateMatmulWeightSize");
  return weight_size(tensorShape, ACL_FLOAT16, weightTensorSize, "aclnnCalculateMatmulWeightSize");
}

aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray* tensorShape, aclDataType dataType,
                                             uint64_t* weightTensorSize) {
  CANN_ENTRY("aclnnCalculateMatmulWeightSizeV2");
  return weight_size(tensorShape, dataType, weightTensorSize, "aclnnCalculateMatmulWeightSizeV2");
}

aclnnStatus aclnnCalculateConvolutionWeightSize(const aclIntArray* tensorShape, bool, int64_t groups, aclDataType dataType,
                                                uint64_t* weightTensorSize) {
  const char* function = "aclnnCalculateConvolutionWeightSize";
  CANN_ENTRY(function);
  if (!tensorShape || !weightTensorSize) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null argument", function);
  const aclIntArray* found = int_arrays().get(tensorShape);
  if (!found || found->items.size() != 4 || groups < 1 || dataType != ACL_FLOAT16)
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: expected 4 dims, at least one group, and float16", function);
  const auto& s = found->items;  // N, C, H, W in fractals of 16 channels by 16 outputs
  *weightTensorSize = static_cast<uint64_t>(round_to(s[0], kFractal) * round_to(s[1], kFractal) * s[2] * s[3]);
  return 0;
}

aclnnStatus aclnnTransQuantParam(const float* scaleArray, uint64_t scaleSize, const float* offsetArray, uint64_t offsetSize,
                                 uint64_t** quantParam, uint64_t* quantParamSize) {
  const char* function = "aclnnTransQuantParam";
  CANN_ENTRY(function);
  if (!scaleArray || !quantParam || !quantParamSize) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null argument", function);
  if (!scaleSize || (offsetArray == nullptr) != (offsetSize == 0))
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: %lu scales and %lu offsets", function, scaleSize, offsetSize);
  if (offsetSize > 1 && scaleSize > 1 && offsetSize != scaleSize)
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: %lu scales and %lu offsets", function, scaleSize, offsetSize);
  const uint64_t n = std::max(scaleSize, offsetSize);
  auto* made = new uint64_t[n];  // the client releases it
  for (uint64_t i = 0; i < n; ++i)
    made[i] = parameter(scaleArray[scaleSize == 1 ? 0 : i], offsetArray ? offsetArray + (offsetSize == 1 ? 0 : i) : nullptr, false);
  *quantParam = made;
  *quantParamSize = n;
  return 0;
}

// The storage that a tensor takes in another format: NZ is [..., columns / c0, rows / 16, 16, c0], c0 columns being 32 bytes
// of the dtype that the product computes in.
aclnnStatus aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor* srcTensor, int dstFormat, int additionalDtype,
                                                     int64_t** dstShape, uint64_t* dstShapeSize, int* actualFormat) {
  const char* function = "aclnnNpuFormatCastCalculateSizeAndFormat";
  CANN_ENTRY(function);
  if (!srcTensor || !dstShape || !dstShapeSize || !actualFormat)
    return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null argument", function);
  const aclTensor* found = tensors().get(srcTensor);
  if (!found) return fail(ACLNN_ERR_PARAM_INVALID, "%s: srcTensor is not a live tensor", function);
  const TensorMeta& t = found->meta;
  const bool nz = dstFormat == ACL_FORMAT_FRACTAL_NZ;
  if (!nz && dstFormat != ACL_FORMAT_ND && dstFormat != ACL_FORMAT_NCHW && dstFormat != ACL_FORMAT_NCDHW)
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: format %d is not supported", function, dstFormat);
  if (nz && (t.ndim < 2 || t.ndim > 6))
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: NZ needs 2 to 6 dims, got %d", function, t.ndim);
  Sizes shape(t.sizes, t.sizes + t.ndim);
  *actualFormat = dstFormat;
  if (nz) {
    const bool weight_only = additionalDtype == ACL_FLOAT16 || additionalDtype == ACL_BF16;
    const int64_t size = element_size(t.dtype), c0 = weight_only || !size ? 16 : 32 / size;
    const int64_t rows = shape[shape.size() - 2], columns = shape.back();
    shape.resize(shape.size() - 2);
    shape.insert(shape.end(), {(columns + c0 - 1) / c0, (rows + kFractal - 1) / kFractal, kFractal, c0});
    if (weight_only && size == 1) *actualFormat = ACL_FORMAT_FRACTAL_NZ_C0_16;
  }
  *dstShapeSize = shape.size();
  *dstShape = new int64_t[shape.size() ? shape.size() : 1];  // the client releases it
  std::copy(shape.begin(), shape.end(), *dstShape);
  return 0;
}
