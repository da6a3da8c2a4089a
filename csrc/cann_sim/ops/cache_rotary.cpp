// Keys and values that are normed, rotated and quantised on their way into a cache.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }
Value whole(Run& r, int i) { return r.tensor(i).to(mt::kInt64).dense(); }
std::string text_of(const Call& c, int i, const char* otherwise) { return c.given(i) && *c.string(i) ? c.string(i) : otherwise; }
bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// ---- norms and rotations of float32 rows ------------------------------------------------------------------------------------
// Each row of x [..., gamma's items] over its root mean square, times gamma.
Value normed(const Value& x, const Value& gamma, double epsilon) {
  const Value made = empty(x.shape(), mt::kFloat);
  const int64_t width = gamma.numel();
  for (int64_t row = 0, rows = x.numel() / width; row < rows; ++row) {
    const float* in = x.ptr<float>() + row * width;
    double square = 0;
    for (int64_t i = 0; i < width; ++i) square += double(in[i]) * in[i] / double(width);
    const double rms = std::sqrt(square + epsilon);
    for (int64_t i = 0; i < width; ++i) made.ptr<float>()[row * width + i] = float(in[i] / rms * gamma.ptr<float>()[i]);
  }
  return made;
}
Value turned(const Value& first, const Value& second, const Value& cos, const Value& sin) {
  return pointwise("add", mt::kFloat, {pointwise("mul", mt::kFloat, {first, cos}), pointwise("mul", mt::kFloat, {second, sin})},
                   {integer(1)});
}
// Pairs of neighbours: y = (x even | x odd) * cos + (-x odd | x even) * sin; cos and sin broadcast.
Value interleaved(const Value& x, const Value& cos, const Value& sin) {
  const int64_t half = x.size(-1) / 2;
  const Value even = x.narrow(-1, 0, half, 2), odd = x.narrow(-1, 1, half, 2), minus = pointwise("neg", mt::kFloat, {odd});
  return turned(cat({even, odd}, -1), cat({minus, even}, -1), cos, sin);
}
// Pairs of halves: y = (a | b) * cos + (-b | a) * sin.
Value rotated_by_half(const Value& x, const Value& cos, const Value& sin) {
  const int64_t half = x.size(-1) / 2;
  const Value a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return turned(x, cat({pointwise("neg", mt::kFloat, {b}), a}, -1), cos, sin);
}
void check_interleave(const Call& c) {  // (x, cos, sin, out)
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim == 4 && x.sizes[3] % 2 == 0, "x %s", describe(x).c_str());
  for (int i : {1, 2})
    EXPECT(broadcast_sizes(sizes_of(c.tensor(i)), sizes_of(x)) == sizes_of(x), "%s %s does not broadcast to x %s",
           c.row->args[i].name, describe(c.tensor(i)).c_str(), describe(x).c_str());
  expect_same_shape(c, 3, 0);
}
void interleave(Run& r) { copy(r.tensor(3), interleaved(floats(r, 0), floats(r, 1), floats(r, 2))); }

