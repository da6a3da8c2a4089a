// How an aclnn op is written: a check for the first phase, a run for the second, over values of ops/value.h.
#pragma once
#include "aclnn/call.h"
#include "ops/value.h"

namespace cann_sim {

// Refuses with 161002 (ACLNN_ERR_PARAM_INVALID) unless the condition holds: expect(c, "dim %ld out of range", dim).
#define EXPECT(condition, ...) \
  do { if (!(condition)) ::cann_sim::refuse(161002, __VA_ARGS__); } while (0)

// A call while the stream's worker runs it: its tensors as values over host addresses.
class Run {
 public:
  explicit Run(const Call& call);
  const Call& call;
  bool given(int i) const { return call.given(i); }
  Value tensor(int i) {                                     // an absent tensor gives an absent value
    return rounds_ && rounds_as_hf32(i) ? hf32(value(call.tensor(i))) : value(call.tensor(i));
  }
  std::vector<Value> tensors(int i);
  Value value(const TensorMeta& meta);
  // Tensors of int4, two to a byte and the first in the low bits: read as int8, and written from it.
  Value int4(const TensorMeta& meta);
  void set_int4(const TensorMeta& meta, const Value& items);
  // A dynamic-output op says the shape that its argument i really got; the client reads it with aclGetViewShape.
  void set_shape(int i, const std::vector<int64_t>& sizes);

 private:
  template <class F> void each_int4(const TensorMeta& meta, F&& visit);
  bool rounds_as_hf32(int i) const;                         // whether the argument is a factor of a float32 product
  static Value hf32(const Value& v);
  Pins pins_;
  bool rounds_ = false;                                     // with CANN_SIM_HF32, where cubeMathType allows it
};

using Check = void (*)(const Call&);                        // throws Refusal; the row's own facts were checked before
using Execute = void (*)(Run&);
struct OpImpl {
  Check check;                                              // nullptr: the row says all
  Execute run;
  uint64_t (*workspace)(const Call&);                       // nullptr: a default by the tensors' layout
};
// static const Op softmax("aclnnSoftmax", check_softmax, run_softmax);
struct Op {
  Op(const char* name, Check check, Execute run, uint64_t (*workspace)(const Call&) = nullptr);
};

uint64_t scratch_of(const TensorMeta& t);                   // bytes of workspace for a contiguous copy; 0: it is contiguous

// ---- checks that many ops share (all throw Refusal 161002 naming the op's arguments) ----------------------------
std::string describe(const TensorMeta& t);                                    // "float32 [2, 3]"
std::vector<int64_t> sizes_of(const TensorMeta& t);
void expect_shape(const Call& c, int i, const std::vector<int64_t>& sizes);   // argument i has exactly these sizes
void expect_same_shape(const Call& c, int i, int j);
void expect_same_dtype(const Call& c, int i, int j);
void expect_math_type(const Call& c, int i, int operand);                     // argument i is a cubeMathType of this SoC
int64_t wrap_dim(int64_t dim, int64_t ndim);                                  // negative counts from the end; refuses
std::vector<int64_t> broadcast_sizes(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
bool can_cast(mt::DType from, mt::DType to);   // aclnn's rule for outputs: all but complex -> bool/int.., x -> bool

}  // namespace cann_sim
