// Norms with channels in dim 1: native_batch_norm, native_group_norm and their backwards.
#include "channels.h"
#include "norm.h"

namespace mt {
namespace {

// ---- how the channels lie ---------------------------------------------------------------------------------------
// Batch norm sees rows that are either one channel's run of items (NCHW) or all channels of one position (NHWC, NC).
struct Layout {
  int64_t batch = 1, channels = 1, length = 1;
  bool last = false;
  explicit Layout(const View& in) {
    if (in.ndim < 2) throw std::invalid_argument("Expected more than 1 dimension in the input of batch_norm");
    batch = in.sizes[0];
    channels = in.sizes[1];
    for (int d = 2; d < in.ndim; ++d) length *= in.sizes[d];
  }
  int64_t rows() const { return last ? batch * length : batch * channels; }
  int64_t width() const { return last ? channels : length; }
  int64_t items() const { return batch * length; }  // of one channel
};

// A view of channels-last memory read in the order it lies in.
struct Flat {
  int64_t size, stride = 1;
  View view;
  Flat(const View& v, bool last) : size(v.given() ? v.numel() : 0), view(v) {
    if (last && v.given()) view.sizes = &size, view.strides = &stride, view.ndim = 1;
  }
  Flat(const Flat&) = delete;
};

// ---- batch norm -------------------------------------------------------------------------------------------------
// y = (x - mean) * a + b, all three by channel.
template <class T>
void scale_rows(const Layout& l, const Matrix<T>& in, const Matrix<T>& out, const T* mean, const T* a, const T* b) {
  int64_t n = l.width();
  parallel_for(l.rows(), rows_per_piece(n), [&](int64_t begin, int64_t end) {
    auto from = in.rows(n), to = out.rows(n);
    for (int64_t i = begin; i < end; ++i) {
      const T* x = from.read(i);
      T* y = to.write_to(i);
      if (l.last) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean[j]) * a[j] + b[j];
      } else {
        T m = mean[i % l.channels], s = a[i % l.channels], t = b[i % l.channels];
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - m) * s + t;
      }
      to.written(i);
    }
  });
}

// Mean and biased variance of every channel, by the var_mean kernel.
template <class T> void channel_moments(const View& in, T* mean, T* var, int64_t channels) {
  static const Kernel var_mean = find("var_mean");
  int64_t dims[kMaxDims], stride = 1;
  int n = 0;
  for (int d = 0; d < in.ndim; ++d)
    if (d != 1) dims[n++] = d;
  View t[3] = {{var, &channels, &stride, 1, kDTypeOf<T>}, {mean, &channels, &stride, 1, kDTypeOf<T>}, in};
  Attr a[3];
  a[0].list = dims, a[0].n = n;
  for (auto& x : a) x.given = true;
  var_mean({t, 3, a, 3, nullptr});
}

