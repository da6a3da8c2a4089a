// Mixtures of experts over a group: tokens to the ranks of their experts and back, and barriers.
// What dispatch writes for combine is private to the pair on a card; here combine reads the counts only.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/group.h"

namespace cann_sim {
namespace {

struct Experts {
  int ids, mask, group, ranks, rank, count, shared_ranks, tp_ranks, zero, copied, constant;
  explicit Experts(const Call& c)
      : ids(argument(c, {"expertIds"})), mask(argument(c, {"xActiveMaskOptional", "xActiveMask"})), group(argument(c, {"groupEp"})),
        ranks(argument(c, {"epWorldSize"})), rank(argument(c, {"epRankId"})), count(argument(c, {"moeExpertNum"})),
        shared_ranks(argument(c, {"sharedExpertRankNum"})), tp_ranks(argument(c, {"tpWorldSize"})), zero(argument(c, {"zeroExpertNum"})),
        copied(argument(c, {"copyExpertNum"})), constant(argument(c, {"constExpertNum"})) {}
  int64_t local(const Call& c) const { return c.integer(count) / c.integer(ranks); }
};
void expect_experts(const Call& c, const Experts& at) {
  expect_group(c, at.group, c.integer(at.ranks));
  EXPECT(find_group(c.string(at.group))->rank() == c.integer(at.rank), "%s: epRankId is %ld, this is rank %u", c.name(), long(c.integer(at.rank)),
         find_group(c.string(at.group))->rank());
  EXPECT(c.integer(at.count) > 0 && c.integer(at.count) % c.integer(at.ranks) == 0, "%s: %ld experts do not split over %ld ranks", c.name(),
         long(c.integer(at.count)), long(c.integer(at.ranks)));
  if (c.integer(at.shared_ranks) || c.integer(at.tp_ranks) > 1) refuse(561003, "%s with ranks of shared experts or a tensor parallel group is not computed", c.name());
  if (at.constant >= 0 && c.integer(at.constant)) refuse(561003, "%s with constant experts is not computed", c.name());
  const int elastic = argument(c, {"elasticInfoOptional"});
  if (has(c, elastic)) refuse(561003, "%s with elasticInfo is not computed", c.name());
  EXPECT(c.tensor(at.ids).ndim == 2, "%s: expertIds %s has no 2 dims", c.name(), describe(c.tensor(at.ids)).c_str());
}
struct Choice {
  int64_t token, k;
};
// The choices of this rank's tokens by the expert that was chosen, in the order of the tokens. Both ops find the same.
std::vector<std::vector<Choice>> choices(Run& r, const Experts& at) {
  const Value ids = r.tensor(at.ids).to(mt::kInt64).dense(), mask = has(r.call, at.mask) ? r.tensor(at.mask).to(mt::kBool).dense() : Value();
  std::vector<std::vector<Choice>> found(size_t(r.call.integer(at.count)));
  const int64_t tokens = ids.size(0), k = ids.size(1);
  for (int64_t i = 0; i < tokens * k; ++i) {
    if (mask.given() && !mask.ptr<bool>()[mask.ndim == 1 ? i / k : i]) continue;
    const int64_t expert = ids.ptr<int64_t>()[i];
    if (expert >= 0 && expert < int64_t(found.size())) found[size_t(expert)].push_back({i / k, i % k});
  }
  return found;
}
// Every rank's counts for this rank's experts: [rank][local expert].
std::vector<Value> exchanged_counts(Run& r, Group& group, const std::vector<std::vector<Choice>>& chosen, int64_t local) {
  std::vector<Value> send;
  for (uint32_t k = 0; k < group.size(); ++k) {
    send.push_back(empty({local}, mt::kInt64));
    for (int64_t e = 0; e < local; ++e) send.back().ptr<int64_t>()[e] = int64_t(chosen[size_t(k * local + e)].size());
  }
  return all_to_all(r, group, send, std::vector<Sizes>(group.size(), {local}));
}
int64_t sum_of(const Value& counts) {
  int64_t sum = 0;
  for (int64_t e = 0, n = counts.numel(); e < n; ++e) sum += counts.ptr<int64_t>()[e];
  return sum;
}

// ---- dispatch ------------------------------------------------------------------------------------------------------------------
struct Dispatch {
  int x, scales, weights, mode, numbers, y, found, token_counts, received, weights_out;
  explicit Dispatch(const Call& c)
      : x(argument(c, {"x"})), scales(argument(c, {"scalesOptional", "scales"})), weights(argument(c, {"expertScalesOptional", "expertScales"})),
        mode(argument(c, {"quantMode"})), numbers(argument(c, {"expertTokenNumsType"})), y(argument(c, {"expandXOut", "expandX"})),
        found(argument(c, {"dynamicScalesOut", "dynamicScales"})), token_counts(argument(c, {"expertTokenNumsOut", "expertTokenNums"})),
        received(argument(c, {"epRecvCountsOut", "epRecvCounts"})), weights_out(argument(c, {"expandScalesOut", "expandScales"})) {}
};
void check_dispatch(const Call& c) {
  const Experts experts(c);
  const Dispatch at(c);
  expect_experts(c, experts);
  const TensorMeta& x = c.tensor(at.x);
  EXPECT(x.ndim == 2 && c.tensor(experts.ids).sizes[0] == x.sizes[0], "%s: x %s does not fit expertIds", c.name(), describe(x).c_str());
  const int64_t mode = c.integer(at.mode);
  if (mode != 0 && mode != 1 && mode != 2) refuse(561003, "%s with quantMode %ld is not computed", c.name(), long(mode));
  EXPECT(c.tensor(at.y).dtype == (mode ? ACL_INT8 : x.dtype), "%s: expandX is %s", c.name(), describe(c.tensor(at.y)).c_str());
  EXPECT(c.tensor(at.y).ndim == 2 && c.tensor(at.y).sizes[1] == x.sizes[1], "%s: expandX is %s", c.name(), describe(c.tensor(at.y)).c_str());
  if (has(c, at.scales)) EXPECT(c.tensor(at.scales).numel() == x.sizes[1] * c.integer(experts.count) || c.tensor(at.scales).numel() == x.sizes[1] || c.tensor(at.scales).numel() == 1,
                                "%s: scales %s do not fit", c.name(), describe(c.tensor(at.scales)).c_str());
  EXPECT(mode != 1 || has(c, at.scales), "%s: quantMode 1 needs scales", c.name());
  expect_numel(c, at.token_counts, experts.local(c));
  EXPECT(c.tensor(at.received).numel() >= c.integer(experts.count), "%s: epRecvCounts %s is too small", c.name(), describe(c.tensor(at.received)).c_str());
}
// A row as it travels: its items, quantised or not, then the scale that was found for it, then the token's weight.
void quantise(float* row, int64_t width, const Value& scales, int64_t expert, int64_t mode) {
  if (!mode) return;
  const int64_t each = scales.given() && scales.numel() > 1 ? width : 1;
  const float* by = scales.given() ? scales.ptr<float>() + (scales.numel() > width ? expert * width : 0) : nullptr;
  float largest = 0;
  for (int64_t k = 0; k < width; ++k) {
    if (by) row[k] *= by[each > 1 ? k : 0];
    largest = std::max(largest, std::fabs(row[k]));
  }
  const float scale = mode == 2 ? (largest > 0 ? largest / 127 : 1) : 1;
  for (int64_t k = 0; k < width; ++k) row[k] = std::min(std::max(std::nearbyint(row[k] / scale), -128.f), 127.f);
  row[width] = scale;
}
std::vector<Value> rows_to_send(Run& r, const Experts& experts, const Dispatch& at, const std::vector<std::vector<Choice>>& chosen) {
  const Call& c = r.call;
  const Value x = r.tensor(at.x).to(mt::kFloat).dense(), scales = has(c, at.scales) ? r.tensor(at.scales).to(mt::kFloat).dense() : Value();
  const Value weights = has(c, at.weights) ? r.tensor(at.weights).to(mt::kFloat).dense() : Value();
  const int64_t width = x.size(1), local = experts.local(c), each = c.tensor(experts.ids).sizes[1];
  std::vector<Value> send;
  for (int64_t rank = 0; rank < c.integer(experts.ranks); ++rank) {
    int64_t n = 0;
    for (int64_t e = 0; e < local; ++e) n += int64_t(chosen[size_t(rank * local + e)].size());
    send.push_back(empty({n, width + 2}, mt::kFloat));
    float* row = send.back().ptr<float>();
    for (int64_t e = rank * local; e < (rank + 1) * local; ++e)
      for (const Choice& choice : chosen[size_t(e)]) {
        std::copy_n(x.ptr<float>() + choice.token * width, width, row);
        row[width] = 1;
        row[width + 1] = weights.given() ? weights.ptr<float>()[choice.token * each + choice.k] : 1;
        quantise(row, width, scales, e, c.integer(at.mode));
        row += width + 2;
      }
  }
  return send;
}
void run_dispatch(Run& r) {
  const Call& c = r.call;
  const Experts experts(c);
  const Dispatch at(c);
  const std::shared_ptr<Group> group = group_of(r, experts.group);
  const auto chosen = choices(r, experts);
  const int64_t local = experts.local(c), width = c.tensor(at.x).sizes[1], ranks = group->size();
  const std::vector<Value> counts = exchanged_counts(r, *group, chosen, local);
  std::vector<Sizes> sizes;
  for (const Value& count : counts) sizes.push_back({sum_of(count), width + 2});
  const std::vector<Value> parts = all_to_all(r, *group, rows_to_send(r, experts, at, chosen), sizes);
  const Value y = r.tensor(at.y), token_counts = empty({local}, mt::kInt64), received = full({c.tensor(at.received).numel()}, mt::kInt32, 0);
  std::vector<int64_t> next(size_t(ranks), 0);
  int64_t row = 0;
  for (int64_t e = 0; e < local; ++e) {
    const int64_t before = row;
    for (int64_t k = 0; k < ranks; ++k) {
      const int64_t n = counts[size_t(k)].ptr<int64_t>()[e];
      received.ptr<int32_t>()[e * ranks + k] = int32_t(n);
      if (row + n > y.size(0)) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": expandX has too few rows");
      const Value part = parts[size_t(k)].narrow(0, next[size_t(k)], n);
      if (n) {
        copy(y.narrow(0, row, n), part.narrow(1, 0, width));
        if (c.integer(at.mode) == 2 && has(c, at.found)) copy(r.tensor(at.found).narrow(0, row, n), part.select(1, width));
        if (has(c, at.weights_out) && c.tensor(at.weights_out).numel() >= row + n) copy(r.tensor(at.weights_out).narrow(0, row, n), part.select(1, width + 1));
      }
      next[size_t(k)] += n;
      row += n;
    }
    token_counts.ptr<int64_t>()[e] = c.integer(at.numbers) ? row - before : row;  // counts, or ends
  }
  copy(r.tensor(at.token_counts), token_counts.reshape(r.tensor(at.token_counts).shape()));
  copy(r.tensor(at.received), received.reshape(r.tensor(at.received).shape()));
}

// ---- combine -------------------------------------------------------------------------------------------------------------------------
struct Combine {
  int x, counts, weights, shared, original, residual, gamma, epsilon, quant, out, norm, rstd;
  explicit Combine(const Call& c)
      : x(argument(c, {"expandX"})), counts(argument(c, {"epSendCounts"})), weights(argument(c, {"expertScales"})), shared(argument(c, {"sharedExpertXOptional"})),
        original(argument(c, {"oriXOptional"})), residual(argument(c, {"residualX"})), gamma(argument(c, {"gamma"})), epsilon(argument(c, {"normEps"})),
        quant(argument(c, {"commQuantMode"})), out(argument(c, {"xOut", "x"})), norm(argument(c, {"yOut"})), rstd(argument(c, {"rstdOut"})) {}
};
void check_combine(const Call& c) {
  const Experts experts(c);
  const Combine at(c);
  expect_experts(c, experts);
  const TensorMeta& ids = c.tensor(experts.ids);
  if (has(c, at.shared)) refuse(561003, "%s with sharedExpertX is not computed", c.name());
  if (at.quant >= 0 && c.integer(at.quant)) refuse(561003, "%s with commQuantMode %ld is not computed", c.name(), long(c.integer(at.quant)));
  EXPECT(c.tensor(at.counts).numel() >= c.integer(experts.count), "%s: epSendCounts %s is too small", c.name(), describe(c.tensor(at.counts)).c_str());
  expect_same_shape(c, at.weights, experts.ids);
  const int64_t width = c.tensor(at.x).sizes[c.tensor(at.x).ndim - 1];
  expect_numel(c, at.out, ids.sizes[0] * width);
  EXPECT(experts.copied < 0 || !c.integer(experts.copied) || has(c, at.original), "%s: experts that copy need oriX", c.name());
  if (at.residual >= 0) {
    expect_numel(c, at.residual, ids.sizes[0] * width);
    expect_numel(c, at.gamma, width);
    expect_numel(c, at.norm, ids.sizes[0] * width);
    if (has(c, at.rstd)) expect_numel(c, at.rstd, ids.sizes[0]);
  }
}
Value combined(Run& r, const Experts& experts, const Combine& at) {
  const Call& c = r.call;
  const std::shared_ptr<Group> group = group_of(r, experts.group);
  const Value x = r.tensor(at.x), counts = r.tensor(at.counts).to(mt::kInt64).reshape({-1}).dense(), weights = r.tensor(at.weights).to(mt::kFloat).dense();
  const int64_t local = experts.local(c), ranks = group->size(), width = x.size(-1), tokens = c.tensor(experts.ids).sizes[0], each = c.tensor(experts.ids).sizes[1];
  std::vector<std::vector<Value>> back(size_t(ranks), {empty({0, width}, mt::kFloat)});
  int64_t row = 0;
  for (int64_t e = 0; e < local; ++e)
    for (int64_t k = 0; k < ranks; ++k) {
      const int64_t n = counts.ptr<int64_t>()[e * ranks + k];
      back[size_t(k)].push_back(x.narrow(0, row, n).to(mt::kFloat));
      row += n;
    }
  const auto chosen = choices(r, experts);
  std::vector<Value> send;
  std::vector<Sizes> sizes;
  for (int64_t k = 0; k < ranks; ++k) {
    send.push_back(cat(back[size_t(k)], 0));
    int64_t n = 0;
    for (int64_t e = 0; e < local; ++e) n += int64_t(chosen[size_t(k * local + e)].size());
    sizes.push_back({n, width});
  }
  const std::vector<Value> parts = all_to_all(r, *group, send, sizes);
  const Value y = full({tokens, width}, mt::kFloat, 0);
  auto add = [&](int64_t token, int64_t k, const float* from) {
    for (int64_t i = 0; i < width; ++i) y.ptr<float>()[token * width + i] += weights.ptr<float>()[token * each + k] * from[i];
  };
  for (int64_t k = 0; k < ranks; ++k) {
    const float* from = parts[size_t(k)].ptr<float>();
    for (int64_t e = k * local; e < (k + 1) * local; ++e)
      for (const Choice& choice : chosen[size_t(e)]) add(choice.token, choice.k, from), from += width;
  }
  if (experts.copied < 0 || !c.integer(experts.copied)) return y;
  const Value ids = r.tensor(experts.ids).to(mt::kInt64).dense(), original = r.tensor(at.original).to(mt::kFloat).dense();
  const int64_t first = c.integer(experts.count) + c.integer(experts.zero), end = first + c.integer(experts.copied);
  for (int64_t i = 0; i < tokens * each; ++i)
    if (ids.ptr<int64_t>()[i] >= first && ids.ptr<int64_t>()[i] < end) add(i / each, i % each, original.ptr<float>() + i / each * width);
  return y;
}
void run_combine(Run& r) {
  const Combine at(r.call);
  const Value out = r.tensor(at.out);
  copy(out, combined(r, Experts(r.call), at).reshape(out.shape()));
}
void run_combine_norm(Run& r) {  // x = combined + residual; y = x / rms(x) * gamma
  const Combine at(r.call);
  const Value y = combined(r, Experts(r.call), at), residual = r.tensor(at.residual).to(mt::kFloat).dense(), gamma = r.tensor(at.gamma).to(mt::kFloat).dense();
  const int64_t width = y.size(1), rows = y.size(0);
  const Value norm = empty(y.shape(), mt::kFloat), rstd = empty({rows}, mt::kFloat), out = r.tensor(at.out);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = y.ptr<float>() + i * width;
    double square = 0;
    for (int64_t k = 0; k < width; ++k) row[k] += residual.ptr<float>()[i * width + k], square += double(row[k]) * row[k] / double(width);
    rstd.ptr<float>()[i] = float(1 / std::sqrt(square + r.call.number(at.epsilon)));
    for (int64_t k = 0; k < width; ++k) norm.ptr<float>()[i * width + k] = row[k] * rstd.ptr<float>()[i] * gamma.ptr<float>()[k];
  }
  copy(out, y.reshape(out.shape()));
  copy(r.tensor(at.norm), norm.reshape(r.tensor(at.norm).shape()));
  if (has(r.call, at.rstd)) copy(r.tensor(at.rstd), rstd.reshape(r.tensor(at.rstd).shape()));
}

