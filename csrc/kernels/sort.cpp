// Ordering along a dim: sort, topk, kthvalue, and the sorted and consecutive unique. The keys are in order.h.
#include <numeric>

#include "expect.h"
#include "order.h"
#include "sorted.h"

namespace mt {
namespace {

constexpr int kDigit = 8, kBuckets = 1 << kDigit;
constexpr int64_t kInsertion = 24, kRadix = 192;  // up to so many items: insertion sort; from so many: radix sort

inline int digit_of(uint64_t item, int shift) { return int(item >> shift) & (kBuckets - 1); }
inline int digit_of(const Wide& item, int shift) { return int(item.key >> shift) & (kBuckets - 1); }

template <class Item> void insertion_sort(Item* a, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    Item v = a[i];
    int64_t j = i;
    for (; j > 0 && v < a[j - 1]; --j) a[j] = a[j - 1];
    a[j] = v;
  }
}

// One radix pass from a to b over `parts` equal parts of the row; false when all items share the digit.
template <class Item>
bool radix_pass(const Item* a, Item* b, int64_t n, int shift, int parts, int64_t (*count)[kBuckets]) {
  int64_t each = (n + parts - 1) / parts;
  parallel_for(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      std::fill_n(count[p], kBuckets, 0);
      for (int64_t k = p * each, end = std::min(n, k + each); k < end; ++k) ++count[p][digit_of(a[k], shift)];
    }
  });
  int64_t before = 0;
  for (int digit = 0; digit < kBuckets; ++digit) {
    int64_t start = before;
    for (int p = 0; p < parts; ++p) {
      int64_t c = count[p][digit];
      count[p][digit] = before;
      before += c;
    }
    if (before - start == n) return false;
  }
  parallel_for(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      int64_t* to = count[p];
      for (int64_t k = p * each, end = std::min(n, k + each); k < end; ++k) b[to[digit_of(a[k], shift)]++] = a[k];
    }
  });
  return true;
}

// Sorts by `bits` bits from `shift` on, given that items are in the order of their indices. Returns a or b.
template <class Item> Item* sort_items(Item* a, Item* b, int64_t n, int shift, int bits) {
  if (n <= kInsertion) return insertion_sort(a, n), a;
  if (n < kRadix) return std::sort(a, a + n), a;
  constexpr int kMaxParts = 16;
  int parts = n < 65536 ? 1 : std::min(get_num_threads(), kMaxParts);
  int64_t count[kMaxParts][kBuckets];
  for (int done = 0; done < bits; done += kDigit)
    if (radix_pass(a, b, n, shift + done, parts, count)) std::swap(a, b);
  return a;
}

int bit_width(uint64_t v) {
  int n = 0;
  for (; v; v >>= 1) ++n;
  return n;
}

// Writes what was sorted. `lossy` keys lost the sign of a zero or the bits of a NaN: take those from the source.
template <class T> struct Emit {
  const T* p;
  int64_t step;
  T* values;
  int64_t values_step;
  int64_t* indices;
  int64_t indices_step;
  bool lossy;
  key_t<T> flip;

  void operator()(int64_t k, key_t<T> key, int64_t index) const {
    if (values) values[k * values_step] = lossy ? p[index * step] : decode<T>(key_t<T>(key ^ flip));
    if (indices) indices[k * indices_step] = index;
  }
};

