// Counting into bins: bincount, histc and the histogram of given edges.
#include "indexing.h"

namespace mt {
namespace {

[[noreturn]] void bad_bincount() {
  throw std::runtime_error("bincount only supports 1-d non-negative integral inputs.");
}

template <class T> void bincount_of(const T* p, int64_t n, const View& out, const View* weights) {
  const int64_t bins = out.sizes[0];
  auto add = [&](auto* to, const auto* weight) {
    std::fill_n(to, bins, 0);
    for (int64_t k = 0; k < n; ++k) {
      if (p[k] < T(0) || int64_t(p[k]) >= bins) bad_bincount();
      to[int64_t(p[k])] += weight ? weight[k] : 1;
    }
  };
  if (!weights) add(out.ptr<int64_t>(), static_cast<const int64_t*>(nullptr));
  else if (out.dtype == kFloat) add(out.ptr<float>(), weights->ptr<float>());
  else add(out.ptr<double>(), weights->ptr<double>());
}

// bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor
void bincount(const Args& args) {
  const bool weighted = args.nt > 2 && args.t[2].given();
  const DType sum = !weighted ? kInt64 : args.t[0].dtype == kFloat ? kFloat : kDouble;
  Packed out(args.t[0], sum, Packed::kWrite), self(args.t[1], args.t[1].dtype, Packed::kRead);
  Packed weights(weighted ? args.t[2] : args.t[0], weighted ? sum : args.t[0].dtype, Packed::kRead);
  const int64_t n = self.view.numel();
  MT_SWITCH(self.view.dtype, "bincount_cpu", MT_INTS(T, {
    bincount_of(self.ptr<T>(), n, out.view, weighted ? &weights.view : nullptr);
  }))
  out.finish();
}

// Counts go into integers, one set for each thread's part, and are converted once: a float stops counting at 2**24.
template <class C, class F> void count_bins(C* out, int64_t bins, int64_t n, F bin_of) {
  const int64_t parts = n <= kGrain ? 1 : get_num_threads(), each = (n + parts - 1) / parts;
  Scratch<int64_t> counts(parts * bins);
  std::fill_n(counts.get(), parts * bins, 0);
  parallel_for(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      for (int64_t k = p * each; k < std::min(n, (p + 1) * each); ++k) {
        int64_t bin = bin_of(k);
        if (bin >= 0) ++counts[p * bins + bin];
      }
  });
  for (int64_t b = 0; b < bins; ++b) {
    int64_t total = 0;
    for (int64_t p = 0; p < parts; ++p) total += counts[p * bins + b];
    out[b] = C(total);
  }
}

template <class C> void histc_of(const C* p, int64_t n, C* out, int64_t bins, C low, C high) {
  if (low == high && n > 0) {  // not given: the range of the values
    low = high = p[0];
    for (int64_t k = 0; k < n; ++k) {
      if (p[k] != p[k]) low = high = p[k];
      low = p[k] < low ? p[k] : low;
      high = p[k] > high ? p[k] : high;
    }
  }
  if (low == high) low -= 1, high += 1;
  if (!std::isfinite(low) || !std::isfinite(high))
    throw std::runtime_error("torch.histc: range of [" + std::to_string(double(low)) + ", " +
                             std::to_string(double(high)) + "] is not finite");
  const C width = high - low;
  count_bins(out, bins, n, [=](int64_t k) -> int64_t {
    if (!(p[k] >= low && p[k] <= high)) return -1;
    C place = (p[k] - low) * C(bins) / width;
    if (!std::isfinite(place)) place = (p[k] / 2 - low / 2) / (high / 2 - low / 2) * C(bins);  // overflowed
    return std::min<int64_t>(int64_t(place), bins - 1);
  });
}

// histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor
void histc(const Args& args) {
  const DType dtype = args.t[1].dtype, sum = dtype == kHalf || dtype == kBFloat16 ? kFloat : dtype;
  const int64_t bins = args.a[0].i;
  const double low = args.a[1].f, high = args.a[2].f;
  if (bins <= 0) throw std::runtime_error("torch.histogram(): bins must be > 0, but got " + std::to_string(bins) +
                                          " for dimension 0");
  if (low > high) throw std::runtime_error("torch.histc: max must be larger than min");
  if (sum != kFloat && sum != kDouble) unsupported("histogram_cpu", dtype);
  Packed out(args.t[0], sum, Packed::kWrite), self(args.t[1], sum, Packed::kRead);
  const int64_t n = self.view.numel();
  if (sum == kFloat) histc_of(self.ptr<float>(), n, out.ptr<float>(), bins, float(low), float(high));
  else histc_of(self.ptr<double>(), n, out.ptr<double>(), bins, low, high);
  out.finish();
}

template <class C> void edges_of(const C* p, int64_t n, const C* edge, int64_t bins, const C* weight, C* out) {
  // Of edges that are about as far apart as each other the place is nearly known.
  const C first = edge[0], scale = C(bins) / (edge[bins] - first);
  bool even = std::isfinite(scale);
  for (int64_t k = 0; k <= bins && even; ++k) even = std::fabs((edge[k] - first) * scale - C(k)) < C(1);
  auto bin_of = [=](int64_t k) -> int64_t {
    if (!(p[k] >= edge[0] && p[k] <= edge[bins])) return -1;
    if (even) {
      int64_t at = std::min<int64_t>(int64_t((p[k] - first) * scale), bins - 1);
      while (at > 0 && p[k] < edge[at]) --at;
      while (at < bins - 1 && p[k] >= edge[at + 1]) ++at;
      return at;
    }
    return std::min<int64_t>(std::upper_bound(edge, edge + bins + 1, p[k]) - edge - 1, bins - 1);
  };
  if (!weight) return count_bins(out, bins, n, bin_of);
  std::fill_n(out, bins, C(0));
  for (int64_t k = 0; k < n; ++k)
    if (int64_t bin = bin_of(k); bin >= 0) out[bin] += weight[k];
}

// histogram_edges: t = [out (bins), self, edges (bins + 1, ascending), weight?]
void histogram_edges(const Args& args) {
  const DType sum = args.t[1].dtype == kDouble ? kDouble : kFloat;
  const bool weighted = args.nt > 3 && args.t[3].given();
  if (!is_floating(args.t[1].dtype)) unsupported("histogram_cpu", args.t[1].dtype);
  Packed out(args.t[0], sum, Packed::kWrite), self(args.t[1], sum, Packed::kRead), edges(args.t[2], sum, Packed::kRead);
  Packed weight(weighted ? args.t[3] : args.t[2], sum, Packed::kRead);
  const int64_t n = self.view.numel(), bins = out.view.numel();
  if (bins == 0) return;
  MT_SWITCH(sum, "histogram_cpu", MT_FLOATS(C, {
    edges_of(self.ptr<C>(), n, edges.ptr<C>(), bins, weighted ? weight.ptr<C>() : nullptr, out.ptr<C>());
  }))
  out.finish();
}

Register r0("bincount", bincount);
Register r1("histc", histc);
Register r2("histogram_edges", histogram_edges);

}  // namespace
}  // namespace mt
