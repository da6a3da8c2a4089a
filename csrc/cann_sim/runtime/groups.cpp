// The place where libhccl leaves the way to its communicators, for the ops of libopapi, which do not link it.
#include "runtime/groups.h"

#include "runtime/stream.h"

namespace cann_sim {

static std::atomic<GroupFinder> finder{nullptr};

Group::~Group() = default;

void set_group_finder(GroupFinder found) { finder = found; }

std::shared_ptr<Group> find_group(const char* name) {
  const GroupFinder find = finder.load();
  if (!find) return nullptr;  // the client never loaded libhccl
  const Stream* worker = Stream::of_this_worker();
  return find(name, worker ? worker->device.id : stream_device(nullptr));
}

}  // namespace cann_sim
