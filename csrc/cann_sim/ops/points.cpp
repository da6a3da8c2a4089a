// Ops over points, boxes' images and segments, and other small gradients, each written out item by item.
#include <algorithm>
#include <cmath>

#include "ops/pointwise.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }
Value whole(Run& r, int i) { return r.tensor(i).to(mt::kInt64).dense(); }
int64_t checked(const Call& c, int64_t index, int64_t size) {
  if (index < 0 || index >= size)
    throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": index " + std::to_string(index) + " of " + std::to_string(size));
  return index;
}

// ---- aclnnThreeInterpolateBackward(grad [B, C, N], idx [B, N, 3], weight [B, N, 3], m, out [B, C, M]) ------------------------
void check_three(const Call& c) {
  const TensorMeta& g = c.tensor(0);
  EXPECT(g.ndim >= 3, "%s: grad_x %s", c.name(), describe(g).c_str());
  for (int i : {1, 2}) expect_numel(c, i, g.sizes[0] * g.sizes[2] * 3);
  expect_numel(c, 4, g.sizes[0] * g.sizes[1] * c.integer(3));
}
void three(Run& r) {
  const Value g = floats(r, 0), idx = whole(r, 1), w = floats(r, 2);
  const int64_t batch = g.size(0), channels = g.size(1), n = g.size(2), m = r.call.integer(3);
  const Value sum = full({batch, channels, m}, mt::kFloat, 0);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < 3; ++k) {
        const int64_t at = checked(r.call, idx.ptr<int64_t>()[(b * n + i) * 3 + k], m);
        for (int64_t ch = 0; ch < channels; ++ch)
          sum.ptr<float>()[(b * channels + ch) * m + at] += g.ptr<float>()[(b * channels + ch) * n + i] * w.ptr<float>()[(b * n + i) * 3 + k];
      }
  copy(r.tensor(4), sum.reshape(r.tensor(4).shape()));
}

// ---- aclnnChamferDistanceBackward(xyz1, xyz2, idx1, idx2, grad1, grad2, out1, out2) ------------------------------------------
void check_chamfer(const Call& c) {
  for (int i : {0, 1}) {
    expect_numel(c, 2 + i, c.tensor(i).sizes[0] * c.tensor(i).sizes[1]);
    expect_numel(c, 4 + i, c.tensor(i).sizes[0] * c.tensor(i).sizes[1]);
    expect_same_shape(c, 6 + i, i);
  }
}
void chamfer(Run& r) {
  const Value xyz[] = {floats(r, 0), floats(r, 1)}, idx[] = {whole(r, 2), whole(r, 3)}, grad[] = {floats(r, 4), floats(r, 5)};
  const Value sum[] = {full(xyz[0].shape(), mt::kFloat, 0), full(xyz[1].shape(), mt::kFloat, 0)};
  const int64_t batch = xyz[0].size(0), dims = xyz[0].size(2);
  for (int s : {0, 1})
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < xyz[s].size(1); ++i) {
        const int64_t from = b * xyz[s].size(1) + i;
        const int64_t to = b * xyz[1 - s].size(1) + checked(r.call, idx[s].ptr<int64_t>()[from], xyz[1 - s].size(1));
        for (int64_t d = 0; d < dims; ++d) {
          const float slope = 2 * grad[s].ptr<float>()[from] * (xyz[s].ptr<float>()[from * dims + d] - xyz[1 - s].ptr<float>()[to * dims + d]);
          sum[s].ptr<float>()[from * dims + d] += slope;
          sum[1 - s].ptr<float>()[to * dims + d] -= slope;
        }
      }
  for (int s : {0, 1}) copy(r.tensor(6 + s), sum[s]);
}

