// Tells the address sanitizer which bytes of the allocator's blocks must not be touched; without the sanitizer, nothing.
#pragma once
#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace mt {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kLinks = 2 * sizeof(void*);

// `bytes` of the block are asked for; the rest of its size class is out of bounds.
inline void* mark_live(void* p, size_t bytes, size_t size) {
  __asan_unpoison_memory_region(p, bytes);
  __asan_poison_memory_region(static_cast<char*>(p) + bytes, size - bytes);
  return p;
}
// The block is free: only what the lists keep in its first bytes may be read.
inline void mark_cached(void* p, size_t size) {
  __asan_unpoison_memory_region(p, kLinks);
  __asan_poison_memory_region(static_cast<char*>(p) + kLinks, size - kLinks);
}
// The memory goes back to the system, which may use the address again.
inline void mark_gone(void* p, size_t size) { __asan_unpoison_memory_region(p, size); }
#else
inline void* mark_live(void* p, size_t, size_t) { return p; }
inline void mark_cached(void*, size_t) {}
inline void mark_gone(void*, size_t) {}
#endif

}  // namespace mt
