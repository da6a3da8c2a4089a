// Depthwise convolutions (one input channel per group), forward and both gradients, in float32 and float64: a plane of
// an image in each lane of a vector. Where the channels are innermost in memory that is how they lie. Every other shape is a
// matrix product (conv.cpp).
#include <vector>

#include "dispatch.h"
#include "lane_planes.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

constexpr int kBlock = 8;                  // results of a row that are summed at once, in registers
constexpr int64_t kBandBytes = 256 << 10;  // of the rows that are read, so that they stay in the second level cache

// f(pixel of the image, output) for every output that tap t reads a pixel for.
template <class F> void for_each_pair(const Conv& s, int64_t t, F&& f) {
  const int64_t tap[] = {t / (s.kernel[1] * s.kernel[2]), t / s.kernel[2] % s.kernel[1], t % s.kernel[2]};
  auto pixel = [&](int64_t o, int d) { return o * s.stride[d] - s.pad[d] + tap[d] * s.dilation[d]; };
  auto inside = [&](int64_t i, int d) { return i >= 0 && i < s.in[d]; };
  for (int64_t d = 0; d < s.out[0]; ++d)
    for (int64_t h = 0; inside(pixel(d, 0), 0) && h < s.out[1]; ++h)
      for (int64_t w = 0; inside(pixel(h, 1), 1) && w < s.out[2]; ++w)
        if (inside(pixel(w, 2), 2))
          f((pixel(d, 0) * s.in[1] + pixel(h, 1)) * s.in[2] + pixel(w, 2), (d * s.out[1] + h) * s.out[2] + w);
}
template <class T> bool all_finite(const T* p, int64_t n) {
  T zero = 0;
  for (int64_t i = 0; i < n; ++i) zero += p[i] * T(0);
  return zero == 0;
}

// The loops below multiply by the zeros of the padding too, which is NaN where the other factor is not finite. Where a
// weight, or a sum of the weight gradient, is not, these loops over the image alone take their place.
// Pixels of a plane lie `step` items apart.
template <class T> void fill_plane(T* to, int64_t n, int64_t step, T value) {
  for (int64_t i = 0; i < n; ++i) to[i * step] = value;
}
template <class T> void exact_forward(const Conv& s, int64_t step, const T* x, const T* w, T bias, T* y) {
  fill_plane(y, s.y_plane(), step, bias);
  for (int64_t t = 0; t < s.taps(); ++t)
    for_each_pair(s, t, [&](int64_t i, int64_t o) { y[o * step] += x[i * step] * w[t]; });
}
template <class T> void exact_input_grad(const Conv& s, int64_t step, const T* gy, const T* w, T* gx) {  // adds
  for (int64_t t = 0; t < s.taps(); ++t)
    for_each_pair(s, t, [&](int64_t i, int64_t o) { gx[i * step] += gy[o * step] * w[t]; });
}
template <class T> void exact_weight_grad(const Conv& s, int64_t step, const T* x, const T* gy, T* gw) {  // adds
  for (int64_t t = 0; t < s.taps(); ++t)
    for_each_pair(s, t, [&](int64_t i, int64_t o) { gw[t] += x[i * step] * gy[o * step]; });
}

// ---- one row of results -------------------------------------------------------------------------------------------------
// Results j of a row are sums over rows that are read and over taps within them: tap t of row r is at
// from[r][offset[t] + j * step] and has the weight weights[r][which[t]].
template <class V> struct RowSum {
  std::vector<std::pair<const V*, const V*>> rows;  // from[r], weights[r]
  std::vector<int64_t> offset, which;
  int64_t step = 1;

  template <int kCount, int kStep> void block(int64_t j, V start, bool add, V* to, int64_t to_step) const {
    const int64_t apart = kStep ? kStep : step;
    V acc[kCount];
    MT_UNROLL for (int b = 0; b < kCount; ++b) acc[b] = add ? to[(j + b) * to_step] : start;
    for (const auto& [from, weights] : rows)
      for (size_t t = 0; t < offset.size(); ++t) {
        const V w = weights[which[t]], *p = from + offset[t] + j * apart;
        MT_UNROLL for (int b = 0; b < kCount; ++b) acc[b] += p[b * apart] * w;
      }
    MT_UNROLL for (int b = 0; b < kCount; ++b) to[(j + b) * to_step] = acc[b];
  }
  template <int kStep, int... I>
  void run(int64_t n, V start, bool add, V* to, int64_t to_step, std::integer_sequence<int, I...>) const {
    using Block = void (RowSum::*)(int64_t, V, bool, V*, int64_t) const;
    static constexpr Block blocks[] = {&RowSum::block<I + 1, kStep>...};
    for (int64_t j = 0, left = ceil_div(n, kBlock); left > 0; --left) {
      const int64_t count = ceil_div(n - j, left);  // even ones: 14 are 7 and 7
      (this->*blocks[count - 1])(j, start, add, to, to_step);
      j += count;
    }
  }
  // Results 0..n become start, or are added to.
  void operator()(int64_t n, V start, bool add, V* to, int64_t to_step) const {
    const std::make_integer_sequence<int, kBlock> sizes;
    if (step == 1) run<1>(n, start, add, to, to_step, sizes);
    else if (step == 2) run<2>(n, start, add, to, to_step, sizes);
    else run<0>(n, start, add, to, to_step, sizes);
  }
};

