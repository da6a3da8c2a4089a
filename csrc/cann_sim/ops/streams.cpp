// Hyper-connections: what a layer reads of several streams of a model (MhcPre), how it is put back (MhcPost), the doubly
// stochastic matrix between the streams (MhcSinkhorn), and their gradients.
#include <cmath>

#include "ops/attention.h"  // argument()
#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return has(r.call, i) ? r.tensor(i).to(mt::kFloat).dense() : Value(); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
void write(Run& r, int i, const Value& made) {
  if (has(r.call, i)) copy(r.tensor(i), made.reshape(r.tensor(i).shape()));
}

// The sizes of x: tokens (all dims before the last two), streams, depth.
struct Streams {
  int64_t tokens, n, depth;
  explicit Streams(const TensorMeta& x)
      : tokens(x.numel() / (x.sizes[x.ndim - 1] * x.sizes[x.ndim - 2])), n(x.sizes[x.ndim - 2]), depth(x.sizes[x.ndim - 1]) {}
  int64_t flat() const { return n * depth; }
};
Streams streams(const Call& c, int x) {
  EXPECT(c.tensor(x).numel(), "%s: %s %s is empty", c.name(), c.row->args[x].name, describe(c.tensor(x)).c_str());
  return Streams(c.tensor(x));
}
void expect_items(const Call& c, int i, int64_t n) {
  if (c.given(i)) expect_numel(c, i, n);
}

// ---- aclnnMhcPost(x, hRes?, hOut, hPost, out): hRes^T x + hPost (x) hOut ---------------------------------------------
void check_post(const Call& c) {
  const Streams s = streams(c, 0);
  expect_items(c, 1, s.tokens * s.n * s.n);
  expect_items(c, 2, s.tokens * s.depth);
  expect_items(c, 3, s.tokens * s.n);
  expect_same_shape(c, 4, 0);
}
void post(Run& r) {
  const Streams s(r.call.tensor(0));
  const Value x = floats(r, 0), res = floats(r, 1), out = floats(r, 2), to = floats(r, 3), made = empty(x.shape(), mt::kFloat);
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int64_t m = 0; m < s.n; ++m)
      for (int64_t d = 0; d < s.depth; ++d) {
        const float* at = x.ptr<float>() + t * s.flat() + d;
        float sum = res.given() ? 0 : at[m * s.depth];
        for (int64_t n = 0; res.given() && n < s.n; ++n) sum += res.ptr<float>()[(t * s.n + n) * s.n + m] * at[n * s.depth];
        made.ptr<float>()[t * s.flat() + m * s.depth + d] =
            sum + out.ptr<float>()[t * s.depth + d] * to.ptr<float>()[t * s.n + m];
      }
  copy(r.tensor(4), made);
}

// ---- aclnnMhcPostBackward(grad, x, hRes?, hOut, hPost, gradX, gradHRes?, gradHOut, gradHPost) --------------------------
void check_post_grad(const Call& c) {
  const Streams s = streams(c, 1);
  for (int i : {0, 5}) expect_same_shape(c, i, 1);
  for (int i : {2, 6}) expect_items(c, i, has(c, i) ? s.tokens * s.n * s.n : 0);
  for (int i : {3, 7}) expect_items(c, i, s.tokens * s.depth);
  for (int i : {4, 8}) expect_items(c, i, s.tokens * s.n);
}
void post_grad(Run& r) {
  const Streams s(r.call.tensor(1));
  const Value grad = floats(r, 0), x = floats(r, 1), res = floats(r, 2), out = floats(r, 3), to = floats(r, 4);
  const Value dx = full(x.shape(), mt::kFloat, 0), dres = full({s.tokens, s.n, s.n}, mt::kFloat, 0);
  const Value dout = full(out.shape(), mt::kFloat, 0), dto = full(to.shape(), mt::kFloat, 0);
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int64_t m = 0; m < s.n; ++m)
      for (int64_t d = 0; d < s.depth; ++d) {
        const float g = grad.ptr<float>()[t * s.flat() + m * s.depth + d];
        for (int64_t n = 0; n < s.n; ++n) {
          const int64_t pair = (t * s.n + n) * s.n + m, at = t * s.flat() + n * s.depth + d;
          dres.ptr<float>()[pair] += x.ptr<float>()[at] * g;
          dx.ptr<float>()[at] += (res.given() ? res.ptr<float>()[pair] : float(n == m)) * g;
        }
        dout.ptr<float>()[t * s.depth + d] += g * to.ptr<float>()[t * s.n + m];
        dto.ptr<float>()[t * s.n + m] += g * out.ptr<float>()[t * s.depth + d];
      }
  const Value made[] = {dx, dres, dout, dto};
  for (int i = 0; i < 4; ++i) write(r, 5 + i, made[i]);
}

