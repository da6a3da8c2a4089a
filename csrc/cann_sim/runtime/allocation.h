// One row of the table of live device memory, and how rows come and go (live_memory.cpp).
#pragma once
#include "runtime/memory.h"

namespace cann_sim {

struct Physical;
struct Chunk;                         // of small allocations (memory.cpp)
struct Allocation {
  uint64_t number = 0;                // counts the allocations of the process, for reports
  uint64_t size = 0;                  // what the client may use
  uint64_t charged = 0;               // what counts against the device's memory
  Device* device = nullptr;
  Chunk* chunk = nullptr;             // the one it lies in; nullptr: it has pages of its own
  bool mapped = false;                // by aclrtMapMem
  bool huge = false;                  // 2 MiB pages
  uintptr_t pages = 0;                // where its own pages begin, when that is not where it begins
  uint64_t extra = 0;                 // bytes behind `size` that kernels may read; aclrtMallocAlign32 has none
  bool imported = false;              // from another process: ends with aclrtIpcMemClose
  std::shared_ptr<Physical> shared;   // its pages, once other processes may map them (ipc.cpp)
};
void enter_allocation(uintptr_t base, const Allocation& made);
// False: no allocation of that kind begins there.
bool remove_allocation(uintptr_t base, bool mapped, Allocation* removed, const char* function);
std::vector<std::pair<uintptr_t, Allocation>> live_allocations(const Device* d);  // nullptr: of all devices
// After the row was removed: the memory and its addresses go back once no task uses them any more.
void give_back(uintptr_t base, const Allocation& gone);
bool find_allocation(const void* p, uintptr_t* base, Allocation* found);
// Moves the pages behind an allocation to memory that other processes can map; nothing may use them meanwhile. Gives
// the memory and where the allocation lies in it, or nullptr when the host refuses.
std::shared_ptr<Physical> share_pages(uintptr_t base, uint64_t* offset);
// "device memory at 0x... (64 bytes) was freed", for messages.
std::string describe_memory(const void* p, size_t bytes);

}  // namespace cann_sim
