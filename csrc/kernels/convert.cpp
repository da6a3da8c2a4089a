// Conversions of arrays between the twelve dtypes, and strided moves by item size. Shapes live in strided.h.
#include "convert.h"

#include "scalar.h"

namespace mt {
namespace {

// A float becomes a narrow integer by way of int32, as in torch; that also vectorises.
template <class To, class From> inline To item(From v) {
  constexpr bool narrow = std::is_integral_v<To> && !std::is_same_v<To, bool> && sizeof(To) <= 4;
  if constexpr (narrow && std::is_floating_point_v<From>) return To(int32_t(v));
  else if constexpr (narrow && is_complex_v<From>) return item<To>(v.real());
  else if constexpr (std::is_same_v<From, b8>) return cast<To>(std::min<uint8_t>(v.byte, 1));  // that vectorises, != 0 does not
  else return cast<To>(v);
}

template <class To, class From> void plain(void* dst, const void* src, int64_t n) {
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(dst, src, n * sizeof(To));
  } else {
    To* __restrict d = static_cast<To*>(dst);
    const From* __restrict s = static_cast<const From*>(src);
    for (int64_t i = 0; i < n; ++i) d[i] = item<To>(s[i]);
  }
}

void half_to_float(void* dst, const void* src, int64_t n) {
  float* __restrict d = static_cast<float*>(dst);
  const f16* __restrict s = static_cast<const f16*>(src);
  int64_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i))));
#endif
  for (; i < n; ++i) d[i] = to_float(s[i]);
}
void float_to_half(void* dst, const void* src, int64_t n) {
  f16* __restrict d = static_cast<f16*>(dst);
  const float* __restrict s = static_cast<const float*>(src);
  int64_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  for (; i + 16 <= n; i += 16) {  // one store, which streamed() can read back at once
    __m128i a = _mm256_cvtps_ph(_mm256_loadu_ps(s + i), nearest);
    __m128i b = _mm256_cvtps_ph(_mm256_loadu_ps(s + i + 8), nearest);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(d + i), _mm256_set_m128i(b, a));
  }
#endif
  for (; i < n; ++i) d[i] = to_f16(s[i]);
}
#if defined(__AVX2__)
inline __m256i bf16_bits(__m256 v) {
  __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  return _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc0), _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
#endif
void float_to_bfloat(void* dst, const void* src, int64_t n) {
  bf16* __restrict d = static_cast<bf16*>(dst);
  const float* __restrict s = static_cast<const float*>(src);
  int64_t i = 0;
#if defined(__AVX2__)
  for (; i + 16 <= n; i += 16) {
    __m256i a = bf16_bits(_mm256_loadu_ps(s + i)), b = bf16_bits(_mm256_loadu_ps(s + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(d + i), _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
  }
#endif
  for (; i < n; ++i) d[i] = to_bf16(s[i]);
}
void bfloat_to_float(void* dst, const void* src, int64_t n) {
  uint32_t* __restrict d = static_cast<uint32_t*>(dst);
  const uint16_t* __restrict s = static_cast<const uint16_t*>(src);
  int64_t i = 0;
#if defined(__AVX2__)
  for (; i + 8 <= n; i += 8) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(d + i), _mm256_slli_epi32(wide, 16));
  }
#endif
  for (; i < n; ++i) d[i] = uint32_t(s[i]) << 16;
}

// The same around the cache, a line at a time.
template <Convert cast, class To, class From> void streamed(void* dst, const void* src, int64_t n) {
  constexpr int64_t items = 64 / sizeof(To);
  To* d = static_cast<To*>(dst);
  const From* s = static_cast<const From*>(src);
  int64_t i = std::min<int64_t>(n, (-reinterpret_cast<intptr_t>(d) & 63) / sizeof(To));
  cast(d, s, i);
  for (; i + items <= n; i += items) {
    alignas(64) To line[items];
    cast(line, s + i, items);
    stream_line(d + i, line);
  }
  cast(d + i, s + i, n - i);
  end_stream();
}

// A 16-bit float meets every other dtype by way of float.
constexpr int64_t kChunk = 512;
template <DType Half, DType To> void from_half(void* dst, const void* src, int64_t n) {
  float buffer[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    int64_t m = std::min(kChunk, n - i);
    convert(kFloat, buffer, Half, static_cast<const uint16_t*>(src) + i, m);
    convert(To, static_cast<char*>(dst) + i * itemsize(To), kFloat, buffer, m);
  }
}
template <DType Half, DType From> void to_half(void* dst, const void* src, int64_t n) {
  float buffer[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    int64_t m = std::min(kChunk, n - i);
    convert(kFloat, buffer, From, static_cast<const char*>(src) + i * itemsize(From), m);
    convert(Half, static_cast<uint16_t*>(dst) + i, kFloat, buffer, m);
  }
}

