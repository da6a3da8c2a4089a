// Pointwise aclnn ops as rows of a table: name, kernel, dtype rule, and which arguments go where. The rows are in the
// files that register them.
#pragma once
#include <utility>

#include "ops/op.h"

namespace cann_sim {

// Which dtype an op computes in, from those of its operands, and what dtype its result has.
enum class Rule : uint8_t {
  promote,    // the promoted dtype
  attributes, // the same, and numbers that are attributes take part (the bounds of clamp)
  floating,   // integers become float32
  boolean,    // computed in the promoted dtype; the result is bool
  real,       // the result is the real counterpart (abs of complex)
  select,     // operand 0 is a mask and takes no part (where)
};

struct PointwiseOp {
  const char* name;                   // "aclnnAdd"; nullptr: only the in-place form exists
  const char* inplace;                // "aclnnInplaceAdd"; nullptr: there is none
  const char* kernel;                 // of csrc/kernels
  Rule rule = Rule::promote;
  const char* operands = "0";         // positions of the kernel's inputs: tensors, or scalars as 0-dim tensors
  const char* attributes = "";        // positions of its other arguments; '-' is not given, '+' is the number 1
  const mt::Pointwise* own = nullptr; // the kernel itself, where csrc/kernels has none
};

constexpr int kMostOperands = 3, kMostAttributes = 4;

const mt::Pointwise* kernel_of(const PointwiseOp& op);
// For the item-th tensors of lists; `item` means nothing to an op without lists.
void check_pointwise(const Call& c, const PointwiseOp& op, const mt::Pointwise* kernel, int64_t item = 0);
void run_pointwise(Run& run, const PointwiseOp& op, const mt::Pointwise* kernel, int64_t item = 0);
// Ops over tensor lists: all of the above for every item, and lists of one length.
void check_foreach(const Call& c, const PointwiseOp& op, const mt::Pointwise* kernel);
void run_foreach(Run& run, const PointwiseOp& op, const mt::Pointwise* kernel);

// What composites are written with: the kernel over new memory or into `out`, computed in `compute`.
Value pointwise(const char* kernel, DType compute, std::initializer_list<Value> inputs,
                std::initializer_list<mt::Attr> attributes = {});
// A number as a 0-dim value of the scalar's own category.
Value value_of(const aclScalar& s);
// Argument `out` must have the shape that these arguments broadcast to.
void expect_broadcast(const Call& c, std::initializer_list<int> inputs, int out);
// Argument i, where it is given, is a number in a tensor.
void expect_one_element(const Call& c, int i);
// A result of this dtype may be written to argument i.
void expect_result(const Call& c, DType result, int i);
int output_of(const Call& c);         // the first argument that is written

// ---- registration: one pair of functions an op, made from the table's row -----------------------
template <const auto& rows, size_t i> const mt::Pointwise* row_kernel() {
  static const mt::Pointwise* const found = kernel_of(rows[i]);
  return found;
}
template <const auto& rows, size_t i> void check_row(const Call& c) {
  check_pointwise(c, rows[i], row_kernel<rows, i>());
}
template <const auto& rows, size_t i> void run_row(Run& r) { run_pointwise(r, rows[i], row_kernel<rows, i>()); }
template <const auto& rows, size_t i> void check_foreach_row(const Call& c) {
  check_foreach(c, rows[i], row_kernel<rows, i>());
}
template <const auto& rows, size_t i> void run_foreach_row(Run& r) { run_foreach(r, rows[i], row_kernel<rows, i>()); }
inline void enter(const PointwiseOp& op, Check check, Execute run) {
  if (op.name) Op(op.name, check, run);
  if (op.inplace) Op(op.inplace, check, run);
}
template <const auto& rows, size_t... i> int enter_all(std::index_sequence<i...>) {
  (enter(rows[i], check_row<rows, i>, run_row<rows, i>), ...);
  return sizeof...(i);
}
template <const auto& rows, size_t... i> int enter_foreach(std::index_sequence<i...>) {
  (enter(rows[i], check_foreach_row<rows, i>, run_foreach_row<rows, i>), ...);
  return sizeof...(i);
}
#define REGISTER_POINTWISE(rows) \
  [[maybe_unused]] const int rows##_entered = enter_all<rows>(std::make_index_sequence<std::size(rows)>())
#define REGISTER_FOREACH(rows) \
  [[maybe_unused]] const int rows##_entered = enter_foreach<rows>(std::make_index_sequence<std::size(rows)>())

}  // namespace cann_sim
