// Regions of images and signals: pooling over boxes, how far boxes overlap, Fourier transforms of windows; and LoRA's products.
#include <algorithm>
#include <cmath>
#include <complex>
#include <string>

#include "ops/boxes.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return c.given(i) && c.tensor(i).numel(); }
Value wide(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }

// ---- (x [N, C, H, W], rois [n, 5], pooledH, pooledW, scaleH, scaleW, y, argmax): the largest item of every bin, and where it is -------
void check_roi_pool(const Call& c) {
  const TensorMeta &x = c.tensor(0), &rois = c.tensor(1);
  EXPECT(x.ndim == 4 && rois.ndim == 2 && rois.sizes[1] == 5, "%s: x %s and rois %s", c.name(), describe(x).c_str(), describe(rois).c_str());
  EXPECT(c.integer(2) > 0 && c.integer(3) > 0 && c.number(4) > 0 && c.number(5) > 0, "%s: the bins and scales must be positive", c.name());
  for (int i : {6, 7}) expect_shape(c, i, {rois.sizes[0], x.sizes[1], c.integer(2), c.integer(3)});
}
struct Span2 { int64_t begin, end; };
Span2 bin(float first, float size, int64_t i, int64_t limit) {
  auto clip = [&](float v) { return int64_t(std::min(std::max(v, 0.f), float(limit))); };
  return {clip(std::floor(float(i) * size + first)), clip(std::ceil(float(i + 1) * size + first))};
}
void run_roi_pool(Run& r) {
  const Value x = wide(r, 0), rois = wide(r, 1), y = full(r.tensor(6).shape(), mt::kFloat, 0), where = full(r.tensor(7).shape(), mt::kInt32, -1);
  const int64_t channels = x.size(1), h = x.size(2), w = x.size(3), ph = r.call.integer(2), pw = r.call.integer(3);
  const float sh = float(r.call.number(4)), sw = float(r.call.number(5));
  for (int64_t n = 0; n < rois.size(0); ++n) {
    const float* roi = rois.ptr<float>() + n * 5;
    const float x1 = roi[1] * sw, y1 = roi[2] * sh, width = (roi[3] + 1) * sw - x1, height = (roi[4] + 1) * sh - y1;
    const int64_t batch = int64_t(roi[0]);
    if (width <= 0 || height <= 0 || batch < 0 || batch >= x.size(0)) continue;
    for (int64_t k = 0; k < channels * ph * pw; ++k) {
      const Span2 rows = bin(y1, height / float(ph), k / pw % ph, h), columns = bin(x1, width / float(pw), k % pw, w);
      const float* plane = x.ptr<float>() + (batch * channels + k / (ph * pw)) * h * w;
      int64_t best = -1;
      for (int64_t i = rows.begin; i < rows.end; ++i)
        for (int64_t j = columns.begin; j < columns.end; ++j)
          if (best < 0 || plane[i * w + j] > plane[best]) best = i * w + j;
      y.ptr<float>()[n * channels * ph * pw + k] = best < 0 ? 0 : plane[best];
      where.ptr<int32_t>()[n * channels * ph * pw + k] = int32_t(best);
    }
  }
  copy(r.tensor(6), y);
  copy(r.tensor(7), where);
}
// (gradOutput, gradInputRef, rois, argmax, pooledH, pooledW, spatialScale): added to what is there.
void check_roi_grad(const Call& c) {
  const TensorMeta &g = c.tensor(0), &x = c.tensor(1);
  EXPECT(g.ndim == 4 && x.ndim == 4 && g.sizes[1] == x.sizes[1] && c.tensor(2).ndim == 2 && c.tensor(2).sizes[0] == g.sizes[0], "%s: gradOutput %s and gradInput %s", c.name(),
         describe(g).c_str(), describe(x).c_str());
  expect_same_shape(c, 3, 0);
}
void run_roi_grad(Run& r) {
  const Value g = wide(r, 0), out = r.tensor(1), rois = wide(r, 2), where = index_value(r, 3).dense(), made = empty(out.shape(), mt::kFloat);
  copy(made, out);
  const int64_t channels = made.size(1), plane = made.size(2) * made.size(3), bins = g.size(2) * g.size(3);
  for (int64_t k = 0, n = g.numel(); k < n; ++k) {
    const int64_t at = where.ptr<int64_t>()[k], batch = int64_t(rois.ptr<float>()[k / (channels * bins) * 5]);
    if (at >= 0 && at < plane && batch >= 0 && batch < made.size(0)) made.ptr<float>()[(batch * channels + k / bins % channels) * plane + at] += g.ptr<float>()[k];
  }
  copy(out, made);
}