// sums[t] += a[j * step + t * apart] * b[j] over j in 0..n.
template <int kTaps, class V>
void add_products(const V* a, int64_t step, int64_t apart, const V* b, int64_t n, V* sums) {
  constexpr int kSets = kTaps > 4 && kLanes < 16 ? 1 : 2;  // as many as the registers have room for
  V acc[kSets][kTaps];
  MT_UNROLL for (int t = 0; t < kTaps; ++t) {
    acc[0][t] = sums[t];
    if (kSets > 1) acc[kSets - 1][t] = V{};
  }
  int64_t j = 0;
  for (; j + kSets <= n; j += kSets)
    MT_UNROLL for (int i = 0; i < kSets; ++i) {
      const V g = b[j + i], *p = a + (j + i) * step;
      MT_UNROLL for (int t = 0; t < kTaps; ++t) acc[i][t] += p[t * apart] * g;
    }
  for (; j < n; ++j)
    MT_UNROLL for (int t = 0; t < kTaps; ++t) acc[0][t] += a[j * step + t * apart] * b[j];
  MT_UNROLL for (int t = 0; t < kTaps; ++t) sums[t] = kSets > 1 ? acc[0][t] + acc[kSets - 1][t] : acc[0][t];
}
template <class V> void add_products(const V* a, int64_t step, int64_t apart, const V* b, int64_t n, int64_t taps, V* sums) {
  int64_t t = 0;
  for (; t + 7 <= taps; t += 7) add_products<7>(a + t * apart, step, apart, b, n, sums + t);
  for (; t + 5 <= taps; t += 5) add_products<5>(a + t * apart, step, apart, b, n, sums + t);
  for (; t + 3 <= taps; t += 3) add_products<3>(a + t * apart, step, apart, b, n, sums + t);
  for (; t < taps; ++t) add_products<1>(a + t * apart, step, apart, b, n, sums + t);
}

// ---- images in bands of rows ------------------------------------------------------------------------------------------
// Planes are cut into bands along their outermost dim that is not 1, so that what a band reads stays in the cache.
struct Range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

