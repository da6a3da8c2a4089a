// Products that communicate: their results added over a group, or gathered and scattered before or after multiplying.
// The versions of an op differ in which arguments they have, so these go by name.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/group.h"
#include "ops/pointwise.h"
#include "ops/quant_matmul.h"

namespace cann_sim {
namespace {

Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
Value plus(const Value& a, const Value& b) { return pointwise("add", mt::kFloat, {a, b}, {integer(1)}); }
Value multiplied(const Value& a, const Value& b, DType dtype = mt::kFloat) {
  Sizes sizes = a.shape();
  sizes.back() = b.size(-1);
  const Value y = empty(sizes, dtype);
  call_kernel("matmul", {y, a.to(dtype), b.to(dtype)});
  return y.to(mt::kFloat);
}

// ---- x1 by x2, and what is done with the sum over the group --------------------------------------------------------------
// Scales that a version has for quantised matrices only are none where they are not given.
int quantised(const Call& c, int i) { return has(c, i) ? i : -1; }
struct Product {
  int x1, x2, bias, x3, scale, token_scale, anti_scale, anti_offset, anti_group, comm1, comm2, residual, gamma, epsilon, group, reduce, out, norm;
  explicit Product(const Call& c)
      : x1(argument(c, {"x1"})), x2(argument(c, {"x2"})), bias(argument(c, {"bias", "biasOptional"})), x3(argument(c, {"x3", "x3Optional"})),
        scale(quantised(c, argument(c, {"dequantScale", "x2Scale"}))), token_scale(quantised(c, argument(c, {"pertokenScaleOptional", "x1ScaleOptional", "x1Scale"}))),
        anti_scale(argument(c, {"antiquantScale"})), anti_offset(argument(c, {"antiquantOffset"})), anti_group(argument(c, {"antiquantGroupSize"})),
        comm1(argument(c, {"commQuantScale1Optional"})), comm2(argument(c, {"commQuantScale2Optional"})),
        residual(argument(c, {"residual"})), gamma(argument(c, {"gamma"})), epsilon(argument(c, {"epsilon"})), group(argument(c, {"group"})),
        reduce(argument(c, {"reduceOp"})), out(argument(c, {"output", "y"})), norm(argument(c, {"normOut"})) {}
};
bool whole(aclDataType t) { return t == ACL_INT8 || t == ACL_INT4 || t == ACL_INT32; }  // an int32 holds eight int4
int64_t rows_of(const TensorMeta& t) { return t.sizes[t.ndim - 1] ? t.numel() / t.sizes[t.ndim - 1] : 0; }
void expect_plain(const Call& c, const Product& at) {
  const TensorMeta &a = c.tensor(at.x1), &b = c.tensor(at.x2);
  EXPECT(a.ndim == 2 || a.ndim == 3, "%s: x1 %s has no 2 or 3 dims", c.name(), describe(a).c_str());
  EXPECT(b.ndim == 2 && held_sizes(b)[0] == held_sizes(a).back(), "%s: x1 %s and x2 %s cannot be multiplied", c.name(), describe(a).c_str(),
         describe(b).c_str());
  const int64_t n = held_sizes(b)[1];
  if (has(c, at.bias)) expect_numel(c, at.bias, n);
  EXPECT(at.reduce < 0 || std::string(c.string(at.reduce)) == "sum", "%s: reduceOp %s is not sum", c.name(), c.string(at.reduce));
  const bool quantised = at.scale >= 0, weighted = at.anti_scale >= 0;
  const aclDataType left = c.tensor(at.x1).dtype, right = c.tensor(at.x2).dtype;
  if (quantised && (!whole(left) || !whole(right))) refuse(561003, "%s is computed with int8 and int4", c.name());
  if (weighted && right != ACL_INT8 && right != ACL_INT4 && right != ACL_INT32) refuse(561003, "%s is computed with weights of int8 and int4", c.name());
  if (!quantised && !weighted) EXPECT(is_float(dtype_of(left)) && left == right, "%s: x1 %s and x2 %s differ", c.name(), describe(a).c_str(), describe(b).c_str());
  if (quantised && has(c, at.scale)) EXPECT(c.tensor(at.scale).numel() == 1 || c.tensor(at.scale).numel() == n, "%s: %s %s does not fit", c.name(),
                                           c.row->args[at.scale].name, describe(c.tensor(at.scale)).c_str());
  if (has(c, at.token_scale)) expect_numel(c, at.token_scale, rows_of(a));
  EXPECT(!weighted || c.tensor(at.anti_scale).numel() == 1 || c.tensor(at.anti_scale).numel() % n == 0, "%s: antiquantScale %s does not fit", c.name(),
         describe(c.tensor(at.anti_scale)).c_str());
  expect_group(c, at.group);
}
// Rows of integers by x2 in float32, with bias; each row has a scale, or none has.
Value quantised_product(Run& r, const Product& at, const Value& rows, const Value& token_scale) {
  Value y = multiplied(rows, held(r, at.x2), mt::kDouble);  // sums of integers stay exact
  if (has(r.call, at.bias)) y = plus(y, r.tensor(at.bias));
  y = times(y, scale_of(r, at.scale).reshape({1, -1}));
  return token_scale.given() ? times(y, token_scale.reshape({-1, 1})) : y;
}
Value token_scale_of(Run& r, const Product& at) { return has(r.call, at.token_scale) ? scale_of(r, at.token_scale).reshape({-1, 1}).dense() : Value(); }
// [rows, n] in float32, with bias and x3, before it is added over the group.
Value product(Run& r, const Product& at) {
  const Call& c = r.call;
  Value y;
  const Value bias = has(c, at.bias) ? r.tensor(at.bias) : Value();
  if (at.scale >= 0) {
    const Value a = held(r, at.x1);
    y = quantised_product(r, at, a.reshape({-1, a.size(-1)}), token_scale_of(r, at));
  } else {
    const Value a = r.tensor(at.x1);
    Value b = at.anti_scale >= 0 ? held(r, at.x2).to(mt::kFloat) : r.tensor(at.x2);
    if (at.anti_scale >= 0) {
      const int64_t k = b.size(0), n = b.size(1), group = c.integer(at.anti_group);
      if (has(c, at.anti_offset)) b = plus(b, spread(r.tensor(at.anti_offset), k, n, group));
      b = times(b, spread(scale_of(r, at.anti_scale), k, n, group));
    }
    y = multiplied(a.reshape({-1, a.size(-1)}), b);
    if (bias.given()) y = plus(y, bias);
  }
  return has(c, at.x3) ? plus(y, r.tensor(at.x3).reshape(y.shape())) : y;
}
Value whole_int8(const Value& v) {  // rounded and limited
  const Value made = v.dense();
  for (int64_t k = 0, n = made.numel(); k < n; ++k) made.ptr<float>()[k] = std::min(std::max(std::nearbyint(made.ptr<float>()[k]), -128.f), 127.f);
  return made;
}
// Every rank's part as the output's dtype holds it. With scales for communicating, int8 is what goes around.
Value added(Run& r, const Product& at, const Value& y, DType dtype) {
  const std::shared_ptr<Group> group = group_of(r, at.group);
  if (!has(r.call, at.comm1)) return all_reduce(r, *group, y.to(dtype).to(mt::kFloat));
  const Value one = r.tensor(at.comm1).to(mt::kFloat).reshape({1, -1}), two = r.tensor(at.comm2).to(mt::kFloat).reshape({1, -1});
  const Value sum = all_reduce(r, *group, whole_int8(pointwise("div", mt::kFloat, {y, one})));
  return times(whole_int8(times(sum, pointwise("div", mt::kFloat, {one, two}))), two);
}
void check_all_reduce(const Call& c) {
  const Product at(c);
  expect_plain(c, at);
  Sizes sizes = sizes_of(c.tensor(at.x1));
  sizes.back() = held_sizes(c.tensor(at.x2))[1];
  if (has(c, at.x3)) expect_numel(c, at.x3, c.tensor(at.out).numel());
  EXPECT(has(c, at.comm1) == has(c, at.comm2), "%s: the scales of communicating go together", c.name());
  expect_shape(c, at.out, sizes);
}
void run_all_reduce(Run& r) {
  const Product at(r.call);
  const Value out = r.tensor(at.out), y = added(r, at, product(r, at), out.dtype);
  copy(out, y.reshape(out.shape()));
}

// y = residual + the sum; normOut = y / rms(y) * gamma. In place, y is the residual.
void check_add_rms(const Call& c) {
  const Product at(c);
  expect_plain(c, at);
  const int64_t n = held_sizes(c.tensor(at.x2))[1];
  for (int i : {at.residual, at.out, at.norm})
    if (i >= 0) expect_numel(c, i, rows_of(c.tensor(at.x1)) * n);
  expect_numel(c, at.gamma, n);
}
void run_add_rms(Run& r) {
  const Product at(r.call);
  const Value residual = r.tensor(at.residual), out = r.tensor(at.out >= 0 ? at.out : at.residual), norm = r.tensor(at.norm);
  const Value gamma = r.tensor(at.gamma).to(mt::kFloat).dense();
  const Value y = plus(added(r, at, product(r, at), out.dtype), residual.reshape({-1, residual.size(-1)})).dense(), n = empty(y.shape(), mt::kFloat);
  const int64_t width = y.size(-1);
  for (int64_t i = 0, rows = width ? y.numel() / width : 0; i < rows; ++i) {
    double square = 0;
    for (int64_t k = 0; k < width; ++k) square += double(y.ptr<float>()[i * width + k]) * y.ptr<float>()[i * width + k] / double(width);
    const double rstd = 1 / std::sqrt(square + r.call.number(at.epsilon));
    for (int64_t k = 0; k < width; ++k) n.ptr<float>()[i * width + k] = float(y.ptr<float>()[i * width + k] * rstd) * gamma.ptr<float>()[k];
  }
  copy(out, y.reshape(out.shape()));
  copy(norm, n.reshape(norm.shape()));
}

// (x[], weight[], bias[]?, groupList?, splitItem, group, reduceOp, commTurn, streamMode, y[]): one product after the other.
void check_list(const Call& c) {
  const Span<TensorMeta> x = c.tensors(0), w = c.tensors(1), y = c.tensors(9);
  if (c.integer(4) || (c.given(3) && c.ints(3).size())) refuse(561003, "%s is computed without a group list", c.name());
  EXPECT(x.size() == w.size() && y.size() == x.size(), "%s: the lists have %ld, %ld and %ld items", c.name(), long(x.size()), long(w.size()), long(y.size()));
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT(x[i].ndim >= 2 && w[i].ndim == 2 && x[i].sizes[x[i].ndim - 1] == w[i].sizes[0], "%s: %s and %s cannot be multiplied", c.name(),
           describe(x[i]).c_str(), describe(w[i]).c_str());
    EXPECT(y[i].numel() == rows_of(x[i]) * w[i].sizes[1], "%s: %s does not fit", c.name(), describe(y[i]).c_str());
  }
  EXPECT(std::string(c.string(6)) == "sum", "%s: reduceOp %s is not sum", c.name(), c.string(6));
  expect_group(c, 5);
}
void run_list(Run& r) {
  const std::vector<Value> x = r.tensors(0), w = r.tensors(1), y = r.tensors(9);
  const std::vector<Value> bias = r.given(2) ? r.tensors(2) : std::vector<Value>();
  const std::shared_ptr<Group> group = group_of(r, 5);
  for (size_t i = 0; i < x.size(); ++i) {
    Value part = multiplied(x[i].reshape({-1, x[i].size(-1)}), w[i]);
    if (i < bias.size() && bias[i].given() && bias[i].numel()) part = plus(part, bias[i]);
    copy(y[i], all_reduce(r, *group, part.to(y[i].dtype).to(mt::kFloat)).reshape(y[i].shape()));
  }
}

// ---- rows gathered before, or scattered after -----------------------------------------------------------------------------
// The versions for quantised matrices are computed with floats, or with int8 and scales of rows and columns.
void expect_no_more(const Call& c) {
  for (const char* name : {"quantScale", "amaxOut"})
    if (has(c, argument(c, {name}))) refuse(561003, "%s with %s is not computed", c.name(), name);
  const int most = argument(c, {"amaxOutOptional"});
  if (has(c, most)) expect_numel(c, most, 1);
  const int group = argument(c, {"groupSize"}), block = argument(c, {"blockSize"});
  if ((group >= 0 && c.integer(group)) || (block >= 0 && c.integer(block))) refuse(561003, "%s in groups is not computed", c.name());
}
void check_gather(const Call& c) {  // (x1, x2, bias?, group, gatherIndex, commTurn, streamMode, output, gatherOut?)
  const Product at(c);
  expect_no_more(c);
  expect_plain(c, at);
  const int index = argument(c, {"gatherIndex"}), gathered = argument(c, {"gatherOut"});
  EXPECT(c.tensor(at.x1).ndim == 2 && c.integer(index) == 0, "%s: x1 of 2 dims is what is gathered", c.name());
  const int64_t rows = c.tensor(at.x1).sizes[0] * find_group(c.string(at.group))->size();
  expect_shape(c, at.out, {rows, held_sizes(c.tensor(at.x2))[1]});
  if (!has(c, gathered)) return;
  if (c.tensor(at.x1).dtype == ACL_INT32) refuse(561003, "%s with packed int4 and gatherOut is not computed", c.name());
  expect_shape(c, gathered, {rows, c.tensor(at.x1).sizes[1]});
  expect_same_dtype(c, at.x1, gathered);
}
void run_gather(Run& r) {
  const Product at(r.call);
  const int gathered = argument(r.call, {"gatherOut"});
  const std::shared_ptr<Group> group = group_of(r, at.group);
  auto rows_of_all = [&](const Value& own) { return cat(all_gather(r, *group, own), 0); };
  if (at.scale < 0) {
    const Value x = rows_of_all(r.tensor(at.x1).dense()), y = multiplied(x, r.tensor(at.x2));
    copy(r.tensor(at.out), has(r.call, at.bias) ? plus(y, r.tensor(at.bias)) : y);
    if (has(r.call, gathered)) copy(r.tensor(gathered), x);
    return;
  }
  const Value x = rows_of_all(held(r, at.x1).dense()), own = token_scale_of(r, at);
  copy(r.tensor(at.out), quantised_product(r, at, x, own.given() ? rows_of_all(own) : own));
  if (!has(r.call, gathered)) return;
  if (r.call.tensor(gathered).dtype == ACL_INT4) r.set_int4(r.call.tensor(gathered), x);
  else copy(r.tensor(gathered), x);
}
void check_scatter(const Call& c) {  // (x1, x2, bias?, group, reduceOp, commTurn, streamMode, output)
  const Product at(c);
  expect_no_more(c);
  expect_plain(c, at);
  const int64_t ranks = find_group(c.string(at.group))->size(), rows = c.tensor(at.x1).sizes[0];
  EXPECT(c.tensor(at.x1).ndim == 2 && rows % ranks == 0, "%s: x1 %s does not split over %ld ranks", c.name(), describe(c.tensor(at.x1)).c_str(), long(ranks));
  expect_shape(c, at.out, {rows / ranks, held_sizes(c.tensor(at.x2))[1]});
}
void run_scatter(Run& r) {
  const Product at(r.call);
  const Value out = r.tensor(at.out), part = product(r, at).dense(), y = added(r, at, part, out.dtype);
  const int most = argument(r.call, {"amaxOutOptional"});
  if (has(r.call, most)) {  // the largest item of this rank's product
    float found = 0;
    for (int64_t i = 0, n = part.numel(); i < n; ++i) found = std::max(found, std::fabs(part.ptr<float>()[i]));
    fill(r.tensor(most), found);
  }
  copy(out, y.narrow(0, int64_t(group_of(r, at.group)->rank()) * out.size(0), out.size(0)));
}

// ---- all to all, of columns after or of rows before ---------------------------------------------------------------------------
// (x1, x2, bias?, axes?, group, [commMode], transposeX1, transposeX2, output, [alltoAllOut?])
int swap_turn(const Call& c) { return argument(c, {"transposeX2"}); }
Value turned(const Value& v, bool turns) { return turns ? v.transpose(0, 1) : v; }
void expect_swapped(const Call& c, bool before) {
  const TensorMeta &a = c.tensor(0), &b = c.tensor(1);
  const int turn = swap_turn(c), out = turn + 1;
  expect_group(c, 4);
  const int64_t ranks = find_group(c.string(4))->size();
  EXPECT(a.ndim == 2 && b.ndim == 2 && !c.integer(turn - 1) && is_float(dtype_of(a.dtype)) && a.dtype == b.dtype, "%s: x1 %s and x2 %s", c.name(), describe(a).c_str(),
         describe(b).c_str());
  const int64_t inner = b.sizes[c.integer(turn) ? 1 : 0], n = b.sizes[c.integer(turn) ? 0 : 1], rows = a.sizes[0];
  EXPECT(inner == a.sizes[1] * (before ? ranks : 1) && (before ? rows : n) % ranks == 0, "%s: x1 %s and x2 %s do not fit %ld ranks", c.name(), describe(a).c_str(),
         describe(b).c_str(), long(ranks));
  if (has(c, 2)) expect_numel(c, 2, n);
  expect_shape(c, out, before ? Sizes{rows / ranks, n} : Sizes{rows * ranks, n / ranks});
  if (before && has(c, out + 1)) expect_shape(c, out + 1, {rows / ranks, a.sizes[1] * ranks});
}
void check_swap_after(const Call& c) { expect_swapped(c, false); }
void run_swap_after(Run& r) {
  const int turn = swap_turn(r.call);
  const std::shared_ptr<Group> group = group_of(r, 4);
  const Value out = r.tensor(turn + 1);
  Value y = multiplied(r.tensor(0), turned(r.tensor(1), r.call.integer(turn)));
  if (has(r.call, 2)) y = plus(y, r.tensor(2));
  std::vector<Value> send;
  for (uint32_t k = 0; k < group->size(); ++k) send.push_back(y.narrow(1, int64_t(k) * out.size(1), out.size(1)).to(out.dtype));
  copy(out, cat(all_to_all(r, *group, send, std::vector<Sizes>(group->size(), send[0].shape())), 0));
}
void check_swap_before(const Call& c) { expect_swapped(c, true); }
void run_swap_before(Run& r) {
  const int turn = swap_turn(r.call);
  const std::shared_ptr<Group> group = group_of(r, 4);
  const Value x = r.tensor(0), out = r.tensor(turn + 1);
  std::vector<Value> send;
  for (uint32_t k = 0; k < group->size(); ++k) send.push_back(x.narrow(0, int64_t(k) * out.size(0), out.size(0)));
  const Value rows = cat(all_to_all(r, *group, send, std::vector<Sizes>(group->size(), send[0].shape())), 1);
  const Value y = multiplied(rows, turned(r.tensor(1), r.call.integer(turn)));
  copy(out, has(r.call, 2) ? plus(y, r.tensor(2)) : y);
  if (has(r.call, turn + 2)) copy(r.tensor(turn + 2), rows);
}

// ---- batches of experts over two groups -------------------------------------------------------------------------------------
// (x, weight, bias?, groupEp, groupTp, epWorldSize, tpWorldSize, xShardType, actType, y1, y2?, y3?): all to all, gathered, multiplied.
void check_experts_in(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0)), w = sizes_of(c.tensor(1));
  const int64_t ep = c.integer(5), tp = c.integer(6), shard = c.integer(7);
  expect_group(c, 3, ep);
  expect_group(c, 4, tp);
  EXPECT(x.size() == 3 && w.size() == 3 && x[0] == ep * w[0] && w[1] == x[2] * (shard ? 1 : tp) && (shard == 0 || shard == 1), "%s: x %s and weight %s do not fit",
         c.name(), describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  EXPECT(c.integer(8) >= 0 && c.integer(8) <= 4, "%s: actType %ld is not in [0, 4]", c.name(), long(c.integer(8)));
  if (has(c, 2)) expect_numel(c, 2, w[0] * w[2]);
  const int64_t rows = ep * x[1] * (shard ? tp : 1);
  expect_shape(c, 9, {w[0], rows, w[2]});
  if (has(c, 10)) expect_shape(c, 10, {w[0], rows, w[1]});
  if (has(c, 11)) expect_shape(c, 11, {w[0], rows, w[2]});
}
Value activated(const Value& v, int64_t type) {
  if (type == 1) return pointwise("gelu", mt::kFloat, {v}, {string("none")});
  if (type == 2) return pointwise("silu", mt::kFloat, {v});
  if (type == 3) return pointwise("relu", mt::kFloat, {v});
  if (type == 4) return times(v, pointwise("sigmoid", mt::kFloat, {times(v, full({}, mt::kFloat, 1.702))}));
  return v;
}
void run_experts_in(Run& r) {
  const Call& c = r.call;
  const Value x = r.tensor(0), weight = r.tensor(1);
  const int64_t ep = c.integer(5), local = weight.size(0), shard = c.integer(7);
  std::vector<Value> send;
  for (int64_t e = 0; e < ep; ++e) send.push_back(x.narrow(0, e * local, local));
  std::vector<Value> parts = all_to_all(r, *group_of(r, 3), send, std::vector<Sizes>(size_t(ep), send[0].shape()));
  const std::shared_ptr<Group> tensor_parallel = group_of(r, 4);
  for (Value& part : parts) part = cat(all_gather(r, *tensor_parallel, part), shard ? 1 : 2);
  const Value y2 = cat(parts, 1);
  Value y3 = multiplied(y2, weight);
  if (has(c, 2)) y3 = plus(y3, r.tensor(2).reshape({local, 1, -1}));
  copy(r.tensor(9), activated(y3, c.integer(8)));
  if (has(c, 10)) copy(r.tensor(10), y2);
  if (has(c, 11)) copy(r.tensor(11), y3);
}
// (x, weight, bias?, groupEp, groupTp, epWorldSize, tpWorldSize, yShardType, out): multiplied, added and scattered, all to all.
void check_experts_out(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0)), w = sizes_of(c.tensor(1));
  const int64_t ep = c.integer(5), tp = c.integer(6), shard = c.integer(7);
  expect_group(c, 3, ep);
  expect_group(c, 4, tp);
  EXPECT(x.size() == 3 && w.size() == 3 && x[0] == w[0] && x[2] == w[1] && (shard == 0 || shard == 1) && x[1] % (shard ? ep * tp : ep) == 0 &&
             (shard || w[2] % tp == 0), "%s: x %s and weight %s do not fit", c.name(), describe(c.tensor(0)).c_str(), describe(c.tensor(1)).c_str());
  if (has(c, 2)) expect_numel(c, 2, w[0] * w[2] / (shard ? 1 : tp));
  expect_shape(c, 8, {ep * x[0], x[1] / (shard ? ep * tp : ep), w[2] / (shard ? 1 : tp)});
}
void run_experts_out(Run& r) {
  const Call& c = r.call;
  const Value x = r.tensor(0), out = r.tensor(8);
  const int64_t ep = c.integer(5), local = x.size(0), shard = c.integer(7), rows = out.size(1), width = out.size(2);
  const std::shared_ptr<Group> tensor_parallel = group_of(r, 4);
  const Value sum = all_reduce(r, *tensor_parallel, multiplied(x, r.tensor(1)).to(out.dtype).to(mt::kFloat));
  const int64_t tp = tensor_parallel->size(), t = tensor_parallel->rank();
  std::vector<Value> send;
  for (int64_t e = 0; e < ep; ++e) {
    Value part = shard ? sum.narrow(1, (e * tp + t) * rows, rows) : sum.narrow(1, e * rows, rows).narrow(2, t * width, width);
    if (has(c, 2)) part = plus(part, r.tensor(2).reshape({local, 1, -1}));
    send.push_back(part.to(out.dtype));
  }
  copy(out, cat(all_to_all(r, *group_of(r, 3), send, std::vector<Sizes>(size_t(ep), {local, rows, width})), 0));
}

