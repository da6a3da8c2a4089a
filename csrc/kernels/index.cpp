// Reading and writing at indices: index, index_put, gather, index_select, take, put, and the walk all of them (and
// scatter.cpp, embedding.cpp) share. Reductions into indexed places live in scatter.cpp, masks in masked.cpp.
#include "convert.h"
#include "indexing.h"

namespace mt {
namespace {

constexpr int64_t kChunk = 512;  // offsets computed at a time, on the stack

std::string bounds_message(int64_t index, int dim, int64_t size) {
  return "index " + std::to_string(index) + " is out of bounds for dimension " + std::to_string(dim) + " with size " +
         std::to_string(size);
}

[[noreturn]] void bad_take(int64_t index, int, int64_t size) {
  throw std::out_of_range("out of range: tried to access index " + std::to_string(index) + " on a tensor of " +
                          std::to_string(size) + " elements.");
}

// Loops over single items are unrolled: rolled up, they run at half speed where they straddle a cache line of code.
template <class T>
void take_loop(char* plain, int64_t ps, char* indexed, int64_t is, const int64_t* offset, int64_t n) {
  T* p = reinterpret_cast<T*>(plain);
  const T* q = reinterpret_cast<const T*>(indexed);
  if (!offset) {
    if (ps == 1 && is == 1) std::memcpy(plain, indexed, n * sizeof(T));
    else if (ps == 1 && is == 0 && n > 0) std::fill_n(p, n, *q);
    else for (int64_t k = 0; k < n; ++k) p[k * ps] = q[k * is];
  } else if (ps == 1 && is == 0) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
      const T a = q[offset[k]], b = q[offset[k + 1]], c = q[offset[k + 2]], d = q[offset[k + 3]];
      p[k] = a;
      p[k + 1] = b;
      p[k + 2] = c;
      p[k + 3] = d;
    }
    for (; k < n; ++k) p[k] = q[offset[k]];
  } else {
#pragma GCC unroll 4
    for (int64_t k = 0; k < n; ++k) p[k * ps] = q[k * is + offset[k]];
  }
}

// take_loop of whole contiguous rows into an output too large for the cache.
template <class T> void stream_loop(char* plain, int64_t, char* indexed, int64_t, const int64_t*, int64_t n) {
  stream(plain, indexed, n * int64_t(sizeof(T)));
}

template <class T>
void put_loop(char* plain, int64_t ps, char* indexed, int64_t is, const int64_t* offset, int64_t n) {
  const T* p = reinterpret_cast<const T*>(plain);
  T* q = reinterpret_cast<T*>(indexed);
  if (!offset) {
    if (ps == 1 && is == 1) std::memcpy(indexed, plain, n * sizeof(T));
    else for (int64_t k = 0; k < n; ++k) q[k * is] = p[k * ps];
  } else if (ps == 1 && is == 0) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < n; ++k) q[offset[k]] = p[k];
  } else {
    for (int64_t k = 0; k < n; ++k) q[k * is + offset[k]] = p[k * ps];
  }
}

// The part [begin, end) of a walk, in row-major order. len > 0: the last dim, of len items along which no index moves,
// was taken out of the walk; its strides are left behind the walk's last.
struct Part {
  const IndexWalk& w;
  Items items;
  char *plain, *indexed;
  int64_t item, len;
  int64_t from = 0, to = INT64_MAX;  // of rows only those whose offset is in [from, to)

