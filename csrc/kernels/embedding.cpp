// Table lookups: embedding, its dense gradient, and embedding_bag.
#include "expect.h"
#include "indexing.h"
#include "panel.h"

namespace mt {
namespace {

// embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False)
void embedding(const Args& args) {
  const View &out = args.t[0], &weight = args.t[1];
  Packed wide(args.t[2], kInt64, Packed::kRead);
  const View& indices = args.t[2].dtype == kInt64 ? args.t[2] : wide.view;
  if (!out.numel()) return check_indices(indices, size_at(weight, 0));
  IndexWalk w;
  w.bad = bad_select;
  advanced(w, weight, &indices, 1, out);
  w.run(take_items(weight.dtype), out, weight);
}

// embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx,
//                          bool scale_grad_by_freq) -> Tensor
void embedding_dense_backward(const Args& args) {
  const bool half = args.t[0].dtype == kHalf || args.t[0].dtype == kBFloat16;
  const DType sum = half ? kFloat : args.t[0].dtype;  // halves are summed in float and rounded once
  Packed out(args.t[0], sum, Packed::kWrite), grad(args.t[1], sum, Packed::kRead);
  Packed indices(args.t[2], kInt64, Packed::kRead);
  const int64_t rows = args.a[0].i, padding = args.a[1].i, n = indices.view.numel(), width = size_at(out.view, 1);
  const int64_t* index = indices.ptr<int64_t>();
  expect(args.t[0].ndim == 2 && size_at(args.t[0], 0) == rows, "embedding_backward", "the table has the wrong size");
  expect_items(args.t[1], n * width, "embedding_backward", "grad_output");
  Scratch<int64_t> freq;
  if (args.a[2].i && width) {  // without a column there may be more rows than memory
    freq = Scratch<int64_t>(rows);
    std::fill_n(freq.get(), rows, 0);
  }
  for (int64_t k = 0; k < n; ++k) {
    if (index[k] == padding) continue;
    if (index[k] < 0 || index[k] >= rows) bad_select(index[k], 0, rows);
    if (freq.get()) ++freq[index[k]];
  }
  auto add = [&](auto* to, const auto* from) {
    // A thread owns a range of rows of the table, so that each row is summed in the order of the indices.
    int64_t parts = std::max(n, rows) * width <= kGrain ? 1 : get_num_threads();
    int64_t each = (rows + parts - 1) / parts;
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = std::min(begin * each, rows), last = std::min(end * each, rows);
      std::fill(to + first * width, to + last * width, 0);
      for (int64_t k = 0; k < n; ++k) {
        int64_t i = index[k];
        if (i == padding || i < first || i >= last) continue;
        auto* q = to + i * width;
        const auto* p = from + k * width;
        if (freq.get()) for (int64_t c = 0; c < width; ++c) q[c] += p[c] / freq[i];
        else for (int64_t c = 0; c < width; ++c) q[c] += p[c];
      }
    });
  };
  if (sum == kFloat) add(out.ptr<float>(), grad.ptr<float>());
  else if (sum == kDouble) add(out.ptr<double>(), grad.ptr<double>());
  else unsupported("embedding_backward", args.t[0].dtype);
  out.finish();
}

struct Bag {
  int64_t mode, padding, width, rows;
  const int64_t *index, *offset;
  int64_t n, bags, offsets;
  int64_t grain() const { return std::max<int64_t>(1, bags * kGrain / std::max<int64_t>(n * width, 1)); }
};
Bag bag_of(int64_t mode, const Attr& padding, const View& out, const View& weight, const Packed& indices, const Packed& offsets) {
  expect(out.ndim == 2 && weight.ndim == 2, "embedding_bag", "weight must be 2-D");
  expect(offsets.view.numel() >= out.sizes[0], "embedding_bag", "there are fewer offsets than bags");
  for (int64_t k = 0; k < offsets.view.numel(); ++k) {
    const int64_t at = offsets.ptr<int64_t>()[k];
    expect(at >= 0 && at <= indices.view.numel(), "embedding_bag", "an offset lies outside of the indices");
  }
  return {mode, padding.given ? padding.i : -1, weight.sizes[1], weight.sizes[0], indices.ptr<int64_t>(), offsets.ptr<int64_t>(),
          indices.view.numel(), out.sizes[0], offsets.view.numel()};
}
// Refuses indices of no row; how many count.
int64_t count_rows(const Bag& b, int64_t first, int64_t stop) {
  int64_t count = 0;
  bool outside = false;
  for (int64_t k = first; k < stop; ++k) {
    outside |= uint64_t(b.index[k]) >= uint64_t(b.rows);
    count += b.index[k] != b.padding;
  }
  for (int64_t k = first; outside && k < stop; ++k)
    if (b.index[k] < 0 || b.index[k] >= b.rows)
      throw std::runtime_error("Index " + std::to_string(k) + " of input takes value " + std::to_string(b.index[k]) +
                               " which is not in the valid range [0, " + std::to_string(b.rows) + ")");
  return count;
}

