// Boxes of detection networks and how far two of them overlap, with slopes; which of them stay. No op lives here.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/value.h"

namespace cann_sim {

// Edges in numbers of one kind: double, or Slopes where a gradient is wanted.
template <class N> struct Edges {
  N x1, y1, x2, y2;
  N width() const { return x2 - x1; }
  N height() const { return y2 - y1; }
  N area() const { return width() * height(); }
};
using Box = Edges<double>;

// A number and its slopes along the 4 numbers of each of two boxes.
struct Slopes {
  double value;
  double along[8] = {};
  Slopes(double v = 0) : value(v) {}  // NOLINT: numbers take part as they are
  Slopes(double v, int place) : value(v) { along[place] = 1; }
  friend Slopes combined(double value, const Slopes& a, double by_a, const Slopes& b, double by_b) {
    Slopes made(value);
    for (int i = 0; i < 8; ++i) made.along[i] = a.along[i] * by_a + b.along[i] * by_b;
    return made;
  }
  friend Slopes operator+(const Slopes& a, const Slopes& b) { return combined(a.value + b.value, a, 1, b, 1); }
  friend Slopes operator-(const Slopes& a, const Slopes& b) { return combined(a.value - b.value, a, 1, b, -1); }
  friend Slopes operator*(const Slopes& a, const Slopes& b) { return combined(a.value * b.value, a, b.value, b, a.value); }
  friend Slopes operator/(const Slopes& a, const Slopes& b) {
    return combined(a.value / b.value, a, 1 / b.value, b, -a.value / (b.value * b.value));
  }
  friend Slopes max(const Slopes& a, const Slopes& b) { return a.value < b.value ? b : a; }
  friend Slopes min(const Slopes& a, const Slopes& b) { return b.value < a.value ? b : a; }
  friend Slopes atan(const Slopes& a) { return combined(std::atan(a.value), a, 1 / (1 + a.value * a.value), a, 0); }
};
inline double plain(double x) { return x; }
inline double plain(const Slopes& x) { return x.value; }

// Box i of [n, 4], or of [4, n] (columns); `centred`: x, y, width, height. The value is double and dense. `place` counts
// the numbers of the box among those that slopes are along.
template <class N = double> Edges<N> box_of(const Value& v, int64_t i, bool columns, bool centred, int place = 0) {
  const double* p = v.ptr<double>();
  auto item = [&](int64_t k) {
    const double x = columns ? p[k * v.sizes[1] + i] : p[i * 4 + k];
    if constexpr (std::is_same_v<N, double>) return x;
    else return N(x, place + int(k));
  };
  const N a = item(0), b = item(1), c = item(2), d = item(3);
  if (!centred) return {a, b, c, d};
  return {a - c / N(2), b - d / N(2), a + c / N(2), b + d / N(2)};
}

enum class Overlap { iou, giou, diou, ciou };

template <class N> N intersection(const Edges<N>& a, const Edges<N>& b) {
  using std::max, std::min;
  return max(N(0), min(a.x2, b.x2) - max(a.x1, b.x1)) * max(N(0), min(a.y2, b.y2) - max(a.y1, b.y1));
}
constexpr double kTiny = 1e-9;
template <class N> N difference_of_angles(const Edges<N>& a, const Edges<N>& b) {
  using std::atan;
  return atan(b.width() / (b.height() + N(kTiny))) - atan(a.width() / (a.height() + N(kTiny)));
}
// `foreground`: of the truth's area instead of the union's. The weight of ciou's last term has no slope.
template <class N>
N overlap(Overlap kind, const Edges<N>& a, const Edges<N>& b, bool foreground, double epsilon = kTiny) {
  using std::max, std::min;
  const N common = intersection(a, b), all = foreground ? b.area() : a.area() + b.area() - common;
  const N iou = common / (all + N(epsilon));
  if (kind == Overlap::iou) return iou;
  const N width = max(a.x2, b.x2) - min(a.x1, b.x1), height = max(a.y2, b.y2) - min(a.y1, b.y1);
  if (kind == Overlap::giou) return iou - (width * height - all) / (width * height + N(kTiny));
  const N dx = (a.x1 + a.x2 - b.x1 - b.x2) / N(2), dy = (a.y1 + a.y2 - b.y1 - b.y2) / N(2);
  const N diou = iou - (dx * dx + dy * dy) / (width * width + height * height + N(kTiny));
  if (kind == Overlap::diou) return diou;
  const N angle = difference_of_angles(a, b), v = N(4 / (M_PI * M_PI)) * angle * angle;
  return diou - N(plain(v) / (1 - plain(iou) + plain(v) + kTiny)) * v;
}

// Non-maximum suppression: of `order`, which names the best first, those that stay, at most `most` (less than 0: all). One
// falls away where `clash(better, it)`.
inline std::vector<int64_t> suppress(const std::vector<int64_t>& order, int64_t most,
                                     const std::function<bool(int64_t, int64_t)>& clash) {
  std::vector<int64_t> stays;
  for (int64_t i : order) {
    if (most >= 0 && int64_t(stays.size()) >= most) break;
    if (std::none_of(stays.begin(), stays.end(), [&](int64_t better) { return clash(better, i); })) stays.push_back(i);
  }
  return stays;
}
// Places of the scores above a threshold, the highest first.
inline std::vector<int64_t> best_first(const double* scores, int64_t n, int64_t step, double above) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i)
    if (scores[i * step] > above) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return scores[a * step] > scores[b * step]; });
  return order;
}

}  // namespace cann_sim