  void operator()(int64_t begin, int64_t end) const {
    const int64_t* inner = w.walk.inner();
    w.walk.run(begin, end, [&](const int64_t* at, int64_t n) {
      int64_t buffer[kChunk], now[kMaxDims + 2];
      for (int64_t k = 0, m; k < n; k += m) {
        m = w.ready ? n : std::min(kChunk, n - k);
        for (int o = 0; o < w.walk.ops; ++o) now[o] = at[o] + k * inner[o];
        const int64_t* offset = w.offsets(now, m, buffer);
        char *p = plain + now[0] * item, *q = indexed + now[1] * item;
        if (len == 0) items(p, inner[0], q, inner[1], offset, m);
        else rows(p, q, offset, m);
      }
    });
  }
  void rows(char* p, char* q, const int64_t* offset, int64_t m) const {
    const int64_t *inner = w.walk.inner(), *along = inner + (kMaxDims + 2), bytes = len * item;
    if (from > 0 || to < INT64_MAX) return rows_of_range(p, q, offset, m);
    for (int64_t r = 0; r < m; ++r) {
      if (r + 1 < m && bytes >= 64) fetch(q + ((r + 1) * inner[1] + offset[r + 1]) * item, bytes);
      items(p + r * inner[0] * item, along[0], q + (r * inner[1] + offset[r]) * item, along[1], nullptr, len);
    }
  }
  // Of many rows few are this thread's, far apart in both operands: they are found first, and fetched some steps ahead.
  void rows_of_range(char* p, char* q, const int64_t* offset, int64_t m) const {
    constexpr int64_t kAhead = 8;
    const int64_t *inner = w.walk.inner(), *along = inner + (kMaxDims + 2), bytes = len * item;
    for (int64_t first = 0; first < m; first += kChunk) {
      int64_t mine[kChunk], count = 0;
      for (int64_t r = first; r < std::min(first + kChunk, m); ++r) {
        mine[count] = r;
        count += offset[r] >= from && offset[r] < to;
      }
      const auto plain_row = [&](int64_t k) { return p + mine[k] * inner[0] * item; };
      const auto indexed_row = [&](int64_t k) { return q + (mine[k] * inner[1] + offset[mine[k]]) * item; };
      for (int64_t k = 0; k < count + kAhead; ++k) {
        if (k < count) fetch(plain_row(k), bytes), fetch(indexed_row(k), bytes);
        if (k >= kAhead) items(plain_row(k - kAhead), along[0], indexed_row(k - kAhead), along[1], nullptr, len);
      }
    }
  }
  // A row lies anywhere: its first lines are on their way while others are moved.
  static void fetch(const char* row, int64_t bytes) {
    for (int64_t b = 0; b < std::min<int64_t>(bytes, 512); b += 64) __builtin_prefetch(row + b);
  }
};

// Collapses the walk and takes out a last dim that no index moves along, if any: such rows are moved whole. Returns
// its length, or 0.
int64_t take_rows(Walk<kMaxDims + 2>& walk) {
  walk.collapse();
  for (int k = 2; k < walk.ops; ++k)
    if (walk.inner()[k] != 0) return 0;
  if (walk.ndim == 1) {  // one row: a dim of one item takes its place
    for (int k = 0; k < walk.ops; ++k) {
      walk.strides[1][k] = walk.strides[0][k];
      walk.strides[0][k] = 0;
    }
    walk.sizes[1] = walk.sizes[0];
    walk.sizes[0] = 1;
    walk.ndim = 2;
  }
  return walk.sizes[--walk.ndim];
}

}  // namespace

