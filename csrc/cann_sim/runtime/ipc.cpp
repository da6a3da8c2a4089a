// Memory of aclrtMalloc shared with other processes of the host, by a key: the process, its ticket (share.cpp), and
// where in the shared pages the allocation lies.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "runtime/allocation.h"
#include "runtime/physical.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

constexpr size_t kKeyBytes = 65;        // as CANN documents
constexpr const char* kKey = "cann_sim-%u-%u-%llu-%llu";

std::mutex imports_mutex;
std::map<std::string, uintptr_t>& imports() {
  static auto& one = *new std::map<std::string, uintptr_t>;
  return one;
}

struct Key {
  unsigned process, ticket;
  unsigned long long offset, size;
  bool read(const char* text) { return text && sscanf(text, kKey, &process, &ticket, &offset, &size) == 4; }
};

int bad_key(const char* function, const char* key) {
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: '%s' is not the key of shared memory", function, key ? key : "");
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtIpcMemGetExportKey(void* devPtr, size_t size, char* key, size_t len, uint64_t flags) {
  CANN_ENTRY("aclrtIpcMemGetExportKey");
  if (!devPtr || !key || !size)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtIpcMemGetExportKey: devPtr or key is NULL, or size is 0");
  if (len < kKeyBytes) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemGetExportKey: a key needs %zu bytes",
                                   kKeyBytes);
  if (flags > ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemGetExportKey: unknown flags");
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  if (int code = refuse_unsafe_call("aclrtIpcMemGetExportKey")) return code;
  uintptr_t base;
  Allocation a;
  if (!find_allocation(devPtr, &base, &a) || a.mapped || a.imported || base != reinterpret_cast<uintptr_t>(devPtr))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemGetExportKey: no allocation of aclrtMalloc begins at %p",
                devPtr);
  if (size > a.size)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemGetExportKey: %s", describe_memory(devPtr, size).c_str());
  if (int code = synchronize_device(*a.device, kForever)) return code;  // the pages move: nothing may use them
  uint64_t offset;
  auto memory = share_pages(base, &offset);
  int ticket = memory ? ticket_of(*memory) : -1;
  if (ticket < 0) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                              "aclrtIpcMemGetExportKey: the host shares no more memory");
  snprintf(key, len, kKey, static_cast<unsigned>(getpid()), static_cast<unsigned>(ticket),
           static_cast<unsigned long long>(offset), static_cast<unsigned long long>(size));
  return 0;
}

aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pid, size_t num) {
  CANN_ENTRY("aclrtIpcMemSetImportPid");
  if (!pid || !num) return fail(ACL_ERROR_INVALID_PARAM, "aclrtIpcMemSetImportPid: %s",
                                pid ? "num is 0" : "pid is NULL");
  Key k;
  return k.read(key) ? 0 : bad_key("aclrtIpcMemSetImportPid", key);  // the kernel checks who imports
}

aclError aclrtIpcMemImportByKey(void** devPtr, const char* key, uint64_t flags) {
  CANN_ENTRY("aclrtIpcMemImportByKey");
  if (!devPtr) return fail(ACL_ERROR_INVALID_PARAM, "aclrtIpcMemImportByKey: devPtr is NULL");
  if (flags > ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemImportByKey: unknown flags");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  Key k;
  if (!k.read(key)) return bad_key("aclrtIpcMemImportByKey", key);
  std::lock_guard<std::mutex> hold(imports_mutex);
  auto before = imports().find(key);
  if (before != imports().end() && is_device_memory(reinterpret_cast<void*>(before->second), 1))
    return fail(ACL_ERROR_RT_PARAM_INVALID,
                                        "aclrtIpcMemImportByKey: the key is imported already");
  auto memory = open_ticket(k.process, k.ticket, *c->device);
  if (!memory || k.size > memory->size || k.offset > memory->size - k.size)
    return fail(ACL_ERROR_RT_INVALID_HANDLE,
                "aclrtIpcMemImportByKey: the memory of '%s' is gone, or not for this process", key);
  uintptr_t pages = take_addresses(memory->size, kHugePage, 0);
  if (!pages || !back_with_file(pages, memory->size, memory->file, memory->offset)) {
    if (pages) give_addresses(pages);
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtIpcMemImportByKey: the host refuses to map the memory");
  }
  Allocation made;
  made.size = k.size;
  made.device = c->device;
  made.imported = made.huge = true;
  made.pages = pages;
  made.shared = memory;
  enter_allocation(pages + k.offset, made);
  imports()[key] = pages + k.offset;
  *devPtr = reinterpret_cast<void*>(pages + k.offset);
  return 0;
}

aclError aclrtIpcMemClose(const char* key) {
  CANN_ENTRY("aclrtIpcMemClose");
  Key k;
  if (!k.read(key)) return bad_key("aclrtIpcMemClose", key);
  if (k.process == static_cast<unsigned>(getpid())) return 0;  // the maker's memory ends with aclrtFree
  std::lock_guard<std::mutex> hold(imports_mutex);
  auto found = imports().find(key);
  if (found == imports().end()) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcMemClose: '%s' is not imported", key);
  uintptr_t base = found->second;
  imports().erase(found);
  Allocation gone;
  if (remove_allocation(base, false, &gone, "aclrtIpcMemClose")) give_back(base, gone);  // otherwise its device was reset before
  return 0;
}
