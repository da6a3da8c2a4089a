// Reductions that add, multiply or count: sum, mean, nansum, prod, all, any, count_nonzero. Extremes and moments have
// files of their own.
#include "complex_math.h"
#include "lane_planes.h"
#include "reduce.h"

namespace mt {
namespace {

struct NanAddLanes {
  template <class V> static void item(V& a, const V& x) { a += (x == x) ? x : V{}; }
  template <class V> static void merge(V& a, const V& b) { a += b; }
};
struct MulLanes {
  template <class V> static void item(V& a, const V& x) { a *= x; }
  template <class V> static void merge(V& a, const V& b) { a *= b; }
};

// ---- sums -------------------------------------------------------------------------------------------------
template <class T, class S, int P, bool kMean>
void sum_finish(const void* s, int64_t n, void* const* out, const FoldParam& q) {
  const S* state = static_cast<const S*>(s);
  T* to = static_cast<T*>(out[0]);
  for (int64_t j = 0; j < n * P; ++j) {
    if constexpr (kMean && P == 1) to[j] = T(state[j] / S(q.items));
    else to[j] = T(state[j] * S(q.times));
  }
  if constexpr (kMean && P == 2) {
    auto* sums = reinterpret_cast<std::complex<T>*>(to);
    for (int64_t j = 0; j < n; ++j) sums[j] = complex_over(sums[j], std::complex<T>(T(q.items * q.times)));
  }
}

template <class T, class S, int P, class F, bool kMean = false> constexpr Fold sum_fold() {
  return {int(sizeof(S)) * P, sum_init<S, P>, sum_row<T, S, P, F>, sum_cols<T, S, P, F>, sum_merge<S, P>,
          sum_finish<T, S, P, kMean>};
}

// ---- sums of 16-bit floats, read as they lie: eight of them become a vector of floats --------------------------------

typedef float Eight __attribute__((vector_size(32)));
inline void take(Eight& v, const bf16* p) {
#if defined(__AVX2__)
  v = Eight(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16)));
#else
  for (int i = 0; i < 8; ++i) v[i] = to_float(p[i]);
#endif
}
inline void take(Eight& v, const f16* p) {
#if defined(__AVX2__) && defined(__F16C__)
  v = Eight(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  for (int i = 0; i < 8; ++i) v[i] = to_float(p[i]);
#endif
}
template <class H> void small_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  const H* p = static_cast<const H*>(x);
  for (int64_t i = 0; i < n; i += kRowBlock) {
    const int64_t end = std::min(n, i + kRowBlock);
    Eight acc[4] = {}, v;
    int64_t j = i;
    for (; j + 32 <= end; j += 32)
      for (int k = 0; k < 4; ++k) take(v, p + j + 8 * k), acc[k] += v;
    for (; j + 8 <= end; j += 8) take(v, p + j), acc[0] += v;
    v = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    float part = ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
    for (; j < end; ++j) part += to_float(p[j]);
    *static_cast<double*>(s) += double(part);
  }
}
template <class H> void small_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  alignas(64) float acc[kFoldWidth];
  double* __restrict state = static_cast<double*>(s);
  for (int64_t i = 0; i < rows; i += kColBlock) {
    std::fill_n(acc, n, 0.f);
    for (int64_t r = i; r < std::min(rows, i + kColBlock); r += 8) {
      const H* p = static_cast<const H*>(x) + r * stride;
      const int64_t m = std::min<int64_t>(8, std::min(rows, i + kColBlock) - r);
      int64_t j = 0;
      for (; j + 8 <= n; j += 8) {
        Eight sum = {}, v;
        for (int64_t k = 0; k < m; ++k) take(v, p + k * stride + j), sum += v;
        std::memcpy(&v, acc + j, 32);
        v += sum;
        std::memcpy(acc + j, &v, 32);
      }
      for (; j < n; ++j)
        for (int64_t k = 0; k < m; ++k) acc[j] += to_float(p[k * stride + j]);
    }
    for (int64_t j = 0; j < n; ++j) state[j] += double(acc[j]);
  }
}
template <class H, bool kMean> constexpr Fold small_fold() {
  return {8, sum_init<double, 1>, small_row<H>, small_cols<H>, sum_merge<double, 1>, sum_finish<float, double, 1, kMean>};
}