namespace indexing {

void bad_index(int64_t index, int dim, int64_t size) { throw std::out_of_range(bounds_message(index, dim, size)); }
void bad_gather(int64_t index, int dim, int64_t size) { throw std::runtime_error(bounds_message(index, dim, size)); }
void bad_select(int64_t, int, int64_t) { throw std::out_of_range("index out of range in self"); }
void check_indices(const View& index, int64_t size) {
  Packed packed(index, kInt64, Packed::kRead);
  for (int64_t k = 0, n = index.numel(); k < n; ++k) {
    const int64_t at = packed.ptr<int64_t>()[k];
    if (at < 0 || at >= size)
      throw std::runtime_error("INDICES element is out of DATA bounds, id=" + std::to_string(at) + " axis_dim=" +
                               std::to_string(size));
  }
}

Items take_items(DType dtype) {
  MT_DISPATCH_SIZE(dtype, "take", T, { return take_loop<T>; })
  return nullptr;
}
Items put_items(DType dtype) {
  MT_DISPATCH_SIZE(dtype, "put", T, { return put_loop<T>; })
  return nullptr;
}

// The offsets of n items from `at` on along the last dim, in `buffer` unless the index itself will do.
const int64_t* IndexWalk::offsets(const int64_t* at, int64_t n, int64_t* buffer) const {
  using Yes = std::true_type;
  using No = std::false_type;
  if (ready) return index[0] + at[2];
  if (count() == 0) std::fill_n(buffer, n, int64_t(0));  // no index at all: every item stays where it is
  for (int j = 0; j < count(); ++j) {
    const int64_t *p = index[j] + at[j + 2], step = walk.inner()[j + 2], len = size[j], mul = stride[j];
    const int64_t back = wrap ? len : 0;
    uint64_t outside = 0;  // its top bit: some index was negative or beyond the last
    auto loop = [&](auto first, auto unit, auto store) {
      for (int64_t k = 0; k < n; ++k) {
        int64_t i = p[unit ? k : k * step];
        if (store) i += i < 0 ? back : 0;
        outside |= uint64_t(i) | (uint64_t(len - 1) - uint64_t(i));
        const uint64_t offset = uint64_t(i) * uint64_t(mul);  // of an index beyond all bounds it is never used
        if (store) buffer[k] = int64_t(first ? offset : uint64_t(buffer[k]) + offset);
      }
    };
    const bool as_is = count() == 1 && step == 1 && mul == 1 && !wrap;
    if (as_is) loop(Yes(), Yes(), No());
    else if (j == 0 && step == 1) loop(Yes(), Yes(), Yes());
    else if (j == 0) loop(Yes(), No(), Yes());
    else loop(No(), No(), Yes());
    if (outside >> 63)
      for (int64_t k = 0; k < n; ++k)
        if (p[k * step] >= len || p[k * step] < -back) bad(p[k * step], dim[j], len);
    if (as_is) return p;
  }
  return buffer;
}

void IndexWalk::run(Items items, const View& plain, const View& indexed) {
  int64_t n = walk.numel(), item = itemsize(plain.dtype);
  if (n == 0) return;
  int64_t len = take_rows(walk), each = std::max<int64_t>(len, 1);
  const int64_t* along = walk.strides[walk.ndim];
  const bool streamed = items == take_items(plain.dtype) && len * item >= 256 && n * item >= kStream &&
                        along[0] == 1 && along[1] == 1;
  if (streamed) MT_DISPATCH_SIZE(plain.dtype, "take", T, { items = stream_loop<T>; })
  // Indices that move along the last dim alone (x[:, i]) are the same for every run: their offsets are made once,
  // and take the place of the index.
  bool same = walk.ndim > 1;
  for (int d = 0; d < walk.ndim - 1; ++d)
    for (int k = 2; k < walk.ops; ++k) same = same && walk.strides[d][k] == 0;
  Scratch<int64_t> table;
  if (same) {
    const int64_t inner = walk.sizes[walk.ndim - 1];
    table = Scratch<int64_t>(inner);
    const int64_t* offset = offsets(walk.base, inner, table.get());
    if (offset != table.get()) std::copy_n(offset, inner, table.get());
    walk.ops = 3;
    for (int d = 0; d < walk.ndim; ++d) walk.strides[d][2] = d == walk.ndim - 1;
    index[0] = table.get();
    ready = true;
  }
  Part part{*this, items, plain.ptr<char>(), indexed.ptr<char>(), item, len};
  parallel_for(n / each, std::max<int64_t>(1, kGrain / 2 / each), [&](int64_t begin, int64_t end) {
    part(begin, end);
    if (streamed) end_stream();
  });
}

// Rows too short to be cut: each thread takes those that go to one range of the indexed side, in the order of the walk. It reads
// all indices for that, which is little beside the rows. False: the walk is of another kind.
bool IndexWalk::write_by_range(Items items, const View& plain, const View& indexed) const {
  constexpr int64_t kLine = 64, kShort = 1024;  // bytes
  IndexWalk w(*this);
  const int64_t item = itemsize(indexed.dtype), n = walk.numel(), len = take_rows(w.walk), threads = get_num_threads();
  if (w.count() != 1 || w.walk.ndim != 1 || len * item < kLine / 2 ||
      len * item >= std::max(threads * kLine, kShort) || stride[0] <= 0)
    return false;
  const int64_t parts = std::min<int64_t>(threads, n / kGrain + 1), each = (size[0] + parts - 1) / parts * stride[0];
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    Part{w, items, plain.ptr<char>(), indexed.ptr<char>(), item, len, begin * each, end * each}(0, n / len);
  });
  return true;
}

