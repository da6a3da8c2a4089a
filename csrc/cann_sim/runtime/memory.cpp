// aclrtMalloc and its kin: sizes, poison, accounting, small allocations in shared chunks. Copies are in copy.cpp.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/allocation.h"
#include "runtime/card_table.h"
#include "runtime/physical.h"
#include "runtime/stream.h"

namespace cann_sim {

// Small allocations share a chunk: a mapping for each would soon reach the host's limit of mappings. Addresses are only
// handed out upwards; an exhausted chunk goes back when its last allocation is freed.
struct Chunk {
  Device* device;
  uintptr_t base;
  uint64_t used = 0;
  size_t live = 0;
  bool current = true;
  std::shared_ptr<Physical> shared;
};

namespace {

constexpr uint64_t kSmall = 1 << 20, kSmallGap = 128, kChunk = 32 << 20;
constexpr uint64_t kAlignment = 512;          // a card's; clients count on it
constexpr uint64_t kPoisoned = 32ull << 20;   // of each allocation, outside of strict mode
constexpr int kFresh = 0xFF, kFreed = 0xDB;   // 0xFF...: not a number, or -1

std::mutex chunks_mutex;
std::map<Device*, Chunk*>& current_chunks() {
  static auto& one = *new std::map<Device*, Chunk*>;
  return one;
}

void poison(uintptr_t client, uint64_t size, int value) {
  if (settings().mode == Mode::null) return;
  if (!settings().strict) size = std::min(size, kPoisoned);
  memset(worker_address(reinterpret_cast<void*>(client)), value, size);
}

// What lay in a chunk is gone: whole pages go back to the host, the rest is overwritten.
void forget_content(uintptr_t client, uint64_t size) {
  uintptr_t first = round_up(client, kPage), last = (client + size) / kPage * kPage;
  if (first >= last) return poison(client, size, kFreed);
  poison(client, first - client, kFreed);
  poison(last, client + size - last, kFreed);
  give_pages(first, last - first);
}

void drop_chunk(Chunk* chunk) {
  take_back(chunk->base, kChunk);
  give_addresses(chunk->base);
  delete chunk;
}

uintptr_t take_small(Device& d, uint64_t size, Chunk** in) {
  std::lock_guard<std::mutex> hold(chunks_mutex);
  Chunk*& current = current_chunks()[&d];
  if (current && current->used + size > kChunk) {
    current->current = false;
    if (!current->live) drop_chunk(current);
    current = nullptr;
  }
  if (!current) {
    uintptr_t base = take_addresses(kChunk, kHugePage, 0);
    if (!base) return 0;
    if (!back_with_memory(base, kChunk)) {
      give_addresses(base);
      return 0;
    }
    current = new Chunk{&d, base};
  }
  uintptr_t at = current->base + current->used;
  current->used += round_up(size + kSmallGap, kAlignment);
  ++current->live;
  *in = current;
  return at;
}

void give_small(Chunk* chunk) {
  std::lock_guard<std::mutex> hold(chunks_mutex);
  if (--chunk->live == 0 && !chunk->current) drop_chunk(chunk);
}

uintptr_t take_large(uint64_t size) {
  uintptr_t base = take_addresses(size, kHugePage, 0);
  if (base && !back_with_memory(base, round_up(size, kPage))) {
    give_addresses(base);
    return 0;
  }
  return base;
}

// The table of the card that CANN_SIM_CARD names; nullptr: every process has the devices to itself.
CardTable* shared_card() {
  static CardTable* const once = settings().card.empty() ? nullptr : new CardTable(settings().card);
  return once;
}

int out_of_memory(const char* function, uint64_t size, Device& d) {
  const auto bytes = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  const uint64_t others = shared_card() ? shared_card()->others(d.physical_id) : 0;
  return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "%s: device %d has no %llu bytes left (%llu of %llu are in use%s)", function, d.id,
              bytes(size), bytes(d.used.load() + others), bytes(device_memory(d)), others ? ", also by other processes" : "");
}

bool is_policy(int32_t policy) {
  int32_t kinds = ACL_MEM_TYPE_LOW_BAND_WIDTH | ACL_MEM_TYPE_HIGH_BAND_WIDTH | ACL_MEM_ACCESS_USER_SPACE_READONLY;
  int32_t pages = policy & ~kinds;
  return policy >= 0 && pages <= ACL_MEM_MALLOC_HUGE1G_ONLY_P2P;
}

}  // namespace

