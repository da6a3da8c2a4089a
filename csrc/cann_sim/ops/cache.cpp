// Caches of keys and values in blocks, rotation by a cache of positions, and partial attentions put together.
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
std::string mode_of(const Call& c, int i) { return c.given(i) && *c.string(i) ? c.string(i) : "Norm"; }
[[noreturn]] void outside(const Call& c, int64_t at, int64_t n) {
  throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION,
                    std::string(c.name()) + ": row " + std::to_string(at) + " of a cache of " + std::to_string(n));
}
// A cache as one row a slot. Norm: [blocks, size, ...]; PA_NZ: [blocks, pieces of a row, size, piece].
class Slots {
 public:
  Slots(const Value& cache, bool pieces) : cache_(cache), pieces_(pieces), size_(cache.size(pieces ? 2 : 1)) {}
  int64_t size() const { return size_; }
  int64_t count() const { return cache_.size(0) * size_; }
  Value row(int64_t at) const {
    const Value block = cache_.select(0, at / size_);
    return pieces_ ? block.select(1, at % size_) : block.select(0, at % size_);
  }

 private:
  const Value cache_;
  const bool pieces_;
  const int64_t size_;
};
void expect_mode(const Call& c, int i) {
  const std::string mode = mode_of(c, i);
  if (mode != "Norm" && mode != "PA_NZ") refuse(561003, "%s with cacheMode %s is not computed", c.name(), mode.c_str());
}
void expect_cache(const Call& c, int i, int mode) {
  EXPECT(c.tensor(i).ndim == 4 || (c.tensor(i).ndim == 3 && mode_of(c, mode) == "Norm"), "%s: %s %s", c.name(),
         c.row->args[i].name, describe(c.tensor(i)).c_str());
}

// ---- aclnnScatterPaKvCache(key, kCache, slots, value, vCache, compressLens?, offset?, seqLens?, cacheMode, scatterMode, strides, offsets)
// aclnnScatterPaCache has no value and vCache, and ends with the cacheMode.
int mode_at(const Call& c) { return argument(c, {"cacheModeOptional"}); }
std::vector<int> written(const Call& c) { return mode_at(c) == 8 ? std::vector<int>{0, 3} : std::vector<int>{0}; }
void check_scatter(const Call& c) {
  const int mode = mode_at(c);
  expect_mode(c, mode);
  if (has(c, mode - 3) || has(c, mode - 2) || has(c, mode - 1)) refuse(561003, "%s of parts of tokens is not computed", c.name());
  for (int i : written(c)) {
    if (!has(c, i)) continue;
    EXPECT(has(c, i + 1), "%s without its cache", c.row->args[i].name);
    expect_same_dtype(c, i, i + 1);
    expect_cache(c, i + 1, mode);
    EXPECT(c.tensor(i).numel() % std::max<int64_t>(c.tensor(2).numel(), 1) == 0, "%ld slots for %s", c.tensor(2).numel(),
           describe(c.tensor(i)).c_str());
  }
}
void scatter(Run& r) {
  const Value slots = whole(r, 2);
  const int64_t n = slots.numel();
  for (int i : written(r.call)) {
    if (!has(r.call, i) || !n) continue;
    const Value from = r.tensor(i).reshape({n, r.tensor(i).numel() / n});
    const Slots cache(r.tensor(i + 1), mode_of(r.call, mode_at(r.call)) == "PA_NZ");
    for (int64_t t = 0; t < n; ++t) {
      const int64_t at = slots.ptr<int64_t>()[t];
      if (at < 0) continue;              // a token that is not kept
      if (at >= cache.count()) outside(r.call, at, cache.count());
      copy(cache.row(at), from.select(0, t).reshape(cache.row(at).shape()));
    }
  }
}

