// The pointwise engine: brings broadcasting, strides, casts and threads down to contiguous loops. The loops themselves
// are in loops_*.cpp.
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <vector>

#include "convert.h"
#include "dispatch.h"
#include "library.h"
#include "loops.h"
#include "parallel.h"

namespace mt {
namespace {

constexpr int64_t kBlock = 1024;    // items per buffered block: a few operands of them stay in the first-level cache
constexpr int64_t kShortRow = 48;   // rows below this are gathered several at a time

struct Buffer { alignas(64) char bytes[kBlock * 16]; };

// One call, resolved: the loop, and the dtype each operand has in memory and in the loop.
struct Call {
  Loop loop;
  const Attr* attr;
  int nout, nops;
  DType have[kMaxOperands], need[kMaxOperands];
  DType round;  // a small dtype: inputs of another dtype are rounded to it, as torch's cast would; else kFloat
  bool round_out = false;  // results for an output of another dtype are rounded to it as well
  bool streams = false;
  bool exact_scalars;  // except a 0-dim second input of mul and div, which torch takes as it is
  bool rounds_alpha;   // add, sub and rsub: alpha is one that the small dtype can hold

  bool is_exact(int op) const { return exact_scalars && op == 2; }
};

// ---- other loops for some cases ----------------------------------------------------------------------------------

struct Counterpart {
  Loop plain, other;
};
std::vector<Counterpart>& streaming_loops() {
  static std::vector<Counterpart> table;
  return table;
}
struct Special {
  Loop plain, other;
  int which;       // the dtype of all operands, or the input that is one item
  int number = 0;  // of all but this one, which is one float
};
std::vector<Special>& small_loops() {
  static std::vector<Special> table;
  return table;
}
std::vector<Special>& repeated_loops() {
  static std::vector<Special> table;
  return table;
}

// For a large output with no input in it: the streaming counterpart of the loop, where there is one.
void prefer_streaming(Call& c, const View* t) {
  if (c.need[0] != kFloat || c.have[0] != kFloat || t[0].numel() < kStream / 4) return;
  for (int i = c.nout; i < c.nops; ++i)
    if (t[i].data == t[0].data) return;
  for (const Counterpart& s : streaming_loops())
    if (s.plain == c.loop) c.loop = s.other, c.streams = true;
}

bool same_shape(const View& a, const View& b) {
  if (a.ndim != b.ndim) return false;
  for (int d = 0; d < a.ndim; ++d)
    if (a.sizes[d] != b.sizes[d]) return false;
  return true;
}

Loop small_loop(Loop plain, DType dtype, int number) {
  for (const Special& s : small_loops())
    if (s.plain == plain && s.which == dtype && s.number == number) return s.other;
  return nullptr;
}

// Where every operand is of the same 16-bit float and adjacent: the loop that takes them as they are.
void prefer_small(Call& c, const View* t) {
  const DType dtype = c.have[0];
  for (int i = 0; i < c.nops; ++i)
    if (c.have[i] != dtype || !t[i].contiguous() || !same_shape(t[i], t[0])) return;
  const Loop loop = small_loop(c.loop, dtype, 0);
  if (!loop) return;
  c.loop = loop;
  std::fill_n(c.need, c.nops, dtype);
}

bool is_any(const char* name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return !std::strcmp(name, n); });
}

Call resolve(const Pointwise* k, DType compute, const View* t, const Attr* attr) {
  Call c;
  const DType in = loop_dtype(k, compute);
  c.loop = k->loop[in];
  if (!c.loop) unsupported(k->name, compute);
  c.attr = attr;
  c.nout = k->nout;
  c.nops = k->nout + k->nin;
  c.round = compute == in ? kFloat : compute;
  c.exact_scalars = compute != in && is_any(k->name, {"mul", "div"});
  c.rounds_alpha = compute != in && wide_of(compute) == kFloat && is_any(k->name, {"add", "sub", "rsub"}) && attr->f != 1;
  for (int i = 0; i < c.nops; ++i) {
    c.have[i] = t[i].dtype;
    c.need[i] = in;
  }
  for (int i = 0; i < k->nout && k->out != -1; ++i) c.need[i] = k->out == -2 ? real_dtype(in) : DType(k->out);
  if (k->first >= 0) c.need[k->nout] = DType(k->first);
  c.round_out = c.round != kFloat && c.need[0] == in && c.have[0] != c.round;
  return c;
}

