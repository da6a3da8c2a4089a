// Turns at one executor: clients may launch, change and destroy it from several threads. What an executor is: call.h.
#pragma once
#include <mutex>

#include "runtime/runtime.h"

namespace cann_sim {
// Held from the look at a handle until its executor is not used any more. Several handles may share one.
CANN_SIM_API std::mutex& executor_mutex(const void* handle);
}  // namespace cann_sim
