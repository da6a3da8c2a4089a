// Convolutions in float32 that read the padded image itself instead of a matrix of patches: forward, weight gradient,
// and the input gradient where the stride is 1. Other dtypes and shapes are in conv.cpp.
#include <vector>

#include "padded.h"
#include "panel.h"
#include "parallel.h"
#include "workspace.h"

namespace mt {
namespace {

constexpr int64_t kSlice = 192;  // rows of patches per pass: what a strip of them reads fits the first level cache
constexpr int64_t kBlock = 384;  // positions per block: the results of a block stay in the second level cache
constexpr int64_t kLong = 1024;  // positions per sum of products: many for each sum across the lanes of a vector

// kRows filters by V vectors of positions; offset[d] is where row d of the patches begins.
template <int kRows, int V>
void direct_tile(const float* a, int64_t depth, const float* x, const int64_t* offset, bool add, float* c,
                 int64_t ldc) {
  Vec acc[kRows][V];
  MT_UNROLL for (int r = 0; r < kRows; ++r)
    MT_UNROLL for (int j = 0; j < V; ++j) acc[r][j] = Vec{};
  for (int64_t d = 0; d < depth; ++d, a += kRows) {
    Vec v[V];
    MT_UNROLL for (int j = 0; j < V; ++j) v[j] = load(x + offset[d] + j * kLanes);
    MT_UNROLL for (int r = 0; r < kRows; ++r)
      MT_UNROLL for (int j = 0; j < V; ++j) acc[r][j] += a[r] * v[j];
  }
  MT_UNROLL for (int r = 0; r < kRows; ++r)
    MT_UNROLL for (int j = 0; j < V; ++j) {
      float* to = c + r * ldc + j * kLanes;
      store(to, add ? load(to) + acc[r][j] : acc[r][j]);
    }
}

using DirectTile = void (*)(const float*, int64_t, const float*, const int64_t*, bool, float*, int64_t);
struct DirectTiles {
  template <int kRows, int V> constexpr DirectTile operator()() const { return direct_tile<kRows, V>; }
};

// c (rows x width) = weights in panels times the patches at x; width is a multiple of a vector.
void direct_multiply(const float* a, int64_t rows, const float* x, const std::vector<int64_t>& offset, int64_t width,
                     float* c, int64_t ldc) {
  static constexpr auto tiles = tile_table<DirectTile>(DirectTiles(), TileSizes());
  const int64_t depth = int64_t(offset.size());
  for (int64_t first = 0; first < depth; first += kSlice) {
    const int64_t slice = std::min(kSlice, depth - first);
    for (int64_t t = 0; t < width; t += kWide) {
      const auto& tile = tiles[std::min<int64_t>(width - t, kWide) / kLanes - 1];
      for (int64_t r = 0; r < rows; r += kPanel) {
        const int64_t height = std::min<int64_t>(kPanel, rows - r);
        tile[height - 1](a + r * depth + first * height, slice, x + t, offset.data() + first, first > 0,
                         c + r * ldc + t, ldc);
      }
    }
  }
}

// A block of four rows of a against three of b: 12 sums of products over n items, n a multiple of a vector.
template <int kRows, int kCols>
void dot_tile(const float* a, int64_t lda, const float* x, const int64_t* offset, int64_t n, float* c, int64_t ldc) {
  Vec acc[kRows][kCols] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec b[kCols];
    for (int j = 0; j < kCols; ++j) b[j] = load(x + offset[j] + i);
    for (int r = 0; r < kRows; ++r) {
      const Vec v = load(a + r * lda + i);
      for (int j = 0; j < kCols; ++j) acc[r][j] += v * b[j];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kCols; ++j) {
      float sum = 0;
      for (int l = 0; l < kLanes; ++l) sum += acc[r][j][l];
      c[r * ldc + j] += sum;
    }
}

// c (rows x offsets) += a (rows x n) times the patches at x, turned. The rows of a change slowest: three taps that are
// neighbours share cache lines, four rows of a do not.
void dot_multiply(const float* a, int64_t lda, int64_t rows, const float* x, const std::vector<int64_t>& offset,
                  int64_t n, float* c) {
  const int64_t depth = int64_t(offset.size());
  for (int64_t r = 0; r < rows; r += 4)
    for (int64_t d = 0; d < depth; d += 3) {
      const float* from = a + r * lda;
      float* to = c + r * depth + d;
      const bool whole_rows = rows - r >= 4, whole_cols = depth - d >= 3;
      if (whole_rows && whole_cols) {
        dot_tile<4, 3>(from, lda, x, offset.data() + d, n, to, depth);
        continue;
      }
      for (int64_t i = r; i < std::min(r + 4, rows); ++i)
        for (int64_t j = d; j < std::min(d + 3, depth); ++j)
          dot_tile<1, 1>(a + i * lda, lda, x, offset.data() + j, n, c + i * depth + j, depth);
    }
}

// Room for the padded channels of a group, and past the end: vectors read a little beyond the last position.
std::unique_ptr<float[]> padded_room(int64_t items) { return std::unique_ptr<float[]>(new float[items + kBlock]()); }

constexpr int64_t kRoom = 4 << 20;  // items of the copies that all threads share

// The padded channels of several images and groups, which all threads write and read.
class PaddedUnits {
 public:
  PaddedUnits(const Padded& p, int64_t units) : p_(p), memory_((units * room() + kBlock) * 4) {
    std::fill_n(unit(units), kBlock, 0.f);
  }
  float* unit(int64_t i) const { return memory_.get<float>() + i * room(); }
  void load(const float* x, int64_t units) const {
    parallel_for(units * p_.s.cg(), kGrain / p_.items() + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* copy = unit(0) + i * p_.items();
        std::fill_n(copy, p_.items(), 0.f);
        p_.load(x + i * p_.s.x_plane(), copy);
      }
    });
  }

