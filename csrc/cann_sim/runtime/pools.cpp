// Pools of memory in stream order, and the allocators that clients register for streams.
#include <cstring>

#include "runtime/allocation.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

// Nothing is kept for reuse: what is freed goes back when the stream comes to it, so what is reserved is what is used.
struct Pool {
  Pool(int id, size_t most) : device(id), limit(most) {}
  const int device;
  const size_t limit;                   // 0: the device's memory
  std::atomic<uint64_t> used{0}, highest{0}, threshold{0};
  std::atomic<int32_t> reuse[3] = {1, 1, 1};
  std::mutex mutex;
  std::map<void*, size_t> blocks;       // guarded by mutex
};

Handles<Pool>& pools() {
  static auto* all = [] {
    count_at_finalize("memory pools", [] { return pools().live(); });
    return new Handles<Pool>(4096);
  }();
  return *all;
}

// The pool that a block is of; nullptr: of none.
Pool* owner_of(void* block, size_t* size) {
  for (Pool* pool : pools().all()) {
    std::lock_guard<std::mutex> hold(pool->mutex);
    auto found = pool->blocks.find(block);
    if (found == pool->blocks.end()) continue;
    *size = found->second;
    return pool;
  }
  return nullptr;
}

class FreeTask final : public ControlTask {
 public:
  explicit FreeTask(void* block) : block_(block) {}
  void run() override { cann_sim::release(block_, name()); }
  const char* name() const override { return "aclrtMemPoolFreeAsync"; }

 private:
  void* block_;
};

// For CANN_SIM_CHECK: the block is there from here on, in the order of this stream.
class AllocationTask final : public ControlTask {
 public:
  AllocationTask(void* block, size_t size) : block_(block), size_(size) {}
  void run() override {}
  void list_uses(std::vector<Access>& used) const override { used.push_back({block_, size_, true, "ptr"}); }
  const char* name() const override { return "aclrtMemPoolMallocAsync"; }

 private:
  void* block_;
  size_t size_;
};

Pool* find_pool(aclrtMemPool handle, const char* function, int* code) {
  Pool* found = handle ? pools().get(handle) : nullptr;
  if (!found) *code = fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p is not a live memory pool", function, handle);
  return found;
}

// A number of the pool, by its attribute; `text` for messages. Throws nothing: unknown attributes give nullptr.
std::atomic<uint64_t>* number_of(Pool& pool, aclrtMemPoolAttr attr) {
  switch (attr) {
    case ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD: return &pool.threshold;
    case ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT: case ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT: return &pool.used;
    case ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH: case ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH: return &pool.highest;
    default: return nullptr;
  }
}

