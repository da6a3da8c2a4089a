// A causal convolution over sequences that goes on from cached rows, and leaves its last rows in the cache.
#include <algorithm>
#include <string>

#include "ops/attention.h"  // argument()

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }
// A table of whole numbers, which may be absent.
struct Table {
  Value items;
  Table(Run& r, int i) : items(has(r.call, i) ? r.tensor(i).to(mt::kInt64).dense() : Value()) {}
  bool given() const { return items.given(); }
  int64_t operator[](int64_t i) const { return items.ptr<int64_t>()[i]; }
};

// ---- aclnnFusedCausalConv1d(x [rows, dim] or [batch, rows, dim], weight [K, dim], convStates [lines, C, dim], queryStartLoc?, cacheIndices?,
// initialStateMode?, bias?, numAcceptedTokens?, numComputedTokens?, first and last block?, initialStateIdx?, activationMode, padSlotId,
// runMode, maxQueryLen, residualConnection, blockSize, convMode, y): the documents say of bias and modes of activation that they do nothing
struct Sequences {
  int64_t batch, dim, taps, state;
  explicit Sequences(const Call& c)
      : batch(c.tensor(0).ndim == 3 ? c.tensor(0).sizes[0] : has(c, 3) ? c.tensor(3).numel() - 1 : 1), dim(c.tensor(1).sizes[1]),
        taps(c.tensor(1).sizes[0]), state(c.tensor(2).sizes[1]) {}
};
bool by_block(const Call& c) { return has(c, 4) && c.tensor(4).ndim == 2; }
void check_causal(const Call& c) {
  const Sequences s(c);
  const TensorMeta &x = c.tensor(0), &states = c.tensor(2);
  EXPECT(s.batch > 0 && x.sizes[x.ndim - 1] == s.dim && states.sizes[2] == s.dim && s.state >= s.taps - 1, "%s: x %s, weight %s, convStates %s",
         c.name(), describe(x).c_str(), describe(c.tensor(1)).c_str(), describe(states).c_str());
  for (int i : {1, 2, 19}) expect_same_dtype(c, i, 0);
  expect_same_shape(c, 19, 0);
  if (has(c, 4)) EXPECT(c.tensor(4).sizes[0] == s.batch, "%s: cacheIndices %s for %ld sequences", c.name(), describe(c.tensor(4)).c_str(), long(s.batch));
  for (int i : {7, 8, 9, 10, 11}) {
    EXPECT(!by_block(c) || i < 9 || has(c, i), "%s: cacheIndices of blocks go with %s", c.name(), c.row->args[i].name);
    if (has(c, i)) expect_numel(c, i, s.batch);
  }
  EXPECT(c.integer(17) >= 2 || !by_block(c), "%s: blockSize %ld", c.name(), long(c.integer(17)));
  EXPECT(c.integer(18) == 0 || (c.integer(18) == 1 && has(c, 8)), "%s: convMode %ld", c.name(), long(c.integer(18)));
}

class Causal {
 public:
  explicit Causal(Run& r)
      : r_(r), s_(r.call), x_(floats(r, 0).reshape({-1, s_.dim})), weight_(floats(r, 1)), states_(r.tensor(2)), y_(empty(x_.shape(), mt::kFloat)),
        starts_(r, 3), lines_(r, 4), accepted_(r, 7), computed_(r, 8), first_(r, 9), last_(r, 10), initial_(r, 11) {}
  void run() {
    fill(y_, 0);
    for (int64_t b = 0; b < s_.batch; ++b) sequence(b);
    copy(r_.tensor(19), y_.reshape(r_.tensor(19).shape()));
  }

 private:
  int64_t line(int64_t b, const Table& block) const {
    if (!lines_.given()) return b;
    return by_block(r_.call) ? lines_[b * r_.call.tensor(4).sizes[1] + checked(block[b], r_.call.tensor(4).sizes[1])] : lines_[b];
  }
  int64_t checked(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(r_.call.name()) + ": " + std::to_string(at) + " of " + std::to_string(n));
    return at;
  }
  Value state(int64_t at) const { return states_.select(0, checked(at, states_.size(0))); }
  void sequence(int64_t b) {
    const Call& c = r_.call;
    const int64_t begin = starts_.given() && c.tensor(0).ndim == 2 ? starts_[b] : b * (x_.size(0) / s_.batch);
    const int64_t end = starts_.given() && c.tensor(0).ndim == 2 ? starts_[b + 1] : begin + x_.size(0) / s_.batch, n = end - begin, before = s_.taps - 1;
    if (n < 0 || end > x_.size(0)) checked(end, x_.size(0));
    const int64_t from = line(b, initial_), to = line(b, last_);
    if (from == c.integer(13)) return;                      // a sequence that only fills up the batch
    const bool fresh = computed_.given() && computed_[b] == 0;
    const int64_t skip = fresh ? 0 : accepted_.given() ? accepted_[b] - 1 : s_.state - before;
    checked(skip, s_.state - before + 1);
    const Value head = full({skip + before, s_.dim}, mt::kFloat, 0);
    if (!fresh) copy(head, state(from).narrow(0, 0, skip + before));
    const Value all = cat({head, x_.narrow(0, begin, n)}, 0), seen = all.narrow(0, skip, before + n).dense();
    const int64_t kept = std::min(s_.state, all.size(0));
    copy(state(to).narrow(0, s_.state - kept, kept), all.narrow(0, all.size(0) - kept, kept));
    if (by_block(c) && computed_.given()) fill_blocks(b, n, seen);
    convolve(b, begin, n, seen);
  }
  // What stands before the end of every block that became full.
  void fill_blocks(int64_t b, int64_t n, const Value& seen) {
    const int64_t size = r_.call.integer(17), before = s_.taps - 1, wide = r_.call.tensor(4).sizes[1];
    const int64_t done = size - computed_[b] % size, rest = ((n - done) % size + size) % size;
    const int64_t end = rest ? n - rest : n - size, count = last_[b] - first_[b];
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = end - (count - k - 1) * size;
      checked(at, n + 1);
      copy(state(lines_[b * wide + checked(first_[b] + k, wide)]).narrow(0, s_.state - before, before), seen.narrow(0, at, before));
    }
  }
  void convolve(int64_t b, int64_t begin, int64_t n, const Value& seen) {
    const Call& c = r_.call;
    const int64_t reset = c.integer(18) == 1 ? std::clamp<int64_t>(s_.taps - 1 - computed_[b], 0, n) : 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t d = 0; d < s_.dim; ++d) {
        float sum = 0;
        for (int64_t k = 0; i >= reset && k < s_.taps; ++k) sum += weight_.ptr<float>()[k * s_.dim + d] * seen.ptr<float>()[(i + k) * s_.dim + d];
        const int64_t at = (begin + i) * s_.dim + d;
        y_.ptr<float>()[at] = sum + (c.integer(16) ? x_.ptr<float>()[at] : 0);
      }
  }

  Run& r_;
  const Sequences s_;
  const Value x_, weight_, states_, y_;
  const Table starts_, lines_, accepted_, computed_, first_, last_, initial_;
};
void causal(Run& r) { Causal(r).run(); }

const Op ops[] = {{"aclnnFusedCausalConv1d", check_causal, causal}};

}  // namespace
}  // namespace cann_sim
