// Rearranging whole tensors: cat, flip, roll, repeat, tril and triu and their indices, unfold_backward, trace.
#include "convert.h"
#include "indexing.h"

namespace mt {
namespace {

// A view that can be narrowed and given other strides.
struct Editable {
  explicit Editable(const View& v) : view(v) {
    std::copy_n(v.sizes, std::max(v.ndim, 0), sizes);
    std::copy_n(v.strides, std::max(v.ndim, 0), strides);
    view.sizes = sizes;
    view.strides = strides;
  }
  Editable(const Editable&) = delete;
  void shift(int64_t items) { view.data = view.ptr<char>() + items * itemsize(view.dtype); }
  void narrow(int d, int64_t start, int64_t length) {
    shift(start * strides[d]);
    sizes[d] = length;
  }
  View view;
  int64_t sizes[kMaxDims], strides[kMaxDims];
};

// ---- cat -------------------------------------------------------------------------------------------------

bool skipped(const View& v) { return v.ndim == 1 && v.sizes[0] == 0; }  // torch's legacy: such a tensor fits any shape

// For blocks of a few hundred bytes to a few KiB this beats the call to memcpy; the inner one is four vector moves.
inline void move_block(char* to, const char* from, int64_t bytes) {
  if (bytes > 16384) return void(std::memcpy(to, from, bytes));
  int64_t b = 0;
  for (; b + 128 <= bytes; b += 128) std::memcpy(to + b, from + b, 128);
  if (b < bytes) std::memcpy(to + b, from + b, bytes - b);
}

// All tensors contiguous and of the output's dtype: rows of the output are laid end to end from one block of each.
void cat_blocks(const View& out, const View* t, int64_t count, int64_t outer, int64_t row) {
  constexpr int64_t kFew = 16;
  struct Block {
    const char* data;
    int64_t bytes;
  } few[kFew];
  Scratch<Block> many;
  if (count > kFew) many = Scratch<Block>(count);
  Block* blocks = count > kFew ? many.get() : few;
  int64_t n = 0;
  for (int64_t i = 0; i < count; ++i)
    if (t[i].numel()) blocks[n++] = {t[i].ptr<char>(), t[i].numel() * itemsize(out.dtype) / outer};
  const bool streamed = outer * row >= kStream && row / std::max<int64_t>(n, 1) >= 256;
  parallel_for(outer, std::max<int64_t>(1, 65536 / row), [&](int64_t begin, int64_t end) {
    char* to = out.ptr<char>() + begin * row;
    const int width = int(itemsize(out.dtype));
    if (row == n * width) {  // no block is empty, so one item from each, as in stack along the last dim
      for (int64_t i = 0; i < n; ++i) scatter(to + i * width, row, blocks[i].data + begin * width, end - begin, width);
      return;
    }
    for (int64_t o = begin; o < end; ++o)
      for (int64_t i = 0; i < n; to += blocks[i++].bytes) {
        const Block& b = blocks[i];
        if (streamed) stream(to, b.data + o * b.bytes, b.bytes);
        else move_block(to, b.data + o * b.bytes, b.bytes);
      }
    if (streamed) end_stream();
  });
}

// cat(Tensor[] tensors, int dim=0) -> Tensor; a = [count, dim]
void cat(const Args& args) {
  const View &out = args.t[0], *t = args.t + 1;
  const int64_t count = args.a[0].i;
  const int dim = wrap_dim(args.a[1].i, out.ndim);
  if (out.numel() == 0) return;
  int64_t outer = 1, row = itemsize(out.dtype);
  for (int d = 0; d < dim; ++d) outer *= out.sizes[d];
  for (int d = dim; d < out.ndim; ++d) row *= out.sizes[d];
  bool plain = out.contiguous() && (outer > 1 || row < 65536);
  for (int64_t i = 0; i < count && plain; ++i) plain = t[i].dtype == out.dtype && t[i].contiguous();
  if (plain) return cat_blocks(out, t, count, outer, row);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (skipped(t[i])) continue;
    Editable part(out);
    part.narrow(dim, at, t[i].sizes[dim]);
    copy(part.view, t[i]);
    at += t[i].sizes[dim];
  }
}

// ---- flip, roll, repeat ---------------------- ------------------------------------------------------------

template <class T> void flip_row(T* __restrict to, int64_t to_step, const T* __restrict from, int64_t step, int64_t n) {
  if (to_step == 1 && step == 1) std::memcpy(static_cast<void*>(to), from, n * sizeof(T));
  else if (to_step == 1 && step == -1) for (int64_t k = 0; k < n; ++k) to[k] = from[-k];
  else if (to_step == 1 && step == 0) std::fill_n(to, n, *from);
  else for (int64_t k = 0; k < n; ++k) to[k * to_step] = from[k * step];
}

// The dims in the order of the output's memory, outermost first.
void in_memory_order(Walk<2>& walk) {
  for (int d = 1; d < walk.ndim; ++d)
    for (int e = d; e > 0 && walk.strides[e - 1][0] < walk.strides[e][0]; --e) {
      std::swap(walk.sizes[e - 1], walk.sizes[e]);
      std::swap(walk.strides[e - 1], walk.strides[e]);
    }
}

// flip(Tensor self, int[] dims) -> Tensor
void flip(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  Walk<2> walk;
  walk.ndim = self.ndim;
  for (int d = 0; d < self.ndim; ++d) {
    walk.sizes[d] = self.sizes[d];
    walk.strides[d][0] = out.strides[d];
    walk.strides[d][1] = self.strides[d];
  }
  const int64_t n = walk.numel();
  if (n == 0) return;
  for (int i = 0; i < args.a[0].n; ++i) {
    int d = wrap_dim(args.a[0].list[i], self.ndim);
    if (self.ndim == 0) continue;
    walk.base[1] += (walk.sizes[d] - 1) * walk.strides[d][1];
    walk.strides[d][1] = -walk.strides[d][1];
  }
  in_memory_order(walk);
  walk.collapse();
  const int64_t* step = walk.inner();
  MT_DISPATCH_SIZE(self.dtype, "flip", T, {
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      walk.run(begin, end, [&](const int64_t* at, int64_t m) {
        flip_row(out.ptr<T>() + at[0], step[0], self.ptr<T>() + at[1], step[1], m);
      });
    });
  })
}

