// Table lookups: embedding, its dense gradient, and embedding_bag.
#include "expect.h"
#include "indexing.h"

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
  if (out.view.numel()) std::memset(out.view.data, 0, out.view.numel() * itemsize(sum));
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
    int64_t parts = n * width <= kGrain ? 1 : get_num_threads();
    int64_t each = (rows + parts - 1) / parts;
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = 0; k < n; ++k) {
        int64_t i = index[k];
        if (i == padding || i < begin * each || i >= end * each) continue;
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
};

// Asks for the beginning of a row that is read soon.
template <class T> inline void fetch_row(const Bag& b, const T* table, int64_t k) {
  constexpr int64_t line = 64 / sizeof(T);
  if (k >= b.n || uint64_t(b.index[k]) >= uint64_t(b.rows)) return;
  for (int64_t c = 0; c < std::min(b.width, 4 * line); c += line) __builtin_prefetch(table + b.index[k] * b.width + c);
}
template <class T> void bag_range(const Bag& b, const T* table, const T* scale, T* out, int64_t begin, int64_t end) {
  for (int64_t bag = begin; bag < end; ++bag) {
    T* q = out + bag * b.width;
    int64_t count = 0, stop = bag + 1 < b.offsets ? b.offset[bag + 1] : b.n;
    std::fill_n(q, b.width, T(0));
    for (int64_t k = b.offset[bag]; k < stop; ++k) {
      int64_t i = b.index[k];
      if (i < 0 || i >= b.rows)
        throw std::runtime_error("Index " + std::to_string(k) + " of input takes value " + std::to_string(i) +
                                 " which is not in the valid range [0, " + std::to_string(b.rows) + ")");
      fetch_row(b, table, k + 6);
      if (i == b.padding) continue;
      const T *p = table + i * b.width, s = scale ? scale[k] : T(1);
      if (b.mode == 2) for (int64_t c = 0; c < b.width; ++c) q[c] = count == 0 || p[c] > q[c] ? p[c] : q[c];
      else
#pragma GCC ivdep
        for (int64_t c = 0; c < b.width; ++c) q[c] += p[c] * s;
      ++count;
    }
    if (b.mode == 1 && count > 1) for (int64_t c = 0; c < b.width; ++c) q[c] /= T(count);
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
  expect(args.t[0].ndim == 2 && args.t[1].ndim == 2, "embedding_bag", "weight must be 2-D");
  expect(args.t[3].numel() >= args.t[0].sizes[0], "embedding_bag", "there are fewer offsets than bags");
  if (scaled) expect_items(args.t[4], args.t[2].numel(), "embedding_bag", "per_sample_weights");
  for (int64_t k = 0; k < offsets.view.numel(); ++k) {
    const int64_t at = offsets.ptr<int64_t>()[k];
    expect(at >= 0 && at <= indices.view.numel(), "embedding_bag", "an offset lies outside of the indices");
  }
  Packed scale(scaled ? args.t[4] : none, sum, Packed::kRead);
  Bag b{args.a[0].i, args.a[1].given ? args.a[1].i : -1, weight.view.sizes[1], weight.view.sizes[0],
        indices.ptr<int64_t>(), offsets.ptr<int64_t>(), indices.view.numel(), out.view.sizes[0], offsets.view.numel()};
  const int64_t grain = std::max<int64_t>(1, b.bags * kGrain / std::max<int64_t>(b.n * b.width, 1));
  MT_SWITCH(sum, "embedding_bag", MT_FLOATS(T, {
    parallel_for(b.bags, grain, [&](int64_t begin, int64_t end) {
      bag_range(b, weight.ptr<T>(), scaled ? scale.ptr<T>() : nullptr, out.ptr<T>(), begin, end);
    });
  }))
  out.finish();
}

Register r0("embedding", embedding);
Register r1("embedding_dense_backward", embedding_dense_backward);
Register r2("embedding_bag", embedding_bag);
Serves any_item(kAnyRare, {"embedding"});

}  // namespace
}  // namespace mt