// ---- aclnnMhcPre(x, phi, alpha, bias, gamma?, normEps, hcEps, [opImplMode,] hIn, hPost, hRes?, invRms?, hMix?, hPre?) ------
// With two of alpha there is no hRes: its output is 0, and hPost has hcEps added too.
int first_out(const Call& c) { return argument(c, {"hIn"}); }
void check_pre(const Call& c) {
  const Streams s = streams(c, 0);
  const int64_t parts = c.tensor(2).numel(), mixed = 2 * s.n + (parts == 3 ? s.n * s.n : 0), out = first_out(c);
  EXPECT(parts == 2 || parts == 3, "%s: alpha %s", c.name(), describe(c.tensor(2)).c_str());
  expect_shape(c, 1, {mixed, s.flat()});
  expect_shape(c, 3, {mixed});
  if (c.given(4)) expect_shape(c, 4, {s.n, s.depth});
  EXPECT(out == 7 || c.integer(7) == 0 || c.integer(7) == 1, "%s: opImplMode %ld", c.name(), c.integer(7));
  EXPECT(parts == 2 || c.given(int(out) + 2), "%s: hRes is needed", c.name());
  const int64_t items[] = {s.tokens * s.depth, s.tokens * s.n, s.tokens * s.n * s.n, s.tokens, s.tokens * mixed, s.tokens * s.n};
  for (int i = 0; i < 6; ++i)
    if (i < 2 || has(c, int(out) + i)) expect_items(c, int(out) + i, items[i]);
}
void pre(Run& r) {
  const Call& c = r.call;
  const Streams s(c.tensor(0));
  const Value x = floats(r, 0), phi = floats(r, 1), alpha = floats(r, 2), bias = floats(r, 3), gamma = floats(r, 4);
  const int64_t parts = alpha.numel(), mixed = bias.numel(), flat = s.flat();
  const float norm_eps = float(c.number(5)), eps = float(c.number(6));
  const Value in = full({s.tokens, s.depth}, mt::kFloat, 0), post = empty({s.tokens, s.n}, mt::kFloat);
  const Value res = full({s.tokens, s.n * s.n}, mt::kFloat, 0), inverse = empty({s.tokens}, mt::kFloat);
  const Value mix = empty({s.tokens, mixed}, mt::kFloat), gate = empty({s.tokens, s.n}, mt::kFloat);
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float* row = x.ptr<float>() + t * flat;
    double squares = 0;
    for (int64_t k = 0; k < flat; ++k) squares += double(row[k]) * row[k];
    const float inv = 1 / std::sqrt(float(squares / double(flat)) + norm_eps);
    inverse.ptr<float>()[t] = inv;
    for (int64_t j = 0; j < mixed; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < flat; ++k)
        sum += double(row[k]) * (gamma.given() ? gamma.ptr<float>()[k] : 1) * phi.ptr<float>()[j * flat + k];
      mix.ptr<float>()[t * mixed + j] = float(sum);
      const int64_t part = j < s.n ? 0 : j < 2 * s.n ? 1 : 2;
      const float w = float(sum) * inv * alpha.ptr<float>()[part] + bias.ptr<float>()[j];
      if (part == 0) gate.ptr<float>()[t * s.n + j] = sigmoid(w) + eps;
      else if (part == 1) post.ptr<float>()[t * s.n + j - s.n] = 2 * sigmoid(w) + (parts == 2 ? eps : 0);
      else res.ptr<float>()[t * s.n * s.n + j - 2 * s.n] = w;
    }
    for (int64_t k = 0; k < flat; ++k)
      in.ptr<float>()[t * s.depth + k % s.depth] += gate.ptr<float>()[t * s.n + k / s.depth] * row[k];
  }
  const Value made[] = {in, post, res, inverse, mix, gate};
  for (int i = 0; i < 6; ++i) write(r, first_out(c) + i, made[i]);
}

