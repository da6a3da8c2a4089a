// 3x3 convolutions of stride 1 in float32 by Winograd's F(2x2, 3x3), forward and both gradients; no other shapes.
// Larger tiles save more products but lose two digits: F(2x2) is as exact as the direct sum.
#include <atomic>
#include <vector>

#include "conv.h"
#include "gemm.h"
#include "indexing.h"
#include "lane_planes.h"
#include "panel.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

constexpr int kPoints = 16;         // 4x4 points of a transformed tile
constexpr int64_t kFewOutputs = 96;

// Every tile row of every image, cut into segments of `tiles` tiles, `segments` of which make a block. Segments are
// worked off in order and by whole vectors: what one writes past its end the next one overwrites.
struct Tiling {
  int64_t cuts, tiles, segments, total, rows;  // rows: tile rows per image
  int64_t ld;                                  // items per channel of a block

  // Blocks of at most `most` tiles, and at least `blocks` of them where there are so many segments.
  Tiling(const Conv& s, int64_t most, int64_t blocks) {
    int64_t across = ceil_div(s.out[2], 2);
    rows = ceil_div(s.out[1], 2);
    cuts = ceil_div(across, std::max<int64_t>(most, 64));
    tiles = ceil_div(across, cuts);
    total = s.n * rows * cuts;
    segments = std::clamp<int64_t>(most / tiles, 1, std::max<int64_t>(ceil_div(total, blocks), 1));
    ld = whole((segments - 1) * tiles + whole(tiles));
    if (ld % 64 == 0) ld += kLanes;
  }
  int64_t blocks() const { return ceil_div(total, segments); }
  // Items between points. An odd number of cache lines: 16 points are read side by side and must not share a set.
  int64_t point(int64_t channels) const { return (channels * ld / 16 | 1) * 16 + 32; }
  int64_t scratch() const { return 8 * (whole(tiles) + kLanes); }
};

struct Place {  // of a segment: image, and the first output row and column
  int64_t n, row, col;
  Place(const Tiling& t, int64_t segment)
      : n(segment / t.cuts / t.rows), row(segment / t.cuts % t.rows * 2), col(segment % t.cuts * t.tiles * 2) {}
};

// Two vectors of a row, of which only the items [lo, hi) exist; the others are 0.
struct Pair { Vec a, b; };
inline Pair load_pair(const float* row, int64_t i, int64_t lo, int64_t hi) {
  if (i >= lo && i + 2 * kLanes <= hi) return {load(row + i), load(row + i + kLanes)};
  float part[2 * kLanes] = {};
  for (int64_t j = std::max(i, lo); j < std::min(i + 2 * kLanes, hi); ++j) part[j - i] = row[j];
  return {load(part), load(part + kLanes)};
}
inline void store_pair(float* row, int64_t i, int64_t hi, Pair p) {
  if (i + 2 * kLanes <= hi) return store(row + i, p.a), store(row + i + kLanes, p.b);
  float part[2 * kLanes];
  store(part, p.a), store(part + kLanes, p.b);
  for (int64_t j = i; j < hi; ++j) row[j] = part[j - i];
}