int allocate(void** out, size_t size, int32_t policy, uint64_t extra, const char* function) {
  if (!out) return fail(ACL_ERROR_INVALID_PARAM, "%s: devPtr is NULL", function);
  if (!size) return fail(ACL_ERROR_INVALID_PARAM, "%s: size is 0", function);
  if (!is_policy(policy)) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %d is not a malloc policy", function, policy);
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  Device& d = *c->device;
  if (size > device_memory(d)) return out_of_memory(function, size, d);
  int32_t pages = policy & 7;
  bool giant = pages >= ACL_MEM_MALLOC_HUGE1G_ONLY;
  bool normal = pages == ACL_MEM_MALLOC_NORMAL_ONLY || pages == ACL_MEM_MALLOC_NORMAL_ONLY_P2P;
  Allocation made;
  made.size = round_up(size, 32);
  made.extra = giant ? 0 : extra;
  uint64_t whole = made.size + made.extra;
  made.huge = giant || (!normal && size > (1 << 20));
  made.charged = round_up(whole, giant ? 1ull << 30 : made.huge ? kHugePage : kPage);
  made.device = &d;
  if (planned_allocation_failure() || !charge(d, made.charged)) return out_of_memory(function, size, d);
  uintptr_t base = whole <= kSmall ? take_small(d, whole, &made.chunk) : take_large(whole);
  if (!base) {
    discharge(d, made.charged);
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "%s: the host has no address space or no mapping left for %zu bytes",
                function, size);
  }
  poison_fresh(base, whole);
  enter_allocation(base, made);
  *out = reinterpret_cast<void*>(base);
  return 0;
}

int release(void* p, const char* function) {
  if (!p) return fail(ACL_ERROR_INVALID_PARAM, "%s: devPtr is NULL", function);
  if (is_forked_child()) return fail(ACL_ERROR_RT_CONTEXT_NULL, "%s: the process was forked", function);
  Allocation gone;
  uintptr_t base;
  if (find_allocation(p, &base, &gone) && gone.imported)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the memory is another process's; it ends with aclrtIpcMemClose",
                function);
  if (!remove_allocation(reinterpret_cast<uintptr_t>(p), false, &gone, function))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: no allocation of device memory begins there: %s", function,
                describe_memory(p, 1).c_str());
  give_back(reinterpret_cast<uintptr_t>(p), gone);
  return 0;
}

void poison_fresh(uintptr_t client, uint64_t size) { poison(client, size, kFresh); }

uint64_t device_memory(const Device&) { return settings().memory; }

bool charge(Device& d, uint64_t bytes) {
  CardTable* const card = shared_card();
  if (card && !card->charge(d.physical_id, bytes, device_memory(d))) return false;
  uint64_t used = d.used.load();
  do {
    if (used + bytes > device_memory(d)) {
      if (card) card->discharge(d.physical_id, bytes);
      return false;
    }
  } while (!d.used.compare_exchange_weak(used, used + bytes));
  for (uint64_t peak = d.peak.load(); peak < used + bytes && !d.peak.compare_exchange_weak(peak, used + bytes);) {
  }
  return true;
}

std::shared_ptr<Physical> share_pages(uintptr_t base, uint64_t* offset) {
  Allocation a;
  uintptr_t begins;
  if (!find_allocation(reinterpret_cast<void*>(base), &begins, &a) || begins != base) return nullptr;
  std::lock_guard<std::mutex> hold(chunks_mutex);
  uintptr_t pages = a.chunk ? a.chunk->base : base;
  uint64_t size = a.chunk ? kChunk : round_up(a.size + a.extra, kPage);
  std::shared_ptr<Physical>& shared = a.chunk ? a.chunk->shared : a.shared;
  *offset = base - pages;
  if (shared) return shared;
  aclrtPhysicalMemProp prop = {};
  prop.memAttr = ACL_HBM_MEM_HUGE;
  prop.location = {static_cast<uint32_t>(a.device->id), ACL_MEM_LOCATION_TYPE_DEVICE};
  shared = make_physical(a.device, round_up(size, kHugePage), prop, 0);  // it is charged as an allocation
  if (!shared) return nullptr;
  const char* from = worker_address(reinterpret_cast<void*>(pages));
  for (uint64_t done = 0; done < size;) {
    ssize_t n = pwrite(shared->file, from + done, size - done, static_cast<off_t>(shared->offset + done));
    if (n <= 0) return shared = nullptr;
    done += static_cast<uint64_t>(n);
  }
  if (!back_with_file(pages, size, shared->file, shared->offset)) return shared = nullptr;
  if (!a.chunk) enter_allocation(base, a);
  return shared;
}

void discharge(Device& d, uint64_t bytes) {
  d.used.fetch_sub(bytes);
  if (CardTable* card = shared_card()) card->discharge(d.physical_id, bytes);
}

void give_back(uintptr_t base, const Allocation& gone) {
  discharge(*gone.device, gone.charged);
  if (Chunk* chunk = gone.chunk) {
    uint64_t size = gone.size;
    retire([chunk, base, size] {
      forget_content(base, size);
      give_small(chunk);
    });
    return;
  }
  uintptr_t pages = gone.pages ? gone.pages : base;
  uint64_t size = gone.imported ? gone.shared->size : round_up(gone.size + gone.extra, kPage);
  auto shared = gone.shared;          // kept until its pages are not used any more
  retire([pages, size, shared] {
    take_back(pages, size);
    give_addresses(pages);
  });
}