// ---- deformable attention: (value [B, K, H, C], shapes [L, 2], starts [L], location [B, Q, H, L, P, 2], weight [B, Q, H, L, P], ...) ---
// One bilinear sample: where its four corners lie in `value` and what each counts; outside counts nothing.
struct Sample {
  int64_t at[4];
  float part[4], dx[4], dy[4];
  Sample(const Value& value, int64_t b, int64_t h, int64_t start, int64_t rows, int64_t cols, float x, float y) {
    const float px = x * float(cols) - 0.5f, py = y * float(rows) - 0.5f, fx = std::floor(px), fy = std::floor(py);
    for (int k = 0; k < 4; ++k) {
      const int64_t cx = int64_t(fx) + k % 2, cy = int64_t(fy) + k / 2;
      const float wx = k % 2 ? px - fx : 1 - (px - fx), wy = k / 2 ? py - fy : 1 - (py - fy);
      const bool inside = cx >= 0 && cx < cols && cy >= 0 && cy < rows;
      at[k] = inside ? ((b * value.size(1) + start + cy * cols + cx) * value.size(2) + h) * value.size(3) : -1;
      part[k] = inside ? wx * wy : 0;
      dx[k] = inside ? (k % 2 ? wy : -wy) * float(cols) : 0;
      dy[k] = inside ? (k / 2 ? wx : -wx) * float(rows) : 0;
    }
  }
};
void check_deformable(const Call& c) {
  const TensorMeta &v = c.tensor(0), &loc = c.tensor(3), &w = c.tensor(4);
  EXPECT(v.ndim == 4 && loc.ndim == 6 && w.ndim == 5 && loc.sizes[5] == 2, "%s: value %s, location %s, attnWeight %s", c.name(),
         describe(v).c_str(), describe(loc).c_str(), describe(w).c_str());
  for (int d = 0; d < 5; ++d) EXPECT(loc.sizes[d] == w.sizes[d], "%s: location %s for attnWeight %s", c.name(), describe(loc).c_str(), describe(w).c_str());
  EXPECT(loc.sizes[0] == v.sizes[0] && loc.sizes[2] == v.sizes[2], "%s: location %s for value %s", c.name(), describe(loc).c_str(), describe(v).c_str());
  EXPECT(c.tensor(1).numel() == 2 * w.sizes[3] && c.tensor(2).numel() == w.sizes[3], "%s: %ld levels expected", c.name(), w.sizes[3]);
  expect_numel(c, 5, w.sizes[0] * w.sizes[1] * v.sizes[2] * v.sizes[3]);
}
template <class Visit> void each_sample(Run& r, const Value& value, Visit visit) {
  const Value shapes = whole(r, 1), starts = whole(r, 2), loc = floats(r, 3), w = floats(r, 4);
  const int64_t queries = w.size(1), heads = w.size(2), levels = w.size(3), points = w.size(4);
  for (int64_t i = 0, n = w.numel(); i < n; ++i) {
    const int64_t l = i / points % levels, h = i / points / levels % heads, q = i / points / levels / heads % queries,
                  b = i / points / levels / heads / queries;
    const int64_t rows = shapes.ptr<int64_t>()[2 * l], cols = shapes.ptr<int64_t>()[2 * l + 1], start = starts.ptr<int64_t>()[l];
    if (start < 0 || start + rows * cols > value.size(1)) checked(r.call, -1, value.size(1));
    visit(i, (b * queries + q) * heads + h, w.ptr<float>()[i],
          Sample(value, b, h, start, rows, cols, loc.ptr<float>()[2 * i], loc.ptr<float>()[2 * i + 1]));
  }
}
void deformable(Run& r) {
  const Value value = floats(r, 0), sum = full({r.tensor(5).numel()}, mt::kFloat, 0);
  const int64_t channels = value.size(3);
  each_sample(r, value, [&](int64_t, int64_t to, float weight, const Sample& s) {
    for (int k = 0; k < 4; ++k)
      for (int64_t ch = 0; s.at[k] >= 0 && ch < channels; ++ch)
        sum.ptr<float>()[to * channels + ch] += weight * s.part[k] * value.ptr<float>()[s.at[k] + ch];
  });
  copy(r.tensor(5), sum.reshape(r.tensor(5).shape()));
}
void check_deformable_grad(const Call& c) {
  check_deformable(c);
  expect_same_shape(c, 6, 0);
  expect_same_shape(c, 7, 3);
  expect_same_shape(c, 8, 4);
}
void deformable_grad(Run& r) {
  const Value value = floats(r, 0), grad = floats(r, 5), dv = full(value.shape(), mt::kFloat, 0),
              dl = full(r.tensor(7).shape(), mt::kFloat, 0), dw = full(r.tensor(8).shape(), mt::kFloat, 0);
  const int64_t channels = value.size(3);
  each_sample(r, value, [&](int64_t i, int64_t to, float weight, const Sample& s) {
    for (int k = 0; k < 4; ++k)
      for (int64_t ch = 0; s.at[k] >= 0 && ch < channels; ++ch) {
        const float g = grad.ptr<float>()[to * channels + ch], v = value.ptr<float>()[s.at[k] + ch];
        dv.ptr<float>()[s.at[k] + ch] += g * weight * s.part[k];
        dw.ptr<float>()[i] += g * s.part[k] * v;
        dl.ptr<float>()[2 * i] += g * weight * s.dx[k] * v;
        dl.ptr<float>()[2 * i + 1] += g * weight * s.dy[k] * v;
      }
  });
  copy(r.tensor(6), dv);
  copy(r.tensor(7), dl);
  copy(r.tensor(8), dw);
}

