// The clock of CANN_SIM_MODE=model: how long a task takes, and how far the host has waited.
#include "runtime/model.h"

#include <algorithm>
#include <atomic>

#include "runtime/device.h"
#include "runtime/memory.h"

namespace cann_sim {
namespace {

const Peaks rows[] = {
#include "peak_rows.inc"
};

const Peaks& peaks() {
  static const Peaks& found = *find_peaks(settings().soc);  // aclInit refuses a SoC without a row
  return found;
}

std::atomic<int64_t> host_time{0};

}  // namespace

const Peaks* find_peaks(const std::string& soc) {
  for (const Peaks& row : rows)
    if (soc == row.soc) return &row;
  return nullptr;
}

// What is not said otherwise is moved through the device's memory.
Work Task::work() const {
  Work work;
  std::vector<Access> used;
  list_uses(used);
  for (const Access& access : used) work.bytes += static_cast<double>(access.bytes);
  return work;
}

int64_t model_ns(const Work& work) {
  if (!work.is_task) return 0;
  const Peaks& p = peaks();
  const double cube = work.item_bits <= 8 ? p.cube_int8 : work.item_bits <= 16 ? p.cube_f16 : p.cube_f32;
  auto seconds = [](double amount, double rate) { return amount > 0 && rate > 0 ? amount / rate : 0; };
  const double longest = std::max({seconds(work.cube, cube * 1e12), seconds(work.vector, p.vector_f32 * 1e12),
                                   seconds(work.bytes, p.memory * 1e9), seconds(work.link_bytes, p.link * 1e9),
                                   seconds(work.host_bytes, p.host * 1e9)});
  return static_cast<int64_t>(std::max(longest * 1e9, p.task_us * 1e3));
}

int64_t model_event_ns() { return static_cast<int64_t>(peaks().event_us * 1e3); }

int64_t host_model_time() { return host_time.load(); }

void host_waited_until(int64_t ns) {
  for (int64_t now = host_time.load(); now < ns && !host_time.compare_exchange_weak(now, ns);) {
  }
}

}  // namespace cann_sim
