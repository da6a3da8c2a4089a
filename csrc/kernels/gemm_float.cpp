// The float32 product with the tiles of panel.h, in the library for AVX-512.
#include <cstring>

#include "gemm_impl.h"
#include "panel.h"
#include "parallel.h"
#include "transpose16.h"
#include "workspace.h"

#ifdef __AVX512F__
namespace mt {
namespace {

// A panel of A (kPanel x kDepth) stays in the first level cache, strips of B come from the second, where a block of them is.
// A hyperthread that shares both caches finds room beside it; strips in the first level would leave none.
constexpr int64_t kDepth = 256, kColumns = 1056;
constexpr int64_t kRows = 128;      // rows of A that are packed as a whole
constexpr int64_t kNarrow = 768;    // columns up to which rows of A are read too seldom to be worth packing
constexpr int64_t kFewRows = 32;    // rows up to which a strip of B is
constexpr int64_t kInPlace = 1 << 16;  // items of a B that is small enough for the cache as it lies
constexpr int64_t kFewStrips = 2;   // strips up to which a panel of A is
// What all threads pack at once; multiplications from which that beats pieces for each, and those that are worth meetings.
constexpr int64_t kManyRows = 4096, kManyColumns = 4032, kManyDepth = 1024, kShared = 1 << 28, kMeeting = 1 << 22;

// What is packed some steps later, from more places than the processor follows by itself: at the end of `lines` lines the
// beginning of the next ones.
inline void fetch_lines(const float* X, int64_t line, int64_t lines, int64_t d, int64_t depth) {
  constexpr int64_t kAhead = 64;
  const float* next = X + (d + kAhead < depth ? kAhead : lines * line + kAhead - depth);
  for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(next + i * line, 0, 2);
}

// `lines` lines side by side: to[d * width + i] is item d of line i. Line i starts at i * line, its items lie `item` apart;
// one of the two is 1.
void pack_lines(const float* X, int64_t line, int64_t item, int64_t lines, int64_t depth, int64_t width, float* to) {
  if (line == 1 && lines == kWide) {  // a known number of vectors
    for (int64_t d = 0; d < depth; ++d)
      MT_UNROLL for (int j = 0; j < kWide; j += kLanes) store(to + d * width + j, load(X + d * item + j));
    return;
  }
  if (line == 1) {
    for (int64_t d = 0; d < depth; ++d) std::copy_n(X + d * item, lines, to + d * width);
    return;
  }
  int64_t i = 0;
  for (; i + 16 <= lines; i += 16) {
    int64_t d = 0;
    for (; d + 16 <= depth; d += 16) {
      fetch_lines(X + i * line + d, line, 16, d, depth);
      transpose16(X + i * line + d, line * 4, to + d * width + i, width);
    }
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
      for (; d + 16 <= depth; d += 16) {
        fetch_lines(X + i * line + d, line, kPanel, d, depth);
        transpose8(X + i * line + d, line * 4, a + d * kPanel);
      }
      if (d < depth) transpose8(X + i * line + d, line * 4, int(depth - d), a + d * kPanel);
    }
  }
  for (; line == 1 && i + kPanel <= rows; i += kPanel)
    for (int64_t d = 0; d < depth; ++d, a += kPanel) std::memcpy(a, X + i + d * item, kPanel * sizeof(float));
  pack_panels(X + i * line, line, item, rows - i, depth, a);
}
static_assert(kPanel == 8, "transpose8 makes panels of 8 rows");

// A tile as in panel.h, of rows of A where they lie.
template <int kHeight, int V>
void row_tile(const float* a, int64_t lda, int64_t depth, const float* b, int64_t ldb, bool add, float* c, int64_t ldc) {
  Vec acc[kHeight][V];
  const float* row[kHeight];
  MT_UNROLL for (int r = 0; r < kHeight; ++r) {
    row[r] = a + r * lda;
    MT_UNROLL for (int j = 0; j < V; ++j) acc[r][j] = Vec{};
  }
  _Pragma("GCC unroll 4") for (int64_t d = 0; d < depth; ++d, b += ldb) {
    Vec v[V];
    MT_UNROLL for (int j = 0; j < V; ++j) v[j] = load(b + j * kLanes);
    MT_UNROLL for (int r = 0; r < kHeight; ++r)
      MT_UNROLL for (int j = 0; j < V; ++j) acc[r][j] += row[r][d] * v[j];
  }
  MT_UNROLL for (int r = 0; r < kHeight; ++r)
    MT_UNROLL for (int j = 0; j < V; ++j) {
      float* to = c + r * ldc + j * kLanes;
      store(to, add ? load(to) + acc[r][j] : acc[r][j]);
    }
}
// The tile of the first panel that meets a strip of B where it lies: packs the strip by the way.
void packing_tile(const float* a, int64_t depth, const float* b, int64_t ldb, float* strip, bool add, float* c, int64_t ldc) {
  Vec acc[kPanel][kVecs];
  MT_UNROLL for (int r = 0; r < kPanel; ++r)
    MT_UNROLL for (int j = 0; j < kVecs; ++j) {
      acc[r][j] = Vec{};
      __builtin_prefetch(c + r * ldc + j * kLanes, 1);
    }
  _Pragma("GCC unroll 4") for (int64_t d = 0; d < depth; ++d, a += kPanel, b += ldb, strip += kWide) {
    Vec v[kVecs];
    MT_UNROLL for (int j = 0; j < kVecs; ++j) {
      v[j] = load(b + j * kLanes);
      __builtin_prefetch(b + 16 * ldb + j * kLanes);
      store(strip + j * kLanes, v[j]);
    }
    MT_UNROLL for (int r = 0; r < kPanel; ++r)
      MT_UNROLL for (int j = 0; j < kVecs; ++j) acc[r][j] += a[r] * v[j];
  }
  MT_UNROLL for (int r = 0; r < kPanel; ++r)
    MT_UNROLL for (int j = 0; j < kVecs; ++j) {
      float* to = c + r * ldc + j * kLanes;
      store(to, add ? load(to) + acc[r][j] : acc[r][j]);
    }
}
using RowTile = void (*)(const float*, int64_t, int64_t, const float*, int64_t, bool, float*, int64_t);
struct RowTiles {
  template <int kHeight, int V> constexpr RowTile operator()() const { return row_tile<kHeight, V>; }
};

// The left factor: panels of `step` items of the depth, or rows that lie `step` apart.
struct Left {
  const float* a;
  int64_t step;
  bool packed;

