// Events between processes: counters of records in memory that both map.
#pragma once
#include <memory>

#include "runtime/runtime.h"

namespace cann_sim {

class Stream;

// How often the event was recorded, and up to which record streams have come. Held by the event and by its tasks.
class IpcCounters {
 public:
  static std::shared_ptr<IpcCounters> make();                            // nullptr: the host has no memory for it
  static std::shared_ptr<IpcCounters> open(unsigned process, unsigned file);
  ~IpcCounters();
  uint64_t recorded() const { return words_[0].load(); }
  bool reached(uint64_t record) const { return words_[1].load() >= record; }
  uint64_t next_record() { return words_[0].fetch_add(1) + 1; }
  void reach(uint64_t record);
  int file() const { return file_; }

 private:
  IpcCounters(int file, void* page) : file_(file), words_(static_cast<std::atomic<uint64_t>*>(page)) {}
  static std::shared_ptr<IpcCounters> map(int file);
  int file_;
  std::atomic<uint64_t>* words_;
};

Task* new_ipc_record(std::shared_ptr<IpcCounters> counters);             // counted when it is made
Task* new_ipc_wait(std::shared_ptr<IpcCounters> counters, int64_t timeout_ms);
// Waits on the host for what was recorded before the call; false: not in time.
bool wait_for_ipc(const IpcCounters& counters, int64_t timeout_ms);

}  // namespace cann_sim