 private:
  int64_t room() const { return p_.s.cg() * p_.items(); }
  const Padded& p_;
  const Workspace memory_;
};

// The results of positions [p0, p0 + width) as `rows` rows of y.
void store_block(const Padded& p, const float* from, int64_t rows, int64_t p0, int64_t width, const float* bias, float* y) {
  const Conv& s = p.s;
  for (int64_t k = 0; k < rows; ++k, y += s.y_plane(), from += kBlock) {
    const float b = bias ? bias[k] : 0.f;
    const int64_t line = p0 / p.q[2], last = (p0 + width - 1) / p.q[2];
    for (int64_t i = line; i <= last; ++i) {
      const int64_t d = i / p.q[1], h = i % p.q[1], start = i * p.q[2];
      if (h >= s.out[1]) continue;
      const int64_t lo = std::max(start, p0), hi = std::min(start + s.out[2], p0 + width);
      float* to = y + (d * s.out[1] + h) * s.out[2] - start;
      for (int64_t j = lo; j < hi; ++j) to[j] = from[j - p0] + b;
    }
  }
}

// The forward of one group of one image after another: copied into its padding, then by blocks of positions and of filters.
struct Forward {
  const Conv& s;
  const float *x, *bias;
  float* y;
  const Padded p;
  const std::vector<int64_t> offset;
  const int64_t kg, depth, blocks;  // blocks of positions
  std::unique_ptr<float[]> panels;