  // `height` rows from row i on, `depth` items from d on, times a strip: a tile of C.
  void multiply(int64_t i, int64_t height, int64_t d, int64_t depth, const float* b, int64_t ldb, int64_t vectors, bool add,
                float* c, int64_t ldc) const {
    static constexpr auto panels = tile_table<PanelTile>(PanelTiles(), TileSizes());
    static constexpr auto rows = tile_table<RowTile>(RowTiles(), TileSizes());
    if (packed) panels[vectors - 1][height - 1](a + i * step + d * height, depth, b, ldb, add, c, ldc);
    else rows[vectors - 1][height - 1](a + i * step + d, step, depth, b, ldb, add, c, ldc);
  }
};

// A strip of C: `width` <= kWide columns of the rows [i, i + rows). Where they are no whole vectors, and reading or writing more
// would touch what is not ours, a tile goes through a buffer.
void multiply_strip(const Left& left, int64_t i, int64_t rows, int64_t d, int64_t depth, const float* b, int64_t ldb,
                    int64_t width, bool add, float* c, int64_t ldc) {
  const int64_t vectors = whole(width) / kLanes;
  for (int64_t r = 0; r < rows; r += kPanel) {
    const int64_t height = std::min<int64_t>(kPanel, rows - r);
    if (width % kLanes == 0) {
      left.multiply(i + r, height, d, depth, b, ldb, vectors, add, c + r * ldc, ldc);
      continue;
    }
    float part[kPanel * kWide];
    left.multiply(i + r, height, d, depth, b, ldb, vectors, false, part, kWide);
    for (int64_t h = 0; h < height; ++h)
      for (int64_t j = 0; j < width; ++j) {
        float& to = c[(r + h) * ldc + j];
        to = add ? to + part[h * kWide + j] : part[h * kWide + j];
      }
  }
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
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

// All strips of `columns` columns; contiguous rows are read one after another as a whole.
void pack_strips(const float* from, const Factors& f, int64_t columns, int64_t depth, float* strips) {
  const int64_t full = f.b_line == 1 ? columns / kWide : 0;
  for (int64_t d = 0; d < depth && full > 0; ++d)
    for (int64_t s = 0; s < full; ++s)
      MT_UNROLL for (int j = 0; j < kWide; j += kLanes)
        store(strips + s * kWide * depth + d * kWide + j, load(from + d * f.b_item + s * kWide + j));
  for (int64_t j = full * kWide; j < columns; j += kWide)
    pack_strip(from + j * f.b_line, f, std::min<int64_t>(kWide, columns - j), depth, strips + j * depth);
}

// Columns [j, j + columns) of op(B), or those that are made in its place, from row d on.
void pack_b(const Product& p, const Factors& f, const MadeColumns* made, int64_t j, int64_t columns, int64_t d, int64_t depth,
            float* strips) {
  if (!made) return pack_strips(at<float>(p.B, j * f.b_line + d * f.b_item), f, columns, depth, strips);
  for (int64_t s = 0; s < columns; s += kWide, strips += depth * kWide) {
    const int64_t width = std::min<int64_t>(kWide, columns - s);
    if (width < kWide) std::fill_n(strips, depth * kWide, 0.f);
    made->write(j + s, width, d, depth, strips, kWide);
  }
}

// Few columns: A is read where it lies, for it is not read often. B is packed, slice by slice of the depth, unless all of it
// stays in the cache anyway.
void few_columns(const Product& p) {
  const Factors f(p);
  const bool in_place = !p.transB && p.n % kLanes == 0 && p.k * p.n <= kInPlace && p.k * p.ldb <= 4 * kInPlace;
  const int64_t deep = cut(p.k, in_place ? 2 * kDepth : kDepth, 1), strips = ceil_div(p.n, kWide);
  const Workspace memory(in_place ? 0 : deep * strips * kWide * 4);
  for (int64_t d = 0; d < p.k; d += deep) {
    const int64_t depth = std::min(deep, p.k - d), step = in_place ? kWide : kWide * depth;
    const float* B = at<float>(p.B, d * f.b_item);
    if (!in_place) pack_strips(B, f, p.n, depth, memory.get<float>()), B = memory.get<float>();
    for (int64_t i = 0; i < p.m; i += kPanel)
      for (int64_t s = 0; s < strips; ++s)
        multiply_strip({at<float>(p.A, d), p.lda, false}, i, std::min<int64_t>(kPanel, p.m - i), 0, depth, B + s * step,
                       in_place ? p.ldb : kWide, std::min<int64_t>(kWide, p.n - s * kWide), d > 0 || p.beta != c128(0),
                       static_cast<float*>(p.C) + i * p.ldc + s * kWide, p.ldc);
  }
}

// Packs a strip, with the first panel where that is whole; returns how many rows of C this computed.
int64_t first_panel(const Product& p, const float* b, int64_t width, int64_t depth, const Left& left, float* strip, bool add,
                    float* c) {
  if (p.transB || width < kWide || p.m < kPanel || !left.packed) return pack_strip(b, Factors(p), width, depth, strip), 0;
  packing_tile(left.a, depth, b, p.ldb, strip, add, c, p.ldc);
  return kPanel;
}

// A, all of which lies in the second level cache, with one strip of B after another.
void few_rows(const Product& p) {
  const Factors f(p);
  const int64_t deep = cut(p.k, kDepth, 1);
  const Workspace memory(deep * (p.m + kWide) * 4);
  float *A = memory.get<float>(), *strip = A + deep * p.m;
  for (int64_t d = 0; d < p.k; d += deep) {
    const int64_t depth = std::min(deep, p.k - d);
    pack_a(p, f, 0, p.m, d, depth, A);
    for (int64_t j = 0; j < p.n; j += kWide) {
      const int64_t width = std::min<int64_t>(kWide, p.n - j);
      const float* from = at<float>(p.B, j * f.b_line + d * f.b_item);
      const bool add = d > 0 || p.beta != c128(0), in_place = !p.transB && width % kLanes == 0 && p.m <= kFewRows;
      const int64_t first = in_place ? 0 : first_panel(p, from, width, depth, {A, depth, true}, strip, add,
                                                       static_cast<float*>(p.C) + j);
      multiply_strip({A, depth, true}, first, p.m - first, 0, depth, in_place ? from : strip, in_place ? f.b_item : kWide, width,
                     add, static_cast<float*>(p.C) + first * p.ldc + j, p.ldc);
    }
  }
}

// One rectangle of rows and strips for each thread: what it computes and what it reads of the packed factors weigh as the rates
// of both, and nothing is to be gained where some threads have more than others.
struct Rectangles {
  int64_t down = 1, across = 1, rows, strips;
  Rectangles(int64_t all_rows, int64_t all_strips, int64_t threads) : rows(all_rows), strips(all_strips) {
    constexpr int64_t kRead = 20;  // to read an item takes as long as so many multiplications
    int64_t least = INT64_MAX;
    for (int64_t d = 1; d <= threads && threads > 1; ++d) {
      const int64_t height = ceil_div(ceil_div(all_rows, kPanel), d) * kPanel, width = ceil_div(all_strips, threads / d);
      const int64_t cost = height * width * kWide + kRead * (height + width * kWide);
      if (cost >= least) continue;
      least = cost;
      rows = height, strips = width;
    }
    down = ceil_div(all_rows, rows), across = ceil_div(all_strips, strips);
  }
};

// Where few strips meet it A is read as it lies, else from the panels of it in `packed`.
Left left_factor(const Product& p, int64_t i, int64_t d, const float* packed, int64_t depth) {
  const bool in_place = !p.transA && p.alpha == c128(1) && p.n <= kFewStrips * kWide;
  return in_place ? Left{at<float>(p.A, i * p.lda + d), p.lda, false} : Left{packed, depth, true};
}

// A block of the product, mc x nc over `depth`, as all threads compute it: each packs a part of both factors, then tasks of
// some rows and some strips are shared out.
struct Block {
  const Product& p;
  const Factors f;
  const MadeColumns* made;  // in place of p.B, where it is given
  float *A, *B;
  int64_t i0, rows, j0, columns, d0, depth;
  const Left left = left_factor(p, i0, d0, A, depth);

  // Strips by slices of the depth, for there may be fewer than threads.
  void pack(bool with_b) const {
    const int64_t slice = cut(depth, kDepth, made ? made->unit : 1), slices = ceil_div(depth, slice);
    const int64_t of_a = left.packed ? ceil_div(rows, kPanel) : 0, of_b = with_b ? strips() * slices : 0;
    parallel_for(of_a + of_b, std::max<int64_t>(1, kGrain / 4 / (slice * kWide)), [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        if (u < of_a) {
          const int64_t i = u * kPanel;
          pack_a(p, f, i0 + i, std::min<int64_t>(kPanel, rows - i), d0, depth, A + i * depth);
        } else {
          const int64_t j = (u - of_a) / slices * kWide, d = (u - of_a) % slices * slice;
          pack_b(p, f, made, j0 + j, std::min<int64_t>(kWide, columns - j), d0 + d, std::min(slice, depth - d),
                 B + j * depth + d * kWide);
        }
      }
    });
  }

  // By slices of the depth and blocks of columns, so that a panel stays in the first level cache and the strips in the second.
  void task(int64_t top, int64_t bottom, int64_t first, int64_t last) const {
    constexpr int64_t kStrips = kColumns / kWide;
    const int64_t deep = cut(depth, kDepth, 1);
    for (int64_t d = 0; d < depth; d += deep)
      for (int64_t left = first; left < last; left += kStrips)
        for (int64_t i = top; i < bottom; i += kPanel)
          for (int64_t s = left; s < std::min(left + kStrips, last); ++s) tile(i, std::min<int64_t>(kPanel, bottom - i), s, d, deep);
  }

  // Each thread computes a rectangle of the block, so that it reads few of the parts that others packed; in a few tasks, so
  // that others can take what it does not get to.
  void multiply(int64_t threads) const {
    constexpr int64_t kTasks = 4;
    const Rectangles grid(rows, strips(), threads);
    const bool by_strips = grid.strips >= kTasks;  // each strip is then read once
    const int64_t tasks = threads > 1 ? kTasks : 1;
    const int64_t height = by_strips ? grid.rows : cut(grid.rows, ceil_div(grid.rows, tasks), kPanel);
    const int64_t width = by_strips ? ceil_div(grid.strips, tasks) : grid.strips;
    parallel_for(grid.down * grid.across * tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t r = t / tasks, top = r / grid.across * grid.rows, left = r % grid.across * grid.strips;
        const int64_t low = top + (by_strips ? 0 : t % tasks * height), first = left + (by_strips ? t % tasks * width : 0);
        const int64_t bottom = std::min({low + height, top + grid.rows, rows});
        const int64_t last = std::min({first + width, left + grid.strips, strips()});
        task(low, bottom, first, last);
      }
    });
  }

 private:
  int64_t strips() const { return (columns + kWide - 1) / kWide; }
  void tile(int64_t i, int64_t height, int64_t s, int64_t d, int64_t deep) const {
    const int64_t j = s * kWide;
    multiply_strip(left, i, height, d, std::min(deep, depth - d), B + j * depth + d * kWide, kWide,
                   std::min<int64_t>(kWide, columns - j), d0 + d > 0 || p.beta != c128(0),
                   static_cast<float*>(p.C) + (i0 + i) * p.ldc + j0 + j, p.ldc);
  }
};

