// im2col and col2im as ops; the loops are in unfold.h, shared with the convolutions.
#include <stdexcept>
#include <string>

#include "dispatch.h"
#include "parallel.h"
#include "unfold.h"

namespace mt {
namespace {

// image: (C, H, W) or (N, C, H, W); attr: kernel_size, dilation, padding, stride.
Conv patch_shape(const View& image, const View& columns, const Attr* attr) {
  if ((image.ndim != 3 && image.ndim != 4) || columns.ndim != image.ndim - 1)
    throw std::runtime_error("Expected 3D or 4D (batch mode) tensor for the image and one dimension less for "
                             "the columns");
  const int first = image.ndim - 3;
  Conv s{first ? image.sizes[0] : 1, image.sizes[first], 1, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0},
         {1, 1, 1}};
  for (int i = 0; i < 2; ++i) {
    int d = i + 1;
    s.in[d] = image.sizes[first + 1 + i];
    s.kernel[d] = list_item(attr[0], i);
    s.dilation[d] = list_item(attr[1], i);
    s.pad[d] = list_item(attr[2], i, 0);
    s.stride[d] = list_item(attr[3], i);
    if (s.kernel[d] <= 0) throw std::runtime_error("kernel size should be greater than zero");
    if (s.dilation[d] <= 0) throw std::runtime_error("dilation should be greater than zero");
    if (s.pad[d] < 0) throw std::runtime_error("padding should be non-negative");
    if (s.stride[d] <= 0) throw std::runtime_error("stride should be greater than zero");
    int64_t slack = s.in[d] + 2 * s.pad[d] - s.dilation[d] * (s.kernel[d] - 1) - 1;
    s.out[d] = slack < 0 ? 0 : slack / s.stride[d] + 1;
  }
  if (columns.sizes[first] != s.c * s.taps() || columns.sizes[first + 1] != s.y_plane())
    throw std::runtime_error("Given the image and the kernel, expected columns of size [" +
                             std::to_string(s.c * s.taps()) + ", " + std::to_string(s.y_plane()) + "]");
  return s;
}

// im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor
void im2col(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  Conv s = patch_shape(self, out, args.a);
  if (out.numel() == 0) return;
  Dense x(self, self.dtype), y(out, self.dtype, Dense::kOutput);
  const int64_t plane = s.y_plane(), size = s.taps() * plane;
  MT_DISPATCH_SIZE(self.dtype, "im2col", T, {
    parallel_for(s.n * s.c, kGrain / size + 1, [&](int64_t begin, int64_t end) {
      unfold(s, x.ptr<T>() + begin * s.x_plane(), end - begin, 0, plane, y.ptr<T>() + begin * size, plane);
    });
  })
  y.store();
}

template <class T> void add_patches(const Conv& s, const T* columns, T* image) {
  const int64_t plane = s.y_plane(), size = s.taps() * plane;
  parallel_for(s.n * s.c, kGrain / (size + 1) + 1, [&](int64_t begin, int64_t end) {
    std::fill(image + begin * s.x_plane(), image + end * s.x_plane(), T(0));
    fold(s, columns + begin * size, plane, end - begin, 0, plane, image + begin * s.x_plane());
  });
}

// col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride)
//   -> Tensor
void col2im(const Args& args) {
  const View &out = args.t[0], &self = args.t[1];
  Conv s = patch_shape(out, self, args.a + 1);
  if (out.numel() == 0) return;
  DType dtype = self.dtype == kBool ? kUInt8 : widened(self.dtype);
  Dense columns(self, dtype), image(out, dtype, Dense::kOutput);
  MT_SWITCH(dtype, "col2im", MT_INTS(T, { add_patches(s, columns.ptr<T>(), image.ptr<T>()); })
            MT_FLOATS(T, { add_patches(s, columns.ptr<T>(), image.ptr<T>()); })
            MT_COMPLEX(T, { add_patches(s, columns.ptr<T>(), image.ptr<T>()); }))
  image.store();
}

Register register_im2col("im2col", im2col), register_col2im("col2im", col2im);

}  // namespace
}  // namespace mt