// ---- (bBoxes [4, n], gtBoxes [4, n], trans, isCross, mode, overlap, atanSub) ------------------------------------------------------------
void check_ciou(const Call& c) {
  const TensorMeta& a = c.tensor(0);
  if (c.integer(3)) refuse(561003, "%s of all pairs is not computed", c.name());
  const std::string mode = c.string(4);
  EXPECT(mode == "iou" || mode == "iof", "%s: mode %s is not iou or iof", c.name(), mode.c_str());
  EXPECT(a.ndim == 2 && a.sizes[0] == 4, "%s: bBoxes %s", c.name(), describe(a).c_str());
  expect_same_shape(c, 1, 0);
  for (int i : {5, 6}) expect_numel(c, i, a.sizes[1]);
}
void run_ciou(Run& r) {
  const Value a = r.tensor(0).to(mt::kDouble).dense(), b = r.tensor(1).to(mt::kDouble).dense();
  const int64_t n = a.size(1);
  const Value made = empty({n}, mt::kFloat), angle = empty({n}, mt::kFloat);
  for (int64_t i = 0; i < n; ++i) {
    const Box x = box_of(a, i, true, r.call.integer(2)), y = box_of(b, i, true, r.call.integer(2));
    made.ptr<float>()[i] = float(overlap(Overlap::ciou, x, y, std::string(r.call.string(4)) == "iof"));
    angle.ptr<float>()[i] = float(difference_of_angles(x, y));
  }
  copy(r.tensor(5), made.reshape(r.tensor(5).shape()));
  copy(r.tensor(6), angle.reshape(r.tensor(6).shape()));
}

// ---- (self [L] or [B, L], window?, out, nFft, hopLength, winLength, normalized, onesided, returnComplex) -----------------------------------
void check_stft(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim == 1 || x.ndim == 2, "%s: self %s has no 1 or 2 dims", c.name(), describe(x).c_str());
  const int64_t size = c.integer(3), hop = c.integer(4), length = x.sizes[x.ndim - 1];
  EXPECT(size > 0 && hop > 0 && size <= length, "%s: windows of %ld at a distance of %ld in %ld items", c.name(), long(size), long(hop), long(length));
  const int64_t wide = c.integer(5);
  EXPECT(wide > 0 && wide <= size, "%s: winLength %ld with nFft %ld", c.name(), long(wide), long(size));
  if (has(c, 1) && c.tensor(1).numel() != size) expect_shape(c, 1, {wide});
  Sizes out{c.integer(7) ? size / 2 + 1 : size, (length - size) / hop + 1};
  if (x.ndim == 2) out.insert(out.begin(), x.sizes[0]);
  if (!c.integer(8)) out.push_back(2);
  expect_shape(c, 2, out);
  EXPECT(mt::is_complex(dtype_of(c.tensor(2).dtype)) == (c.integer(8) != 0), "%s: out is %s", c.name(), describe(c.tensor(2)).c_str());
}
// The window in the middle of zeros; a given one may have its zeros already.
Value window_of(Run& r, int64_t size) {
  const Value given = has(r.call, 1) ? r.tensor(1).reshape({-1}) : full({r.call.integer(5)}, mt::kComplexDouble, 1);
  const Value made = full({size}, mt::kComplexDouble, 0);
  copy(made.narrow(0, (size - given.numel()) / 2, given.numel()), given);
  return made;
}
void run_stft(Run& r) {
  const Value x = r.tensor(0).to(mt::kComplexDouble).dense(), out = r.tensor(2);
  const int64_t size = r.call.integer(3), hop = r.call.integer(4), length = x.size(-1), rows = length ? x.numel() / length : 0;
  const int64_t bins = r.call.integer(7) ? size / 2 + 1 : size, frames = (length - size) / hop + 1;
  const Value window = window_of(r, size);
  const Value made = empty({rows, bins, frames}, mt::kComplexDouble);
  using Complex = std::complex<double>;
  const double by = r.call.integer(6) ? 1 / std::sqrt(double(size)) : 1;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t f = 0; f < bins; ++f)
      for (int64_t m = 0; m < frames; ++m) {
        Complex sum = 0;
        for (int64_t k = 0; k < size; ++k)
          sum += window.ptr<Complex>()[k] * x.ptr<Complex>()[row * length + m * hop + k] * std::polar(1.0, -2 * M_PI * double(f * k % size) / double(size));
        made.ptr<Complex>()[(row * bins + f) * frames + m] = sum * by;
      }
  if (r.call.integer(8)) return copy(out, made.reshape(out.shape()));
  const Value parts = empty({made.numel() * 2}, mt::kDouble);
  std::copy_n(reinterpret_cast<const double*>(made.data), made.numel() * 2, parts.ptr<double>());
  copy(out, parts.reshape(out.shape()));
}