// ---- aclnnExpandIntoJaggedPermute(permute, inputOffset, outputOffset, outputSize, out) ---------------------------------------
void check_jagged(const Call& c) {
  for (int i : {1, 2}) expect_numel(c, i, c.tensor(0).numel() + 1);
  expect_numel(c, 4, c.integer(3));
}
void jagged(Run& r) {
  const Value permute = whole(r, 0), in = whole(r, 1), out = whole(r, 2), made = full({r.call.integer(3)}, mt::kInt64, 0);
  for (int64_t t = 0; t < permute.numel(); ++t) {
    const int64_t from = checked(r.call, permute.ptr<int64_t>()[t], permute.numel()), first = out.ptr<int64_t>()[t];
    for (int64_t i = first; i < out.ptr<int64_t>()[t + 1]; ++i)
      made.ptr<int64_t>()[checked(r.call, i, made.numel())] = in.ptr<int64_t>()[from] + i - first;
  }
  copy(r.tensor(4), made);
}

// ---- aclnnSinkhorn(cost, tol?, p): rows and columns scaled in turn until the columns' factors stay --------------------------
void check_sinkhorn(const Call& c) {
  EXPECT(c.tensor(0).ndim == 2, "%s: cost %s", c.name(), describe(c.tensor(0)).c_str());
  EXPECT(!c.given(1) || c.scalar(1).re > 0, "%s: tol %g is not positive: no number of rounds would reach it", c.name(), c.scalar(1).re);
  expect_same_shape(c, 2, 0);
}
void sinkhorn(Run& r) {
  const Value p = empty(r.tensor(0).shape(), mt::kFloat);
  copy(p, r.tensor(0));
  const int64_t rows = p.size(0), cols = p.size(1);
  float* x = p.ptr<float>();
  for (int64_t i = 0; i < rows * cols; ++i) x[i] = std::exp(x[i]);
  std::vector<double> d0(size_t(rows), 1), d1(size_t(cols), 1);
  const double tol = r.given(1) ? r.call.scalar(1).re : 1e-4, eps = 1e-8;
  constexpr int kMostRounds = 10000;                  // a tolerance below what doubles resolve is never met
  double error = 1e9;
  for (int round = 0; error > tol && round < kMostRounds; ++round) {
    error = 0;
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < cols; ++j) sum += d1[size_t(j)] * x[i * cols + j];
      d0[size_t(i)] = 1 / double(rows) / (sum + eps);
    }
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < rows; ++i) sum += d0[size_t(i)] * x[i * cols + j];
      const double next = 1 / double(cols) / (sum + eps);
      error += std::fabs(next - d1[size_t(j)]) / double(cols);
      d1[size_t(j)] = next;
    }
  }
  for (int64_t i = 0; i < rows * cols; ++i) x[i] = float(d1[size_t(i % cols)] * x[i] * d0[size_t(i / cols)]);
  copy(r.tensor(2), p);
}

