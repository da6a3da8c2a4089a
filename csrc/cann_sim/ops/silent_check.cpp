// Checks of gradients' norms for silent faults of the hardware: thresholds, and what is remembered from step to step.
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

enum Level { sound = 0, warning = 2, error = 1 };

float item_of(const Value& v, int64_t i = 0) { return v.to(mt::kFloat).dense().ptr<float>()[i]; }
// What a finding does: an error in a mode that stops sets the gradient to zero, else the memory is brought up to date.
void conclude(Run& r, int gradient, int result, Level found, bool stops) {
  fill(r.tensor(result), found);
  if (found == error && stops) fill(r.tensor(gradient), 0);
}
void count_step(Run& r, int step) { call_pointwise("add", mt::kInt64, {r.tensor(step), r.tensor(step), full({}, mt::kInt64, 1)}, {integer(1)}); }

// ---- aclnnSilentCheck(val, inputGrad, sfda [the last val, the least, the most], step, cMinSteps, cThreshL1, cCoeffL1, cThreshL2,
// cCoeffL2, npuAsdDetect, result): beyond a threshold, or a jump of more than a share of the range so far
void check_first(const Call& c) {
  EXPECT(c.tensor(0).numel() == 1, "val %s", describe(c.tensor(0)).c_str());
  expect_numel(c, 2, 3);
  expect_numel(c, 3, 1);
  expect_numel(c, 10, 1);
}
void first(Run& r) {
  const Call& c = r.call;
  const Value seen = r.tensor(2);
  const float val = item_of(r.tensor(0)), last = item_of(seen, 0), least = item_of(seen, 1), most = item_of(seen, 2);
  const int64_t step = r.tensor(3).to(mt::kInt64).ptr<int64_t>()[0];
  const bool jumps = step >= c.integer(4);
  const double range = double(most) - least, jump = std::fabs(double(val) - last);
  auto beyond = [&](double threshold, double share) { return !std::isfinite(val) || val > threshold || (jumps && jump > share * range); };
  const Level found = beyond(c.number(5), c.number(6)) ? error : beyond(c.number(7), c.number(8)) ? warning : sound;
  const bool stops = c.integer(9) == 2 && found == error;
  conclude(r, 1, 10, found, stops);
  if (stops || !std::isfinite(val)) return;
  const float next[] = {val, step ? std::fmin(least, val) : val, step ? std::fmax(most, val) : val};
  for (int64_t i = 0; i < 3; ++i) fill(seen.reshape({3}).select(0, i), next[i]);
  count_step(r, 3);
}

// ---- aclnnSilentCheckV2(val, max, avg, inputGrad, step, sizes, strides and offset of the gradient, cThreshL1, cThreshL2, beta1,
// npuAsdDetect, result): val against a moving average that is corrected for its first steps; max is not read
void check_second(const Call& c) {
  for (int i : {0, 1, 2, 4, 12}) expect_numel(c, i, 1);
  EXPECT(c.number(10) >= 0 && c.number(10) <= 1, "%s: beta1 %g is not between 0 and 1", c.name(), c.number(10));
}
void second(Run& r) {
  const Call& c = r.call;
  const Value average = r.tensor(2);
  const double val = item_of(r.tensor(0)), beta = c.number(10), mean = item_of(average);
  const int64_t step = r.tensor(4).to(mt::kInt64).ptr<int64_t>()[0];
  const double expected = step ? mean / (1 - std::pow(beta, double(step))) : mean;
  auto beyond = [&](double threshold) { return !std::isfinite(val) || val > expected * threshold; };
  const Level found = beyond(c.number(8)) ? error : beyond(c.number(9)) ? warning : sound;
  const bool stops = c.integer(11) != 1 && found == error;
  conclude(r, 3, 12, found, stops);
  if (stops || !std::isfinite(val)) return;
  fill(average, mean * beta + val * (1 - beta));
  count_step(r, 4);
}

const Op ops[] = {{"aclnnSilentCheck", check_first, first}, {"aclnnSilentCheckV2", check_second, second}};

}  // namespace
}  // namespace cann_sim
