// Boxes of detection networks by the older interface: overlaps (IoU and its kin), and boxes as offsets from anchors.
#include <algorithm>
#include <cmath>

#include "ops/boxes.h"
#include "ops/older.h"

namespace cann_sim {
namespace {

double half(double x) {  // the nearest float16
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), -14) - 10), made = std::nearbyint(x / unit) * unit;
  return std::fabs(made) > 65504 ? std::copysign(HUGE_VAL, x) : made;
}

// Overlap of a box with the truth `b` as CANN's Iou has it: edges of areas are longer by epsilon, those of the intersection are
// not. In float16 every step is rounded, and lengths are fifths of what they are, so that areas of 1,000 by 1,000 are finite.
double iou(const Box& a, const Box& b, bool foreground, double epsilon, bool in_half) {
  auto step = [in_half](double x) { return in_half ? half(x) : x; };
  const double fifth = in_half ? half(0.2) : 1;
  auto length = [&](double from, double to, double more) { return step(step(step(to - from) + more) * fifth); };
  auto area = [&](const Box& box, double more) { return step(length(box.x1, box.x2, more) * length(box.y1, box.y2, more)); };
  const Box both{std::max(a.x1, b.x1), std::max(a.y1, b.y1), std::min(a.x2, b.x2), std::min(a.y2, b.y2)};
  const double common = both.x2 > both.x1 && both.y2 > both.y1 ? area(both, 0) : 0, of_b = area(b, epsilon);
  if (common == 0) return 0;
  return step(common / (foreground ? of_b : step(step(area(a, epsilon) + of_b) - common)));
}

// (bboxes, gtboxes): every pair [gt, box], or box i with box i. Iou takes rows of boxes, the others columns.
template <Overlap kind> void overlaps(Older& o) {
  const bool columns = kind != Overlap::iou, centred = columns && o.integer("trans", 0);
  const bool foreground = o.text("mode", "iou") == "iof";
  const Value a = o.in(0).to(mt::kDouble).dense(), b = o.in(1).to(mt::kDouble).dense(), out = o.out(0);
  if (a.ndim != 2 || b.ndim != 2 || a.sizes[!columns] != 4 || b.sizes[!columns] != 4) o.refuse("boxes need 4 numbers each");
  const int64_t n = a.sizes[columns], m = b.sizes[columns];
  const bool cross = columns ? o.integer("is_cross", 1) != 0 : true;
  if (!cross && n != m) o.refuse("as many boxes as truths are needed");
  const bool in_half = o.in(0).dtype == mt::kHalf;
  const double epsilon = o.real("eps", 0);
  const Value made = empty(cross ? Sizes{m, n} : Sizes{n}, mt::kDouble), angles = empty(made.shape(), mt::kDouble);
  for (int64_t g = 0; g < (cross ? m : 1); ++g)
    for (int64_t i = 0; i < n; ++i) {
      const Box x = box_of(a, i, columns, centred), y = box_of(b, cross ? g : i, columns, centred);
      made.ptr<double>()[g * n + i] =
          kind == Overlap::iou ? iou(x, y, foreground, epsilon, in_half) : overlap(kind, x, y, foreground);
      angles.ptr<double>()[g * n + i] = difference_of_angles(x, y);
    }
  copy(out, made.reshape(out.shape()));
  if (kind == Overlap::ciou) copy(o.out(1), angles.reshape(o.out(1).shape()));
}

