// The fold engine: brings a reduction of any shape, strides, dtype and thread count to the loops of a Fold.
#include "reduce.h"

#include <string>

namespace mt {

int wrap_dim(int64_t dim, int ndim) {
  int64_t n = std::max(ndim, 1);
  if (dim < -n || dim >= n)
    throw std::out_of_range("Dimension out of range (expected to be in range of [" + std::to_string(-n) + ", " +
                            std::to_string(n - 1) + "], but got " + std::to_string(dim) + ")");
  return int(dim < 0 ? dim + n : dim);
}

uint64_t dim_mask(const Attr* list, int ndim) {
  if (!list || !list->given || list->n == 0) return ~uint64_t(0);
  if (ndim > 64) throw std::runtime_error("only tensors with up to 64 dims are supported");
  uint64_t mask = 0;
  for (int i = 0; i < list->n; ++i) {
    int d = wrap_dim(list->list[i], ndim);
    if (mask >> d & 1)
      throw std::runtime_error("dim " + std::to_string(d) + " appears multiple times in the list of dims");
    mask |= uint64_t(1) << d;
  }
  return mask;
}

namespace {

constexpr int64_t kRowTile = 64;        // outputs of a tile whose items are folded one output at a time
constexpr int64_t kChunkBytes = 16384;  // converted at a time: fits the first cache beside the states

void add(Dims& d, int64_t size, int64_t in, int64_t out0, int64_t out1) {
  d.size[d.n] = size, d.stride[0][d.n] = in, d.stride[1][d.n] = out0, d.stride[2][d.n] = out1;
  ++d.n;
}

struct Job {
  const Reduction& r;
  const Fold& f;
  const View* out;
  const View& in;
  int nout;
  Dims kept, reduced;
  FoldParam q;
  int64_t outputs = 1;
  bool columns = false, direct = false;  // fold by `cols`; without conversion
  int64_t width = 1, inner = 1, blocks = 1, tiles = 1;

  Job(const Reduction& red, const View* o, int no, const View& i, uint64_t mask)
      : r(red), f(*red.fold), out(o), in(i), nout(no) {
    bool keepdim = out->ndim == in.ndim;
    for (int d = 0, o_dim = 0; d < in.ndim; ++d) {
      if (is_reduced(mask, d)) {
        if (in.strides[d] == 0 && in.sizes[d] > 1 && r.repeats != kFoldEach) q.times *= r.repeats == kFoldTimes ? in.sizes[d] : 1;
        else if (in.sizes[d] != 1) add(reduced, in.sizes[d], in.strides[d], 0, 0);
      } else {
        int k = keepdim ? d : o_dim++;
        if (in.sizes[d] != 1)
          add(kept, in.sizes[d], in.strides[d], out[0].strides[k], nout > 1 ? out[1].strides[k] : 0);
      }
    }
    if (kept.n > 1) kept.sort(), kept.merge();
    if (reduced.n > 1) {
      if (!r.ordered) reduced.sort();
      reduced.merge();
    }
    outputs = kept.count(kept.n);
    q.items = reduced.count(reduced.n);
    if (kept.n == 0) add(kept, 1, 0, 0, 0);
    if (reduced.n == 0) add(reduced, 1, 1, 0, 0);
    if (outputs > 0) choose();
  }

  // By columns when outputs lie closer together than items, or when there are too few items for a row to pay.
  void choose() {
    inner = kept.size[kept.n - 1];
    int64_t k = std::abs(kept.stride[0][kept.n - 1]), s = std::abs(reduced.stride[0][reduced.n - 1]);
    bool same = in.dtype == r.compute;
    bool packed = same && !r.ordered && inner > 1 && k == 1 && reduced.stride[0][reduced.n - 1] == inner;
    columns = (inner >= 8 && ((k < s && k > 0) || q.items < 32)) || packed;
    direct = same && (columns ? k == 1 && kept.stride[0][kept.n - 1] > 0 : reduced.stride[0][reduced.n - 1] == 1);
    width = columns ? std::min(kFoldWidth, kFoldBytes / f.state) : kRowTile;
    if (columns && !direct) width = std::min<int64_t>(width, 512);
    width = std::min(width, inner);
    blocks = (inner + width - 1) / width;
    tiles = kept.count(kept.n - 1) * blocks;
  }

