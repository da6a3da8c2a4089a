// Reductions that need a whole row at once: median, nanmedian, mode; and the comparison of two tensors, equal.
#include <atomic>
#include <limits>
#include <string>

#include "reduce.h"
#include "sorted.h"

namespace mt {
namespace {

template <class T> bool is_nan(T x) { return x != x; }

// Each writes the value and returns its place in the row; `work` has room for n items, `scratch` for what sorts them.
template <class T, bool kSkipNan> int64_t median_row(const T* x, int64_t n, T* work, void*, T& value) {
  int64_t count = 0, first_nan = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (!is_nan(x[i])) work[count++] = x[i];
    else if (first_nan < 0) first_nan = i;
  }
  if (count == 0 || (!kSkipNan && first_nan >= 0)) {
    value = x[first_nan];
    return first_nan;
  }
  T* middle = work + (count - 1) / 2;
  std::nth_element(work, middle, work + count);
  value = *middle;
  return std::find(x, x + n, value) - x;
}

// The smallest of the most frequent values, at its last place.
template <class T> int64_t mode_row(const T* x, int64_t n, T* work, void* scratch, T& value) {
  sorted(x, n, work, scratch);
  int64_t most = 0;
  for (int64_t i = 0; i < n;) {
    int64_t j = i + 1;
    while (j < n && (work[j] == work[i] || (is_nan(work[j]) && is_nan(work[i])))) ++j;
    if (j - i > most) {
      most = j - i;
      value = work[i];
    }
    i = j;
  }
  int64_t at = n - 1;
  while (x[at] != value && !(is_nan(x[at]) && is_nan(value))) --at;
  return at;
}

// A reduced output with the strides of the input's dims: those of `dim` are none.
struct Spread {
  int64_t strides[kMaxDims];
  View view;
  Spread(const View& out, const View& in, int dim) : view(out) {
    bool keepdim = out.ndim == in.ndim;
    for (int d = 0; d < in.ndim; ++d) strides[d] = d == dim ? 0 : out.strides[keepdim || d < dim ? d : d - 1];
    view.sizes = in.sizes, view.strides = strides, view.ndim = in.ndim;
  }
  Spread(const Spread&) = delete;
};

template <class T, class F> void by_rows(const char* name, const Args& c, DType compute, F row, bool sorts = false) {
  const View& in = c.t[2];
  int dim = wrap_dim(c.a[0].i, in.ndim);
  Spread values(c.t[0], in, dim), indices(c.t[1], in, dim);
  Rows rows({&in, &values.view, &indices.view}, dim);
  if (rows.count == 0) return;
  if (rows.length == 0)
    throw std::out_of_range(std::string(name) + "(): Expected reduction dim " + std::to_string(dim) +
                            " to have non-zero size.");
  const int64_t scratch_bytes = sorts ? sorted_scratch<T>(rows.length) : 0;
  parallel_for(rows.count, std::max<int64_t>(1, kGrain / 16 / rows.length), [&](int64_t begin, int64_t end) {
    RowBuffer x(in, compute, rows.step[0], rows.length);
    std::unique_ptr<T[]> work(new T[size_t(rows.length)]);
    std::unique_ptr<char[]> scratch(new char[size_t(scratch_bytes)]);
    rows.each(begin, end, [&](const int64_t* off) {
      T value;
      int64_t at = row(static_cast<const T*>(x.read(off[0])), rows.length, work.get(), scratch.get(), value);
      convert(c.t[0].dtype, c.t[0].ptr<char>() + off[1] * itemsize(c.t[0].dtype), compute, &value, 1);
      convert(c.t[1].dtype, c.t[1].ptr<char>() + off[2] * itemsize(c.t[1].dtype), kInt64, &at, 1);
    });
  });
}

template <bool kSkipNan> void median_any(const char* name, const Args& c) {
  DType d = widened(c.t[2].dtype);
  MT_SWITCH(d, "median_out", MT_INTS(T, { by_rows<T>(name, c, d, median_row<T, kSkipNan>); })
                                 MT_FLOATS(T, { by_rows<T>(name, c, d, median_row<T, kSkipNan>); }))
}
// median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
void median_dim(const Args& c) { median_any<false>("median", c); }
// nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
void nanmedian_dim(const Args& c) { median_any<true>("nanmedian", c); }
// mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)
void mode_dim(const Args& c) {
  DType d = widened(c.t[2].dtype);
  if (d == kBool) return by_rows<uint8_t>("mode", c, kUInt8, mode_row<uint8_t>, true);  // every true item is then 1
  MT_SWITCH(d, "mode", MT_INTS(T, { by_rows<T>("mode", c, d, mode_row<T>, true); })
                           MT_FLOATS(T, { by_rows<T>("mode", c, d, mode_row<T>, true); }))
}

// median(Tensor self) -> Tensor: all items as one row; of none, NaN.
template <bool kSkipNan> void median_all(const Args& c) {
  Dense in(c.t[1], c.t[1].dtype);
  int64_t n = c.t[1].numel(), one = 1, index;
  double nan = std::numeric_limits<double>::quiet_NaN();
  if (n == 0) return convert(c.t[0].dtype, c.t[0].data, kDouble, &nan, 1);
  View t[3] = {c.t[0], {&index, nullptr, nullptr, 0, kInt64}, {in.data(), &n, &one, 1, c.t[1].dtype}};
  Attr dim[2];
  (kSkipNan ? nanmedian_dim : median_dim)({t, 3, dim, 2, nullptr});
}

// ---- equal ------------------------------------------------------------------------------------------------------
template <class T> bool same_items(const void* a, const void* b, int64_t n) {
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  bool differ = false;
  for (int64_t i = 0; i < n; ++i) differ |= x[i] != y[i];
  return !differ;
}
bool same_items(DType compute, const void* a, const void* b, int64_t n) {
  switch (compute) {
    case kFloat: return same_items<float>(a, b, n);
    case kDouble: return same_items<double>(a, b, n);
    case kComplexFloat: return same_items<float>(a, b, 2 * n);
    case kComplexDouble: return same_items<double>(a, b, 2 * n);
    default: return std::memcmp(a, b, size_t(n * itemsize(compute))) == 0;
  }
}

// equal(Tensor self, Tensor other) -> bool, as a bool tensor without dims
void equal(const Args& c) {
  const View &a = c.t[1], &b = c.t[2];
  bool& result = *c.t[0].ptr<bool>();
  result = a.ndim == b.ndim && std::equal(a.sizes, a.sizes + a.ndim, b.sizes);
  if (!result || a.numel() == 0) return;
  DType d = a.dtype == kBool ? kUInt8 : wide_of(a.dtype);  // every true item is then 1
  std::atomic<bool> same{true};
  constexpr int64_t kRun = 4096;
  int64_t n = a.numel(), one = 1;
  bool flat = a.contiguous() && b.contiguous();
  View x = a, y = b;
  if (flat) x.sizes = y.sizes = &n, x.strides = y.strides = &one, x.ndim = y.ndim = 1;
  Rows rows({&x, &y}, -1);
  int64_t runs = (rows.length + kRun - 1) / kRun;
  parallel_for(rows.count * runs, std::max<int64_t>(1, kGrain / std::min(kRun, rows.length)),
               [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end && same.load(std::memory_order_relaxed); ++t)
      rows.each(t / runs, t / runs + 1, [&](const int64_t* off) {
        int64_t i = t % runs * kRun, m = std::min(kRun, rows.length - i);
        RowBuffer p(x, d, rows.step[0], m), q(y, d, rows.step[1], m);
        if (!same_items(d, p.read(off[0] + i * rows.step[0]), q.read(off[1] + i * rows.step[1]), m))
          same.store(false, std::memory_order_relaxed);
      });
  });
  result = same;
}

Register r_median("median_dim", median_dim), r_nanmedian("nanmedian_dim", nanmedian_dim), r_mode("mode_dim", mode_dim),
    r_median_all("median", median_all<false>), r_nanmedian_all("nanmedian", median_all<true>), r_equal("equal", equal);
Serves equal_rare(kWideUnsigned | kFloat8 | kComplex32, {"equal"});

}  // namespace
}  // namespace mt
