// 16 or 8 rows of 16 words turned in registers, with AVX-512.
#pragma once
#ifdef __AVX512F__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own "undefined" intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstdint>

namespace mt {

// r[i + c] becomes word c of every quarter, of rows i .. i+3.
template <int kRows> inline void turn_quarters(__m512i (&r)[kRows]) {
  __m512i t[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; i += 2) t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]),
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
#pragma GCC unroll 4
  for (int i = 0; i < kRows; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
}

// The quarters of four vectors: quarter q of all of them goes to to + q * ld.
inline void store_quarters(__m512i x, __m512i y, __m512i z, __m512i w, uint32_t* to, int64_t ld) {
  const __m512i a = _mm512_shuffle_i32x4(x, y, 0x88), b = _mm512_shuffle_i32x4(z, w, 0x88);
  const __m512i d = _mm512_shuffle_i32x4(x, y, 0xdd), e = _mm512_shuffle_i32x4(z, w, 0xdd);
  _mm512_storeu_si512(to, _mm512_shuffle_i32x4(a, b, 0x88));
  _mm512_storeu_si512(to + 2 * ld, _mm512_shuffle_i32x4(a, b, 0xdd));
  _mm512_storeu_si512(to + ld, _mm512_shuffle_i32x4(d, e, 0x88));
  _mm512_storeu_si512(to + 3 * ld, _mm512_shuffle_i32x4(d, e, 0xdd));
}

template <int kRows> inline void load_rows(const void* from, int64_t step, __m512i (&r)[kRows]) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) r[i] = _mm512_loadu_si512(static_cast<const char*>(from) + i * step);
}
template <int kRows> inline void load_rows(const void* from, int64_t step, int words, __m512i (&r)[kRows]) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
    r[i] = _mm512_maskz_loadu_epi32(__mmask16((1 << words) - 1), static_cast<const char*>(from) + i * step);
}

// to[j * ld + i] = word j of row i; rows lie `step` bytes apart.
inline void store_columns(__m512i (&r)[16], void* to, int64_t ld) {
  turn_quarters(r);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) store_quarters(r[c], r[4 + c], r[8 + c], r[12 + c], static_cast<uint32_t*>(to) + c * ld, 4 * ld);
}
inline void transpose16(const void* from, int64_t step, void* to, int64_t ld) {
  __m512i r[16];
  load_rows(from, step, r);
  store_columns(r, to, ld);
}
// The same of fewer than 16 rows: no other is read, and of each column no more is written.
inline void transpose_few(const void* from, int64_t step, int rows, uint32_t* to, int64_t ld) {
  __m512i r[16];
  uint32_t square[16 * 16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(static_cast<const char*>(from) + (i < rows ? i : rows - 1) * step);
  store_columns(r, square, 16);
  for (int j = 0; j < 16; ++j)
    _mm512_mask_storeu_epi32(to + j * ld, __mmask16((1 << rows) - 1), _mm512_loadu_si512(square + 16 * j));
}

// The same of 8 rows, with ld = 8.
inline void store_eights(__m512i (&r)[8], void* to) {
  turn_quarters(r);
#pragma GCC unroll 2
  for (int c = 0; c < 4; c += 2)
    store_quarters(r[c], r[4 + c], r[c + 1], r[5 + c], static_cast<uint32_t*>(to) + 8 * c, 4 * 8);
}
inline void transpose8(const void* from, int64_t step, void* to) {
  __m512i r[8];
  load_rows(from, step, r);
  store_eights(r, to);
}

// The same of rows with fewer than 16 words: no more are read or written.
inline void transpose16(const void* from, int64_t step, int words, void* to, int64_t ld) {
  __m512i r[16];
  uint32_t square[16 * 16];
  load_rows(from, step, words, r);
  store_columns(r, square, 16);
  for (int j = 0; j < words; ++j)
    _mm512_storeu_si512(static_cast<uint32_t*>(to) + j * ld, _mm512_loadu_si512(square + 16 * j));
}
inline void transpose8(const void* from, int64_t step, int words, void* to) {
  __m512i r[8];
  uint32_t square[16 * 8];
  load_rows(from, step, words, r);
  store_eights(r, square);
  for (int j = 0; j < words; ++j)
    _mm256_storeu_si256(static_cast<__m256i*>(to) + j, _mm256_loadu_si256(reinterpret_cast<__m256i*>(square) + j));
}

}  // namespace mt
#endif