// V = B^T d B for one channel of a segment; point i goes to v[i * point + tile]. Each image row is split into its even
// and its odd columns, so that neighbouring tiles are neighbouring lanes.
void transform_input(const Conv& s, const float* plane, const Place& at, int64_t tiles, float* v, int64_t point,
                     float* scratch) {
  const int64_t half = whole(tiles) + kLanes, width = 2 * half, x0 = at.col - s.pad[2], y0 = at.row - s.pad[1];
  const int64_t lo = std::clamp<int64_t>(-x0, 0, width), hi = std::clamp<int64_t>(s.in[2] - x0, lo, width);
  for (int i = 0; i < 4; ++i) {
    const bool inside = y0 + i >= 0 && y0 + i < s.in[1];
    const float* from = plane + (y0 + i) * s.in[2] + x0;
    float *even = scratch + i * width, *odd = even + half;
    for (int64_t t = 0; t <= tiles; t += kLanes) {
      const Pair p = load_pair(from, 2 * t, lo, inside ? hi : lo);
      store(even + t, MT_EVEN(p.a, p.b));
      store(odd + t, MT_ODD(p.a, p.b));
    }
  }
  for (int64_t t = 0; t < tiles; t += kLanes) {
    Vec h[4][4];
    for (int i = 0; i < 4; ++i) {
      const float *even = scratch + i * width + t, *odd = even + half;
      Vec e = load(even), e1 = load(even + 1), o = load(odd), o1 = load(odd + 1);
      h[i][0] = e - e1;
      h[i][1] = o + e1;
      h[i][2] = e1 - o;
      h[i][3] = o - o1;
    }
    for (int j = 0; j < 4; ++j) {
      float* to = v + j * point + t;
      store(to, h[0][j] - h[2][j]);
      store(to + 4 * point, h[1][j] + h[2][j]);
      store(to + 8 * point, h[2][j] - h[1][j]);
      store(to + 12 * point, h[1][j] - h[3][j]);
    }
  }
}

// 0, or NaN where an item is not finite; the row was just written, and lies in the first cache.
float not_finite(const float* p, int64_t n) {
  constexpr int kSums = 16;
  float sums[kSums] = {}, sum = 0;
  int64_t j = 0;
  for (; j + kSums <= n; j += kSums)
    for (int l = 0; l < kSums; ++l) sums[l] += p[j + l] * 0.f;
  for (; j < n; ++j) sum += p[j] * 0.f;
  for (float l : sums) sum += l;
  return sum;
}

// y = A^T m A + bias for one channel of a segment, clipped to the image. Returns NaN if some of y is not finite, else 0.
float transform_output(const Conv& s, const float* m, int64_t point, const Place& at, int64_t tiles, float bias,
                       float* plane) {
  const int64_t count = std::min(2 * tiles, s.out[2] - at.col);
  float *top = plane + at.row * s.out[2] + at.col, *low = top + s.out[2];
  const bool second = at.row + 1 < s.out[1];
  for (int64_t t = 0; t < tiles; t += kLanes) {
    Vec l[4], r[4];
    for (int i = 0; i < 4; ++i) {
      const float* q = m + 4 * i * point + t;
      Vec b = load(q + point), c = load(q + 2 * point);
      l[i] = load(q) + (b + c);
      r[i] = (b - c) - load(q + 3 * point);
    }
    Vec tl = l[0] + (l[1] + l[2]) + bias, tr = r[0] + (r[1] + r[2]) + bias;
    store_pair(top, 2 * t, count, {MT_ZIP_LOW(tl, tr), MT_ZIP_HIGH(tl, tr)});
    if (!second) continue;
    Vec bl = (l[1] - l[2]) - l[3] + bias, br = (r[1] - r[2]) - r[3] + bias;
    store_pair(low, 2 * t, count, {MT_ZIP_LOW(bl, br), MT_ZIP_HIGH(bl, br)});
  }
  return not_finite(top, count) + (second ? not_finite(low, count) : 0.f);
}

// The adjoint of transform_output: m = A g A^T, pixels outside the image count as 0.
void spread_output(const Conv& s, const float* plane, const Place& at, int64_t tiles, float* m, int64_t point) {
  const int64_t count = std::min(2 * tiles, s.out[2] - at.col);
  const float *top = plane + at.row * s.out[2] + at.col, *low = top + s.out[2];
  const bool second = at.row + 1 < s.out[1];
  for (int64_t t = 0; t < tiles; t += kLanes) {
    const Pair p = load_pair(top, 2 * t, 0, count), q = load_pair(low, 2 * t, 0, second ? count : 0);
    const Vec a = MT_EVEN(p.a, p.b), b = MT_ODD(p.a, p.b), c = MT_EVEN(q.a, q.b), d = MT_ODD(q.a, q.b);
    const Vec l[4] = {a, a + c, a - c, -c}, r[4] = {b, b + d, b - d, -d};
    for (int i = 0; i < 4; ++i) {
      float* to = m + 4 * i * point + t;
      store(to, l[i]);
      store(to + point, l[i] + r[i]);
      store(to + 2 * point, l[i] - r[i]);
      store(to + 3 * point, -r[i]);
    }
  }
}

