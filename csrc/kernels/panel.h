// Small matrix products in float32 for the convolutions: one factor in panels, the other read where it lies. Larger and
// other products are gemm.h's.
#pragma once
#include <algorithm>
#include <cstdint>

namespace mt {

#ifdef __AVX2__
constexpr int kLanes = 8;
#define MT_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define MT_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define MT_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define MT_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
constexpr int kLanes = 4;
#define MT_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define MT_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#define MT_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define MT_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif
typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef float Memory __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));  // a Vec at any address

inline Vec load(const float* p) { return *reinterpret_cast<const Memory*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Memory*>(p) = v; }
inline int64_t whole(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// A matrix of rows x depth in panels of kPanel rows: a[panel][depth][row]; the last panel has the rows that are left. A
// panel thus begins at its first row times depth. 6 rows by 2 vectors fill the 16 registers of AVX2.
constexpr int kPanel = 6;

// Item (row, d) of the matrix is at from[row * row_step + d * depth_step].
inline void pack_panels(const float* from, int64_t row_step, int64_t depth_step, int64_t rows, int64_t depth,
                        float* a) {
  for (int64_t first = 0; first < rows; first += kPanel) {
    const int64_t height = std::min<int64_t>(kPanel, rows - first);
    for (int64_t d = 0; d < depth; ++d, a += height)
      for (int64_t r = 0; r < height; ++r) a[r] = from[(first + r) * row_step + d * depth_step];
  }
}

// kRows rows by kVecs vectors of the product, all in registers.
template <int kRows, int kVecs>
inline void panel_tile(const float* a, int64_t depth, const float* b, int64_t ldb, bool add, float* c, int64_t ldc) {
  Vec acc[kRows][kVecs] = {};
  for (int64_t d = 0; d < depth; ++d, a += kRows, b += ldb) {
    Vec v[kVecs];
    for (int j = 0; j < kVecs; ++j) v[j] = load(b + j * kLanes);
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVecs; ++j) acc[r][j] += a[r] * v[j];
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVecs; ++j) {
      float* to = c + r * ldc + j * kLanes;
      store(to, add ? load(to) + acc[r][j] : acc[r][j]);
    }
}

// c (rows x width) = (add: +=) a b, with a in panels. width is a multiple of kLanes: b and c have room for that. By
// slices of the depth, so that the strip of b that all panels share stays in the first level cache.
inline void panel_multiply(const float* a, int64_t rows, int64_t depth, const float* b, int64_t ldb, int64_t width,
                           bool add, float* c, int64_t ldc) {
  using Tile = void (*)(const float*, int64_t, const float*, int64_t, bool, float*, int64_t);
  static constexpr Tile tiles[2][kPanel] = {
      {panel_tile<1, 1>, panel_tile<2, 1>, panel_tile<3, 1>, panel_tile<4, 1>, panel_tile<5, 1>, panel_tile<6, 1>},
      {panel_tile<1, 2>, panel_tile<2, 2>, panel_tile<3, 2>, panel_tile<4, 2>, panel_tile<5, 2>, panel_tile<6, 2>}};
  constexpr int64_t kSlice = 192;
  for (int64_t first = 0; first < depth; first += kSlice) {
    const int64_t slice = std::min(kSlice, depth - first);
    for (int64_t t = 0; t < width; t += 2 * kLanes) {
      const Tile* tile = tiles[width - t >= 2 * kLanes];
      for (int64_t r = 0; r < rows; r += kPanel) {
        const int64_t height = std::min<int64_t>(kPanel, rows - r);
        tile[height - 1](a + r * depth + first * height, slice, b + first * ldb + t, ldb, add || first > 0,
                         c + r * ldc + t, ldc);
      }
    }
  }
}

}  // namespace mt
