// Pools of the objects that clients hold as opaque pointers: a wild, destroyed or foreign pointer is recognised, never followed.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace cann_sim {

// T's slots live in one reserved range. make() and drop() are short critical sections; check() takes no lock.
template <class T>
class Handles {
 public:
  explicit Handles(size_t capacity) : capacity_(capacity) {
    void* range = mmap(nullptr, capacity * sizeof(Slot), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    slots_ = static_cast<Slot*>(range);
  }

  template <class... Args>
  T* make(Args&&... args) {  // nullptr: all handles are in use
    std::lock_guard<std::mutex> hold(mutex_);
    Slot* slot = free_;
    if (slot) {
      free_ = slot->next;
    } else {
      if (used_ == capacity_) return nullptr;
      slot = &slots_[used_++];
    }
    T* made = new (slot->bytes) T(std::forward<Args>(args)...);
    slot->live.store(true, std::memory_order_release);
    ++live_;
    return made;
  }

  // Whether p is a live object of this pool.
  bool check(const void* p) const {
    auto at = reinterpret_cast<uintptr_t>(p), begin = reinterpret_cast<uintptr_t>(slots_);
    if (at < begin || at >= begin + capacity_ * sizeof(Slot) || (at - begin) % sizeof(Slot)) return false;
    return reinterpret_cast<const Slot*>(at)->live.load(std::memory_order_acquire);
  }
  T* get(const void* p) const { return check(p) ? static_cast<T*>(const_cast<void*>(p)) : nullptr; }

  bool drop(const void* p) {  // false: not a live object
    std::lock_guard<std::mutex> hold(mutex_);
    if (!check(p)) return false;
    Slot* slot = reinterpret_cast<Slot*>(const_cast<void*>(p));
    slot->live.store(false, std::memory_order_release);
    static_cast<T*>(const_cast<void*>(p))->~T();
    slot->next = free_;
    free_ = slot;
    --live_;
    return true;
  }
  size_t live() const { return live_; }

 private:
  struct Slot {
    alignas(alignof(T)) unsigned char bytes[sizeof(T)];  // first, so that a handle is its slot's address
    std::atomic<bool> live;
    Slot* next;
  };
  Slot* slots_ = nullptr;
  Slot* free_ = nullptr;
  size_t capacity_, used_ = 0;
  std::atomic<size_t> live_{0};
  std::mutex mutex_;
};

}  // namespace cann_sim
