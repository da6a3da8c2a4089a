// CANN_SIM_MODE=model: a clock of device time for every stream, from what tasks move and compute and what the SoC is assumed
// to reach (src/cann_tables/peaks.txt). The results are computed as in normal mode; the host costs nothing.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/runtime.h"

namespace cann_sim {

struct Peaks {
  const char* soc;
  double cube_f16, cube_f32, cube_int8, vector_f32;  // TFLOP/s
  double memory, link, host;                         // GB/s
  double task_us, event_us;
};
const Peaks* find_peaks(const std::string& soc);     // nullptr: nothing is assumed of it

inline bool modelling() { return settings().mode == Mode::model; }
// Nanoseconds that the work takes: as long as the slowest of units, memory and links, and no less than a task's least.
int64_t model_ns(const Work& work);
int64_t model_event_ns();
// The device time up to which the host has waited: what it queues begins no earlier.
int64_t host_model_time();
void host_waited_until(int64_t ns);

}  // namespace cann_sim
