// A row of plain items with room for a few of them inside; more lie on the heap until the row is cleared.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace cann_sim {

// Calls are pooled and outlive many ops. A std::vector would keep the most that it ever held: thousands of prepared calls
// would each grow to the longest list that has come along.
template <class T, size_t Inside>
class Items {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Items() = default;
  ~Items() { clear(); }
  Items(const Items&) = delete;
  Items& operator=(const Items& other) {
    if (this == &other) return *this;
    clear();
    append(other.begin(), other.end());
    return *this;
  }

  void reserve(size_t n) {
    if (n > room_) grow(n);
  }
  void push_back(const T& x) {
    if (size_ == room_) {
      const T held = x;  // x may be one of these
      grow(room_ * 2);
      std::memcpy(static_cast<void*>(data_ + size_++), &held, sizeof(T));
    } else {
      std::memcpy(static_cast<void*>(data_ + size_++), &x, sizeof(T));
    }
  }
  template <class From>
  void append(const From* first, const From* last) {  // of another row
    reserve(size_ + static_cast<size_t>(last - first));
    if constexpr (std::is_same_v<T, From>) {
      if (first != last) std::memcpy(static_cast<void*>(data_ + size_), first, sizeof(T) * static_cast<size_t>(last - first));
    } else {
      std::transform(first, last, data_ + size_, [](const From& x) { return static_cast<T>(x); });
    }
    size_ += static_cast<size_t>(last - first);
  }
  void clear() noexcept {
    if (data_ != inside()) ::operator delete(data_);
    data_ = inside();
    room_ = Inside;
    size_ = 0;
  }

  size_t size() const { return size_; }
  const T* data() const { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  T* inside() { return reinterpret_cast<T*>(bytes_); }
  void grow(size_t room) {
    T* more = static_cast<T*>(::operator new(room * sizeof(T)));  // may throw: until then nothing is changed
    std::memcpy(static_cast<void*>(more), data_, size_ * sizeof(T));
    if (data_ != inside()) ::operator delete(data_);
    data_ = more;
    room_ = room;
  }
  alignas(T) unsigned char bytes_[Inside * sizeof(T)];
  T* data_ = inside();
  size_t size_ = 0, room_ = Inside;
};

}  // namespace cann_sim