template <class T> class Planes {
 public:
  using Lanes = PlaneLanes<T>;
  using V = typename Lanes::V;
  static constexpr int kCount = Lanes::kCount;

  explicit Planes(const Conv& shape) : s(shape), outer(s.in[0] > 1 || s.out[0] > 1 ? 0 : 1) {
    const int64_t end = (s.out[2] - 1) * s.stride[2] + (s.kernel[2] - 1) * s.dilation[2] + 1;  // of the padded pixels that are read
    width = std::max(s.pad[2] + s.in[2], end);
    const int64_t line = (outer ? 1 : s.in[1]) * width * int64_t(sizeof(V));
    const int64_t reach = (s.kernel[outer] - 1) * s.dilation[outer];
    const int64_t lines = std::max(reach + 1, kBandBytes / std::max<int64_t>(line, 1));
    out_band = std::clamp<int64_t>((lines - reach - 1) / s.stride[outer] + 1, 1, s.out[outer]);
    in_band = std::min(s.in[outer], out_band * s.stride[outer]);
  }

  const Conv& s;
  const int outer;
  int64_t width, in_band, out_band;

  // Inputs that outputs read along the outer dim, and outputs that read inputs.
  Range read_by(Range out) const {
    const int64_t first = out.begin * s.stride[outer] - s.pad[outer];
    const int64_t last = (out.end - 1) * s.stride[outer] - s.pad[outer] + (s.kernel[outer] - 1) * s.dilation[outer];
    return clipped(first, last + 1, s.in[outer]);
  }
  Range readers_of(Range in) const {
    const int64_t first = in.begin + s.pad[outer] - (s.kernel[outer] - 1) * s.dilation[outer];
    return clipped(ceil_div(first, s.stride[outer]), (in.end - 1 + s.pad[outer]) / s.stride[outer] + 1, s.out[outer]);
  }
  int64_t most_read() const {  // by a band
    return std::min(s.in[outer], (out_band - 1) * s.stride[outer] + (s.kernel[outer] - 1) * s.dilation[outer] + 1);
  }
  int64_t most_readers() const {
    return std::min(s.out[outer], (in_band - 1 + (s.kernel[outer] - 1) * s.dilation[outer]) / s.stride[outer] + 1);
  }
  int64_t in_lines(int64_t count) const { return outer ? count : count * s.in[1]; }
  int64_t out_lines(int64_t count) const { return outer ? count : count * s.out[1]; }

 private:
  static Range clipped(int64_t begin, int64_t end, int64_t size) {
    begin = std::clamp<int64_t>(begin, 0, size);
    return {begin, std::clamp(end, begin, size)};
  }
};

// Blocks of planes for the lanes of a vector: of one image where that is possible, the blocks of the same channels following
// each other, so that their weights are packed once. A block may have fewer planes; its other lanes repeat the last.
template <int kCount> struct Blocks {
  int64_t images, channels;
  bool last;  // the channels are innermost in memory: pixels of a plane lie `channels` items apart
  bool whole() const { return last || channels % kCount == 0; }  // no block has planes of two images
  int64_t step() const { return last ? channels : 1; }
  int64_t count() const { return whole() ? images * ceil_div(channels, kCount) : ceil_div(images * channels, kCount); }
  int64_t first(int64_t b) const { return whole() ? b % images * channels + b / images * kCount : b * kCount; }
  int used(int64_t b) const {
    return int(std::min<int64_t>(kCount, whole() ? channels - b / images * kCount : images * channels - first(b)));
  }
  int64_t weights_of(int64_t b) const { return whole() ? b / images : b; }  // equal where the channels are
  // Where the plane begins, in items; there are `all` channels.
  int64_t plane(int64_t image, int64_t channel, int64_t all, int64_t pixels) const {
    return last ? image * all * pixels + channel : (image * all + channel) * pixels;
  }
  // f(lane, image, channel)
  template <class F> void for_each_lane(int64_t b, F&& f) const {
    const int most = used(b) - 1;
    int64_t image = first(b) / channels, channel = first(b) % channels;
    for (int l = 0; l < kCount; ++l) {
      f(l, image, channel);
      if (l < most && ++channel == channels) channel = 0, ++image;
    }
  }
};

// Rows of an image with zeros beside them, from line `begin` on, a vector for each pixel.
template <class T> struct PaddedRows {
  using V = typename PlaneLanes<T>::V;
  static constexpr int kCount = PlaneLanes<T>::kCount;
  int64_t line, left, width, begin = 0;  // line: pixels of the image's own rows
  std::vector<V> pixels, loaded;

  PaddedRows(int64_t lines, int64_t row, int64_t before, int64_t whole_width)
      : line(row), left(before), width(whole_width), pixels(lines * whole_width), loaded(row < whole_width ? lines * row : 0) {}
  // Of planes whose pixels lie `step` items apart; where that is not 1, the `used` planes begin side by side.
  void load(const T* const* planes, int64_t first, int64_t last, int64_t step, int used) {
    begin = first;
    if (step != 1) {
      const T* from = planes[0] + first * line * step;
      for (int64_t i = 0; i < last - first; ++i)
        for (int64_t j = 0; j < line; ++j, from += step) {
          V& to = pixels[i * width + left + j];
          if (used == kCount) to = *reinterpret_cast<const typename PlaneLanes<T>::Anywhere*>(from);
          else std::copy_n(from, used, reinterpret_cast<T*>(&to));
        }
      return;
    }
    V* to = loaded.empty() ? pixels.data() : loaded.data();
    PlaneLanes<T>::load(planes, first * line, last * line, reinterpret_cast<T*>(to));
    for (int64_t i = 0; i < last - first && !loaded.empty(); ++i)
      std::copy_n(loaded.data() + i * line, line, pixels.data() + i * width + left);
  }
  const V* row(int64_t number) const { return pixels.data() + (number - begin) * width; }
};