bool is_switch(aclrtMemPoolAttr attr) {
  return attr >= ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES && attr <= ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

// ---- allocators of clients ------------------------------------------------------------------------------------
struct AllocatorDesc {
  aclrtAllocator object = nullptr;
  aclrtAllocatorAllocFunc alloc = nullptr;
  aclrtAllocatorFreeFunc free = nullptr;
  aclrtAllocatorAllocAdviseFunc advise = nullptr;
  aclrtAllocatorGetAddrFromBlockFunc address = nullptr;
};
Handles<AllocatorDesc>& allocator_descs() {
  static auto& pool = *new Handles<AllocatorDesc>(65536);
  return pool;
}
struct Registered {
  aclrtAllocatorDesc handle;
  AllocatorDesc desc;                   // as it was when it was registered
};
std::mutex registered_mutex;
std::map<const StreamHandle*, Registered>& registered() {
  static auto& one = *new std::map<const StreamHandle*, Registered>;
  return one;
}

AllocatorDesc* find_desc(aclrtAllocatorDesc handle, const char* function, int* code) {
  AllocatorDesc* found = handle ? allocator_descs().get(handle) : nullptr;
  if (!found) *code = fail(ACL_ERROR_INVALID_PARAM, "%s: %p is not a live description of an allocator", function, handle);
  return found;
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtMemPoolCreate(aclrtMemPool* memPool, const aclrtMemPoolProps* poolProps) {
  CANN_ENTRY("aclrtMemPoolCreate");
  if (!memPool || !poolProps)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemPoolCreate: %s is NULL", memPool ? "poolProps" : "memPool");
  if (poolProps->location.type != ACL_MEM_LOCATION_TYPE_DEVICE || !device(static_cast<int>(poolProps->location.id)))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemPoolCreate: the location is no device");
  Pool* made = pools().make(static_cast<int>(poolProps->location.id), poolProps->maxSize);
  if (!made) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "aclrtMemPoolCreate: too many pools");
  *memPool = made;
  return 0;
}

aclError aclrtMemPoolDestroy(const aclrtMemPool memPool) {
  CANN_ENTRY("aclrtMemPoolDestroy");
  int code = 0;
  Pool* pool = find_pool(memPool, "aclrtMemPoolDestroy", &code);
  if (!pool) return code;
  {
    std::lock_guard<std::mutex> hold(pool->mutex);
    if (!pool->blocks.empty())
      return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemPoolDestroy: %zu blocks were not freed", pool->blocks.size());
  }
  pools().drop(pool);
  return 0;
}

aclError aclrtMemPoolMallocAsync(void** ptr, size_t size, aclrtMemPool memPool, aclrtStream stream) {
  CANN_ENTRY("aclrtMemPoolMallocAsync");
  if (!ptr || !size) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemPoolMallocAsync: %s", ptr ? "size is 0" : "ptr is NULL");
  int code = 0;
  Pool* pool = find_pool(memPool, "aclrtMemPoolMallocAsync", &code);
  if (!pool || (code = check_stream(stream, "aclrtMemPoolMallocAsync"))) return code;
  if (stream_device(stream) != pool->device)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemPoolMallocAsync: the pool is on device %d", pool->device);
  if (pool->limit && pool->used.load() + size > pool->limit)
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMemPoolMallocAsync: %zu bytes more than the pool's %zu", size, pool->limit);
  if ((code = aclrtMalloc(ptr, size, ACL_MEM_MALLOC_HUGE_FIRST))) return code;
  {
    std::lock_guard<std::mutex> hold(pool->mutex);
    pool->blocks[*ptr] = size;
    pool->used += size;
    pool->highest = std::max(pool->highest.load(), pool->used.load());
  }
  return following_order() && !any_capture() ? enqueue(stream, new AllocationTask(*ptr, size)) : 0;
}

aclError aclrtMemPoolFreeAsync(void* ptr, aclrtStream stream) {
  CANN_ENTRY("aclrtMemPoolFreeAsync");
  if (!ptr) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemPoolFreeAsync: ptr is NULL");
  if (int code = check_stream(stream, "aclrtMemPoolFreeAsync")) return code;
  size_t size;
  Pool* pool = owner_of(ptr, &size);
  if (!pool) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemPoolFreeAsync: %p is no block of a pool", ptr);
  {
    std::lock_guard<std::mutex> hold(pool->mutex);
    pool->blocks.erase(ptr);
    pool->used -= size;
  }
  return enqueue(stream, new FreeTask(ptr));
}

aclError aclrtMemPoolTrimTo(aclrtMemPool memPool, size_t) {
  CANN_ENTRY("aclrtMemPoolTrimTo");
  int code = 0;
  return find_pool(memPool, "aclrtMemPoolTrimTo", &code) ? 0 : code;  // nothing is kept
}

aclError aclrtMemPoolSetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void* value) {
  CANN_ENTRY("aclrtMemPoolSetAttr");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemPoolSetAttr: value is NULL");
  int code = 0;
  Pool* pool = find_pool(memPool, "aclrtMemPoolSetAttr", &code);
  if (!pool) return code;
  if (is_switch(attr)) {
    int32_t on;
    memcpy(&on, value, sizeof on);
    pool->reuse[attr - ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES] = on;
    return 0;
  }
  uint64_t number;
  memcpy(&number, value, sizeof number);
  if (attr == ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD) return pool->threshold = number, 0;
  if ((attr == ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH || attr == ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH) && !number)
    return pool->highest = pool->used.load(), 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemPoolSetAttr: attribute %d cannot be set so", attr);
}