constexpr int64_t kNear = 1 << 18;  // bytes of a table that stays in the second-level cache
// Asks for the beginning of a row that is read soon.
template <class T> inline void fetch_row(const Bag& b, const T* table, int64_t k) {
  constexpr int64_t line = 64 / sizeof(T);
  if (k >= b.n || uint64_t(b.index[k]) >= uint64_t(b.rows)) return;
  for (int64_t c = 0; c < std::min(b.width, 4 * line); c += line) __builtin_prefetch(table + b.index[k] * b.width + c);
}
// kCount vectors of a bag's result from column c on, in registers, from its rows [first, stop) of the indices.
template <class T, int kCount, bool kMax>
void bag_columns(const Bag& b, const T* table, const T* scale, int64_t first, int64_t stop, int64_t c, T* q) {
  typedef T V __attribute__((vector_size(32)));
  typedef T Memory __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
  constexpr int kLanes = 32 / sizeof(T);
  V acc[kCount] = {};
  int64_t count = 0;
  for (int64_t k = first; k < stop; ++k) {
    if (c == 0) fetch_row(b, table, k + 6);
    if (b.index[k] == b.padding) continue;
    const T *p = table + b.index[k] * b.width + c, s = scale ? scale[k] : T(1);
    if (kMax && count == 0) {
      MT_UNROLL for (int j = 0; j < kCount; ++j) acc[j] = *reinterpret_cast<const Memory*>(p + j * kLanes);
    } else MT_UNROLL for (int j = 0; j < kCount; ++j) {
      const V x = *reinterpret_cast<const Memory*>(p + j * kLanes);
      if (kMax) acc[j] = x > acc[j] ? x : acc[j];
      else acc[j] += x * s;
    }
    ++count;
  }
  MT_UNROLL for (int j = 0; j < kCount; ++j) *reinterpret_cast<Memory*>(q + c + j * kLanes) = acc[j];
}

// The same of a plain sum: no row is left out, none is scaled.
template <class T, int kCount> void sum_columns(const Bag& b, const T* table, int64_t first, int64_t stop, int64_t c, T* q) {
  typedef T V __attribute__((vector_size(32)));
  typedef T Memory __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
  constexpr int kLanes = 32 / sizeof(T);
  const bool far = c == 0 && b.rows * b.width * int64_t(sizeof(T)) > kNear;
  V acc[kCount] = {};
  for (int64_t k = first; k < stop; ++k) {
    if (far) fetch_row(b, table, k + 6);
    const T* p = table + b.index[k] * b.width + c;
    MT_UNROLL for (int j = 0; j < kCount; ++j) acc[j] += *reinterpret_cast<const Memory*>(p + j * kLanes);
  }
  MT_UNROLL for (int j = 0; j < kCount; ++j) *reinterpret_cast<Memory*>(q + c + j * kLanes) = acc[j];
}

template <class T, bool kMax, int... I>
void bag_range(const Bag& b, const T* table, const T* scale, T* out, int64_t begin, int64_t end, std::integer_sequence<int, I...>) {
  constexpr int kLanes = 32 / sizeof(T), kMost = sizeof...(I);
  using Columns = void (*)(const Bag&, const T*, const T*, int64_t, int64_t, int64_t, T*);
  using Sums = void (*)(const Bag&, const T*, int64_t, int64_t, int64_t, T*);
  static constexpr Columns columns[] = {bag_columns<T, I + 1, kMax>...};
  static constexpr Sums sums[] = {sum_columns<T, I + 1>...};
  for (int64_t bag = begin; bag < end; ++bag) {
    T* q = out + bag * b.width;
    const int64_t first = b.offset[bag], stop = bag + 1 < b.offsets ? b.offset[bag + 1] : b.n;
    const int64_t count = count_rows(b, first, stop);
    int64_t c = 0;
    for (int64_t left = b.width; left > 0 && b.width >= kLanes; left = b.width - c) {
      const int64_t vectors = std::min<int64_t>({(left + kLanes - 1) / kLanes, kMost, b.width / kLanes});
      const int64_t from = std::min(c, b.width - vectors * kLanes);  // the last ones again, instead of fewer
      if (!kMax && !scale && count == stop - first) sums[vectors - 1](b, table, first, stop, from, q);
      else columns[vectors - 1](b, table, scale, first, stop, from, q);
      c = from + vectors * kLanes;
    }
    if (c < b.width) std::fill(q + c, q + b.width, T(0));
    bool none = true;
    for (int64_t k = first; k < stop && c < b.width; ++k) {
      if (b.index[k] == b.padding) continue;
      const T *p = table + b.index[k] * b.width, s = scale ? scale[k] : T(1);
      for (int64_t r = c; r < b.width; ++r) q[r] = !kMax ? q[r] + p[r] * s : none || p[r] > q[r] ? p[r] : q[r];
      none = false;
    }
    if (b.mode == 1 && count > 1) for (c = 0; c < b.width; ++c) q[c] /= T(count);
  }
}

