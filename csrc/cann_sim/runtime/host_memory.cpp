// Pinned host memory: allocated, registered, mapped to reserved addresses, looked up; and what is known of any pointer.
#include <sys/mman.h>

#include <cstdlib>
#include <shared_mutex>

#include "runtime/allocation.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

struct Pinned {
  uint64_t size;
  bool registered;                    // by aclrtHostRegister: the memory is the client's
  int mappings = 0;                   // registrations of memory that aclrtMallocHost gave
  bool mapped = false;                // ops reach it: it has a device address, which is its own
  bool reserved = false;              // by aclrtMapMem, at an address that was reserved
};
struct Registry {
  std::shared_mutex mutex;
  std::map<uintptr_t, Pinned> all;
  std::atomic<size_t> reserved{0};    // of them

  std::map<uintptr_t, Pinned>::iterator at(uintptr_t p) {
    auto i = all.upper_bound(p);
    if (i == all.begin()) return all.end();
    --i;
    return p - i->first < i->second.size ? i : all.end();
  }
};
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

int allocate_host(void** out, uint64_t size, const char* function) {
  if (!out) return fail(ACL_ERROR_INVALID_PARAM, "%s: hostPtr is NULL", function);
  if (!size) return fail(ACL_ERROR_INVALID_PARAM, "%s: size is 0", function);
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  void* made = nullptr;
  if (posix_memalign(&made, kPage, round_up(size, 64)))
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "%s: the host has no %llu bytes", function,
                static_cast<unsigned long long>(size));
  Registry& r = registry();
  std::unique_lock<std::shared_mutex> hold(r.mutex);
  r.all[reinterpret_cast<uintptr_t>(made)] = {size, false};
  hold.unlock();
  if (following_order()) note_allocation(reinterpret_cast<uintptr_t>(made), size, true);  // the host writes it unseen
  *out = made;
  return 0;
}

int release_host(void* p, const char* function) {
  if (!p) return fail(ACL_ERROR_INVALID_PARAM, "%s: hostPtr is NULL", function);
  Registry& r = registry();
  uint64_t size;
  {
    std::unique_lock<std::shared_mutex> hold(r.mutex);
    auto i = r.all.find(reinterpret_cast<uintptr_t>(p));
    if (i == r.all.end() || i->second.registered || i->second.reserved)
      return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p was not allocated with aclrtMallocHost, or is already freed",
                  function, p);
    size = i->second.size;
    r.all.erase(i);
  }
  if (following_order()) note_host_memory_gone(function, p, size);
  retire([p] { free(p); });  // a copy that runs at this moment may still read it
  return 0;
}

int register_host(void* p, uint64_t size, bool mapped, const char* function) {
  if (!p || !size) return fail(ACL_ERROR_INVALID_PARAM, "%s: %s", function, p ? "size is 0" : "ptr is NULL");
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  if (is_device_address(p)) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p is a device address", function, p);
  Registry& r = registry();
  std::unique_lock<std::shared_mutex> hold(r.mutex);
  auto begin = reinterpret_cast<uintptr_t>(p);
  auto next = r.all.lower_bound(begin);
  auto own = r.all.find(begin);
  if (own != r.all.end() && !own->second.registered && !own->second.mappings && size <= own->second.size) {
    ++own->second.mappings;           // it is pinned already: only its device address is asked for
    own->second.mapped = mapped;
    return 0;
  }
  if (r.at(begin) != r.all.end() || (next != r.all.end() && next->first < begin + size))
    return fail(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "%s: %p is pinned already", function, p);
  r.all[begin] = {size, true, 0, mapped};
  if (following_order()) note_allocation(begin, size, true);
  return 0;
}

}  // namespace

bool is_pinned(const void* p, size_t bytes) {
  Registry& r = registry();
  std::shared_lock<std::shared_mutex> hold(r.mutex);
  auto begin = reinterpret_cast<uintptr_t>(p);
  auto i = r.at(begin);
  return i != r.all.end() && bytes <= i->first + i->second.size - begin;
}

bool is_mapped(const void* p, size_t bytes) {
  Registry& r = registry();
  std::shared_lock<std::shared_mutex> hold(r.mutex);
  auto begin = reinterpret_cast<uintptr_t>(p);
  auto i = r.at(begin);
  return i != r.all.end() && i->second.mapped && bytes <= i->first + i->second.size - begin;
}

bool is_device_address(const void* p) {
  if (!client_range().owns(p)) return false;
  Registry& r = registry();
  if (!r.reserved.load(std::memory_order_relaxed)) return true;
  std::shared_lock<std::shared_mutex> hold(r.mutex);
  auto i = r.at(reinterpret_cast<uintptr_t>(p));
  return i == r.all.end() || !i->second.reserved;
}

