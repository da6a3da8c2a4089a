// The float32 product with the tiles of panel.h, in the library for AVX-512.
#include "gemm_impl.h"
#include "panel.h"
#include "parallel.h"
#include "transpose16.h"

#ifdef __AVX512F__
#include <memory>

namespace mt {
namespace {

// Rows of A lie in panels in the second level cache; a strip of B (kDepth x kWide) stays in the first, or nearly.
constexpr int64_t kRows = 128, kDepth = 256, kColumns = 2016;
// What all threads pack at once, and multiplications that are worth their meetings.
constexpr int64_t kManyRows = 4096, kManyColumns = 4032, kManyDepth = 1024, kShared = 1 << 26;

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
    if (d < depth) transpose16(X + i * line + d, line * 4, int(depth - d), to + d * width + i, width);
  }
  for (; i < lines; ++i)
    for (int64_t d = 0; d < depth; ++d) to[d * width + i] = X[i * line + d];
}

// Rows of A in panels of kPanel.
void pack_rows(const float* X, int64_t line, int64_t item, int64_t rows, int64_t depth, float* a) {
  int64_t i = 0;
  if (item == 1) {
    for (; i + kPanel <= rows; i += kPanel, a += kPanel * depth) {
      int64_t d = 0;
      for (; d + 16 <= depth; d += 16) transpose8(X + i * line + d, line * 4, a + d * kPanel);
      if (d < depth) transpose8(X + i * line + d, line * 4, int(depth - d), a + d * kPanel);
    }
  }
  pack_panels(X + i * line, line, item, rows - i, depth, a);
}
static_assert(kPanel == 8, "transpose8 makes panels of 8 rows");

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

int64_t cut(int64_t extent, int64_t most, int64_t multiple) {  // pieces of nearly equal size: items of one
  const int64_t pieces = (extent + most - 1) / most, even = (extent + pieces - 1) / pieces;
  return (even + multiple - 1) / multiple * multiple;
}

// op(A) and op(B) as lines of items: rows of A, columns of B.
struct Factors {
  int64_t a_line, a_item, b_line, b_item;
  explicit Factors(const Product& p)
      : a_line(p.transA ? 1 : p.lda), a_item(p.transA ? p.lda : 1), b_line(p.transB ? p.ldb : 1),
        b_item(p.transB ? 1 : p.ldb) {}
};

// Rows [i, i + rows) of op(A) times alpha, from column d on.
void pack_a(const Product& p, const Factors& f, int64_t i, int64_t rows, int64_t d, int64_t depth, float* a) {
  pack_rows(at<float>(p.A, i * f.a_line + d * f.a_item), f.a_line, f.a_item, rows, depth, a);
  const float alpha = float(p.alpha.real());
  if (alpha != 1)
    for (int64_t j = 0; j < rows * depth; ++j) a[j] *= alpha;
}

void pack_strip(const float* from, const Factors& f, int64_t width, int64_t depth, float* strip) {
  if (width < kWide) std::fill_n(strip, depth * kWide, 0.f);
  pack_lines(from, f.b_line, f.b_item, width, depth, kWide, strip);
}

// A, all of which lies in the second level cache, with one strip of B after another: where the rows of B are contiguous it is
// read too seldom to be worth packing.
void few_rows(const Product& p) {
  const Factors f(p);
  const int64_t deep = cut(p.k, kDepth, 1);
  std::unique_ptr<float[]> memory(new float[deep * (p.m + kWide)]);
  float *A = memory.get(), *strip = A + deep * p.m;
  for (int64_t d = 0; d < p.k; d += deep) {
    const int64_t depth = std::min(deep, p.k - d);
    pack_a(p, f, 0, p.m, d, depth, A);
    for (int64_t j = 0; j < p.n; j += kWide) {
      const int64_t width = std::min<int64_t>(kWide, p.n - j);
      const float* from = at<float>(p.B, j * f.b_line + d * f.b_item);
      const bool in_place = !p.transB && width % kLanes == 0;
      if (!in_place) pack_strip(from, f, width, depth, strip);
      multiply_strip(A, p.m, depth, in_place ? from : strip, in_place ? f.b_item : kWide, width, d > 0 || p.beta != c128(0),
                     static_cast<float*>(p.C) + j, p.ldc);
    }
  }
}

// A block of the product, mc x nc over `depth`, as all threads compute it: each packs a part of both factors, then tasks of
// some rows and some strips are shared out.
struct Block {
  const Product& p;
  const Factors f;
  const MadeColumns* made;  // in place of p.B, where it is given
  float *A, *B;
  int64_t i0, rows, j0, columns, d0, depth;

