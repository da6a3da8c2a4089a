// What a kernel sees of the world: dtypes, strided views, attributes. Nothing of Python, Tensor or ACL.
#pragma once
#include <complex>
#include <cstdint>
#include <cstring>

#include "dtype.h"

namespace mt {

constexpr int kMaxDims = 128;

// The two 16-bit floats are storage formats: arithmetic happens in float. Conversions round to nearest even.
struct f16 { uint16_t bits; };
struct bf16 { uint16_t bits; };
// An item of a bool tensor in memory. Any byte but 0 is true: a uint8 tensor may be viewed as bool. Memory is never read
// as C++'s bool, of which the compiler assumes that it is 0 or 1.
struct b8 {
  uint8_t byte;
  b8() = default;
  b8(bool v) : byte(v) {}
  operator bool() const { return byte != 0; }
};
struct c32 { f16 re, im; };  // complex32: computed in complex64
using c64 = std::complex<float>;
using c128 = std::complex<double>;

// A strided view over memory it does not own. Strides count elements and may be 0 (expanded) or, inside the
// library only, negative. ndim == -1 stands for an optional tensor that was not given.
struct View {
  void* data = nullptr;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int32_t ndim = -1;
  DType dtype = kFloat;

  bool given() const { return ndim >= 0; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= sizes[d];
    return n;
  }
  bool contiguous() const {
    int64_t want = 1;
    for (int d = ndim - 1; d >= 0; --d) {
      if (sizes[d] == 0) return true;
      if (sizes[d] != 1 && strides[d] != want) return false;
      want *= sizes[d];
    }
    return true;
  }
  template <class T> T* ptr() const { return static_cast<T*>(data); }
};

// One non-tensor argument of an op, in schema order. A number fills f, im and i at once (i truncates); bool and
// enum values are in i; a list is in list/flist with n items; None leaves given == false.
struct Attr {
  double f = 0, im = 0;
  int64_t i = 0;
  const int64_t* list = nullptr;
  const double* flist = nullptr;
  const char* s = nullptr;
  int32_t n = 0;
  bool given = false;
};

struct Generator;  // random.h

// The call of one kernel: outputs first, then tensor inputs in schema order (a Tensor[] is laid flat and also
// adds an Attr whose i is its length), and every other argument as an Attr in schema order.
struct Args {
  const View* t = nullptr;
  int32_t nt = 0;
  const Attr* a = nullptr;
  int32_t na = 0;
  Generator* generator = nullptr;
};
using Kernel = void (*)(const Args&);

}  // namespace mt