// 64-bit keys are sorted as words of one key and its index. Where both do not fit, the key's last bits are left out, and
// items that agree in all others are sorted among themselves: half of the memory to move, and seldom any such item.
template <class T> void sort_wide(const T* p, int64_t step, int64_t n, Emit<T>& emit, void* scratch) {
  Wide* a = static_cast<Wide*>(scratch);
  uint64_t low = ~uint64_t(0), high = 0;
  key_t<T> lossy = 0;
  for (int64_t k = 0; k < n; ++k) {
    uint64_t key = encode(p[k * step], lossy) ^ emit.flip;
    low = std::min(low, key);
    high = std::max(high, key);
    a[k] = {key, k};
  }
  emit.lossy = lossy != 0;
  if (std::is_sorted(a, a + n)) {
    for (int64_t k = 0; k < n; ++k) emit(k, a[k].key, k);
    return;
  }
  const int bits = bit_width(high - low), index_bits = bit_width(uint64_t(n)), lost = std::max(0, bits + index_bits - 64);
  uint64_t *words = static_cast<uint64_t*>(scratch), mask = (uint64_t(1) << index_bits) - 1;
  for (int64_t k = 0; k < n; ++k) words[k] = (a[k].key - low) >> lost << index_bits | uint64_t(k);  // word k lies before item k
  const uint64_t* sorted = sort_items(words, words + n, n, index_bits, bits - lost);
  if (lost == 0) {
    for (int64_t k = 0; k < n; ++k) emit(k, (sorted[k] >> index_bits) + low, int64_t(sorted[k] & mask));
    return;
  }
  Wide* same = a + n;  // behind both halves of the words
  for (int64_t k = 0, m; k < n; k += m) {
    for (m = 0; k + m < n && sorted[k + m] >> index_bits == sorted[k] >> index_bits; ++m) {
      const int64_t index = int64_t(sorted[k + m] & mask);
      same[m] = {uint64_t(encode(p[index * step], lossy) ^ emit.flip), index};
    }
    if (m > 1) std::sort(same, same + m);
    for (int64_t i = 0; i < m; ++i) emit(k + i, same[i].key, same[i].index);
  }
}

template <class T> constexpr int64_t sort_scratch(int64_t n) { return 2 * n * int64_t(sizeof(item_t<T>)) + 64; }

// Sorts n strided values; writes the sorted values and where they stood (either may be null), each at its own stride.
template <class T>
void sort_row(const T* p, int64_t step, int64_t n, bool descending, T* values, int64_t values_step, int64_t* indices,
              int64_t indices_step, void* scratch) {
  if (step == 0) {  // one item again and again
    for (int64_t k = 0; values && k < n; ++k) values[k * values_step] = *p;
    if (indices && indices_step == 1) std::iota(indices, indices + n, int64_t(0));
    else for (int64_t k = 0; indices && k < n; ++k) indices[k * indices_step] = k;
    return;
  }
  const key_t<T> flip = descending ? key_t<T>(~key_t<T>(0)) : key_t<T>(0);
  Emit<T> emit{p, step, values, values_step, indices, indices_step, false, flip};
  if constexpr (sizeof(T) == 8) {
    sort_wide(p, step, n, emit, scratch);
  } else {
    uint64_t* a = static_cast<uint64_t*>(scratch);
    key_t<T> lossy = 0;
    for (int64_t k = 0; k < n; ++k) set_item(a[k], key_t<T>(encode(p[k * step], lossy) ^ flip), k);
    emit.lossy = lossy != 0;
    const uint64_t* sorted = std::is_sorted(a, a + n) ? a : sort_items(a, a + n, n, 32, 8 * int(sizeof(T)));
    for (int64_t k = 0; k < n; ++k) emit(k, key_t<T>(key_of(sorted[k])), index_of(sorted[k]));
  }
}

template <class T> void sort_rows(const View* t, int dim, bool descending) {
  const int64_t n = size_at(t[2], dim);
  check_length(n);
  RowWalk rows(t, 3, dim);
  if (n == 0 || rows.rows == 0) return;
  parallel_for(rows.rows, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
    Scratch<char> scratch(sort_scratch<T>(n));
    rows.run(begin, end, [&](const int64_t* at) {
      sort_row(t[2].ptr<T>() + at[2], stride_at(t[2], dim), n, descending, t[0].ptr<T>() + at[0], stride_at(t[0], dim),
               t[1].ptr<int64_t>() + at[1], stride_at(t[1], dim), scratch.get());
    });
  });
}

// sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)
// a = [dim, descending, stable]; always stable
void sort(const Args& args) {
  int dim = wrap_dim(args.a[0].i, args.t[2].ndim);
  if (is_complex(args.t[2].dtype)) throw std::runtime_error(" Sort does not support complex dtypes on CPU");
  MT_DISPATCH_REAL_UNSIGNED(args.t[2].dtype, "sort", T, { sort_rows<T>(args.t, dim, args.a[1].i != 0); })
}