// embedding_bag: t = [out (bags, width), weight, indices, offsets, per_sample_weights?]
// a = [mode (0 sum, 1 mean, 2 max), padding_idx, include_last_offset]
void embedding_bag(const Args& args) {
  const DType dtype = args.t[1].dtype;
  const DType sum = dtype == kHalf || dtype == kBFloat16 ? kFloat : dtype;
  Packed out(args.t[0], sum, Packed::kWrite), weight(args.t[1], sum, Packed::kRead);
  Packed indices(args.t[2], kInt64, Packed::kRead), offsets(args.t[3], kInt64, Packed::kRead);
  View none;
  none.dtype = sum;
  none.ndim = 0;
  const bool scaled = args.nt > 4 && args.t[4].given();
  if (scaled) expect_items(args.t[4], args.t[2].numel(), "embedding_bag", "per_sample_weights");
  Packed scale(scaled ? args.t[4] : none, sum, Packed::kRead);
  const Bag b = bag_of(args.a[0].i, args.a[1], out.view, weight.view, indices, offsets);
  MT_SWITCH(sum, "embedding_bag", MT_FLOATS(T, {
    parallel_for(b.bags, b.grain(), [&](int64_t begin, int64_t end) {
      const T* scales = scaled ? scale.ptr<T>() : nullptr;
      const std::make_integer_sequence<int, 8> sizes;
      if (b.mode == 2) bag_range<T, true>(b, weight.ptr<T>(), scales, out.ptr<T>(), begin, end, sizes);
      else bag_range<T, false>(b, weight.ptr<T>(), scales, out.ptr<T>(), begin, end, sizes);
    });
  }))
  out.finish();
}

// embedding_bag_places: t = [out (bags, width) int64, weight, indices, offsets], a = [padding_idx, include_last_offset]
// The row of weight that each item of a maximum is from, the first of equals; -1 for an empty bag.
template <class T> void bag_places(const Bag& b, const T* table, int64_t* out, int64_t begin, int64_t end) {
  Scratch<T> best(b.width);
  for (int64_t bag = begin; bag < end; ++bag) {
    int64_t* place = out + bag * b.width;
    std::fill_n(place, b.width, int64_t(-1));
    const int64_t first = b.offset[bag], stop = bag + 1 < b.offsets ? b.offset[bag + 1] : b.n;
    count_rows(b, first, stop);
    bool none = true;
    for (int64_t k = first; k < stop; ++k) {
      const int64_t row = b.index[k];
      if (row == b.padding) continue;
      const T* x = table + row * b.width;
      for (int64_t j = 0; j < b.width; ++j) {
        const bool more = none || x[j] > best[j];
        best[j] = more ? x[j] : best[j];
        place[j] = more ? row : place[j];
      }
      none = false;
    }
  }
}
void embedding_bag_places(const Args& args) {
  const DType wide = wide_of(args.t[1].dtype);
  Packed out(args.t[0], kInt64, Packed::kWrite), weight(args.t[1], wide, Packed::kRead);
  Packed indices(args.t[2], kInt64, Packed::kRead), offsets(args.t[3], kInt64, Packed::kRead);
  const Bag b = bag_of(2, args.a[0], out.view, weight.view, indices, offsets);
  MT_SWITCH(wide, "embedding_bag", MT_FLOATS(T, {
    parallel_for(b.bags, b.grain(), [&](int64_t begin, int64_t end) {
      bag_places<T>(b, weight.ptr<T>(), out.ptr<int64_t>(), begin, end);
    });
  }))
  out.finish();
}

// embedding_bag_layout: t = [bag of each index (int64), sizes (bags) int64, indices, offsets], a = [padding_idx,
// include_last_offset]; sizes count what is not padding.
void embedding_bag_layout(const Args& args) {
  Packed out(args.t[0], kInt64, Packed::kWrite), counts(args.t[1], kInt64, Packed::kWrite);
  Packed indices(args.t[2], kInt64, Packed::kRead), offsets(args.t[3], kInt64, Packed::kRead);
  const int64_t n = indices.view.numel(), bags = counts.view.numel(), padding = args.a[0].i;
  expect_items(args.t[0], n, "embedding_bag", "the bags");
  expect(offsets.view.numel() >= bags, "embedding_bag", "there are fewer offsets than bags");
  int64_t *bag = out.ptr<int64_t>(), *size = counts.ptr<int64_t>();
  const int64_t *index = indices.ptr<int64_t>(), *offset = offsets.ptr<int64_t>();
  std::fill_n(bag, n, int64_t(0));
  std::fill_n(size, bags, int64_t(0));
  for (int64_t k = 0; k < bags; ++k) {  // how many bags begin at an index
    expect(offset[k] >= 0 && offset[k] <= n, "embedding_bag", "an offset lies outside of the indices");
    if (offset[k] < n) ++bag[offset[k]];
  }
  int64_t last = -1;
  for (int64_t k = 0; k < n; ++k) {
    last = bag[k] += last;
    if (last >= 0) size[last] += index[k] != padding;
  }
  out.finish();
  counts.finish();
}

Register r0("embedding", embedding);
Register r4("embedding_bag_layout", embedding_bag_layout);
Register r3("embedding_bag_places", embedding_bag_places);
Register r1("embedding_dense_backward", embedding_dense_backward);
Register r2("embedding_bag", embedding_bag);
Serves any_item(kAnyRare, {"embedding"});

}  // namespace
}  // namespace mt
