// Collectives over the values of an op that runs on every rank of a group.
#include "ops/group.h"

namespace cann_sim {

void expect_group(const Call& c, int i, int64_t size) {
  EXPECT(c.given(i) && *c.string(i), "%s: %s names no group", c.name(), c.row->args[i].name);
  const std::shared_ptr<Group> group = find_group(c.string(i));
  EXPECT(group, "%s: this device has no communicator with the name %s", c.name(), c.string(i));
  EXPECT(!size || group->size() == size, "%s: group %s has %u ranks, not %ld", c.name(), c.string(i), group->size(), long(size));
}

std::shared_ptr<Group> group_of(Run& r, int i) {
  std::shared_ptr<Group> group = find_group(r.call.string(i));
  if (!group) throw DeviceFault(ACL_ERROR_RT_AICPU_EXCEPTION, std::string(r.call.name()) + ": the communicator was destroyed");
  return group;
}

static Bytes bytes_of(const Value& v) { return {v.data, size_t(v.numel() * mt::itemsize(v.dtype))}; }

std::vector<Value> all_to_all(Run& r, Group& group, const std::vector<Value>& send, const std::vector<Sizes>& receive) {
  std::vector<Value> out, in;
  std::vector<Bytes> from, into;
  for (uint32_t k = 0; k < group.size(); ++k) {
    out.push_back(send[k].dense());
    in.push_back(empty(receive[k], send[k].dtype));
    from.push_back(bytes_of(out.back()));
    into.push_back(bytes_of(in.back()));
  }
  group.exchange(r.call.name(), from, into);
  return in;
}

std::vector<Value> all_gather(Run& r, Group& group, const Value& v) {
  return all_to_all(r, group, std::vector<Value>(group.size(), v), std::vector<Sizes>(group.size(), v.shape()));
}

Value all_reduce(Run& r, Group& group, const Value& v) {
  const std::vector<Value> parts = all_gather(r, group, v);
  const Value sum = full(v.shape(), mt::kFloat, 0);
  for (const Value& part : parts) call_pointwise("add", mt::kFloat, {sum, sum, part}, {number(1)});
  return sum;
}

void barrier(Run& r, Group& group) { all_gather(r, group, full({1}, mt::kUInt8, 0)); }

}  // namespace cann_sim