  // Whether outputs suffice for all threads. Few columns of many rows are better read row by row, in pieces.
  bool spreads(int64_t threads) const {
    return columns ? outputs >= 512 * threads || (outputs >= 16 * threads && q.items < 64 * threads) : outputs >= threads;
  }
  // Narrower tiles, so that there are `wanted` of them: nothing has to be merged then.
  void spread(int64_t wanted) {
    const int64_t outer = kept.count(kept.n - 1), least = columns ? 16 : 1;  // columns of a line of the cache
    const int64_t each = (wanted + outer - 1) / outer, even = (inner + each - 1) / each;
    width = std::min(width, std::max((even + least - 1) / least * least, least));
    blocks = (inner + width - 1) / width;
    tiles = outer * blocks;
  }

  int64_t tile_width(int64_t tile) const { return std::min(width, inner - tile % blocks * width); }
  void offsets(int64_t tile, int64_t* off) const {
    int64_t rest = tile / blocks, at = tile % blocks * width;
    for (int d = kept.n - 1; d >= 0; --d) {
      for (int t = 0; t < 3; ++t) off[t] += at * kept.stride[t][d];
      if (d == 0) break;
      at = rest % kept.size[d - 1];
      rest /= kept.size[d - 1];
    }
  }

  // Folds the items [begin, end) of every output of a tile. x: the first item of its first output.
  void fold(char* states, const char* x, int64_t n, int64_t begin, int64_t end) const {
    int last = reduced.n - 1;
    int64_t at[kMaxDims], off = 0, rest = begin;
    for (int d = last; d >= 0; --d) {
      at[d] = rest % reduced.size[d];
      rest /= reduced.size[d];
      off += at[d] * reduced.stride[0][d];
    }
    for (int64_t i = begin; i < end;) {
      int64_t run = std::min(reduced.size[last] - at[last], end - i);
      segment(states, x + off * itemsize(in.dtype), n, run, i);
      i += run;
      at[last] += run;
      off += run * reduced.stride[0][last];
      for (int d = last; d > 0 && at[d] == reduced.size[d]; --d) {
        off += reduced.stride[0][d - 1] - at[d] * reduced.stride[0][d];
        at[d] = 0;
        ++at[d - 1];
      }
    }
  }

  // `run` items along the last reduced dim, numbered from `base`.
  void segment(char* states, const char* x, int64_t n, int64_t run, int64_t base) const {
    int64_t step = reduced.stride[0][reduced.n - 1], k = kept.stride[0][kept.n - 1], size = itemsize(in.dtype);
    if (direct) {
      if (columns) return step == n && n < 64 && !r.ordered ? narrow(states, x, run, n, base)
                                                            : f.cols(states, x, run, step, n, base, q);
      for (int64_t j = 0; j < n; ++j) f.row(states + j * f.state, x + j * k * size, run, base, q);
      return;
    }
    alignas(64) char chunk[kChunkBytes];
    int64_t fit = kChunkBytes / itemsize(r.compute);
    if (columns) {
      int64_t rows = fit / n;
      for (int64_t i = 0; i < run; i += rows) {
        int64_t m = std::min(rows, run - i);
        for (int64_t a = 0; a < m; ++a)
          load(r.compute, chunk + a * n * itemsize(r.compute), in.dtype, x + (i + a) * step * size, k, n);
        f.cols(states, chunk, m, n, n, base + i, q);
      }
      return;
    }
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < run; i += fit) {
        int64_t m = std::min(fit, run - i);
        load(r.compute, chunk, in.dtype, x + (j * k + i * step) * size, step, m);
        f.row(states + j * f.state, chunk, m, base + i, q);
      }
  }

  // Few columns, row after row in memory: several rows are taken as one wide row with states of its own.
  void narrow(char* states, const char* x, int64_t rows, int64_t n, int64_t base) const {
    int64_t k = 256 / n, wide = rows / k;
    if (wide > 1) {
      alignas(64) char many[kFoldBytes];
      f.init(many, k * n);
      f.cols(many, x, wide, k * n, k * n, base, q);
      for (int64_t a = 0; a < k; ++a) f.merge(states, many + a * n * f.state, n);
      rows -= wide * k;
      x += wide * k * n * itemsize(in.dtype);
    }
    f.cols(states, x, rows, n, n, base, q);
  }