// ---- into a cache -----------------------------------------------------------------------------------------------------------
// Rows [n, width] as int8: times or over a scale, plus an offset, to the nearest; one number for all, or one an item of a row.
Value quantised(const Value& rows, const Value& scale, const Value& offset, bool divides) {
  const Value made = empty(rows.shape(), mt::kInt8);
  const int64_t width = rows.size(1), n = scale.numel(), shifts = offset.given() ? offset.numel() : 0;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    const float by = scale.ptr<float>()[n == 1 ? 0 : i % width];
    float x = rows.ptr<float>()[i];
    x = (divides ? x / by : x * by) + (shifts ? offset.ptr<float>()[shifts == 1 ? 0 : i % width] : 0);
    made.ptr<int8_t>()[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x), -128.0f, 127.0f));
  }
  return made;
}
void expect_scale(const Call& c, int i, int cache, int64_t width) {
  EXPECT(has(c, i) == (c.tensor(cache).dtype == ACL_INT8), "%s: %s goes with a cache of int8, and %s is %s", c.name(), c.row->args[i].name,
         c.row->args[cache].name, describe(c.tensor(cache)).c_str());
  for (int k : {i, i + 2})
    if (has(c, k)) EXPECT(c.tensor(k).numel() == 1 || c.tensor(k).numel() == width, "%s %s", c.row->args[k].name, describe(c.tensor(k)).c_str());
}
// A cache of rows in slots. In blocks [blocks, size, ..., width], each block of the mode NZ is [pieces of 32 bytes, size, piece].
class Slots {
 public:
  Slots(const Call& c, const Value& cache, int64_t width, int64_t size, bool nz)
      : call_(c), width_(width), size_(size), count_(cache.numel() / width), flat_(cache.reshape({-1})), nz_(nz) {}
  void put(int64_t at, const Value& row) const {
    if (at >= count_)
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(call_.name()) + ": row " + std::to_string(at) + " of a cache of " + std::to_string(count_));
    if (!nz_) return copy(flat_.narrow(0, at * width_, width_), row);
    const int64_t piece = 32 / mt::itemsize(flat_.dtype), block = at / size_ * size_ * width_;
    for (int64_t i = 0; i < width_; i += piece)
      copy(flat_.narrow(0, block + i * size_ + at % size_ * piece, piece), row.narrow(0, i, piece));
  }
  int64_t count() const { return count_; }

 private:
  const Call& call_;
  const int64_t width_, size_, count_;
  const Value flat_;
  const bool nz_;
};
void expect_pieces(const Call& c, int cache, int64_t width) {
  const int64_t piece = 32 / element_size(c.tensor(cache).dtype);
  EXPECT(width % piece == 0, "%s: rows of %ld items of %s are not whole pieces of 32 bytes", c.name(), long(width), c.row->args[cache].name);
}

// ---- aclnnKvRmsNormRopeCache(kv, gamma, cos, sin, index, kCache, ckvCache, scales and offsets?, epsilon, cacheMode, isOutputKv, k, ckv)
// kv [B, N, S, Dv + Dk]: the first part is normed, the rest rotated; each goes to the slots of its cache.
bool in_blocks(const std::string& mode) { return mode != "Norm"; }
bool by_block(const std::string& mode) { return mode == "PA_BLK_BNSD" || mode == "PA_BLK_NZ"; }
void check_kv(const Call& c) {
  const TensorMeta &kv = c.tensor(0), &gamma = c.tensor(1);
  const int epsilon = argument(c, {"epsilon"});
  const std::string mode = text_of(c, epsilon + 1, "Norm");
  if (epsilon > 11 && has(c, 11)) refuse(561003, "%s with values of their own is not computed", c.name());
  EXPECT(mode == "Norm" || mode == "PA" || mode == "PA_BNSD" || mode == "PA_NZ" || by_block(mode), "%s: cacheMode %s", c.name(), mode.c_str());
  EXPECT(kv.ndim == 4 && gamma.numel() < kv.sizes[3] && (kv.sizes[3] - gamma.numel()) % 2 == 0, "kv %s with gamma %s",
         describe(kv).c_str(), describe(gamma).c_str());
  EXPECT(kv.sizes[1] == 1, "%s: kv of %ld heads, expected 1", c.name(), kv.sizes[1]);
  for (int i : {5, 6}) {
    const int64_t width = i == 5 ? kv.sizes[3] - gamma.numel() : gamma.numel();
    const TensorMeta& cache = c.tensor(i);
    EXPECT(cache.ndim == 4 && cache.sizes[1] > 0 && cache.numel() % width == 0, "%s %s", c.row->args[i].name, describe(cache).c_str());
    expect_scale(c, i + 2, i, width);
    if (ends_with(mode, "NZ")) expect_pieces(c, i, width);
  }
  const int64_t size = c.tensor(5).sizes[1], steps = kv.sizes[2];
  expect_numel(c, 4, kv.sizes[0] * (by_block(mode) ? (steps + size - 1) / size : steps));
}
// Where row `row` of batch and steps goes; negative: nowhere.
int64_t slot_of(const Value& index, const std::string& mode, int64_t row, int64_t steps, int64_t size, int64_t length) {
  const int64_t b = row / steps, s = row % steps;
  if (!by_block(mode)) {
    const int64_t at = index.ptr<int64_t>()[row];
    return at < 0 || in_blocks(mode) ? at : b * length + at;
  }
  const int64_t blocks = (steps + size - 1) / size, at = index.ptr<int64_t>()[b * blocks + s / size];
  return at < 0 ? at : at / size * size + s % size;
}
void kv(Run& r) {
  const Call& c = r.call;
  const int epsilon = argument(c, {"epsilon"});
  const std::string mode = text_of(c, epsilon + 1, "Norm");
  const Value x = floats(r, 0), gamma = floats(r, 1), index = whole(r, 4);
  const int64_t batch = x.size(0), steps = x.size(2), dv = gamma.numel(), dk = x.size(3) - dv;
  const Value values = normed(x.narrow(3, 0, dv).dense(), gamma, c.number(epsilon));
  const Value keys = interleaved(x.narrow(3, dv, dk), floats(r, 2), floats(r, 3)).dense();
  struct { int cache, out; Value rows; } const parts[] = {{5, epsilon + 3, keys.reshape({batch * steps, dk})}, {6, epsilon + 4, values.reshape({batch * steps, dv})}};
  for (const auto& part : parts) {
    const Value cache = r.tensor(part.cache);
    const Value rows = has(c, part.cache + 2) ? quantised(part.rows, floats(r, part.cache + 2), has(c, part.cache + 4) ? floats(r, part.cache + 4) : Value(), false) : part.rows;
    const Slots slots(c, cache, part.rows.size(1), cache.size(1), ends_with(mode, "NZ"));
    const int64_t length = slots.count() / std::max<int64_t>(batch, 1);  // of one batch, where the cache is not in blocks
    for (int64_t row = 0; row < batch * steps; ++row) {
      const int64_t at = slot_of(index, mode, row, steps, cache.size(1), length);
      if (at >= 0) slots.put(at, rows.select(0, row));
    }
    if (c.integer(epsilon + 2) && has(c, part.out)) copy(r.tensor(part.out), part.rows.reshape(r.tensor(part.out).shape()));
  }
}

