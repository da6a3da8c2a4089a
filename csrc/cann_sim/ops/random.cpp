// Random numbers from a seed and an offset: normal, uniform, integers, bernoulli, permutations, multinomial.
// Dropout is in random_dropout.cpp.
#include "ops/random.h"

#include <algorithm>
#include <cmath>

namespace cann_sim {
namespace {

struct Held {
  mt::Generator* generator = kernels().generator_new(0);
  ~Held() { kernels().generator_delete(generator); }
};
uint64_t mixed(uint64_t x) {  // the finaliser of splitmix64: neighbours become strangers
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

mt::Generator* seeded(const Seed& seed) {
  static thread_local Held held;
  kernels().generator_seed(held.generator, mixed(mixed(seed.seed + 0x9e3779b97f4a7c15u) + seed.offset) & 0xffffffffu);
  return held.generator;
}
Seed plain_seed(const Run& r, int i) { return {uint64_t(r.call.integer(i)), uint64_t(r.call.integer(i + 1))}; }
Seed tensor_seed(Run& r, int i) {
  auto item = [&](int at) { return uint64_t(*r.tensor(at).to(mt::kInt64).ptr<int64_t>()); };
  return {item(i), item(i + 1) + uint64_t(r.call.integer(i + 2))};
}
void check_tensor_seed(const Call& c, int i) {
  for (int at : {i, i + 1}) {
    expect_computes(c, at);
    expect_numel(c, at, 1);
  }
}

namespace {

// Draws into dense memory of a dtype the kernel has, so that strides do not change the numbers.
template <class F> void draw(const Value& out, DType dtype, F&& fill_with) {
  if (out.numel() == 0) return;
  if (out.contiguous()) return into(out, dtype, fill_with);
  Value made = empty(out.shape(), dtype);
  fill_with(made);
  copy(out, made);
}
DType drawn(DType d) { return mt::is_integral(d) ? mt::kFloat : d; }

// ---- normal -------------------------------------------------------------------------------------------------------
void expect_std(double std) { EXPECT(std >= 0, "std of %g is negative", std); }
void normal(const Value& out, double mean, double std, const Seed& seed) {
  draw(out, drawn(out.dtype),
       [&](const Value& to) { call_kernel("normal_", {to}, {number(mean), number(std)}, seeded(seed)); });
}
// mean + std * z; either may be a tensor.
void normal_around(const Value& out, const Value& mean, const Value& std, const Seed& seed) {
  const DType dtype = opmath(drawn(out.dtype));
  Value z = empty(out.shape(), dtype);
  normal(z, 0, 1, seed);
  call_pointwise("mul", dtype, {z, z, std});
  call_pointwise("add", dtype, {out, z, mean}, {number(1)});
}
Value as_value(double x) { return full({}, mt::kDouble, x); }
void check_normal_tensors(const Call& c) {  // (mean, std, seed, offset, out)
  std::vector<int64_t> sizes;
  for (int i : {0, 1}) {
    if (is_tensor(c.row->args[i].kind)) sizes = broadcast_sizes(sizes, sizes_of(c.tensor(i)));
    else if (i == 1) expect_std(c.number(i));
  }
  expect_shape(c, 4, sizes);
}

// ---- uniform and integers -----------------------------------------------------------------------------------------
void check_uniform(const Call& c) {
  EXPECT(c.number(1) <= c.number(2), "from of %g is larger than to of %g", c.number(1), c.number(2));
}
void uniform(Run& r, const Seed& seed) {
  Value out = r.tensor(0);
  draw(out, drawn(out.dtype), [&](const Value& to) {
    call_kernel("uniform_", {to}, {number(r.call.number(1)), number(r.call.number(2))}, seeded(seed));
  });
}
void check_random(const Call& c) {
  EXPECT(c.integer(1) < c.integer(2), "from of %ld is not less than to of %ld", c.integer(1), c.integer(2));
}
void random(Run& r, const Seed& seed) {
  Value out = r.tensor(0);
  draw(out, real_of(out.dtype), [&](const Value& to) {
    call_kernel("random_from", {to}, {integer(r.call.integer(1)), integer(r.call.integer(2))}, seeded(seed));
  });
}
void random_whole(Run& r, const Seed& seed) {
  Value out = r.tensor(0);
  draw(out, real_of(out.dtype), [&](const Value& to) { call_kernel("random_", {to}, {}, seeded(seed)); });
}

// ---- bernoulli: (selfRef, prob, seed, offset) or (self, prob, seed, offset, out) ----------------------------------
void check_prob(const Call& c) {
  const double p = c.scalar(1).re;
  EXPECT(p >= 0 && p <= 1, "prob of %g is not between 0 and 1", p);
  if (c.row->nargs > 4) expect_same_shape(c, 4, 0);
}
void bernoulli(Run& r, int out) {
  draw(r.tensor(out), r.tensor(out).dtype, [&](const Value& to) {
    call_kernel("bernoulli_scalar", {to}, {number(r.call.scalar(1).re)}, seeded(plain_seed(r, 2)));
  });
}
void check_prob_tensor(const Call& c) {
  const std::vector<int64_t> sizes = sizes_of(c.tensor(0));
  EXPECT(broadcast_sizes(sizes, sizes_of(c.tensor(1))) == sizes, "prob of %s does not broadcast to %s",
         describe(c.tensor(1)).c_str(), describe(c.tensor(0)).c_str());
  if (c.row->nargs > 4) expect_same_shape(c, 4, 0);
}
void bernoulli_tensor(Run& r, int out) {
  // A card compares numbers with the probabilities: beyond 1 is always, below 0 and NaN never.
  const Value given = r.tensor(1).to(mt::kDouble).dense(), prob = empty(given.shape(), mt::kDouble);
  for (int64_t i = 0; i < given.numel(); ++i) prob.ptr<double>()[i] = given.ptr<double>()[i] > 0 ? std::min(given.ptr<double>()[i], 1.0) : 0;
  draw(r.tensor(out), r.tensor(out).dtype, [&](const Value& to) {
    call_kernel("bernoulli_tensor", {to, prob.expand(to.shape())}, {}, seeded(plain_seed(r, 2)));
  });
}

// ---- aclnnRandperm(n, seed, offset, out) --------------------------------------------------------------------------
void check_randperm(const Call& c) {
  EXPECT(c.integer(0) >= 0, "n of %ld is negative", c.integer(0));
  expect_shape(c, 3, {c.integer(0)});
}
void randperm(Run& r) {
  if (r.call.integer(0) == 0) return;
  call_kernel("randperm", {r.tensor(3)}, {integer(r.call.integer(0))}, seeded(plain_seed(r, 1)));
}

// ---- aclnnMultinomial(self, numsamples, replacement, seed, offset, out) -------------------------------------------
void check_multinomial(const Call& c, int out) {
  const TensorMeta& self = c.tensor(0);
  EXPECT(is_float(dtype_of(self.dtype)), "self of %s is not floating", describe(self).c_str());
  EXPECT(self.ndim == 1 || self.ndim == 2, "self of %s is not 1-D or 2-D", describe(self).c_str());
  const int64_t samples = c.integer(1), n = self.sizes[self.ndim - 1];
  EXPECT(samples > 0, "numsamples of %ld is not positive", samples);
  EXPECT(c.integer(2) || samples <= n, "%ld samples of %ld items without replacement", samples, n);
  std::vector<int64_t> sizes = sizes_of(self);
  sizes.back() = samples;
  expect_shape(c, out, sizes);
}
// Weights as a card takes them, which checks none: no weight where it is negative or not finite, and the least where too few have one.
Value weights_of(Run& r) {
  const Value given = r.tensor(0).to(mt::kDouble).dense(), made = empty(given.shape(), mt::kDouble);
  const int64_t n = given.size(-1), needed = r.call.integer(2) ? 1 : r.call.integer(1);
  for (int64_t row = 0; row < (n ? given.numel() / n : 0); ++row) {
    const double* from = given.ptr<double>() + row * n;
    double* to = made.ptr<double>() + row * n;
    int64_t positive = 0;
    for (int64_t i = 0; i < n; ++i) positive += (to[i] = std::isfinite(from[i]) && from[i] > 0 ? from[i] : 0) > 0;
    for (int64_t i = 0; i < n && positive < needed; ++i) to[i] = std::max(to[i], 1e-300);
  }
  return made;
}
void multinomial(Run& r, int out, const Seed& seed) {
  call_kernel("multinomial", {r.tensor(out), weights_of(r)}, {integer(r.call.integer(1)), integer(r.call.integer(2))},
              seeded(seed));
}

// ---- aclnnSimThreadExponential(selfRef, count, lambda, seed, offset) ----------------------------------------------
void check_exponential(const Call& c) {
  EXPECT(is_float(dtype_of(c.tensor(0).dtype)), "selfRef of %s is not floating", describe(c.tensor(0)).c_str());
  EXPECT(c.number(2) > 0, "lambda of %g is not positive", c.number(2));
}
void exponential(Run& r) {
  Value out = r.tensor(0);
  draw(out, out.dtype, [&](const Value& to) {
    call_kernel("exponential_", {to}, {number(r.call.number(2))}, seeded(plain_seed(r, 3)));
  });
}

// ---- aclnnRReluWithNoise(self, noise, lower, upper, training, seed, offset, out) ----------------------------------
// The slope of a negative item is drawn in training and kept in the noise; else it is the middle of the bounds.
void check_rrelu(const Call& c) {
  EXPECT(c.scalar(2).re <= c.scalar(3).re, "lower of %g is larger than upper of %g", c.scalar(2).re, c.scalar(3).re);
  expect_same_shape(c, 1, 0);
  expect_same_dtype(c, 1, 0);
  if (c.row->nargs > 7) expect_same_shape(c, 7, 0);
}
void rrelu(Run& r, int at) {
  Value self = r.tensor(0), noise = r.tensor(1), out = r.tensor(at);
  const double lower = r.call.scalar(2).re, upper = r.call.scalar(3).re;
  const DType dtype = opmath(self.dtype);
  if (self.numel() == 0) return;
  Value slope = full(self.shape(), dtype, (lower + upper) / 2), rising = empty(self.shape(), mt::kBool);
  call_pointwise("gt", dtype, {rising, self, full({}, dtype, 0)});
  if (r.call.integer(4)) call_kernel("uniform_", {slope}, {number(lower), number(upper)}, seeded(plain_seed(r, 5)));
  call_pointwise("where", dtype, {slope, rising, full({}, dtype, 1), slope});
  if (r.call.integer(4)) copy(noise, slope);
  call_pointwise("mul", dtype, {out, self, slope});
}

const Op ops[] = {
    {"aclnnInplaceNormal", [](const Call& c) { expect_std(c.number(2)); },
     [](Run& r) { normal(r.tensor(0), r.call.number(1), r.call.number(2), plain_seed(r, 3)); }},
    {"aclnnInplaceNormalTensor", [](const Call& c) { expect_std(c.number(2)), check_tensor_seed(c, 3); },
     [](Run& r) { normal(r.tensor(0), r.call.number(1), r.call.number(2), tensor_seed(r, 3)); }},
    {"aclnnNormalFloatFloat", [](const Call& c) { expect_std(c.number(1)); },
     [](Run& r) { normal(r.tensor(4), r.call.number(0), r.call.number(1), plain_seed(r, 2)); }},
    {"aclnnNormalFloatTensor", check_normal_tensors,
     [](Run& r) { normal_around(r.tensor(4), as_value(r.call.number(0)), r.tensor(1), plain_seed(r, 2)); }},
    {"aclnnNormalTensorFloat", check_normal_tensors,
     [](Run& r) { normal_around(r.tensor(4), r.tensor(0), as_value(r.call.number(1)), plain_seed(r, 2)); }},
    {"aclnnNormalTensorTensor", check_normal_tensors,
     [](Run& r) { normal_around(r.tensor(4), r.tensor(0), r.tensor(1), plain_seed(r, 2)); }},
    {"aclnnInplaceUniform", check_uniform, [](Run& r) { uniform(r, plain_seed(r, 3)); }},
    {"aclnnInplaceUniformTensor", [](const Call& c) { check_uniform(c), check_tensor_seed(c, 3); },
     [](Run& r) { uniform(r, tensor_seed(r, 3)); }},
    {"aclnnInplaceRandom", check_random, [](Run& r) { random(r, plain_seed(r, 3)); }},
    {"aclnnInplaceRandomTensor", [](const Call& c) { check_random(c), check_tensor_seed(c, 3); },
     [](Run& r) { random(r, tensor_seed(r, 3)); }},
    {"aclnnInplaceRandomWithoutFromTo", [](const Call& c) { expect_computes(c, 0); },
     [](Run& r) { random_whole(r, plain_seed(r, 1)); }},
    {"aclnnInplaceRandomWithoutFromToTensor", [](const Call& c) { expect_computes(c, 0), check_tensor_seed(c, 1); },
     [](Run& r) { random_whole(r, tensor_seed(r, 1)); }},
    {"aclnnInplaceBernoulli", check_prob, [](Run& r) { bernoulli(r, 0); }},
    {"aclnnBernoulli", check_prob, [](Run& r) { bernoulli(r, 4); }},
    {"aclnnInplaceBernoulliTensor", check_prob_tensor, [](Run& r) { bernoulli_tensor(r, 0); }},
    {"aclnnBernoulliTensor", check_prob_tensor, [](Run& r) { bernoulli_tensor(r, 4); }},
    {"aclnnRandperm", check_randperm, randperm},
    {"aclnnMultinomial", [](const Call& c) { check_multinomial(c, 5); },
     [](Run& r) { multinomial(r, 5, plain_seed(r, 3)); }},
    {"aclnnMultinomialTensor", [](const Call& c) { check_multinomial(c, 6), check_tensor_seed(c, 3); },
     [](Run& r) { multinomial(r, 6, tensor_seed(r, 3)); }},
    {"aclnnSimThreadExponential", check_exponential, exponential},
    {"aclnnRReluWithNoise", check_rrelu, [](Run& r) { rrelu(r, 7); }},
    {"aclnnInplaceRReluWithNoise", check_rrelu, [](Run& r) { rrelu(r, 0); }},
};

}  // namespace
}  // namespace cann_sim