// At most kBlock items become those that the call's small dtype can hold.
void round_items(const Call& c, void* items, int64_t n) {
  uint32_t small[kBlock];
  const DType wide = wide_of(c.round);
  convert(c.round, small, wide, items, n);
  convert(wide, items, c.round, small, n);
}

// n items that lie in memory as `have` become what the loop needs.
void cast_input(const Call& c, int op, void* dst, const void* src, int64_t n, bool rounded) {
  convert(c.need[op], dst, c.have[op], src, n);
  if (rounded && c.round != kFloat && c.have[op] != c.round && c.need[op] == wide_of(c.round)) round_items(c, dst, n);
}

// ---- flat: every operand is one adjacent run, or one item repeated -----------------------------------------------

struct Flat {
  char* ptr[kMaxOperands];
  int64_t step[kMaxOperands];  // bytes per item; 0: ptr holds kBlock copies (or as many as there are items)
};

void run_flat(const Call& c, const Flat& f, int64_t begin, int64_t end, bool blocked) {
  void* ptr[kMaxOperands];
  int64_t chunk = blocked ? kBlock : end - begin;
  for (int64_t p = begin; p < end; p += chunk) {
    for (int i = 0; i < c.nops; ++i) ptr[i] = f.ptr[i] + p * f.step[i];
    c.loop(ptr, std::min(chunk, end - p), c.attr);
  }
  if (c.streams) end_stream();
}

// One item, cast and repeated.
void repeat(const Call& c, int op, const char* item, int64_t n, Buffer& buffer) {
  alignas(16) char one[16];
  cast_input(c, op, one, item, 1, !c.is_exact(op));
  fill_items(buffer.bytes, one, std::min(n, kBlock), itemsize(c.need[op]));
}

// The common small call: contiguous operands of the right dtype, and 0-dim ones. False: not this case.
bool try_flat(const Call& c, const View* t) {
  if (c.round_out) return false;
  Flat f;
  int repeated = 0;
  for (int i = 0; i < c.nops; ++i) {
    bool one = i >= c.nout && t[i].ndim == 0 && t[0].ndim > 0;
    repeated += one;
    f.ptr[i] = t[i].ptr<char>();
    f.step[i] = one ? 0 : itemsize(c.need[i]);
    if (!one && (c.have[i] != c.need[i] || !t[i].contiguous() || (i && !same_shape(t[0], t[i])))) return false;
  }
  int64_t n = t[0].numel();
  if (repeated == 0) {
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { run_flat(c, f, begin, end, false); });
    return true;
  }
  if (repeated > 2 || n == 0) return n == 0;
  Buffer buffers[2];
  for (int i = c.nout, b = 0; i < c.nops; ++i)
    if (f.step[i] == 0) {
      repeat(c, i, f.ptr[i], n, buffers[b]);
      f.ptr[i] = buffers[b++].bytes;
    }
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { run_flat(c, f, begin, end, true); });
  return true;
}

// The same with a number: the other input and the output are adjacent and of the same 16-bit float.
bool try_number(const Call& c, const View* t) {
  const int number = t[1].ndim == 0 ? 1 : 2, other = 3 - number;
  if (c.round == kFloat || c.nops != 3 || c.have[0] != c.round || c.have[other] != c.round || t[number].ndim != 0 ||
      t[0].ndim == 0 || !t[0].contiguous() || !t[other].contiguous() || !same_shape(t[0], t[other]))
    return false;
  const Loop loop = small_loop(c.loop, c.round, number);
  if (!loop) return false;
  float item;
  cast_input(c, number, &item, t[number].data, 1, !c.is_exact(number));
  parallel_for(t[0].numel(), kGrain, [&](int64_t begin, int64_t end) {
    void* ptr[3];
    ptr[0] = t[0].ptr<uint16_t>() + begin, ptr[other] = t[other].ptr<uint16_t>() + begin, ptr[number] = &item;
    loop(ptr, end - begin, c.attr);
  });
  return true;
}

