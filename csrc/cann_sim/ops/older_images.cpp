// Images by the older interface: pooling, resizing, sampling, padding and patches, with their gradients.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/older.h"

namespace cann_sim {
namespace {

// ---- windows ------------------------------------------------------------------------------------------------------------------
// n numbers of a list that has one for all, n, or some for batch and channels too: [1, 1, h, w], or `middle` [1, h, w, 1].
Sizes numbers_of(Older& o, const char* name, size_t n, int64_t otherwise, bool middle = false) {
  const Sizes given = o.list(name);
  if (given.empty()) return Sizes(n, otherwise);
  if (given.size() == 1) return Sizes(n, given[0]);
  if (given.size() < n) o.refuse(std::string(name) + " has too few items");
  const auto begin = given.begin() + long(middle && given.size() == n + 2 ? 1 : given.size() - n);
  return Sizes(begin, begin + long(n));
}
// Padding before each dim. Two numbers a dim are before and after, and torch's clients give two equal ones.
Sizes pads_of(Older& o, size_t n) {
  const Sizes given = o.list("pads");
  if (given.size() != 2 * n) return numbers_of(o, "pads", n, 0);
  Sizes made;
  for (size_t d = 0; d < n; ++d) made.push_back(given[2 * d]);
  return made;
}
struct Windows {
  Sizes kernel, stride, pad, spread;
  Windows(Older& o, size_t n)
      : kernel(numbers_of(o, "ksize", n, 1)), stride(numbers_of(o, "strides", n, 1)), pad(pads_of(o, n)), spread(numbers_of(o, "dilation", n, 1)) {}
};
// MaxPoolWithArgmaxV1 has all its lists, also that of the pads, as [1, h, w, 1].
struct MiddleWindows : Windows {
  explicit MiddleWindows(Older& o) : Windows(o, 2) {
    kernel = numbers_of(o, "ksize", 2, 1, true);
    stride = numbers_of(o, "strides", 2, 1, true);
    pad = numbers_of(o, "pads", 2, 0, true);
    spread = numbers_of(o, o.list("dilations").empty() ? "dilation" : "dilations", 2, 1, true);  // the gradient's name is the second
  }
};
template <int n> std::vector<mt::Attr> average_attrs(Older& o, const Windows& w, bool counts_padding) {
  const int64_t divisor = o.integer("divisor_override", 0);
  return {list(w.kernel), list(w.stride), list(w.pad), integer(o.integer("ceil_mode", 0)), integer(counts_padding),
          divisor ? integer(divisor) : none()};
}
template <int n> bool counts_padding(Older& o) { return n == 2 ? !o.integer("exclusive", 1) : o.integer("count_include_pad", 1) != 0; }

// One image counts as a batch of one beside an operand that has the dim of the batch.
Value with_batch(const Value& v, int32_t ndim) { return v.ndim + 1 == ndim ? v.unsqueeze(0) : v; }

template <int n> void average(Older& o) {
  const Windows w(o, n);
  const Value made = empty(o.out(0).shape(), mt::kFloat), x = o.in(0).to(mt::kFloat);
  call_kernel(n == 2 ? "avg_pool2d" : "avg_pool3d", {with_batch(made, x.ndim), with_batch(x, made.ndim)}, average_attrs<n>(o, w, counts_padding<n>(o)));
  copy(o.out(0), made);
}
template <int n> void average_grad(Older& o) {  // (shape of x, gradient)
  Windows w(o, n);
  if (n == 3) std::rotate(w.pad.begin(), w.pad.end() - 1, w.pad.end());  // clients give AvgPool3DGrad those of height, width, depth
  const Value dx = empty(o.out(0).shape(), mt::kFloat), dy = o.in(1).to(mt::kFloat), image = with_batch(dx, dy.ndim);
  call_kernel(n == 2 ? "avg_pool2d_backward" : "avg_pool3d_backward", {image, with_batch(dy, dx.ndim), image}, average_attrs<n>(o, w, counts_padding<n>(o)));
  copy(o.out(0), dx);
}
void adaptive_average(Older& o) {
  const Value x = o.in(0).to(mt::kFloat), made = empty(o.out(0).shape(), mt::kFloat);
  const Sizes size{made.size(-2), made.size(-1)};
  call_kernel("_adaptive_avg_pool2d", {made, x}, {list(size)});
  copy(o.out(0), made);
}
void adaptive_average_grad(Older& o) {  // (gradient)
  const Value dx = empty(o.out(0).shape(), mt::kFloat);
  call_kernel("_adaptive_avg_pool2d_backward", {dx, o.in(0).to(mt::kFloat), dx});
  copy(o.out(0), dx);
}
template <int n> std::vector<mt::Attr> max_attrs(Older& o, const Windows& w) {
  return {list(w.kernel), list(w.stride), list(w.pad), list(w.spread), integer(o.integer("ceil_mode", 0))};
}
template <int n> Value places_of_max(Older& o, const Windows& w, const Value& x, const Value& made) {
  const Value at = empty(made.shape(), mt::kInt64);
  call_kernel(n == 2 ? "max_pool2d_with_indices" : "max_pool3d_with_indices", {made, at, x.to(mt::kFloat)}, max_attrs<n>(o, w));
  return at;
}
template <int n> void max_pool(Older& o) {
  const Windows w(o, n);
  const Value x = o.in(0), made = empty(o.out(0).shape(), mt::kFloat);
  places_of_max<n>(o, w, with_batch(x, made.ndim), made);
  copy(o.out(0), made);
}
// Clients only hand the second output of the 2-D op to its gradient, which finds the places again.
void max_with_places(Older& o) {
  const MiddleWindows w(o);
  const Value made = empty(o.out(0).shape(), mt::kFloat);
  places_of_max<2>(o, w, with_batch(o.in(0), made.ndim), with_batch(made, o.in(0).ndim));
  copy(o.out(0), made);
  fill(o.out(1), 0);
}
template <int n> void max_grad(Older& o, const Windows& w, const Value& x, const Value& dy) {
  const Value made = empty(dy.shape(), mt::kFloat), at = places_of_max<n>(o, w, x, made), dx = empty(x.shape(), mt::kFloat);
  call_kernel(n == 2 ? "max_pool2d_with_indices_backward" : "max_pool3d_with_indices_backward", {dx, dy.to(mt::kFloat), x.to(mt::kFloat), at}, max_attrs<n>(o, w));
  copy(o.out(0), dx);
}
void max_grad_with_places(Older& o) { max_grad<2>(o, MiddleWindows(o), o.in(0), o.in(1)); }  // (x, gradient, what the forward op gave)
void max_grad_3d(Older& o) { max_grad<3>(o, Windows(o, 3), o.in(0), o.in(2)); }           // (x, y, gradient)

// ---- sizes: the output has the new one, a gradient's output the old one ---------------------------------------------------------
enum class Rule { nearest, linear, cubic };
void resize(Older& o, const Value& from, const Value& to, Rule rule, int n, bool backward, bool align, const std::vector<double>& scales = {}) {
  static constexpr const char* kNames[3][3] = {{"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"},
                                               {"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"},
                                               {nullptr, "upsample_bicubic2d", nullptr}};
  const char* kernel = kNames[int(rule)][n - 1];
  if (!kernel) o.refuse("cubic resizing needs images of two dims");
  const Value x = from.to(mt::kFloat), made = empty(to.shape(), mt::kFloat), &large = backward ? x : made;
  const Sizes size(large.sizes + 2, large.sizes + large.ndim), whole = made.shape();
  std::vector<mt::Attr> attrs{list(size)};
  if (backward) attrs.push_back(list(whole));
  if (rule != Rule::nearest) attrs.push_back(integer(align));
  for (int d = 0; d < n; ++d) attrs.push_back(scales.size() == size_t(n) ? number(scales[size_t(d)]) : none());
  call_kernel((std::string(kernel) + (backward ? "_backward" : "")).c_str(), {made, x}, attrs);
  copy(to, made);
}
template <Rule rule, bool backward> void resize_2d(Older& o) {  // (x or gradient, size or the image)
  resize(o, o.in(0), o.out(0), rule, 2, backward, o.integer("align_corners", 0));
}
template <Rule rule, bool backward> void resize_3d(Older& o) { resize(o, o.in(0), o.out(0), rule, 3, backward, o.integer("align_corners", 0)); }
// ResizeD: the rule is an attribute, and rows come as images of one line. With data_format HWNC gradients lie with their first dims
// last; that of the image is described by its sizes as NCHW.
template <bool backward> void resize_by_mode(Older& o) {
  const std::string mode = o.text("mode", "nearest");
  const bool align = o.text("coordinate_transformation_mode", "") == "align_corners";
  Value from = o.in(0), to = o.out(0);
  if (o.text("data_format", "NCHW") == "HWNC") {
    from = from.permute({2, 3, 0, 1});
    to = to.reshape({to.sizes[2], to.sizes[3], to.sizes[0], to.sizes[1]}).permute({2, 3, 0, 1});
  }
  if (mode == "linear") {
    if (from.ndim == 4) from = from.squeeze(-2);
    if (to.ndim == 4) to = to.squeeze(-2);
  }
  const Rule rule = mode == "nearest" ? Rule::nearest : mode == "cubic" ? Rule::cubic : Rule::linear;
  resize(o, from, to, rule, from.ndim - 2, backward, align, o.reals("scales"));
}

void check_format(Older& o) {
  const std::string format = o.text("data_format", "NCHW");
  if (format != "NCHW" && (format != "HWNC" || o.in(0).ndim != 4)) o.refuse("data_format " + format + " is not supported");
}

// ---- sampling by a grid ----------------------------------------------------------------------------------------------------------
int64_t place_in(Older& o, const char* name, const char* otherwise, std::initializer_list<const char*> known) {
  const std::string given = o.text(name, otherwise);
  int64_t i = 0;
  for (const char* k : known) {
    if (given == k) return i;
    ++i;
  }
  o.refuse(std::string(name) + " " + given + " is not supported");
}
std::vector<mt::Attr> sampling(Older& o) {
  return {integer(place_in(o, "interpolation_mode", "bilinear", {"bilinear", "nearest", "bicubic"})),
          integer(place_in(o, "padding_mode", "zeros", {"zeros", "border", "reflection"})), integer(o.integer("align_corners", 0))};
}
template <int n> void sample(Older& o) {  // (x, grid)
  const Value made = empty(o.out(0).shape(), mt::kFloat);
  call_kernel(n == 2 ? "grid_sampler_2d" : "grid_sampler_3d", {made, o.in(0).to(mt::kFloat), o.in(1).to(mt::kFloat)}, sampling(o));
  copy(o.out(0), made);
}
template <int n> void sample_grad(Older& o) {  // (gradient, x, grid)
  const Value dx = empty(o.out(0).shape(), mt::kFloat), dgrid = empty(o.out(1).shape(), mt::kFloat);
  call_kernel(n == 2 ? "grid_sampler_2d_backward" : "grid_sampler_3d_backward",
              {dx, dgrid, o.in(0).to(mt::kFloat), o.in(1).to(mt::kFloat), o.in(2).to(mt::kFloat)}, sampling(o));
  copy(o.out(0), dx);
  copy(o.out(1), dgrid);
}

// ---- borders: (x, paddings: two numbers a dim) --------------------------------------------------------------------------------------
// Where an item of the padded row comes from; -1: from nowhere.
int64_t source(int64_t i, int64_t n, const std::string& mode) {
  if (i >= 0 && i < n) return i;
  if (mode == "edge") return i < 0 ? 0 : n - 1;
  if (mode == "reflect") return i < 0 ? -i : 2 * (n - 1) - i;
  if (mode == "symmetric") return i < 0 ? -i - 1 : 2 * n - 1 - i;
  if (mode == "circular" || mode == "wrap") return (i % n + n) % n;
  return -1;
}
// The numbers before each dim: [dim 0 before, after, dim 1 before, ...], or all "before" first.
Sizes before_of(Older& o, int64_t ndim) {
  const Sizes given = o.numbers(1);
  if (given.size() != 2 * size_t(ndim)) o.refuse("paddings need two items a dim");
  Sizes made;
  for (int64_t d = 0; d < ndim; ++d) made.push_back(o.integer("paddings_contiguous", 1) ? given[2 * d] : given[d]);
  return made;
}
// For every item of the padded value the one that it is a copy of: visit(place in the padded, place in the plain).
template <class F> void each_padded(Older& o, const Value& plain, const Value& padded, const std::string& mode, F&& visit) {
  const Sizes before = before_of(o, plain.ndim);
  for (int64_t i = 0, total = padded.numel(); i < total; ++i) {
    int64_t rest = i, place = 0, step = 1;
    for (int64_t d = plain.ndim - 1; d >= 0; --d) {
      const int64_t at = source(rest % padded.sizes[d] - before[d], plain.sizes[d], mode);
      if (at < 0 || at >= plain.sizes[d]) o.refuse("the padding of dim " + std::to_string(d) + " is larger than the dim");
      place += at * step;
      step *= plain.sizes[d];
      rest /= padded.sizes[d];
    }
    visit(i, place);
  }
}
std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(c));
  return text;
}
void pad_by_items(Older& o, const std::string& mode) {
  const Value x = o.in(0).dense(), out = o.out(0);
  const auto size = size_t(mt::itemsize(x.dtype));
  each_padded(o, x, out, mode, [&](int64_t to, int64_t from) { std::memcpy(out.ptr<char>() + to * int64_t(size), x.ptr<char>() + from * int64_t(size), size); });
}
// The value stands in a third input with mode "constant"; negative numbers cut.
void pad(Older& o) {
  const std::string mode = lower(o.text("mode", "constant"));
  if (mode != "constant") return pad_by_items(o, mode);
  const Value x = o.in(0), out = o.out(0);
  fill(out, o.given(2) ? o.number(2) : 0);
  Value inner = out, kept = x;
  const Sizes before = before_of(o, x.ndim);
  for (int d = 0; d < x.ndim; ++d) {
    const int64_t skip = std::max<int64_t>(-before[d], 0), put = std::max<int64_t>(before[d], 0);
    const int64_t n = std::min(x.sizes[d] - skip, out.sizes[d] - put);
    if (n <= 0) return;
    kept = kept.narrow(d, skip, n);
    inner = inner.narrow(d, put, n);
  }
  copy(inner, kept);
}
void mirror(Older& o) { pad_by_items(o, lower(o.text("mode", "REFLECT"))); }
void pad_grad(Older& o) {  // (gradient, paddings)
  const Value dy = o.in(0).to(mt::kFloat).dense(), dx = full(o.out(0).shape(), mt::kFloat, 0);
  each_padded(o, dx, dy, lower(o.text("mode", "reflect")), [&](int64_t from, int64_t to) { dx.ptr<float>()[to] += dy.ptr<float>()[from]; });
  copy(o.out(0), dx);
}