// Every dim is cut in two at its shift; each combination of halves is one copy.
void roll_from(const View& out, const View& self, const int64_t* shift, int d) {
  while (d < self.ndim && shift[d] == 0) ++d;
  if (d >= self.ndim) return copy(out, self);
  const int64_t n = self.sizes[d], s = shift[d];
  Editable head(out), tail(out), first(self), last(self);
  head.narrow(d, 0, s);
  last.narrow(d, n - s, s);
  tail.narrow(d, s, n - s);
  first.narrow(d, 0, n - s);
  roll_from(head.view, last.view, shift, d + 1);
  roll_from(tail.view, first.view, shift, d + 1);
}

// roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor
void roll(const Args& args) {
  const Attr &shifts = args.a[0], &dims = args.a[1];
  const int64_t n = args.t[1].numel();
  int64_t shift[kMaxDims] = {};
  if (n == 0) return;
  if (dims.n == 0) {  // rolled as if it were flat
    if (shifts.n != 1) throw std::runtime_error("shifts and dimensions must align. shifts: " +
                                                std::to_string(shifts.n) + ", dims:0");
    Packed self(args.t[1], args.t[1].dtype, Packed::kRead), out(args.t[0], args.t[0].dtype, Packed::kWrite);
    const int64_t unit = 1;
    View flat_self = self.view, flat_out = out.view;
    flat_self.ndim = flat_out.ndim = 1;
    flat_self.sizes = flat_out.sizes = &n;
    flat_self.strides = flat_out.strides = &unit;
    shift[0] = ((shifts.list[0] % n) + n) % n;
    roll_from(flat_out, flat_self, shift, 0);
    return out.finish();
  }
  if (shifts.n == 0) throw std::runtime_error("`shifts` required");
  if (shifts.n != dims.n)
    throw std::runtime_error("shifts and dimensions must align. shifts: " + std::to_string(shifts.n) +
                             ", dims:" + std::to_string(dims.n));
  for (int i = 0; i < dims.n; ++i) {
    int d = wrap_dim(dims.list[i], args.t[1].ndim);
    int64_t size = size_at(args.t[1], d);
    shift[d] = (((shift[d] + shifts.list[i]) % size) + size) % size;
  }
  roll_from(args.t[0], args.t[1], shift, 0);
}

// repeat(Tensor self, SymInt[] repeats) -> Tensor: every dim of out as (repeat, size), self with stride 0 along repeat
void repeat(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  if (out.numel() == 0) return;
  int64_t sizes[2 * kMaxDims], to[2 * kMaxDims], from[2 * kMaxDims];
  int n = 0;
  auto dim = [&](int64_t size, int64_t out_stride, int64_t self_stride) {
    if (size == 1) return;
    if (n == kMaxDims) throw std::runtime_error("repeat: too many dims");
    sizes[n] = size;
    to[n] = out_stride;
    from[n++] = self_stride;
  };
  for (int d = 0; d < out.ndim; ++d) {
    int e = d - out.ndim + self.ndim;
    int64_t size = e < 0 ? 1 : self.sizes[e];
    dim(out.sizes[d] / size, out.strides[d] * size, 0);
    dim(size, out.strides[d], e < 0 ? 0 : self.strides[e]);
  }
  View a = out, b = self;
  a.ndim = b.ndim = n;
  a.sizes = b.sizes = sizes;
  a.strides = to;
  b.strides = from;
  copy(a, b);
}

