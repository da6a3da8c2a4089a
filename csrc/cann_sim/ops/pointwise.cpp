// How the rows of pointwise ops are checked and run: shapes, dtypes, operands, attributes. No op is named here.
#include "ops/pointwise.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace cann_sim {
namespace {

bool is_scalar(Kind k) { return k == Kind::k_scalar || k == Kind::k_scalars; }
int position(char c) { return c - '0'; }
bool is_position(char c) { return c >= '0' && c <= '9'; }

const aclScalar& scalar_at(const Call& c, int i, int64_t item) {
  return c.row->args[i].kind == Kind::k_scalars ? c.scalars(i)[item] : c.scalar(i);
}
const TensorMeta& tensor_at(const Call& c, int i, int64_t item) {
  return is_tensor_list(c.row->args[i].kind) ? c.tensors(i)[item] : c.tensor(i);
}
// In an op over lists a single tensor is a number, or one number for each item.
bool is_number_tensor(const Call& c, int i) {
  return c.row->args[i].kind == Kind::k_tensor && is_tensor_list(c.row->args[output_of(c)].kind);
}

DType operand_dtype(const Call& c, const TensorMeta& t, int i) {
  if (!computes(t.dtype))
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: %s is %s, which is moved but not computed with", c.name(), c.row->args[i].name,
           describe(t).c_str());
  return dtype_of(t.dtype);
}

// The dtype that the operands agree on: tensors first, then numbers, which only lift the category.
DType common_dtype(const Call& c, const PointwiseOp& op, int64_t item) {
  DType common = mt::kNumDTypes;
  for (const char* p = op.operands + (op.rule == Rule::select); *p; ++p) {
    const int i = position(*p);
    if (is_scalar(c.row->args[i].kind) || is_number_tensor(c, i)) continue;
    const DType t = operand_dtype(c, tensor_at(c, i, item), i);
    common = common == mt::kNumDTypes ? t : promote(common, t);
  }
  const char* texts[] = {op.operands, op.rule == Rule::attributes ? op.attributes : ""};
  for (const char* text : texts)
    for (; *text; ++text) {
      const int i = position(*text);
      if (is_position(*text) && c.given(i) && is_scalar(c.row->args[i].kind))
        common = promote(common, scalar_at(c, i, item));
    }
  if (op.rule == Rule::floating && mt::is_integral(common)) return mt::kFloat;
  return common;
}

// The dtype whose loop is run: 16-bit floats have the float loop, integers without a loop are computed as float32.
DType compute_dtype(const mt::Pointwise* kernel, DType common) {
  if (kernel->loop[common] || common == mt::kHalf || common == mt::kBFloat16) return common;
  if (common == mt::kBool && kernel->loop[mt::kUInt8]) return mt::kUInt8;
  return mt::is_integral(common) ? mt::kFloat : common;
}

DType result_dtype(const PointwiseOp& op, DType common) {
  return op.rule == Rule::boolean ? mt::kBool : op.rule == Rule::real ? real_of(common) : common;
}

struct Broadcast {
  int64_t sizes[kMaxRank];
  int32_t ndim = 0;
  bool add(const TensorMeta& t) {
    while (ndim < t.ndim) {
      std::memmove(sizes + 1, sizes, sizeof(int64_t) * ndim);
      sizes[0] = 1;
      ++ndim;
    }
    for (int d = 1; d <= t.ndim; ++d) {
      int64_t& have = sizes[ndim - d];
      const int64_t more = t.sizes[t.ndim - d];
      if (have == 1) have = more;
      else if (more != 1 && more != have) return false;
    }
    return true;
  }
  bool equals(const TensorMeta& t) const {
    return t.ndim == ndim && std::equal(sizes, sizes + ndim, t.sizes);
  }
};

[[noreturn]] void refuse_shape(const Call& c, const TensorMeta& t, int i) {
  refuse(ACLNN_ERR_PARAM_INVALID, "%s: %s, which is %s, does not fit the broadcast shape of the inputs", c.name(),
         c.row->args[i].name, describe(t).c_str());
}

