// Values that ops compute with on a stream's worker: strided views over host memory, and the kernels of csrc/kernels.
#pragma once
#include <initializer_list>
#include <memory>
#include <vector>

#include "acl_abi.h"
#include "library.h"   // csrc/kernels

struct aclScalar;

namespace cann_sim {

using mt::DType;
using Sizes = std::vector<int64_t>;

class Value {
 public:
  static constexpr int kMax = 16;        // temporaries may have more dims than CANN's 8
  void* data = nullptr;
  int64_t sizes[kMax], strides[kMax];    // strides count elements
  int32_t ndim = -1;                     // -1: absent
  DType dtype = mt::kFloat;
  std::shared_ptr<void> owner;           // of a temporary

  bool given() const { return ndim >= 0; }
  int64_t numel() const;
  bool contiguous() const;
  Sizes shape() const {
    if (ndim < 0) refuse_absent();
    return Sizes(sizes, sizes + ndim);
  }
  int64_t size(int64_t dim) const;                   // throws where there is no such dim
  template <class T> T* ptr() const {                // of an absent value: throws
    if (ndim < 0) refuse_absent();
    return static_cast<T*>(data);
  }
  mt::View view() const { return ndim < 0 ? mt::View{} : mt::View{data, sizes, strides, ndim, dtype}; }

  // Views of the same memory. Dims may be negative.
  Value transpose(int64_t a, int64_t b) const;
  Value permute(const Sizes& order) const;
  Value narrow(int64_t dim, int64_t start, int64_t length, int64_t step = 1) const;
  Value select(int64_t dim, int64_t index) const;
  Value unsqueeze(int64_t dim) const;
  Value squeeze(int64_t dim) const;
  Value expand(const Sizes& to) const;               // NumPy's broadcasting, throws when impossible
  Value as(DType bits) const;                        // the same bytes under another dtype of the same size
  Value reshape(const Sizes& to) const;              // a view when contiguous, else a copy; one -1 is allowed
  // The same value under another dtype or layout; itself when nothing changes.
  Value to(DType dtype) const;
  Value dense() const;

 private:
  [[noreturn]] static void refuse_absent();
};

Value empty(const Sizes& sizes, DType dtype);
Value full(const Sizes& sizes, DType dtype, double value);
void copy(const Value& into, const Value& from);     // casts and broadcasts
void fill(const Value& into, double value);
Value cat(const std::vector<Value>& parts, int64_t dim);  // a copy of all, one after the other along a dim

mt::Attr number(double x);
mt::Attr integer(int64_t x);                         // also bool and enum values
mt::Attr scalar(const aclScalar& s);
mt::Attr list(const int64_t* items, int64_t n);      // the items must outlive the call
mt::Attr list(const Sizes& items);
mt::Attr string(const char* s);
mt::Attr none();

const mt::Library& kernels();                        // opened on first use
bool has_kernel(const char* name);
// Calls a kernel of csrc/kernels by name: outputs, then tensor inputs, then the other arguments, as its schema says.
void call_kernel(const char* name, std::initializer_list<Value> tensors, std::initializer_list<mt::Attr> attrs = {},
                 mt::Generator* generator = nullptr);
void call_kernel(const char* name, const std::vector<Value>& tensors, const std::vector<mt::Attr>& attrs,
                 mt::Generator* generator = nullptr);
// A pointwise kernel: inputs broadcast to output 0's shape; everything is cast to `compute` and back.
void call_pointwise(const char* name, DType compute, std::initializer_list<Value> tensors,
                    std::initializer_list<mt::Attr> attrs = {});
// Whether a quotient or remainder of whole numbers has a zero to divide by; then it has been computed.
bool divided_over_zero(const char* name, DType compute, const Value& out, const Value& a, const Value& b);

// ---- dtypes --------------------------------------------------------------------------------------------------
DType dtype_of(aclDataType t);                       // refuses with 161002 what no kernel computes (uint16, float8 ...)
bool computes(aclDataType t);                        // whether dtype_of would succeed
bool converts(aclDataType t);           // computes with it, or only converts it: then dtype_of() refuses
DType converted_dtype(aclDataType t);
DType bits_of(aclDataType t);                        // an unsigned stand-in of the same size, to move data of any type
DType promote(DType a, DType b);                     // torch's and aclnn's table
DType promote(DType tensor, const aclScalar& s);     // tensor with number: only a higher category changes the dtype
DType opmath(DType t);                               // float for half and bfloat16, else itself
DType real_of(DType t);
inline bool is_float(DType t) { return mt::is_floating(t); }

}  // namespace cann_sim