void free_all(Device& d) {
  drop_virtual_memory(d);
  for (auto& live : live_allocations(&d)) {
    Allocation gone;
    if (remove_allocation(live.first, false, &gone, "aclrtResetDevice")) give_back(live.first, gone);
  }
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  CANN_ENTRY("aclrtMalloc");
  return allocate(devPtr, size, policy, 32, "aclrtMalloc");
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  CANN_ENTRY("aclrtMallocAlign32");
  return allocate(devPtr, size, policy, 0, "aclrtMallocAlign32");
}

aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  CANN_ENTRY("aclrtMallocCached");
  return allocate(devPtr, size, policy, 32, "aclrtMallocCached");
}

aclError aclrtMallocWithCfg(void** devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig* cfg) {
  CANN_ENTRY("aclrtMallocWithCfg");
  if (cfg && cfg->numAttrs && !cfg->attrs) return fail(ACL_ERROR_INVALID_PARAM,
                                                       "aclrtMallocWithCfg: cfg->attrs is NULL");
  return allocate(devPtr, size, policy, 32, "aclrtMallocWithCfg");
}

aclError aclrtMallocForTaskScheduler(void** devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig* cfg) {
  CANN_ENTRY("aclrtMallocForTaskScheduler");
  if (cfg && cfg->numAttrs && !cfg->attrs)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtMallocForTaskScheduler: cfg->attrs is NULL");
  return allocate(devPtr, size, policy, 32, "aclrtMallocForTaskScheduler");
}

// A card has mostly done what was queued by the time that a client's free arrives: its tasks take microseconds, ours more. So they
// get a moment, and so does a thread that has still to queue what the client told it (torch_npu's). A client that counts on it is
// found by CANN_SIM_CHECK=memory, delay mode and CANN_SIM_STRICT, which do without.
static void give_the_device_a_moment(void* freed) {
  constexpr int kMomentMs = 100;
  const Settings& set = settings();
  if (set.mode != Mode::normal || set.strict || set.checks() || is_forked_child()) return;
  uintptr_t base;
  Allocation found;
  if (find_allocation(freed, &base, &found) && found.device) let_streams_go_on(*found.device, deadline_ms(kMomentMs));
}

aclError aclrtFree(void* devPtr) {
  CANN_ENTRY("aclrtFree");
  if (devPtr) give_the_device_a_moment(devPtr);
  return release(devPtr, "aclrtFree");
}

aclError aclrtFreeWithDevSync(void* devPtr) {
  CANN_ENTRY("aclrtFreeWithDevSync");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  if (int code = refuse_unsafe_call("aclrtFreeWithDevSync")) return code;
  if (int code = synchronize_device(*c->device, kForever)) return code;
  return release(devPtr, "aclrtFreeWithDevSync");
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  CANN_ENTRY("aclrtGetMemInfo");
  if (!free || !total) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetMemInfo: %s is NULL", free ? "total" : "free");
  if (attr < ACL_DDR_MEM || attr > ACL_MEM_P2P_HUGE1G)
    return fail(ACL_ERROR_RT_INVALID_MEMORY_TYPE, "aclrtGetMemInfo: %d is not a kind of memory", attr);
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  bool ddr = attr == ACL_DDR_MEM || attr == ACL_DDR_MEM_HUGE || attr == ACL_DDR_MEM_NORMAL ||
             attr == ACL_DDR_MEM_P2P_HUGE || attr == ACL_DDR_MEM_P2P_NORMAL;  // there is only HBM
  *total = ddr ? 0 : device_memory(*c->device);
  const uint64_t others = shared_card() ? shared_card()->others(c->device->physical_id) : 0;
  *free = ddr ? 0 : *total - std::min<uint64_t>(*total, c->device->used.load() + others);
  return 0;
}

aclError aclrtMemGetAddressRange(void* ptr, void** pbase, size_t* psize) {
  CANN_ENTRY("aclrtMemGetAddressRange");
  uintptr_t base;
  Allocation found;
  if (!find_allocation(ptr, &base, &found))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemGetAddressRange: %s", describe_memory(ptr, 1).c_str());
  if (pbase) *pbase = reinterpret_cast<void*>(base);
  if (psize) *psize = found.size;
  return 0;
}

aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo* memUsageInfo, size_t inputNum, size_t* outputNum) {
  CANN_ENTRY("aclrtGetMemUsageInfo");
  if (!memUsageInfo || !inputNum || !outputNum)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetMemUsageInfo: an output is NULL, or inputNum is 0");
  Device* d = device(deviceId);
  if (!d) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtGetMemUsageInfo: there is no device %d", deviceId);
  *memUsageInfo = {};                 // one module holds it all
  strcpy(memUsageInfo->name, "APP");
  memUsageInfo->curMemSize = d->used.load();
  memUsageInfo->memPeakSize = d->peak.load();
  *outputNum = 1;
  return 0;
}
