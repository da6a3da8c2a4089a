// Steps of optimizers and of loss scaling, in place.
#include "ops/pointwise.h"
#include "ops/result.h"

#include <algorithm>
#include <cmath>

namespace cann_sim {
namespace {

double item(const Value& v) { return *v.reshape({}).to(mt::kDouble).ptr<double>(); }

void expect_like(const Call& c, int first, std::initializer_list<int> others) {
  dtype_of(c.tensor(first).dtype);
  for (int i : others) {
    expect_same_shape(c, i, first);
    if (c.given(i)) dtype_of(c.tensor(i).dtype);
  }
}

struct Adam {
  double step, lr, beta1, beta2, eps, decay;
  bool amsgrad, maximize;
};
// Weight decay apart from the gradient (AdamW). `most` is absent unless amsgrad.
void adamw(const Value& param, const Value& grad, const Value& m, const Value& v, const Value& most, const Adam& a) {
  call_kernel("adam_step", {param, grad, m, v, most},
              {number(a.step), number(a.lr), number(a.beta1), number(a.beta2), number(a.eps), number(a.decay),
               integer(1), integer(a.amsgrad), integer(a.maximize)});
}

// ApplyAdamWV2(var, m, v, maxGradNorm?, grad, step, lr, beta1, beta2, weightDecay, eps, amsgrad, maximize): `step`
// counts the steps that are done, this one not among them.
void check_adamw(const Call& c) {
  expect_like(c, 0, {1, 2, 3, 4});
  expect_one_element(c, 5);
  EXPECT(!c.integer(11) || c.given(3), "%s: amsgrad needs maxGradNormOptionalRef", c.name());
}
void run_adamw(Run& run) {
  const Call& c = run.call;
  adamw(run.tensor(0), run.tensor(4), run.tensor(1), run.tensor(2), run.tensor(3),
        {item(run.tensor(5)) + 1, c.number(6), c.number(7), c.number(8), c.number(10), c.number(9), c.integer(11) != 0,
         c.integer(12) != 0});
}

// ApplyAdamW(var, m, v, beta1Power, beta2Power, lr, weightDecay, beta1, beta2, eps, grad, maxGradNorm?, amsgrad,
// maximize): the powers are those of the steps that are done.
void check_adamw_tensors(const Call& c) {
  expect_like(c, 0, {1, 2, 10, 11});
  for (int i = 3; i < 10; ++i) expect_one_element(c, i);
  EXPECT(!c.integer(12) || c.given(11), "%s: amsgrad needs maxGradNormOptional", c.name());
}
void run_adamw_tensors(Run& run) {
  auto at = [&](int i) { return item(run.tensor(i)); };
  auto wide = [&](int i) { return run.tensor(i).to(mt::kDouble).dense(); };
  const bool amsgrad = run.call.integer(12);
  const double beta1 = at(7), beta2 = at(8), lr = at(5), eps = at(9), sign = run.call.integer(13) ? -1 : 1;
  const double step_size = lr / (1 - at(3) * beta1), root = std::sqrt(1 - at(4) * beta2), shrink = 1 - lr * at(6);
  const Value param = wide(0), m = wide(1), v = wide(2), grad = wide(10), most = amsgrad ? wide(11) : v;
  for (int64_t i = 0, n = param.numel(); i < n; ++i) {
    const double g = sign * grad.ptr<double>()[i];
    double &mean = m.ptr<double>()[i], &square = v.ptr<double>()[i], &w = param.ptr<double>()[i];
    mean = beta1 * mean + (1 - beta1) * g;
    square = beta2 * square + (1 - beta2) * g * g;
    const double u = std::max(square, most.ptr<double>()[i]);
    w = w * shrink - step_size * mean / (std::sqrt(amsgrad ? u : square) / root + eps);
  }
  copy(run.tensor(0), param);
  copy(run.tensor(1), m);
  copy(run.tensor(2), v);
}

// ApplyAdam(var, m, v, beta1Power, beta2Power, lr, beta1, beta2, epsilon, grad, useLocking, useNesterov): the powers are those
// of this step; m and v are changed too.
void check_adam_tensors(const Call& c) {
  expect_like(c, 0, {1, 2, 9});
  for (int i = 3; i < 9; ++i) expect_one_element(c, i);
}
void run_adam_tensors(Run& run) {
  auto at = [&](int i) { return item(run.tensor(i)); };
  auto wide = [&](int i) { return run.tensor(i).to(mt::kDouble).dense(); };
  const double beta1 = at(6), beta2 = at(7), eps = at(8), rate = at(5) * std::sqrt(1 - at(4)) / (1 - at(3));
  const bool nesterov = run.call.integer(11);
  const Value param = wide(0), m = wide(1), v = wide(2), grad = wide(9);
  for (int64_t i = 0, n = param.numel(); i < n; ++i) {
    const double g = grad.ptr<double>()[i];
    double &mean = m.ptr<double>()[i], &square = v.ptr<double>()[i];
    mean += (1 - beta1) * (g - mean);
    square += (1 - beta2) * (g * g - square);
    param.ptr<double>()[i] -= rate * (nesterov ? beta1 * mean + (1 - beta1) * g : mean) / (std::sqrt(square) + eps);
  }
  copy(run.tensor(0), param);
  copy(run.tensor(1), m);
  copy(run.tensor(2), v);
}

// ApplyFusedEmaAdam(grad, var, m, v, s, step, lr, emaDecay, beta1, beta2, eps, mode, biasCorrection, weightDecay):
// `step` counts this one; mode 0 decays through the gradient, 1 apart from it; s is the running mean of the parameter.
void check_ema_adam(const Call& c) {
  expect_like(c, 0, {1, 2, 3, 4});
  expect_one_element(c, 5);
  EXPECT(c.integer(11) == 0 || c.integer(11) == 1, "%s: expected mode 0 or 1, got %ld", c.name(), c.integer(11));
}
void run_ema_adam(Run& run) {
  const Call& c = run.call;
  auto wide = [&](int i) { return run.tensor(i).to(mt::kDouble).dense(); };
  const double step = item(run.tensor(5)), lr = c.number(6), ema = c.number(7), beta1 = c.number(8);
  const double beta2 = c.number(9), eps = c.number(10), decay = c.number(13), decay_in = c.integer(11) == 0 ? decay : 0;
  const bool corrects = c.integer(12);
  const double one = corrects ? 1 - std::pow(beta1, step) : 1, two = corrects ? 1 - std::pow(beta2, step) : 1;
  const Value grad = wide(0), param = wide(1), m = wide(2), v = wide(3), mean = wide(4);
  for (int64_t i = 0, n = param.numel(); i < n; ++i) {
    double &w = param.ptr<double>()[i], &first = m.ptr<double>()[i], &second = v.ptr<double>()[i];
    const double g = grad.ptr<double>()[i] + decay_in * w;
    first = beta1 * first + (1 - beta1) * g;
    second = beta2 * second + (1 - beta2) * g * g;
    w -= lr * ((first / one) / (std::sqrt(second / two) + eps) + (decay - decay_in) * w);
    mean.ptr<double>()[i] = ema * mean.ptr<double>()[i] + (1 - ema) * w;
  }
  const Value* results[] = {&param, &m, &v, &mean};
  for (int k = 0; k < 4; ++k) copy(run.tensor(k + 1), *results[k]);
}

void expect_lists(const Call& c, std::initializer_list<int> lists) {
  for (int i : lists) {
    EXPECT(c.args[i].count == c.args[0].count, "%s: %s has %d items for %d parameters", c.name(), c.row->args[i].name,
           c.args[i].count, c.args[0].count);
    for (int32_t k = 0; k < c.args[0].count; ++k) {
      dtype_of(c.tensors(i)[k].dtype);
      EXPECT(sizes_of(c.tensors(i)[k]) == sizes_of(c.tensors(0)[k]), "%s: item %d of %s is %s, and its parameter %s",
             c.name(), k, c.row->args[i].name, describe(c.tensors(i)[k]).c_str(), describe(c.tensors(0)[k]).c_str());
    }
  }
}
Value unscaled(const Value& grad, const Value& scale) {
  return scale.given() ? pointwise("div", opmath(grad.dtype), {grad, scale.reshape({})}) : grad;
}

// FusedAdamw(params, grads, expAvgs, expAvgSqs, maxExpAvgSqs, stateSteps, gradScale?, foundInf?, lr, beta1, beta2,
// weightDecay, eps, amsgrad, maximize): the steps are counted as in ApplyAdamWV2.
void check_fused_adamw(const Call& c) {
  expect_lists(c, {1, 2, 3});
  if (c.integer(13)) expect_lists(c, {4});
  EXPECT(c.args[5].count == c.args[0].count, "%s: %d steps for %d parameters", c.name(), c.args[5].count,
         c.args[0].count);
  expect_one_element(c, 6);
  expect_one_element(c, 7);
}
void run_fused_adamw(Run& run) {
  const Call& c = run.call;
  if (run.given(7) && item(run.tensor(7)) != 0) return;
  const std::vector<Value> params = run.tensors(0), grads = run.tensors(1), m = run.tensors(2), v = run.tensors(3),
                           most = run.tensors(4), steps = run.tensors(5);
  const Value scale = run.tensor(6);
  const bool amsgrad = c.integer(13);
  for (size_t k = 0; k < params.size(); ++k)
    adamw(params[k], unscaled(grads[k], scale), m[k], v[k], amsgrad ? most[k] : Value{},
          {item(steps[k]) + 1, c.number(8), c.number(9), c.number(10), c.number(12), c.number(11), amsgrad,
           c.integer(14) != 0});
}

// FusedSgd(params, grads, momentumBuffers, gradScale?, weightDecay, momentum, lr, dampening, nesterov, maximize,
// isFirstStep)
void check_fused_sgd(const Call& c) {
  expect_lists(c, {1});
  if (c.args[2].count) expect_lists(c, {2});
  EXPECT(c.number(5) == 0 || c.args[2].count, "%s: momentum needs momentumBufferListOptionalRef", c.name());
  expect_one_element(c, 3);
}
void run_fused_sgd(Run& run) {
  const Call& c = run.call;
  const std::vector<Value> params = run.tensors(0), grads = run.tensors(1), buffers = run.tensors(2);
  const Value scale = run.tensor(3);
  for (size_t k = 0; k < params.size(); ++k)
    call_kernel("sgd_step", {params[k], unscaled(grads[k], scale), buffers.empty() ? Value{} : buffers[k]},
                {number(c.number(6)), number(c.number(5)), number(c.number(7)), number(c.number(4)),
                 integer(c.integer(8)), integer(c.integer(9)), integer(c.integer(10))});
}

// ---- loss scaling -------------------------------------------------------------------------------
// ForeachNonFiniteCheckAndUnscale(scaledGrads, foundInf, invScale): grads *= invScale; foundInf becomes 1 when one of
// them is not finite, and is left as it is otherwise.
void check_unscale(const Call& c) {
  for (const TensorMeta& t : c.tensors(0)) dtype_of(t.dtype);
  expect_one_element(c, 1);
  expect_one_element(c, 2);
}
void run_unscale(Run& run) {
  const Value scale = run.tensor(2).reshape({});
  for (const Value& grad : run.tensors(0)) {
    const Value finite = pointwise("isfinite", grad.dtype, {grad}), all = empty({}, mt::kBool);
    call_kernel("all", {all, finite}, {none(), integer(0)});
    if (!*all.ptr<bool>()) fill(run.tensor(1), 1);
    call_pointwise("mul", opmath(grad.dtype), {grad, grad, scale});
  }
}

// ApplyAdamWQuant(var, grad, m, v, qmapM [256], qmapV [256], absmaxM, absmaxV, step, lr, beta1, beta2, weightDecay, eps,
// gnormScale, quantMode, blockSize): m and v are places in their tables, whose numbers count in the absmax of their block;
// `step` counts the steps that are done.
void check_adamw_quant(const Call& c) {
  expect_like(c, 0, {1});
  expect_one_element(c, 8);
  EXPECT(c.integer(16) == 256, "%s: blockSize %ld is not 256", c.name(), long(c.integer(16)));
  const int64_t blocks = (c.tensor(0).numel() + 255) / 256;
  for (int i : {2, 3}) {
    expect_same_shape(c, i, 0);
    EXPECT(c.tensor(i).dtype == ACL_UINT8, "%s: %s is %s, not of uint8", c.name(), c.row->args[i].name, describe(c.tensor(i)).c_str());
    expect_shape(c, i + 2, {256});
    expect_numel(c, i + 4, blocks);
  }
}
// The place of the nearest number of a growing table; of numbers with a sign, one with the same sign.
uint8_t nearest(const float* table, float x) {
  const float* above = std::lower_bound(table, table + 256, x);
  int64_t k = above - table;
  if (k == 256 || (k && x - table[k - 1] <= table[k] - x)) --k;
  if (table[0] < 0 && x * table[k] < 0) k += x > 0 ? 1 : -1;
  return uint8_t(std::clamp<int64_t>(k, 0, 255));
}
void run_adamw_quant(Run& run) {
  const Call& c = run.call;
  auto wide = [&](int i) { return run.tensor(i).to(mt::kFloat).dense(); };
  const Value param = wide(0), grad = wide(1), tables[] = {wide(4), wide(5)}, most[] = {wide(6), wide(7)};
  const Value places[] = {run.tensor(2).dense(), run.tensor(3).dense()}, made[] = {empty(param.shape(), mt::kUInt8), empty(param.shape(), mt::kUInt8)};
  const float step = float(item(run.tensor(8)) + 1), lr = float(c.number(9)), decay = float(c.number(12)), scale = float(c.number(14));
  const float betas[] = {float(c.number(10)), float(c.number(11))}, root = std::sqrt(1 - std::pow(betas[1], step));
  const float rate = lr * root / (1 - std::pow(betas[0], step)), eps = float(c.number(13)) * root;
  for (int64_t begin = 0, n = param.numel(); begin < n; begin += 256) {
    const int64_t end = std::min(begin + 256, n);
    float states[2][256], largest[2] = {0, 0};
    for (int64_t i = begin; i < end; ++i) {
      const float g = grad.ptr<float>()[i] * scale, terms[] = {g, g * g};
      for (int s = 0; s < 2; ++s) {
        const float before = tables[s].ptr<float>()[places[s].ptr<uint8_t>()[i]] * most[s].ptr<float>()[begin / 256];
        states[s][i - begin] = betas[s] * before + (1 - betas[s]) * terms[s];
        largest[s] = std::max(largest[s], std::fabs(states[s][i - begin]));
      }
      float& w = param.ptr<float>()[i];
      w = (w - rate * states[0][i - begin] / (std::sqrt(states[1][i - begin]) + eps)) * (1 - lr * decay);
    }
    for (int s = 0; s < 2; ++s) {
      for (int64_t i = begin; i < end; ++i)
        made[s].ptr<uint8_t>()[i] = nearest(tables[s].ptr<float>(), states[s][i - begin] / (largest[s] ? largest[s] : 1));
      most[s].ptr<float>()[begin / 256] = largest[s];
    }
  }
  copy(run.tensor(0), param);
  for (int s = 0; s < 2; ++s) copy(run.tensor(2 + s), made[s]), copy(run.tensor(6 + s), most[s]);
}

// AmpUpdateScale(currentScale, growthTracker, foundInf, growthFactor, backoffFactor, growthInterval, updatedScale,
// updatedGrowthTracker)
void check_update_scale(const Call& c) {
  for (int i : {0, 1, 2, 6, 7}) expect_one_element(c, i);
}
void run_update_scale(Run& run) {
  const Call& c = run.call;
  float scale = float(item(run.tensor(0)));
  int64_t tracker = int64_t(item(run.tensor(1)));
  if (item(run.tensor(2)) != 0) {
    scale = float(scale * c.number(4));
    tracker = 0;
  } else if (++tracker == c.integer(5)) {
    const float grown = float(scale * c.number(3));
    if (std::isfinite(grown)) scale = grown;
    tracker = 0;
  }
  fill(run.tensor(6), scale);
  fill(run.tensor(7), double(tracker));
}

const Op ops[] = {
    {"aclnnApplyAdamWV2", check_adamw, run_adamw},
    {"aclnnApplyAdam", check_adam_tensors, run_adam_tensors},
    {"aclnnApplyAdamW", check_adamw_tensors, run_adamw_tensors},
    {"aclnnApplyAdamWQuant", check_adamw_quant, run_adamw_quant},
    {"aclnnApplyFusedEmaAdam", check_ema_adam, run_ema_adam},
    {"aclnnFusedAdamw", check_fused_adamw, run_fused_adamw},
    {"aclnnFusedSgd", check_fused_sgd, run_fused_sgd},
    {"aclnnForeachNonFiniteCheckAndUnscale", check_unscale, run_unscale},
    {"aclnnAmpUpdateScale", check_update_scale, run_update_scale},
};

}  // namespace
}  // namespace cann_sim