// native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,
//   bool training, float momentum, float eps) -> (Tensor out, Tensor save_mean, Tensor save_invstd)
template <class T> void batch_norm(const Args& c) {
  const View &out = c.t[0], &in = c.t[3];
  bool training = c.a[0].i != 0;
  double momentum = c.a[1].f, eps = c.a[2].f;
  Layout l(in);
  const char* names[] = {"weight", "bias", "running_mean", "running_var"};
  for (int k = 0; k < 4; ++k) expect_items(c.t[4 + k], l.channels, "batch_norm", names[k]);
  l.last = channels_last(in) && channels_last(out) && (in.ndim == 2 || !in.contiguous());
  Maybe<T> w(c.t[4], Dense::kLoad), b(c.t[5], Dense::kLoad);
  Maybe<T> running_mean(c.t[6], Dense::kLoad), running_var(c.t[7], Dense::kLoad);
  std::vector<T> work(size_t(4 * l.channels));
  T *mean = work.data(), *var = mean + l.channels, *a = var + l.channels, *shift = a + l.channels;
  if (training) {
    channel_moments(in, mean, var, l.channels);
    double items = double(l.items());
    for (int64_t j = 0; running_mean.p && j < l.channels; ++j)
      running_mean.p[j] = T(momentum * mean[j] + (1 - momentum) * running_mean.p[j]);
    for (int64_t j = 0; running_var.p && j < l.channels; ++j)
      running_var.p[j] = T(momentum * var[j] * (items / (items - 1)) + (1 - momentum) * running_var.p[j]);
    running_mean.store();
    running_var.store();
  } else {
    if (!running_mean.p || !running_var.p)
      throw std::runtime_error("running_mean and running_var must be defined in evaluation mode");
    std::copy_n(running_mean.p, l.channels, mean);
    std::copy_n(running_var.p, l.channels, var);
  }
  for (int64_t j = 0; j < l.channels; ++j) {
    T invstd = T(1 / std::sqrt(double(var[j]) + eps));
    var[j] = invstd;
    a[j] = w.p ? invstd * w.p[j] : invstd;
    shift[j] = b.p ? b.p[j] : T(0);
  }
  const T* saved[2] = {mean, var};
  for (int k = 0; training && k < 2; ++k) {
    if (!c.t[1 + k].given() || c.t[1 + k].numel() != l.channels) continue;
    Maybe<T> save(c.t[1 + k], Dense::kOutput);
    std::copy_n(saved[k], l.channels, save.p);
    save.store();
  }
  if (in.numel() == 0) return;
  Flat fi(in, l.last), fo(out, l.last);
  Matrix<T> x(fi.view, Dense::kLoad), y(fo.view, Dense::kOutput);
  scale_rows(l, x, y, mean, a, shift);
  y.store();
}
void native_batch_norm(const Args& c) {
  DType d = widened(c.t[3].dtype);
  MT_SWITCH(d, "batch_norm", MT_FLOATS(T, { batch_norm<T>(c); }))
}

// dot += sum of g * (x - mean) * rstd, sum += sum of g.
template <class T> void add_products(const T* g, const T* x, int64_t n, T mean, T rstd, double& dot, double& sum) {
  alignas(64) T e[kMomentsBlock];
  for (int64_t i = 0; i < n; i += kMomentsBlock) {
    int64_t m = std::min(kMomentsBlock, n - i);
    for (int64_t j = 0; j < m; ++j) e[j] = g[i + j] * ((x[i + j] - mean) * rstd);
    dot += double(total(e, m));
    sum += double(total(g + i, m));
  }
}

// Per channel: the sums of g * normal and of g, with normal = (x - mean) * invstd; first all of one, then of the other.
template <class T>
std::vector<double> channel_sums(const Layout& l, const Matrix<T>& grad, const Matrix<T>& in, const T* mean,
                                 const T* invstd) {
  int64_t n = l.width(), channels = l.channels;
  std::vector<double> sums(size_t(2 * channels));
  if (l.last) {
    int64_t m = l.rows(), most = m / rows_per_piece(n);
    int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(2 * get_num_threads(), most));
    std::vector<Sums<T>> part(static_cast<size_t>(pieces), Sums<T>(n));
    parallel_for(pieces, 1, [&](int64_t first, int64_t end) {
      auto gs = grad.rows(n), xs = in.rows(n);
      std::vector<T> normal(static_cast<size_t>(n));
      for (int64_t p = first; p < end; ++p) {
        for (int64_t i = p * m / pieces; i < (p + 1) * m / pieces; ++i) {
          const T *g = gs.read(i), *x = xs.read(i);
          for (int64_t j = 0; j < n; ++j) normal[size_t(j)] = (x[j] - mean[j]) * invstd[j];
          part[size_t(p)].add_row(g, normal.data(), n);
        }
        part[size_t(p)].flush();
      }
    });
    for (auto& p : part)
      for (size_t j = 0; j < sums.size(); ++j) sums[j] += p.all[j];
    return sums;
  }
  parallel_for(channels, rows_per_piece(l.items()), [&](int64_t begin, int64_t end) {
    auto gs = grad.rows(n), xs = in.rows(n);
    for (int64_t ch = begin; ch < end; ++ch)
      for (int64_t i = ch; i < l.rows(); i += channels)
        add_products(gs.read(i), xs.read(i), n, mean[ch], invstd[ch], sums[size_t(ch)], sums[size_t(channels + ch)]);
  });
  return sums;
}

