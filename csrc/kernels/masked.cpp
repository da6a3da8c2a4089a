// Choosing items by a mask: masked_fill, masked_select, masked_scatter, count_true and nonzero.
#include <vector>

#include "expect.h"
#include "indexing.h"

namespace mt {
namespace {

constexpr int64_t kBlock = 1024;  // flags looked at together, on the stack

// flags[k] = item k is not zero. Floats ask without the sign bit, since -0.0 is zero too.
template <class T> void flag_items(const T* p, int64_t n, bool floating, uint8_t* flags) {
  const T mask = floating ? T(T(~T(0)) >> 1) : T(~T(0));
  for (int64_t k = 0; k < n; ++k) flags[k] = (p[k] & mask) != 0;
}

void flags_by_value(const char* p, DType dtype, int64_t n, uint8_t* flags) {
  c64 wide[kBlock];
  for (int64_t k = 0; k < n; k += kBlock) {
    const int64_t m = std::min(kBlock, n - k);
    convert(kComplexFloat, wide, dtype, p + k * itemsize(dtype), m);
    for (int64_t j = 0; j < m; ++j) flags[k + j] = wide[j] != c64(0);
  }
}

void flags_of(const char* data, DType dtype, int64_t begin, int64_t n, uint8_t* flags) {
  const char* p = data + begin * itemsize(dtype);
  // Of the 8-bit floats the unsigned ones have no -0: that code is their NaN.
  bool floating = !is_integral(dtype) && dtype != kFloat8_e4m3fnuz && dtype != kFloat8_e5m2fnuz;
  if (dtype == kComplexHalf || dtype == kFloat8_e8m0fnu) return flags_by_value(p, dtype, n, flags);
  switch (is_complex(dtype) ? 0 : itemsize(dtype)) {
    case 1: return flag_items(reinterpret_cast<const uint8_t*>(p), n, floating, flags);
    case 2: return flag_items(reinterpret_cast<const uint16_t*>(p), n, floating, flags);
    case 4: return flag_items(reinterpret_cast<const uint32_t*>(p), n, floating, flags);
    case 8: return flag_items(reinterpret_cast<const uint64_t*>(p), n, floating, flags);
  }
  if (dtype == kComplexFloat)
    for (int64_t k = 0; k < n; ++k) flags[k] = reinterpret_cast<const c64*>(p)[k] != c64(0);
  else
    for (int64_t k = 0; k < n; ++k) flags[k] = reinterpret_cast<const c128*>(p)[k] != c128(0);
}

int64_t count_flags(const uint8_t* flags, int64_t n) {
  int64_t total = 0;
  for (int64_t k = 0; k < n;) {
    uint8_t some = 0;  // at most 255 per round, so that bytes can be summed as bytes
    for (int64_t end = std::min(n, k + 128); k < end; ++k) some += flags[k];
    total += some;
  }
  return total;
}

int64_t count_range(const View& self, int64_t begin, int64_t end) {
  int64_t total = 0;
  uint8_t flags[kBlock];
  for (int64_t k = begin; k < end; k += kBlock) {
    int64_t n = std::min(kBlock, end - k);
    flags_of(self.ptr<char>(), self.dtype, k, n, flags);
    total += count_flags(flags, n);
  }
  return total;
}

// Cuts [0, n) into pieces and gives each the number of true flags before it; start[pieces] is their total.
struct Pieces {
  Pieces(const View& mask) : n(mask.numel()) {
    int64_t pieces = n <= kGrain || get_num_threads() == 1 ? 1 : std::min<int64_t>(get_num_threads() * 4, n / 8192);
    each = (n + pieces - 1) / std::max<int64_t>(pieces, 1);
    start.assign(pieces + 1, 0);
    if (pieces == 1) return;  // the one piece starts at 0
    parallel_for(pieces, 1, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) start[i + 1] = count_range(mask, i * each, std::min(n, (i + 1) * each));
    });
    for (int64_t i = 0; i < pieces; ++i) start[i + 1] += start[i];
  }
  template <class F> void run(F&& f) const {
    parallel_for(int64_t(start.size()) - 1, 1, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) f(i * each, std::min(n, (i + 1) * each), start[i]);
    });
  }
  int64_t n, each;
  std::vector<int64_t> start;
};