// The next panel of A, a few lines with each tile, into the second level cache: its rows are too short for the processor to
// find out by itself.
struct NextPanel {
  const char* row;
  int64_t step, lines, each, rows, line = 0;  // bytes between rows, lines of one, lines to fetch at a time, rows left
  NextPanel(const Product& p, const Factors& f, int64_t i, int64_t d, int64_t depth, int64_t strips)
      : row(reinterpret_cast<const char*>(at<float>(p.A, i * f.a_line + d * f.a_item))), step(f.a_line * 4),
        lines((depth + 15) / 16), each(ceil_div(kPanel * lines, strips)),
        rows(f.a_item == 1 ? std::clamp<int64_t>(p.m - i, 0, kPanel) : 0) {}
  void fetch() {
    for (int64_t n = 0; n < each && rows > 0; ++n) {
      __builtin_prefetch(row + line * 64, 0, 2);
      if (++line < lines) continue;
      line = 0, row += step, --rows;
    }
  }
};

// One thread: a block of B is packed for the second level cache, each panel of A where it is used.
void alone(const Product& p, const MadeColumns* made) {
  const Factors f(p);
  const int64_t deep = cut(p.k, kDepth, made ? made->unit : 1), nc = cut(p.n, kColumns, kWide);
  const Workspace memory(deep * (kPanel + nc) * 4);
  float *A = memory.get<float>(), *B = A + deep * kPanel;
  for (int64_t j = 0; j < p.n; j += nc)
    for (int64_t d = 0; d < p.k; d += deep) {
      const int64_t depth = std::min(deep, p.k - d), columns = std::min(nc, p.n - j), strips = ceil_div(columns, kWide);
      const bool add = d > 0 || p.beta != c128(0), with_first = !made && !p.transB;
      if (!with_first) pack_b(p, f, made, j, columns, d, depth, B);
      for (int64_t i = 0; i < p.m; i += kPanel) {
        const int64_t height = std::min<int64_t>(kPanel, p.m - i);
        const Left left = left_factor(p, i, d, A, depth);
        if (left.packed) pack_a(p, f, i, height, d, depth, A);
        NextPanel next(p, f, i + kPanel, d, depth, strips);
        for (int64_t s = 0; s < columns; s += kWide) {
          const int64_t width = std::min<int64_t>(kWide, columns - s);
          float *strip = B + s * depth, *c = static_cast<float*>(p.C) + i * p.ldc + j + s;
          next.fetch();
          if (i == 0 && with_first && first_panel(p, at<float>(p.B, j + s + d * p.ldb), width, depth, left, strip, add, c)) continue;
          multiply_strip(left, 0, height, 0, depth, strip, kWide, width, add, c, p.ldc);
        }
      }
    }
}

