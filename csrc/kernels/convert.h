// Conversions of arrays between dtypes, and moves between strided and contiguous memory; nothing of shapes.
#pragma once
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "strided.h"
#include "view.h"

namespace mt {

// dst[i] = cast(src[i]) for n contiguous items; equal dtypes copy. dst and src do not overlap.
using Convert = void (*)(void* dst, const void* src, int64_t n);
Convert converter(DType to, DType from);
Convert streaming_converter(DType to, DType from);  // for a large dst, see stream(); the same where there is none
inline void convert(DType to, void* dst, DType from, const void* src, int64_t n) { converter(to, from)(dst, src, n); }

// A number as one item of a dtype, in a buffer of 16 bytes.
inline void store_scalar(const Attr& value, DType dtype, void* item) {
  const c128 number(value.f, value.im);
  if (is_integral(dtype) && dtype != kBool) return convert(dtype, item, kInt64, &value.i, 1);
  if (dtype == kBool && value.i != 0) return convert(kBool, item, kInt64, &value.i, 1);
  convert(dtype, item, kComplexDouble, &number, 1);
}

// n items of `width` bytes between contiguous memory and items `stride` bytes apart (gather takes stride 0 too).
void gather(void* dst, const char* src, int64_t stride, int64_t n, int width);
void scatter(char* dst, int64_t stride, const void* src, int64_t n, int width);
inline void fill_items(void* dst, const void* item, int64_t n, int width) {
  gather(dst, static_cast<const char*>(item), 0, n, width);
}

// memcpy around the cache, for outputs too large to stay in it: stores that do not first read what they overwrite.
// end_stream() before another thread may read the result.
constexpr int64_t kStream = 1 << 24;  // bytes of output from which this pays
inline void stream(void* dst, const void* src, int64_t bytes) {
#if defined(__SSE2__)
  char* d = static_cast<char*>(dst);
  const char* s = static_cast<const char*>(src);
  int64_t i = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(d) & 63);
  std::memcpy(d, s, i);
  for (; i + 64 <= bytes; i += 64) {
    __m128i v[4];
    std::memcpy(v, s + i, 64);
    for (int j = 0; j < 4; ++j) _mm_stream_si128(reinterpret_cast<__m128i*>(d + i) + j, v[j]);
  }
  std::memcpy(d + i, s + i, bytes - i);
#else
  std::memcpy(dst, src, bytes);
#endif
}
// One line: dst on a 64-byte boundary.
inline void stream_line(void* dst, const void* src) {
#if defined(__AVX2__)
  __m256i a, b;
  std::memcpy(&a, src, 32);
  std::memcpy(&b, static_cast<const char*>(src) + 32, 32);
  _mm256_stream_si256(static_cast<__m256i*>(dst), a);
  _mm256_stream_si256(static_cast<__m256i*>(dst) + 1, b);
#else
  stream(dst, src, 64);
#endif
}
inline void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// The next n items of operand op from the cursor on, across rows.
void gather_rows(void* dst, const Cursor& at, int op, int64_t n);
void scatter_rows(const Cursor& at, int op, const void* src, int64_t n);

}  // namespace mt