// Two threads may not write one place (and the order of writes to it must stay row-major), so threads share out a
// dim in which the indexed side advances; without such a dim the walk is serial.
void IndexWalk::write(Items items, const View& plain, const View& indexed) {
  int64_t n = walk.numel(), item = itemsize(indexed.dtype);
  if (n == 0) return;
  auto serial = [&](IndexWalk& w, int64_t items_in) {
    int64_t len = take_rows(w.walk);
    Part{w, items, plain.ptr<char>(), indexed.ptr<char>(), item, len}(0, items_in / std::max<int64_t>(len, 1));
  };
  if (n > kGrain && get_num_threads() > 1 && write_by_range(items, plain, indexed)) return;
  int split = -1;
  for (int d = 0; d < walk.ndim && n > kGrain && get_num_threads() > 1; ++d)
    if (walk.strides[d][1] != 0 && walk.sizes[d] > 1 && (split < 0 || walk.sizes[d] > 4 * walk.sizes[split])) split = d;
  if (split < 0) return serial(*this, n);
  int64_t each = n / walk.sizes[split];
  parallel_for(walk.sizes[split], std::max<int64_t>(1, kGrain / each), [&](int64_t begin, int64_t end) {
    IndexWalk part(*this);
    part.walk.narrow(split, begin, end);
    serial(part, each * (end - begin));
  });
}

void along_dim(IndexWalk& w, const View& shape, const View& plain, const View& indexed, const View& index, int dim) {
  bool full = index.ndim == shape.ndim;
  w.walk.ndim = shape.ndim;
  w.add(index, size_at(indexed, dim), stride_at(indexed, dim), dim);
  for (int d = 0; d < shape.ndim; ++d) {
    w.walk.sizes[d] = shape.sizes[d];
    w.walk.strides[d][0] = d < plain.ndim ? plain.strides[d] : 0;
    w.walk.strides[d][1] = d == dim ? 0 : d < indexed.ndim ? indexed.strides[d] : 0;
    w.walk.strides[d][2] = full ? index.strides[d] : d == dim && index.ndim == 1 ? index.strides[0] : 0;
  }
}

// The walk of index and index_put over the indexed shape: the broadcast index dims stand where the first index
// stood if the indices are adjacent, else first; the rest are the dims of self that are not indexed. `plain` is
// broadcast against that shape from the right.
void advanced(IndexWalk& w, const View& self, const View* indices, int count, const View& plain) {
  int first = -1, last = -1, given = 0, ndim = 0;
  for (int i = 0; i < count; ++i) {
    if (!indices[i].given()) continue;
    if (indices[i].dtype != kInt64) throw std::out_of_range("tensors used as indices must be long tensors here");
    if (i >= self.ndim)
      throw std::out_of_range("too many indices for tensor of dimension " + std::to_string(self.ndim));
    if (first < 0) first = i;
    last = i;
    ++given;
    ndim = std::max(ndim, indices[i].ndim);
    w.add(indices[i], self.sizes[i], self.strides[i], i);
  }
  if (first < 0) first = 0;
  if (count > self.ndim || self.ndim - given + ndim > kMaxDims)
    throw std::out_of_range("too many indices for tensor of dimension " + std::to_string(self.ndim));
  int place = last - first + 1 == given ? first : 0;  // where the index dims stand
  int at = 0;
  auto slice = [&](int d) {
    w.walk.sizes[at] = self.sizes[d];
    for (int k = 0; k < w.walk.ops; ++k) w.walk.strides[at][k] = 0;
    w.walk.strides[at++][1] = self.strides[d];
  };
  auto indexed = [&](int i) { return i < count && indices[i].given(); };
  for (int d = 0; d < place; ++d) slice(d);
  for (int d = 0; d < ndim; ++d, ++at) {
    w.walk.sizes[at] = 1;
    w.walk.strides[at][1] = 0;
    for (int i = 0, k = 2; i < count; ++i) {
      if (!indices[i].given()) continue;
      int e = d - ndim + indices[i].ndim;
      bool moves = e >= 0 && indices[i].sizes[e] != 1;
      if (moves) w.walk.sizes[at] = indices[i].sizes[e];
      w.walk.strides[at][k++] = moves ? indices[i].strides[e] : 0;
    }
  }
  for (int d = place; d < self.ndim; ++d)
    if (!indexed(d)) slice(d);
  w.walk.ndim = at;
  for (int d = 0; d < at; ++d) {
    int e = d - at + plain.ndim;
    w.walk.strides[d][0] = e < 0 || plain.sizes[e] == 1 ? 0 : plain.strides[e];
  }
}

}  // namespace indexing