// ---- aclRfft1D(self, n, dim, norm, out): n items along a dim, cut or followed by zeros; the last dim of out is re, im ---------
constexpr int64_t kMostRfft = 4096, kMostRfftOfTwos = 262144;
void check_rfft(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  const int64_t n = c.integer(1), norm = c.integer(3);
  EXPECT(x.dtype == ACL_FLOAT && x.ndim >= 1 && x.ndim < 8, "%s: self is %s, expected float32 of 1 to 7 dims", c.name(), describe(x).c_str());
  EXPECT(n > 0 && (n <= kMostRfft || (n <= kMostRfftOfTwos && (n & (n - 1)) == 0)), "%s: n is %ld, expected 1 to %ld or a power of 2 to %ld",
         c.name(), n, kMostRfft, kMostRfftOfTwos);
  EXPECT(norm >= 1 && norm <= 3, "%s: norm is %ld, expected 1 (none), 2 (by n) or 3 (by its root)", c.name(), norm);
  Sizes out = sizes_of(x);
  out[size_t(wrap_dim(c.integer(2), x.ndim))] = n / 2 + 1;
  out.push_back(2);
  expect_shape(c, 4, out);
  expect_same_dtype(c, 4, 0);
}
void run_rfft(Run& r) {
  const Value x = r.tensor(0), out = r.tensor(4);
  const int64_t n = r.call.integer(1), dim = wrap_dim(r.call.integer(2), x.ndim), taken = std::min(n, x.size(dim));
  Sizes sizes = x.shape();
  sizes[size_t(dim)] = n;
  const Value items = full(sizes, mt::kFloat, 0);
  copy(items.narrow(dim, 0, taken), x.narrow(dim, 0, taken));
  sizes[size_t(dim)] = n / 2 + 1;
  const Value made = empty(sizes, mt::kComplexFloat);
  constexpr int64_t kNone = 0, kByRoot = 1, kByN = 2;  // as the kernel counts
  const int64_t norms[] = {kNone, kByN, kByRoot};
  const Sizes dims{dim};
  call_kernel("_fft_r2c", {made, items}, {list(dims), integer(norms[r.call.integer(3) - 1]), integer(1)});
  const Value parts = empty(out.shape(), mt::kFloat);
  std::copy_n(static_cast<const float*>(made.data), made.numel() * 2, parts.ptr<float>());
  copy(out, parts);
}

