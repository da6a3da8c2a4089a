// Convolutions by the older interface: plain, transposed, depthwise and deformed ones, and their gradients.
#include <algorithm>
#include <cmath>

#include "ops/older.h"

namespace cann_sim {
namespace {

// strides, pads and dilations are of NCHW or NCDHW; pads have two numbers a plane's dim.
struct Form {
  Sizes stride, pads, dilation, more;
  Form(Older& o, size_t planes) {
    auto inner = [&](const char* name, int64_t otherwise) {
      const Sizes all = o.list(name);
      return all.size() < planes ? Sizes(planes, otherwise) : Sizes(all.end() - int64_t(planes), all.end());
    };
    const std::string format = o.text("data_format", planes == 2 ? "NCHW" : "NCDHW");
    if (format != "NCHW" && format != "NCDHW") o.refuse("data_format " + format + " is not supported");
    stride = inner("strides", 1), dilation = inner("dilations", 1), more = inner("output_padding", 0);
    const Sizes given = o.list("pads");
    pads = Sizes(planes, 0);
    for (size_t d = 0; d < planes && given.size() == 2 * planes; ++d) {
      if (given[2 * d] != given[2 * d + 1]) o.refuse("pads that differ at both ends are not supported");
      pads[d] = given[2 * d];
    }
  }
};

template <int planes> void check_form(Older& o) { Form(o, planes); }

// (x, filter, bias?); a transposed one has the result's size before them.
template <int planes, bool turned> void convolution(Older& o) {
  const Form f(o, planes);
  const Value x = o.in(turned), w = o.in(1 + turned), bias = o.in(2 + turned), out = o.out(0);
  const DType t = opmath(x.dtype);
  const Value made = empty(out.shape(), t);
  call_kernel("convolution", {made, x.to(t), w.to(t), bias.given() ? bias.to(t) : bias},
              {list(f.stride), list(f.pads), list(f.dilation), integer(turned), list(f.more), integer(o.integer("groups", 1))});
  copy(out, made);
}
// The gradient of x or of the filter, of the same shape as the absent one of the two.
void back(Older& o, const Form& f, bool of_filter, const Value& dy, const Value& x, const Value& w, int64_t groups) {
  const DType t = opmath(dy.dtype);
  const Value made = empty(of_filter ? w.shape() : x.shape(), t);
  const Sizes none(f.stride.size(), 0);
  call_kernel("convolution_backward", {of_filter ? Value() : made, of_filter ? made : Value(), Value(), dy.to(t), x.to(t), w.to(t)},
              {list(f.stride), list(f.pads), list(f.dilation), integer(0), list(none), integer(groups)});
  copy(o.out(0), made.reshape(o.out(0).shape()));
}
// (sizes of x, filter, gradient) or (x, sizes of the filter, gradient)
template <int planes, bool of_filter> void convolution_grad(Older& o) {
  const Form f(o, planes);
  const Value dy = o.in(2), shape = full(o.out(0).shape(), opmath(dy.dtype), 0);
  back(o, f, of_filter, dy, of_filter ? o.in(0) : shape, of_filter ? shape : o.in(1), o.integer("groups", 1));
}

// (x, filter, scale, bias?) of bytes: (convolution + bias) * scale. A scale is float32, or such a number in the low half of 64 bits.
void quantized(Older& o) {
  const Form f(o, 2);
  const Value out = o.out(0), sums = empty(out.shape(), mt::kDouble), scale = o.in(2).dense(), by = empty({scale.numel()}, mt::kDouble);
  call_kernel("convolution", {sums, o.in(0).to(mt::kDouble), o.in(1).to(mt::kDouble), Value()},
              {list(f.stride), list(f.pads), list(f.dilation), integer(0), list(f.more), integer(o.integer("groups", 1))});
  if (mt::itemsize(scale.dtype) == 8) {
    for (int64_t i = 0; i < by.numel(); ++i) by.ptr<double>()[i] = *static_cast<const float*>(static_cast<const void*>(scale.ptr<int64_t>() + i));
  } else {
    copy(by, scale.reshape({-1}));
  }
  const Sizes channels{by.numel(), 1, 1};
  if (o.given(3)) call_pointwise("add", mt::kDouble, {sums, sums, o.in(3).to(mt::kDouble).reshape({-1, 1, 1})}, {integer(1)});
  call_pointwise("mul", mt::kDouble, {out, sums, by.reshape(channels)});
}
void check_quantized(Older& o) {
  Form(o, 2);
  if (o.integer("offset_x", 0) || o.given(4)) o.refuse("offsets are not supported");
  const size_t size = mt::itemsize(o.in(2).dtype);
  if (size != 4 && size != 8) o.refuse("a scale has 32 or 64 bits");
}

// ---- a filter a channel: [1, C, kh, kw] where a grouped convolution has [C, 1, kh, kw] ------------------------------------
Value channels_first(Older& o, const Value& filter) {
  if (filter.ndim != 4 || filter.sizes[0] != 1) o.refuse("expected a filter [1, C, kh, kw]");
  return filter.transpose(0, 1).dense();
}
void depthwise(Older& o) {  // (x, filter, bias?)
  const Form f(o, 2);
  const Value x = o.in(0), w = channels_first(o, o.in(1)), bias = o.in(2), out = o.out(0);
  const DType t = opmath(x.dtype);
  const Value made = empty(out.shape(), t);
  call_kernel("convolution", {made, x.to(t), w.to(t), bias.given() ? bias.to(t) : bias},
              {list(f.stride), list(f.pads), list(f.dilation), integer(0), list(f.more), integer(x.size(1))});
  copy(out, made);
}
void depthwise_input_grad(Older& o) {  // (sizes of x, filter, gradient)
  const Value dy = o.in(2), x = full(o.out(0).shape(), opmath(dy.dtype), 0);
  back(o, Form(o, 2), false, dy, x, channels_first(o, o.in(1)), x.size(1));
}
void depthwise_filter_grad(Older& o) {  // (x, sizes of the filter, gradient); the output may have C first
  const Value dy = o.in(2), out = o.out(0);
  const Sizes filter = o.numbers(1);
  if (filter.size() != 4 || filter[0] * filter[1] != dy.size(1)) o.refuse("expected the sizes of a filter [1, C, kh, kw]");
  back(o, Form(o, 2), true, dy, o.in(0), full({dy.size(1), 1, filter[2], filter[3]}, opmath(dy.dtype), 0), o.in(0).size(1));
}
void bias_grad(Older& o) {  // (gradient): sums over all but the channels
  const bool last = o.text("data_format", "NHWC") == "NHWC";
  const Value x = o.in(0).to(mt::kFloat), made = empty(o.out(0).shape(), mt::kFloat);
  Sizes dims;
  for (int64_t d = 0; d < x.ndim; ++d)
    if (d != (last ? x.ndim - 1 : 1)) dims.push_back(d);
  call_kernel("sum", {made, x}, {list(dims), integer(0), none()});
  copy(o.out(0), made);
}

// ---- places of the kernel that are moved: images are NHWC ----------------------------------------------------------------
// offsets [N, oh, ow, 3 * groups * kh * kw]: along x, along y, and a factor for each, by group and place of the kernel; the result
// [N, oh * kh, ow * kw, C] has what each place of the kernel meets.
struct Moved {
  Value offsets;
  int64_t images, height, width, channels, oh, ow, kh, kw, groups;
  Sizes stride, pads, dilation;
  Moved(Older& o, const Value& x, size_t place) : offsets(o.in(place).to(mt::kFloat).dense()) {
    const Sizes kernel = o.list("ksize");
    stride = o.list("strides"), pads = o.list("pads"), dilation = o.list("dilations");
    if (o.text("data_format", "NHWC") != "NHWC" || !o.integer("modulated", 1)) o.refuse("only NHWC and modulated offsets are supported");
    if (x.ndim != 4 || offsets.ndim != 4 || kernel.size() != 2 || stride.size() != 4 || pads.size() != 4) o.refuse("the operands need 4 dims");
    if (dilation.size() != 4) dilation = Sizes(4, 1);
    images = x.sizes[0], height = x.sizes[1], width = x.sizes[2], channels = x.sizes[3];
    oh = offsets.sizes[1], ow = offsets.sizes[2], kh = kernel[0], kw = kernel[1], groups = o.integer("deformable_groups", 1);
    if (groups < 1 || channels % groups || offsets.sizes[0] != images || offsets.sizes[3] != 3 * groups * kh * kw)
      o.refuse("offsets do not fit the kernel");
  }
  // visit(place in the offsets of its x, the result's first item, first channel, where it lies in the image: y, x)
  template <class F> void each(F&& visit) const {
    const int64_t part = groups * kh * kw;
    for (int64_t at = 0; at < images * oh * ow; ++at)
      for (int64_t k = 0; k < part; ++k) {
        const int64_t n = at / (oh * ow), i = at / ow % oh, j = at % ow, g = k / (kh * kw), ki = k / kw % kh, kj = k % kw;
        const int64_t first = at * 3 * part + k, result = ((n * oh * kh + i * kh + ki) * ow * kw + j * kw + kj) * channels;
        const double x = double(j * stride[2] - pads[2] + kj * dilation[2]) + offsets.ptr<float>()[first];
        const double y = double(i * stride[1] - pads[0] + ki * dilation[1]) + offsets.ptr<float>()[first + part];
        visit(n, first, result, g * (channels / groups), y, x);
      }
  }
  // corner(item of the image, its share, the share's slope along y and x) for the four around a place; those outside are 0.
  template <class F> void corners(int64_t n, double y, double x, F&& corner) const {
    const double top = std::floor(y), left = std::floor(x);
    for (int k = 0; k < 4; ++k) {
      const double i = top + k / 2, j = left + k % 2;
      if (!(i >= 0 && i < double(height) && j >= 0 && j < double(width))) continue;
      const double by_y = 1 - std::fabs(y - i), by_x = 1 - std::fabs(x - j);
      corner(((n * height + int64_t(i)) * width + int64_t(j)) * channels, by_y * by_x, (k / 2 ? 1 : -1) * by_x, (k % 2 ? 1 : -1) * by_y);
    }
  }
};
void moved_places(Older& o) {  // (x, offsets)
  const Value x = o.in(0).to(mt::kFloat).dense();
  const Moved m(o, x, 1);
  const Value made = full({m.images, m.oh * m.kh, m.ow * m.kw, m.channels}, mt::kFloat, 0);
  const int64_t part = m.groups * m.kh * m.kw, own = m.channels / m.groups;
  m.each([&](int64_t n, int64_t first, int64_t result, int64_t channel, double y, double at_x) {
    const float factor = m.offsets.ptr<float>()[first + 2 * part];
    m.corners(n, y, at_x, [&](int64_t item, double share, double, double) {
      for (int64_t c = channel; c < channel + own; ++c) made.ptr<float>()[result + c] += float(share) * factor * x.ptr<float>()[item + c];
    });
  });
  copy(o.out(0), made.reshape(o.out(0).shape()));
}
void moved_places_grad(Older& o) {  // (gradient, x, offsets): of x and of the offsets
  const Value dy = o.in(0).to(mt::kFloat).dense(), x = o.in(1).to(mt::kFloat).dense();
  const Moved m(o, x, 2);
  const Value dx = full(x.shape(), mt::kFloat, 0), moves = full(m.offsets.shape(), mt::kFloat, 0);
  if (dy.numel() != m.images * m.oh * m.kh * m.ow * m.kw * m.channels) o.refuse("the gradient does not fit");
  const int64_t part = m.groups * m.kh * m.kw, own = m.channels / m.groups;
  m.each([&](int64_t n, int64_t first, int64_t result, int64_t channel, double y, double at_x) {
    const double factor = m.offsets.ptr<float>()[first + 2 * part];
    double along_x = 0, along_y = 0, of_factor = 0;
    m.corners(n, y, at_x, [&](int64_t item, double share, double by_y, double by_x) {
      double met = 0;  // gradient times value
      for (int64_t c = channel; c < channel + own; ++c) {
        const double g = dy.ptr<float>()[result + c];
        met += g * x.ptr<float>()[item + c];
        dx.ptr<float>()[item + c] += float(g * share * factor);
      }
      along_x += met * by_x * factor, along_y += met * by_y * factor, of_factor += met * share;
    });
    moves.ptr<float>()[first] = float(along_x);
    moves.ptr<float>()[first + part] = float(along_y);
    moves.ptr<float>()[first + 2 * part] = float(of_factor);
  });
  copy(o.out(0), dx);
  copy(o.out(1), moves);
}

const OlderOps ops({
    {"Conv2D", 2, 4, 1, convolution<2, false>, check_form<2>}, {"Conv3D", 2, 4, 1, convolution<3, false>, check_form<3>},
    {"Conv2DTranspose", 3, 5, 1, convolution<2, true>, check_form<2>},
    {"Conv3DTranspose", 3, 5, 1, convolution<3, true>, check_form<3>},
    {"Conv2DBackpropInput", 3, 3, 1, convolution_grad<2, false>, check_form<2>},
    {"Conv2DBackpropFilter", 3, 3, 1, convolution_grad<2, true>, check_form<2>},
    {"Conv3DBackpropInput", 3, 3, 1, convolution_grad<3, false>, check_form<3>},
    {"Conv3DBackpropFilter", 3, 3, 1, convolution_grad<3, true>, check_form<3>},
    {"QuantConv2D", 3, 5, 1, quantized, check_quantized},
    {"DepthwiseConv2D", 2, 4, 1, depthwise, check_form<2>}, {"DepthwiseConv2DBackpropInput", 3, 3, 1, depthwise_input_grad, check_form<2>},
    {"DepthwiseConv2DBackpropFilter", 3, 3, 1, depthwise_filter_grad, check_form<2>}, {"BiasAddGrad", 1, 1, 1, bias_grad},
    {"DeformableOffsets", 2, 2, 1, moved_places}, {"DeformableOffsetsGrad", 3, 3, 2, moved_places_grad},
});

}  // namespace
}  // namespace cann_sim
