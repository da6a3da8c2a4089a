// A view as contiguous memory of a wanted dtype, for kernels whose loops know only that; the strided copies
// themselves are in copy.cpp.
#pragma once
#include <memory>
#include <stdexcept>
#include <string>

#include "library.h"

namespace mt {

// The view's own memory where it already fits, else a temporary. An input is loaded at construction; an output is
// written back by store().
class Dense {
 public:
  enum Mode { kLoad, kOutput, kOwnCopy };  // kOwnCopy: load into a temporary in any case, to be changed freely

  Dense(const View& v, DType dtype, Mode mode = kLoad) : outer_(v), mine_(v) {
    mine_.dtype = dtype;
    if (mode != kOwnCopy && v.dtype == dtype && v.contiguous()) return;
    int64_t want = 1;
    for (int d = v.ndim - 1; d >= 0; --d) {
      strides_[d] = want;
      want *= v.sizes[d];
    }
    mine_.strides = strides_;
    memory_.reset(new char[size_t(v.numel()) * itemsize(dtype) + 64]);
    mine_.data = memory_.get();
    if (mode != kOutput) copy(mine_, v);
  }
  Dense(const Dense&) = delete;
  Dense& operator=(const Dense&) = delete;

  template <class T> T* ptr() const { return static_cast<T*>(mine_.data); }
  void* data() const { return mine_.data; }
  const View& view() const { return mine_; }
  void store() const {
    if (memory_) copy(outer_, mine_);
  }

 private:
  View outer_, mine_;
  int64_t strides_[kMaxDims];
  std::unique_ptr<char[]> memory_;
};

// The dtype a kernel that knows no 16-bit floats computes in.
inline DType widened(DType d) { return is_float8(d) ? d : wide_of(d); }  // kernels refuse the 8-bit floats

// Item i of an int list that may be given as one number for all dims, or left empty for a default.
inline int64_t list_item(const Attr& a, int64_t i, int64_t otherwise = 1) {
  if (a.list == nullptr) return a.given && a.n == 0 ? a.i : otherwise;
  if (a.n > 1 && i >= a.n) throw std::runtime_error("expected a list of " + std::to_string(i + 1) + " ints or more");
  return a.n == 0 ? otherwise : a.list[a.n == 1 ? 0 : i];
}

}  // namespace mt