// The order of the rows of a matrix by their items, the first that differs deciding; equal rows keep theirs.
template <class T> void order_rows_of(const View& self, int64_t* order) {
  const int64_t n = self.sizes[0], items = self.sizes[1];
  const T* p = self.ptr<T>();
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  std::sort(order, order + n, [=](int64_t a, int64_t b) {
    key_t<T> lossy = 0;
    for (int64_t k = 0; k < items; ++k) {
      const key_t<T> x = encode(p[a * items + k], lossy), y = encode(p[b * items + k], lossy);
      if (x != y) return x < y;
    }
    return a < b;
  });
}
// _order_rows(Tensor self) -> Tensor
void order_rows(const Args& args) {
  expect(args.t[1].ndim == 2, "_order_rows", "expected a matrix");
  Packed self(args.t[1], args.t[1].dtype, Packed::kRead), order(args.t[0], kInt64, Packed::kWrite);
  MT_DISPATCH_REAL_UNSIGNED(self.view.dtype, "unique_dim", T, { order_rows_of<T>(self.view, order.ptr<int64_t>()); })
  order.finish();
}

// ---- selection -------------------------------------------------------------------------------------------

// Few items are kept in order: each that is smaller than the last of them is put where it belongs.
constexpr int64_t kFew = 16;
template <class T> void select_few(const T* p, int64_t step, int64_t n, int64_t k, key_t<T> flip, item_t<T>* kept) {
  constexpr int64_t kBlock = 16;
  key_t<T> keys[kBlock], limit = 0, lossy = 0;
  int64_t have = 0;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t m = std::min(kBlock, n - at);
    if (step == 1 && m == kBlock) {
      int smaller = 0;
      for (int64_t j = 0; j < kBlock; ++j) keys[j] = key_t<T>(encode(p[at + j], lossy) ^ flip);
      for (int64_t j = 0; j < kBlock; ++j) smaller |= keys[j] < limit;
      if (have == k && !smaller) continue;
    } else {
      for (int64_t j = 0; j < m; ++j) keys[j] = key_t<T>(encode(p[(at + j) * step], lossy) ^ flip);
    }
    for (int64_t j = 0; j < m; ++j) {
      if (have == k && keys[j] >= limit) continue;
      item_t<T> item;
      set_item(item, keys[j], at + j);
      int64_t i = have < k ? have++ : k - 1;
      for (; i > 0 && item < kept[i - 1]; --i) kept[i] = kept[i - 1];
      kept[i] = item;
      limit = key_t<T>(key_of(kept[have - 1]));
    }
  }
}

// Leaves the k smallest items (in keys ^ flip) of a row at the front of `kept` (not sorted among themselves). Whole
// blocks whose keys are all above the largest kept so far are passed over. kept has room for `room` items.
template <class T>
void select(const T* p, int64_t step, int64_t n, int64_t k, key_t<T> flip, item_t<T>* kept, int64_t room) {
  if (k <= kFew) return select_few(p, step, n, k, flip, kept);
  constexpr int64_t kBlock = 64;
  key_t<T> keys[kBlock], limit = key_t<T>(~key_t<T>(0)), lossy = 0;
  int64_t have = 0;
  bool open = true;  // there is no limit yet
  for (int64_t at = 0; at < n; at += kBlock) {
    int64_t m = std::min(kBlock, n - at);
    key_t<T> least = key_t<T>(~key_t<T>(0));
    if (step == 1) for (int64_t j = 0; j < m; ++j) keys[j] = key_t<T>(encode(p[at + j], lossy) ^ flip);
    else for (int64_t j = 0; j < m; ++j) keys[j] = key_t<T>(encode(p[(at + j) * step], lossy) ^ flip);
    for (int64_t j = 0; j < m; ++j) least = std::min(least, keys[j]);
    if (!open && least >= limit) continue;
    for (int64_t j = 0; j < m; ++j) {
      set_item(kept[have], keys[j], at + j);
      have += open || keys[j] < limit;
      if (have < room) continue;
      std::nth_element(kept, kept + (k - 1), kept + have);
      limit = key_t<T>(key_of(kept[k - 1]));
      open = false;
      have = k;
    }
  }
  if (have > k) std::nth_element(kept, kept + (k - 1), kept + have);
}
// Room for select(): few enough to stay in the cache, enough to make nth_element rare; one item more than it holds.
inline int64_t select_room(int64_t n, int64_t k) { return std::min(n, std::max<int64_t>(4 * k, 64)) + 1; }

