// Detection networks by the older interface: which boxes stay or are assigned, and pooling of regions by position.
#include <algorithm>
#include <cmath>
#include <random>

#include "ops/boxes.h"
#include "ops/older.h"

namespace cann_sim {
namespace {

Value doubles(const Value& v) { return v.to(mt::kDouble).dense(); }
auto overlaps_more(const Value& boxes, double limit) {
  return [&boxes, limit](int64_t a, int64_t b) {
    return overlap(Overlap::iou, box_of(boxes, a, false, false), box_of(boxes, b, false, false), false) > limit;
  };
}

// ---- non-maximum suppression --------------------------------------------------------------------------------------------
// (boxes [N, 4], scores [N], how many at most, overlap, score): places, with zeros behind, and how many are real
void nms_v4(Older& o) {
  const Value boxes = doubles(o.in(0)), scores = doubles(o.in(1)), places = o.out(0), made = full(places.shape(), mt::kInt32, 0);
  if (boxes.ndim != 2 || boxes.sizes[1] != 4 || scores.numel() != boxes.sizes[0]) o.refuse("expected boxes [N, 4] and N scores");
  const int64_t most = std::min(int64_t(o.number(2)), places.numel());
  const auto stays = suppress(best_first(scores.ptr<double>(), scores.numel(), 1, o.number(4)), most, overlaps_more(boxes, o.number(3)));
  std::copy(stays.begin(), stays.end(), made.ptr<int32_t>());
  copy(places, made);
  fill(o.out(1), double(stays.size()));
}

// (boxes with a score behind the edges, the best first): the boxes as they came, their places, and 1 for those that stay
void nms_with_mask(Older& o) {
  const Value all = o.in(0), made = full(o.out(2).shape(), mt::kUInt8, 0);
  if (all.ndim != 2 || all.sizes[1] < 5 || made.numel() != all.sizes[0]) o.refuse("expected rows of 4 edges and a score");
  const Value boxes = doubles(all.narrow(1, 0, 4)), places = empty({all.sizes[0]}, mt::kInt32);
  std::vector<int64_t> order(all.sizes[0]);
  for (size_t i = 0; i < order.size(); ++i) order[i] = places.ptr<int32_t>()[i] = int32_t(i);
  for (int64_t i : suppress(order, -1, overlaps_more(boxes, o.real("iou_threshold", 0.5)))) made.ptr<uint8_t>()[i] = 1;
  copy(o.out(0), all.narrow(1, 0, 5));
  copy(o.out(1), places);
  copy(o.out(2), made);
}

struct Found {
  double score;
  int64_t box, of_class;
};
// Of every class those boxes that stay; boxes [N, 1 or classes, 4], scores [N, classes].
std::vector<Found> found_in(const Value& boxes, const Value& scores, Older& o) {
  const int64_t n = scores.sizes[0], classes = scores.sizes[1];
  std::vector<Found> all;
  for (int64_t c = 0; c < classes; ++c) {
    const Value own = boxes.select(1, boxes.sizes[1] == 1 ? 0 : c).dense();
    const double* of_class = scores.ptr<double>() + c;
    const auto order = best_first(of_class, n, classes, o.real("score_threshold", 0));
    for (int64_t i : suppress(order, o.integer("max_size_per_class", -1), overlaps_more(own, o.real("iou_threshold", 1))))
      all.push_back({of_class[i * classes], i, c});
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.score > b.score; });
  return all;
}
// (boxes [B, N, 1 or classes, 4], scores [B, N, classes]): boxes, scores and classes of the best, and how many of a batch. An
// image of which there are no scores finds nothing.
void check_batch_nms(Older& o) {
  if (o.given(2) || o.given(3) || o.integer("change_coordinate_frame", 0))
    o.refuse("clip_window, num_valid_boxes and change_coordinate_frame are not supported");
}
void batch_nms(Older& o) {
  const bool turned = o.integer("transpose_box", 0);
  Value boxes = doubles(o.in(0)), scores = doubles(o.in(1));
  if (boxes.ndim != 4 || scores.ndim != 3) o.refuse("expected boxes of 4 dims and scores of 3");
  if (turned) boxes = boxes.permute({0, 3, 1, 2}).dense(), scores = scores.transpose(1, 2).dense();
  const Value out_boxes = full(o.out(0).shape(), mt::kDouble, 0), out_scores = full(o.out(1).shape(), mt::kDouble, 0);
  const Value out_classes = full(o.out(2).shape(), mt::kDouble, 0), counts = full(o.out(3).shape(), mt::kInt32, 0);
  const int64_t images = boxes.sizes[0], most = out_scores.size(-1);
  if (boxes.sizes[3] != 4 || (boxes.sizes[2] != 1 && boxes.sizes[2] != scores.sizes[2]) || boxes.sizes[1] < scores.sizes[1])
    o.refuse("boxes and scores do not fit together");
  for (int64_t b = 0; b < std::min(images, scores.sizes[0]); ++b) {
    const Value own = boxes.select(0, b).dense();
    const auto found = found_in(own, scores.select(0, b).dense(), o);
    const int64_t count = std::min<int64_t>(most, int64_t(found.size()));
    for (int64_t k = 0; k < count; ++k) {
      const int64_t row = found[k].box * own.sizes[1] + (own.sizes[1] == 1 ? 0 : found[k].of_class), at = b * most + k;
      std::copy_n(own.ptr<double>() + row * 4, 4, out_boxes.ptr<double>() + at * 4);
      out_scores.ptr<double>()[at] = found[k].score;
      out_classes.ptr<double>()[at] = double(found[k].of_class);
    }
    counts.ptr<int32_t>()[b] = int32_t(count);
  }
  const Value results[] = {out_boxes, out_scores, out_classes, counts};
  for (size_t k = 0; k < 4; ++k) copy(o.out(k), results[k]);
}

// ---- assignment of truths to anchors ------------------------------------------------------------------------------------
// (assigned, overlaps [truths, anchors], responsible anchors, largest overlap of each anchor, its truth, largest of each truth,
// its anchor, number of truths): an anchor gets its truth's number, counted from 1
void assign_positive(Older& o) {
  const Value assigned = empty(o.in(0).shape(), mt::kDouble), overlaps = doubles(o.in(1)), responsible = doubles(o.in(2));
  const Value best = doubles(o.in(3)), truth_of = doubles(o.in(4)), best_of_truth = doubles(o.in(5)), anchor_of = doubles(o.in(6));
  copy(assigned, o.in(0));
  const int64_t anchors = assigned.numel(), truths = std::min(int64_t(o.number(7)), overlaps.ndim == 2 ? overlaps.sizes[0] : 0);
  if (overlaps.ndim != 2 || overlaps.sizes[1] != anchors || responsible.numel() != anchors || best.numel() != anchors ||
      truth_of.numel() != anchors || best_of_truth.numel() < truths || anchor_of.numel() < truths)
    o.refuse("the operands do not fit together");
  double* to = assigned.ptr<double>();
  auto answers = [&](int64_t i) { return responsible.ptr<double>()[i] != 0; };
  for (int64_t i = 0; i < anchors; ++i)
    if (answers(i) && best.ptr<double>()[i] > o.real("pos_iou_thr", 0)) to[i] = truth_of.ptr<double>()[i] + 1;
  for (int64_t t = 0; t < truths; ++t) {
    const double most = best_of_truth.ptr<double>()[t];
    if (most <= o.real("min_pos_iou", 0)) continue;
    const auto own = int64_t(anchor_of.ptr<double>()[t]);
    for (int64_t i = 0; i < anchors; ++i) {
      const bool chosen = o.integer("gt_max_assign_all", 0) ? overlaps.ptr<double>()[t * anchors + i] == most : i == own;
      if (chosen && answers(i)) to[i] = double(t + 1);
    }
  }
  copy(o.out(0), assigned);
}

// (x of bools): places of `count` true items, at random where there are more, zeros behind; and which rows are real
void random_choice(Older& o) {
  const Value x = o.in(0).to(mt::kBool).dense(), made = full(o.out(0).shape(), mt::kInt32, 0), real = full(o.out(1).shape(), mt::kBool, 0);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < x.numel(); ++i)
    if (x.ptr<bool>()[i]) places.push_back(i);
  const auto count = size_t(real.numel());
  if (places.size() > count) {
    std::seed_seq seeds{o.integer("seed", 0), o.integer("seed2", 0)};
    std::mt19937_64 source(seeds);
    std::shuffle(places.begin(), places.end(), source);
    places.resize(count);
  }
  for (size_t k = 0; k < places.size(); ++k) {
    real.ptr<bool>()[k] = true;
    for (int64_t d = x.ndim - 1, rest = places[k]; d >= 0; rest /= x.sizes[d--])
      made.ptr<int32_t>()[k * x.ndim + d] = int32_t(rest % x.sizes[d]);
  }
  copy(o.out(0), made);
  copy(o.out(1), real);
}

