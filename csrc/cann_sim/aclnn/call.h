// One aclnn call between its two phases: the arguments copied out of the client's objects, and the executor that holds them.
#pragma once
#include <cstdarg>
#include <string>
#include <vector>

#include "aclnn/items.h"
#include "aclnn/objects.h"

namespace cann_sim {

// Thrown by checks: the call is refused with this code and message.
struct Refusal {
  int code;
  std::string message;
};
[[noreturn]] CANN_SIM_API void refuse(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));

template <class T>
struct Span {
  const T* data = nullptr;
  int64_t n = 0;
  const T* begin() const { return data; }
  const T* end() const { return data + n; }
  const T& operator[](int64_t i) const { return data[i]; }
  int64_t size() const { return n; }
};

// An argument: where its items lie in the call's pools (tensors, numbers, ...), or its plain value.
struct Arg {
  Kind kind;
  bool given = false;
  int32_t first = 0, count = 0;
  int64_t i = 0;
  double d = 0;
};

// One of the client's objects, as it was in the first phase.
struct Described {
  const void* handle;
  uint32_t serial;
  int32_t argument;
};

class CANN_SIM_API Call final : public Task {
 public:
  static Call* make(const OpRow& row);  // from a pool; one reference
  Call* clone() const;                  // for a repeatable executor: the same arguments, one reference

  // Arguments by position, as in the op's row of src/cann_tables/aclnn.txt.
  bool given(int i) const { return args[i].given; }
  const TensorMeta& tensor(int i) const { return metas[args[i].first]; }     // ndim -1 when not given
  Span<TensorMeta> tensors(int i) const { return {metas.data() + args[i].first, args[i].count}; }
  const aclScalar& scalar(int i) const { return scalars_[args[i].first]; }
  Span<aclScalar> scalars(int i) const { return {scalars_.data() + args[i].first, args[i].count}; }
  Span<int64_t> ints(int i) const { return {ints_.data() + args[i].first, args[i].count}; }    // also bools
  Span<double> floats(int i) const { return {floats_.data() + args[i].first, args[i].count}; }
  int64_t integer(int i) const { return args[i].i; }                         // every integer kind, bool, dtype
  double number(int i) const { return args[i].d; }                           // double and float
  const char* string(int i) const { return strings_[args[i].first].c_str(); }

  void run() override { execute(*this); }
  const char* name() const override { return row->name; }
  void list_uses(std::vector<Access>& uses) const override;
  Work work() const override;

  const OpRow* row = nullptr;
  void (*execute)(const Call&) = nullptr;
  Items<Arg, 8> args;
  Items<TensorMeta, 4> metas;           // every tensor, lists laid flat, in argument order
  Items<aclTensor*, 4> handles;         // the client's object behind each of metas
  Items<aclScalar, 2> scalars_;
  Items<int64_t, 8> ints_;
  Items<double, 2> floats_;
  std::vector<std::string> strings_;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
  std::vector<Described> described;     // with CANN_SIM_CHECK=memory: what has to live until the second phase

 private:
  void destroy() override;              // back to the pool
};

}  // namespace cann_sim

struct aclOpExecutor {
  cann_sim::Call* call;
  bool repeatable = false;
  explicit aclOpExecutor(cann_sim::Call* c) : call(c) {}
  ~aclOpExecutor() { call->release(); }
};