// repeat_interleave_index(out <- repeats): index i, repeats[i] times
void repeat_interleave_index(const Args& args) {
  if (args.t[1].dtype != kInt64 && args.t[1].dtype != kInt32) unsupported("repeat_interleave_cpu", args.t[1].dtype);
  Packed out(args.t[0], kInt64, Packed::kWrite), repeats(args.t[1], kInt64, Packed::kRead);
  int64_t *q = out.ptr<int64_t>(), *end = q + out.view.numel();
  const int64_t *p = repeats.ptr<int64_t>(), n = repeats.view.numel();
  for (int64_t i = 0; i < n; ++i)
    if (p[i] < 0) throw std::runtime_error("repeats can not be negative");
  for (int64_t i = 0; i < n; ++i) {
    if (p[i] > end - q) throw std::runtime_error("allocated size does not match required size");
    q = std::fill_n(q, p[i], i);
  }
  out.finish();
}

// ---- triangles -------------------------------------------------------------------------------------------

template <class T> void move_row(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t n) {
  if (n <= 0 || (to == from && to_step == from_step)) return;
  if (to_step == 1 && from_step == 1) std::memcpy(to, from, n * sizeof(T));
  else for (int64_t k = 0; k < n; ++k) to[k * to_step] = from[k * from_step];
}
template <class T> void zero_row(T* to, int64_t step, int64_t n) {
  if (step == 1 && n > 0) std::memset(static_cast<void*>(to), 0, n * sizeof(T));
  else for (int64_t k = 0; k < n; ++k) to[k * step] = T(0);
}

void triangle(const Args& args, bool upper) {
  const View &out = args.t[0], &self = args.t[1];
  if (self.ndim < 2) throw std::runtime_error(std::string(upper ? "triu" : "tril") +
                                              ": input tensor must have at least 2 dimensions");
  const int64_t cols = out.sizes[out.ndim - 1], n = out.numel();
  if (n == 0) return;
  // Beyond the corners every diagonal does the same; within them no sum with a row overflows.
  const int64_t diagonal = std::clamp<int64_t>(args.na > 0 ? args.a[0].i : 0, -out.sizes[out.ndim - 2] - 1, cols + 1);
  Walk<3> walk;  // over rows; the third operand counts them
  walk.ndim = out.ndim - 1;
  for (int d = 0; d < walk.ndim; ++d) {
    walk.sizes[d] = out.sizes[d];
    walk.strides[d][0] = out.strides[d];
    walk.strides[d][1] = self.strides[d];
    walk.strides[d][2] = d == walk.ndim - 1;
  }
  const int64_t so = out.strides[out.ndim - 1], ss = self.strides[out.ndim - 1];
  const int64_t* step = walk.inner();
  MT_DISPATCH_SIZE(out.dtype, "tril", T, {
    parallel_for(n / cols, std::max<int64_t>(1, kGrain / cols), [&](int64_t begin, int64_t end) {
      walk.run(begin, end, [&](const int64_t* at, int64_t rows) {
        for (int64_t r = 0; r < rows; ++r) {
          T* q = out.ptr<T>() + at[0] + r * step[0];
          const T* p = self.ptr<T>() + at[1] + r * step[1];
          // The first column of the other side of the diagonal, within the row.
          int64_t cut = std::min(std::max<int64_t>(at[2] + r + diagonal + !upper, 0), cols);
          if (upper) {
            zero_row(q, so, cut);
            move_row(q + cut * so, so, p + cut * ss, ss, cols - cut);
          } else {
            move_row(q, so, p, ss, cut);
            zero_row(q + cut * so, so, cols - cut);
          }
        }
      });
    });
  })
}
// tril(Tensor self, SymInt diagonal=0) -> Tensor, triu(Tensor self, SymInt diagonal=0) -> Tensor
void tril(const Args& args) { triangle(args, false); }
void triu(const Args& args) { triangle(args, true); }

