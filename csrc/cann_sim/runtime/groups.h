// Groups of ranks as ops see them that compute and communicate in one: libhccl tells where its communicators are.
#pragma once
#include <memory>
#include <vector>

#include "runtime/runtime.h"

namespace cann_sim {

struct Bytes {
  void* at;
  size_t count;
};
class CANN_SIM_API Group {
 public:
  virtual ~Group();
  virtual uint32_t size() const = 0;
  virtual uint32_t rank() const = 0;
  // send[r] goes to rank r, receive[r] comes from it; both are host memory with one item a rank. Returns when all is
  // through; throws DeviceFault when a rank is gone or expects other sizes.
  virtual void exchange(const char* op, const std::vector<Bytes>& send, const std::vector<Bytes>& receive) = 0;
};
using GroupFinder = std::shared_ptr<Group> (*)(const char* name, int device);
CANN_SIM_API void set_group_finder(GroupFinder finder);
// By its name, on the device of the task that this worker runs, or else of this thread; nullptr: there is none.
CANN_SIM_API std::shared_ptr<Group> find_group(const char* name);

}  // namespace cann_sim