// One row of the table: every way into To.
template <class To, DType D> struct Row {
  static constexpr Convert from[kNumDTypes] = {
      plain<To, b8>, plain<To, uint8_t>, plain<To, int8_t>, plain<To, int16_t>, plain<To, int32_t>,
      plain<To, int64_t>, from_half<kHalf, D>, from_half<kBFloat16, D>, plain<To, float>, plain<To, double>,
      plain<To, c64>, plain<To, c128>};
};
template <DType D> struct HalfRow {
  static constexpr Convert from[kNumDTypes] = {
      to_half<D, kBool>, to_half<D, kUInt8>, to_half<D, kInt8>, to_half<D, kInt16>, to_half<D, kInt32>,
      to_half<D, kInt64>, to_half<D, kHalf>, to_half<D, kBFloat16>, D == kHalf ? float_to_half : float_to_bfloat,
      to_half<D, kDouble>, to_half<D, kComplexFloat>, to_half<D, kComplexDouble>};
};
constexpr const Convert* kTable[kNumDTypes] = {
    Row<bool, kBool>::from, Row<uint8_t, kUInt8>::from, Row<int8_t, kInt8>::from, Row<int16_t, kInt16>::from,
    Row<int32_t, kInt32>::from, Row<int64_t, kInt64>::from, HalfRow<kHalf>::from, HalfRow<kBFloat16>::from,
    Row<float, kFloat>::from, Row<double, kDouble>::from, Row<c64, kComplexFloat>::from,
    Row<c128, kComplexDouble>::from};
constexpr Convert kSame[] = {plain<uint8_t, uint8_t>, plain<uint16_t, uint16_t>, plain<uint32_t, uint32_t>,
                             plain<uint64_t, uint64_t>, plain<c128, c128>};

template <class F> void by_width(int width, F&& f) {
  switch (width) {
    case 1: return f(uint8_t());
    case 2: return f(uint16_t());
    case 4: return f(uint32_t());
    case 8: return f(uint64_t());
    default: return f(c128());
  }
}

}  // namespace

Convert converter(DType to, DType from) {
  if (to == from) return kSame[__builtin_ctz(itemsize(to))];
  if (to == kFloat && from == kHalf) return half_to_float;
  if (to == kFloat && from == kBFloat16) return bfloat_to_float;
  return kTable[to][from];
}

Convert streaming_converter(DType to, DType from) {
  if (to == kFloat && from == kHalf) return streamed<half_to_float, uint32_t, uint16_t>;
  if (to == kFloat && from == kBFloat16) return streamed<bfloat_to_float, uint32_t, uint16_t>;
  if (to == kHalf && from == kFloat) return streamed<float_to_half, uint16_t, uint32_t>;
  if (to == kBFloat16 && from == kFloat) return streamed<float_to_bfloat, uint16_t, uint32_t>;
  return converter(to, from);
}

void gather(void* dst, const char* src, int64_t stride, int64_t n, int width) {
  by_width(width, [=](auto t) {
    using T = decltype(t);
    T* __restrict d = static_cast<T*>(dst);
    if (stride == int64_t(sizeof(T))) {
      std::memcpy(d, src, n * sizeof(T));
    } else if (stride == 0) {
      std::fill_n(d, n, *reinterpret_cast<const T*>(src));
    } else {
      for (int64_t i = 0; i < n; ++i) d[i] = *reinterpret_cast<const T*>(src + i * stride);
    }
  });
}

void scatter(char* dst, int64_t stride, const void* src, int64_t n, int width) {
  by_width(width, [=](auto t) {
    using T = decltype(t);
    const T* __restrict s = static_cast<const T*>(src);
    if (stride == int64_t(sizeof(T))) {
      std::memcpy(dst, s, n * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(dst + i * stride) = s[i];
    }
  });
}

void gather_rows(void* dst, const Cursor& at, int op, int64_t n) {
  const int width = at.s.width[op];
  const int64_t stride = at.s.inner_stride()[op];
  char* d = static_cast<char*>(dst);
  if (n <= at.row_left()) return gather(d, at.ptr[op], stride, n, width);
  if (at.s.ndim == 2) {  // a copy of the cursor costs more than a small gather
    int64_t m = at.row_left();
    const char* row = at.ptr[op] - at.index[1] * stride;
    for (const char* p = at.ptr[op]; n > 0; p = row += at.s.stride[0][op], m = std::min(n, at.s.inner_size())) {
      m = std::min(n, m);
      gather(d, p, stride, m, width);
      d += m * width;
      n -= m;
    }
    return;
  }
  for (Cursor c(at); n > 0;) {
    int64_t m = std::min(n, c.row_left());
    gather(d, c.ptr[op], stride, m, width);
    d += m * width;
    n -= m;
    if (n > 0) c.advance(m);
  }
}

void scatter_rows(const Cursor& at, int op, const void* src, int64_t n) {
  const int width = at.s.width[op];
  const int64_t stride = at.s.inner_stride()[op];
  const char* s = static_cast<const char*>(src);
  if (n <= at.row_left()) return scatter(at.ptr[op], stride, s, n, width);
  for (Cursor c(at); n > 0;) {
    int64_t m = std::min(n, c.row_left());
    scatter(c.ptr[op], stride, s, m, width);
    s += m * width;
    n -= m;
    if (n > 0) c.advance(m);
  }
}

}  // namespace mt
