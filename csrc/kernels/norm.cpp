// Norms over the last dims: native_layer_norm, _fused_rms_norm and their backwards. Those with channels are in
// norm_channels.cpp.
#include "norm.h"

#include <limits>
#include <string>

namespace mt {
namespace {

int64_t row_length(const View& in, const Attr& shape) {
  int64_t n = 1;
  for (int i = 0; i < shape.n; ++i) n *= shape.list[i];
  bool fits = shape.n <= in.ndim;
  for (int i = 0; fits && i < shape.n; ++i) fits = in.sizes[in.ndim - shape.n + i] == shape.list[i];
  if (!fits || shape.n == 0) {
    std::string want, got;
    for (int i = 0; i < shape.n; ++i) want += (i ? ", " : "") + std::to_string(shape.list[i]);
    for (int i = 0; i < in.ndim; ++i) got += (i ? ", " : "") + std::to_string(in.sizes[i]);
    throw std::runtime_error("Given normalized_shape=[" + want + "], expected input with shape [*, " + want +
                             "], but got input of size[" + got + "]");
  }
  return n;
}

// ---- forward ----------------------------------------------------------------------------------------------------
template <class T> void affine(const T* x, T* y, int64_t n, T mean, T rstd, const T* w, const T* b) {
  if (w && b) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean) * rstd * w[j] + b[j];
  } else if (w) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean) * rstd * w[j];
  } else {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean) * rstd;
    for (int64_t j = 0; b && j < n; ++j) y[j] += b[j];
  }
}

// The moments of rows without items.
template <class T> void no_moments(const View& mean_out, const View& rstd_out) {
  Maybe<T> means(mean_out, Dense::kOutput), rstds(rstd_out, Dense::kOutput);
  if (means.p) std::fill_n(means.p, mean_out.numel(), T(0));
  if (rstds.p) std::fill_n(rstds.p, rstd_out.numel(), std::numeric_limits<T>::quiet_NaN());
  means.store();
  rstds.store();
}

// kRms: no mean is taken away and none is written.
template <class T, bool kRms>
void forward(const View& out, const View& mean_out, const View& rstd_out, const View& in, const View& weight,
             const View& bias, int64_t n, double eps) {
  int64_t m = n == 0 ? 0 : in.numel() / n;
  expect_items(weight, n, "layer_norm", "weight");
  expect_items(bias, n, "layer_norm", "bias");
  if (n == 0) return no_moments<T>(mean_out, rstd_out);
  Matrix<T> x(in, Dense::kLoad), y(out, Dense::kOutput);
  Maybe<T> w(weight, Dense::kLoad), b(bias, Dense::kLoad);
  Maybe<T> means(mean_out, Dense::kOutput), rstds(rstd_out, Dense::kOutput);
  double per = 1 / double(n);
  parallel_for(m, rows_per_piece(n), [&](int64_t begin, int64_t end) {
    auto from = x.rows(n), to = y.rows(n);
    for (int64_t i = begin; i < end; ++i) {
      const T* p = from.read(i);
      Moments s = {0, 0, 0};
      if constexpr (kRms) {
        for (int64_t j = 0; j < n; j += kRowBlock) {
          T part;
          fold_lanes<1, SquareLanes>(p + j, std::min(kRowBlock, n - j), T(0), &part);
          s.m2 += double(part);
        }
      } else {
        add_moments(s, p, n);
      }
      T rstd = 1 / std::sqrt(T(s.m2 * per + eps)), mean = T(s.mean);
      affine(p, to.write_to(i), n, mean, rstd, w.p, b.p);
      to.written(i);
      if (means.p) means.p[i] = mean;
      if (rstds.p) rstds.p[i] = rstd;
    }
  });
  y.store();
  means.store();
  rstds.store();
}

// native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)
//   -> (Tensor out, Tensor mean, Tensor rstd)
void native_layer_norm(const Args& c) {
  DType d = widened(c.t[3].dtype);
  int64_t n = row_length(c.t[3], c.a[0]);
  MT_SWITCH(d, "LayerNormKernelImpl",
            MT_FLOATS(T, { forward<T, false>(c.t[0], c.t[1], c.t[2], c.t[3], c.t[4], c.t[5], n, c.a[1].f); }))
}

// _fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor out, Tensor rstd)
void fused_rms_norm(const Args& c) {
  DType d = widened(c.t[2].dtype);
  int64_t n = row_length(c.t[2], c.a[0]);
  double eps = c.a[1].given ? c.a[1].f
               : d == kFloat ? double(std::numeric_limits<float>::epsilon()) : std::numeric_limits<double>::epsilon();
  MT_SWITCH(d, "_fused_rms_norm", MT_FLOATS(T, {
    forward<T, true>(c.t[0], View(), c.t[1], c.t[2], c.t[3], View(), n, eps);
  }))
}

