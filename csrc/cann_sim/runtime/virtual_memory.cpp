// Virtual memory: addresses reserved, and physical memory mapped to them and taken away again.
#include "runtime/allocation.h"
#include "runtime/physical.h"

namespace cann_sim {
namespace {

constexpr uint64_t kMappedPoison = 64 << 10;  // of each piece, outside of strict mode

// What was unmapped and whose pages go when no task is in the middle of using them. Other memory may be mapped there
// before that, which must not lose its pages then.
struct Leaving {
  uint64_t size;
  bool done = false;                  // guarded by exchange()
};
std::mutex& exchange() {
  static std::mutex& one = *new std::mutex;
  return one;
}

struct Reservation {
  uint64_t size;
  Device* device = nullptr;           // of what is mapped there; nullptr: nothing yet
  std::map<uintptr_t, std::shared_ptr<Physical>> mapped;
  std::map<uintptr_t, std::shared_ptr<Leaving>> leaving;
};
struct Reservations {
  std::mutex mutex;
  std::map<uintptr_t, Reservation> all;
  std::map<uintptr_t, Reservation>::iterator at(uintptr_t p) {
    auto i = all.upper_bound(p);
    if (i == all.begin()) return all.end();
    --i;
    return p - i->first < i->second.size ? i : all.end();
  }
};
Reservations& reservations() {
  static Reservations& one = *new Reservations;
  return one;
}

bool of_host(const aclrtPhysicalMemProp& prop) {
  return prop.location.type == ACL_MEM_LOCATION_TYPE_HOST || prop.location.type == ACL_MEM_LOCATION_TYPE_HOST_NUMA;
}

int check_prop(const aclrtPhysicalMemProp* prop, const char* function) {
  if (!prop) return fail(ACL_ERROR_INVALID_PARAM, "%s: prop is NULL", function);
  if (prop->handleType != ACL_MEM_HANDLE_TYPE_NONE && prop->handleType != ACL_MEM_HANDLE_TYPE_POSIX)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: unknown handle type %d", function, prop->handleType);
  if (prop->allocationType != ACL_MEM_ALLOCATION_TYPE_PINNED)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the allocation type must be ACL_MEM_ALLOCATION_TYPE_PINNED", function);
  if (prop->memAttr < ACL_DDR_MEM || prop->memAttr > ACL_MEM_P2P_HUGE1G)
    return fail(ACL_ERROR_RT_INVALID_MEMORY_TYPE, "%s: %d is not a kind of memory", function, prop->memAttr);
  if (of_host(*prop)) return 0;
  if (prop->location.type != ACL_MEM_LOCATION_TYPE_DEVICE)
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s: only memory of a device or of the host is supported", function);
  if (!device(static_cast<int>(prop->location.id)))
    return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: there is no device %u", function, prop->location.id);
  return 0;
}

uint64_t granularity_of(const aclrtPhysicalMemProp& prop) {
  bool giant = prop.memAttr == ACL_HBM_MEM_HUGE1G || prop.memAttr == ACL_HBM_MEM_P2P_HUGE1G ||
               prop.memAttr == ACL_MEM_HUGE1G || prop.memAttr == ACL_MEM_P2P_HUGE1G;
  return giant ? 1ull << 30 : kHugePage;
}

// The caller holds the mutex.
void unmap(Reservation& r, std::map<uintptr_t, std::shared_ptr<Physical>>::iterator entry) {
  Allocation gone;
  uintptr_t base = entry->first;
  std::shared_ptr<Physical> memory = entry->second;
  r.mapped.erase(entry);
  if (r.mapped.empty()) r.device = nullptr;
  if (!memory->device) return unmap_host_memory(base, memory->size);
  if (!remove_allocation(base, true, &gone, "aclrtUnmapMem")) return;
  auto leaving = r.leaving[base] = std::make_shared<Leaving>(Leaving{memory->size});
  retire([base, memory, leaving] {
    std::lock_guard<std::mutex> hold(exchange());
    if (!leaving->done) take_back(base, memory->size);
    leaving->done = true;
  });
}

// New memory comes to [base, base + size): what leaves there leaves now. Pages that are covered need not be taken.
void settle(Reservation& r, uintptr_t base, uint64_t size) {
  auto i = r.leaving.lower_bound(base);
  if (i != r.leaving.begin() && std::prev(i)->first + std::prev(i)->second->size > base) --i;
  std::lock_guard<std::mutex> hold(exchange());
  for (; i != r.leaving.end() && i->first < base + size; i = r.leaving.erase(i)) {
    bool covered = i->first >= base && i->first + i->second->size <= base + size;
    if (!i->second->done && !covered) take_back(i->first, i->second->size);
    i->second->done = true;
  }
}

int reserve(void** out, size_t size, size_t alignment, void* wanted, uint64_t flags, const char* function) {
  if (!out) return fail(ACL_ERROR_INVALID_PARAM, "%s: virPtr is NULL", function);
  if (!size) return fail(ACL_ERROR_INVALID_PARAM, "%s: size is 0", function);
  if (alignment) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: alignment must be 0, got %zu", function, alignment);
  if (flags > 1) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: unknown flags %#llx", function,
                             static_cast<unsigned long long>(flags));
  // Addresses belong to no device, so no context is needed: torch_npu reserves before it sets one.
  uint64_t whole = round_up(size, kHugePage);
  uintptr_t base = take_addresses(whole, kHugePage, reinterpret_cast<uintptr_t>(wanted));
  if (!base) return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "%s: no addresses are left for %zu bytes", function, size);
  Reservations& r = reservations();
  std::lock_guard<std::mutex> hold(r.mutex);
  r.all[base].size = whole;
  *out = reinterpret_cast<void*>(base);
  return 0;
}

}  // namespace

