// libms_tools_ext (mstx): marks and ranges, which stand in the traces of the runtime, and memory that pools hand out.
#include "runtime/marks.h"

#include <atomic>

#include "runtime/guard.h"
#include "runtime/handles.h"

struct mstxDomainRegistration_st {
  explicit mstxDomainRegistration_st(std::string n) : name(std::move(n)) {}
  const std::string name;
};
struct mstxMemHeap_st {};
struct mstxMemRegionsRegisterBatch {        // the part that is read: how many handles to write, and where
  mstxMemHeap_st* heap;
  int32_t regionType;
  size_t regionCount;
  const void* regionDescArray;
  void** regionHandleArrayOut;
};

namespace cann_sim {
namespace {

Handles<mstxDomainRegistration_st>& domains() {
  static auto& pool = *new Handles<mstxDomainRegistration_st>(4096);
  return pool;
}
Handles<mstxMemHeap_st>& heaps() {
  static auto& pool = *new Handles<mstxMemHeap_st>(65536);
  return pool;
}
std::atomic<uintptr_t> next_region{1};

// nullptr stands for the default domain; a domain that was destroyed takes no marks.
bool name_in(const mstxDomainRegistration_st* domain, const char* message, std::string* name) {
  if (!message || (domain && !domains().check(domain))) return false;
  *name = domain ? domain->name + ": " + message : message;
  return true;
}

void mark(const mstxDomainRegistration_st* domain, const char* message, aclrtStream stream) {
  std::string name;
  if (name_in(domain, message, &name)) mark_instant(name, stream);
}

uint64_t start(const mstxDomainRegistration_st* domain, const char* message, aclrtStream stream) {
  std::string name;
  if (!name_in(domain, message, &name)) return 0;
  if (stream) mark_instant(name, stream);
  return begin_range(name);
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

// What throws inside is 0 or nothing for the client.
#define SAFELY(function, type, expression) try { return expression; } catch (...) { return value_for_exception<type>(function); }

CANN_ABI void mstxMarkA(const char* message, aclrtStream stream) try {
  mark(nullptr, message, stream);
} catch (...) {
  nothing_for_exception<void>("mstxMarkA");
}
CANN_ABI uint64_t mstxRangeStartA(const char* message, aclrtStream stream) {
  SAFELY("mstxRangeStartA", uint64_t, start(nullptr, message, stream))
}
CANN_ABI void mstxRangeEnd(uint64_t id) { end_range(id); }

CANN_ABI mstxDomainRegistration_st* mstxDomainCreateA(const char* name) {
  SAFELY("mstxDomainCreateA", mstxDomainRegistration_st*, name ? domains().make(name) : nullptr)
}
CANN_ABI void mstxDomainDestroy(mstxDomainRegistration_st* domain) { domains().drop(domain); }
CANN_ABI void mstxDomainMarkA(mstxDomainRegistration_st* domain, const char* message, aclrtStream stream) try {
  if (domain) mark(domain, message, stream);
} catch (...) {
  nothing_for_exception<void>("mstxDomainMarkA");
}
CANN_ABI uint64_t mstxDomainRangeStartA(mstxDomainRegistration_st* domain, const char* message, aclrtStream stream) {
  SAFELY("mstxDomainRangeStartA", uint64_t, domain ? start(domain, message, stream) : 0)
}
CANN_ABI void mstxDomainRangeEnd(mstxDomainRegistration_st*, uint64_t id) { end_range(id); }

// Which part of a block a pool gave to whom is for tools that look at memory; the handles tell the calls apart.
CANN_ABI mstxMemHeap_st* mstxMemHeapRegister(mstxDomainRegistration_st*, const void* desc) {
  SAFELY("mstxMemHeapRegister", mstxMemHeap_st*, desc ? heaps().make() : nullptr)
}
CANN_ABI void mstxMemHeapUnregister(mstxDomainRegistration_st*, mstxMemHeap_st* heap) { heaps().drop(heap); }
CANN_ABI void mstxMemRegionsRegister(mstxDomainRegistration_st*, const mstxMemRegionsRegisterBatch* desc) {
  if (!desc || !desc->regionHandleArrayOut) return;
  for (size_t i = 0; i < desc->regionCount; ++i) desc->regionHandleArrayOut[i] = reinterpret_cast<void*>(next_region.fetch_add(1));
}
CANN_ABI void mstxMemRegionsUnregister(mstxDomainRegistration_st*, const void*) {}