// ---- aclnnGatherPaKvCache(kCache, vCache, blockTables, seqLens, key, value, seqOffset?, cacheMode, isCumsum) ---------------
void check_gather(const Call& c) {
  expect_mode(c, 7);
  for (int i : {0, 1}) expect_cache(c, i, 7);
  const TensorMeta& tables = c.tensor(2);
  EXPECT(tables.ndim == 2, "blockTables %s", describe(tables).c_str());
  expect_numel(c, 3, tables.sizes[0] + (c.integer(8) ? 1 : 0));
  if (has(c, 6)) expect_numel(c, 6, tables.sizes[0]);
  for (int i : {0, 1}) {
    EXPECT(c.tensor(i).numel() && c.tensor(i + 4).ndim, "%s %s, %s %s", c.row->args[i].name, describe(c.tensor(i)).c_str(),
           c.row->args[i + 4].name, describe(c.tensor(i + 4)).c_str());
    expect_same_dtype(c, i, i + 4);
  }
}
void gather(Run& r) {
  const Value tables = whole(r, 2), lengths = whole(r, 3), offsets = has(r.call, 6) ? whole(r, 6) : Value();
  const bool ends = r.call.integer(8);
  for (int i : {0, 1}) {
    const Value out = r.tensor(i + 4);
    const Slots cache(r.tensor(i), mode_of(r.call, 7) == "PA_NZ");
    const int64_t block = cache.size();
    int64_t to = 0;
    for (int64_t b = 0; b < tables.size(0); ++b) {
      const int64_t begin = ends ? lengths.ptr<int64_t>()[b] : 0;
      const int64_t n = ends ? lengths.ptr<int64_t>()[b + 1] - begin : lengths.ptr<int64_t>()[b];
      const int64_t skip = offsets.given() ? offsets.ptr<int64_t>()[b] : 0;
      if (skip < 0) outside(r.call, skip, cache.count());
      for (int64_t t = skip; t < skip + n; ++t, ++to) {
        const int64_t in = t / block < tables.size(1) ? tables.ptr<int64_t>()[b * tables.size(1) + t / block] : -1;
        const int64_t at = in * block + t % block;
        if (in < 0 || at >= cache.count()) outside(r.call, at, cache.count());
        if (to >= out.size(0)) outside(r.call, to, out.size(0));
        const Value row = cache.row(at).dense();
        copy(out.select(0, to), row.reshape(out.select(0, to).shape()));
      }
    }
  }
}

// ---- aclnnAttentionUpdate(lse list, out list, updateType, out, lseOut?) ----------------------------------------------------
void check_update(const Call& c) {
  EXPECT(c.tensors(0).size() > 0 && c.tensors(0).size() == c.tensors(1).size(), "%s: %ld lse for %ld outputs", c.name(),
         c.tensors(0).size(), c.tensors(1).size());
  const TensorMeta& out = c.tensor(3);
  EXPECT(out.ndim == 2, "%s: out %s", c.name(), describe(out).c_str());
  for (int64_t i = 0; i < c.tensors(0).size(); ++i)
    EXPECT(c.tensors(0)[i].numel() == out.sizes[0] && c.tensors(1)[i].numel() == out.numel(), "%s: part %ld does not fit", c.name(), i);
  EXPECT(!c.integer(2) || c.given(4), "%s: updateType 1 needs lseOut", c.name());
}
void update(Run& r) {
  const std::vector<Value> lses = r.tensors(0), outs = r.tensors(1);
  const Value out = r.tensor(3), sum = full(out.shape(), mt::kFloat, 0), merged = empty({out.size(0)}, mt::kFloat);
  const int64_t width = out.size(1);
  for (int64_t row = 0; row < out.size(0); ++row) {
    double top = -INFINITY, total = 0;
    std::vector<double> each;
    for (const Value& v : lses) {
      float x;
      Value one = empty({}, mt::kFloat);
      copy(one, v.reshape({-1}).select(0, row));
      x = *one.ptr<float>();
      each.push_back(x);
      top = std::max(top, double(x));
    }
    for (double x : each) total += std::exp(x - top);
    merged.ptr<float>()[row] = float(top + std::log(total));
    for (size_t i = 0; i < outs.size(); ++i) {
      const Value part = outs[i].reshape({out.size(0), width}).select(0, row);
      call_pointwise("add", mt::kFloat, {sum.select(0, row), sum.select(0, row), part}, {number(std::exp(each[i] - top) / total)});
    }
  }
  copy(out, sum);
  if (r.call.integer(2)) copy(r.tensor(4), merged.reshape(r.tensor(4).shape()));
}

