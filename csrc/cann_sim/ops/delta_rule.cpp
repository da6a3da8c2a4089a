// Linear attention: the gated delta rule over whole sequences or their newest tokens, and the causal convolution before it.
#include <cmath>
#include <string>

#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return has(r.call, i) ? r.tensor(i).to(mt::kFloat).dense() : Value(); }
Value whole(Run& r, int i) { return has(r.call, i) ? r.tensor(i).to(mt::kInt64).dense() : Value(); }
[[noreturn]] void fault(const Call& c, const std::string& what) {
  throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": " + what);
}

// ---- one token of one head: state [depth of values, depth of keys] -----------------------------------------------------
// The state decays by exp(g) and, per key item, exp(gk); then it learns beta (v - state k) k^T, and gives state q.
struct Rule {
  Value q, k, v, beta, g, gk;  // [tokens, heads, depth], [tokens, heads]; g and gk may be absent
  float scale;
  int64_t values() const { return v.size(2); }
  int64_t keys() const { return k.size(2); }
  void step(float* state, int64_t t, int64_t h, float* out) const {
    const int64_t heads = v.size(1), shared = h / (heads / k.size(1)), dv = values(), dk = keys();
    const float *query = q.ptr<float>() + (t * k.size(1) + shared) * dk, *key = k.ptr<float>() + (t * k.size(1) + shared) * dk;
    const float decay = g.given() ? std::exp(g.ptr<float>()[t * heads + h]) : 1;
    for (int64_t i = 0; i < dv; ++i) {
      float found = 0, seen = 0, *row = state + i * dk;
      for (int64_t j = 0; j < dk; ++j) {
        row[j] *= decay * (gk.given() ? std::exp(gk.ptr<float>()[(t * heads + h) * dk + j]) : 1);
        found += row[j] * key[j];
      }
      const float step = beta.ptr<float>()[t * heads + h] * (v.ptr<float>()[(t * heads + h) * dv + i] - found);
      for (int64_t j = 0; j < dk; ++j) {
        row[j] += step * key[j];
        seen += row[j] * query[j];
      }
      out[(t * heads + h) * dv + i] = seen * scale;
    }
  }
};
void check_rule(const Call& c, int state, int64_t states, int out, int g, int gk) {
  const TensorMeta &q = c.tensor(0), &k = c.tensor(1), &v = c.tensor(2);
  expect_same_shape(c, 0, 1);
  EXPECT(q.sizes[0] == v.sizes[0] && k.sizes[1] > 0 && v.sizes[1] % k.sizes[1] == 0, "%s: key %s and value %s", c.name(),
         describe(k).c_str(), describe(v).c_str());
  expect_shape(c, 3, {v.sizes[0], v.sizes[1]});
  expect_shape(c, state, {states, v.sizes[1], v.sizes[2], k.sizes[2]});
  expect_same_shape(c, out, 2);
  if (c.given(g)) expect_shape(c, g, {v.sizes[0], v.sizes[1]});
  if (gk >= 0 && c.given(gk)) expect_shape(c, gk, {v.sizes[0], v.sizes[1], k.sizes[2]});
}

// ---- aclnnChunkGatedDeltaRule(query, key, value, beta, initialState, actualSeqLengths, g?, scale, out, finalState) ---------
void check_chunk(const Call& c) {
  check_rule(c, 4, c.tensor(5).numel(), 8, 6, -1);
  expect_same_shape(c, 9, 4);
}
void chunk(Run& r) {
  const Rule rule{floats(r, 0), floats(r, 1), floats(r, 2), floats(r, 3), floats(r, 6), Value(), float(r.call.number(7))};
  const Value lengths = whole(r, 5), state = empty(r.tensor(4).shape(), mt::kFloat), out = full(rule.v.shape(), mt::kFloat, 0);
  copy(state, r.tensor(4));
  const int64_t heads = rule.v.size(1), size = rule.values() * rule.keys();
  int64_t t = 0;
  for (int64_t b = 0; b < lengths.numel(); ++b)
    for (const int64_t end = t + lengths.ptr<int64_t>()[b]; t < end; ++t) {
      if (t < 0 || t >= rule.v.size(0)) fault(r.call, "actualSeqLengths are more than the tokens");
      for (int64_t h = 0; h < heads; ++h) rule.step(state.ptr<float>() + (b * heads + h) * size, t, h, out.ptr<float>());
    }
  copy(r.tensor(8), out);
  copy(r.tensor(9), state);
}

