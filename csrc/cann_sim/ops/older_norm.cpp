// Norms and statistics of the older interface: batches in two steps, groups, deviations, vectors, distances.
#include <algorithm>
#include <cmath>

#include "ops/older.h"
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

// ---- batch norm, in steps: channels stand in dim 1, and all that is kept of a channel is float32 ------------------------------------
// f(channel, place) for every item of x.
template <class F> void each_channel(const Value& x, F&& f) {
  const int64_t channels = x.size(1), inner = x.numel() / std::max<int64_t>(x.size(0) * channels, 1);
  for (int64_t i = 0, n = x.numel(); i < n; ++i) f(i / inner % channels, i);
}
Value floats(const Value& v) { return v.to(mt::kFloat).dense(); }
void store(const Value& out, const Value& channels) { copy(out, channels.reshape(out.shape())); }

void batch_sums(Older& o) {  // (x): sums and sums of squares
  const Value x = floats(o.in(0));
  const int64_t channels = x.size(1);
  const Value sum = full({channels}, mt::kDouble, 0), squares = full({channels}, mt::kDouble, 0);
  each_channel(x, [&](int64_t c, int64_t i) {
    const double v = x.ptr<float>()[i];
    sum.ptr<double>()[c] += v;
    squares.ptr<double>()[c] += v * v;
  });
  store(o.out(0), sum);
  store(o.out(1), squares);
}
void normalize(const Value& out, const Value& x, const Value& mean, const Value& variance, const Value& scale, const Value& offset, double epsilon) {
  const Value y = empty(x.shape(), mt::kFloat);
  each_channel(x, [&](int64_t c, int64_t i) {
    const double by = 1 / std::sqrt(variance.ptr<float>()[c] + epsilon);
    y.ptr<float>()[i] = float((x.ptr<float>()[i] - mean.ptr<float>()[c]) * by * scale.ptr<float>()[c] + offset.ptr<float>()[c]);
  });
  copy(out, y);
}
// (x, sum, sum of squares, scale, offset, running mean, running variance): y, both running ones, mean and variance of the batch
void batch_update(Older& o) {
  const Value x = floats(o.in(0)), sum = floats(o.in(1)), squares = floats(o.in(2)), running = floats(o.in(5)), spread = floats(o.in(6));
  const int64_t channels = x.size(1), n = std::max<int64_t>(x.numel() / std::max<int64_t>(channels, 1), 1);
  const Value mean = empty({channels}, mt::kFloat), variance = empty({channels}, mt::kFloat);
  const Value new_mean = empty({channels}, mt::kFloat), new_variance = empty({channels}, mt::kFloat);
  const double factor = o.real("factor", 0.1);
  for (int64_t c = 0; c < channels; ++c) {
    const double m = sum.ptr<float>()[c] / double(n), v = std::max(squares.ptr<float>()[c] / double(n) - m * m, 0.0);
    mean.ptr<float>()[c] = float(m);
    variance.ptr<float>()[c] = float(v);
    new_mean.ptr<float>()[c] = float(running.ptr<float>()[c] * (1 - factor) + m * factor);
    new_variance.ptr<float>()[c] = float(spread.ptr<float>()[c] * (1 - factor) + v * factor * (n > 1 ? double(n) / double(n - 1) : 1));
  }
  normalize(o.out(0), x, mean, variance, floats(o.in(3)), floats(o.in(4)), o.real("epsilon", 1e-5));
  const Value results[] = {new_mean, new_variance, mean, variance};
  for (size_t k = 0; k < 4; ++k) store(o.out(k + 1), results[k]);
}
void batch_infer(Older& o) {  // (x, scale, offset, mean, variance)
  normalize(o.out(0), floats(o.in(0)), floats(o.in(3)), floats(o.in(4)), floats(o.in(1)), floats(o.in(2)), o.real("epsilon", 1e-5));
}
void batch_norm(Older& o) {  // as batch_infer; with the statistics that were used as four further outputs
  batch_infer(o);
  for (size_t k = 1; k < 5; ++k) copy(o.out(k), o.in(k % 2 ? 3 : 4));
}
void check_batch_norm(Older& o) {
  if (o.integer("is_training", 1)) o.refuse("it is not there for training");
}
void batch_infer_grad(Older& o) {  // (gradient, scale, variance)
  const Value dy = floats(o.in(0)), scale = floats(o.in(1)), variance = floats(o.in(2)), dx = empty(dy.shape(), mt::kFloat);
  const double epsilon = o.real("epsilon", 1e-5);
  each_channel(dy, [&](int64_t c, int64_t i) { dx.ptr<float>()[i] = float(dy.ptr<float>()[i] * scale.ptr<float>()[c] / std::sqrt(variance.ptr<float>()[c] + epsilon)); });
  copy(o.out(0), dx);
}
void batch_update_grad(Older& o) {  // (gradient, x, mean, variance): of scale and offset
  const Value dy = floats(o.in(0)), x = floats(o.in(1)), mean = floats(o.in(2)), variance = floats(o.in(3));
  const Value dscale = full({x.size(1)}, mt::kDouble, 0), doffset = full({x.size(1)}, mt::kDouble, 0);
  const double epsilon = o.real("epsilon", 1e-5);
  each_channel(x, [&](int64_t c, int64_t i) {
    const double g = dy.ptr<float>()[i];
    doffset.ptr<double>()[c] += g;
    dscale.ptr<double>()[c] += g * (x.ptr<float>()[i] - mean.ptr<float>()[c]) / std::sqrt(variance.ptr<float>()[c] + epsilon);
  });
  store(o.out(0), dscale);
  store(o.out(1), doffset);
}
void batch_reduce_grad(Older& o) {  // (gradient, x, of scale, of offset, scale, mean, variance): of x
  const Value dy = floats(o.in(0)), x = floats(o.in(1)), dscale = floats(o.in(2)), doffset = floats(o.in(3)), scale = floats(o.in(4)), mean = floats(o.in(5)),
              variance = floats(o.in(6)), dx = empty(x.shape(), mt::kFloat);
  const double epsilon = o.real("epsilon", 1e-5), n = double(x.numel()) / double(std::max<int64_t>(x.size(1), 1));
  each_channel(x, [&](int64_t c, int64_t i) {
    const double by = 1 / std::sqrt(variance.ptr<float>()[c] + epsilon), at = (x.ptr<float>()[i] - mean.ptr<float>()[c]) * by;
    dx.ptr<float>()[i] = float(scale.ptr<float>()[c] * by * (dy.ptr<float>()[i] - doffset.ptr<float>()[c] / n - at * dscale.ptr<float>()[c] / n));
  });
  copy(o.out(0), dx);
}

