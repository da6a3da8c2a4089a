// Physical memory shared with other processes of the host.
//
// A shareable handle is the maker's process id and the number of a small file in it, the ticket: it says where the
// memory lies. Importers open both through /proc, and the kernel decides whether they may.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

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

aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType handleType, uint64_t flags,
                                         uint64_t* shareableHandle) {
  CANN_ENTRY("aclrtMemExportToShareableHandle");
  if (!shareableHandle) return fail(ACL_ERROR_INVALID_PARAM,
                                    "aclrtMemExportToShareableHandle: shareableHandle is NULL");
  if (handleType != ACL_MEM_HANDLE_TYPE_NONE)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemExportToShareableHandle: the handle type must be NONE, got %d",
                handleType);
  if (flags > ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemExportToShareableHandle: unknown flags");
  int code = 0;
  PhysicalHandle* found = find_physical(handle, "aclrtMemExportToShareableHandle", &code);
  if (!found) return code;
  int ticket = ticket_of(*found->memory);
  if (ticket < 0)
    return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                "aclrtMemExportToShareableHandle: the host gives no file for the handle");
  *shareableHandle = (static_cast<uint64_t>(getpid()) << 32) | static_cast<uint32_t>(ticket);
  return 0;
}

aclError aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t* pid, size_t pidNum) {
  CANN_ENTRY("aclrtMemSetPidToShareableHandle");
  if (!pid || !pidNum)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemSetPidToShareableHandle: %s", pid ? "pidNum is 0" : "pid is NULL");
  if (shareableHandle >> 32 == static_cast<uint64_t>(getpid())) return 0;  // the kernel checks who imports
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemSetPidToShareableHandle: the handle is not of this process");
}

aclError aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId, aclrtDrvMemHandle* handle) {
  CANN_ENTRY("aclrtMemImportFromShareableHandle");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemImportFromShareableHandle: handle is NULL");
  Device* d = device(deviceId);
  if (!d) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtMemImportFromShareableHandle: there is no device %d",
                      deviceId);
  auto memory = open_ticket(static_cast<uint32_t>(shareableHandle >> 32), static_cast<uint32_t>(shareableHandle), *d);
  if (!memory)
    return fail(ACL_ERROR_RT_INVALID_HANDLE,
                "aclrtMemImportFromShareableHandle: %#llx is not of a live process that this "
                "one may reach", static_cast<unsigned long long>(shareableHandle));
  PhysicalHandle* made = physical().make(memory);
  if (!made) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "aclrtMemImportFromShareableHandle: too many handles");
  *handle = made;
  return 0;
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  CANN_ENTRY("aclrtDeviceGetBareTgid");
  if (!pid) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDeviceGetBareTgid: pid is NULL");
  *pid = getpid();
  return 0;
}