// ---- aclnnMhcPreBackward(x, phi, alpha, gradHIn, gradHPost, gradHRes, invRms, hMix, hPre, hPost, gamma?, gradXPost?, hcEps,
//                          gradX, gradPhi, gradAlpha, gradBias, gradGamma?) ---------------------------------------------
void check_pre_grad(const Call& c) {
  const Streams s = streams(c, 0);
  const int64_t mixed = 2 * s.n + s.n * s.n;
  for (int i : {1, 14}) expect_shape(c, i, {mixed, s.flat()});
  for (int i : {2, 15}) expect_shape(c, i, {3});
  const int64_t items[] = {s.tokens * s.depth, s.tokens * s.n, s.tokens * s.n * s.n, s.tokens, s.tokens * mixed, s.tokens * s.n,
                           s.tokens * s.n};
  for (int i = 0; i < 7; ++i) expect_items(c, 3 + i, items[i]);
  for (int i : {10, 17})
    if (has(c, i)) expect_shape(c, i, {s.n, s.depth});
  if (c.given(11)) expect_same_shape(c, 11, 0);
  expect_same_shape(c, 13, 0);
  expect_shape(c, 16, {mixed});
}
void pre_grad(Run& r) {
  const Streams s(r.call.tensor(0));
  Value in[12];
  for (int i = 0; i < 12; ++i) in[i] = floats(r, i);
  auto at = [&in](int i, int64_t k) { return in[i].ptr<float>()[k]; };
  const int64_t flat = s.flat(), mixed = in[1].size(0), n = s.n;
  const float eps = float(r.call.number(12));
  const Value dx = empty({s.tokens, flat}, mt::kFloat), dphi = full({mixed, flat}, mt::kFloat, 0);
  const Value dalpha = full({3}, mt::kFloat, 0), dbias = full({mixed}, mt::kFloat, 0), dgamma = full({flat}, mt::kFloat, 0);
  std::vector<float> dmix(static_cast<size_t>(mixed));
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float inv = at(6, t);
    double dinv = 0;
    for (int64_t j = 0; j < mixed; ++j) {
      const int64_t part = j < n ? 0 : j < 2 * n ? 1 : 2;
      float slope;
      if (part == 0) {
        float g = 0;
        for (int64_t d = 0; d < s.depth; ++d) g += at(3, t * s.depth + d) * at(0, t * flat + j * s.depth + d);
        const float gate = at(8, t * n + j) - eps;
        slope = g * gate * (1 - gate);
      } else if (part == 1) {
        const float post = at(9, t * n + j - n);
        slope = at(4, t * n + j - n) * post * (1 - post / 2);
      } else {
        slope = at(5, t * n * n + j - 2 * n);
      }
      const float mix = at(7, t * mixed + j), dw = slope * at(2, part);
      dalpha.ptr<float>()[part] += slope * mix * inv;
      dbias.ptr<float>()[j] += slope;
      dmix[size_t(j)] = dw * inv;
      dinv += double(dw) * mix;
    }
    for (int64_t k = 0; k < flat; ++k) {
      const float x = at(0, t * flat + k), gamma = in[10].given() ? at(10, k) : 1;
      float back = 0;
      for (int64_t j = 0; j < mixed; ++j) {
        back += dmix[size_t(j)] * at(1, j * flat + k);
        dphi.ptr<float>()[j * flat + k] += dmix[size_t(j)] * x * gamma;
      }
      dgamma.ptr<float>()[k] += x * back;
      dx.ptr<float>()[t * flat + k] = back * gamma - float(dinv) * inv * inv * inv / float(flat) * x +
                                      at(3, t * s.depth + k % s.depth) * at(8, t * n + k / s.depth) +
                                      (in[11].given() ? at(11, t * flat + k) : 0);
    }
  }
  const Value made[] = {dx, dphi, dalpha, dbias, dgamma};
  for (int i = 0; i < 5; ++i) write(r, 13 + i, made[i]);
}

