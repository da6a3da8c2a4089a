// The table of a card that several processes share (CANN_SIM_CARD): how much memory each holds of each device.
//
// It is a file in shared memory with one slot per process. A process keeps a lock on the byte of its slot, which the kernel
// releases when the process ends, however it ends: what a slot without a lock says is void. Used by the runtime and by npu-smi.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace cann_sim {

struct Holder {
  int process;
  std::string name;
  uint64_t bytes;
};

class CardTable {
 public:
  explicit CardTable(const std::string& name) {
    const std::string path = "/dev/shm/cann_sim." + std::to_string(getuid()) + "." + name;
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat found;
    if (file_ < 0 || fstat(file_, &found) || found.st_uid != getuid() || ftruncate(file_, kSlots * sizeof(Slot))) return;
    void* at = mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (at != MAP_FAILED) slots_ = static_cast<Slot*>(at);
  }
  CardTable(const CardTable&) = delete;

  // Takes bytes of a device for this process; false: all processes together would hold more than `limit`.
  bool charge(int device, uint64_t bytes, uint64_t limit) {
    std::lock_guard<std::mutex> hold(mutex_);
    if (!slots_ || !set_lock(kSlots, F_WRLCK, F_SETLKW)) return false;  // one process at a time
    const bool taken = join() && others(device) + slots_[own_].used[device] + bytes <= limit;
    if (taken) slots_[own_].used[device] += bytes;
    set_lock(kSlots, F_UNLCK, F_SETLK);
    return taken;
  }

  void discharge(int device, uint64_t bytes) {
    if (own_ >= 0) slots_[own_].used[device] -= bytes;
  }

  // Who holds memory of a device, but for this process.
  std::vector<Holder> holders(int device) const {
    std::vector<Holder> found;
    for (int i = 0; slots_ && i < kSlots; ++i) {
      const uint64_t bytes = slots_[i].used[device];
      const int process = bytes && i != own_ ? owner(i) : 0;
      if (process) found.push_back({process, std::string(slots_[i].name, strnlen(slots_[i].name, sizeof slots_[i].name)), bytes});
    }
    return found;
  }

  uint64_t others(int device) const {
    uint64_t sum = 0;
    for (const Holder& holder : holders(device)) sum += holder.bytes;
    return sum;
  }

 private:
  static constexpr int kSlots = 1024, kDevices = 64;
  struct Slot {
    char name[16];
    std::atomic<uint64_t> used[kDevices];
  };

  bool set_lock(int byte, short kind, int command) const {
    struct flock lock = {};
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return !fcntl(file_, command, &lock);
  }

  // The process that holds a slot; 0: none.
  int owner(int slot) const {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    return !fcntl(file_, F_GETLK, &lock) && lock.l_type != F_UNLCK ? lock.l_pid : 0;
  }

  bool join() {
    for (int i = 0; own_ < 0 && i < kSlots; ++i) {
      if (!set_lock(i, F_WRLCK, F_SETLK)) continue;
      for (auto& used : slots_[i].used) used = 0;
      memset(slots_[i].name, 0, sizeof slots_[i].name);
      if (FILE* comm = fopen("/proc/self/comm", "r")) {
        if (fgets(slots_[i].name, sizeof slots_[i].name, comm)) slots_[i].name[strcspn(slots_[i].name, "\n")] = 0;
        fclose(comm);
      }
      own_ = i;
    }
    return own_ >= 0;
  }

  int file_ = -1, own_ = -1;
  Slot* slots_ = nullptr;
  std::mutex mutex_;
};

}  // namespace cann_sim
