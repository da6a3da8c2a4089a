// Memory that clients register with a communicator: windows of peers, symmetric windows, ranges of reserved addresses.
// The collectives need none of it, so it is checked and remembered; what is wrong is refused as on a card.
#include <cstring>
#include <map>

#include "hccl/comm.h"
#include "runtime/device.h"

namespace cann_sim {
namespace {

struct Window {
  Window(std::shared_ptr<Comm> c, const void* p, uint64_t n, bool s) : comm(std::move(c)), at(p), size(n), symmetric(s) {}
  const std::shared_ptr<Comm> comm;
  const void* const at;
  const uint64_t size;
  const bool symmetric;             // HcclCommSymWinRegister
};
Handles<Window>& windows() {
  static auto* pool = [] {
    count_at_finalize("windows of communicators", [] { return windows().live(); });
    return new Handles<Window>(4096);
  }();
  return *pool;
}

struct Range {                      // HcclCommSetMemoryRange
  uint64_t size;
  std::map<uintptr_t, uint64_t> active;
};
std::mutex ranges_mutex;
std::map<std::pair<const Comm*, uintptr_t>, Range>& ranges() {  // guarded by ranges_mutex
  static auto& all = *new std::map<std::pair<const Comm*, uintptr_t>, Range>;
  return all;
}

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// Whether [at, at + size) lies in [begin, begin + length). No sum overflows.
bool inside(uintptr_t at, uint64_t size, uintptr_t begin, uint64_t length) {
  return at >= begin && size <= length && at - begin <= length - size;
}

void* open_window(HcclComm comm, const void* at, uint64_t size, bool symmetric) {
  std::shared_ptr<Comm> held = live_comm(comm);
  if (!at) refuse_hccl(HCCL_E_PTR, "null addr");
  if (!size || !is_device_memory(at, size))
    refuse_hccl(HCCL_E_PARA, "addr: not " + std::to_string(size) + " bytes of one device allocation");
  Window* made = windows().make(std::move(held), at, size, symmetric);
  if (!made) refuse_hccl(HCCL_E_MEMORY, "too many windows are registered");
  return made;
}

Window& live_window(const void* handle, bool symmetric, const Comm* comm) {
  if (!handle) refuse_hccl(HCCL_E_PTR, "null window");
  Window* found = windows().get(handle);
  if (!found || found->symmetric != symmetric || (comm && found->comm.get() != comm))
    refuse_hccl(HCCL_E_PARA, "the window is unknown, was deregistered or belongs to another communicator");
  return *found;
}

// Only these families map the memory of other ranks.
void expect_symmetric_memory() {
  if (strcmp(soc().family, "Ascend910_93") && strcmp(soc().family, "Ascend950"))
    refuse_hccl(HCCL_E_NOT_SUPPORT, std::string("symmetric windows are of Atlas A3 and Ascend950, not of ") + soc().name);
}

Range& live_range(const Comm& comm, const void* base) {
  auto found = ranges().find({&comm, address(base)});
  if (found == ranges().end()) refuse_hccl(HCCL_E_NOT_FOUND, "HcclCommSetMemoryRange was not called for baseVirPtr");
  return found->second;
}

Range* range_around(const Comm& comm, const void* at, uint64_t size) {
  for (auto& range : ranges())
    if (range.first.first == &comm && inside(address(at), size, range.first.second, range.second.size)) return &range.second;
  return nullptr;
}

}  // namespace

void drop_windows(const Comm& comm) {
  for (Window* window : windows().all())
    if (window->comm.get() == &comm) windows().drop(window);
  std::lock_guard<std::mutex> hold(ranges_mutex);
  auto& all = ranges();
  for (auto i = all.begin(); i != all.end();) i = i->first.first == &comm ? all.erase(i) : std::next(i);
}

}  // namespace cann_sim

using namespace cann_sim;

// ---- windows that are exchanged with some ranks ---------------------------------------------------------------

