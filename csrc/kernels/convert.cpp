// Conversions of arrays between dtypes, and strided moves by item size. Shapes live in strided.h.
#include "convert.h"

#include "dispatch.h"
#include "float8.h"
#include "scalar.h"

namespace mt {
namespace {

// A float becomes a narrow integer by way of int32, as in torch; that also vectorises. uint32 needs a wider one.
template <class To, class From> inline To item(From v) {
  constexpr bool narrow = std::is_integral_v<To> && !std::is_same_v<To, bool> && sizeof(To) <= 4 &&
                          !std::is_same_v<To, uint32_t>;
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

template <const Float8& F> void float8_to_float(void* dst, const void* src, int64_t n) {
  static const std::array<float, 256> value = float8_values(from_float8<F>);
  for (int64_t i = 0; i < n; ++i) static_cast<float*>(dst)[i] = value[static_cast<const uint8_t*>(src)[i]];
}
template <const Float8& F> void float_to_float8(void* dst, const void* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<uint8_t*>(dst)[i] = to_float8<F>(static_cast<const float*>(src)[i]);
}
void e8m0_to_float(void* dst, const void* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<float*>(dst)[i] = from_e8m0(static_cast<const uint8_t*>(src)[i]);
}
void float_to_e8m0(void* dst, const void* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<uint8_t*>(dst)[i] = to_e8m0(static_cast<const float*>(src)[i]);
}
// complex32 is pairs of float16.
void pairs_to_float(void* dst, const void* src, int64_t n) { half_to_float(dst, src, 2 * n); }
void pairs_to_half(void* dst, const void* src, int64_t n) { float_to_half(dst, src, 2 * n); }

// The small floats and complex32 to what they are computed in, and back; nullptr of all others.
Convert widening(DType d) {
  switch (d) {
    case kHalf: return half_to_float;
    case kBFloat16: return bfloat_to_float;
    case kFloat8_e4m3fn: return float8_to_float<kE4M3FN>;
    case kFloat8_e5m2: return float8_to_float<kE5M2>;
    case kFloat8_e4m3fnuz: return float8_to_float<kE4M3FNUZ>;
    case kFloat8_e5m2fnuz: return float8_to_float<kE5M2FNUZ>;
    case kFloat8_e8m0fnu: return e8m0_to_float;
    case kComplexHalf: return pairs_to_float;
    default: return nullptr;
  }
}
Convert narrowing(DType d) {
  switch (d) {
    case kHalf: return float_to_half;
    case kBFloat16: return float_to_bfloat;
    case kFloat8_e4m3fn: return float_to_float8<kE4M3FN>;
    case kFloat8_e5m2: return float_to_float8<kE5M2>;
    case kFloat8_e4m3fnuz: return float_to_float8<kE4M3FNUZ>;
    case kFloat8_e5m2fnuz: return float_to_float8<kE5M2FNUZ>;
    case kFloat8_e8m0fnu: return float_to_e8m0;
    case kComplexHalf: return pairs_to_half;
    default: return nullptr;
  }
}

// A dtype that is only a storage format is converted to every other through the dtype it is computed in.
constexpr int64_t kChunk = 512;
template <DType Narrow, DType To> void from_narrow(void* dst, const void* src, int64_t n) {
  static const Convert widen = widening(Narrow);
  const DType wide = wide_of(Narrow);
  c64 buffer[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    int64_t m = std::min(kChunk, n - i);
    widen(buffer, static_cast<const char*>(src) + i * itemsize(Narrow), m);
    convert(To, static_cast<char*>(dst) + i * itemsize(To), wide, buffer, m);
  }
}
template <DType Narrow, DType From> void to_narrow(void* dst, const void* src, int64_t n) {
  static const Convert narrow = narrowing(Narrow);
  const DType wide = wide_of(Narrow);
  c64 buffer[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    int64_t m = std::min(kChunk, n - i);
    convert(wide, buffer, From, static_cast<const char*>(src) + i * itemsize(From), m);
    narrow(static_cast<char*>(dst) + i * itemsize(Narrow), buffer, m);
  }
}

// Every way between D and the dtypes that are computed in: into D (`from`), or out of a narrow D (`to`).
#define MT_COMPUTED(X) X(kBool, b8) X(kUInt8, uint8_t) X(kInt8, int8_t) X(kInt16, int16_t) X(kInt32, int32_t) \
  X(kInt64, int64_t) X(kUInt16, uint16_t) X(kUInt32, uint32_t) X(kUInt64, uint64_t) X(kFloat, float) X(kDouble, double) \
  X(kComplexFloat, c64) X(kComplexDouble, c128)
#define MT_NARROW(X) X(kHalf) X(kBFloat16) X(kFloat8_e4m3fn) X(kFloat8_e5m2) X(kFloat8_e4m3fnuz) X(kFloat8_e5m2fnuz) \
  X(kFloat8_e8m0fnu) X(kComplexHalf)

template <class To, DType D> Convert into(DType from) {
  switch (from) {
#define MT_FROM(F, TYPE) case F: return plain<To, TYPE>;
    MT_COMPUTED(MT_FROM)
#undef MT_FROM
#define MT_FROM(F) case F: return from_narrow<F, D>;
    MT_NARROW(MT_FROM)
#undef MT_FROM
    default: unsupported("copy_kernel", from);
  }
}
template <DType D> Convert into_narrow(DType from) {
  if (from == wide_of(D)) return narrowing(D);
  switch (from) {
#define MT_FROM(F, TYPE) case F: return to_narrow<D, F>;
    MT_COMPUTED(MT_FROM)
#undef MT_FROM
#define MT_FROM(F) case F: return to_narrow<D, F>;
    MT_NARROW(MT_FROM)
#undef MT_FROM
    default: unsupported("copy_kernel", from);
  }
}
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
  if (to == wide_of(from)) return widening(from);
  switch (to) {
    case kBool: return into<bool, kBool>(from);
#define MT_TO(D, TYPE) case D: return into<TYPE, D>(from);
    MT_TO(kUInt8, uint8_t) MT_TO(kInt8, int8_t) MT_TO(kInt16, int16_t) MT_TO(kInt32, int32_t) MT_TO(kInt64, int64_t)
    MT_TO(kUInt16, uint16_t) MT_TO(kUInt32, uint32_t) MT_TO(kUInt64, uint64_t) MT_TO(kFloat, float)
    MT_TO(kDouble, double) MT_TO(kComplexFloat, c64) MT_TO(kComplexDouble, c128)
#undef MT_TO
#define MT_TO(D) case D: return into_narrow<D>(from);
    MT_NARROW(MT_TO)
#undef MT_TO
    default: unsupported("copy_kernel", to);
  }
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
    } else if (stride == 2 * int64_t(sizeof(T))) {  // by vectors, as is a column of a tensor of two, or every other item
      const T* s = reinterpret_cast<const T*>(src);
      for (int64_t i = 0; i < n; ++i) d[i] = s[2 * i];
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
  const int inner = at.s.ndim - 1;
  by_width(width, [&](auto t) {
    using T = decltype(t);
    T* to = reinterpret_cast<T*>(d);
    for (Cursor c(at); n > 0;) {
      int64_t m = std::min(n, c.row_left()), moved = 0;
      const char* row = c.ptr[op];
      // The rows of the two innermost dims: moving the cursor costs more than a short row.
      for (int64_t rows = at.s.size[inner - 1] - c.index[inner - 1]; rows > 0 && n > 0; --rows) {
        m = std::min(n, m);
        if (stride == int64_t(sizeof(T))) std::memcpy(to, row, m * sizeof(T));
        else for (int64_t i = 0; i < m; ++i) to[i] = *reinterpret_cast<const T*>(row + i * stride);
        row += at.s.stride[inner - 1][op] - (moved == 0 ? c.index[inner] * stride : 0);
        to += m;
        n -= m;
        moved += m;
        m = at.s.inner_size();
      }
      if (n > 0) c.advance(moved);
    }
  });
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