// ---- group norm: (x, gamma, beta) ----------------------------------------------------------------------------------------------------
void group_norm(Older& o) {
  const Value x = floats(o.in(0)), y = empty(x.shape(), mt::kFloat);
  const int64_t groups = o.integer("num_groups", 1), batch = x.size(0), channels = x.size(1), inner = x.numel() / std::max<int64_t>(batch * channels, 1);
  const Value mean = empty({batch, groups}, mt::kFloat), spread = empty({batch, groups}, mt::kFloat);
  if (x.numel())
    call_kernel("native_group_norm", {y, mean, spread, x, floats(o.in(1)), floats(o.in(2))},
                {integer(batch), integer(channels), integer(inner), integer(groups), number(o.real("eps", 1e-5))});
  if (o.integer("activate_swish", 0)) {
    const double scale = o.real("swish_scale", 1);
    copy(o.out(0), zipped(y.shape(), {y}, [=](const float* v) { return v[0] / (1 + std::exp(-scale * v[0])); }));
  } else {
    copy(o.out(0), y);
  }
  if (!x.numel()) return;
  store(o.out(1), mean);
  store(o.out(2), spread);
}
void group_norm_grad(Older& o) {  // (gradient, mean, 1 / deviation, x, gamma): of x, gamma, beta
  const Value dy = floats(o.in(0)), x = floats(o.in(3)), gamma = floats(o.in(4));
  const int64_t groups = o.integer("num_groups", 1), batch = x.size(0), channels = x.size(1), inner = x.numel() / std::max<int64_t>(batch * channels, 1);
  const Value dx = empty(x.shape(), mt::kFloat), dgamma = empty({channels}, mt::kFloat), dbeta = empty({channels}, mt::kFloat);
  call_kernel("native_group_norm_backward", {dx, dgamma, dbeta, dy, x, floats(o.in(1)).reshape({batch, groups}), floats(o.in(2)).reshape({batch, groups}), gamma},
              {integer(batch), integer(channels), integer(inner), integer(groups), none()});
  const Value results[] = {dx, dgamma, dbeta};
  for (size_t k = 0; k < 3; ++k) store(o.out(k), results[k]);
}