template <class T> struct Selection {
  const View* t;
  int dim;
  int64_t n, k;
  key_t<T> flip;

  // f(items kept, source row, offsets) for each row
  template <class F> void run(F&& f) const {
    RowWalk rows(t, 3, dim);
    if (rows.rows == 0) return;
    const int64_t room = select_room(n, k);
    parallel_for(rows.rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
      Scratch<item_t<T>> kept(2 * room);  // the second half serves the final sort
      rows.run(begin, end, [&](const int64_t* at) {
        const T* p = t[2].ptr<T>() + at[2];
        select(p, stride_at(t[2], dim), n, k, flip, kept.get(), room);
        f(kept.get(), p, at);
      });
    });
  }
};

template <class T> void topk_rows(const View* t, int64_t k, int dim, bool largest, bool sorted) {
  const int64_t n = size_at(t[2], dim), step = stride_at(t[2], dim);
  check_length(n);
  const key_t<T> flip = largest ? key_t<T>(~key_t<T>(0)) : key_t<T>(0);
  Selection<T> selection{t, dim, n, k, flip};
  selection.run([&](item_t<T>* kept, const T* p, const int64_t* at) {
    // The items are not in the order of their indices here: only the sorts that compare whole items are right.
    if (sorted) std::sort(kept, kept + k);
    for (int64_t j = 0; j < k; ++j) {
      int64_t index = index_of(kept[j]);
      t[0].ptr<T>()[at[0] + j * stride_at(t[0], dim)] = p[index * step];
      t[1].ptr<int64_t>()[at[1] + j * stride_at(t[1], dim)] = index;
    }
  });
}

// topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)
void topk(const Args& args) {
  const View& self = args.t[2];
  int dim = wrap_dim(args.a[1].i, self.ndim);
  int64_t k = args.a[0].i;
  if (k < 0 || k > size_at(self, dim)) throw std::runtime_error("selected index k out of range");
  if (is_complex(self.dtype)) throw std::runtime_error("topk does not support complex dtypes on CPU");
  if (self.dtype == kBool) throw std::runtime_error("topk does not support bool dtypes on CPU");
  if (self.ndim == 0) k = 1;  // the one item, even if k is 0: the outputs have no dims either
  if (k == 0) return;
  MT_DISPATCH_REAL(self.dtype, "topk", T, { topk_rows<T>(args.t, k, dim, args.a[2].i != 0, args.a[3].i != 0); })
}

template <class T> void kthvalue_rows(const View* t, int64_t k, int dim) {
  const int64_t n = size_at(t[2], dim), step = stride_at(t[2], dim);
  check_length(n);
  const bool from_top = k > n - k + 1;  // keep the fewer
  Selection<T> selection{t, dim, n, from_top ? n - k + 1 : k, from_top ? key_t<T>(~key_t<T>(0)) : key_t<T>(0)};
  selection.run([&](item_t<T>* kept, const T* p, const int64_t* at) {
    int64_t index = index_of(*std::max_element(kept, kept + selection.k));
    t[0].ptr<T>()[at[0]] = p[index * step];
    t[1].ptr<int64_t>()[at[1]] = index;
  });
}

// kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)
void kthvalue(const Args& args) {
  View t[3] = {args.t[0], args.t[1], args.t[2]};
  int dim = wrap_dim(args.a[1].i, t[2].ndim);
  int64_t k = args.a[0].i, sizes[kMaxDims], strides[2][kMaxDims];
  if (k < 1 || k > size_at(t[2], dim))
    throw std::runtime_error("kthvalue(): selected number k out of range for dimension " + std::to_string(dim));
  // The outputs with the dim kept, of one item.
  for (int d = 0; d < t[2].ndim; ++d) sizes[d] = d == dim ? 1 : t[2].sizes[d];
  for (int o = 0; o < 2; ++o) {
    bool kept = t[o].ndim == t[2].ndim;
    for (int d = 0; d < t[2].ndim; ++d) strides[o][d] = d == dim ? 0 : t[o].strides[kept || d < dim ? d : d - 1];
    t[o].ndim = t[2].ndim;
    t[o].sizes = sizes;
    t[o].strides = strides[o];
  }
  if (t[2].dtype == kBool) unsupported("kthvalue_cpu", kBool);
  MT_DISPATCH_REAL(t[2].dtype, "kthvalue_cpu", T, { kthvalue_rows<T>(t, k, dim); })
}