// ---- rows of experts, as many as counts say -----------------------------------------------------------------------------------
// Counts are [rank][local expert]; a rank's rows lie by rank, then expert, an expert's by expert, then rank.
struct Routed {
  int x = 0, weight = 1, mm_x, mm_weight, group, ranks, send, receive, turn, mm_turn, y, mm_y, permuted;
  explicit Routed(const Call& c)
      : mm_x(argument(c, {"mmXOptional"})), mm_weight(argument(c, {"mmWeightOptional"})), group(argument(c, {"group"})), ranks(argument(c, {"epWorldSize"})),
        send(argument(c, {"sendCounts"})), receive(argument(c, {"recvCounts"})), turn(argument(c, {"transGmmWeight"})), mm_turn(argument(c, {"transMmWeight"})),
        y(argument(c, {"gmmY", "y"})), mm_y(argument(c, {"mmYOptional"})), permuted(argument(c, {"permuteOutOptional"})) {}
};
int64_t total(Span<int64_t> counts) {
  int64_t sum = 0;
  for (int64_t n : counts) sum += n;
  return sum;
}
template <bool sends_first> void check_routed(const Call& c) {
  const Routed at(c);
  const int64_t ranks = c.integer(at.ranks);
  expect_group(c, at.group, ranks);
  const TensorMeta &x = c.tensor(at.x), &w = c.tensor(at.weight);
  EXPECT(x.ndim == 2 && w.ndim == 3, "%s: expected gmmX of 2 and gmmWeight of 3 dims", c.name());
  const int64_t experts = w.sizes[0], inner = w.sizes[c.integer(at.turn) ? 2 : 1], n = w.sizes[c.integer(at.turn) ? 1 : 2];
  EXPECT(inner == x.sizes[1], "%s: gmmX %s and gmmWeight %s cannot be multiplied", c.name(), describe(x).c_str(), describe(w).c_str());
  for (int i : {at.send, at.receive}) {
    EXPECT(c.ints(i).size() == experts * ranks, "%s: %s has %ld items, expected %ld", c.name(), c.row->args[i].name, long(c.ints(i).size()), long(experts * ranks));
    for (int64_t count : c.ints(i)) EXPECT(count >= 0, "%s: %s has an item below 0", c.name(), c.row->args[i].name);
  }
  EXPECT(total(c.ints(at.send)) == x.sizes[0], "%s: sendCounts are %ld rows, gmmX has %ld", c.name(), long(total(c.ints(at.send))), long(x.sizes[0]));
  expect_shape(c, at.y, {total(c.ints(at.receive)), n});
  if (sends_first && has(c, at.permuted)) expect_shape(c, at.permuted, {total(c.ints(at.receive)), inner});
  EXPECT(has(c, at.mm_x) == has(c, at.mm_weight), "%s: mmX and mmWeight go together", c.name());
}
// Rows by rank, then expert, to rows by expert, then rank, or back.
Value regrouped(const Value& v, Span<int64_t> counts, int64_t experts, bool by_expert) {
  const int64_t ranks = counts.size() / experts;
  std::vector<int64_t> starts(size_t(counts.size()));
  const Value made = empty(v.shape(), v.dtype);
  int64_t at = 0;
  for (int64_t k = 0; k < counts.size(); ++k) starts[size_t(k)] = at, at += counts[k];
  at = 0;
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t k = 0; k < ranks; ++k) {
      const int64_t n = counts[k * experts + e], there = starts[size_t(k * experts + e)];
      if (n) copy(by_expert ? made.narrow(0, at, n) : made.narrow(0, there, n), by_expert ? v.narrow(0, there, n) : v.narrow(0, at, n));
      at += n;
    }
  return made;
}
Value by_experts(const Value& rows, const Value& weight, Span<int64_t> counts, bool turned) {
  const Value w = turned ? weight.transpose(1, 2) : weight, made = empty({rows.size(0), w.size(2)}, mt::kFloat);
  const int64_t experts = w.size(0);
  int64_t at = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t n = 0;
    for (int64_t k = e; k < counts.size(); k += experts) n += counts[k];
    if (n) copy(made.narrow(0, at, n), multiplied(rows.narrow(0, at, n), w.select(0, e)));
    at += n;
  }
  return made;
}
Value sent(Run& r, const Routed& at, const Value& rows, int64_t experts) {
  const Span<int64_t> out = r.call.ints(at.send), in = r.call.ints(at.receive);
  std::vector<Value> send;
  std::vector<Sizes> receive;
  int64_t from = 0;
  for (int64_t k = 0; k < out.size(); k += experts) {
    const int64_t n = total({out.data + k, experts});
    send.push_back(rows.narrow(0, from, n));
    receive.push_back({total({in.data + k, experts}), rows.size(1)});
    from += n;
  }
  return cat(all_to_all(r, *group_of(r, at.group), send, receive), 0);
}
void run_shared_expert(Run& r, const Routed& at) {
  if (!has(r.call, at.mm_x) || !has(r.call, at.mm_y)) return;
  const Value w = r.tensor(at.mm_weight);
  copy(r.tensor(at.mm_y), multiplied(r.tensor(at.mm_x), r.call.integer(at.mm_turn) ? w.transpose(0, 1) : w));
}
void run_send_first(Run& r) {
  const Routed at(r.call);
  const Value weight = r.tensor(at.weight);
  const int64_t experts = weight.size(0);
  const Value rows = regrouped(sent(r, at, r.tensor(at.x), experts), r.call.ints(at.receive), experts, true);
  copy(r.tensor(at.y), by_experts(rows, weight, r.call.ints(at.receive), r.call.integer(at.turn)));
  if (has(r.call, at.permuted)) copy(r.tensor(at.permuted), rows);
  run_shared_expert(r, at);
}
void run_send_last(Run& r) {
  const Routed at(r.call);
  const Value weight = r.tensor(at.weight), out = r.tensor(at.y);
  const Value y = by_experts(r.tensor(at.x), weight, r.call.ints(at.send), r.call.integer(at.turn)).to(out.dtype);
  copy(out, sent(r, at, regrouped(y, r.call.ints(at.send), weight.size(0), false), weight.size(0)));
  run_shared_expert(r, at);
}

