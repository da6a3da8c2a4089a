// How an op of the older interface (aclop) is written: a row with its name and numbers of operands, and a function over
// values. Its operands are dense; lists of numbers may lie in host memory.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ops/op.h"

struct aclopAttr;

namespace cann_sim {

// An input or output as the client described it.
struct OlderOperand {
  aclDataType dtype = ACL_DT_UNDEFINED;  // undefined: absent
  Sizes dims;
  void* data = nullptr;
  size_t bytes = 0;
  std::vector<char> host;                // the content, where it lies in host memory
  bool given() const { return dtype != ACL_DT_UNDEFINED; }
  int64_t numel() const;
};

// A call while the stream's worker runs it.
class Older {
 public:
  Older(const char* op, std::vector<OlderOperand> in, std::vector<OlderOperand> out, const aclopAttr* attr,
        std::map<size_t, Sizes>* found = nullptr);
  ~Older();
  bool given(size_t i) const { return i < in_.size() && in_[i].given(); }
  Value in(size_t i);                    // absent: an absent value
  Value out(size_t i);
  Value found(size_t i, const Sizes& sizes);  // the first items of output i, with a shape that only the values tell
  // The memory of an operand under other sizes, strides and an offset, as far as its allocation goes: clients describe a view
  // by its own sizes.
  Value strided_in(size_t i, const Sizes& sizes, const Sizes& strides, int64_t offset) { return strided(in_.at(i), sizes, strides, offset); }
  Value strided_out(size_t i, const Sizes& sizes, const Sizes& strides, int64_t offset) { return strided(out_.at(i), sizes, strides, offset); }
  size_t inputs() const { return in_.size(); }
  Sizes numbers(size_t i);               // an input of integers
  double number(size_t i);               // an input of one item
  // Attributes; `otherwise` where the client set none.
  int64_t integer(const char* name, int64_t otherwise) const;
  double real(const char* name, double otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  Sizes list(const char* name) const;
  std::vector<double> reals(const char* name) const;
  const char* name() const { return op_.c_str(); }
  [[noreturn]] void refuse(const std::string& why) const;  // what cannot be computed, seen on the device

 private:
  Value value(OlderOperand& operand);
  Value strided(OlderOperand& operand, const Sizes& sizes, const Sizes& strides, int64_t offset);
  std::string op_;
  std::vector<OlderOperand> in_, out_;
  std::unique_ptr<aclopAttr> attr_;
  std::map<size_t, Sizes>* found_;
  Pins pins_;
};

struct OlderOp {
  const char* name;
  size_t least, most, outputs;           // numbers of operands
  void (*run)(Older&);
  void (*check)(Older&) = nullptr;       // refuses by sizes and attributes, before the call is queued
};
// Rows register themselves when the library is opened: static const OlderOps ops({...});
struct OlderOps {
  OlderOps(std::initializer_list<OlderOp> rows);
};

// A scalar as a row of one item: axis 0 of a scalar is valid.
inline Value row_of(const Value& v) { return v.ndim ? v : v.unsqueeze(0); }
// Axes as clients give them, from 0 on; none means all dims.
Sizes axes_of(Older& o, const Sizes& given, int64_t ndim);
// The loss of every item becomes output 0: each, or their mean or sum, as the attribute `reduction` says.
void reduce_loss(Older& o, const Value& each);

// f(items) for every place of a shape, in float32; `items` points to one item of each input, which broadcast to the shape.
template <class F> Value zipped(const Sizes& shape, const std::vector<Value>& inputs, F&& f) {
  std::vector<Value> dense;
  for (const Value& v : inputs) dense.push_back(v.to(mt::kFloat).expand(shape).dense());
  const Value made = empty(shape, mt::kFloat);
  std::vector<float> items(inputs.size());
  for (int64_t i = 0, n = made.numel(); i < n; ++i) {
    for (size_t k = 0; k < dense.size(); ++k) items[k] = dense[k].ptr<float>()[i];
    made.ptr<float>()[i] = static_cast<float>(f(items.data()));
  }
  return made;
}

// (x, gamma, beta): y, the mean, and the variance or 1 / deviation of rows of `width` items (older_plain.cpp).
void layer_norm_of(Older& o, int64_t width, bool gives_variance);

// The door for libacl_op_compiler: checks the call and queues it. With `found`, waits for it and says the outputs' shapes that
// only the values told.
CANN_SIM_API int run_older(const char* op, std::vector<OlderOperand> in, std::vector<OlderOperand> out,
                           const aclopAttr* attr, aclrtStream stream, std::map<size_t, Sizes>* found = nullptr);

}  // namespace cann_sim