// ---- unique ----------------------------------------------------------------------------------------------

// Runs of equal items in n values; item k stood at indices[k] (null: at k). NaN equals nothing.
template <class T>
int64_t runs(const T* values, const int64_t* indices, int64_t n, T* out, int64_t* inverse, int64_t* counts) {
  using C = compute_t<T>;
  if (!inverse && !counts && n > 0) {  // without a branch, which would be guessed wrong at many an item
    int64_t last = 0;
    out[0] = values[0];
    for (int64_t k = 1; k < n; ++k) {
      out[last + 1] = values[k];
      last += cast<C>(values[k]) != cast<C>(values[k - 1]);
    }
    return last + 1;
  }
  int64_t found = -1, start = 0;
  for (int64_t k = 0; k < n; ++k) {
    if (k == 0 || cast<C>(values[k]) != cast<C>(values[k - 1])) {
      if (counts && found >= 0) counts[found] = k - start;
      start = k;
      out[++found] = values[k];
    }
    if (inverse) inverse[indices ? indices[k] : k] = found;
  }
  if (counts && found >= 0) counts[found] = n - start;
  return found + 1;
}

template <class T> int64_t unique_of(const View& self, bool sorted, T* out, int64_t* inverse, int64_t* counts) {
  const int64_t n = self.numel();
  if (!sorted) return runs<T>(self.ptr<T>(), nullptr, n, out, inverse, counts);
  check_length(n);
  Scratch<T> values(n);
  Scratch<int64_t> indices(inverse ? n : 0);
  Scratch<char> scratch(sort_scratch<T>(n));
  sort_row<T>(self.ptr<T>(), 1, n, false, values.get(), 1, inverse ? indices.get() : nullptr, 1, scratch.get());
  return runs<T>(values.get(), indices.get(), n, out, inverse, counts);
}

// t = [out, inverse?, counts?, n_out, self]: the uniques fill the front of out and counts; n_out says how many
void unique(const Args& args, bool sorted) {
  Packed self(args.t[4], args.t[4].dtype, Packed::kRead), out(args.t[0], args.t[0].dtype, Packed::kWrite);
  View none;
  none.ndim = 0;
  none.dtype = kInt64;
  Packed inverse(args.t[1].given() ? args.t[1] : none, kInt64, Packed::kWrite);
  Packed counts(args.t[2].given() ? args.t[2] : none, kInt64, Packed::kWrite);
  int64_t found = 0;
  MT_DISPATCH_REAL_UNSIGNED(self.view.dtype, "unique", T, {
    found = unique_of<T>(self.view, sorted, out.ptr<T>(), inverse.ptr<int64_t>(), counts.ptr<int64_t>());
  })
  *args.t[3].ptr<int64_t>() = found;
  out.finish();
  inverse.finish();
  counts.finish();
}
void unique_sort(const Args& args) { unique(args, true); }
void unique_runs(const Args& args) { unique(args, false); }

Register r0("sort", sort);
Register r1("topk", topk);
Register r2("kthvalue", kthvalue);
Register r3("unique_sort", unique_sort);
Register r4("unique_runs", unique_runs);
Register r5("_order_rows", order_rows);
Serves sorts(kWideUnsigned, {"sort", "unique_sort", "unique_runs", "_order_rows"});

}  // namespace

template <class T> int64_t sorted_scratch(int64_t n) { return sort_scratch<T>(n); }
template <class T> void sorted(const T* x, int64_t n, T* values, void* scratch) {
  sort_row<T>(x, 1, n, false, values, 1, nullptr, 0, scratch);
}
#define MT_SORTED(T) \
  template int64_t sorted_scratch<T>(int64_t); \
  template void sorted<T>(const T*, int64_t, T*, void*);
MT_SORTED(uint8_t) MT_SORTED(int8_t) MT_SORTED(int16_t) MT_SORTED(int32_t) MT_SORTED(int64_t)
MT_SORTED(float) MT_SORTED(double)

}  // namespace mt