// ---- deviations around a mean that is given ------------------------------------------------------------------------------------------
void spread_around(Older& o, bool root) {  // (x, mean, of x's shape or with dims of 1)
  const Value x = row_of(floats(o.in(0))), out = o.out(0);
  const Sizes dims = axes_of(o, o.list("dim"), x.ndim);
  Sizes kept = x.shape();
  int64_t n = 1;
  for (int64_t d : dims) n *= kept[d], kept[d] = 1;
  const Value off = zipped(x.shape(), {x, o.in(1)}, [](const float* v) { return (double(v[0]) - v[1]) * (double(v[0]) - v[1]); });
  const Value sum = empty(kept, mt::kFloat);
  call_kernel("sum", {sum, off}, {list(dims), integer(1), none()});
  const int64_t less = o.integer("correction", o.integer("unbiased", 1) ? 1 : 0);
  const double by = double(std::max<int64_t>(n - less, 0));
  store(out, zipped(kept, {sum}, [=](const float* v) { return root ? std::sqrt(v[0] / by) : v[0] / by; }));
}
void variance_around(Older& o) { spread_around(o, o.integer("if_std", 0)); }
void deviation_around(Older& o) { spread_around(o, true); }

// ---- vectors ----------------------------------------------------------------------------------------------------------------------------
// The largest integer and its negative stand for infinity.
double exponent(Older& o) {
  const double p = o.real("p", 2);
  return p > 2e9 ? INFINITY : p < -2e9 ? -INFINITY : p;
}
// Of distances: -1 stands for infinity.
double distance_exponent(Older& o) { return o.real("p", 2) < 0 ? INFINITY : exponent(o); }
// What is left of a norm after its sum: the root, at least epsilon.
void norm_root(Older& o) {
  const double p = exponent(o), least = o.real("epsilon", 0);
  copy(o.out(0), zipped(o.out(0).shape(), {o.in(0)}, [=](const float* v) {
    return std::max(std::isinf(p) || p == 0 ? double(v[0]) : std::pow(double(v[0]), 1 / p), least);
  }));
}
double part(double d, double p) { return p == 0 ? double(d != 0) : std::isinf(p) ? d : std::pow(d, p); }
double whole(double sum, double p) { return p == 0 || std::isinf(p) ? sum : std::pow(sum, 1 / p); }
void distances(Older& o) {  // (a, b): along the last dim, of values that are of one shape
  const Value a = floats(o.in(0)), b = o.in(1).to(mt::kFloat).expand(o.in(0).shape()).dense(), out = o.out(0);
  const double p = distance_exponent(o);
  const int64_t width = a.size(-1), rows = out.numel();
  const Value made = empty({rows}, mt::kFloat);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      const double d = std::fabs(double(a.ptr<float>()[i]) - b.ptr<float>()[i]);
      sum = std::isinf(p) ? std::max(sum, d) : sum + part(d, p);
    }
    made.ptr<float>()[r] = float(whole(sum, p));
  }
  store(out, made);
}
// (gradient, a, b, distances): of a. All but the rows' width broadcast.
void distances_grad(Older& o) {
  const double p = distance_exponent(o);
  const Value out = o.out(0), first = o.in(1), b = o.in(2);
  const Sizes shape = first.shape();  // a [.., P, R, M] that is expanded over R has a gradient [.., P, M]
  auto beside = [&](const Value& v) { return v.ndim == int(shape.size()) ? v : v.unsqueeze(-1); };
  const Value each = zipped(shape, {beside(o.in(0)), first, b, beside(o.in(3))}, [=](const float* v) {
    const double d = double(v[1]) - v[2], size = std::fabs(d), sign = d > 0 ? 1 : d < 0 ? -1 : 0;
    if (p == 0 || v[3] == 0 || size == 0) return 0.0;
    if (std::isinf(p)) return float(size) == v[3] ? v[0] * sign : 0.0;
    return p == 1 ? v[0] * sign : v[0] * sign * std::pow(size, p - 1) * std::pow(double(v[3]), 1 - p);
  });
  if (each.numel() == out.numel()) return store(out, each);
  Value sum = each;  // first over R, then over the dims that a was broadcast along
  for (int64_t d = each.ndim - 2; sum.numel() != out.numel() && d >= 0; --d) {
    Sizes left = sum.shape();
    const bool keeps = d < each.ndim - 2 && each.ndim - 1 - d <= out.ndim && out.size(d - (each.ndim - 1)) == left[size_t(d)];
    if (keeps) continue;
    left.erase(left.begin() + d);
    const Value next = empty(left, mt::kFloat);
    const Sizes over{d};
    call_kernel("sum", {next, sum}, {list(over), integer(0), none()});
    sum = next;
  }
  store(out, sum);
}
void pair_distances(Older& o) {  // (x [N, M]): of all pairs of rows
  const Value x = floats(o.in(0));
  const double p = distance_exponent(o);
  const int64_t n = x.size(0), width = x.size(1);
  const Value made = empty({n * (n - 1) / 2}, mt::kFloat);
  int64_t k = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j, ++k) {
      double sum = 0;
      for (int64_t m = 0; m < width; ++m) {
        const double d = std::fabs(double(x.ptr<float>()[i * width + m]) - x.ptr<float>()[j * width + m]);
        sum = std::isinf(p) ? std::max(sum, d) : sum + part(d, p);
      }
      made.ptr<float>()[k] = float(whole(sum, p));
    }
  store(o.out(0), made);
}
// What rows along a dim are multiplied by, so that their norms are at most maxnorm.
void renorm(Older& o) {
  const Value x = row_of(floats(o.in(0))), out = o.out(0);
  const int64_t kept = axes_of(o, {o.integer("dim", 0)}, x.ndim)[0];
  Sizes dims, shape(size_t(x.ndim), 1);
  shape[size_t(kept)] = x.size(kept);
  for (int64_t d = 0; d < x.ndim; ++d)
    if (d != kept) dims.push_back(d);
  const Value norm = empty(shape, mt::kFloat);
  call_kernel("linalg_vector_norm", {norm, x}, {number(exponent(o)), list(dims), integer(1), none()});
  const double most = o.real("maxnorm", 1);
  const Value by = zipped(shape, {norm}, [=](const float* v) { return v[0] > most ? most / (v[0] + 1e-7) : 1; });
  if (out.numel() == by.numel()) store(out, by);
  else copy(out, by);  // one for every item
}