void triangle_indices(const Args& args, bool upper) {
  Packed out(args.t[0], kInt64, Packed::kWrite);
  const int64_t rows = std::max<int64_t>(args.a[0].i, 0), cols = std::max<int64_t>(args.a[1].i, 0);
  const int64_t offset = std::clamp(args.a[2].i, -rows, cols), n = out.view.sizes[1];
  int64_t *row = out.ptr<int64_t>(), *col = row + n, at = 0;
  for (int64_t r = upper ? 0 : std::max<int64_t>(-offset, 0); r < rows && at < n; ++r) {
    int64_t cut = std::min(std::max<int64_t>(r + offset + !upper, 0), cols);
    for (int64_t c = upper ? cut : 0, last = upper ? cols : cut; c < last && at < n; ++c, ++at) {
      row[at] = r;
      col[at] = c;
    }
  }
  out.finish();
}
// tril_indices(int row, int col, int offset=0) -> Tensor; out is (2, n)
void tril_indices(const Args& args) { triangle_indices(args, false); }
void triu_indices(const Args& args) { triangle_indices(args, true); }

// ---- sums ------------------------------------------------------------------------------------------------

template <class T> void add_windows(const Walk<2>& walk, T* out, const T* grad) {
  const int64_t so = walk.inner()[0], sg = walk.inner()[1];
  walk.run(0, walk.numel(), [&](const int64_t* at, int64_t n) {
    for (int64_t k = 0; k < n; ++k) out[at[0] + k * so] += grad[at[1] + k * sg];
  });
}

// unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, SymInt size, SymInt step) -> Tensor
void unfold_backward(const Args& args) {
  const DType dtype = args.t[0].dtype, sum = dtype == kHalf || dtype == kBFloat16 ? kFloat : dtype;
  Packed out(args.t[0], sum, Packed::kWrite), grad(args.t[1], sum, Packed::kRead);
  const int dim = wrap_dim(args.a[1].i, out.view.ndim);
  if (out.view.numel()) std::memset(out.view.data, 0, out.view.numel() * itemsize(sum));
  if (grad.view.numel() > 0) {
    Walk<2> walk;  // over the windows: a step along dim is `step` items of out, one along the last dim a single one
    walk.ndim = grad.view.ndim;
    for (int d = 0; d < walk.ndim; ++d) {
      walk.sizes[d] = grad.view.sizes[d];
      const int64_t step = d == dim ? args.a[3].i : 1;
      walk.strides[d][0] = d < out.view.ndim ? out.view.strides[d] * step : stride_at(out.view, dim);
      walk.strides[d][1] = grad.view.strides[d];
    }
    walk.collapse();
    MT_SWITCH(sum, "unfold_backward", MT_INTS(T, { add_windows(walk, out.ptr<T>(), grad.ptr<T>()); })
              MT_FLOATS(T, { add_windows(walk, out.ptr<T>(), grad.ptr<T>()); })
              MT_COMPLEX(T, { add_windows(walk, out.ptr<T>(), grad.ptr<T>()); }))
  }
  out.finish();
}

// trace(Tensor self) -> Tensor; integers are summed in int64
void trace(const Args& args) {
  const View& self = args.t[1];
  if (self.ndim != 2)
    throw std::runtime_error("trace: expected a matrix, but got tensor with dim " + std::to_string(self.ndim));
  if (self.dtype == kBool) unsupported("trace", kBool);
  const int64_t n = std::min(self.sizes[0], self.sizes[1]), step = self.strides[0] + self.strides[1], zero = 0;
  auto sum = [&](auto total, const auto* p) {
    for (int64_t k = 0; k < n; ++k) total += cast<decltype(total)>(p[k * step]);
    View one = args.t[0];
    one.data = &total;
    one.sizes = one.strides = &zero;
    one.ndim = 0;
    using Total = decltype(total);
    one.dtype = std::is_same_v<Total, int64_t> ? kInt64 : std::is_same_v<Total, double> ? kDouble : kComplexDouble;
    copy(args.t[0], one);
  };
  MT_SWITCH(self.dtype, "trace", MT_INTS(T, { sum(int64_t(0), self.ptr<T>()); })
            MT_FLOATS(T, { sum(0.0, self.ptr<T>()); }) MT_HALVES(T, { sum(0.0, self.ptr<T>()); })
            MT_COMPLEX(T, { sum(c128(0), self.ptr<T>()); }))
}

Register r0("cat", cat);
Register r1("flip", flip);
Register r2("roll", roll);
Register r3("repeat", repeat);
Register r4("repeat_interleave_index", repeat_interleave_index);
Register r5("tril", tril);
Register r6("triu", triu);
Register r7("tril_indices", tril_indices);
Register r8("triu_indices", triu_indices);
Register r9("unfold_backward", unfold_backward);
Register r10("trace", trace);
Serves any_item(kAnyRare, {"cat", "flip", "roll", "repeat"}), zeros(kWideUnsigned | kFloat8 | kComplex32, {"tril", "triu"});

}  // namespace
}  // namespace mt
