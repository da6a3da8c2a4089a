// copy(): strided, casting, broadcasting; with a tiled transpose for layouts that disagree. Also the kernel "fill".
#include "convert.h"
#include "dispatch.h"
#include "library.h"
#include "parallel.h"
#include "scalar.h"

namespace mt {
namespace {

constexpr int64_t kBlock = 1024;      // items per block of a casting copy
constexpr int64_t kLine = 64;         // bytes of a cache line

// ---- transpose -------------------------------------------------------------------------------------------

template <class T> constexpr int kLanes = 16 / sizeof(T);
// A tile is kSide x kSide: whole lines both ways.
template <class T> constexpr int64_t kSide = kLine / int64_t(sizeof(T));
template <class T> struct Vector16 { typedef T type __attribute__((vector_size(16))); };

template <class T> inline typename Vector16<T>::type interleave(typename Vector16<T>::type a,
                                                                typename Vector16<T>::type b, bool high) {
  typename Vector16<T>::type lo, hi;
  if constexpr (sizeof(T) == 1) {
    lo = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    hi = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  } else if constexpr (sizeof(T) == 2) {
    lo = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    hi = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else if constexpr (sizeof(T) == 4) {
    lo = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    hi = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  } else {
    lo = __builtin_shufflevector(a, b, 0, 2);
    hi = __builtin_shufflevector(a, b, 1, 3);
  }
  return high ? hi : lo;
}

// A kLanes x kLanes square in registers: interleaving the two halves of the rows log2(kLanes) times transposes it.
template <class T> inline void square(T* dst, const char* src, int64_t src_stride) {
  using V = typename Vector16<T>::type;
  constexpr int n = kLanes<T>;
  V rows[n], next[n];
  for (int i = 0; i < n; ++i) std::memcpy(&rows[i], src + i * src_stride, 16);
  for (int step = 1; step < n; step *= 2) {
    for (int i = 0; i < n / 2; ++i) {
      next[2 * i] = interleave<T>(rows[i], rows[i + n / 2], false);
      next[2 * i + 1] = interleave<T>(rows[i], rows[i + n / 2], true);
    }
    for (int i = 0; i < n; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < n; ++i) std::memcpy(dst + i * kSide<T>, &rows[i], 16);
}
template <> inline void square<c128>(c128* dst, const char* src, int64_t) { std::memcpy(dst, src, 16); }

// Whole cache lines to memory; around the cache when the destination is not to be read soon.
inline void store_line(char* dst, const void* src, bool stream) {
#if defined(__SSE2__)
  if (stream) {
    for (int i = 0; i < 4; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(dst) + i, static_cast<const __m128i*>(src)[i]);
    return;
  }
#endif
  (void)stream;
  std::memcpy(dst, src, kLine);
}

// dst[r][c] = src[c][r], r < rows, c < cols; items of dst rows and of src columns are adjacent.
template <class T> void transpose(char* dst, int64_t dst_stride, const char* src, int64_t src_stride, int64_t rows,
                                  int64_t cols, bool stream) {
  constexpr int64_t side = kSide<T>, w = sizeof(T);
  constexpr int lanes = kLanes<T>;
  stream = stream && (reinterpret_cast<uintptr_t>(dst) | dst_stride) % 16 == 0;
  alignas(64) T tile[side * side];
  for (int64_t c = 0; c < cols; c += side) {
    for (int64_t r = 0; r < rows; r += side) {
      const char* from = src + c * src_stride + r * w;
      char* to = dst + r * dst_stride + c * w;
      int64_t nr = std::min(side, rows - r), nc = std::min(side, cols - c);
      if (nr == side && nc == side) {
        for (int64_t i = 0; i < side; i += lanes)
          for (int64_t j = 0; j < side; j += lanes)
            square<T>(tile + j * side + i, from + i * src_stride + j * w, src_stride);
        for (int64_t i = 0; i < side; ++i) store_line(to + i * dst_stride, tile + i * side, stream);
      } else {
        for (int64_t i = 0; i < nr; ++i)
          for (int64_t j = 0; j < nc; ++j) std::memcpy(to + i * dst_stride + j * w, from + j * src_stride + i * w, w);
      }
    }
  }
}

// The dim along which src is adjacent when dst is adjacent along the inner one; -1: there is none worth tiles.
int transposed_dim(const Strided& s) {
  int last = s.ndim - 1;
  if (s.stride[last][0] != s.width[0] || s.stride[last][1] == s.width[1] || s.stride[last][1] == 0) return -1;
  for (int d = 0; d < last; ++d)
    if (s.stride[d][1] == s.width[1] && s.size[d] >= 8 && s.size[last] >= 8) return d;
  return -1;
}

// Panels of kSide columns by all rows, times the remaining dims, are the units of work.
template <class T> void copy_transposed(const Strided& s, int across) {
  int last = s.ndim - 1;
  int64_t rows = s.size[across], cols = s.size[last], panels = (cols + kSide<T> - 1) / kSide<T>;
  bool stream = s.numel * int64_t(sizeof(T)) >= kStream;
  parallel_for(s.numel / rows / cols * panels, std::max<int64_t>(1, kGrain / (rows * kSide<T>)),
               [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      int64_t outer = u / panels, c = u % panels * kSide<T>;
      char* dst = s.base[0] + c * s.stride[last][0];
      char* src = s.base[1] + c * s.stride[last][1];
      for (int d = last - 1; d >= 0; --d) {
        if (d == across) continue;
        dst += outer % s.size[d] * s.stride[d][0];
        src += outer % s.size[d] * s.stride[d][1];
        outer /= s.size[d];
      }
      transpose<T>(dst, s.stride[across][0], src, s.stride[last][1], rows, std::min(kSide<T>, cols - c), stream);
    }
    if (stream) end_stream();
  });
}

// ---- rows ------------------------------------------------------------------------------------------------

// One row or a part of it; by way of small contiguous blocks where a side is strided.
void copy_row(const Strided& s, char* dst, const char* src, int64_t n, DType to, DType from, Convert cast) {
  int64_t ds = s.inner_stride()[0], ss = s.inner_stride()[1];
  bool direct_dst = ds == s.width[0], direct_src = ss == s.width[1];
  if (direct_dst && direct_src) return cast(dst, src, n);
  if (to == from && direct_dst) return gather(dst, src, ss, n, s.width[0]);
  if (to == from && direct_src) return scatter(dst, ds, src, n, s.width[0]);
  alignas(64) char raw[kBlock * 16], ready[kBlock * 16];
  for (int64_t i = 0; i < n; i += kBlock, dst += kBlock * ds, src += kBlock * ss) {
    int64_t m = std::min(kBlock, n - i);
    const void* in = src;
    if (!direct_src) gather(raw, src, ss, m, s.width[1]), in = raw;
    void* out = direct_dst ? dst : ready;
    cast(out, in, m);
    if (!direct_dst) scatter(dst, ds, ready, m, s.width[0]);
  }
}

// Short rows, casting or strided on both sides: blocks that cross rows.
void copy_blocks(const Strided& s, int64_t begin, int64_t end, Convert cast) {
  alignas(64) char raw[kBlock * 16], ready[kBlock * 16];
  Cursor at(s, begin);
  for (int64_t p = begin; p < end;) {
    int64_t m = std::min(kBlock, end - p);
    gather_rows(raw, at, 1, m);
    cast(ready, raw, m);
    scatter_rows(at, 0, ready, m);
    if ((p += m) < end) at.advance(m);
  }
}

// Whole rows of the two innermost dims, of one dtype and too short to move a cursor for each; how many items.
template <class T> int64_t copy_short_rows(const Strided& s, const Cursor& at, int64_t left) {
  const int inner = s.ndim - 1;
  const int64_t n = s.size[inner], rows = std::min(left / n, s.size[inner - 1] - at.index[inner - 1]);
  const int64_t ds = s.stride[inner][0], ss = s.stride[inner][1];
  const bool adjacent = ds == int64_t(sizeof(T)) && ss == ds;
  char* dst = at.ptr[0];
  const char* src = at.ptr[1];
  for (int64_t r = 0; r < rows; ++r, dst += s.stride[inner - 1][0], src += s.stride[inner - 1][1]) {
    if (adjacent) std::memcpy(dst, src, n * sizeof(T));
    else for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * ds, src + i * ss, sizeof(T));
  }
  return rows * n;
}

// A few items in the innermost dim: a longer dim takes its place, for rows that are worth their cost.
void lengthen_rows(Strided& s) {
  const int inner = s.ndim - 1;
  const bool adjacent = s.stride[inner][0] == s.width[0] && s.stride[inner][1] == s.width[0];
  if (s.size[inner] >= (adjacent ? std::max(16 / s.width[0], 2) : 8)) return;
  int longest = inner;
  for (int d = std::max(0, inner - 2); d < inner; ++d)
    if (s.size[d] >= 2 * s.size[longest]) longest = d;
  if (longest == inner) return;
  std::swap(s.size[longest], s.size[inner]);
  for (int i = 0; i < s.nops; ++i) std::swap(s.stride[longest][i], s.stride[inner][i]);
}

constexpr int64_t kShortRow = 64;
void copy_range(const Strided& s, int64_t begin, int64_t end, DType to, DType from, Convert cast) {
  if (s.inner_size() < 16 && to != from && s.ndim > 1) return copy_blocks(s, begin, end, cast);
  const bool rows = to == from && s.ndim > 1 && s.inner_size() <= kShortRow;
  Cursor at(s, begin);
  for (int64_t p = begin; p < end;) {
    if (rows && at.row_left() == s.inner_size() && end - p >= s.inner_size()) {
      const int64_t moved = s.width[0] == 1 ? copy_short_rows<uint8_t>(s, at, end - p)
                          : s.width[0] == 2 ? copy_short_rows<uint16_t>(s, at, end - p)
                          : s.width[0] == 4 ? copy_short_rows<uint32_t>(s, at, end - p)
                          : s.width[0] == 8 ? copy_short_rows<uint64_t>(s, at, end - p)
                                            : copy_short_rows<c128>(s, at, end - p);
      if ((p += moved) < end) at.advance(moved);
      continue;
    }
    int64_t m = std::min(at.row_left(), end - p);
    copy_row(s, at.ptr[0], at.ptr[1], m, to, from, cast);
    if ((p += m) < end) at.advance(m);
  }
}

// fill(Tensor out; Scalar value)
void fill(const Args& args) {
  const View& out = args.t[0];
  const Attr& value = args.a[0];
  c128 item(value.f, value.im);
  View v;
  v.ndim = 0;
  v.data = &item;
  v.dtype = kComplexDouble;
  int64_t integer = value.i;
  if (is_only_stored(out.dtype)) {  // zero bytes are all that is known of them
    if (item != c128()) unsupported("fill_cpu", out.dtype);
    View bytes = out;
    bytes.dtype = itemsize(out.dtype) == 1 ? kUInt8 : itemsize(out.dtype) == 2 ? kInt16 : kInt32;
    return fill({&bytes, 1, args.a, 1, nullptr});
  }
  if (is_integral(out.dtype)) {
    if (out.dtype == kBool) integer = value.i != 0 || item != c128();
    v.data = &integer, v.dtype = kInt64;
  }
  copy(out, v);
}
Register r("fill", fill);
// copy(out <- src)
Register c("copy", [](const Args& args) { copy(args.t[0], args.t[1]); });
Serves any_item(kAnyRare, {"fill", "copy"});

}  // namespace

void copy(const View& dst, const View& src) {
  if (dst.dtype == src.dtype && dst.ndim == src.ndim && dst.contiguous() && src.contiguous() &&
      std::equal(dst.sizes, dst.sizes + dst.ndim, src.sizes)) {
    if (dst.data == src.data) return;
    int64_t w = itemsize(dst.dtype);
    int64_t bytes = dst.numel() * w;
    return parallel_for(bytes, kGrain * 4, [&](int64_t begin, int64_t end) {
      if (bytes < kStream) std::memcpy(dst.ptr<char>() + begin, src.ptr<char>() + begin, end - begin);
      else stream(dst.ptr<char>() + begin, src.ptr<char>() + begin, end - begin), end_stream();
    });
  }
  View both[2] = {dst, src};
  alignas(16) char item[16];
  if (dst.dtype != src.dtype && src.ndim == 0) {  // one item: cast it once
    convert(dst.dtype, item, src.dtype, src.data, 1);
    both[1].data = item;
    both[1].dtype = dst.dtype;
  }
  Strided s(both, 2);
  if (s.numel == 0) return;
  DType to = both[0].dtype, from = both[1].dtype;
  int across = to == from ? transposed_dim(s) : -1;
  if (across >= 0) {
    switch (s.width[0]) {
      case 1: return copy_transposed<uint8_t>(s, across);
      case 2: return copy_transposed<uint16_t>(s, across);
      case 4: return copy_transposed<uint32_t>(s, across);
      case 8: return copy_transposed<uint64_t>(s, across);
      default: return copy_transposed<c128>(s, across);
    }
  }
  if (to == from && s.ndim > 1) lengthen_rows(s);
  bool streams = s.numel * s.width[0] >= kStream && s.inner_size() >= kBlock && s.inner_stride()[0] == s.width[0] &&
                 s.inner_stride()[1] == s.width[1];
  Convert cast = streams ? streaming_converter(to, from) : converter(to, from);
  parallel_for(s.numel, kGrain, [&](int64_t begin, int64_t end) { copy_range(s, begin, end, to, from, cast); });
}

}  // namespace mt