// count_true(Tensor self) -> int64, 0-dim: how many items are not zero
void count_true(const Args& args) {
  Packed self(args.t[1], args.t[1].dtype, Packed::kRead);
  int64_t n = self.view.numel(), total = 0;
  if (n <= kGrain || get_num_threads() == 1) {
    total = count_range(self.view, 0, n);
  } else {
    Pieces pieces(self.view);
    total = pieces.start.back();
    if (pieces.start.size() == 2) total = count_range(self.view, 0, n);
  }
  *args.t[0].ptr<int64_t>() = total;
}

// Copies the flagged ones of n items to `out`, which has room for `room` items, and returns how many were. Writing
// each item and advancing by its flag avoids a branch that would be guessed wrong half of the time, but touches one
// item past the last, so the end takes the branch.
template <class T> int64_t compress(const T* p, const uint8_t* flags, int64_t n, T* out, int64_t room) {
  int64_t to = 0, k = 0;
  for (; k + 8 <= n && to + 8 < room; k += 8) {
    uint64_t eight;
    std::memcpy(&eight, flags + k, 8);
    if (eight == 0) continue;
    for (int j = 0; j < 8; ++j) {
      out[to] = p[k + j];
      to += flags[k + j];
    }
  }
  for (; k < n && to < room; ++k)
    if (flags[k]) out[to++] = p[k];
  return to;
}

// masked_select(Tensor self, Tensor mask) -> Tensor; self and mask of one shape, out of count_true(mask) items
void masked_select(const Args& args) {
  expect_like(args.t[2], args.t[1], "masked_select", "a mask");
  Packed out(args.t[0], args.t[0].dtype, Packed::kWrite);
  Packed self(args.t[1], args.t[1].dtype, Packed::kRead), mask(args.t[2], args.t[2].dtype, Packed::kRead);
  Pieces pieces(mask.view);
  int64_t total = out.view.numel();
  MT_DISPATCH_SIZE(self.view.dtype, "masked_select", T, {
    const T* p = self.ptr<T>();
    T* q = out.ptr<T>();
    pieces.run([&](int64_t begin, int64_t end, int64_t at) {
      // A piece may write only its own places: the one past its last belongs to the next piece.
      int64_t stop = end == pieces.n ? total : pieces.start[begin / pieces.each + 1];
      uint8_t flags[kBlock];
      for (int64_t k = begin; k < end; k += kBlock) {
        int64_t n = std::min(kBlock, end - k);
        flags_of(mask.ptr<char>(), mask.view.dtype, k, n, flags);
        at += compress(p + k, flags, n, q + at, std::min(stop, total) - at);
      }
    });
  })
  out.finish();
}

// nonzero(Tensor self) -> Tensor; out is (count_true(self), ndim), best with the places of a dim side by side, as torch has them
void nonzero(const Args& args) {
  const View& given = args.t[0];
  if (given.ndim != 2) throw std::runtime_error("nonzero: expected an output of two dims");
  const int64_t turned_sizes[] = {given.sizes[1], given.sizes[0]}, turned_strides[] = {given.strides[1], given.strides[0]};
  const View turned{given.data, turned_sizes, turned_strides, 2, given.dtype};
  Packed out(turned, kInt64, Packed::kWrite), self(args.t[1], args.t[1].dtype, Packed::kRead);
  int ndim = self.view.ndim;
  const int64_t *sizes = self.view.sizes, room = size_at(out.view, 1);
  if (ndim == 0) return out.finish();
  Pieces pieces(self.view);
  pieces.run([&](int64_t begin, int64_t end, int64_t at) {
    int64_t place[kMaxDims], rest = begin, *q = out.ptr<int64_t>() + at;
    for (int d = ndim - 1; d >= 0 && begin < end; rest /= sizes[d--]) place[d] = rest % sizes[d];
    const int64_t inner = sizes[ndim - 1];
    uint8_t flags[kBlock];
    for (int64_t k = begin, n; k < end; k += n) {
      n = std::min({kBlock, end - k, inner - place[ndim - 1]});
      flags_of(self.ptr<char>(), self.view.dtype, k, n, flags);
      // First which items, without a branch that would be guessed wrong half of the time; then their places.
      int16_t chosen[kBlock + 1];
      int64_t count = 0;
      for (int64_t j = 0; j < n; ++j) {
        chosen[count] = int16_t(j);
        count += flags[j];
      }
      count = std::min(count, room - at);
      at += count;
      for (int d = 0; d < ndim - 1; ++d) std::fill_n(q + d * room, count, place[d]);
      for (int64_t c = 0; c < count; ++c) q[(ndim - 1) * room + c] = place[ndim - 1] + chosen[c];
      q += count;
      place[ndim - 1] += n;
      for (int d = ndim - 1; d > 0 && place[d] == sizes[d]; --d) {
        place[d] = 0;
        ++place[d - 1];
      }
    }
  });
  out.finish();
}