  Forward(const Conv& shape, const float* x_, const float* w, const float* b, float* y_)
      : s(shape), x(x_), bias(b), y(y_), p(s), offset(p.offsets(s.cg())), kg(s.kg()), depth(s.cg() * s.taps()),
        blocks(ceil_div(p.positions(), kBlock)), panels(new float[s.k * depth]) {
    const int64_t per_group = ceil_div(kg, kPanel);
    parallel_for(s.groups * per_group, kGrain / (kPanel * depth) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = i / per_group * kg, r = i % per_group * kPanel;
        pack_panels(w + (k + r) * depth, depth, 1, std::min<int64_t>(kPanel, kg - r), depth, panels.get() + (k + r) * depth);
      }
    });
  }

  int64_t room() const { return s.cg() * p.items(); }
  void load(int64_t unit, int64_t c, float* copy) const {
    p.load(x + (unit * s.cg() + c) * s.x_plane(), copy + c * p.items());
  }
  // Positions of one block, filters [r, r + rows) of the group; `sums` has room for rows x kBlock.
  void multiply(int64_t unit, const float* copy, int64_t block, int64_t r, int64_t rows, float* sums) const {
    const int64_t k = unit % s.groups * kg + r, p0 = block * kBlock, width = std::min(kBlock, p.positions() - p0);
    direct_multiply(panels.get() + k * depth, rows, copy + p0, offset, whole(width), sums, kBlock);
    store_block(p, sums, rows, p0, width, bias ? bias + k : nullptr, y + (unit * kg + r) * s.y_plane());
  }

  // Each thread takes whole images.
  void by_images() const {
    parallel_for(s.n * s.groups, 1, [&](int64_t begin, int64_t end) {
      auto copy = padded_room(room());
      std::unique_ptr<float[]> sums(new float[kg * kBlock]);
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t c = 0; c < s.cg(); ++c) load(i, c, copy.get());
        for (int64_t b = 0; b < blocks; ++b) multiply(i, copy.get(), b, 0, kg, sums.get());
      }
    });
  }
  // All threads share the blocks of some images; where those are few, also the filters.
  void by_blocks() const {
    constexpr int64_t kLeast = 4 * kPanel;
    const int64_t units = s.n * s.groups, most = std::clamp<int64_t>(kRoom / room(), 1, units);
    const PaddedUnits copies(p, most);
    for (int64_t first = 0; first < units; first += most) {
      const int64_t count = std::min(most, units - first);
      copies.load(x + first * s.cg() * s.x_plane(), count);
      const int64_t splits = std::clamp<int64_t>(ceil_div(3 * get_num_threads(), count * blocks), 1, ceil_div(kg, kLeast));
      const int64_t rows = ceil_div(ceil_div(kg, splits), kPanel) * kPanel, parts = ceil_div(kg, rows);
      parallel_for(count * blocks * parts, 1, [&](int64_t begin, int64_t end) {
        std::unique_ptr<float[]> sums(new float[rows * kBlock]);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t r = i % parts * rows, b = i / parts % blocks, unit = i / parts / blocks;
          multiply(first + unit, copies.unit(unit), b, r, std::min(rows, kg - r), sums.get());
        }
      });
    }
  }
};

}  // namespace

bool direct_fits(DType dtype, const Conv& s) {
  if (dtype != kFloat) return false;
  Padded p(s);
  return s.cg() * p.items() <= (16 << 20) && 2 * s.y_plane() >= p.positions();
}

void direct_forward(const Conv& s, const float* x, const float* w, const float* bias, float* y) {
  const Forward f(s, x, w, bias, y);
  if (get_num_threads() == 1 || s.n * s.groups >= 2 * get_num_threads()) f.by_images();
  else f.by_blocks();
}

bool direct_input_grad_fits(DType dtype, const Conv& s) {
  for (int d = 0; d < 3; ++d) {
    const int64_t reach = s.dilation[d] * (s.kernel[d] - 1);
    if (s.stride[d] != 1 || s.pad[d] > reach || s.in[d] + 2 * s.pad[d] - reach != s.out[d]) return false;
  }
  return direct_fits(dtype, s);
}

// The forward of the turned filters, from the channels of y to those of x.
void direct_input_grad(const Conv& s, const float* gy, const float* w, const float* bias, float* gx) {
  Conv turned = s;
  std::swap(turned.c, turned.k);
  for (int d = 0; d < 3; ++d) {
    std::swap(turned.in[d], turned.out[d]);
    turned.pad[d] = s.dilation[d] * (s.kernel[d] - 1) - s.pad[d];
  }
  const int64_t kg = s.kg(), cg = s.cg(), taps = s.taps();
  std::vector<float> v(s.k * cg * taps);
  for (int64_t k = 0; k < s.k; ++k)
    for (int64_t c = 0; c < cg; ++c)
      for (int64_t t = 0; t < taps; ++t)
        v[((k / kg * cg + c) * kg + k % kg) * taps + t] = w[(k * cg + c) * taps + taps - 1 - t];
  direct_forward(turned, gy, v.data(), bias, gx);
}