// ---- aclnnKlDivTargetBackward(grad, self, target, reduction, logTarget, out) -------------------------------------------------
void check_kl(const Call& c) {
  expect_same_shape(c, 5, 2);
  EXPECT(c.integer(3) >= 0 && c.integer(3) <= 3, "%s: reduction %ld", c.name(), c.integer(3));
  for (int i : {0, 1})
    EXPECT(broadcast_sizes(sizes_of(c.tensor(i)), sizes_of(c.tensor(2))) == sizes_of(c.tensor(2)), "%s %s does not broadcast to target %s",
           c.row->args[i].name, describe(c.tensor(i)).c_str(), describe(c.tensor(2)).c_str());
}
void kl(Run& r) {
  const Sizes sizes = r.tensor(2).shape();
  const Value target = floats(r, 2), self = empty(sizes, mt::kFloat), grad = empty(sizes, mt::kFloat), made = empty(sizes, mt::kFloat);
  copy(self, r.tensor(1).expand(sizes));
  copy(grad, r.tensor(0).expand(sizes));
  const int64_t n = made.numel(), kind = r.call.integer(3);
  const float part = kind == 1 ? 1 / float(n) : kind == 3 ? 1 / float(sizes.empty() ? 1 : sizes[0]) : 1;  // mean, batchmean
  for (int64_t i = 0; i < n; ++i) {
    const float t = target.ptr<float>()[i], x = self.ptr<float>()[i];
    const float slope = r.call.integer(4) ? std::exp(t) * (t + 1 - x) : t != 0 ? std::log(t) + 1 - x : 0;
    made.ptr<float>()[i] = grad.ptr<float>()[i] * slope * part;
  }
  copy(r.tensor(5), made);
}

// ---- aclnnExpSegsum(self [..., T], out [..., T, T]): exp of the sums between two places, 0 above the diagonal ----------------
void check_segsum(const Call& c) {
  Sizes sizes = sizes_of(c.tensor(0));
  EXPECT(!sizes.empty(), "%s: self has no dims", c.name());
  sizes.push_back(sizes.back());
  expect_shape(c, 1, sizes);
}
void segsum(Run& r) {
  const Value x = floats(r, 0), made = full(r.tensor(1).shape(), mt::kFloat, 0);
  const int64_t t = x.size(-1), rows = t ? x.numel() / t : 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < t; ++j) {
      double sum = 0;
      for (int64_t i = j; i < t; ++i) {
        if (i > j) sum += x.ptr<float>()[row * t + i];
        made.ptr<float>()[(row * t + i) * t + j] = float(std::exp(sum));
      }
    }
  copy(r.tensor(1), made);
}

// (gradOutput, gradSelf = the forward result, gradInput): a number takes part in all sums that reach over it.
void check_segsum_grad(const Call& c) {
  Sizes sizes = sizes_of(c.tensor(0));
  EXPECT(sizes.size() > 1 && sizes.back() == sizes[sizes.size() - 2], "%s: gradOutput %s", c.name(), describe(c.tensor(0)).c_str());
  expect_same_shape(c, 1, 0);
  sizes.pop_back();
  expect_shape(c, 2, sizes);
}
void segsum_grad(Run& r) {
  const Value grad = floats(r, 0), y = floats(r, 1), made = full(r.tensor(2).shape(), mt::kFloat, 0);
  const int64_t t = made.size(-1), rows = t ? made.numel() / t : 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < i; ++j) {
        const float g = grad.ptr<float>()[(row * t + i) * t + j] * y.ptr<float>()[(row * t + i) * t + j];
        for (int64_t k = j + 1; k <= i; ++k) made.ptr<float>()[row * t + k] += g;
      }
  copy(r.tensor(2), made);
}