namespace {

// gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor
void gather(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  int dim = wrap_dim(args.a[0].i, self.ndim);
  const Packed wide(args.t[2], kInt64, Packed::kReadStrided);
  const View& index = wide.view;
  IndexWalk w;
  w.bad = bad_gather;
  along_dim(w, index, out, self, index, dim);
  w.run(take_items(self.dtype), out, self);
}

// index_select(Tensor self, int dim, Tensor index) -> Tensor
void index_select(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  int dim = wrap_dim(args.a[0].i, self.ndim);
  Packed index(args.t[2], kInt64, Packed::kRead);
  if (!out.numel()) return check_indices(args.t[2], self.ndim ? self.sizes[dim] : 1);
  IndexWalk w;
  w.bad = bad_select;
  along_dim(w, out, out, self, index.view, dim);
  w.run(take_items(self.dtype), out, self);
}

// index.Tensor(Tensor self, Tensor?[] indices) -> Tensor; a = [count]
void index(const Args& args) {
  IndexWalk w;
  w.wrap = true;
  advanced(w, args.t[1], args.t + 2, int(args.a[0].i), args.t[0]);
  w.run(take_items(args.t[1].dtype), args.t[0], args.t[1]);
}

void put_at(const Args& args, const View* indices, const View& given) {
  const View& self = args.t[0];
  Packed cast_values(given, self.dtype, Packed::kRead);
  const View& values = given.dtype == self.dtype ? given : cast_values.view;
  IndexWalk w;
  w.wrap = true;
  advanced(w, self, indices, int(args.a[0].i), values);
  if (args.na > 1 && args.a[1].i) w.write(combine_items(self.dtype, kSum, "index_put"), values, self);
  else w.run(put_items(self.dtype), values, self);  // as in torch, which of two writes to one place stays is open
}
// index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False)
// t = [self, values, indices...], a = [count, accumulate]
void index_put(const Args& args) { put_at(args, args.t + 2, args.t[1]); }
// The same in the order of the schema: t = [self, indices..., values]
void index_put_list(const Args& args) { put_at(args, args.t + 1, args.t[1 + args.a[0].i]); }

void flat(IndexWalk& w, const View& plain, const View& index, int64_t numel) {
  w.wrap = true;
  w.bad = bad_take;
  w.walk.ndim = index.ndim;
  w.add(index, numel, 1, 0);
  for (int d = 0; d < index.ndim; ++d) {
    w.walk.sizes[d] = index.sizes[d];
    w.walk.strides[d][0] = plain.strides[d];
    w.walk.strides[d][1] = 0;
    w.walk.strides[d][2] = index.strides[d];
  }
}

// take(Tensor self, Tensor index) -> Tensor
void take(const Args& args) {
  Packed self(args.t[1], args.t[1].dtype, Packed::kRead);
  IndexWalk w;
  flat(w, args.t[0], args.t[2], self.view.numel());
  w.run(take_items(self.view.dtype), args.t[0], self.view);
}

// put_(Tensor(a!) self, Tensor index, Tensor source, bool accumulate=False); t = [out, index, source], a = [accumulate]
void put(const Args& args) {
  Packed out(args.t[0], args.t[0].dtype, Packed::kUpdate);
  Packed index(args.t[1], kInt64, Packed::kRead), source(args.t[2], args.t[0].dtype, Packed::kRead);
  int64_t n = index.view.numel(), unit = 1;
  View i = index.view, s = source.view;  // of one numel, but not always of one shape
  i.ndim = s.ndim = 1;
  i.sizes = s.sizes = &n;
  i.strides = s.strides = &unit;
  IndexWalk w;
  flat(w, s, i, out.view.numel());
  if (args.a[0].i && out.view.dtype == kComplexHalf) unsupported("put_", kComplexHalf);
  w.write(args.a[0].i ? combine_items(out.view.dtype, kSum, "put_") : put_items(out.view.dtype), s, out.view);
  out.finish();
}

Register r0("gather", gather);
Register r1("index_select", index_select);
Register r2("index", index);
Register r3("index_put", index_put), r3_list("index_put_list", index_put_list);
Register r4("take", take);
Register r5("put", put);
Serves any_item(kAnyRare, {"gather", "index_select", "index", "index_put", "index_put_list", "take", "put"});

}  // namespace
}  // namespace mt
