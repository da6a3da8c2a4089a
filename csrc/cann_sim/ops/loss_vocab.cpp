// Cross entropy over a vocabulary that is split over ranks: the parts that a rank computes between the reductions.
#include <algorithm>
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return c.given(i) && c.tensor(i).numel(); }
Value wide(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }
Value logits_of(const Value& input, const Value& weight) {  // [rows, vocabulary]
  const Value made = empty({input.size(0), weight.size(0)}, mt::kFloat);
  call_kernel("matmul", {made, input.to(mt::kFloat), weight.to(mt::kFloat).transpose(0, 1)});
  return made;
}

// (logits [..., V], target, max, first, end, predicted, sum, exp, offset, mask): the maximum is that of all ranks.
void check_index_logit(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0));
  EXPECT(x.size() > 1 && c.integer(4) - c.integer(3) == x.back(), "%s: [%ld, %ld) is not the last dim of %s", c.name(), long(c.integer(3)), long(c.integer(4)),
         describe(c.tensor(0)).c_str());
  const Sizes rows(x.begin(), x.end() - 1);
  for (int i : {1, 2, 5, 6, 8, 9}) expect_shape(c, i, rows);
  expect_same_shape(c, 7, 0);
}
void run_index_logit(Run& r) {
  const Value x = wide(r, 0), target = index_value(r, 1).dense(), max = wide(r, 2), exps = empty(x.shape(), mt::kFloat);
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0, first = r.call.integer(3), end = r.call.integer(4);
  const Value predicted = empty({rows}, mt::kFloat), sums = full({rows}, mt::kFloat, 0), offset = empty({rows}, mt::kInt32), mask = empty({rows}, mt::kInt32);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t t = target.ptr<int64_t>()[i];
    const bool elsewhere = t < first || t >= end;
    for (int64_t k = 0; k < width; ++k)
      sums.ptr<float>()[i] += exps.ptr<float>()[i * width + k] = std::exp(x.ptr<float>()[i * width + k] - max.ptr<float>()[i]);
    mask.ptr<int32_t>()[i] = elsewhere;
    offset.ptr<int32_t>()[i] = elsewhere ? 0 : int32_t(t - first);
    predicted.ptr<float>()[i] = elsewhere ? 0 : x.ptr<float>()[i * width + t - first] - max.ptr<float>()[i];
  }
  const Value* made[] = {&predicted, &sums, &exps, &offset, &mask};
  for (int i = 0; i < 5; ++i) copy(r.tensor(5 + i), made[i]->reshape(r.tensor(5 + i).shape()));
}

// ---- the target's mask in bits: those of eight rows in a byte, the first in the highest; rows that are not there have ones ------------
uint8_t mask_bit(const uint8_t* bytes, int64_t row) { return bytes[row / 8] >> (7 - row % 8) & 1; }

// (input, weight, target, first, last, max, sum, predicted, mask, maskedTarget, logits?): the maximum is that of this rank.
void check_online(const Call& c) {
  const TensorMeta &x = c.tensor(0), &w = c.tensor(1);
  EXPECT(x.ndim == 2 && w.ndim == 2 && x.sizes[1] == w.sizes[1], "%s: input %s and weight %s cannot be multiplied", c.name(), describe(x).c_str(), describe(w).c_str());
  EXPECT(c.integer(3) >= 0 && c.integer(4) >= c.integer(3) && c.integer(4) - c.integer(3) < w.sizes[0], "%s: [%ld, %ld] is not a part of the vocabulary", c.name(),
         long(c.integer(3)), long(c.integer(4)));
  for (int i : {2, 5, 6, 7, 9}) expect_shape(c, i, {x.sizes[0]});
  expect_shape(c, 8, {(x.sizes[0] + 7) / 8});
  if (has(c, 10)) expect_shape(c, 10, {x.sizes[0], w.sizes[0]});
}
void run_online(Run& r) {
  const Value x = logits_of(r.tensor(0), r.tensor(1)), target = index_value(r, 2).dense();
  const int64_t rows = x.size(0), width = x.size(1), first = r.call.integer(3), last = r.call.integer(4);
  const Value max = empty({rows}, mt::kFloat), sum = full({rows}, mt::kFloat, 0), predicted = empty({rows}, mt::kFloat), masked = empty({rows}, mt::kInt64);
  const Value bits = full({(rows + 7) / 8}, mt::kUInt8, 255);
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x.ptr<float>() + i * width;
    const int64_t t = target.ptr<int64_t>()[i];
    const bool elsewhere = t < first || t > last;
    const float most = max.ptr<float>()[i] = *std::max_element(row, row + width);
    for (int64_t k = 0; k < width; ++k) sum.ptr<float>()[i] += std::exp(row[k] - most);
    predicted.ptr<float>()[i] = elsewhere ? 0 : row[t - first] - most;
    masked.ptr<int64_t>()[i] = elsewhere ? 0 : t - first;
    if (!elsewhere) bits.ptr<uint8_t>()[i / 8] &= uint8_t(~(128u >> i % 8));
  }
  const Value* made[] = {&max, &sum, &predicted, &bits, &masked};
  for (int i = 0; i < 5; ++i) copy(r.tensor(5 + i), *made[i]);
  if (has(r.call, 10)) copy(r.tensor(10), x);
}

