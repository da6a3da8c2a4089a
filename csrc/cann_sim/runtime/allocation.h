// One row of the table of live device memory, and how rows come and go (live_memory.cpp).
#pragma once
#include "runtime/memory.h"

namespace cann_sim {

struct Chunk;                         // of small allocations (memory.cpp)
struct Allocation {
  uint64_t size = 0;                  // what the client may use
  uint64_t charged = 0;               // what counts against the device's memory
  Device* device = nullptr;
  Chunk* chunk = nullptr;             // the one it lies in; nullptr: it has pages of its own
  bool mapped = false;                // by aclrtMapMem
  bool huge = false;                  // 2 MiB pages
};
void enter_allocation(uintptr_t base, const Allocation& made);
// False: no allocation of that kind begins there.
bool remove_allocation(uintptr_t base, bool mapped, Allocation* removed);
std::vector<std::pair<uintptr_t, Allocation>> live_allocations(const Device* d);  // nullptr: of all devices
// "device memory at 0x... (64 bytes) was freed", for messages.
std::string describe_memory(const void* p, size_t bytes);

}  // namespace cann_sim
