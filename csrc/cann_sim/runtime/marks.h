// Marks of clients in traces: instants and ranges of the host, for the functions of profiling and for libms_tools_ext.
#pragma once
#include <string>

#include "runtime/runtime.h"

namespace cann_sim {

// Where no trace is written they cost a look. With a stream, the mark is on its line of the trace too, in its order.
CANN_SIM_API void mark_instant(const std::string& text, aclrtStream stream);
CANN_SIM_API uint64_t begin_range(const std::string& text);  // its number, from 1 on
CANN_SIM_API bool end_range(uint64_t id);                    // false: no such range is open

}  // namespace cann_sim
