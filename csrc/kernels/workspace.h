// Memory that a kernel needs on every thread for the time of a piece of its work.
#pragma once
#include <cstddef>
#include <cstdint>

namespace mt {

// Not set, and on a line of the cache. A thread keeps two blocks of moderate size: to take one from what all threads share
// costs sixteen of them, which do so at once, more than a small product, and fresh pages cost more still.
class Workspace {
 public:
  explicit Workspace(int64_t bytes);
  Workspace(const Workspace&) = delete;
  ~Workspace();
  template <class T> T* get() const { return static_cast<T*>(memory_); }

 private:
  void* memory_;
  size_t bytes_;
};

}  // namespace mt