// f(row of the kernel, row that it reads) for the rows of the kernel that lie in the image for row (d, h) of the output.
template <class F> void for_each_row_read(const Conv& s, int64_t d, int64_t h, F&& f) {
  for (int64_t kd = 0; kd < s.kernel[0]; ++kd) {
    const int64_t id = d * s.stride[0] - s.pad[0] + kd * s.dilation[0];
    if (id < 0 || id >= s.in[0]) continue;
    for (int64_t kh = 0; kh < s.kernel[1]; ++kh) {
      const int64_t ih = h * s.stride[1] - s.pad[1] + kh * s.dilation[1];
      if (ih >= 0 && ih < s.in[1]) f(kd * s.kernel[1] + kh, id * s.in[1] + ih);
    }
  }
}
// The same for the rows of the output that read row (d, h) of the image.
template <class F> void for_each_reader(const Conv& s, int64_t d, int64_t h, F&& f) {
  auto output = [&](int64_t i, int64_t k, int dim) {  // -1: none
    const int64_t at = i + s.pad[dim] - k * s.dilation[dim];
    return at >= 0 && at % s.stride[dim] == 0 && at / s.stride[dim] < s.out[dim] ? at / s.stride[dim] : -1;
  };
  for (int64_t kd = 0; kd < s.kernel[0]; ++kd) {
    const int64_t od = output(d, kd, 0);
    for (int64_t kh = 0; od >= 0 && kh < s.kernel[1]; ++kh) {
      const int64_t oh = output(h, kh, 1);
      if (oh >= 0) f(kd * s.kernel[1] + kh, od * s.out[1] + oh);
    }
  }
}

// What one thread has for the units of a direction: a unit is a band of the planes of a block.
template <class T> struct Work {
  using V = typename Planes<T>::V;
  using Lanes = PlaneLanes<T>;
  static constexpr int kCount = Lanes::kCount;
  const Conv& s;
  const Planes<T>& planes;
  const Blocks<kCount>& blocks;
  const int64_t taps = s.taps(), kg = s.kg();
  std::vector<V> weights = std::vector<V>(taps), made;
  const T *from[kCount] = {}, *filters[kCount] = {};
  T* to[kCount] = {};

  Work(const Conv& shape, const Planes<T>& p, const Blocks<kCount>& b) : s(shape), planes(p), blocks(b) {}
  const T* packed() const { return reinterpret_cast<const T*>(weights.data()); }
  void pack_weights() { Lanes::load(filters, 0, taps, reinterpret_cast<T*>(weights.data())); }
  // Where the results of a block begin, if its vectors lie in the result as they are made, apart() vectors from pixel to pixel.
  V* in_place() const {
    const bool lie = blocks.last && blocks.channels % kCount == 0 && reinterpret_cast<uintptr_t>(to[0]) % sizeof(V) == 0;
    return lie ? reinterpret_cast<V*>(to[0]) : nullptr;
  }
  int64_t apart() const { return blocks.channels / kCount; }
  // Lines [first, last) of `width` items each, made from `made`.
  void store(int64_t b, int64_t first, int64_t last, int64_t width) {
    if (blocks.last) {
      T* at = to[0] + first * width * blocks.step();
      for (int64_t i = 0; i < (last - first) * width; ++i, at += blocks.step()) {
        if (blocks.used(b) == kCount) *reinterpret_cast<typename Lanes::Anywhere*>(at) = made[i];
        else std::copy_n(reinterpret_cast<const T*>(&made[i]), blocks.used(b), at);
      }
      return;
    }
    Lanes::store(reinterpret_cast<const T*>(made.data()), first * width, last * width, to, blocks.used(b));
  }
};

