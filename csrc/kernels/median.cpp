// Middle and most frequent items along a dim: median, nanmedian, mode. kthvalue is in sort.cpp.
#include "order.h"

namespace mt {
namespace {

using namespace indexing;

template <class T> bool is_nan(T v) { return v != v; }

// Where the middle item stands. Without `skip`, the first NaN counts as the middle.
template <class C> int64_t middle(const C* x, int64_t n, bool skip, int64_t* order) {
  int64_t nans = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!is_nan(x[i])) continue;
    if (!skip) return i;
    ++nans;
  }
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  int64_t* nth = order + std::max<int64_t>(n - nans - 1, 0) / 2;
  std::nth_element(order, nth, order + n, [=](int64_t i, int64_t j) {
    return x[i] < x[j] || (!is_nan(x[i]) && is_nan(x[j]));
  });
  return *nth;
}

// Where the most frequent item stands; of several the smallest.
template <class C> int64_t most(const C* x, int64_t n, bool, int64_t* order) {
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  std::sort(order, order + n, [=](int64_t i, int64_t j) { return x[i] < x[j]; });
  int64_t best = 0, found = 0, count = 0;
  for (int64_t i = 0; i < n; ++i) {
    ++count;
    if (i + 1 < n && x[order[i]] == x[order[i + 1]]) continue;
    if (count > best) best = count, found = order[i];
    count = 0;
  }
  return found;
}

// f(row, n, skip, scratch) gives the place in each row of t = [values, indices?, self] along dim.
template <class T, class F> void pick_rows(const View* t, int dim, bool skip, F f) {
  using C = compute_t<T>;
  const View& self = t[2];
  const int64_t n = size_at(self, dim), step = stride_at(self, dim);
  Walk<3> walk;
  walk.ndim = 0;
  bool kept = t[0].ndim == self.ndim;
  for (int d = 0; d < self.ndim; ++d) {
    if (d == dim) continue;
    int o = kept || d < dim ? d : d - 1;
    walk.sizes[walk.ndim] = self.sizes[d];
    walk.strides[walk.ndim][0] = t[0].strides[o];
    walk.strides[walk.ndim][1] = t[1].given() ? t[1].strides[o] : 0;
    walk.strides[walk.ndim++][2] = self.strides[d];
  }
  const int64_t rows = walk.numel();
  if (rows == 0 || n == 0) return;
  walk.collapse();
  parallel_for(rows, std::max<int64_t>(1, 8192 / n), [&](int64_t begin, int64_t end) {
    Scratch<C> x(n);
    Scratch<int64_t> order(n);
    walk.run(begin, end, [&](const int64_t* at, int64_t m) {
      for (int64_t r = 0; r < m; ++r) {
        const T* p = self.ptr<T>() + at[2] + r * walk.inner()[2];
        for (int64_t i = 0; i < n; ++i) x[i] = cast<C>(p[i * step]);
        int64_t found = f(static_cast<const C*>(x.get()), n, skip, order.get());
        t[0].ptr<T>()[at[0] + r * walk.inner()[0]] = p[found * step];
        if (t[1].given()) t[1].ptr<int64_t>()[at[1] + r * walk.inner()[1]] = found;
      }
    });
  });
}

// median.dim, nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
void along(const Args& args, bool skip) {
  const int dim = wrap_dim(args.a[0].i, args.t[2].ndim);
  MT_DISPATCH_REAL(args.t[2].dtype, "median_out", T, {
    pick_rows<T>(args.t, dim, skip, [](auto... a) { return middle(a...); });
  })
}
void median_dim(const Args& args) { along(args, false); }
void nanmedian_dim(const Args& args) { along(args, true); }

// median, nanmedian(Tensor self) -> Tensor; of one item at least
void overall(const Args& args, bool skip) {
  Packed self(args.t[1], args.t[1].dtype, Packed::kRead);
  const int64_t n = self.view.numel(), unit = 1;
  View t[3] = {args.t[0], View(), self.view};
  t[2].ndim = 1;
  t[2].sizes = &n;
  t[2].strides = &unit;
  MT_DISPATCH_REAL(t[2].dtype, "median_out", T, {
    pick_rows<T>(t, 0, skip, [](auto... a) { return middle(a...); });
  })
}
void median(const Args& args) { overall(args, false); }
void nanmedian(const Args& args) { overall(args, true); }

// mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)
void mode(const Args& args) {
  const int dim = wrap_dim(args.a[0].i, args.t[2].ndim);
  MT_DISPATCH_REAL(args.t[2].dtype, "mode", T, {
    pick_rows<T>(args.t, dim, false, [](auto... a) { return most(a...); });
  })
}

Register r0("median", median);
Register r1("nanmedian", nanmedian);
Register r2("median_dim", median_dim);
Register r3("nanmedian_dim", nanmedian_dim);
Register r4("mode", mode);

}  // namespace
}  // namespace mt
