// Boxes of detection networks and how far two of them overlap. No op lives here.
#pragma once
#include <algorithm>
#include <cmath>

#include "ops/value.h"

namespace cann_sim {

struct Box {
  double x1, y1, x2, y2;
  double width() const { return x2 - x1; }
  double height() const { return y2 - y1; }
  double area() const { return width() * height(); }
};

// Box i of [n, 4], or of [4, n] (columns); `centred`: x, y, width, height. The value is double and dense.
inline Box box_of(const Value& v, int64_t i, bool columns, bool centred) {
  const double* p = v.ptr<double>();
  auto item = [&](int64_t k) { return columns ? p[k * v.sizes[1] + i] : p[i * 4 + k]; };
  if (!centred) return {item(0), item(1), item(2), item(3)};
  return {item(0) - item(2) / 2, item(1) - item(3) / 2, item(0) + item(2) / 2, item(1) + item(3) / 2};
}

enum class Overlap { iou, giou, diou, ciou };

inline double intersection(const Box& a, const Box& b) {
  return std::max(0.0, std::min(a.x2, b.x2) - std::max(a.x1, b.x1)) *
         std::max(0.0, std::min(a.y2, b.y2) - std::max(a.y1, b.y1));
}
constexpr double kTiny = 1e-9;
inline double difference_of_angles(const Box& a, const Box& b) {
  return std::atan(b.width() / (b.height() + kTiny)) - std::atan(a.width() / (a.height() + kTiny));
}
// `foreground`: of the truth's area instead of the union's.
inline double overlap(Overlap kind, const Box& a, const Box& b, bool foreground, double epsilon = kTiny) {
  const double common = intersection(a, b), all = foreground ? b.area() : a.area() + b.area() - common;
  const double iou = common / (all + epsilon);
  if (kind == Overlap::iou) return iou;
  const double width = std::max(a.x2, b.x2) - std::min(a.x1, b.x1), height = std::max(a.y2, b.y2) - std::min(a.y1, b.y1);
  if (kind == Overlap::giou) return iou - (width * height - all) / (width * height + kTiny);
  const double dx = (a.x1 + a.x2 - b.x1 - b.x2) / 2, dy = (a.y1 + a.y2 - b.y1 - b.y2) / 2;
  const double diou = iou - (dx * dx + dy * dy) / (width * width + height * height + kTiny);
  if (kind == Overlap::diou) return diou;
  const double angle = difference_of_angles(a, b), v = 4 / (M_PI * M_PI) * angle * angle;
  return diou - v * v / (1 - iou + v + kTiny);
}

}  // namespace cann_sim
