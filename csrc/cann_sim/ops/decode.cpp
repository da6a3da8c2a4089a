// Steps of decoding: the positions and slots of the next tokens, logits of the best tokens, and the token that is drawn from them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/result.h"

namespace cann_sim {
namespace {

Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }
Value optional(Run& r, int i) { return r.tensor(i).given() ? floats(r, i) : Value(); }
Value whole(Run& r, int i) { return r.tensor(i).given() ? r.tensor(i).to(mt::kInt64).dense() : Value(); }

// ---- aclnnAdvanceStep(tokens, sampled, positions, lengths, slots, tables, numSeqs, numQueries, blockSize) --------------
// Where a place of sequence i lies. A card does not see that a sequence has fewer blocks, and reads those of the next one.
int64_t slot(const Call& c, const Value& table, int64_t i, int64_t place) {
  const int64_t size = c.integer(argument(c, {"blockSize"})), at = i * table.size(1) + place / size;
  if (place < 0 || at >= table.numel()) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": a sequence is longer than its blocks");
  return table.ptr<int64_t>()[at] * size + place % size;
}
void check_advance(const Call& c) {
  const int64_t n = c.integer(7);
  EXPECT(n >= 0 && n <= c.integer(6) && c.integer(8) > 0, "%s: %ld of %ld sequences in blocks of %ld", c.name(), n, c.integer(6),
         c.integer(8));
  for (int i : {0, 1, 2, 3, 4})
    EXPECT(c.tensor(i).numel() >= n, "%s: %s %s for %ld sequences", c.name(), c.row->args[i].name,
           describe(c.tensor(i)).c_str(), n);
  EXPECT(c.tensor(5).sizes[0] >= n, "%s: blockTables %s for %ld sequences", c.name(), describe(c.tensor(5)).c_str(), n);
}
void advance(Run& r) {
  int64_t* at[5];
  for (int i = 0; i < 5; ++i) at[i] = r.tensor(i).ptr<int64_t>();
  const Value table = r.tensor(5);
  for (int64_t i = 0; i < r.call.integer(7); ++i) {
    const int64_t place = at[3][i];
    at[4][i] = slot(r.call, table, i, place);
    at[0][i] = at[1][i];
    at[2][i] = place;
    at[3][i] = place + 1;
  }
}
// V2, with guessed tokens: (tokens, sampled, positions, lengths, slots, tables, specToken, acceptedNum, numSeqs, numQueries, blockSize).
// Every sequence has 1 + guesses tokens: the last that was sampled, where -1 ends a row, and its guesses.
void check_guesses(const Call& c) {
  if (!c.given(6) || !c.given(7)) refuse(561003, "%s without specToken and acceptedNum is not computed", c.name());
  const int64_t n = c.integer(8), width = c.tensor(6).ndim == 2 ? 1 + c.tensor(6).sizes[1] : 0;
  EXPECT(n > 0 && n == c.integer(9) && c.integer(10) > 0 && width && c.tensor(6).sizes[0] == n, "%s: %ld sequences, %ld queries, specToken %s", c.name(), n,
         c.integer(9), describe(c.tensor(6)).c_str());
  for (int i : {0, 1, 2, 3, 4}) expect_numel(c, i, n * width);
  expect_numel(c, 7, n);
  EXPECT(c.tensor(5).ndim == 2 && c.tensor(5).sizes[0] >= n, "%s: blockTables %s", c.name(), describe(c.tensor(5)).c_str());
}
void advance_guesses(Run& r) {
  int64_t* at[8];
  for (int i = 0; i < 8; ++i) at[i] = r.tensor(i).ptr<int64_t>();
  const Value table = r.tensor(5);
  const int64_t guesses = r.call.tensor(6).sizes[1], width = guesses + 1;
  for (int64_t i = 0; i < r.call.integer(8); ++i) {
    const int64_t* sampled = at[1] + i * width;
    const int64_t last = std::max<int64_t>(std::find(sampled, sampled + width, -1) - sampled, 1) - 1;
    for (int64_t j = 0; j < width; ++j) {
      const int64_t k = i * width + j, place = at[2][k] + at[7][i] + 1;
      at[4][k] = slot(r.call, table, i, place);
      at[2][k] = place;
      at[3][k] = place + 1;
      at[0][k] = j ? at[6][i * guesses + j - 1] : sampled[last];
    }
  }
}

