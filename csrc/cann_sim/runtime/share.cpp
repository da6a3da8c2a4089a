// Physical memory shared with other processes of the host.
//
// A shareable handle is the maker's process id and the number of a small file in it, the ticket: it says where the
// memory lies. Importers open both through /proc, and the kernel decides whether they may.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "runtime/physical.h"

namespace cann_sim {
namespace {

struct Ticket {
  uint64_t magic;
  int32_t file;
  uint64_t offset, size;
};
constexpr uint64_t kMagic = 0x6d656d206f662061;

int open_in(uint32_t process, uint32_t file, int mode) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/fd/%u", process, file);
  return open(path, mode | O_CLOEXEC);
}

}  // namespace

int ticket_of(Physical& memory) {
  static std::mutex& mutex = *new std::mutex;
  std::lock_guard<std::mutex> hold(mutex);
  if (memory.ticket >= 0) return memory.ticket;
  int made = static_cast<int>(syscall(SYS_memfd_create, "shared device memory", 1u /* MFD_CLOEXEC */));
  Ticket ticket = {kMagic, memory.file, memory.offset, memory.size};
  if (made >= 0 && write(made, &ticket, sizeof ticket) != sizeof ticket) {
    close(made);
    made = -1;
  }
  memory.ticket = made;
  return made;
}

std::shared_ptr<Physical> open_ticket(uint32_t process, uint32_t number, Device& d) {
  int ticket_file = open_in(process, number, O_RDONLY);
  Ticket ticket = {};
  bool known = ticket_file >= 0 && pread(ticket_file, &ticket, sizeof ticket, 0) == sizeof ticket &&
               ticket.magic == kMagic;
  if (ticket_file >= 0) close(ticket_file);
  int file = known ? open_in(process, static_cast<uint32_t>(ticket.file), O_RDWR) : -1;
  if (file < 0) return nullptr;
  aclrtPhysicalMemProp prop = {};
  prop.memAttr = ACL_HBM_MEM_HUGE;
  prop.location = {static_cast<uint32_t>(d.id), ACL_MEM_LOCATION_TYPE_DEVICE};
  auto memory = std::make_shared<Physical>(&d, ticket.size, file, ticket.offset, prop, false, 0);
  memory->fresh = false;
  return memory;
}

}  // namespace cann_sim

using namespace cann_sim;

namespace {

// The maker's process and the file in it that tells where the memory lies. A fabric handle has it in its first bytes.
int export_handle(aclrtDrvMemHandle handle, uint64_t flags, const char* function, uint64_t* key) {
  if (flags > ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: unknown flags", function);
  int code = 0;
  PhysicalHandle* found = find_physical(handle, function, &code);
  if (!found) return code;
  const int ticket = ticket_of(*found->memory);
  if (ticket < 0) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "%s: the host gives no file for the handle", function);
  *key = (static_cast<uint64_t>(getpid()) << 32) | static_cast<uint32_t>(ticket);
  return 0;
}

int allow_processes(uint64_t key, const int32_t* pid, size_t count, const char* function) {
  if (!pid || !count) return fail(ACL_ERROR_INVALID_PARAM, "%s: %s", function, pid ? "pidNum is 0" : "pid is NULL");
  if (key >> 32 == static_cast<uint64_t>(getpid())) return 0;  // the kernel checks who imports
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the handle is not of this process", function);
}

int import_handle(uint64_t key, Device& d, const char* function, aclrtDrvMemHandle* handle) {
  auto memory = open_ticket(static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(key), d);
  if (!memory)
    return fail(ACL_ERROR_RT_INVALID_HANDLE, "%s: %#llx is not of a live process that this one may reach", function,
                static_cast<unsigned long long>(key));
  PhysicalHandle* made = physical().make(memory);
  if (!made) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "%s: too many handles", function);
  *handle = made;
  return 0;
}

