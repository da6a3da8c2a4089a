// Communicators for ops that communicate themselves (runtime/groups.h): an exchange of host memory between all ranks.
#include <cstring>

#include "hccl/comm.h"
#include "runtime/groups.h"

namespace cann_sim {
namespace {

class CommGroup final : public Group {
 public:
  explicit CommGroup(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) {}
  uint32_t size() const override { return comm_->ranks; }
  uint32_t rank() const override { return comm_->rank; }

  void exchange(const char* op, const std::vector<Bytes>& send, const std::vector<Bytes>& receive) override {
    Phase phase;
    const uint32_t me = comm_->rank;
    std::vector<std::unique_lock<std::mutex>> held;
    for (uint32_t r = 0; r < comm_->ranks; ++r) {
      if (r == me) continue;
      phase.push_back({Move::send, r, send[r].at, send[r].count});
      phase.push_back({Move::receive, r, receive[r].at, receive[r].count});
      held.emplace_back(comm_->ring_locks[2 * r]);  // in the order in which collectives take them
      held.emplace_back(comm_->ring_locks[2 * r + 1]);
    }
    if (send[me].count != receive[me].count)
      throw DeviceFault(ACL_ERROR_RT_AICPU_EXCEPTION, std::string(op) + ": this rank sends itself another count than it receives");
    if (send[me].count) std::memcpy(receive[me].at, send[me].at, send[me].count);
    const Frame frame{op_number(op), 0, 0, {}};
    const Exchange exchange{comm_->segment, me, op, frame, nullptr, 1, comm_->exec_deadline(), comm_->aborted};
    try {
      run_phase(exchange, phase, [](void* p, size_t) { return p; });
    } catch (const DeviceFault& fault) {
      comm_->abort(fault.code == ACL_ERROR_RT_AICPU_TIMEOUT ? HCCL_E_TIMEOUT : HCCL_E_REMOTE);
      throw;
    }
  }

 private:
  std::shared_ptr<Comm> comm_;
};

std::shared_ptr<Group> find(const char* name, int device) {
  for (CommHandle* handle : comms().all())
    if (handle->comm->device == device && handle->comm->name == name && !handle->comm->aborted)
      return std::make_shared<CommGroup>(handle->comm);
  return nullptr;
}

[[maybe_unused]] const bool registered = (set_group_finder(find), true);

}  // namespace
}  // namespace cann_sim
