// Small matrix products in float32 for the convolutions: one factor in panels, the other read where it lies. Larger and
// other products are gemm.h's.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace mt {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#define MT_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define MT_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define MT_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define MT_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX2__)
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
// panel thus begins at its first row times depth. kPanel rows by kVecs vectors, the factors of one step beside them, fill
// the registers: 32 with AVX-512, else 16.
#ifdef __AVX512F__
constexpr int kPanel = 8, kVecs = 3;
#else
constexpr int kPanel = 6, kVecs = 2;
#endif
constexpr int kWide = kVecs * kLanes;  // columns of a tile

// Item (row, d) of the matrix is at from[row * row_step + d * depth_step].
inline void pack_panels(const float* from, int64_t row_step, int64_t depth_step, int64_t rows, int64_t depth,
                        float* a) {
  for (int64_t first = 0; first < rows; first += kPanel) {
    const int64_t height = std::min<int64_t>(kPanel, rows - first);
    for (int64_t d = 0; d < depth; ++d, a += height)
      for (int64_t r = 0; r < height; ++r) a[r] = from[(first + r) * row_step + d * depth_step];
  }
}

// For loops over the registers of a tile: where one is not unrolled, GCC keeps the tile in memory.
#define MT_UNROLL _Pragma("GCC unroll 16")

// make<rows, vectors>() of every size of a tile, as table[vectors - 1][rows - 1].
template <class Tile> using TileTable = std::array<std::array<Tile, kPanel>, kVecs>;
template <class Tile, class Make, int... I> constexpr TileTable<Tile> tile_table(Make make, std::integer_sequence<int, I...>) {
  TileTable<Tile> table{};
  ((table[I / kPanel][I % kPanel] = make.template operator()<I % kPanel + 1, I / kPanel + 1>()), ...);
  return table;
}
using TileSizes = std::make_integer_sequence<int, kPanel * kVecs>;

// kRows rows by V vectors of the product, all in registers. kAhead: rows of b that lie far apart are fetched in time, which
// no processor does by itself.
template <int kRows, int V, bool kAhead>
inline void panel_sums(const float* a, int64_t depth, const float* b, int64_t ldb, Vec (&acc)[kRows][V]) {
  _Pragma("GCC unroll 4") for (int64_t d = 0; d < depth; ++d, a += kRows, b += ldb) {
    Vec v[V];
    MT_UNROLL for (int j = 0; j < V; ++j) {
      v[j] = load(b + j * kLanes);
      if (kAhead) __builtin_prefetch(b + 8 * ldb + j * kLanes);
    }
    MT_UNROLL for (int r = 0; r < kRows; ++r)
      MT_UNROLL for (int j = 0; j < V; ++j) acc[r][j] += a[r] * v[j];
  }
}
template <int kRows, int V>
inline void panel_tile(const float* a, int64_t depth, const float* b, int64_t ldb, bool add, float* c, int64_t ldc) {
  Vec acc[kRows][V];
  MT_UNROLL for (int r = 0; r < kRows; ++r)
    MT_UNROLL for (int j = 0; j < V; ++j) {
      acc[r][j] = Vec{};
      if (add) __builtin_prefetch(c + r * ldc + j * kLanes, 1);
    }
  if (ldb <= kWide) panel_sums<kRows, V, false>(a, depth, b, ldb, acc);
  else panel_sums<kRows, V, true>(a, depth, b, ldb, acc);
  MT_UNROLL for (int r = 0; r < kRows; ++r)
    MT_UNROLL for (int j = 0; j < V; ++j) {
      float* to = c + r * ldc + j * kLanes;
      store(to, add ? load(to) + acc[r][j] : acc[r][j]);
    }
}

using PanelTile = void (*)(const float*, int64_t, const float*, int64_t, bool, float*, int64_t);
struct PanelTiles {
  template <int kRows, int V> constexpr PanelTile operator()() const { return panel_tile<kRows, V>; }
};

// c (rows x width) = (add: +=) a b, with a in panels. width is a multiple of kLanes: b and c have room for that. By
// slices of the depth, so that the strip of b that all panels share stays in the first level cache.
inline void panel_multiply(const float* a, int64_t rows, int64_t depth, const float* b, int64_t ldb, int64_t width,
                           bool add, float* c, int64_t ldc) {
  static constexpr auto tiles = tile_table<PanelTile>(PanelTiles(), TileSizes());
  constexpr int64_t kSlice = 192;
  const int64_t slices = (depth + kSlice - 1) / kSlice, even = slices ? (depth + slices - 1) / slices : 1;
  for (int64_t first = 0; first < depth; first += even) {
    const int64_t slice = std::min(even, depth - first);
    for (int64_t t = 0; t < width; t += kWide) {
      const auto& tile = tiles[std::min<int64_t>(width - t, kWide) / kLanes - 1];
      for (int64_t r = 0; r < rows; r += kPanel) {
        const int64_t height = std::min<int64_t>(kPanel, rows - r);
        tile[height - 1](a + r * depth + first * height, slice, b + first * ldb + t, ldb, add || first > 0,
                         c + r * ldc + t, ldc);
      }
    }
  }
}

}  // namespace mt
