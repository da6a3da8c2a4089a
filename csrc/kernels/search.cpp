// Searching sorted sequences: searchsorted (and so bucketize).
#include "expect.h"
#include "indexing.h"

namespace mt {
namespace {

// How many of n items of the sequence come before the value: those not >= it, or on the right side not > it. NaN
// compares false, so it goes to the end, as in torch. The choice of a half is a select, not a branch, which would be
// guessed wrong half of the time.
template <bool right, class T>
int64_t place(const T* sequence, const int64_t* sorter, int64_t n, compute_t<T> value) {
  auto before = [&](int64_t k) {
    const auto at = cast<compute_t<T>>(sequence[sorter ? sorter[k] : k]);
    return right ? !(at > value) : !(at >= value);
  };
  if (n == 0) return 0;
  int64_t low = 0;
  for (int64_t half; n > 1; n -= half) {
    half = n / 2;
    low += half & -int64_t(before(low + half - 1));
  }
  return low + before(low);
}

template <class T, class Out>
void search(const View& sequence, const int64_t* sorter, const View& values, Out* out, bool right) {
  const int64_t n = size_at(sequence, sequence.ndim - 1), total = values.numel();
  const int64_t per_row = sequence.ndim > 1 ? size_at(values, values.ndim - 1) : total;
  parallel_for(total, 2048, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      int64_t row = k / per_row * n;
      const T* from = sequence.ptr<T>() + row;
      const int64_t* order = sorter ? sorter + row : nullptr;
      const auto value = cast<compute_t<T>>(values.ptr<T>()[k]);
      out[k] = Out(right ? place<true>(from, order, n, value) : place<false>(from, order, n, value));
    }
  });
}

// searchsorted: t = [out (int64 or int32), sorted_sequence, values, sorter?], a = [right]
void searchsorted(const Args& args) {
  const View &rows = args.t[1], &wanted = args.t[2];
  expect(rows.ndim > 0, "torch.searchsorted()", "boundaries tensor should have positive dimension");
  const DType dtype = args.t[1].dtype;
  Packed out(args.t[0], args.t[0].dtype, Packed::kWrite), sequence(args.t[1], dtype, Packed::kRead);
  Packed values(args.t[2], dtype, Packed::kRead);
  if (dtype == kBool || is_complex(dtype)) unsupported("searchsorted_out_cpu", dtype);
  const bool sorted_by = args.nt > 3 && args.t[3].given();
  View none;
  none.ndim = 0;
  none.dtype = kInt64;
  Packed sorter(sorted_by ? args.t[3] : none, kInt64, Packed::kRead);
  const int64_t* order = sorted_by ? sorter.ptr<int64_t>() : nullptr;
  if (sorted_by) {
    const int64_t n = size_at(sequence.view, sequence.view.ndim - 1);
    for (int64_t k = 0; k < sorter.view.numel(); ++k)
      if (order[k] < 0 || order[k] >= n) throw std::runtime_error("torch.searchsorted(): sorter index out of range");
  }
  if (rows.ndim > 1) {
    bool fits = wanted.ndim == rows.ndim;
    for (int d = 0; fits && d < rows.ndim - 1; ++d) fits = wanted.sizes[d] == rows.sizes[d];
    expect(fits, "torch.searchsorted()", "boundaries tensor should be 1 dimension or the first N-1 dimensions of "
           "boundaries tensor and input value tensor must match");
  }
  if (sorted_by) expect_like(args.t[3], rows, "torch.searchsorted()", "sorter");
  const bool right = args.a[0].i != 0;
  MT_DISPATCH_REAL(dtype, "searchsorted_out_cpu", T, {
    if (out.view.dtype == kInt32) search<T>(sequence.view, order, values.view, out.ptr<int32_t>(), right);
    else search<T>(sequence.view, order, values.view, out.ptr<int64_t>(), right);
  })
  out.finish();
}

Register r0("searchsorted", searchsorted);

}  // namespace
}  // namespace mt
