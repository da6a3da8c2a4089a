// Rounding to floats of 8 and 4 bits, and the scales of MX blocks, as the public documents of CANN's quantising ops say.
#include "ops/low_float.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/hifloat8.h"

namespace cann_sim {
namespace {

constexpr LowFloat kLow[] = {
    {ACL_FLOAT8_E4M3FN, 3, -6, 8, 448}, {ACL_FLOAT8_E5M2, 2, -14, 15, 57344}, {ACL_FLOAT4_E2M1, 1, 0, 2, 6},
    {ACL_FLOAT4_E1M2, 2, 0, 0, 1.75f}};

bool is_four_bits(const LowFloat& t) { return t.type == ACL_FLOAT4_E2M1 || t.type == ACL_FLOAT4_E1M2; }

// What lies beyond the range becomes the largest number.
float rounded(float x, const LowFloat& t, const char* mode) {
  if (x != x || x == 0) return x;
  if (std::isinf(x)) return std::copysign(t.most, x);
  const float unit = std::ldexp(1.f, std::max(std::ilogb(x), t.least) - t.mantissa);
  return std::min(std::max(whole(x / unit, mode) * unit, -t.most), t.most);
}
// The bits of a rounded number of 4 bits: a sign, then what counts the type's numbers up from zero.
int8_t code_of(float x, const LowFloat& t) {
  const float a = std::fabs(x);
  int code = 0;
  if (t.type == ACL_FLOAT4_E1M2) code = int(a * 4);
  else code = a <= 2 ? int(a * 2) : a < 4 ? 5 : a < 6 ? 6 : 7;
  return int8_t(code | (std::signbit(x) ? 8 : 0));
}
float value_of_code(int code, const LowFloat& t) {
  static constexpr float kE2M1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float a = t.type == ACL_FLOAT4_E1M2 ? float(code & 7) / 4 : kE2M1[code & 7];
  return code & 8 ? -a : a;
}

int32_t limited(float x, float low, float high) { return int32_t(x < low ? low : x > high ? high : x == x ? x : 0); }

void store_packed(const Value& out, const Value& x, const char* mode) {  // eight int4 to an int32, the first lowest
  const Value made = empty(out.shape(), mt::kInt32);
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    uint32_t word = 0;
    for (int k = 0; k < 8; ++k) word |= (uint32_t(limited(whole(x.ptr<float>()[8 * i + k], mode), -8, 7)) & 15) << (4 * k);
    made.ptr<int32_t>()[i] = int32_t(word);
  }
  copy(out, made);
}

bool grouped(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
struct TwoDims {
  int group, y1, scales1, y2, scales2;
  explicit TwoDims(const Call& c)
      : group(argument(c, {"groupIndex", "groupIndexOptional"})), y1(argument(c, {"y1Out"})),
        scales1(argument(c, {"mxscale1Out", "y1ScaleOut"})), y2(argument(c, {"y2Out"})),
        scales2(argument(c, {"mxscale2Out", "y2ScaleOut"})) {}
};

}  // namespace

const LowFloat* low_float(aclDataType t) {
  for (const LowFloat& low : kLow)
    if (low.type == t) return &low;
  return nullptr;
}

float most_of(aclDataType t) {
  if (const LowFloat* low = low_float(t)) return low->most;
  return t == ACL_INT8 ? 127 : 7;
}

void expect_quantised(const Call& c, int i) {
  const aclDataType t = c.tensor(i).dtype;
  if (t != ACL_INT8 && t != ACL_INT4 && t != ACL_INT32 && !low_float(t))
    refuse(561003, "%s to %s of data type %d is not computed", c.name(), c.row->args[i].name, t);
}

void expect_dst_type(const Call& c, int type, int i) {
  if (type < 0) return;
  EXPECT(c.integer(type) == c.tensor(i).dtype, "%s: %s is %ld, and %s is of data type %d", c.name(), c.row->args[type].name,
         long(c.integer(type)), c.row->args[i].name, c.tensor(i).dtype);
}

const char* round_mode(const Call& c) {
  const int i = argument(c, {"roundModeOptional", "roundMode"});
  return i >= 0 && c.given(i) ? c.string(i) : "";
}
int dst_type(const Call& c) { return argument(c, {"dstType", "dstDtype"}); }

float whole(float x, const char* mode) {
  if (!std::strcmp(mode, "round")) return std::round(x);
  if (!std::strcmp(mode, "floor")) return std::floor(x);
  if (!std::strcmp(mode, "ceil")) return std::ceil(x);
  if (!std::strcmp(mode, "trunc")) return std::trunc(x);
  return std::nearbyint(x);
}

void store_low(Run& r, int i, const Value& x, const char* mode) {
  const TensorMeta& meta = r.call.tensor(i);
  const LowFloat* low = low_float(meta.dtype);
  if (meta.dtype == ACL_INT32) return store_packed(r.value(meta), x.dense(), mode);
  const Value in = x.dense(), made = empty(x.shape(), low && !is_four_bits(*low) ? mt::kFloat : mt::kInt8);
  const float *from = in.ptr<float>(), high = most_of(meta.dtype);
  for (int64_t k = 0, n = in.numel(); k < n; ++k) {
    if (!low) made.ptr<int8_t>()[k] = int8_t(limited(whole(from[k], mode), -high - 1, high));
    else if (is_four_bits(*low)) made.ptr<int8_t>()[k] = code_of(rounded(from[k], *low, mode), *low);
    else made.ptr<float>()[k] = rounded(from[k], *low, mode);
  }
  if (meta.dtype == ACL_INT4 || (low && is_four_bits(*low))) return r.set_int4(meta, made);
  copy(low ? r.value(meta).as(converted_dtype(meta.dtype)) : r.value(meta), made);
}

Value load_low(Run& r, int i) {
  const TensorMeta& meta = r.call.tensor(i);
  const LowFloat* low = low_float(meta.dtype);
  if (meta.dtype == ACL_INT4) return r.int4(meta).to(mt::kFloat);
  if (meta.dtype == ACL_HIFLOAT8) return from_hifloat8(r.value(meta));
  if (!low) return r.value(meta).to(mt::kFloat);
  if (!is_four_bits(*low)) return r.value(meta).as(converted_dtype(meta.dtype)).to(mt::kFloat);
  const Value codes = r.int4(meta), made = empty(codes.shape(), mt::kFloat);
  for (int64_t k = 0, n = made.numel(); k < n; ++k) made.ptr<float>()[k] = value_of_code(codes.ptr<int8_t>()[k], *low);
  return made;
}

// ---- MX --------------------------------------------------------------------------------------------------------
Mx mx_of(const Call& c, int y) {
  auto at = [&](const char* name, const char* other) { return argument(c, {name, other}); };
  const int alg = at("scaleAlg", "scale_alg"), most = at("dstTypeMax", "maxDtypeValue"), least = at("maxLowBound", "");
  const int block = at("blocksize", "blockSize");
  Mx mx{c.tensor(y).dtype};
  if (alg >= 0) mx.alg = c.integer(alg);
  if (most >= 0) mx.most = c.number(most);
  if (least >= 0) mx.least = c.number(least);
  if (block >= 0 && c.integer(block)) mx.block = c.integer(block);
  return mx;
}

void expect_mx(const Call& c, const Mx& mx, const char* mode) {
  const LowFloat* low = low_float(mx.type);
  if (!low) refuse(561003, "%s to data type %d is not computed", c.name(), mx.type);
  const bool four = is_four_bits(*low);
  EXPECT(mx.alg == 0 || mx.alg == (four ? 2 : 1), "%s: scaleAlg %ld does not go with data type %d", c.name(), long(mx.alg), mx.type);
  EXPECT(mx.most == 0 || (four && mx.most >= low->most && mx.most <= 2 * low->most), "%s: a largest number of %g does not go with data type %d",
         c.name(), mx.most, mx.type);
  EXPECT(mx.least == 0 || (mx.alg == 1 && mx.least > 0), "%s: maxLowBound %g needs scaleAlg 1", c.name(), mx.least);
  EXPECT(mx.block > 0 && mx.block % 32 == 0 && mx.block <= 1024, "%s: blocksize %ld is not a multiple of 32 up to 1024", c.name(), long(mx.block));
  const std::string m = mode;
  EXPECT(m.empty() || m == "rint" || (four && (m == "round" || m == "floor")), "%s: roundMode %s does not go with data type %d", c.name(),
         mode, mx.type);
}

uint8_t mx_exponent(float largest, const Mx& mx) {
  const LowFloat& low = *low_float(mx.type);
  const float from = mx.alg == 0 ? largest : std::max(largest, float(mx.least)) / (mx.most ? float(mx.most) : low.most);
  uint32_t bits;
  std::memcpy(&bits, &from, 4);
  const uint32_t exponent = bits >> 23, fraction = bits & 0x7FFFFF;
  if (exponent >= 255) return 255;                          // no number has this scale
  if (mx.alg == 0) return uint8_t(exponent > uint32_t(low.emax) ? exponent - uint32_t(low.emax) : 0);
  const bool up = exponent ? exponent < 254 && fraction : mx.alg == 1 && fraction > 0x400000;
  return uint8_t(exponent + up);
}

float mx_scaled(float x, uint8_t exponent) { return exponent == 255 ? NAN : std::ldexp(x, 127 - exponent); }

Sizes mx_scale_sizes(const Sizes& x, int64_t dim, int64_t block, int64_t groups) {
  Sizes sizes = x;
  int64_t& n = sizes[size_t(dim < 0 ? dim + int64_t(x.size()) : dim)];
  n = groups ? n / (2 * block) + groups : ((n + block - 1) / block + 1) / 2;
  sizes.push_back(2);
  return sizes;
}

Value mx_scale(const Value& x, int64_t dim, const Mx& mx, const Ends* ends) {
  if (dim < 0) dim += x.ndim;
  const Value out = full(mx_scale_sizes(x.shape(), dim, mx.block, ends ? int64_t(ends->size()) : 0), mt::kUInt8, 0);
  int64_t outer = 1, inner = 1, n = x.sizes[dim], pairs = out.sizes[dim];
  for (int64_t d = 0; d < x.ndim; ++d) (d < dim ? outer : inner) *= d == dim ? 1 : x.sizes[d];
  const Ends all{n};
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      float* items = x.ptr<float>() + o * n * inner + i;
      int64_t begin = 0;
      for (size_t g = 0; g < (ends ? *ends : all).size(); ++g) {
        const int64_t end = (ends ? *ends : all)[g], first = ends ? begin / (2 * mx.block) + int64_t(g) : 0;
        for (int64_t b = 0; begin + b * mx.block < end; ++b) {
          const int64_t from = begin + b * mx.block, to = std::min(end, from + mx.block);
          float largest = 0;
          for (int64_t k = from; k < to; ++k) {
            const float a = std::fabs(items[k * inner]);
            largest = a > largest || a != a ? a : largest;
            if (a != a) break;
          }
          const uint8_t exponent = mx_exponent(largest, mx);
          for (int64_t k = from; k < to; ++k) items[k * inner] = mx_scaled(items[k * inner], exponent);
          out.ptr<uint8_t>()[((o * pairs + first + b / 2) * inner + i) * 2 + b % 2] = exponent;
        }
        begin = end;
      }
    }
  return out;
}

