// The float32 product of few rows with the tiles of panel.h, in the library for AVX-512. OpenBLAS, which packs both factors,
// is the faster one only where there are many.
#include "gemm_impl.h"
#include "panel.h"
#include "transpose16.h"

#ifdef __AVX512F__
#include <memory>

namespace mt {
namespace {

// Rows of A, all of which lie in panels in the second level cache; a strip of B (kDepth x kWide) stays in the first.
constexpr int64_t kRows = 128, kDepth = 192;

// `lines` lines side by side: to[d * width + i] is item d of line i. Line i starts at i * line, its items lie `item` apart;
// one of the two is 1.
void pack_lines(const float* X, int64_t line, int64_t item, int64_t lines, int64_t depth, int64_t width, float* to) {
  if (line == 1) {
    for (int64_t d = 0; d < depth; ++d) std::copy_n(X + d * item, lines, to + d * width);
    return;
  }
  int64_t i = 0;
  for (; i + 16 <= lines; i += 16) {
    int64_t d = 0;
    for (; d + 16 <= depth; d += 16) transpose16(X + i * line + d, line * 4, to + d * width + i, width);
    for (; d < depth; ++d)
      for (int64_t l = i; l < i + 16; ++l) to[d * width + l] = X[l * line + d];
  }
  for (; i < lines; ++i)
    for (int64_t d = 0; d < depth; ++d) to[d * width + i] = X[i * line + d];
}

// Rows of A in panels of kPanel: sixteen rows at a time make two of them.
void pack_a(const float* X, int64_t line, int64_t item, int64_t rows, int64_t depth, float* a) {
  int64_t i = 0;
  if (item == 1) {
    for (; i + 2 * kPanel <= rows; i += 2 * kPanel, a += 2 * kPanel * depth) {
      float square[16 * 16];
      int64_t d = 0;
      for (; d + 16 <= depth; d += 16) {
        transpose16(X + i * line + d, line * 4, square, 16);
        MT_UNROLL for (int j = 0; j < 16; ++j) {
          _mm256_storeu_ps(a + (d + j) * kPanel, _mm256_loadu_ps(square + 16 * j));
          _mm256_storeu_ps(a + (depth + d + j) * kPanel, _mm256_loadu_ps(square + 16 * j + kPanel));
        }
      }
      for (; d < depth; ++d)
        for (int64_t r = 0; r < 2 * kPanel; ++r)
          a[(r / kPanel * depth + d) * kPanel + r % kPanel] = X[(i + r) * line + d];
    }
  }
  pack_panels(X + i * line, line, item, rows - i, depth, a);
}
static_assert(kPanel == 8, "pack_a makes panels of 8 rows");

// A strip of C: `width` <= kWide columns. Where they are no whole vectors, and reading or writing more would touch what is
// not ours, a tile goes through a buffer.
void multiply_strip(const float* a, int64_t rows, int64_t depth, const float* b, int64_t ldb, int64_t width, bool add, float* c,
                    int64_t ldc) {
  static constexpr auto tiles = tile_table<PanelTile>(PanelTiles(), TileSizes());
  const auto& tile = tiles[whole(width) / kLanes - 1];
  for (int64_t r = 0; r < rows; r += kPanel) {
    const int64_t height = std::min<int64_t>(kPanel, rows - r);
    if (width % kLanes == 0) {
      tile[height - 1](a + r * depth, depth, b, ldb, add, c + r * ldc, ldc);
      continue;
    }
    float part[kPanel * kWide];
    tile[height - 1](a + r * depth, depth, b, ldb, false, part, kWide);
    for (int64_t i = 0; i < height; ++i)
      for (int64_t j = 0; j < width; ++j) {
        float& to = c[(r + i) * ldc + j];
        to = add ? to + part[i * kWide + j] : part[i * kWide + j];
      }
  }
}

}  // namespace

bool float_gemm(const Product& p) {
  if (p.m > kRows || p.alpha != c128(1) || (p.beta != c128(0) && p.beta != c128(1))) return false;
  const int64_t a_line = p.transA ? 1 : p.lda, a_item = p.transA ? p.lda : 1;
  const int64_t b_line = p.transB ? p.ldb : 1, b_item = p.transB ? 1 : p.ldb;
  std::unique_ptr<float[]> memory(new float[kDepth * (p.m + kWide)]);
  float *A = memory.get(), *strip = A + kDepth * p.m;
  for (int64_t d = 0; d < p.k; d += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - d);
    pack_a(at<float>(p.A, d * a_item), a_line, a_item, p.m, depth, A);
    for (int64_t j = 0; j < p.n; j += kWide) {
      const int64_t width = std::min<int64_t>(kWide, p.n - j);
      const float* from = at<float>(p.B, j * b_line + d * b_item);
      const bool in_place = !p.transB && width % kLanes == 0;  // read too seldom to be worth packing
      if (!in_place) {
        if (width < kWide) std::fill_n(strip, depth * kWide, 0.f);
        pack_lines(from, b_line, b_item, width, depth, kWide, strip);
      }
      multiply_strip(A, p.m, depth, in_place ? from : strip, in_place ? b_item : kWide, width, d > 0 || p.beta != c128(0),
                     static_cast<float*>(p.C) + j, p.ldc);
    }
  }
  return true;
}

}  // namespace mt

#else
namespace mt {
bool float_gemm(const Product&) { return false; }
}  // namespace mt
#endif
