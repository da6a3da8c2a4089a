// Convolutions of one to three spatial dims with their gradients, and the columns (im2col) they can be computed over.
#include "ops/op.h"

namespace cann_sim {
namespace {

// ---- geometry --------------------------------------------------------------------------------------------------
// stride, padding, dilation, outputPadding: one number a spatial dim, or one for all.
int64_t item(const Span<int64_t>& list, int d) { return list[list.size() == 1 ? 0 : d]; }

void expect_list(const Span<int64_t>& list, const char* name, int n, int64_t least) {
  EXPECT(list.size() == 1 || list.size() == n, "%s must have 1 or %d items, got %ld", name, n, long(list.size()));
  for (int64_t x : list) EXPECT(x >= least, "%s must be at least %ld, got %ld", name, long(least), long(x));
}

int64_t window_count(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  int64_t slack = in + 2 * pad - dilation * (kernel - 1) - 1;
  return slack < 0 ? 0 : slack / stride + 1;
}

// Where the ops that have the full set of arguments keep it.
struct Geometry {
  Span<int64_t> stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
  Geometry(const Call& c, int first)
      : stride(c.ints(first)), padding(c.ints(first + 1)), dilation(c.ints(first + 2)),
        output_padding(c.ints(first + 4)), transposed(c.integer(first + 3)), groups(c.integer(first + 5)) {}
};

// The output's sizes; refuses what does not fit together.
Sizes conv_sizes(const TensorMeta& x, const TensorMeta& w, const Geometry& g) {
  int n = x.ndim - 2;
  EXPECT(n >= 1 && n <= 3 && w.ndim == x.ndim, "input %s and weight %s must have the same 3 to 5 dims",
         describe(x).c_str(), describe(w).c_str());
  expect_list(g.stride, "stride", n, 1);
  expect_list(g.padding, "padding", n, 0);
  expect_list(g.dilation, "dilation", n, 1);
  EXPECT(g.groups > 0, "groups must be positive, got %ld", long(g.groups));
  int64_t in = g.transposed ? w.sizes[0] : w.sizes[1] * g.groups,
          out = g.transposed ? w.sizes[1] * g.groups : w.sizes[0];
  EXPECT(x.sizes[1] == in, "input %s has not the %ld channels that weight %s with groups %ld takes",
         describe(x).c_str(), long(in), describe(w).c_str(), long(g.groups));
  EXPECT((g.transposed ? in : out) % g.groups == 0, "weight %s is not divisible by groups %ld", describe(w).c_str(),
         long(g.groups));
  if (g.transposed) expect_list(g.output_padding, "outputPadding", n, 0);
  Sizes sizes{x.sizes[0], out};
  for (int d = 0; d < n; ++d) {
    int64_t size = x.sizes[2 + d], kernel = w.sizes[2 + d], stride = item(g.stride, d), pad = item(g.padding, d),
            dilation = item(g.dilation, d);
    sizes.push_back(g.transposed
                        ? (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1 + item(g.output_padding, d)
                        : window_count(size, kernel, stride, pad, dilation));
    EXPECT(sizes.back() > 0, "the output would have size %ld: the kernel does not fit %s", long(sizes.back()),
           describe(x).c_str());
  }
  return sizes;
}

void expect_bias(const Call& c, int i, int64_t channels) {
  if (c.given(i))
    EXPECT(c.tensor(i).numel() == channels, "bias %s is not [%ld]", describe(c.tensor(i)).c_str(), long(channels));
}

mt::Attr list_of(const Span<int64_t>& s) { return list(s.data, s.n); }

// ---- convolution: (input, weight, bias?, stride, padding, dilation, transposed, outputPadding, groups, out, type)
void check_convolution(const Call& c) {
  expect_math_type(c, 10, 0);
  Sizes out = conv_sizes(c.tensor(0), c.tensor(1), Geometry(c, 3));
  expect_bias(c, 2, out[1]);
  expect_shape(c, 9, out);
}
void convolution(Run& r) {
  Geometry g(r.call, 3);
  Value out = r.tensor(9), bias = r.tensor(2);
  if (bias.given() && bias.ndim != 1) bias = bias.reshape({-1});
  call_kernel("convolution", {out, r.tensor(0), r.tensor(1), bias},
              {list_of(g.stride), list_of(g.padding), list_of(g.dilation), integer(g.transposed),
               list_of(g.output_padding), integer(g.groups)});
}

// ---- its gradients: (gradOutput, input, weight, biasSizes?, stride ... groups, outputMask, type, three outputs)
void check_convolution_backward(const Call& c) {
  expect_math_type(c, 11, 0);
  Geometry g(c, 4);
  Span<int64_t> mask = c.ints(10);
  EXPECT(mask.size() == 3, "outputMask must have 3 items, got %ld", long(mask.size()));
  expect_shape(c, 0, conv_sizes(c.tensor(1), c.tensor(2), g));
  for (int i = 0; i < 3; ++i)
    if (mask[i]) EXPECT(c.given(12 + i), "outputMask asks for a gradient that is not given (%d)", i);
  if (mask[0]) expect_same_shape(c, 12, 1);
  if (mask[1]) expect_same_shape(c, 13, 2);
  if (mask[2]) expect_shape(c, 14, {c.tensor(0).sizes[1]});
}
void convolution_backward(Run& r) {
  Geometry g(r.call, 4);
  Span<int64_t> mask = r.call.ints(10);
  Value outs[3];
  for (int i = 0; i < 3; ++i)
    if (mask[i]) outs[i] = r.tensor(12 + i);
  call_kernel("convolution_backward", {outs[0], outs[1], outs[2], r.tensor(0), r.tensor(1), r.tensor(2)},
              {list_of(g.stride), list_of(g.padding), list_of(g.dilation), integer(g.transposed),
               list_of(g.output_padding), integer(g.groups)});
}

// ---- of bytes: (input, weight, bias?, scale, offset?, stride ... groups, offsetx, roundMode?, out) ---------------------
// convolution(input, weight) * scale + bias, with a scale a channel of the output.
void check_quant_convolution(const Call& c) {
  Geometry g(c, 5);
  const mt::DType out_type = dtype_of(c.tensor(13).dtype);
  for (int i : {0, 1})
    if (dtype_of(c.tensor(i).dtype) != mt::kInt8) refuse(561003, "%s of %s is not computed: only of int8", c.name(), describe(c.tensor(i)).c_str());
  if (dtype_of(c.tensor(3).dtype) != mt::kFloat || !is_float(out_type) || g.transposed || c.given(4) || c.integer(11))
    refuse(561003, "%s with an offset, transposed, or with a scale or an output that is not float is not computed", c.name());
  if (c.given(2) && !is_float(dtype_of(c.tensor(2).dtype))) refuse(561003, "%s with bias %s is not computed", c.name(), describe(c.tensor(2)).c_str());
  Sizes out = conv_sizes(c.tensor(0), c.tensor(1), g);
  expect_bias(c, 2, out[1]);
  EXPECT(c.tensor(3).numel() == out[1], "scale %s is not [%ld]", describe(c.tensor(3)).c_str(), long(out[1]));
  expect_shape(c, 13, out);
}
void quant_convolution(Run& r) {
  Geometry g(r.call, 5);
  Value out = r.tensor(13), sums = empty(out.shape(), mt::kDouble);
  call_kernel("convolution", {sums, r.tensor(0).to(mt::kDouble), r.tensor(1).to(mt::kDouble), Value()},
              {list_of(g.stride), list_of(g.padding), list_of(g.dilation), integer(0), list_of(g.output_padding), integer(g.groups)});
  Sizes by(size_t(out.ndim), 1);
  by[1] = out.size(1);
  call_pointwise("mul", mt::kDouble, {sums, sums, r.tensor(3).to(mt::kDouble).reshape(by)});
  if (r.given(2)) call_pointwise("add", mt::kDouble, {sums, sums, r.tensor(2).to(mt::kDouble).reshape(by)}, {number(1)});
  copy(out, sums);
}

// ---- depthwise: (self, weight, kernelSize, bias?, stride, padding, dilation, out, cubeMathType) ----------------
void check_depthwise(const Call& c) {
  expect_math_type(c, 8, 0);
  const TensorMeta &x = c.tensor(0), &w = c.tensor(1);
  Span<int64_t> kernel = c.ints(2), stride = c.ints(4), pad = c.ints(5), dilation = c.ints(6);
  expect_list(kernel, "kernelSize", 2, 1);
  expect_list(stride, "stride", 2, 1);
  expect_list(pad, "padding", 2, 0);
  expect_list(dilation, "dilation", 2, 1);
  EXPECT(w.sizes[1] == 1 && x.sizes[1] > 0 && w.sizes[0] % x.sizes[1] == 0,
         "weight %s must be [a multiple of %ld channels, 1, ...]", describe(w).c_str(), long(x.sizes[1]));
  Sizes out{x.sizes[0], w.sizes[0]};
  for (int d = 0; d < 2; ++d) {
    EXPECT(item(kernel, d) == w.sizes[2 + d], "kernelSize differs from weight %s", describe(w).c_str());
    out.push_back(window_count(x.sizes[2 + d], w.sizes[2 + d], item(stride, d), item(pad, d), item(dilation, d)));
  }
  expect_bias(c, 3, w.sizes[0]);
  expect_shape(c, 7, out);
}
void depthwise(Run& r) {
  Value x = r.tensor(0);
  Sizes zero{0};
  call_kernel("convolution", {r.tensor(7), x, r.tensor(1), r.tensor(3)},
              {list_of(r.call.ints(4)), list_of(r.call.ints(5)), list_of(r.call.ints(6)), integer(0), list(zero),
               integer(x.size(1))});
}

// ---- time, batch, channels: a 1-D convolution with the dims turned ---------------------------------------------
// self [T, B, C_in] -> [B, C_in, T]; weight [k, C_in, C_out] -> [C_out, C_in, k]
Value batch_first(const Value& v) { return v.given() ? v.permute({1, 2, 0}) : v; }
Value out_first(const Value& v) { return v.given() ? v.permute({2, 1, 0}) : v; }

Sizes tbc_sizes(const TensorMeta& x, const TensorMeta& w, int64_t pad) {
  EXPECT(x.sizes[2] == w.sizes[1], "input %s has not the channels of weight %s", describe(x).c_str(),
         describe(w).c_str());
  EXPECT(pad >= 0, "pad must not be negative, got %ld", long(pad));
  return {window_count(x.sizes[0], w.sizes[0], 1, pad, 1), x.sizes[1], w.sizes[2]};
}
// (self, weight, bias?, pad, output, cubeMathType)
void check_tbc(const Call& c) {
  expect_math_type(c, 5, 0);
  expect_bias(c, 2, c.tensor(1).sizes[2]);
  expect_shape(c, 4, tbc_sizes(c.tensor(0), c.tensor(1), c.integer(3)));
}
void tbc(Run& r) {
  Sizes one{1}, zero{0}, pad{r.call.integer(3)};
  call_kernel("convolution", {batch_first(r.tensor(4)), batch_first(r.tensor(0)), out_first(r.tensor(1)), r.tensor(2)},
              {list(one), list(pad), list(one), integer(0), list(zero), integer(1)});
}
// (gradOutput, input, weight, bias?, pad, cubeMathType, gradInput, gradWeight, gradBias)
void check_tbc_backward(const Call& c) {
  expect_math_type(c, 5, 0);
  expect_shape(c, 0, tbc_sizes(c.tensor(1), c.tensor(2), c.integer(4)));
  expect_same_shape(c, 6, 1);
  expect_same_shape(c, 7, 2);
  expect_shape(c, 8, {c.tensor(2).sizes[2]});
}
void tbc_backward(Run& r) {
  Sizes one{1}, zero{0}, pad{r.call.integer(4)};
  call_kernel("convolution_backward",
              {batch_first(r.tensor(6)), out_first(r.tensor(7)), r.tensor(8), batch_first(r.tensor(0)),
               batch_first(r.tensor(1)), out_first(r.tensor(2))},
              {list(one), list(pad), list(one), integer(0), list(zero), integer(1)});
}

// ---- columns ---------------------------------------------------------------------------------------------------
// kernelSize, dilation, padding, stride at `first`; the columns of an image of these sizes.
Sizes column_sizes(const Call& c, const Sizes& image, int first) {
  const char* names[] = {"kernelSize", "dilation", "padding", "stride"};
  for (int i = 0; i < 4; ++i) expect_list(c.ints(first + i), names[i], 2, i == 2 ? 0 : 1);
  int at = int(image.size()) - 3;
  EXPECT(at == 0 || at == 1, "an image has 3 or 4 dims, got %ld", long(image.size()));
  int64_t taps = 1, positions = 1;
  for (int d = 0; d < 2; ++d) {
    int64_t kernel = item(c.ints(first), d);
    int64_t n = window_count(image[at + 1 + d], kernel, item(c.ints(first + 3), d), item(c.ints(first + 2), d),
                             item(c.ints(first + 1), d));
    EXPECT(n > 0, "the kernel does not fit the image");
    taps *= kernel, positions *= n;
  }
  Sizes out{image[at] * taps, positions};
  if (at) out.insert(out.begin(), image[0]);
  return out;
}
// (self, kernelSize, dilation, padding, stride, out)
void check_im2col(const Call& c) {
  expect_shape(c, 5, column_sizes(c, sizes_of(c.tensor(0)), 1));
  expect_same_dtype(c, 5, 0);
}
void im2col(Run& r) {
  const Call& c = r.call;
  call_kernel("im2col", {r.tensor(5), r.tensor(0)},
              {list_of(c.ints(1)), list_of(c.ints(2)), list_of(c.ints(3)), list_of(c.ints(4))});
}
// (gradOutput, inputSize, kernelSize, dilation, padding, stride, out)
void check_col2im(const Call& c) {
  const TensorMeta& columns = c.tensor(0);
  Span<int64_t> size = c.ints(1), kernel = c.ints(2);
  EXPECT(size.size() == 2, "inputSize must have 2 items, got %ld", long(size.size()));
  expect_list(kernel, "kernelSize", 2, 1);
  int64_t rows = columns.sizes[columns.ndim - 2], taps = 0;
  EXPECT(!__builtin_mul_overflow(item(kernel, 0), item(kernel, 1), &taps) && rows % taps == 0,
         "gradOutput %s has no whole number of channels for %ld taps", describe(columns).c_str(), long(taps));
  Sizes image{rows / taps, size[0], size[1]};
  if (columns.ndim == 3) image.insert(image.begin(), columns.sizes[0]);
  expect_shape(c, 0, column_sizes(c, image, 2));
  expect_shape(c, 6, image);
}
void col2im(Run& r) {
  const Call& c = r.call;
  call_kernel("col2im", {r.tensor(6), r.tensor(0)}, {list_of(c.ints(1)), list_of(c.ints(2)), list_of(c.ints(3)),
                                                     list_of(c.ints(4)), list_of(c.ints(5))});
}

const Op ops[] = {
    {"aclnnConvolution", check_convolution, convolution},
    {"aclnnQuantConvolution", check_quant_convolution, quant_convolution},
    {"aclnnQuantConvolutionWeightNz", check_quant_convolution, quant_convolution},
    {"aclnnConvolutionBackward", check_convolution_backward, convolution_backward},
    {"aclnnConvDepthwise2d", check_depthwise, depthwise},
    {"aclnnConvTbc", check_tbc, tbc},
    {"aclnnConvTbcBackward", check_tbc_backward, tbc_backward},
    {"aclnnIm2col", check_im2col, im2col},
    {"aclnnIm2colBackward", check_col2im, col2im},
};

}  // namespace
}  // namespace cann_sim
