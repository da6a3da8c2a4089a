// Ops of the older interface that are one kernel or few: pointwise and reductions by a table, then norms, losses, indices, orders.
#include <algorithm>
#include <cmath>

#include "ops/older.h"
#include "ops/pointwise.h"
#include "ops/random.h"

namespace cann_sim {
namespace {

// ---- pointwise ------------------------------------------------------------------------------------------------------------
enum class In { own, floating };  // computed in the operands' dtype, or in float32 where that is of integers
struct Named {
  const char* op;
  const char* kernel;
  size_t operands;
  In in = In::own;
};
constexpr Named kPointwise[] = {
    {"Sin", "sin", 1, In::floating}, {"Cos", "cos", 1, In::floating}, {"Tan", "tan", 1, In::floating},
    {"Asin", "asin", 1, In::floating}, {"Acos", "acos", 1, In::floating}, {"Atan", "atan", 1, In::floating},
    {"Sinh", "sinh", 1, In::floating}, {"Cosh", "cosh", 1, In::floating}, {"Tanh", "tanh", 1, In::floating},
    {"Asinh", "asinh", 1, In::floating}, {"Acosh", "acosh", 1, In::floating}, {"Atanh", "atanh", 1, In::floating},
    {"Erf", "erf", 1, In::floating}, {"Erfc", "erfc", 1, In::floating}, {"Erfinv", "erfinv", 1, In::floating},
    {"Expm1", "expm1", 1, In::floating}, {"Log1p", "log1p", 1, In::floating}, {"Sqrt", "sqrt", 1, In::floating},
    {"Rsqrt", "rsqrt", 1, In::floating}, {"Sigmoid", "sigmoid", 1, In::floating}, {"Reciprocal", "reciprocal", 1, In::floating},
    {"Neg", "neg", 1}, {"Sign", "sign", 1}, {"Floor", "floor", 1}, {"Ceil", "ceil", 1}, {"Trunc", "trunc", 1},
    {"Square", "square", 1}, {"Invert", "bitwise_not", 1}, {"LogicalNot", "logical_not", 1}, {"IsFinite", "isfinite", 1},
    {"IsInf", "isinf", 1}, {"IsNan", "isnan", 1},
    {"Maximum", "maximum", 2}, {"Minimum", "minimum", 2}, {"FloorMod", "remainder", 2}, {"Mod", "fmod", 2},
    {"BitwiseAnd", "bitwise_and", 2}, {"BitwiseOr", "bitwise_or", 2}, {"BitwiseXor", "bitwise_xor", 2},
    {"LogicalAnd", "logical_and", 2}, {"LogicalOr", "logical_or", 2}, {"Atan2", "atan2", 2, In::floating},
    {"Xlogy", "xlogy", 2, In::floating}, {"LeftShift", "bitwise_left_shift", 2}, {"RightShift", "bitwise_right_shift", 2},
    {"Equal", "eq", 2}, {"NotEqual", "ne", 2}, {"Greater", "gt", 2}, {"GreaterEqual", "ge", 2}, {"Less", "lt", 2},
    {"LessEqual", "le", 2}, {"SigmoidGrad", "sigmoid_backward", 2}, {"TanhGrad", "tanh_backward", 2},
};
const Named& named(const Named* first, const Named* last, const char* op) {
  return *std::find_if(first, last, [&](const Named& n) { return std::string(n.op) == op; });
}
void by_name(Older& o) {
  const Named& n = named(std::begin(kPointwise), std::end(kPointwise), o.name());
  DType t = o.in(0).dtype;
  if (n.operands == 2) t = promote(t, o.in(1).dtype);
  if (n.in == In::floating && mt::is_integral(t)) t = mt::kFloat;
  const bool slope = std::string(n.op).find("Grad") != std::string::npos;  // (y, gradient), where kernels have them turned
  if (n.operands == 1) call_pointwise(n.kernel, t, {o.out(0), o.in(0)});
  else call_pointwise(n.kernel, t, {o.out(0), o.in(slope), o.in(!slope)});
}
// base ^ (scale * x + shift) and its inverse; a base of -1 is e
Value scaled(Older& o) {
  const Value by = pointwise("mul", mt::kFloat, {o.in(0), full({}, mt::kFloat, o.real("scale", 1))});
  return pointwise("add", mt::kFloat, {by, full({}, mt::kFloat, o.real("shift", 0))}, {integer(1)});
}
double natural_log_of_base(Older& o) { return o.real("base", -1) > 0 ? std::log(o.real("base", -1)) : 1; }
void exponential(Older& o) {
  const Value x = pointwise("mul", mt::kFloat, {scaled(o), full({}, mt::kFloat, natural_log_of_base(o))});
  call_pointwise("exp", mt::kFloat, {o.out(0), x});
}
void logarithm(Older& o) {
  const Value y = pointwise("log", mt::kFloat, {scaled(o)});
  call_pointwise("div", mt::kFloat, {o.out(0), y, full({}, mt::kFloat, natural_log_of_base(o))});
}
void round(Older& o) {
  const double by = std::pow(10.0, double(o.integer("decimals", 0)));
  const DType t = o.in(0).dtype;
  if (by == 1) return call_pointwise("round", t, {o.out(0), o.in(0)});
  const Value made = pointwise("round", mt::kDouble, {pointwise("mul", mt::kDouble, {o.in(0), full({}, mt::kDouble, by)})});
  call_pointwise("div", mt::kDouble, {o.out(0), made, full({}, mt::kDouble, by)});
}
void floor_divide(Older& o) {
  const DType t = promote(o.in(0).dtype, o.in(1).dtype);
  call_pointwise("div_floor", mt::is_integral(t) ? t : opmath(t), {o.out(0), o.in(0), o.in(1)});
}
void power(Older& o) {
  const DType t = promote(o.in(0).dtype, o.in(1).dtype);
  call_pointwise("pow", t == mt::kBool ? mt::kInt64 : t, {o.out(0), o.in(0), o.in(1)});
}
void axpy(Older& o) {  // x1 + alpha * x2
  const DType t = promote(o.in(0).dtype, o.in(1).dtype);
  call_pointwise("add", t, {o.out(0), o.in(0), pointwise("mul", t, {o.in(1), o.in(2).reshape({})})}, {integer(1)});
}
void clip(Older& o) {  // (x, least, most)
  const Value low = pointwise("maximum", o.in(0).dtype, {o.in(0), o.in(1)});
  call_pointwise("minimum", o.in(0).dtype, {o.out(0), low, o.in(2)});
}
void select(Older& o) { call_pointwise("where", promote(o.in(1).dtype, o.in(2).dtype), {o.out(0), o.in(0).to(mt::kBool), o.in(1), o.in(2)}); }
void masked_fill(Older& o) {  // (x, mask, value)
  call_pointwise("where", o.in(0).dtype, {o.out(0), o.in(1).to(mt::kBool), o.in(2).reshape({}).to(o.in(0).dtype), o.in(0)});
}
void relu_grad(Older& o) {  // (gradient, x or y)
  const Value on = pointwise("gt", mt::kFloat, {o.in(1), full({}, mt::kFloat, 0)});
  call_pointwise("mul", mt::kFloat, {o.out(0), o.in(0), on});
}
template <int value> void like(Older& o) { fill(o.out(0), value); }

// ---- reductions: (x, axes), keep_dims --------------------------------------------------------------------------------------
constexpr Named kReductions[] = {
    {"ReduceSum", "sum", 2}, {"ReduceMean", "mean", 2, In::floating}, {"ReduceMeanD", "mean", 1, In::floating}, {"ReduceMax", "amax", 2}, {"ReduceMin", "amin", 2},
    {"ReduceProd", "prod", 2}, {"ReduceAll", "all", 2}, {"ReduceAny", "any", 2},
};
void reduce(Older& o) {
  const Named& n = named(std::begin(kReductions), std::end(kReductions), o.name());
  const Value x = row_of(o.in(0)), out = o.out(0);
  const Sizes dims = axes_of(o, o.given(1) ? o.numbers(1) : o.list("axes"), x.ndim);
  Sizes kept = x.shape();
  for (int64_t d : dims) kept[d] = 1;
  DType t = std::string(n.kernel) == "all" || std::string(n.kernel) == "any" ? mt::kBool : opmath(x.dtype);
  if (n.in == In::floating && mt::is_integral(t)) t = mt::kFloat;
  Value made = x.to(t);  // a dim at a time: a product has a kernel for one dim only
  for (int64_t d : dims) {
    Sizes shape = made.shape();
    shape[d] = 1;
    const Value next = empty(shape, t);
    const Sizes one{d};
    call_kernel(n.kernel, {next, made}, {list(one)});
    made = next;
  }
  copy(out, made.reshape(out.shape()));
}
template <bool most> void place_of_extreme(Older& o) {  // (x, dimension)
  const Value x = row_of(o.in(0)), out = o.out(0);
  const int64_t dim = axes_of(o, {o.given(1) ? o.numbers(1).at(0) : o.integer("dimension", 0)}, x.ndim)[0];
  Sizes shape = x.shape();
  shape[dim] = 1;
  const Value made = empty(shape, mt::kInt64);
  call_kernel(most ? "argmax" : "argmin", {made, x}, {integer(dim)});
  copy(out, made.reshape(out.shape()));
}

// ---- softmax ---------------------------------------------------------------------------------------------------------------
int64_t last_or(Older& o, int64_t ndim) {
  const Sizes named = o.list("axes"), axes = named.empty() ? o.list("axis") : named;  // LogSoftmaxGrad says axis
  if (axes.size() > 1) o.refuse("only one axis is computed");
  return axes_of(o, {axes.empty() ? -1 : axes[0]}, ndim)[0];
}
template <bool logs> void softmax(Older& o) {
  const Value x = row_of(o.in(0)).to(mt::kFloat), made = empty(x.shape(), mt::kFloat);
  call_kernel(logs ? "_log_softmax" : "_softmax", {made, x}, {integer(last_or(o, x.ndim)), integer(0)});
  copy(row_of(o.out(0)), made);
}
void softmax_back(Older& o, const char* kernel, const Value& dy, const Value& y) {
  const Value made = empty(row_of(y).shape(), mt::kFloat);
  call_kernel(kernel, {made, row_of(dy).to(mt::kFloat), row_of(y).to(mt::kFloat)}, {integer(last_or(o, made.ndim)), none()});
  copy(row_of(o.out(0)), made);
}
void softmax_grad(Older& o) { softmax_back(o, "_softmax_backward_data", o.in(1), o.in(0)); }          // (y, gradient)
void log_softmax_grad(Older& o) { softmax_back(o, "_log_softmax_backward_data", o.in(0), o.in(1)); }  // (gradient, y)

// ---- norm of the last dims: the second result is the variance, of which the gradient takes 1 / deviation ----------------------
void layer_norm(Older& o) { layer_norm_of(o, std::max<int64_t>(o.in(1).numel(), 1), true); }

void layer_norm_grad(Older& o) {  // (gradient, x, variance, mean, gamma): of x, gamma and beta
  const Value x = o.in(1).to(mt::kFloat).dense(), gamma = o.in(4).to(mt::kFloat).dense(), rstd = empty({o.in(2).numel()}, mt::kFloat);
  copy(rstd, o.in(2).reshape({-1}));
  for (int64_t i = 0; i < rstd.numel(); ++i) rstd.ptr<float>()[i] = float(1 / std::sqrt(rstd.ptr<float>()[i] + 1e-5));
  const Sizes shape = gamma.shape();
  const Value dx = empty(x.shape(), mt::kFloat), dgamma = empty(shape, mt::kFloat), dbeta = empty(shape, mt::kFloat);
  call_kernel("native_layer_norm_backward",
              {dx, dgamma, dbeta, o.in(0).to(mt::kFloat), x, o.in(3).to(mt::kFloat).reshape({-1}), rstd, gamma, Value()}, {list(shape), none()});
  const Value results[] = {dx, dgamma, dbeta};
  for (size_t k = 0; k < 3; ++k) copy(o.out(k), results[k]);
}

// ---- activations with attributes, and their gradients ---------------------------------------------------------------------------
void gelu(Older& o) { call_pointwise("gelu", mt::kFloat, {o.out(0), o.in(0)}, {string("none")}); }
void gelu_grad(Older& o) { call_pointwise("gelu_backward", mt::kFloat, {o.out(0), o.in(0), o.in(1)}, {string("none")}); }  // (gradient, x, y)
void leaky_relu(Older& o) { call_pointwise("leaky_relu", mt::kFloat, {o.out(0), o.in(0)}, {number(o.real("negative_slope", 0))}); }
void leaky_relu_grad(Older& o) {  // (gradient, x)
  call_pointwise("leaky_relu_backward", mt::kFloat, {o.out(0), o.in(0), o.in(1)}, {number(o.real("negative_slope", 0)), integer(0)});
}
void softplus(Older& o) {
  call_pointwise("softplus", mt::kFloat, {o.out(0), o.in(0)}, {number(o.real("beta", 1)), number(o.real("threshold", 20))});
}
void softplus_grad(Older& o) {  // (gradient, x)
  call_pointwise("softplus_backward", mt::kFloat, {o.out(0), o.in(0), o.in(1)}, {number(o.real("beta", 1)), number(o.real("threshold", 20))});
}
template <int operands> void with_gradient(Older& o, const char* kernel) {
  if constexpr (operands == 1) call_pointwise(kernel, mt::kFloat, {o.out(0), o.in(0)});
  else call_pointwise(kernel, mt::kFloat, {o.out(0), o.in(0), o.in(1)});
}
void hard_swish(Older& o) { with_gradient<1>(o, "hardswish"); }
void hard_swish_grad(Older& o) { with_gradient<2>(o, "hardswish_backward"); }
void silu_grad(Older& o) { with_gradient<2>(o, "silu_backward"); }
void lerp(Older& o) { call_pointwise("lerp", promote(o.in(0).dtype, o.in(1).dtype), {o.out(0), o.in(0), o.in(1), o.in(2)}); }
void addcdiv(Older& o) {  // input + value * x1 / x2
  const Value quotient = pointwise("div", mt::kFloat, {o.in(1), o.in(2)});
  call_pointwise("add", mt::kFloat, {o.out(0), o.in(0), pointwise("mul", mt::kFloat, {quotient, o.in(3).reshape({})})}, {integer(1)});
}
void tensor_equal(Older& o) {
  bool same = o.in(0).shape() == o.in(1).shape();
  if (same) {
    const Value found = pointwise("eq", promote(o.in(0).dtype, o.in(1).dtype), {o.in(0), o.in(1)}).to(mt::kBool).dense();
    same = std::all_of(found.ptr<bool>(), found.ptr<bool>() + found.numel(), [](bool on) { return on; });
  }
  fill(o.out(0), same);
}

// ---- losses: reduction is none, mean or sum ----------------------------------------------------------------------------------------
void mse(Older& o) {
  const Value d = pointwise("sub", mt::kFloat, {o.in(0), o.in(1)}, {integer(1)});
  reduce_loss(o, pointwise("mul", mt::kFloat, {d, d}));
}
void mse_grad(Older& o) {  // (prediction, truth, gradient)
  const Value d = pointwise("sub", mt::kFloat, {o.in(0), o.in(1)}, {integer(1)});
  const double by = 2.0 / (o.text("reduction", "mean") == "mean" ? double(std::max<int64_t>(d.numel(), 1)) : 1.0);
  call_pointwise("mul", mt::kFloat, {o.out(0), pointwise("mul", mt::kFloat, {d, o.in(2)}), full({}, mt::kFloat, by)});
}

// (log-probabilities [N, C], classes [N], a weight a class): the loss, and the sum of the weights
void nll(Older& o) {
  const Value x = o.in(0).to(mt::kFloat).dense(), at = o.in(1).to(mt::kInt64).dense(), w = o.in(2).to(mt::kFloat).dense();
  const int64_t n = at.numel(), classes = x.size(-1), ignored = o.integer("ignore_index", -100);
  const Value each = full({n}, mt::kFloat, 0);
  double total = 0, sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = at.ptr<int64_t>()[i];
    if (c == ignored) continue;
    if (c < 0 || c >= classes) o.refuse("a class is out of range");
    const float by = w.ptr<float>()[c];
    each.ptr<float>()[i] = -by * x.ptr<float>()[i * classes + c];
    total += by, sum += each.ptr<float>()[i];
  }
  const std::string how = o.text("reduction", "mean");
  if (how == "none") copy(o.out(0), each.reshape(o.out(0).shape()));
  else fill(o.out(0), how == "mean" ? sum / total : sum);
  fill(o.out(1), total);
}
void nll_grad(Older& o) {  // (x, gradient, classes, a weight a class, sum of the weights)
  const Value dy = o.in(1).to(mt::kFloat).dense(), at = o.in(2).to(mt::kInt64).dense(), w = o.in(3).to(mt::kFloat).dense();
  const Value dx = full(o.in(0).shape(), mt::kFloat, 0);
  const int64_t n = at.numel(), classes = dx.size(-1), ignored = o.integer("ignore_index", -100);
  const double by = o.text("reduction", "mean") == "mean" ? 1 / o.number(4) : 1;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t c = at.ptr<int64_t>()[i];
    if (c == ignored) continue;
    if (c < 0 || c >= classes) o.refuse("a class is out of range");
    dx.ptr<float>()[i * classes + c] = float(-by * w.ptr<float>()[c] * dy.ptr<float>()[dy.numel() == 1 ? 0 : i]);
  }
  copy(o.out(0), dx);
}