// ---- products: the state is of the item type, as overflow must be the item type's; complex64 is kept as complex128
// because its rounding errors do not average out.
template <class S> inline S product(S x, S y) {
  if constexpr (is_complex_v<S>) return complex_times(x, y);
  else return x * y;
}
template <class S> void prod_init(void* s, int64_t n) { std::fill_n(static_cast<S*>(s), n, S(1)); }
template <class T, class S> void prod_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  S& state = *static_cast<S*>(s);
  const T* p = static_cast<const T*>(x);
  if constexpr (is_complex_v<T>) {
    S part = state;
    for (int64_t i = 0; i < n; ++i) part = complex_times(part, S(p[i]));
    state = part;
  } else {
    S part(1);
    fold_lanes<1, MulLanes>(p, n, T(1), &part);
    state *= part;
  }
}
template <class T, class S>
void prod_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  S* __restrict state = static_cast<S*>(s);
  for (int64_t i = 0; i < rows; ++i) {
    const T* p = static_cast<const T*>(x) + i * stride;
    for (int64_t j = 0; j < n; ++j) state[j] = product(state[j], S(p[j]));
  }
}
template <class S> void prod_merge(void* s, const void* later, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    S* state = static_cast<S*>(s) + j;
    *state = product(*state, static_cast<const S*>(later)[j]);
  }
}
template <class T, class S = T> void own_finish(const void* s, int64_t n, void* const* out, const FoldParam&) {
  for (int64_t j = 0; j < n; ++j) static_cast<T*>(out[0])[j] = T(static_cast<const S*>(s)[j]);
}
template <class T, class S = T> constexpr Fold prod_fold() {
  return {int(sizeof(S)), prod_init<S>, prod_row<T, S>, prod_cols<T, S>, prod_merge<S>, own_finish<T, S>};
}

// ---- truth values: items are bytes, any but 0 is true; states are 0 or 1 ------------------------------------------------------------------------
template <bool kAll> void truth_init(void* s, int64_t n) { std::memset(s, kAll, size_t(n)); }
template <bool kAll> void truth_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  const uint8_t* p = static_cast<const uint8_t*>(x);
  uint8_t& state = *static_cast<uint8_t*>(s);
  for (int64_t i = 0; i < n && state == kAll; i += kRowBlock) {
    uint8_t part = kAll;
    int64_t m = std::min(kRowBlock, n - i);
    for (int64_t j = 0; j < m; ++j) part = kAll ? part & (p[i + j] != 0) : part | (p[i + j] != 0);
    state = part;
  }
}
template <bool kAll>
void truth_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  uint8_t* __restrict state = static_cast<uint8_t*>(s);
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* p = static_cast<const uint8_t*>(x) + i * stride;
    for (int64_t j = 0; j < n; ++j) state[j] = kAll ? state[j] & (p[j] != 0) : state[j] | (p[j] != 0);
  }
}
template <bool kAll> void truth_merge(void* s, const void* later, int64_t n) {
  truth_cols<kAll>(s, later, 1, 0, n, 0, {});
}
template <bool kAll> constexpr Fold truth_fold() {
  return {1, truth_init<kAll>, truth_row<kAll>, truth_cols<kAll>, truth_merge<kAll>, own_finish<uint8_t>};
}

