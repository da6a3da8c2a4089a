// The order in which PyTorch fills strided tensors, and the small parts of random_order.h that are no templates.
#include "random_order.h"

#include <cstdio>
#include <numeric>

namespace mt::rng {
namespace {

// Whether dimension x must come after y: 1 yes, -1 no, 0 the strides do not say. Broadcast dimensions never say.
int compare(const int64_t* size, const int64_t stride[2][kRandomDims], int x, int y) {
  for (int k = 0; k < 2; ++k) {
    int64_t sx = stride[k][x], sy = stride[k][y];
    if (sx == 0 || sy == 0) continue;
    if (sx != sy) return sx < sy ? -1 : 1;
    if (size[x] > size[y]) return 1;
  }
  return 0;
}

}  // namespace

Order::Order(const View& a, const View* b) {
  int64_t sizes[kRandomDims], strides[2][kRandomDims];
  int perm[kRandomDims], n = a.ndim;
  for (int d = 0; d < n; ++d) {
    int from = n - 1 - d;
    sizes[d] = a.sizes[from];
    numel *= sizes[d];
    strides[0][d] = a.strides[from];
    int bd = b ? b->ndim - 1 - d : -1;
    strides[1][d] = bd >= 0 && b->sizes[bd] != 1 ? b->strides[bd] : 0;
  }
  std::iota(perm, perm + n, 0);
  for (int i = 1; i < n; ++i)
    for (int j = i - 1, k = i; j >= 0; --j) {
      int c = compare(sizes, strides, perm[j], perm[k]);
      if (c < 0) break;
      if (c > 0) std::swap(perm[j], perm[k]), k = j;
    }
  for (int i = 0; i < n; ++i) {
    int d = perm[i], last = ndim - 1;
    if (sizes[d] == 1) continue;
    if (ndim && strides[0][d] == stride[0][last] * size[last] && strides[1][d] == stride[1][last] * size[last]) {
      size[last] *= sizes[d];
      continue;
    }
    size[ndim] = sizes[d];
    stride[0][ndim] = strides[0][d];
    stride[1][ndim++] = strides[1][d];
  }
}

RealView::RealView(const View& v) : view(v) {
  if (!is_complex(v.dtype)) return;
  for (int d = 0; d < v.ndim; ++d) {
    sizes_[d] = v.sizes[d];
    strides_[d] = v.strides[d] * 2;
  }
  sizes_[v.ndim] = 2;
  strides_[v.ndim] = 1;
  view.sizes = sizes_;
  view.strides = strides_;
  view.ndim = v.ndim + 1;
  view.dtype = real_dtype(v.dtype);
}

std::string shown(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

}  // namespace mt::rng