template <class T> struct Forward : Work<T> {
  using typename Work<T>::V;
  const T *x, *w, *bias;
  T* y;
  PaddedRows<T> rows;
  RowSum<V> sum;
  V level{};
  bool finite = true;
  int64_t packed_for = -1;

  Forward(const Work<T>& work, const T* image, const T* weight, const T* b, T* out)
      : Work<T>(work), x(image), w(weight), bias(b), y(out),
        rows(this->planes.in_lines(this->planes.most_read()), this->s.in[2], this->s.pad[2], this->planes.width) {
    const Conv& s = this->s;
    this->made.resize(this->planes.out_lines(this->planes.out_band) * s.out[2]);
    sum.step = s.stride[2];
    for (int64_t t = 0; t < s.kernel[2]; ++t) sum.offset.push_back(t * s.dilation[2]), sum.which.push_back(t);
  }
  void take(int64_t b) {
    const Conv& s = this->s;
    this->blocks.for_each_lane(b, [&](int l, int64_t n, int64_t k) {
      this->from[l] = x + this->blocks.plane(n, this->kg == 1 ? k : k / this->kg, s.c, s.x_plane());
      this->to[l] = y + this->blocks.plane(n, k, s.k, s.y_plane());
      this->filters[l] = w + k * this->taps;
      if (bias) level[l] = bias[k];
    });
    if (this->blocks.weights_of(b) == packed_for) return;
    this->pack_weights();
    finite = all_finite(this->packed(), this->taps * this->kCount);
    packed_for = this->blocks.weights_of(b);
  }
  void unit(int64_t b, Range out) {
    const Conv& s = this->s;
    take(b);
    if (!finite) {
      for (int l = 0; out.begin == 0 && l < this->blocks.used(b); ++l)
        exact_forward(s, this->blocks.step(), this->from[l], this->filters[l], level[l], this->to[l]);
      return;
    }
    const Range in = this->planes.read_by(out);
    rows.load(this->from, this->planes.in_lines(in.begin), this->planes.in_lines(in.end), this->blocks.step(), this->blocks.used(b));
    const int64_t first = this->planes.out_lines(out.begin), last = this->planes.out_lines(out.end);
    V* const direct = this->in_place();
    for (int64_t line = first; line < last; ++line) {
      sum.rows.clear();
      for_each_row_read(s, line / s.out[1], line % s.out[1], [&](int64_t kernel, int64_t row) {
        sum.rows.emplace_back(rows.row(row), this->weights.data() + kernel * s.kernel[2]);
      });
      if (direct) sum(s.out[2], level, false, direct + line * s.out[2] * this->apart(), this->apart());
      else sum(s.out[2], level, false, this->made.data() + (line - first) * s.out[2], 1);
    }
    if (!direct) this->store(b, first, last, s.out[2]);
  }
};

// Pixels of a row that the same taps reach: every stride-th one, from `begin` on.
template <class V> struct Phase {
  int64_t begin;
  RowSum<V> sum;
};