// ---- barriers ------------------------------------------------------------------------------------------------------------------------
void check_barrier(const Call& c) { expect_group(c, argument(c, {"group"}), c.integer(argument(c, {"worldSize"}))); }
void run_barrier(Run& r) { barrier(r, *group_of(r, argument(r.call, {"group"}))); }
// (elasticInfo, groupEp, epWorldSize, needSync): nothing is kept between ops here, so only the barrier is left.
void check_reset(const Call& c) { expect_group(c, 1, c.integer(2)); }
void run_reset(Run& r) {
  if (r.call.integer(3)) barrier(r, *group_of(r, 1));
}

const Op ops[] = {
    {"aclnnMoeDistributeDispatch", check_dispatch, run_dispatch},
    {"aclnnMoeDistributeDispatchV2", check_dispatch, run_dispatch},
    {"aclnnMoeDistributeDispatchV3", check_dispatch, run_dispatch},
    {"aclnnMoeDistributeCombine", check_combine, run_combine},
    {"aclnnMoeDistributeCombineV2", check_combine, run_combine},
    {"aclnnMoeDistributeCombineV3", check_combine, run_combine},
    {"aclnnMoeDistributeCombineAddRmsNorm", check_combine, run_combine_norm},
    {"aclnnMoeDistributeCombineAddRmsNormV2", check_combine, run_combine_norm},
    {"aclnnMoeDistributeBufferReset", check_reset, run_reset},
    {"aclnnDistributeBarrier", check_barrier, run_barrier},
    {"aclnnDistributeBarrierV2", check_barrier, run_barrier},
};

}  // namespace
}  // namespace cann_sim