  void finish(const char* states, int64_t n, const int64_t* off) const {
    alignas(64) char buffer[2][kFoldWidth * 16];
    void* to[2] = {nullptr, nullptr};
    bool own[2] = {false, false};
    for (int o = 0; o < nout; ++o) {
      own[o] = out[o].dtype == r.result[o] && (n == 1 || kept.stride[o + 1][kept.n - 1] == 1);
      to[o] = own[o] ? out[o].ptr<char>() + off[o + 1] * itemsize(out[o].dtype) : buffer[o];
    }
    f.finish(states, n, to, q);
    for (int o = 0; o < nout; ++o)
      if (!own[o])
        store(out[o].dtype, out[o].ptr<char>() + off[o + 1] * itemsize(out[o].dtype),
              kept.stride[o + 1][kept.n - 1], r.result[o], buffer[o], n);
  }

  void run_tiles(int64_t begin, int64_t end) const {
    alignas(64) char states[kFoldBytes];
    for (int64_t t = begin; t < end; ++t) {
      int64_t off[3] = {0, 0, 0}, n = tile_width(t);
      offsets(t, off);
      f.init(states, n);
      if (q.items > 0) fold(states, in.ptr<char>() + off[0] * itemsize(in.dtype), n, 0, q.items);
      finish(states, n, off);
    }
  }

  // Few outputs of many items each: the items are cut into pieces with states of their own.
  void run_pieces(int64_t pieces) const {
    int64_t bytes = width * f.state, part = (q.items + pieces - 1) / pieces;
    std::vector<double> memory(size_t(tiles * pieces * ((bytes + 7) / 8)));
    auto states = [&](int64_t i) { return reinterpret_cast<char*>(memory.data() + i * ((bytes + 7) / 8)); };
    parallel_for(tiles * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t off[3] = {0, 0, 0}, t = i / pieces, n = tile_width(t), first = i % pieces * part;
        offsets(t, off);
        f.init(states(i), n);
        int64_t stop = std::min(first + part, q.items);
        if (first < stop) fold(states(i), in.ptr<char>() + off[0] * itemsize(in.dtype), n, first, stop);
      }
    });
    for (int64_t t = 0; t < tiles; ++t) {
      int64_t off[3] = {0, 0, 0}, n = tile_width(t);
      offsets(t, off);
      for (int64_t i = 1; i < pieces; ++i) f.merge(states(t * pieces), states(t * pieces + i), n);
      finish(states(t * pieces), n, off);
    }
  }
};

}  // namespace

namespace {

// A view of the items [begin, end) of one dim.
struct Narrowed {
  int64_t sizes[kMaxDims];
  View view;
  Narrowed(const View& v, int dim, int64_t begin, int64_t end) : view(v) {
    std::copy_n(v.sizes, v.ndim, sizes);
    sizes[dim] = end - begin;
    view.sizes = sizes;
    view.data = v.ptr<char>() + begin * v.strides[dim] * itemsize(v.dtype);
  }
  Narrowed(const Narrowed&) = delete;
};

// Along a dim of the outputs in which the input repeats itself: the first output, then copies of it. False: no such dim.
bool reduce_repeated(const Reduction& r, const View* out, int nout, const View& in, uint64_t mask, double p) {
  const bool keepdim = out->ndim == in.ndim;
  for (int d = 0, k = 0; d < in.ndim; ++d) {
    const int at = keepdim ? d : k;
    k += !is_reduced(mask, d);
    if (is_reduced(mask, d) || in.strides[d] != 0 || in.sizes[d] < 2) continue;
    Narrowed first_in(in, d, 0, 1), first(out[0], at, 0, 1), second(out[nout - 1], at, 0, 1);
    const View firsts[2] = {first.view, second.view};
    reduce(r, firsts, nout, first_in.view, mask, p);
    for (int o = 0; o < nout; ++o) copy(Narrowed(out[o], at, 1, in.sizes[d]).view, firsts[o]);
    return true;
  }
  return false;
}

}  // namespace