// ---- aclnnSyncBatchNormGatherStats(sums [W, C], squares [W, C], counts [W], mean, variance, momentum, eps, mean, invstd) ------
void check_gather_stats(const Call& c) {
  const TensorMeta& s = c.tensor(0);
  EXPECT(s.ndim == 2, "%s: totalSum %s", c.name(), describe(s).c_str());
  expect_same_shape(c, 1, 0);
  expect_numel(c, 2, s.sizes[0]);
  for (int i : {3, 4, 7, 8}) expect_numel(c, i, s.sizes[1]);
}
void gather_stats(Run& r) {
  const Value s = floats(r, 0), q = floats(r, 1), counts = floats(r, 2), mean = floats(r, 3), variance = floats(r, 4);
  const int64_t world = s.size(0), channels = s.size(1);
  const Value batch_mean = empty({channels}, mt::kFloat), invstd = empty({channels}, mt::kFloat), new_mean = empty({channels}, mt::kFloat),
              new_variance = empty({channels}, mt::kFloat);
  double n = 0;
  for (int64_t w = 0; w < world; ++w) n += counts.ptr<float>()[w];
  const double momentum = r.call.number(5);
  for (int64_t ch = 0; ch < channels; ++ch) {
    double sum = 0, square = 0;
    for (int64_t w = 0; w < world; ++w) sum += s.ptr<float>()[w * channels + ch], square += q.ptr<float>()[w * channels + ch];
    const double m = sum / n, v = square / n - m * m, unbiased = n > 1 ? v * n / (n - 1) : v;
    batch_mean.ptr<float>()[ch] = float(m);
    invstd.ptr<float>()[ch] = float(1 / std::sqrt(v + r.call.number(6)));
    new_mean.ptr<float>()[ch] = float((1 - momentum) * mean.ptr<float>()[ch] + momentum * m);
    new_variance.ptr<float>()[ch] = float((1 - momentum) * variance.ptr<float>()[ch] + momentum * unbiased);
  }
  copy(r.tensor(7), batch_mean.reshape(r.tensor(7).shape()));
  copy(r.tensor(8), invstd.reshape(r.tensor(8).shape()));
  copy(r.tensor(3), new_mean.reshape(r.tensor(3).shape()));
  copy(r.tensor(4), new_variance.reshape(r.tensor(4).shape()));
}

// ---- aclnnGroupedBiasAddGrad(gradY, groupIdx?, [groupIdxType], out): rows added up by group ------------------------------------
template <int out> void check_bias_grad(const Call& c) {
  const TensorMeta& g = c.tensor(0);
  if (!has(c, 1)) {
    EXPECT(g.ndim == 3, "%s: gradY %s without groups must have 3 dims", c.name(), describe(g).c_str());
    expect_shape(c, out, {g.sizes[0], g.sizes[2]});
    return;
  }
  EXPECT(g.ndim == 2, "%s: gradY %s", c.name(), describe(g).c_str());
  expect_shape(c, out, {c.tensor(1).numel(), g.sizes[1]});
}
template <int out> void bias_grad(Run& r) {
  const Value g = floats(r, 0), sum = full(r.tensor(out).shape(), mt::kFloat, 0);
  const int64_t groups = sum.size(0), width = sum.size(1), rows = width ? g.numel() / width : 0;
  const Value ends = has(r.call, 1) ? whole(r, 1) : Value();
  int64_t row = 0;
  for (int64_t k = 0; k < groups; ++k) {
    int64_t end = ends.given() ? ends.ptr<int64_t>()[k] : (k + 1) * (rows / groups);
    if (out == 3 && ends.given() && r.call.integer(2) == 1) end += row;  // how many, not where they end
    for (; row < std::min(end, rows); ++row)
      for (int64_t j = 0; j < width; ++j) sum.ptr<float>()[k * width + j] += g.ptr<float>()[row * width + j];
  }
  copy(r.tensor(out), sum);
}