// ---- aclnnRecurrentGatedDeltaRule(query, key, value, beta, stateRef, actualSeqLengths, ssmStateIndices, g?, gk?,
//                                   numAcceptedTokens?, scale, out) ------------------------------------------------------
// A sequence goes on from the state of the last token that was accepted; the state after every token is kept at its index.
void check_recurrent(const Call& c) {
  check_rule(c, 4, c.tensor(4).sizes[0], 11, 7, 8);
  expect_numel(c, 6, c.tensor(0).sizes[0]);
  if (c.given(9)) expect_numel(c, 9, c.tensor(5).numel());
}
void recurrent(Run& r) {
  const Rule rule{floats(r, 0), floats(r, 1), floats(r, 2), floats(r, 3), floats(r, 7), floats(r, 8), float(r.call.number(10))};
  const Value lengths = whole(r, 5), where = whole(r, 6), taken = whole(r, 9), states = r.tensor(4);
  const Value out = full(rule.v.shape(), mt::kFloat, 0);
  const int64_t heads = rule.v.size(1), size = rule.values() * rule.keys();
  auto place = [&](int64_t t) {
    if (t < 0 || t >= where.numel() || where.ptr<int64_t>()[t] < 0 || where.ptr<int64_t>()[t] >= states.size(0))
      fault(r.call, "the state of token " + std::to_string(t) + " is outside of stateRef");
    return where.ptr<int64_t>()[t];
  };
  int64_t t = 0;
  for (int64_t b = 0; b < lengths.numel(); ++b) {
    const int64_t n = lengths.ptr<int64_t>()[b], last = t + (taken.given() ? taken.ptr<int64_t>()[b] : 1) - 1;
    if (n <= 0) continue;
    const Value state = empty({heads, rule.values(), rule.keys()}, mt::kFloat);
    copy(state, states.select(0, place(last)));
    for (const int64_t end = t + n; t < end; ++t) {
      const Value kept = states.select(0, place(t));
      for (int64_t h = 0; h < heads; ++h) rule.step(state.ptr<float>() + h * size, t, h, out.ptr<float>());
      copy(kept, state);
    }
  }
  copy(r.tensor(11), out);
}

// ---- aclnnMaskedCausalConv1d(x, weight, mask?, out), over (steps, batch, features) by a kernel (width, features) -----------
void check_causal(const Call& c, int x, int like) {
  const TensorMeta &in = c.tensor(x), &weight = c.tensor(x + 1);
  EXPECT(weight.sizes[0] == 3 && weight.sizes[1] == in.sizes[2], "%s: weight %s for x %s; its width is 3", c.name(),
         describe(weight).c_str(), describe(in).c_str());
  if (c.given(x + 2)) expect_shape(c, x + 2, {in.sizes[1], in.sizes[0]});
  expect_same_shape(c, like, x);
}
// Calls visit(item of the result, item of x, item of the weight) for every product that counts.
template <class F> void each_product(const Value& x, const Value& mask, int64_t width, F&& visit) {
  const int64_t steps = x.size(0), batch = x.size(1), features = x.size(2);
  for (int64_t i = 0; i < steps * batch; ++i) {
    const int64_t step = i / batch, b = i % batch;
    if (mask.given() && !mask.ptr<int64_t>()[b * steps + step]) continue;
    for (int64_t k = 0; k < width && k <= step; ++k)
      for (int64_t f = 0; f < features; ++f)
        visit(i * features + f, (i - k * batch) * features + f, (width - 1 - k) * features + f);
  }
}
void causal(Run& r) {
  const Value x = floats(r, 0), w = floats(r, 1), made = full(x.shape(), mt::kFloat, 0);
  each_product(x, whole(r, 2), w.size(0), [&](int64_t to, int64_t from, int64_t by) {
    made.ptr<float>()[to] += x.ptr<float>()[from] * w.ptr<float>()[by];
  });
  copy(r.tensor(3), made);
}
void check_causal_grad(const Call& c) {  // (gradY, x, weight, mask?, gradX, gradWeight)
  check_causal(c, 1, 4);
  expect_same_shape(c, 0, 1);
  expect_same_shape(c, 5, 2);
}
void causal_grad(Run& r) {
  const Value grad = floats(r, 0), x = floats(r, 1), w = floats(r, 2);
  const Value dx = full(x.shape(), mt::kFloat, 0), dw = full(w.shape(), mt::kFloat, 0);
  each_product(x, whole(r, 3), w.size(0), [&](int64_t to, int64_t from, int64_t by) {
    dx.ptr<float>()[from] += grad.ptr<float>()[to] * w.ptr<float>()[by];
    dw.ptr<float>()[by] += grad.ptr<float>()[to] * x.ptr<float>()[from];
  });
  copy(r.tensor(4), dx);
  copy(r.tensor(5), dw);
}

const Op ops[] = {
    {"aclnnChunkGatedDeltaRule", check_chunk, chunk},
    {"aclnnRecurrentGatedDeltaRule", check_recurrent, recurrent},
    {"aclnnMaskedCausalConv1d", [](const Call& c) { check_causal(c, 0, 3); }, causal},
    {"aclnnMaskedCausalConv1dBackward", check_causal_grad, causal_grad},
};

}  // namespace
}  // namespace cann_sim