size_t count_reservations() {
  Reservations& r = reservations();
  std::lock_guard<std::mutex> hold(r.mutex);
  return r.all.size();
}

void drop_virtual_memory(Device& d) {
  Reservations& r = reservations();
  std::lock_guard<std::mutex> hold(r.mutex);
  for (auto i = r.all.begin(); i != r.all.end();) {
    if (i->second.device != &d) {
      ++i;
      continue;
    }
    while (!i->second.mapped.empty()) unmap(i->second, i->second.mapped.begin());
    uintptr_t base = i->first;
    retire([base] { give_addresses(base); });
    i = r.all.erase(i);
  }
  for (PhysicalHandle* h : physical().all())
    if (h->memory->device == &d) physical().drop(h);
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t flags) {
  CANN_ENTRY("aclrtReserveMemAddress");
  return reserve(virPtr, size, alignment, expectPtr, flags, "aclrtReserveMemAddress");
}

aclError aclrtReserveMemAddressNoUCMemory(void** virPtr, size_t size, size_t alignment, void* expectPtr,
                                          uint64_t flags) {
  CANN_ENTRY("aclrtReserveMemAddressNoUCMemory");
  return reserve(virPtr, size, alignment, expectPtr, flags, "aclrtReserveMemAddressNoUCMemory");
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  CANN_ENTRY("aclrtReleaseMemAddress");
  if (!virPtr) return fail(ACL_ERROR_INVALID_PARAM, "aclrtReleaseMemAddress: virPtr is NULL");
  Reservations& r = reservations();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto i = r.all.find(reinterpret_cast<uintptr_t>(virPtr));
  if (i == r.all.end())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtReleaseMemAddress: no reservation begins at %p", virPtr);
  if (!i->second.mapped.empty())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtReleaseMemAddress: %zu pieces of memory are still mapped there",
                i->second.mapped.size());
  uintptr_t base = i->first;
  r.all.erase(i);
  retire([base] { give_addresses(base); });
  return 0;
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop, uint64_t flags) {
  CANN_ENTRY("aclrtMallocPhysical");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMallocPhysical: handle is NULL");
  if (!size) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMallocPhysical: size is 0");
  if (flags) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMallocPhysical: flags must be 0");
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  if (int code = check_prop(prop, "aclrtMallocPhysical")) return code;
  if (size % granularity_of(*prop))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMallocPhysical: %zu is not a multiple of the granularity, %llu bytes",
                size,
                static_cast<unsigned long long>(granularity_of(*prop)));
  Device* d = of_host(*prop) ? nullptr : device(static_cast<int>(prop->location.id));
  if (planned_allocation_failure() || (d && !charge(*d, size)))
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocPhysical: device %d has no %zu bytes left", d ? d->id : -1, size);
  auto memory = make_physical(d, size, *prop, d ? size : 0);
  if (!memory) {
    if (d) discharge(*d, size);
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocPhysical: the host has no memory for %zu bytes", size);
  }
  PhysicalHandle* made = physical().make(memory);
  if (!made) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "aclrtMallocPhysical: too many handles");
  *handle = made;
  return 0;
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  CANN_ENTRY("aclrtFreePhysical");
  int code = 0;
  if (!find_physical(handle, "aclrtFreePhysical", &code)) return code;
  physical().drop(handle);
  return 0;
}

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  CANN_ENTRY("aclrtMapMem");
  if (!virPtr || !size) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMapMem: %s",
                                    virPtr ? "size is 0" : "virPtr is NULL");
  if (offset || flags) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: offset and flags must be 0");
  int code = 0;
  PhysicalHandle* found = find_physical(handle, "aclrtMapMem", &code);
  if (!found) return code;
  std::shared_ptr<Physical> memory = found->memory;
  if (size != memory->size)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: size %zu is not that of the physical memory, %llu", size,
                static_cast<unsigned long long>(memory->size));
  auto base = reinterpret_cast<uintptr_t>(virPtr);
  Reservations& r = reservations();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto i = r.at(base);
  if (i == r.all.end() || size > i->second.size - (base - i->first))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: %zu bytes at %p do not lie in a reservation", size, virPtr);
  if ((base - i->first) % kHugePage)
    return fail(ACL_ERROR_RT_ADDR_UNALIGNED, "aclrtMapMem: %p is not aligned to 2 MiB in its reservation", virPtr);
  Reservation& in = i->second;
  if (!in.mapped.empty() && in.device != memory->device)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: the reservation holds memory of %s",
                in.device ? ("device " + std::to_string(in.device->id)).c_str() : "the host");
  auto next = in.mapped.lower_bound(base);
  bool taken = next != in.mapped.end() && next->first < base + size;
  if (next != in.mapped.begin()) {
    auto before = std::prev(next);
    taken = taken || before->first + before->second->size > base;
  }
  if (taken) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: something is mapped at %p already", virPtr);
  settle(in, base, size);
  if (!memory->device) {
    if (!map_host_memory(base, size, memory->file, memory->offset))
      return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMapMem: the host refuses to map %zu bytes", size);
    in.mapped[base] = memory;
    return 0;
  }
  if (!back_with_file(base, size, memory->file, memory->offset))
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMapMem: the host refuses to map %zu bytes", size);
  // Allocators map far more than they use: what is not touched is not to take the host's memory.
  if (memory->fresh.exchange(false)) poison_fresh(base, settings().strict ? size : std::min<uint64_t>(size, kMappedPoison));
  Allocation made;
  made.size = size;
  made.device = memory->device;
  made.mapped = made.huge = true;
  enter_allocation(base, made);
  in.device = memory->device;
  in.mapped[base] = memory;
  return 0;
}