// ---- strided -----------------------------------------------------------------------------------------------------

// How an operand reaches the loop: in place, through a buffer per block, or through a buffer filled once per row.
enum Way { kDirect, kBuffered, kRepeated };

struct Walk {
  Call c;
  const Strided& s;
  Way way[kMaxOperands];
  bool by_rows, buffered = false, strided = false, scalar[kMaxOperands];
  Loop loop;
  int single = -1;  // the kRepeated operand that the loop takes as one item, without a buffer
  bool number = false;  // that item becomes a float: the other operands are a 16-bit float's

  Walk(const Call& call, const Strided& space, const View* t) : c(call), s(space), loop(call.loop) {
    by_rows = s.ndim == 1 || s.inner_size() >= kShortRow;
    take_small(t);
    for (int i = 0; i < c.nops; ++i) {
      int64_t stride = s.inner_stride()[i];
      scalar[i] = t[i].ndim == 0;
      if (i >= c.nout && (scalar[i] || (stride == 0 && by_rows))) way[i] = kRepeated;
      else if (c.have[i] == c.need[i] && !(c.round_out && i < c.nout) && (by_rows ? stride == s.width[i] : linear(i))) way[i] = kDirect;
      else way[i] = kBuffered;
      strided |= way[i] == kBuffered;
    }
    take_single();
    for (int i = 0; i < c.nops; ++i) buffered |= way[i] != kDirect && i != single;
  }
  // Rows of a 16-bit float in every operand, but for one item of a row.
  void take_small(const View* t) {
    if (c.round == kFloat || !by_rows) return;
    int once = 0;
    for (int i = 0; i < c.nops; ++i) {
      if (i >= c.nout && once == 0 && (t[i].ndim == 0 || s.inner_stride()[i] == 0)) once = i;
      else if (c.have[i] != c.round || s.inner_stride()[i] != s.width[i]) return;
    }
    const Loop small = small_loop(loop, c.round, once);
    if (!small) return;
    loop = small;
    for (int i = 0; i < c.nops; ++i)
      if (i != once || i == 0) c.need[i] = c.round;
    if (once) single = once, number = true;
  }
  void take_single() {
    const int repeated = int(std::count(way, way + c.nops, kRepeated)), i = int(std::find(way, way + c.nops, kRepeated) - way);
    if (repeated != 1 || c.have[i] != c.need[i] || c.round != kFloat) return;
    for (const Special& one : repeated_loops())
      if (one.plain == loop && one.which == i) {
        loop = one.other, single = i;
        return;
      }
  }
  // Whether operand i is adjacent over the whole space, not only along its rows.
  bool linear(int i) const {
    int64_t want = s.width[i];
    for (int d = s.ndim - 1; d >= 0; want *= s.size[d--])
      if (s.stride[d][i] != want) return false;
    return true;
  }

  void run(int64_t begin, int64_t end) const {
    Buffer buffers[kMaxOperands];
    const char* repeats[kMaxOperands] = {};  // the item a kRepeated buffer holds now
    void* ptr[kMaxOperands];
    float item;
    Cursor at(s, begin);
    for (int64_t p = begin; p < end;) {
      int64_t m = run_rows(at, end - p, buffers, repeats);
      if (m > 0) {
        if ((p += m) < end) at.advance(m);
        continue;
      }
      m = end - p;
      if (by_rows) m = std::min(m, at.row_left());
      if (buffered) m = std::min(m, kBlock);
      for (int i = 0; i < c.nops; ++i) {
        ptr[i] = i == single ? single_item(at.ptr[i], item) : way[i] == kDirect ? at.ptr[i] : buffers[i].bytes;
        if (i >= c.nout && way[i] == kBuffered) load(at, i, m, buffers[i]);
        if (way[i] == kRepeated && i != single) refill(i, at.ptr[i], repeats[i], buffers[i]);
      }
      loop(ptr, m, c.attr);
      for (int i = 0; i < c.nout; ++i)
        if (way[i] == kBuffered) store(at, i, m, buffers[i]);
      if ((p += m) < end) at.advance(m);
    }
    if (c.streams) end_stream();
  }