// native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, Tensor? running_var,
//   Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
template <class T> void batch_norm_backward(const Args& c) {
  const View &gx_out = c.t[0], &grad = c.t[3], &in = c.t[4];
  bool train = c.a[0].i != 0;
  Layout l(in);
  expect_like(grad, in, "batch_norm_backward", "grad_out");
  expect_items(c.t[5], l.channels, "batch_norm_backward", "weight");
  for (int k : {train ? 8 : 6, train ? 9 : 7}) {
    expect(c.t[k].given(), "batch_norm_backward", "the statistics are missing");
    expect_items(c.t[k], l.channels, "batch_norm_backward", "statistics");
  }
  l.last = channels_last(in) && channels_last(grad) && (!gx_out.given() || channels_last(gx_out)) &&
           (in.ndim == 2 || !in.contiguous());
  Maybe<T> w(c.t[5], Dense::kLoad), gw(c.t[1], Dense::kOutput), gb(c.t[2], Dense::kOutput);
  Maybe<T> mean(c.t[train ? 8 : 6], Dense::kLoad), spread(c.t[train ? 9 : 7], Dense::kLoad);
  Flat fg(grad, l.last), fi(in, l.last), fo(gx_out, l.last);
  Matrix<T> g(fg.view, Dense::kLoad), x(fi.view, Dense::kLoad), gx(fo.view, Dense::kOutput);
  std::vector<T> work(size_t(4 * l.channels));
  T *invstd = work.data(), *along = invstd + l.channels, *shift = along + l.channels, *scale = shift + l.channels;
  for (int64_t j = 0; j < l.channels; ++j)
    invstd[j] = train ? spread.p[j] : T(1 / std::sqrt(double(spread.p[j]) + c.a[1].f));
  std::vector<double> sums = channel_sums(l, g, x, mean.p, invstd);
  for (int64_t j = 0; j < l.channels; ++j) {
    double dot = sums[size_t(j)], sum = sums[size_t(l.channels + j)], items = double(l.items());
    if (gw.p) gw.p[j] = T(dot);
    if (gb.p) gb.p[j] = T(sum);
    along[j] = T(dot / items) * invstd[j];
    shift[j] = T(sum / items);
    scale[j] = w.p ? invstd[j] * w.p[j] : invstd[j];
  }
  int64_t n = l.width();
  if (gx) parallel_for(l.rows(), rows_per_piece(n), [&](int64_t begin, int64_t end) {
    auto gs = g.rows(n), xs = x.rows(n), to = gx.rows(n);
    for (int64_t i = begin; i < end; ++i) {
      const T *gp = gs.read(i), *xp = xs.read(i);
      T* y = to.write_to(i);
      const int64_t ch = i % l.channels;
      const T m = mean.p[ch], s = along[ch], t = shift[ch], by = scale[ch];
      if (!train && l.last) {  // without x: an infinite item would turn 0 * x into NaN
        for (int64_t j = 0; j < n; ++j) y[j] = gp[j] * scale[j];
      } else if (!train) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) y[j] = gp[j] * by;
      } else if (l.last) {
        for (int64_t j = 0; j < n; ++j) y[j] = (gp[j] - shift[j] - (xp[j] - mean.p[j]) * along[j]) * scale[j];
      } else {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) y[j] = (gp[j] - t - (xp[j] - m) * s) * by;
      }
      to.written(i);
    }
  });
  gx.store();
  gw.store();
  gb.store();
}
void native_batch_norm_backward(const Args& c) {
  DType d = widened(c.t[4].dtype);
  MT_SWITCH(d, "batch_norm_backward", MT_FLOATS(T, { batch_norm_backward<T>(c); }))
}

// ---- group norm: a row is one group of channels of one sample ---------------------------------------------------
struct Groups {
  int64_t batch, channels, length, groups;
  Groups(const Attr* a, const View& in) : batch(a[0].i), channels(a[1].i), length(a[2].i), groups(a[3].i) {
    expect(batch >= 0 && channels >= 0 && length >= 0, "group_norm", "N, C and HxW must not be negative");
    expect(groups > 0 && channels % groups == 0, "group_norm",
           "Expected number of channels in input to be divisible by num_groups");
    __int128 items = __int128(batch) * channels;
    expect(items <= in.numel() + 1 ? items * length == in.numel() : length == 0 && in.numel() == 0, "group_norm",
           "input does not have N * C * HxW elements");
    expect(items < (int64_t(1) << 40), "group_norm", "N * C is too large");
  }
  int64_t rows() const { return batch * groups; }
  int64_t per_group() const { return channels / groups; }
  int64_t width() const { return per_group() * length; }
};

