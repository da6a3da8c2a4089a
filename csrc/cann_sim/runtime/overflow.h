// The overflow status of a device: set by ops whose results are not finite, while its mode is saturation.
#pragma once
#include "runtime/runtime.h"

namespace cann_sim {

// Inside run(): whether the device of this worker notes overflows.
CANN_SIM_API bool notes_overflow();
CANN_SIM_API void note_overflow();
CANN_SIM_API bool has_overflowed();   // since it was cleared
CANN_SIM_API void clear_overflow();

}  // namespace cann_sim