void count_row(void* s, const void* x, int64_t n, int64_t, const FoldParam&) {
  const uint8_t* p = static_cast<const uint8_t*>(x);
  for (int64_t i = 0; i < n; i += kRowBlock) {
    uint32_t part = 0;
    int64_t m = std::min(kRowBlock, n - i);
    for (int64_t j = 0; j < m; ++j) part += p[i + j] != 0;
    *static_cast<uint64_t*>(s) += part;
  }
}
void count_cols(void* s, const void* x, int64_t rows, int64_t stride, int64_t n, int64_t, const FoldParam&) {
  uint8_t acc[kFoldWidth];
  uint64_t* __restrict state = static_cast<uint64_t*>(s);
  const uint8_t* p = static_cast<const uint8_t*>(x);
  for (int64_t i = 0; i < rows; i += kColBlock) {
    std::fill_n(acc, n, uint8_t(0));
    for (int64_t r = i; r < std::min(rows, i + kColBlock); ++r)
      for (int64_t j = 0; j < n; ++j) acc[j] += p[r * stride + j] != 0;
    for (int64_t j = 0; j < n; ++j) state[j] += acc[j];
  }
}

// Signed integers are added and multiplied as unsigned ones: overflow wraps.
constexpr Fold kCount = {8, sum_init<uint64_t, 1>, count_row, count_cols, sum_merge<uint64_t, 1>,
                         sum_finish<uint64_t, uint64_t, 1, false>};
constexpr Fold kAll = truth_fold<true>(), kAny = truth_fold<false>();
constexpr Fold kSum[] = {sum_fold<uint64_t, uint64_t, 1, AddLanes>(), sum_fold<float, double, 1, AddLanes>(),
                         sum_fold<double, double, 1, AddLanes>(), sum_fold<float, double, 2, AddLanes>(),
                         sum_fold<double, double, 2, AddLanes>()};
constexpr Fold kMean[] = {{}, sum_fold<float, double, 1, AddLanes, true>(),
                          sum_fold<double, double, 1, AddLanes, true>(), sum_fold<float, double, 2, AddLanes, true>(),
                          sum_fold<double, double, 2, AddLanes, true>()};
constexpr Fold kSmallSum[] = {small_fold<f16, false>(), small_fold<bf16, false>()};
constexpr Fold kSmallMean[] = {small_fold<f16, true>(), small_fold<bf16, true>()};
constexpr Fold kNansum[] = {kSum[0], sum_fold<float, double, 1, NanAddLanes>(),
                            sum_fold<double, double, 1, NanAddLanes>(), {}, {}};
constexpr Fold kProd[] = {prod_fold<uint64_t>(), prod_fold<float>(), prod_fold<double>(), prod_fold<c64, c128>(),
                          prod_fold<c128>()};

// Many short rows of floats that lie side by side; false: they are something else.
template <class T> bool short_rows(const View& out, const View& in, uint64_t mask, bool mean) {
  constexpr int64_t kShort = 128;
  int first = in.ndim;
  int64_t length = 1;
  while (first > 0 && mask >> (first - 1) & 1) length *= in.sizes[--first];
  const bool inner = first < in.ndim && (mask & ((uint64_t(1) << first) - 1)) == 0;
  if (!inner || length == 0 || length > kShort || !in.contiguous() || !out.contiguous()) return false;
  const int64_t rows = in.numel() / length;
  if (rows < 4 * PlaneLanes<T>::kCount) return false;
  T* to = out.ptr<T>();
  parallel_for(rows, kGrain / length + 1, [&](int64_t begin, int64_t end) {
    for_each_total(in.ptr<T>(), rows, length, begin, end, [&](int64_t i, T sum) { to[i] = mean ? sum / T(length) : sum; });
  });
  return true;
}