// ---- rows of as many items as gamma has ------------------------------------------------------------------------------------------
struct Rows {
  Rows(Older& o, const Value& x, const Value& gamma) : width(gamma.numel()), count(width ? x.numel() / width : 0) {
    if (!width || x.numel() % width) o.refuse("gamma does not fit the rows of x");
  }
  const int64_t width, count;
};
void rms_norm_of(Older& o, const Value& x, const Value& gamma) {
  const Value y = empty(x.shape(), mt::kFloat);
  const Rows rows(o, x, gamma);
  const Value rstd = empty({rows.count}, mt::kFloat);
  for (int64_t r = 0; r < rows.count; ++r) {
    const float* row = x.ptr<float>() + r * rows.width;
    double square = 0;
    for (int64_t i = 0; i < rows.width; ++i) square += double(row[i]) * row[i] / double(rows.width);
    const double by = 1 / std::sqrt(square + o.real("epsilon", 1e-6));
    rstd.ptr<float>()[r] = float(by);
    for (int64_t i = 0; i < rows.width; ++i) y.ptr<float>()[r * rows.width + i] = float(row[i] * by * gamma.ptr<float>()[i]);
  }
  copy(o.out(0), y);
  store(o.out(1), rstd);
}
void rms_norm(Older& o) { rms_norm_of(o, floats(o.in(0)), floats(o.in(1))); }  // (x, gamma): y and 1 / root of the mean square
void add_rms_norm(Older& o) {  // (x1, x2, gamma): y, 1 / root of the mean square, and the sum
  const Value x = pointwise("add", mt::kFloat, {o.in(0), o.in(1)}, {integer(1)}).dense();
  rms_norm_of(o, x, floats(o.in(2)));
  store(o.out(2), x);
}
// (sums, sums of squares and counts of all ranks, running mean and variance): mean, 1 / deviation, both running ones
void gathered_stats(Older& o) {
  const Value sums = floats(o.in(0)), squares = floats(o.in(1)), running = floats(o.in(3)), spread = floats(o.in(4));
  const Sizes counts = o.numbers(2);
  const int64_t channels = running.numel(), ranks = int64_t(counts.size());
  if (sums.numel() != ranks * channels || squares.numel() != sums.numel() || spread.numel() != channels) o.refuse("the sums do not fit counts and channels");
  double n = 0;
  for (int64_t count : counts) n += double(count);
  Value made[4];
  for (Value& v : made) v = empty({channels}, mt::kFloat);
  const double momentum = o.real("momentum", 0.1);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, square = 0;
    for (int64_t r = 0; r < ranks; ++r) sum += sums.ptr<float>()[r * channels + c], square += squares.ptr<float>()[r * channels + c];
    const double mean = sum / n, variance = std::max(square / n - mean * mean, 0.0);
    made[0].ptr<float>()[c] = float(mean);
    made[1].ptr<float>()[c] = float(1 / std::sqrt(variance + o.real("eps", 1e-5)));
    made[2].ptr<float>()[c] = float(running.ptr<float>()[c] * (1 - momentum) + mean * momentum);
    made[3].ptr<float>()[c] = float(spread.ptr<float>()[c] * (1 - momentum) + variance * momentum * (n > 1 ? n / (n - 1) : 1));
  }
  for (size_t k = 0; k < 4; ++k) store(o.out(k), made[k]);
}
void rms_norm_grad(Older& o) {  // (gradient, x, rstd, gamma): of x and gamma
  const Value dy = floats(o.in(0)), x = floats(o.in(1)), rstd = floats(o.in(2)), gamma = floats(o.in(3));
  const Rows rows(o, x, gamma);
  if (rstd.numel() != rows.count || dy.numel() != x.numel()) o.refuse("the gradient or rstd does not fit x");
  const Value dx = empty(x.shape(), mt::kFloat), dgamma = full({rows.width}, mt::kDouble, 0);
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t at = r * rows.width;
    const double by = rstd.ptr<float>()[r];
    double along = 0;
    for (int64_t i = 0; i < rows.width; ++i) {
      const double normed = x.ptr<float>()[at + i] * by;
      dgamma.ptr<double>()[i] += dy.ptr<float>()[at + i] * normed;
      along += double(dy.ptr<float>()[at + i]) * gamma.ptr<float>()[i] * normed / double(rows.width);
    }
    for (int64_t i = 0; i < rows.width; ++i)
      dx.ptr<float>()[at + i] = float(by * (double(dy.ptr<float>()[at + i]) * gamma.ptr<float>()[i] - x.ptr<float>()[at + i] * by * along));
  }
  copy(o.out(0), dx);
  store(o.out(1), dgamma);
}
void add_layer_norm(Older& o) {  // (x1, x2, gamma, beta, bias?): y, mean, 1 / deviation, and the sum
  Value x = pointwise("add", mt::kFloat, {o.in(0), o.in(1)}, {integer(1)});
  if (o.given(4)) x = pointwise("add", mt::kFloat, {x, o.in(4)}, {integer(1)});
  x = x.dense();
  const Value gamma = floats(o.in(2)), beta = floats(o.in(3)), y = empty(x.shape(), mt::kFloat);
  const Rows rows(o, x, gamma);
  const Value means = empty({rows.count}, mt::kFloat), rstd = empty({rows.count}, mt::kFloat);
  for (int64_t r = 0; r < rows.count; ++r) {
    const float* row = x.ptr<float>() + r * rows.width;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < rows.width; ++i) mean += row[i] / double(rows.width);
    for (int64_t i = 0; i < rows.width; ++i) square += (row[i] - mean) * (row[i] - mean) / double(rows.width);
    const double by = 1 / std::sqrt(square + o.real("epsilon", 1e-5));
    means.ptr<float>()[r] = float(mean);
    rstd.ptr<float>()[r] = float(by);
    for (int64_t i = 0; i < rows.width; ++i)
      y.ptr<float>()[r * rows.width + i] = float((row[i] - mean) * by * gamma.ptr<float>()[i] + beta.ptr<float>()[i]);
  }
  copy(o.out(0), y);
  if (means.numel() == o.out(1).numel()) store(o.out(1), means), store(o.out(2), rstd);
  if (x.numel() == o.out(3).numel()) store(o.out(3), x);
}

