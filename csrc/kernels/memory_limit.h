// How much memory this process may use.
#pragma once
#include <cstdint>

namespace mt {

// The least of what the machine has, of the process's own limits (ulimit -v, -d) and of those of its control groups
// (version 1 and 2). `root` stands before /proc and /sys: "" but for tests.
int64_t memory_limit(const char* root);

}  // namespace mt
