// Dropout: masks of one bit an item, eight to a byte, padded to whole 128 bits, and their use.
#include <algorithm>
#include <limits>

#include "ops/random.h"

namespace cann_sim {

// Bit i says that item i stays, which it does with probability 1 - p. The bits after the last item are 0.
Value make_mask(int64_t bytes, int64_t items, double p, const Seed& seed) {
  constexpr int64_t kChunk = 1 << 16;  // a multiple of 8: chunks begin with a byte
  Value mask = full({bytes}, mt::kUInt8, 0);
  uint8_t* bits = mask.ptr<uint8_t>();
  mt::Generator* generator = seeded(seed);
  for (int64_t at = 0; at < items; at += kChunk) {
    Value u = empty({std::min(kChunk, items - at)}, mt::kFloat);
    call_kernel("uniform_", {u}, {number(0), number(1)}, generator);
    for (int64_t i = 0; i < u.sizes[0]; ++i)
      if (u.ptr<float>()[i] >= p) bits[(at + i) / 8] |= uint8_t(1u << (i % 8));
  }
  return mask;
}
void use_mask(const Value& out, const Value& self, const Value& mask, double scale) {
  const DType dtype = opmath(self.dtype);
  Value bits = mask.dense(), kept = empty({self.numel()}, mt::kBool);
  for (int64_t i = 0; i < kept.sizes[0]; ++i) kept.ptr<bool>()[i] = bits.ptr<uint8_t>()[i / 8] >> (i % 8) & 1;
  Value scaled = empty(self.shape(), dtype);
  call_pointwise("mul", dtype, {scaled, self, full({}, dtype, scale)});
  call_pointwise("where", dtype, {out, kept.reshape(self.shape()), scaled, full({}, dtype, 0)});
}

namespace {

constexpr int64_t kAlign = 128;
int64_t mask_bytes(int64_t items) { return (items + kAlign - 1) / kAlign * (kAlign / 8); }

void expect_prob(double p) { EXPECT(p >= 0 && p <= 1, "a probability of %g is not between 0 and 1", p); }
int64_t product(Span<int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape) {
    EXPECT(size >= 0, "a size of %ld in shape", size);
    EXPECT(!__builtin_mul_overflow(n, size, &n), "shape has more items than 64 bits count");
  }
  return n;
}
void expect_mask(const Call& c, int mask, int64_t items) {
  EXPECT(items <= std::numeric_limits<int64_t>::max() - kAlign && c.tensor(mask).numel() >= mask_bytes(items), "%s of %s; %ld items need %ld bytes", c.row->args[mask].name,
         describe(c.tensor(mask)).c_str(), items, mask_bytes(items));
}

double scale_of(double p) { return p == 1 ? 0 : 1 / (1 - p); }

// aclnnDropoutGenMask(shape, prob, seed, offset, out), ...V2(shape, prob, seed, offset, dtype, out),
// ...V2Tensor(shape, prob, seedTensor, offsetTensor, offset, dtype, out)
template <int out> void check_mask(const Call& c) {
  expect_prob(c.number(1));
  expect_mask(c, out, product(c.ints(0)));
}
void mask(Run& r, int out, const Seed& seed) {
  Value to = r.tensor(out);
  copy(to, make_mask(to.numel(), product(r.call.ints(0)), r.call.number(1), seed).reshape(to.shape()));
}

// aclnnDropoutDoMask(self, mask, prob, out); aclnnDropoutBackward(gradOutput, mask, scale, out)
void check_use(const Call& c) {
  expect_mask(c, 1, c.tensor(0).numel());
  expect_same_shape(c, 3, 0);
  expect_castable(c, 0, 3);
}
void check_do_mask(const Call& c) {
  expect_prob(c.number(2));
  check_use(c);
}
void do_mask(Run& r, double scale) {
  if (r.call.tensor(0).numel() > 0) use_mask(r.tensor(3), r.tensor(0), r.tensor(1), scale);
}

// aclnnDropout(input, p, train, seed, offset, out, mask); aclnnDropoutV3(input, noiseShape, p, seed, offset, out, mask)
void check_dropout(const Call& c) {
  expect_prob(c.number(1));
  expect_mask(c, 6, c.tensor(0).numel());
  expect_same_shape(c, 5, 0);
  expect_castable(c, 0, 5);
}
void drop(Run& r, double p, const Seed& seed) {
  Value self = r.tensor(0), to = r.tensor(6);
  if (self.numel() == 0) return;
  Value made = make_mask(to.numel(), self.numel(), p, seed);
  copy(to, made.reshape(to.shape()));
  use_mask(r.tensor(5), self, made, scale_of(p));
}
void dropout(Run& r) { drop(r, r.call.integer(2) ? r.call.number(1) : 0, plain_seed(r, 3)); }
void check_dropout_v3(const Call& c) {
  EXPECT(!c.given(1) || c.tensor(1).numel() == 0, "a noise shape is not supported");
  expect_prob(c.number(2));
  expect_mask(c, 6, c.tensor(0).numel());
  expect_same_shape(c, 5, 0);
  expect_castable(c, 0, 5);
}

// aclnnMaskedScale(self, mask, scale, y): a mask of one item each
void check_masked_scale(const Call& c) {
  expect_computes(c, 0);
  expect_computes(c, 1);
  expect_same_shape(c, 1, 0);
  expect_same_shape(c, 3, 0);
}
void masked_scale(Run& r) {
  Value self = r.tensor(0);
  const DType dtype = opmath(self.dtype);
  Value scaled = empty(self.shape(), dtype);
  call_pointwise("mul", dtype, {scaled, self, full({}, dtype, r.call.number(2))});
  call_pointwise("mul", dtype, {r.tensor(3), scaled, r.tensor(1)});
}

const Op ops[] = {
    {"aclnnDropoutGenMask", check_mask<4>, [](Run& r) { mask(r, 4, plain_seed(r, 2)); }},
    {"aclnnDropoutGenMaskV2", check_mask<5>, [](Run& r) { mask(r, 5, plain_seed(r, 2)); }},
    {"aclnnDropoutGenMaskV2Tensor", [](const Call& c) { check_mask<6>(c), check_tensor_seed(c, 2); },
     [](Run& r) { mask(r, 6, tensor_seed(r, 2)); }},
    {"aclnnDropoutDoMask", check_do_mask, [](Run& r) { do_mask(r, scale_of(r.call.number(2))); }},
    {"aclnnDropoutBackward", check_use, [](Run& r) { do_mask(r, r.call.number(2)); }},
    {"aclnnDropoutV3Grad", check_use, [](Run& r) { do_mask(r, r.call.number(2)); }},
    {"aclnnDropout", check_dropout, dropout},
    {"aclnnDropoutV3", check_dropout_v3, [](Run& r) { drop(r, r.call.number(2), plain_seed(r, 3)); }},
    {"aclnnMaskedScale", check_masked_scale, masked_scale},
};

}  // namespace
}  // namespace cann_sim