aclError aclrtMemPoolGetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void* value) {
  CANN_ENTRY("aclrtMemPoolGetAttr");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemPoolGetAttr: value is NULL");
  int code = 0;
  Pool* pool = find_pool(memPool, "aclrtMemPoolGetAttr", &code);
  if (!pool) return code;
  if (is_switch(attr)) {
    const int32_t on = pool->reuse[attr - ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES].load();
    memcpy(value, &on, sizeof on);
    return 0;
  }
  std::atomic<uint64_t>* number = number_of(*pool, attr);
  if (!number) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemPoolGetAttr: attribute %d is not known", attr);
  const uint64_t now = number->load();
  memcpy(value, &now, sizeof now);
  return 0;
}

// ---- allocators: ops of this CANN need no memory of their own, so what is registered is only remembered ----------

aclrtAllocatorDesc aclrtAllocatorCreateDesc() {
  CANN_ENTRY_POINTER("aclrtAllocatorCreateDesc");
  return allocator_descs().make();
}

aclError aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc) {
  CANN_ENTRY("aclrtAllocatorDestroyDesc");
  int code = 0;
  AllocatorDesc* desc = find_desc(allocatorDesc, "aclrtAllocatorDestroyDesc", &code);
  if (!desc) return code;
  allocator_descs().drop(desc);
  return 0;
}

#define ALLOCATOR_SETTER(function, type, field)                                       \
  aclError function(aclrtAllocatorDesc allocatorDesc, type given) {                   \
    CANN_ENTRY(#function);                                                            \
    if (!given) return fail(ACL_ERROR_INVALID_PARAM, #function ": what is set is NULL"); \
    int code = 0;                                                                     \
    AllocatorDesc* desc = find_desc(allocatorDesc, #function, &code);                 \
    if (desc) desc->field = given;                                                    \
    return code;                                                                      \
  }
ALLOCATOR_SETTER(aclrtAllocatorSetObjToDesc, aclrtAllocator, object)
ALLOCATOR_SETTER(aclrtAllocatorSetAllocFuncToDesc, aclrtAllocatorAllocFunc, alloc)
ALLOCATOR_SETTER(aclrtAllocatorSetFreeFuncToDesc, aclrtAllocatorFreeFunc, free)
ALLOCATOR_SETTER(aclrtAllocatorSetAllocAdviseFuncToDesc, aclrtAllocatorAllocAdviseFunc, advise)
ALLOCATOR_SETTER(aclrtAllocatorSetGetAddrFromBlockFuncToDesc, aclrtAllocatorGetAddrFromBlockFunc, address)

aclError aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc) {
  CANN_ENTRY("aclrtAllocatorRegister");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtAllocatorRegister", &code);
  AllocatorDesc* desc = found ? find_desc(allocatorDesc, "aclrtAllocatorRegister", &code) : nullptr;
  if (!desc) return code;
  if (!desc->object || !desc->alloc || !desc->free || !desc->address)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtAllocatorRegister: the object or one of its functions is not set");
  std::lock_guard<std::mutex> hold(registered_mutex);
  registered()[found] = {allocatorDesc, *desc};
  return 0;
}

aclError aclrtAllocatorUnregister(aclrtStream stream) {
  CANN_ENTRY("aclrtAllocatorUnregister");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtAllocatorUnregister", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(registered_mutex);
  registered().erase(found);
  return 0;
}

aclError aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc* allocatorDesc, aclrtAllocator* allocator,
                                   aclrtAllocatorAllocFunc* allocFunc, aclrtAllocatorFreeFunc* freeFunc,
                                   aclrtAllocatorAllocAdviseFunc* allocAdviseFunc,
                                   aclrtAllocatorGetAddrFromBlockFunc* getAddrFromBlockFunc) {
  CANN_ENTRY("aclrtAllocatorGetByStream");
  if (!allocatorDesc || !allocator || !allocFunc || !freeFunc || !allocAdviseFunc || !getAddrFromBlockFunc)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtAllocatorGetByStream: an output is NULL");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtAllocatorGetByStream", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(registered_mutex);
  auto entry = registered().find(found);
  if (entry == registered().end()) return fail(ACL_ERROR_INVALID_PARAM, "aclrtAllocatorGetByStream: none is registered");
  *allocatorDesc = entry->second.handle;
  const AllocatorDesc& desc = entry->second.desc;
  *allocator = desc.object;
  *allocFunc = desc.alloc;
  *freeFunc = desc.free;
  *allocAdviseFunc = desc.advise;
  *getAddrFromBlockFunc = desc.address;
  return 0;
}
