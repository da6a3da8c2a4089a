// Boxes with an angle, in degrees, by the older interface: overlaps, non-maximum suppression, and offsets from anchors.
#include <algorithm>
#include <cmath>

#include "ops/boxes.h"
#include "ops/older.h"

namespace cann_sim {
namespace {

constexpr double kDegree = M_PI / 180;
Value doubles(const Value& v) { return v.to(mt::kDouble).dense(); }

struct Point {
  double x, y;
};
struct Turned {
  double x, y, width, height, angle;
  double area() const { return width * height; }
  std::vector<Point> corners() const {
    const double c = std::cos(angle * kDegree), s = std::sin(angle * kDegree);
    std::vector<Point> made;
    for (auto [p, q] : {Point{-.5, -.5}, {.5, -.5}, {.5, .5}, {-.5, .5}})
      made.push_back({x + p * width * c - q * height * s, y + p * width * s + q * height * c});
    return made;
  }
};
// Numbers that lie `step` apart; `edges`: x1, y1, x2, y2, angle instead of x, y, width, height, angle.
Turned turned(const double* p, int64_t step, bool edges) {
  const double a = p[0], b = p[step], c = p[2 * step], d = p[3 * step], angle = p[4 * step];
  return edges ? Turned{(a + c) / 2, (b + d) / 2, c - a, d - b, angle} : Turned{a, b, c, d, angle};
}

double area(const std::vector<Point>& p) {
  double twice = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const Point &a = p[i], &b = p[(i + 1) % p.size()];
    twice += a.x * b.y - b.x * a.y;
  }
  return std::fabs(twice) / 2;
}
// What of a convex shape lies on the inner side of each of another's edges.
double common_area(const Turned& a, const Turned& b) {
  if (!(a.area() > 0 && b.area() > 0)) return 0;
  std::vector<Point> shape = a.corners();
  const std::vector<Point> by = b.corners();
  for (size_t k = 0; k < 4 && !shape.empty(); ++k) {
    const Point from = by[k], to = by[(k + 1) % 4];
    auto side = [&](const Point& p) { return (to.x - from.x) * (p.y - from.y) - (to.y - from.y) * (p.x - from.x); };
    std::vector<Point> left;
    for (size_t i = 0; i < shape.size(); ++i) {
      const Point p = shape[i], q = shape[(i + 1) % shape.size()];
      const double at_p = side(p), at_q = side(q);
      if (at_p >= 0) left.push_back(p);
      if ((at_p >= 0) != (at_q >= 0)) {
        const double part = at_p / (at_p - at_q);
        left.push_back({p.x + part * (q.x - p.x), p.y + part * (q.y - p.y)});
      }
    }
    shape = left;
  }
  return area(shape);
}
double iou(const Turned& a, const Turned& b, bool foreground) {
  const double common = common_area(a, b), all = foreground ? b.area() : a.area() + b.area() - common;
  return all > 0 ? common / all : 0;
}

// (boxes [B, 5, N], others [B, 5, K]): every pair as [B, N, K], or box i with box i as [B, N]
template <class F> void pairs(Older& o, bool cross, F&& of) {
  const Value a = doubles(o.in(0)), b = doubles(o.in(1)), out = o.out(0);
  if (a.ndim != 3 || b.ndim != 3 || a.sizes[1] != 5 || b.sizes[1] != 5 || a.sizes[0] != b.sizes[0]) o.refuse("expected boxes [B, 5, N]");
  const int64_t n = a.sizes[2], k = b.sizes[2];
  const bool edges = o.integer("trans", 0);
  if (!cross && n != k) o.refuse("as many boxes as others are needed");
  const Value made = empty(cross ? Sizes{a.sizes[0], n, k} : Sizes{a.sizes[0], n}, mt::kDouble);
  for (int64_t r = 0; r < made.numel(); ++r) {
    const int64_t image = r / (cross ? n * k : n), i = cross ? r / k % n : r % n, j = cross ? r % k : i;
    made.ptr<double>()[r] = of(turned(a.ptr<double>() + image * 5 * n + i, n, edges), turned(b.ptr<double>() + image * 5 * k + j, k, edges));
  }
  if (made.numel() != out.numel()) o.refuse("the output must have an item a pair");
  copy(out, made.reshape(out.shape()));
}
void rotated_overlaps(Older& o) { pairs(o, true, common_area); }
void rotated_iou(Older& o) {
  const bool foreground = o.text("mode", "iou") == "iof";
  pairs(o, o.integer("is_cross", 1), [&](const Turned& a, const Turned& b) { return iou(a, b, foreground); });
}

// (boxes [N, 5], scores [N], labels?): the boxes that stay and their places; the outputs get as many rows as there are
void rotated_nms(Older& o) {
  const Value boxes = doubles(o.in(0)), scores = doubles(o.in(1));
  if (boxes.ndim != 2 || boxes.sizes[1] != 5 || scores.numel() != boxes.sizes[0]) o.refuse("expected boxes [N, 5] and N scores");
  const bool edges = o.integer("mode", 0) == 1, labelled = o.given(2) && o.in(2).numel() == scores.numel() && scores.numel() > 1;
  const double limit = o.real("iou_threshold", 0);
  const Value labels = labelled ? doubles(o.in(2)) : Value();
  auto box = [&](int64_t i) { return turned(boxes.ptr<double>() + 5 * i, 1, edges); };
  auto clash = [&](int64_t a, int64_t b) {
    return (!labelled || labels.ptr<double>()[a] == labels.ptr<double>()[b]) && iou(box(a), box(b), false) > limit;
  };
  const auto stays = suppress(best_first(scores.ptr<double>(), scores.numel(), 1, o.real("score_threshold", 0)), o.integer("max_output_size", -1), clash);
  const auto count = int64_t(stays.size());
  const Value rows = o.found(0, {count, 5}), places = o.found(1, {count});
  for (int64_t k = 0; k < count; ++k) {
    copy(rows.select(0, k), boxes.select(0, stays[k]));
    fill(places.select(0, k), double(stays[k]));
  }
}

// ---- offsets from anchors: [B, 5, N] of x1, y1, x2, y2, angle; angles by their tangents -----------------------------------
struct Anchors {
  Value anchors, others, made;
  std::vector<double> weights;
  int64_t n;
  explicit Anchors(Older& o) : anchors(doubles(o.in(0))), others(doubles(o.in(1))), weights(o.reals("weight")) {
    if (anchors.ndim != 3 || anchors.sizes[1] != 5 || others.shape() != anchors.shape()) o.refuse("expected boxes [B, 5, N]");
    weights.resize(5, 1);
    n = anchors.sizes[2];
    made = empty(anchors.shape(), mt::kDouble);
  }
  // of(the anchor, the 5 numbers beside it, where the 5 results go)
  template <class F> void each(F&& of) {
    for (int64_t r = 0; r < anchors.sizes[0] * n; ++r) {
      const int64_t first = r / n * 5 * n + r % n;
      double given[5], result[5];
      for (int64_t k = 0; k < 5; ++k) given[k] = others.ptr<double>()[first + k * n];
      of(turned(anchors.ptr<double>() + first, n, true), given, result);
      for (int64_t k = 0; k < 5; ++k) made.ptr<double>()[first + k * n] = result[k];
    }
  }
};
void encode(Older& o) {  // (anchors, truths)
  Anchors all(o);
  all.each([&](const Turned& a, const double* given, double* to) {
    const Turned t = turned(given, 1, true);
    const double coded[] = {(t.x - a.x) / a.width, (t.y - a.y) / a.height, std::log(t.width / a.width), std::log(t.height / a.height),
                            std::tan(t.angle * kDegree) - std::tan(a.angle * kDegree)};
    for (int k = 0; k < 5; ++k) to[k] = coded[k] * all.weights[k];
  });
  copy(o.out(0), all.made);
}
void decode(Older& o) {  // (anchors, offsets)
  Anchors all(o);
  all.each([&](const Turned& a, const double* given, double* to) {
    double d[5];
    for (int k = 0; k < 5; ++k) d[k] = given[k] / all.weights[k];
    const double x = a.x + d[0] * a.width, y = a.y + d[1] * a.height, w = a.width * std::exp(d[2]) / 2, h = a.height * std::exp(d[3]) / 2;
    const double box[] = {x - w, y - h, x + w, y + h, std::atan(std::tan(a.angle * kDegree) + d[4]) / kDegree};
    std::copy(box, box + 5, to);
  });
  copy(o.out(0), all.made);
}

const OlderOps ops({
    {"RotatedOverlaps", 2, 2, 1, rotated_overlaps}, {"RotatedIou", 2, 2, 1, rotated_iou}, {"RotatedNMS", 2, 3, 2, rotated_nms},
    {"RotatedBoxEncode", 2, 2, 1, encode}, {"RotatedBoxDecode", 2, 2, 1, decode},
});

}  // namespace
}  // namespace cann_sim