// ---- aclnnQkvRmsNormRopeCache(qkv [tokens, heads * D], gammas of q and k, cos, sin, index, qOut, kCache, vCache, scales and offsets?,
// qkvSize, headNums, epsilon, cacheMode, q, k and v before they are quantised?): q and k are normed and rotated by halves
void check_qkv(const Call& c) {
  const TensorMeta& qkv = c.tensor(0);
  EXPECT(c.ints(13).size() == 4 && c.ints(14).size() == 3, "%s: qkvSize has 4 items and headNums 3", c.name());
  const int64_t tokens = c.ints(13)[0] * c.ints(13)[1], heads = c.ints(13)[2], depth = c.ints(13)[3];
  const Span<int64_t> each = c.ints(14);
  const std::string mode = text_of(c, 16, "PA_NZ");
  if (mode != "PA_NZ") refuse(561003, "%s with cacheMode %s is not computed", c.name(), mode.c_str());
  EXPECT(each[0] > 0 && each[1] > 0 && each[1] == each[2] && each[0] + each[1] + each[2] == heads && depth > 0 && depth % 2 == 0,
         "%s: heads of %ld, %ld and %ld are not %ld of %ld items", c.name(), long(each[0]), long(each[1]), long(each[2]), long(heads), long(depth));
  EXPECT(qkv.ndim == 2, "%s: qkv %s", c.name(), describe(qkv).c_str());
  expect_shape(c, 0, {tokens, heads * depth});
  for (int i : {1, 2}) expect_shape(c, i, {depth});
  for (int i : {3, 4}) expect_shape(c, i, {tokens, depth});
  expect_shape(c, 5, {tokens});
  expect_shape(c, 6, {tokens, each[0] * depth});
  for (int i : {7, 8}) {
    const TensorMeta& cache = c.tensor(i);
    const int64_t piece = 32 / element_size(cache.dtype);
    EXPECT(cache.ndim == 4 && cache.sizes[3] == piece && cache.sizes[1] * piece == each[1] * depth, "%s: %s %s is not [blocks, %ld, size, %ld]",
           c.name(), c.row->args[i].name, describe(cache).c_str(), long(each[1] * depth / piece), long(piece));
    expect_scale(c, i + 2, i, each[1] * depth);
  }
}
void qkv(Run& r) {
  const Call& c = r.call;
  const int64_t tokens = c.ints(13)[0] * c.ints(13)[1], depth = c.ints(13)[3], q = c.ints(14)[0], k = c.ints(14)[1];
  const Value x = floats(r, 0).reshape({tokens, -1, depth});
  const Value cos = floats(r, 3).unsqueeze(1), sin = floats(r, 4).unsqueeze(1), index = whole(r, 5);
  const double epsilon = c.number(15);
  const Value rows[] = {rotated_by_half(normed(x.narrow(1, 0, q).dense(), floats(r, 1), epsilon), cos, sin).dense().reshape({tokens, q * depth}),
                        rotated_by_half(normed(x.narrow(1, q, k).dense(), floats(r, 2), epsilon), cos, sin).dense().reshape({tokens, k * depth}),
                        x.narrow(1, q + k, k).dense().reshape({tokens, k * depth})};
  copy(r.tensor(6), rows[0]);
  for (int i : {7, 8}) {
    const Value& part = rows[i - 6];
    const Value cache = r.tensor(i), stored = has(c, i + 2) ? quantised(part, floats(r, i + 2), has(c, i + 4) ? floats(r, i + 4) : Value(), true) : part;
    const Slots slots(c, cache, k * depth, cache.size(2), true);
    for (int64_t t = 0; t < tokens; ++t)
      if (index.ptr<int64_t>()[t] >= 0) slots.put(index.ptr<int64_t>()[t], stored.select(0, t));
  }
  for (int i : {17, 18, 19})
    if (has(c, i)) copy(r.tensor(i), rows[i - 17].reshape(r.tensor(i).shape()));
}