// ---- random: (shape, key, counter, algorithm) ----------------------------------------------------------------------------------------
void random_uniform(Older& o) {
  const Value out = o.out(0), made = empty(out.shape(), mt::kFloat);
  const Sizes key = o.given(1) ? o.numbers(1) : Sizes{0}, counter = o.given(2) ? o.numbers(2) : Sizes{0};
  call_kernel("uniform_", {made}, {number(0), number(1)}, seeded({uint64_t(key.at(0)), uint64_t(counter.back())}));
  copy(out, made);
}

// ---- shapes that only the values tell ---------------------------------------------------------------------------------------------------
void nonzero(Older& o) {  // transpose: a row a dim
  const Value on = pointwise("ne", o.in(0).dtype, {o.in(0), full({}, o.in(0).dtype, 0)}).to(mt::kBool).dense();
  std::vector<int64_t> places;
  for (int64_t i = 0; i < on.numel(); ++i)
    if (on.ptr<bool>()[i]) places.push_back(i);
  const auto n = int64_t(places.size());
  const bool turned = o.integer("transpose", 0);
  const Value made = empty({n, on.ndim}, mt::kInt64);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t d = on.ndim - 1, rest = places[k]; d >= 0; rest /= on.sizes[d--]) made.ptr<int64_t>()[k * on.ndim + d] = rest % on.sizes[d];
  copy(o.found(0, turned ? Sizes{on.ndim, n} : Sizes{n, on.ndim}), turned ? made.transpose(0, 1) : made);
}
void masked_select(Older& o) {  // (x, mask)
  const Value x = o.in(0), mask = o.in(1).to(mt::kBool);
  Sizes shape(size_t(std::max(x.ndim, mask.ndim)), 1);
  for (const Value& v : {x, mask})
    for (int64_t d = 1; d <= v.ndim; ++d)
      if (v.size(-d) != 1) shape[shape.size() - size_t(d)] = v.size(-d);
  const Value all = x.expand(shape).dense(), on = mask.expand(shape).dense();
  std::vector<int64_t> places;
  for (int64_t i = 0; i < on.numel(); ++i)
    if (on.ptr<bool>()[i]) places.push_back(i);
  const Value index = empty({int64_t(places.size())}, mt::kInt64), out = o.found(0, {int64_t(places.size())});
  std::copy(places.begin(), places.end(), index.ptr<int64_t>());
  if (!places.empty()) call_kernel("index_select", {out, all.reshape({-1}), index}, {integer(0)});
}