// ---- aclnnRopeWithSinCosCache(positions, query, key, cache, mropeSection, headSize, isNeox, queryOut, keyOut) ---------------
// The cache has a row a position: cosines, then sines. With sections positions has a row a kind, and each takes its part.
void check_rope(const Call& c) {
  const TensorMeta &q = c.tensor(1), &cache = c.tensor(3);
  const int64_t head = c.integer(5);
  EXPECT(q.ndim == 2 && head > 0 && q.sizes[1] % head == 0 && c.tensor(2).ndim == 2 && c.tensor(2).sizes[1] % head == 0,
         "%s: heads of %ld in query %s and key %s", c.name(), head, describe(q).c_str(), describe(c.tensor(2)).c_str());
  EXPECT(cache.ndim == 2 && cache.sizes[1] % 2 == 0 && cache.sizes[1] <= head, "%s: cosSinCache %s", c.name(), describe(cache).c_str());
  const int out = argument(c, {"queryOut"}), mode = argument(c, {"cacheMode"});
  if (mode >= 0 && c.integer(mode)) refuse(561003, "%s with cacheMode %ld is not computed", c.name(), c.integer(mode));
  expect_same_shape(c, out, 1);
  expect_same_shape(c, out + 1, 2);
}
void rope(Run& r) {
  const Call& c = r.call;
  const Value positions = whole(r, 0), cache = floats(r, 3);
  const int64_t head = c.integer(5), half = cache.size(1) / 2, tokens = c.tensor(1).sizes[0];
  const bool sections = c.given(4) && c.ints(4).size() > 0 && positions.numel() > tokens;
  std::vector<int64_t> kind(static_cast<size_t>(half), 0);  // which row of positions an item goes by
  for (int64_t i = 0, s = 0, left = sections ? c.ints(4)[0] : half; i < half; ++i, --left) {
    while (sections && left == 0 && s + 1 < c.ints(4).size()) left = c.ints(4)[++s];
    kind[size_t(i)] = s;
  }
  for (int which : {1, 2}) {
    const Value x = floats(r, which), made = empty(x.shape(), mt::kFloat);
    copy(made, x);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at = positions.ptr<int64_t>()[kind[size_t(i)] * tokens + t];
        if (at < 0 || at >= cache.size(0)) outside(c, at, cache.size(0));
        const float cos = cache.ptr<float>()[at * 2 * half + i], sin = cache.ptr<float>()[at * 2 * half + half + i];
        for (int64_t h = 0; h < x.size(1) / head; ++h) {
          const int64_t base = t * x.size(1) + h * head;
          const int64_t a = base + (c.integer(6) ? i : 2 * i), b = base + (c.integer(6) ? half + i : 2 * i + 1);
          const float u = x.ptr<float>()[a], v = x.ptr<float>()[b];
          made.ptr<float>()[a] = u * cos - v * sin;
          made.ptr<float>()[b] = v * cos + u * sin;
        }
      }
    copy(r.tensor(argument(c, {"queryOut"}) + which - 1), made);
  }
}

const Op ops[] = {
    {"aclnnScatterPaKvCache", check_scatter, scatter}, {"aclnnScatterPaCache", check_scatter, scatter},
    {"aclnnGatherPaKvCache", check_gather, gather},
    {"aclnnAttentionUpdate", check_update, update},    {"aclnnRopeWithSinCosCache", check_rope, rope},
    {"aclnnRopeWithSinCosCacheV2", check_rope, rope},
};

}  // namespace
}  // namespace cann_sim
