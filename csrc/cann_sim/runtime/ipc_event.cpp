// Events between processes: their counters, the tasks that record and await them, and the handles that processes exchange.
#include "runtime/ipc_event.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "runtime/stream.h"

namespace cann_sim {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr const char* kKey = "cann_sim-event-%u-%u";

// Another process rings no bell here: look again every now and then.
template <class Ready>
bool poll(Ready ready, int64_t timeout_ms) {
  const Deadline latest = deadline_ms(timeout_ms);
  while (!ready()) {
    if (Clock::now() >= latest) return false;
    bell().wait(ready, std::min(latest, Clock::now() + std::chrono::milliseconds(1)));
  }
  return true;
}

class IpcRecordTask final : public ControlTask {
 public:
  explicit IpcRecordTask(std::shared_ptr<IpcCounters> counters)
      : counters_(std::move(counters)), record_(counters_->next_record()) {}
  ~IpcRecordTask() override { counters_->reach(record_); }  // also when it was dropped: others must not wait for ever
  void run() override { counters_->reach(record_); }
  const char* name() const override { return "aclrtRecordEvent"; }

 private:
  std::shared_ptr<IpcCounters> counters_;
  uint64_t record_;
};

class IpcWaitTask final : public ControlTask {
 public:
  IpcWaitTask(std::shared_ptr<IpcCounters> counters, int64_t timeout_ms)
      : counters_(std::move(counters)), record_(counters_->recorded()), timeout_ms_(timeout_ms) {}
  void run() override {
    if (poll([this] { return counters_->reached(record_) || Stream::waits_in_vain(); }, timeout_ms_)) return;
    throw DeviceFault(ACL_ERROR_RT_WAIT_TIMEOUT, "the event of another process was not reached within " +
                                                     std::to_string(timeout_ms_) + " ms");
  }
  const char* name() const override { return "aclrtStreamWaitEvent"; }

 private:
  std::shared_ptr<IpcCounters> counters_;
  uint64_t record_;
  int64_t timeout_ms_;
};

}  // namespace

std::shared_ptr<IpcCounters> IpcCounters::map(int file) {
  void* page = file < 0 ? MAP_FAILED : mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    if (file >= 0) close(file);
    return nullptr;
  }
  return std::shared_ptr<IpcCounters>(new IpcCounters(file, page));
}

std::shared_ptr<IpcCounters> IpcCounters::make() {
  const int file = static_cast<int>(syscall(SYS_memfd_create, "shared event", 1u /* MFD_CLOEXEC */));
  if (file >= 0 && ftruncate(file, kPageBytes)) return close(file), nullptr;
  return map(file);
}

std::shared_ptr<IpcCounters> IpcCounters::open(unsigned process, unsigned file) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/fd/%u", process, file);
  return map(::open(path, O_RDWR | O_CLOEXEC));
}

IpcCounters::~IpcCounters() {
  munmap(words_, kPageBytes);
  close(file_);
}

void IpcCounters::reach(uint64_t record) {
  for (uint64_t now = words_[1].load(); now < record && !words_[1].compare_exchange_weak(now, record);) {
  }
  bell().ring();
}

Task* new_ipc_record(std::shared_ptr<IpcCounters> counters) { return new IpcRecordTask(std::move(counters)); }
Task* new_ipc_wait(std::shared_ptr<IpcCounters> counters, int64_t timeout_ms) {
  return new IpcWaitTask(std::move(counters), timeout_ms);
}

bool wait_for_ipc(const IpcCounters& counters, int64_t timeout_ms) {
  const uint64_t record = counters.recorded();
  return poll([&] { return counters.reached(record); }, timeout_ms);
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle* handle) {
  CANN_ENTRY("aclrtIpcGetEventHandle");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclrtIpcGetEventHandle: handle is NULL");
  Event* e = event ? events().get(event) : nullptr;
  if (!e || !e->ipc)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcGetEventHandle: %p is not a live event with ACL_EVENT_IPC", event);
  *handle = {};
  snprintf(handle->reserved, sizeof handle->reserved, kKey, static_cast<unsigned>(getpid()), static_cast<unsigned>(e->ipc->file()));
  return 0;
}

aclError aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent* event) {
  CANN_ENTRY("aclrtIpcOpenEventHandle");
  if (!event) return fail(ACL_ERROR_INVALID_PARAM, "aclrtIpcOpenEventHandle: event is NULL");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  unsigned process, file;
  handle.reserved[sizeof handle.reserved - 1] = 0;
  if (sscanf(handle.reserved, kKey, &process, &file) != 2)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcOpenEventHandle: this is not the handle of an event");
  auto counters = IpcCounters::open(process, file);
  if (!counters)
    return fail(ACL_ERROR_RT_INVALID_HANDLE, "aclrtIpcOpenEventHandle: the event is gone, or not for this process");
  Event* made = events().make(c, EventKind::capturing, static_cast<uint32_t>(ACL_EVENT_IPC));
  if (!made) return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "aclrtIpcOpenEventHandle: too many events");
  made->ipc = std::move(counters);
  *event = made;
  return 0;
}
