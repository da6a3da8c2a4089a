// The gradient of the distances between rows; the distances themselves are in linalg.cpp.
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

// The sizes of the distances between the rows of x1 and of x2.
std::vector<int64_t> distance_sizes(const Call& c, int x1_at, int x2_at) {
  const TensorMeta &x1 = c.tensor(x1_at), &x2 = c.tensor(x2_at);
  EXPECT(x1.ndim >= 2 && x2.ndim >= 2, "x1 of %s and x2 of %s are not of two dims or more", describe(x1).c_str(),
         describe(x2).c_str());
  EXPECT(x1.sizes[x1.ndim - 1] == x2.sizes[x2.ndim - 1], "x1 of %s and x2 of %s differ in their last dim",
         describe(x1).c_str(), describe(x2).c_str());
  std::vector<int64_t> sizes = broadcast_sizes({x1.sizes, x1.sizes + x1.ndim - 2}, {x2.sizes, x2.sizes + x2.ndim - 2});
  sizes.push_back(x1.sizes[x1.ndim - 2]);
  sizes.push_back(x2.sizes[x2.ndim - 2]);
  return sizes;
}

// What one item of a difference adds to the gradient of a distance, divided by the distance's own gradient.
double slope(double difference, double distance, double p) {
  const double sign = difference > 0 ? 1 : difference < 0 ? -1 : 0;
  if (p == 0 || distance == 0) return 0;
  if (p == 1) return sign;
  if (std::isinf(p)) return std::fabs(difference) == distance ? sign : 0;
  if (difference == 0) return 0;
  return sign * std::pow(std::fabs(difference) / distance, p - 1);
}

// ---- aclnnCdistBackward(grad, x1, x2, cdist, p, out): the gradient of x1 ------------------------------------------
void check_cdist_backward(const Call& c) {
  EXPECT(c.number(4) >= 0, "p of %g is negative", c.number(4));
  const std::vector<int64_t> sizes = distance_sizes(c, 1, 2);
  expect_shape(c, 0, sizes);
  expect_shape(c, 3, sizes);
  std::vector<int64_t> rows = sizes;
  rows.back() = c.tensor(1).sizes[c.tensor(1).ndim - 1];
  expect_shape(c, 5, rows);
  for (int i : {0, 1, 2, 3, 5})
    EXPECT(is_float(dtype_of(c.tensor(i).dtype)), "%s is not floating", c.row->args[i].name);
}
void cdist_backward(Run& r) {
  Value out = r.tensor(5);
  if (out.numel() == 0) return;
  const Sizes shape = r.tensor(0).shape(), batch(shape.begin(), shape.end() - 2);
  const int64_t rows = shape[shape.size() - 2], columns = shape.back(), width = out.size(-1);
  auto spread = [&](int i, int64_t n) {
    Sizes to = batch;
    to.insert(to.end(), {n, width});
    return r.tensor(i).expand(to).to(mt::kDouble).dense();
  };
  Value x1 = spread(1, rows), x2 = spread(2, columns), sum = full(out.shape(), mt::kDouble, 0);
  Value grad = r.tensor(0).to(mt::kDouble).dense(), distance = r.tensor(3).to(mt::kDouble).dense();
  for (int64_t k = 0; k < grad.numel(); ++k) {
    const int64_t row = k / columns, column = k / (rows * columns) * columns + k % columns;
    const double g = grad.ptr<double>()[k], d = distance.ptr<double>()[k];
    const double *a = x1.ptr<double>() + row * width, *b = x2.ptr<double>() + column * width;
    double* to = sum.ptr<double>() + row * width;
    for (int64_t i = 0; i < width; ++i) to[i] += g * slope(a[i] - b[i], d, r.call.number(4));
  }
  copy(out, sum);
}

const Op op("aclnnCdistBackward", check_cdist_backward, cdist_backward);

}  // namespace
}  // namespace cann_sim
