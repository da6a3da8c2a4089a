// Reductions to an extreme, with or without where it was: amax, amin, aminmax, max, min, argmax, argmin.
#include <limits>
#include <string>

#include "reduce.h"

namespace mt {
namespace {

template <class T, bool kMax> constexpr T lowest() {  // the value every other replaces
  using L = std::numeric_limits<T>;
  if constexpr (L::has_infinity) return kMax ? -L::infinity() : L::infinity();
  else return kMax ? L::lowest() : L::max();
}
template <bool kMax> using Lanes = std::conditional_t<kMax, MaxLanes, MinLanes>;

// ---- values alone -----------------------------------------------------------------------------------------------
template <class T, bool kMax> void best_init(void* s, int64_t n) {
  std::fill_n(static_cast<T*>(s), n, lowest<T, kMax>());
}
template <class T, bool kMax> void best_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  T part;
  fold_lanes<1, Lanes<kMax>>(static_cast<const T*>(x), n, lowest<T, kMax>(), &part);
  Lanes<kMax>::item(*static_cast<T*>(s), part);
}
template <class T, bool kMax>
void best_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  fold_columns<Lanes<kMax>>(static_cast<T*>(s), static_cast<const T*>(x), rows, stride, n);
}
template <class T, bool kMax> void best_merge(void* s, const void* later, int64_t n) {
  best_cols<T, kMax>(s, later, 1, 0, n, 0, {});
}
template <class T> void best_finish(const void* s, int64_t n, void* const* out, const FoldParam&) {
  std::memcpy(out[0], s, size_t(n) * sizeof(T));
}
struct Best {
  template <class T, bool kMax> static constexpr Fold fold() {
    return {sizeof(T), best_init<T, kMax>, best_row<T, kMax>, best_cols<T, kMax>, best_merge<T, kMax>, best_finish<T>};
  }
};

// ---- values with their numbers ----------------------------------------------------------------------------------
template <class T> struct Where { T value; int64_t index; };  // index < 0: nothing seen

template <bool kMax, class T> inline bool beats(T x, T best) {
  return (kMax ? x > best : x < best) | ((x != x) & (best == best));
}
template <class T, bool kMax> inline void take(Where<T>& s, T value, int64_t index) {
  if (s.index < 0 || beats<kMax>(value, s.value)) s = {value, index};
}

template <class T> void where_init(void* s, int64_t n) {
  std::fill_n(static_cast<Where<T>*>(s), n, Where<T>{T(0), -1});
}
// First the extreme of a block, by vectors; only a block that wins is searched for the place.
template <class T, bool kMax> void where_row(void* s, const void* x, int64_t n, int64_t base, const FoldParam&) {
  Where<T>& state = *static_cast<Where<T>*>(s);
  for (int64_t i = 0; i < n; i += kRowBlock) {
    const T* p = static_cast<const T*>(x) + i;
    int64_t m = std::min(kRowBlock, n - i), j = 0;
    T part;
    fold_lanes<1, Lanes<kMax>>(p, m, lowest<T, kMax>(), &part);
    if (state.index >= 0 && !beats<kMax>(part, state.value)) continue;
    if (part != part) while (p[j] == p[j]) ++j;
    else while (p[j] != part) ++j;
    state = {part, base + i + j};
  }
}
template <class T, bool kMax>
void where_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t base, const FoldParam&) {
  T best[kFoldWidth];
  int32_t at[kFoldWidth];
  Where<T>* state = static_cast<Where<T>*>(s);
  constexpr int64_t kMost = int64_t(1) << 30;  // rows numbered in 32 bits, so that the numbers vectorise
  for (int64_t first = 0; first < rows; first += kMost) {
    const T* p = static_cast<const T*>(x) + first * stride;
    int32_t m = int32_t(std::min(kMost, rows - first));
    std::copy_n(p, n, best);
    std::fill_n(at, n, 0);
    for (int32_t i = 1; i < m; ++i) {
      const T* y = p + i * stride;
      for (int64_t j = 0; j < n; ++j) {
        bool wins = beats<kMax>(y[j], best[j]);
        best[j] = wins ? y[j] : best[j];
        at[j] = wins ? i : at[j];
      }
    }
    for (int64_t j = 0; j < n; ++j) take<T, kMax>(state[j], best[j], base + first + at[j]);
  }
}
template <class T, bool kMax> void where_merge(void* s, const void* later, int64_t n) {
  const Where<T>* b = static_cast<const Where<T>*>(later);
  for (int64_t j = 0; j < n; ++j)
    if (b[j].index >= 0) take<T, kMax>(static_cast<Where<T>*>(s)[j], b[j].value, b[j].index);
}
// Two outputs: values, indices; or one: indices.
template <class T, bool kValues> void where_finish(const void* s, int64_t n, void* const* out, const FoldParam&) {
  const Where<T>* a = static_cast<const Where<T>*>(s);
  int64_t* index = static_cast<int64_t*>(out[kValues ? 1 : 0]);
  for (int64_t j = 0; j < n; ++j) index[j] = a[j].index;
  if constexpr (kValues)
    for (int64_t j = 0; j < n; ++j) static_cast<T*>(out[0])[j] = a[j].value;
}
template <bool kValues> struct Place {
  template <class T, bool kMax> static constexpr Fold fold() {
    return {sizeof(Where<T>), where_init<T>, where_row<T, kMax>, where_cols<T, kMax>, where_merge<T, kMax>,
            where_finish<T, kValues>};
  }
};