// One sample whose channels are innermost. Squares are summed of distances from the first pixel, so that large means
// cost no digits.
template <class T>
void group_norm_last(const Groups& s, const T* x, const T* w, const T* b, double eps, T* y, T* means, T* rstds) {
  const int64_t channels = s.channels, k = s.per_group();
  std::vector<double> sums(static_cast<size_t>(2 * channels), 0.0);
  double *__restrict sum = sums.data(), *__restrict square = sum + channels;
  for (int64_t i = 0; i < s.length; ++i)
    for (int64_t c = 0; c < channels; ++c) {
      const double d = double(x[i * channels + c]) - double(x[c]);
      sum[c] += d;
      square[c] += d * d;
    }
  std::vector<T> factors(static_cast<size_t>(3 * channels));
  T *__restrict mean = factors.data(), *__restrict scale = mean + channels, *__restrict shift = scale + channels;
  for (int64_t g = 0; g < s.groups; ++g) {
    const double n = double(s.length);
    double middle = 0, spread = 0;
    for (int64_t c = g * k; c < (g + 1) * k; ++c) middle += (double(x[c]) + sum[c] / n) / double(k);
    for (int64_t c = g * k; c < (g + 1) * k; ++c) {
      const double off = double(x[c]) + sum[c] / n - middle;
      spread += square[c] - sum[c] * sum[c] / n + n * off * off;
    }
    means[g] = T(middle);
    rstds[g] = T(1 / std::sqrt(std::max(spread, 0.0) / (n * double(k)) + eps));
    for (int64_t c = g * k; c < (g + 1) * k; ++c) {
      mean[c] = means[g];
      scale[c] = w ? rstds[g] * w[c] : rstds[g];
      shift[c] = b ? b[c] : T(0);
    }
  }
  for (int64_t i = 0; i < s.length; ++i) {
    const T* __restrict p = x + i * channels;
    T* __restrict q = y + i * channels;
    for (int64_t c = 0; c < channels; ++c) q[c] = (p[c] - mean[c]) * scale[c] + shift[c];
  }
}

// native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps)
//   -> (Tensor out, Tensor mean, Tensor rstd)
template <class T> void group_norm(const Args& c) {
  Groups s(c.a, c.t[3]);
  double eps = c.a[4].f;
  expect_items(c.t[4], s.channels, "group_norm", "weight");
  expect_items(c.t[5], s.channels, "group_norm", "bias");
  Maybe<T> means(c.t[1], Dense::kOutput), rstds(c.t[2], Dense::kOutput);
  Maybe<T> w(c.t[4], Dense::kLoad), b(c.t[5], Dense::kLoad);
  const View &in = c.t[3], &out = c.t[0];
  if (s.length > 0 && both_channels_last(in, out, kDTypeOf<T>) && in.sizes[0] == s.batch && in.sizes[1] == s.channels) {
    const int64_t sample = s.channels * s.length;
    parallel_for(s.batch, rows_per_piece(sample), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        group_norm_last(s, in.ptr<T>() + i * sample, w.p, b.p, eps, out.ptr<T>() + i * sample, means.p + i * s.groups,
                        rstds.p + i * s.groups);
    });
    means.store();
    return rstds.store();
  }
  Matrix<T> x(in, Dense::kLoad), y(out, Dense::kOutput);
  int64_t n = s.width(), k = s.length ? s.per_group() : 0;
  parallel_for(s.rows(), rows_per_piece(n), [&](int64_t begin, int64_t end) {
    auto from = x.rows(n), to = y.rows(n);
    for (int64_t i = begin; i < end; ++i) {
      const T* p = from.read(i);
      T* q = to.write_to(i);
      Moments m = {0, 0, 0};
      add_moments(m, p, n);
      T mean = T(m.mean), rstd = T(1 / std::sqrt(m.m2 / double(n) + eps));
      for (int64_t ch = 0; ch < k; ++ch) {
        int64_t at = i % s.groups * k + ch;
        T scale = w.p ? rstd * w.p[at] : rstd, shift = b.p ? b.p[at] : T(0);
#pragma GCC ivdep
        for (int64_t j = ch * s.length; j < (ch + 1) * s.length; ++j) q[j] = (p[j] - mean) * scale + shift;
      }
      to.written(i);
      means.p[i] = mean;
      rstds.p[i] = rstd;
    }
  });
  y.store();
  means.store();
  rstds.store();
}
void native_group_norm(const Args& c) {
  DType d = widened(c.t[3].dtype);
  MT_SWITCH(d, "GroupNormKernelImpl", MT_FLOATS(T, { group_norm<T>(c); }))
}