// (gradient, bboxes, gtboxes, ...): the gradients of both boxes; pairs of box i with box i only, as CANN has it.
void check_pairs(Older& o) {
  if (o.integer("is_cross", 1)) o.refuse("only pairs of box i with box i have a gradient");
  const Value a = o.in(1);
  if (a.ndim != 2 || a.sizes[0] != 4 || a.shape() != o.in(2).shape() || o.in(0).numel() != a.sizes[1]) o.refuse("boxes need 4 numbers each");
}
template <Overlap kind> void overlap_grads(Older& o) {
  const bool centred = o.integer("trans", 0), foreground = o.text("mode", "iou") == "iof";
  const Value dy = o.in(0).to(mt::kDouble).dense(), a = o.in(1).to(mt::kDouble).dense(), b = o.in(2).to(mt::kDouble).dense();
  const int64_t n = a.sizes[1];
  const Value da = empty(a.shape(), mt::kDouble), db = empty(b.shape(), mt::kDouble);
  for (int64_t i = 0; i < n; ++i) {
    const Slopes found = overlap(kind, box_of<Slopes>(a, i, true, centred), box_of<Slopes>(b, i, true, centred, 4), foreground);
    for (int64_t k = 0; k < 4; ++k) {
      da.ptr<double>()[k * n + i] = found.along[k] * dy.ptr<double>()[i];
      db.ptr<double>()[k * n + i] = found.along[4 + k] * dy.ptr<double>()[i];
    }
  }
  copy(o.out(0), da);
  copy(o.out(1), db);
}

// ---- boxes as offsets from anchors -------------------------------------------------------------------------------------
struct Scaling {
  std::vector<double> means, stds;
  explicit Scaling(const Older& o) : means(o.reals("means")), stds(o.reals("stds")) {
    means.resize(4, 0);
    stds.resize(4, 1);
  }
};
// A box has one pixel more than the difference of its edges.
struct Centre {
  double x, y, width, height;
  explicit Centre(const double* p)
      : x((p[0] + p[2]) / 2), y((p[1] + p[3]) / 2), width(p[2] - p[0] + 1), height(p[3] - p[1] + 1) {}
  Centre rounded() const {
    Centre made(*this);
    for (double* v : {&made.x, &made.y, &made.width, &made.height}) *v = half(*v);
    return made;
  }
};
// (anchor_box, ground_truth_box). A card computes in float16, float32 boxes too: torch_npu's documentation has 13.3281 for 40 / 3.
void encode(Older& o) {
  const Value anchors = o.in(0).to(mt::kDouble).dense(), truths = o.in(1).to(mt::kDouble).dense();
  const Value made = empty(anchors.shape(), mt::kDouble);
  const Scaling scaling(o);
  for (int64_t i = 0; i < anchors.sizes[0]; ++i) {
    const Centre a = Centre(anchors.ptr<double>() + 4 * i).rounded(), t = Centre(truths.ptr<double>() + 4 * i).rounded();
    auto log_of = [](double x) { return half(std::log(half(std::fabs(x)))); };
    const double raw[] = {half(half(t.x - a.x) / a.width), half(half(t.y - a.y) / a.height), log_of(t.width / a.width),
                          log_of(t.height / a.height)};
    for (int k = 0; k < 4; ++k)
      made.ptr<double>()[4 * i + k] = half(half(raw[k] - half(scaling.means[k])) * half(1 / scaling.stds[k]));
  }
  copy(o.out(0), made);
}
void decode(Older& o) {  // (rois, deltas)
  const Value rois = o.in(0).to(mt::kDouble).dense(), deltas = o.in(1).to(mt::kDouble).dense();
  const Value made = empty(rois.shape(), mt::kDouble);
  const Scaling scaling(o);
  const Sizes limit = o.list("max_shape");
  const double most = std::fabs(std::log(o.real("wh_ratio_clip", 16.0 / 1000)));
  for (int64_t i = 0; i < rois.sizes[0]; ++i) {
    const Centre a(rois.ptr<double>() + 4 * i);
    double d[4];
    for (int k = 0; k < 4; ++k) d[k] = deltas.ptr<double>()[4 * i + k] * scaling.stds[k] + scaling.means[k];
    auto grown = [&](double by) { return std::exp(std::min(std::max(by, -most), most)); };
    const double width = a.width * grown(d[2]), height = a.height * grown(d[3]);
    const double x = a.x + a.width * d[0], y = a.y + a.height * d[1];
    const double edges[] = {x - width / 2 + 0.5, y - height / 2 + 0.5, x + width / 2 - 0.5, y + height / 2 - 0.5};
    for (int k = 0; k < 4; ++k) {
      double edge = edges[k];
      if (limit.size() == 2) edge = std::min(std::max(edge, 0.0), double(limit[k % 2 ? 0 : 1] - 1));
      made.ptr<double>()[4 * i + k] = edge;
    }
  }
  copy(o.out(0), made);
}

