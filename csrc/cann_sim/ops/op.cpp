// Registration of ops and the checks that many of them share.
#include "ops/op.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "runtime/device.h"

namespace cann_sim {
namespace {

OpRow* find_row(const char* name) {
  static const auto* rows = [] {
    auto* made = new std::unordered_map<std::string, OpRow*>;
    for (int i = 0; i < op_count; ++i) made->emplace(op_rows[i].name, &op_rows[i]);
    return made;
  }();
  const auto found = rows->find(name);
  return found == rows->end() ? nullptr : found->second;
}

}  // namespace

Op::Op(const char* name, Check check, Execute run, uint64_t (*workspace)(const Call&)) {
  OpRow* row = find_row(name);
  if (!row || row->impl) {  // a slip of the pen, found by the first load of the library
    std::fprintf(stderr, "cann_sim: op %s %s\n", name, row ? "is registered twice" : "has no row in src/cann_tables/aclnn.txt");
    std::abort();
  }
  row->impl = new OpImpl{check, run, workspace};
}

// ---- HF32: float32 with 11 bits of fraction, as the cube units may read it ---------------------------------------
static bool allows_hf32(const Call& call) {
  for (int i = 0; i < call.row->nargs; ++i)
    if (!std::strcmp(call.row->args[i].name, "cubeMathType")) return call.integer(i) == 1 || call.integer(i) == 3;
  return false;
}

Run::Run(const Call& call) : call(call), rounds_(settings().hf32 && allows_hf32(call)) {}

// What is added to the product is not read by the cube units: a bias, and the first argument of addmm and its kin.
bool Run::rounds_as_hf32(int i) const {
  const ArgRow& arg = call.row->args[i];
  const std::string name = arg.name;
  if (arg.kind != Kind::k_tensor || call.tensor(i).dtype != ACL_FLOAT || name == "bias" || name == "C") return false;
  const bool adds = std::strstr(call.row->name, "Add") || std::strstr(call.row->name, "add");
  return name != "self" || !adds || i > 0;
}

Value Run::hf32(const Value& v) {
  Value made = empty(v.shape(), mt::kFloat);
  copy(made, v);
  auto* bits = made.ptr<uint32_t>();
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    const bool finite = (bits[i] & 0x7F800000u) != 0x7F800000u;
    if (finite) bits[i] = (bits[i] + 0x7FFu + ((bits[i] >> 12) & 1)) & ~0xFFFu;  // to the nearest, ties to even
  }
  return made;
}

// ---- running ---------------------------------------------------------------------------------------------------
Value Run::value(const TensorMeta& meta) {
  Value v;
  if (!meta.given()) return v;
  v.ndim = meta.ndim;
  v.dtype = bits_of(meta.dtype);
  int64_t low = meta.offset, high = meta.offset;
  bool none = false;
  for (int d = 0; d < meta.ndim; ++d) {
    v.sizes[d] = meta.sizes[d];
    v.strides[d] = meta.strides[d];
    if (meta.sizes[d] == 0) none = true;
    else (meta.strides[d] < 0 ? low : high) += meta.strides[d] * (meta.sizes[d] - 1);
  }
  if (none) return v;
  const int64_t item = mt::itemsize(v.dtype);
  const char* first = static_cast<const char*>(meta.addr) + low * item;
  v.data = static_cast<char*>(pins_.resolve(first, static_cast<size_t>((high - low + 1) * item))) + (meta.offset - low) * item;
  return v;
}

// Calls visit(the byte, which half of it, the item's place in a dense tensor) for every item.
template <class F> void Run::each_int4(const TensorMeta& meta, F&& visit) {
  int64_t high = meta.offset, index[kMaxRank] = {}, at = meta.offset;
  for (int d = 0; d < meta.ndim; ++d) high += meta.strides[d] * (meta.sizes[d] - 1);
  const int64_t n = meta.numel();
  if (!n) return;
  auto* bytes = static_cast<uint8_t*>(pins_.resolve(meta.addr, static_cast<size_t>(high / 2 + 1)));
  for (int64_t i = 0; i < n; ++i) {
    visit(bytes[at / 2], at % 2, i);
    for (int d = meta.ndim - 1; d >= 0; --d) {
      at += meta.strides[d];
      if (++index[d] < meta.sizes[d]) break;
      at -= meta.strides[d] * meta.sizes[d];
      index[d] = 0;
    }
  }
}

Value Run::int4(const TensorMeta& meta) {
  Value made = empty(sizes_of(meta), mt::kInt8);
  each_int4(meta, [&](uint8_t byte, int64_t upper, int64_t i) {
    const int bits = upper ? byte >> 4 : byte & 15;
    made.ptr<int8_t>()[i] = static_cast<int8_t>(bits > 7 ? bits - 16 : bits);
  });
  return made;
}

