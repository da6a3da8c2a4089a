// Checks of what a kernel relies on and the op's rule may not have looked at.
#pragma once
#include <stdexcept>
#include <string>

#include "view.h"

namespace mt {

inline std::string sizes_text(const View& v) {
  std::string text = "[";
  for (int d = 0; d < v.ndim; ++d) text += (d ? ", " : "") + std::to_string(v.sizes[d]);
  return text + "]";
}

inline bool same_sizes(const View& a, const View& b) {
  if (a.ndim != b.ndim) return false;
  for (int d = 0; d < a.ndim; ++d)
    if (a.sizes[d] != b.sizes[d]) return false;
  return true;
}

inline void expect(bool holds, const char* op, const char* what) {
  if (!holds) throw std::runtime_error(std::string(op) + ": " + what);
}

// That a tensor, if given, has the sizes of another.
inline void expect_like(const View& v, const View& like, const char* op, const char* what) {
  if (v.given() && !same_sizes(v, like))
    throw std::runtime_error(std::string(op) + ": expected " + what + " of size " + sizes_text(like) + ", but got " +
                             sizes_text(v));
}

// That a tensor, if given, has n items.
inline void expect_items(const View& v, int64_t n, const char* op, const char* what) {
  if (v.given() && v.numel() != n)
    throw std::runtime_error(std::string(op) + ": " + what + " should contain " + std::to_string(n) +
                             " elements not " + std::to_string(v.numel()));
}

}  // namespace mt
