// The caching allocator of host memory; nothing of tensors or of devices.
#pragma once
#include <cstddef>

#include "library.h"

namespace mt {

// 64-byte aligned memory, not zeroed. allocate(0) gives a valid pointer of its own, released as release(p, 0).
// Throws std::bad_alloc, after the cache was emptied and the system asked again.
void* allocate(size_t bytes);

// bytes as given to allocate; from any thread. release(nullptr, n) does nothing.
void release(void* p, size_t bytes);

// Gives all cached memory back to the system, except the small blocks (<= 64 KiB) cached by other threads.
void empty_cache();

// Sizes count whole blocks (rounded up to their class). The peak of allocated bytes is exact for one thread, and
// right to about 1 MiB for each further thread.
void allocator_stats(AllocatorStats* out);

}  // namespace mt