// The tiles of one filter's gradient in the segments [first, last).
void spread_filter(const Conv& s, const Tiling& t, const float* gy, int64_t k, int64_t first, int64_t last, float* m,
                   int64_t point) {
  for (int64_t i = first; i < last; ++i) {
    const Place at(t, i);
    spread_output(s, gy + (at.n * s.k + k) * s.y_plane(), at, t.tiles, m + (i - first) * t.tiles, point);
  }
}

// Items between the points of U; an odd number of cache lines, as for V.
int64_t weight_point(int64_t filters, int64_t channels) { return (filters * channels / 16 | 1) * 16 + 32; }

// The 3x3 weights at each of some places, a place in each lane. `end`: of the memory, which nothing is read beyond.
void load_filters(const float* const (&place)[kLanes], const float* end, Vec (&g)[9]) {
  int t = 0;
  // A vector that is wider than a filter reads into the next one: the very last filter, which has none, is in the last lane.
  for (; t + kLanes <= 9 || (t == 0 && place[kLanes - 1] + kLanes <= end); t += kLanes) {
    Vec r[kLanes];
    MT_UNROLL for (int l = 0; l < kLanes; ++l) r[l] = load(place[l] + t);
    PlaneLanes<float>::transpose(r);
    for (int i = 0; i < kLanes && t + i < 9; ++i) g[t + i] = r[i];
  }
  for (; t < 9; ++t)
    for (int l = 0; l < kLanes; ++l) g[t][l] = place[l][t];
}

// G g G^T of a filter in each lane.
void transform_filters(const Vec (&g)[9], bool turn, Vec (&u)[kPoints]) {
  Vec h[4][3];
  MT_UNROLL for (int j = 0; j < 3; ++j) {
    const Vec a = g[turn ? 8 - j : j], b = g[turn ? 5 - j : 3 + j], c = g[turn ? 2 - j : 6 + j];
    h[0][j] = a;
    h[1][j] = .5f * (a + b + c);
    h[2][j] = .5f * (a - b + c);
    h[3][j] = c;
  }
  MT_UNROLL for (int j = 0; j < 4; ++j) {
    u[4 * j] = h[j][0];
    u[4 * j + 1] = .5f * (h[j][0] + h[j][1] + h[j][2]);
    u[4 * j + 2] = .5f * (h[j][0] - h[j][1] + h[j][2]);
    u[4 * j + 3] = h[j][2];
  }
}

// The filters of a convolution: those of output o and channel i are at w[o * so + i * si], turned half round when `turn`.
struct Filters {
  const float* w;
  int64_t so, si;
  bool turn;
};

// U = G w G^T per point: a matrix in panels (panel.h), or row by row.
void transform_weights(const Filters& f, int64_t filters, int64_t channels, bool panels, float* u) {
  const int64_t point = weight_point(filters, channels), most = panels ? kPanel : 1;
  const float* end = f.w + filters * channels * 9;
  parallel_for(ceil_div(filters, most), std::max<int64_t>(8192 / (channels * most), 1), [&](int64_t begin, int64_t last) {
    for (int64_t first = begin * most; first < std::min(last * most, filters); first += most) {
      const int64_t height = std::min<int64_t>(most, filters - first), items = height * channels;
      int64_t row = 0, channel = 0;  // of the next place: rows change fastest
      for (int64_t at = 0; at < items; at += kLanes) {
        const int count = int(std::min<int64_t>(kLanes, items - at));
        const float* place[kLanes];
        for (int l = 0; l < kLanes; ++l) {
          place[l] = l < count ? f.w + (first + row) * f.so + channel * f.si : place[l - 1];
          if (l < count && ++row == height) row = 0, ++channel;
        }
        Vec g[9], made[kPoints];
        load_filters(place, end, g);
        transform_filters(g, f.turn, made);
        float* to = u + first * channels + at;
        for (int p = 0; p < kPoints; ++p) {
          if (count == kLanes) store(to + p * point, made[p]);
          else for (int l = 0; l < count; ++l) to[p * point + l] = made[p][l];
        }
      }
    }
  });
}

