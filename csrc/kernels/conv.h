// The shape of a convolution, and the products on dense memory that forward and backward are made of.
#pragma once
#include <algorithm>

#include "dense.h"

namespace mt {

// x (n, c, in...) * w (k, c / groups, kernel...) -> y (n, k, out...), always with three spatial dims: the missing
// leading ones are 1. A transposed convolution is the same shape with the roles of x and y changed.
struct Conv {
  int64_t n, c, k, groups;
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];

  int64_t cg() const { return c / groups; }
  int64_t kg() const { return k / groups; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t x_plane() const { return in[0] * in[1] * in[2]; }
  int64_t y_plane() const { return out[0] * out[1] * out[2]; }
  bool pointwise() const {  // 1x1, stride 1, no padding: a plain matrix product
    for (int d = 0; d < 3; ++d)
      if (kernel[d] != 1 || stride[d] != 1 || pad[d] != 0 || in[d] != out[d]) return false;
    return true;
  }
  bool depthwise() const { return groups > 1 && groups == c; }
};

// All on contiguous memory of `dtype` (any but the 16-bit floats); the result is overwritten. bias may be nullptr.
void conv_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y);
void conv_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, const void* bias, void* gx);
void conv_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw);

// conv_winograd.cpp: 3x3 with stride 1 in float32. The input gradient is the same product with the filters turned.
// False where the result is not finite throughout: it is then to be computed in another way.
bool winograd_fits(DType dtype, const Conv& s);
bool winograd_forward(const Conv& s, const float* x, const float* w, const float* bias, float* y);
bool winograd_input_grad(const Conv& s, const float* gy, const float* w, const float* bias, float* gx);
bool winograd_weight_grad(const Conv& s, const float* x, const float* gy, float* gw);

// conv_direct.cpp: float32 with any kernel and stride; the input gradient for stride 1.
bool direct_fits(DType dtype, const Conv& s);
bool direct_input_grad_fits(DType dtype, const Conv& s);
void direct_forward(const Conv& s, const float* x, const float* w, const float* bias, float* y);
void direct_input_grad(const Conv& s, const float* gy, const float* w, const float* bias, float* gx);
void direct_weight_grad(const Conv& s, const float* x, const float* gy, float* gw);

// conv_gathered.cpp: where one product over the patches of many images is the faster way: 1x1 without padding in any dtype,
// and kernels of many weights in float32 and float64.
bool gathered_forward_fits(DType dtype, const Conv& s);
bool gathered_input_grad_fits(DType dtype, const Conv& s);
bool gathered_weight_grad_fits(DType dtype, const Conv& s);
void gathered_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y);
void gathered_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, const void* bias, void* gx);
void gathered_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw);

// conv_depthwise.cpp: one input channel per group, float32 and float64. last: the channels of x and y are innermost in memory,
// and there are as many of both.
bool depthwise_fits(DType dtype, const Conv& s);
bool depthwise_last_fits(DType dtype, const Conv& s);
void depthwise_forward(DType dtype, const Conv& s, const void* x, const void* w, const void* bias, void* y, bool last = false);
void depthwise_input_grad(DType dtype, const Conv& s, const void* gy, const void* w, void* gx, bool last = false);
void depthwise_weight_grad(DType dtype, const Conv& s, const void* x, const void* gy, void* gw, bool last = false);

// conv_nhwc.cpp: where the channels of x and y are innermost in memory and the products can be taken as they lie.
// False: not a case for it.
bool channels_last_forward(DType dtype, const Conv& s, const View& x, const View& w, const void* bias, const View& y);
bool channels_last_input_grad(DType dtype, const Conv& s, const View& gy, const View& w, const View& gx);
bool channels_last_weight_grad(DType dtype, const Conv& s, const View& x, const View& gy, const View& gw);

// The shape of the call; x and y are the input and output of the op, also where it is transposed.
Conv conv_shape(const View& x, const View& w, const View& y, const Attr* attr);

}  // namespace mt