// Sums of two inputs with a factor of one, and the gradient of their layer norm.
Value weighted_sum(const Value& x, const Value& y, double by) {
  const Value sum = empty(x.shape(), mt::kFloat);
  call_pointwise("add", mt::kFloat, {sum, y, x}, {number(by)});
  return sum;
}
struct NormGrad { Value dx, dgamma, dbeta; };
NormGrad layer_norm_grad(Older& o, const Value& dy, const Value& x, const Value& mean, const Value& rstd, const Value& gamma) {
  const Rows rows(o, x, gamma);
  NormGrad made{empty(x.shape(), mt::kFloat), empty(gamma.shape(), mt::kFloat), empty(gamma.shape(), mt::kFloat)};
  const Sizes shape = gamma.shape();
  call_kernel("native_layer_norm_backward", {made.dx, made.dgamma, made.dbeta, dy, x, mean, rstd, gamma, Value()}, {list(shape), none()});
  return made;
}
// (dy, x1, x2, rstd, mean, gamma, dsum?): of x1 + x2, gamma and beta
void add_layer_norm_grad(Older& o) {
  const NormGrad made = layer_norm_grad(o, floats(o.in(0)), weighted_sum(o.in(1), o.in(2), 1), floats(o.in(4)), floats(o.in(3)), floats(o.in(5)));
  copy(o.out(0), o.given(6) && o.in(6).numel() == made.dx.numel() ? weighted_sum(made.dx, floats(o.in(6)), 1) : made.dx);
  store(o.out(1), made.dgamma);
  store(o.out(2), made.dbeta);
}
void deep_norm(Older& o) {  // (x, gx, beta, gamma): mean, 1 / deviation and the layer norm of alpha * x + gx
  const Value sum = weighted_sum(o.in(0), o.in(1), o.real("alpha", 0.3)), gamma = floats(o.in(3));
  const Rows rows(o, sum, gamma);
  const Value y = empty(sum.shape(), mt::kFloat), mean = empty({rows.count}, mt::kFloat), rstd = empty({rows.count}, mt::kFloat);
  const Sizes shape = gamma.shape();
  call_kernel("native_layer_norm", {y, mean, rstd, sum, gamma, floats(o.in(2))}, {list(shape), number(o.real("epsilon", 1e-6))});
  store(o.out(0), mean);
  store(o.out(1), rstd);
  copy(o.out(2), y);
}
void deep_norm_grad(Older& o) {  // (dy, x, gx, gamma, mean, rstd): of x, gx, beta and gamma
  const double alpha = o.real("alpha", 0.3);
  const NormGrad made = layer_norm_grad(o, floats(o.in(0)), weighted_sum(o.in(1), o.in(2), alpha), floats(o.in(4)), floats(o.in(5)), floats(o.in(3)));
  copy(o.out(0), zipped(made.dx.shape(), {made.dx}, [=](const float* v) { return alpha * v[0]; }));
  copy(o.out(1), made.dx);
  store(o.out(2), made.dbeta);
  store(o.out(3), made.dgamma);
}