// Of one channel: its tiles in the segments [first, last). The lanes past the last tile are computed with, so they are set.
void transform_channel(const Conv& s, const Tiling& t, const float* x, int64_t c, int64_t first, int64_t last, float* v,
                       int64_t point, float* scratch) {
  for (int64_t i = first; i < last; ++i) {
    const Place at(t, i);
    transform_input(s, x + (at.n * s.c + c) * s.x_plane(), at, t.tiles, v + (i - first) * t.tiles, point, scratch);
  }
  const int64_t written = (last - first - 1) * t.tiles + whole(t.tiles), end = whole((last - first) * t.tiles);
  for (int p = 0; p < kPoints && written < end; ++p) std::fill(v + p * point + written, v + p * point + end, 0.f);
}

// y of one filter in the segments [first, last); NaN if some of it is not finite, else 0.
float finish_filter(const Conv& s, const Tiling& t, const float* m, int64_t point, int64_t k, int64_t first, int64_t last,
                    const float* bias, float* y) {
  float odd = 0;
  for (int64_t i = first; i < last; ++i) {
    const Place at(t, i);
    odd += transform_output(s, m + (i - first) * t.tiles, point, at, t.tiles, bias ? bias[k] : 0.f,
                            y + (at.n * s.k + k) * s.y_plane());
  }
  return odd;
}

// Tiles per block that the second level cache holds, with the transformed channels and results of each.
int64_t cached_tiles(const Conv& s) { return std::max<int64_t>((14 << 10) / (s.c + s.k), 96); }
// And per chunk, where the threads share one: 32 MiB.
int64_t shared_tiles(const Conv& s) { return std::max<int64_t>((8 << 20) / (kPoints * (s.c + s.k)), 96); }

using Floats = indexing::Scratch<float>;

// For transform_input, which reads a little more than it wrote: zeros, because old memory may hold subnormal numbers, with
// which some processors compute a hundred times slower.
std::unique_ptr<float[]> row_memory(const Tiling& t) { return std::unique_ptr<float[]>(new float[t.scratch()]()); }

