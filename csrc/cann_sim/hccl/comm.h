// A communicator as one rank holds it, and the collectives that are queued on streams for it.
#pragma once
#include <mutex>
#include <vector>

#include "hccl/transfer.h"
#include "runtime/handles.h"
#include "runtime/runtime.h"

namespace cann_sim {

// What of an HcclCommConfig has an effect here.
struct CommOptions {
  static constexpr int kNotSet = -1;
  std::string name;                 // empty: one is made
  int exec_timeout = kNotSet;       // seconds, before HCCL_EXEC_TIMEOUT; 0: none
  int32_t deterministic = 0;
};
CommOptions read_config(const HcclCommConfig* config);  // nullptr: the defaults. Throws HcclFailure

class Comm {
 public:
  Comm(const RootRecord& root, uint32_t ranks, uint32_t rank, int device, const CommOptions& options);
  ~Comm();

  const uint32_t ranks, rank;
  const int device;
  const std::string name;
  Segment segment;
  std::atomic<bool> aborted{false};
  std::atomic<int> error{0};  // what HcclGetCommAsyncError says
  std::atomic<int32_t> deterministic{0};
  Deadline exec_deadline() const;  // of a collective that begins now
  // Nothing more can be exchanged: the rings may hold half a message. The first error stays.
  void abort(int code);
  // A ring has one user at a time: tasks of several streams may use one communicator.
  std::vector<std::mutex> ring_locks;  // 2 * peer, and one more for the direction to this rank

 private:
  const int exec_timeout_;
};

// What the client holds. Tasks keep the communicator alive after it is destroyed.
struct CommHandle {
  std::shared_ptr<Comm> comm;
  explicit CommHandle(std::shared_ptr<Comm> c) : comm(std::move(c)) {}
};
Handles<CommHandle>& comms();

// Turns what went wrong into a code and a message for aclGetRecentErrMsg.
template <class Body> int guarded(const char* function, Body body) {
  if (int planned = planned_fault(function)) return planned;
  try {
    return body();
  } catch (const HcclFailure& failure) {
    return fail(failure.code, "%s: %s", function, failure.message.c_str());
  } catch (const std::exception& error) { return fail(HCCL_E_INTERNAL, "%s: %s", function, error.what()); }
}

[[noreturn]] inline void refuse_hccl(int code, std::string message) { throw HcclFailure{code, std::move(message)}; }
std::shared_ptr<Comm> live_comm(HcclComm comm);  // throws HcclFailure
Deadline after_setting(const char* variable, int default_seconds);
// Joins as one rank, waits for the others and hands a communicator out. Throws HcclFailure.
int open_comm(const RootRecord& root, uint32_t ranks, uint32_t rank, const CommOptions& options, HcclComm* out);
void check_ranks(uint32_t ranks, uint32_t rank);  // throws HcclFailure
int current_device();                             // the same
void drop_windows(const Comm& comm);              // of memory that its clients registered (windows.cpp)

}  // namespace cann_sim