void store_mx(Run& r, const Value& x, int64_t dim, const Mx& mx, const char* mode, int y, int scales, const Ends* ends) {
  const Value q = empty(x.shape(), mt::kFloat);
  copy(q, x);
  const Value exponents = mx_scale(q, dim, mx, ends);
  store_low(r, y, q, mode);
  const Value out = r.value(r.call.tensor(scales));
  copy(out, exponents.reshape(out.shape()));
}

void expect_mx_outputs(const Call& c, const Sizes& x, int64_t dim, const Mx& mx, int y, int scales, int64_t groups) {
  expect_shape(c, y, x);
  const LowFloat* low = low_float(mx.type);
  EXPECT(!low || !is_four_bits(*low) || x.back() % 2 == 0, "%s: the last dim of %s is odd", c.name(), c.row->args[y].name);
  expect_shape(c, scales, mx_scale_sizes(x, dim, mx.block, groups));
  EXPECT(c.tensor(scales).dtype == ACL_FLOAT8_E8M0 || c.tensor(scales).dtype == ACL_UINT8, "%s: %s is of data type %d, expected FLOAT8_E8M0",
         c.name(), c.row->args[scales].name, c.tensor(scales).dtype);
}

// ---- along the last dim and the one before it ------------------------------------------------------------------
void expect_two_dims(const Call& c, const Sizes& x) {
  const TwoDims at(c);
  const Mx mx = mx_of(c, at.y1);
  EXPECT(x.size() > 1, "%s: expected at least 2 dims", c.name());
  EXPECT(!grouped(c, at.group) || x.size() == 2, "%s: groups need 2 dims", c.name());
  expect_mx(c, mx, round_mode(c));
  for (int y : {at.y1, at.y2}) expect_dst_type(c, dst_type(c), y);
  expect_mx_outputs(c, x, -1, mx, at.y1, at.scales1);
  expect_mx_outputs(c, x, -2, mx, at.y2, at.scales2, grouped(c, at.group) ? c.tensor(at.group).numel() : 0);
}
void store_two_dims(Run& r, const Value& x) {
  const TwoDims at(r.call);
  const Mx mx = mx_of(r.call, at.y1);
  const bool in_groups = grouped(r.call, at.group);
  const Ends ends = in_groups ? group_ends(r.tensor(at.group), false, x.sizes[0]) : Ends();
  store_mx(r, x, -1, mx, round_mode(r.call), at.y1, at.scales1);
  store_mx(r, x, -2, mx, round_mode(r.call), at.y2, at.scales2, in_groups ? &ends : nullptr);
}

Ends group_ends(const Value& groups, bool counts, int64_t rows) {
  const Value v = groups.to(mt::kInt64).dense();
  Ends ends;
  int64_t last = 0;
  for (int64_t g = 0, n = v.numel(); g < n; ++g) {
    const int64_t end = v.ptr<int64_t>()[g] + (counts ? last : 0);
    ends.push_back(last = std::min(std::max(end, last), rows));
  }
  return ends;
}

}  // namespace cann_sim