// ---- aclnnMhcSinkhorn(x, eps, numIters, output, normOut?, sumOut?) and its gradient ---------------------------------------
// normOut is [2 * numIters, tokens, n, 8] and sumOut [2 * numIters, tokens, 8]: rows of eight whatever n is.
constexpr int64_t kRow = 8;
void check_sinkhorn(const Call& c) {
  const Streams s = streams(c, 0);
  EXPECT(s.n == s.depth && (s.n == 4 || s.n == 6 || s.n == 8), "%s: x %s", c.name(), describe(c.tensor(0)).c_str());
  EXPECT(c.integer(2) >= 1 && c.integer(2) <= 100, "%s: numIters %ld", c.name(), c.integer(2));
  expect_same_shape(c, 3, 0);
  if (has(c, 4)) expect_numel(c, 4, 2 * c.integer(2) * s.tokens * s.n * kRow);
  if (has(c, 5)) expect_numel(c, 5, 2 * c.integer(2) * s.tokens * kRow);
}
// Divides by the sums of columns (odd steps) or rows; `sums` gets them.
void normalize(float* m, int64_t n, bool columns, float eps, float* sums) {
  for (int64_t i = 0; i < n; ++i) {
    float sum = eps;
    for (int64_t j = 0; j < n; ++j) sum += columns ? m[j * n + i] : m[i * n + j];
    for (int64_t j = 0; j < n; ++j) (columns ? m[j * n + i] : m[i * n + j]) /= sum;
    sums[i] = sum;
  }
}
void sinkhorn(Run& r) {
  const Streams s(r.call.tensor(0));
  const int64_t steps = 2 * r.call.integer(2), n = s.n;
  const float eps = float(r.call.number(1));
  const Value x = floats(r, 0), soft = empty(x.shape(), mt::kFloat);
  const Value norm = full({steps, s.tokens, n, kRow}, mt::kFloat, 0), sums = full({steps, s.tokens, kRow}, mt::kFloat, 0);
  call_kernel("_softmax", {soft, x}, {integer(x.ndim - 1), integer(0)});
  for (int64_t t = 0; t < s.tokens; ++t) {
    float* m = soft.ptr<float>() + t * n * n;
    for (int64_t i = 0; i < n * n; ++i) m[i] += eps;
    for (int64_t k = 0; k < steps; ++k) {
      if (k) normalize(m, n, k % 2 == 1, eps, sums.ptr<float>() + (k * s.tokens + t) * kRow);
      for (int64_t i = 0; i < n * n; ++i) norm.ptr<float>()[((k * s.tokens + t) * n + i / n) * kRow + i % n] = m[i];
    }
  }
  write(r, 3, soft);
  write(r, 4, norm);
  write(r, 5, sums);
}
void check_sinkhorn_grad(const Call& c) {  // (gradOutput, normOut, sumOut, out)
  const Streams s = streams(c, 0);
  EXPECT(s.n == s.depth && (s.n == 4 || s.n == 6 || s.n == 8), "%s: gradOutput %s", c.name(), describe(c.tensor(0)).c_str());
  const int64_t step = s.tokens * kRow, steps = c.tensor(2).numel() / step;
  EXPECT(steps >= 2 && steps % 2 == 0 && steps <= 200, "%s: sumOut %s", c.name(), describe(c.tensor(2)).c_str());
  expect_numel(c, 2, steps * step);
  expect_numel(c, 1, steps * step * s.n);
  expect_same_shape(c, 3, 0);
}
void sinkhorn_grad(Run& r) {
  const Streams s(r.call.tensor(0));
  const Value grad = floats(r, 0), norm = floats(r, 1), sums = floats(r, 2), made = empty(grad.shape(), mt::kFloat);
  const int64_t n = s.n, steps = sums.numel() / (s.tokens * kRow);
  copy(made, grad);
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int64_t k = steps - 1; k >= 0; --k) {
      float* g = made.ptr<float>() + t * n * n;
      const float *y = norm.ptr<float>() + (k * s.tokens + t) * n * kRow, *sum = sums.ptr<float>() + (k * s.tokens + t) * kRow;
      const bool columns = k % 2 == 1;
      for (int64_t i = 0; i < n; ++i) {
        float dot = 0;
        for (int64_t j = 0; j < n; ++j) dot += columns ? g[j * n + i] * y[j * kRow + i] : g[i * n + j] * y[i * kRow + j];
        for (int64_t j = 0; j < n; ++j) {
          const int64_t at = columns ? j * n + i : i * n + j;
          g[at] = k ? (g[at] - dot) / sum[i] : (g[at] - dot) * y[i * kRow + j];
        }
      }
    }
  write(r, 3, made);
}

const Op ops[] = {
    {"aclnnMhcPost", check_post, post},
    {"aclnnMhcPostBackward", check_post_grad, post_grad},
    {"aclnnMhcPre", check_pre, pre},
    {"aclnnMhcPreV2", check_pre, pre},
    {"aclnnMhcPreBackward", check_pre_grad, pre_grad},
    {"aclnnMhcSinkhorn", check_sinkhorn, sinkhorn},
    {"aclnnMhcSinkhornBackward", check_sinkhorn_grad, sinkhorn_grad},
};

}  // namespace
}  // namespace cann_sim
