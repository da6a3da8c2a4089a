// Pools of the objects that clients hold as opaque pointers: a wild or destroyed pointer is recognised, never followed.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

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
    Slot* slot = oldest_;
    if (used_ < capacity_ && freed_ <= kQuarantine) {  // a destroyed handle stays recognisable for a while
      slot = &slots_[used_++];
    } else {
      if (!slot) return nullptr;
      oldest_ = slot->next;
      if (!oldest_) newest_ = nullptr;
      --freed_;
    }
    T* made = new (slot->bytes) T(std::forward<Args>(args)...);
    ++slot->serial;
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
  // Tells objects apart that had one address after the other; 0: not a live object.
  uint32_t serial(const void* p) const { return check(p) ? static_cast<const Slot*>(p)->serial : 0; }
  T* get(const void* p) const { return check(p) ? static_cast<T*>(const_cast<void*>(p)) : nullptr; }

  bool drop(const void* p) {  // false: not a live object
    std::lock_guard<std::mutex> hold(mutex_);
    if (!check(p)) return false;
    Slot* slot = reinterpret_cast<Slot*>(const_cast<void*>(p));
    slot->live.store(false, std::memory_order_release);
    static_cast<T*>(const_cast<void*>(p))->~T();
    slot->next = nullptr;
    (newest_ ? newest_->next : oldest_) = slot;
    newest_ = slot;
    ++freed_;
    --live_;
    return true;
  }
  size_t live() const { return live_; }
  std::vector<T*> all() {
    std::lock_guard<std::mutex> hold(mutex_);
    std::vector<T*> found;
    for (size_t i = 0; i < used_; ++i)
      if (slots_[i].live.load(std::memory_order_relaxed)) found.push_back(reinterpret_cast<T*>(slots_[i].bytes));
    return found;
  }

 private:
  struct Slot {
    alignas(alignof(T)) unsigned char bytes[sizeof(T)];  // first, so that a handle is its slot's address
    std::atomic<bool> live;
    uint32_t serial;
    Slot* next;
  };
  Slot* slots_ = nullptr;
  static constexpr size_t kQuarantine = 256;
  Slot *oldest_ = nullptr, *newest_ = nullptr;  // of the freed slots
  size_t capacity_, used_ = 0, freed_ = 0;
  std::atomic<size_t> live_{0};
  std::mutex mutex_;
};

}  // namespace cann_sim
