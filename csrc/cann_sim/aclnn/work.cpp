// What an aclnn call computes and moves, for the clock of CANN_SIM_MODE=model: estimates by families of ops.
#include <algorithm>
#include <cstring>

#include "aclnn/call.h"

namespace cann_sim {
namespace {

bool has(const char* name, const char* part) { return std::strstr(name, part) != nullptr; }

int find_argument(const Call& c, std::initializer_list<const char*> names) {
  for (const char* name : names)
    for (int i = 0; i < c.row->nargs; ++i)
      if (!std::strcmp(c.row->args[i].name, name) && c.args[static_cast<size_t>(i)].given) return i;
  return -1;
}

double items(const TensorMeta& t) { return t.given() ? static_cast<double>(t.numel()) : 0; }
double items_of(const Call& c, int i) {
  double n = 0;
  for (const TensorMeta& t : c.tensors(i)) n += items(t);
  return n;
}
double output_items(const Call& c) {
  for (int i = 0; i < c.row->nargs; ++i)
    if (is_output(c.row->args[i].kind)) return items_of(c, i);
  return 0;
}
int bits_of_item(const TensorMeta& t) {
  const int64_t size = element_size(t.dtype);
  return size ? static_cast<int>(8 * size) : 4;
}

// A product of matrices: two operations for each item of the result and each item of a row of the left operand.
void estimate_product(const Call& c, Work& work) {
  const int left = find_argument(c, {"mat1", "batch1", "mat", "A", "x1", "x", "self", "selfRef"});
  if (left < 0 || !c.args[static_cast<size_t>(left)].count) return;
  const TensorMeta& a = c.tensors(left)[0];
  if (a.ndim < 1) return;
  work.cube = 2 * output_items(c) * static_cast<double>(a.sizes[a.ndim - 1]);
  work.item_bits = bits_of_item(a);
}

void estimate_convolution(const Call& c, Work& work) {
  const int w = find_argument(c, {"weight"}), x = find_argument(c, {"input", "self"}), dy = find_argument(c, {"gradOutput"});
  if (w < 0 || x < 0 || !c.tensor(w).sizes[0]) return;
  const double taps = items(c.tensor(w)) / static_cast<double>(c.tensor(w).sizes[0]);
  const int transposed = find_argument(c, {"transposed"});
  const bool turned = transposed >= 0 && c.integer(transposed);
  const double places = dy >= 0 ? items(c.tensor(turned ? x : dy)) : turned ? items(c.tensor(x)) : output_items(c);
  work.cube = 2 * places * taps * (dy >= 0 ? 2 : 1);  // both gradients
  work.item_bits = bits_of_item(c.tensor(x));
}

// Two products for every query and key; backwards five.
void estimate_attention(const Call& c, Work& work) {
  const int q = find_argument(c, {"query", "queryRope"}), k = find_argument(c, {"key", "keyIn"});
  if (q < 0 || k < 0 || c.tensors(k).size() < 1) return;
  const TensorMeta& key = c.tensors(k)[0];
  std::string layout = "BSH";
  if (const int i = find_argument(c, {"inputLayout", "inputLayoutOptional", "qInputLayout", "layoutQuery"}); i >= 0)
    layout = c.string(i);
  const size_t s = layout.rfind("TN", 0) == 0 || layout.rfind("NT", 0) == 0 ? layout.find('T') : layout.find('S');
  if (s == std::string::npos || static_cast<int>(s) >= key.ndim) return;
  work.cube = 4 * items(c.tensor(q)) * static_cast<double>(key.sizes[s]) * (has(c.row->name, "Grad") ? 2.5 : 1);
  work.item_bits = bits_of_item(c.tensor(q));
}

}  // namespace

Work Call::work() const {
  Work work;
  double most = 0;
  for (const TensorMeta& t : metas) {
    if (!t.given()) continue;
    double stored = 1;                  // what is read again and again (stride 0) comes from memory once
    for (int d = 0; d < t.ndim; ++d) stored *= t.strides[d] ? static_cast<double>(t.sizes[d]) : 1;
    work.bytes += stored * bits_of_item(t) / 8;
    most = std::max(most, items(t));
  }
  work.vector = most;
  const char* name = row->name;
  if (has(name, "Attention") || has(name, "PromptFlash")) estimate_attention(*this, work);
  else if (has(name, "aclnnConv") || has(name, "QuantConvolution")) estimate_convolution(*this, work);
  else if (has(name, "atmul") || has(name, "MatMul") || has(name, "ddmm") || has(name, "ddbmm") || has(name, "ddmv") ||
           !std::strcmp(name, "aclnnMm") || !std::strcmp(name, "aclnnMv") || !std::strcmp(name, "aclnnGemm"))
    estimate_product(*this, work);
  return work;
}

}  // namespace cann_sim