// ---- aclnnDequantRopeQuantKvcache(x, cos, sin, kCache, vCache, indices, scales and offsets?, weightScale?, activationScale?, bias?,
// sizeSplits, quantMode, layout, kvOutput, cacheMode, q, k, v): x [B, S, H] or [B, H] is cut into q, k and v, int32 restored first
struct Cut {
  int64_t batch, steps, all, q, kv, depth;
  explicit Cut(const Call& c)
      : batch(c.tensor(0).sizes[0]), steps(c.tensor(0).ndim == 3 ? c.tensor(0).sizes[1] : 1), all(c.tensor(0).sizes[c.tensor(0).ndim - 1]),
        q(c.ints(13)[0]), kv(c.ints(13)[1]), depth(c.tensor(1).sizes[c.tensor(1).ndim - 1]) {}
};
void check_dequant(const Call& c) {
  EXPECT(c.ints(13).size() == 3 && (c.tensor(0).ndim == 2 || c.tensor(0).ndim == 3) && c.tensor(1).ndim > 0, "%s: x %s with %ld sizes", c.name(),
         describe(c.tensor(0)).c_str(), long(c.ints(13).size()));
  const Cut cut(c);
  const std::string mode = text_of(c, 17, "contiguous");
  EXPECT(mode == "contiguous" || mode == "page", "%s: cacheMode %s", c.name(), mode.c_str());
  EXPECT(text_of(c, 14, "static") == "static" && text_of(c, 15, "BSND") == "BSND", "%s: quantMode %s and layout %s", c.name(), c.string(14), c.string(15));
  EXPECT(cut.depth > 0 && cut.depth % 2 == 0 && cut.q > 0 && cut.kv > 0 && c.ints(13)[2] == cut.kv && cut.q + 2 * cut.kv == cut.all &&
         cut.q % cut.depth == 0 && cut.kv % cut.depth == 0, "%s: x %s with heads of %ld", c.name(), describe(c.tensor(0)).c_str(), long(cut.depth));
  for (int i : {1, 2}) expect_numel(c, i, cut.batch * cut.steps * cut.depth);
  for (int i : {3, 4}) {
    const TensorMeta& cache = c.tensor(i);
    EXPECT(cache.dtype == ACL_INT8 && cache.ndim == 4 && cache.sizes[2] * cache.sizes[3] == cut.kv, "%s: %s %s", c.name(), c.row->args[i].name,
           describe(cache).c_str());
    expect_scale(c, i + 3, i, c.tensor(i + 3).numel() == cut.depth ? cut.depth : cut.kv);
  }
  const bool restores = c.tensor(0).dtype == ACL_INT32;
  EXPECT(!restores || has(c, 10), "%s: weightScale goes with x of int32", c.name());
  if (restores) expect_numel(c, 10, cut.all);
  if (restores && has(c, 11)) expect_numel(c, 11, cut.batch * cut.steps);
  if (restores && has(c, 12)) expect_numel(c, 12, cut.all);
  expect_numel(c, 5, mode == "page" ? cut.batch * cut.steps : cut.batch);
  expect_numel(c, 18, cut.batch * cut.steps * cut.q);
  for (int i : {19, 20})
    if (c.integer(16)) expect_numel(c, i, cut.batch * cut.steps * cut.kv);
}
Value restored(Run& r, int64_t rows) {
  const Call& c = r.call;
  Value x = floats(r, 0).reshape({rows, -1});
  if (c.tensor(0).dtype != ACL_INT32) return x;
  const bool whole_bias = has(c, 12) && c.tensor(12).dtype == ACL_INT32;      // added before the scales
  if (whole_bias) x = pointwise("add", mt::kFloat, {x, floats(r, 12)}, {integer(1)});
  x = pointwise("mul", mt::kFloat, {x, floats(r, 10).reshape({1, -1})});
  if (has(c, 11)) x = pointwise("mul", mt::kFloat, {x, floats(r, 11).reshape({rows, 1})});
  return has(c, 12) && !whole_bias ? pointwise("add", mt::kFloat, {x, floats(r, 12)}, {integer(1)}) : x;
}
void dequant(Run& r) {
  const Call& c = r.call;
  const Cut cut(c);
  const int64_t rows = cut.batch * cut.steps;
  const Value x = restored(r, rows).dense();
  const Value cos = floats(r, 1).reshape({rows, 1, cut.depth}), sin = floats(r, 2).reshape({rows, 1, cut.depth}), indices = whole(r, 5);
  auto heads = [&](int64_t from, int64_t n) { return x.narrow(1, from, n).dense().reshape({rows, n / cut.depth, cut.depth}); };
  const Value q = rotated_by_half(heads(0, cut.q), cos, sin).dense();
  const Value parts[] = {rotated_by_half(heads(cut.q, cut.kv), cos, sin).dense(), heads(cut.q + cut.kv, cut.kv)};
  copy(r.tensor(18), q.reshape(r.tensor(18).shape()));
  for (int i : {0, 1}) {
    const Value scale = floats(r, 6 + i), wide = parts[i].reshape(scale.numel() == cut.depth ? Sizes{-1, cut.depth} : Sizes{rows, cut.kv});
    const Value made = quantised(wide, scale, has(c, 8 + i) ? floats(r, 8 + i) : Value(), true).reshape({rows, cut.kv}), cache = r.tensor(3 + i);
    const Slots slots(c, cache, cut.kv, cache.size(1), false);
    for (int64_t row = 0; row < rows; ++row) {
      const bool paged = text_of(c, 17, "contiguous") == "page";
      const int64_t b = row / cut.steps, given = indices.ptr<int64_t>()[paged ? row : b];
      if (given >= 0) slots.put(paged ? given : b * cache.size(1) + given + row % cut.steps, made.select(0, row));
    }
    if (c.integer(16)) copy(r.tensor(19 + i), parts[i].reshape(r.tensor(19 + i).shape()));
  }
}

const Op ops[] = {
    {"aclnnInterleaveRope", check_interleave, interleave}, {"aclnnKvRmsNormRopeCache", check_kv, kv},
    {"aclnnKvRmsNormRopeCacheV2", check_kv, kv}, {"aclnnQkvRmsNormRopeCache", check_qkv, qkv},
    {"aclnnDequantRopeQuantKvcache", check_dequant, dequant},
};

}  // namespace
}  // namespace cann_sim