// ---- indices and orders -------------------------------------------------------------------------------------------------------
void gather_rows(Older& o) {  // (x, indices, axis); negative indices count from the end
  const Value x = row_of(o.in(0)), index = empty(o.in(1).shape(), mt::kInt64), out = o.out(0);
  copy(index, o.in(1));
  const int64_t axis = axes_of(o, {o.given(2) ? o.numbers(2).at(0) : o.integer("axis", 0)}, x.ndim)[0];
  for (int64_t* i = index.ptr<int64_t>(), *end = i + index.numel(); i < end; ++i)
    if (*i < 0) *i += x.size(axis);
  Sizes shape = x.shape();
  shape[axis] = index.numel();
  const Value made = empty(shape, x.dtype);
  call_kernel("index_select", {made, x, index.reshape({-1})}, {integer(axis)});
  copy(out, made.reshape(out.shape()));
}
void gather_items(Older& o) {  // (x, index), dim
  const Value x = row_of(o.in(0));
  call_kernel("gather", {row_of(o.out(0)), x, row_of(o.in(1).to(mt::kInt64))}, {integer(axes_of(o, {o.integer("dim", 0)}, x.ndim)[0])});
}
void scatter_items(Older& o) {  // (x, index, updates), axis, reduction
  const std::string how = o.text("reduction", "none");
  if (how != "none" && how != "add") o.refuse("reduction " + how + " is not supported");
  const Value out = row_of(o.out(0));
  copy(out, o.in(0));
  call_kernel(how == "add" ? "scatter_add" : "scatter", {out, row_of(o.in(1).to(mt::kInt64)), row_of(o.in(2).to(out.dtype))},
              {integer(axes_of(o, {o.integer("axis", 0)}, out.ndim)[0])});
}
template <bool upper> void triangle(Older& o) {
  call_kernel(upper ? "triu" : "tril", {o.out(0), o.in(0)}, {integer(o.integer("diagonal", 0))});
}
void concat(Older& o) {
  std::vector<Value> parts;
  for (size_t i = 0; i < o.inputs(); ++i)
    if (o.given(i)) parts.push_back(row_of(o.in(i)));
  const Value out = row_of(o.out(0));
  copy(out, cat(parts, axes_of(o, {o.integer("concat_dim", 0)}, out.ndim)[0]));
}
void pack(Older& o) {
  const Value out = row_of(o.out(0));
  const int64_t axis = axes_of(o, {o.integer("axis", 0)}, out.ndim)[0];
  if (out.size(axis) < int64_t(o.inputs())) o.refuse("the output has no room for all inputs");
  for (size_t i = 0; i < o.inputs(); ++i) copy(out.select(axis, int64_t(i)), o.in(i));
}
void tile(Older& o) {  // (x, how often along each dim)
  const Sizes times = o.numbers(1);
  Value x = o.in(0);
  while (size_t(x.ndim) < times.size()) x = x.unsqueeze(0);
  if (size_t(x.ndim) != times.size()) o.refuse("multiples need an item a dim");
  if (!o.out(0).numel()) return;
  for (int64_t d = 0; d < x.ndim; ++d) {
    if (times[d] < 1) o.refuse("multiples must not be negative");
    if (times[d] != 1) x = cat(std::vector<Value>(size_t(times[d]), x), d);
  }
  copy(o.out(0), x);
}
void range(Older& o) {  // (start, end, step)
  const double start = o.number(0), step = o.number(2);
  const Value out = o.out(0), made = empty(out.shape(), mt::kDouble);
  for (int64_t i = 0; i < made.numel(); ++i) made.ptr<double>()[i] = start + double(i) * step;
  copy(out, made);
}
void range_by_attributes(Older& o) {
  const double start = o.real("start", 0), step = o.real("delta", 1);
  const Value out = o.out(0), made = empty(out.shape(), mt::kDouble);
  for (int64_t i = 0; i < made.numel(); ++i) made.ptr<double>()[i] = start + double(i) * step;
  copy(out, made);
}
void spaced(Older& o) {  // (first, last, how many)
  const double first = o.number(0), last = o.number(1);
  const Value out = o.out(0), made = empty(out.shape(), mt::kDouble);
  const int64_t n = made.numel();
  for (int64_t i = 0; i < n; ++i) made.ptr<double>()[i] = n > 1 ? first + (last - first) * double(i) / double(n - 1) : first;
  copy(out, made);
}
void eye(Older& o) {
  const Value out = o.out(0);
  fill(out, 0);
  for (int64_t i = 0; i < std::min(out.size(-2), out.size(-1)); ++i) fill(out.select(-2, i).select(-1, i), 1);
}
void is_close(Older& o) {
  const Value a = o.in(0).to(mt::kDouble).expand(o.out(0).shape()).dense(), b = o.in(1).to(mt::kDouble).expand(o.out(0).shape()).dense();
  const Value made = empty(a.shape(), mt::kBool);
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.ptr<double>()[i], y = b.ptr<double>()[i];
    const bool both = std::isnan(x) && std::isnan(y) && o.integer("equal_nan", 0);
    made.ptr<bool>()[i] = both || x == y || (std::isfinite(y) && std::fabs(x - y) <= o.real("atol", 1e-8) + o.real("rtol", 1e-5) * std::fabs(y));
  }
  copy(o.out(0), made);
}
void running_sum(Older& o) {  // (x, axis)
  if (o.integer("exclusive", 0) || o.integer("reverse", 0)) o.refuse("exclusive and reverse are not supported");
  const Value x = row_of(o.in(0).to(opmath(o.in(0).dtype))), made = empty(x.shape(), x.dtype);
  call_kernel("cumsum", {made, x}, {integer(axes_of(o, {o.given(1) ? o.numbers(1).at(0) : o.integer("axis", 0)}, x.ndim)[0])});
  copy(row_of(o.out(0)), made);
}
void reverse(Older& o) {  // (x, axes)
  const Value x = row_of(o.in(0));
  const Sizes dims = axes_of(o, o.numbers(1), x.ndim);
  call_kernel("flip", {row_of(o.out(0)), x}, {list(dims)});
}
void sort(Older& o) {  // values, places
  const Value x = row_of(o.in(0)), values = empty(x.shape(), x.dtype), places = empty(x.shape(), mt::kInt64);
  const int64_t axis = axes_of(o, {o.integer("axis", -1)}, x.ndim)[0];
  call_kernel("sort", {values, places, x}, {integer(axis), integer(o.integer("descending", 0)), integer(1)});
  copy(row_of(o.out(0)), values);
  copy(row_of(o.out(1)), places);
}
void top(Older& o) {  // (x, k), dim, largest: values, places
  const Value x = row_of(o.in(0)), values = empty(row_of(o.out(0)).shape(), x.dtype), places = empty(values.shape(), mt::kInt64);
  const int64_t dim = axes_of(o, {o.integer("dim", -1)}, x.ndim)[0];
  call_kernel("topk", {values, places, x}, {integer(values.size(dim)), integer(dim), integer(o.integer("largest", 1)), integer(1)});
  copy(row_of(o.out(0)), values);
  copy(row_of(o.out(1)), places);
}