 private:
  // Whole rows of the two innermost dims, for which no cursor moves; returns the number of items, or 0.
  int64_t run_rows(const Cursor& at, int64_t left, Buffer* buffers, const char** repeats) const {
    const int inner = s.ndim - 1;
    if (!by_rows || strided || inner == 0 || at.index[inner] != 0 || (buffered && s.size[inner] > kBlock)) return 0;
    const int64_t n = s.size[inner], rows = std::min(left / n, s.size[inner - 1] - at.index[inner - 1]);
    char* row[kMaxOperands];
    void* ptr[kMaxOperands];
    float item;
    for (int i = 0; i < c.nops; ++i) row[i] = at.ptr[i], ptr[i] = buffers[i].bytes;
    for (int64_t r = 0; r < rows; ++r) {
      for (int i = 0; i < c.nops; ++i) {
        if (i == single) ptr[i] = single_item(row[i], item);
        else if (way[i] == kDirect) ptr[i] = row[i];
        else refill(i, row[i], repeats[i], buffers[i]);
        row[i] += s.stride[inner - 1][i];
      }
      loop(ptr, n, c.attr);
    }
    return rows * n;
  }
  void* single_item(char* at, float& item) const {
    if (!number) return at;
    cast_input(c, single, &item, at, 1, !scalar[single] || !c.is_exact(single));
    return &item;
  }
  // The buffer of a repeated item, unless it holds that item already.
  void refill(int i, const char* item, const char*& held, Buffer& buffer) const {
    if (held == item) return;
    held = item;
    fill(i, item, by_rows ? s.inner_size() : kBlock, buffer);
  }
  void fill(int i, const char* item, int64_t n, Buffer& buffer) const {
    if (c.have[i] == c.need[i] && c.round == kFloat) return fill_items(buffer.bytes, item, std::min(n, kBlock), s.width[i]);
    alignas(16) char one[16];
    cast_input(c, i, one, item, 1, !scalar[i] || !c.is_exact(i));
    fill_items(buffer.bytes, one, std::min(n, kBlock), itemsize(c.need[i]));
  }
  void load(const Cursor& at, int i, int64_t m, Buffer& buffer) const {
    if (c.have[i] == c.need[i]) return gather_rows(buffer.bytes, at, i, m);
    if (by_rows && s.inner_stride()[i] == s.width[i]) return cast_input(c, i, buffer.bytes, at.ptr[i], m, true);
    Buffer raw;
    gather_rows(raw.bytes, at, i, m);
    cast_input(c, i, buffer.bytes, raw.bytes, m, true);
  }
  void store(const Cursor& at, int i, int64_t m, Buffer& buffer) const {
    if (c.round_out) round_items(c, buffer.bytes, m);
    if (c.have[i] == c.need[i]) return scatter_rows(at, i, buffer.bytes, m);
    if (by_rows && s.inner_stride()[i] == s.width[i])
      return convert(c.have[i], at.ptr[i], c.need[i], buffer.bytes, m);
    Buffer raw;
    convert(c.have[i], raw.bytes, c.need[i], buffer.bytes, m);
    scatter_rows(at, i, raw.bytes, m);
  }
};

// Whether a large operand runs across the output's rows. A copy in tiles, then contiguous loops, is many times faster
// than gathering one item from each cache line.
constexpr int64_t kTransposed = 1 << 12;
bool crosses(const Strided& s, int i) {
  int last = s.ndim - 1;
  if (s.stride[last][i] == 0 || s.stride[last][i] == s.width[i] || s.size[last] < 8) return false;
  for (int d = 0; d < last; ++d)
    if (s.stride[d][i] == s.width[i] && s.size[d] >= 8) return true;
  return false;
}

// Items [begin, end) of dim d of t[0], in every operand.
struct Slab {
  View t[kMaxOperands];
  int64_t sizes[kMaxOperands][kMaxDims], strides[kMaxOperands][kMaxDims];
  std::unique_ptr<char[]> memory[kMaxOperands];