// Each thread takes whole blocks: for images with many tiles.
bool run_blocks(const Conv& s, const Tiling& tiling, const float* x, const Filters& f, const float* bias, float* y) {
  std::atomic<bool> finite{true};
  const int64_t up = weight_point(s.k, s.c);
  Floats u(kPoints * up);
  transform_weights(f, s.k, s.c, true, u.get());
  parallel_for(tiling.blocks(), 1, [&](int64_t begin, int64_t end) {
    const int64_t ld = tiling.ld, vp = tiling.point(s.c), mp = tiling.point(s.k);
    Floats v(kPoints * vp), m(kPoints * mp);
    auto rows = row_memory(tiling);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * tiling.segments, last = std::min(first + tiling.segments, tiling.total);
      const int64_t width = whole((last - first) * tiling.tiles);
      for (int64_t c = 0; c < s.c; ++c) transform_channel(s, tiling, x, c, first, last, v.get() + c * ld, vp, rows.get());
      for (int64_t p = 0; p < kPoints; ++p)
        panel_multiply(u.get() + p * up, s.k, s.c, v.get() + p * vp, ld, width, false, m.get() + p * mp, ld);
      float odd = 0;
      for (int64_t k = 0; k < s.k; ++k) odd += finish_filter(s, tiling, m.get() + k * ld, mp, k, first, last, bias, y);
      if (odd != 0) finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite;
}

// All threads share each step of a chunk: channels, then points, then filters. For few tiles and many channels, where
// blocks for each thread would be narrow, and every one would read all weights.
bool run_shared(const Conv& s, const Tiling& tiling, const float* x, const Filters& f, const float* bias, float* y) {
  std::atomic<bool> finite{true};
  const int64_t up = weight_point(s.k, s.c), ld = tiling.ld, vp = tiling.point(s.c), mp = tiling.point(s.k);
  Floats u(kPoints * up), v(kPoints * vp), m(kPoints * mp);
  transform_weights(f, s.k, s.c, false, u.get());
  for (int64_t first = 0; first < tiling.total; first += tiling.segments) {
    const int64_t last = std::min(first + tiling.segments, tiling.total), width = (last - first) * tiling.tiles;
    parallel_for(s.c, 1024 / width + 1, [&](int64_t begin, int64_t end) {
      auto rows = row_memory(tiling);
      for (int64_t c = begin; c < end; ++c)
        transform_channel(s, tiling, x, c, first, last, v.get() + c * ld, vp, rows.get());
    });
    gemm_batched(kFloat, false, false, kPoints, s.k, width, s.c, 1.0, u.get(), s.c, up, v.get(), ld, vp, 0.0, m.get(),
                 ld, mp);
    parallel_for(s.k, 1024 / width + 1, [&](int64_t begin, int64_t end) {
      float odd = 0;
      for (int64_t k = begin; k < end; ++k) odd += finish_filter(s, tiling, m.get() + k * ld, mp, k, first, last, bias, y);
      if (odd != 0) finite.store(false, std::memory_order_relaxed);
    });
  }
  return finite;
}

// y = conv(x). False where some of y is not finite: the transforms add and subtract neighbours, so that an infinity
// becomes NaN.
bool run(const Conv& s, const float* x, const Filters& f, const float* bias, float* y) {
  const int64_t threads = get_num_threads();
  if (threads > 1 && Tiling(s, cached_tiles(s), 1).blocks() < 2 * threads)  // too few blocks for the threads
    return run_shared(s, Tiling(s, shared_tiles(s), 1), x, f, bias, y);
  return run_blocks(s, Tiling(s, cached_tiles(s), 2 * threads), x, f, bias, y);
}

// w = G^T u G, the adjoint of transform_weights; u[point][k * c].
void gather_weights(const float* u, int64_t pairs, float* w) {
  parallel_for(pairs, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float h[3][4], q[4][4];
      for (int p = 0; p < kPoints; ++p) q[p / 4][p % 4] = u[p * pairs + i];
      for (int j = 0; j < 4; ++j) {
        float sum = .5f * (q[1][j] + q[2][j]), difference = .5f * (q[1][j] - q[2][j]);
        h[0][j] = q[0][j] + sum;
        h[1][j] = difference;
        h[2][j] = sum + q[3][j];
      }
      for (int j = 0; j < 3; ++j) {
        float sum = .5f * (h[j][1] + h[j][2]), difference = .5f * (h[j][1] - h[j][2]);
        w[i * 9 + j * 3] = h[j][0] + sum;
        w[i * 9 + j * 3 + 1] = difference;
        w[i * 9 + j * 3 + 2] = sum + h[j][3];
      }
    }
  });
}

// Threads share each step, as in run_shared: for many weights, of which each thread would need a sum of its own.
void shared_weight_grad(const Conv& s, const float* x, const float* gy, float* u) {
  const Tiling tiling(s, shared_tiles(s), 1);
  const int64_t pairs = s.c * s.k, ld = tiling.ld, vp = tiling.point(s.c), mp = tiling.point(s.k);
  Floats v(kPoints * vp), m(kPoints * mp);
  for (int64_t first = 0; first < tiling.total; first += tiling.segments) {
    const int64_t last = std::min(first + tiling.segments, tiling.total), width = (last - first) * tiling.tiles;
    parallel_for(s.c + s.k, 1024 / width + 1, [&](int64_t begin, int64_t end) {
      auto rows = row_memory(tiling);
      for (int64_t c = begin; c < end; ++c) {
        if (c < s.c) transform_channel(s, tiling, x, c, first, last, v.get() + c * ld, vp, rows.get());
        else spread_filter(s, tiling, gy, c - s.c, first, last, m.get() + (c - s.c) * ld, mp);
      }
    });
    gemm_batched(kFloat, false, true, kPoints, s.k, s.c, width, 1.0, m.get(), ld, mp, v.get(), ld, vp,
                 first ? 1.0 : 0.0, u, s.c, pairs);
  }
}