// ---- both extremes ----------------------------------------------------------------------------------------------
template <class T> struct Span { T low, high; };

template <class T> void span_init(void* s, int64_t n) {
  std::fill_n(static_cast<Span<T>*>(s), n, Span<T>{lowest<T, false>(), lowest<T, true>()});
}
template <class T> void span_row(void* s, const void* x, int64_t n, int64_t, const FoldParam& q) {
  for (int64_t i = 0; i < n; i += kRowBlock) {
    const T* p = static_cast<const T*>(x) + i;
    best_row<T, false>(&static_cast<Span<T>*>(s)->low, p, std::min(kRowBlock, n - i), 0, q);
    best_row<T, true>(&static_cast<Span<T>*>(s)->high, p, std::min(kRowBlock, n - i), 0, q);
  }
}
template <class T>
void span_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam& q) {
  alignas(64) T low[kFoldWidth], high[kFoldWidth];
  best_init<T, false>(low, n);
  best_init<T, true>(high, n);
  best_cols<T, false>(low, x, rows, stride, n, 0, q);
  best_cols<T, true>(high, x, rows, stride, n, 0, q);
  Span<T>* state = static_cast<Span<T>*>(s);
  for (int64_t j = 0; j < n; ++j) MinLanes::item(state[j].low, low[j]), MaxLanes::item(state[j].high, high[j]);
}
template <class T> void span_merge(void* s, const void* later, int64_t n) {
  const Span<T>* b = static_cast<const Span<T>*>(later);
  Span<T>* a = static_cast<Span<T>*>(s);
  for (int64_t j = 0; j < n; ++j) MinLanes::item(a[j].low, b[j].low), MaxLanes::item(a[j].high, b[j].high);
}
template <class T> void span_finish(const void* s, int64_t n, void* const* out, const FoldParam&) {
  const Span<T>* a = static_cast<const Span<T>*>(s);
  for (int64_t j = 0; j < n; ++j) static_cast<T*>(out[0])[j] = a[j].low, static_cast<T*>(out[1])[j] = a[j].high;
}
struct Both {
  template <class T, bool> static constexpr Fold fold() {
    return {sizeof(Span<T>), span_init<T>, span_row<T>, span_cols<T>, span_merge<T>, span_finish<T>};
  }
};

// ---- tables by dtype ---------------------------------------------------------------------------------------------
// bool becomes uint8 on the way, so that every true item is 1.
DType compute_of(DType d) { return d == kBool ? kUInt8 : widened(d); }
template <class Kind, bool kMax> const Fold* table(DType d) {
  static constexpr Fold none{}, u8 = Kind::template fold<uint8_t, kMax>(), s8 = Kind::template fold<int8_t, kMax>(),
      s16 = Kind::template fold<int16_t, kMax>(), s32 = Kind::template fold<int32_t, kMax>(),
      s64 = Kind::template fold<int64_t, kMax>(), f32 = Kind::template fold<float, kMax>(),
      f64 = Kind::template fold<double, kMax>();
  switch (d) {
    case kUInt8: return &u8;
    case kInt8: return &s8;
    case kInt16: return &s16;
    case kInt32: return &s32;
    case kInt64: return &s64;
    case kFloat: return &f32;
    case kDouble: return &f64;
    default: return &none;
  }
}