bool map_host_memory(uintptr_t base, uint64_t size, int file, uint64_t offset) {
  void* at = reinterpret_cast<void*>(base);
  if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) == MAP_FAILED) return false;
  Registry& r = registry();
  std::unique_lock<std::shared_mutex> hold(r.mutex);
  Pinned& made = r.all[base] = {size, false, 0, true};
  made.reserved = true;
  ++r.reserved;
  hold.unlock();
  if (following_order()) note_allocation(base, size, true);
  return true;
}

void unmap_host_memory(uintptr_t base, uint64_t size) {
  Registry& r = registry();
  {
    std::unique_lock<std::shared_mutex> hold(r.mutex);
    r.all.erase(base);
    --r.reserved;
  }
  void* at = reinterpret_cast<void*>(base);
  if (following_order()) note_host_memory_gone("aclrtUnmapMem", at, size);
  mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void count_pinned(size_t* count, uint64_t* bytes) {
  Registry& r = registry();
  std::shared_lock<std::shared_mutex> hold(r.mutex);
  *count = r.all.size();
  *bytes = 0;
  for (auto& p : r.all) *bytes += p.second.size;
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  CANN_ENTRY("aclrtMallocHost");
  return allocate_host(hostPtr, size, "aclrtMallocHost");
}

aclError aclrtMallocHostWithCfg(void** ptr, uint64_t size, aclrtMallocConfig* cfg) {
  CANN_ENTRY("aclrtMallocHostWithCfg");
  if (cfg && cfg->numAttrs && !cfg->attrs)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtMallocHostWithCfg: cfg->attrs is NULL");
  return allocate_host(ptr, size, "aclrtMallocHostWithCfg");
}

aclError aclrtFreeHost(void* hostPtr) {
  CANN_ENTRY("aclrtFreeHost");
  return release_host(hostPtr, "aclrtFreeHost");
}

aclError aclrtFreeHostWithDevSync(void* hostPtr) {
  CANN_ENTRY("aclrtFreeHostWithDevSync");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  if (int code = refuse_unsafe_call("aclrtFreeHostWithDevSync")) return code;
  if (int code = synchronize_device(*c->device, kForever)) return code;
  return release_host(hostPtr, "aclrtFreeHostWithDevSync");
}

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  CANN_ENTRY("aclrtHostRegister");
  if (!devPtr) return fail(ACL_ERROR_INVALID_PARAM, "aclrtHostRegister: devPtr is NULL");
  if (type != ACL_HOST_REGISTER_MAPPED)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtHostRegister: type must be ACL_HOST_REGISTER_MAPPED, got %d", type);
  if (int code = register_host(ptr, size, true, "aclrtHostRegister")) return code;
  *devPtr = ptr;
  return 0;
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  CANN_ENTRY("aclrtHostRegisterV2");
  uint32_t known = ACL_HOST_REG_MAPPED | ACL_HOST_REG_IOMEMORY | ACL_HOST_REG_READONLY | ACL_HOST_REG_PINNED;
  if (!flag || (flag & ~known)) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtHostRegisterV2: unknown flag %#x", flag);
  return register_host(ptr, size, flag & ACL_HOST_REG_MAPPED, "aclrtHostRegisterV2");
}

aclError aclrtHostUnregister(void* ptr) {
  CANN_ENTRY("aclrtHostUnregister");
  if (!ptr) return fail(ACL_ERROR_INVALID_PARAM, "aclrtHostUnregister: ptr is NULL");
  Registry& r = registry();
  std::unique_lock<std::shared_mutex> hold(r.mutex);
  auto i = r.all.find(reinterpret_cast<uintptr_t>(ptr));
  if (i != r.all.end() && i->second.mappings) {
    i->second.mapped = --i->second.mappings > 0;
    return 0;
  }
  if (i == r.all.end() || !i->second.registered)
    return fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "aclrtHostUnregister: %p is not registered", ptr);
  const uint64_t size = i->second.size;
  r.all.erase(i);
  if (following_order()) note_host_memory_gone("aclrtHostUnregister", ptr, size);
  return 0;
}

aclError aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes) {
  CANN_ENTRY("aclrtPointerGetAttributes");
  if (!ptr || !attributes)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtPointerGetAttributes: %s is NULL", ptr ? "attributes" : "ptr");
  *attributes = {};
  uintptr_t base;
  Allocation found;
  if (find_allocation(ptr, &base, &found)) {
    attributes->location = {static_cast<uint32_t>(found.device->id), ACL_MEM_LOCATION_TYPE_DEVICE};
    attributes->pageSize = static_cast<uint32_t>(found.huge ? kHugePage : kPage);
  } else if (is_device_address(ptr)) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtPointerGetAttributes: %p is a device address that is not allocated",
                ptr);
  } else {
    attributes->location.type = is_pinned(ptr, 1) ? ACL_MEM_LOCATION_TYPE_HOST : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
    attributes->pageSize = kPage;
  }
  return 0;
}
