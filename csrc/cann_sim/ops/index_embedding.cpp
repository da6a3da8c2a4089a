// Table lookups: embedding, its gradient, bags of rows, and rows scaled down to a largest norm.
#include <algorithm>

#include "ops/result.h"

namespace cann_sim {
namespace {

// ---- aclnnEmbedding(weight, indices, out) -------------------------------------------------------------------------
void check_embedding(const Call& c) {
  std::vector<int64_t> sizes = sizes_of(c.tensor(1));
  sizes.push_back(c.tensor(0).sizes[1]);
  expect_shape(c, 2, sizes);
  expect_same_dtype(c, 2, 0);
}
void embedding(Run& r) {
  if (r.call.tensor(2).numel() > 0) call_kernel("embedding", {r.tensor(2), r.tensor(0), r.tensor(1)});
}

// ---- aclnnEmbeddingDenseBackward(grad, indices, numWeights, paddingIdx, scaleGradByFreq, out) ---------------------
void check_backward(const Call& c) {
  const TensorMeta& grad = c.tensor(0);
  const int64_t width = grad.sizes[grad.ndim - 1];
  expect_numel(c, 0, c.tensor(1).numel() * width);
  expect_shape(c, 5, {c.integer(2), width});
  expect_castable(c, 0, 5);
}
void backward(Run& r) {
  call_kernel("embedding_dense_backward", {r.tensor(5), r.tensor(0), index_value(r, 1)},
              {integer(r.call.integer(2)), integer(r.call.integer(3)), integer(r.call.integer(4))});
}

// ---- norms no larger than a bound ---------------------------------------------------------------------------------
constexpr double kTiny = 1e-7;  // torch's, so that the scaled norm stays below the bound

// What each row along dim 0 of a matrix is to be multiplied with.
Value scales_of(const Value& rows, double p, double most) {
  const DType dtype = opmath(rows.dtype);
  const Sizes dims{1};
  Value norms = empty({rows.sizes[0], 1}, dtype), scales = empty({rows.sizes[0], 1}, mt::kDouble);
  call_kernel("linalg_vector_norm", {norms, rows}, {number(p), list(dims), integer(1), none()});
  copy(scales, norms);
  for (int64_t i = 0; i < rows.sizes[0]; ++i) {
    double& x = scales.ptr<double>()[i];
    x = x > most ? most / (x + kTiny) : 1;
  }
  return scales;
}

// aclnnEmbeddingRenorm(selfRef, indices, maxNorm, normType): only the rows that are looked up
void check_renorm_rows(const Call& c) {
  EXPECT(c.number(2) >= 0, "maxNorm of %g is negative", c.number(2));
}
void renorm_rows(Run& r) {
  Value self = r.tensor(0), indices = index_value(r, 1).reshape({-1});
  std::vector<int64_t> rows(indices.ptr<int64_t>(), indices.ptr<int64_t>() + indices.numel());
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (int64_t row : rows) {
    if (row < 0 || row >= self.sizes[0])
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnEmbeddingRenorm: index " + std::to_string(row) +
                                                           " is out of range for a table of " +
                                                           std::to_string(self.sizes[0]) + " rows");
    Value one = self.narrow(0, row, 1);
    Value scale = scales_of(one, r.call.number(3), r.call.number(2));
    call_pointwise("mul", opmath(self.dtype), {one, one, scale});
  }
}

// aclnnRenorm(self, p, dim, maxNorm, out), aclnnInplaceRenorm(selfRef, p, dim, maxNorm)
void check_renorm(const Call& c) {
  EXPECT(c.scalar(1).re > 0, "p of %g is not positive", c.scalar(1).re);
  EXPECT(c.scalar(3).re >= 0, "maxNorm of %g is negative", c.scalar(3).re);
  wrap_dim(c.integer(2), c.tensor(0).ndim);
  if (c.row->nargs > 4) {
    expect_same_shape(c, 4, 0);
    expect_castable(c, 0, 4);
  }
}
void renorm(Run& r, const Value& out) {
  Value self = r.tensor(0);
  if (self.numel() == 0) return;
  const int64_t dim = wrap_dim(r.call.integer(2), self.ndim);
  Value first = self.transpose(0, dim);
  Value scales = scales_of(first.reshape({first.sizes[0], -1}), r.call.scalar(1).re, r.call.scalar(3).re);
  Sizes along(self.ndim, 1);
  along[dim] = self.size(dim);
  call_pointwise("mul", opmath(self.dtype), {out, self, scales.reshape(along)});
}

// ---- aclnnEmbeddingBag(weight, indices, offsets, scaleGradByFreq, mode, sparse, perSampleWeights?, includeLastOffset,
//                        paddingIdx, output, offset2bag, bagSize, maxIndices) --------------------------------------
enum Mode { kSum, kMean, kMax, kModes };
int64_t bags_of(const Call& c) { return std::max<int64_t>(c.tensor(2).numel() - (c.integer(7) != 0), 0); }
void check_bag(const Call& c) {
  const int64_t mode = c.integer(4), bags = bags_of(c);
  EXPECT(mode >= 0 && mode < kModes, "mode of %ld is none of 0 (sum), 1 (mean), 2 (max)", mode);
  EXPECT(c.tensor(1).ndim == 1 && c.tensor(2).ndim == 1, "indices of %s and offsets of %s are not 1-D",
         describe(c.tensor(1)).c_str(), describe(c.tensor(2)).c_str());
  const bool weighted = c.given(6) && c.tensor(6).numel() > 0;
  EXPECT(!weighted || mode == kSum, "perSampleWeights with mode %ld", mode);
  if (weighted) expect_same_shape(c, 6, 1);
  expect_shape(c, 9, {bags, c.tensor(0).sizes[1]});
  expect_castable(c, 0, 9);
}
// The bag of each index, and how many of a bag's indices count.
void count_bags(Run& r, const Value& indices, const Value& offsets, int64_t bags) {
  Value bag = full({indices.numel()}, mt::kInt64, 0), size = full({bags}, mt::kInt64, 0);
  for (int64_t b = 0; b < bags; ++b) {
    const int64_t end = b + 1 < offsets.numel() ? offsets.ptr<int64_t>()[b + 1] : indices.numel();
    for (int64_t i = offsets.ptr<int64_t>()[b]; i < end; ++i) {
      bag.ptr<int64_t>()[i] = b;
      size.ptr<int64_t>()[b] += indices.ptr<int64_t>()[i] != r.call.integer(8);
    }
  }
  if (r.call.tensor(10).numel() == bag.numel()) copy(r.tensor(10), bag);
  if (r.call.tensor(11).numel() == bags) copy(r.tensor(11), size);
}
void bag(Run& r) {
  Value weight = r.tensor(0), scale = r.tensor(6);
  Value indices = index_value(r, 1).dense(), offsets = index_value(r, 2).dense();
  const int64_t bags = bags_of(r.call);
  if (scale.given() && scale.numel() == 0) scale = Value();
  call_kernel("embedding_bag", {r.tensor(9), weight, indices, offsets, scale},
              {integer(r.call.integer(4)), integer(r.call.integer(8)), integer(r.call.integer(7))});
  count_bags(r, indices, offsets, bags);
  Value places = r.tensor(12), table = weight.to(mt::kDouble).dense();
  if (places.numel() == 0) return;
  fill(places, 0);
  const int64_t width = weight.sizes[1];
  if (r.call.integer(4) != kMax || places.numel() != bags * width) return;
  Value best = full({bags, width}, mt::kInt64, -1);
  for (int64_t b = 0; b < bags; ++b) {
    const int64_t end = b + 1 < offsets.numel() ? offsets.ptr<int64_t>()[b + 1] : indices.numel();
    for (int64_t i = offsets.ptr<int64_t>()[b]; i < end; ++i) {
      const int64_t row = indices.ptr<int64_t>()[i];
      if (row == r.call.integer(8)) continue;
      for (int64_t k = 0; k < width; ++k) {
        int64_t& at = best.ptr<int64_t>()[b * width + k];
        if (at < 0 || table.ptr<double>()[row * width + k] > table.ptr<double>()[at * width + k]) at = row;
      }
    }
  }
  copy(places, best.reshape(places.shape()));
}

const Op ops[] = {
    {"aclnnEmbedding", check_embedding, embedding},
    {"aclnnEmbeddingDenseBackward", check_backward, backward},
    {"aclnnEmbeddingRenorm", check_renorm_rows, renorm_rows},
    {"aclnnEmbeddingBag", check_bag, bag},
    {"aclnnRenorm", check_renorm, [](Run& r) { renorm(r, r.tensor(4)); }},
    {"aclnnInplaceRenorm", check_renorm, [](Run& r) { renorm(r, r.tensor(0)); }},
};

}  // namespace
}  // namespace cann_sim