aclError aclrtUnmapMem(void* virPtr) {
  CANN_ENTRY("aclrtUnmapMem");
  if (!virPtr) return fail(ACL_ERROR_INVALID_PARAM, "aclrtUnmapMem: virPtr is NULL");
  auto base = reinterpret_cast<uintptr_t>(virPtr);
  Reservations& r = reservations();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto i = r.at(base);
  auto entry = i == r.all.end() ? decltype(i->second.mapped.begin())() : i->second.mapped.find(base);
  if (i == r.all.end() || entry == i->second.mapped.end())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtUnmapMem: no mapping begins at %p", virPtr);
  unmap(i->second, entry);
  return 0;
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions option,
                                          size_t* granularity) {
  CANN_ENTRY("aclrtMemGetAllocationGranularity");
  if (!granularity) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemGetAllocationGranularity: granularity is NULL");
  if (int code = check_prop(prop, "aclrtMemGetAllocationGranularity")) return code;
  if (option != ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM && option != ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemGetAllocationGranularity: unknown option %d", option);
  *granularity = granularity_of(*prop);
  return 0;
}

aclError aclrtMemGetAllocationPropertiesFromHandle(aclrtDrvMemHandle handle, aclrtPhysicalMemProp* prop) {
  CANN_ENTRY("aclrtMemGetAllocationPropertiesFromHandle");
  if (!prop) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemGetAllocationPropertiesFromHandle: prop is NULL");
  int code = 0;
  PhysicalHandle* found = find_physical(handle, "aclrtMemGetAllocationPropertiesFromHandle", &code);
  if (!found) return code;
  *prop = found->memory->prop;
  return 0;
}

aclError aclrtMemRetainAllocationHandle(void* virPtr, aclrtDrvMemHandle* handle) {
  CANN_ENTRY("aclrtMemRetainAllocationHandle");
  if (!virPtr || !handle)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemRetainAllocationHandle: %s is NULL", virPtr ? "handle" : "virPtr");
  auto at = reinterpret_cast<uintptr_t>(virPtr);
  Reservations& r = reservations();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto i = r.at(at);
  if (i != r.all.end())
    for (auto& m : i->second.mapped)
      if (at - m.first < m.second->size) {
        *handle = physical().make(m.second);
        return *handle ? 0 : fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "aclrtMemRetainAllocationHandle: too many handles");
      }
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemRetainAllocationHandle: nothing is mapped at %p", virPtr);
}
