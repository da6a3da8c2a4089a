// What ops share that communicate within a group of ranks: the group by its name, and collectives over values.
#pragma once
#include "ops/result.h"
#include "runtime/groups.h"

namespace cann_sim {

// Argument i names a communicator of this device; `size`, where not 0, is how many ranks it has.
void expect_group(const Call& c, int i, int64_t size = 0);
std::shared_ptr<Group> group_of(Run& r, int i);  // throws DeviceFault when it is gone

// All values are dense; what comes from rank r is item r of the result.
std::vector<Value> all_to_all(Run& r, Group& group, const std::vector<Value>& send, const std::vector<Sizes>& receive);
std::vector<Value> all_gather(Run& r, Group& group, const Value& v);  // of one shape on every rank
Value all_reduce(Run& r, Group& group, const Value& v);               // float32, added in the order of ranks
void barrier(Run& r, Group& group);

inline bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }

}  // namespace cann_sim
