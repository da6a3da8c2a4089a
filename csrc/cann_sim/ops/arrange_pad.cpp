// Padding by a constant, by reflection, by replication and around the edge, with the gradients of the latter three.
#include "ops/result.h"

namespace cann_sim {
namespace {

// The sizes of self with the padding, which lists (before, after) from the last dim on.
std::vector<int64_t> padded_sizes(const Call& c, const TensorMeta& self, Span<int64_t> pad) {
  EXPECT(pad.size() % 2 == 0 && pad.size() <= 2 * self.ndim, "a padding of %ld items for %s", pad.size(),
         describe(self).c_str());
  std::vector<int64_t> sizes = sizes_of(self);
  for (int64_t i = 0; i < pad.size() / 2; ++i) {
    int64_t& n = sizes[self.ndim - 1 - i];
    n += pad[2 * i] + pad[2 * i + 1];
    EXPECT(n >= 0, "%s: the padding leaves %ld items of dim %ld", c.name(), n, self.ndim - 1 - i);
  }
  return sizes;
}

// ---- aclnnConstantPadNd(self, pad, value, out) --------------------------------------------------------------------
void check_constant(const Call& c) {
  expect_shape(c, 3, padded_sizes(c, c.tensor(0), c.ints(1)));
  expect_same_dtype(c, 0, 3);
}
void constant(Run& r) {
  call_kernel("constant_pad_nd", {r.tensor(3), r.tensor(0)}, {list_of(r.call, 1), scalar(r.call.scalar(2))});
}

// ---- the last nd dims: (self, padding, out), (gradOutput, self, padding, gradInput) -------------------------------
enum class Edge { reflect, replicate, wrap };

template <int nd, Edge edge> void check_edges(const Call& c, const TensorMeta& self, Span<int64_t> pad) {
  EXPECT(pad.size() == 2 * nd, "a padding of %ld items; expected %d", pad.size(), 2 * nd);
  for (int64_t i = 0; i < 2 * nd; ++i) {
    const int64_t n = self.sizes[self.ndim - 1 - i / 2];
    if (edge == Edge::reflect) EXPECT(pad[i] < n, "a padding of %ld for a dim of %ld items", pad[i], n);
    if (edge == Edge::wrap) EXPECT(pad[i] <= n, "a padding of %ld for a dim of %ld items", pad[i], n);
    EXPECT(n > 0 || c.tensor(0).numel() == 0, "there is nothing to pad %s with", describe(self).c_str());
  }
}
template <int nd, Edge edge> void check_forward(const Call& c) {
  check_edges<nd, edge>(c, c.tensor(0), c.ints(1));
  expect_shape(c, 2, padded_sizes(c, c.tensor(0), c.ints(1)));
  expect_same_dtype(c, 0, 2);
}
template <int nd, Edge edge> void check_backward(const Call& c) {
  check_edges<nd, edge>(c, c.tensor(1), c.ints(2));
  expect_shape(c, 0, padded_sizes(c, c.tensor(1), c.ints(2)));
  expect_same_shape(c, 3, 1);
  expect_same_dtype(c, 0, 1);
  expect_same_dtype(c, 3, 1);
}
void forward(Run& r, const char* kernel) { call_kernel(kernel, {r.tensor(2), r.tensor(0)}, {list_of(r.call, 1)}); }
void backward(Run& r, const char* kernel) {
  call_kernel(kernel, {r.tensor(3), r.tensor(0), r.tensor(1)}, {list_of(r.call, 2)});
}

// Where the items of a dim padded around the edge come from.
Value wrapped(int64_t n, int64_t before, int64_t after) {
  Value from = empty({n + before + after}, mt::kInt64);
  for (int64_t i = 0; i < from.sizes[0]; ++i) from.ptr<int64_t>()[i] = ((i - before) % n + n) % n;
  return from;
}
void circular(Run& r) {
  Value from = r.tensor(0);
  Span<int64_t> pad = r.call.ints(1);
  if (r.call.tensor(2).numel() == 0) return;
  for (int64_t i = 0; i < pad.size() / 2; ++i) {
    const int64_t dim = from.ndim - 1 - i;
    Sizes sizes = from.shape();
    sizes[dim] += pad[2 * i] + pad[2 * i + 1];
    Value to = empty(sizes, from.dtype);
    call_kernel("index_select", {to, from, wrapped(from.size(dim), pad[2 * i], pad[2 * i + 1])}, {integer(dim)});
    from = to;
  }
  copy(r.tensor(2), from);
}
void circular_backward(Run& r) {
  Value grad = r.tensor(0).to(opmath(r.tensor(0).dtype)), out = r.tensor(3);
  Span<int64_t> pad = r.call.ints(2);
  if (out.numel() == 0) return;
  for (int64_t i = 0; i < pad.size() / 2; ++i) {
    const int64_t dim = grad.ndim - 1 - i;
    Sizes sizes = grad.shape();
    sizes[dim] = out.size(dim);
    Value to = full(sizes, grad.dtype, 0);
    call_kernel("index_add", {to, wrapped(out.size(dim), pad[2 * i], pad[2 * i + 1]), grad}, {integer(dim)});
    grad = to;
  }
  copy(out, grad);
}

#define PAD_OPS(NAME, KERNEL, ND, EDGE)                                                        \
  {"aclnn" NAME, check_forward<ND, Edge::EDGE>, [](Run& r) { forward(r, KERNEL); }},           \
  {"aclnn" NAME "Backward", check_backward<ND, Edge::EDGE>, [](Run& r) { backward(r, KERNEL "_backward"); }}

const Op ops[] = {
    {"aclnnConstantPadNd", check_constant, constant},
    PAD_OPS("ReflectionPad1d", "reflection_pad1d", 1, reflect),
    PAD_OPS("ReflectionPad2d", "reflection_pad2d", 2, reflect),
    PAD_OPS("ReflectionPad3d", "reflection_pad3d", 3, reflect),
    PAD_OPS("ReplicationPad1d", "replication_pad1d", 1, replicate),
    PAD_OPS("ReplicationPad2d", "replication_pad2d", 2, replicate),
    PAD_OPS("ReplicationPad3d", "replication_pad3d", 3, replicate),
    {"aclnnCircularPad2d", check_forward<2, Edge::wrap>, circular},
    {"aclnnCircularPad3d", check_forward<3, Edge::wrap>, circular},
    {"aclnnCircularPad2dBackward", check_backward<2, Edge::wrap>, circular_backward},
    {"aclnnCircularPad3dBackward", check_backward<3, Edge::wrap>, circular_backward},
};
#undef PAD_OPS

}  // namespace
}  // namespace cann_sim
