// An aclnn call as text, for the record of calls.
#include "aclnn/describe.h"

#include <cstdio>

namespace cann_sim {
namespace {

constexpr aclFormat kNd = 2;

std::string dtype_text(int dtype) {
  static constexpr const char* kNames[] = {
      "f32", "f16", "s8", "s32", "u8", nullptr, "s16", "u16", "u32", "s64", "u64", "f64", "bool", "string", nullptr, nullptr, "c64",
      "c128", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, "bf16", nullptr, "s4", "u1", nullptr,
      nullptr, "c32"};
  const bool known = dtype >= 0 && dtype < static_cast<int>(std::size(kNames)) && kNames[dtype];
  return known ? kNames[dtype] : "dtype" + std::to_string(dtype);
}

template <class T>
std::string list_text(const T* items, int64_t n) {
  std::string text = "[";
  for (int64_t i = 0; i < n; ++i) text += (i ? "," : "") + std::to_string(items[i]);
  return text + "]";
}

std::string number_text(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string tensor_text(const TensorMeta& t, const aclTensor* object) {
  if (!t.given()) return "null";
  std::string text = dtype_text(t.dtype) + list_text(t.sizes, t.ndim);
  int64_t step = 1;
  bool dense = true;
  for (int d = t.ndim - 1; d >= 0; step *= t.sizes[d--]) dense &= t.sizes[d] == 1 || t.strides[d] == step;
  if (!dense) text += ":" + list_text(t.strides, t.ndim);
  if (t.offset) text += "+" + std::to_string(t.offset);
  if (object) {
    const bool same = object->storage_ndim == t.ndim && std::equal(t.sizes, t.sizes + t.ndim, object->storage_dims);
    if (!same) text += " in " + list_text(object->storage_dims, object->storage_ndim);
  }
  return t.format == kNd ? text : text + " format " + std::to_string(t.format);
}

std::string scalar_text(const aclScalar& s) {
  const bool is_float = s.dtype <= 1 || s.dtype == 11 || s.dtype == 27, is_complex = s.dtype == 16 || s.dtype == 17;
  return dtype_text(s.dtype) + " " + (is_complex ? number_text(s.re) + "+" + number_text(s.im) + "j"
                                      : is_float ? number_text(s.re) : std::to_string(s.i));
}

std::string argument_text(const Call& call, int i) {
  const Arg& a = call.args[i];
  if (!a.given) return "null";
  std::string text;
  switch (a.kind) {
    case Kind::k_tensor: case Kind::k_out: case Kind::k_inout: return tensor_text(call.metas[a.first], call.handles[a.first]);
    case Kind::k_tensors: case Kind::k_outs: case Kind::k_inouts:
      for (int32_t k = a.first; k < a.first + a.count; ++k)
        text += (k > a.first ? ", " : "") + tensor_text(call.metas[k], call.handles[k]);
      return "[" + text + "]";
    case Kind::k_scalar: return scalar_text(call.scalar(i));
    case Kind::k_scalars:
      for (const aclScalar& s : call.scalars(i)) text += (text.empty() ? "" : ", ") + scalar_text(s);
      return "[" + text + "]";
    case Kind::k_ints: case Kind::k_bools: return list_text(call.ints(i).data, call.ints(i).n);
    case Kind::k_floats:
      for (double x : call.floats(i)) text += (text.empty() ? "" : ",") + number_text(x);
      return "[" + text + "]";
    case Kind::k_string: return std::string("\"") + call.string(i) + "\"";
    case Kind::k_double: case Kind::k_float: return number_text(a.d);
    default: return std::to_string(a.i);
  }
}

}  // namespace

std::string describe(const Call& call) {
  std::string text = call.row->name;
  for (int i = 0; i < call.row->nargs; ++i)
    text += (i ? ", " : "(") + std::string(call.row->args[i].name) + "=" + argument_text(call, i);
  return text + ") workspace " + std::to_string(call.workspace_bytes);
}

}  // namespace cann_sim