// ---- aclnnApplyTopKTopP(logits, p?, k?, out): what is not among the best becomes -inf -----------------------------------
void check_filter(const Call& c) {
  EXPECT(c.tensor(0).ndim == 2, "%s: expected logits of 2 dims, got %s", c.name(), describe(c.tensor(0)).c_str());
  for (int i : {1, 2})
    if (c.given(i)) expect_numel(c, i, c.tensor(0).sizes[0]);
  expect_same_shape(c, 3, 0);
}
void filter(Run& r) {
  const Value x = floats(r, 0), p = optional(r, 1), k = whole(r, 2), made = full(x.shape(), mt::kFloat, -INFINITY);
  const int64_t width = x.sizes[1];
  for (int64_t row = 0; row < x.sizes[0]; ++row) {
    const float* in = x.ptr<float>() + row * width;
    std::vector<int64_t> order(static_cast<size_t>(width));
    for (int64_t i = 0; i < width; ++i) order[size_t(i)] = i;
    std::stable_sort(order.begin(), order.end(), [in](int64_t a, int64_t b) { return in[a] < in[b]; });
    int64_t first = k.given() ? std::max<int64_t>(0, width - k.ptr<int64_t>()[row]) : 0;
    while (first > 0 && first < width && in[order[size_t(first - 1)]] == in[order[size_t(first)]]) --first;  // ties stay
    double total = 0, below = 0;
    for (int64_t i = first; i < width; ++i) total += std::exp(double(in[order[size_t(i)]]) - in[order.back()]);
    for (int64_t i = first; i < width; ++i) {
      below += std::exp(double(in[order[size_t(i)]]) - in[order.back()]) / total;
      const bool drops = p.given() && below <= 1 - p.ptr<float>()[row] && i + 1 < width;
      if (!drops) made.ptr<float>()[row * width + order[size_t(i)]] = in[order[size_t(i)]];
    }
  }
  copy(r.tensor(3), made);
}