// native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt N,
//   SymInt C, SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
template <class T> void group_norm_backward(const Args& c) {
  Groups s(c.a, c.t[4]);
  expect_like(c.t[3], c.t[4], "group_norm_backward", "grad_out");
  expect_items(c.t[5], s.rows(), "group_norm_backward", "mean");
  expect_items(c.t[6], s.rows(), "group_norm_backward", "rstd");
  expect_items(c.t[7], s.channels, "group_norm_backward", "weight");
  Matrix<T> g(c.t[3], Dense::kLoad), x(c.t[4], Dense::kLoad), gx(c.t[0], Dense::kOutput);
  Maybe<T> means(c.t[5], Dense::kLoad), rstds(c.t[6], Dense::kLoad), w(c.t[7], Dense::kLoad);
  Maybe<T> gw(c.t[1], Dense::kOutput), gb(c.t[2], Dense::kOutput);
  int64_t n = s.width(), k = s.length ? s.per_group() : 0, all = s.length ? s.batch * s.channels : 0;
  std::vector<double> dot(static_cast<size_t>(all)), sum(static_cast<size_t>(all));  // by sample and channel
  parallel_for(s.rows(), rows_per_piece(n), [&](int64_t begin, int64_t end) {
    auto gs = g.rows(n), xs = x.rows(n), to = gx.rows(n);
    for (int64_t i = begin; i < end; ++i) {
      const T *gp = gs.read(i), *xp = xs.read(i);
      T mean = means.p[i], rstd = rstds.p[i];
      double along = 0, level = 0;
      for (int64_t ch = 0; ch < k; ++ch) {
        size_t at = size_t(i * k + ch);
        add_products(gp + ch * s.length, xp + ch * s.length, s.length, mean, rstd, dot[at], sum[at]);
        double weight = w.p ? double(w.p[i % s.groups * k + ch]) : 1;
        along += weight * dot[at];
        level += weight * sum[at];
      }
      if (!gx) continue;
      T* q = to.write_to(i);
      T a = T(along / double(n)) * rstd, b = T(level / double(n));
      for (int64_t ch = 0; ch < k; ++ch) {
        T weight = w.p ? w.p[i % s.groups * k + ch] : T(1);
#pragma GCC ivdep
        for (int64_t j = ch * s.length; j < (ch + 1) * s.length; ++j)
          q[j] = rstd * (weight * gp[j] - b - (xp[j] - mean) * a);
      }
      to.written(i);
    }
  });
  for (int64_t ch = 0; ch < (gw.p || gb.p ? s.channels : 0); ++ch) {
    double a = 0, b = 0;
    for (int64_t i = ch; i < all; i += s.channels) a += dot[size_t(i)], b += sum[size_t(i)];
    if (gw.p) gw.p[ch] = T(a);
    if (gb.p) gb.p[ch] = T(b);
  }
  gx.store();
  gw.store();
  gb.store();
}
void native_group_norm_backward(const Args& c) {
  DType d = widened(c.t[4].dtype);
  MT_SWITCH(d, "GroupNormBackwardKernelImpl", MT_FLOATS(T, { group_norm_backward<T>(c); }))
}

Register r_batch("native_batch_norm", native_batch_norm), r_group("native_group_norm", native_group_norm),
    r_batch_b("native_batch_norm_backward", native_batch_norm_backward),
    r_group_b("native_group_norm_backward", native_group_norm_backward);

}  // namespace
}  // namespace mt