// ---- backward ---------------------------------------------------------------------------------------------------
// One row: gx = rstd * (h - mean(h) - normal * mean(h * normal)) with h = g * w; for kRms without mean(h).
template <class T, bool kRms>
void backward_row(T* gx, const T* g, const T* normal, const T* w, T rstd, int64_t n, T* work) {
  for (int64_t j = 0; w && j < n; ++j) work[j] = g[j] * w[j];
  const T* h = w ? work : g;
  T along = T(dot(h, normal, n) / double(n)), mean = kRms ? T(0) : total(h, n) / T(n);
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) gx[j] = rstd * (h[j] - mean - normal[j] * along);
}

template <class T, bool kRms>
void backward(const View& gx_out, const View& gw_out, const View& gb_out, const View& grad, const View& in,
              const View& mean_in, const View& rstd_in, const View& weight, int64_t n) {
  constexpr const char* op = kRms ? "rms_norm_backward" : "layer_norm_backward";
  expect_like(grad, in, op, "grad_out");
  if (n == 0) return;  // no gradient has an item
  int64_t m = in.numel() / n;
  expect_items(weight, n, op, "weight");
  expect_items(rstd_in, m, op, "rstd");
  expect_items(mean_in, m, op, "mean");
  expect(rstd_in.given() && (kRms || mean_in.given()), op, "the saved statistics are missing");
  Matrix<T> g(grad, Dense::kLoad), x(in, Dense::kLoad), gx(gx_out, Dense::kOutput);
  Maybe<T> means(mean_in, Dense::kLoad), rstds(rstd_in, Dense::kLoad), w(weight, Dense::kLoad);
  Maybe<T> gw(gw_out, Dense::kOutput), gb(gb_out, Dense::kOutput);
  bool sums_wanted = gw.p || gb.p;
  int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(2 * get_num_threads(), m / rows_per_piece(n)));
  std::vector<Sums<T>> sums(size_t(sums_wanted ? pieces : 0), Sums<T>(n));
  parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
    auto gs = g.rows(n), xs = x.rows(n), to = gx.rows(n);
    std::vector<T> work(size_t(2 * n));
    T *normal = work.data(), *h = normal + n;
    for (int64_t piece = first; piece < last; ++piece) {
      for (int64_t i = piece * m / pieces; i < (piece + 1) * m / pieces; ++i) {
        const T *gp = gs.read(i), *xp = xs.read(i);
        T mean = kRms ? T(0) : means.p[i], rstd = rstds.p[i];
        for (int64_t j = 0; j < n; ++j) normal[j] = (xp[j] - mean) * rstd;
        if (sums_wanted) sums[size_t(piece)].add_row(gp, normal, n);
        if (!gx) continue;
        backward_row<T, kRms>(to.write_to(i), gp, normal, w.p, rstd, n, h);
        to.written(i);
      }
      if (sums_wanted) sums[size_t(piece)].flush();
    }
  });
  for (size_t piece = 1; piece < sums.size(); ++piece)
    for (size_t j = 0; j < size_t(2 * n); ++j) sums[0].all[j] += sums[piece].all[j];
  for (int64_t j = 0; gw.p && j < n; ++j) gw.p[j] = T(sums[0].all[size_t(j)]);
  for (int64_t j = 0; gb.p && j < n; ++j) gb.p[j] = T(sums[0].all[size_t(n + j)]);
  gx.store();
  gw.store();
  gb.store();
}

// native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd,
//   Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
void native_layer_norm_backward(const Args& c) {
  DType d = widened(c.t[4].dtype);
  int64_t n = row_length(c.t[4], c.a[0]);
  MT_SWITCH(d, "LayerNormBackwardKernelImpl", MT_FLOATS(T, {
    backward<T, false>(c.t[0], c.t[1], c.t[2], c.t[3], c.t[4], c.t[5], c.t[6], c.t[7], n);
  }))
}

// _fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight,
//   bool[2] output_mask) -> (Tensor, Tensor)
void fused_rms_norm_backward(const Args& c) {
  DType d = widened(c.t[3].dtype);
  int64_t n = row_length(c.t[3], c.a[0]);
  MT_SWITCH(d, "_fused_rms_norm_backward", MT_FLOATS(T, {
    backward<T, true>(c.t[0], c.t[1], View(), c.t[2], c.t[3], View(), c.t[4], c.t[5], n);
  }))
}

Register r_layer("native_layer_norm", native_layer_norm), r_rms("_fused_rms_norm", fused_rms_norm),
    r_layer_b("native_layer_norm_backward", native_layer_norm_backward),
    r_rms_b("_fused_rms_norm_backward", fused_rms_norm_backward);

}  // namespace
}  // namespace mt