// Of the second versions, whose handle is 8 bytes or, where devices have a fabric, 128.
int check_kind(const void* shareableHandle, aclrtMemSharedHandleType kind, const char* function) {
  if (!shareableHandle) return fail(ACL_ERROR_INVALID_PARAM, "%s: shareableHandle is NULL", function);
  if (kind == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) return 0;
  if (kind != ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %d is no kind of handle", function, kind);
  if (!strcmp(soc().family, "Ascend910_93") || !strcmp(soc().family, "Ascend950")) return 0;
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s: fabric handles are of Atlas A3 and Ascend950, not of %s", function, soc().name);
}

uint64_t key_in(const void* shareableHandle) {
  uint64_t key;
  memcpy(&key, shareableHandle, sizeof key);
  return key;
}

}  // namespace

aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType handleType, uint64_t flags,
                                         uint64_t* shareableHandle) {
  CANN_ENTRY("aclrtMemExportToShareableHandle");
  if (!shareableHandle) return fail(ACL_ERROR_INVALID_PARAM,
                                    "aclrtMemExportToShareableHandle: shareableHandle is NULL");
  if (handleType != ACL_MEM_HANDLE_TYPE_NONE)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemExportToShareableHandle: the handle type must be NONE, got %d",
                handleType);
  return export_handle(handle, flags, "aclrtMemExportToShareableHandle", shareableHandle);
}

aclError aclrtMemExportToShareableHandleV2(aclrtDrvMemHandle handle, uint64_t flags, aclrtMemSharedHandleType shareType,
                                           void* shareableHandle) {
  CANN_ENTRY("aclrtMemExportToShareableHandleV2");
  if (int code = check_kind(shareableHandle, shareType, "aclrtMemExportToShareableHandleV2")) return code;
  uint64_t key;
  if (int code = export_handle(handle, flags, "aclrtMemExportToShareableHandleV2", &key)) return code;
  if (shareType == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) memset(shareableHandle, 0, sizeof(aclrtMemFabricHandle));
  memcpy(shareableHandle, &key, sizeof key);
  return 0;
}

aclError aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t* pid, size_t pidNum) {
  CANN_ENTRY("aclrtMemSetPidToShareableHandle");
  return allow_processes(shareableHandle, pid, pidNum, "aclrtMemSetPidToShareableHandle");
}

aclError aclrtMemSetPidToShareableHandleV2(void* shareableHandle, aclrtMemSharedHandleType shareType, int32_t* pid, size_t pidNum) {
  CANN_ENTRY("aclrtMemSetPidToShareableHandleV2");
  if (int code = check_kind(shareableHandle, shareType, "aclrtMemSetPidToShareableHandleV2")) return code;
  return allow_processes(key_in(shareableHandle), pid, pidNum, "aclrtMemSetPidToShareableHandleV2");
}

aclError aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId, aclrtDrvMemHandle* handle) {
  CANN_ENTRY("aclrtMemImportFromShareableHandle");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemImportFromShareableHandle: handle is NULL");
  Device* d = device(deviceId);
  if (!d) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtMemImportFromShareableHandle: there is no device %d",
                      deviceId);
  return import_handle(shareableHandle, *d, "aclrtMemImportFromShareableHandle", handle);
}

// For the device of the calling thread.
aclError aclrtMemImportFromShareableHandleV2(void* shareableHandle, aclrtMemSharedHandleType shareType, uint64_t flags,
                                             aclrtDrvMemHandle* handle) {
  CANN_ENTRY("aclrtMemImportFromShareableHandleV2");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemImportFromShareableHandleV2: handle is NULL");
  if (int code = check_kind(shareableHandle, shareType, "aclrtMemImportFromShareableHandleV2")) return code;
  if (flags) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemImportFromShareableHandleV2: flags must be 0");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  return import_handle(key_in(shareableHandle), *c->device, "aclrtMemImportFromShareableHandleV2", handle);
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  CANN_ENTRY("aclrtDeviceGetBareTgid");
  if (!pid) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDeviceGetBareTgid: pid is NULL");
  *pid = getpid();
  return 0;
}