const Op ops[] = {
    {"aclnnMatmulAllReduce", check_all_reduce, run_all_reduce},
    {"aclnnMatmulAllReduceV2", check_all_reduce, run_all_reduce},
    {"aclnnMatmulAllReduceV3", check_all_reduce, run_all_reduce},
    {"aclnnQuantMatmulAllReduce", check_all_reduce, run_all_reduce},
    {"aclnnQuantMatmulAllReduceV2", check_all_reduce, run_all_reduce},
    {"aclnnQuantMatmulAllReduceV3", check_all_reduce, run_all_reduce},
    {"aclnnQuantMatmulAllReduceV4", check_all_reduce, run_all_reduce},
    {"aclnnWeightQuantMatmulAllReduce", check_all_reduce, run_all_reduce},
    {"aclnnWeightQuantMatmulAllReduceV2", check_all_reduce, run_all_reduce},
    {"aclnnGroupedMatMulAllReduce", check_list, run_list},
    {"aclnnMatmulAllReduceAddRmsNorm", check_add_rms, run_add_rms},
    {"aclnnQuantMatmulAllReduceAddRmsNorm", check_add_rms, run_add_rms},
    {"aclnnWeightQuantMatmulAllReduceAddRmsNorm", check_add_rms, run_add_rms},
    {"aclnnInplaceMatmulAllReduceAddRmsNorm", check_add_rms, run_add_rms},
    {"aclnnInplaceQuantMatmulAllReduceAddRmsNorm", check_add_rms, run_add_rms},
    {"aclnnInplaceWeightQuantMatmulAllReduceAddRmsNorm", check_add_rms, run_add_rms},
    {"aclnnAllGatherMatmul", check_gather, run_gather},
    {"aclnnAllGatherMatmulV2", check_gather, run_gather},
    {"aclnnMatmulReduceScatter", check_scatter, run_scatter},
    {"aclnnMatmulReduceScatterV2", check_scatter, run_scatter},
    {"aclnnMatmulAlltoAll", check_swap_after, run_swap_after},
    {"aclnnMatmulAlltoAllV2", check_swap_after, run_swap_after},
    {"aclnnAlltoAllMatmul", check_swap_before, run_swap_before},
    {"aclnnAlltoAllAllGatherBatchMatMul", check_experts_in, run_experts_in},
    {"aclnnBatchMatMulReduceScatterAlltoAll", check_experts_out, run_experts_out},
    {"aclnnAlltoAllvGroupedMatMul", check_routed<true>, run_send_first},
    {"aclnnAlltoAllvGroupedMatMulV2", check_routed<true>, run_send_first},
    {"aclnnGroupedMatMulAlltoAllv", check_routed<false>, run_send_last},
};

}  // namespace
}  // namespace cann_sim