// ---- patches ------------------------------------------------------------------------------------------------------------------------
void patches(Older& o) {
  const Value x = o.in(0);
  const Sizes kernel = o.list("ksizes"), spread = numbers_of(o, "dilations", 2, 1), stride = numbers_of(o, "strides", 2, 1), given = o.list("pads");
  const Sizes pad = given.size() == 4 ? Sizes{given[0], given[2]} : numbers_of(o, "pads", 2, 0);
  if (x.numel()) call_kernel("im2col", {o.out(0), x}, {list(kernel), list(spread), list(pad), list(stride)});
}
void from_patches(Older& o) {  // (x [N, channels * items of a patch, patches], or with a dim for the items; size)
  const Value given = o.in(0).to(mt::kFloat), made = empty(o.out(0).shape(), mt::kFloat);
  const Value x = given.ndim == 4 ? given.reshape({given.size(0), given.size(1) * given.size(2), given.size(3)}) : given;
  const Sizes size = o.numbers(1), kernel = o.list("kernel_size"), spread = o.list("dilation"), pad = o.list("padding"), stride = o.list("stride");
  call_kernel("col2im", {made, x}, {list(size), list(kernel), list(spread), list(pad), list(stride)});
  copy(o.out(0), made);
}
void shuffle_channels(Older& o) {
  const Value x = o.in(0);
  const int64_t groups = o.integer("group", 1);
  if (x.ndim < 3 || groups < 1 || x.size(1) % groups) o.refuse("channels do not divide into the groups");
  Sizes split{x.size(0), groups, x.size(1) / groups, -1};
  copy(o.out(0), x.dense().reshape(split).transpose(1, 2).dense().reshape(o.out(0).shape()));
}