void expect_result(const Call& c, DType result, const TensorMeta& t, int i) {
  if (!can_cast(result, operand_dtype(c, t, i)))
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: the result is %s and cannot be cast to %s, which is %s", c.name(),
           mt::dtype_name(result), c.row->args[i].name, describe(t).c_str());
}

// One item of a tensor that holds numbers.
Value number_at(const Value& numbers, int64_t item) {
  const Value flat = numbers.reshape({-1});
  return flat.select(0, flat.sizes[0] == 1 ? 0 : item);
}

Value operand(Run& run, int i, int64_t item) {
  const Call& c = run.call;
  if (is_scalar(c.row->args[i].kind)) return value_of(scalar_at(c, i, item));
  const Value whole = run.value(tensor_at(c, i, item));
  return is_number_tensor(c, i) ? number_at(whole, item) : whole;
}

mt::Attr attribute(Run& run, char where, int64_t item) {
  const Call& c = run.call;
  const int i = position(where);
  if (where == '+') return integer(1);
  if (where == '-' || !c.given(i)) return none();
  switch (c.row->args[i].kind) {
    case Kind::k_scalar: case Kind::k_scalars: return scalar(scalar_at(c, i, item));
    case Kind::k_tensor: return number(*number_at(run.tensor(i), item).to(mt::kDouble).ptr<double>());
    case Kind::k_double: case Kind::k_float: return number(c.number(i));
    case Kind::k_string: return string(c.string(i));
    default: return integer(c.integer(i));
  }
}

}  // namespace

const mt::Pointwise* kernel_of(const PointwiseOp& op) {
  const mt::Pointwise* found = op.own ? op.own : kernels().find_pointwise(op.kernel);
  if (!found) throw std::logic_error(std::string("no pointwise kernel ") + op.kernel);
  return found;
}

int output_of(const Call& c) {
  for (int i = 0; i < c.row->nargs; ++i)
    if (is_output(c.row->args[i].kind)) return i;
  throw std::logic_error("an op without an output");
}

void expect_one_element(const Call& c, int i) {
  EXPECT(!c.given(i) || c.tensor(i).numel() == 1, "%s: expected %s with one element, got %s", c.name(),
         c.row->args[i].name, describe(c.tensor(i)).c_str());
}

void expect_result(const Call& c, DType result, int i) { expect_result(c, result, c.tensor(i), i); }

void expect_broadcast(const Call& c, std::initializer_list<int> inputs, int out) {
  Broadcast shape;
  for (int i : inputs)
    if (c.given(i) && !shape.add(c.tensor(i))) refuse_shape(c, c.tensor(i), i);
  if (!shape.equals(c.tensor(out))) refuse_shape(c, c.tensor(out), out);
}

void check_pointwise(const Call& c, const PointwiseOp& op, const mt::Pointwise* kernel, int64_t item) {
  Broadcast shape;
  for (const char* p = op.operands; *p; ++p) {
    const int i = position(*p);
    if (is_scalar(c.row->args[i].kind) || is_number_tensor(c, i)) continue;
    const TensorMeta& t = tensor_at(c, i, item);
    operand_dtype(c, t, i);
    if (!shape.add(t)) refuse_shape(c, t, i);
  }
  const int at = output_of(c);
  const TensorMeta& out = tensor_at(c, at, item);
  if (!shape.equals(out)) refuse_shape(c, out, at);
  const DType common = common_dtype(c, op, item), loop = compute_dtype(kernel, common);
  if (!kernel->loop[loop] && !kernel->loop[opmath(loop)])
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: does not compute in %s", c.name(), mt::dtype_name(common));
  expect_result(c, result_dtype(op, common), out, at);
  for (const char* p = op.attributes; *p; ++p) {
    const int i = position(*p);
    if (is_position(*p) && c.given(i) && c.row->args[i].kind == Kind::k_scalar && c.scalar(i).im != 0)
      EXPECT(mt::is_complex(common), "%s: %s is complex, and the op computes in %s", c.name(), c.row->args[i].name,
             mt::dtype_name(common));
  }
}