// ---- aclnnTopKTopPSample(logits, topK, topP, q?, [minPs?,] eps, isNeedLogits, topKGuess, [ksMax, inputIsLogits, isNeedSampleResult,]
//                          the token's index, the logits that remain[, their order, their probabilities in this order]) -----------
struct Sample {
  int q, min_p, eps, need, most, logits, ordered, out;
  explicit Sample(const Call& c)
      : q(argument(c, {"q"})), min_p(argument(c, {"minPs"})), eps(argument(c, {"eps"})), need(argument(c, {"isNeedLogits"})), most(argument(c, {"ksMax"})),
        logits(argument(c, {"inputIsLogits"})), ordered(argument(c, {"isNeedSampleResult"})), out(argument(c, {"logitsSelectIdx"})) {}
};
void check_sample(const Call& c) {
  const Sample at(c);
  EXPECT(c.tensor(0).ndim == 2 && c.tensor(0).sizes[1] > 0, "%s: logits %s", c.name(), describe(c.tensor(0)).c_str());
  const int64_t rows = c.tensor(0).sizes[0];
  for (int i : {1, 2, at.out}) expect_numel(c, i, rows);
  if (at.min_p >= 0 && c.given(at.min_p)) expect_numel(c, at.min_p, rows);
  if (c.given(at.q)) expect_same_shape(c, at.q, 0);
  if (c.integer(at.need)) expect_same_shape(c, at.out + 1, 0);
  if (at.ordered >= 0 && c.integer(at.ordered))
    for (int i : {at.out + 2, at.out + 3}) expect_same_shape(c, i, 0);
}
// The tokens of a row that remain, with their probabilities; the best first where k or p chooses among them.
struct Candidates {
  std::vector<int64_t> order;
  std::vector<float> p;
};
Candidates candidates(const float* x, int64_t width, int64_t k, int64_t most, float p, float min_p, bool logits) {
  Candidates made;
  made.order.resize(size_t(width));
  std::iota(made.order.begin(), made.order.end(), 0);
  const bool chooses = k >= 1 && k <= std::min(width, most);
  if (chooses || p < 1) std::stable_sort(made.order.begin(), made.order.end(), [x](int64_t a, int64_t b) { return x[a] > x[b]; });
  if (chooses) made.order.resize(size_t(k));
  float top = -INFINITY, sum = 0;
  for (int64_t i : made.order) top = std::max(top, x[i]);
  for (int64_t i : made.order) made.p.push_back(logits ? std::exp(x[i] - top) : x[i]);
  if (logits) {
    for (float s : made.p) sum += s;
    for (float& s : made.p) s /= sum;
  }
  auto keep = [&made](size_t n) { made.order.resize(n), made.p.resize(n); };
  if (p < 1) {                                               // until the tokens before reach p; at least one
    size_t n = 0;
    for (float before = 0; n < made.p.size() && (n == 0 || before < p); ++n) before += made.p[n];
    keep(n);
  }
  if (min_p > 0) {
    const float least = *std::max_element(made.p.begin(), made.p.end()) * std::min(min_p, 1.f);
    size_t n = 0;
    for (size_t i = 0; i < made.p.size(); ++i)
      if (made.p[i] >= least && (min_p < 1 || n == 0)) made.order[n] = made.order[i], made.p[n++] = made.p[i];
    keep(n);
  }
  return made;
}
void sample(Run& r) {
  const Call& c = r.call;
  const Sample at(c);
  const Value x = floats(r, 0), k = whole(r, 1), p = floats(r, 2), q = optional(r, at.q), min_p = at.min_p >= 0 ? optional(r, at.min_p) : Value();
  const bool logits = at.logits < 0 || c.integer(at.logits);
  const int64_t rows = x.sizes[0], width = x.sizes[1], most = at.most < 0 ? 1024 : c.integer(at.most);
  const Value chosen = empty({rows}, mt::kInt64), remain = full(x.shape(), mt::kFloat, logits ? -INFINITY : 0);
  const Value order = full(x.shape(), mt::kInt64, 0), probable = full(x.shape(), mt::kFloat, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x.ptr<float>() + row * width;
    const Candidates found = candidates(in, width, k.ptr<int64_t>()[row], most, p.ptr<float>()[row], min_p.given() ? min_p.ptr<float>()[row] : 0, logits);
    size_t best = 0;
    auto weight = [&](size_t i) { return q.given() ? found.p[i] / (q.ptr<float>()[row * width + int64_t(i)] + float(c.number(at.eps))) : found.p[i]; };
    for (size_t i = 0; i < found.p.size(); ++i) {
      if (weight(i) > weight(best)) best = i;
      remain.ptr<float>()[row * width + found.order[i]] = in[found.order[i]];
      order.ptr<int64_t>()[row * width + int64_t(i)] = found.order[i];
      probable.ptr<float>()[row * width + int64_t(i)] = found.p[i];
    }
    chosen.ptr<int64_t>()[row] = found.order[best];
  }
  copy(r.tensor(at.out), chosen.reshape(r.tensor(at.out).shape()));
  if (c.integer(at.need)) copy(r.tensor(at.out + 1), remain);
  if (at.ordered < 0 || !c.integer(at.ordered)) return;
  copy(r.tensor(at.out + 2), order);
  copy(r.tensor(at.out + 3), probable);
}

const Op ops[] = {
    {"aclnnAdvanceStep", check_advance, advance},
    {"aclnnAdvanceStepV2", check_guesses, advance_guesses},
    {"aclnnApplyTopKTopP", check_filter, filter},
    {"aclnnTopKTopPSample", check_sample, sample},
    {"aclnnTopKTopPSampleV2", check_sample, sample},
};

}  // namespace
}  // namespace cann_sim
