// Physical memory: ranges of one memfd a device, and of one of the host, so that they can be mapped anywhere, by other
// processes too.
#pragma once
#include "runtime/memory.h"

namespace cann_sim {

struct Physical {
  Physical(Device* d, uint64_t s, int f, uint64_t o, const aclrtPhysicalMemProp& p, bool mine, uint64_t c)
      : device(d), size(s), file(f), offset(o), prop(p), owned(mine), charged(c) {}
  ~Physical();
  Device* const device;               // nullptr: the host's memory
  const uint64_t size;
  const int file;
  const uint64_t offset;
  const aclrtPhysicalMemProp prop;
  const bool owned;                   // false: imported; it counts against its maker
  const uint64_t charged;             // to the device, given back at the end
  std::atomic<bool> fresh{true};      // not mapped yet, and so not poisoned
  int ticket = -1;                    // a file that tells importers where the memory lies (share.cpp)
};
// A new range; nullptr: the host has no memory for it.
std::shared_ptr<Physical> make_physical(Device* d, uint64_t size, const aclrtPhysicalMemProp& prop, uint64_t charged);
// How other processes find it: the number of a file of this process; -1: the host gives none (share.cpp).
int ticket_of(Physical& memory);
// Opens what another process gave a ticket for; nullptr: it is not there, or not for this process.
std::shared_ptr<Physical> open_ticket(uint32_t process, uint32_t ticket, Device& d);

// The handle may be freed while the memory is still mapped: the mapping keeps it.
struct PhysicalHandle {
  explicit PhysicalHandle(std::shared_ptr<Physical> m) : memory(std::move(m)) {}
  const std::shared_ptr<Physical> memory;
};
Handles<PhysicalHandle>& physical();
PhysicalHandle* find_physical(aclrtDrvMemHandle handle, const char* function, int* code);

}  // namespace cann_sim