// Each thread sums over blocks of its own.
void split_weight_grad(const Conv& s, const Tiling& tiling, const float* x, const float* gy, int64_t parts, float* u) {
  const int64_t pairs = s.c * s.k, blocks = tiling.blocks();
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    const int64_t ld = tiling.ld, tiles = tiling.tiles, vp = tiling.point(s.c), mp = tiling.point(s.k);
    Floats v(kPoints * vp), m(kPoints * mp);
    auto rows = row_memory(tiling);
    float* sum = u + begin * kPoints * pairs;
    std::fill(sum, u + end * kPoints * pairs, 0.f);
    for (int64_t block = blocks * begin / parts; block < blocks * end / parts; ++block) {
      const int64_t first = block * tiling.segments, last = std::min(first + tiling.segments, tiling.total);
      for (int64_t c = 0; c < s.c; ++c) transform_channel(s, tiling, x, c, first, last, v.get() + c * ld, vp, rows.get());
      for (int64_t k = 0; k < s.k; ++k) spread_filter(s, tiling, gy, k, first, last, m.get() + k * ld, mp);
      for (int64_t p = 0; p < kPoints; ++p)
        gemm(kFloat, false, true, s.k, s.c, (last - first) * tiles, 1.0, m.get() + p * mp, ld, v.get() + p * vp, ld, 1.0,
             sum + p * pairs, s.c);
    }
  });
  parallel_for(kPoints * pairs, kGrain / parts + 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = begin; i < end; ++i) u[i] += u[part * kPoints * pairs + i];
  });
}

}  // namespace

bool winograd_fits(DType dtype, const Conv& s) {
  if (dtype != kFloat || s.groups != 1) return false;
  if (s.kernel[0] != 1 || s.in[0] != 1 || s.pad[0] != 0 || s.out[0] != 1) return false;
  for (int d = 1; d < 3; ++d)
    if (s.kernel[d] != 3 || s.stride[d] != 1 || s.dilation[d] != 1 || s.pad[d] > 2) return false;
  // With few outputs the transformed weights, nearly twice as many, cost more memory traffic than products are saved.
  return s.c >= 16 && s.k >= 16 && s.out[1] >= 2 && s.out[2] >= 4 && s.n * s.y_plane() >= kFewOutputs;
}

bool winograd_forward(const Conv& s, const float* x, const float* w, const float* bias, float* y) {
  return run(s, x, {w, s.c * 9, 9, false}, bias, y);
}

bool winograd_input_grad(const Conv& s, const float* gy, const float* w, const float* bias, float* gx) {
  Conv turned = s;
  std::swap(turned.c, turned.k);
  for (int d = 1; d < 3; ++d) {
    std::swap(turned.in[d], turned.out[d]);
    turned.pad[d] = 2 - s.pad[d];
  }
  return run(turned, gy, {w, 9, s.c * 9, true}, bias, gx);
}

bool winograd_weight_grad(const Conv& s, const float* x, const float* gy, float* gw) {
  const Tiling tiling(s, std::clamp<int64_t>((24 << 10) / (s.c + s.k), 192, 512), 2 * get_num_threads());
  const int64_t pairs = s.c * s.k, parts = std::min<int64_t>(get_num_threads(), tiling.blocks());
  const bool shared = parts > 1 && parts * kPoints * pairs > (2 << 20);    // 8 MiB of sums
  Floats u((shared ? 1 : parts) * kPoints * pairs);
  if (shared) shared_weight_grad(s, x, gy, u.get());
  else split_weight_grad(s, tiling, x, gy, parts, u.get());
  gather_weights(u.get(), pairs, gw);
  return not_finite(gw, pairs * 9) == 0;
}

}  // namespace mt