  void cut(const View* whole, int n, int d, int64_t begin, int64_t end) {
    for (int i = 0; i < n; ++i) {
      t[i] = whole[i];
      int e = d - (whole[0].ndim - whole[i].ndim);
      if (e < 0 || whole[i].sizes[e] == 1) continue;
      std::copy_n(whole[i].sizes, whole[i].ndim, sizes[i]);
      sizes[i][e] = end - begin;
      t[i].sizes = sizes[i];
      t[i].data = whole[i].ptr<char>() + begin * whole[i].strides[e] * itemsize(whole[i].dtype);
    }
  }
  // Operand i moves to contiguous memory of its own; the first cut is the largest.
  void straighten(int i) {
    const View tangled = t[i];
    if (!memory[i]) memory[i].reset(new char[tangled.numel() * itemsize(tangled.dtype)]);
    int64_t step = 1;
    for (int d = tangled.ndim - 1; d >= 0; step *= tangled.sizes[d--]) strides[i][d] = step;
    t[i].data = memory[i].get();
    t[i].strides = strides[i];
    copy(t[i], tangled);
  }
};

// The call in slabs of the output, with every crossing input copied straight for each slab; false: none crosses.
bool try_untangled(const Pointwise* k, DType compute, const View* t, const Attr* attr, const Strided& s) {
  constexpr int64_t items = 1 << 17, huge = 1 << 22;
  bool cross[kMaxOperands], any = false;
  if (s.numel < kTransposed || !t[0].contiguous()) return false;
  for (int i = k->nout; i < s.nops; ++i) any |= cross[i] = crosses(s, i);
  if (!any) return false;
  int d = 0;
  while (t[0].sizes[d] == 1) ++d;
  int64_t rows = t[0].sizes[d], row = s.numel / rows;
  if (row >= huge && d + 2 < t[0].ndim) {
    for (int64_t r = 0; r < rows; ++r) {
      Slab slab;
      slab.cut(t, s.nops, d, r, r + 1);
      pointwise(k, compute, slab.t, attr);
    }
    return true;
  }
  int64_t height = std::max<int64_t>(16, items / row);
  parallel_for((rows + height - 1) / height, std::max<int64_t>(1, kGrain / (height * row)),
               [&](int64_t begin, int64_t end) {
    Slab slab;
    for (int64_t u = begin; u < end; ++u) {
      slab.cut(t, s.nops, d, u * height, std::min(rows, (u + 1) * height));
      for (int i = k->nout; i < s.nops; ++i)
        if (cross[i]) slab.straighten(i);
      pointwise(k, compute, slab.t, attr);
    }
  });
  return true;
}

}  // namespace

RegisterStreaming::RegisterStreaming(Loop plain, Loop streaming) { streaming_loops().push_back({plain, streaming}); }
RegisterSmall::RegisterSmall(Loop plain, Loop small, DType dtype, int number) {
  small_loops().push_back({plain, small, dtype, number});
}
RegisterRepeated::RegisterRepeated(Loop plain, Loop repeated, int operand) {
  repeated_loops().push_back({plain, repeated, operand});
}

void pointwise(const Pointwise* k, DType compute, const View* t, const Attr* attr) {
  Call c = resolve(k, compute, t, attr);
  Attr small_alpha;
  if (c.rounds_alpha) {
    float alpha = float(attr->f);
    round_items(c, &alpha, 1);
    small_alpha = *attr;
    small_alpha.f = alpha;
    c.attr = &small_alpha;
  }
  if (c.round != kFloat) prefer_small(c, t);
  else prefer_streaming(c, t);
  if (try_flat(c, t) || try_number(c, t)) return;
  const Strided s(t, c.nops);
  if (s.numel == 0 || try_untangled(k, compute, t, attr, s)) return;
  const Walk walk(c, s, t);
  parallel_for(s.numel, kGrain, [&](int64_t begin, int64_t end) { walk.run(begin, end); });
}

}  // namespace mt