// ---- grids of anchors -------------------------------------------------------------------------------------------------
void response_flags(Older& o) {  // (gt_bboxes): 1 for the anchors of a cell that holds the middle of a truth
  const Value truths = o.in(0).to(mt::kDouble).dense(), out = o.out(0), made = full(out.shape(), mt::kUInt8, 0);
  const Sizes size = o.list("featmap_size"), stride = o.list("strides");
  const int64_t anchors = o.integer("num_base_anchors", 1);
  if (size.size() != 2 || stride.size() != 2 || size[0] * size[1] * anchors != out.numel()) o.refuse("featmap_size does not fit");
  for (int64_t i = 0; i < truths.sizes[0]; ++i) {
    const double* p = truths.ptr<double>() + 4 * i;
    const int64_t x = int64_t(std::floor((p[0] + p[2]) / 2 / double(stride[0]))), y = int64_t(std::floor((p[1] + p[3]) / 2 / double(stride[1])));
    if (x < 0 || x >= size[1] || y < 0 || y >= size[0]) continue;
    std::fill_n(made.ptr<uint8_t>() + (y * size[1] + x) * anchors, anchors, uint8_t(1));
  }
  copy(out, made);
}
void yolo_encode(Older& o) {  // (anchor_boxes, gt_bboxes, stride)
  const Value anchors = o.in(0).to(mt::kDouble).dense(), truths = o.in(1).to(mt::kDouble).dense(), strides = o.in(2).to(mt::kDouble).dense();
  const Value made = empty(anchors.shape(), mt::kDouble);
  const double least = 1e-6;
  for (int64_t i = 0; i < anchors.sizes[0]; ++i) {
    const Box a = box_of(anchors, i, false, false), t = box_of(truths, i, false, false);
    const double stride = strides.ptr<double>()[strides.numel() == 1 ? 0 : i];
    auto place = [&](double from, double to) { return std::min(std::max((to - from) / 2 / stride + .5, least), 1 - least); };
    auto size = [&](double from, double to) { return std::log(std::max(to / from, least)); };
    const double coded[] = {place(a.x1 + a.x2, t.x1 + t.x2), place(a.y1 + a.y2, t.y1 + t.y2), size(a.width(), t.width()), size(a.height(), t.height())};
    std::copy(coded, coded + 4, made.ptr<double>() + 4 * i);
  }
  copy(o.out(0), made);
}

const OlderOps ops({
    {"AnchorResponseFlags", 1, 1, 1, response_flags}, {"YoloBoxesEncode", 3, 3, 1, yolo_encode},
    {"Iou", 2, 2, 1, overlaps<Overlap::iou>}, {"GIoU", 2, 2, 1, overlaps<Overlap::giou>},
    {"DIoU", 2, 2, 1, overlaps<Overlap::diou>}, {"CIoU", 2, 2, 2, overlaps<Overlap::ciou>},
    {"GIoUGrad", 3, 3, 2, overlap_grads<Overlap::giou>, check_pairs}, {"DIoUGrad", 3, 3, 2, overlap_grads<Overlap::diou>, check_pairs},
    {"CIoUGrad", 4, 4, 2, overlap_grads<Overlap::ciou>, check_pairs},
    {"BoundingBoxEncode", 2, 2, 1, encode}, {"BoundingBoxDecode", 2, 2, 1, decode},
});

}  // namespace
}  // namespace cann_sim