// ---- pooling of regions by position -------------------------------------------------------------------------------------
// Visits every bin of every region: (region, image, plane, first line, line behind, first column, column behind, bin).
template <class F> void each_bin(Older& o, const Value& regions, const Value& image, F&& visit) {
  const int64_t groups = o.integer("group_size", 1), dim = o.integer("output_dim", 1), height = image.sizes[2], width = image.sizes[3];
  const double scale = o.real("spatial_scale", 1);
  if (regions.ndim != 3 || regions.sizes[1] != 5 || image.ndim != 4 || image.sizes[1] != dim * groups * groups)
    o.refuse("expected regions [batch, 5, N] and planes [batch, output_dim * group_size^2, H, W]");
  const Value rows = regions.transpose(1, 2).dense();
  for (int64_t r = 0; r < rows.sizes[0] * rows.sizes[1]; ++r) {
    const double* p = rows.ptr<double>() + 5 * r;
    const auto of = int64_t(p[0]);
    if (of < 0 || of >= image.sizes[0]) continue;
    const double x = std::nearbyint(p[1]) * scale, y = std::nearbyint(p[2]) * scale;
    const double w = std::max((std::nearbyint(p[3]) + 1) * scale - x, 0.1) / double(groups);
    const double h = std::max((std::nearbyint(p[4]) + 1) * scale - y, 0.1) / double(groups);
    auto within = [](double at, int64_t size) { return int64_t(std::min(std::max(at, 0.0), double(size))); };
    for (int64_t bin = 0; bin < dim * groups * groups; ++bin) {
      const double i = double(bin / groups % groups), j = double(bin % groups);
      visit(r, of, bin, within(std::floor(y + i * h), height), within(std::ceil(y + (i + 1) * h), height),
            within(std::floor(x + j * w), width), within(std::ceil(x + (j + 1) * w), width));
    }
  }
}
void pool_regions(Older& o) {  // (x, rois)
  const Value x = doubles(o.in(0)), made = full(o.out(0).shape(), mt::kDouble, 0);
  const int64_t height = x.size(2), width = x.size(3), planes = x.size(1);
  each_bin(o, doubles(o.in(1)), x, [&](int64_t r, int64_t of, int64_t bin, int64_t top, int64_t low, int64_t left, int64_t right) {
    double sum = 0;
    for (int64_t i = top; i < low; ++i)
      for (int64_t j = left; j < right; ++j) sum += x.ptr<double>()[((of * planes + bin) * height + i) * width + j];
    if (low > top && right > left) made.ptr<double>()[r * planes + bin] = sum / double((low - top) * (right - left));
  });
  copy(o.out(0), made);
}
void pool_regions_grad(Older& o) {  // (gradient, rois)
  const Value dy = doubles(o.in(0)), made = full(o.out(0).shape(), mt::kDouble, 0);
  const int64_t height = made.size(2), width = made.size(3), planes = made.size(1);
  each_bin(o, doubles(o.in(1)), made, [&](int64_t r, int64_t of, int64_t bin, int64_t top, int64_t low, int64_t left, int64_t right) {
    const double part = dy.ptr<double>()[r * planes + bin] / double(std::max<int64_t>((low - top) * (right - left), 1));
    for (int64_t i = top; i < low; ++i)
      for (int64_t j = left; j < right; ++j) made.ptr<double>()[((of * planes + bin) * height + i) * width + j] += part;
  });
  copy(o.out(0), made);
}

