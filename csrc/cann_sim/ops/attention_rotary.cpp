// Rotary position embedding: every vector turned by the angles whose cosines and sines are given, and its gradient.
#include <string>

#include "ops/result.h"

namespace cann_sim {
namespace {

enum Mode { kHalf, kInterleave, kQuarter };  // which items of a vector turn together

// Item i of the quarter turn of x is sign * x[from].
struct Turn {
  Mode mode;
  int64_t depth;
  int64_t from(int64_t i) const {
    if (mode == kInterleave) return i ^ 1;
    int64_t half = depth / (mode == kHalf ? 2 : 4);
    return i / half % 2 ? i - half : i + half;
  }
  float sign(int64_t i) const { return from(i) > i ? -1.f : 1.f; }
  void expect_fits() const {
    int64_t parts = mode == kQuarter ? 4 : 2;
    EXPECT(depth % parts == 0, "a depth of %ld is not divisible by %ld", long(depth), long(parts));
  }
};
Mode mode_of(int64_t mode) {
  EXPECT(mode >= kHalf && mode <= kQuarter, "mode %ld is not supported: 0 half, 1 interleave, 2 quarter", long(mode));
  return Mode(mode);
}

Value turned(const Value& x, Mode mode) {
  Value from = x.to(mt::kFloat).dense(), made = empty(x.shape(), mt::kFloat);
  Turn turn{mode, x.size(-1)};
  const float* p = from.ptr<float>();
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    int64_t at = i % turn.depth;
    made.ptr<float>()[i] = turn.sign(at) * p[i - at + turn.from(at)];
  }
  return made;
}
Value product(const Value& a, const Value& b, const Sizes& shape) {
  Value made = empty(shape, mt::kFloat);
  call_pointwise("mul", mt::kFloat, {made, a, b});
  return made;
}
// out = a * cos + factor * b * sin
void combine(const Value& out, const Value& a, const Value& cos, const Value& b, const Value& sin, double factor) {
  Value left = product(a, cos, a.shape()), right = product(b, sin, b.shape());
  call_pointwise("add", mt::kFloat, {out, left, right}, {number(factor)});
}

void expect_angles(const Call& c, int x, int cos, int sin) {
  expect_same_shape(c, sin, cos);
  EXPECT(
      c.tensor(x).ndim > 0 && broadcast_sizes(sizes_of(c.tensor(cos)), sizes_of(c.tensor(x))) == sizes_of(c.tensor(x)),
      "cos %s does not broadcast to %s", describe(c.tensor(cos)).c_str(), describe(c.tensor(x)).c_str());
}

// ---- (x, cos, sin, mode, out) ----------------------------------------------------------------------------------
void check_rotary(const Call& c) {
  expect_angles(c, 0, 1, 2);
  Turn{mode_of(c.integer(3)), c.tensor(0).sizes[c.tensor(0).ndim - 1]}.expect_fits();
  expect_same_shape(c, 4, 0);
}
void rotary(Run& r) {
  Value x = r.tensor(0);
  combine(r.tensor(4), x, r.tensor(1), turned(x, mode_of(r.call.integer(3))), r.tensor(2), 1);
}

// ---- (x, cos, sin, mode, rotate?, out): a matrix that turns, in place of the mode ---------------------------------
void check_rotary_v2(const Call& c) {
  expect_angles(c, 0, 1, 2);
  const int64_t depth = c.tensor(0).sizes[c.tensor(0).ndim - 1];
  if (c.given(4)) expect_shape(c, 4, {depth, depth});
  else Turn{mode_of(c.integer(3)), depth}.expect_fits();
  expect_same_shape(c, 5, 0);
}
void rotary_v2(Run& r) {
  Value x = r.tensor(0), other;
  if (r.given(4)) {
    other = empty(x.shape(), mt::kFloat);
    call_kernel("matmul", {other, x.to(mt::kFloat), r.tensor(4).to(mt::kFloat)});
  } else {
    other = turned(x, mode_of(r.call.integer(3)));
  }
  combine(r.tensor(5), x, r.tensor(1), other, r.tensor(2), 1);
}

// ---- (dy, cos, sin, x?, mode, dx, dcos, dsin): without x the angles have no gradient ---------------------------
void check_grad(const Call& c) {
  expect_angles(c, 0, 1, 2);
  Turn{mode_of(c.integer(4)), c.tensor(0).sizes[c.tensor(0).ndim - 1]}.expect_fits();
  expect_same_shape(c, 5, 0);
  if (!c.given(3)) return;
  expect_same_shape(c, 3, 0);
  for (int i : {6, 7}) expect_same_shape(c, i, 1);
}
// Sums what was broadcast.
void reduce_into(const Value& out, const Value& whole) {
  Sizes dims;
  for (int d = 0; d < whole.ndim; ++d)
    if (d < whole.ndim - out.ndim || (out.sizes[d - (whole.ndim - out.ndim)] == 1 && whole.sizes[d] != 1))
      dims.push_back(d);
  if (dims.empty()) return copy(out, whole);
  Sizes kept;
  for (int d = 0, next = 0; d < whole.ndim; ++d) {
    if (next < int(dims.size()) && dims[size_t(next)] == d) ++next;
    else kept.push_back(whole.sizes[d]);
  }
  Value sum = empty(kept, mt::kFloat);
  call_kernel("sum", {sum, whole}, {list(dims), integer(0), none()});
  copy(out, sum.reshape(out.shape()));
}
void grad(Run& r) {
  Value dy = r.tensor(0), sin = r.tensor(2);
  Mode mode = mode_of(r.call.integer(4));
  // The turn is antisymmetric: its transpose is its negative.
  Value back = turned(product(dy, sin, dy.shape()), mode), along = product(dy, r.tensor(1), dy.shape());
  call_pointwise("sub", mt::kFloat, {r.tensor(5), along, back}, {number(1)});
  if (!r.given(3)) return;
  Value x = r.tensor(3);
  reduce_into(r.tensor(6), product(dy, x, dy.shape()));
  reduce_into(r.tensor(7), product(dy, turned(x, mode), dy.shape()));
}

// ---- in place on query and key: (query, key, cos, sin, layout, [rotaryMode]) -----------------------------------
Mode named_mode(const Call& c) {
  if (c.row->nargs <= 5) return kHalf;
  std::string name = c.string(5);
  EXPECT(name == "half" || name == "interleave" || name == "quarter", "rotaryMode %s is not supported", name.c_str());
  return name == "half" ? kHalf : name == "interleave" ? kInterleave : kQuarter;
}
void check_apply(const Call& c) {
  Mode mode = named_mode(c);
  EXPECT(c.integer(4) >= 1 && c.integer(4) <= 4, "layout %ld is not in [1, 4]", long(c.integer(4)));
  for (int i : {0, 1}) {
    expect_angles(c, i, 2, 3);
    Turn{mode, c.tensor(i).sizes[c.tensor(i).ndim - 1]}.expect_fits();
  }
}
void apply(Run& r) {
  Mode mode = named_mode(r.call);
  for (int i : {0, 1}) {
    Value x = r.tensor(i);
    combine(x, x, r.tensor(2), turned(x, mode), r.tensor(3), 1);
  }
}

const Op ops[] = {
    {"aclnnRotaryPositionEmbedding", check_rotary, rotary},
    {"aclnnRotaryPositionEmbeddingV2", check_rotary_v2, rotary_v2},
    {"aclnnRotaryPositionEmbeddingGrad", check_grad, grad},
    {"aclnnApplyRotaryPosEmb", check_apply, apply},
    {"aclnnApplyRotaryPosEmbV2", check_apply, apply},
};

}  // namespace
}  // namespace cann_sim
