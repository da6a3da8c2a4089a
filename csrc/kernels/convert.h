// Conversions of arrays between dtypes, and moves between strided and contiguous memory; nothing of shapes.
#pragma once
#include "strided.h"
#include "view.h"

namespace mt {

// dst[i] = cast(src[i]) for n contiguous items; equal dtypes copy. dst and src do not overlap.
using Convert = void (*)(void* dst, const void* src, int64_t n);
Convert converter(DType to, DType from);
inline void convert(DType to, void* dst, DType from, const void* src, int64_t n) { converter(to, from)(dst, src, n); }

// n items of `width` bytes between contiguous memory and items `stride` bytes apart (gather takes stride 0 too).
void gather(void* dst, const char* src, int64_t stride, int64_t n, int width);
void scatter(char* dst, int64_t stride, const void* src, int64_t n, int width);
inline void fill_items(void* dst, const void* item, int64_t n, int width) {
  gather(dst, static_cast<const char*>(item), 0, n, width);
}

// memcpy around the cache, for outputs too large to stay in it: stores that do not first read what they overwrite.
// end_stream() before another thread may read the result.
constexpr int64_t kStream = 1 << 24;  // bytes of output from which this pays
void stream(void* dst, const void* src, int64_t bytes);
void end_stream();

// The next n items of operand op from the cursor on, across rows.
void gather_rows(void* dst, const Cursor& at, int op, int64_t n);
void scatter_rows(const Cursor& at, int op, const void* src, int64_t n);

}  // namespace mt