const OlderOps ops({
    {"AvgPoolV2", 1, 1, 1, average<2>}, {"AvgPool", 1, 1, 1, average<2>}, {"AvgPoolV2Grad", 2, 2, 1, average_grad<2>}, {"AvgPool3D", 1, 1, 1, average<3>},
    {"AvgPool3DGrad", 2, 2, 1, average_grad<3>}, {"AdaptiveAvgPool2d", 1, 1, 1, adaptive_average}, {"AdaptiveAvgPool2dGrad", 1, 1, 1, adaptive_average_grad},
    {"MaxPool3D", 1, 1, 1, max_pool<3>}, {"MaxPoolV3", 1, 1, 1, max_pool<2>}, {"MaxPoolWithArgmaxV1", 1, 1, 2, max_with_places},
    {"MaxPoolGradWithArgmaxV1", 3, 3, 1, max_grad_with_places}, {"MaxPool3DGrad", 3, 3, 1, max_grad_3d},
    {"ResizeBilinearV2", 2, 2, 1, resize_2d<Rule::linear, false>}, {"ResizeBilinearV2Grad", 2, 2, 1, resize_2d<Rule::linear, true>},
    {"ResizeNearestNeighborV2", 2, 2, 1, resize_2d<Rule::nearest, false>}, {"ResizeNearestNeighborV2Grad", 2, 2, 1, resize_2d<Rule::nearest, true>},
    {"UpsampleNearest3d", 1, 1, 1, resize_3d<Rule::nearest, false>}, {"UpsampleNearest3dGrad", 1, 1, 1, resize_3d<Rule::nearest, true>},
    {"UpsampleTrilinear3d", 1, 1, 1, resize_3d<Rule::linear, false>}, {"UpsampleTrilinear3dGrad", 1, 1, 1, resize_3d<Rule::linear, true>},
    {"ResizeD", 1, 1, 1, resize_by_mode<false>}, {"ResizeGradD", 1, 1, 1, resize_by_mode<true>, check_format},
    {"GridSampler2D", 2, 2, 1, sample<2>}, {"GridSampler2DGrad", 3, 3, 2, sample_grad<2>}, {"GridSampler3D", 2, 2, 1, sample<3>},
    {"GridSampler3DGrad", 3, 3, 2, sample_grad<3>}, {"PadV3", 2, 3, 1, pad}, {"Pad", 2, 2, 1, pad}, {"MirrorPad", 2, 2, 1, mirror},
    {"PadV3Grad", 2, 2, 1, pad_grad}, {"Im2col", 1, 1, 1, patches}, {"Col2im", 2, 2, 1, from_patches}, {"ShuffleChannel", 1, 1, 1, shuffle_channels},
});

}  // namespace
}  // namespace cann_sim