// ---- aclnnBackgroundReplace(background, source, mask, out): the source where the mask is 1 -------------------------------------
void check_background(const Call& c) {
  for (int i : {1, 3}) expect_same_shape(c, i, 0);
  EXPECT(c.tensor(2).numel() && c.tensor(0).numel() % c.tensor(2).numel() == 0, "%s: mask %s for %s", c.name(), describe(c.tensor(2)).c_str(),
         describe(c.tensor(0)).c_str());
}
void background(Run& r) {
  const Value a = floats(r, 0), b = floats(r, 1), mask = floats(r, 2), made = empty(a.shape(), mt::kFloat);
  const int64_t n = made.numel(), channels = mask.numel() ? n / mask.numel() : 1;
  for (int64_t i = 0; i < n; ++i) {
    const float m = mask.ptr<float>()[i / channels];
    made.ptr<float>()[i] = a.ptr<float>()[i] * (1 - m) + b.ptr<float>()[i] * m;
  }
  copy(r.tensor(3), made);
}

// ---- (rgb [H, W, 3], alpha of H * W items, [frame [H, W, 3],] out): rgb * alpha / 255, over the frame; rounded to the nearest ---------
template <bool over> void check_blend(const Call& c) {
  const Sizes image = sizes_of(c.tensor(0));
  EXPECT(image.back() == 3, "%s: rgb %s has no 3 channels", c.name(), describe(c.tensor(0)).c_str());
  expect_numel(c, 1, image[0] * image[1]);
  for (int i : {2, 2 + over}) expect_same_shape(c, i, 0);
}
template <bool over> void blend(Run& r) {
  const Value rgb = floats(r, 0), alpha = floats(r, 1), frame = over ? floats(r, 2) : rgb, made = empty(rgb.shape(), mt::kUInt8);
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    const float share = alpha.ptr<float>()[i / 3] / 255, under = over ? frame.ptr<float>()[i] * (1 - share) : 0;
    made.ptr<uint8_t>()[i] = uint8_t(std::nearbyint(rgb.ptr<float>()[i] * share + under));
  }
  copy(r.tensor(2 + over), made);
}

const Op ops[] = {
    {"aclnnMrgbaCustom", check_blend<false>, blend<false>},
    {"aclnnBlendImagesCustom", check_blend<true>, blend<true>},
    {"aclnnThreeInterpolateBackward", check_three, three},
    {"aclnnChamferDistanceBackward", check_chamfer, chamfer},
    {"aclnnMultiScaleDeformableAttnFunction", check_deformable, deformable},
    {"aclnnMultiScaleDeformableAttentionGrad", check_deformable_grad, deformable_grad},
    {"aclnnExpandIntoJaggedPermute", check_jagged, jagged},
    {"aclnnSinkhorn", check_sinkhorn, sinkhorn},
    {"aclnnKlDivTargetBackward", check_kl, kl},
    {"aclnnExpSegsum", check_segsum, segsum},
    {"aclnnExpSegsumBackward", check_segsum_grad, segsum_grad},
    {"aclnnSyncBatchNormGatherStats", check_gather_stats, gather_stats},
    {"aclnnGroupedBiasAddGrad", check_bias_grad<2>, bias_grad<2>},
    {"aclnnGroupedBiasAddGradV2", check_bias_grad<3>, bias_grad<3>},
    {"aclnnBackgroundReplace", check_background, background},
};

}  // namespace
}  // namespace cann_sim
