// 16 rows of 16 words turned in registers, with AVX-512.
#pragma once
#ifdef __AVX512F__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own "undefined" intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstdint>

namespace mt {

// to[j * ld + i] = word j of row i; rows lie `step` bytes apart.
inline void transpose16(const void* from, int64_t step, void* to, int64_t ld) {
  const char* row = static_cast<const char*>(from);
  uint32_t* out = static_cast<uint32_t*>(to);
  __m512i r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(row + i * step);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]),
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // r[i + c]: word c of every quarter, of rows i .. i+3
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd), e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_storeu_si512(out + c * ld, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(out + (8 + c) * ld, _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(out + (4 + c) * ld, _mm512_shuffle_i32x4(d, e, 0x88));
    _mm512_storeu_si512(out + (12 + c) * ld, _mm512_shuffle_i32x4(d, e, 0xdd));
  }
}

}  // namespace mt
#endif