// ---- (x, scale, bias?, axis, numAxes, scaleFromBlob, y): scale and bias cover dims from axis on -------------------------------------------
void check_scale(const Call& c) {
  const TensorMeta &x = c.tensor(0), &s = c.tensor(1);
  const int64_t axis = wrap_dim(c.integer(3), x.ndim);
  const int64_t covered = c.integer(5) ? (c.integer(4) < 0 ? x.ndim - axis : c.integer(4)) : s.ndim;
  EXPECT(axis + covered <= x.ndim && (s.numel() == 1 || s.ndim == covered), "%s: scale %s does not fit x %s at dim %ld", c.name(), describe(s).c_str(), describe(x).c_str(),
         long(axis));
  for (int64_t d = 0; d < covered && s.numel() != 1; ++d) EXPECT(s.sizes[d] == x.sizes[axis + d], "%s: scale %s does not fit x %s", c.name(), describe(s).c_str(), describe(x).c_str());
  if (has(c, 2)) expect_same_shape(c, 2, 1);
  expect_same_shape(c, 6, 0);
}
void run_scale(Run& r) {
  const Value x = r.tensor(0), y = empty(x.shape(), mt::kFloat);
  const int64_t axis = wrap_dim(r.call.integer(3), x.ndim);
  auto placed = [&](int i) {
    const Value v = r.tensor(i);
    if (v.numel() == 1) return v.reshape({});
    Sizes sizes(size_t(x.ndim), 1);
    for (int64_t d = 0; d < v.ndim; ++d) sizes[size_t(axis + d)] = v.sizes[d];
    return v.reshape(sizes);
  };
  call_pointwise("mul", mt::kFloat, {y, x, placed(1)});
  if (has(r.call, 2)) call_pointwise("add", mt::kFloat, {y, y, placed(2)}, {number(1)});
  copy(r.tensor(6), y);
}

// ---- (y, x, weightB [W, L, H2, R], indices, weightA? [W, L, R, H1], layer, scale, yOffset, ySliceSize, out) ---------------------------------
// Every row takes the weights that its index names, and is added to a slice of y; a row without an index stays.
void check_lora(const Call& c) {
  const TensorMeta &y = c.tensor(0), &x = c.tensor(1), &b = c.tensor(2);
  EXPECT(y.ndim == 2 && x.ndim == 2 && b.ndim == 4 && y.sizes[0] == x.sizes[0], "%s: y %s, x %s and weightB %s", c.name(), describe(y).c_str(), describe(x).c_str(),
         describe(b).c_str());
  expect_shape(c, 3, {x.sizes[0]});
  EXPECT(c.integer(5) >= 0 && c.integer(5) < b.sizes[1], "%s: layerIdx %ld of %ld", c.name(), long(c.integer(5)), long(b.sizes[1]));
  if (has(c, 4)) expect_shape(c, 4, {b.sizes[0], b.sizes[1], b.sizes[3], x.sizes[1]});
  EXPECT((has(c, 4) || b.sizes[3] == x.sizes[1]) && b.sizes[2] == c.integer(8) && c.integer(7) >= 0 && c.integer(7) + c.integer(8) <= y.sizes[1],
         "%s: a slice of %ld items at %ld does not fit y %s and weightB %s", c.name(), long(c.integer(8)), long(c.integer(7)), describe(y).c_str(), describe(b).c_str());
  expect_same_shape(c, 9, 0);
}
void run_lora(Run& r) {
  const Call& c = r.call;
  const Value y = empty(r.tensor(0).shape(), mt::kFloat), x = wide(r, 1), b = r.tensor(2), index = index_value(r, 3).dense();
  copy(y, r.tensor(0));
  auto times = [](const Value& row, const Value& weight) {  // [1, k] by [n, k]
    const Value made = empty({1, weight.size(0)}, mt::kFloat);
    call_kernel("matmul", {made, row, weight.to(mt::kFloat).transpose(0, 1)});
    return made;
  };
  for (int64_t i = 0; i < x.size(0); ++i) {
    const int64_t at = index.ptr<int64_t>()[i];
    if (at < 0 || at >= b.size(0)) continue;
    Value z = x.narrow(0, i, 1);
    if (has(c, 4)) z = times(z, r.tensor(4).select(0, at).select(0, c.integer(5)));
    z = times(z, b.select(0, at).select(0, c.integer(5)));
    const Value into = y.narrow(0, i, 1).narrow(1, c.integer(7), c.integer(8));
    call_pointwise("add", mt::kFloat, {into, into, z}, {number(c.number(6))});
  }
  copy(r.tensor(9), y);
}

const Op ops[] = {
    {"aclnnRoiPoolingWithArgMax", check_roi_pool, run_roi_pool},
    {"aclnnRoiPoolingGradWithArgMax", check_roi_grad, run_roi_grad},
    {"aclnnCIoU", check_ciou, run_ciou},
    {"aclStft", check_stft, run_stft},
    {"aclRfft1D", check_rfft, run_rfft},
    {"aclnnScale", check_scale, run_scale},
    {"aclnnAddLora", check_lora, run_lora},
};

}  // namespace
}  // namespace cann_sim