// The products that sum the weight gradient: filters times patches over the positions of one image and group. gy goes into
// the layout of the positions, with zeros for the junk.
struct WeightGrad {
  const Conv& s;
  const float *x, *gy;
  const Padded p{s};
  const std::vector<int64_t> offset = p.offsets(s.cg());
  const int64_t kg = s.kg(), depth = s.cg() * s.taps(), units = s.n * s.groups, ld = ceil_div(p.positions(), kLanes) * kLanes;

  void load_rows(int64_t unit, int64_t k, float* row) const {  // of zeros
    const float* from = gy + (unit * kg + k) * s.y_plane();
    p.for_each_output_row([&](int64_t out, int64_t at) { std::copy(from + out, from + out + s.out[2], row + at); });
  }
  // Positions from p0 on, kLong of them.
  void add(int64_t unit, const float* copy, const float* rows, int64_t p0, float* sum) const {
    dot_multiply(rows + p0, ld, kg, copy + p0, offset, std::min(kLong, ld - p0), sum + unit % s.groups * kg * depth);
  }

  // The images and groups of one thread, one after another.
  void sum_units(int64_t begin, int64_t end, float* sum) const {
    auto copy = padded_room(s.cg() * p.items());
    std::unique_ptr<float[]> rows(new float[kg * ld]());
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t c = 0; c < s.cg(); ++c) p.load(x + (i * s.cg() + c) * s.x_plane(), copy.get() + c * p.items());
      for (int64_t k = 0; k < kg; ++k) load_rows(i, k, rows.get() + k * ld);
      for (int64_t p0 = 0; p0 < ld; p0 += kLong) add(i, copy.get(), rows.get(), p0, sum);
    }
  }
  // Fewer of those than threads, which share their positions: part `part` sums into sums(part).
  template <class Sums> void sum_positions(int64_t parts, Sums sums) const {
    const int64_t most = std::clamp<int64_t>(kRoom / (s.cg() * p.items() + kg * ld), 1, units), chunks = ceil_div(ld, kLong);
    const PaddedUnits copies(p, most);
    const Workspace memory(most * kg * ld * 4);
    float* rows = memory.get<float>();
    for (int64_t first = 0; first < units; first += most) {
      const int64_t count = std::min(most, units - first), tasks = count * chunks;
      copies.load(x + first * s.cg() * s.x_plane(), count);
      parallel_for(count * kg, kGrain / ld + 1, [&](int64_t begin, int64_t end) {
        std::fill(rows + begin * ld, rows + end * ld, 0.f);
        for (int64_t i = begin; i < end; ++i) load_rows(first + i / kg, i % kg, rows + i * ld);
      });
      parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; ++part)
          for (int64_t i = tasks * part / parts; i < tasks * (part + 1) / parts; ++i)
            add(first + i / chunks, copies.unit(i / chunks), rows + i / chunks * kg * ld, i % chunks * kLong, sums(part));
      });
    }
  }
};

// Each thread sums into a matrix of its own.
void direct_weight_grad(const Conv& s, const float* x, const float* gy, float* gw) {
  const WeightGrad g{s, x, gy};
  const int64_t size = s.k * g.depth, threads = get_num_threads(), chunks = ceil_div(g.ld, kLong);
  const bool by_positions = g.units < threads && chunks > 1;
  const int64_t parts = std::clamp<int64_t>((16 << 20) / size, 1, std::min(threads, g.units * (by_positions ? chunks : 1)));
  std::vector<float> partial((parts - 1) * size);
  const auto sums = [&](int64_t part) { return part == 0 ? gw : partial.data() + (part - 1) * size; };
  std::fill(gw, gw + size, 0.f);
  if (by_positions)
    g.sum_positions(parts, sums);
  else
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) g.sum_units(g.units * i / parts, g.units * (i + 1) / parts, sums(i));
    });
  parallel_for(size, kGrain / parts + 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = begin; i < end; ++i) gw[i] += partial[(part - 1) * size + i];
  });
}

}  // namespace mt