// The input is cast to the output's dtype and folded there: integers as int64, halves as float.
void arithmetic(const char* name, const Fold* table, const View& out, const View& in, const Args& c) {
  uint64_t mask = dim_mask(c.na ? c.a : nullptr, in.ndim);
  if (out.dtype == kBool) {
    bool prod = table == kProd;
    return reduce({name, prod ? &kAll : &kAny, kBool, {kBool}, false, kFoldOnce}, c.t, 1, in, mask);
  }
  if (in.dtype == kBool && is_integral(out.dtype) && table != kProd)
    return reduce({name, &kCount, kBool, {kInt64}, false, kFoldTimes}, c.t, 1, in, mask);
  if (in.dtype == out.dtype && (table == kSum || table == kMean) && in.ndim <= 64) {
    if (in.dtype == kFloat && short_rows<float>(out, in, mask, table == kMean)) return;
    if (in.dtype == kDouble && short_rows<double>(out, in, mask, table == kMean)) return;
  }
  if ((table == kSum || table == kMean) && (in.dtype == kHalf || in.dtype == kBFloat16) && widened(out.dtype) == kFloat)
    return reduce({name, (table == kSum ? kSmallSum : kSmallMean) + (in.dtype == kBFloat16), in.dtype, {kFloat}, false, kFoldTimes},
                  c.t, 1, in, mask);
  DType compute = is_integral(out.dtype) ? kInt64 : widened(out.dtype);
  int row = compute == kInt64 ? 0 : compute - kFloat + 1;
  const Reduction fold{name, table + row, compute, {compute}, false, table == kProd ? kFoldEach : kFoldTimes};
  if (row == 0 && out.dtype != kInt64 && !is_integral(in.dtype))  // NaN and inf are others in int64 than in out's dtype
    return reduce(fold, c.t, 1, Dense(in, out.dtype).view(), mask);
  reduce(fold, c.t, 1, in, mask);
}

// sum(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
void sum(const Args& c) { arithmetic("sum", kSum, c.t[0], c.t[1], c); }
// mean(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
void mean(const Args& c) { arithmetic("mean", kMean, c.t[0], c.t[1], c); }
// nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
void nansum(const Args& c) {
  if (is_complex(c.t[1].dtype)) throw std::runtime_error("nansum on CPU does not support complex inputs");
  if (!is_floating(c.t[1].dtype) || !is_integral(c.t[0].dtype)) return arithmetic("nansum", kNansum, c.t[0], c.t[1], c);
  Dense numbers(c.t[1], kDouble, Dense::kOwnCopy);  // NaN is none before it is cast: an integer cannot be NaN
  double* p = numbers.ptr<double>();
  for (int64_t i = 0, n = c.t[1].numel(); i < n; ++i) p[i] = p[i] == p[i] ? p[i] : 0;
  arithmetic("nansum", kNansum, c.t[0], numbers.view(), c);
}
// prod(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
void prod(const Args& c) { arithmetic("prod", kProd, c.t[0], c.t[1], c); }

// An output of all items, and no dims named: each item's own truth.
void truth(const char* name, const Fold& fold, DType result, const Args& c) {
  const View& in = c.t[1];
  const bool none = c.na && c.a->given && c.a->n == 0 && c.t[0].ndim == in.ndim && c.t[0].numel() == in.numel();
  reduce({name, &fold, kBool, {result}, false, &fold == &kCount ? kFoldTimes : kFoldOnce}, c.t, 1, in, none ? 0 : dim_mask(c.na ? c.a : nullptr, in.ndim));
}
// all(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor
void all(const Args& c) { truth("all", kAll, kBool, c); }
// any(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor
void any(const Args& c) { truth("any", kAny, kBool, c); }
// count_nonzero(Tensor self, int[]? dim=None) -> Tensor
void count_nonzero(const Args& c) { truth("count_nonzero", kCount, kInt64, c); }

Register r_sum("sum", sum), r_mean("mean", mean), r_nansum("nansum", nansum), r_prod("prod", prod), r_all("all", all),
    r_any("any", any), r_count("count_nonzero", count_nonzero);
Serves sums_unsigned(kWideUnsigned, {"sum", "nansum", "prod"}),
    truths(kWideUnsigned | kFloat8 | kComplex32, {"all", "any", "count_nonzero"});

}  // namespace
}  // namespace mt