// An extreme of nothing does not exist.
void check_items(const char* name, const View& in, uint64_t mask, bool all) {
  for (int d = 0; d < in.ndim; ++d) {
    if (in.sizes[d] != 0 || !is_reduced(mask, d)) continue;
    if (!all)
      throw std::out_of_range(std::string(name) + "(): Expected reduction dim " + std::to_string(d) +
                              " to have non-zero size.");
    std::string text = std::string(name) + "(): Expected reduction dim to be specified for input.numel() == 0.";
    if (name[0] == 'a' && name[1] == 'r') throw std::out_of_range(text);  // argmax and argmin: IndexError
    throw std::runtime_error(text + " Specify the reduction dim with the 'dim' argument.");
  }
}

template <bool kMax> void extreme(const char* name, const View& out, const View& in, const Attr* dims) {
  uint64_t mask = dim_mask(dims, in.ndim);
  check_items(name, in, mask, mask == ~uint64_t(0));
  DType d = compute_of(in.dtype);
  reduce({name, table<Best, kMax>(d), d, {d}, false, kFoldOnce}, &out, 1, in, mask);
}
// amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor; also max(Tensor self) -> Tensor
void amax(const Args& c) { extreme<true>("amax", c.t[0], c.t[1], c.na ? c.a : nullptr); }
// amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor; also min(Tensor self) -> Tensor
void amin(const Args& c) { extreme<false>("amin", c.t[0], c.t[1], c.na ? c.a : nullptr); }
void max(const Args& c) { extreme<true>("max", c.t[0], c.t[1], nullptr); }
void min(const Args& c) { extreme<false>("min", c.t[0], c.t[1], nullptr); }

// aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)
void aminmax(const Args& c) {
  Attr dim = c.a[0];
  if (dim.given && !dim.list) dim.list = &c.a[0].i, dim.n = 1;
  const View& in = c.t[2];
  uint64_t mask = dim_mask(&dim, in.ndim);
  for (int i = 0; i < in.ndim; ++i)
    if (in.sizes[i] == 0 && mask >> i & 1)
      throw std::runtime_error(
          "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.");
  DType d = compute_of(in.dtype);
  reduce({"aminmax", table<Both, true>(d), d, {d, d}, false, kFoldOnce}, c.t, 2, in, mask);
}

template <bool kMax, bool kValues> void place(const char* name, const Args& c) {
  const View& in = c.t[kValues ? 2 : 1];
  bool all = !c.a[0].given;
  if (!kValues && in.dtype == kBool) throw std::runtime_error(std::string(name) + "(): does not support bool input");
  uint64_t mask = all ? ~uint64_t(0) : uint64_t(1) << wrap_dim(c.a[0].i, in.ndim);
  check_items(name, in, mask, all);
  DType d = compute_of(in.dtype), first = kValues ? d : kInt64;
  reduce({name, table<Place<kValues>, kMax>(d), d, {first, kInt64}, true}, c.t, kValues ? 2 : 1, in, mask);
}
// max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
void max_dim(const Args& c) { place<true, true>("max", c); }
// min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
void min_dim(const Args& c) { place<false, true>("min", c); }
// argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor
void argmax(const Args& c) { place<true, false>("argmax", c); }
// argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor
void argmin(const Args& c) { place<false, false>("argmin", c); }

Register r_amax("amax", amax), r_amin("amin", amin), r_max("max", max), r_min("min", min),
    r_aminmax("aminmax", aminmax), r_max_dim("max_dim", max_dim), r_min_dim("min_dim", min_dim),
    r_argmax("argmax", argmax), r_argmin("argmin", argmin);

}  // namespace
}  // namespace mt
