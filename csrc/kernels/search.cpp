// Searching sorted sequences: searchsorted (and so bucketize).
#include "indexing.h"

namespace mt {
namespace {

// How many of n items of the sequence come before the value: those not >= it, or on the right side not > it. NaN
// compares false, so it goes to the end, as in torch.
template <class T>
int64_t place(const T* sequence, const int64_t* sorter, int64_t n, compute_t<T> value, bool right) {
  using C = compute_t<T>;
  int64_t low = 0;
  while (n > 0) {
    int64_t half = n / 2, mid = low + half;
    C at = cast<C>(sequence[sorter ? sorter[mid] : mid]);
    bool before = right ? !(at > value) : !(at >= value);
    low = before ? mid + 1 : low;
    n = before ? n - half - 1 : half;
  }
  return low;
}

template <class T, class Out>
void search(const View& sequence, const int64_t* sorter, const View& values, Out* out, bool right) {
  const int64_t n = size_at(sequence, sequence.ndim - 1), total = values.numel();
  const int64_t per_row = sequence.ndim > 1 ? size_at(values, values.ndim - 1) : total;
  parallel_for(total, 2048, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      int64_t row = k / per_row * n;
      out[k] = Out(place<T>(sequence.ptr<T>() + row, sorter ? sorter + row : nullptr, n,
                            cast<compute_t<T>>(values.ptr<T>()[k]), right));
    }
  });
}

// searchsorted: t = [out (int64 or int32), sorted_sequence, values, sorter?], a = [right]
void searchsorted(const Args& args) {
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