void Run::set_int4(const TensorMeta& meta, const Value& items) {
  const Value from = items.to(mt::kInt8).dense();
  each_int4(meta, [&](uint8_t& byte, int64_t upper, int64_t i) {
    const int bits = from.ptr<int8_t>()[i] & 15;
    byte = static_cast<uint8_t>(upper ? (byte & 15) | bits << 4 : (byte & 0xF0) | bits);
  });
}

std::vector<Value> Run::tensors(int i) {
  std::vector<Value> all;
  for (const TensorMeta& meta : call.tensors(i)) all.push_back(value(meta));
  return all;
}

void Run::set_shape(int i, const std::vector<int64_t>& sizes) {
  aclTensor* t = cann_sim::tensors().get(call.handles[call.args[i].first]);
  if (!t) throw DeviceFault(ACL_ERROR_RT_AICPU_EXCEPTION, std::string(call.name()) + ": the output tensor was destroyed before the stream was synchronised");
  t->meta.ndim = static_cast<int32_t>(sizes.size());
  int64_t step = 1;
  for (int d = t->meta.ndim - 1; d >= 0; --d) {
    t->meta.sizes[d] = sizes[d];
    t->meta.strides[d] = step;
    step *= sizes[d];
  }
}

// ---- checks ----------------------------------------------------------------------------------------------------
std::string describe(const TensorMeta& t) {
  if (!t.given()) return "nothing";
  std::string text = computes(t.dtype) ? mt::dtype_name(dtype_of(t.dtype)) : "data type " + std::to_string(t.dtype);
  text += " [";
  for (int d = 0; d < t.ndim; ++d) text += (d ? ", " : "") + std::to_string(t.sizes[d]);
  return text + "]";
}

std::vector<int64_t> sizes_of(const TensorMeta& t) { return {t.sizes, t.sizes + (t.ndim > 0 ? t.ndim : 0)}; }

// What a product of float32 may lose: 0 nothing, 1 down-precision allowed, 2 float16, 3 HF32, 4 exact adds. The first
// generation multiplies halves only.
void expect_math_type(const Call& c, int i, int operand) {
  static const bool halves_only = !strcmp(soc().family, "Ascend910") || !strcmp(soc().family, "Ascend310P");
  const int64_t type = c.integer(i);
  EXPECT(type >= 0 && type <= 4, "cubeMathType %ld is not in [0, 4]", long(type));
  EXPECT(!halves_only || type != 3, "cubeMathType 3 (HF32) is not for %s", soc().name);
  EXPECT(!halves_only || type != 0 || c.tensor(operand).dtype != ACL_FLOAT,
         "cubeMathType 0 keeps float32, which %s cannot multiply", soc().name);
}

void expect_shape(const Call& c, int i, const std::vector<int64_t>& sizes) {
  const TensorMeta& t = c.tensor(i);
  if (!t.given() || sizes_of(t) == sizes) return;
  std::string wanted;
  for (size_t d = 0; d < sizes.size(); ++d) wanted += (d ? ", " : "") + std::to_string(sizes[d]);
  refuse(ACLNN_ERR_PARAM_INVALID, "%s: expected %s of shape [%s], got %s", c.name(), c.row->args[i].name, wanted.c_str(),
         describe(t).c_str());
}

void expect_same_shape(const Call& c, int i, int j) {
  if (c.given(j)) expect_shape(c, i, sizes_of(c.tensor(j)));
}

void expect_same_dtype(const Call& c, int i, int j) {
  if (c.given(i) && c.given(j) && c.tensor(i).dtype != c.tensor(j).dtype)
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: expected %s and %s of one data type, got %s and %s", c.name(), c.row->args[i].name,
           c.row->args[j].name, describe(c.tensor(i)).c_str(), describe(c.tensor(j)).c_str());
}

int64_t wrap_dim(int64_t dim, int64_t ndim) {
  const int64_t range = ndim > 0 ? ndim : 1;  // a 0-dim tensor counts as one dim here
  if (dim < -range || dim >= range)
    refuse(ACLNN_ERR_PARAM_INVALID, "dim %ld is out of range for a tensor of %ld dims", dim, ndim);
  return dim < 0 ? dim + range : dim;
}

std::vector<int64_t> broadcast_sizes(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const auto& longer = a.size() >= b.size() ? a : b;
  const auto& shorter = a.size() >= b.size() ? b : a;
  std::vector<int64_t> out = longer;
  const size_t added = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    int64_t& x = out[d + added];
    if (x != shorter[d] && x != 1 && shorter[d] != 1)
      refuse(ACLNN_ERR_PARAM_INVALID, "sizes %ld and %ld do not broadcast", x, shorter[d]);
    if (x == 1) x = shorter[d];
  }
  return out;
}

bool can_cast(mt::DType from, mt::DType to) {
  return to != mt::kBool || from == mt::kBool;
}

}  // namespace cann_sim