// (labels of anchors: above 0 an object, 0 background): at most so many are kept, of which a share may be objects, and the others
// become -1. Which ones are drawn, always the same way.
void sub_sample(Older& o) {
  const int64_t most = o.integer("batch_size_per_images", 256);
  const double share = o.real("positive_fraction", 0.5);
  if (most < 0 || share < 0 || share > 1) o.refuse("expected a number of anchors and a share of them");
  const Value labels = o.in(0).to(mt::kInt64).dense(), made = full(labels.shape(), mt::kInt64, -1);
  std::vector<int64_t> objects, background;
  for (int64_t i = 0; i < labels.numel(); ++i)
    if (const int64_t label = labels.ptr<int64_t>()[i]; label >= 0) (label > 0 ? objects : background).push_back(i);
  std::mt19937_64 source(1);
  const auto keep = [&](std::vector<int64_t>& of, int64_t n) {
    std::shuffle(of.begin(), of.end(), source);
    of.resize(size_t(std::min<int64_t>(n, int64_t(of.size()))));
    for (int64_t i : of) made.ptr<int64_t>()[i] = labels.ptr<int64_t>()[i];
  };
  keep(objects, int64_t(double(most) * share));
  keep(background, most - int64_t(objects.size()));
  copy(o.out(0), made);
}

const OlderOps ops({
    {"SubSample", 1, 1, 1, sub_sample}, {"NonMaxSuppressionV4", 5, 5, 2, nms_v4}, {"NMSWithMask", 1, 1, 3, nms_with_mask},
    {"BatchMultiClassNonMaxSuppression", 2, 4, 4, batch_nms, check_batch_nms}, {"GridAssignPositive", 8, 8, 1, assign_positive},
    {"RandomChoiceWithMask", 1, 1, 2, random_choice}, {"PSROIPoolingV2", 2, 2, 1, pool_regions},
    {"PSROIPoolingGradV2D", 2, 2, 1, pool_regions_grad},
});

}  // namespace
}  // namespace cann_sim