// All threads: both factors packed by blocks, of which few are best, for the threads meet twice for each.
void together(const Product& p, const MadeColumns* made) {
  const int64_t nc = cut(p.n, kManyColumns, kWide);
  const int64_t deep = cut(p.k, std::max(kManyDepth, kManyDepth * kManyColumns / (nc + p.m)), made ? made->unit : 1);
  const int64_t mc = cut(p.m, kManyRows, kPanel);
  const Workspace memory(deep * (mc + nc) * 4);
  float* B = memory.get<float>();
  for (int64_t j = 0; j < p.n; j += nc)
    for (int64_t d = 0; d < p.k; d += deep)
      for (int64_t i = 0; i < p.m; i += mc) {
        const Block block{p, Factors(p), made, B + deep * nc, B, i, std::min(mc, p.m - i), j, std::min(nc, p.n - j), d,
                          std::min(deep, p.k - d)};
        block.pack(i == 0);
        block.multiply(get_num_threads());
      }
}

void many_rows(const Product& p, const MadeColumns* made) {
  if (in_parallel() || get_num_threads() == 1 || p.m * p.n * p.k < kMeeting) alone(p, made);
  else together(p, made);
}

}  // namespace

static bool fits(const Product& p) {
  return p.n >= kLanes && p.alpha != c128(0) && (p.beta == c128(0) || p.beta == c128(1));
}

bool float_gemm(const Product& p) {
  if (!fits(p)) return false;
  if (!p.transA && p.alpha == c128(1) && p.n <= kNarrow && p.m > kFewRows) few_columns(p);
  else if (p.m <= kRows) few_rows(p);
  else many_rows(p, nullptr);
  return true;
}

void gemm_made(int64_t m, int64_t n, int64_t k, const float* A, int64_t lda, const MadeColumns& columns, bool add, float* C,
               int64_t ldc) {
  many_rows({false, false, m, n, k, 1.0, A, lda, nullptr, n, add ? 1.0 : 0.0, C, ldc}, &columns);
}

bool shared_gemm(DType dtype, const Product& p) {
  if (dtype != kFloat || !fits(p) || p.m <= kRows || p.k < kLanes || p.m * p.n * p.k < kShared) return false;
  if (!p.transA && p.n <= kNarrow) return false;  // pieces read A where it lies
  many_rows(p, nullptr);
  return true;
}

}  // namespace mt

#else
namespace mt {
bool float_gemm(const Product&) { return false; }
bool shared_gemm(DType, const Product&) { return false; }
}  // namespace mt
#endif
