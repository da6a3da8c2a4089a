// The table of aclnn ops as compiled from src/cann_tables/aclnn.txt, and the two phases that every export calls.
#pragma once
#include "acl_abi.h"

namespace cann_sim {

enum class Kind : uint8_t {
  k_tensor, k_out, k_inout, k_tensors, k_outs, k_inouts, k_scalar, k_scalars, k_ints, k_floats, k_bools, k_string,
  k_int64, k_int32, k_int8, k_uint64, k_bool, k_dtype, k_double, k_float
};
inline bool is_tensor(Kind k) { return k <= Kind::k_inout; }
inline bool is_tensor_list(Kind k) { return k >= Kind::k_tensors && k <= Kind::k_inouts; }
inline bool is_output(Kind k) {
  return k == Kind::k_out || k == Kind::k_inout || k == Kind::k_outs || k == Kind::k_inouts;
}

struct ArgRow {
  const char* name;
  Kind kind;
  bool optional, dense;
  int8_t min_rank, max_rank;
  uint64_t dtypes;        // a bit per aclDataType; 0: not restricted
};
struct OpImpl;            // ops/op.h
struct OpRow {
  const char* name;
  const ArgRow* args;
  int nargs;              // -1: the arguments are not known
  bool dynamic_output, may_be_unrepeatable;
  uint32_t families;      // a bit per item of family_names, of those with kernels; 0: all
  const OpImpl* impl;     // nullptr: exported, and refused with 561003
};
extern OpRow op_rows[];
extern const int op_count;
extern const char* const family_names[];  // of SoCs; ends with nullptr
extern const char* const families_without_bfloat16[];

union Raw {               // one argument as it came
  const void* p;
  int64_t i;
  double d;
  static Raw p_(const void* x) { Raw r; r.p = x; return r; }
  static Raw i_(int64_t x) { Raw r; r.i = x; return r; }
  static Raw d_(double x) { Raw r; r.d = x; return r; }
};
int first_phase(const OpRow& row, const Raw* raw, uint64_t* workspace, aclOpExecutor** executor);
int second_phase(const OpRow& row, void* workspace, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream);
int refuse_op(const OpRow& row);

}  // namespace cann_sim