HcclResult HcclCommRegister(HcclComm comm, void* addr, uint64_t size, void** handle, uint32_t flag) {
  return guarded("HcclCommRegister", [&] {
    if (!handle) refuse_hccl(HCCL_E_PTR, "null handle");
    if (flag) refuse_hccl(HCCL_E_PARA, "flag is " + std::to_string(flag) + ", expected 0");
    *handle = open_window(comm, addr, size, false);
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommDeregister(HcclComm comm, void* handle) {
  return guarded("HcclCommDeregister", [&] {
    windows().drop(&live_window(handle, false, live_comm(comm).get()));
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommExchangeMem(HcclComm comm, void* windowHandle, uint32_t* peerRanks, uint32_t peerRankNum) {
  return guarded("HcclCommExchangeMem", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    live_window(windowHandle, false, held.get());
    if (!peerRanks || !peerRankNum) refuse_hccl(peerRanks ? HCCL_E_PARA : HCCL_E_PTR, "no peerRanks");
    for (uint32_t i = 0; i < peerRankNum; ++i)
      if (peerRanks[i] >= held->ranks || peerRanks[i] == held->rank)
        refuse_hccl(HCCL_E_PARA, "peerRanks: rank " + std::to_string(peerRanks[i]) + " is no other rank of comm");
    return HCCL_SUCCESS;
  });
}

// ---- symmetric windows -----------------------------------------------------------------------------------------

HcclResult HcclCommSymWinRegister(HcclComm comm, void* addr, uint64_t size, HcclCommSymWindow* winHandle, uint32_t flag) {
  return guarded("HcclCommSymWinRegister", [&] {
    if (!winHandle) refuse_hccl(HCCL_E_PTR, "null winHandle");
    expect_symmetric_memory();
    if (flag != 1) refuse_hccl(HCCL_E_PARA, "flag is " + std::to_string(flag) + ", expected 1");
    *winHandle = open_window(comm, addr, size, true);
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommSymWinDeregister(HcclCommSymWindow winHandle) {
  return guarded("HcclCommSymWinDeregister", [&] {
    windows().drop(&live_window(winHandle, true, nullptr));
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommSymWinGet(HcclComm comm, void* ptr, size_t size, HcclCommSymWindow* winHandle, size_t* offset) {
  return guarded("HcclCommSymWinGet", [&] {
    if (!ptr || !winHandle || !offset) refuse_hccl(HCCL_E_PTR, "null ptr, winHandle or offset");
    std::shared_ptr<Comm> held = live_comm(comm);
    if (!size) refuse_hccl(HCCL_E_PARA, "size is 0");
    for (Window* window : windows().all()) {
      if (!window->symmetric || window->comm != held || !inside(address(ptr), size, address(window->at), window->size)) continue;
      *winHandle = window;
      *offset = address(ptr) - address(window->at);
      return HCCL_SUCCESS;
    }
    refuse_hccl(HCCL_E_NOT_FOUND, "ptr lies in no symmetric window of comm");
  });
}

// ---- reserved addresses whose memory collectives may use in place -----------------------------------------------

HcclResult HcclCommSetMemoryRange(HcclComm comm, void* baseVirPtr, size_t size, size_t alignment, uint64_t) {
  return guarded("HcclCommSetMemoryRange", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    if (!baseVirPtr) refuse_hccl(HCCL_E_PTR, "null baseVirPtr");
    if (!size || alignment) refuse_hccl(HCCL_E_PARA, size ? "alignment must be 0" : "size is 0");
    std::lock_guard<std::mutex> hold(ranges_mutex);
    if (!ranges().emplace(std::make_pair(held.get(), address(baseVirPtr)), Range{size, {}}).second)
      refuse_hccl(HCCL_E_PARA, "the range is set already");
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void* baseVirPtr) {
  return guarded("HcclCommUnsetMemoryRange", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    std::lock_guard<std::mutex> hold(ranges_mutex);
    if (!live_range(*held, baseVirPtr).active.empty()) refuse_hccl(HCCL_E_PARA, "memory of the range is still active");
    ranges().erase({held.get(), address(baseVirPtr)});
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommActivateCommMemory(HcclComm comm, void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  return guarded("HcclCommActivateCommMemory", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    if (!virPtr || !handle) refuse_hccl(HCCL_E_PTR, "null virPtr or handle");
    if (offset || flags) refuse_hccl(HCCL_E_PARA, "offset and flags must be 0");
    if (!size || !is_device_memory(virPtr, size))
      refuse_hccl(HCCL_E_PARA, "virPtr: no physical memory is mapped for " + std::to_string(size) + " bytes there");
    std::lock_guard<std::mutex> hold(ranges_mutex);
    Range* range = range_around(*held, virPtr, size);
    if (!range) refuse_hccl(HCCL_E_PARA, "virPtr lies in no range of HcclCommSetMemoryRange");
    if (!range->active.emplace(address(virPtr), size).second) refuse_hccl(HCCL_E_PARA, "the memory is active already");
    return HCCL_SUCCESS;
  });
}

HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void* virPtr) {
  return guarded("HcclCommDeactivateCommMemory", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    std::lock_guard<std::mutex> hold(ranges_mutex);
    Range* range = range_around(*held, virPtr, 1);
    if (!range || !range->active.erase(address(virPtr))) refuse_hccl(HCCL_E_NOT_FOUND, "the memory is not active");
    return HCCL_SUCCESS;
  });
}

// Each rank says which of the given ranks use their other network card; there is none on one host.
HcclResult HcclCommWorkingDevNicSet(HcclComm comm, uint32_t* ranks, bool* useBackup, uint32_t nRanks) {
  return guarded("HcclCommWorkingDevNicSet", [&] {
    std::shared_ptr<Comm> held = live_comm(comm);
    if (!ranks || !useBackup) refuse_hccl(HCCL_E_PTR, "null ranks or useBackup");
    for (uint32_t i = 0; i < nRanks; ++i)
      if (ranks[i] >= held->ranks) refuse_hccl(HCCL_E_PARA, "rank " + std::to_string(ranks[i]) + " is no rank of comm");
    return HCCL_SUCCESS;
  });
}
