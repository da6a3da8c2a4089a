// The common iteration space of several strided operands (dims squeezed, ordered, coalesced) and a cursor in it.
// No arithmetic and no dtypes: bytes only.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "view.h"

namespace mt {

constexpr int kMaxOperands = 6;

// Dims run from the outermost to the innermost; strides are in bytes. There is always at least one dim.
struct Strided {
  int nops = 0, ndim = 0;
  int64_t numel = 1;
  char* base[kMaxOperands];
  int width[kMaxOperands];
  int64_t size[kMaxDims];
  int64_t stride[kMaxDims][kMaxOperands];

  // The space of t[0]; the others are broadcast to it.
  Strided(const View* t, int n) : nops(n) {
    for (int i = 0; i < n; ++i) {
      base[i] = static_cast<char*>(t[i].data);
      width[i] = itemsize(t[i].dtype);
      if (t[i].ndim > t[0].ndim) squeeze_check(t[i], t[0]);
    }
    const View& out = t[0];
    for (int d = 0; d < out.ndim; ++d) {
      numel *= out.sizes[d];
      if (out.sizes[d] == 1) check_broadcast(t, d);
      else push(t, d);
    }
    if (ndim == 0) unit_dim();
    else if (numel > 0) order(), coalesce();
  }

  int64_t inner_size() const { return size[ndim - 1]; }
  const int64_t* inner_stride() const { return stride[ndim - 1]; }

 private:
  static void squeeze_check(const View& v, const View& out) {
    for (int d = 0; d < v.ndim - out.ndim; ++d)
      if (v.sizes[d] != 1) throw std::runtime_error("a tensor of " + std::to_string(v.ndim) +
          " dimensions does not broadcast to an output of " + std::to_string(out.ndim));
  }
  // dim d of t[0], in operand i: its size and stride (0 where broadcast).
  static int64_t byte_stride(const View* t, int i, int d) {
    int e = d - (t[0].ndim - t[i].ndim);
    if (e < 0) return 0;
    if (t[i].sizes[e] == t[0].sizes[d]) return t[i].strides[e] * itemsize(t[i].dtype);
    if (t[i].sizes[e] == 1) return 0;
    mismatch(t[0].sizes[d], t[i].sizes[e], d);
  }
  // Out of the way, so that byte_stride is inlined.
  [[noreturn, gnu::noinline, gnu::cold]] static void mismatch(int64_t a, int64_t b, int d) {
    throw std::runtime_error("The size of tensor a (" + std::to_string(a) + ") must match the size of tensor b (" +
        std::to_string(b) + ") at non-singleton dimension " + std::to_string(d));
  }
  void check_broadcast(const View* t, int d) const {
    for (int i = 1; i < nops; ++i) byte_stride(t, i, d);
  }
  void push(const View* t, int d) {
    size[ndim] = t[0].sizes[d];
    for (int i = 0; i < nops; ++i) stride[ndim][i] = byte_stride(t, i, d);
    ++ndim;
  }
  void unit_dim() {
    ndim = 1;
    size[0] = 1;
    for (int i = 0; i < nops; ++i) stride[0][i] = width[i];
  }
  // Whether dim a belongs inside dim b: by the first operand that tells them apart, outputs first.
  bool belongs_inside(int a, int b) const {
    for (int i = 0; i < nops; ++i) {
      int64_t x = std::abs(stride[a][i]), y = std::abs(stride[b][i]);
      if (x == 0 || y == 0 || x == y) continue;
      return x < y;
    }
    return false;
  }
  void order() {
    for (int d = 1; d < ndim; ++d)
      for (int e = d; e > 0 && belongs_inside(e - 1, e); --e) {
        std::swap(size[e - 1], size[e]);
        for (int i = 0; i < nops; ++i) std::swap(stride[e - 1][i], stride[e][i]);
      }
  }
  void coalesce() {
    int last = 0;  // the dim being grown
    for (int d = 1; d < ndim; ++d) {
      bool joins = true;
      for (int i = 0; i < nops; ++i) joins &= stride[last][i] == stride[d][i] * size[d];
      if (joins) size[last] *= size[d];
      else size[++last] = size[d];
      for (int i = 0; i < nops; ++i) stride[last][i] = stride[d][i];
    }
    ndim = last + 1;
  }
};

// A place in a Strided space, with every operand's address there.
struct Cursor {
  const Strided& s;
  int64_t index[kMaxDims];
  char* ptr[kMaxOperands];

  Cursor(const Strided& space, int64_t at) : s(space) {
    for (int d = s.ndim - 1; d >= 0; --d) {
      index[d] = d && at ? at % s.size[d] : at;
      if (at) at /= s.size[d];
    }
    locate();
  }
  Cursor(const Cursor& o) : s(o.s) {  // of the dims in use only
    std::copy_n(o.index, s.ndim, index);
    std::copy_n(o.ptr, s.nops, ptr);
  }
  int64_t row_left() const { return s.inner_size() - index[s.ndim - 1]; }
  void advance(int64_t m) {
    int d = s.ndim - 1;
    index[d] += m;
    if (index[d] < s.size[d]) {
      for (int i = 0; i < s.nops; ++i) ptr[i] += m * s.stride[d][i];
      return;
    }
    for (; d > 0 && index[d] >= s.size[d]; --d) {
      if (index[d] == s.size[d]) {  // nearly always, and without the division
        ++index[d - 1];
        index[d] = 0;
        continue;
      }
      index[d - 1] += index[d] / s.size[d];
      index[d] %= s.size[d];
    }
    locate();
  }

 private:
  void locate() {
    for (int i = 0; i < s.nops; ++i) ptr[i] = s.base[i];
    for (int d = 0; d < s.ndim; ++d)
      for (int i = 0; i < s.nops; ++i) ptr[i] += index[d] * s.stride[d][i];
  }
};

}  // namespace mt