void reduce(const Reduction& r, const View* out, int nout, const View& in, uint64_t mask, double p) {
  if (r.fold->state == 0) unsupported(r.name, in.dtype);
  if (reduce_repeated(r, out, nout, in, mask, p)) return;
  Job job(r, out, nout, in, mask);
  job.q.p = p;
  if (job.outputs == 0) return;
  int64_t total = job.outputs * job.q.items, threads = total > 2 * kGrain ? get_num_threads() : 1;
  if (threads > 1 && job.tiles < 4 * threads) {
    if (job.spreads(threads)) job.spread((job.columns && job.outputs < 2048 * threads ? 1 : 4) * threads);
    else if (job.q.items >= 16 * threads) return job.run_pieces(2 * threads);
  }
  int64_t per_tile = std::max<int64_t>(job.width * job.q.items, 1);
  parallel_for(job.tiles, std::max<int64_t>(2 * kGrain / per_tile, 1),
               [&](int64_t begin, int64_t end) { job.run_tiles(begin, end); });
}

void load(DType to, void* dst, DType from, const void* src, int64_t stride, int64_t n) {
  if (stride == 1) return convert(to, dst, from, src, n);
  char chunk[4096];
  int64_t size = itemsize(from), fit = int64_t(sizeof(chunk)) / size;
  if (to == from) return gather(dst, static_cast<const char*>(src), stride * size, n, int(size));
  for (int64_t i = 0; i < n; i += fit) {
    int64_t m = std::min(fit, n - i);
    gather(chunk, static_cast<const char*>(src) + i * stride * size, stride * size, m, int(size));
    convert(to, static_cast<char*>(dst) + i * itemsize(to), from, chunk, m);
  }
}

void store(DType to, void* dst, int64_t stride, DType from, const void* src, int64_t n) {
  if (stride == 1) return convert(to, dst, from, src, n);
  char chunk[4096];
  int64_t size = itemsize(to), fit = int64_t(sizeof(chunk)) / size;
  if (to == from) return scatter(static_cast<char*>(dst), stride * size, src, n, int(size));
  for (int64_t i = 0; i < n; i += fit) {
    int64_t m = std::min(fit, n - i);
    convert(to, chunk, from, static_cast<const char*>(src) + i * itemsize(from), m);
    scatter(static_cast<char*>(dst) + i * stride * size, stride * size, chunk, m, int(size));
  }
}

// ---- dims and rows ---------------------------------------------------------------------------------------
void Dims::sort() {
  for (int i = 1; i < n; ++i)
    for (int j = i; j > 0 && std::abs(stride[0][j - 1]) < std::abs(stride[0][j]); --j) {
      std::swap(size[j - 1], size[j]);
      for (int t = 0; t < nt; ++t) std::swap(stride[t][j - 1], stride[t][j]);
    }
}

void Dims::merge() {
  int m = 0;
  for (int d = 1; d < n; ++d) {
    bool joins = true;
    for (int t = 0; t < nt; ++t) joins &= stride[t][m] == stride[t][d] * size[d];
    if (!joins) ++m;
    size[m] = joins ? size[m] * size[d] : size[d];
    for (int t = 0; t < nt; ++t) stride[t][m] = stride[t][d];
  }
  if (n > 0) n = m + 1;
}

Rows::Rows(std::initializer_list<const View*> views, int64_t dim) {
  const View& first = **views.begin();
  int along = wrap_dim(dim, first.ndim);
  dims.nt = int(views.size());
  for (int d = 0; d < first.ndim; ++d) {
    (d == along ? length : count) *= first.sizes[d];
    for (int t = 0; t < dims.nt; ++t)
      (d == along ? step[t] : dims.stride[t][dims.n]) = views.begin()[t]->strides[d];
    if (d != along && first.sizes[d] != 1) dims.size[dims.n++] = first.sizes[d];
  }
  if (dims.n > 1) dims.sort(), dims.merge();
}

int64_t Rows::take_columns() {
  if (dims.n == 0 || count == 0 || dims.size[dims.n - 1] < 8) return 0;
  for (int t = 0; t < dims.nt; ++t)
    if (dims.stride[t][dims.n - 1] != 1) return 0;
  count /= dims.size[--dims.n];
  return dims.size[dims.n];
}

}  // namespace mt