template <class T> struct InputGrad : Work<T> {
  using typename Work<T>::V;
  const T *gy, *w;
  T* gx;
  const int64_t stride = this->s.stride[2], left = (this->s.kernel[2] - 1) * this->s.dilation[2] / stride;
  PaddedRows<T> rows;
  std::vector<Phase<V>> phases;

  InputGrad(const Work<T>& work, const T* grad, const T* weight, T* out)
      : Work<T>(work), gy(grad), w(weight), gx(out),
        rows(this->planes.out_lines(this->planes.most_readers()), this->s.out[2], left,
             left + std::max((this->s.in[2] - 1 + this->s.pad[2]) / stride + 1, this->s.out[2])) {
    const Conv& s = this->s;
    this->made.resize(this->planes.in_lines(this->planes.in_band) * s.in[2]);
    for (int64_t at = 0; at < std::min(stride, s.in[2]); ++at) {
      phases.push_back({at, {}});
      for (int64_t k = 0; k < s.kernel[2]; ++k)
        if (const int64_t from = at + s.pad[2] - k * s.dilation[2]; from % stride == 0)
          phases.back().sum.offset.push_back(left + from / stride), phases.back().sum.which.push_back(k);
    }
  }
  bool take(int64_t b) {  // whether all weights are finite
    bool finite = true;
    this->blocks.for_each_lane(b, [&](int l, int64_t n, int64_t c) {
      this->from[l] = gy + this->blocks.plane(n, c * this->kg, this->s.k, this->s.y_plane());
      this->filters[l] = w + c * this->kg * this->taps;
      this->to[l] = gx + this->blocks.plane(n, c, this->s.c, this->s.x_plane());
      finite = finite && all_finite(this->filters[l], this->kg * this->taps);
    });
    return finite;
  }
  void exact(int64_t b) {
    for (int l = 0; l < this->blocks.used(b); ++l) {
      fill_plane(this->to[l], this->s.x_plane(), this->blocks.step(), T(0));
      for (int64_t k = 0; k < this->kg; ++k)
        exact_input_grad(this->s, this->blocks.step(), this->from[l] + k * this->s.y_plane(), this->filters[l] + k * this->taps, this->to[l]);
    }
  }
  void add_line(int64_t line, bool add, V* row, int64_t step) {
    const Conv& s = this->s;
    for (Phase<V>& phase : phases) {
      phase.sum.rows.clear();
      for_each_reader(s, line / s.in[1], line % s.in[1], [&](int64_t kernel, int64_t reader) {
        phase.sum.rows.emplace_back(rows.row(reader), this->weights.data() + kernel * s.kernel[2]);
      });
      phase.sum(ceil_div(s.in[2] - phase.begin, stride), V{}, add, row + phase.begin * step, stride * step);
    }
  }
  void unit(int64_t b, Range in) {
    if (!take(b)) {
      if (in.begin == 0) exact(b);
      return;
    }
    const Range out = this->planes.readers_of(in);
    const int64_t first = this->planes.in_lines(in.begin), last = this->planes.in_lines(in.end);
    V* const direct = this->in_place();
    for (int64_t k = 0; k < this->kg; ++k) {
      this->pack_weights();
      rows.load(this->from, this->planes.out_lines(out.begin), this->planes.out_lines(out.end), this->blocks.step(),
                this->blocks.used(b));
      for (int l = 0; l < this->kCount; ++l) this->from[l] += this->s.y_plane(), this->filters[l] += this->taps;
      for (int64_t line = first; line < last; ++line) {
        if (direct) add_line(line, k > 0, direct + line * this->s.in[2] * this->apart(), this->apart());
        else add_line(line, k > 0, this->made.data() + (line - first) * this->s.in[2], 1);
      }
    }
    if (!direct) this->store(b, first, last, this->s.in[2]);
  }
};

template <class T> struct WeightGrad : Work<T> {
  using typename Work<T>::V;
  const T *x, *gy;
  PaddedRows<T> rows, gradients;

  WeightGrad(const Work<T>& work, const T* image, const T* grad)
      : Work<T>(work), x(image), gy(grad),
        rows(this->planes.in_lines(this->planes.most_read()), this->s.in[2], this->s.pad[2], this->planes.width),
        gradients(this->planes.out_lines(this->planes.out_band), this->s.out[2], 0, this->s.out[2]) {}
  void unit(int64_t b, Range out, V* sums) {  // adds
    const Conv& s = this->s;
    const T* gradient[Work<T>::kCount];
    this->blocks.for_each_lane(b, [&](int l, int64_t n, int64_t k) {
      this->from[l] = x + this->blocks.plane(n, this->kg == 1 ? k : k / this->kg, s.c, s.x_plane());
      gradient[l] = gy + this->blocks.plane(n, k, s.k, s.y_plane());
    });
    const Range in = this->planes.read_by(out);
    const int64_t first = this->planes.out_lines(out.begin), last = this->planes.out_lines(out.end);
    rows.load(this->from, this->planes.in_lines(in.begin), this->planes.in_lines(in.end), this->blocks.step(), this->blocks.used(b));
    gradients.load(gradient, first, last, this->blocks.step(), this->blocks.used(b));
    for (int64_t line = first; line < last; ++line)
      for_each_row_read(s, line / s.out[1], line % s.out[1], [&](int64_t kernel, int64_t row) {
        add_products(rows.row(row), s.stride[2], s.dilation[2], gradients.row(line), s.out[2], s.kernel[2],
                     sums + kernel * s.kernel[2]);
      });
  }
};