const OlderOps ops({
    {"AddLayerNormGrad", 6, 7, 3, add_layer_norm_grad}, {"DeepNorm", 4, 4, 3, deep_norm}, {"DeepNormGrad", 6, 6, 4, deep_norm_grad},
    {"RmsNorm", 2, 2, 2, rms_norm}, {"AddRmsNorm", 3, 3, 3, add_rms_norm}, {"SyncBatchNormGatherStats", 5, 5, 4, gathered_stats}, {"RmsNormGrad", 4, 4, 2, rms_norm_grad}, {"AddLayerNorm", 4, 5, 4, add_layer_norm},
    {"BNTrainingReduce", 1, 1, 2, batch_sums}, {"BN3DTrainingReduce", 1, 1, 2, batch_sums}, {"BNTrainingUpdate", 7, 7, 5, batch_update},
    {"BN3DTrainingUpdate", 7, 7, 5, batch_update}, {"BNInfer", 5, 5, 1, batch_infer}, {"BatchNorm", 5, 5, 5, batch_norm, check_batch_norm}, {"BNInferGrad", 3, 3, 1, batch_infer_grad},
    {"BNTrainingUpdateGrad", 4, 4, 2, batch_update_grad}, {"BN3DTrainingUpdateGrad", 4, 4, 2, batch_update_grad},
    {"BNTrainingReduceGrad", 7, 7, 1, batch_reduce_grad}, {"BN3DTrainingReduceGrad", 7, 7, 1, batch_reduce_grad},
    {"GroupNormSwish", 3, 3, 3, group_norm}, {"GroupNormGrad", 5, 5, 3, group_norm_grad}, {"ReduceStdV2Update", 2, 2, 1, variance_around},
    {"ReduceStdWithMean", 2, 2, 1, deviation_around}, {"LpNormUpdateV2", 1, 1, 1, norm_root}, {"Cdist", 2, 2, 1, distances},
    {"CdistGrad", 4, 4, 1, distances_grad}, {"Pdist", 1, 1, 1, pair_distances}, {"Renorm", 1, 1, 1, renorm},
});

}  // namespace
}  // namespace cann_sim