void run_pointwise(Run& run, const PointwiseOp& op, const mt::Pointwise* kernel, int64_t item) {
  const Call& c = run.call;
  const DType common = common_dtype(c, op, item), result = result_dtype(op, common);
  Value values[kMostOperands + 1];
  mt::View views[kMostOperands + 1];
  mt::Attr attributes[kMostAttributes];
  int n = 0, many = 0;
  const Value out = run.value(tensor_at(c, output_of(c), item));
  // A 16-bit result is rounded before it is cast to a wider output; everything else is cast on the way.
  const bool rounds = (result == mt::kHalf || result == mt::kBFloat16) && out.dtype != result;
  values[n++] = rounds ? empty(out.shape(), result) : out;
  for (const char* p = op.operands; *p; ++p) values[n++] = operand(run, position(*p), item);
  for (const char* p = op.attributes; *p; ++p) attributes[many++] = attribute(run, *p, item);
  for (int i = 0; i < n; ++i) views[i] = values[i].view();
  const DType compute = compute_dtype(kernel, common);
  if (n != 3 || !op.kernel || !divided_over_zero(op.kernel, compute, values[0], values[1], values[2])) kernels().pointwise(kernel, compute, views, attributes);
  if (rounds) copy(out, values[0]);
}

void check_foreach(const Call& c, const PointwiseOp& op, const mt::Pointwise* kernel) {
  const int64_t n = c.args[output_of(c)].count;
  auto check_length = [&](const char* text) {
    for (; *text; ++text) {
      if (!is_position(*text)) continue;
      const int i = position(*text);
      const Kind kind = c.row->args[i].kind;
      if (is_tensor_list(kind) || kind == Kind::k_scalars) {
        EXPECT(c.args[i].count == n, "%s: %s has %d items, and the outputs are %ld", c.name(), c.row->args[i].name,
               c.args[i].count, n);
      } else if (kind == Kind::k_tensor) {
        operand_dtype(c, c.tensor(i), i);
        const int64_t numbers = c.tensor(i).numel();
        EXPECT(numbers == 1 || numbers == n, "%s: %s has %ld numbers for %ld tensors", c.name(), c.row->args[i].name,
               numbers, n);
      }
    }
  };
  check_length(op.operands);
  check_length(op.attributes);
  for (int64_t k = 0; k < n; ++k) check_pointwise(c, op, kernel, k);
}

void run_foreach(Run& run, const PointwiseOp& op, const mt::Pointwise* kernel) {
  const int64_t n = run.call.args[output_of(run.call)].count;
  for (int64_t k = 0; k < n; ++k) run_pointwise(run, op, kernel, k);
}

Value value_of(const aclScalar& s) {
  const DType own = dtype_of(s.dtype);
  const DType wide = mt::is_complex(own) ? mt::kComplexDouble : is_float(own) ? mt::kDouble
                     : own == mt::kBool ? mt::kBool : mt::kInt64;
  Value v = empty({}, wide);
  if (wide == mt::kComplexDouble) *v.ptr<mt::c128>() = {s.re, s.im};
  else if (wide == mt::kDouble) *v.ptr<double>() = s.re;
  else if (wide == mt::kBool) *v.ptr<bool>() = s.i != 0;
  else *v.ptr<int64_t>() = s.i;
  return v;
}

Value pointwise(const char* kernel, DType compute, std::initializer_list<Value> inputs,
                std::initializer_list<mt::Attr> attributes) {
  const mt::Pointwise* k = kernels().find_pointwise(kernel);
  if (!k) throw std::logic_error(std::string("no pointwise kernel ") + kernel);
  Sizes sizes;
  for (const Value& v : inputs) sizes = broadcast_sizes(sizes, v.shape());
  Value out = empty(sizes, k->out == -1 ? compute : k->out == -2 ? real_of(compute) : DType(k->out));
  mt::View views[kMostOperands + 1] = {out.view()};
  int n = 1;
  for (const Value& v : inputs) views[n++] = v.view();
  kernels().pointwise(k, compute, views, attributes.size() ? attributes.begin() : nullptr);
  return out;
}

}  // namespace cann_sim