  void pack(bool with_b) const {
    constexpr int64_t kUnit = 32;  // rows
    const int64_t of_a = (rows + kUnit - 1) / kUnit, of_b = with_b ? strips() : 0;
    parallel_for(of_a + of_b, std::max<int64_t>(1, kGrain / 4 / (depth * kUnit)), [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        if (u < of_a) {
          const int64_t i = u * kUnit;
          pack_a(p, f, i0 + i, std::min(kUnit, rows - i), d0, depth, A + i * depth);
        } else {
          const int64_t j = (u - of_a) * kWide, width = std::min<int64_t>(kWide, columns - j);
          float* strip = B + j * depth;
          if (!made) {
            pack_strip(at<float>(p.B, (j0 + j) * f.b_line + d0 * f.b_item), f, width, depth, strip);
          } else {
            if (width < kWide) std::fill_n(strip, depth * kWide, 0.f);
            made->write(j0 + j, width, d0, depth, strip, kWide);
          }
        }
      }
    });
  }

  void multiply(int64_t threads) const {
    int64_t down = cut(rows, kRows, kPanel), across = strips();
    auto tasks = [&] { return (rows + down - 1) / down * ((strips() + across - 1) / across); };
    while (threads > 1 && tasks() < 3 * threads && (across > 1 || down > 4 * kPanel)) {
      if (across > 1 && (across * kWide >= down || down <= 4 * kPanel)) across = (across + 1) / 2;
      else down = cut(down, (down + 1) / 2, kPanel);
    }
    const int64_t groups = (strips() + across - 1) / across;
    parallel_for(tasks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t i = t / groups * down, first = t % groups * across;
        for (int64_t s = first; s < std::min(first + across, strips()); ++s) {
          const int64_t j = s * kWide;
          multiply_strip(A + i * depth, std::min(down, rows - i), depth, B + j * depth, kWide,
                         std::min<int64_t>(kWide, columns - j), d0 > 0 || p.beta != c128(0),
                         static_cast<float*>(p.C) + (i0 + i) * p.ldc + j0 + j, p.ldc);
        }
      }
    });
  }

 private:
  int64_t strips() const { return (columns + kWide - 1) / kWide; }
};

// Both factors packed by blocks. One thread packs few rows of A at a time, which it then finds in its second level cache;
// several meet twice for each block, so that theirs have many rows.
void many_rows(const Product& p, const MadeColumns* made) {
  const int64_t threads = in_parallel() || p.m * p.n * p.k < kShared ? 1 : get_num_threads();
  const bool alone = threads == 1;
  const int64_t deep = cut(p.k, alone ? kDepth : kManyDepth, made ? made->unit : 1), nc = cut(p.n, alone ? kColumns : kManyColumns, kWide);
  const int64_t mc = cut(p.m, alone ? kRows : kManyRows, kPanel);
  std::unique_ptr<float[]> memory(new float[deep * (mc + nc) + kLanes]);
  float* B = memory.get() + (-(reinterpret_cast<uintptr_t>(memory.get()) / 4) & (kLanes - 1));  // at a whole vector
  for (int64_t j = 0; j < p.n; j += nc)
    for (int64_t d = 0; d < p.k; d += deep)
      for (int64_t i = 0; i < p.m; i += mc) {
        const Block block{p, Factors(p), made, B + deep * nc, B, i, std::min(mc, p.m - i), j, std::min(nc, p.n - j), d,
                          std::min(deep, p.k - d)};
        block.pack(i == 0);
        block.multiply(threads);
      }
}

}  // namespace

bool float_gemm(const Product& p) {
  if (p.n < kLanes || p.alpha == c128(0) || (p.beta != c128(0) && p.beta != c128(1))) return false;
  if (p.m <= kRows) few_rows(p);
  else many_rows(p, nullptr);
  return true;
}

void gemm_made(int64_t m, int64_t n, int64_t k, const float* A, int64_t lda, const MadeColumns& columns, bool add, float* C,
               int64_t ldc) {
  many_rows({false, false, m, n, k, 1.0, A, lda, nullptr, n, add ? 1.0 : 0.0, C, ldc}, &columns);
}

bool shared_gemm(DType dtype, const Product& p) {
  return dtype == kFloat && p.m > kRows && p.k >= kLanes && p.m * p.n * p.k >= kShared && float_gemm(p);
}

}  // namespace mt

#else
namespace mt {
bool float_gemm(const Product&) { return false; }
bool shared_gemm(DType, const Product&) { return false; }
}  // namespace mt
#endif
