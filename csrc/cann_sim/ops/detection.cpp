// Regions of images: RoiAlign and its gradient, overlaps of boxes.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/boxes.h"
#include "ops/older.h"

namespace cann_sim {
namespace {

// ---- RoiAlign: every region in a grid of cells, each the mean (or maximum) of bilinear samples -----------------------
struct Region {
  int64_t image;
  double x, y, cell_width, cell_height;
  int64_t across, down;  // samples of a cell
};
struct Grid {
  int64_t height, width, ratio;
  double scale, shift;   // shift: half a pixel where the op aligns
  bool aligned;
};
Region region_of(const float* p, int64_t image, const Grid& g) {
  const double x1 = p[0] * g.scale - g.shift, y1 = p[1] * g.scale - g.shift;
  double width = p[2] * g.scale - g.shift - x1, height = p[3] * g.scale - g.shift - y1;
  if (!g.aligned) width = std::max(width, 1.0), height = std::max(height, 1.0);
  Region r{image, x1, y1, width / double(g.width), height / double(g.height), g.ratio, g.ratio};
  if (g.ratio <= 0) r.across = int64_t(std::ceil(r.cell_width)), r.down = int64_t(std::ceil(r.cell_height));
  return r;
}
// Calls visit(pixel, weight) for the pixels that a sample mixes.
template <class F> void sample(double y, double x, int64_t height, int64_t width, F&& visit) {
  if (y < -1 || y > double(height) || x < -1 || x > double(width)) return;
  y = std::max(y, 0.0), x = std::max(x, 0.0);
  int64_t top = int64_t(y), left = int64_t(x), bottom = top + 1, right = left + 1;
  if (top >= height - 1) top = bottom = height - 1, y = double(top);
  if (left >= width - 1) left = right = width - 1, x = double(left);
  const double dy = y - double(top), dx = x - double(left);
  visit(top * width + left, (1 - dy) * (1 - dx));
  visit(top * width + right, (1 - dy) * dx);
  visit(bottom * width + left, dy * (1 - dx));
  visit(bottom * width + right, dy * dx);
}
// Calls at(y, x) for the samples of a cell.
template <class F> void each_sample(const Region& r, int64_t row, int64_t column, F&& at) {
  for (int64_t i = 0; i < r.down; ++i)
    for (int64_t j = 0; j < r.across; ++j)
      at(r.y + double(row) * r.cell_height + (double(i) + .5) * r.cell_height / double(r.down),
         r.x + double(column) * r.cell_width + (double(j) + .5) * r.cell_width / double(r.across));
}

void align(const Value& image, const std::vector<Region>& regions, const Grid& g, bool largest, const Value& out) {
  const Value x = image.to(mt::kFloat).dense(), made = empty(out.shape(), mt::kFloat);
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  float* to = made.ptr<float>();
  for (const Region& r : regions)
    for (int64_t c = 0; c < channels; ++c) {
      const float* plane = x.ptr<float>() + (r.image * channels + c) * height * width;
      for (int64_t i = 0; i < g.height; ++i)
        for (int64_t j = 0; j < g.width; ++j) {
          double sum = 0, most = 0;
          bool first = true;
          each_sample(r, i, j, [&](double y, double x_at) {
            sample(y, x_at, height, width, [&](int64_t pixel, double weight) {
              const double part = weight * plane[pixel];
              sum += part;
              most = first ? part : std::max(most, part);
              first = false;
            });
          });
          *to++ = float(largest ? most : sum / double(std::max<int64_t>(r.across * r.down, 1)));
        }
    }
  copy(out, made);
}
// The gradient: every cell's, shared out to the pixels that it came from.
void spread(const Value& grad, const std::vector<Region>& regions, const Grid& g, const Value& out) {
  const Value made = full(out.shape(), mt::kFloat, 0), dense = grad.to(mt::kFloat).dense();
  const int64_t channels = out.size(1), height = out.size(2), width = out.size(3);
  const float* from = dense.ptr<float>();
  for (const Region& region : regions)
    for (int64_t c = 0; c < channels; ++c) {
      float* plane = made.ptr<float>() + (region.image * channels + c) * height * width;
      for (int64_t i = 0; i < g.height; ++i)
        for (int64_t j = 0; j < g.width; ++j) {
          const double part = *from++ / double(std::max<int64_t>(region.across * region.down, 1));
          each_sample(region, i, j, [&](double y, double x) {
            sample(y, x, height, width, [&](int64_t pixel, double weight) { plane[pixel] += float(weight * part); });
          });
        }
    }
  copy(out, made);
}
std::vector<Region> regions_of(const Value& boxes, const Grid& g, int64_t images) {  // [n, 5]: the image comes first
  const Value b = boxes.to(mt::kFloat).dense();
  std::vector<Region> made;
  for (int64_t i = 0; i < b.sizes[0]; ++i) {
    const float* p = b.ptr<float>() + 5 * i;
    if (p[0] < 0 || p[0] >= float(images)) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "RoiAlign: a box of an image that is not there");
    made.push_back(region_of(p + 1, int64_t(p[0]), g));
  }
  return made;
}

// (self, boxes, pooledHeight, pooledWidth, spatialScale, samplingRatio, aligned, out)
Grid grid_of(const Call& c, int first) {
  const bool aligned = c.integer(first + 4);
  return {c.integer(first), c.integer(first + 1), c.integer(first + 3), c.number(first + 2), aligned ? .5 : 0., aligned};
}
void expect_grid(const Call& c, int boxes, int first) {
  const TensorMeta& b = c.tensor(boxes);
  EXPECT(b.ndim == 2 && b.sizes[1] == 5, "boxes must be [n, 5], got %s", describe(b).c_str());
  EXPECT(c.integer(first) > 0 && c.integer(first + 1) > 0, "pooledHeight and pooledWidth must be positive");
  constexpr int64_t kMostSamples = 1024;  // of one side of a cell
  EXPECT(c.integer(first + 3) <= kMostSamples, "samplingRatio %ld is more than %ld", c.integer(first + 3), kMostSamples);
}
void check_align(const Call& c) {
  expect_grid(c, 1, 2);
  EXPECT(c.tensor(0).ndim == 4, "self must have 4 dims, got %s", describe(c.tensor(0)).c_str());
  expect_shape(c, 7, {c.tensor(1).sizes[0], c.tensor(0).sizes[1], c.integer(2), c.integer(3)});
}
void run_align(Run& r) {
  const Grid g = grid_of(r.call, 2);
  const Value x = r.tensor(0);
  align(x, regions_of(r.tensor(1), g, x.size(0)), g, false, r.tensor(7));
}
// (gradOutput, boxes, inputShape, pooledHeight, pooledWidth, spatialScale, samplingRatio, aligned, gradInput)
void check_align_backward(const Call& c) {
  expect_grid(c, 1, 3);
  EXPECT(c.ints(2).size() == 4, "inputShape must have 4 items");
  expect_shape(c, 8, Sizes(c.ints(2).begin(), c.ints(2).end()));
  expect_shape(c, 0, {c.tensor(1).sizes[0], c.ints(2)[1], c.integer(3), c.integer(4)});
}
void run_align_backward(Run& r) {
  const Grid g = grid_of(r.call, 3);
  spread(r.tensor(0), regions_of(r.tensor(1), g, r.tensor(8).size(0)), g, r.tensor(8));
}

// (self, rois, batchIndices, mode, outputHeight, outputWidth, samplingRatio, spatialScale, out)
void check_align_plain(const Call& c) {
  const std::string mode = c.string(3);
  EXPECT(mode == "avg" || mode == "max", "mode %s is not avg or max", mode.c_str());
  const TensorMeta& rois = c.tensor(1);
  EXPECT(rois.ndim == 2 && rois.sizes[1] == 4, "rois must be [n, 4], got %s", describe(rois).c_str());
  expect_shape(c, 2, {rois.sizes[0]});
  expect_shape(c, 8, {rois.sizes[0], c.tensor(0).sizes[1], c.integer(4), c.integer(5)});
}
void run_align_plain(Run& r) {
  const Call& c = r.call;
  const Grid g{c.integer(4), c.integer(5), c.integer(6), c.number(7), 0, false};
  const Value rois = r.tensor(1).to(mt::kFloat).dense(), images = r.tensor(2).to(mt::kInt64).dense(), x = r.tensor(0);
  std::vector<Region> regions;
  for (int64_t i = 0; i < rois.sizes[0]; ++i) {
    const int64_t image = images.ptr<int64_t>()[i];
    if (image < 0 || image >= x.size(0)) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnRoiAlign: a box of an image that is not there");
    regions.push_back(region_of(rois.ptr<float>() + 4 * i, image, g));
  }
  align(x, regions, g, std::string(c.string(3)) == "max", r.tensor(8));
}

// (self, rois [n, 5], spatialScale, pooledHeight, pooledWidth, sampleNum, roiEndMode, out); the gradient has the image's shape
// before the sizes, and the width before the height. roiEndMode: 1 counts the last pixel in, 2 and 3 align to half pixels.
struct Ended {
  int shape, scale, height, width, samples, mode, out;
};
constexpr Ended kForward{-1, 2, 3, 4, 5, 6, 7}, kBackward{2, 5, 4, 3, 6, 7, 8};
Grid ended_grid(int64_t height, int64_t width, int64_t samples, double scale, int64_t mode) {
  return {height, width, samples, scale, mode >= 2 ? .5 : 0., mode >= 2};
}
Grid ended_grid(const Call& c, const Ended& at) {
  return ended_grid(c.integer(at.height), c.integer(at.width), c.integer(at.samples), c.number(at.scale), c.integer(at.mode));
}
Value ended_boxes(const Value& given, int64_t mode) {  // a box that counts its last pixel ends one further
  const Value boxes = given.to(mt::kFloat).dense();
  if (mode != 1) return boxes;
  const Value made = empty(boxes.shape(), mt::kFloat);
  for (int64_t i = 0, n = boxes.numel(); i < n; ++i) made.ptr<float>()[i] = boxes.ptr<float>()[i] + (i % 5 > 2 ? 1 : 0);
  return made;
}
template <const Ended& at> void check_ended(const Call& c) {
  const TensorMeta& b = c.tensor(1);
  EXPECT(b.ndim == 2 && b.sizes[1] == 5, "rois must be [n, 5], got %s", describe(b).c_str());
  EXPECT(c.integer(at.height) > 0 && c.integer(at.width) > 0, "the pooled sizes must be positive");
  EXPECT(c.integer(at.mode) >= 0 && c.integer(at.mode) <= 3, "roiEndMode %ld is not 0, 1, 2 or 3", long(c.integer(at.mode)));
  const int64_t channels = at.shape < 0 ? c.tensor(0).sizes[1] : c.ints(at.shape).size() == 4 ? c.ints(at.shape)[1] : -1;
  expect_shape(c, at.shape < 0 ? at.out : 0, {b.sizes[0], channels, c.integer(at.height), c.integer(at.width)});
  if (at.shape >= 0) expect_shape(c, at.out, Sizes(c.ints(at.shape).begin(), c.ints(at.shape).end()));
}
void run_ended(Run& r) {
  const Grid g = ended_grid(r.call, kForward);
  const Value x = r.tensor(0);
  align(x, regions_of(ended_boxes(r.tensor(1), r.call.integer(kForward.mode)), g, x.size(0)), g, false, r.tensor(7));
}
void run_ended_backward(Run& r) {
  const Grid g = ended_grid(r.call, kBackward);
  spread(r.tensor(0), regions_of(ended_boxes(r.tensor(1), r.call.integer(kBackward.mode)), g, r.tensor(8).size(0)), g, r.tensor(8));
}

// By the older interface: (features, rois) or (gradient, rois), the sizes are attributes.
Grid ended_grid(const Older& o) {
  return ended_grid(o.integer("pooled_height", 1), o.integer("pooled_width", 1), o.integer("sample_num", 2), o.real("spatial_scale", 1), o.integer("roi_end_mode", 1));
}
void check_older(Older& o) {
  if (o.in(1).ndim != 2 || o.in(1).size(1) != 5 || o.in(0).ndim != 4 || o.out(0).ndim != 4) o.refuse("expected 4 dims, and rois [n, 5]");
  const Grid g = ended_grid(o);
  const Value cells = o.in(0).size(2) == g.height && o.in(0).size(3) == g.width && o.in(0).size(0) == o.in(1).size(0) ? o.in(0) : o.out(0);
  if (g.height < 1 || g.width < 1 || cells.shape() != Sizes{o.in(1).size(0), o.in(0).size(1), g.height, g.width}) o.refuse("the pooled sizes do not fit");
}
template <bool backward> void run_older(Older& o) {
  const Value out = o.out(0);
  const Grid g = ended_grid(o);
  const auto regions = regions_of(ended_boxes(o.in(1), o.integer("roi_end_mode", 1)), g, (backward ? out : o.in(0)).size(0));
  if (backward) spread(o.in(0), regions, g, out);
  else align(o.in(0), regions, g, false, out);
}
const OlderOps older({{"ROIAlign", 2, 3, 1, run_older<false>, check_older}, {"ROIAlignGrad", 2, 3, 1, run_older<true>, check_older}});

// ---- (bBoxes, gtBoxes, mode, eps, aligned, overlap) -------------------------------------------------------------------
void check_iou(const Call& c) {
  for (int i : {0, 1}) EXPECT(c.tensor(i).ndim == 2 && c.tensor(i).sizes[1] == 4, "boxes must be [n, 4], got %s", describe(c.tensor(i)).c_str());
  const int64_t n = c.tensor(0).sizes[0], m = c.tensor(1).sizes[0];
  const std::string mode = c.string(2);
  EXPECT(mode == "iou" || mode == "iof", "mode %s is not iou or iof", mode.c_str());
  EXPECT(!c.integer(4) || n == m, "as many boxes as truths are needed, got %ld and %ld", long(n), long(m));
  EXPECT(c.tensor(5).numel() == (c.integer(4) ? n : n * m), "overlap %s does not fit", describe(c.tensor(5)).c_str());
}
void run_iou(Run& r) {
  const Value a = r.tensor(0).to(mt::kDouble).dense(), b = r.tensor(1).to(mt::kDouble).dense(), out = r.tensor(5);
  const bool aligned = r.call.integer(4), foreground = std::string(r.call.string(2)) == "iof";
  const int64_t n = a.sizes[0], m = aligned ? 1 : b.sizes[0];
  const Value made = empty({m, n}, mt::kDouble);
  for (int64_t g = 0; g < m; ++g)
    for (int64_t i = 0; i < n; ++i)
      made.ptr<double>()[g * n + i] = overlap(Overlap::iou, box_of(a, i, false, false), box_of(b, aligned ? i : g, false, false),
                                              foreground, r.call.number(3));
  copy(out, made.reshape(out.shape()));
}

const Op ops[] = {
    {"aclnnRoiAlign", check_align_plain, run_align_plain},
    {"aclnnRoiAlignV2", check_align, run_align},
    {"aclnnRoiAlignV2Backward", check_align_backward, run_align_backward},
    {"aclnnROIAlign", check_ended<kForward>, run_ended},
    {"aclnnROIAlignBackward", check_ended<kBackward>, run_ended_backward},
    {"aclnnIou", check_iou, run_iou},
};

}  // namespace
}  // namespace cann_sim