// f(work of one thread, number of the unit, its block, its band) for all bands of `size` lines of `extent`, on all threads.
template <class T, class Make, class F>
void for_each_unit(const Conv& s, int64_t blocks, int64_t extent, int64_t size, Make&& make, F&& f) {
  const int64_t bands = ceil_div(extent, size);
  const int64_t grain = kGrain / std::max<int64_t>(s.y_plane() * s.taps() * PlaneLanes<T>::kCount, 1) + 1;
  parallel_for(blocks * bands, grain, [&](int64_t begin, int64_t end) {
    auto work = make();
    for (int64_t u = begin; u < end; ++u) {
      const int64_t first = u % bands * size;
      f(work, u, u / bands, Range{first, std::min(first + size, extent)});
    }
  });
}

template <class T> void forward(const Conv& s, bool last, const T* x, const T* w, const T* bias, T* y) {
  const Planes<T> planes(s);
  const Blocks<Planes<T>::kCount> blocks{s.n, s.k, last};
  for_each_unit<T>(s, blocks.count(), s.out[planes.outer], planes.out_band,
                   [&] { return Forward<T>(Work<T>(s, planes, blocks), x, w, bias, y); },
                   [](auto& work, int64_t, int64_t b, Range out) { work.unit(b, out); });
}

template <class T> void input_grad(const Conv& s, bool last, const T* gy, const T* w, T* gx) {
  const Planes<T> planes(s);
  const Blocks<Planes<T>::kCount> blocks{s.n, s.c, last};
  for_each_unit<T>(s, blocks.count(), s.in[planes.outer], planes.in_band,
                   [&] { return InputGrad<T>(Work<T>(s, planes, blocks), gy, w, gx); },
                   [](auto& work, int64_t, int64_t b, Range in) { work.unit(b, in); });
}

template <class T> void weight_grad(const Conv& s, bool last, const T* x, const T* gy, T* gw) {
  const Planes<T> planes(s);
  const Blocks<Planes<T>::kCount> blocks{s.n, s.k, last};
  const int64_t taps = s.taps(), bands = ceil_div(s.out[planes.outer], planes.out_band), units = blocks.count() * bands;
  std::vector<typename Planes<T>::V> sums(units * taps);
  for_each_unit<T>(s, blocks.count(), s.out[planes.outer], planes.out_band,
                   [&] { return WeightGrad<T>(Work<T>(s, planes, blocks), x, gy); },
                   [&](auto& work, int64_t u, int64_t b, Range out) { work.unit(b, out, sums.data() + u * taps); });
  std::fill_n(gw, s.k * taps, T(0));
  for (int64_t u = 0; u < units; ++u)
    blocks.for_each_lane(u / bands, [&](int l, int64_t, int64_t k) {
      for (int64_t t = 0; l < blocks.used(u / bands) && t < taps; ++t) gw[k * taps + t] += sums[u * taps + t][l];
    });
  for (int64_t k = 0; k < s.k; ++k) {
    T* filter = gw + k * taps;
    if (all_finite(filter, taps)) continue;
    std::fill_n(filter, taps, T(0));
    for (int64_t n = 0; n < s.n; ++n)
      exact_weight_grad(s, blocks.step(), x + blocks.plane(n, k / s.kg(), s.c, s.x_plane()),
                        gy + blocks.plane(n, k, s.k, s.y_plane()), filter);
  }
}

template <class T> const T* as(const void* p) { return static_cast<const T*>(p); }
template <class T> T* as(void* p) { return static_cast<T*>(p); }

}  // namespace

bool depthwise_fits(DType dtype, const Conv& s) {  // not where there is far more padding beside a row than image
  return s.depthwise() && (dtype == kFloat || dtype == kDouble) && s.pad[2] <= s.in[2] + 4096;
}

bool depthwise_last_fits(DType dtype, const Conv& s) { return depthwise_fits(dtype, s) && s.kg() == 1; }

void depthwise_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y, bool last) {
  MT_SWITCH(dtype, "convolution", MT_FLOATS(T, { forward(s, last, as<T>(x), as<T>(w), as<T>(bias), as<T>(y)); }))
}

void depthwise_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, void* gx, bool last) {
  MT_SWITCH(dtype, "convolution", MT_FLOATS(T, { input_grad(s, last, as<T>(gy), as<T>(w), as<T>(gx)); }))
}

void depthwise_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw, bool last) {
  MT_SWITCH(dtype, "convolution", MT_FLOATS(T, { weight_grad(s, last, as<T>(x), as<T>(gy), as<T>(gw)); }))
}

}  // namespace mt