struct Tables {
  Tables() {
    for (const Named& n : kPointwise) OlderOps({{n.op, n.operands, n.operands, 1, by_name}});
    for (const Named& n : kReductions) OlderOps({{n.op, 1, 2, 1, reduce}});
  }
};
const Tables tables;
const OlderOps ops({
    {"Exp", 1, 1, 1, exponential}, {"Log", 1, 1, 1, logarithm}, {"Round", 1, 1, 1, round}, {"FloorDiv", 2, 2, 1, floor_divide},
    {"Pow", 2, 2, 1, power}, {"AxpyV2", 3, 3, 1, axpy}, {"ClipByValue", 3, 3, 1, clip}, {"ClipByValueV2", 3, 3, 1, clip}, {"Select", 3, 3, 1, select},
    {"MaskedFill", 3, 3, 1, masked_fill}, {"ReluGrad", 2, 2, 1, relu_grad}, {"ZerosLike", 1, 1, 1, like<0>}, {"OnesLike", 1, 1, 1, like<1>},
    {"ArgMaxV2", 1, 2, 1, place_of_extreme<true>}, {"ArgMin", 1, 2, 1, place_of_extreme<false>},
    {"SoftmaxV2", 1, 1, 1, softmax<false>}, {"LogSoftmaxV2", 1, 1, 1, softmax<true>}, {"SoftmaxGrad", 2, 2, 1, softmax_grad},
    {"LogSoftmaxGrad", 2, 2, 1, log_softmax_grad}, {"LayerNorm", 3, 3, 3, layer_norm}, {"LayerNormGrad", 5, 5, 3, layer_norm_grad},
    {"Gelu", 1, 1, 1, gelu}, {"GeluGrad", 2, 3, 1, gelu_grad}, {"LeakyRelu", 1, 1, 1, leaky_relu}, {"LeakyReluGrad", 2, 2, 1, leaky_relu_grad},
    {"SoftplusV2", 1, 1, 1, softplus}, {"SoftplusV2Grad", 2, 2, 1, softplus_grad}, {"HardSwish", 1, 1, 1, hard_swish},
    {"HardSwishGrad", 2, 2, 1, hard_swish_grad}, {"SiluGrad", 2, 2, 1, silu_grad}, {"Lerp", 3, 3, 1, lerp}, {"Addcdiv", 4, 4, 1, addcdiv},
    {"TensorEqual", 2, 2, 1, tensor_equal}, {"MseLoss", 2, 2, 1, mse}, {"MseLossGrad", 3, 3, 1, mse_grad},
    {"NLLLoss", 3, 3, 2, nll}, {"NLLLossGrad", 5, 5, 1, nll_grad}, {"LinSpace", 3, 3, 1, spaced}, {"Eye", 0, 0, 1, eye},
    {"IsClose", 2, 2, 1, is_close}, {"StatelessRandomUniformV2", 1, 4, 1, random_uniform}, {"NonZero", 1, 1, 1, nonzero}, {"MaskedSelect", 2, 2, 1, masked_select},
    {"GatherV2", 2, 3, 1, gather_rows}, {"Gather", 2, 2, 1, gather_rows}, {"GatherV2D", 2, 2, 1, gather_rows}, {"GatherElements", 2, 2, 1, gather_items},
    {"ScatterElements", 3, 3, 1, scatter_items}, {"Triu", 1, 1, 1, triangle<true>}, {"Tril", 1, 1, 1, triangle<false>},
    {"ConcatD", 1, 1024, 1, concat}, {"Pack", 1, 1024, 1, pack}, {"Tile", 2, 2, 1, tile}, {"Range", 3, 3, 1, range}, {"RangeD", 1, 1, 1, range_by_attributes},
    {"Cumsum", 1, 2, 1, running_sum}, {"ReverseV2", 2, 2, 1, reverse}, {"Sort", 1, 1, 2, sort}, {"TopKV2", 2, 2, 2, top},
});

}  // namespace

Sizes axes_of(Older& o, const Sizes& given, int64_t ndim) {
  Sizes dims;
  const int64_t rank = std::max<int64_t>(ndim, 1);
  for (int64_t d : given) {
    if (d < -rank || d >= rank) o.refuse("an axis is out of range");
    dims.push_back(d < 0 ? d + rank : d);
  }
  if (dims.empty())
    for (int64_t d = 0; d < ndim; ++d) dims.push_back(d);
  return dims;
}

void reduce_loss(Older& o, const Value& each) {
  const std::string how = o.text("reduction", "mean");
  if (how == "none") return copy(o.out(0), each.reshape(o.out(0).shape()));
  const Value made = empty({}, mt::kFloat);
  const Sizes all = axes_of(o, {}, each.ndim);
  call_kernel(how == "mean" ? "mean" : "sum", {made, each}, {list(all)});
  copy(o.out(0), made.reshape(o.out(0).shape()));
}

}  // namespace cann_sim