// exp(logits - max) / sum, of the logits or of what they are made of.
Value softmax_of(const Value& logits, const Value& max, const Value& sum) {
  const Value made = empty(logits.shape(), mt::kFloat);
  const int64_t width = logits.size(1);
  for (int64_t k = 0, n = logits.numel(); k < n; ++k)
    made.ptr<float>()[k] = std::exp(logits.ptr<float>()[k] - max.ptr<float>()[k / width]) / sum.ptr<float>()[k / width];
  return made;
}
// (max, sum, predicted, labelSmoothing, input?, weight?, logits?, loss, softmax?)
void check_with_max(const Call& c) {
  const int64_t rows = c.tensor(0).numel();
  EXPECT(c.number(3) == 0, "%s: labelSmoothing %g is not 0", c.name(), c.number(3));
  for (int i : {1, 2, 7}) expect_numel(c, i, rows);
  if (has(c, 8)) EXPECT(has(c, 6) && sizes_of(c.tensor(6)) == sizes_of(c.tensor(8)) && c.tensor(6).sizes[0] == rows, "%s: the softmax needs the logits", c.name());
}
void run_with_max(Run& r) {
  const Value max = wide(r, 0), sum = wide(r, 1), predicted = wide(r, 2), loss = empty({max.numel()}, mt::kFloat);
  for (int64_t i = 0, n = max.numel(); i < n; ++i) loss.ptr<float>()[i] = std::log(sum.ptr<float>()[i]) - predicted.ptr<float>()[i];
  copy(r.tensor(7), loss.reshape(r.tensor(7).shape()));
  if (has(r.call, 8)) copy(r.tensor(8), softmax_of(wide(r, 6), max, sum));
}

// (grad, input, weight, targetMask, maskedTarget, labelSmoothing, max?, sum?, softmax?, inputGrad, weightGrad)
void check_linear_grad(const Call& c) {
  const TensorMeta &x = c.tensor(1), &w = c.tensor(2);
  EXPECT(x.ndim == 2 && w.ndim == 2 && x.sizes[1] == w.sizes[1], "%s: input %s and weight %s cannot be multiplied", c.name(), describe(x).c_str(), describe(w).c_str());
  EXPECT(c.number(5) == 0, "%s: labelSmoothing %g is not 0", c.name(), c.number(5));
  for (int i : {0, 4}) expect_numel(c, i, x.sizes[0]);
  expect_numel(c, 3, (x.sizes[0] + 7) / 8);
  EXPECT(has(c, 8) || (has(c, 6) && has(c, 7)), "%s: softmax, or both logitsMax and sumExpLogits, are needed", c.name());
  if (has(c, 8)) expect_shape(c, 8, {x.sizes[0], w.sizes[0]});
  expect_same_shape(c, 9, 1);
  expect_same_shape(c, 10, 2);
}
void run_linear_grad(Run& r) {
  const Value grad = wide(r, 0), x = wide(r, 1), w = wide(r, 2), mask = r.tensor(3).dense(), target = index_value(r, 4).dense();
  const Value slope = empty({x.size(0), w.size(0)}, mt::kFloat);
  copy(slope, has(r.call, 8) ? wide(r, 8) : softmax_of(logits_of(x, w), wide(r, 6), wide(r, 7)));
  const int64_t width = w.size(0);
  for (int64_t i = 0; i < x.size(0); ++i) {
    if (!mask_bit(mask.ptr<uint8_t>(), i)) slope.ptr<float>()[i * width + target.ptr<int64_t>()[i]] -= 1;
    for (int64_t k = 0; k < width; ++k) slope.ptr<float>()[i * width + k] *= grad.ptr<float>()[i];
  }
  const Value dx = empty(x.shape(), mt::kFloat), dw = empty(w.shape(), mt::kFloat);
  call_kernel("matmul", {dx, slope, w});
  call_kernel("matmul", {dw, slope.transpose(0, 1), x});
  copy(r.tensor(9), dx);
  copy(r.tensor(10), dw);
}

const Op ops[] = {
    {"aclnnCrossEntropySumExpAndIndexLogit", check_index_logit, run_index_logit},
    {"aclnnFusedLinearOnlineMaxSum", check_online, run_online},
    {"aclnnFusedCrossEntropyLossWithMaxSum", check_with_max, run_with_max},
    {"aclnnFusedLinearCrossEntropyLossGrad", check_linear_grad, run_linear_grad},
};

}  // namespace
}  // namespace cann_sim
