// Physical memory: made, freed, found by its handle. Mapping it is in virtual_memory.cpp, sharing it in share.cpp.
#include "runtime/physical.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cann_sim {
namespace {

// One sparse file a device: a file per piece would soon reach the host's limit of open files.
struct DeviceFile {
  int file = -1;
  uint64_t size = 0;
  std::map<uint64_t, uint64_t> taken;  // offset: size

  bool grow(uint64_t to) {
    if (file < 0) file = static_cast<int>(syscall(SYS_memfd_create, "device memory", 1u /* MFD_CLOEXEC */));
    if (file < 0) return false;
    if (to > size && ftruncate(file, static_cast<off_t>(to))) return false;
    size = std::max(size, to);
    return true;
  }
  bool take(uint64_t bytes, uint64_t* offset) {
    uint64_t at = 0;
    for (auto& t : taken) {
      if (t.first - at >= bytes) break;
      at = t.first + t.second;
    }
    if (!grow(at + bytes)) return false;
    taken[at] = bytes;
    *offset = at;
    return true;
  }
};

std::mutex files_mutex;
DeviceFile& file_of(const Device* d) {
  static auto& all = *new std::map<const Device*, DeviceFile>;
  return all[d];
}

}  // namespace

Handles<PhysicalHandle>& physical() {
  static Handles<PhysicalHandle>& pool = *new Handles<PhysicalHandle>(1 << 20);
  return pool;
}

PhysicalHandle* find_physical(aclrtDrvMemHandle handle, const char* function, int* code) {
  if (!handle) return *code = fail(ACL_ERROR_INVALID_PARAM, "%s: handle is NULL", function), nullptr;
  PhysicalHandle* found = physical().get(handle);
  if (!found) *code = fail(ACL_ERROR_RT_INVALID_HANDLE, "%s: %p is not a live handle of physical memory", function,
                           handle);
  return found;
}

std::shared_ptr<Physical> make_physical(Device* d, uint64_t size, const aclrtPhysicalMemProp& prop,
                                        uint64_t charged) {
  std::lock_guard<std::mutex> hold(files_mutex);
  DeviceFile& f = file_of(d);
  uint64_t offset;
  if (!f.take(size, &offset)) return nullptr;
  return std::make_shared<Physical>(d, size, f.file, offset, prop, true, charged);
}

Physical::~Physical() {
  if (ticket >= 0) close(ticket);
  if (!owned) {
    close(file);
    return;
  }
  if (device) discharge(*device, charged);
  std::lock_guard<std::mutex> hold(files_mutex);
  file_of(device).taken.erase(offset);
  // The pages go back to the host. An importer that still maps them sees zeros from here on.
  fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size));
}

}  // namespace cann_sim