// masked_scatter_(Tensor(a!) self, Tensor mask, Tensor source); t = [out, mask of out's shape, source]
void masked_scatter(const Args& args) {
  expect_like(args.t[1], args.t[0], "masked_scatter", "a mask");
  Packed out(args.t[0], args.t[0].dtype, Packed::kUpdate);
  Packed mask(args.t[1], args.t[1].dtype, Packed::kRead), source(args.t[2], args.t[0].dtype, Packed::kRead);
  Pieces pieces(mask.view);
  int64_t have = source.view.numel();
  MT_DISPATCH_SIZE(out.view.dtype, "masked_scatter", T, {
    const T* p = source.ptr<T>();
    T* q = out.ptr<T>();
    pieces.run([&](int64_t begin, int64_t end, int64_t at) {
      uint8_t flags[kBlock];
      for (int64_t k = begin; k < end; k += kBlock) {
        int64_t n = std::min(kBlock, end - k);
        flags_of(mask.ptr<char>(), mask.view.dtype, k, n, flags);
        for (int64_t j = 0; j < n; ++j) {
          if (!flags[j]) continue;
          if (at >= have) throw std::runtime_error("Number of elements of source < number of ones in mask");
          q[k + j] = p[at++];
        }
      }
    });
  })
  out.finish();
}

template <class T>
void fill_row(T* __restrict p, int64_t so, const uint8_t* __restrict mask, int64_t sm, int64_t n, const T value) {
  if (so == 1 && sm == 1) for (int64_t k = 0; k < n; ++k) p[k] = mask[k] ? value : p[k];
  else for (int64_t k = 0; k < n; ++k) p[k * so] = mask[k * sm] ? value : p[k * so];
}

// masked_fill_.Scalar(Tensor(a!) self, Tensor mask, Scalar value); t = [out, mask, broadcast to out], a = [value]
void masked_fill(const Args& args) {
  const View &out = args.t[0], &mask = args.t[1];
  if (itemsize(mask.dtype) != 1) throw std::runtime_error("masked_fill_ only supports boolean masks");
  alignas(16) char value[16];
  store_scalar(args.a[0], out.dtype, value);
  Walk<2> walk;
  walk.ndim = out.ndim;
  for (int d = 0; d < out.ndim; ++d) {
    int e = d - out.ndim + mask.ndim;
    walk.sizes[d] = out.sizes[d];
    walk.strides[d][0] = out.strides[d];
    walk.strides[d][1] = e < 0 || mask.sizes[e] == 1 ? 0 : mask.strides[e];
  }
  int64_t n = walk.numel();
  if (n == 0) return;
  walk.collapse();
  const int64_t so = walk.inner()[0], sm = walk.inner()[1];
  MT_DISPATCH_SIZE(out.dtype, "masked_fill", T, {
    T v;
    std::memcpy(&v, value, sizeof v);
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      walk.run(begin, end, [&](const int64_t* at, int64_t len) {
        fill_row(out.ptr<T>() + at[0], so, mask.ptr<uint8_t>() + at[1], sm, len, v);
      });
    });
  })
}

Register r0("count_true", count_true);
Register r1("masked_select", masked_select);
Register r2("nonzero", nonzero);
Register r3("masked_scatter", masked_scatter);
Register r4("masked_fill", masked_fill);
Serves rare_items(kWideUnsigned | kFloat8 | kComplex32, {"count_true", "masked_select", "nonzero", "masked_scatter", "masked_fill"});

}  // namespace
}  // namespace mt
